//! Descriptors that signal interrupts to a client.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

/// The descriptor of one interrupt vector, usually an eventfd.
#[derive(Debug)]
pub(in crate::drivers) struct Signaller {
    descriptor: OwnedFd,
    /// Whether writes to the descriptor never block. The flag is shared with readers of the
    /// descriptor, which choose it, so it is not changed here.
    never_waits: bool,
}

impl Signaller {
    pub(in crate::drivers) fn new(descriptor: OwnedFd) -> Self {
        let flags = rustix::fs::fcntl_getfl(&descriptor);
        Self { descriptor, never_waits: flags.is_ok_and(|flags| flags.contains(OFlags::NONBLOCK)) }
    }

    /// Signals the interrupt to the client, without blocking.
    ///
    /// # Errors
    /// When the descriptor cannot be written.
    pub(in crate::drivers) fn signal(&self) -> io::Result<()> {
        if !self.never_waits && !self.has_room()? {
            // The signals that wait already will make the client look.
            return Ok(());
        }
        match rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes()) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn has_room(&self) -> io::Result<bool> {
        let mut polled = [PollFd::new(&self.descriptor, PollFlags::OUT)];
        poll(&mut polled, Some(&rustix::event::Timespec::default()))?;
        Ok(polled[0].revents().contains(PollFlags::OUT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn a_client_that_never_looks_does_not_stop_us() {
        for flags in [EventfdFlags::CLOEXEC, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK] {
            let event = eventfd(0, flags).unwrap();
            rustix::io::write(&event, &(u64::MAX - 2).to_ne_bytes()).unwrap();
            let signaller = Signaller::new(event.try_clone().unwrap());
            for _ in 0..3 {
                signaller.signal().unwrap();
            }
            let mut count = [0; 8];
            rustix::io::read(&event, &mut count).unwrap();
            assert_eq!(u64::from_ne_bytes(count), u64::MAX - 1);
            signaller.signal().unwrap();
            rustix::io::read(&event, &mut count).unwrap();
            assert_eq!(u64::from_ne_bytes(count), 1);
        }
    }
}
