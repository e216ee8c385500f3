//! Gap records: losses of streams.

use alloc::vec::Vec;

use super::u64_at;

/// Length of a record in bytes.
const LENGTH: usize = 40;

/// Where bytes were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Before they reached this host.
    Wire,
    /// In the kernel's buffer of a socket.
    Socket,
    /// At the recorder's buffer, which was full.
    Ring,
    /// At the medium.
    Disk,
    /// Somewhere else, by its number in the format.
    Other(u8),
}

impl Place {
    /// The word for reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Wire => "wire",
            Self::Socket => "socket",
            Self::Ring => "ring",
            Self::Disk => "disk",
            Self::Other(_) => "elsewhere",
        }
    }

    const fn byte(self) -> u8 {
        match self {
            Self::Wire => 0,
            Self::Socket => 1,
            Self::Ring => 2,
            Self::Disk => 3,
            Self::Other(byte) => byte,
        }
    }
}

/// Why bytes were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// They came faster than they could be taken.
    Overflow,
    /// The medium has no room.
    Full,
    /// The medium did not take them.
    Failed,
    /// A chunk was not there, or not whole, when the recording was recovered.
    Missing,
    /// Packets did not come, by the numbers of those that came.
    NeverCame,
    /// The sender started over: its numbers began anew. Its losses in that moment are unknown.
    Restarted,
    /// Something else, by its number in the format.
    Other(u8),
}

impl Cause {
    /// The word for reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Overflow => "overflow",
            Self::Full => "full",
            Self::Failed => "failed",
            Self::Missing => "missing",
            Self::NeverCame => "never came",
            Self::Restarted => "sender started over",
            Self::Other(_) => "other",
        }
    }

    const fn byte(self) -> u8 {
        match self {
            Self::Overflow => 0,
            Self::Full => 1,
            Self::Failed => 2,
            Self::Missing => 3,
            Self::NeverCame => 4,
            Self::Restarted => 5,
            Self::Other(byte) => byte,
        }
    }
}

/// A loss of a stream at one place: bytes, packets, or both. Or a place where its sender started
/// over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The number of the stream.
    pub stream: u32,
    /// The place of the first lost byte in the stream.
    pub from: u64,
    /// How many bytes were lost. For lost packets of unknown length it is 0.
    pub bytes: u64,
    /// How many packets were lost, in a stream of packets. If `bytes` is 0, too, the number is
    /// unknown, or the gap is a restart ([`Gap::is_restart`]).
    pub packets: u64,
    /// When, in nanoseconds since 1970 by the host's clock.
    pub when: u64,
    /// Where.
    pub place: Place,
    /// Why.
    pub cause: Cause,
}

impl Gap {
    /// The place behind the last lost byte.
    pub const fn end(&self) -> u64 {
        self.from.saturating_add(self.bytes)
    }

    /// Whether it is no loss, but the place where a sender started over. Recorders that knew no
    /// such event declared an unknown number of packets that never came.
    pub const fn is_restart(&self) -> bool {
        self.bytes == 0 && self.packets == 0 && matches!(self.cause, Cause::Restarted | Cause::NeverCame)
    }

    /// Whether `next` is more of the same: of the same stream, lost for the same reason at the same
    /// place, and right behind.
    pub fn goes_on_as(&self, next: &Self) -> bool {
        (self.stream, self.place, self.cause) == (next.stream, next.place, next.cause)
            && self.end() == next.from
            && self.is_restart() == next.is_restart()
    }

    /// Takes in more of the same.
    pub const fn extend(&mut self, next: &Self) {
        // Where two have to share a record, a loss matters more than a restart.
        if self.is_restart() {
            (self.place, self.cause) = (next.place, next.cause);
        }
        self.bytes = self.bytes.saturating_add(next.bytes);
        self.packets = self.packets.saturating_add(next.packets);
    }

    /// How many records a payload of `capacity` bytes holds.
    pub const fn most(capacity: usize) -> usize {
        capacity / LENGTH
    }

    /// Writes `gaps` to the start of `payload`. Returns the length in bytes.
    ///
    /// # Panics
    /// When there are more than [`Gap::most`].
    pub fn emit(gaps: &[Self], payload: &mut [u8]) -> usize {
        for (gap, record) in gaps.iter().zip(payload.chunks_exact_mut(LENGTH)) {
            record[0..8].copy_from_slice(&gap.from.to_le_bytes());
            record[8..16].copy_from_slice(&gap.bytes.to_le_bytes());
            record[16..24].copy_from_slice(&gap.when.to_le_bytes());
            record[24..28].copy_from_slice(&gap.stream.to_le_bytes());
            record[28..32].copy_from_slice(&[gap.place.byte(), gap.cause.byte(), 0, 0]);
            record[32..40].copy_from_slice(&gap.packets.to_le_bytes());
        }
        assert!(gaps.len() <= Self::most(payload.len()), "the gaps fit the payload");
        gaps.len() * LENGTH
    }

    /// Parses the records of a payload. Records that overflow a stream are left out.
    pub fn parse(payload: &[u8]) -> Vec<Self> {
        let records = payload.chunks_exact(LENGTH).map(|record| Self {
            from: u64_at(record, 0),
            bytes: u64_at(record, 8),
            when: u64_at(record, 16),
            packets: u64_at(record, 32),
            stream: super::u32_at(record, 24),
            place: match record[28] {
                0 => Place::Wire,
                1 => Place::Socket,
                2 => Place::Ring,
                3 => Place::Disk,
                other => Place::Other(other),
            },
            cause: match record[29] {
                0 => Cause::Overflow,
                1 => Cause::Full,
                2 => Cause::Failed,
                3 => Cause::Missing,
                4 => Cause::NeverCame,
                5 => Cause::Restarted,
                other => Cause::Other(other),
            },
        });
        let is_right = |gap: &Self| {
            gap.from.checked_add(gap.bytes).is_some() && (gap.stream as usize) < super::STREAMS_MAX
        };
        records.filter(is_right).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESTART: Gap = Gap {
        stream: 3,
        from: 900,
        bytes: 0,
        packets: 0,
        when: 7,
        place: Place::Wire,
        cause: Cause::Restarted,
    };

    #[test]
    fn a_restart_is_no_gap_and_comes_back_and_so_does_that_of_an_older_recorder() {
        let old = Gap { cause: Cause::NeverCame, ..RESTART };
        let loss = Gap { packets: 4, ..old };
        let dropped = Gap { place: Place::Socket, cause: Cause::Overflow, ..RESTART };
        let all = [RESTART, old, loss, dropped];
        let mut payload = [0; 4 * LENGTH];
        assert_eq!(Gap::emit(&all, &mut payload), payload.len());
        assert_eq!(payload[29], 5, "the byte of the page that describes the format");
        let parsed = Gap::parse(&payload);
        assert_eq!(parsed, all);
        assert_eq!([0, 1, 2, 3].map(|at| parsed[at].is_restart()), [true, true, false, false]);
        // Neither takes in the other. Where they have to share a record, it is a loss.
        assert!(!old.goes_on_as(&loss) && !loss.goes_on_as(&old) && !RESTART.goes_on_as(&loss));
        let mut shared = RESTART;
        shared.extend(&loss);
        assert_eq!((shared.is_restart(), shared.packets, shared.cause), (false, 4, Cause::NeverCame));
    }
}
