//! Receives a controller's PDUs, one at a time.

use core::ops::Range;

use engine::{Buffer, BufferMut};
use nvme::wire::{CompletionQueueEntry, Status, StatusCode, SubmissionQueueEntry};

use super::slots::{Command, Pull, Slots};
use super::{Closed, Connection, Output, Parameters, Slot};
use crate::connection::{self, Core, End};
use crate::reader::Digest;
use crate::wire::{
    CommandCapsule, CommonHeader, DataHeader, Fault, Flags, Framing, INITIALISE_LENGTH, InitializeRequest,
    InitializeResponse, PduKind, TerminateRequest,
};
use crate::{ADMIN_CAPSULE_DATA_MAX, DataPointer, R2TS_PER_COMMAND_MAX, TRANSFER_BYTES_MAX};

type Step = crate::reader::Step<Output>;

/// Where the data of a PDU belong that are still coming.
#[derive(Debug)]
pub(crate) enum Target {
    /// In the capsule of this command, which begins when all of the data have arrived.
    Capsule { entry: SubmissionQueueEntry, place: BufferMut },
    /// In the transfer of this slot, in the window of its R2T.
    Transfer { slot: u16, window: usize },
}

impl connection::Target for Target {
    type Why = Closed;
    type Output = Output;
    type Slots = Slots;

    fn place<'a>(&'a mut self, slots: &'a mut Slots, range: Range<usize>) -> Option<&'a mut [u8]> {
        match self {
            Self::Capsule { place, .. } => place.get_mut(range),
            Self::Transfer { slot, .. } => slots.get(*slot)?.pull.data.place(range),
        }
    }
}

impl End for Connection {
    type Target = Target;

    #[inline]
    fn takes(&self, kind: PduKind) -> bool {
        // A host that leaves too much unread gets no further command done.
        kind != PduKind::CommandCapsule || !self.is_stuffed()
    }

    #[inline]
    fn on_pdu(&mut self, header: CommonHeader, framing: Framing) -> Result<Step, Fault> {
        match header.kind {
            PduKind::CommandCapsule => self.on_command(framing),
            PduKind::HostData => self.on_host_data(header, framing),
            PduKind::InitializeRequest => self.on_initialize(framing),
            // Framing lets only a host's PDUs through.
            _ => self.on_terminate(framing),
        }
    }

    fn receive_data(&mut self) -> Step {
        let Some((target, range, digest)) = self.core.receive_data(&mut self.slots) else {
            return Step::Idle;
        };
        match target {
            Target::Capsule { entry, place } => {
                if !self.is_intact(&place, digest) {
                    return self.begin_broken(entry);
                }
                let capsule = self.config.pool.borrow_mut().seal(place);
                self.begin(entry, capsule)
            }
            Target::Transfer { slot, window } => {
                let part = self.slots.get(slot).and_then(|command| command.pull.data.part(range.clone()));
                let Some(part) = part else { return Step::Again };
                let intact = digest.is_of(self.config.crc32c, part);
                self.statistics.data_digest_errors += u64::from(!intact);
                self.on_arrived(slot, window, range.len(), intact)
            }
        }
    }

    fn fail(&mut self, fault: Fault, shown: usize) {
        self.release_held();
        self.core.fail(fault, shown, Closed::HostFault(fault));
    }

    #[inline]
    fn core(&mut self) -> &mut Core<Target> {
        &mut self.core
    }

    fn closed(why: Closed) -> Output {
        Output::Closed(why)
    }
}

impl Connection {
    fn on_initialize(&mut self, framing: Framing) -> Result<Step, Fault> {
        let request = InitializeRequest::parse(self.core.reader.header(framing))?;
        self.core.reader.inbound.consume(INITIALISE_LENGTH);
        let parameters = Parameters {
            header_digest: request.header_digest && self.config.header_digest,
            data_digest: request.data_digest && self.config.data_digest,
            host_alignment: request.alignment,
            controller_alignment: self.config.alignment,
        };
        let response = InitializeResponse {
            alignment: self.config.alignment,
            header_digest: parameters.header_digest,
            data_digest: parameters.data_digest,
            host_data_max: self.config.host_data_max,
        };
        self.core.outbox.write(&response.emit());
        self.core.begin(parameters);
        self.ready_to_transfer_max = usize::try_from(request.ready_to_transfer_max)
            .unwrap_or(R2TS_PER_COMMAND_MAX)
            .clamp(1, R2TS_PER_COMMAND_MAX);
        Ok(Step::Output(Output::Initialized(parameters)))
    }

