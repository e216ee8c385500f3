//! Changes that do not overtake each other: what one controller changes, another changes afterwards.
//!
//! A host that gives a path up sends what it had in flight by another one, to another controller of the subsystem, and
//! goes on once that has ended. A medium may still be busy with the first copy. Were it to end last, it would undo
//! what the host wrote since. So a request that changes blocks waits for those of other controllers that change
//! the same ones. Commands of one controller may overtake each other, as the specification allows (NVM Express
//! Base Specification, Command Ordering Requirements), but for those that a reset has ended: they are nobody's now.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::controller::ControllerKey;
use crate::media::{IoId, MediumId, Operation, Request};

/// A request that changes blocks.
#[derive(Clone, Copy, Debug)]
struct Change {
    id: IoId,
    /// Whose it is; nobody's after a reset.
    controller: Option<ControllerKey>,
    medium: MediumId,
    start: u64,
    end: u64,
}

impl Change {
    fn of(controller: ControllerKey, request: &Request) -> Option<Self> {
        let (start, length) = match &request.operation {
            Operation::Write { offset, data, .. } => (*offset, u64::try_from(data.len()).ok()?),
            Operation::WriteZeroes { offset, length, .. } | Operation::Deallocate { offset, length } => {
                (*offset, *length)
            }
            Operation::Read { .. } | Operation::Flush => return None,
        };
        let Request { id, medium, .. } = *request;
        Some(Self { id, controller: Some(controller), medium, start, end: start.saturating_add(length) })
    }

    fn is_in_the_way_of(&self, other: &Self) -> bool {
        let same_blocks = self.medium == other.medium && self.start < other.end && other.start < self.end;
        same_blocks && (self.controller.is_none() || self.controller != other.controller)
    }
}

/// The changes that media have under way, and those that wait for them.
#[derive(Debug, Default)]
pub(super) struct Overlaps {
    /// Whether a host may have several controllers, which is so over fabrics.
    watched: bool,
    /// Mostly in the order in which they will end.
    under_way: VecDeque<Change>,
    behind: VecDeque<(Change, Request)>,
}

impl Overlaps {
    /// From now on, changes are looked at.
    pub(super) const fn watch(&mut self) {
        self.watched = true;
    }

    /// A request of a controller, if it may go to its medium; else it is kept until [`Overlaps::end`] gives it back.
    #[inline]
    pub(super) fn begin(&mut self, controller: ControllerKey, request: Request) -> Option<Request> {
        if !self.watched {
            return Some(request);
        }
        self.begin_watched(controller, request)
    }

    fn begin_watched(&mut self, controller: ControllerKey, request: Request) -> Option<Request> {
        let Some(change) = Change::of(controller, &request) else { return Some(request) };
        if self.is_blocked(&change) {
            self.behind.push_back((change, request));
            return None;
        }
        self.under_way.push_back(change);
        Some(request)
    }

    fn is_blocked(&self, change: &Change) -> bool {
        self.under_way.iter().any(|earlier| earlier.is_in_the_way_of(change))
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
        let index = self.behind.iter().position(|(change, _)| !self.is_blocked(change))?;
        let (change, request) = self.behind.remove(index)?;
        self.under_way.push_back(change);
        Some(request)
    }

    /// A controller's commands are gone. Their requests of which media know nothing go with them: those given as
    /// `unseen` and those that wait, which are added. The others are nobody's until they end.
    pub(super) fn disown(&mut self, controller: ControllerKey, unseen: &mut Vec<IoId>) {
        let is_its = |change: &Change| change.controller == Some(controller);
        self.under_way.retain(|change| !unseen.contains(&change.id));
        unseen.extend(self.behind.iter().filter(|(change, _)| is_its(change)).map(|(change, _)| change.id));
        self.behind.retain(|(change, _)| !is_its(change));
        for change in self.under_way.iter_mut().filter(|change| is_its(change)) {
            change.controller = None;
        }
    }
}
