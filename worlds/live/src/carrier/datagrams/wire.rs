//! The carrier of datagrams: a UDP socket, or an interface.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};

use engine::Instant;
use quinn_proto::Transmit;

use super::ethernet::Ethernet;
use super::frames::Frames;
use super::info::{Copies, Path};
use super::launching::Launching;
use super::options::Options;
use crate::carrier::quic::socket::{Look, Socket};

/// The most bytes of a datagram over UDP: the rest of 65,535 after the headers of IPv4 or IPv6.
const UDP_V4_MAX: usize = 65_507;
const UDP_V6_MAX: usize = 65_487;
/// The same where datagrams have times of launch: the most that fits one Ethernet frame. A datagram
/// in pieces would leave in one go.
const LAUNCHED_MAX: usize = 1_452;
/// Bytes of the headers of UDP and IPv6, the longer ones.
const UDP_HEADERS: u64 = 48;

/// The carrier of datagrams.
#[derive(Debug)]
pub(super) enum Wire {
    Udp { socket: Box<Socket>, launching: Option<Launching> },
    Ethernet(Box<Frames>),
}

/// The result of a look.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Nothing,
    Datagrams,
    /// The network reports these addresses as unreachable.
    Refused(Vec<SocketAddr>),
}

impl Wire {
    /// Listens at a UDP port for many peers, or is connected to one.
    pub(super) fn udp(address: SocketAddr, is_peer: bool, options: &Options) -> io::Result<Self> {
        let socket = match is_peer {
            true => Socket::connect(address, options.precedence)?,
            false => Socket::bind(address, options.precedence)?,
        };
        let launching = options.launch.as_ref();
        let launching = launching
            .map(|launch| Launching::new(launch, std::iter::once(&socket), LAUNCHED_MAX, UDP_HEADERS))
            .transpose()?;
        Ok(Self::Udp { socket: Box::new(socket), launching })
    }

    /// Opens the interfaces that `place` names.
    pub(super) fn at(place: Ethernet, options: &Options) -> io::Result<Self> {
        Ok(Self::Ethernet(Box::new(Frames::open(place, options)?)))
    }

    /// Has packets for `receiver`, or for the dialled peer, go around the network stack, where that
    /// is wanted and possible.
    pub(super) fn open_lane(&mut self, receiver: Option<[u8; 8]>) {
        if let Self::Ethernet(frames) = self {
            frames.open_lane(receiver);
        }
    }

