//! A host's end of a connection: one queue.
//!
//! [`HostEnd::submit`] sends a command. Data that fit into the capsule go with it; longer data
//! go when the controller requests them. [`Connection::outbox`] collects the bytes to send. Read
//! data are a slice of the received block, or are assembled if they arrived in several blocks.

mod receive;
mod slots;
mod types;

#[cfg(test)]
mod tests;

use engine::{Buffer, Engine, Instant};
use nvme::host::Data;
use nvme::wire::{CommandId, SubmissionQueueEntry};

pub use nvme::host::{Completed, SubmitError};
pub use nvme_fabrics::transport::HostEnd;
pub use types::{Closed, Config, DigestUse, Output, Statistics};

use crate::assembly::Assembly;
use crate::connection::{Core, End};
pub use crate::connection::{Input, Parameters};
use crate::wire::{CommandCapsule, Fault, Flags, InitializeRequest, PduKind, Receiver};
use crate::{ADMIN_CAPSULE_DATA_MAX, DataPointer, Outbox, R2TS_PER_COMMAND_MAX, TRANSFER_BYTES_MAX};
use receive::Target;
use slots::{Command, Incoming, Moving, Slots};

/// The opcode of every fabrics command.
const FABRICS_OPCODE: u8 = 0x7f;

/// A host's end of a connection, which carries one queue.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    core: Core<Target>,
    /// Maximum length of the data in one H2CData PDU, in bytes.
    host_data_max: u32,
    slots: Slots,
    statistics: Statistics,
}

impl Connection {
    /// A connection that was just opened; its ICReq is in the outbox.
    ///
    /// # Panics
    /// When `config` exceeds a limit of one of its fields.
    pub fn new(now: Instant, config: Config) -> Self {
        config.check();
        let request = InitializeRequest {
            alignment: config.alignment,
            header_digest: config.header_digest.is_asked(),
            data_digest: config.data_digest.is_asked(),
            ready_to_transfer_max: config.ready_to_transfer_max.into(),
        };
        let mut core = Core::new(Receiver::Host, config.crc32c, now, config.initialise_timeout);
        core.outbox.write(&request.emit());
        Self {
            core,
            host_data_max: 0,
            slots: Slots::new(config.queue_size),
            statistics: Statistics::default(),
            config,
        }
    }

    /// The data pointer of a command, and the data that go with the capsule.
    #[inline]
    fn place(&self, opcode: u8, data: Data) -> (DataPointer, Moving, Buffer) {
        match data {
            Data::None => (DataPointer::Transport { length: 0 }, Moving::Nothing, Buffer::EMPTY),
            Data::Read(length) => {
                let incoming = Incoming { data: Assembly::new(length), ended: false };
                (DataPointer::Transport { length }, Moving::In(incoming), Buffer::EMPTY)
            }
            Data::Write(data) => {
                let length = u32::try_from(data.len()).expect("a buffer is smaller than 4 GiB");
                // Fabrics commands have their data in the capsule on every queue, because a
                // controller does not know the limit of an I/O queue before its Connect.
                let limit = match opcode {
                    FABRICS_OPCODE => self.config.capsule_data_max.max(ADMIN_CAPSULE_DATA_MAX),
                    _ => self.config.capsule_data_max,
                };
                if length > 0 && length <= limit {
                    return (DataPointer::InCapsule { offset: 0, length }, Moving::Nothing, data);
                }
                let moving = Moving::Out { data, asked: 0, ends: [0; R2TS_PER_COMMAND_MAX] };
                (DataPointer::Transport { length }, moving, Buffer::EMPTY)
            }
        }
    }

    /// The bytes to send.
    pub const fn outbox(&self) -> &Outbox {
        &self.core.outbox
    }

    /// The bytes to send, for a world that takes them out as buffers.
    pub const fn outbox_mut(&mut self) -> &mut Outbox {
        &mut self.core.outbox
    }

    /// The first `count` bytes of the outbox were sent.
    ///
    /// # Panics
    /// When the outbox has fewer than `count` bytes.
    pub fn sent(&mut self, count: usize) {
        self.core.outbox.advance(count);
    }

    /// The place of the next bytes from the controller, if they are data that are being assembled.
    /// A driver may receive directly into this place, and the rest into a block. Report the
    /// received bytes by [`Connection::landed`].
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
}

impl HostEnd for Connection {
    #[inline]
    fn submit(
        &mut self,
        cookie: u64,
        entry: SubmissionQueueEntry,
        data: Data,
    ) -> Result<CommandId, SubmitError> {
        if !self.is_ready() {
            return Err(SubmitError::NotReady);
        }
        assert!(data.len() <= TRANSFER_BYTES_MAX as usize, "a command moves {TRANSFER_BYTES_MAX} B at most");
        let (pointer, moving, capsule) = self.place(entry.opcode, data);
        let command_id = self.slots.issue(Command { cookie, moving }).ok_or(SubmitError::Busy)?;
        let pdu = CommandCapsule { entry: pointer.put(SubmissionQueueEntry { command_id, ..entry }) };
        self.statistics.submitted += 1;
        self.core.send(PduKind::CommandCapsule, Flags::NONE, capsule, |common| pdu.emit(common));
        Ok(command_id)
    }

    fn is_ready(&self) -> bool {
        self.core.is_ready()
    }

    fn has_room(&self) -> bool {
        self.is_ready() && self.slots.has_room()
    }

    fn outstanding(&self) -> u16 {
        self.slots.live()
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
