//! A wire of UDP: a packet a datagram.
//!
//! The end whose address is named waits. The other says hello, and both say it again and again. An
//! end that hears nothing for a while is without a peer.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use engine::{Instant, Nanos};
use niq::{PACKET_MAX, PACKET_MIN};

/// The message of an end to the other when there is nothing else to send; shorter than any packet.
pub(super) const HELLO: &[u8] = b"niq wire 1";
/// How often an end says hello.
const HELLO_EVERY: Nanos = Nanos::from_millis(200);
/// After this long without a datagram, the other end is gone.
const GONE_AFTER: Nanos = Nanos::from_secs(2);
/// Most datagrams of others that one look takes away.
const STRANGERS_MAX: usize = 64;

const _: () = assert!(HELLO.len() < PACKET_MIN);

/// An end of a wire of UDP.
#[derive(Debug)]
pub(super) struct Udp {
    socket: UdpSocket,
    peer: Option<SocketAddr>,
    /// The named address is the other end's.
    is_second: bool,
    is_up: bool,
    has_heard: bool,
    heard_at: Instant,
    hello_at: Instant,
}

impl Udp {
    pub(super) fn open(address: SocketAddr) -> io::Result<Self> {
        let (socket, is_second) = match UdpSocket::bind(address) {
            Ok(socket) => (socket, false),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable) =>
            {
                let any: SocketAddr = match address {
                    SocketAddr::V4(_) => ([0; 4], 0).into(),
                    SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
                };
                (UdpSocket::bind(any)?, true)
            }
            Err(error) => return Err(error),
        };
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            peer: is_second.then_some(address),
            is_second,
            is_up: false,
            has_heard: false,
            heard_at: Instant::ZERO,
            hello_at: Instant::ZERO,
        })
    }

    pub(super) const fn is_up(&self) -> bool {
        self.is_up
    }

    pub(super) fn tend(&mut self, now: Instant) -> io::Result<()> {
        if !self.is_up {
            let mut bytes = [0; PACKET_MAX];
            // Packets that come before the hello have no receiver.
            let _ = self.receive(&mut bytes);
        }
        if core::mem::take(&mut self.has_heard) {
            (self.heard_at, self.is_up) = (now, true);
        } else if self.is_up && now - self.heard_at >= GONE_AFTER {
            self.is_up = false;
            if !self.is_second {
                self.peer = None;
            }
        }
        if let Some(peer) = self.peer
            && now >= self.hello_at
        {
            self.hello_at = now + HELLO_EVERY;
            // A network that refuses is a link that is down.
            let _ = self.socket.send_to(HELLO, peer);
        }
        Ok(())
    }

    #[inline]
    pub(super) fn send(&mut self, packet: &[u8]) {
        if let Some(peer) = self.peer {
            // Packets that the kernel does not take are lost, as on any network.
            let _ = self.socket.send_to(packet, peer);
        }
    }

    #[inline]
    pub(super) fn receive(&mut self, packet: &mut [u8]) -> Option<usize> {
        for _ in 0..STRANGERS_MAX {
            if self.has_heard && !self.is_up {
                // Packets behind the first hello are for a card whose link is up.
                return None;
            }
            // Nothing has come, as a rule. A network that fails is a link that is down.
            let (length, from) = self.socket.recv_from(packet).ok()?;
            if self.peer.is_some_and(|peer| peer != from) {
                continue;
            }
            if packet[..length] == *HELLO {
                (self.peer, self.has_heard) = (Some(from), true);
                continue;
            }
            if self.peer.is_some() {
                self.has_heard = true;
                return Some(length);
            }
        }
        None
    }
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
