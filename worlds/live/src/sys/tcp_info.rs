//! The kernel's information on a TCP connection (`tcp(7)`, TCP_INFO).

use std::io;
use std::os::fd::AsRawFd;

use engine::Nanos;

/// The kernel's information on a TCP connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// The smoothed round trip, delays of the peer's acknowledgements included.
    pub round_trip: Nanos,
    /// The segments that were sent again, over the life of the connection.
    pub retransmissions: u64,
}

impl TcpInfo {
    /// The kernel's information on the connection of `socket`.
    ///
    /// # Errors
    /// When `socket` is none of TCP.
    pub(crate) fn of(socket: &impl AsRawFd) -> io::Result<Self> {
        // SAFETY: a `tcp_info` of zeroes is a valid value, which the system overwrites.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut length = libc::socklen_t::try_from(size_of_val(&info)).expect("a small structure");
        // SAFETY: the system writes at most `length` bytes to `info`, which outlives the call.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                (&raw mut info).cast(),
                &raw mut length,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let round_trip = Nanos::from_micros(u64::from(info.tcpi_rtt));
        Ok(Self { round_trip, retransmissions: u64::from(info.tcpi_total_retrans) })
    }

    /// The information on several connections that serve one purpose: the longest round trip, and
    /// all retransmissions. `None` of none.
    pub fn together(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        all.into_iter().reduce(|one, other| Self {
            round_trip: one.round_trip.max(other.round_trip),
            retransmissions: one.retransmissions + other.retransmissions,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn a_connection_that_has_carried_something_has_a_round_trip() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        for _ in 0..20 {
            near.write_all(&[1]).unwrap();
            far.read_exact(&mut [0]).unwrap();
            far.write_all(&[2]).unwrap();
            near.read_exact(&mut [0]).unwrap();
        }
        let info = TcpInfo::of(&near).unwrap();
        assert!(info.round_trip > Nanos::ZERO && info.round_trip < Nanos::from_secs(1), "{info:?}");
        assert!(TcpInfo::of(&UdpSocket::bind("127.0.0.1:0").unwrap()).is_err());
        let other = TcpInfo { round_trip: Nanos::from_secs(1), retransmissions: 2 };
        let both = TcpInfo::together([info, other]).unwrap();
        assert_eq!(both, TcpInfo { retransmissions: info.retransmissions + 2, ..other });
        assert_eq!(TcpInfo::together([]), None);
    }
}
