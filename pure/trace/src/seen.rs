//! A packet as a capture has it.

use engine::Instant;
use pcie::wire::{Bdf, Header, Kind, MemoryOperation};

/// Which way a packet passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the host to the device.
    Down,
    /// From the device to the host.
    Up,
}

impl Direction {
    /// The other way.
    pub const fn opposite(self) -> Self {
        match self {
            Self::Down => Self::Up,
            Self::Up => Self::Down,
        }
    }

    /// Which way a packet passes that was captured without its direction. The root complex sends
    /// its requests from bus 0, and devices are on other buses.
    pub fn guess(header: &Header) -> Self {
        let of = |requester: Bdf| if requester.bus() == 0 { Self::Down } else { Self::Up };
        match header.kind {
            Kind::Config(_) => Self::Down,
            Kind::Completion(completion) => of(completion.requester).opposite(),
            _ => of(header.requester()),
        }
    }
}

/// When something passed, and which packet of the capture it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) at: Instant,
    pub(crate) number: u64,
}

/// A packet at the place of capture.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Its number in the capture, by which a command remembers it.
    pub number: u64,
    /// When the packet passed.
    pub at: Instant,
    /// Which way it passed.
    pub direction: Direction,
    /// Its header.
    pub header: &'a Header,
    /// Its payload, or as much of the payload as was captured.
    pub payload: &'a [u8],
}

impl Seen<'_> {
    pub(crate) const fn mark(&self) -> Mark {
        Mark { at: self.at, number: self.number }
    }

    /// The address and the number of bytes of a memory read.
    pub fn read(&self) -> Option<(u64, u32)> {
        self.memory(MemoryOperation::Read)
    }

    /// The address and the number of bytes of a memory write.
    pub(crate) fn write(&self) -> Option<(u64, u32)> {
        self.memory(MemoryOperation::Write)
    }

    fn memory(&self, operation: MemoryOperation) -> Option<(u64, u32)> {
        match self.header.kind {
            Kind::Memory(request) if request.operation == operation => {
                Some((self.header.first_byte_address()?, self.header.byte_length()))
            }
            _ => None,
        }
    }

    /// The first `N` bytes of the payload, if they were captured.
    pub(crate) fn bytes<const N: usize>(&self) -> Option<[u8; N]> {
        self.payload.first_chunk().copied()
    }
}
