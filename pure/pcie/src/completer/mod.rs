//! The answering end of a link: turns a request and its bytes into completions.

#[cfg(test)]
mod tests;

use engine::{Buffer, Pool};
use serde::{Deserialize, Serialize};

use crate::wire::{Bdf, Completion, CompletionStatus, Header, Kind, MemoryOperation, Packet};

/// Bytes of a double word, the wire's unit.
const DWORD: usize = 4;
/// Lower Address in a completion is the address modulo this.
const LOWER_ADDRESS_SPAN: u64 = 128;

/// Limits that decide how completions are split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The function that answers.
    pub id: Bdf,
    /// Read Completion Boundary (RCB) in bytes, 64 or 128. Every completion of a read but the last
    /// ends at a multiple of the RCB.
    pub boundary: u32,
    /// Max_Payload_Size in bytes: a power of two from 128 to 4096.
    pub payload_size: u32,
}

impl Default for Settings {
    /// The values after power-up: MPS 128 B, RCB 64 B.
    fn default() -> Self {
        Self { id: Bdf::default(), boundary: 64, payload_size: 128 }
    }
}

/// Turns requests into the completions that answer them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Completer {
    settings: Settings,
    pool: Pool,
}

impl Completer {
    /// A completer that splits completions by `settings`.
    pub fn new(settings: Settings) -> Self {
        Self { settings, pool: Pool::default() }
    }
    /// The settings in force.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }
    /// Changes the settings for all later answers.
    pub const fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// A completion without data, for a non-posted request: a write that succeeded, or any request
    /// that failed.
    pub fn status(&self, request: &Header, status: CompletionStatus) -> Packet {
        Packet::completion(self.settings.id, status, request)
    }

    /// Passes to `send` the completions with data (CplD) that answer `request`, in order.
    ///
    /// `bytes` is either the range from the first enabled byte to the last one
    /// ([`Header::byte_length`]), or all bytes of the request's double words. Payloads are slices
    /// of `bytes`, except where the first or the last double word isn't whole.
    ///
    /// # Panics
    /// When `bytes` has neither length.
    pub fn data(&mut self, request: &Header, bytes: &Buffer, mut send: impl FnMut(Packet)) {
        let Kind::Memory(memory) = &request.kind else {
            return send(self.whole(request, bytes));
        };
        if memory.operation.is_atomic() {
            return send(self.whole(request, bytes));
        }
        let end = usize::from(request.length) * DWORD;
        let lead = usize::from(request.lead());
        let span = byte_count_of(request) as usize;
        // Start of `bytes` within the request's double words.
        let skipped = if bytes.len() == end { 0 } else { lead };
        let exact = request.byte_length() as usize;
        assert!(
            bytes.len() == end || bytes.len() == exact,
            "{} B answer a read of {exact} B in {end} B",
            bytes.len()
        );
        let mut start = 0;
        while start < end {
            let address = memory.address.wrapping_add(start as u64);
            let stop = end.min(start + self.piece(address));
            let first = start.max(lead);
            let payload = self.dwords(bytes, skipped, start, stop);
            let remaining = u32::try_from(lead + span - first).unwrap_or(u32::MAX);
            let lower = lower_address(memory.address.wrapping_add(first as u64));
            let dwords = u16::try_from((stop - start) / DWORD).unwrap_or(u16::MAX);
            let status = CompletionStatus::Success;
            send(self.completion(request, status, remaining, lower, payload, dwords));
            start = stop;
        }
    }

    /// Length in bytes of the next completion's payload if it starts at the double word at
    /// `address`.
    fn piece(&self, address: u64) -> usize {
        let (size, boundary) = (u64::from(self.settings.payload_size), u64::from(self.settings.boundary));
        // Counted from the boundary before the address, because no boundary follows the last
        // address of all.
        let start = address % boundary;
        let end = (start + size) & !(boundary - 1);
        usize::try_from(end.saturating_sub(start)).unwrap_or(DWORD).max(DWORD)
    }

    /// The bytes `start..stop` of the request's double words. `bytes` lacks the first `skipped` of
    /// these.
    fn dwords(&mut self, bytes: &Buffer, skipped: usize, start: usize, stop: usize) -> Buffer {
        if start >= skipped && stop <= skipped + bytes.len() {
            return bytes.slice(start - skipped..stop - skipped);
        }
        let mut padded = self.pool.take(stop - start);
        padded.fill(0);
        let from = start.max(skipped);
        let to = stop.min(skipped + bytes.len());
        if from < to {
            padded[from - start..to - start].copy_from_slice(&bytes[from - skipped..to - skipped]);
        }
        self.pool.seal(padded)
    }

    /// One completion with all of `bytes`, for configuration and I/O reads and AtomicOps.
    fn whole(&self, request: &Header, bytes: &Buffer) -> Packet {
        let count = request.byte_count();
        assert!(bytes.len() == usize::from(count), "{} B answer a request of {count} B", bytes.len());
        let dwords = count / 4;
        self.completion(request, CompletionStatus::Success, u32::from(count), 0, bytes.clone(), dwords)
    }

    const fn completion(
        &self,
        request: &Header,
        status: CompletionStatus,
        byte_count: u32,
        lower_address: u8,
        payload: Buffer,
        dwords: u16,
    ) -> Packet {
        let [.., high, low] = byte_count.to_be_bytes();
        let completion = Completion {
            completer: self.settings.id,
            status,
            byte_count_modified: false,
            byte_count: u16::from_be_bytes([high, low]),
            requester: request.requester(),
            tag: request.tag(),
            lower_address,
            data: dwords > 0,
            locked: is_locked(request),
        };
        let mut header = Header::new(Kind::Completion(completion), dwords);
        header.traits = request.traits.of_answer();
        Packet::new(header, payload)
    }
}

/// Number of bytes that a memory read requests; a zero-length read counts as one byte.
const fn byte_count_of(request: &Header) -> u32 {
    match request.byte_length() {
        0 => 1,
        length => length,
    }
}

const fn is_locked(request: &Header) -> bool {
    matches!(&request.kind, Kind::Memory(memory) if matches!(memory.operation, MemoryOperation::ReadLocked))
}

const fn lower_address(address: u64) -> u8 {
    (address % LOWER_ADDRESS_SPAN).to_be_bytes()[7]
}
