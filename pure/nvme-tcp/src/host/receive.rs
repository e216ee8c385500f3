//! Receives a host's PDUs, one at a time.

use core::ops::Range;

use engine::Buffer;
use nvme::wire::{CommandId, CompletionQueueEntry, StatusCode};

use super::slots::{Command, Incoming, Moving, Slots};
use super::{Closed, Completed, Connection, Output, Parameters};
use crate::connection::{self, Core, End};
use crate::reader::Digest;
use crate::wire::{
    CommonHeader, DataHeader, Fault, Flags, Framing, INITIALISE_LENGTH, InitializeResponse, PduKind,
    ResponseCapsule, TerminateRequest,
};

type Step = crate::reader::Step<Output>;

/// Offset of the field in which ICResp enables digests.
const DIGEST_FIELD: u32 = 11;

/// The command to which data belong that are still coming, and the flags of their PDU.
#[derive(Debug)]
pub(crate) struct Target {
    command: CommandId,
    flags: Flags,
}

impl connection::Target for Target {
    type Why = Closed;
    type Output = Output;
    type Slots = Slots;

    fn place<'a>(&'a mut self, slots: &'a mut Slots, range: Range<usize>) -> Option<&'a mut [u8]> {
        let Moving::In(incoming) = &mut slots.get(self.command)?.moving else { return None };
        incoming.data.place(range)
    }
}

impl End for Connection {
    type Target = Target;

    #[inline]
    fn on_pdu(&mut self, header: CommonHeader, framing: Framing) -> Result<Step, Fault> {
        match header.kind {
            PduKind::ResponseCapsule => self.on_response(framing),
            PduKind::ControllerData => self.on_controller_data(header, framing),
            PduKind::ReadyToTransfer => self.on_ready_to_transfer(framing),
            PduKind::InitializeResponse => self.on_initialized(framing),
            // Framing lets only a controller's PDUs through.
            _ => self.on_terminate(framing),
        }
    }

    fn receive_data(&mut self) -> Step {
        let Some((target, range, digest)) = self.core.receive_data(&mut self.slots) else {
            return Step::Idle;
        };
        let Target { command, flags } = target;
        let place = self.slots.get(command).and_then(|command| match &command.moving {
            Moving::In(incoming) => incoming.data.part(range.clone()),
            _ => None,
        });
        let intact = place.is_none_or(|place| digest.is_of(self.config.crc32c, place));
        self.on_arrived(command, range.len(), intact, flags)
    }

    fn fail(&mut self, fault: Fault, shown: usize) {
        self.core.fail(fault, shown, Closed::ControllerFault(fault));
    }

    #[inline]
    fn core(&mut self) -> &mut Core<Target> {
        &mut self.core
    }

    fn fail_header(&mut self, fault: Fault) {
        let is_strange = self.core.is_initialising() && fault != Fault::SEQUENCE;
        let why = if is_strange { Closed::Stranger(fault) } else { Closed::ControllerFault(fault) };
        self.core.fail(fault, CommonHeader::LENGTH, why);
    }

    fn closed(why: Closed) -> Output {
        Output::Closed(why)
    }
}

impl Connection {
    fn on_initialized(&mut self, framing: Framing) -> Result<Step, Fault> {
        let response = InitializeResponse::parse(self.core.reader.header(framing))?;
        let InitializeResponse { alignment, header_digest, data_digest, host_data_max } = response;
        // A digest that the host did not request.
        let asked = (self.config.header_digest.is_asked(), self.config.data_digest.is_asked());
        if (header_digest && !asked.0) || (data_digest && !asked.1) {
            return Err(Fault::unsupported(DIGEST_FIELD));
        }
        if let Some(why) = self.config.refuses(header_digest, data_digest) {
            self.core.fail(Fault::unsupported(DIGEST_FIELD), INITIALISE_LENGTH, why);
            return Ok(Step::Again);
        }
        self.core.reader.inbound.consume(INITIALISE_LENGTH);
        self.host_data_max = host_data_max;
        let parameters = Parameters {
            header_digest,
            data_digest,
            host_alignment: self.config.alignment,
            controller_alignment: alignment,
        };
        self.core.begin(parameters);
        Ok(Step::Output(Output::Initialized(parameters)))
    }

    fn on_terminate(&mut self, framing: Framing) -> Result<Step, Fault> {
        let request = TerminateRequest::parse(self.core.reader.header(framing));
        self.core.close(Closed::Terminated(request.fault));
        Ok(Step::Again)
    }

    #[inline]
    fn on_response(&mut self, framing: Framing) -> Result<Step, Fault> {
        let entry = ResponseCapsule::parse(self.core.reader.header(framing)).entry;
        let command = self.slots.retire(entry.command_id);
        // The identifier is in the last double word of the completion.
        let command = command.ok_or(Fault::field(20))?;
        self.core.reader.inbound.consume(framing.head());
        Ok(self.completed(command, entry))
    }

