//! Configuration requests while the connection is lost. A function may ask for patience
//! (Configuration Request Retry Status) until it has answered a request after its reset, and not
//! any more afterwards.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Instant, Nanos};
use pcie::wire::{Bdf, Completion, CompletionStatus, ConfigRequest, ConfigType, Kind, Packet, Tag};

/// How long a configuration request waits for the connection before the host is asked for patience:
/// half of the shortest completion timeout that the specification recommends (10 ms).
pub(super) const PATIENCE: Nanos = Nanos::from_millis(5);
/// The most requests that wait. Further requests go to the session, like requests to functions that
/// have answered.
pub(super) const WAITING_MAX: usize = 64;
/// The most requests that may be under way to functions that have not answered. With more, all
/// these functions count as having answered.
const ASKED_MAX: usize = 64;

/// A request under way to a function that has not answered any request.
#[derive(Debug)]
struct PendingRequest {
    requester: Bdf,
    tag: Tag,
    function: u8,
    /// Whether the request resets the function, which then has not answered anything since its
    /// reset.
    resets: bool,
}

/// Configuration requests of a port whose functions may ask for patience.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// Bit set of the functions that have answered a configuration request since their reset.
    answered: u8,
    asked: Vec<PendingRequest>,
    /// Requests that wait for the connection, and until when.
    waiting: VecDeque<(Instant, Packet)>,
}

/// The function that a request is for, if it is on the link itself.
const fn asked(request: &ConfigRequest) -> Option<u8> {
    match request.routing {
        ConfigType::Type0 => Some(request.target.function()),
        ConfigType::Type1 => None,
    }
}

impl Patience {
    /// All functions are reset. Requests that wait are answered in their time.
    pub(super) fn reset(&mut self) {
        self.answered = 0;
        self.asked.clear();
    }

    const fn has_answered(&self, function: u8) -> bool {
        self.answered >> function & 1 == 1
    }
    pub(super) fn on_answered(&mut self, function: u8) {
        self.answered |= 1 << function;
        self.asked.retain(|asked| asked.function != function);
    }

    /// Forgets earlier requests with this name, since a new one goes down.
    pub(super) fn forget(&mut self, requester: Bdf, tag: Tag) {
        self.asked.retain(|asked| (asked.requester, asked.tag) != (requester, tag));
        self.waiting.retain(|(_, packet)| (packet.requester(), packet.tag()) != (requester, tag));
    }

    /// Notes a configuration request that goes down. `resets`: whether it resets its function.
    pub(super) fn on_request(&mut self, request: &ConfigRequest, resets: bool) {
        let Some(function) = asked(request) else { return };
        if resets {
            // Earlier requests are answered by the function as it was before its reset, or not at
            // all.
            self.answered &= !(1 << function);
            self.asked.retain(|asked| asked.function != function);
        }
        if self.has_answered(function) {
            return;
        }
        if self.asked.len() == ASKED_MAX {
            // The functions may well have answered, and the answers passed unnoticed.
            let forgotten = core::mem::take(&mut self.asked);
            forgotten
                .iter()
                .map(|asked| asked.function)
                .chain([function])
                .for_each(|f| self.answered |= 1 << f);
            return;
        }
        self.asked.push(PendingRequest { requester: request.requester, tag: request.tag, function, resets });
    }

    /// Handles an answer that comes up.
    #[inline]
    pub(super) fn on_completion(&mut self, completion: &Completion) {
        if self.asked.is_empty() {
            return;
        }
        let name = (completion.requester, completion.tag);
        let found = self.asked.iter().position(|asked| (asked.requester, asked.tag) == name);
        let Some(index) = found else { return };
        let asked = self.asked.swap_remove(index);
        let answered = match completion.status {
            CompletionStatus::Success => !asked.resets,
            CompletionStatus::ConfigRequestRetry => false,
            // A failed write has not reset the function.
            _ => asked.resets,
        };
        if answered {
            self.on_answered(asked.function);
        }
    }

    /// While the connection is lost: keeps `packet` if its function may ask for patience, and
    /// leaves a blank one. Returns whether it does.
    pub(super) fn wait(&mut self, now: Instant, packet: &mut Packet) -> bool {
        let Kind::Config(request) = &packet.header.kind else { return false };
        let may = asked(request).is_some_and(|function| !self.has_answered(function));
        if !may || self.waiting.len() == WAITING_MAX {
            return false;
        }
        self.forget(request.requester, request.tag);
        self.waiting.push_back((now + PATIENCE, core::mem::replace(packet, Packet::blank())));
        true
    }

    /// The next request that waited for the connection, now that it is back.
    pub(super) fn take(&mut self) -> Option<Packet> {
        self.waiting.pop_front().map(|(_, packet)| packet)
    }

    /// The next request that has waited long enough.
    pub(super) fn give_up(&mut self, now: Instant) -> Option<Packet> {
        self.deadline().filter(|until| *until <= now)?;
        self.take()
    }
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.waiting.front().map(|(until, _)| *until)
    }
}
