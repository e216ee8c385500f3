//! Waking any number of loops at once.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::event::EventfdFlags;

use super::{Attention, Sources};

/// Wakes every loop that listens to it. A clone is the same bell. Any thread may ring it, and so
/// may a signal handler.
#[derive(Clone, Debug)]
pub struct Bell(Arc<OwnedFd>);

impl Bell {
    /// A bell that no loop listens to.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let counter = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(counter)))
    }

    /// Wakes the loops. A loop that is about to sleep does not sleep.
    pub fn ring(&self) {
        // Nothing reads the counter: each write is news for each loop. The counter is full after
        // 2^64 rings.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Lets the loop of `sources` listen.
    ///
    /// # Errors
    /// When the loop listens already, or the kernel has no memory left.
    pub fn listen(&self, sources: &Sources, attention: Attention) -> io::Result<()> {
        sources.add_input(self.0.as_raw_fd(), attention)
    }
}
