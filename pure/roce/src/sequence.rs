//! Packet sequence numbers: 24 bits on the wire, positions without wrap everywhere else.

/// The bits of a packet sequence number.
const MASK: u32 = 0x00ff_ffff;
/// Numbers up to this far ahead of another are later, the others earlier.
const HALF: u32 = 1 << 23;

/// The number of packets since a connection began, and their packet sequence numbers (PSN).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequence {
    start: u32,
}

impl Sequence {
    /// A sequence whose first packet has the number `start`.
    pub(crate) const fn new(start: u32) -> Self {
        Self { start: start & MASK }
    }

    /// The number of the packet at `position`.
    #[expect(clippy::cast_possible_truncation, reason = "numbers are positions modulo 2^24")]
    pub(crate) const fn number(self, position: u64) -> u32 {
        self.start.wrapping_add(position as u32) & MASK
    }

    /// The position of the packet with `number` that is nearest to `near`. `None` before the first.
    pub(crate) fn position(self, number: u32, near: u64) -> Option<u64> {
        let ahead = later_by(number, self.number(near));
        if ahead < HALF {
            near.checked_add(ahead.into())
        } else {
            near.checked_sub((MASK + 1 - ahead).into())
        }
    }
}

/// How far `number` is ahead of `other`, modulo 2^24.
const fn later_by(number: u32, other: u32) -> u32 {
    number.wrapping_sub(other) & MASK
}

/// Whether message sequence number `number` is `limit` or earlier.
pub(crate) const fn is_within(number: u32, limit: u32) -> bool {
    later_by(limit, number) < HALF
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_wrap_and_positions_do_not() {
        let sequence = Sequence::new(0xff_fffe);
        assert_eq!([0, 1, 2, 3].map(|at| sequence.number(at)), [0xff_fffe, 0xff_ffff, 0, 1]);
        assert_eq!(sequence.position(1, 0), Some(3));
        assert_eq!(sequence.position(0xff_ffff, 3), Some(1));
        assert_eq!(sequence.position(0xff_fffd, 0), None, "before the first");
        assert!(is_within(0xff_ffff, 0) && is_within(0, 0) && !is_within(1, 0));
    }

    proptest! {
        #[test]
        fn a_position_near_another_is_found(start: u32, near in 0_u64..1 << 40, ahead in -0x7f_ffff_i64..0x7f_ffff) {
            let sequence = Sequence::new(start);
            if let Some(position) = near.checked_add_signed(ahead) {
                prop_assert_eq!(sequence.position(sequence.number(position), near), Some(position));
            }
        }
    }
}
