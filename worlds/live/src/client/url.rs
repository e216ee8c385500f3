//! Where a controller is, in the form that every command takes.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::subsystem::{Fabric, SubsystemUrl};
use crate::carrier::route::{Name, Way};

/// The URL of a controller: `tcp://HOST:PORT`, `quic://HOST:PORT?key=FINGERPRINT`, `shm:PATH`,
/// `udp://HOST:PORT`, `eth:IFACE/MAC`, `vfio-user:SOCKET` or `nvme-tcp://HOST:PORT/NQN`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Url {
    /// The controller of a far end.
    Far(FarUrl),
    /// A controller in another process of this machine, which offers it by vfio-user at
    /// this socket.
    VfioUser(PathBuf),
    /// A controller of a subsystem of NVMe over Fabrics.
    Subsystem(Box<SubsystemUrl>),
}

const VFIO_USER: &str = "vfio-user:";

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if Fabric::of(text).is_some() {
            let url: SubsystemUrl = text.parse()?;
            if url.subsystem.is_discovery() {
                return Err(format!(
                    "which subsystem? expected {text}/NQN; farlane use discover {text} lists them"
                ));
            }
            return Ok(Self::Subsystem(Box::new(url)));
        }
        match text.strip_prefix(VFIO_USER) {
            Some("" | "//" | "///") => Err(format!(
                "no socket; expected {VFIO_USER}SOCKET, for example {VFIO_USER}/run/user/1000/ssd.sock"
            )),
            Some(path) => Ok(Self::VfioUser(path.strip_prefix("//").unwrap_or(path).into())),
            None => text.parse().map(Self::Far).map_err(|error| {
                let fabrics = Fabric::ALL.map(|fabric| format!("; or {}HOST:PORT/NQN", fabric.scheme()));
                format!("{error}; or {VFIO_USER}SOCKET{}", fabrics.concat())
            }),
        }
    }
}

impl Url {
    /// Whether several hosts of one process can use the device at a time, each with a controller
    /// of its own.
    pub fn takes_many_hosts(&self) -> bool {
        match self {
            Self::Far(_) | Self::VfioUser(_) => false,
            Self::Subsystem(url) => url.takes_many_hosts(),
        }
    }

    /// The URL for each of `hosts` hosts: together they have the I/O queues that this one names.
    #[must_use]
    pub fn for_one_of(&self, hosts: usize) -> Self {
        let mut url = self.clone();
        if let Self::Subsystem(subsystem) = &mut url
            && let Some(queues) = &mut subsystem.settings.queues
        {
            *queues = queues.div_ceil(u16::try_from(hosts.max(1)).unwrap_or(u16::MAX)).max(1);
        }
        url
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Far(url) => url.fmt(f),
            Self::VfioUser(path) => write!(f, "{VFIO_USER}{}", path.display()),
            Self::Subsystem(url) => url.fmt(f),
        }
    }
}

/// The URL of a far end: `tcp://HOST:PORT`, `quic://HOST:PORT?key=FINGERPRINT`, `shm:PATH`,
/// `udp://HOST:PORT` or `eth:IFACE[,vlan=N][,pcp=N][,port=N]/MAC`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FarUrl(Name);

impl FarUrl {
    /// The name of the far end that links use.
    pub fn name(&self) -> String {
        self.0.to_string()
    }

    /// The carrier of the bytes to the far end.
    pub const fn way(&self) -> Way {
        self.0.way
    }
}

impl FromStr for FarUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with("shm:") || text.starts_with("eth:") {
            return text.parse().map(Self);
        }
        let expected = "expected tcp://HOST:PORT, for example tcp://127.0.0.1:4430, quic://HOST:PORT?key=FINGERPRINT, \
                        udp://HOST:PORT, eth:IFACE/MAC or shm:PATH";
        match text.split_once("://") {
            Some(("tcp", rest)) => Name::tcp(rest.trim_end_matches('/'))
                .map(Self)
                .map_err(|error| format!("{error}; {expected}")),
            Some(("quic" | "udp", _)) => text.parse().map(Self),
            Some((scheme, _)) => {
                Err(format!("the scheme '{scheme}' is not one of: tcp, quic, udp, eth, shm; {expected}"))
            }
            None => Err(format!("no scheme; {expected}")),
        }
    }
}

impl fmt::Display for FarUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.way() == Way::Tcp { "tcp://" } else { "" };
        write!(f, "{scheme}{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_share_the_queues_of_a_url() {
        let url = |text: &str| text.parse::<Url>().unwrap();
        let queues = |url: Url| match url {
            Url::Subsystem(url) => url.settings.queues,
            _ => None,
        };
        let four = "nvme-tcp://127.0.0.1:4420/nqn.2014-08.org.example:x?queues=4";
        for (hosts, expected) in [(1, 4), (2, 2), (3, 2), (4, 1), (8, 1)] {
            assert_eq!(queues(url(four).for_one_of(hosts)), Some(expected), "{hosts}");
        }
        let plain = url(four.split_once('?').unwrap().0);
        assert_eq!(queues(plain.for_one_of(4)), None);
        let far = url("tcp://127.0.0.1:4430");
        assert_eq!(far.for_one_of(4), far);
        let roce = url("nvme-rdma://127.0.0.1:4420/nqn.2014-08.org.example:x?provider=roce");
        assert!(plain.takes_many_hosts() && !far.takes_many_hosts() && !roce.takes_many_hosts());
    }

    #[test]
    fn a_controller_is_at_a_far_end_or_at_a_socket() {
        for (text, path) in [
            ("vfio-user:ssd.sock", "ssd.sock"),
            ("vfio-user:/run/ssd.sock", "/run/ssd.sock"),
            ("vfio-user:///run/ssd.sock", "/run/ssd.sock"),
        ] {
            assert_eq!(text.parse(), Ok(Url::VfioUser(path.into())));
        }
        let url: Url = "tcp://localhost:4430".parse().unwrap();
        assert_eq!(url.to_string(), "tcp://localhost:4430");
        for wrong in ["vfio-user:", "vfio-user://", "/run/ssd.sock", "udp://a", "eth:a", "tcp://a"] {
            let error = wrong.parse::<Url>().unwrap_err();
            assert!(error.contains("expected") && error.contains("vfio-user:SOCKET"), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_far_end_is_a_host_and_a_port() {
        assert_eq!("tcp://[::1]:4430".parse::<FarUrl>().map(|url| url.name()), Ok("[::1]:4430".to_owned()));
        let quic = "quic://far:4430?key=any";
        assert_eq!(
            quic.parse::<FarUrl>().map(|url| (url.name(), url.to_string())),
            Ok((quic.to_owned(), quic.to_owned()))
        );
        for text in ["shm:/run/far", "udp://far:1", "eth:eth0/02:00:5e:00:53:01"] {
            assert_eq!(text.parse::<FarUrl>().map(|url| url.to_string()), Ok(text.to_owned()));
        }
        for wrong in ["127.0.0.1:1", "tcp://a", "tcp://:1", "tcp://a:0", "tcp://a:70000"] {
            assert!(wrong.parse::<FarUrl>().unwrap_err().contains("expected tcp://HOST:PORT"), "{wrong}");
        }
    }
}
