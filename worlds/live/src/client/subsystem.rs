//! `nvme-tcp://HOST:PORT[,HOST:PORT…]/NQN[?…]`, or `nvme-rdma://…`: a subsystem, the paths to it,
//! and how it is used. `tcp@HOST:PORT` and `rdma@HOST:PORT` are paths of a transport that is not
//! the scheme's.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use assemblies::fabric;
use nvme_fabrics::host::multipath::{PATHS_MAX, Policy};
use nvme_fabrics::wire::{HostId, Nqn};
use nvme_tcp::host::DigestUse;

use super::options::SecretFiles;
use crate::sys::address::Host;
use crate::sys::precedence::Precedence;

/// A transport of NVMe over Fabrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fabric {
    /// NVMe/TCP.
    NvmeTcp,
    /// NVMe/RDMA.
    NvmeRdma,
}

impl Fabric {
    /// All fabrics.
    pub(super) const ALL: [Self; 2] = [Self::NvmeTcp, Self::NvmeRdma];

    /// The scheme of a URL that names a subsystem behind this fabric, and the default ports: that
    /// of the fabric, and that of its discovery service.
    const fn names(self) -> (&'static str, [&'static str; 2]) {
        match self {
            Self::NvmeTcp => ("nvme-tcp://", ["4420", "8009"]),
            Self::NvmeRdma => ("nvme-rdma://", ["4420", "4420"]),
        }
    }

    /// The scheme of a URL that names a subsystem behind this fabric.
    pub const fn scheme(self) -> &'static str {
        self.names().0
    }

    /// The text before an address that this fabric leads to.
    const fn mark(self) -> &'static str {
        match self {
            Self::NvmeTcp => "tcp@",
            Self::NvmeRdma => "rdma@",
        }
    }

    /// The fabric that the URL `text` names, if it names one.
    pub(super) fn of(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fabric| text.starts_with(fabric.scheme()))
    }
}

/// A path to a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The fabric that the path leads over.
    pub fabric: Fabric,
    /// `host:port`.
    pub address: String,
}

/// Which subsystem to use, over which paths, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubsystemUrl {
    text: String,
    /// The fabric of the paths for which the URL names no other.
    pub fabric: Fabric,
    /// The paths, at least one.
    pub paths: Vec<Path>,
    /// Name of the subsystem; the discovery service's if the URL names none.
    pub subsystem: Nqn,
    /// How the subsystem is used.
    pub settings: Settings,
}

/// The settings of the URL's query: `None` or the default where the query does not mention a
/// setting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Number of I/O queues of each path.
    pub queues: Option<u16>,
    /// Number of commands that each I/O queue holds.
    pub queue_size: Option<u16>,
    /// The carrier of NVMe/RDMA.
    pub provider: Provider,
    /// The address of this machine that RoCE and devices use, instead of that which leads to
    /// the peer.
    pub local: Option<Host>,
    /// How header digests of NVMe/TCP are used.
    pub header_digest: DigestUse,
    /// How data digests of NVMe/TCP are used.
    pub data_digest: DigestUse,
    /// The name of this host (HOSTNQN).
    pub host: Option<Nqn>,
    /// The identifier of this host (HOSTID).
    pub host_id: Option<HostId>,
    /// The files with the secrets by which host and controller authenticate and encrypt.
    pub secrets: SecretFiles,
    /// Keep Alive Timeout (KATO).
    pub keep_alive: Option<Duration>,
    /// How long a lost controller is waited for; an inner `None` stands for ever.
    pub controller_loss: Option<Option<Duration>>,
    /// How long commands wait for a lost controller before they fail.
    pub fast_io_fail: Option<Duration>,
    /// Which of several equally good paths a command takes.
    pub policy: Policy,
    /// How much sooner than others packets are carried.
    pub precedence: Precedence,
}

/// The carrier of NVMe/RDMA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provider {
    /// iWARP over TCP connections.
    #[default]
    Iwarp,
    /// RoCEv2 over UDP datagrams.
    Roce,
    /// RDMA devices of this machine, by libibverbs.
    Verbs,
}

impl Provider {
    /// The fabric of a port with this provider.
    pub const fn fabric(self) -> fabric::Fabric {
        match self {
            Self::Iwarp => fabric::Fabric::Iwarp,
            Self::Roce => fabric::Fabric::Roce,
            Self::Verbs => fabric::Fabric::Verbs,
        }
    }
}

impl FromStr for Provider {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "iwarp" => Ok(Self::Iwarp),
            "roce" => Ok(Self::Roce),
            "verbs" => Ok(Self::Verbs),
            _ => Err(format!("'{text}' is no provider of RDMA; expected iwarp, roce or verbs")),
        }
    }
}

