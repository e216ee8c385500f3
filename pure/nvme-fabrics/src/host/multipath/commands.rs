//! Commands from their submission to their end, over any paths.

use alloc::vec::Vec;

use engine::Instant;

use super::types::{PathIndex, Request};
use crate::host::table::Table;
use crate::wire::QueueId;

/// Where a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The command waits for a path.
    Waiting,
    /// The command was sent.
    On { path: PathIndex, queue: QueueId },
}

#[derive(Debug)]
pub(super) struct Command {
    pub(super) request: Request,
    pub(super) submitted: Instant,
    /// When the command was last sent.
    pub(super) sent: Instant,
    pub(super) place: Place,
    pub(super) retries: u8,
}

/// The commands. A token names one transmission of a command: an answer to an earlier transmission
/// matches nothing.
pub(super) type Commands = Table<Command>;

impl Commands {
    /// Notes that the command was sent. Returns its token, which is valid until the command ends or
    /// is taken back.
    pub(super) fn on_sent(&mut self, index: u32, deadline: Instant) -> u64 {
        self.arm(index, deadline);
        self.token(index)
    }

    /// Takes back a command that was sent: its answer is no longer awaited.
    pub(super) fn take_back(&mut self, index: u32) -> Option<&mut Command> {
        let command = self.renew(index)?;
        command.place = Place::Waiting;
        Some(command)
    }

    /// The commands on `path`, the earliest submitted first.
    pub(super) fn on(&self, path: PathIndex) -> Vec<u32> {
        let mut found: Vec<(Instant, u32)> = self
            .iter()
            .filter(|(_, command)| matches!(command.place, Place::On { path: on, .. } if on == path))
            .map(|(index, command)| (command.submitted, index))
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, index)| index).collect()
    }
}
