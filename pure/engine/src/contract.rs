//! The contract of an engine and the rule by which it is called.

use crate::Instant;

/// A pure state machine between inputs and outputs.
///
/// Inputs are borrowed and outputs are owned. `now` never goes back, and a spurious timeout is
/// harmless. A fault of the peer is an input that is answered in protocol, so no method here
/// returns an error. Commands of the application are ordinary methods of the engine. Drivers call
/// [`Engine::handle_input`] and [`settle`] only.
pub trait Engine {
    /// An event or an answer that the world hands to the engine.
    type Input<'a>;
    /// A request that the engine makes of the world.
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

/// The calling rule: handles the due deadlines, hands every output to `world`, and returns when to
/// call again.
///
/// # Panics
/// Like [`next_wake`].
pub fn settle<E: Engine>(engine: &mut E, now: Instant, world: impl FnMut(E::Output)) -> Option<Instant> {
    fire(engine, now);
    drain(engine, world);
    next_wake(engine, now)
}

/// The first step of [`settle`]: handles the due deadlines. Returns whether there were any.
///
/// A driver whose caller is waiting may call [`drain`] directly. It performs all the steps before
/// it waits itself.
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

    #[test]
    fn settle_fires_drains_and_returns_the_next_deadline() {
        let mut echo = Echo::default();
        let mut seen = Vec::new();
        echo.handle_input(Instant::from_nanos(5), &7);
        let wake = settle(&mut echo, Instant::from_nanos(5), |value| seen.push(value));
        assert_eq!((wake, seen.len()), (Some(Instant::from_nanos(1_005)), 0));
        let wake = settle(&mut echo, Instant::from_nanos(1_005), |value| seen.push(value));
        assert_eq!((wake, seen), (None, Vec::from([7])));
    }

    #[test]
    #[should_panic(expected = "a deadline outlived its timeout")]
    fn settle_stops_an_engine_that_would_spin() {
        let mut echo = Echo { never_done: true, ..Echo::default() };
        echo.handle_input(Instant::ZERO, &1);
        settle(&mut echo, Instant::from_nanos(1_000), |_| ());
    }
}