    fn on_terminate(&mut self, framing: Framing) -> Result<Step, Fault> {
        let request = TerminateRequest::parse(self.core.reader.header(framing));
        self.release_held();
        self.core.close(Closed::Terminated(request.fault));
        Ok(Step::Again)
    }

    #[inline]
    fn on_command(&mut self, framing: Framing) -> Result<Step, Fault> {
        let limit = self.queue.capsule_data_max.max(ADMIN_CAPSULE_DATA_MAX);
        if framing.data_length > limit {
            return Err(Fault::LIMIT);
        }
        let entry = CommandCapsule::parse(self.core.reader.header(framing)).entry;
        self.core.reader.inbound.consume(framing.head());
        self.statistics.commands += 1;
        if framing.data_length == 0 {
            return Ok(self.begin(entry, Buffer::EMPTY));
        }
        let length = framing.data_length as usize;
        if let Some(whole) = self.core.reader.inbound.take(length + framing.tail()) {
            let intact = self.is_intact(&whole[..length], Digest::behind(&whole, length, framing));
            let step =
                if intact { self.begin(entry, whole.slice(0..length)) } else { self.begin_broken(entry) };
            return Ok(step);
        }
        let place = self.config.pool.borrow_mut().take(length);
        let target = Target::Capsule { entry, place };
        self.core.expect(target, 0..length, framing);
        Ok(Step::Again)
    }

    /// Begins a completely received command.
    #[inline]
    fn begin(&mut self, entry: SubmissionQueueEntry, capsule: Buffer) -> Step {
        let pointer = DataPointer::of(&entry);
        let brought = u32::try_from(capsule.len()).expect("a capsule has a limit");
        let reserved =
            brought + if is_to_host(entry.opcode) { pointer.length().min(TRANSFER_BYTES_MAX) } else { 0 };
        let command = Command {
            id: entry.command_id,
            pointer,
            capsule,
            pull: Pull::default(),
            pushed: 0,
            reserved,
            pulled: 0,
            response: None,
        };
        match self.slots.issue(&entry, command) {
            Ok(slot) => {
                self.reserved += u64::from(reserved);
                Step::Output(Output::Command { slot: Slot(slot), entry })
            }
            Err(Some(code)) => {
                self.statistics.last_conflict = Some(entry.command_id);
                self.refuse_command(entry, code.into());
                Step::Again
            }
            // More commands than the queue has entries. The header was consumed already, so it is
            // not reported.
            Err(None) => {
                self.fail(Fault::SEQUENCE, 0);
                Step::Again
            }
        }
    }

    /// A command whose data digest does not match.
    fn begin_broken(&mut self, entry: SubmissionQueueEntry) -> Step {
        self.refuse_command(entry, StatusCode::TransientTransportError.into());
        Step::Again
    }

    fn refuse_command(&mut self, entry: SubmissionQueueEntry, status: Status) {
        self.statistics.refused += 1;
        self.release_held();
        let completion = CompletionQueueEntry { command_id: entry.command_id, ..Default::default() };
        self.send_response(completion.with_status(status, false));
    }

    #[inline]
    fn is_intact(&mut self, data: &[u8], digest: Digest) -> bool {
        let intact = digest.is_of(self.config.crc32c, data);
        self.statistics.data_digest_errors += u64::from(!intact);
        intact
    }

