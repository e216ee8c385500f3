//! A UDP socket that never waits. It moves many datagrams in one call and reports closed ports.

use std::cell::Cell;
use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};

use engine::Nanos;
use quinn_proto::{EcnCodepoint, Transmit};
use quinn_udp::{RecvMeta, UdpSocketState};
use rustix::net::sockopt;
use socket2::{Domain, Protocol, SockAddr, Socket as Raw, Type};

use crate::sys::option::set_option;
use crate::sys::outgoing::{self, About};
use crate::sys::precedence::Precedence;

/// The most pieces received in one call, and the room in bytes for each. Datagrams that follow each
/// other from one sender form one piece.
const PIECES: usize = 4;
const PIECE_BYTES: usize = 64 << 10;
/// How many bytes of datagrams may wait in the kernel. The system limits this
/// (`net.core.rmem_max`).
const KERNEL_BYTES: usize = 8 << 20;
/// The most datagrams sent in one call. Each is shorter than 1500 bytes, and all together are no
/// longer than the longest datagram.
pub(in crate::carrier) const SEGMENTS_MAX: usize = 32;
/// The most reports of lost datagrams that are read in one call.
const REPORTS_MAX: usize = 64;
/// Room for one report, in words of 8 bytes.
const CONTROL_WORDS: usize = 64;

/// Datagrams received from one sender.
#[derive(Debug)]
pub(in crate::carrier) struct Piece<'a> {
    pub(in crate::carrier) meta: RecvMeta,
    /// The datagrams one after another, of `meta.stride` bytes each; the last may be shorter.
    pub(in crate::carrier) bytes: &'a [u8],
}

impl Piece<'_> {
    pub(in crate::carrier) fn ecn(&self) -> Option<EcnCodepoint> {
        EcnCodepoint::from_bits(self.meta.ecn? as u8)
    }
}

/// The result of a look at the socket.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::carrier) enum Look {
    Nothing,
    /// This many pieces have come.
    Pieces(usize),
    /// The network did not deliver a datagram; `refused` if the port is closed. More may be
    /// waiting.
    Undelivered {
        refused: bool,
    },
}

/// The errors with which the system reports datagrams that the network did not deliver
/// (`icmp_err_convert`, `icmpv6_err_convert`). Each receiver of a datagram can bring them about.
const UNDELIVERED: [i32; 10] = [
    libc::EACCES,
    libc::ECONNREFUSED,
    libc::EHOSTDOWN,
    libc::EHOSTUNREACH,
    libc::EMSGSIZE,
    libc::ENETUNREACH,
    libc::ENONET,
    libc::ENOPROTOOPT,
    libc::EOPNOTSUPP,
    libc::EPROTO,
];

/// A UDP socket that never waits, for one peer or for many.
#[derive(Debug)]
pub(in crate::carrier) struct Socket {
    socket: UdpSocket,
    state: UdpSocketState,
    /// The peer of a socket that has only one.
    peer: Option<SocketAddr>,
    buffer: Vec<u8>,
    metas: [RecvMeta; PIECES],
    /// A send has returned that an earlier datagram was refused.
    refused: Cell<bool>,
    precedence: Precedence,
    /// The mark of RFC 3168 that the socket puts on packets by itself.
    ecn: Cell<libc::c_int>,
}

impl Socket {
    /// Makes a socket for many peers.
    pub(in crate::carrier) fn bind(address: SocketAddr, precedence: Precedence) -> io::Result<Self> {
        let socket = Raw::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        socket.bind(&address.into())?;
        report_refusals(&socket, address)?;
        Self::new(socket, None, precedence)
    }

