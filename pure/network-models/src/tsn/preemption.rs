//! Frame preemption (IEEE 802.1Qbu; IEEE 802.3br, which is clause 99 of IEEE 802.3-2022).

use super::gates::GateStates;
use crate::Rate;
use crate::frame::{CHECK_SEQUENCE, INTER_FRAME_GAP, PREAMBLE};

/// Minimum length of a frame's last fragment in bytes, including the check sequence.
const LAST_MIN: u32 = 64;
/// Number of bytes that each step of `addFragSize` adds.
const STEP: u32 = 64;

/// Preemption of a port, which interrupts preemptable frames for express ones. Each fragment is a
/// frame of its own on the link. It has a preamble with a start-of-mPacket delimiter (8 bytes with
/// the fragment count), a gap, and a check sequence of 4 bytes: the mCRC, or the frame's own in the
/// last fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// The queues whose frames interrupt others and are never interrupted.
    pub express: GateStates,
    /// `addFragSize`, 0 to 3. A fragment that doesn't end a frame has at least 64 * (1 +
    /// `addFragSize`) bytes, including the mCRC.
    pub additional: u8,
}

impl Preemption {
    /// Minimum number of a frame's bytes in a fragment that doesn't end the frame: 60 instead of 64
    /// with the smallest `addFragSize`, since the mCRC is added.
    pub const fn fragment_min(&self) -> u32 {
        let steps = if self.additional > 3 { 3 } else { self.additional };
        STEP * (1 + steps as u32) - CHECK_SEQUENCE
    }

    /// Where to cut a frame that has `left` bytes to send, of which `sent` are already out. Returns
    /// the number of bytes before the cut, or `None` if the remainder would be too short.
    pub const fn cut(&self, left: u32, sent: u32) -> Option<u32> {
        let first = if sent > self.fragment_min() { sent } else { self.fragment_min() };
        if left >= first + LAST_MIN { Some(first) } else { None }
    }

    /// Number of bytes of a frame with `left` bytes that fit into `room` bytes of a window,
    /// including preamble and mCRC, if the whole rest does not fit: the longest possible fragment.
    /// `None` if no fragment fits.
    pub fn fitting(&self, left: u32, room: u64) -> Option<u32> {
        let room = u32::try_from(room).unwrap_or(u32::MAX).saturating_sub(PREAMBLE + CHECK_SEQUENCE);
        let most = room.min(left.saturating_sub(LAST_MIN));
        (most >= self.fragment_min()).then_some(most)
    }

    /// Maximum link time, in bytes, that an express frame waits for a preemptable one. The worst
    /// case is a frame one byte too short to be cut, with preamble and gap. It is 143 bytes for the
    /// shortest fragments: 1.144 µs at 1 Gbit/s.
    pub const fn blocking(&self) -> u64 {
        (self.fragment_min() + LAST_MIN - 1 + PREAMBLE + INTER_FRAME_GAP) as u64
    }

    /// Link time, in bytes, that each interruption costs the interrupted frame: mCRC, gap, another
    /// preamble.
    pub const fn overhead(&self) -> u64 {
        (CHECK_SEQUENCE + INTER_FRAME_GAP + PREAMBLE) as u64
    }

    /// [`Preemption::blocking`] as a time in picoseconds at `rate`.
    pub fn blocking_time(&self, rate: Rate) -> u64 {
        rate.picoseconds(self.blocking())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORTEST: Preemption = Preemption { express: GateStates::OPEN, additional: 0 };

    #[test]
    fn an_express_frame_waits_for_143_bytes_at_most() {
        assert_eq!(SHORTEST.blocking_time(Rate::from_gigabits(1)), 1_144_000);
        // For every length of a frame and every time of the interruption.
        let worst = (64..=1522).flat_map(|left| {
            (0..left).map(move |sent| match SHORTEST.cut(left, sent) {
                // The gap follows the mCRC; the preamble precedes the first byte.
                Some(cut) => cut - sent + 4 + 12 + if sent == 0 { 8 } else { 0 },
                None => left - sent + 12 + if sent == 0 { 8 } else { 0 },
            })
        });
        assert_eq!(u64::from(worst.max().unwrap()), SHORTEST.blocking());
    }

    #[test]
    fn fragments_are_never_too_short() {
        assert_eq!(SHORTEST.cut(123, 0), None);
        assert_eq!(SHORTEST.cut(124, 0), Some(60));
        assert_eq!(SHORTEST.cut(1518, 700), Some(700));
        assert_eq!(SHORTEST.cut(1518, 1455), None);
        assert_eq!(Preemption { additional: 1, ..SHORTEST }.fragment_min(), 124);
        assert_eq!(SHORTEST.fitting(1518, 512), Some(500));
        assert_eq!(SHORTEST.fitting(1518, 71), None);
        assert_eq!(SHORTEST.fitting(200, 190), Some(136));
    }
}
