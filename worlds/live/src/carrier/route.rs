//! How a far end is reached.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;

use tunnel::session;

use super::{quic, tcp};
use crate::sys::digest::crc32c;

const QUIC: &str = "quic://";
const EXPECTED: &str = "expected quic://HOST:PORT?cert=SHA256HEX";

/// The name of a far end: `HOST:PORT` where it listens for TCP, or
/// `quic://HOST:PORT?cert=SHA256HEX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// `HOST:PORT`, not resolved yet.
    pub authority: String,
    /// For QUIC: which far end to trust. `None` for TCP.
    pub quic: Option<quic::Pin>,
}

impl Name {
    /// The name of a far end that listens for TCP at `HOST:PORT`.
    ///
    /// # Errors
    /// When `text` is not of that form; the error says so in words.
    pub fn tcp(text: &str) -> Result<Self, String> {
        Ok(Self { authority: authority(text)?, quic: None })
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix(QUIC) else {
            return Self::tcp(text);
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let authority =
            authority(place.trim_end_matches('/')).map_err(|error| format!("{error}; {EXPECTED}"))?;
        let mut pin = None;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("cert", _)) if pin.is_some() => {
                    return Err(format!("cert= is given twice; {EXPECTED}"));
                }
                Some(("cert", "any")) => pin = Some(quic::Pin::Any),
                Some(("cert", value)) => {
                    let fingerprint = value.parse().map_err(|error| format!("cert={value}: {error}"))?;
                    pin = Some(quic::Pin::Certificate(fingerprint));
                }
                _ => return Err(format!("'{pair}' is not one of: cert=SHA256HEX, cert=any; {EXPECTED}")),
            }
        }
        let pin = pin.ok_or_else(|| {
            format!(
                "which far end? {QUIC}{authority}?cert=SHA256HEX names its certificate, as farlane export --quic prints it \
                 when it starts; cert=any takes whoever answers there"
            )
        })?;
        Ok(Self { authority, quic: Some(pin) })
    }
}

/// Checks a host and a port.
fn authority(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) => {
            Ok(text.to_owned())
        }
        _ => Err(format!("'{text}' is not HOST:PORT with a port of 1 to 65535")),
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.quic {
            None => f.write_str(&self.authority),
            Some(pin) => write!(f, "{QUIC}{}?cert={pin}", self.authority),
        }
    }
}

/// The settings that are the same for all far ends of a host.
#[derive(Clone, Debug, Default)]
pub struct Transport {
    /// The settings of the kernel's TCP.
    pub tcp: tcp::Options,
    /// The settings of QUIC, for far ends that are reached by it.
    pub quic: quic::Options,
    /// Further ways to the far end, each `HOST:PORT`. Everything is sent over all of them, and the
    /// first copy wins.
    pub second_paths: Vec<String>,
    /// Whether the tunnel's frames have no digest over TCP.
    pub without_digests: bool,
}

impl Transport {
    /// The route to the far end that is called `name` (see [`Name`]). Waits for the system's
    /// resolver.
    ///
    /// # Errors
    /// When the name is malformed or has no address.
    pub fn route(&self, name: &str) -> io::Result<Route> {
        let name: Name = name.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        if name.quic.is_some() && !self.second_paths.is_empty() {
            let error = "several paths are joined over TCP: give tcp://, or leave --second-path out";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        let quic = name.quic.map(|pin| (pin, self.quic));
        // QUIC authenticates everything that it carries.
        let digests = quic.is_none() && !self.without_digests;
        let others = self.second_paths.iter().map(|name| tcp::resolve(name)).collect::<io::Result<_>>()?;
        let addresses = tcp::resolve(&name.authority)?;
        Ok(Route { addresses, others, tcp: self.tcp.clone(), quic, digests })
    }
}

/// The route to one far end.
#[derive(Clone, Debug)]
pub struct Route {
    /// The addresses of the far end, tried in turn.
    pub addresses: Vec<SocketAddr>,
    /// The addresses of each further path, used at the same time.
    pub others: Vec<Vec<SocketAddr>>,
    /// The settings of the kernel's TCP.
    pub tcp: tcp::Options,
    /// If QUIC is used: which far end to trust, and the settings of QUIC.
    pub quic: Option<(quic::Pin, quic::Options)>,
    /// Whether frames of the tunnel have a digest.
    pub digests: bool,
}

impl Route {
    /// The given settings of a session, adapted to this route.
    #[must_use]
    pub fn session(&self, session: session::Config) -> session::Config {
        session::Config { digests: self.digests, crc32c, ..session }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        let print = "0123456789abcdef".repeat(4);
        for text in
            ["far:4430", "[::1]:1", "quic://far:4430?cert=any", &format!("quic://[::1]:2?cert={print}")]
        {
            let name: Name = text.parse().unwrap();
            assert_eq!(name.to_string(), *text);
            assert_eq!(name.quic.is_some(), text.starts_with("quic"));
        }
        assert_eq!("quic://far:1/?cert=any".parse::<Name>().unwrap().authority, "far:1");
    }

    #[test]
    fn what_is_wrong_with_a_name_is_said() {
        for (text, expected) in [
            ("far", "HOST:PORT"),
            ("quic://far?cert=any", "HOST:PORT"),
            ("quic://far:0?cert=any", "1 to 65535"),
            ("quic://far:1", "farlane export --quic"),
            ("quic://far:1?", "cert=any takes whoever"),
            ("quic://far:1?cert=", "64 hexadecimal digits"),
            ("quic://far:1?cert=12:34", "here are 4"),
            ("quic://far:1?key=1", "'key=1'"),
            ("quic://far:1?cert=any&cert=any", "twice"),
            ("quic://far:1?cert=any&x", "'x'"),
        ] {
            let error = text.parse::<Name>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
