//! How much sooner than other traffic networks shall carry a socket's packets.
//!
//! A socket has a priority, by which the queueing disciplines of this machine choose a queue
//! (`SO_PRIORITY`, socket(7)). An interface of a VLAN also makes the priority of its tags (PCP)
//! from it. The network's own nodes go by the field DSCP of IP packets (RFC 2474).

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::str::FromStr;

use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;

use super::option::{get_option, set_option};

/// The largest priority: the maps of queueing disciplines have 16 places (`TC_PRIO_MAX`).
const PRIORITY_MAX: u8 = 15;
/// The largest priority that takes no right (socket(7)).
const FREE_MAX: u8 = 6;
/// The largest DSCP: the field has six bits.
const DSCP_MAX: u8 = 63;
/// The bits of ECN below those of DSCP (RFC 3168).
const ECN_BITS: u32 = 2;
/// The names of RFC 2474 (CS), 2597 (AF), 3246 (EF), 5865 (VA) and 8622 (LE).
const NAMES: [(&str, u8); 23] = [
    ("CS0", 0),
    ("LE", 1),
    ("CS1", 8),
    ("AF11", 10),
    ("AF12", 12),
    ("AF13", 14),
    ("CS2", 16),
    ("AF21", 18),
    ("AF22", 20),
    ("AF23", 22),
    ("CS3", 24),
    ("AF31", 26),
    ("AF32", 28),
    ("AF33", 30),
    ("CS4", 32),
    ("AF41", 34),
    ("AF42", 36),
    ("AF43", 38),
    ("CS5", 40),
    ("VA", 44),
    ("EF", 46),
    ("CS6", 48),
    ("CS7", 56),
];

/// A priority of this machine's queueing disciplines, 0 to 15.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority(u8);

impl Priority {
    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Whether a process needs a capability to use it.
    pub const fn takes_a_right(self) -> bool {
        self.0 > FREE_MAX
    }
}

impl FromStr for Priority {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.parse().ok().filter(|number| *number <= PRIORITY_MAX);
        number.map(Self).ok_or_else(|| format!("expected a number from 0 to {PRIORITY_MAX}"))
    }
}

impl From<Priority> for libc::c_int {
    fn from(priority: Priority) -> Self {
        Self::from(priority.0)
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A Differentiated Services Code Point (RFC 2474), 0 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dscp(u8);

impl FromStr for Dscp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, number)| *number);
        let number = named.or_else(|| text.parse().ok().filter(|number| *number <= DSCP_MAX));
        number.map(Self).ok_or_else(|| {
            let names: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
            format!("expected a number from 0 to {DSCP_MAX} or one of: {}", names.join(", "))
        })
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}

/// The precedence that networks shall give. The default asks for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Precedence {
    /// The priority within this machine.
    pub priority: Option<Priority>,
    /// The class of IP packets. Bare frames have none.
    pub dscp: Option<Dscp>,
}

impl Precedence {
    /// Applies the setting in `pair`, such as `priority=5` or `dscp=EF`. It is an error if that was
    /// set before, and `None` if `pair` is about something else.
    pub(crate) fn set(&mut self, pair: &str) -> Option<Result<(), String>> {
        let (key, value) = pair.split_once('=')?;
        let wrong = |error: String| format!("{pair}: {error}");
        let twice = || Err(format!("{pair}: {key} is given twice; give it once"));
        Some(match key {
            "priority" if self.priority.is_some() => twice(),
            "dscp" if self.dscp.is_some() => twice(),
            "priority" => value.parse().map(|priority| self.priority = Some(priority)).map_err(wrong),
            "dscp" => value.parse().map(|dscp| self.dscp = Some(dscp)).map_err(wrong),
            _ => return None,
        })
    }