    #[inline]
    fn completed(&mut self, command: Command, mut entry: CompletionQueueEntry) -> Step {
        self.statistics.completed += 1;
        self.statistics.last_completed = Some(entry.command_id);
        let mut data = Buffer::EMPTY;
        if let Moving::In(Incoming { data: assembly, .. }) = command.moving {
            let broken = assembly.broken;
            data = assembly.finish(&self.config.pool);
            if broken && entry.status().is_success() {
                entry = entry.with_status(StatusCode::TransientTransportError.into(), false);
            }
        }
        Step::Output(Output::Completed(Completed { cookie: command.cookie, entry, data }))
    }

    fn on_ready_to_transfer(&mut self, framing: Framing) -> Result<Step, Fault> {
        let pdu = DataHeader::parse(self.core.reader.header(framing));
        let limit = usize::from(self.config.ready_to_transfer_max);
        let command = self.slots.get(pdu.command).ok_or(Fault::field(8))?;
        let Moving::Out { data, asked, ends } = &mut command.moving else { return Err(Fault::field(8)) };
        if pdu.length == 0 {
            return Err(Fault::field(16));
        }
        let end = pdu.offset.checked_add(pdu.length).ok_or(Fault::OUT_OF_RANGE)?;
        if end as usize > data.len() {
            return Err(Fault::OUT_OF_RANGE);
        }
        if pdu.offset != *asked {
            return Err(Fault::SEQUENCE);
        }
        let sent = self.core.outbox.sent();
        let place = ends[..limit].iter_mut().find(|end| **end <= sent).ok_or(Fault::LIMIT)?;
        *asked = end;
        let mut offset = pdu.offset;
        while offset < end {
            let length = self.host_data_max.min(end - offset);
            let flags = Flags::NONE.with(Flags::LAST_PDU, offset + length == end);
            let piece = data.slice(offset as usize..(offset + length) as usize);
            let part = DataHeader { offset, length, ..pdu };
            self.core.send(PduKind::HostData, flags, piece, |common| part.emit(common));
            offset += length;
        }
        *place = self.core.outbox.end();
        self.core.reader.inbound.consume(framing.head());
        Ok(Step::Again)
    }

    #[inline]
    fn on_controller_data(&mut self, header: CommonHeader, framing: Framing) -> Result<Step, Fault> {
        let pdu = DataHeader::parse(self.core.reader.header(framing));
        let command = self.slots.get(pdu.command).ok_or(Fault::field(8))?;
        let Moving::In(incoming) = &mut command.moving else { return Err(Fault::field(8)) };
        if pdu.length == 0 || pdu.length != framing.data_length {
            return Err(Fault::field(16));
        }
        let end = pdu.offset.checked_add(pdu.length).ok_or(Fault::OUT_OF_RANGE)?;
        if end > incoming.data.length {
            return Err(Fault::OUT_OF_RANGE);
        }
        if pdu.offset != incoming.data.arrived || incoming.ended {
            return Err(Fault::SEQUENCE);
        }
        self.core.reader.inbound.consume(framing.head());
        let length = pdu.length as usize;
        if pdu.length == incoming.data.length
            && let Some(whole) = self.core.reader.inbound.take(length + framing.tail())
        {
            // The usual case: all of the data in one PDU, and the PDU in one block.
            incoming.data.take_whole(&whole);
            let digest = Digest::behind(&whole, length, framing);
            let intact = digest.is_of(self.config.crc32c, &whole[..length]);
            return Ok(self.on_arrived(pdu.command, length, intact, header.flags));
        }
        incoming.data.make_room(&self.config.pool);
        let start = pdu.offset as usize;
        let target = Target { command: pdu.command, flags: header.flags };
        self.core.expect(target, start..start + length, framing);
        Ok(Step::Again)
    }

    /// Handles the complete data of a PDU.
    #[inline]
    fn on_arrived(&mut self, id: CommandId, length: usize, intact: bool, flags: Flags) -> Step {
        self.statistics.data_digest_errors += u64::from(!intact);
        let Some(command) = self.slots.get(id) else { return Step::Again };
        if let Moving::In(incoming) = &mut command.moving {
            incoming.data.on_arrived(u32::try_from(length).expect("DATAL has 32 bits"), intact);
            incoming.ended = flags.has(Flags::LAST_PDU);
        }
        if !flags.has(Flags::SUCCESS) {
            return Step::Again;
        }
        let Some(command) = self.slots.retire(id) else { return Step::Again };
        let entry = CompletionQueueEntry { command_id: id, ..CompletionQueueEntry::default() };
        self.completed(command, entry)
    }
}
