//! Checks FPDUs and places their data.

use engine::{Buffer, BufferMut};
use rdma::{AccessError, Disconnected, Key, ReceiveRequest, Remote, WorkError};

use super::transmit::narrow;
use super::{Connection, State};
use crate::MESSAGE_BYTES_MAX;
use crate::wire::{CRC_LENGTH, Fault, Header, LENGTH_FIELD, Opcode, ReadRequest, Shown, Terminate};

/// Maximum number of responses in the outbox for each read that the peer may have outstanding. A
/// response may have reached the peer before the world reports that it was sent.
const RESPONSES_PER_READ: usize = 2;

/// An incomplete message of the peer.
#[derive(Debug)]
pub(super) struct Receiving {
    pub(super) request: ReceiveRequest,
    opcode: Opcode,
    /// The key that the message invalidates, from its first segment.
    invalidate: Key,
    /// The bytes, unless the first segment is the last.
    block: BufferMut,
    filled: usize,
}

/// Why a segment is refused.
pub(super) struct Refusal {
    pub(super) fault: Fault,
    pub(super) why: Disconnected,
    /// The result of the oldest send request.
    pub(super) request: WorkError,
    /// The Terminate message includes the header of the read request.
    shows_request: bool,
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        let why = Disconnected::PeerFault(fault.describe());
        Self { fault, why, request: WorkError::Flushed, shows_request: false }
    }
}

impl Refusal {
    /// The peer sent an unexpected response.
    fn response(fault: Fault) -> Self {
        Self { request: WorkError::BadResponse, ..fault.into() }
    }

    pub(super) fn access(fault: Fault, error: AccessError) -> Self {
        Self { why: Disconnected::Access(error), ..fault.into() }
    }
}

/// A segment of an untagged message.
struct Segment {
    opcode: Opcode,
    last: bool,
    invalidate: Key,
    number: u32,
    offset: u32,
    data: Buffer,
}

impl Connection {
    /// Handles a complete FPDU.
    pub(super) fn on_fpdu(&mut self, fpdu: &Buffer) {
        if !matches!(self.state, State::Ready) {
            return;
        }
        let (covered, crc) = fpdu.split_at(fpdu.len() - CRC_LENGTH);
        if self.crc && (self.config.crc32c)(0, covered).to_le_bytes() != *crc {
            let why = Disconnected::PeerFault(Fault::CRC.describe());
            self.terminate(Fault::CRC, Shown::Nothing, why, WorkError::Flushed);
            return;
        }
        let length = usize::from(u16::from_be_bytes([fpdu[0], fpdu[1]]));
        let end = LENGTH_FIELD + length;
        let header = match Header::parse(&fpdu[LENGTH_FIELD..end]) {
            Ok(header) => header,
            Err(error) => {
                let shown = match error.length {
                    0 => Shown::Nothing,
                    length => Shown::Segment(&fpdu[..LENGTH_FIELD + length]),
                };
                let why = Disconnected::PeerFault(error.fault.describe());
                self.terminate(error.fault, shown, why, WorkError::Flushed);
                return;
            }
        };
        self.may_send = true;
        self.wake = None;
        let start = LENGTH_FIELD + header.length();
        if let Err(refusal) = self.on_segment(header, fpdu.slice(start..end)) {
            let Refusal { fault, why, request, shows_request } = refusal;
            let shown =
                if shows_request { Shown::ReadRequest(&fpdu[..end]) } else { Shown::Segment(&fpdu[..start]) };
            self.terminate(fault, shown, why, request);
        }
    }

    fn on_segment(&mut self, header: Header, data: Buffer) -> Result<(), Refusal> {
        match header {
            Header::Tagged { opcode: Opcode::Write, key, address, .. } => self.on_write(key, address, &data),
            Header::Tagged { last, key, address, .. } => self.on_response(last, key, address, data),
            Header::Untagged { opcode, last, invalidate, number, offset } => {
                let segment = Segment { opcode, last, invalidate, number, offset, data };
                match opcode {
                    Opcode::ReadRequest => self.on_read_request(&segment),
                    Opcode::Terminate => {
                        self.on_terminate(&segment);
                        Ok(())
                    }
                    _ => self.on_send(segment),
                }
            }
        }
    }

    fn on_write(&mut self, key: Key, address: u64, data: &Buffer) -> Result<(), Refusal> {
        // If there is nothing to write, the key and the address are not checked (RFC 5040, section
        // 5.2).
        if data.is_empty() {
            return Ok(());
        }
        if address.checked_add(data.len() as u64 - 1).is_none() {
            return Err(Refusal::access(Fault::TAGGED_WRAP, AccessError::Bounds));
        }
        let remote = Remote { key, address, length: narrow(data.len()) };
        let mut domain = self.config.domain.borrow_mut();
        let written = domain.write(self.config.queue_pair, remote, data);
        written.map_err(|error| Refusal::access(Fault::of_write(error), error))
    }

    /// Handles a segment of the response to the oldest read.
    fn on_response(&mut self, last: bool, key: Key, address: u64, data: Buffer) -> Result<(), Refusal> {
        let reading = self.reads.front_mut().ok_or_else(|| Refusal::response(Fault::TAGGED_KEY))?;
        let bytes = narrow(data.len());
        let ends = reading.judge(last, key, address, bytes).map_err(Refusal::response)?;
        let mut pool = self.config.pool.borrow_mut();
        if ends && reading.filled == 0 {
            drop(pool);
            self.finish_read(data);
            return Ok(());
        }
        let length = reading.length as usize;
        let block = reading.block.get_or_insert_with(|| pool.take(length));
        block[reading.filled as usize..][..data.len()].copy_from_slice(&data);
        reading.filled += bytes;
        if let Some(block) = reading.block.take_if(|_| ends) {
            let data = pool.seal(block);
            drop(pool);
            self.finish_read(data);
        }
        Ok(())
    }

