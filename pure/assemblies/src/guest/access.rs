//! The guest's accesses to the function: in order, a few under way at a time.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Buffer, BufferMut, Instant};
use pcie::root_complex::Function;
use vfio_user::RegionIndex;
use vfio_user::server::Token;

/// Maximum number of accesses under way at a time.
const ACCESSES_MAX: usize = 64;
/// Waiting accesses above which no more should be taken from the client.
const QUEUE_MAX: usize = 1024;
/// Bytes of waiting writes above which no more should be taken from the client.
const QUEUE_BYTES_MAX: usize = 4 << 20;
/// Maximum number of requests under way at a time, of all accesses together. A script may have as
/// many more.
const REQUESTS_MAX: usize = 1024;

/// A client's access.
#[derive(Debug)]
pub(super) enum Operation {
    Read { token: Token, region: RegionIndex, offset: u64, length: u32 },
    Write { token: Option<Token>, region: RegionIndex, offset: u64, data: Buffer },
    Reset { token: Token },
}

impl Operation {
    /// The maximum number of requests that the operation can need.
    fn requests(&self) -> usize {
        let dwords = |length: usize| length / 4 + 2;
        match self {
            Self::Read { region: RegionIndex::CONFIG, length, .. } => {
                dwords(usize::try_from(*length).unwrap_or(usize::MAX))
            }
            Self::Write { region: RegionIndex::CONFIG, data, .. } => dwords(data.len()),
            _ => 1,
        }
    }
    fn bytes(&self) -> usize {
        match self {
            Self::Write { data, .. } => data.len(),
            _ => 0,
        }
    }
}

/// How an access ends.
#[derive(Debug)]
pub(super) enum Purpose {
    /// With these bytes, which begin at `offset` of the region. `bytes` starts out as the answer
    /// for every part that the function never answers.
    Read { token: Token, region: RegionIndex, offset: u64, bytes: BufferMut },
    /// Without data.
    Write { token: Option<Token> },
}

#[derive(Debug)]
struct Access {
    since: Instant,
    /// Answers that are still to come.
    missing: u32,
    /// `None` once the access has ended.
    purpose: Option<Purpose>,
}

/// The guest's accesses: those that wait and those that are under way.
#[derive(Debug, Default)]
pub(super) struct Accesses {
    queue: VecDeque<(Instant, Operation)>,
    queued_bytes: usize,
    under_way: VecDeque<Access>,
    /// The name of the first access that is under way.
    first: u64,
}

impl Accesses {
    pub(super) fn push(&mut self, now: Instant, operation: Operation) {
        self.queued_bytes += operation.bytes();
        self.queue.push_back((now, operation));
    }
    pub(super) fn pop(&mut self) -> Option<Operation> {
        let (_, operation) = self.queue.pop_front()?;
        self.queued_bytes -= operation.bytes();
        Some(operation)
    }
    /// Whether more of the client's messages may be taken.
    pub(super) fn has_room(&self) -> bool {
        self.queue.len() < QUEUE_MAX && self.queued_bytes < QUEUE_BYTES_MAX
    }
    /// Whether the next operation may begin while `requests` are under way.
    pub(super) fn may_begin(&self, requests: usize) -> bool {
        let Some((_, next)) = self.queue.front() else { return false };
        self.under_way.len() < ACCESSES_MAX && (requests == 0 || requests + next.requests() <= REQUESTS_MAX)
    }
    /// Whether an operation waits.
    pub(super) fn is_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Starts an access that ends after `missing` answers; returns its name.
    pub(super) fn start(&mut self, now: Instant, missing: u32, purpose: Purpose) -> u64 {
        self.under_way.push_back(Access { since: now, missing, purpose: Some(purpose) });
        self.first + self.under_way.len() as u64 - 1
    }

    fn find(&mut self, name: u64) -> Option<&mut Access> {
        let index = usize::try_from(name.checked_sub(self.first)?).ok()?;
        self.under_way.get_mut(index)
    }

