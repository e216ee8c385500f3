//! The requests that a lane has sent to media under older versions of the views.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::media::IoId;

/// The requests in progress, by the version that was published after they were sent.
#[derive(Debug)]
pub(super) struct Older {
    /// Versions in their order, each with the requests that were sent since the one before it.
    epochs: VecDeque<(u64, Vec<IoId>)>,
    quiet: u64,
}

impl Older {
    pub(super) const fn new(version: u64) -> Self {
        Self { epochs: VecDeque::new(), quiet: version }
    }

    /// The version before which media have answered all requests.
    pub(super) const fn quiet(&self) -> u64 {
        self.quiet
    }

    /// Whether there is no such request.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.epochs.is_empty()
    }

    /// Notes a publication, before which the lane had sent the requests `in_progress`.
    pub(super) fn publish(&mut self, version: u64, in_progress: impl Iterator<Item = IoId>) {
        let is_known = |id: &IoId| self.epochs.iter().any(|(_, ids)| ids.contains(id));
        let ids: Vec<_> = in_progress.filter(|id| !is_known(id)).collect();
        match self.epochs.back_mut() {
            // The lane is quiet since both versions at the same time.
            Some((last, _)) if ids.is_empty() => *last = version,
            None if ids.is_empty() => self.quiet = version,
            _ => self.epochs.push_back((version, ids)),
        }
    }

    /// Notes that a request has ended. Returns whether the lane is quiet since a later version.
    #[cold]
    pub(super) fn end(&mut self, id: IoId) -> bool {
        for (_, ids) in &mut self.epochs {
            ids.retain(|one| *one != id);
        }
        let before = self.quiet;
        while let Some((version, ids)) = self.epochs.front()
            && ids.is_empty()
        {
            self.quiet = *version;
            self.epochs.pop_front();
        }
        self.quiet != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u32]) -> impl Iterator<Item = IoId> {
        ids.iter().map(|id| IoId(*id))
    }

    #[test]
    fn a_version_is_quiet_when_all_requests_before_it_have_ended() {
        let mut older = Older::new(3);
        older.publish(4, ids(&[]));
        assert_eq!((older.quiet(), older.is_empty()), (4, true));
        older.publish(5, ids(&[1, 2]));
        older.publish(6, ids(&[1, 2]));
        older.publish(7, ids(&[1, 2, 3]));
        assert!(!older.end(IoId(3)) && !older.end(IoId(1)));
        assert_eq!(older.quiet(), 4);
        assert!(!older.end(IoId(9)), "a request that was sent later");
        assert!(older.end(IoId(2)));
        assert_eq!((older.quiet(), older.is_empty()), (7, true));
    }

    #[test]
    fn later_requests_do_not_hold_an_earlier_version_up() {
        let mut older = Older::new(0);
        older.publish(1, ids(&[1]));
        older.publish(2, ids(&[1, 2]));
        assert!(older.end(IoId(1)));
        assert_eq!(older.quiet(), 1);
        assert!(older.end(IoId(2)));
        assert_eq!(older.quiet(), 2);
    }
}