    /// Handles the complete response to the oldest read.
    pub(super) fn finish_read(&mut self, data: Buffer) {
        if let Some(number) = self.reads.pop_front().and_then(|reading| reading.number) {
            self.complete_read(number, data);
        }
    }

    /// Answers a read of the peer.
    fn on_read_request(&mut self, segment: &Segment) -> Result<(), Refusal> {
        self.check_number(1, segment)?;
        let request = segment.data.first_chunk().filter(|_| segment.data.len() == ReadRequest::LENGTH);
        let (Some(request), 0, true) = (request, segment.offset, segment.last) else {
            let fault = if segment.offset > 0 { Fault::MESSAGE_OFFSET } else { Fault::TOO_LONG };
            return Err(fault.into());
        };
        self.next_received[1] = self.next_received[1].wrapping_add(1);
        if self.responses.len() > self.reads_answered_max * RESPONSES_PER_READ {
            return Err(Fault::NO_BUFFER.into());
        }
        let ReadRequest { sink, sink_address, source } = ReadRequest::parse(request);
        let refuse = |fault, error| Refusal { shows_request: true, ..Refusal::access(fault, error) };
        let data = if source.length == 0 {
            Buffer::EMPTY
        } else if source.address.checked_add(u64::from(source.length) - 1).is_none() {
            return Err(refuse(Fault::READ_WRAP, AccessError::Bounds));
        } else {
            let data = self.config.domain.borrow_mut().read(self.config.queue_pair, source);
            data.map_err(|error| refuse(Fault::of_read(error), error))?
        };
        let sink = Remote { key: sink, address: sink_address, length: source.length };
        self.send_tagged(Opcode::ReadResponse, sink, &data);
        self.responses.push_back(self.outbox.end());
        Ok(())
    }

    /// Handles the peer's report of a fault of this end.
    fn on_terminate(&mut self, segment: &Segment) {
        let fault =
            Terminate::parse(&segment.data).map_or(Fault::STREAM_CATASTROPHIC, |terminate| terminate.fault);
        self.close(Disconnected::Reported(fault.describe()), fault.work_error());
    }

    fn check_number(&self, queue: usize, segment: &Segment) -> Result<(), Refusal> {
        if segment.number == self.next_received[queue] { Ok(()) } else { Err(Fault::MESSAGE_NUMBER.into()) }
    }

    /// Handles a segment of a message of the peer.
    fn on_send(&mut self, segment: Segment) -> Result<(), Refusal> {
        self.check_number(0, &segment)?;
        let Some(receiving) = self.receiving.take() else { return self.on_first(segment) };
        let refuse = |this: &mut Self, fault: Fault, receiving: Receiving, error| {
            this.pair.fail_receive(receiving.request, error);
            Err(fault.into())
        };
        let Segment { opcode, last, offset, data, .. } = segment;
        if opcode != receiving.opcode {
            return refuse(self, Fault::UNEXPECTED_OPCODE, receiving, WorkError::Flushed);
        }
        if offset as usize != receiving.filled {
            return refuse(self, Fault::MESSAGE_OFFSET, receiving, WorkError::Flushed);
        }
        let mut receiving = receiving;
        let end = receiving.filled + data.len();
        let Some(place) = receiving.block.get_mut(receiving.filled..end) else {
            return refuse(self, Fault::TOO_LONG, receiving, WorkError::LocalLength);
        };
        place.copy_from_slice(&data);
        receiving.filled = end;
        if !last {
            self.receiving = Some(receiving);
            return Ok(());
        }
        let Receiving { request, opcode, invalidate, mut block, filled } = receiving;
        block.truncate(filled);
        let data = self.config.pool.borrow_mut().seal(block);
        self.on_message(request, opcode, invalidate, data)
    }

    /// Handles the first segment of a message, which takes a receive request.
    fn on_first(&mut self, segment: Segment) -> Result<(), Refusal> {
        let Segment { opcode, last, invalidate, offset, data, .. } = segment;
        if offset != 0 {
            return Err(Fault::MESSAGE_OFFSET.into());
        }
        let request = self.pair.take_receive().ok_or(Fault::NO_BUFFER)?;
        let room = request.length_max.min(MESSAGE_BYTES_MAX) as usize;
        if data.len() > room {
            self.pair.fail_receive(request, WorkError::LocalLength);
            return Err(Fault::TOO_LONG.into());
        }
        if last {
            return self.on_message(request, opcode, invalidate, data);
        }
        let mut block = self.config.pool.borrow_mut().take(room);
        block[..data.len()].copy_from_slice(&data);
        self.receiving = Some(Receiving { request, opcode, invalidate, block, filled: data.len() });
        Ok(())
    }

    /// Handles a complete message.
    fn on_message(
        &mut self,
        request: ReceiveRequest,
        opcode: Opcode,
        invalidate: Key,
        data: Buffer,
    ) -> Result<(), Refusal> {
        self.next_received[0] = self.next_received[0].wrapping_add(1);
        let invalidated = match opcode {
            Opcode::Send { invalidates: true, .. } => Some(invalidate),
            _ => None,
        };
        if let Some(key) = invalidated {
            let result = self.config.domain.borrow_mut().invalidate(self.config.queue_pair, key);
            if let Err(error) = result {
                self.pair.fail_receive(request, WorkError::Flushed);
                return Err(Refusal::access(Fault::CANNOT_INVALIDATE, error));
            }
        }
        self.pair.complete_receive(request, data, invalidated, None);
        Ok(())
    }
}
