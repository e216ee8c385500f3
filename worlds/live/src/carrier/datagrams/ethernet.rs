//! Where frames go: an interface, a VLAN, and the address of a station.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::str::FromStr;

use datagrams::PORT_MAX;

use crate::sys::precedence::{Precedence, Priority};
use crate::sys::station::{Mac, Tag};

/// The EtherType of the frames: Local Experimental Ethertype 1 (IEEE 802-2014, table 9-2).
pub(super) const ETHER_TYPE: u16 = 0x88b5;
/// The largest number of a VLAN (IEEE 802.1Q): 4095 is reserved.
const VLAN_MAX: u16 = 4094;
/// The largest priority of a frame.
const PRIORITY_MAX: u8 = 7;
/// The most interfaces over which the same frames are sent.
const INTERFACES_MAX: usize = 4;
const EXPECTED: &str = "expected IFACE[+IFACE][,vlan=N][,pcp=N][,port=N] or IFACE,xdp[,port=N], for example \
                        eth0,vlan=10,pcp=5 or eth0+eth1";

/// One interface or several, and the tag of the frames that are sent there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// The names of the interfaces. Over several, every frame is sent and the first copy counts.
    pub interfaces: Vec<String>,
    /// The number of the VLAN, if frames are tagged with one.
    pub vlan: Option<u16>,
    /// The priority of frames (PCP), if they are tagged with one.
    pub priority: Option<Priority>,
    /// Which of the far ends at one station: each has a port of its own, 0 if none is given.
    pub port: u16,
    /// Whether packets go around the network stack of the kernel (AF_XDP), if they can.
    pub xdp: bool,
}

impl Ethernet {
    /// The tag of the frames, if they have one. Without a VLAN, its number is 0. In a VLAN, frames
    /// without a priority of their own have that of the socket.
    pub(super) fn tag(&self, precedence: Precedence) -> Option<Tag> {
        let of_socket = precedence.priority.filter(|_| self.vlan.is_some());
        let priority = self.priority.or(of_socket).map(|priority| priority.get().min(PRIORITY_MAX));
        let has_tag = self.vlan.is_some() || priority.is_some();
        has_tag.then(|| Tag { priority: priority.unwrap_or(0), vlan: self.vlan.unwrap_or(0) })
    }

    /// The names of the interfaces as text.
    pub(super) fn names(&self) -> String {
        self.interfaces.join("+")
    }

    /// Whether frames that come in VLAN `vlan` belong here.
    pub(super) fn admits(&self, vlan: Option<u16>) -> bool {
        vlan.unwrap_or(0) == self.vlan.unwrap_or(0)
    }

    /// Parses `IFACE[+IFACE][,vlan=N][,pcp=N][,port=N]/MAC` or `IFACE,xdp[,port=N]/MAC`, which is a
    /// far end's name.
    ///
    /// # Errors
    /// When `text` is not of that form; the error names the expected form.
    pub fn with_station(text: &str) -> Result<(Self, SocketAddr), String> {
        let (interface, mac) =
            text.split_once('/').ok_or_else(|| format!("no MAC address behind a '/'; {EXPECTED}/MAC"))?;
        Ok((interface.parse()?, link_local(parse_mac(mac)?, 0)))
    }
}

