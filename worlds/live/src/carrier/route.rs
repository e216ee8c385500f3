//! How a far end is reached.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use tunnel::session;

use super::datagrams::{Ethernet, Launch};
use super::identity::{Identity, KeyError, KnownEnds, Pin};
use super::{datagrams, quic, tcp};
use crate::sys::digest::crc32c;
use crate::sys::precedence::Precedence;
use crate::sys::ptp::Daemon;

const QUIC: &str = "quic://";
const SHM: &str = "shm:";
const UDP: &str = "udp://";
const ETH: &str = "eth:";
const EXPECTED: &str = "expected HOST:PORT?key=FINGERPRINT";
const KEYS: &str = "key=FINGERPRINT, key=any, priority=N, dscp=NAME";

/// The carrier of the bytes between two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// TCP, with TLS where the far end's key is given or remembered.
    Tcp,
    /// QUIC, which is always encrypted.
    Quic,
    /// Memory that both ends share, on one machine.
    Shm,
    /// Datagrams of UDP.
    Udp,
    /// Bare Ethernet frames.
    Eth,
}

impl Way {
    /// The beginning of a name that is reached so; a far end that listens for TCP may go without.
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::Tcp => "tcp://",
            Self::Quic => QUIC,
            Self::Shm => SHM,
            Self::Udp => UDP,
            Self::Eth => ETH,
        }
    }
}

/// The name of a far end: `HOST:PORT` where it listens for TCP, `quic://HOST:PORT`,
/// `udp://HOST:PORT`, or `eth:IFACE[+IFACE][,vlan=N][,pcp=N][,port=N]/MAC`. Behind each,
/// `?key=FINGERPRINT` names the key that the far end must prove, and `?key=any` takes any key;
/// `priority=N` and `dscp=NAME` may stand beside it. `shm:PATH` is a far end of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// `HOST:PORT`, not resolved yet; for shared memory, the path of the socket; for Ethernet, the
    /// interface and the station.
    pub authority: String,
    /// The carrier of the bytes to the far end.
    pub way: Way,
    /// Which far end to trust, if the name says so.
    pub pin: Option<Pin>,
    /// How much sooner than others packets to the far end are carried, if the name says so.
    pub precedence: Precedence,
}

impl Name {
    /// The name of a far end that listens for TCP: `HOST:PORT` or `HOST:PORT?key=FINGERPRINT`.
    ///
    /// # Errors
    /// When `text` is not of that form; the error names the expected form.
    pub fn tcp(text: &str) -> Result<Self, String> {
        Self::of(text, Way::Tcp)
    }

    /// A name that says nothing but the place.
    fn at(authority: &str, way: Way) -> Self {
        Self { authority: authority.to_owned(), way, pin: None, precedence: Precedence::default() }
    }

    fn of(text: &str, way: Way) -> Result<Self, String> {
        let (place, query) = text.split_once('?').unwrap_or((text, ""));
        Self::at(&authority(place.trim_end_matches('/'))?, way).with(query)
    }

    /// Adds the options behind the place.
    fn with(mut self, query: &str) -> Result<Self, String> {
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            if let Some(set) = self.precedence.set(pair) {
                set?;
                continue;
            }
            match pair.split_once('=') {
                Some(("key", _)) if self.pin.is_some() => {
                    return Err(format!("key= is given twice; {EXPECTED}"));
                }
                Some(("key", "any")) => self.pin = Some(Pin::Any),
                Some(("key", value)) => {
                    let key = value.parse().map_err(|error| format!("key={value}: {error}"))?;
                    self.pin = Some(Pin::Key(key));
                }
                _ => return Err(format!("'{pair}' is not one of: {KEYS}; {EXPECTED}")),
            }
        }
        Ok(self)
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix(SHM) {
            Some("") => {
                return Err(format!("no socket; expected {SHM}PATH, for example {SHM}/run/user/1000/far"));
            }
            Some(path) => return Ok(Self::at(path, Way::Shm)),
            None => {}
        }
        if let Some(place) = text.strip_prefix(ETH) {
            let (place, query) = place.split_once('?').unwrap_or((place, ""));
            Ethernet::with_station(place)?;
            return Self::at(place, Way::Eth).with(query);
        }
        if let Some(rest) = text.strip_prefix(UDP) {
            return Self::of(rest, Way::Udp).map_err(|error| format!("{error}; expected {UDP}HOST:PORT"));
        }
        match text.strip_prefix(QUIC) {
            None => Self::tcp(text),
            Some(rest) => {
                Self::of(rest, Way::Quic).map_err(|error| format!("{error}; expected {QUIC}HOST:PORT"))
            }
        }
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
        let scheme = if self.way == Way::Tcp { "" } else { self.way.scheme() };
        write!(f, "{scheme}{}", self.authority)?;
        let mut separator = '?';
        if let Some(pin) = self.pin {
            write!(f, "?key={pin}")?;
            separator = '&';
        }
        if self.precedence.is_none() { Ok(()) } else { write!(f, "{separator}{}", self.precedence) }
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
    /// When datagrams leave, for far ends that are reached by them; at once if not said.
    pub launch: Option<Launch>,
    /// The PTP daemon of this machine; where `ptp4l` usually answers if none is named.
    pub ptp: Option<Daemon>,
    /// Whether the tunnel's frames have no digest over TCP.
    pub without_digests: bool,
    /// The file with this host's key; [`Identity::default_path`] if none is named.
    pub key: Option<PathBuf>,
}

