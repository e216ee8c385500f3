//! Memory for data that have a place, at a host whose transport brings data in buffers.
//!
//! Long data stay in the buffer in which they came: nothing is copied for a caller that looks at
//! them where they are, or that does not look at all.

use std::collections::BTreeMap;
use std::ops::Range;

use engine::Buffer;

/// Data of at least this many bytes stay in their buffer. Shorter data may be a slice of a block
/// that is many times longer, and would keep it.
const HELD_MIN: usize = 16 << 10;

/// Memory, and the buffers that stand in for parts of it.
#[derive(Debug)]
pub(super) struct Places {
    memory: Vec<u8>,
    /// Data that are newer than the memory, by their first place. No two overlap.
    held: BTreeMap<usize, Buffer>,
}

impl Places {
    pub(super) fn new(length: usize) -> Self {
        Self { memory: vec![0; length], held: BTreeMap::new() }
    }

    pub(super) const fn len(&self) -> usize {
        self.memory.len()
    }

    /// The bytes at `range`.
    pub(super) fn bytes(&mut self, range: Range<usize>) -> &[u8] {
        let is_held = self.held.get(&range.start).is_some_and(|data| data.len() >= range.len());
        if !is_held {
            self.settle(&range);
            return &self.memory[range];
        }
        &self.held[&range.start][..range.len()]
    }

    /// The bytes at `range`, to be changed.
    pub(super) fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        self.settle(&range);
        &mut self.memory[range]
    }

    /// Data have come that belong at `start`.
    pub(super) fn put(&mut self, start: usize, data: Buffer) {
        let range = start..start + data.len();
        self.expect(range.clone());
        self.settle(&range);
        if data.len() < HELD_MIN {
            self.memory[range].copy_from_slice(&data);
        } else {
            assert!(range.end <= self.memory.len(), "data lies in the region that was given");
            self.held.insert(start, data);
        }
    }

    /// Data will come that belong at `range`: data held for a part of it alone are given up.
    pub(super) fn expect(&mut self, range: Range<usize>) {
        if let Some(data) = self.held.get(&range.start)
            && data.len() <= range.len()
        {
            self.held.remove(&range.start);
        }
    }

    /// Moves the data held for any byte of `range` into the memory.
    fn settle(&mut self, range: &Range<usize>) {
        while let Some((start, data)) = self.held.range(..range.end).next_back() {
            let (start, end) = (*start, *start + data.len());
            // Data that begin further in front end in front of these.
            if end <= range.start {
                return;
            }
            self.memory[start..end].copy_from_slice(data);
            self.held.remove(&start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::Rng;

    const LONG: usize = HELD_MIN;

    fn buffer(byte: u8, length: usize) -> Buffer {
        Buffer::from(vec![byte; length])
    }

    #[test]
    fn long_data_are_seen_where_they_came() {
        let mut places = Places::new(8 * LONG);
        let data = buffer(7, 2 * LONG);
        places.put(LONG, data.clone());
        assert_eq!(places.bytes(LONG..3 * LONG).as_ptr(), data.as_ptr());
        assert_eq!(places.bytes(LONG..LONG + 5).as_ptr(), data.as_ptr());
        // From the middle on, and with bytes in front, they are in the memory.
        assert_eq!(places.bytes(LONG - 1..LONG + 1), [0, 7]);
        assert_ne!(places.bytes(LONG..3 * LONG).as_ptr(), data.as_ptr());
        places.put(LONG, buffer(8, LONG - 1));
        assert!(places.held.is_empty(), "short data are copied");
        assert_eq!(places.bytes(2 * LONG - 2..2 * LONG), [8, 7]);
    }

    #[test]
    fn a_buffer_is_given_back_once_its_place_is_used_again() {
        let mut places = Places::new(8 * LONG);
        places.put(0, buffer(1, LONG));
        places.expect(0..LONG - 1);
        assert_eq!(places.held.len(), 1, "a byte of it stays");
        places.expect(0..LONG);
        assert!(places.held.is_empty());
        assert_eq!(places.bytes(0..1), [0]);
    }

    /// In any order of puts, changes and looks, each byte is the latest one.
    #[test]
    fn memory_and_buffers_are_one() {
        const PLACES: usize = 16;
        for seed in 0..200 {
            let mut rng = Rng::from_seed(seed);
            let mut draw = |below: usize| usize::try_from(rng.below(below as u64)).unwrap();
            let (mut places, mut model) = (Places::new(PLACES * LONG / 2), vec![0; PLACES * LONG / 2]);
            for byte in 1..=60 {
                let start = draw(PLACES) * LONG / 2;
                let length = (1 + draw(4)) * LONG / 2;
                let range = start..(start + length).min(model.len());
                match draw(3) {
                    0 => places.put(start, buffer(byte, range.len())),
                    1 => places.bytes_mut(range.clone()).fill(byte),
                    _ => {
                        assert!(places.bytes(range.clone()) == &model[range], "seed {seed}, step {byte}");
                        continue;
                    }
                }
                model[range].fill(byte);
            }
            assert!(places.bytes(0..model.len()) == model, "seed {seed}");
        }
    }
}
