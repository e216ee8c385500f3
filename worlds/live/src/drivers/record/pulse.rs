//! How long writes take, and when a medium pauses.

use std::collections::HashMap;

use engine::{Instant, Nanos};

/// A medium that ends no write for so long, although some are under way, pauses.
pub const PAUSE_MIN: Nanos = Nanos::from_millis(20);

/// The known facts about the writes of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// How many have ended.
    pub ended: u64,
    /// How long they took, all added.
    pub time: Nanos,
    /// How long the slowest took.
    pub slowest: Nanos,
    /// How often the medium ended no write for [`PAUSE_MIN`] or longer, although some were
    /// under way.
    pub pauses: u64,
    /// How long these pauses were, all added.
    pub paused: Nanos,
    /// How long the longest was.
    pub longest_pause: Nanos,
}

/// Watches writes begin and end.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    under_way: HashMap<u64, Instant>,
    /// When a write ended last, or the first of those under way began.
    last: Instant,
    pub(super) writes: Writes,
}

impl Pulse {
    pub(super) fn begin(&mut self, now: Instant, name: u64) {
        if self.under_way.is_empty() {
            self.last = now;
        }
        self.under_way.insert(name, now);
    }

    pub(super) fn end(&mut self, now: Instant, name: u64) {
        let Some(began) = self.under_way.remove(&name) else { return };
        let (took, quiet, writes) = (now - began, now - self.last, &mut self.writes);
        writes.ended += 1;
        writes.time += took;
        writes.slowest = writes.slowest.max(took);
        if quiet >= PAUSE_MIN {
            writes.pauses += 1;
            writes.paused += quiet;
            writes.longest_pause = writes.longest_pause.max(quiet);
        }
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_a_pause_only_while_writes_are_under_way() {
        let at = |millis: u64| Instant::ZERO + Nanos::from_millis(millis);
        let mut pulse = Pulse::default();
        pulse.begin(at(0), 1);
        pulse.begin(at(5), 2);
        pulse.end(at(10), 2);
        pulse.end(at(29), 1);
        assert_eq!((pulse.writes.pauses, pulse.writes.ended), (0, 2));
        assert_eq!(
            (pulse.writes.time, pulse.writes.slowest),
            (Nanos::from_millis(34), Nanos::from_millis(29))
        );
        // No write begins for a second.
        pulse.begin(at(1_029), 3);
        pulse.begin(at(1_030), 4);
        pulse.end(at(1_070), 4);
        pulse.end(at(1_071), 3);
        assert_eq!((pulse.writes.pauses, pulse.writes.longest_pause), (1, Nanos::from_millis(41)));
        // A name that began twice counts from the last time.
        pulse.begin(at(1_080), 3);
        pulse.end(at(1_081), 3);
        pulse.end(at(1_082), 3);
        assert_eq!((pulse.writes.ended, pulse.writes.paused), (5, Nanos::from_millis(41)));
    }
}
