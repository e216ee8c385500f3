//! An engine with its deadlines, as every live driver runs it.

use engine::{Engine, Instant, Nanos, fire, next_wake};

/// How often deadlines are looked at while there is always something else to do.
const SETTLE_EVERY: Nanos = Nanos::from_millis(1);

/// The world around an engine: a driver's handling of outputs.
///
/// A shell that needs a driver's other fields for one call borrows them, and is made for that call.
pub(crate) trait Shell<E: Engine> {
    /// The next output of `engine`; `None` if there is none, or while the world takes no more. A
    /// shell with a faster way for some outputs takes those here.
    #[inline]
    fn poll(&mut self, engine: &mut E) -> Option<E::Output> {
        engine.poll_output()
    }

    /// Passes one output to the world. The world's immediate answers may go into `engine`.
    fn pass(&mut self, now: Instant, output: E::Output, engine: &mut E);

    /// Sends the outputs that [`Shell::pass`] has put together, and gives `engine` the answers that
    /// have come meanwhile. Returns whether there were any of either.
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

    /// Whether outputs stay in the engine because the world takes no more. Deadlines wait with
    /// them: news of the world causes the next look.
    fn is_blocked(&self) -> bool {
        false
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
            while let Some(output) = shell.poll(&mut self.engine) {
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
            self.wake = match shell.is_blocked() {
                true => None,
                false => Instant::earlier(next_wake(&self.engine, now), shell.next_wake(now)),
            };
            self.unsettled = false;
        }
        self.settled_at = now;
        busy
    }

    /// When something is due next, as the last [`Pump::settle`] found.
    pub(crate) const fn poll_timeout(&self) -> Option<Instant> {
        self.wake
    }

    /// When something is due next, even if deadlines may have changed since the last
    /// [`Pump::settle`].
    pub(crate) fn due(&self) -> Option<Instant> {
        if self.unsettled { self.engine.poll_timeout() } else { self.wake }
    }

    /// Fires due deadlines of an engine that belongs to another pump's shell, which settles both.
    /// Returns whether there were any.
    pub(crate) fn fire(&mut self, now: Instant) -> bool {
        fire(&mut self.engine, now)
    }

    /// When something is due next in an engine that belongs to another pump's shell.
    pub(crate) fn next_wake(&self, now: Instant) -> Option<Instant> {
        next_wake(&self.engine, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has some outputs, and one more at its deadline.
    struct Counter {
        left: u32,
        deadline: Option<Instant>,
    }

    impl Engine for Counter {
        type Input<'a> = u32;
        type Output = u32;

        fn handle_input(&mut self, _: Instant, more: u32) {
            self.left += more;
        }

        fn handle_timeout(&mut self, now: Instant) {
            if self.deadline.take_if(|at| *at <= now).is_some() {
                self.left += 1;
            }
        }

        fn poll_output(&mut self) -> Option<u32> {
            self.left = self.left.checked_sub(1)?;
            Some(self.left)
        }

        fn poll_timeout(&self) -> Option<Instant> {
            self.deadline
        }
    }

    /// A world that takes this many outputs.
    struct Room(usize);

    impl Shell<Counter> for Room {
        fn poll(&mut self, engine: &mut Counter) -> Option<u32> {
            if self.is_blocked() { None } else { engine.poll_output() }
        }

        fn pass(&mut self, _: Instant, _: u32, _: &mut Counter) {
            self.0 -= 1;
        }

        fn is_blocked(&self) -> bool {
            self.0 == 0
        }
    }

    const DEADLINE: Instant = Instant::from_nanos(1_000);

    #[test]
    fn outputs_without_room_stay_in_the_engine_and_deadlines_wait_with_them() {
        let mut pump = Pump::new(Counter { left: 3, deadline: Some(DEADLINE) });
        let mut room = Room(2);
        assert!(pump.settle(Instant::ZERO, &mut room));
        assert_eq!((pump.engine().left, pump.poll_timeout()), (1, None));
        room.0 = 10;
        pump.engine_mut();
        assert!(pump.settle(Instant::ZERO, &mut room));
        assert_eq!((pump.engine().left, room.0, pump.poll_timeout()), (0, 9, Some(DEADLINE)));
    }

    #[test]
    fn a_deadline_is_known_before_the_engine_is_settled() {
        let mut pump = Pump::new(Counter { left: 0, deadline: Some(DEADLINE) });
        assert_eq!((pump.poll_timeout(), pump.due()), (None, Some(DEADLINE)));
        assert!(!pump.settle(Instant::ZERO, &mut Room(1)));
        assert!(!pump.wants_settling(Instant::ZERO, false));
        assert!(pump.wants_settling(DEADLINE, true));
        assert!(pump.settle(DEADLINE, &mut Room(1)));
        assert_eq!((pump.poll_timeout(), pump.due()), (None, None));
    }
}
