//! Turns work requests, read responses and Terminate messages into FPDUs.

use engine::{Buffer, BufferMut, Instant, Nanos};
use rdma::{Done, Inline, Key, Operation, PostError, Remote, SendRequest};

use super::{Connection, State};
use crate::wire::{CRC_LENGTH, Fault, Header, LENGTH_FIELD, Opcode, ReadRequest, Shown, Terminate, padding};

/// Maximum number of copied bytes of an FPDU: length field, header, and the inline bytes of a work
/// request or a Terminate message.
const HEAD_MAX: usize = LENGTH_FIELD + Header::UNTAGGED_LENGTH + Inline::LENGTH_MAX;
/// Length of the longest Terminate message in bytes: it includes a read request.
const TERMINATE_MAX: usize = Terminate::LENGTH + LENGTH_FIELD + Header::UNTAGGED_LENGTH + ReadRequest::LENGTH;
const _: () = assert!(TERMINATE_MAX <= Inline::LENGTH_MAX);

/// A send request that was taken and is not complete.
#[derive(Debug)]
pub(super) enum InFlight {
    /// It completes once the outbox has sent everything before `end`.
    Sending { end: u64, writes: bool },
    /// It completes once the whole response has arrived, which is then here.
    Reading(Option<Buffer>),
}

/// A read whose response is incomplete.
#[derive(Debug)]
pub(super) struct Reading {
    /// The key that the response must name.
    pub(super) sink: Key,
    pub(super) length: u32,
    /// Number of bytes that have arrived.
    pub(super) filled: u32,
    /// The data, if they arrive in several segments.
    pub(super) block: Option<BufferMut>,
    /// The number of the request among all that were taken. `None` for the message that permits the
    /// peer to send.
    pub(super) number: Option<u64>,
}

impl Reading {
    /// Whether a segment of `bytes` bytes is the last of the response.
    ///
    /// # Errors
    /// The fault, if the segment is not the expected one.
    pub(super) fn judge(&self, last: bool, key: Key, address: u64, bytes: u32) -> Result<bool, Fault> {
        if key != self.sink {
            return Err(Fault::TAGGED_KEY);
        }
        let rest = self.length - self.filled;
        let ends = bytes == rest;
        if address != u64::from(self.filled) || bytes > rest || last != ends {
            return Err(Fault::TAGGED_BOUNDS);
        }
        Ok(ends)
    }
}

/// The empty message that permits the other end to send (RTR).
#[derive(Clone, Copy, Debug)]
pub(super) enum FirstMessage {
    Write,
    Read,
}

/// The peer's silence after its reply before it is woken for the first time.
const WAKE_FIRST: Nanos = Nanos::from_millis(5);
/// Factor between one silence and the next.
const WAKE_FACTOR: u64 = 10;
/// Maximum number of wake-ups.
const WAKES_MAX: u8 = 3;

/// When an empty RDMA Write wakes the peer. Linux's siw does not notice bytes that arrive while it
/// is still sending its reply, until further bytes arrive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wake {
    pub(super) at: Instant,
    /// The length of the previous silence.
    after: Nanos,
    left: u8,
}

impl Wake {
    pub(super) fn first(now: Instant) -> Self {
        Self { at: now + WAKE_FIRST, after: WAKE_FIRST, left: WAKES_MAX }
    }

    fn next(self, now: Instant) -> Option<Self> {
        let after = self.after * WAKE_FACTOR;
        let left = self.left - 1;
        (left > 0).then_some(Self { at: now + after, after, left })
    }
}

/// The range of each segment of a message of `length` bytes. A message without bytes has one.
fn segments(length: usize, longest: u32) -> impl Iterator<Item = (core::ops::Range<usize>, bool)> {
    let longest = longest as usize;
    let count = length.div_ceil(longest).max(1);
    (0..count).map(move |index| {
        let start = index * longest;
        (start..length.min(start + longest), index + 1 == count)
    })
}