    /// The settings of this, and for the rest those of `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { priority: self.priority.or(other.priority), dscp: self.dscp.or(other.dscp) }
    }

    /// Whether nothing is asked.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }

    /// The byte of an IP packet that has the class and the mark `ecn` of RFC 3168.
    pub(crate) fn byte(self, ecn: libc::c_int) -> libc::c_int {
        self.dscp.map_or(0, |dscp| libc::c_int::from(dscp.0) << ECN_BITS) | ecn
    }

    /// Has `socket`, of IPv4 or IPv6, send so from now on.
    ///
    /// # Errors
    /// `PermissionDenied` for a priority that takes a right which this process does not have.
    pub(crate) fn apply(self, socket: &(impl AsFd + AsRawFd)) -> io::Result<()> {
        if self.dscp.is_some() {
            self.apply_with(socket, 0)?;
        }
        // The kernel derives a priority from the class, so this comes last.
        self.priority.map_or(Ok(()), |priority| set_priority(socket, priority))
    }

    /// Has `socket` send packets with the mark `ecn` from now on, and with the class.
    pub(crate) fn apply_with(self, socket: &(impl AsFd + AsRawFd), ecn: libc::c_int) -> io::Result<()> {
        let byte = self.byte(ecn);
        if socket_domain(socket)? == AddressFamily::INET6 {
            set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, byte)?;
        }
        // A socket of IPv6 may have a peer of IPv4, too.
        set_option(socket, libc::IPPROTO_IP, libc::IP_TOS, byte)?;
        self.priority.map_or(Ok(()), |priority| set_priority(socket, priority))
    }
}

impl fmt::Display for Precedence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if let Some(priority) = self.priority {
            write!(f, "priority={priority}")?;
            separator = "&";
        }
        self.dscp.map_or(Ok(()), |dscp| write!(f, "{separator}dscp={dscp}"))
    }
}

/// Has the queueing disciplines of this machine see `priority` in the packets of `socket`. A socket
/// that was accepted does not have its listener's, unlike the class.
///
/// # Errors
/// `PermissionDenied` if it takes a right which this process does not have.
pub(crate) fn set_priority(socket: &impl AsRawFd, priority: Priority) -> io::Result<()> {
    if get_option(socket, libc::SOL_SOCKET, libc::SO_PRIORITY)? == libc::c_int::from(priority) {
        return Ok(());
    }
    set_option(socket, libc::SOL_SOCKET, libc::SO_PRIORITY, priority.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    #[test]
    fn names_and_numbers_are_read_as_they_are_written() {
        // The registry of IANA ("Differentiated Services Field Codepoints") has these pairs.
        for (text, number, shown) in
            [("EF", 46, "EF"), ("cs7", 56, "CS7"), ("af41", 34, "AF41"), ("46", 46, "EF"), ("63", 63, "63")]
        {
            let dscp: Dscp = text.parse().unwrap();
            assert_eq!((dscp, dscp.to_string()), (Dscp(number), shown.to_owned()));
        }
        for wrong in ["64", "-1", "AF14", ""] {
            assert!(wrong.parse::<Dscp>().unwrap_err().contains("0 to 63"), "{wrong}");
        }
        assert!("16".parse::<Priority>().unwrap_err().contains("0 to 15"));
        let mut precedence = Precedence::default();
        assert_eq!(precedence.set("key=any"), None);
        assert_eq!(precedence.set("priority=5"), Some(Ok(())));
        assert_eq!(precedence.set("dscp=EF"), Some(Ok(())));
        assert!(precedence.set("dscp=AF9").unwrap().unwrap_err().contains("dscp=AF9"));
        let error = Precedence::default().set("dscp=AF9").unwrap().unwrap_err();
        assert!(error.contains("dscp=AF9: expected"), "{error}");
        for pair in ["priority=6", "dscp=CS5"] {
            assert!(precedence.set(pair).unwrap().unwrap_err().contains("twice"), "{pair}");
        }
        assert_eq!(precedence.to_string(), "priority=5&dscp=EF");
    }

    #[test]
    fn sockets_have_what_they_were_given() {
        let precedence = Precedence { priority: Some(Priority(5)), dscp: Some(Dscp(46)) };
        let has =
            |socket: &dyn AsRawFd, level, option| get_option(&socket.as_raw_fd(), level, option).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        precedence.apply(&socket).unwrap();
        assert_eq!(has(&socket, libc::SOL_SOCKET, libc::SO_PRIORITY), 5);
        assert_eq!(has(&socket, libc::IPPROTO_IP, libc::IP_TOS), 46 << 2);
        precedence.apply_with(&socket, 0b10).unwrap();
        assert_eq!(has(&socket, libc::SOL_SOCKET, libc::SO_PRIORITY), 5);
        assert_eq!(has(&socket, libc::IPPROTO_IP, libc::IP_TOS), 46 << 2 | 0b10);
        if let Ok(socket) = UdpSocket::bind("[::1]:0") {
            precedence.apply(&socket).unwrap();
            assert_eq!(has(&socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS), 46 << 2);
        }
        // Connections have the class of their listener.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        precedence.apply(&listener).unwrap();
        let _near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert_eq!(has(&accepted, libc::IPPROTO_IP, libc::IP_TOS), 46 << 2);
    }
}
