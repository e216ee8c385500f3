//! The frames of a file, some of them together: their places, their times, and their kinds.

use std::path::Path;

use captures::{Frame, Held, Place, Reader};
use engine::Instant;
use pcie::wire::{Kind, MemoryOperation};
use trace::Direction;

use crate::error::Error;

/// Frames of a block, as long as there are not too many blocks.
const FRAMES_FIRST: u64 = 128;
/// The most blocks of a file. Beyond it, two become one.
const BLOCKS_MAX: usize = 1 << 19;

/// The kinds of frames that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// A memory read.
    Read,
    /// A memory write.
    Write,
    /// A completion.
    Completion,
    /// Another PCIe packet: of configuration space, I/O space, or a message.
    Other,
    /// A segment of NVMe/TCP.
    Segment,
    /// Nothing that is understood.
    Foreign,
}

impl Class {
    /// All of them, in the order of [`Counts`].
    pub(crate) const ALL: [Self; 6] =
        [Self::Read, Self::Write, Self::Completion, Self::Other, Self::Segment, Self::Foreign];

    /// The kind of a frame by its content, if it `is_ours`.
    pub(crate) fn of(held: &Held<'_>, is_ours: bool) -> Self {
        match held {
            Held::Packet(packet) => match packet.head.header.kind {
                Kind::Memory(request) if request.operation == MemoryOperation::Read => Self::Read,
                Kind::Memory(request) if request.operation == MemoryOperation::Write => Self::Write,
                Kind::Completion(_) => Self::Completion,
                _ => Self::Other,
            },
            Held::Segment(_) | Held::Datagram(_) if is_ours => Self::Segment,
            _ => Self::Foreign,
        }
    }
}

/// Frames by class and bytes by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    pub(crate) frames: [f64; Class::ALL.len()],
    /// Bytes of payload from the host to the device, and back. Those of segments have no direction,
    /// and count as down.
    pub(crate) bytes: [f64; 2],
}

impl Counts {
    /// Counts a frame.
    pub(crate) fn add(&mut self, held: &Held<'_>, class: Class) {
        self.frames[class as usize] += 1.0;
        match held {
            Held::Packet(packet) => {
                let way = usize::from(packet.direction == Direction::Up);
                self.bytes[way] += packet.head.header.payload_len() as f64;
            }
            Held::Segment(segment) if class == Class::Segment => {
                self.bytes[0] += segment.bytes.len() as f64 + f64::from(segment.missing);
            }
            _ => {}
        }
    }

    /// Adds a share of other counts, from 0 to 1.
    pub(crate) fn add_share(&mut self, other: &Self, share: f64) {
        for (own, more) in self.frames.iter_mut().zip(other.frames) {
            *own += more * share;
        }
        for (own, more) in self.bytes.iter_mut().zip(other.bytes) {
            *own += more * share;
        }
    }
}

/// Frames that follow each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// The place and the number of the first of them.
    place: Place,
    number: u64,
    /// The earliest and the latest time among them.
    pub(crate) first: Instant,
    pub(crate) last: Instant,
    pub(crate) counts: Counts,
}

/// The blocks of a file.
#[derive(Debug)]
pub(crate) struct Blocks {
    blocks: Vec<Block>,
    /// Frames of each block but the last.
    each: u64,
    frames: u64,
    preambles: Vec<u8>,
}

impl Default for Blocks {
    fn default() -> Self {
        Self { blocks: Vec::new(), each: FRAMES_FIRST, frames: 0, preambles: Vec::new() }
    }
}

impl Blocks {
    /// Adds the next frame.
    pub(super) fn add(&mut self, frame: &Frame<'_>, held: &Held<'_>, class: Class) {
        if self.frames.is_multiple_of(self.each) {
            if self.blocks.len() >= BLOCKS_MAX {
                self.halve();
            }
            let (place, number, at) = (frame.place, frame.number, frame.at);
            self.blocks.push(Block { place, number, first: at, last: at, counts: Counts::default() });
        }
        self.frames += 1;
        if let Some(block) = self.blocks.last_mut() {
            block.first = block.first.min(frame.at);
            block.last = block.last.max(frame.at);
            block.counts.add(held, class);
        }
    }

