//! What a host receives: one PDU at a time.

use engine::Buffer;
use nvme::wire::{CommandId, CompletionQueueEntry, StatusCode};

use super::slots::{Command, Incoming, Moving, Slots};
use super::{Closed, Completed, Connection, Output, Parameters, State};
use crate::wire::{
    Agreement, CommonHeader, ControllerToHostData, DIGEST_LENGTH, Fault, Flags, Framing,
    HostToControllerData, INITIALISE_LENGTH, InitializeResponse, PduKind, ReadyToTransfer, Receiver,
    ResponseCapsule, TerminateRequest, u32_at,
};

/// What a look at the received bytes came to.
pub(super) enum Step {
    Output(Output),
    /// Look again.
    Again,
    /// More bytes are needed.
    Idle,
}

/// Data of a PDU that are coming.
#[derive(Debug)]
pub(super) struct Arrival {
    command: CommandId,
    /// Where the first of them belongs.
    start: usize,
    /// Where the next one belongs.
    at: usize,
    /// Where they end.
    end: usize,
    digest: bool,
    flags: Flags,
}

impl Arrival {
    pub(super) fn advance(&mut self, count: usize) {
        assert!(count <= self.end - self.at, "{count} B landed where {} had room", self.end - self.at);
        self.at += count;
    }
}

/// Where the bytes of `arrival` that have not come are put.
pub(super) fn place_of<'a>(slots: &'a mut Slots, arrival: &Arrival) -> Option<&'a mut [u8]> {
    let Moving::In(incoming) = &mut slots.get(arrival.command)?.moving else { return None };
    let place = incoming.place.as_mut()?.get_mut(arrival.at..arrival.end)?;
    (!place.is_empty()).then_some(place)
}

impl Connection {
    /// Understands what comes next.
    #[inline]
    pub(super) fn receive(&mut self) -> Step {
        if self.arrival.is_some() {
            return self.receive_data();
        }
        let Some(bytes) = self.inbound.head(CommonHeader::LENGTH) else { return Step::Idle };
        let bytes = bytes.first_chunk().expect("as many as were asked for");
        let checked = CommonHeader::parse(bytes)
            .and_then(|header| Ok((header, Framing::check(&header, Receiver::Host, self.agreement)?)));
        let (header, framing) = match checked {
            Ok(checked) => checked,
            Err(fault) => return self.refuse(fault, CommonHeader::LENGTH),
        };
        let is_response = header.kind == PduKind::InitializeResponse;
        let is_terminate = header.kind == PduKind::ControllerTerminate;
        if is_response != matches!(self.state, State::AwaitingResponse { .. }) && !is_terminate {
            return self.refuse(Fault::SEQUENCE, CommonHeader::LENGTH);
        }
        if self.inbound.head(framing.head()).is_none() {
            return Step::Idle;
        }
        let shown = usize::from(framing.header_length);
        if framing.header_digest
            && let Err(fault) = self.check_header_digest(framing)
        {
            return self.refuse(fault, shown);
        }
        let step = match header.kind {
            PduKind::ResponseCapsule => self.on_response(framing),
            PduKind::ControllerData => self.on_controller_data(header, framing),
            PduKind::ReadyToTransfer => self.on_ready_to_transfer(framing),
            PduKind::InitializeResponse => self.on_initialized(),
            // Framing lets none but a controller's PDUs through.
            _ => self.on_terminate(framing),
        };
        step.unwrap_or_else(|fault| self.refuse(fault, shown))
    }

    #[cold]
    fn refuse(&mut self, fault: Fault, shown: usize) -> Step {
        self.fail(fault, shown);
        Step::Again
    }

    /// The header of a PDU that has come whole.
    fn header<const N: usize>(&mut self, framing: Framing) -> &[u8; N] {
        let bytes = self.inbound.head(framing.head()).and_then(<[u8]>::first_chunk);
        bytes.expect("a head has come whole")
    }

    fn check_header_digest(&mut self, framing: Framing) -> Result<(), Fault> {
        let crc32c = self.config.crc32c;
        let length = usize::from(framing.header_length);
        let bytes = self.inbound.head(framing.head()).unwrap_or_default();
        let digest = u32_at(bytes, length);
        if crc32c(0, &bytes[..length]) == digest { Ok(()) } else { Err(Fault::header_digest(digest)) }
    }

    fn on_initialized(&mut self) -> Result<Step, Fault> {
        let bytes = self.inbound.head(INITIALISE_LENGTH).and_then(<[u8]>::first_chunk);
        let response = InitializeResponse::parse(bytes.expect("a head has come whole"))?;
        let InitializeResponse { alignment, header_digest, data_digest, host_data_max } = response;
        // A digest that was not asked for.
        if (header_digest && !self.config.header_digest) || (data_digest && !self.config.data_digest) {
            return Err(Fault::unsupported(11));
        }
        self.inbound.consume(INITIALISE_LENGTH);
        self.host_data_max = host_data_max;
        self.agreement = Agreement { header_digest, data_digest, alignment: self.config.alignment };
        self.sender.agreement = Agreement { header_digest, data_digest, alignment };
        self.state = State::Ready;
        Ok(Step::Output(Output::Initialized(Parameters {
            header_digest,
            data_digest,
            host_alignment: self.config.alignment,
            controller_alignment: alignment,
            host_data_max,
        })))
    }

    fn on_terminate(&mut self, framing: Framing) -> Result<Step, Fault> {
        let request = TerminateRequest::parse(self.header(framing));
        self.close(Closed::Terminated(request.fault));
        Ok(Step::Again)
    }

