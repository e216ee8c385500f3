//! When bytes arrived, by the kernel's own clock: a thread that slept meanwhile still learns
//! the time.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use engine::Nanos;

use crate::sys::option::set_option;

/// Stamps older than this are not believed: their clock is the wall clock, which users may set.
const AGE_MAX: Nanos = Nanos::from_millis(50);
/// Room for one stamp and its header, in words of 8 bytes.
const CONTROL_WORDS: usize = 8;

/// Has the kernel stamp the bytes that `socket` receives.
///
/// # Errors
/// When the system has no such stamps.
pub(super) fn enable(socket: &TcpStream) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

/// Reads without waiting. Returns the number of bytes, and how long ago the last of them arrived.
///
/// # Errors
/// When there is nothing to read, or the connection has failed.
pub(super) fn read(socket: &TcpStream, bytes: &mut [u8]) -> io::Result<(usize, Nanos)> {
    let mut control = [0_u64; CONTROL_WORDS];
    let mut slice = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: a message header of all zeroes is valid and names no buffers.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut slice;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    let count = loop {
        // SAFETY: the header names `bytes` and `control` with their lengths, and both outlive
        // the call.
        let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
        match usize::try_from(count) {
            Ok(count) => break count,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    };
    let age = stamp(&message).map_or(Nanos::ZERO, |at| real_time().saturating_sub(at));
    Ok((count, if age <= AGE_MAX { age } else { Nanos::ZERO }))
}

/// The stamp that came with `message`, as time since 1970.
fn stamp(message: &libc::msghdr) -> Option<Nanos> {
    // SAFETY: the kernel has filled the control buffer that `message` names, and set its length.
    let header = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: the pointer is null, or points to a header within the control buffer, which
    // is aligned.
    let header = unsafe { header.as_ref() }?;
    if (header.cmsg_level, header.cmsg_type) != (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
        return None;
    }
    // SAFETY: a message of this type has one `timespec` behind its header.
    let time: libc::timespec = unsafe { libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned() };
    Some(nanoseconds(time.tv_sec, time.tv_nsec))
}

fn real_time() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    nanoseconds(time.tv_sec, time.tv_nsec)
}

fn nanoseconds(seconds: i64, nanoseconds: i64) -> Nanos {
    let [seconds, nanoseconds] = [seconds, nanoseconds].map(|part| u64::try_from(part).unwrap_or(0));
    Nanos::new(seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn bytes_that_came_unnoticed_show_how_long_they_wait() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        enable(&far).unwrap();
        let mut reported = false;
        // The kernel begins to stamp only a while after the first request.
        for _ in 0..200 {
            let before = Instant::now();
            near.write_all(b"stamped").unwrap();
            let written = Instant::now();
            std::thread::sleep(Duration::from_millis(5));
            let (mut bytes, least) = ([0; 100], written.elapsed());
            let (count, age) = read(&far, &mut bytes).unwrap();
            assert_eq!(&bytes[..count], b"stamped");
            if age > Nanos::ZERO {
                let (age, most) = (Duration::from(age), before.elapsed());
                assert!(age + Duration::from_millis(1) >= least && age <= most, "{least:?} {age:?} {most:?}");
                reported = true;
                break;
            }
        }
        assert!(reported, "no stamp came, or the machine was asleep each time");
        far.set_nonblocking(true).unwrap();
        assert_eq!(read(&far, &mut [0; 4]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(near);
        far.set_nonblocking(false).unwrap();
        assert_eq!(read(&far, &mut [0; 4]).unwrap().0, 0);
    }
}
