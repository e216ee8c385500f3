//! The settings of a server.

use alloc::vec::Vec;

use engine::Nanos;

use crate::index::{Area, INTERRUPTS, REGIONS};

/// The offer of a function, and the time limits for its clients.
#[derive(Clone, Debug)]
pub struct Config {
    /// The regions, by number. A region of length 0 is absent.
    pub regions: [RegionConfig; REGIONS],
    /// The kinds of interrupts, by number. A kind with count 0 is absent.
    pub interrupts: [InterruptConfig; INTERRUPTS],
    /// Whether a message can reset the function.
    pub resettable: bool,
    /// How long a client may take from connecting to the end of its first message.
    pub handshake: Nanos,
    /// How long a client may take to answer a message that reads or writes its memory.
    pub answer: Nanos,
}

impl Default for Config {
    /// No regions and no interrupts; 10 s for the first message, 5 s for an answer.
    fn default() -> Self {
        Self {
            regions: Default::default(),
            interrupts: Default::default(),
            resettable: true,
            handshake: Nanos::from_secs(10),
            answer: Nanos::from_secs(5),
        }
    }
}

/// A region of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionConfig {
    /// Length of the region in bytes; 0 if it is absent.
    pub length: u64,
    /// Whether the region may be read.
    pub readable: bool,
    /// Whether the region may be written.
    pub writable: bool,
    /// The parts that a client may map, in rising order and apart from each other. Most regions
    /// have none.
    pub areas: Vec<Area>,
    /// Offset of the region in the file whose descriptor goes with [`super::Output::Transmit`]. A
    /// client maps an area at this offset plus that of the area.
    pub file_offset: u64,
}

impl RegionConfig {
    /// Creates a region of `length` bytes that may be read and written by message only.
    pub fn new(length: u64) -> Self {
        Self { length, readable: true, writable: true, ..Self::default() }
    }
}

/// A kind of interrupt of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterruptConfig {
    /// How many interrupts (vectors) of the kind there are; 0 if the kind is absent.
    pub count: u32,
    /// Whether all interrupts are set up together (`VFIO_IRQ_INFO_NORESIZE`): a client that needs
    /// one more first tears all down. Otherwise they are set up one by one.
    pub all_at_once: bool,
}
