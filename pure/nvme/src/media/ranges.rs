//! The order between overlapping requests to one medium that come from several lanes.
//!
//! A host that gives up a path resends its commands on another path, and a host that was killed
//! returns with a new controller: in both cases a medium may still be busy with an old write, which
//! must not undo what was written or read since. A subsystem keeps this order itself while it sends
//! all requests. With lanes, requests from several threads meet at the medium, so the medium keeps
//! the order: by a [`Ranges`] that every request passes.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{MediumId, Operation, Request};

/// The bytes of a medium that a request reads or changes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Extent {
    medium: MediumId,
    start: u64,
    end: u64,
}

impl Extent {
    /// The extent of a request, and whether the request changes the extent. A flush has no extent:
    /// the writes that it makes durable have already ended.
    pub(crate) fn of(request: &Request) -> Option<(Self, bool)> {
        let (start, length, changes) = match &request.operation {
            Operation::Read { offset, length } => (*offset, u64::from(*length), false),
            Operation::Write { offset, data, .. } => (*offset, u64::try_from(data.len()).ok()?, true),
            Operation::WriteZeroes { offset, length, .. } | Operation::Deallocate { offset, length } => {
                (*offset, *length, true)
            }
            Operation::Flush => return None,
        };
        let extent = Self { medium: request.medium, start, end: start.saturating_add(length) };
        Some((extent, changes))
    }

    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.medium == other.medium && self.start < other.end && other.start < self.end
    }
}

/// A request that has entered and not ended.
#[derive(Debug)]
struct Entered<K, O> {
    id: K,
    /// The controller that sent the request; `None` after the request was disowned.
    owner: Option<O>,
    extent: Extent,
    changes: bool,
    /// The request while it waits.
    waiting: Option<Request>,
}

impl<K, O: PartialEq> Entered<K, O> {
    /// Whether a later request waits for this one: both touch the same bytes, one of them changes
    /// these, and they come from different controllers. Nothing waits for a read that has begun.
    fn precedes(&self, later: &Self) -> bool {
        let reads = !self.changes && (self.waiting.is_none() || !later.changes);
        let is_same = self.owner.is_some() && self.owner == later.owner;
        !reads && !is_same && self.extent.overlaps(&later.extent)
    }
}

/// The requests to media that change bytes or wait, in the order in which they entered.
///
/// A request waits until every earlier one has ended that touches the same bytes, if one of both
/// changes them and they come from different controllers. Requests of one controller may overtake
/// each other, as the specification allows (NVM Express Base Specification, Command Ordering
/// Requirements). A request waits for earlier ones only, so that none waits for ever.
///
/// `K` names a request among those of all lanes, and `O` a controller.
#[derive(Debug)]
pub struct Ranges<K, O> {
    entered: VecDeque<Entered<K, O>>,
    /// How many of these wait.
    waiting: usize,
}

impl<K, O> Default for Ranges<K, O> {
    fn default() -> Self {
        Self { entered: VecDeque::new(), waiting: 0 }
    }
}

impl<K: Copy + PartialEq, O: Copy + PartialEq> Ranges<K, O> {
    /// Enters a request that the controller `owner` sends. Returns the request if it may begin now;
    /// otherwise [`Ranges::begin_next`] returns it later. A flush may always begin.
    pub fn enter(&mut self, id: K, owner: O, request: Request) -> Option<Request> {
        let Some((extent, changes)) = Extent::of(&request) else { return Some(request) };
        let mut new = Entered { id, owner: Some(owner), extent, changes, waiting: None };
        if self.entered.iter().any(|earlier| earlier.precedes(&new)) {
            new.waiting = Some(request);
            self.waiting += 1;
            self.entered.push_back(new);
            return None;
        }
        if changes {
            self.entered.push_back(new);
        }
        Some(request)
    }

    /// Notes that the medium has ended a request.
    pub fn end(&mut self, id: K) {
        self.entered.retain(|one| one.id != id || one.waiting.is_some());
    }

    /// Takes a waiting request that may begin now.
    pub fn begin_next(&mut self) -> Option<(K, Request)> {
        if self.waiting == 0 {
            return None;
        }
        let mut all = self.entered.iter().enumerate().filter(|(_, one)| one.waiting.is_some());
        let is_free =
            |index: usize, one| !self.entered.iter().take(index).any(|earlier| earlier.precedes(one));
        let (index, _) = all.find(|(index, one)| is_free(*index, *one))?;
        let one = &mut self.entered[index];
        let begun = (one.id, one.waiting.take()?);
        self.waiting -= 1;
        if !one.changes {
            self.entered.remove(index);
        }
        Some(begun)
    }

