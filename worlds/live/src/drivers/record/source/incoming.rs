//! A TCP connection whose bytes are recorded: a fast one is read seldom, and much at a time.

use std::io::{self, Read};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use engine::{Instant, Nanos};
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl};

use crate::sys::option::set_option;

/// Bytes that come within this time are awaited before they are read, where the connection is fast
/// enough. Bytes may be that much older than the time that their chunk has.
const WINDOW: Nanos = Nanos::from_millis(2);
/// A connection that brings less than this in [`WINDOW`], in bytes, is read whenever something
/// has come.
const FAST: u64 = 64 << 10;
/// The most bytes that are waited for. The system keeps about twice as many for the connection.
const LEAST_MAX: u64 = 1 << 20;
/// A producer that is silent is probed after this time, then every [`PROBE_EVERY`]. It has vanished
/// after [`PROBES`] probes without an answer: 2 minutes in all, which a short partition survives.
const PROBE_AFTER: Duration = Duration::from_secs(60);
const PROBE_EVERY: Duration = Duration::from_secs(10);
const PROBES: u32 = 6;

/// A connection, and how much of it is waited for.
pub(super) struct Incoming {
    stream: TcpStream,
    /// Since when it is known to be empty. It is not read again until something has come.
    empty: Option<Instant>,
    /// The system calls it readable from this many bytes on.
    least: u64,
    /// Since when bytes are counted, and how many there were.
    since: Option<Instant>,
    came: u64,
}

impl Incoming {
    /// # Errors
    /// When the system refuses to read without waiting, or to probe the producer.
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        set_socket_keepalive(&stream, true)?;
        set_tcp_keepidle(&stream, PROBE_AFTER)?;
        set_tcp_keepintvl(&stream, PROBE_EVERY)?;
        set_tcp_keepcnt(&stream, PROBES)?;
        Ok(Self { stream, empty: None, least: 1, since: None, came: 0 })
    }

    /// The system calls it readable.
    pub(super) const fn wake(&mut self) {
        self.empty = None;
    }

    /// The longest sleep before it has to be read again, although it is not called readable.
    pub(super) fn patience(&self) -> Option<Nanos> {
        (self.least > 1).then_some(WINDOW)
    }

    /// Reads into `room`, which is not empty, unless there is nothing or little.
    ///
    /// # Errors
    /// `WouldBlock` if there is nothing or little; otherwise the system's.
    pub(super) fn read(&mut self, now: Instant, room: &mut [u8]) -> io::Result<usize> {
        if self.empty.is_some_and(|since| now < since + WINDOW) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let result = self.stream.read(room);
        self.empty = (!matches!(result, Ok(bytes) if bytes == room.len())).then_some(now);
        self.count(now, *result.as_ref().unwrap_or(&0) as u64);
        result
    }

    /// Counts bytes, and has the system wait for as many as [`WINDOW`] brings.
    fn count(&mut self, now: Instant, bytes: u64) {
        // Bytes before the first moment took an unknown time.
        let Some(since) = self.since else {
            self.since = Some(now);
            return;
        };
        self.came += bytes;
        let took = now - since;
        if took < WINDOW {
            return;
        }
        let brings = self.came.saturating_mul(WINDOW.get()) / took.get();
        (self.since, self.came) = (Some(now), 0);
        let least = if brings < FAST { 1 } else { brings.min(LEAST_MAX) };
        // Small changes are not worth a system call.
        if least < self.least / 2 || least > self.least + self.least / 2 {
            self.least = least;
            let least = libc::c_int::try_from(least).unwrap_or(libc::c_int::MAX);
            // Without it, the connection is read more often.
            let _ = set_option(&self.stream, libc::SOL_SOCKET, libc::SO_RCVLOWAT, least);
        }
    }
}

impl AsFd for Incoming {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_producer_that_vanishes_is_found_out() {
        use rustix::net::sockopt::{socket_keepalive, tcp_keepcnt, tcp_keepidle, tcp_keepintvl};
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _producer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = Incoming::new(listener.accept().unwrap().0).unwrap().stream;
        assert!(socket_keepalive(&stream).unwrap());
        let probes = tcp_keepintvl(&stream).unwrap() * tcp_keepcnt(&stream).unwrap();
        assert_eq!(tcp_keepidle(&stream).unwrap() + probes, Duration::from_secs(120));
    }

    #[test]
    fn a_fast_connection_is_waited_for_and_a_slow_one_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut producer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut incoming = Incoming::new(listener.accept().unwrap().0).unwrap();
        let at = |micros: u64| Instant::ZERO + Nanos::from_micros(micros);
        let mut room = vec![0; 128 << 10];
        // 20 times 64 KiB, a millisecond apart: 128 KiB in each window.
        for round in 0..20 {
            producer.write_all(&[7; 64 << 10]).unwrap();
            let mut left = 64 << 10;
            while left > 0 {
                incoming.wake();
                left -= incoming.read(at(round * 1_000), &mut room[..left]).unwrap_or(0);
            }
        }
        assert_eq!((incoming.least, incoming.patience()), (128 << 10, Some(WINDOW)));
        // Fewer bytes are read when they were waited for long enough.
        producer.write_all(&[7; 100]).unwrap();
        let kind = |result: io::Result<usize>| result.map_err(|error| error.kind());
        let mut now = 20_000;
        let read = loop {
            now += 100;
            match kind(incoming.read(at(now), &mut room)) {
                Err(io::ErrorKind::WouldBlock) => {}
                result => break result,
            }
            std::thread::sleep(Duration::from_micros(100));
        };
        assert_eq!(read, Ok(100));
        let read = kind(incoming.read(at(now + 1), &mut room));
        assert_eq!(read, Err(io::ErrorKind::WouldBlock));
        // It falls silent.
        let _ = incoming.read(at(now + 100_000), &mut room);
        assert_eq!((incoming.least, incoming.patience()), (1, None));
        drop(producer);
        incoming.wake();
        assert_eq!(kind(incoming.read(at(now + 100_001), &mut room)), Ok(0));
    }
}