impl Transport {
    /// The route to the far end that is called `name` (see [`Name`]). A name without a key gets the
    /// one that is remembered for it, if any. Makes this host's key if it is needed and there is
    /// none. Waits for the system's resolver.
    ///
    /// # Errors
    /// When the name is malformed or has no address, or a key can't be read or made.
    pub fn route(&self, name: &str) -> io::Result<Route> {
        let name: Name = name.parse().map_err(invalid)?;
        let precedence = name.precedence.or(self.tcp.precedence);
        let tcp = tcp::Options { precedence, ..self.tcp.clone() };
        if self.launch.is_some() && !matches!(name.way, Way::Udp | Way::Eth) {
            return Err(invalid("times of launch are for udp:// and eth:; leave --launch out"));
        }
        if precedence.dscp.is_some() && name.way == Way::Eth {
            return Err(invalid("bare frames have no DSCP: give pcp=N in eth:, or --priority"));
        }
        let is_quic = name.way == Way::Quic;
        if name.way != Way::Tcp && !self.second_paths.is_empty() {
            return Err(invalid(
                "several paths are joined over TCP: give tcp://, or leave --second-path out",
            ));
        }
        if name.way == Way::Shm {
            return Ok(Self::within_this_machine(name.authority.into(), tcp));
        }
        let known = match name.pin {
            Some(_) => None,
            None => KnownEnds::of_user().find(&name.authority).map_err(invalid)?,
        };
        let trust = match name.pin.or(known.map(Pin::Key)) {
            Some(pin) => Some(Trust { identity: Arc::new(self.identity(pin)?), pin }),
            None if is_quic => {
                return Err(invalid(format!(
                    "which far end? {QUIC}{}?key=FINGERPRINT names its key, as farlane export prints it when it starts; \
                     key=any accepts any key",
                    name.authority
                )));
            }
            None => None,
        };
        // TLS authenticates everything that it carries.
        let digests = trust.is_none() && !self.without_digests;
        if matches!(name.way, Way::Udp | Way::Eth) {
            return self.by_datagrams(&name, tcp, trust, digests);
        }
        let others = self.second_paths.iter().map(|name| tcp::resolve(name)).collect::<io::Result<_>>()?;
        let addresses = tcp::resolve(&name.authority)?;
        let quic = is_quic.then_some(quic::Options { precedence, ..self.quic });
        let (shm, datagrams) = (None, None);
        Ok(Route { addresses, others, tcp, quic, trust, digests, shm, datagrams })
    }

    /// The route to a far end that listens at the socket at `path`. A peer that may open the socket
    /// is trusted, and memory needs no digests.
    fn within_this_machine(path: PathBuf, tcp: tcp::Options) -> Route {
        let (addresses, others) = (Vec::new(), Vec::new());
        let (quic, trust, shm) = (None, None, Some(path));
        let (digests, datagrams) = (false, None);
        Route { addresses, others, tcp, quic, trust, digests, shm, datagrams }
    }

    /// The route by datagrams.
    fn by_datagrams(
        &self,
        name: &Name,
        tcp: tcp::Options,
        trust: Option<Trust>,
        digests: bool,
    ) -> io::Result<Route> {
        let (place, addresses) = match name.way {
            Way::Eth => {
                let (place, station) = Ethernet::with_station(&name.authority).map_err(invalid)?;
                (Some(place), vec![station])
            }
            _ => (None, tcp::resolve(&name.authority)?),
        };
        let (others, quic, shm) = (Vec::new(), None, None);
        let options = datagrams::Options { precedence: tcp.precedence, launch: self.launch };
        options.warn_without_queue(&name.to_string(), place.as_ref());
        let datagrams = Some((place, options));
        Ok(Route { addresses, others, tcp, quic, trust, digests, shm, datagrams })
    }

