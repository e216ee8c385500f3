//! The next event: the earliest one of all sources, ordered by instant and sequence number.

use engine::Instant;

use crate::NodeId;

/// The time of an event. Of two events at one instant, the one scheduled first is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) at: Instant,
    pub(crate) sequence: u64,
}

/// A source of events. Each source keeps its own events in order, and shows only the first one in
/// the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The wake of a node.
    Wake(NodeId),
    /// Packets of a direct link towards one of its sides.
    Direct { link: usize, side: usize },
    /// Arrivals at one side of a connection.
    Arrival { connection: usize, side: usize },
    /// New room for bytes at one side of a connection.
    Writable { connection: usize, side: usize },
    /// Completions of a node's medium.
    Medium(usize),
    /// The next deadline of a modelled network.
    Model(usize),
    /// Events that a modelled network reports to the node of one side.
    Report { model: usize, side: usize },
}

/// A source's entry in the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(usize);

const UNARMED: usize = usize::MAX;

#[derive(Debug)]
struct Entry {
    source: Source,
    key: Key,
    /// Index in the heap, or `UNARMED`.
    place: usize,
}

/// A binary heap of sources. Each source has one entry, which can be moved.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    entries: Vec<Entry>,
    heap: Vec<usize>,
    sequence: u64,
}

impl Schedule {
    /// Adds an entry for a new source, unarmed.
    pub(crate) fn add(&mut self, source: Source) -> Slot {
        self.entries.push(Entry { source, key: Key { at: Instant::ZERO, sequence: 0 }, place: UNARMED });
        Slot(self.entries.len() - 1)
    }

    /// A key for an event that is being scheduled for `at`.
    pub(crate) const fn key(&mut self, at: Instant) -> Key {
        self.sequence += 1;
        Key { at, sequence: self.sequence }
    }

    /// Replaces the source's next event by `key`; `None` if the source has no event.
    pub(crate) fn show(&mut self, slot: Slot, key: Option<Key>) {
        match key {
            Some(key) => self.arm(slot, key),
            None => self.disarm(slot),
        }
    }

    pub(crate) fn arm(&mut self, slot: Slot, key: Key) {
        let entry = &mut self.entries[slot.0];
        entry.key = key;
        let place = entry.place;
        if place == UNARMED {
            self.heap.push(slot.0);
            self.up(self.heap.len() - 1);
        } else {
            let place = self.up(place);
            self.down(place);
        }
    }

    pub(crate) fn disarm(&mut self, slot: Slot) {
        let place = self.entries[slot.0].place;
        if place == UNARMED {
            return;
        }
        self.entries[slot.0].place = UNARMED;
        let last = self.heap.pop().expect("an armed slot is in the heap");
        if last != slot.0 {
            self.heap[place] = last;
            let place = self.up(place);
            self.down(place);
        }
    }

    /// The source of the next event, with the event's key.
    pub(crate) fn first(&self) -> Option<(Key, Source, Slot)> {
        let index = *self.heap.first()?;
        let entry = &self.entries[index];
        Some((entry.key, entry.source, Slot(index)))
    }

    /// The key under which `slot` is armed.
    pub(crate) fn armed(&self, slot: Slot) -> Option<Key> {
        let entry = &self.entries[slot.0];
        (entry.place != UNARMED).then_some(entry.key)
    }

    fn key_at(&self, place: usize) -> Key {
        self.entries[self.heap[place]].key
    }

    fn up(&mut self, mut place: usize) -> usize {
        let index = self.heap[place];
        let key = self.entries[index].key;
        while place > 0 && key < self.key_at((place - 1) / 2) {
            self.put((place - 1) / 2, place);
            place = (place - 1) / 2;
        }
        self.heap[place] = index;
        self.entries[index].place = place;
        place
    }

    fn down(&mut self, mut place: usize) {
        let index = self.heap[place];
        let key = self.entries[index].key;
        loop {
            let mut child = 2 * place + 1;
            if child >= self.heap.len() {
                break;
            }
            if child + 1 < self.heap.len() && self.key_at(child + 1) < self.key_at(child) {
                child += 1;
            }
            if key <= self.key_at(child) {
                break;
            }
            self.put(child, place);
            place = child;
        }
        self.heap[place] = index;
        self.entries[index].place = place;
    }

    /// Moves the entry at the heap's index `from` to `to`.
    fn put(&mut self, from: usize, to: usize) {
        let index = self.heap[from];
        self.heap[to] = index;
        self.entries[index].place = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares the heap with the plainest model: a list that is searched for its least key.
        #[test]
        fn the_first_is_the_least(steps in prop::collection::vec((0_usize..12, prop::option::of(0_u64..40)), 1..200)) {
            let mut schedule = Schedule::default();
            let slots: Vec<_> = (0..12).map(Source::Medium).map(|source| schedule.add(source)).collect();
            let mut model = [None; 12];
            for (index, at) in steps {
                let key = at.map(|at| schedule.key(Instant::from_nanos(at)));
                schedule.show(slots[index], key);
                model[index] = key;
                let least = model.iter().flatten().min().copied();
                prop_assert_eq!(schedule.first().map(|(key, ..)| key), least);
                prop_assert_eq!(schedule.armed(slots[index]), key);
            }
        }
    }
}
