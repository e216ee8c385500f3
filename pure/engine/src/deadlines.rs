//! Deadlines: a few with names, or many of one length.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::Instant;

/// The named deadlines of an engine; the earliest is the engine's `poll_timeout`.
///
/// `K` is an enum with a name for each deadline. A list should have a handful of deadlines, because
/// every call walks it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Deadlines<K> {
    armed: Vec<(Instant, K)>,
}

impl<K> Default for Deadlines<K> {
    fn default() -> Self {
        Self { armed: Vec::new() }
    }
}

impl<K: Copy + PartialEq> Deadlines<K> {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }
    /// Sets the deadline called `name`, replacing an earlier one of that name.
    pub fn arm(&mut self, name: K, at: Instant) {
        self.disarm(name);
        self.armed.push((at, name));
    }
    /// Forgets the deadline called `name`, if there is one.
    pub fn disarm(&mut self, name: K) {
        self.armed.retain(|(_, armed)| *armed != name);
    }
    /// Whether the deadline called `name` is set.
    pub fn is_armed(&self, name: K) -> bool {
        self.armed.iter().any(|(_, armed)| *armed == name)
    }
    /// Takes the earliest deadline, if it is at or before `now`.
    pub fn expire(&mut self, now: Instant) -> Option<K> {
        let (index, (at, name)) = self.armed.iter().copied().enumerate().min_by_key(|(_, (at, _))| *at)?;
        (at <= now).then(|| {
            self.armed.remove(index);
            name
        })
    }
    /// Time of the earliest deadline.
    pub fn earliest(&self) -> Option<Instant> {
        self.armed.iter().map(|(at, _)| *at).min()
    }
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Link {
    before: u32,
    after: u32,
    at: Option<Instant>,
}

/// Deadlines of numbered slots (tags, command identifiers) that are armed in the order in which
/// they expire, as is the case when all have the same length. Every call takes constant time and
/// allocates nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeadlineList {
    links: Vec<Link>,
    first: u32,
    last: u32,
}

impl DeadlineList {
    /// Creates a list for the slots `0..slots`, none of them armed.
    pub fn new(slots: u32) -> Self {
        let unarmed = Link { before: NONE, after: NONE, at: None };
        Self { links: (0..slots).map(|_| unarmed).collect(), first: NONE, last: NONE }
    }

    /// Arms `slot`, or arms it again.
    ///
    /// # Panics
    /// When `at` is before the latest armed deadline, or `slot` is not in the list.
    pub fn arm(&mut self, slot: u32, at: Instant) {
        self.disarm(slot);
        if self.last != NONE {
            let latest = self.links[self.last as usize].at;
            assert!(latest.is_some_and(|latest| latest <= at), "deadlines armed out of order");
            self.links[self.last as usize].after = slot;
        } else {
            self.first = slot;
        }
        self.links[slot as usize] = Link { before: self.last, after: NONE, at: Some(at) };
        self.last = slot;
    }

    /// Disarms `slot`, if it is armed.
    pub fn disarm(&mut self, slot: u32) {
        let Link { before, after, at } = self.links[slot as usize];
        if at.is_none() {
            return;
        }
        match before {
            NONE => self.first = after,
            _ => self.links[before as usize].after = after,
        }
        match after {
            NONE => self.last = before,
            _ => self.links[after as usize].before = before,
        }
        self.links[slot as usize] = Link { before: NONE, after: NONE, at: None };
    }

    /// Takes the earliest slot, if its deadline is at or before `now`.
    pub fn expire(&mut self, now: Instant) -> Option<u32> {
        let slot = self.first;
        self.earliest().is_some_and(|at| at <= now).then(|| {
            self.disarm(slot);
            slot
        })
    }

    /// Time of the earliest deadline.
    pub fn earliest(&self) -> Option<Instant> {
        self.links.get(self.first as usize).and_then(|link| link.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(nanoseconds: u64) -> Instant {
        Instant::from_nanos(nanoseconds)
    }

    #[test]
    fn named_deadlines_expire_earliest_first_and_can_be_replaced() {
        let mut deadlines = Deadlines::new();
        deadlines.arm('a', at(10));
        deadlines.arm('b', at(5));
        deadlines.arm('a', at(3));
        assert_eq!(deadlines.earliest(), Some(at(3)));
        assert_eq!(deadlines.expire(at(4)), Some('a'));
        assert_eq!(deadlines.expire(at(4)), None);
        deadlines.disarm('b');
        assert_eq!(deadlines.earliest(), None);
    }

    #[test]
    fn listed_deadlines_leave_from_anywhere() {
        let mut list = DeadlineList::new(4);
        for slot in 0..4 {
            list.arm(slot, at(u64::from(slot) + 1));
        }
        list.disarm(0);
        list.disarm(2);
        list.arm(1, at(9));
        assert_eq!(list.earliest(), Some(at(4)));
        assert_eq!(list.expire(at(9)), Some(3));
        assert_eq!(list.expire(at(9)), Some(1));
        assert_eq!((list.expire(at(9)), list.earliest()), (None, None));
    }
}