    /// The address of this end.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Udp { socket, .. } => socket.address(),
            Self::Ethernet(frames) => Ok(frames.address()),
        }
    }

    /// The address of the station that is called `address` at any interface, at this one.
    pub(super) fn reached(&self, address: SocketAddr) -> SocketAddr {
        match self {
            Self::Udp { .. } => address,
            Self::Ethernet(frames) => frames.reached(address),
        }
    }

    /// Which far end at an address: UDP has ports of its own for that.
    pub(super) const fn port(&self) -> u16 {
        match self {
            Self::Udp { .. } => 0,
            Self::Ethernet(frames) => frames.port(),
        }
    }

    /// Keeps other processes from this end's place, which dials `peer` or is to be dialled.
    ///
    /// # Errors
    /// When another process has it.
    pub(super) fn claim(&mut self, peer: Option<SocketAddr>) -> io::Result<()> {
        match self {
            Self::Udp { .. } => Ok(()),
            Self::Ethernet(frames) => frames.claim(peer),
        }
    }

    /// Gives up the places at peers that are not `known` any more.
    pub(super) fn keep_peers(&mut self, known: impl Fn(SocketAddr) -> bool) {
        match self {
            Self::Udp { .. } => {}
            Self::Ethernet(frames) => frames.keep_peers(known),
        }
    }

    /// Where this end is: `HOST:PORT`, or `IFACE[+IFACE][,vlan=N][,pcp=N][,port=N]/MAC`.
    pub(super) fn name(&self) -> io::Result<String> {
        Ok(match self {
            Self::Udp { socket, .. } => socket.address()?.to_string(),
            Self::Ethernet(frames) => frames.name(),
        })
    }

    /// The carrier of the datagrams, in words.
    pub(super) fn carried_by(&self) -> String {
        match self {
            Self::Udp { .. } => "UDP".to_owned(),
            Self::Ethernet(frames) => frames.carried_by(),
        }
    }

    /// The interfaces of bare frames with the counts of `peer`'s frames, and where there are
    /// several, the counts of all together.
    pub(super) fn paths(&self, peer: SocketAddr) -> (Vec<Path>, Option<Copies>) {
        match self {
            Self::Udp { .. } => (Vec::new(), None),
            Self::Ethernet(frames) => frames.paths(peer),
        }
    }

    /// How many datagrams have missed their times of launch.
    pub(super) fn missed(&self) -> u64 {
        match self {
            Self::Udp { launching, .. } => launching.as_ref().map_or(0, Launching::missed),
            Self::Ethernet(frames) => frames.missed(),
        }
    }

    /// Whether these were interfaces, and all are gone. None of them comes back to these sockets.
    pub(super) fn is_gone(&self) -> bool {
        match self {
            Self::Udp { .. } => false,
            Self::Ethernet(frames) => frames.is_gone(),
        }
    }

    /// Whether all interfaces are down or gone, as far as that was noticed.
    pub(super) fn is_down(&self) -> bool {
        match self {
            Self::Udp { .. } => false,
            Self::Ethernet(frames) => frames.is_down(),
        }
    }

    /// Whether interfaces are waited for. Nothing wakes a thread that waits for them to come up, to
    /// go away, or to be made anew.
    pub(super) fn is_waiting(&self) -> bool {
        match self {
            Self::Udp { .. } => false,
            Self::Ethernet(frames) => frames.is_waiting(),
        }
    }

    /// The most bytes of a datagram.
    pub(super) fn datagram_max(&self) -> usize {
        match self {
            // The longest datagram that passes can be found only if none is fragmented.
            Self::Udp { launching: Some(_), .. } => LAUNCHED_MAX,
            Self::Udp { socket, .. } if !socket.keeps_whole() => datagrams::MEETING_BYTES,
            Self::Udp { socket, .. } if socket.address().is_ok_and(|own| own.is_ipv4()) => UDP_V4_MAX,
            Self::Udp { .. } => UDP_V6_MAX,
            Self::Ethernet(frames) => frames.datagram_max(),
        }
    }

    /// The most datagrams of equal length that one send takes.
    pub(super) fn segments(&self) -> usize {
        match self {
            Self::Udp { socket, launching: None } => socket.segments(),
            Self::Udp { .. } => 1,
            Self::Ethernet(frames) => frames.segments(),
        }
    }

    /// Hands each received datagram to `each`.
    pub(super) fn look(&mut self, now: Instant, mut each: impl FnMut(SocketAddr, &[u8])) -> io::Result<Seen> {
        match self {
            Self::Udp { socket, launching } => match socket.look()? {
                Look::Nothing => {
                    if let Some(launching) = launching {
                        launching.heed(&**socket);
                    }
                    Ok(Seen::Nothing)
                }
                Look::Pieces(count) => {
                    for index in 0..count {
                        let piece = socket.piece(index);
                        let length = piece.meta.stride.max(1);
                        piece.bytes.chunks(length).for_each(|datagram| each(piece.meta.addr, datagram));
                    }
                    Ok(Seen::Datagrams)
                }
                Look::Undelivered { refused } => Ok(Seen::Refused(match socket.peer() {
                    Some(peer) => refused.then_some(peer).into_iter().collect(),
                    None => socket.refused(),
                })),
            },
            Self::Ethernet(frames) => {
                Ok(if frames.look(now, each)? { Seen::Datagrams } else { Seen::Nothing })
            }
        }
    }

    /// Sends `bytes`, which are datagrams of `length` bytes, to `to`. Returns how many bytes the
    /// system took; bytes that it loses count as taken.
    pub(super) fn send(&mut self, to: SocketAddr, bytes: &[u8], length: usize) -> usize {
        match self {
            Self::Udp { socket, launching } => {
                let segment_size = (bytes.len() > length).then_some(length);
                let (destination, size) = (to, bytes.len());
                let transmit = Transmit { destination, ecn: None, size, segment_size, src_ip: None };
                let launch = launching.as_mut().map(|launching| launching.next(bytes.len()));
                if socket.send(&transmit, bytes, launch) { bytes.len() } else { 0 }
            }
            Self::Ethernet(frames) => frames.send(to, bytes, length),
        }
    }
}

impl AsRawFd for Wire {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Udp { socket, .. } => socket.as_raw_fd(),
            Self::Ethernet(frames) => frames.as_raw_fd(),
        }
    }
}
