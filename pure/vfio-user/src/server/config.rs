//! What a server is told when it is made.

use alloc::vec::Vec;

use engine::Nanos;

use crate::index::{Area, INTERRUPTS, REGIONS};

/// What a function offers.
#[derive(Clone, Debug)]
pub struct Config {
    /// The regions, by number; one of length 0 is absent.
    pub regions: [RegionConfig; REGIONS],
    /// The kinds of interrupts, by number; one of count 0 is absent.
    pub interrupts: [InterruptConfig; INTERRUPTS],
    /// Whether the function can be reset by a message.
    pub resettable: bool,
    /// How long a client may take from connecting to the end of its first message.
    pub handshake: Nanos,
    /// How long a client may take to answer a message that reads or writes its memory.
    pub answer: Nanos,
}

impl Default for Config {
    /// No regions, no interrupts; 10 s for the first message, 5 s for an answer.
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
    /// Bytes; 0 for none.
    pub length: u64,
    /// Whether it may be read.
    pub readable: bool,
    /// Whether it may be written.
    pub writable: bool,
    /// The parts that a client may map, in rising order and apart from each other; none for most regions.
    pub areas: Vec<Area>,
    /// Where the region begins in the file whose descriptor goes with [`super::Output::Transmit`]: a client maps an
    /// area at this plus the area's offset.
    pub file_offset: u64,
}

impl RegionConfig {
    /// A region of `length` bytes that may be read and written with messages only.
    pub fn new(length: u64) -> Self {
        Self { length, readable: true, writable: true, ..Self::default() }
    }
}

/// A kind of interrupt of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterruptConfig {
    /// How many (vectors); 0 for none.
    pub count: u32,
    /// Whether all are set at once (`VFIO_IRQ_INFO_NORESIZE`): a client that wants one more tears all down first.
    /// Without it they come one by one.
    pub all_at_once: bool,
}