/// Names of the settings that a query may hold.
const KEYS: &str = "queues, queue-size, hostnqn, hostid, dhchap-secret-file, \
    dhchap-controller-secret-file, keep-alive-tmo, ctrl-loss-tmo, fast-io-fail-tmo, policy, priority, dscp; with \
    nvme-tcp:// hdgst, ddgst, tls-key-file; with nvme-rdma:// provider, and host-traddr for roce and verbs";
/// Settings that one fabric has, and no other.
const KEYS_OF_TCP: [&str; 3] = ["hdgst", "ddgst", "tls-key-file"];
const KEYS_OF_RDMA: [&str; 2] = ["provider", "host-traddr"];

impl FromStr for SubsystemUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fabric = Fabric::of(text);
        let scheme = fabric.unwrap_or(Fabric::NvmeTcp).scheme();
        let wrong = |why: &str| {
            format!(
                "{why}; expected {scheme}HOST:PORT/NQN, for example {scheme}127.0.0.1:4420/nqn.2014-08.org.example:disk, or {scheme}HOST[:PORT] for a discovery controller"
            )
        };
        let fabric = fabric.ok_or_else(|| wrong("no such scheme"))?;
        let rest = &text[scheme.len()..];
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, name) = rest.split_once('/').unwrap_or((rest, ""));
        let discovery = name.is_empty();
        let name = if discovery { Nqn::DISCOVERY } else { name };
        let subsystem = name.parse().map_err(|error| wrong(&format!("{name}: {error}")))?;
        let paths = authority.split(',').map(|text| {
            let marked = |one: &Fabric| text.strip_prefix(one.mark()).map(|rest| (*one, rest));
            let (fabric, rest) = Fabric::ALL.iter().find_map(marked).unwrap_or((fabric, text));
            let address = with_port(rest, fabric.names().1[usize::from(discovery)]);
            let address = address.ok_or_else(|| wrong(&format!("'{text}' is no host and port")))?;
            Ok(Path { fabric, address })
        });
        let paths = paths.collect::<Result<Vec<_>, String>>()?;
        if paths.len() > PATHS_MAX {
            let count = paths.len();
            return Err(format!(
                "{count} paths to one subsystem; expected at most {PATHS_MAX}: leave some out"
            ));
        }
        let (mut settings, mut given) = (Settings::default(), Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let key = key_of(pair);
            if given.contains(&key) {
                return Err(format!("{pair}: {key} is given twice; give it once"));
            }
            given.push(key);
            settings.set(&paths, pair)?;
        }
        if settings.local.is_some() && settings.provider == Provider::Iwarp {
            return Err("host-traddr can be set with provider=roce or verbs only; expected both".to_owned());
        }
        Ok(Self { text: text.to_owned(), fabric, paths, subsystem, settings })
    }
}

/// The setting that `pair` is about, by the first of its names.
fn key_of(pair: &str) -> &str {
    match pair.split_once('=').map_or(pair, |(key, _)| key) {
        "nr-io-queues" => "queues",
        "depth" => "queue-size",
        key => key,
    }
}

impl SubsystemUrl {
    /// Whether several hosts of one process can use the subsystem at a time. RoCE has one port for
    /// all queue pairs of a process.
    pub fn takes_many_hosts(&self) -> bool {
        !self.is_by(Fabric::NvmeRdma) || self.settings.provider != Provider::Roce
    }

    /// Whether a path leads over `fabric`.
    pub(super) fn is_by(&self, fabric: Fabric) -> bool {
        self.paths.iter().any(|path| path.fabric == fabric)
    }

    /// `host:port` of each path.
    pub fn addresses(&self) -> Vec<&str> {
        self.paths.iter().map(|path| path.address.as_str()).collect()
    }
}

/// `path` as `host:port`, with `port` where `path` has none. `None` if `path` is not a host
/// and a port.
fn with_port(path: &str, port: &str) -> Option<String> {
    let after_bracket = path.rfind(']').map_or(0, |at| at + 1);
    match path[after_bracket..].rsplit_once(':') {
        Some((host, digits)) => {
            let named = after_bracket > 0 || !host.is_empty();
            (named && digits.parse::<u16>().is_ok()).then(|| path.to_owned())
        }
        None => (!path.is_empty()).then(|| format!("{path}:{port}")),
    }
}

