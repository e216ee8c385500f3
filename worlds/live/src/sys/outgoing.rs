//! A message that leaves by one system call, with its options for the kernel (`sendmsg(2)`).

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use engine::Nanos;
use socket2::SockAddr;

use super::option::set_option;

/// The most messages of one system call.
const BATCH_MAX: usize = 32;
/// Words of 8 bytes for the size of segments and the time of launch.
const CONTROL_WORDS: usize = 8;
/// The option that lets messages have a time of launch (`asm-generic/socket.h`); a message of the
/// same number has the time.
const SO_TXTIME: libc::c_int = 61;
/// Reports messages that missed their time (`linux/net_tstamp.h`).
const REPORT_ERRORS: u32 = 2;
/// The origin of such a report (`linux/errqueue.h`).
const ORIGIN_LAUNCH: u8 = 6;
/// Room for one report, in words of 8 bytes.
const REPORT_WORDS: usize = 64;

/// The options of a message for the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct About {
    /// The address of the receiver. Sockets for frames have it in the frame.
    pub(crate) to: Option<SocketAddr>,
    /// The length of the datagrams of which a message over UDP consists; the last may be shorter.
    pub(crate) segment: Option<usize>,
    /// When the message leaves, by CLOCK_TAI; the queueing discipline etf holds it until then.
    pub(crate) launch: Option<Nanos>,
}

/// Sends `parts` as one message.
///
/// # Errors
/// When the system refuses, or takes nothing now (`WouldBlock`).
pub(crate) fn send(socket: &impl AsRawFd, parts: &[&[u8]], about: About) -> io::Result<()> {
    const PARTS: usize = 2;
    let slice =
        |bytes: &&[u8]| libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut slices = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PARTS];
    let count = slices.iter_mut().zip(parts).map(|(place, bytes)| *place = slice(bytes)).count();
    let address = about.to.map(SockAddr::from);
    let mut control = [0_u64; CONTROL_WORDS];
    // SAFETY: a message header of all zeroes is valid and names no buffers.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = slices.as_mut_ptr();
    message.msg_iovlen = count;
    if let Some(address) = &address {
        message.msg_name = address.as_ptr().cast_mut().cast();
        message.msg_namelen = address.len();
    }
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    let mut used = 0;
    if let Some(length) = about.segment.and_then(|length| u16::try_from(length).ok()) {
        push(&message, &mut used, (libc::SOL_UDP, libc::UDP_SEGMENT), length);
    }
    if let Some(launch) = about.launch {
        push(&message, &mut used, (libc::SOL_SOCKET, SO_TXTIME), launch.get());
    }
    message.msg_controllen = used;
    if used == 0 {
        message.msg_control = std::ptr::null_mut();
    }
    // SAFETY: the header names the parts, the address and the control buffer with their lengths;
    // they outlive the call and are only read.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sends many messages of two parts, [`BATCH_MAX`] by one system call. Returns how many the system
/// took. One that it refuses for good, such as one that is too long, counts as taken.
pub(crate) fn send_all<'a>(socket: &impl AsRawFd, mut pieces: impl Iterator<Item = [&'a [u8]; 2]>) -> usize {
    let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let mut slices = [[nothing; 2]; BATCH_MAX];
    // SAFETY: message headers of all zeroes are valid and name no buffers.
    let mut messages: [libc::mmsghdr; BATCH_MAX] = unsafe { std::mem::zeroed() };
    let mut taken = 0;
    loop {
        let places = slices.iter_mut().zip(&mut messages);
        let count = places.zip(&mut pieces).map(|((slices, message), parts)| {
            *slices = parts.map(|bytes| libc::iovec {
                iov_base: bytes.as_ptr().cast_mut().cast(),
                iov_len: bytes.len(),
            });
            message.msg_hdr.msg_iov = slices.as_mut_ptr();
            message.msg_hdr.msg_iovlen = slices.len();
        });
        let count = count.count();
        let mut sent = 0;
        while sent < count {
            let left = &mut messages[sent..count];
            let length = libc::c_uint::try_from(left.len()).unwrap_or(0);
            // SAFETY: each header names its own two parts of memory with their lengths, which
            // outlive the call and are only read.
            let result = unsafe {
                libc::sendmmsg(socket.as_raw_fd(), left.as_mut_ptr(), length, libc::MSG_DONTWAIT as _)
            };
            match usize::try_from(result) {
                Ok(more) => sent += more,
                Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock => {
                    return taken + sent;
                }
                // This one is lost.
                Err(_) => sent += 1,
            }
        }
        taken += count;
        if count < BATCH_MAX {
            return taken;
        }
    }
}

