//! Low-latency network cards between processes: served over vfio-user, or in the user's
//! own process.
//!
//! A [`Station`] is a host with its card. The card is its own, at the end of a [`Wire`], or one of
//! another process, which a [`CardDriver`] serves. [`floor`] measures the floor that no card can
//! beat.

mod client;
mod eth;
pub mod floor;
mod loopback;
mod served;
mod shell;
mod shm;
mod station;
#[cfg(test)]
mod tests;
mod udp;
mod vectors;
mod wire;

pub use served::{CardDriver, Served};
pub use station::{Place, PlaceError, Station, StationError};
pub use wire::{Wire, WireError, WireUrl};

use std::io;
use std::os::fd::BorrowedFd;

use engine::Nanos;
use niq::WINDOW_BYTES;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use vfio_user::RegionIndex;

use crate::sys::doorbells::memory_file;
use crate::sys::shared::{Mapping, SharedMemory};

/// The region that is a card's window: BAR2.
const WINDOW: RegionIndex = RegionIndex(2);

/// How often an end of a wire that is awake checks the other end behind its card.
const TEND_EVERY: Nanos = Nanos::from_millis(5);
/// How long such an end sleeps at most before it looks.
const SLEEP_MAX: Nanos = Nanos::from_millis(100);

/// Waits until one of `descriptors` has news or a signal has come, for `length` at most.
fn wait_for(descriptors: &[BorrowedFd<'_>], length: Nanos) -> io::Result<()> {
    let mut polled: Vec<_> = descriptors
        .iter()
        .map(|one| PollFd::from_borrowed_fd(*one, PollFlags::IN | PollFlags::RDHUP))
        .collect();
    let length = Timespec::try_from(std::time::Duration::from(length)).map_err(io::Error::other)?;
    match poll(&mut polled, Some(&length)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The whole of a file of `length` bytes, in place of a memory that begins at `address`.
const fn whole(address: u64, length: usize) -> Mapping {
    Mapping { address, length: length as u64, offset: 0, readable: true, writable: true }
}

/// Memory of its own for a window, and the file behind it.
fn window() -> io::Result<(SharedMemory, std::os::fd::OwnedFd)> {
    new_memory("farlane-niq-window", WINDOW_BYTES)
}

/// New memory of `length` zero bytes at address 0, and the file behind it.
fn new_memory(name: &str, length: usize) -> io::Result<(SharedMemory, std::os::fd::OwnedFd)> {
    let file = memory_file(name, length as u64)?;
    let mut memory = SharedMemory::new();
    memory.map(file.try_clone()?, whole(0, length)).map_err(io::Error::other)?;
    Ok((memory, file))
}
