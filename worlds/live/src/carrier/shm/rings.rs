//! The memory of a connection: how it is passed, and how its other end is woken.

use std::io;
use std::os::fd::OwnedFd;

use engine::Buffer;
use lines::{End, Fault, MEMORY_BYTES, Side};
use pcie::memory::{Memory, Unmapped};

use crate::sys::doorbells::memory_file;
use crate::sys::shared::{Mapping, SharedMemory};
use crate::sys::unix::Connection;

/// The message that wakes an end that sleeps.
const WAKE: &[u8] = &[0];

/// The memory of rings. The data areas are written past the caches: the other end has the lines of
/// an earlier lap.
pub(crate) struct RingMemory(SharedMemory);

impl Memory for RingMemory {
    #[inline]
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Unmapped> {
        self.0.read(address, bytes)
    }
    #[inline]
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Unmapped> {
        self.0.stream(address, bytes)
    }
}

/// Memory that two processes share, and an end of the rings in it.
pub(crate) struct Rings {
    pub(crate) memory: RingMemory,
    pub(crate) end: End,
}

impl Rings {
    /// Makes memory. The next flush of `socket` passes it with `greeting`: the name and version of
    /// its layout.
    ///
    /// # Errors
    /// When the system has no memory or descriptors left.
    pub(crate) fn pass(socket: &mut Connection, greeting: &[u8]) -> io::Result<Self> {
        let file = memory_file("farlane-lines", MEMORY_BYTES as u64)?;
        let rings = Self::map(file.try_clone()?, Side::Dialler)?;
        socket.send(Buffer::from(greeting.to_vec()), vec![file]).map_err(io::Error::other)?;
        Ok(rings)
    }

    /// Takes the memory that came with `bytes`, which must be `greeting`.
    ///
    /// # Errors
    /// When something else came, or the memory is none of this version.
    pub(crate) fn take(greeting: &[u8], bytes: &[u8], mut descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let memory = descriptors.pop().filter(|_| descriptors.is_empty() && bytes == greeting);
        let memory = memory.ok_or_else(|| {
            invalid("it did not begin with shared memory of this version; use the same farlane")
        })?;
        Self::map(memory, Side::Listener)
    }

    /// Maps the memory behind `descriptor`, for the end of `side`.
    fn map(descriptor: OwnedFd, side: Side) -> io::Result<Self> {
        let mut memory = SharedMemory::new();
        let mapping =
            Mapping { address: 0, length: MEMORY_BYTES as u64, offset: 0, readable: true, writable: true };
        memory.map(descriptor, mapping).map_err(|error| invalid(format!("the shared memory: {error}")))?;
        Ok(Self { memory: RingMemory(memory), end: End::new(side) })
    }

    /// Wakes the other end over `socket` if it sleeps and something was stored for it.
    ///
    /// # Errors
    /// When the memory is gone.
    #[inline]
    pub(crate) fn wake(&mut self, socket: &mut Connection) -> io::Result<()> {
        if self.end.poll_wake(&self.memory).map_err(fault)? || socket.unsent() > 0 {
            ring(socket);
        }
        Ok(())
    }
}

/// Sends a byte, which wakes an end that sleeps.
#[cold]
pub(crate) fn ring(socket: &mut Connection) {
    // A byte that waits wakes it as well. Whether the other end is gone, the next receive finds.
    if socket.unsent() == 0 {
        let _ = socket.send(Buffer::from(WAKE.to_vec()), Vec::new());
    }
    let _ = socket.flush();
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

pub(super) fn fault(fault: Fault) -> io::Error {
    invalid(fault)
}
