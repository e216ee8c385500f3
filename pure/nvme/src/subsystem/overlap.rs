//! Order between controllers: what one controller changes, another sees and changes only afterwards.
//!
//! A host that gives a path up sends what it had in flight by another one, to another controller of the subsystem, and
//! goes on once that has ended. A host that was killed comes back with a new controller and reads. In both cases a
//! medium may still be busy with a write that nobody waits for any more. Were that write to end last, it would undo
//! what the host has written or seen since. So a request waits for every change of the same blocks that another
//! controller has under way, and for every change that is nobody's because its controller was reset or removed.
//! Commands of one controller may overtake each other, as the specification allows (NVM Express Base Specification,
//! Command Ordering Requirements).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::controller::ControllerKey;
use crate::media::{IoId, MediumId, Operation, Request};

/// The bytes of a medium that a request reads or changes.
#[derive(Clone, Copy, Debug)]
struct Extent {
    medium: MediumId,
    start: u64,
    end: u64,
}

impl Extent {
    /// The extent of a request, and whether the request changes it. A flush has none: what it makes durable has ended.
    fn of(request: &Request) -> Option<(Self, bool)> {
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

    fn overlaps(&self, other: &Self) -> bool {
        self.medium == other.medium && self.start < other.end && other.start < self.end
    }
}

/// A request that changes blocks and is under way.
#[derive(Clone, Copy, Debug)]
struct Change {
    id: IoId,
    /// Whose it is; nobody's once its controller was reset or removed.
    controller: Option<ControllerKey>,
    extent: Extent,
}

/// A request that waits for changes.
#[derive(Debug)]
struct Waiting {
    controller: ControllerKey,
    extent: Extent,
    changes: bool,
    request: Request,
}

/// The changes that media have under way, and the requests that wait for them.
#[derive(Debug, Default)]
pub(super) struct Overlaps {
    /// Whether a host may have several controllers, which is so over fabrics.
    watched: bool,
    /// Mostly in the order in which they will end.
    under_way: VecDeque<Change>,
    behind: VecDeque<Waiting>,
}

impl Overlaps {
    /// From now on, requests are looked at.
    pub(super) const fn watch(&mut self) {
        self.watched = true;
    }

    /// A request of a controller, if it may go to its medium; else it is kept until [`Overlaps::next`] gives it back.
    #[inline]
    pub(super) fn begin(&mut self, controller: ControllerKey, request: Request) -> Option<Request> {
        if !self.watched {
            return Some(request);
        }
        self.begin_watched(controller, request)
    }

    fn begin_watched(&mut self, controller: ControllerKey, request: Request) -> Option<Request> {
        let Some((extent, changes)) = Extent::of(&request) else { return Some(request) };
        if self.is_blocked(controller, &extent) {
            self.behind.push_back(Waiting { controller, extent, changes, request });
            return None;
        }
        if changes {
            self.under_way.push_back(Change { id: request.id, controller: Some(controller), extent });
        }
        Some(request)
    }

    fn is_blocked(&self, controller: ControllerKey, extent: &Extent) -> bool {
        let is_others = |change: &Change| change.controller != Some(controller);
        self.under_way.iter().any(|change| is_others(change) && change.extent.overlaps(extent))
    }

    /// A medium has ended a request.
    #[inline]
    pub(super) fn end(&mut self, id: IoId) {
        if let Some(index) = self.under_way.iter().position(|change| change.id == id) {
            self.under_way.remove(index);
        }
    }

    /// A request that waited and may now go to its medium.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Request> {
        if self.behind.is_empty() { None } else { self.next_free() }
    }

    fn next_free(&mut self) -> Option<Request> {
        let is_free = |waiting: &Waiting| !self.is_blocked(waiting.controller, &waiting.extent);
        let index = self.behind.iter().position(is_free)?;
        let Waiting { controller, extent, changes, request } = self.behind.remove(index)?;
        if changes {
            self.under_way.push_back(Change { id: request.id, controller: Some(controller), extent });
        }
        Some(request)
    }

    /// Commands are gone without completions, and `requests` were theirs. Those that wait go with them and are added to
    /// `unseen`, the requests of which no medium knows. The others are nobody's until they end.
    pub(super) fn disown(&mut self, requests: &[IoId], unseen: &mut Vec<IoId>) {
        self.behind.retain(|waiting| {
            let is_gone = requests.contains(&waiting.request.id);
            if is_gone {
                unseen.push(waiting.request.id);
            }
            !is_gone
        });
        self.under_way.retain(|change| !unseen.contains(&change.id));
        for change in self.under_way.iter_mut().filter(|change| requests.contains(&change.id)) {
            change.controller = None;
        }
    }
}
