//! All frames of one interface, whole, as a card at the other end of its cable has them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::ring::{Ring, Slot};
use super::{ADDRESSES, FRAMES_MAX, TAG, TYPE, bind, interface_of, join, mtu_of, request, socket};
use crate::sys::option::set_option;
use crate::sys::outgoing::{self, About};

/// The membership by which an interface takes frames for everybody (`PACKET_MR_PROMISC`).
const MEMBER_PROMISCUOUS: libc::c_ushort = 1;

/// A socket for all frames of one interface.
#[derive(Debug)]
pub(crate) struct Cable {
    socket: OwnedFd,
    interface: String,
    ring: Ring,
}

impl Cable {
    /// Opens the socket. The interface takes frames for everybody as long as this lives.
    ///
    /// # Errors
    /// When there is no such interface, or `PermissionDenied` without the capability `CAP_NET_RAW`.
    pub(crate) fn open(interface: &str) -> io::Result<Self> {
        let socket = socket()?;
        let index = interface_of(&socket, interface)?;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        let ring = Ring::of(&socket, mtu_of(&socket, interface)? + ADDRESSES + TYPE)?;
        join(&socket, index, MEMBER_PROMISCUOUS, [0; 6])?;
        bind(&socket, index)?;
        Ok(Self { socket, interface: interface.to_owned(), ring })
    }

    /// Whether the interface is up and has a link.
    ///
    /// # Errors
    /// When the interface is gone.
    pub(crate) fn is_running(&self) -> io::Result<bool> {
        let answer = request(&self.socket, &self.interface, libc::SIOCGIFFLAGS)?;
        // SAFETY: the kernel has written the flags.
        let flags = unsafe { answer.ifr_ifru.ifru_flags };
        let wanted = libc::IFF_UP | libc::IFF_RUNNING;
        Ok(libc::c_int::from(flags) & wanted == wanted)
    }

    /// Sends a frame from its addresses on.
    ///
    /// # Errors
    /// When the interface is down or gone, takes no such frame, or takes none now (`WouldBlock`).
    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        let send = || outgoing::send(&self.socket, &[frame], About::default());
        match send() {
            // The socket tells once more that the interface was down, although it may be up again.
            Err(error) if error.kind() == io::ErrorKind::NetworkDown => send(),
            result => result,
        }
    }

    /// Takes the next frame into the beginning of `frame`; returns its length. A frame that has no
    /// room there is dropped.
    pub(crate) fn receive(&mut self, frame: &mut [u8]) -> Option<usize> {
        (0..FRAMES_MAX).find_map(|_| match self.ring.take(|slot| whole(&slot, frame)) {
            // Nothing has come: a search that goes on looks at the same word again.
            None => Some(None),
            Some(None) => None,
            Some(length) => Some(length),
        })?
    }
}

impl AsFd for Cable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Puts a frame with the tag that the kernel took out of it into `frame`.
fn whole(slot: &Slot<'_>, frame: &mut [u8]) -> Option<usize> {
    if slot.is_cut || slot.bytes.len() < ADDRESSES + TYPE {
        return None;
    }
    let (addresses, rest) = slot.bytes.split_at(ADDRESSES);
    let tag = slot.tag.map(|tag| [TAG.to_be_bytes(), tag.to_be_bytes()].concat()).unwrap_or_default();
    let mut at = 0;
    for piece in [addresses, &tag, rest] {
        frame.get_mut(at..at + piece.len())?.copy_from_slice(piece);
        at += piece.len();
    }
    Some(at)
}
