//! The layout of a driver's queues, PRP lists and admin data in host memory.

use core::fmt;

use serde::{Deserialize, Serialize};

use super::Config;
use crate::registers::{COMPLETION_ENTRY_BYTES, SUBMISSION_ENTRY_BYTES};

/// The memory page size that the driver uses (CC.MPS 0), in bytes.
pub(super) const PAGE: u64 = 4096;
/// Number of entries of each admin queue.
pub(super) const ADMIN_ENTRIES: u32 = 32;

/// The error that a driver's arena is too short for its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArenaTooSmall {
    /// Length in bytes of the queues and PRP lists.
    pub need: u64,
    /// Length of the arena in bytes.
    pub have: u64,
}

impl fmt::Display for ArenaTooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the driver's queues need {} B of host memory and were given {} B", self.need, self.have)
    }
}

impl core::error::Error for ArenaTooSmall {}

/// Host memory that is left to callers for their data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRegion {
    /// First address of the region, page-aligned.
    pub base: u64,
    /// Length of the region in bytes, a multiple of the page size.
    pub length: u64,
}

/// The layout of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueLayout {
    pub(super) submission: u64,
    pub(super) completion: u64,
    /// Address of the PRP lists, with [`Layout::list_bytes`] for each command.
    pub(super) lists: u64,
    pub(super) entries: u32,
}

/// The layout of an arena.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    base: u64,
    config_pairs: u16,
    io_entries: u32,
    pub(super) list_bytes: u64,
    /// Address of a page for the data of the driver's own admin commands.
    pub(super) admin_page: u64,
    pub(super) data: DataRegion,
}

const fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE) * PAGE
}

impl Layout {
    pub(super) fn new(config: &Config) -> Result<Self, ArenaTooSmall> {
        let base = pages(config.arena_base);
        let have = config.arena_length.saturating_sub(base - config.arena_base);
        // PRP Entry 1 has the first page. A transfer that starts in the middle of a page touches
        // one page more.
        let list_entries = u64::from(config.transfer_bytes_max).div_ceil(PAGE).max(1);
        let list_bytes = (list_entries * 8).next_power_of_two();
        let mut layout = Self {
            base,
            config_pairs: config.queue_pairs,
            io_entries: config.queue_entries,
            list_bytes,
            admin_page: 0,
            data: DataRegion { base: 0, length: 0 },
        };
        layout.admin_page = base
            + layout.pair_bytes(ADMIN_ENTRIES)
            + u64::from(config.queue_pairs) * layout.pair_bytes(config.queue_entries);
        let data = layout.admin_page + PAGE;
        let need = data - base;
        if need > have {
            return Err(ArenaTooSmall { need, have });
        }
        layout.data = DataRegion { base: data, length: (have - need) / PAGE * PAGE };
        Ok(layout)
    }

    fn pair_bytes(&self, entries: u32) -> u64 {
        let entries = u64::from(entries);
        pages(entries * u64::from(SUBMISSION_ENTRY_BYTES))
            + pages(entries * u64::from(COMPLETION_ENTRY_BYTES))
            + pages(entries * self.list_bytes)
    }

    /// The layout of queue pair `number`; 0 is the admin queues.
    pub(super) fn queue(&self, number: u16) -> QueueLayout {
        assert!(number <= self.config_pairs, "queue pair {number} was not configured");
        let (start, entries) = match number {
            0 => (self.base, ADMIN_ENTRIES),
            _ => {
                let before = u64::from(number - 1) * self.pair_bytes(self.io_entries);
                (self.base + self.pair_bytes(ADMIN_ENTRIES) + before, self.io_entries)
            }
        };
        let completion = start + pages(u64::from(entries) * u64::from(SUBMISSION_ENTRY_BYTES));
        let lists = completion + pages(u64::from(entries) * u64::from(COMPLETION_ENTRY_BYTES));
        QueueLayout { submission: start, completion, lists, entries }
    }
}
