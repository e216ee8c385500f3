//! Frames that leave or reach an interface, seen while others use it.

use std::io;
use std::time::Duration;

use engine::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::sys::clock;
use crate::sys::datagrams::Stamp;
use crate::sys::packet_ring::PacketRing;

/// A frame that was seen.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Its bytes from the destination's address on, without a VLAN tag that the kernel took out,
    /// and without the check sequence.
    pub bytes: &'a [u8],
    /// That tag (IEEE 802.1Q), which belongs behind the two addresses.
    pub tag: Option<[u8; 4]>,
    /// Whether this machine sent it.
    pub is_outgoing: bool,
    /// When it left or came, by the clock of the network (TAI), if the system says: for a frame
    /// that left, when the driver was given it.
    pub at: Option<Nanos>,
    /// Whether the card's clock gave the stamp, and not the kernel's.
    pub is_hardware: bool,
}

/// The frames of an interface.
pub struct Tap {
    ring: PacketRing,
    ahead: Nanos,
}

impl Tap {
    /// Opens the interface. Frames are seen from now on.
    ///
    /// # Errors
    /// When there is no such interface, or `PermissionDenied` without the capability `CAP_NET_RAW`.
    pub fn open(interface: &str) -> io::Result<Self> {
        Ok(Self { ring: PacketRing::open(interface)?, ahead: clock::network_ahead() })
    }

    /// Waits until there may be frames, or for `most`.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn wait(&self, most: Duration) -> io::Result<()> {
        let limit = Timespec::try_from(most).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&self.ring, PollFlags::IN)], Some(&limit)) {
            Err(rustix::io::Errno::INTR) | Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The next frame, if there is one.
    pub fn next_frame(&mut self) -> Option<Seen<'_>> {
        let ahead = self.ahead;
        let frame = self.ring.next()?;
        let (at, is_hardware) = match frame.stamp {
            Stamp::None => (None, false),
            Stamp::Kernel(time) => (Some(time + ahead), false),
            // A card's clock that is set by PTP shows the time of the network.
            Stamp::Hardware(time) => (Some(time), true),
        };
        Some(Seen { bytes: frame.bytes, tag: frame.vlan, is_outgoing: frame.is_outgoing, at, is_hardware })
    }

    /// How many frames were not seen since this was asked last, because too many had come.
    pub fn missed(&self) -> u32 {
        self.ring.dropped()
    }
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tap").finish_non_exhaustive()
    }
}
