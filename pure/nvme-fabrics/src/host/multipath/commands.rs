//! Commands between their submission and their end, whatever paths they take.

use alloc::vec::Vec;

use engine::{DeadlineList, Instant, Nanos};

use super::types::{PathIndex, Request};
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

#[derive(Debug)]
struct Entry {
    generation: u32,
    command: Option<Command>,
}

/// The commands. A token names one sending of a command: an answer to an earlier sending finds
/// nothing.
#[derive(Debug)]
pub(super) struct Commands {
    entries: Vec<Entry>,
    free: Vec<u32>,
    deadlines: DeadlineList,
}

impl Commands {
    pub(super) fn new(size: u32) -> Self {
        let entries = (0..size).map(|_| Entry { generation: 0, command: None }).collect();
        Self { entries, free: (0..size).rev().collect(), deadlines: DeadlineList::new(size) }
    }

    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    pub(super) fn live(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(super) fn issue(&mut self, command: Command) -> Option<u32> {
        let index = self.free.pop()?;
        self.entries[index as usize].command = Some(command);
        Some(index)
    }

    pub(super) fn get(&mut self, index: u32) -> Option<&mut Command> {
        self.entries.get_mut(index as usize)?.command.as_mut()
    }

    /// The command was sent. Returns its token, which is valid until the command ends or is taken
    /// back.
    pub(super) fn token(&mut self, now: Instant, index: u32, timeout: Nanos) -> u64 {
        self.deadlines.arm(index, now + timeout);
        // The highest bit marks the commands of an association.
        u64::from(self.entries[index as usize].generation & 0x7fff_ffff) << 32 | u64::from(index)
    }

    /// The command that a token names.
    pub(super) fn find(&self, token: u64) -> Option<u32> {
        let [a, b, c, d, e, f, g, h] = token.to_le_bytes();
        let (index, generation) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        let entry = self.entries.get(index as usize)?;
        (entry.command.is_some() && entry.generation & 0x7fff_ffff == generation).then_some(index)
    }

    /// Takes back a command that was sent: its answer is no longer awaited.
    pub(super) fn take_back(&mut self, index: u32) -> Option<&mut Command> {
        self.deadlines.disarm(index);
        let entry = self.entries.get_mut(index as usize)?;
        entry.generation = entry.generation.wrapping_add(1);
        let command = entry.command.as_mut()?;
        command.place = Place::Waiting;
        Some(command)
    }

    pub(super) fn retire(&mut self, index: u32) -> Option<Command> {
        self.deadlines.disarm(index);
        let entry = self.entries.get_mut(index as usize)?;
        let command = entry.command.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(index);
        Some(command)
    }

    /// The commands on `path`, the earliest submitted first.
    pub(super) fn on(&self, path: PathIndex) -> Vec<u32> {
        let mut found: Vec<(Instant, u32)> = (0_u32..)
            .zip(&self.entries)
            .filter_map(|(index, entry)| Some((index, entry.command.as_ref()?)))
            .filter(|(_, command)| matches!(command.place, Place::On { path: on, .. } if on == path))
            .map(|(index, command)| (command.submitted, index))
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, index)| index).collect()
    }

    pub(super) fn expire(&mut self, now: Instant) -> Option<u32> {
        self.deadlines.expire(now)
    }

    pub(super) fn earliest(&self) -> Option<Instant> {
        self.deadlines.earliest()
    }
}
