//! At the device's end: which ranges of host memory belong to which strand.

use alloc::vec::Vec;

use pcie::wire::{Kind, MemoryOperation, Packet};

use crate::frame::AheadKey;

/// Ranges that are kept. With more, what belongs where is not known any more, and all waits for everything else.
pub(super) const COURSES_MAX: usize = 16_384;
/// Of them, those that overlap with others.
const DISPUTED_MAX: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Course {
    start: u64,
    end: u64,
    key: AheadKey,
    strand: u8,
}

impl Course {
    const fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// See the module. What two commands claim belongs to neither, as long as either is under way: its strand would be the wrong one for
/// one of them, whose data would be overtaken.
#[derive(Debug, Default)]
pub(super) struct Courses {
    /// Sorted by address; they don't overlap.
    courses: Vec<Course>,
    /// What overlaps with others, or did; with none of the above.
    disputed: Vec<Course>,
    /// There were too many: who claims what is not known until all is forgotten.
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

    pub(super) fn insert(&mut self, key: AheadKey, strand: u8, (start, length): (u64, u32)) {
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
            // The same again, or more of it.
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

    /// The strand of a packet of the device.
    pub(super) fn strand_of(&self, packet: &Packet) -> u8 {
        let Kind::Memory(request) = &packet.header.kind else { return 0 };
        if request.operation != MemoryOperation::Write {
            return 0;
        }
        let start = request.address;
        let end = start.saturating_add(u64::from(packet.header.length) * 4);
        let first = self.courses.partition_point(|course| course.end <= start);
        self.courses
            .get(first)
            .filter(|course| course.start <= start && course.end >= end)
            .map_or(0, |course| course.strand)
    }
}
