//! The media that a turn of the loop looks at. A target may have thousands of subsystems, of which
//! few are in use: the others are looked at when the kernel has news of them.

use engine::{Instant, Nanos};
use nvme_fabrics::target::SubsystemKey;

/// Media that were not used for this long are no longer looked at in each turn, if they may rest.
const SILENT: Nanos = Nanos::from_millis(10);
/// The names of media among the sources of the loop begin here, above those of connections.
const NAMES: u32 = 1 << 31;

/// The media that are looked at in each turn.
#[derive(Debug, Default)]
pub(super) struct LivelyMedia {
    keys: Vec<SubsystemKey>,
    /// Since when each was not used, by key; `None` of those that rest.
    silent: Vec<Option<Silence>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silence {
    /// They were used since the last look.
    None,
    Since(Instant),
}

impl LivelyMedia {
    pub(super) const fn new() -> Self {
        Self { keys: Vec::new(), silent: Vec::new() }
    }

    /// The media are used, or have news.
    #[inline]
    pub(super) fn wake(&mut self, key: SubsystemKey) {
        let index = key.0 as usize;
        if self.silent.len() <= index {
            self.silent.resize(index + 1, None);
        }
        if self.silent[index].replace(Silence::None).is_none() {
            self.keys.push(key);
        }
    }

    /// Wakes the media that the loop names among the sources with news.
    pub(super) fn heed(&mut self, named: &[u32]) {
        for key in named.iter().filter_map(|name| key_of(*name)) {
            self.wake(key);
        }
    }

    pub(super) fn keys(&self) -> &[SubsystemKey] {
        &self.keys
    }

    /// Lets media rest that were not used for some time, where `may_rest` allows it.
    pub(super) fn settle(&mut self, now: Instant, mut may_rest: impl FnMut(SubsystemKey) -> bool) {
        let Self { keys, silent } = self;
        keys.retain(|key| {
            let silent = &mut silent[key.0 as usize];
            let since = match *silent {
                Some(Silence::Since(since)) => since,
                _ => {
                    *silent = Some(Silence::Since(now));
                    return true;
                }
            };
            if now - since < SILENT || !may_rest(*key) {
                return true;
            }
            *silent = None;
            false
        });
    }
}

/// The name of media among the sources of the loop.
pub(super) const fn name_of(key: SubsystemKey) -> u32 {
    NAMES | key.0
}

const fn key_of(name: u32) -> Option<SubsystemKey> {
    // All bits set is the name of the strangers.
    if name & NAMES != 0 && name != u32::MAX { Some(SubsystemKey(name & !NAMES)) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_rest_when_they_may_and_wake_by_use_and_news() {
        let mut lively = LivelyMedia::new();
        let at = |milliseconds: u64| Instant::ZERO + Nanos::from_millis(milliseconds);
        let keys = [SubsystemKey(3), SubsystemKey(70_000)];
        keys.iter().for_each(|key| lively.wake(*key));
        lively.wake(keys[0]);
        assert_eq!(lively.keys(), keys);
        lively.settle(at(1), |_| true);
        lively.settle(at(10), |_| true);
        assert_eq!(lively.keys(), keys, "they have not been silent for long");
        lively.wake(keys[1]);
        lively.settle(at(11), |_| true);
        assert_eq!(lively.keys(), [keys[1]]);
        lively.settle(at(30), |_| false);
        assert_eq!(lively.keys(), [keys[1]], "it may not rest");
        lively.settle(at(31), |_| true);
        assert!(lively.keys().is_empty());
        lively.heed(&[7, u32::MAX, name_of(keys[0])]);
        assert_eq!(lively.keys(), [keys[0]]);
    }
}
