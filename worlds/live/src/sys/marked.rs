//! Datagrams with the marks of the network (ECN, RFC 3168), many by one system call.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::DerefMut;
use std::os::fd::AsRawFd;

use super::option::set_option;

/// The most datagrams of one call.
pub(crate) const BATCH_MAX: usize = 16;
/// The mark of a sender that understands marks, and that of a congested network.
pub(crate) const CAPABLE: libc::c_int = 0b10;
const CONGESTED: libc::c_int = 0b11;
/// Words of 8 bytes for the traffic class of one datagram.
const CONTROL_WORDS: usize = 4;

/// A datagram that was received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marked {
    /// Its length in bytes. Bytes that did not fit are cut off.
    pub(crate) length: usize,
    /// The sender.
    pub(crate) from: SocketAddr,
    /// Whether the network was congested.
    pub(crate) is_marked: bool,
}

/// Has a socket send datagrams with `mark`, and report the marks of received ones.
///
/// # Errors
/// When the system has no such options.
pub(crate) fn enable(socket: &impl AsRawFd, is_ipv6: bool, mark: libc::c_int) -> io::Result<()> {
    let (level, class, option) = match is_ipv6 {
        true => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_RECVTCLASS),
        false => (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_RECVTOS),
    };
    set_option(socket, level, class, mark)?;
    set_option(socket, level, option, 1)
}

/// Receives without waiting, one datagram for each of the first [`BATCH_MAX`] `places`.
///
/// # Errors
/// When there is nothing to receive, or the socket fails.
pub(crate) fn receive(
    socket: &impl AsRawFd,
    places: &mut [impl DerefMut<Target = [u8]>],
    arrived: &mut Vec<Marked>,
) -> io::Result<()> {
    // A poll asks for one datagram and mostly finds none: it does not prepare a table for many.
    match places.len() {
        0 | 1 => receive_up_to::<1>(socket, places, arrived),
        _ => receive_up_to::<BATCH_MAX>(socket, places, arrived),
    }
}

fn receive_up_to<const MAX: usize>(
    socket: &impl AsRawFd,
    places: &mut [impl DerefMut<Target = [u8]>],
    arrived: &mut Vec<Marked>,
) -> io::Result<()> {
    arrived.clear();
    let mut names = [[0_u64; size_of::<libc::sockaddr_in6>().div_ceil(8)]; MAX];
    let mut controls = [[0_u64; CONTROL_WORDS]; MAX];
    let count = places.len().min(MAX);
    let mut pieces: [libc::iovec; MAX] =
        std::array::from_fn(|_| libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 });
    for (piece, place) in pieces.iter_mut().zip(places) {
        let place = place.deref_mut();
        *piece = libc::iovec { iov_base: place.as_mut_ptr().cast(), iov_len: place.len() };
    }
    let mut headers: [libc::mmsghdr; MAX] = std::array::from_fn(|index| {
        // SAFETY: a message header of all zeroes is valid and names no buffers.
        let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        header.msg_hdr.msg_iov = &raw mut pieces[index];
        header.msg_hdr.msg_iovlen = 1;
        header.msg_hdr.msg_name = names[index].as_mut_ptr().cast();
        header.msg_hdr.msg_namelen = libc::socklen_t::try_from(size_of_val(&names[index])).unwrap_or(0);
        header.msg_hdr.msg_control = controls[index].as_mut_ptr().cast();
        header.msg_hdr.msg_controllen = size_of_val(&controls[index]);
        header
    });
    let wanted = u32::try_from(count).unwrap_or(0);
    // SAFETY: the first `count` headers name their own parts of `places`, `names` and `controls`,
    // with their lengths. All of them outlive the call, and nothing else uses them meanwhile.
    let count = unsafe {
        let (flags, forever) = (libc::MSG_DONTWAIT, std::ptr::null_mut());
        match &mut headers[..count] {
            // The call for one datagram is the shorter one.
            [one] => match libc::recvmsg(socket.as_raw_fd(), &raw mut one.msg_hdr, flags) {
                -1 => -1,
                length => {
                    one.msg_len = u32::try_from(length).unwrap_or(0);
                    1
                }
            },
            _ => libc::recvmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), wanted, flags as _, forever),
        }
    };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    for (header, name) in headers[..count].iter().zip(&names) {
        let from = sender(name)
            .ok_or_else(|| io::Error::other("a datagram arrived without its sender's address"))?;
        let is_marked = class(&header.msg_hdr) & CONGESTED == CONGESTED;
        arrived.push(Marked { length: header.msg_len as usize, from, is_marked });
    }
    Ok(())
}

/// The address that the kernel has put into `name`.
fn sender(name: &[u64]) -> Option<SocketAddr> {
    let name = name.as_ptr();
    // SAFETY: `name` is as long as an address of IPv6, of which one of IPv4 needs a part, and any
    // bytes are valid in both.
    unsafe {
        match libc::c_int::from(name.cast::<libc::sa_family_t>().read()) {
            libc::AF_INET => {
                let found = name.cast::<libc::sockaddr_in>().read();
                let address = Ipv4Addr::from(u32::from_be(found.sin_addr.s_addr));
                Some((address, u16::from_be(found.sin_port)).into())
            }
            libc::AF_INET6 => {
                let found = name.cast::<libc::sockaddr_in6>().read();
                let address = Ipv6Addr::from(found.sin6_addr.s6_addr);
                Some((address, u16::from_be(found.sin6_port)).into())
            }
            _ => None,
        }
    }
}

/// The traffic class that the kernel reports with a message; 0 if it reports none.
fn class(message: &libc::msghdr) -> libc::c_int {
    // SAFETY: the kernel has filled the control buffer that `message` names, and set its length.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: the pointer is null, or points to a header within the control buffer, which
    // is aligned.
    while let Some(found) = unsafe { header.as_ref() } {
        // SAFETY: `header` is within the message's control buffer.
        let data = unsafe { libc::CMSG_DATA(header) };
        match (found.cmsg_level, found.cmsg_type) {
            // SAFETY: a message of this type has a byte.
            (libc::IPPROTO_IP, libc::IP_TOS) => return unsafe { data.read() }.into(),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                // SAFETY: a message of this type has an integer of 32 bits.
                return unsafe { data.cast::<libc::c_int>().read_unaligned() };
            }
            // SAFETY: `header` is within the message's control buffer.
            _ => header = unsafe { libc::CMSG_NXTHDR(message, header) },
        }
    }
    0
}
