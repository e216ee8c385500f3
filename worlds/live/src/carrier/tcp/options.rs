//! Options for the kernel's TCP, for paths where its defaults are too slow.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use engine::Nanos;
use std::time::Duration;

use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_congestion, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl,
    set_tcp_thin_linear_timeouts, set_tcp_user_timeout,
};
use socket2::{Domain, Protocol, Socket, Type};

use crate::sys::option::set_option;
use crate::sys::precedence::Precedence;

/// Linux's socket option for the least time in µs that a retransmission waits beyond the smoothed
/// round trip. Linux has it since 6.15; the C library's headers do not have it yet.
const TCP_RTO_MIN_US: libc::c_int = 45;

/// How long a peer may stay silent before its connection is ended. The limit is longer than a
/// network takes to find another path, and longer than any time-out of the layers above.
pub const SILENCE_MAX: Duration = Duration::from_secs(30);
/// An idle connection is probed after this time, then every [`PROBE_EVERY`]. The connection is over
/// after [`PROBES`] probes without an answer.
const PROBE_AFTER: Duration = Duration::from_secs(15);
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;

/// The options that a connection asks of the kernel; the default asks for none. Each end has its
/// own options, because a lost segment is sent again by the end that sent it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The least time that a retransmission waits beyond the smoothed round trip; `None` keeps the
    /// kernel's 200 ms. The kernel also delays acknowledgements no longer than this.
    pub rto_min: Option<Nanos>,
    /// Keeps the retransmission timeout of a stream with little data in flight from doubling with
    /// each retransmission.
    pub thin: bool,
    /// The kernel's name of the congestion control; `None` keeps the kernel's default.
    pub congestion: Option<String>,
    /// How long bytes that fill no segment wait for more before they are sent; zero sends at once.
    pub coalesce: Nanos,
    /// How much sooner than others the connection's packets are carried. Other carriers than TCP
    /// have it, too.
    pub precedence: Precedence,
}

/// An option that this kernel does not have, or does not grant us.
#[derive(Debug)]
pub struct Unavailable {
    what: &'static str,
    remedy: String,
    error: io::Error,
}

impl Unavailable {
    /// The remedy, as a sentence.
    pub fn remedy(&self) -> &str {
        &self.remedy
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this kernel's TCP gives no {}: {}", self.what, self.error)
    }
}

impl std::error::Error for Unavailable {}

impl From<Unavailable> for io::Error {
    fn from(unavailable: Unavailable) -> Self {
        unavailable.error
    }
}

impl Options {
    /// Tries the options on a socket that is then closed. Options that work on this socket work
    /// for connections.
    ///
    /// # Errors
    /// When the kernel refuses an option; the error has the remedy.
    pub fn check(&self) -> Result<(), Unavailable> {
        let socket =
            Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).map_err(|error| Unavailable {
                what: "socket",
                remedy: "close something: the process or the system has no descriptors left".to_owned(),
                error,
            })?;
        self.apply(&socket)
    }

    /// Asks the kernel for the options, and has the connection end when its peer falls silent.
    pub(super) fn apply(&self, socket: &(impl AsFd + AsRawFd)) -> Result<(), Unavailable> {
        bound_silence(socket).map_err(|error| Unavailable {
            what: "end of connections whose other end is silent (SO_KEEPALIVE, TCP_USER_TIMEOUT)",
            remedy: "use Linux 2.6.37 or newer, which has both".to_owned(),
            error,
        })?;
        self.precedence.apply(socket).map_err(|error| Unavailable {
            what: "such precedence (--priority, --dscp)",
            remedy: "priorities 0 to 6 need no capability; 7 to 15 need CAP_NET_ADMIN, which root has"
                .to_owned(),
            error,
        })?;
        if let Some(rto_min) = self.rto_min {
            set_rto_min(socket, rto_min).map_err(|error| Unavailable {
                what: "shorter retransmission timeout (--rto-min; Linux 6.15 has it)",
                remedy: format!(
                    "set it for the route instead, at both ends: ip route change ROUTE rto_min {}ms",
                    rto_min.get().div_ceil(1_000_000)
                ),
                error,
            })?;
        }
        if self.thin {
            set_tcp_thin_linear_timeouts(socket, true).map_err(|error| Unavailable {
                what: "linear timeouts for thin streams (--thin)",
                remedy: "leave --thin out".to_owned(),
                error: error.into(),
            })?;
        }
        if let Some(name) = &self.congestion {
            set_tcp_congestion(socket, name).map_err(|error| Unavailable {
                what: "such congestion control (--congestion)",
                remedy: format!(
                    "sysctl net.ipv4.tcp_available_congestion_control lists the present ones, modprobe tcp_{name} \
                     may add it, and those not in net.ipv4.tcp_allowed_congestion_control only root may use"
                ),
                error: error.into(),
            })?;
        }
        Ok(())
    }
}

