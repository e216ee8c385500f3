//! The bell of a thread that uses media, and the names of its requests that may begin.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use super::order::Mailbox;

/// What other threads leave for a thread.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Mail {
    /// Whether there is news, so that a thread without news reads this alone.
    news: AtomicBool,
    begun: Mutex<Vec<u64>>,
    bell: OwnedFd,
}

impl Mail {
    pub(super) fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { news: AtomicBool::new(false), begun: Mutex::default(), bell })
    }

    /// The descriptor that becomes readable when there is news.
    pub(super) fn poll_fd(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    /// Wakes the thread.
    pub(super) fn ring(&self) {
        self.news.store(true, Ordering::Release);
        // The counter is full after 2^64 rings.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Whether there is news. The bell is silent afterwards.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.news.load(Ordering::Acquire) && self.silence()
    }

    #[cold]
    fn silence(&self) -> bool {
        self.news.store(false, Ordering::Relaxed);
        // News that comes from here on rings again, or its ring is read here and it is found.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        true
    }

    /// The requests that may begin since the last call.
    pub(super) fn begun(&self) -> Vec<u64> {
        mem::take(&mut *self.begun.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Mailbox for Mail {
    fn put(&self, key: u64) {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).push(key);
        self.ring();
    }
}