    /// This host's key. A host that takes any far end needs no key that others know.
    fn identity(&self, pin: Pin) -> io::Result<Identity> {
        let path = self.key.clone().unwrap_or_else(Identity::default_path);
        let identity = match (Identity::read(&path), pin, &self.key) {
            (Err(KeyError::File(_, error)), Pin::Any, None) if error.kind() == io::ErrorKind::NotFound => {
                Identity::generate()
            }
            (Err(KeyError::File(_, error)), ..) if error.kind() == io::ErrorKind::NotFound => {
                Identity::keep(&path).map(|(identity, _)| identity)
            }
            (result, ..) => result,
        };
        identity.map_err(|error| invalid(format!("{error}; {}", error.help())))
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

/// The identity of a host, and the far end that it trusts.
#[derive(Clone, Debug)]
pub struct Trust {
    /// The host's own key.
    pub identity: Arc<Identity>,
    /// The key that the far end must prove.
    pub pin: Pin,
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
    /// The settings of QUIC, if it is used; it needs `trust`.
    pub quic: Option<quic::Options>,
    /// The keys of both ends, if the connection is encrypted.
    pub trust: Option<Trust>,
    /// Whether frames of the tunnel have a digest.
    pub digests: bool,
    /// The socket at which a far end of this machine shares memory, if that is the way; there are
    /// no addresses then.
    pub shm: Option<PathBuf>,
    /// Datagrams are the way if there is something here: of UDP, or frames at an interface.
    pub datagrams: Option<(Option<Ethernet>, datagrams::Options)>,
}

impl Route {
    /// The given settings of a session, adapted to this route.
    #[must_use]
    pub fn session(&self, session: session::Config) -> session::Config {
        let is_bare = matches!(self.datagrams, Some((Some(_), _)));
        let session = if is_bare { datagrams::quiet(session) } else { session };
        session::Config { digests: self.digests, crc32c, ..session }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU";

    fn precedence(text: &str) -> tcp::Options {
        let mut precedence = Precedence::default();
        text.split('&').for_each(|pair| precedence.set(pair).unwrap().unwrap());
        tcp::Options { precedence, ..tcp::Options::default() }
    }

    #[test]
    fn a_name_says_more_than_the_options() {
        let transport = Transport { tcp: precedence("priority=3&dscp=EF"), ..Transport::default() };
        let route = transport.route("udp://127.0.0.1:1?priority=5").unwrap();
        let (_, options) = route.datagrams.unwrap();
        assert_eq!(options.precedence, precedence("priority=5&dscp=EF").precedence);
        let route = transport.route("127.0.0.1:1").unwrap();
        assert_eq!(route.tcp, precedence("priority=3&dscp=EF"));
    }

    #[test]
    fn a_name_is_read_as_it_is_written() {
        for text in [
            "far:4430",
            "[::1]:1",
            "far:4430?key=any",
            &format!("far:4430?key={KEY}"),
            "quic://far:4430?key=any",
            &format!("quic://[::1]:2?key={KEY}"),
            "shm:/run/far?key=any",
            "udp://far:4430",
            "udp://far:4430?key=any&priority=5",
            &format!("eth:eth0/02:00:5e:00:53:01?key={KEY}"),
            "udp://far:4430?priority=5&dscp=EF",
            "far:4430?key=any&dscp=AF41",
            "eth:eth0+eth1/02:00:5e:00:53:01",
            "eth:eth0,vlan=3,pcp=5,port=2/02:00:5e:00:53:01",
        ] {
            let name: Name = text.parse().unwrap();
            assert_eq!(name.to_string(), *text);
            assert_eq!(name.way == Way::Quic, text.starts_with("quic"));
            assert_eq!(name.way == Way::Shm, text.starts_with("shm"));
            assert_eq!(name.pin.is_some(), text.contains("key=") && name.way != Way::Shm);
        }
        assert_eq!("quic://far:1/?key=any".parse::<Name>().unwrap().authority, "far:1");
    }

    #[test]
    fn what_is_wrong_with_a_name_is_said() {
        for (text, expected) in [
            ("far", "HOST:PORT"),
            ("shm:", "shm:PATH"),
            ("udp://far", "udp://HOST:PORT"),
            ("udp://far:1?key=1", "43 characters of base64"),
            ("eth:eth0/02:00:5e:00:53:01?dscp", "'dscp'"),
            ("eth:eth0", "/MAC"),
            ("quic://far?key=any", "HOST:PORT"),
            ("quic://far:0?key=any", "1 to 65535"),
            ("far:1?key=", "43 characters of base64"),
            ("quic://far:1?key=12:34", "farlane setup key show"),
            ("far:1?cert=1", "'cert=1'"),
            ("far:1?dscp=EE", "dscp=EE: expected a number from 0 to 63"),
            ("far:1?priority=16", "0 to 15"),
            ("udp://far:1?priority=1&dscp=EF&priority=2", "priority=2: priority is given twice"),
            ("quic://far:1?key=any&key=any", "twice"),
            ("quic://far:1?key=any&x", "'x'"),
        ] {
            let error = text.parse::<Name>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let transport = Transport { tcp: precedence("priority=3&dscp=EF"), ..Transport::default() };
        let error = transport.route("eth:eth0/02:00:5e:00:53:01").unwrap_err().to_string();
        assert!(error.contains("no DSCP"), "{error}");
        let error = Transport::default().route("quic://far.invalid:1").unwrap_err().to_string();
        assert!(error.contains("key=any accepts any"), "{error}");
    }
}