    /// Makes a socket for one peer.
    pub(in crate::carrier) fn connect(peer: SocketAddr, precedence: Precedence) -> io::Result<Self> {
        let socket = Raw::new(Domain::for_address(peer), Type::DGRAM, Some(Protocol::UDP))?;
        let any = match peer {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        socket.bind(&any.into())?;
        socket.connect(&peer.into())?;
        Self::new(socket, Some(peer), precedence)
    }

    fn new(socket: Raw, peer: Option<SocketAddr>, precedence: Precedence) -> io::Result<Self> {
        precedence.apply(&socket)?;
        // Privileged processes get the full size, others as much as the system allows.
        if sockopt::set_socket_recv_buffer_size_force(&socket, KERNEL_BYTES).is_err() {
            let _ = socket.set_recv_buffer_size(KERNEL_BYTES);
        }
        let _ = socket.set_send_buffer_size(KERNEL_BYTES);
        let socket = UdpSocket::from(socket);
        let state = UdpSocketState::new((&socket).into())?;
        let buffer = vec![0; PIECES * PIECE_BYTES];
        let metas = [RecvMeta::default(); PIECES];
        let (refused, ecn) = (Cell::new(false), Cell::new(0));
        Ok(Self { socket, state, peer, buffer, metas, refused, precedence, ecn })
    }

    pub(in crate::carrier) fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The peer of a socket that has only one.
    pub(in crate::carrier) const fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Whether the system does not fragment datagrams, so that the longest that pass can be
    /// found out.
    pub(in crate::carrier) fn keeps_whole(&self) -> bool {
        !self.state.may_fragment()
    }

    /// The most datagrams that one call may send.
    pub(in crate::carrier) fn segments(&self) -> usize {
        self.state.max_gso_segments().min(SEGMENTS_MAX)
    }

    /// Receives waiting datagrams, to be read by [`Socket::piece`].
    ///
    /// # Errors
    /// When the socket fails for a reason other than the network.
    pub(in crate::carrier) fn look(&mut self) -> io::Result<Look> {
        if self.refused.take() {
            return Ok(Look::Undelivered { refused: true });
        }
        let mut rest = self.buffer.chunks_exact_mut(PIECE_BYTES);
        let mut slices: [IoSliceMut<'_>; PIECES] = std::array::from_fn(|_| {
            IoSliceMut::new(rest.next().expect("the buffer has room for all pieces"))
        });
        match self.state.recv((&self.socket).into(), &mut slices, &mut self.metas) {
            Ok(count) => Ok(Look::Pieces(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Look::Nothing),
            Err(error) => match error.raw_os_error() {
                Some(code) if UNDELIVERED.contains(&code) => {
                    Ok(Look::Undelivered { refused: code == libc::ECONNREFUSED })
                }
                _ => Err(error),
            },
        }
    }

    /// One of the pieces of the latest look.
    pub(in crate::carrier) fn piece(&self, index: usize) -> Piece<'_> {
        let meta = self.metas[index];
        let start = index * PIECE_BYTES;
        Piece { meta, bytes: &self.buffer[start..start + meta.len.min(PIECE_BYTES)] }
    }

