//! The contract of an engine and the rule by which it is called.

use crate::Instant;

/// A pure state machine between inputs and outputs.
///
/// Inputs are borrowed and outputs are owned. `now` never goes back, and a spurious timeout is
/// harmless. A fault of the peer is an input that is answered in protocol, so no method here
/// returns an error. Commands of the application are ordinary methods of the engine. Drivers call
/// [`Engine::handle_input`] and [`settle`] only.
pub trait Engine {
    /// What the world tells the engine.
    type Input<'a>;
    /// What the engine asks of the world.
    type Output;

    /// Handles one input.
    fn handle_input(&mut self, now: Instant, input: Self::Input<'_>);
    /// Handles everything that has become due. Leaves no deadline at or before `now`.
    fn handle_timeout(&mut self, now: Instant);
    /// The next output, or `None` when there are no more.
    fn poll_output(&mut self) -> Option<Self::Output>;
    /// When [`Engine::handle_timeout`] is due, if ever.
    fn poll_timeout(&self) -> Option<Instant>;
}

/// The calling rule: fires what is due, hands every output to `world`, and returns when to call
/// again.
///
/// # Panics
/// Like [`next_wake`].
pub fn settle<E: Engine>(engine: &mut E, now: Instant, world: impl FnMut(E::Output)) -> Option<Instant> {
    fire(engine, now);
    drain(engine, world);
    next_wake(engine, now)
}

/// The first step of [`settle`]: fires what is due. Returns whether anything was due.
///
/// A driver that somebody waits for may [`drain`] at once. It takes all steps before it waits
/// itself.
pub fn fire<E: Engine>(engine: &mut E, now: Instant) -> bool {
    let due = engine.poll_timeout().is_some_and(|at| at <= now);
    if due {
        engine.handle_timeout(now);
    }
    due
}

/// The second step of [`settle`]: hands every output to `world`.
pub fn drain<E: Engine>(engine: &mut E, mut world: impl FnMut(E::Output)) {
    while let Some(output) = engine.poll_output() {
        world(output);
    }
}

/// The last step of [`settle`]: returns when to call again.
///
/// # Panics
/// When a deadline at or before `now` survives its own timeout. Such an engine would make its
/// driver spin.
pub fn next_wake<E: Engine>(engine: &E, now: Instant) -> Option<Instant> {
    let wake = engine.poll_timeout();
    assert!(wake.is_none_or(|at| at > now), "a deadline outlived its timeout");
    wake
}

/// Observes what passes in and out of an engine; [`Tap`] puts it around the engine.
pub trait Observer<E: Engine> {
    /// Called with an input before the engine sees it.
    fn on_input(&mut self, now: Instant, input: &E::Input<'_>);
    /// Called with an output as it leaves the engine. `now` is the time of the latest input or
    /// timeout.
    fn on_output(&mut self, now: Instant, output: &E::Output);
}

/// An engine with an observer around it. Recorders, tracers and latency analysers are observers;
/// the engine knows none of them.
#[derive(Debug)]
pub struct Tap<E, O> {
    engine: E,
    observer: O,
    now: Instant,
}

impl<E: Engine, O: Observer<E>> Tap<E, O> {
    /// Wraps `engine` with `observer`.
    pub const fn new(engine: E, observer: O) -> Self {
        Self { engine, observer, now: Instant::ZERO }
    }
    /// The engine inside, for its application commands.
    pub const fn engine(&mut self) -> &mut E {
        &mut self.engine
    }
    /// The observer around the engine.
    pub const fn observer(&mut self) -> &mut O {
        &mut self.observer
    }
}

impl<E: Engine, O: Observer<E>> Engine for Tap<E, O> {
    type Input<'a> = E::Input<'a>;
    type Output = E::Output;

    fn handle_input(&mut self, now: Instant, input: Self::Input<'_>) {
        self.now = now;
        self.observer.on_input(now, &input);
        self.engine.handle_input(now, input);
    }
    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        self.engine.handle_timeout(now);
    }
    fn poll_output(&mut self) -> Option<Self::Output> {
        let output = self.engine.poll_output()?;
        self.observer.on_output(self.now, &output);
        Some(output)
    }
    fn poll_timeout(&self) -> Option<Instant> {
        self.engine.poll_timeout()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Nanos;
    use alloc::vec::Vec;

    /// Repeats each input once, a microsecond later.
    #[derive(Default)]
    struct Echo {
        pending: Option<(Instant, u32)>,
        ready: Option<u32>,
        never_done: bool,
    }

    impl Engine for Echo {
        type Input<'a> = &'a u32;
        type Output = u32;
        fn handle_input(&mut self, now: Instant, input: &u32) {
            self.pending = Some((now + Nanos::from_micros(1), *input));
        }
        fn handle_timeout(&mut self, now: Instant) {
            if !self.never_done {
                self.ready = self.pending.take_if(|(at, _)| *at <= now).map(|(_, value)| value);
            }
        }
        fn poll_output(&mut self) -> Option<u32> {
            self.ready.take()
        }
        fn poll_timeout(&self) -> Option<Instant> {
            self.pending.map(|(at, _)| at)
        }
    }

    #[derive(Default)]
    struct Log(Vec<(u64, char, u32)>);

    impl Observer<Echo> for Log {
        fn on_input(&mut self, now: Instant, input: &&u32) {
            self.0.push((now.as_nanos(), 'i', **input));
        }
        fn on_output(&mut self, now: Instant, output: &u32) {
            self.0.push((now.as_nanos(), 'o', *output));
        }
    }

    #[test]
    fn settle_fires_drains_and_tells_the_next_deadline_and_a_tap_sees_it_all() {
        let mut tap = Tap::new(Echo::default(), Log::default());
        let mut seen = Vec::new();
        tap.handle_input(Instant::from_nanos(5), &7);
        let wake = settle(&mut tap, Instant::from_nanos(5), |value| seen.push(value));
        assert_eq!((wake, seen.len()), (Some(Instant::from_nanos(1_005)), 0));
        let wake = settle(&mut tap, Instant::from_nanos(1_005), |value| seen.push(value));
        assert_eq!((wake, seen), (None, Vec::from([7])));
        assert_eq!(tap.observer().0, [(5, 'i', 7), (1_005, 'o', 7)]);
    }

    #[test]
    #[should_panic(expected = "a deadline outlived its timeout")]
    fn settle_stops_an_engine_that_would_spin() {
        let mut echo = Echo { never_done: true, ..Echo::default() };
        echo.handle_input(Instant::ZERO, &1);
        settle(&mut echo, Instant::from_nanos(1_000), |_| ());
    }
}
