//! A wire whose two ends are one: the card receives its own packets.
//!
//! It is for trying a host without a second card, and for measuring the cost of a host and a card
//! of another process by themselves.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// Most packets on the wire.
const PACKETS_MAX: usize = 64;

/// A wire that leads back to its own end.
#[derive(Debug)]
pub(super) struct Loopback {
    /// The packets on the wire, and the memory of those that have left it.
    packets: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    /// Nothing comes while its only end sleeps, so this never has news.
    news: OwnedFd,
}

impl Loopback {
    pub(super) fn open() -> io::Result<Self> {
        let news = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self { packets: VecDeque::with_capacity(PACKETS_MAX), spare: Vec::new(), news })
    }

    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.packets.len() < PACKETS_MAX
    }

    #[inline]
    pub(super) fn send(&mut self, packet: &[u8]) {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(packet);
        self.packets.push_back(bytes);
    }

    #[inline]
    pub(super) fn receive(&mut self, packet: &mut [u8]) -> Option<usize> {
        let bytes = self.packets.pop_front()?;
        let length = bytes.len();
        packet[..length].copy_from_slice(&bytes);
        self.spare.push(bytes);
        Some(length)
    }
}

impl AsFd for Loopback {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }
}
