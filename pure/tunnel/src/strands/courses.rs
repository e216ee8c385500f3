//! At the device's end: which ranges of host memory belong to which strand.

use alloc::vec::Vec;

use pcie::wire::{Kind, MemoryOperation, Packet};

use crate::frame::AheadKey;

/// Ranges that are kept; beyond, what is written there waits for everything else.
pub(super) const COURSES_MAX: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Course {
    start: u64,
    end: u64,
    key: AheadKey,
    strand: u8,
}

/// See the module. Ranges never overlap: what two commands claim belongs to neither.
#[derive(Debug, Default)]
pub(super) struct Courses {
    /// Sorted by address.
    courses: Vec<Course>,
}

impl Courses {
    pub(super) fn clear(&mut self) {
        self.courses.clear();
    }

    pub(super) fn forget(&mut self, key: AheadKey) {
        self.courses.retain(|course| key != AheadKey::ALL && course.key != key);
    }

    pub(super) fn insert(&mut self, key: AheadKey, strand: u8, (start, length): (u64, u32)) {
        let Some(end) = start.checked_add(u64::from(length)).filter(|end| *end > start) else { return };
        let first = self.courses.partition_point(|course| course.end <= start);
        let touched = self.courses[first..].iter().take_while(|course| course.start < end).count();
        let disputed = self.courses[first..first + touched].iter().any(|course| course.strand != strand);
        self.courses.drain(first..first + touched);
        if !disputed && self.courses.len() < COURSES_MAX {
            self.courses.insert(first, Course { start, end, key, strand });
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
