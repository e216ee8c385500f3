//! Requests of the client that the server has not answered.

use alloc::collections::VecDeque;

use engine::Instant;

use super::output::RequestId;
use crate::limits::REQUESTS_MAX;
use crate::wire::{Command, RegionAccess};

/// The kind of a request, which determines how to read its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Device,
    Region {
        index: u32,
        room: u32,
    },
    Interrupt {
        index: u32,
    },
    Read(RegionAccess),
    WriteMultiple {
        count: u64,
    },
    /// The reply is wanted only for its success.
    Done(Command),
}

impl Ask {
    pub(super) const fn command(self) -> Command {
        match self {
            Self::Device => Command::DeviceGetInfo,
            Self::Region { .. } => Command::DeviceGetRegionInfo,
            Self::Interrupt { .. } => Command::DeviceGetIrqInfo,
            Self::Read(_) => Command::RegionRead,
            Self::WriteMultiple { .. } => Command::RegionWriteMulti,
            Self::Done(command) => command,
        }
    }
}

/// A message that has not been answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) id: u16,
    pub(super) request: RequestId,
    pub(super) ask: Ask,
    deadline: Instant,
}

/// All unanswered messages in the order of sending, which is also that of their deadlines.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    sent: VecDeque<Sent>,
    next_id: u16,
}

impl Waiting {
    pub(super) fn is_full(&self) -> bool {
        self.sent.len() >= REQUESTS_MAX
    }

    /// Notes a message and returns its identifier.
    pub(super) fn push(&mut self, request: RequestId, ask: Ask, deadline: Instant) -> u16 {
        assert!(!self.is_full(), "a request was made although there was no room");
        while self.sent.iter().any(|sent| sent.id == self.next_id) {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        self.sent.push_back(Sent { id, request, ask, deadline });
        id
    }

    /// An identifier for a message whose reply is ignored.
    pub(super) fn unanswered(&mut self) -> u16 {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        id
    }

    /// Takes the message that is answered by a reply to `command` with identifier `id`.
    pub(super) fn take(&mut self, id: u16, command: Command) -> Option<Sent> {
        let at = self.sent.iter().position(|sent| sent.id == id && sent.ask.command() == command)?;
        self.sent.remove(at)
    }

    pub(super) fn earliest(&self) -> Option<Instant> {
        self.sent.front().map(|sent| sent.deadline)
    }
    /// Takes a message whose answer is overdue.
    pub(super) fn expire(&mut self, now: Instant) -> Option<RequestId> {
        self.sent.front().filter(|sent| sent.deadline <= now)?;
        self.pop()
    }
    /// Takes the oldest message.
    pub(super) fn pop(&mut self) -> Option<RequestId> {
        self.sent.pop_front().map(|sent| sent.request)
    }
}