impl Settings {
    /// Applies the setting in `pair`, in a URL with these `paths`.
    fn set(&mut self, paths: &[Path], pair: &str) -> Result<(), String> {
        let (key, value) = pair.split_once('=').unwrap_or((pair, "on"));
        let has = |fabric| paths.iter().any(|path| path.fabric == fabric);
        for (keys, wanted, other) in [
            (&KEYS_OF_RDMA[..], Fabric::NvmeRdma, Fabric::NvmeTcp),
            (&KEYS_OF_TCP[..], Fabric::NvmeTcp, Fabric::NvmeRdma),
        ] {
            if keys.contains(&key) && !has(wanted) {
                return Err(format!("'{key}' can't be set with {}; expected one of {KEYS}", other.scheme()));
            }
        }
        if let Some(set) = self.precedence.set(pair) {
            return set;
        }
        let number = |least: u16, most: u16| {
            let parsed = value.parse().ok().filter(|number| (least..=most).contains(number));
            parsed.ok_or_else(|| format!("{key}={value}: expected a number from {least} to {most}"))
        };
        let switch = || match value {
            "on" | "true" | "1" | "yes" => Ok(DigestUse::Required),
            "off" | "false" | "0" | "no" => Ok(DigestUse::Off),
            _ => Err(format!("{key}={value}: expected on or off")),
        };
        let time = || match value.parse::<u32>() {
            // nvme-cli gives times in seconds.
            Ok(seconds) => Ok(Duration::from_secs(seconds.into())),
            Err(_) => humantime::parse_duration(value)
                .map_err(|_| format!("{key}={value}: expected seconds, or a time such as 500ms")),
        };
        match key {
            "queues" | "nr-io-queues" => self.queues = Some(number(1, 64)?),
            "queue-size" | "depth" => self.queue_size = Some(number(2, 1024)?),
            "provider" => self.provider = value.parse()?,
            "host-traddr" => {
                self.local = Some(value.parse().map_err(|why| format!("{key}={value}: {why}"))?);
            }
            "hdgst" => self.header_digest = switch()?,
            "ddgst" => self.data_digest = switch()?,
            "hostnqn" => {
                self.host = Some(value.parse().map_err(|error| format!("{key}={value}: {error}"))?);
            }
            "hostid" => {
                self.host_id = Some(host_id(value).ok_or_else(|| format!("{key}={value}: expected a UUID"))?);
            }
            "dhchap-secret-file" => self.secrets.host = Some(value.into()),
            "dhchap-controller-secret-file" => self.secrets.controller = Some(value.into()),
            "tls-key-file" => self.secrets.tls = Some(value.into()),
            "dhchap-secret" | "dhchap-ctrl-secret" | "tls-key" => {
                return Err(format!(
                    "{key}: other users can see arguments; give a file: dhchap-secret-file=FILE, \
                     tls-key-file=FILE"
                ));
            }
            "keep-alive-tmo" => self.keep_alive = Some(time()?),
            "ctrl-loss-tmo" if matches!(value, "-1" | "off") => self.controller_loss = Some(None),
            "ctrl-loss-tmo" => self.controller_loss = Some(Some(time()?)),
            "fast-io-fail-tmo" => self.fast_io_fail = Some(time()?),
            "policy" => {
                self.policy = match value {
                    "round-robin" => Policy::RoundRobin,
                    "latency" | "lowest-latency" => Policy::LowestLatency,
                    _ => return Err(format!("policy={value}: expected round-robin or latency")),
                };
            }
            _ => return Err(format!("'{key}' can't be set here; expected one of {KEYS}")),
        }
        Ok(())
    }
}

/// The 16 bytes of a UUID in hexadecimal, with or without hyphens; `None` if `text` is no UUID.
pub(super) fn host_id(text: &str) -> Option<HostId> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    if digits.len() != 32 {
        return None;
    }
    let mut id = HostId::default();
    for (place, pair) in id.0.iter_mut().zip(digits.chunks(2)) {
        *place = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(id)
}