    fn on_host_data(&mut self, header: CommonHeader, framing: Framing) -> Result<Step, Fault> {
        let pdu = DataHeader::parse(self.core.reader.header(framing));
        let (slot, window) = self.check_host_data(header, framing, &pdu)?;
        self.core.reader.inbound.consume(framing.head());
        let length = pdu.length as usize;
        let Some(command) = self.slots.get(slot) else { return Err(Fault::field(10)) };
        let pull = &mut command.pull;
        if pull.data.length == pdu.length
            && let Some(whole) = self.core.reader.inbound.take(length + framing.tail())
        {
            // The usual case: all of the data in one PDU, and the PDU in one block.
            pull.data.take_whole(&whole);
            let intact = self.is_intact(&whole[..length], Digest::behind(&whole, length, framing));
            return Ok(self.on_arrived(slot, window, length, intact));
        }
        pull.data.make_room(&self.config.pool);
        let start = pdu.offset as usize;
        let target = Target::Transfer { slot, window };
        self.core.expect(target, start..start + length, framing);
        Ok(Step::Again)
    }

    /// The slot and the window that data belong to.
    fn check_host_data(
        &mut self,
        header: CommonHeader,
        framing: Framing,
        pdu: &DataHeader,
    ) -> Result<(u16, usize), Fault> {
        let (slot, window) = Self::untag(pdu.tag);
        let known = self.slots.get(slot).filter(|command| command.pull.is_active());
        let windows = known.map(|command| (command.id, command.pull.windows));
        let opened = windows.and_then(|(id, windows)| Some((id, *windows.get(window)?)));
        let open = opened.filter(|(_, window)| window.is_open());
        // A fault names one field: the tag if it is unknown, or else the command's identifier if
        // that differs.
        let Some((id, open)) = open else { return Err(Fault::field(10)) };
        if id != pdu.command {
            return Err(Fault::field(8));
        }
        if pdu.length == 0 || pdu.length != framing.data_length {
            return Err(Fault::field(16));
        }
        if pdu.length > self.config.host_data_max {
            return Err(Fault::LIMIT);
        }
        let end = pdu.offset.checked_add(pdu.length).ok_or(Fault::OUT_OF_RANGE)?;
        let first = open.end - self.window_length(slot, window);
        if pdu.offset < first || end > open.end {
            return Err(Fault::OUT_OF_RANGE);
        }
        if pdu.offset != open.next || header.flags.has(Flags::LAST_PDU) != (end == open.end) {
            return Err(Fault::SEQUENCE);
        }
        Ok((slot, window))
    }

    /// Number of bytes requested by the R2T of a window.
    fn window_length(&mut self, slot: u16, window: usize) -> u32 {
        let limit = self.config.ready_to_transfer_bytes_max;
        let Some(command) = self.slots.get(slot) else { return 0 };
        let end = command.pull.windows[window].end;
        // R2Ts divide a transfer from its start.
        match end % limit {
            0 => limit,
            rest => rest,
        }
    }

    /// Handles the complete data of a PDU of a transfer.
    fn on_arrived(&mut self, slot: u16, window: usize, length: usize, intact: bool) -> Step {
        let count = u32::try_from(length).expect("DATAL has 32 bits");
        self.pulling -= u64::from(count);
        let Some(command) = self.slots.get(slot) else { return Step::Again };
        let pull = &mut command.pull;
        pull.windows[window].next += count;
        pull.data.on_arrived(count, intact);
        let done = pull.data.arrived == pull.data.length;
        let given_up = command.response.is_some() && pull.data.arrived == pull.asked;
        if given_up && let Some(entry) = command.response.take() {
            self.respond(Slot(slot), entry);
            self.ask_waiting();
            return Step::Again;
        }
        if !done {
            self.ask_waiting();
            return Step::Again;
        }
        let Pull { data, .. } = core::mem::take(pull);
        self.ask_waiting();
        let slot = Slot(slot);
        if data.broken {
            let status = StatusCode::TransientTransportError.into();
            return Step::Output(Output::HostDataFailed { slot, status });
        }
        let data = data.finish(&self.config.pool);
        Step::Output(Output::HostData { slot, data })
    }
}

/// Whether a command of `opcode` moves data to the host, by its two lowest bits.
const fn is_to_host(opcode: u8) -> bool {
    opcode & 0b11 == 0b10
}
