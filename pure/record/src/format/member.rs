//! Members: the media over which one recording is striped.

use super::u32_at;

/// The most media over which a recording is striped.
pub const MEMBERS_MAX: u32 = 64;
/// The slot of each member that says which member it is. Slots of the recording follow.
pub const MEMBER_SLOT: u64 = 0;
/// Length of the payload in bytes.
const LENGTH: usize = 8;

/// Which of the media of a striped recording one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number, below `count`.
    pub index: u32,
    /// The number of media: 2 to [`MEMBERS_MAX`].
    pub count: u32,
}

impl Member {
    /// Writes it to the start of `payload`. Returns the length in bytes.
    pub fn emit(&self, payload: &mut [u8]) -> usize {
        payload[..4].copy_from_slice(&self.index.to_le_bytes());
        payload[4..LENGTH].copy_from_slice(&self.count.to_le_bytes());
        LENGTH
    }

    /// Parses a payload; `None` if it is no member.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let payload = payload.get(..LENGTH)?;
        let member = Self { index: u32_at(payload, 0), count: u32_at(payload, 4) };
        let is_right = (2..=MEMBERS_MAX).contains(&member.count) && member.index < member.count;
        is_right.then_some(member)
    }

    /// Where a slot of the recording lies if there are `count` members: the member, and the slot
    /// on it. A recording that is not striped has one member, whose slots are the recording's.
    pub fn place(count: u32, slot: u64) -> (u32, u64) {
        match u64::from(count) {
            0 | 1 => (0, slot),
            // A remainder is below the number of members.
            count => (u32::try_from(slot % count).unwrap_or(0), slot / count + MEMBER_SLOT + 1),
        }
    }

    /// How many slots of a recording the first `slots` of this member reach: those before the
    /// number that is returned are here or on other members.
    pub const fn reach(&self, slots: u64) -> u64 {
        match slots.saturating_sub(MEMBER_SLOT + 1) {
            0 => 0,
            own => (own - 1).saturating_mul(self.count as u64).saturating_add(self.index as u64 + 1),
        }
    }

    /// How many slots of this member hold the first `slots` of the recording.
    pub const fn slots(&self, slots: u64) -> u64 {
        MEMBER_SLOT + 1 + slots.saturating_sub(self.index as u64).div_ceil(self.count as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_comes_back_and_others_are_refused() {
        let member = Member { index: 2, count: 3 };
        let mut payload = [0; 16];
        assert_eq!(member.emit(&mut payload), 8);
        assert_eq!(Member::parse(&payload), Some(member));
        for (index, count) in [(3, 3), (0, 1), (0, 0), (0, 65), (u32::MAX, 2)] {
            Member { index, count }.emit(&mut payload);
            assert_eq!(Member::parse(&payload), None, "{index} of {count}");
        }
        assert_eq!(Member::parse(&payload[..7]), None);
    }

    #[test]
    fn every_slot_has_a_place_of_its_own_and_lengths_follow_from_it() {
        for count in 2..6 {
            let mut next = [MEMBER_SLOT + 1; 6];
            for slot in 0..50 {
                let (index, place) = Member::place(count, slot);
                assert_eq!(place, next[index as usize], "slot {slot} of {count}");
                next[index as usize] += 1;
                for (index, end) in (0..count).zip(next) {
                    let member = Member { index, count };
                    assert_eq!(member.slots(slot + 1), end, "{member:?} of {slot}");
                    assert!(member.reach(end) <= slot + 1, "{member:?} of {slot}");
                }
                assert_eq!(Member { index, count }.reach(place + 1), slot + 1);
            }
        }
        assert_eq!(Member::place(1, 7), (0, 7));
        assert_eq!(Member { index: 1, count: 2 }.reach(1), 0);
    }
}
