//! Sends requests.

use engine::{Buffer, Instant};

use super::{
    Answer, Busy, ConfigRegister, DWORD, Flight, Output, Purpose, REQUESTS_MAX, Request, RequestError,
    Requester, Settings,
};
use crate::wire::{ConfigRequest, Header, IoRequest, Kind, Packet, Tag};

/// Requests must not cross a multiple of this many bytes.
const PAGE: u32 = 4096;

impl Requester {
    /// Reads `length` bytes of memory at `address`. The answer is [`Answer::ReadData`] or
    /// [`Answer::ReadFailed`] with `cookie`. A read of length 0 is answered at once.
    ///
    /// # Errors
    /// [`Busy`] when [`REQUESTS_MAX`] requests are outstanding.
    pub fn read(&mut self, now: Instant, cookie: u64, address: u64, length: u32) -> Result<(), Busy> {
        if length == 0 {
            self.outputs.push_back(Output::Answer(Answer::ReadData {
                cookie,
                offset: 0,
                data: Buffer::EMPTY,
                last: true,
            }));
            return Ok(());
        }
        if address.checked_add(u64::from(length) - 1).is_none() {
            self.outputs.push_back(Output::Answer(Answer::ReadFailed {
                cookie,
                error: RequestError::AddressOverflow,
            }));
            return Ok(());
        }
        self.start(now, cookie, Purpose::MemoryRead { address, length })
    }

    /// Reads a double word of a configuration space, or writes it with the byte enables and the
    /// value in `write`. The answer is [`Answer::Register`] with `cookie`.
    ///
    /// # Errors
    /// [`Busy`] when [`REQUESTS_MAX`] requests are outstanding.
    pub fn config(
        &mut self,
        now: Instant,
        cookie: u64,
        register: ConfigRegister,
        write: Option<(u8, u32)>,
    ) -> Result<(), Busy> {
        self.start(now, cookie, Purpose::Config { register, write })
    }

    /// Reads the double word at I/O address `address`, or writes the value in `write` there. The
    /// answer is [`Answer::Register`] with `cookie`.
    ///
    /// # Errors
    /// [`Busy`] when [`REQUESTS_MAX`] requests are outstanding.
    pub fn io(
        &mut self,
        now: Instant,
        cookie: u64,
        address: u32,
        enables: u8,
        write: Option<u32>,
    ) -> Result<(), Busy> {
        self.start(now, cookie, Purpose::Io { address, enables, write })
    }

    /// Writes `data` to memory at `address`, split by Max_Payload_Size and at 4 KiB boundaries. The
    /// write is posted, so nothing answers it. Bytes that share a double word with bytes outside
    /// the write are copied; all others are shared.
    ///
    /// Bytes beyond the last address are dropped, as in any write to an unclaimed address.
    pub fn write(&mut self, address: u64, data: &Buffer) {
        let outputs = &mut self.outputs;
        cut_write(&self.settings, address, data, |packet| outputs.push_back(Output::Packet(packet)));
    }

    /// Writes as [`Requester::write`] does, but passes the packets to `send`, bypassing the queue
    /// of outputs. Must not be called while outputs are waiting, because these go first.
    #[inline]
    pub fn write_into(&mut self, address: u64, data: &Buffer, send: &mut impl FnMut(Packet)) {
        debug_assert!(self.outputs.is_empty(), "a packet must not overtake outputs");
        cut_write(&self.settings, address, data, send);
    }

    /// Whether an output is waiting to be polled.
    #[inline]
    pub fn has_outputs(&self) -> bool {
        !self.outputs.is_empty()
    }

    /// Adds a request to the table, and sends packets for it as far as tags are free.
    fn start(&mut self, now: Instant, cookie: u64, purpose: Purpose) -> Result<(), Busy> {
        let request =
            Request { cookie, purpose, issued: 0, arrived: 0, outstanding: 0, live: true, failed: false };
        let index = match self.free.pop() {
            Some(index) => {
                self.requests[index as usize] = request;
                index
            }
            None if self.requests.len() < REQUESTS_MAX => {
                self.requests.push(request);
                u32::try_from(self.requests.len() - 1).unwrap_or(u32::MAX)
            }
            None => return Err(Busy),
        };
        self.waiting.push_back(index);
        self.issue_waiting(now);
        Ok(())
    }

