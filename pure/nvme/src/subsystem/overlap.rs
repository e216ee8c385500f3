//! Order between controllers: a change by one controller ends before another controller reads or
//! changes the same blocks.
//!
//! A host that gives up a path resends its commands in flight on another path, to another
//! controller of the subsystem, and continues once they have ended. A host that was killed returns
//! with a new controller and reads. In both cases a medium may still be busy with an old, abandoned
//! write. If the old write ended last, it would undo later writes of the host, or change blocks
//! that the host has read since. A request therefore waits for every change of the same blocks that
//! another controller has in progress, and for every change without an owner because its controller
//! was reset or removed. A change also waits behind requests of other controllers that already wait
//! for the same blocks, so that no controller can starve another one. Commands of one controller
//! may overtake each other, as the specification allows (NVM Express Base Specification, Command
//! Ordering Requirements).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::controller::ControllerKey;
use crate::media::{Extent, IoId, Request};

/// A request in progress that changes blocks.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Change {
    id: IoId,
    /// The controller that owns the request; `None` after that controller was reset or removed.
    controller: Option<ControllerKey>,
    extent: Extent,
}

/// A request that waits for changes to end.
#[derive(Debug, Serialize, Deserialize)]
struct Waiting {
    controller: ControllerKey,
    extent: Extent,
    changes: bool,
    request: Request,
}

/// The changes that media have in progress, and the requests that wait for these changes.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Overlaps {
    /// Whether there may be several controllers, of one host or of several.
    watched: bool,
    /// Whether the media keep the order, because requests of several lanes meet there.
    left_to_media: bool,
    /// The changes, mostly in the order in which they will end.
    under_way: VecDeque<Change>,
    behind: VecDeque<Waiting>,
}

impl Overlaps {
    /// Begins to check requests for overlaps.
    pub(super) const fn watch(&mut self) {
        self.watched = !self.left_to_media;
    }

    /// Leaves the order to the media ([`Ranges`](crate::media::Ranges)).
    pub(super) const fn leave_to_media(&mut self) {
        (self.watched, self.left_to_media) = (false, true);
    }

    pub(super) const fn are_left_to_media(&self) -> bool {
        self.left_to_media
    }

    /// Returns the request if it may go to its medium now; otherwise keeps it until
    /// [`Overlaps::next`] returns it.
    #[inline]
    pub(super) fn begin(&mut self, controller: ControllerKey, request: Request) -> Option<Request> {
        if !self.watched {
            return Some(request);
        }
        self.begin_watched(controller, request)
    }

    fn begin_watched(&mut self, controller: ControllerKey, request: Request) -> Option<Request> {
        let Some((extent, changes)) = Extent::of(&request) else { return Some(request) };
        let waiting = Waiting { controller, extent, changes, request };
        if self.is_blocked(&waiting, self.behind.len()) {
            self.behind.push_back(waiting);
            return None;
        }
        Some(self.let_go(waiting))
    }

    /// Whether a request waits for a change in progress, or for one of the first `before` waiting
    /// requests.
    fn is_blocked(&self, Waiting { controller, extent, changes, .. }: &Waiting, before: usize) -> bool {
        let is_others = |change: &Change| change.controller != Some(*controller);
        let is_first = |other: &Waiting| other.controller != *controller && other.extent.overlaps(extent);
        self.under_way.iter().any(|change| is_others(change) && change.extent.overlaps(extent))
            || (*changes && self.behind.iter().take(before).any(is_first))
    }

    /// Sends a request to its medium.
    fn let_go(&mut self, Waiting { controller, extent, changes, request }: Waiting) -> Request {
        if changes {
            self.under_way.push_back(Change { id: request.id, controller: Some(controller), extent });
        }
        request
    }

    /// Notes that a medium has ended a request.
    #[inline]
    pub(super) fn end(&mut self, id: IoId) {
        if let Some(index) = self.under_way.iter().position(|change| change.id == id) {
            self.under_way.remove(index);
        }
    }

    /// Takes a waiting request that may now go to its medium.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Request> {
        if self.behind.is_empty() { None } else { self.next_free() }
    }

    fn next_free(&mut self) -> Option<Request> {
        let mut all = self.behind.iter().enumerate();
        let (index, _) = all.find(|(index, waiting)| !self.is_blocked(waiting, *index))?;
        let waiting = self.behind.remove(index)?;
        Some(self.let_go(waiting))
    }

    /// Takes the owner from `requests`, whose commands ended without completions. The waiting ones
    /// among them are dropped and added to `unseen`, the requests that no medium has seen. The
    /// others stay in progress without an owner until they end.
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
