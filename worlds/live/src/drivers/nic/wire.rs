//! The wire between two cards: shared memory of one machine, UDP, Ethernet, or a wire back to the
//! card itself.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::str::FromStr;

use engine::Instant;

use super::eth::Eth;
use super::loopback::Loopback;
use super::shm::Shm;
use super::udp::Udp;
use crate::sys::address::Place;
use crate::sys::unix::BindError;

/// Where a wire is. Both ends name the same place; over Ethernet, each names its own interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireUrl {
    /// Memory that two processes of this machine share; they meet at this Unix socket.
    Shm(PathBuf),
    /// UDP. The end whose address this is waits for the other.
    Udp(SocketAddr),
    /// The cable of this interface.
    Eth(String),
    /// A wire that leads back to the card.
    Loopback,
}

impl FromStr for WireUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("shm", path)) if !path.is_empty() => Ok(Self::Shm(path.into())),
            Some(("udp", address)) => {
                let wrong = |why| format!("{address:?}: {why}; expected a wire such as udp:127.0.0.1:4440");
                let Place(address) = address.parse().map_err(wrong)?;
                // Both ends are given this address, and would never meet there.
                match address.ip().is_unspecified() || address.port() == 0 {
                    true => Err(format!(
                        "no peer can send to {address}; expected an address and a port of one of both ends"
                    )),
                    false => Ok(Self::Udp(address)),
                }
            }
            Some(("eth", name)) if !name.is_empty() && !name.contains(['/', ',', '+']) => {
                Ok(Self::Eth(name.to_owned()))
            }
            Some(("loop", "")) => Ok(Self::Loopback),
            _ => Err("expected a wire: shm:PATH, udp:ADDRESS:PORT, eth:IFACE or loop:".to_owned()),
        }
    }
}

impl fmt::Display for WireUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shm(path) => write!(f, "shm:{}", path.display()),
            Self::Udp(address) => write!(f, "udp:{address}"),
            Self::Eth(interface) => write!(f, "eth:{interface}"),
            Self::Loopback => f.write_str("loop:"),
        }
    }
}

/// Why a wire can't be used.
#[derive(Debug)]
pub enum WireError {
    /// The socket at which two processes meet can't be made.
    Bind(BindError),
    /// The system refused.
    Io(io::Error),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for WireError {}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// One end of a wire, for a card to be put at. Its calls never block.
#[derive(Debug)]
pub struct Wire(Kind);

#[derive(Debug)]
enum Kind {
    Shm(Box<Shm>),
    Udp(Udp),
    Eth(Eth),
    Loopback(Loopback),
}

impl Wire {
    /// An end of the wire at `url`, whose other end may come later.
    ///
    /// # Errors
    /// When the place can't be used.
    pub fn open(url: &WireUrl) -> Result<Self, WireError> {
        Ok(Self(match url {
            WireUrl::Shm(path) => Kind::Shm(Box::new(Shm::open(path.clone())?)),
            WireUrl::Udp(address) => Kind::Udp(Udp::open(*address)?),
            WireUrl::Eth(interface) => Kind::Eth(Eth::open(interface)?),
            WireUrl::Loopback => Kind::Loopback(Loopback::open()?),
        }))
    }

    /// Whether the other end is there.
    pub(super) const fn is_up(&self) -> bool {
        match &self.0 {
            Kind::Shm(shm) => shm.is_up(),
            Kind::Udp(udp) => udp.is_up(),
            Kind::Eth(eth) => eth.is_up(),
            Kind::Loopback(_) => true,
        }
    }

    /// The MTU of the interface whose cable this is; `None` for any other wire.
    pub(super) fn mtu(&self) -> Option<usize> {
        match &self.0 {
            Kind::Eth(eth) => eth.mtu(),
            Kind::Shm(_) | Kind::Udp(_) | Kind::Loopback(_) => None,
        }
    }

    /// Looks whether the other end has come or gone. Costs system calls: call it now and then.
    ///
    /// # Errors
    /// When the place can't be used any more.
    pub(super) fn tend(&mut self, now: Instant) -> Result<(), WireError> {
        match &mut self.0 {
            Kind::Shm(shm) => shm.tend(now),
            Kind::Udp(udp) => Ok(udp.tend(now)?),
            Kind::Eth(eth) => Ok(eth.tend(now)?),
            Kind::Loopback(_) => Ok(()),
        }
    }

    /// Whether there is room for a packet. Nothing may be sent while there is none.
    #[inline]
    pub(super) fn has_room(&mut self) -> bool {
        match &mut self.0 {
            Kind::Shm(shm) => shm.has_room(),
            Kind::Udp(_) | Kind::Eth(_) => true,
            Kind::Loopback(wire) => wire.has_room(),
        }
    }

    /// Says that this end is about to sleep until its descriptor has news, or sleeps no more. After
    /// the announcement, the end must look for packets once more before it waits: one that came
    /// before the other end could see this wakes no thread.
    pub(super) fn sleep(&mut self, asleep: bool) {
        match &mut self.0 {
            Kind::Shm(shm) => shm.sleep(asleep),
            // The kernel wakes a thread that waits for a datagram or a frame.
            Kind::Udp(_) | Kind::Eth(_) | Kind::Loopback(_) => {}
        }
    }

    /// Wakes the other end if it sleeps and something was sent to it.
    #[inline]
    pub(super) fn wake(&mut self) {
        match &mut self.0 {
            Kind::Shm(shm) => shm.wake(),
            Kind::Udp(_) | Kind::Eth(_) | Kind::Loopback(_) => {}
        }
    }

    /// Sends a packet.
    #[inline]
    pub(super) fn send(&mut self, packet: &[u8]) {
        match &mut self.0 {
            Kind::Shm(shm) => shm.send(packet),
            Kind::Udp(udp) => udp.send(packet),
            Kind::Eth(eth) => eth.send(packet),
            Kind::Loopback(wire) => wire.send(packet),
        }
    }

    /// Takes the next packet, into the beginning of `packet`, which has [`ROOM`](super::shm::ROOM)
    /// bytes; returns its length. A packet may come in parts: until it is whole, `packet` must be
    /// the same and keep its bytes.
    #[inline]
    pub(super) fn receive(&mut self, packet: &mut [u8]) -> Option<usize> {
        match &mut self.0 {
            Kind::Shm(shm) => shm.receive(packet),
            Kind::Udp(udp) => udp.receive(packet),
            Kind::Eth(eth) => eth.receive(packet),
            Kind::Loopback(wire) => wire.receive(packet),
        }
    }
}

/// The descriptor that becomes readable when something has come for an end that sleeps.
impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Kind::Shm(shm) => shm.as_fd(),
            Kind::Udp(udp) => udp.as_fd(),
            Kind::Eth(eth) => eth.as_fd(),
            Kind::Loopback(wire) => wire.as_fd(),
        }
    }
}
