//! One flow of numbers: which came, which did not, and in what order.

use super::Loss;

/// The most numbers that the longest window holds, in packets.
pub(super) const WINDOW_MAX: u32 = 100;
/// The most packets that a jump of a number counts as lost. A longer jump is a new beginning.
const JUMP_MAX: u64 = 1 << 24;
/// The same for numbers of 9 to 16 bits, which a sender that begins anew would otherwise meet in
/// half of all cases: MAX_DROPOUT of RFC 3550, appendix A.1.
pub(super) const SHORT_JUMP_MAX: u64 = 3000;

/// How numbers are counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counting {
    /// The number of bits of a number, at most 64: behind the highest comes 0.
    pub(super) bits: u32,
    /// The increase of the number with each packet; not 0.
    pub(super) step: u64,
    /// A packet counts as lost once this many later ones have come.
    pub(super) window: u32,
}

impl Counting {
    /// The highest number.
    const fn mask(&self) -> u64 {
        if self.bits >= 64 { u64::MAX } else { (1 << self.bits) - 1 }
    }

    /// How many packets there are until numbers begin again.
    const fn cycle(&self) -> u64 {
        self.mask() / self.step
    }

    /// How many packets a number may lie behind the highest and is still an old one.
    fn back(&self) -> u64 {
        u64::from(WINDOW_MAX).min(self.cycle() / 4 + 1)
    }

    /// How many packets a number may be ahead. Of the shortest numbers all that are not old are
    /// ahead. Of longer ones fewer are: a sender that begins anew is more likely there.
    pub(super) fn jump(&self) -> u64 {
        let cycle = self.cycle();
        let most = match self.bits {
            ..=8 => cycle.saturating_sub(self.back()),
            9..=16 => SHORT_JUMP_MAX.min(cycle / 2),
            _ => cycle / 2,
        };
        most.clamp(1, JUMP_MAX)
    }

    /// After how many later packets one counts as lost.
    pub(super) fn window(&self) -> u32 {
        self.window.min(u32::try_from(self.back()).unwrap_or(WINDOW_MAX))
    }

    fn packets(&self, difference: u64) -> Option<u64> {
        (difference.is_multiple_of(self.step)).then(|| difference / self.step)
    }
}

/// The meaning of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// It is the highest so far.
    Ahead,
    /// It was late, and not counted as lost yet.
    Reordered,
    /// It was counted as lost.
    Late,
    /// It came before.
    Twice,
    /// It is far from all others.
    Far,
    /// It is far from the others, and the second of a row: the sender has begun anew.
    Anew,
}

/// The numbers of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    highest: u64,
    /// Bit K: the number that lies K packets behind the highest has come, or is not expected.
    came: u128,
    /// Likewise: it has not come and counts as lost.
    lost: u128,
    /// The number that goes on from the last one that was far from all others.
    probe: Option<u64>,
}

impl Window {
    /// A flow that begins with `number`; packets before it are not missing.
    pub(super) const fn new(number: u64) -> Self {
        Self { highest: number, came: u128::MAX, lost: 0, probe: None }
    }

    /// A flow of which every number from 0 on is expected.
    pub(super) const fn from_zero(counting: Counting) -> Self {
        Self::new(counting.mask() & 0_u64.wrapping_sub(counting.step))
    }

    pub(super) const fn highest(&self) -> u64 {
        self.highest
    }

    /// Takes in a number. Returns its meaning, and how many packets count as lost now.
    pub(super) fn on_number(&mut self, counting: Counting, number: u64) -> (Came, u64) {
        let mask = counting.mask();
        let number = number & mask;
        let ahead = counting.packets(number.wrapping_sub(self.highest) & mask);
        let behind = counting.packets(self.highest.wrapping_sub(number) & mask);
        if let Some(behind) = behind.filter(|behind| *behind <= counting.back()) {
            self.probe = None;
            let bit = 1_u128 << behind;
            let came = match (self.came & bit != 0, self.lost & bit != 0) {
                (true, _) => Came::Twice,
                (false, true) => Came::Late,
                (false, false) => Came::Reordered,
            };
            self.came |= bit;
            self.lost &= !bit;
            return (came, 0);
        }
        if let Some(ahead) = ahead.filter(|ahead| *ahead <= counting.jump()) {
            self.probe = None;
            return (Came::Ahead, self.advance(counting, number, ahead));
        }
        if self.probe == Some(number) {
            let lost = self.flush();
            *self = Self::new(number);
            return (Came::Anew, lost);
        }
        self.probe = Some(number.wrapping_add(counting.step) & mask);
        (Came::Far, 0)
    }

    fn advance(&mut self, counting: Counting, number: u64, ahead: u64) -> u64 {
        let before = self.pending().count_ones();
        let distance = u32::try_from(ahead).unwrap_or(u32::MAX);
        self.highest = number;
        self.came = self.came.checked_shl(distance).unwrap_or(0) | 1;
        self.lost = self.lost.checked_shl(distance).unwrap_or(0);
        let mut end = counting.window().max(1);
        // Packets that are missing in a row count as lost together.
        while end > 1 && self.pending() & (1 << end) != 0 && self.pending() & (1 << (end - 1)) != 0 {
            end -= 1;
        }
        self.lost |= self.pending() & !ones(end);
        u64::from(before) + (ahead - 1) - u64::from(self.pending().count_ones())
    }

    /// The packets that have not come and may still do so.
    const fn pending(&self) -> u128 {
        !self.came & !self.lost
    }

    /// Counts all packets as lost that have not come. Returns their number.
    pub(super) fn flush(&mut self) -> u64 {
        let pending = self.pending();
        self.lost |= pending;
        u64::from(pending.count_ones())
    }
}

/// The lowest `count` bits.
const fn ones(count: u32) -> u128 {
    if count >= 128 { u128::MAX } else { (1 << count) - 1 }
}

/// The length of a flow's packets, if all have the same.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Length {
    /// No packet has come.
    #[default]
    Unknown,
    /// All packets had this length in bytes.
    Same(u32),
    /// Packets differ.
    Differs,
}

impl Length {
    pub(super) fn on_packet(&mut self, length: u32) {
        *self = match *self {
            Self::Unknown => Self::Same(length),
            Self::Same(before) if before == length => *self,
            Self::Same(_) | Self::Differs => Self::Differs,
        };
    }

    /// The loss of `packets` packets.
    pub(super) fn loss(self, packets: u64) -> Loss {
        let bytes = match self {
            Self::Same(length) => packets.saturating_mul(u64::from(length)),
            Self::Unknown | Self::Differs => 0,
        };
        Loss { packets, bytes }
    }
}