    /// Sends packets for the waiting requests, in order, while tags are free.
    pub(super) fn issue_waiting(&mut self, now: Instant) {
        while let Some(index) = self.waiting.front().copied() {
            let Some(tag) = self.tags.issue() else { return };
            self.issue(now, index, tag);
            let request = &self.requests[index as usize];
            if request.issued == request.purpose.length() {
                self.waiting.pop_front();
            }
        }
    }

    fn issue(&mut self, now: Instant, index: u32, tag: Tag) {
        let request = &mut self.requests[index as usize];
        let (offset, id) = (request.issued, self.settings.id);
        let left = request.purpose.length() - offset;
        let (address, count, packet) = match request.purpose {
            Purpose::MemoryRead { address, .. } => {
                let address = address + u64::from(offset);
                let span = within(address, self.settings.read_request_size.min(PAGE));
                let count = left.min(u32::try_from(span).unwrap_or(PAGE));
                (address, count, Packet::memory_read(id, tag, address, count))
            }
            Purpose::Config { register: ConfigRegister { routing, target, offset }, write } => {
                let kind = ConfigRequest {
                    write: write.is_some(),
                    routing,
                    requester: id,
                    tag,
                    enables: write.map_or(0b1111, |(enables, _)| enables),
                    target,
                    offset,
                };
                (0, left, self.register_packet(Kind::Config(kind), write.map(|(_, value)| value)))
            }
            Purpose::Io { address, enables, write } => {
                let kind = IoRequest { write: write.is_some(), requester: id, tag, enables, address };
                (0, left, self.register_packet(Kind::Io(kind), write))
            }
        };
        let request = &mut self.requests[index as usize];
        request.issued += count;
        request.outstanding += 1;
        self.flights[usize::from(tag.get())] =
            Flight::Waiting { request: index, offset, address, remaining: count };
        self.latest = self.latest.max(now + self.settings.timeout.longest());
        self.deadlines.arm(u32::from(tag.get()), self.latest);
        self.statistics.requests += 1;
        self.outputs.push_back(Output::Packet(packet));
    }

    fn register_packet(&mut self, kind: Kind, write: Option<u32>) -> Packet {
        let payload = write.map_or(Buffer::EMPTY, |value| self.pool.copy(&value.to_le_bytes()));
        Packet::new(Header::new(kind, 1), payload)
    }
}

/// Number of bytes from `address` to the next multiple of `size`, a power of two.
fn within(address: u64, size: u32) -> usize {
    let size = u64::from(size);
    usize::try_from(size - (address & (size - 1))).unwrap_or(DWORD)
}

/// Passes to `send` the packets of a write as described at [`Requester::write`].
#[inline]
fn cut_write(settings: &Settings, address: u64, data: &Buffer, mut send: impl FnMut(Packet)) {
    let mut start = 0;
    while start < data.len() {
        let Some(at) = address.checked_add(start as u64) else { return };
        let left = data.len() - start;
        let length = left.min(write_piece(settings, at, left));
        send(Packet::memory_write(settings.id, at, data.slice(start..start + length)));
        start += length;
    }
}

/// Length in bytes of the next packet of a write of `length` bytes at `address`.
#[inline]
fn write_piece(settings: &Settings, address: u64, length: usize) -> usize {
    let lead = usize::from(address.to_le_bytes()[0]) % DWORD;
    let trail = (lead + length) % DWORD;
    // Bytes around the whole double words travel in packets of their own, so that the whole ones
    // need no copy.
    if lead != 0 {
        return length.min(DWORD - lead);
    }
    if length < DWORD {
        return length;
    }
    within(address, settings.payload_size).min(length - trail)
}
