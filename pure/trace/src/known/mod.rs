//! Commands known from their entries: the capture has the writes that set up the controller.
//!
//! The analyser learns the function's BAR0 from configuration writes; the Admin Queues from AQA,
//! ASQ and ACQ; the I/O queues from Create I/O Submission and Completion Queue; the stride of
//! doorbells from CAP. Each of a controller's packets then has its place: a doorbell by its offset
//! in BAR0, a fetch by the queue that it reads, data by the page that an entry or its list names, a
//! completion by the queue that it is written to.

mod controller;
mod knowledge;
#[cfg(test)]
mod tests;

pub use knowledge::{Knowledge, Ring};

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use pcie::wire::{Bdf, Kind as PacketKind};

use super::command::{Command, Place};
use super::seen::{Direction, Seen};
use super::transaction::Transaction;
use controller::Controller;

/// Maximum number of functions whose registers are followed.
const FUNCTIONS_MAX: usize = 256;
/// Configuration space: Base Address Register 0, whose address continues in the next register.
const BAR0: u16 = 0x10;
/// Bits of a BAR that are no address.
const BAR_FLAGS: u64 = 0xf;

/// The controllers whose set-up the capture has.
#[derive(Default)]
pub struct Known {
    /// BAR0 as configuration writes have set it, by function.
    bars: BTreeMap<Bdf, u64>,
    controllers: Vec<Controller>,
    commands: VecDeque<Command>,
    /// Whether commands remember their packets.
    remembers: bool,
    /// The place of the packet that was seen last, if it has one.
    place: Option<Place>,
    dropped: u64,
    unfinished: u64,
    waiting: u64,
    unexpected: u64,
}

impl core::fmt::Debug for Known {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Known").field("controllers", &self.controllers.len()).finish_non_exhaustive()
    }
}

impl Known {
    /// From now on, commands of controllers that are yet to be found remember their packets.
    pub(crate) const fn remember(&mut self) {
        self.remembers = true;
    }

    /// Whether the queues of some controller are known.
    pub fn has_queues(&self) -> bool {
        self.controllers.iter().any(Controller::has_queues)
    }

    /// Adds a controller whose set-up is not in the capture. Commands in progress continue.
    pub fn learn(&mut self, knowledge: &Knowledge) {
        let known = self.controllers.iter().position(|one| one.function() == knowledge.function);
        if known.is_none() {
            if self.controllers.len() >= FUNCTIONS_MAX {
                self.dropped += 1;
                return;
            }
            self.controllers.push(Controller::new(knowledge.function, knowledge.bar, self.remembers));
        }
        let index = known.unwrap_or(self.controllers.len() - 1);
        let controller = &mut self.controllers[index];
        controller.move_to(knowledge.bar);
        controller.learn_from(knowledge);
        self.dropped += controller.take_dropped();
        self.bars.insert(knowledge.function, knowledge.bar);
    }

    /// The knowledge of all controllers with known queues, for a later capture without their
    /// set-up.
    pub fn knowledge(&self) -> impl Iterator<Item = Knowledge> {
        self.controllers.iter().filter(|one| one.has_queues()).map(Controller::knowledge)
    }

    /// A number that changes with each change of the result of [`Known::knowledge`].
    pub fn changes(&self) -> u64 {
        self.controllers.iter().map(Controller::changes).sum()
    }

    /// The place of the packet that was seen last, if it has one.
    pub const fn place(&self) -> Option<Place> {
        self.place
    }

    /// Shows a packet, and the request that the packet answers. Returns whether the packet has a
    /// place in a command or a controller's set-up.
    pub fn see(&mut self, seen: &Seen<'_>, answered: Option<&(Transaction, bool)>) -> bool {
        self.place = None;
        if let PacketKind::Config(request) = seen.header.kind {
            if request.write && (BAR0..BAR0 + 8).contains(&request.offset) {
                self.set_bar(request.target, request.offset, seen);
            }
            return false;
        }
        for controller in &mut self.controllers {
            let fits = match (seen.direction, answered) {
                (_, Some((transaction, is_last))) => controller.on_answer(seen, transaction, *is_last),
                (Direction::Down, None) => controller.on_host(seen),
                (Direction::Up, None) => controller.on_device(seen),
            };
            if fits {
                self.place = controller.take_place();
                self.commands.extend(controller.take_ended());
                self.unexpected += controller.take_unexpected();
                self.unfinished += controller.take_unfinished();
                self.waiting += controller.take_waiting();
                self.dropped += controller.take_dropped();
                return true;
            }
        }
        false
    }

    fn set_bar(&mut self, function: Bdf, offset: u16, seen: &Seen<'_>) {
        let Some(value) = seen.bytes().map(u32::from_le_bytes) else { return };
        if self.bars.len() >= FUNCTIONS_MAX && !self.bars.contains_key(&function) {
            self.dropped += 1;
            return;
        }
        let bar = self.bars.entry(function).or_default();
        let (low, high) = (*bar & u64::from(u32::MAX), *bar >> 32);
        *bar = match offset {
            BAR0 => high << 32 | u64::from(value),
            _ => u64::from(value) << 32 | low,
        };
        let address = *bar & !BAR_FLAGS;
        // Software that sizes a BAR writes all ones first.
        if value == u32::MAX || address == 0 {
            return;
        }
        match self.controllers.iter_mut().find(|one| one.function() == function) {
            Some(controller) => controller.move_to(address),
            None => self.controllers.push(Controller::new(function, address, self.remembers)),
        }
    }

    /// Ends the capture: commands that are complete end with it, the others are unfinished.
    pub fn finish(&mut self) {
        for controller in &mut self.controllers {
            controller.reset();
            self.commands.extend(controller.take_ended());
            self.unfinished += controller.take_unfinished();
            self.waiting += controller.take_waiting();
        }
    }

    /// The next command that has ended.
    pub fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// The number of things that had no room.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The number of commands that were in progress when their controller's life ended, except
    /// those that wait for an event.
    pub const fn unfinished(&self) -> u64 {
        self.unfinished
    }

    /// The number of event requests that waited then.
    pub const fn waiting(&self) -> u64 {
        self.waiting
    }

    /// The number of completions of unknown commands.
    pub const fn unexpected(&self) -> u64 {
        self.unexpected
    }
}