impl FromStr for Ethernet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let is_name = |name: &str| !name.is_empty() && name.len() < libc::IFNAMSIZ;
        let interfaces: Vec<_> = parts.next().unwrap_or_default().split('+').map(str::to_owned).collect();
        if !interfaces.iter().all(|name| is_name(name)) {
            return Err(format!("'{text}' names no interface; {EXPECTED}"));
        }
        let is_twice = |(index, name): (usize, &String)| interfaces[..index].contains(name);
        if interfaces.len() > INTERFACES_MAX || interfaces.iter().enumerate().any(is_twice) {
            return Err(format!("'{text}': expected at most {INTERFACES_MAX} interfaces, each of them once"));
        }
        let mut ethernet = Self { interfaces, vlan: None, priority: None, port: 0, xdp: false };
        let mut given = Vec::new();
        for part in parts {
            let key = part.split_once('=').map_or(part, |(key, _)| key);
            if given.contains(&key) {
                return Err(format!("'{text}': {key} is given twice; {EXPECTED}"));
            }
            given.push(key);
            match part.split_once('=') {
                Some(("vlan", number)) => {
                    let vlan = number.parse().ok().filter(|vlan| (1..=VLAN_MAX).contains(vlan));
                    let wrong = || format!("vlan={number}: expected a number from 1 to {VLAN_MAX}");
                    ethernet.vlan = Some(vlan.ok_or_else(wrong)?);
                }
                Some(("pcp", number)) => {
                    let priority =
                        number.parse().ok().filter(|priority: &Priority| priority.get() <= PRIORITY_MAX);
                    let wrong = || format!("pcp={number}: expected a number from 0 to {PRIORITY_MAX}");
                    ethernet.priority = Some(priority.ok_or_else(wrong)?);
                }
                Some(("port", number)) => {
                    let port = number.parse().ok().filter(|port| *port <= PORT_MAX);
                    let wrong = || format!("port={number}: expected a number from 0 to {PORT_MAX}");
                    ethernet.port = port.ok_or_else(wrong)?;
                }
                None if part == "xdp" => ethernet.xdp = true,
                _ => return Err(format!("'{part}' is not one of: vlan=N, pcp=N, port=N, xdp; {EXPECTED}")),
            }
        }
        if ethernet.xdp
            && (ethernet.interfaces.len() > 1 || ethernet.vlan.is_some() || ethernet.priority.is_some())
        {
            return Err(format!(
                "'{text}': AF_XDP goes around the queueing disciplines that priorities and VLANs are for, and has one \
                 interface; leave xdp out, or give IFACE,xdp"
            ));
        }
        Ok(ethernet)
    }
}

impl fmt::Display for Ethernet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names())?;
        self.vlan.map_or(Ok(()), |vlan| write!(f, ",vlan={vlan}"))?;
        self.priority.map_or(Ok(()), |priority| write!(f, ",pcp={priority}"))?;
        if self.port > 0 {
            write!(f, ",port={}", self.port)?;
        }
        if self.xdp { f.write_str(",xdp") } else { Ok(()) }
    }
}

fn parse_mac(text: &str) -> Result<Mac, String> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    let digits = |part: &str| u8::from_str_radix(part, 16).ok().filter(|_| part.len() == 2);
    let is_whole = mac.iter_mut().all(|byte| parts.next().and_then(digits).map(|one| *byte = one).is_some());
    let wrong = || format!("'{text}' is not a MAC address; expected six bytes such as 02:00:5e:00:53:01");
    if !is_whole || parts.next().is_some() || mac[0] & 1 == 1 {
        return Err(wrong());
    }
    Ok(mac)
}

