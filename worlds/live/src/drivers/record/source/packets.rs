//! Frames of a network interface become records of packets. They cannot wait.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use engine::Instant;
use record::format::{Content, LinkType, PacketFlags};
use record::packing::{Lane, Packer};
use record::sequence::Ledger;

use super::datagrams::{Heard, time_of};
use super::{Feed, Intake, RETRY, Source, Took};
use crate::drivers::record::real_time;
use crate::sys::packet_ring::{PacketRing, RETIRE_MILLIS};

/// The most frames that are taken before others have their turn.
const FRAMES_AT_ONCE: usize = 1_024;
/// The most frames that are taken at the end, when those that come later are not waited for.
const FRAMES_AT_END: usize = 1 << 20;
/// The bytes of a frame of Ethernet before its VLAN tag: two addresses.
const ADDRESSES: usize = 12;

/// An interface's frames.
pub(super) struct Packets {
    ring: PacketRing,
    link: LinkType,
    /// Each frame that the interface sends comes back to it.
    is_loopback: bool,
    packer: Packer,
}

impl Source {
    /// Records the frames of a network interface, those that this host sends, too.
    ///
    /// # Errors
    /// When there is no such interface, when it is of a kind that has no link type here
    /// (`Unsupported`), or `PermissionDenied` without the capability `CAP_NET_RAW`.
    pub fn packets(interface: &str) -> io::Result<Self> {
        let ring = PacketRing::open(interface)?;
        // Packets that the loopback interface sends come back at once, and would be recorded twice.
        let is_loopback = ring.hardware == libc::ARPHRD_LOOPBACK;
        if is_loopback {
            ring.ignore_outgoing()?;
        }
        let link = match ring.hardware {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => LinkType::ETHERNET,
            libc::ARPHRD_NONE => LinkType::IP,
            other => {
                let why = format!("interfaces of kind {other} are not known; expected Ethernet or IP");
                return Err(io::Error::new(io::ErrorKind::Unsupported, why));
            }
        };
        let packer = Packer::new(Ledger::new(None), true);
        Ok(Self::new(Packets { ring, link, is_loopback, packer }))
    }
}

impl Packets {
    fn take_frames(&mut self, lane: &mut Lane<'_>, most: usize, left: Option<u64>) -> usize {
        let mut count = 0;
        let mut left = left.unwrap_or(u64::MAX);
        while count < most && left > 0 {
            let Some(frame) = self.ring.next() else {
                self.ask_dropped(lane);
                break;
            };
            if frame.is_outgoing && self.is_loopback {
                continue;
            }
            let flags = PacketFlags::default();
            let flags = if frame.is_cut { flags.cut() } else { flags };
            let flags = if frame.is_outgoing { flags.outgoing() } else { flags };
            let tag = frame.vlan.as_ref().map_or(&[][..], |tag| tag);
            let (addresses, rest) = frame.bytes.split_at(ADDRESSES.min(frame.bytes.len()));
            self.packer.put(lane, flags, time_of(frame.stamp), &[addresses, tag, rest]);
            left = left.saturating_sub(frame.bytes.len() as u64);
            count += 1;
        }
        count
    }

    fn ask_dropped(&self, lane: &mut Lane<'_>) {
        let packets = u64::from(self.ring.dropped());
        if packets > 0 {
            self.packer.miss(lane, packets, real_time().nanos);
        }
    }
}

impl Feed for Packets {
    fn take(&mut self, intake: &mut Intake<'_, '_>) -> Took {
        if self.take_frames(intake.lane, FRAMES_AT_ONCE, intake.left) > 0 {
            return Took::Something;
        }
        if !self.ring.is_gone() {
            return Took::Nothing;
        }
        self.finish(intake.lane, true);
        Took::End(Some(io::Error::other("the interface was deleted")))
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.ring.as_fd().as_raw_fd())
    }

    /// The kernel reports that an interface goes down, and not that it is deleted then.
    fn wake_at(&self, now: Instant) -> Option<Instant> {
        self.ring.is_down().then(|| now + RETRY)
    }

    fn finish(&mut self, lane: &mut Lane<'_>, drain: bool) {
        if drain {
            // The kernel hands over the last block after this time.
            std::thread::sleep(Duration::from_millis(u64::from(RETIRE_MILLIS) * 2));
            self.take_frames(lane, FRAMES_AT_END, None);
        }
        self.ask_dropped(lane);
    }

    fn heard(&self) -> Option<Heard> {
        Some(Heard::of(&self.packer))
    }

    fn content(&self) -> Content {
        Content::Packets(self.link)
    }
}
