//! Index chunks: where data chunks lie.

use alloc::vec::Vec;

use super::{u32_at, u64_at};

/// Length of an entry in bytes.
const LENGTH: usize = 32;
/// Length of the head that precedes the entries: the slot of the previous index chunk.
const HEAD: usize = 8;

/// Where a data chunk lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its slot.
    pub slot: u64,
    /// The number of its stream.
    pub stream: u32,
    /// The place of its first byte in the stream.
    pub offset: u64,
    /// The length of its payload in bytes.
    pub length: u32,
    /// When its first byte arrived, in nanoseconds since 1970.
    pub time: u64,
}

impl Entry {
    /// The place behind its last byte in the stream.
    pub const fn end(&self) -> u64 {
        self.offset.saturating_add(self.length as u64)
    }
}

/// The payload of an index chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// The slot of the index chunk before this one; 0 for the first.
    pub previous: u64,
    /// Data chunks, in the order in which they were stored.
    pub entries: Vec<Entry>,
}

impl Index {
    /// How many entries a payload of `capacity` bytes holds.
    pub const fn most(capacity: usize) -> usize {
        (capacity - HEAD) / LENGTH
    }

    /// Writes the index to the start of `payload`. Returns the length in bytes.
    ///
    /// # Panics
    /// When there are more entries than [`Index::most`].
    pub fn emit(&self, payload: &mut [u8]) -> usize {
        assert!(self.entries.len() <= Self::most(payload.len()), "the entries fit the payload");
        let (head, records) = payload.split_at_mut(HEAD);
        head.copy_from_slice(&self.previous.to_le_bytes());
        for (entry, record) in self.entries.iter().zip(records.chunks_exact_mut(LENGTH)) {
            record[0..8].copy_from_slice(&entry.slot.to_le_bytes());
            record[8..16].copy_from_slice(&entry.offset.to_le_bytes());
            record[16..20].copy_from_slice(&entry.length.to_le_bytes());
            record[20..24].copy_from_slice(&entry.stream.to_le_bytes());
            record[24..32].copy_from_slice(&entry.time.to_le_bytes());
        }
        HEAD + self.entries.len() * LENGTH
    }

    /// Parses a payload; `None` if it is too short.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let (head, records) = payload.split_at_checked(HEAD)?;
        let entries = records.chunks_exact(LENGTH).map(|record| Entry {
            slot: u64_at(record, 0),
            offset: u64_at(record, 8),
            length: u32_at(record, 16),
            stream: u32_at(record, 20),
            time: u64_at(record, 24),
        });
        Some(Self { previous: u64_at(head, 0), entries: entries.collect() })
    }
}
