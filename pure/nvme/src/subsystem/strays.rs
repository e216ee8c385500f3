//! Requests that outlive their commands, because the commands were aborted or lost with their queue
//! or controller.

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::media::{IoId, MediumId};

/// The abandoned requests that media have not ended, each with its medium.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Strays {
    media: BTreeMap<IoId, MediumId>,
    counts: BTreeMap<MediumId, usize>,
}

impl Strays {
    /// The command of a request has ended, and the request has not.
    #[cold]
    pub(super) fn add(&mut self, id: IoId, medium: MediumId) {
        // Two of them have one identifier only if their slot has 65,536 of them.
        self.end(id);
        self.media.insert(id, medium);
        *self.counts.entry(medium).or_default() += 1;
    }

    /// A request has ended, or no medium will ever see it.
    #[cold]
    pub(super) fn end(&mut self, id: IoId) {
        let Some(medium) = self.media.remove(&id) else { return };
        if let Some(count) = self.counts.get_mut(&medium) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&medium);
            }
        }
    }

    /// Whether this is one of these requests.
    #[inline]
    pub(super) fn has(&self, id: IoId) -> bool {
        !self.media.is_empty() && self.media.contains_key(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = IoId> {
        self.media.keys().copied()
    }

    /// How many of these requests a medium has.
    pub(super) fn of(&self, medium: MediumId) -> usize {
        self.counts.get(&medium).copied().unwrap_or_default()
    }
}