    /// The bytes of a read that is under way, and where in its region they begin.
    pub(super) fn bytes(&mut self, name: u64) -> Option<(u64, &mut [u8])> {
        match &mut self.find(name)?.purpose {
            Some(Purpose::Read { offset, bytes, .. }) => Some((*offset, bytes)),
            _ => None,
        }
    }

    /// An answer has come. Returns the purpose of the access if that was its last answer.
    pub(super) fn answered(&mut self, name: u64) -> Option<Purpose> {
        let access = self.find(name)?;
        access.missing = access.missing.saturating_sub(1);
        if access.missing > 0 {
            return None;
        }
        let purpose = access.purpose.take();
        self.forget_ended();
        purpose
    }

    fn forget_ended(&mut self) {
        while self.under_way.front().is_some_and(|access| access.purpose.is_none()) {
            self.under_way.pop_front();
            self.first += 1;
        }
    }

    /// When the oldest access was asked for.
    pub(super) fn oldest(&self) -> Option<Instant> {
        let under_way = self.under_way.front().map(|access| access.since);
        let queued = self.queue.front().map(|(since, _)| *since);
        under_way.into_iter().chain(queued).min()
    }

    /// The oldest access under way, given up if it was asked for at or before `since`.
    pub(super) fn give_up(&mut self, since: Instant) -> Option<Purpose> {
        let access = self.under_way.front_mut().filter(|access| access.since <= since)?;
        let purpose = access.purpose.take();
        self.forget_ended();
        purpose
    }

    /// The oldest waiting operation, given up if it was asked for at or before `since`.
    pub(super) fn give_up_waiting(&mut self, since: Instant) -> Option<Operation> {
        self.queue.front().filter(|(asked, _)| *asked <= since)?;
        self.pop()
    }

    /// The client has gone: no answer is awaited.
    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.queued_bytes = 0;
        self.first += self.under_way.len() as u64;
        self.under_way.clear();
    }
}

/// The MSI-X table as the client sees it. Monitors keep a table of their own; the function's table
/// has the slot's addresses.
#[derive(Debug)]
pub(super) struct Table {
    region: RegionIndex,
    offset: u64,
    bytes: Vec<u8>,
}

/// Mask Bit of Vector Control.
const MASKED: u32 = 1;
/// An entry after a reset: Vector Control says masked.
const ENTRY: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];

impl Table {
    pub(super) fn of(function: &Function) -> Option<Self> {
        let found = function.msix?;
        let bytes = ENTRY.repeat(usize::from(found.vectors));
        let region = RegionIndex(u32::from(found.table_bar));
        Some(Self { region, offset: u64::from(found.table_offset), bytes })
    }

    /// Whether any byte of the access is in the table.
    pub(super) fn overlaps(&self, region: RegionIndex, offset: u64, length: usize) -> bool {
        let end = self.offset + self.bytes.len() as u64;
        region == self.region && offset < end && offset.saturating_add(length as u64) > self.offset
    }

    /// Reads the bytes at `offset` of the region; bytes outside of the table are zero.
    pub(super) fn read(&self, offset: u64, bytes: &mut [u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            let index = at.checked_sub(self.offset).and_then(|index| usize::try_from(index).ok());
            *byte = index.and_then(|index| self.bytes.get(index)).copied().unwrap_or(0);
        }
    }

    /// Writes those of `bytes` that are in the table.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            let index = at.checked_sub(self.offset).and_then(|index| usize::try_from(index).ok());
            if let Some(place) = index.and_then(|index| self.bytes.get_mut(index)) {
                *place = *byte;
            }
        }
    }

    /// Address and data of the message of `vector`; `None` while the guest has it masked.
    pub(super) fn message(&self, vector: usize) -> Option<(u64, u32)> {
        let (words, _) = self.bytes.as_chunks::<4>();
        let entry = words.get(vector.checked_mul(4)?..)?.first_chunk::<4>()?;
        let [low, high, data, control] = entry.map(u32::from_le_bytes);
        (control & MASKED == 0).then_some((u64::from(high) << 32 | u64::from(low), data))
    }

    pub(super) fn reset(&mut self) {
        for entry in self.bytes.chunks_mut(ENTRY.len()) {
            entry.copy_from_slice(&ENTRY[..entry.len()]);
        }
    }
}
