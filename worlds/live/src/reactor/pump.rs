//! An engine with its deadlines, as every live driver runs it.

use engine::{Engine, Instant, Nanos, fire, next_wake};

/// How often deadlines are looked at while there is always something else to do.
const SETTLE_EVERY: Nanos = Nanos::from_millis(1);

/// The world around an engine: a driver's handling of outputs.
pub(crate) trait Shell<E: Engine> {
    /// Passes one output to the world. The world's immediate answers may go into `engine`.
    fn pass(&mut self, now: Instant, output: E::Output, engine: &mut E);

    /// Gives `engine` the answers that have come while outputs were passed on. Returns whether
    /// there were any.
    fn answer(&mut self, _now: Instant, _engine: &mut E) -> bool {
        false
    }

    /// Fires due deadlines in the shell's own engines. Returns whether anything was due.
    fn fire(&mut self, _now: Instant) -> bool {
        false
    }

    /// When something is due next in the shell's own engines.
    fn next_wake(&self, _now: Instant) -> Option<Instant> {
        None
    }
}

/// An engine and its next deadline.
///
/// A driver gives received inputs to the engine, and calls [`Pump::exchange`] at once: an answer
/// leaves before anything else is looked at. Deadlines may have changed then. They are looked at
/// ([`Pump::settle`]) when there is time, which [`Pump::wants_settling`] decides for all drivers
/// alike.
#[derive(Debug)]
pub(crate) struct Pump<E> {
    engine: E,
    wake: Option<Instant>,
    /// Deadlines may have changed since `wake` was determined.
    unsettled: bool,
    settled_at: Instant,
}

impl<E: Engine> Pump<E> {
    pub(crate) const fn new(engine: E) -> Self {
        Self { engine, wake: None, unsettled: true, settled_at: Instant::ZERO }
    }

    /// The engine.
    pub(crate) const fn engine(&self) -> &E {
        &self.engine
    }

    /// The engine, for commands. Its deadlines are looked at again afterwards.
    #[inline]
    pub(crate) const fn engine_mut(&mut self) -> &mut E {
        self.unsettled = true;
        &mut self.engine
    }

    /// The engine, for a look that changes no deadline unless outputs follow.
    #[inline]
    pub(crate) const fn engine_to_poll(&mut self) -> &mut E {
        &mut self.engine
    }

    /// Passes outputs to `shell`, and the answers back in, until both are quiet. Returns whether
    /// there was anything.
    #[inline]
    pub(crate) fn exchange(&mut self, now: Instant, shell: &mut impl Shell<E>) -> bool {
        let mut busy = false;
        loop {
            while let Some(output) = self.engine.poll_output() {
                busy = true;
                shell.pass(now, output, &mut self.engine);
            }
            if !shell.answer(now, &mut self.engine) {
                self.unsettled |= busy;
                return busy;
            }
            busy = true;
        }
    }

    /// Whether it is time to look at deadlines: one is due, nothing else happened in the turn, or
    /// the last look was long ago.
    #[inline]
    pub(crate) fn wants_settling(&self, now: Instant, busy: bool) -> bool {
        let is_due = self.wake.is_some_and(|at| at <= now);
        is_due || (self.unsettled && (!busy || now - self.settled_at >= SETTLE_EVERY))
    }

    /// Fires due deadlines, and determines the next deadline. Returns whether there was anything to
    /// pass on.
    pub(crate) fn settle(&mut self, now: Instant, shell: &mut impl Shell<E>) -> bool {
        let mut busy = false;
        while self.unsettled || self.wake.is_some_and(|at| at <= now) {
            busy |= fire(&mut self.engine, now);
            busy |= shell.fire(now);
            busy |= self.exchange(now, shell);
            self.wake = [next_wake(&self.engine, now), shell.next_wake(now)].into_iter().flatten().min();
            self.unsettled = false;
        }
        self.settled_at = now;
        busy
    }

    /// When something is due next, as the last [`Pump::settle`] found.
    pub(crate) const fn poll_timeout(&self) -> Option<Instant> {
        self.wake
    }
}
