//! Datagrams that are sent at a rate, to see how many a recorder takes.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::Nanos;

use crate::sys::entropy;
use crate::sys::option::set_option;

/// The most bytes of datagrams that one call sends: as many as a packet of IPv4 holds.
const CALL_MAX: usize = 65_507;
/// The most datagrams into which the kernel cuts the bytes of one call (UDP GSO).
const SEGMENTS_MAX: usize = 64;
/// The number of different calls' bytes. A medium may not find that it has seen them before.
const DIFFERENT: usize = 64;
/// How long is slept between two bursts.
const PAUSE: Duration = Duration::from_micros(200);

/// Datagrams for receivers of this host.
#[derive(Clone, Debug)]
pub struct Flood {
    /// The receivers' IPv4 addresses. Each gets as many.
    pub to: Vec<SocketAddr>,
    /// Bytes of datagrams a second, all receivers together.
    pub rate: u64,
    /// For how long.
    pub time: Duration,
    /// Length of a datagram in bytes: 1 to 65,507.
    pub length: usize,
}

/// The datagrams that were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Number of datagrams that the kernel has taken.
    pub datagrams: u64,
    /// Number of datagrams that it refused.
    pub refused: u64,
    /// How long that took.
    pub time: Nanos,
}

/// A socket that sends to one receiver.
struct End {
    socket: UdpSocket,
    /// How many datagrams one call sends.
    together: usize,
}

impl End {
    fn new(to: SocketAddr, length: usize) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(to)?;
        socket.set_nonblocking(true)?;
        let most = (CALL_MAX / length).clamp(1, SEGMENTS_MAX);
        let cut = libc::c_int::try_from(length).unwrap_or(libc::c_int::MAX);
        // A kernel that cuts nothing is called for each datagram.
        let cuts = most > 1 && set_option(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, cut).is_ok();
        Ok(Self { socket, together: if cuts { most } else { 1 } })
    }
}

impl Flood {
    /// Sends, until the time is over or `stop` is set.
    ///
    /// # Errors
    /// When a socket can't be made, or fails.
    pub fn send(&self, stop: &AtomicBool) -> io::Result<Sent> {
        let length = self.length.clamp(1, CALL_MAX);
        let ends = self.to.iter().map(|to| End::new(*to, length)).collect::<io::Result<Vec<_>>>()?;
        let most = ends.iter().map(|end| end.together).max().unwrap_or(0);
        let mut contents = vec![0; DIFFERENT * most * length];
        entropy::system().fill(&mut contents);
        let contents: Vec<_> = contents.chunks(most.max(1) * length).collect();
        let (start, mut sent, mut calls) = (Instant::now(), Sent::default(), 0);
        let is_over = || start.elapsed() >= self.time || stop.load(Ordering::Relaxed);
        while !is_over() {
            let due = u128::from(self.rate) * start.elapsed().as_nanos() / 1_000_000_000;
            while u128::from(sent.datagrams) * (length as u128) < due && !is_over() {
                for End { socket, together } in &ends {
                    let bytes = &contents[calls % DIFFERENT][..together * length];
                    calls += 1;
                    match socket.send(bytes) {
                        Ok(_) => sent.datagrams += *together as u64,
                        Err(error) if is_passing(&error) => sent.refused += *together as u64,
                        Err(error) => return Err(error),
                    }
                }
            }
            std::thread::sleep(PAUSE);
        }
        sent.time = start.elapsed().into();
        Ok(sent)
    }
}

/// Whether the next datagram may go all the same: there is no room at the moment, or the receiver
/// has just gone.
fn is_passing(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::WouldBlock, io::ErrorKind::ConnectionRefused, io::ErrorKind::Interrupted];
    kinds.contains(&error.kind()) || error.raw_os_error() == Some(libc::ENOBUFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_receiver_gets_whole_datagrams_and_as_many() {
        for length in [1, 1_000, 8_192, 40_000, 65_507] {
            let sockets: Vec<_> = (0..3).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
            let to: Vec<_> = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
            // One burst, which the sockets' buffers hold.
            let time = Duration::from_millis(20);
            let flood = Flood { to, rate: length as u64 * 150, time, length };
            let sent = flood.send(&AtomicBool::new(false)).unwrap();
            assert!(sent.datagrams > 0 && sent.datagrams.is_multiple_of(3), "{length}: {sent:?}");
            let mut counts = Vec::new();
            for socket in &sockets {
                socket.set_nonblocking(true).unwrap();
                let mut room = vec![0; 1 << 16];
                let mut count = 0;
                while let Ok(found) = socket.recv(&mut room) {
                    assert_eq!(found, length);
                    count += 1;
                }
                counts.push(count);
            }
            assert!(counts.iter().all(|count| *count == sent.datagrams / 3), "{length}: {counts:?}");
        }
    }

    #[test]
    fn it_ends_when_it_is_stopped_and_a_receiver_that_is_gone_is_no_error() {
        let to = vec![UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()];
        let flood = Flood { to, rate: 10_000_000, time: Duration::from_millis(50), length: 1_000 };
        let sent = flood.send(&AtomicBool::new(false)).unwrap();
        assert!(sent.refused > 0, "{sent:?}");
        let long = Flood { time: Duration::from_secs(3_600), ..flood };
        assert_eq!(long.send(&AtomicBool::new(true)).unwrap().datagrams, 0);
    }
}
