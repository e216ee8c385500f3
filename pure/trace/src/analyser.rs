//! The whole analysis of a capture, packet by packet.

use alloc::collections::VecDeque;

use pcie::wire::{CompletionStatus, Kind as PacketKind};

use super::command::{Command, Place};
use super::inferred::Inferred;
use super::known::{Knowledge, Known};
use super::seen::{Direction, Seen};
use super::statistics::Statistics;
use super::transaction::Transactions;

/// Understands a capture.
#[derive(Debug, Default)]
pub struct Analyser {
    transactions: Transactions,
    known: Known,
    inferred: Inferred,
    statistics: Statistics,
    commands: VecDeque<Command>,
}

impl Analyser {
    /// An empty analyser.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty analyser, whose commands remember the numbers of their packets.
    pub fn remembering() -> Self {
        let mut analyser = Self::default();
        analyser.known.remember();
        analyser.inferred.remember();
        analyser
    }

    /// Adds a controller whose set-up is not in the capture.
    pub fn learn(&mut self, knowledge: &Knowledge) {
        self.known.learn(knowledge);
    }

    /// The known controllers, as returned by [`Known::knowledge`].
    pub fn knowledge(&self) -> impl Iterator<Item = Knowledge> {
        self.known.knowledge()
    }

    /// A number that changes with each change of the result of [`Analyser::knowledge`].
    pub fn changes(&self) -> u64 {
        self.known.changes()
    }

    /// The role of the latest packet, as far as queues are known.
    pub const fn place(&self) -> Option<Place> {
        self.known.place()
    }

    /// Shows the next packet.
    pub fn see(&mut self, seen: &Seen<'_>) {
        self.statistics.packets += 1;
        self.statistics.bytes += seen.header.payload_len() as u64;
        let answered = self.transactions.see(seen);
        let is_of_device = match seen.header.kind {
            PacketKind::Completion(completion) => {
                let is_probe = answered.as_ref().is_some_and(|(request, _)| request.is_configuration());
                match completion.status {
                    CompletionStatus::Success => {}
                    _ if is_probe => self.statistics.probes += 1,
                    _ => self.statistics.errors += 1,
                }
                seen.direction == Direction::Down
            }
            PacketKind::Memory(_) => seen.direction == Direction::Up,
            _ => false,
        };
        self.statistics.of_devices += u64::from(is_of_device);
        if self.known.see(seen, answered.as_ref()) {
            self.statistics.known += u64::from(is_of_device);
        } else if !self.known.has_queues() {
            let (fits, ended) = self.inferred.see(seen);
            self.statistics.inferred += u64::from(is_of_device && fits);
            self.statistics.inferred_commands += u64::from(ended.is_some());
            self.commands.extend(ended);
        }
        while let Some(command) = self.known.poll_command() {
            self.statistics.known_commands += 1;
            self.commands.push_back(command);
        }
    }

    /// Ends the capture, and all commands in progress with it.
    pub fn finish(&mut self) {
        for command in self.inferred.finish() {
            self.statistics.inferred_commands += 1;
            self.commands.push_back(command);
        }
        self.known.finish();
        while let Some(command) = self.known.poll_command() {
            self.statistics.known_commands += 1;
            self.commands.push_back(command);
        }
    }

    /// The next command that has ended. Known commands are in the order of their ends.
    pub fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// The counts so far.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            orphans: self.transactions.orphans(),
            unanswered: self.transactions.waiting() as u64,
            dropped: self.transactions.dropped() + self.inferred.dropped() + self.known.dropped(),
            unfinished: self.known.unfinished(),
            waiting: self.known.waiting(),
            unexpected: self.known.unexpected(),
            ..self.statistics
        }
    }
}
