//! At the device's end: which ranges of host memory belong to which strand.

use alloc::vec::Vec;

use pcie::switch::Strand;
use pcie::wire::{Kind, MemoryOperation, Packet};
use serde::{Deserialize, Serialize};

use crate::frame::AheadKey;

/// The most ranges that are kept. With more, no range is known any more, and every write waits for
/// everything else.
pub(super) const COURSES_MAX: usize = 16_384;
/// The most ranges that may overlap with others.
const DISPUTED_MAX: usize = 256;

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Course {
    start: u64,
    end: u64,
    key: AheadKey,
    strand: Strand,
}

impl Course {
    const fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// The ranges of host memory that belong to strands. A range that two commands claim belongs to
/// neither while either is under way: with the strand of one command, the other command's data
/// would be overtaken.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Courses {
    /// Ranges sorted by address, which do not overlap.
    courses: Vec<Course>,
    /// Ranges that overlap with each other, or did. They do not overlap with `courses`.
    disputed: Vec<Course>,
    /// Whether there were too many ranges, so that none is known until all are forgotten.
    lost: bool,
}

impl Courses {
    /// How many ranges are kept.
    pub(super) const fn len(&self) -> usize {
        self.courses.len() + self.disputed.len()
    }

    pub(super) fn clear(&mut self) {
        self.courses.clear();
        self.disputed.clear();
        self.lost = false;
    }

    pub(super) fn forget(&mut self, key: AheadKey) {
        if key == AheadKey::ALL {
            return self.clear();
        }
        self.courses.retain(|course| course.key != key);
        self.disputed.retain(|course| course.key != key);
    }

    pub(super) fn insert(&mut self, key: AheadKey, strand: Strand, (start, length): (u64, u32)) {
        let Some(end) = start.checked_add(u64::from(length)).filter(|end| *end > start) else { return };
        if self.lost {
            return;
        }
        let mut new = Course { start, end, key, strand };
        let first = self.courses.partition_point(|course| course.end <= start);
        let touched = self.courses[first..].iter().take_while(|course| course.overlaps(&new)).count();
        let of_others = |course: &Course| (course.key, course.strand) != (key, strand);
        let mut touching = self.courses.drain(first..first + touched);
        if self.disputed.iter().any(|course| course.overlaps(&new))
            || touching.as_slice().iter().any(of_others)
        {
            self.disputed.extend(touching);
            self.disputed.push(new);
        } else {
            // The new range repeats or extends these ranges.
            touching.by_ref().for_each(|course| {
                new = Course { start: new.start.min(course.start), end: new.end.max(course.end), ..new };
            });
            drop(touching);
            self.courses.insert(first, new);
        }
        if self.courses.len() > COURSES_MAX || self.disputed.len() > DISPUTED_MAX {
            self.clear();
            self.lost = true;
        }
    }

    /// The strand for a packet that the device sends.
    pub(super) fn strand_of(&self, packet: &Packet) -> Strand {
        let Kind::Memory(request) = &packet.header.kind else { return Strand::MAIN };
        if request.operation != MemoryOperation::Write {
            return Strand::MAIN;
        }
        let start = request.address;
        let end = start.saturating_add(u64::from(packet.header.length) * 4);
        let first = self.courses.partition_point(|course| course.end <= start);
        self.courses
            .get(first)
            .filter(|course| course.start <= start && course.end >= end)
            .map_or(Strand::MAIN, |course| course.strand)
    }
}
