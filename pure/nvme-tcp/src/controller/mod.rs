//! A controller's end of a connection: one queue.
//!
//! Bytes go in, commands come out. For each command, [`ControllerEnd::pull`] fetches its data (from
//! the capsule, or by R2T), [`ControllerEnd::push`] sends data to the host, and
//! [`ControllerEnd::complete`] ends the command. [`Connection::outbox`] collects the bytes to send.
//!
//! PDUs are processed one at a time, when an output is polled. While the host leaves too much
//! unread, the controller accepts no command, so that the memory of a connection is bounded.

mod receive;
mod slots;
mod transmit;
mod types;

#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Buffer, Engine, Instant};
use nvme::wire::{CompletionQueueEntry, Status};

use nvme_fabrics::transport::in_capsule;
pub use nvme_fabrics::transport::{ControllerEnd, Held, Permission, Queue, Slot};
pub use types::{Closed, Config, Output, Statistics};

use crate::assembly::Assembly;
use crate::connection::{Core, End};
pub use crate::connection::{Input, Parameters};
use crate::wire::{Fault, Receiver};
use crate::{ADMIN_CAPSULE_DATA_MAX, DataPointer, Outbox, QUEUE_SIZE_MAX, TRANSFER_BYTES_MAX};
use receive::Target;
use slots::Slots;
use transmit::{Early, HeldData};

/// A controller's end of a connection, which carries one queue.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    core: Core<Target>,
    queue: Queue,
    /// Maximum number of R2Ts of one command outstanding at a time.
    ready_to_transfer_max: usize,
    slots: Slots,
    held: Option<HeldData>,
    /// The held data.
    pieces: Vec<Buffer>,
    early: Vec<Early>,
    /// Slots whose transfers wait for others to end, in order.
    waiting: VecDeque<u16>,
    /// Number of bytes requested by R2Ts that have not arrived.
    pulling: u64,
    /// Bytes that commands in flight will give to the host, or have brought in their capsules.
    reserved: u64,
    /// Number of bytes requested from the host for commands in flight, including those that it has
    /// sent.
    pulled: u64,
    permission: Permission,
    statistics: Statistics,
}

impl Connection {
    /// A connection that was just accepted. Until [`ControllerEnd::set_queue`], it accepts one
    /// command at a time.
    ///
    /// # Panics
    /// When `config` exceeds a limit of one of its fields.
    pub fn new(now: Instant, config: Config) -> Self {
        config.check();
        Self {
            core: Core::new(Receiver::Controller, config.crc32c, now, config.initialise_timeout),
            queue: Queue { size: 1, capsule_data_max: ADMIN_CAPSULE_DATA_MAX, success_flag: false },
            ready_to_transfer_max: 1,
            slots: Slots::new(1),
            held: None,
            pieces: Vec::new(),
            early: Vec::new(),
            waiting: VecDeque::new(),
            pulling: 0,
            reserved: 0,
            pulled: 0,
            permission: Permission::ALL,
            statistics: Statistics::default(),
            config,
        }
    }

    /// The bytes to send.
    pub fn outbox(&mut self) -> &Outbox {
        self.release_held();
        &self.core.outbox
    }

    /// The bytes to send, for a world that takes them out as buffers.
    pub fn outbox_mut(&mut self) -> &mut Outbox {
        self.release_held();
        &mut self.core.outbox
    }

    /// The first `count` bytes of the outbox were sent. Outputs may follow, because commands may
    /// have waited for the host to read.
    ///
    /// # Panics
    /// When the outbox has fewer than `count` bytes.
    pub fn sent(&mut self, count: usize) {
        self.core.outbox.advance(count);
    }

    /// The place of the next bytes from the host, if they are data that are being assembled. A
    /// driver may receive directly into this place, and the rest into a block. Report the received
    /// bytes by [`Connection::landed`].
    pub fn landing(&mut self) -> Option<&mut [u8]> {
        self.core.landing(&mut self.slots)
    }

    /// The first `count` bytes of [`Connection::landing`] were received.
    ///
    /// # Panics
    /// When [`Connection::landing`] has fewer than `count` bytes.
    pub fn landed(&mut self, count: usize) {
        self.core.landed(count);
    }