    /// Makes one block of each two.
    fn halve(&mut self) {
        let merged = self.blocks.chunks(2).map(|pair| {
            let mut one = pair[0];
            for other in &pair[1..] {
                one.first = one.first.min(other.first);
                one.last = one.last.max(other.last);
                one.counts.add_share(&other.counts, 1.0);
            }
            one
        });
        self.blocks = merged.collect();
        self.each *= 2;
    }

    /// Keeps the preambles, which a second reading of the file needs.
    pub(super) fn keep(&mut self, preambles: Vec<u8>) {
        self.preambles = preambles;
    }

    /// The number of frames.
    pub(crate) const fn frames(&self) -> u64 {
        self.frames
    }

    /// The blocks that have frames of the time from `from` to `to`, with their numbers.
    pub(crate) fn within(&self, from: Instant, to: Instant) -> impl Iterator<Item = (usize, &Block)> {
        self.blocks.iter().enumerate().filter(move |(_, block)| block.last >= from && block.first < to)
    }

    /// The number of the first frame of the first block that reaches beyond `at`.
    pub(crate) fn first_at(&self, at: Instant) -> u64 {
        let found = self.blocks.iter().find(|block| block.last >= at);
        found.map_or(self.frames, |block| block.number)
    }

    /// The number of the block that has the frame `number`.
    pub(crate) const fn block_of(&self, number: u64) -> u64 {
        number / self.each
    }

    /// The number of the first frame of a block.
    pub(crate) const fn start_of(&self, block: u64) -> u64 {
        block * self.each
    }

    /// Reads the file at `path` again from the frame `number` on, as long as `show` returns true.
    ///
    /// # Errors
    /// When the file has changed.
    pub(crate) fn read_from(
        &self,
        path: &Path,
        number: u64,
        mut show: impl FnMut(Frame<'_>) -> bool,
    ) -> Result<(), Error> {
        let index = usize::try_from(self.block_of(number)).unwrap_or(usize::MAX);
        let Some(block) = self.blocks.get(index) else { return Ok(()) };
        let mut reader = Reader::resume(path, &self.preambles, block.number, block.place)?;
        // Behind the last frame that is known, the file may be cut, or have grown meanwhile.
        let last = self.frames.saturating_sub(1);
        reader.each_while(|frame| (frame.number < number || show(frame)) && frame.number < last)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(number: u64) -> Frame<'static> {
        let at = Instant::from_nanos(number * 10);
        Frame { number, place: Place::default(), at, link: 0, bytes: &[], original: 0 }
    }

    #[test]
    fn blocks_become_one_where_there_are_many_and_lose_no_count() {
        let mut blocks = Blocks::default();
        for number in 0..FRAMES_FIRST * 9 + 5 {
            blocks.add(&frame(number), &Held::Foreign, Class::Foreign);
        }
        let sum = |blocks: &Blocks| {
            let counts = blocks.blocks.iter().map(|block| block.counts.frames[Class::Foreign as usize]);
            counts.sum::<f64>()
        };
        let before = (sum(&blocks), blocks.blocks.len());
        blocks.halve();
        assert_eq!((before, sum(&blocks), blocks.blocks.len()), ((9.0 * 128.0 + 5.0, 10), before.0, 5));
        for number in [0, 255, 256, 1000] {
            let block = blocks.blocks[usize::try_from(blocks.block_of(number)).unwrap()];
            assert_eq!(block.number, blocks.start_of(blocks.block_of(number)));
            assert!((block.first..=block.last).contains(&frame(number).at), "{number}");
        }
        assert_eq!(blocks.within(Instant::from_nanos(2_560), Instant::from_nanos(2_561)).count(), 1);
        assert_eq!(blocks.first_at(Instant::from_nanos(2_570)), 256);
    }
}
