//! A wire of Ethernet: the cable of one of this machine's interfaces.
//!
//! Packets leave the interface as the card sends them, and the card sees every frame that comes.
//! There is a link as long as the interface has one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use engine::{Instant, Nanos};

use crate::sys::station::Cable;

/// How often the interface is asked for its link.
const LOOK_EVERY: Nanos = Nanos::from_millis(50);

/// The end of a wire of Ethernet.
#[derive(Debug)]
pub(super) struct Eth {
    cable: Cable,
    is_up: bool,
    look_at: Instant,
}

impl Eth {
    pub(super) fn open(interface: &str) -> io::Result<Self> {
        let cable = Cable::open(interface).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => {
                let why =
                    "frames need the capability CAP_NET_RAW: run as root, or with setcap cap_net_raw+ep";
                io::Error::new(error.kind(), why)
            }
            _ => error,
        })?;
        Ok(Self { cable, is_up: false, look_at: Instant::ZERO })
    }

    pub(super) const fn is_up(&self) -> bool {
        self.is_up
    }

    /// The interface's MTU, unless the interface is gone.
    pub(super) fn mtu(&self) -> Option<usize> {
        self.cable.mtu().ok()
    }

    pub(super) fn tend(&mut self, now: Instant) -> io::Result<()> {
        if now >= self.look_at {
            self.look_at = now + LOOK_EVERY;
            self.is_up = self.cable.is_running()?;
        }
        Ok(())
    }

    #[inline]
    pub(super) fn send(&self, packet: &[u8]) {
        // Packets that the interface does not take are lost, as on any network.
        let _ = self.cable.send(packet);
    }

    #[inline]
    pub(super) fn receive(&mut self, packet: &mut [u8]) -> Option<usize> {
        self.cable.receive(packet)
    }
}

impl AsFd for Eth {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.cable.as_fd()
    }
}
