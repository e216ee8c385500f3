//! The frame by which the device's end reports the use of the memory that was sent ahead.

use serde::{Deserialize, Serialize};

use super::{FrameError, Reader};

/// Bytes of a Tally's body.
pub const TALLY_BODY: usize = FIELDS * size_of::<u64>();
const FIELDS: usize = 6;

/// Counters of the memory sent ahead, and of the device's reads, since the session began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Reads by the device that were answered from memory sent ahead.
    pub hits: u64,
    /// Reads by the device that went to the host.
    pub misses: u64,
    /// Bytes with which the device's reads were answered.
    pub bytes_answered: u64,
    /// Bytes of memory that were sent ahead and arrived.
    pub bytes_received: u64,
    /// Bytes of memory sent ahead that were dropped without having been read.
    pub bytes_in_vain: u64,
    /// Pieces of memory sent ahead that were dropped for lack of room.
    pub evicted: u64,
}

impl Tally {
    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self {
            hits: reader.u64()?,
            misses: reader.u64()?,
            bytes_answered: reader.u64()?,
            bytes_received: reader.u64()?,
            bytes_in_vain: reader.u64()?,
            evicted: reader.u64()?,
        })
    }

    pub(super) fn emit(&self) -> [u8; TALLY_BODY] {
        let mut bytes = [0; TALLY_BODY];
        for (place, field) in bytes.as_chunks_mut().0.iter_mut().zip(self.fields()) {
            *place = field.to_be_bytes();
        }
        bytes
    }

    const fn fields(&self) -> [u64; FIELDS] {
        let Self { hits, misses, bytes_answered, bytes_received, bytes_in_vain, evicted } = *self;
        [hits, misses, bytes_answered, bytes_received, bytes_in_vain, evicted]
    }

    /// The difference of the counts to those in `start`. A count that is below its value in
    /// `start`, as in a newer session, gives 0.
    #[must_use]
    pub const fn since(&self, start: &Self) -> Self {
        Self {
            hits: self.hits.saturating_sub(start.hits),
            misses: self.misses.saturating_sub(start.misses),
            bytes_answered: self.bytes_answered.saturating_sub(start.bytes_answered),
            bytes_received: self.bytes_received.saturating_sub(start.bytes_received),
            bytes_in_vain: self.bytes_in_vain.saturating_sub(start.bytes_in_vain),
            evicted: self.evicted.saturating_sub(start.evicted),
        }
    }
}