    /// Takes the owner from a request whose command has ended without a completion. A request that
    /// waits is dropped: the caller answers it, and the medium never sees it. Returns whether it
    /// was.
    pub fn disown(&mut self, id: K) -> bool {
        let Some(index) = self.entered.iter().position(|one| one.id == id) else { return false };
        if self.entered[index].waiting.is_none() {
            self.entered[index].owner = None;
            return false;
        }
        self.entered.remove(index);
        self.waiting -= 1;
        true
    }

    /// Takes the owners from the requests that `is_gone` selects, and drops those that wait:
    /// [`Ranges::disown`] for a thread that is gone. Returns the requests that were dropped.
    pub fn disown_where(&mut self, is_gone: impl Fn(K) -> bool) -> Vec<K> {
        let of_it = self.entered.iter_mut().filter(|one| is_gone(one.id));
        let ids = of_it.map(|one| {
            one.owner = None;
            one.id
        });
        let ids: Vec<_> = ids.collect();
        ids.into_iter().filter(|id| self.disown(*id)).collect()
    }

    /// Whether no change is in progress, and no request waits.
    pub fn is_empty(&self) -> bool {
        self.entered.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::IoId;
    use engine::Buffer;

    fn request(operation: Operation) -> Request {
        Request { id: IoId(0), medium: MediumId(0), operation }
    }

    fn write(offset: u64) -> Request {
        request(Operation::Write { offset, data: Buffer::zeroed(512), durable: false })
    }

    fn read(offset: u64) -> Request {
        request(Operation::Read { offset, length: 512 })
    }

    fn next(ranges: &mut Ranges<u32, u8>) -> Vec<u32> {
        core::iter::from_fn(|| ranges.begin_next()).map(|(id, _)| id).collect()
    }

    #[test]
    fn requests_of_other_controllers_keep_their_order() {
        let mut ranges = Ranges::default();
        assert!(ranges.enter(1, 1, write(0)).is_some());
        assert!(ranges.enter(2, 1, write(0)).is_some(), "its own controller may overtake");
        assert!(ranges.enter(3, 2, write(512)).is_some(), "other bytes");
        assert!(ranges.enter(4, 2, read(0)).is_none());
        assert!(ranges.enter(5, 2, write(0)).is_none());
        assert!(ranges.enter(6, 1, read(0)).is_none(), "a read that came later waits for the write");
        assert!(ranges.enter(7, 3, request(Operation::Flush)).is_some());
        ranges.end(1);
        assert!(next(&mut ranges).is_empty());
        ranges.end(2);
        assert_eq!(next(&mut ranges), [4, 5]);
        ranges.end(5);
        assert_eq!(next(&mut ranges), [6]);
        ranges.end(3);
        assert!(ranges.is_empty());
    }

    #[test]
    fn a_disowned_request_is_dropped_or_delays_even_its_controller() {
        let mut ranges = Ranges::default();
        assert!(ranges.enter(1, 1, write(0)).is_some());
        assert!(ranges.enter(2, 2, write(0)).is_none());
        assert!(ranges.disown(2) && !ranges.disown(1) && !ranges.disown(9));
        assert!(ranges.enter(3, 1, read(0)).is_none(), "the host that returns waits");
        ranges.end(1);
        assert_eq!(next(&mut ranges), [3]);
        assert!(ranges.is_empty());
    }

    #[test]
    fn the_requests_of_a_thread_that_is_gone_are_disowned() {
        let mut ranges = Ranges::default();
        assert!(ranges.enter(1, 1, write(0)).is_some());
        assert!(ranges.enter(2, 2, write(512)).is_some());
        assert!(ranges.enter(3, 1, write(512)).is_none());
        assert!(ranges.enter(4, 3, read(512)).is_none());
        assert_eq!(ranges.disown_where(|id| id % 2 == 1), [3]);
        assert!(ranges.enter(5, 1, read(0)).is_none(), "even its controller waits");
        ranges.end(2);
        assert_eq!(next(&mut ranges), [4], "the write before it was dropped");
        ranges.end(1);
        assert_eq!(next(&mut ranges), [5]);
        assert!(ranges.is_empty());
    }
}
