//! The file of an agent's target: the record of the hosts that the target lets in.
//!
//! Everything that an agent has to know of the file after its own restart is in the names there:
//! a subsystem's name has the volume and, if one host has it alone, the epoch; the name of a host's
//! secret has the attachment and the epoch; the path of the namespace has the pool.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use fleet::object::{Admission, Mode, Transport};
use fleet::{Epoch, Name};
use serde::{Deserialize, Serialize};

use crate::naming::{self, epoch_text, host_nqn, parse_epoch, parse_host, parse_subsystem, subsystem_nqn};

/// What ends the names of files with secrets of DH-HMAC-CHAP.
const SECRET: &str = "dhchap";
/// What ends the names of files with keys of TLS.
const TLS_KEY: &str = "tls";
/// What ends the names of the files with volumes.
const VOLUME: &str = "raw";

/// The volumes that have hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    /// Whether volumes are left out that hosts are meant to reach. Hosts then keep trying.
    pub(super) is_partial: bool,
    pub(super) volumes: BTreeMap<Name, Offer>,
}

/// A volume that has hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) pool: Name,
    /// The file with the volume's data.
    pub(super) path: PathBuf,
    /// The length of that file.
    pub(super) bytes: u64,
    /// The name of the subsystem.
    pub(super) nqn: String,
    /// The hosts that are let in. Each host is there once.
    pub(super) admitted: Vec<Admission>,
}

