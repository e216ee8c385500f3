//! Addresses in text. An IPv6 address may name its zone (RFC 4007), which is an interface by its
//! name or number: `[fe80::1%eth0]:4420`. URLs may write `%25` for the percent sign (RFC 6874).

use std::borrow::Cow;
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::os::unix::net::UnixDatagram;
use std::str::FromStr;

use rustix::net::netdevice::{index_to_name, name_to_index};

/// The addresses of `HOST:PORT`. Waits for the system's resolver where HOST is a name.
///
/// # Errors
/// When the host has no address, or this machine has no such interface.
pub fn resolve(text: &str) -> io::Result<Vec<SocketAddr>> {
    Ok(with_number(text)?.to_socket_addrs()?.collect())
}

/// An address and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(pub SocketAddr);

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = |_| "expected an address and a port, such as 127.0.0.1:4420 or [fe80::1%eth0]:4420";
        let numbered = with_number(text).map_err(|error| error.to_string())?;
        Ok(Self(numbered.parse().map_err(expected)?))
    }
}

/// An address without a port: that of the socket address is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host(pub SocketAddr);

impl Host {
    /// The number of the interface that is the address's zone; 0 if there is none.
    pub const fn zone(self) -> u32 {
        zone_of(self.0)
    }
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = |_| "expected an IP address, such as 127.0.0.1 or fe80::1%eth0";
        let Some((address, zone)) = text.split_once('%') else {
            let address: IpAddr = text.parse().map_err(expected)?;
            return Ok(Self(SocketAddr::new(address, 0)));
        };
        let address: Ipv6Addr = address.parse().map_err(expected)?;
        let index = index_of(zone).map_err(|error| error.to_string())?;
        Ok(Self(SocketAddrV6::new(address, 0, 0, index).into()))
    }
}

/// The number of the interface that is an address's zone; 0 if there is none.
pub const fn zone_of(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(address) => address.scope_id(),
    }
}

/// The name of the interface with this number.
///
/// # Errors
/// When there is no such interface.
pub fn interface_name(index: u32) -> io::Result<String> {
    Ok(index_to_name(UnixDatagram::unbound()?, index)?)
}

/// `text` with the number of the interface that it names; the standard library parses that.
fn with_number(text: &str) -> io::Result<Cow<'_, str>> {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let zoned = bracketed.and_then(|(inside, after)| Some((inside.split_once('%')?, after)));
    match zoned {
        Some(((address, zone), after)) if address.parse::<Ipv6Addr>().is_ok() => {
            Ok(format!("[{address}%{}]{after}", index_of(zone)?).into())
        }
        _ => Ok(text.into()),
    }
}

/// The number of the interface that `zone` names, or whose number `zone` is.
fn index_of(zone: &str) -> io::Result<u32> {
    let socket = UnixDatagram::unbound()?;
    let encoded = zone.strip_prefix("25").filter(|name| !name.is_empty()).map(decoded);
    let readings = [Some(Cow::from(zone)), encoded.clone()];
    for name in readings.iter().flatten() {
        if let Ok(index) = name_to_index(&socket, name) {
            return Ok(index);
        }
    }
    for number in readings.iter().flatten().filter_map(|number| number.parse().ok()) {
        // 0 is the default zone (RFC 4007, section 6).
        if number == 0 || index_to_name(&socket, number).is_ok() {
            return Ok(number);
        }
    }
    let is_number = !zone.is_empty() && zone.bytes().all(|byte| byte.is_ascii_digit());
    let (kind, name) = if is_number {
        ("interface with number", zone.into())
    } else {
        ("interface", encoded.unwrap_or_else(|| zone.into()))
    };
    let why = format!("this machine has no {kind} '{name}'; its interfaces are: {}", interfaces().join(", "));
    Err(io::Error::new(io::ErrorKind::NotFound, why))
}

/// `text` with the bytes that stand behind percent signs in hexadecimal.
fn decoded(text: &str) -> Cow<'_, str> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let Some(byte) = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) else {
            return text.into();
        };
        bytes.push(byte);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8_lossy(&bytes).into_owned().into()
}

/// The names of this machine's interfaces.
pub fn interfaces() -> Vec<String> {
    // SAFETY: the function has no preconditions.
    let list = unsafe { libc::if_nameindex() };
    let mut names = Vec::new();
    if list.is_null() {
        return names;
    }
    for index in 0.. {
        // SAFETY: the list ends with an entry whose number is 0, and no later entry is read.
        let entry = unsafe { &*list.add(index) };
        if entry.if_index == 0 || entry.if_name.is_null() {
            break;
        }
        // SAFETY: the name ends with a zero, and the list lives until it is freed below.
        let name = unsafe { CStr::from_ptr(entry.if_name) };
        names.push(name.to_string_lossy().into_owned());
    }
    // SAFETY: the list is the system's, and is not used any more.
    unsafe { libc::if_freenameindex(list) };
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of the loopback interface, which is the first of each network namespace.
    const LOOPBACK: u32 = 1;

    #[test]
    fn a_zone_is_an_interface_by_name_or_number() {
        for text in [
            "[fe80::1%lo]:4420",
            "[fe80::1%1]:4420",
            "[fe80::1%25lo]:4420",
            "[fe80::1%251]:4420",
            "[fe80::1%25%6c%6F]:4420",
        ] {
            let expected = SocketAddrV6::new("fe80::1".parse().unwrap(), 4420, 0, LOOPBACK);
            assert_eq!(resolve(text).unwrap(), [expected.into()], "{text}");
            assert_eq!(text.parse(), Ok(Place(expected.into())), "{text}");
            let host: Host = text[1..text.len() - 6].parse().unwrap();
            assert_eq!(host, Host(SocketAddrV6::new(*expected.ip(), 0, 0, LOOPBACK).into()), "{text}");
            assert_eq!(host.zone(), LOOPBACK);
        }
        assert_eq!("[::1]:1".parse(), Ok(Place("[::1]:1".parse().unwrap())));
        assert_eq!("[::1%0]:1".parse(), Ok(Place("[::1]:1".parse().unwrap())));
        assert_eq!("192.0.2.1".parse(), Ok(Host("192.0.2.1:0".parse().unwrap())));
    }

    #[test]
    fn an_unknown_interface_is_named_beside_those_that_exist() {
        for (zone, named) in [
            ("nope7", "interface 'nope7'"),
            ("25nope7", "interface 'nope7'"),
            ("", "interface ''"),
            ("99999", "interface with number '99999'"),
            ("99999999999", "interface with number '99999999999'"),
        ] {
            let text = format!("[fe80::1%{zone}]:4420");
            let error = resolve(&text).unwrap_err().to_string();
            assert!(error.contains(&format!("has no {named}; its interfaces are: lo")), "{text}: {error}");
            assert_eq!(text.parse::<Place>(), Err(error.clone()));
            assert_eq!(format!("fe80::1%{zone}").parse::<Host>(), Err(error));
        }
    }

    #[test]
    fn what_has_no_zone_is_left_alone() {
        for text in [
            "",
            "%",
            "[%lo]:1",
            "[far%lo]:1",
            "127.0.0.1%lo:1",
            "fe80::1%lo:1",
            "[fe80::1%lo",
            "[fe80::1%lo]",
        ] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
        for text in ["", "%lo", "127.0.0.1%lo", "far%lo", "[fe80::1%lo]"] {
            assert!(text.parse::<Host>().unwrap_err().contains("expected an IP address"), "{text}");
        }
        assert_eq!(decoded("a%2"), "a%2");
        assert_eq!(decoded("a%"), "a%");
    }
}
