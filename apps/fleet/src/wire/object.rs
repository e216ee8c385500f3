//! The objects of the store.

use std::collections::BTreeMap;

use engine::Nanos;
use fleet::object;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Hex, Invalid, Name, Wire, mirrors, words};

/// An object, with its kind beside its fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Object {
    /// The fleet itself.
    Fleet(Fleet),
    /// A machine.
    Node(Node),
    /// Space for volumes on a machine.
    Pool(Pool),
    /// A disk.
    Volume(Volume),
    /// What users demand of volumes.
    Class(Class),
    /// A way between machines.
    Link(Link),
    /// A host's use of a volume.
    Attachment(Attachment),
    /// The right of one machine to join.
    Token(Token),
    /// The data of a volume as it was once.
    Snapshot(Snapshot),
}

/// Defines the mirror of the enum of all objects.
macro_rules! objects {
    ($($kind:ident),*) => {
        impl Wire for Object {
            type Pure = object::Object;
            fn wire(pure: &object::Object) -> Self {
                match pure { $(object::Object::$kind(one) => Self::$kind($kind::wire(one)),)* }
            }
            fn pure(self) -> Result<object::Object, Invalid> {
                Ok(match self { $(Self::$kind(one) => object::Object::$kind(one.pure()?),)* })
            }
        }
    };
}

objects!(Fleet, Node, Pool, Volume, Class, Link, Attachment, Token, Snapshot);

/// The age of a list of hosts, as `INCARNATION.NUMBER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(transparent)]
pub struct Epoch(#[schemars(with = "String")] pub fleet::Epoch);

impl Wire for Epoch {
    type Pure = fleet::Epoch;
    fn wire(pure: &fleet::Epoch) -> Self {
        Self(*pure)
    }
    fn pure(self) -> Result<fleet::Epoch, Invalid> {
        Ok(self.0)
    }
}

impl Serialize for Epoch {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Epoch {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let parts = text.split_once('.').and_then(|(incarnation, number)| {
            let (incarnation, number) = (incarnation.parse().ok()?, number.parse().ok()?);
            Some(Self(fleet::Epoch { incarnation, number }))
        });
        let expected = || format!("\"{}\" is no epoch: expected INCARNATION.NUMBER", text.escape_debug());
        parts.ok_or_else(|| serde::de::Error::custom(expected()))
    }
}

/// The data of an object, as `snapshot/NAME` or `volume/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
#[schemars(transparent)]
pub struct Data(
    #[schemars(with = "String", regex(pattern = r"^(snapshot|volume)/[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"))]
    pub object::Data,
);

impl Wire for Data {
    type Pure = object::Data;
    fn wire(pure: &object::Data) -> Self {
        Self(pure.clone())
    }
    fn pure(self) -> Result<object::Data, Invalid> {
        Ok(self.0)
    }
}

impl std::fmt::Display for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for Data {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        match text.split_once('/') {
            Some(("snapshot", name)) => Ok(Self(object::Data::Snapshot(fleet::Name::new(name)?))),
            Some(("volume", name)) => Ok(Self(object::Data::Volume(fleet::Name::new(name)?))),
            _ => Err(Invalid(format!(
                "\"{}\" is no source: expected snapshot/NAME or volume/NAME",
                text.escape_debug()
            ))),
        }
    }
}