/// Appends `value` to the control buffer of `message`, of which `used` bytes are taken.
fn push<T: Copy>(
    message: &libc::msghdr,
    used: &mut usize,
    (level, kind): (libc::c_int, libc::c_int),
    value: T,
) {
    let bytes = u32::try_from(size_of::<T>()).unwrap_or(0);
    // SAFETY: these compute lengths only.
    let (length, space) = unsafe { (libc::CMSG_LEN(bytes), libc::CMSG_SPACE(bytes)) };
    let (length, space) = (length as usize, space as usize);
    assert!(*used + space <= message.msg_controllen, "there is room for all options");
    // SAFETY: the buffer has `space` bytes behind the `used` ones, as was just checked. It is made
    // of words, and the lengths so far are multiples of 8, so the header is aligned.
    unsafe {
        let header = message.msg_control.cast::<u8>().add(*used).cast::<libc::cmsghdr>();
        (*header).cmsg_len = length;
        (*header).cmsg_level = level;
        (*header).cmsg_type = kind;
        libc::CMSG_DATA(header).cast::<T>().write_unaligned(value);
    }
    *used += space;
}

/// Lets messages of `socket` have times of launch, and has the kernel report messages that missed
/// theirs.
///
/// # Errors
/// When the kernel has no such times; Linux has since 4.19.
pub(crate) fn enable_launch(socket: &impl AsRawFd) -> io::Result<()> {
    let value = [libc::CLOCK_TAI.cast_unsigned(), REPORT_ERRORS];
    let length = libc::socklen_t::try_from(size_of_val(&value)).unwrap_or(0);
    // SAFETY: the option's value is a `sock_txtime`, a clock and flags, which outlives the call.
    let result = unsafe {
        let value = (&raw const value).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_TXTIME, value, length)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // Sockets of IPv4 keep reports only if they are asked to; others need no such request.
    let _ = set_option(socket, libc::IPPROTO_IP, libc::IP_RECVERR, 1);
    Ok(())
}

/// Takes up to `most` reports of unsent messages, and returns how many were about a missed time of
/// launch.
pub(crate) fn take_missed(socket: &impl AsRawFd, most: usize) -> u64 {
    let mut missed = 0;
    for _ in 0..most {
        let mut control = [0_u64; REPORT_WORDS];
        // SAFETY: a message header of all zeroes is valid and names no buffers.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: the header names the control buffer with its length.
        if unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) } < 0 {
            break;
        }
        // SAFETY: the kernel has filled the control buffer that the header names, and its length.
        let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        // SAFETY: the pointer is null, or points to a header within the control buffer.
        if let Some(found) = unsafe { header.as_ref() }
            && found.cmsg_len >= size_of::<libc::cmsghdr>() + size_of::<libc::sock_extended_err>()
        {
            // SAFETY: reports of every family have one `sock_extended_err` behind the header, and
            // the length says that it is there.
            let report =
                unsafe { libc::CMSG_DATA(header).cast::<libc::sock_extended_err>().read_unaligned() };
            missed += u64::from(report.ee_origin == ORIGIN_LAUNCH);
        }
    }
    missed
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn one_message_is_many_datagrams() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = Some(receiver.local_addr().unwrap());
        send(&sender, &[&[1; 300], &[2; 200]], About { to, segment: Some(200), launch: None }).unwrap();
        let mut room = [0; 512];
        let lengths = [(); 3].map(|()| receiver.recv(&mut room).unwrap());
        assert_eq!((lengths, room[0]), ([200, 200, 100], 2));
    }

    /// Without a queueing discipline that holds messages, they leave at once.
    #[test]
    fn a_time_of_launch_is_taken() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let about = About {
            to: Some(receiver.local_addr().unwrap()),
            launch: Some(Nanos::from_secs(1)),
            ..About::default()
        };
        // The kernel refuses a time from a socket whose clock was not chosen.
        assert!(send(&sender, &[b"early"], about).is_err());
        if let Err(error) = enable_launch(&sender) {
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
            eprintln!("SKIPPED: times of launch by CLOCK_TAI take CAP_NET_ADMIN");
            return;
        }
        send(&sender, &[b"late"], about).unwrap();
        let mut room = [0; 16];
        assert_eq!(receiver.recv(&mut room).unwrap(), 4);
        assert_eq!(take_missed(&sender, 8), 0);
    }
}
