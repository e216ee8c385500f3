//! The socket of a device: how it is opened, and how datagrams leave by it.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};

use rustix::net::addr::SocketAddrArg;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg, sendmsg_addr, sendto, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

use super::PORT;
use crate::sys::marked::{self, BATCH_MAX};
use crate::sys::option::set_option;
use crate::sys::precedence::{Precedence, set_priority};

/// How many bytes of datagrams may wait in the kernel. The system limits this
/// (`net.core.rmem_max`).
const KERNEL_BYTES: usize = 8 << 20;
/// Up to this many datagrams leave one by one: the first is under way before the next is looked at.
const FEW: usize = 2;
/// The pieces of a datagram of this length are put together: the kernel takes one piece sooner.
const SHORT: usize = 256;
/// `setsockopt` of UDP: take datagrams over IPv6 that have no checksum, as `rdma_rxe` sends them.
const UDP_NO_CHECK6_RX: libc::c_int = 102;
/// The kernel's errors when a datagram did not leave. It is lost then, as any datagram may be.
const LOST: [i32; 8] = [
    libc::ECONNREFUSED,
    libc::EHOSTUNREACH,
    libc::EHOSTDOWN,
    libc::ENETUNREACH,
    libc::ENETDOWN,
    libc::EMSGSIZE,
    libc::ENOBUFS,
    libc::EPERM,
];

/// A socket at `address` that takes no right, unless `precedence` does.
pub(super) fn open(address: SocketAddr, precedence: Precedence) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    match address.ip() {
        IpAddr::V4(_) => {
            set_option(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
        }
        IpAddr::V6(_) => {
            set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)?;
            set_option(&socket, libc::IPPROTO_UDP, UDP_NO_CHECK6_RX, 1)?;
        }
    }
    marked::enable(&socket, address.is_ipv6(), precedence.byte(marked::CAPABLE))?;
    if let Some(priority) = precedence.priority {
        set_priority(&socket, priority)?;
    }
    socket.bind(&address.into()).map_err(|error| taken(error, address))?;
    socket.set_nonblocking(true)?;
    // Privileged processes get the full size, others as much as the system allows.
    if sockopt::set_socket_recv_buffer_size_force(&socket, KERNEL_BYTES).is_err() {
        let _ = socket.set_recv_buffer_size(KERNEL_BYTES);
    }
    let _ = socket.set_send_buffer_size(KERNEL_BYTES);
    Ok(socket)
}

/// Names the programs that may have the port, if it is taken.
fn taken(error: io::Error, address: SocketAddr) -> io::Error {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let why = format!(
                "UDP port {PORT} of {} is taken: one program at a time has RoCE there, the kernel's rdma_rxe \
                 included; use another address",
                address.ip()
            );
            io::Error::new(io::ErrorKind::AddrInUse, why)
        }
        _ => error,
    }
}

/// Sends the first of the waiting datagrams, of which there is at least one. Returns whether the
/// kernel has taken any.
pub(super) fn send(socket: &Socket, waiting: &mut VecDeque<roce::Datagram>) -> io::Result<bool> {
    // Nearly always there is one datagram, or one and an acknowledgement.
    let sent = match waiting.front().filter(|_| waiting.len() <= FEW) {
        Some(first) => send_one(socket, first),
        None => send_batch(socket, waiting),
    };
    match sent {
        Ok(count) => {
            waiting.drain(..count);
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) if is_loss(&error) => {
            waiting.pop_front();
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

/// Sends a datagram. Returns that one has left.
fn send_one(socket: &Socket, datagram: &roce::Datagram) -> io::Result<usize> {
    let pieces = datagram.slices();
    let length = datagram.len();
    if length <= SHORT {
        let mut bytes = [0; SHORT];
        let mut at = 0;
        for piece in pieces {
            bytes[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        sendto(socket, &bytes[..length], SendFlags::empty(), &datagram.to)?;
    } else {
        let pieces = pieces.map(IoSlice::new);
        let mut control = SendAncillaryBuffer::default();
        sendmsg_addr(socket, &datagram.to, &pieces, &mut control, SendFlags::empty())?;
    }
    Ok(1)
}

/// Sends the first of the datagrams by one call. Returns how many have left.
fn send_batch(socket: &Socket, waiting: &VecDeque<roce::Datagram>) -> io::Result<usize> {
    let pieces: [_; BATCH_MAX] = std::array::from_fn(|index| {
        let slices = waiting.get(index).map_or([&[][..]; 3], roce::Datagram::slices);
        slices.map(IoSlice::new)
    });
    let to: [_; BATCH_MAX] = std::array::from_fn(|index| waiting.get(index).map(|one| one.to.as_any()));
    let mut controls: [_; BATCH_MAX] = std::array::from_fn(|_| SendAncillaryBuffer::default());
    let mut index = 0;
    let mut messages = controls.each_mut().map(|control| {
        let at = index;
        index += 1;
        match &to[at] {
            Some(to) => MMsgHdr::new_with_addr(to, &pieces[at], control),
            None => MMsgHdr::new(&[], control),
        }
    });
    let count = waiting.len().min(BATCH_MAX);
    Ok(sendmmsg(socket, &mut messages[..count], SendFlags::empty())?)
}

/// Whether an error means that a datagram was lost.
pub(super) fn is_loss(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| LOST.contains(&code))
}