/// An offset or length within a message, which is smaller than 4 GiB.
pub(super) fn narrow(length: usize) -> u32 {
    u32::try_from(length).expect("a message is smaller than 4 GiB")
}

impl Connection {
    /// Whether requests may be sent.
    const fn may_pump(&self) -> bool {
        self.may_send && matches!(self.state, State::Ready)
    }

    /// Sends requests in order, as far as allowed. A read beyond ORD waits, and so do all requests
    /// behind it.
    pub(super) fn pump(&mut self) {
        if !self.may_pump() {
            return;
        }
        while let Some(next) = self.pair.next_send() {
            let is_read = matches!(next.operation, Operation::Read { .. });
            if is_read && self.reads.len() >= self.reads_outstanding_max {
                return;
            }
            let Some(request) = self.pair.take_send() else { return };
            self.transmit(request.operation);
        }
    }

    /// Posts a request. One that may be sent at once bypasses the send queue.
    #[inline]
    pub(super) fn post(&mut self, request: SendRequest) -> Result<(), PostError> {
        let is_read = matches!(request.operation, Operation::Read { .. });
        if self.may_pump() && !is_read && self.pair.pass(&request) {
            self.transmit(request.operation);
            return Ok(());
        }
        self.pair.post_send(request)?;
        self.pump();
        Ok(())
    }

    /// Sends a request that was taken.
    #[inline]
    fn transmit(&mut self, operation: Operation) {
        let writes = match operation {
            Operation::Read { remote } => {
                let number = self.retired + self.in_flight.len() as u64;
                self.send_read(remote, Some(number));
                self.in_flight.push_back(InFlight::Reading(None));
                return;
            }
            Operation::Write { data, remote } => {
                self.send_tagged(Opcode::Write, remote, &data);
                true
            }
            Operation::Send { inline, data, invalidate, .. } => {
                self.send_message(&inline, &data, invalidate);
                false
            }
        };
        self.in_flight.push_back(InFlight::Sending { end: self.outbox.end(), writes });
    }

    /// Completes finished requests, in order.
    pub(super) fn retire(&mut self) {
        let sent = self.outbox.sent();
        while let Some(first) = self.in_flight.front_mut() {
            let done = match first {
                InFlight::Sending { end, .. } if *end > sent => break,
                InFlight::Sending { writes: true, .. } => Done::Written,
                InFlight::Sending { writes: false, .. } => Done::Sent,
                InFlight::Reading(Some(data)) => Done::Read(core::mem::take(data)),
                InFlight::Reading(None) => break,
            };
            self.in_flight.pop_front();
            self.retired += 1;
            self.pair.complete_send(done);
        }
        while self.responses.front().is_some_and(|end| *end <= sent) {
            self.responses.pop_front();
        }
    }

    /// Completes the read request `number`.
    pub(super) fn complete_read(&mut self, number: u64, data: Buffer) {
        let index = usize::try_from(number - self.retired).ok();
        if let Some(InFlight::Reading(place)) = index.and_then(|index| self.in_flight.get_mut(index)) {
            *place = Some(data);
        }
        self.retire();
    }

    /// Sends the message that permits the other end to send.
    pub(super) fn send_first(&mut self, first: Option<FirstMessage>) {
        let nowhere = Remote { key: Key(0), address: 0, length: 0 };
        match first {
            Some(FirstMessage::Write) => self.send_tagged(Opcode::Write, nowhere, &Buffer::EMPTY),
            Some(FirstMessage::Read) => self.send_read(nowhere, None),
            None => {}
        }
    }

    /// Wakes a peer from which no FPDU has arrived.
    pub(super) fn wake_peer(&mut self, now: Instant) {
        self.wake = self.wake.and_then(|wake| wake.next(now));
        self.send_first(Some(FirstMessage::Write));
    }