    /// Sends one or more datagrams, at once or at `launch`. Returns whether the system took them; a
    /// datagram that it lost counts as taken.
    pub(in crate::carrier) fn send(&self, transmit: &Transmit, bytes: &[u8], launch: Option<Nanos>) -> bool {
        let is_plain = self.precedence.is_none() && launch.is_none();
        // An earlier refusal is reported by the next call of any kind, which then does
        // nothing else.
        for _ in 0..2 {
            let sent = match is_plain {
                true => self.send_plainly(transmit, bytes),
                false => self.send_first(transmit, bytes, launch),
            };
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => self.refused.set(true),
                _ => return true,
            }
        }
        true
    }

    /// Sends with the precedence and at the time that were asked for. The library can't: it gives
    /// each datagram a traffic class, which hides that of the socket and its priority.
    fn send_first(&self, transmit: &Transmit, bytes: &[u8], launch: Option<Nanos>) -> io::Result<()> {
        let ecn = transmit.ecn.map_or(0, |ecn| libc::c_int::from(ecn as u8));
        if self.ecn.get() != ecn {
            self.precedence.apply_with(&self.socket, ecn)?;
            self.ecn.set(ecn);
        }
        let to = Some(transmit.destination);
        let about = About { to, segment: transmit.segment_size, launch };
        let bytes = &bytes[..transmit.size];
        match (outgoing::send(&self.socket, &[bytes], about), about.segment) {
            // Some interfaces do not take segments.
            (Err(error), Some(length)) if error.raw_os_error() == Some(libc::EIO) => {
                let about = About { segment: None, ..about };
                bytes.chunks(length).try_for_each(|one| outgoing::send(&self.socket, &[one], about))
            }
            (result, _) => result,
        }
    }

    fn send_plainly(&self, transmit: &Transmit, bytes: &[u8]) -> io::Result<()> {
        let transmit = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: transmit.ecn.and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
            contents: &bytes[..transmit.size],
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        };
        self.state.try_send((&self.socket).into(), &transmit)
    }

    /// For a socket with many peers: the addresses to which datagrams were sent in vain.
    pub(in crate::carrier) fn refused(&self) -> Vec<SocketAddr> {
        let mut refused = Vec::new();
        while refused.len() < REPORTS_MAX {
            match read_report(&self.socket) {
                Some(Report::Refused(address)) => refused.push(address),
                Some(Report::Other) => {}
                None => break,
            }
        }
        refused
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Makes the kernel keep the network's reports of undelivered datagrams, with the addresses to
/// which they were sent.
fn report_refusals(socket: &Raw, address: SocketAddr) -> io::Result<()> {
    let (level, option) = match address {
        SocketAddr::V4(_) => (libc::SOL_IP, libc::IP_RECVERR),
        SocketAddr::V6(_) => (libc::SOL_IPV6, libc::IPV6_RECVERR),
    };
    set_option(socket, level, option, 1)
}

/// The network's report about one datagram.
enum Report {
    Refused(SocketAddr),
    Other,
}

/// Takes the next report, if there is one.
fn read_report(socket: &UdpSocket) -> Option<Report> {
    let mut control = [0_u64; CONTROL_WORDS];
    let mut taken = 0;
    // SAFETY: the closure fills in the bytes that the call writes at `storage` and their length,
    // and nothing else.
    let read = unsafe {
        SockAddr::try_init(|storage, length| {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_name = storage.cast();
            message.msg_namelen = *length;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control);
            let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
            if libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) < 0 {
                return Err(io::Error::last_os_error());
            }
            *length = message.msg_namelen;
            taken = message.msg_controllen;
            Ok(())
        })
    };
    let ((), address) = read.ok()?;
    match (refusal(&mut control, taken), address.as_socket()) {
        (true, Some(address)) => Some(Report::Refused(address)),
        _ => Some(Report::Other),
    }
}

/// Whether the report says that the port is closed.
fn refusal(control: &mut [u64], length: usize) -> bool {
    // SAFETY: a message header of zeroes says that there is nothing.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = length.min(size_of_val(control));
    // SAFETY: the header names the control buffer with its length.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // SAFETY: it is null or points to a header within that buffer, which is aligned for it.
    while let Some(this) = unsafe { header.as_ref() } {
        let kind = (this.cmsg_level, this.cmsg_type);
        if kind == (libc::SOL_IP, libc::IP_RECVERR) || kind == (libc::SOL_IPV6, libc::IPV6_RECVERR) {
            // SAFETY: a message of this type has one `sock_extended_err` behind its header.
            let error: libc::sock_extended_err =
                unsafe { libc::CMSG_DATA(header).cast::<libc::sock_extended_err>().read_unaligned() };
            return i32::try_from(error.ee_errno) == Ok(libc::ECONNREFUSED);
        }
        // SAFETY: both are of the same control buffer.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_icmp_reports_is_no_failure_of_the_socket() {
        // Linux, net/ipv4/icmp.c: `icmp_err_convert` and `udp_err`.
        let of_icmp = [
            libc::ENETUNREACH,
            libc::EHOSTUNREACH,
            libc::ENOPROTOOPT,
            libc::ECONNREFUSED,
            libc::EMSGSIZE,
            libc::EOPNOTSUPP,
            libc::EHOSTDOWN,
            libc::ENONET,
            libc::EPROTO,
        ];
        // Linux, net/ipv6/icmp.c: `tab_unreach` and `icmpv6_err_convert`.
        let of_icmpv6 = [
            libc::ENETUNREACH,
            libc::EACCES,
            libc::EHOSTUNREACH,
            libc::ECONNREFUSED,
            libc::EMSGSIZE,
            libc::EPROTO,
        ];
        for error in of_icmp.into_iter().chain(of_icmpv6) {
            assert!(UNDELIVERED.contains(&error), "{}", io::Error::from_raw_os_error(error));
        }
    }
}
