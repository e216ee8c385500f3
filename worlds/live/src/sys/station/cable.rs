//! All frames of one interface, whole, as a card at the other end of its cable has them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::ring::{Ring, Slot};
use super::{ADDRESSES, FRAMES_MAX, TYPE, bind, interface_of, join, mtu_of, request, socket};
use crate::sys::option::set_option;
use crate::sys::outgoing::{self, About};

/// The membership by which an interface takes frames for all addresses (`PACKET_MR_PROMISC`).
const MEMBER_PROMISCUOUS: libc::c_ushort = 1;

/// A socket for all frames of one interface.
#[derive(Debug)]
pub(crate) struct Cable {
    socket: OwnedFd,
    interface: String,
    ring: Ring,
}

impl Cable {
    /// Opens the socket. The interface takes frames for all addresses as long as this lives.
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

    /// The most bytes of a frame behind its addresses and its EtherType, as the interface is now.
    ///
    /// # Errors
    /// When the interface is gone.
    pub(crate) fn mtu(&self) -> io::Result<usize> {
        mtu_of(&self.socket, &self.interface)
    }

    /// Sends a frame from its addresses on.
    ///
    /// # Errors
    /// When the interface is down or gone, takes no such frame, or takes none now (`WouldBlock`).
    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        let send = || outgoing::send(&self.socket, &[frame], About::default());
        match send() {
            // The socket reports once more that the interface was down, although it may be up
            // again.
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
    let tag = slot.tag.map(|words| words.map(u16::to_be_bytes));
    let tag = tag.as_ref().map_or(&[][..], |words| words.as_flattened());
    let mut at = 0;
    for piece in [addresses, tag, rest] {
        frame.get_mut(at..at + piece.len())?.copy_from_slice(piece);
        at += piece.len();
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::test_bench::enter_network;

    const ADDRESSES_OF_FRAME: [u8; ADDRESSES] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1];

    #[test]
    fn a_frame_has_the_tag_that_was_taken_out_of_it() {
        let bytes = [&ADDRESSES_OF_FRAME[..], &[0x88, 0xb5, 7]].concat();
        let put = |tag, room: &mut [u8]| {
            whole(&Slot { bytes: &bytes, tag, is_cut: false }, room).map(|length| room[..length].to_vec())
        };
        assert_eq!(put(None, &mut [0; 64]), Some(bytes.clone()));
        let tagged = [&ADDRESSES_OF_FRAME[..], &[0x88, 0xa8, 0xa0, 9, 0x88, 0xb5, 7]].concat();
        assert_eq!(put(Some([0x88a8, 0xa009]), &mut [0; 64]), Some(tagged));
        assert_eq!(put(Some([0x88a8, 0xa009]), &mut [0; 18]), None);
    }

    #[test]
    fn frames_pass_with_one_tag_or_two_unchanged() {
        if !enter_network(&["link add near type veth peer name far", "link set near up", "link set far up"]) {
            return;
        }
        let (near, mut far) = (Cable::open("near").unwrap(), Cable::open("far").unwrap());
        let payload = [0x88, 0xb5].into_iter().chain([7; 60]);
        for tags in [&[][..], &[0x81, 0, 0xa0, 5], &[0x88, 0xa8, 0xa0, 9, 0x81, 0, 0x60, 5]] {
            let sent: Vec<u8> =
                ADDRESSES_OF_FRAME.into_iter().chain(tags.iter().copied()).chain(payload.clone()).collect();
            let mut room = [0; 2048];
            let length = loop {
                // The interfaces may just have come up, and their neighbours send frames, too.
                // Frames with fewer tags may have been sent more than once.
                let _ = near.send(&sent);
                match far.receive(&mut room) {
                    Some(length) if length >= sent.len() && room[..ADDRESSES] == ADDRESSES_OF_FRAME => {
                        break length;
                    }
                    _ => std::thread::yield_now(),
                }
            };
            assert_eq!(room[..length], sent, "{tags:x?}");
        }
    }
}
