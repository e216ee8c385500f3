//! Frame preemption (IEEE 802.1Qbu; IEEE 802.3br, which is clause 99 of IEEE 802.3-2022).

use super::gates::GateStates;
use crate::Rate;
use crate::frame::{CHECK_SEQUENCE, INTER_FRAME_GAP, PREAMBLE};

/// What the last fragment of a frame has at least, its check sequence included, bytes.
const LAST_MIN: u32 = 64;
/// What the steps of `addFragSize` add, bytes.
const STEP: u32 = 64;

/// A port that interrupts preemptable frames for express ones. Each fragment is a frame of its own on the
/// link: preamble with a start-of-mPacket delimiter (8 bytes with the fragment count), gap, and a check sequence of 4
/// bytes, the mCRC, where the frame's own does not end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// The queues whose frames interrupt others and are never interrupted.
    pub express: GateStates,
    /// `addFragSize`, 0 to 3: fragments that don't end a frame have at least 64 * (1 + this) bytes, mCRC included.
    pub additional: u8,
}

impl Preemption {
    /// Bytes of a frame in a fragment that doesn't end it, at least: 60 and not 64, as the mCRC comes on top.
    pub const fn fragment_min(&self) -> u32 {
        let steps = if self.additional > 3 { 3 } else { self.additional };
        STEP * (1 + steps as u32) - CHECK_SEQUENCE
    }

    /// Where a frame of which `left` bytes are being sent, `sent` of them already, is cut: bytes that go before the cut,
    /// or `None` where what remains would be too short.
    pub const fn cut(&self, left: u32, sent: u32) -> Option<u32> {
        let first = if sent > self.fragment_min() { sent } else { self.fragment_min() };
        if left >= first + LAST_MIN { Some(first) } else { None }
    }

    /// How much of a frame of which `left` bytes remain goes into `room` bytes of a window, preamble and mCRC included, if
    /// not all of it does: the longest fragment that fits.
    pub fn fitting(&self, left: u32, room: u64) -> Option<u32> {
        let room = u32::try_from(room).unwrap_or(u32::MAX).saturating_sub(PREAMBLE + CHECK_SEQUENCE);
        let most = room.min(left.saturating_sub(LAST_MIN));
        (most >= self.fragment_min()).then_some(most)
    }

    /// Bytes of time for which an express frame waits at most for a preemptable one: what is one byte too short to
    /// be cut, with preamble and gap. 143 for the shortest fragments: 1.144 us at 1 Gbit/s.
    pub const fn blocking(&self) -> u64 {
        (self.fragment_min() + LAST_MIN - 1 + PREAMBLE + INTER_FRAME_GAP) as u64
    }

    /// Bytes of time that each interruption costs the frame that is interrupted: mCRC, gap, another preamble.
    pub const fn overhead(&self) -> u64 {
        (CHECK_SEQUENCE + INTER_FRAME_GAP + PREAMBLE) as u64
    }

    /// As [`Preemption::blocking`], but as a time, picoseconds.
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
        // Whatever a frame's length and whenever the interruption comes.
        let worst = (64..=1522).flat_map(|left| {
            (0..left).map(move |sent| match SHORTEST.cut(left, sent) {
                // Gap after the mCRC; before the first byte there is the preamble.
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