    #[inline]
    fn on_response(&mut self, framing: Framing) -> Result<Step, Fault> {
        let entry = ResponseCapsule::parse(self.header(framing)).entry;
        let command = self.slots.retire(entry.command_id);
        // The identifier stands in the last double word of the completion.
        let command = command.ok_or(Fault::field(20))?;
        self.inbound.consume(framing.head());
        Ok(self.completed(command, entry))
    }

    #[inline]
    fn completed(&mut self, command: Command, mut entry: CompletionQueueEntry) -> Step {
        self.statistics.completed += 1;
        self.statistics.last_completed = Some(entry.command_id);
        let mut data = Buffer::EMPTY;
        if let Moving::In(Incoming { arrived, broken, whole, place, .. }) = command.moving {
            data = whole;
            if let Some(place) = place {
                data = self.config.pool.borrow_mut().seal(place).slice(0..arrived as usize);
            }
            if broken && entry.status().is_success() {
                entry = entry.with_status(StatusCode::TransientTransportError.into(), false);
            }
        }
        Step::Output(Output::Completed(Completed { cookie: command.cookie, entry, data }))
    }

    fn on_ready_to_transfer(&mut self, framing: Framing) -> Result<Step, Fault> {
        let pdu = ReadyToTransfer::parse(self.header(framing));
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
        let sent = self.outbox.sent();
        let place = ends[..limit].iter_mut().find(|end| **end <= sent).ok_or(Fault::LIMIT)?;
        *asked = end;
        let mut offset = pdu.offset;
        while offset < end {
            let length = self.host_data_max.min(end - offset);
            let flags = Flags::NONE.with(Flags::LAST_PDU, offset + length == end);
            let piece = data.slice(offset as usize..(offset + length) as usize);
            let part = HostToControllerData { command: pdu.command, tag: pdu.tag, offset, length };
            self.sender.send(&mut self.outbox, PduKind::HostData, flags, piece, |common| part.emit(common));
            offset += length;
        }
        *place = self.outbox.end();
        self.inbound.consume(framing.head());
        Ok(Step::Again)
    }

    #[inline]
    fn on_controller_data(&mut self, header: CommonHeader, framing: Framing) -> Result<Step, Fault> {
        let pdu = ControllerToHostData::parse(self.header(framing));
        let command = self.slots.get(pdu.command).ok_or(Fault::field(8))?;
        let Moving::In(incoming) = &mut command.moving else { return Err(Fault::field(8)) };
        if pdu.length == 0 || pdu.length != framing.data_length {
            return Err(Fault::field(16));
        }
        let end = pdu.offset.checked_add(pdu.length).ok_or(Fault::OUT_OF_RANGE)?;
        if end > incoming.length {
            return Err(Fault::OUT_OF_RANGE);
        }
        if pdu.offset != incoming.arrived || incoming.ended {
            return Err(Fault::SEQUENCE);
        }
        self.inbound.consume(framing.head());
        let length = pdu.length as usize;
        if pdu.length == incoming.length
            && let Some(whole) = self.inbound.take(length + framing.tail())
        {
            // The usual case: all of it in one PDU, and that in one block.
            incoming.whole = whole.slice(0..length);
            let intact =
                !framing.data_digest || (self.config.crc32c)(0, &whole[..length]) == u32_at(&whole, length);
            return Ok(self.on_arrived(pdu.command, length, intact, header.flags));
        }
        if incoming.place.is_none() {
            incoming.place = Some(self.config.pool.borrow_mut().take(incoming.length as usize));
        }
        let start = pdu.offset as usize;
        self.arrival = Some(Arrival {
            command: pdu.command,
            start,
            at: start,
            end: start + length,
            digest: framing.data_digest,
            flags: header.flags,
        });
        Ok(Step::Again)
    }

    /// Takes data of a PDU whose header was understood.
    fn receive_data(&mut self) -> Step {
        let Some(arrival) = &mut self.arrival else { return Step::Again };
        if let Some(place) = place_of(&mut self.slots, arrival) {
            let count = self.inbound.fill(place);
            arrival.at += count;
        }
        if arrival.at < arrival.end {
            return Step::Idle;
        }
        let mut digest = None;
        if arrival.digest {
            let Some(bytes) = self.inbound.head(DIGEST_LENGTH) else { return Step::Idle };
            digest = Some(u32_at(bytes, 0));
            self.inbound.consume(DIGEST_LENGTH);
        }
        let Some(Arrival { command, start, end, flags, .. }) = self.arrival.take() else {
            return Step::Again;
        };
        let place = self.slots.get(command).and_then(|command| match &command.moving {
            Moving::In(incoming) => incoming.place.as_ref()?.get(start..end),
            _ => None,
        });
        let intact =
            digest.is_none_or(|digest| place.is_some_and(|place| (self.config.crc32c)(0, place) == digest));
        self.on_arrived(command, end - start, intact, flags)
    }

    /// Data of a PDU are there.
    #[inline]
    fn on_arrived(&mut self, id: CommandId, length: usize, intact: bool, flags: Flags) -> Step {
        self.statistics.data_digest_errors += u64::from(!intact);
        let Some(command) = self.slots.get(id) else { return Step::Again };
        if let Moving::In(incoming) = &mut command.moving {
            incoming.arrived += u32::try_from(length).expect("DATAL has 32 bits");
            incoming.broken |= !intact;
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
