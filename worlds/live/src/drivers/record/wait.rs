//! Waiting for a medium, by calls that have nothing else to do.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

/// Waits until one of `descriptors` is readable, a signal comes, or `longest` is over.
///
/// # Errors
/// The system's.
pub(super) fn until_readable(descriptors: impl Iterator<Item = RawFd>, longest: Duration) -> io::Result<()> {
    // SAFETY: a medium's ring or loop is open as long as the medium, which outlives this call.
    let borrowed = descriptors.map(|descriptor| unsafe { BorrowedFd::borrow_raw(descriptor) });
    let mut polled: Vec<_> = borrowed.map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN)).collect();
    let seconds = i64::try_from(longest.as_secs()).unwrap_or(i64::MAX);
    let longest = Timespec { tv_sec: seconds, tv_nsec: longest.subsec_nanos().into() };
    match rustix::event::poll(&mut polled, Some(&longest)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