impl fmt::Display for SubsystemUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_may_lead_over_several_fabrics() {
        let url: SubsystemUrl =
            "nvme-rdma://a,tcp@b:4421,rdma@[::1]/nqn.2014-08.org.example:x?provider=roce&hdgst=on"
                .parse()
                .unwrap();
        let paths: Vec<_> = url.paths.iter().map(|path| (path.fabric, path.address.as_str())).collect();
        let (tcp, rdma) = (Fabric::NvmeTcp, Fabric::NvmeRdma);
        assert_eq!(paths, [(rdma, "a:4420"), (tcp, "b:4421"), (rdma, "[::1]:4420")]);
        assert_eq!(
            (url.settings.provider, url.settings.header_digest),
            (Provider::Roce, DigestUse::Required)
        );
        let discovery: SubsystemUrl = "nvme-tcp://a,rdma@b".parse().unwrap();
        assert_eq!(discovery.addresses(), ["a:8009", "b:4420"]);
    }

    #[test]
    fn a_subsystem_is_named_with_its_paths_and_how_it_is_used() {
        let url: SubsystemUrl = "nvme-tcp://a:4420,[::1]:4421,b/nqn.2014-08.org.example:x?queues=4&hdgst=on&\
            ddgst&ctrl-loss-tmo=-1&fast-io-fail-tmo=500ms&policy=latency&hostid=00000000-0000-0000-0000-0000000000ff"
            .parse()
            .unwrap();
        assert_eq!(url.addresses(), ["a:4420", "[::1]:4421", "b:4420"]);
        assert_eq!(url.subsystem.as_str(), "nqn.2014-08.org.example:x");
        let settings = &url.settings;
        assert_eq!(
            (settings.header_digest, settings.data_digest),
            (DigestUse::Required, DigestUse::Required)
        );
        assert_eq!((settings.queues, settings.controller_loss), (Some(4), Some(None)));
        assert_eq!(settings.fast_io_fail, Some(Duration::from_millis(500)));
        assert_eq!((settings.policy, settings.host_id.unwrap().0[15]), (Policy::LowestLatency, 255));
        let discovery: SubsystemUrl = "nvme-tcp://box".parse().unwrap();
        assert!(discovery.subsystem.is_discovery() && discovery.addresses() == ["box:8009"]);
        let digests = |text: &str| {
            let settings = text.parse::<SubsystemUrl>().unwrap().settings;
            (settings.header_digest, settings.data_digest)
        };
        assert_eq!(digests("nvme-tcp://box"), (DigestUse::Preferred, DigestUse::Preferred));
        assert_eq!(digests("nvme-tcp://box?hdgst=off&ddgst=on"), (DigestUse::Off, DigestUse::Required));
        let rdma: SubsystemUrl = "nvme-rdma://a/nqn.2014-08.org.example:x?provider=iwarp".parse().unwrap();
        assert_eq!((rdma.fabric, rdma.settings.provider), (Fabric::NvmeRdma, Provider::Iwarp));
        assert_eq!(rdma.addresses(), ["a:4420"]);
        let roce = "nvme-rdma://a/nqn.2014-08.org.example:x?provider=roce&host-traddr=127.0.0.2";
        let settings = roce.parse::<SubsystemUrl>().unwrap().settings;
        assert_eq!((settings.provider, settings.local), (Provider::Roce, "127.0.0.2".parse().ok()));
        let card = "nvme-rdma://a/nqn.2014-08.org.example:x?provider=verbs&host-traddr=127.0.0.2";
        let settings = card.parse::<SubsystemUrl>().unwrap().settings;
        assert_eq!((settings.provider, settings.local), (Provider::Verbs, "127.0.0.2".parse().ok()));
        for wrong in [
            "nvme-tcp://",
            "nvme-rdma://a/nqn.2014-08.org.example:x?host-traddr=127.0.0.2",
            "nvme-rdma://a/nqn.2014-08.org.example:x?provider=roce&host-traddr=near",
            "nvme-rdma://a/nqn.2014-08.org.example:x?provider=pigeons",
            "nvme-rdma://a/nqn.2014-08.org.example:x?hdgst=on",
            "nvme-tcp://tcp@a/nqn.2014-08.org.example:x?provider=roce",
            "nvme-tcp://a,rdma@/nqn.2014-08.org.example:x",
            "nvme-tcp://a/nqn.2014-08.org.example:x?provider=iwarp",
            "nvme-tcp://a:x/nqn.2014-08.org.example:x",
            "nvme-tcp://a/nqn.2014-08.org.example:x?queues=0",
            "nvme-tcp://a/nqn.2014-08.org.example:x?colour=red",
            "nvme-tcp://a/nqn.2014-08.org.example:x?hdgst=maybe",
            "nvme-tcp://a,/nqn.2014-08.org.example:x",
        ] {
            let error = wrong.parse::<SubsystemUrl>().unwrap_err();
            assert!(error.contains("expected"), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_setting_is_given_once() {
        for (query, key) in [
            ("queues=1&hdgst=on&queues=2", "queues"),
            ("queue-size=8&depth=16", "queue-size"),
            ("ddgst&ddgst=off", "ddgst"),
            ("priority=1&priority=2", "priority"),
        ] {
            let url = format!("nvme-tcp://a/nqn.2014-08.org.example:x?{query}");
            let error = url.parse::<SubsystemUrl>().unwrap_err();
            assert!(error.contains(&format!("{key} is given twice")), "{query}: {error}");
        }
    }
}