/// A station's address as text.
pub(super) fn mac_text(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// The address of IPv6 that a station gives itself at interface number `index` (RFC 4291, appendix
/// A), which stands for the station where an address is wanted.
pub(super) fn link_local([a, b, c, d, e, f]: Mac, index: u32) -> SocketAddr {
    let [high, low] = [u16::from_be_bytes([a ^ 2, b]), u16::from_be_bytes([c, 0xff])];
    let rest = [u16::from_be_bytes([0xfe, d]), u16::from_be_bytes([e, f])];
    let address = Ipv6Addr::new(0xfe80, 0, 0, 0, high, low, rest[0], rest[1]);
    SocketAddr::V6(SocketAddrV6::new(address, 0, 0, index))
}

/// The station for which [`link_local`] gives `address`.
pub(super) fn station(address: SocketAddr) -> Option<Mac> {
    let SocketAddr::V6(address) = address else { return None };
    let [.., a, b, c, 0xff, 0xfe, d, e, f] = address.ip().octets() else { return None };
    Some([a ^ 2, b, c, d, e, f])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_station_has_the_address_that_the_standard_gives() {
        // RFC 4291, appendix A, has this form; the example is that of RFC 2464, section 4.
        let address = link_local([0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde], 3);
        assert_eq!(address.to_string(), "[fe80::3656:78ff:fe9a:bcde%3]:0");
        assert_eq!(station(address), Some([0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde]));
        assert_eq!(station("127.0.0.1:1".parse().unwrap()), None);
    }

    #[test]
    fn the_sockets_priority_is_that_of_the_tag_in_a_vlan() {
        let precedence = Precedence { priority: "9".parse().ok(), dscp: None };
        for (text, priority, vlan) in
            [("eth0,vlan=3", 7, 3), ("eth0,vlan=3,pcp=2", 2, 3), ("eth0,pcp=2", 2, 0)]
        {
            let tag = text.parse::<Ethernet>().unwrap().tag(precedence);
            assert_eq!(tag, Some(Tag { priority, vlan }), "{text}");
        }
        assert_eq!("eth0".parse::<Ethernet>().unwrap().tag(precedence), None);
    }

    #[test]
    fn what_is_written_is_read() {
        for text in [
            "eth0",
            "eth0,vlan=10",
            "eth0,pcp=5",
            "enp1s0,vlan=4094,pcp=7,port=32767",
            "eth0+eth1,vlan=2",
            "eth0,port=1,xdp",
        ] {
            let ethernet: Ethernet = text.parse().unwrap();
            assert_eq!(ethernet.to_string(), text);
            assert!(ethernet.admits(ethernet.vlan) && !ethernet.admits(Some(99)));
            let is_tagged = text.contains("vlan=") || text.contains("pcp=");
            assert_eq!(ethernet.tag(Precedence::default()).is_some(), is_tagged);
            assert_eq!(ethernet.xdp, text.contains("xdp"));
            let (again, address) = Ethernet::with_station(&format!("{text}/02:00:5e:00:53:01")).unwrap();
            assert_eq!((again, station(address)), (ethernet, Some([2, 0, 0x5e, 0, 0x53, 1])));
        }
        for (text, expected) in [
            ("", "no MAC"),
            ("/02:00:5e:00:53:01", "no interface"),
            ("eth0", "no MAC"),
            ("eth0/02:00:5e:00:53", "six bytes"),
            ("eth0/02:00:5e:00:53:1", "six bytes"),
            ("eth0/ff:ff:ff:ff:ff:ff", "six bytes"),
            ("eth0,vlan=4095/02:00:5e:00:53:01", "1 to 4094"),
            ("eth0,pcp=8/02:00:5e:00:53:01", "0 to 7"),
            ("eth0,port=32768/02:00:5e:00:53:01", "0 to 32767"),
            ("eth0,vlan=3,pcp=1,vlan=4/02:00:5e:00:53:01", "vlan is given twice"),
            ("eth0,pcp=1,pcp=1/02:00:5e:00:53:01", "pcp is given twice"),
            ("eth0,port=0,port=1/02:00:5e:00:53:01", "port is given twice"),
            ("eth0,xdp,xdp/02:00:5e:00:53:01", "xdp is given twice"),
            ("eth0+/02:00:5e:00:53:01", "no interface"),
            ("eth0+eth0/02:00:5e:00:53:01", "each of them once"),
            ("a+b+c+d+e/02:00:5e:00:53:01", "at most 4"),
            ("eth0,xdp,vlan=3/02:00:5e:00:53:01", "leave xdp out"),
            ("eth0+eth1,xdp/02:00:5e:00:53:01", "one interface"),
            ("eth0,mtu=9000/02:00:5e:00:53:01", "'mtu=9000'"),
            ("a-name-that-is-too-long/02:00:5e:00:53:01", "no interface"),
        ] {
            let error = Ethernet::with_station(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