/// Ends a connection after about [`SILENCE_MAX`] in which the peer answers no probe of an idle
/// connection, acknowledges no sent data, or takes none of the waiting data.
fn bound_silence(socket: &(impl AsFd + AsRawFd)) -> io::Result<()> {
    set_socket_keepalive(socket, true)?;
    set_tcp_keepidle(socket, PROBE_AFTER)?;
    set_tcp_keepintvl(socket, PROBE_EVERY)?;
    set_tcp_keepcnt(socket, PROBES)?;
    let milliseconds = u32::try_from(SILENCE_MAX.as_millis()).unwrap_or(u32::MAX);
    set_tcp_user_timeout(socket, milliseconds)?;
    Ok(())
}

/// Limits the unsent bytes that the kernel takes from us: waiting bytes that are still ours can be
/// dropped when they turn out to be unnecessary.
pub(crate) fn keep_short(socket: &impl AsRawFd, bytes: u32) -> io::Result<()> {
    set_option(
        socket,
        libc::IPPROTO_TCP,
        libc::TCP_NOTSENT_LOWAT,
        libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX),
    )
}

fn set_rto_min(socket: &impl AsRawFd, rto_min: Nanos) -> io::Result<()> {
    let microseconds = libc::c_int::try_from(rto_min.get() / 1_000).unwrap_or(libc::c_int::MAX);
    set_option(socket, libc::IPPROTO_TCP, TCP_RTO_MIN_US, microseconds)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn what_is_asked_is_what_the_socket_has() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        Options::default().apply(&socket).unwrap();
        // The end detects a vanished peer, both at rest and in the middle of sending.
        use rustix::net::sockopt::{
            socket_keepalive, tcp_keepcnt, tcp_keepidle, tcp_keepintvl, tcp_user_timeout,
        };
        assert!(socket_keepalive(&socket).unwrap());
        let probes = tcp_keepintvl(&socket).unwrap() * tcp_keepcnt(&socket).unwrap();
        assert_eq!(tcp_keepidle(&socket).unwrap() + probes, SILENCE_MAX);
        assert_eq!(u128::from(tcp_user_timeout(&socket).unwrap()), SILENCE_MAX.as_millis());
        let options = Options { thin: true, congestion: Some("reno".to_owned()), ..Options::default() };
        options.apply(&socket).unwrap();
        assert!(rustix::net::sockopt::tcp_thin_linear_timeouts(&socket).unwrap());
        assert_eq!(rustix::net::sockopt::tcp_congestion(&socket).unwrap(), "reno");
        let options = Options { rto_min: Some(Nanos::from_millis(5)), ..Options::default() };
        match options.check() {
            Ok(()) => options.apply(&socket).unwrap(),
            Err(error) => {
                eprintln!("this kernel has no TCP_RTO_MIN_US: {error}");
                assert!(error.remedy().contains("rto_min 5ms"), "{}", error.remedy());
            }
        }
    }

    #[test]
    fn what_the_kernel_lacks_is_refused_with_a_remedy() {
        let absent = Options { congestion: Some("pigeon".to_owned()), ..Options::default() };
        let error = absent.check().unwrap_err();
        assert!(error.to_string().contains("--congestion"), "{error}");
        assert!(error.remedy().contains("tcp_pigeon"), "{}", error.remedy());
        let never = Options { rto_min: Some(Nanos::from_secs(3600)), ..Options::default() };
        assert!(never.check().unwrap_err().to_string().contains("--rto-min"));
    }
}