    /// Counters since the beginning.
    pub const fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Ends the connection because of `fault`, without reference to a PDU.
    pub fn terminate(&mut self, fault: Fault) {
        self.fail(fault, 0);
    }

    const fn is_over(&self) -> bool {
        self.core.is_over()
    }

    /// Whether the connection accepts no further command: the host leaves too much unread or has
    /// too much coming, or the permission is missing.
    const fn is_stuffed(&self) -> bool {
        !self.permission.commands || self.backlog() > self.config.backlog_bytes_max
    }

    const fn backlog(&self) -> u64 {
        self.core.outbox.len() as u64 + self.reserved
    }
}

impl ControllerEnd for Connection {
    fn set_queue(&mut self, queue: Queue) {
        assert!(queue.capsule_data_max <= TRANSFER_BYTES_MAX, "at most {TRANSFER_BYTES_MAX} B in a capsule");
        assert!((1..=QUEUE_SIZE_MAX).contains(&queue.size), "1..={QUEUE_SIZE_MAX} commands");
        self.slots.grow(queue.size);
        self.queue = queue;
    }

    fn wants_input(&self) -> bool {
        !self.is_over() && (self.core.reader.inbound.is_empty() || !self.is_stuffed())
    }

    fn held(&self) -> Held {
        let to_host = self.backlog() + self.core.reader.inbound.len() as u64;
        Held { to_host, from_host: self.pulled }
    }

    fn is_owed_data(&self) -> bool {
        self.pulling > 0
    }

    fn permit(&mut self, permission: Permission) {
        self.permission = permission;
        if !self.is_over() {
            self.ask_waiting();
        }
    }

    fn give_up(&mut self) {
        self.core.give_up();
        self.held = None;
        self.pieces.clear();
        self.early.clear();
    }

    fn outstanding(&self) -> u16 {
        self.slots.live()
    }

    fn pull(&mut self, slot: Slot, length: u32) -> Result<Option<Buffer>, Status> {
        assert!((1..=TRANSFER_BYTES_MAX).contains(&length), "a pull of 1..={TRANSFER_BYTES_MAX} B");
        let over = self.is_over();
        let command = self.slots.get(slot.0).expect("a pull is for a command in flight");
        match command.pointer {
            DataPointer::InCapsule { offset, length: offered } => {
                let whole = core::mem::take(&mut command.capsule);
                in_capsule(&whole, offset, offered, length).map(Some)
            }
            // A host may offer more than the command needs, as Linux does for Dataset Management.
            DataPointer::Transport { length: offered } if offered >= length => {
                if over {
                    return Ok(None);
                }
                command.pull.data = Assembly::new(length);
                self.waiting.push_back(slot.0);
                self.ask_waiting();
                Ok(None)
            }
            pointer => Err(pointer.refusal()),
        }
    }

    fn push(&mut self, slot: Slot, offset: u32, total: u32, data: Buffer) -> Result<(), Status> {
        if self.is_over() {
            return Ok(());
        }
        let command = self.slots.get(slot.0).expect("a push is for a command in flight");
        match command.pointer {
            DataPointer::Transport { length } if length >= total => {}
            pointer => return Err(pointer.refusal()),
        }
        if data.is_empty() {
            return Ok(());
        }
        self.push_in_order(slot, offset, total, data);
        Ok(())
    }

    fn complete(&mut self, slot: Slot, entry: CompletionQueueEntry) {
        let command = self.slots.get(slot.0).expect("a completion is for a command in flight");
        let entry = CompletionQueueEntry { command_id: command.id, ..entry };
        if command.pull.is_active() {
            let coming = command.pull.asked > command.pull.data.arrived;
            command.response = coming.then_some(entry);
            // Data that were not requested yet are no longer needed.
            self.waiting.retain(|waiting| *waiting != slot.0);
            if coming {
                return;
            }
        }
        self.respond(slot, entry);
    }
}

impl Engine for Connection {
    type Input<'a> = Input;
    type Output = Output;

    #[inline]
    fn handle_input(&mut self, _now: Instant, Input::Received(bytes): Input) {
        self.core.on_received(bytes);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.core.on_timeout(now, Closed::InitialiseTimeout);
    }

    #[inline]
    fn poll_output(&mut self) -> Option<Output> {
        self.poll()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.core.deadline()
    }
}
