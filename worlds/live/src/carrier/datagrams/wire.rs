//! What carries datagrams: a UDP socket, or an interface.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};

use quinn_proto::Transmit;

use super::ethernet::{self, Ethernet};
use crate::carrier::quic::socket::{Look, Socket};
use crate::sys::station::{Came, Station};

/// The most frames received in one look.
const FRAMES_MAX: usize = 64;
/// Room for the longest frame.
const FRAME_BYTES: usize = 64 << 10;
/// The most bytes of a datagram over UDP: what IPv4 and IPv6 leave of 65,535.
const UDP_V4_MAX: usize = 65_507;
const UDP_V6_MAX: usize = 65_487;

/// What carries datagrams.
#[derive(Debug)]
pub(super) enum Wire {
    Udp(Box<Socket>),
    Ethernet { station: Station, place: Ethernet, room: Vec<u8> },
}

/// What a look has found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Nothing,
    Datagrams,
    /// The network says that nobody is at these addresses.
    Refused(Vec<SocketAddr>),
}

impl Wire {
    /// Opens the interface that `place` names.
    pub(super) fn at(place: Ethernet) -> io::Result<Self> {
        let station = Station::open(&place.interface, ethernet::ETHER_TYPE);
        let station = station.map_err(|error| explain(&place, &error))?;
        if let Some(priority) = place.priority {
            station.set_priority(priority)?;
        }
        Ok(Self::Ethernet { station, place, room: vec![0; FRAME_BYTES] })
    }

    /// The address of this end.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Udp(socket) => socket.address(),
            Self::Ethernet { station, .. } => Ok(ethernet::link_local(station.mac(), station.index())),
        }
    }

    /// The address of the station that is called `address` at any interface, at this one.
    pub(super) fn reached(&self, address: SocketAddr) -> SocketAddr {
        match (self, ethernet::station(address)) {
            (Self::Ethernet { station, .. }, Some(mac)) => ethernet::link_local(mac, station.index()),
            _ => address,
        }
    }

    /// Where this end is: `HOST:PORT`, or `IFACE[,vlan=N][,pcp=N]/MAC`.
    pub(super) fn name(&self) -> io::Result<String> {
        Ok(match self {
            Self::Udp(socket) => socket.address()?.to_string(),
            Self::Ethernet { station, place, .. } => format!("{place}/{}", ethernet::mac_text(station.mac())),
        })
    }

    /// The most bytes of a datagram.
    pub(super) fn datagram_max(&self) -> usize {
        match self {
            // The longest that pass can be found out only if nobody takes them to pieces.
            Self::Udp(socket) if !socket.keeps_whole() => datagrams::MEETING_BYTES,
            Self::Udp(socket) if socket.address().is_ok_and(|own| own.is_ipv4()) => UDP_V4_MAX,
            Self::Udp(_) => UDP_V6_MAX,
            Self::Ethernet { station, .. } => station.mtu(),
        }
    }

    /// The most datagrams of equal length that one send takes.
    pub(super) fn segments(&self) -> usize {
        match self {
            Self::Udp(socket) => socket.segments(),
            Self::Ethernet { .. } => 1,
        }
    }

    /// Hands what has come to `each`.
    pub(super) fn look(&mut self, mut each: impl FnMut(SocketAddr, &[u8])) -> io::Result<Seen> {
        match self {
            Self::Udp(socket) => match socket.look()? {
                Look::Nothing => Ok(Seen::Nothing),
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
            Self::Ethernet { station, place, room } => {
                let mut seen = Seen::Nothing;
                for _ in 0..FRAMES_MAX {
                    match station.receive(room) {
                        Ok(Came::Nothing) => break,
                        Ok(Came::Frame(frame)) if place.admits(frame.vlan) => {
                            let from = ethernet::link_local(frame.from, station.index());
                            each(from, &room[..frame.length]);
                        }
                        Ok(Came::Frame(_) | Came::Other) => {}
                        // The interface is down, and may come up again.
                        Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => break,
                        Err(error) => return Err(explain(place, &error)),
                    }
                    seen = Seen::Datagrams;
                }
                Ok(seen)
            }
        }
    }

    /// Sends `bytes`, which are datagrams of `length` bytes, to `to`. Returns whether the system
    /// took them; what it loses counts as taken.
    pub(super) fn send(&self, to: SocketAddr, bytes: &[u8], length: usize) -> bool {
        match self {
            Self::Udp(socket) => {
                let segment_size = (bytes.len() > length).then_some(length);
                let (destination, size) = (to, bytes.len());
                let transmit = Transmit { destination, ecn: None, size, segment_size, src_ip: None };
                socket.send(&transmit, bytes)
            }
            Self::Ethernet { station, place, .. } => {
                let Some(mac) = ethernet::station(to) else { return true };
                let sent = station.send(mac, place.tag(), bytes);
                !sent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            }
        }
    }
}

impl AsRawFd for Wire {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Udp(socket) => socket.as_raw_fd(),
            Self::Ethernet { station, .. } => station.as_raw_fd(),
        }
    }
}

fn explain(place: &Ethernet, error: &io::Error) -> io::Error {
    let why = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "bare frames need the capability CAP_NET_RAW: run as root, or with setcap cap_net_raw+ep"
                .to_owned()
        }
        _ => error.to_string(),
    };
    io::Error::new(error.kind(), format!("{}: {why}", place.interface))
}