    /// Sends a message of the send queue: `inline`, then `data`.
    fn send_message(&mut self, inline: &[u8], data: &Buffer, invalidate: Option<Key>) {
        let opcode = Opcode::Send { invalidates: invalidate.is_some(), solicited: false };
        let message = self.next_sent[0];
        self.next_sent[0] = message.wrapping_add(1);
        for (range, last) in segments(inline.len() + data.len(), self.config.segment_bytes) {
            let header = Header::Untagged {
                opcode,
                last,
                invalidate: invalidate.unwrap_or(Key(0)),
                number: message,
                offset: narrow(range.start),
            };
            let split = inline.len();
            let before = &inline[range.start.min(split)..range.end.min(split)];
            let behind = data.slice(range.start.max(split) - split..range.end.max(split) - split);
            self.send_segment(header, before, behind, self.crc);
        }
    }

    /// Sends a write or a read response.
    pub(super) fn send_tagged(&mut self, opcode: Opcode, remote: Remote, data: &Buffer) {
        for (range, last) in segments(data.len(), self.config.segment_bytes) {
            let address = remote.address.wrapping_add(range.start as u64);
            let header = Header::Tagged { opcode, last, key: remote.key, address };
            self.send_segment(header, &[], data.slice(range), self.crc);
        }
    }

    fn send_read(&mut self, source: Remote, number: Option<u64>) {
        let message = self.next_sent[1];
        self.next_sent[1] = message.wrapping_add(1);
        let sink = Key(message);
        let header = Header::Untagged {
            opcode: Opcode::ReadRequest,
            last: true,
            invalidate: Key(0),
            number: message,
            offset: 0,
        };
        let request = ReadRequest { sink, sink_address: 0, source };
        self.send_segment(header, &request.emit(), Buffer::EMPTY, self.crc);
        self.reads.push_back(Reading { sink, length: source.length, filled: 0, block: None, number });
    }

    pub(super) fn send_terminate(&mut self, fault: Fault, shown: Shown<'_>) {
        let header = Header::Untagged {
            opcode: Opcode::Terminate,
            last: true,
            invalidate: Key(0),
            number: 1,
            offset: 0,
        };
        // This segment always has a valid CRC: the ends may not have negotiated CRCs yet.
        self.send_segment(header, &Terminate { fault }.emit(shown), Buffer::EMPTY, true);
    }

    /// Sends one FPDU: `before` is copied, `data` stays where it is.
    #[inline]
    fn send_segment(&mut self, header: Header, before: &[u8], data: Buffer, crc: bool) {
        let length = u16::try_from(header.length() + before.len() + data.len());
        let length = length.expect("a segment fits into an FPDU");
        // The copied bytes are one piece, for the outbox and for the CRC.
        let mut head = [0; HEAD_MAX];
        let mut end = 0;
        for part in [&length.to_be_bytes(), &header.emit()[..header.length()], before] {
            head[end..end + part.len()].copy_from_slice(part);
            end += part.len();
        }
        let head = &head[..end];
        let mut trailer = [0; 3 + CRC_LENGTH];
        let padding = padding(length);
        if crc {
            let crc32c = self.config.crc32c;
            let mut sum = crc32c(0, head);
            if !data.is_empty() {
                sum = crc32c(sum, &data);
            }
            if padding > 0 {
                sum = crc32c(sum, &trailer[..padding]);
            }
            trailer[padding..padding + CRC_LENGTH].copy_from_slice(&sum.to_le_bytes());
        }
        self.outbox.write(head);
        self.outbox.gather(data);
        self.outbox.write(&trailer[..padding + CRC_LENGTH]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn segments_make_up_the_message() {
        let of = |length, longest| segments(length, longest).collect::<Vec<_>>();
        assert_eq!(of(0, 4), [(0..0, true)]);
        assert_eq!(of(4, 4), [(0..4, true)]);
        assert_eq!(of(9, 4), [(0..4, false), (4..8, false), (8..9, true)]);
    }
}