/// What a target's file has in all cases.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) listen: Vec<SocketAddr>,
    /// The pools of this machine.
    pub(super) pools: Vec<(Name, PathBuf)>,
    /// Where the secrets of hosts are.
    pub(super) secrets: PathBuf,
    /// Whether hosts must encrypt.
    pub(super) encrypt: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    discovery: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
    port: Vec<Port>,
    #[serde(default)]
    subsystem: Vec<Subsystem>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Port {
    listen: SocketAddr,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Subsystem {
    nqn: String,
    serial: String,
    /// Reservations that are to persist, of hosts that share the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<PathBuf>,
    host: Vec<Host>,
    namespace: Vec<Namespace>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Host {
    nqn: String,
    dhchap_secret_file: PathBuf,
    tls_key_file: Option<PathBuf>,
    readonly: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Namespace {
    /// Without a size, so that a target never makes a file that is lost.
    path: PathBuf,
}

/// The file with a volume's data in the folder of a pool.
pub(super) fn volume_path(pool: &Path, volume: &Name) -> PathBuf {
    pool.join(format!("{volume}.{VOLUME}"))
}

/// The file beside that of a volume in which the target keeps reservations.
pub(super) fn state_path(volume: &Path) -> PathBuf {
    volume.with_extension("state")
}

/// The name of a file with a secret.
fn secret_name(volume: &Name, admission: &Admission, ending: &str) -> String {
    // No name of an object has a dot.
    format!("{volume}.{}.{}.{ending}", admission.attachment, epoch_text(admission.epoch))
}

/// The attachment and the epoch in the name of a file with a secret.
fn parse_secret_name(path: &Path) -> Option<(Name, Epoch)> {
    let mut parts = path.file_name()?.to_str()?.split('.').skip(1);
    Some((Name::new(parts.next()?).ok()?, parse_epoch(parts.next()?)?))
}

impl Content {
    /// No volumes, for the time until those are known that hosts are meant to reach.
    pub(super) fn not_yet() -> Self {
        Self { is_partial: true, volumes: BTreeMap::new() }
    }
}

impl Frame {
    /// The folder of a pool of this machine.
    pub(super) fn pool(&self, name: &Name) -> Option<&Path> {
        self.pools.iter().find(|(pool, _)| pool == name).map(|(_, path)| path.as_path())
    }

    /// The file with the secret of a host.
    pub(super) fn secret(&self, volume: &Name, admission: &Admission) -> PathBuf {
        self.secrets.join(secret_name(volume, admission, SECRET))
    }

    /// The file with the key of TLS of a host.
    pub(super) fn tls_key(&self, volume: &Name, admission: &Admission) -> PathBuf {
        self.secrets.join(secret_name(volume, admission, TLS_KEY))
    }

    /// The text of a file with this content.
    ///
    /// # Errors
    /// When a path is no UTF-8.
    pub(super) fn emit(&self, content: &Content) -> Result<String, toml::ser::Error> {
        let host = |volume: &Name, one: &Admission| Host {
            nqn: host_nqn(&one.node),
            dhchap_secret_file: self.secret(volume, one),
            tls_key_file: self.encrypt.then(|| self.tls_key(volume, one)),
            readonly: one.mode == Mode::Read,
        };
        let subsystem = |(volume, offer): (&Name, &Offer)| Subsystem {
            nqn: offer.nqn.clone(),
            serial: naming::serial(volume),
            state: offer.is_shared().then(|| state_path(&offer.path)),
            host: offer.admitted.iter().map(|one| host(volume, one)).collect(),
            namespace: vec![Namespace { path: offer.path.clone() }],
        };
        toml::to_string(&File {
            discovery: "keyed".to_owned(),
            partial: content.is_partial,
            port: self.listen.iter().map(|listen| Port { listen: *listen }).collect(),
            subsystem: content.volumes.iter().map(subsystem).collect(),
        })
    }

    /// The content of a file that this agent wrote.
    ///
    /// # Errors
    /// When an agent with these pools writes no such file.
    pub(super) fn parse(&self, text: &str) -> Result<Content, String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut content = Content { is_partial: file.partial, ..Content::default() };
        for subsystem in file.subsystem {
            let nqn = subsystem.nqn.clone();
            let (volume, offer) =
                self.offer(subsystem).ok_or_else(|| format!("{nqn} is no subsystem of this agent"))?;
            content.volumes.insert(volume, offer);
        }
        Ok(content)
    }

    fn offer(&self, subsystem: Subsystem) -> Option<(Name, Offer)> {
        let (volume, epoch) = parse_subsystem(&subsystem.nqn)?;
        let namespace = subsystem.namespace.into_iter().next()?;
        let folder = namespace.path.parent()?;
        let (pool, _) = self.pools.iter().find(|(_, path)| path == folder)?;
        let admission = |host: Host| {
            let (attachment, let_in) = parse_secret_name(&host.dhchap_secret_file)?;
            let mode = match (epoch, host.readonly) {
                (Some(_), _) => Mode::Exclusive,
                (None, false) => Mode::Shared,
                (None, true) => Mode::Read,
            };
            let (node, transport) = (parse_host(&host.nqn)?, Transport::NvmeTcp);
            Some(Admission { attachment, node, mode, epoch: let_in, transport })
        };
        let admitted = subsystem.host.into_iter().map(admission).collect::<Option<_>>()?;
        let bytes = std::fs::metadata(&namespace.path).map_or(0, |found| found.len());
        let (pool, path, nqn) = (pool.clone(), namespace.path, subsystem.nqn);
        Some((volume, Offer { pool, path, bytes, nqn, admitted }))
    }
}

impl Offer {
    /// Whether several hosts may have the volume.
    fn is_shared(&self) -> bool {
        self.admitted.iter().any(|one| one.mode != Mode::Exclusive)
    }

    /// A volume with the hosts of a list that one subsystem can have, and the others. Hosts with
    /// other names for the subsystem, and a second attachment of a host, are others.
    pub(super) fn of(
        volume: &Name,
        (pool, path, bytes): (Name, PathBuf, u64),
        list: &[Admission],
    ) -> Option<(Self, Vec<Admission>)> {
        let first = list.first()?;
        let nqn = subsystem_nqn(volume, first.mode, first.epoch);
        let (mut admitted, mut others): (Vec<Admission>, Vec<_>) = (Vec::new(), Vec::new());
        for one in list {
            let fits = subsystem_nqn(volume, one.mode, one.epoch) == nqn;
            let is_new = admitted.iter().all(|other| other.node != one.node);
            if fits && is_new { &mut admitted } else { &mut others }.push(one.clone());
        }
        Some((Self { pool, path, bytes, nqn, admitted }, others))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn admission(attachment: &str, node: &str, mode: Mode, number: u64) -> Admission {
        let epoch = Epoch { incarnation: 2, number };
        let transport = Transport::NvmeTcp;
        Admission { attachment: name(attachment), node: name(node), mode, epoch, transport }
    }

    fn frame(encrypt: bool) -> Frame {
        Frame {
            listen: vec!["127.0.0.1:4420".parse().unwrap(), "[::1]:4420".parse().unwrap()],
            pools: vec![(name("other"), "/pools/other".into()), (name("p"), "/pools/my \"p\"".into())],
            secrets: "/var/agent/target".into(),
            encrypt,
        }
    }

    fn offer(volume: &str, list: &[Admission]) -> (Name, Offer) {
        let place = (name("p"), volume_path(Path::new("/pools/my \"p\""), &name(volume)), 0);
        let (offer, others) = Offer::of(&name(volume), place, list).unwrap();
        assert!(others.is_empty());
        (name(volume), offer)
    }

    #[test]
    fn a_file_is_the_record_of_the_hosts() {
        let alone = offer("alone", &[admission("a", "h", Mode::Exclusive, 5)]);
        let shared = [admission("b", "h", Mode::Shared, 6), admission("c", "i", Mode::Read, 7)];
        let mut content = Content { is_partial: false, volumes: [alone, offer("several", &shared)].into() };
        for encrypt in [false, true] {
            let frame = frame(encrypt);
            content.is_partial = encrypt;
            let text = frame.emit(&content).unwrap();
            assert_eq!(frame.parse(&text).unwrap(), content, "{text}");
            assert_eq!(text.contains("tls-key-file"), encrypt);
        }
        let empty = frame(false).emit(&Content::default()).unwrap();
        assert_eq!(frame(false).parse(&empty).unwrap(), Content::default());
    }

    #[test]
    fn a_host_has_one_attachment_and_a_subsystem_one_name() {
        let list = [
            admission("a", "h", Mode::Exclusive, 5),
            admission("b", "i", Mode::Exclusive, 6),
            admission("c", "j", Mode::Shared, 7),
        ];
        let place = || (name("p"), PathBuf::from("/pools/p/v.raw"), 4096);
        let (offer, others) = Offer::of(&name("v"), place(), &list).unwrap();
        assert_eq!((&offer.admitted[..], &others[..]), (&list[..1], &list[1..]));
        let twice = [admission("a", "h", Mode::Shared, 5), admission("b", "h", Mode::Read, 6)];
        let (offer, others) = Offer::of(&name("v"), place(), &twice).unwrap();
        assert_eq!((&offer.admitted[..], &others[..]), (&twice[..1], &twice[1..]));
        assert!(Offer::of(&name("v"), place(), &[]).is_none());
    }

    #[test]
    fn files_of_others_are_no_record() {
        let frame = frame(false);
        let volumes = [offer("v", &[admission("a", "h", Mode::Exclusive, 5)])].into();
        let content = Content { volumes, ..Content::default() };
        let good = frame.emit(&content).unwrap();
        for (part, other) in [
            ("fleet:v:E2-5", "disk"),
            ("v.a.E2-5.dhchap", "host.key"),
            ("/pools/my \\\"p\\\"/", "/elsewhere/"),
            ("fleet-host:h", "h"),
            ("serial", "colour"),
        ] {
            let bad = good.replace(part, other);
            assert!(bad == good || frame.parse(&bad).is_err(), "{bad}");
        }
        assert!(frame.parse("").is_err());
    }
}