impl Serialize for Data {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A time in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Nanoseconds(pub u64);

impl Wire for Nanoseconds {
    type Pure = Nanos;
    fn wire(pure: &Nanos) -> Self {
        Self(pure.get())
    }
    fn pure(self) -> Result<Nanos, Invalid> {
        Ok(Nanos::new(self.0))
    }
}

mirrors! {
    /// The fleet itself.
    struct Fleet = object::Fleet {
        /// The life of the store: grows when a restored store was recovered.
        incarnation: u64,
    }

    /// A machine, as a host, as an owner of pools, or as both.
    struct Node = object::Node {
        /// SHA-256 of the public key with which the machine was enrolled: its identity.
        identity: Hex<32>,
        /// The NVMe Qualified Name (NQN) of the machine as a host.
        host_nqn: String,
        /// The Host Identifier that goes with it.
        host_identifier: Hex<16>,
        /// Addresses under which hosts reach the machine's disks, as `HOST:PORT`.
        addresses: Vec<String>,
        /// Words about the machine, which links refer to.
        #[serde(default)]
        labels: BTreeMap<String, String>,
        /// Why nothing new is placed here, as its user says.
        #[serde(default)]
        cordon: Option<Cordon>,
    }

    /// A reason not to place volumes on a machine.
    struct Cordon = object::Cordon {
        /// The user or program that ends the cordon.
        owner: String,
        /// The user's words.
        reason: String,
    }

    /// Space for volumes.
    struct Pool = object::Pool {
        /// The machine that has it.
        node: Name,
        /// A directory there.
        path: String,
        /// The space in bytes that volumes may take in all.
        bytes: u64,
        /// Whether snapshots and clones share blocks (reflinks).
        #[serde(default)]
        clones: bool,
    }

    /// A disk.
    struct Volume = object::Volume {
        /// The wanted size in bytes. It only grows.
        bytes: u64,
        /// The class that the volume is to hold.
        #[serde(default)]
        class: Option<Name>,
        /// The host that will use the volume, as far as placement knows.
        #[serde(default)]
        near: Option<Name>,
        /// The pool: the user's wish, or else the controller's choice.
        #[serde(default)]
        pool: Option<Name>,
        /// Whether the volume is to be deleted, once nothing is attached.
        #[serde(default)]
        delete: bool,
        /// The age of the list of hosts. The controller writes it.
        #[serde(default = "no_epoch")]
        epoch: Epoch,
        /// The hosts that the owner lets in. The controller writes it.
        #[serde(default)]
        admitted: Vec<Admission>,
        /// The data with which the volume begins: `snapshot/NAME` or `volume/NAME`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<Data>,
        /// Whether the owner has made the volume from its source. The controller writes it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        copied: bool,
    }

    /// The data of a volume as it was at one time after the user's call.
    struct Snapshot = object::Snapshot {
        /// The volume, which the snapshot may outlive.
        volume: Name,
        /// The pool of both. The controller writes it.
        #[serde(default = "no_pool")]
        pool: Name,
        /// The size in bytes. The controller writes it.
        #[serde(default)]
        bytes: u64,
        /// When it was taken, in seconds since 1970; null until then. The controller writes it.
        #[serde(default)]
        taken: Option<u64>,
        /// Whether the snapshot is to be deleted.
        #[serde(default)]
        delete: bool,
        /// What distinguishes it from others of its name. The controller writes it.
        #[serde(default = "no_epoch")]
        epoch: Epoch,
    }

    /// A host that a volume's owner lets in.
    struct Admission = object::Admission {
        /// The attachment for which it is.
        attachment: Name,
        /// The host's machine.
        node: Name,
        /// What the host may do beside others.
        mode: Mode,
        /// The epoch in which the host was let in.
        epoch: Epoch,
        /// What carries the host's commands.
        #[serde(default = "nvme_tcp", skip_serializing_if = "is_nvme_tcp")]
        transport: Transport,
    }

    /// A host's use of a volume.
    struct Attachment = object::Attachment {
        /// The volume.
        volume: Name,
        /// The host's machine.
        node: Name,
        /// What the host may do beside others.
        #[serde(default = "exclusive")]
        mode: Mode,
        /// What carries the host's commands.
        #[serde(default = "nvme_tcp", skip_serializing_if = "is_nvme_tcp")]
        transport: Transport,
        /// The user or the object (a claim's identifier) for which the attachment exists.
        #[serde(default)]
        owner: String,
        /// Whether the attachment is to end.
        #[serde(default)]
        detach: bool,
    }

    /// What users demand of volumes.
    struct Class = object::Class {
        /// The time within which 99 of 100 reads of 4 KiB are to end; null if it does not matter.
        #[serde(default)]
        p99: Option<Nanoseconds>,
        /// The wanted bandwidth in bytes per second; 0 if it does not matter.
        #[serde(default)]
        bandwidth: u64,
    }

    /// A way between machines.
    struct Link = object::Link {
        /// The labels that its machines have, at both ends.
        between: [BTreeMap<String, String>; 2],
        /// The scenario that models it, as TOML.
        scenario: String,
    }

    /// The right of one machine to join.
    struct Token = object::Token {
        /// SHA-256 of the token's secret.
        secret: Hex<32>,
        /// When the token ends, in seconds since 1970.
        expires: u64,
        /// The identity of the machine that has used the token.
        #[serde(default)]
        used_by: Option<Hex<32>>,
    }
}

const fn no_epoch() -> Epoch {
    Epoch(fleet::Epoch { incarnation: 0, number: 0 })
}

/// The pool of a snapshot whose user names none, as no user does.
fn no_pool() -> Name {
    Name("any".to_owned())
}

const fn exclusive() -> Mode {
    Mode::Exclusive
}

/// The transport of those who know no other.
pub(super) const fn nvme_tcp() -> Transport {
    Transport::NvmeTcp
}

/// Whether a transport is the one that goes without saying: versions that know no other refuse
/// nothing then.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde demands")]
pub(super) const fn is_nvme_tcp(transport: &Transport) -> bool {
    matches!(transport, Transport::NvmeTcp)
}

words! {
    /// What carries the commands of a host.
    enum Transport = object::Transport {
        /// NVMe over TCP, to the owner's target.
        NvmeTcp,
        /// PCIe over TCP, to a far end of its own at the owner. It has one host.
        Tunnel,
    }

    /// What a host may do beside others.
    enum Mode = object::Mode {
        /// No other host has the volume.
        Exclusive,
        /// Hosts write beside each other, with reservations if they wish.
        Shared,
        /// The host only reads. Others may read, too, or share.
        Read,
    }
}
