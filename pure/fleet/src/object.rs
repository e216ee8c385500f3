//! What the store holds.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use engine::Nanos;

use crate::{Epoch, Name};

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The fleet itself: the only object of its kind.
    Fleet,
    /// A machine.
    Node,
    /// Space for volumes on a machine.
    Pool,
    /// A disk.
    Volume,
    /// What users demand of volumes.
    Class,
    /// A way between machines.
    Link,
    /// A host's use of a volume.
    Attachment,
    /// The right of one machine to join.
    Token,
    /// The data of a volume as it was once.
    Snapshot,
}

/// The key of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// What the object is.
    pub kind: Kind,
    /// Its name among those of its kind.
    pub name: Name,
}

/// An object. Users write the wanted state; what the leader writes is marked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// See [`Fleet`].
    Fleet(Fleet),
    /// See [`Node`].
    Node(Node),
    /// See [`Pool`].
    Pool(Pool),
    /// See [`Volume`].
    Volume(Volume),
    /// See [`Class`].
    Class(Class),
    /// See [`Link`].
    Link(Link),
    /// See [`Attachment`].
    Attachment(Attachment),
    /// See [`Token`].
    Token(Token),
    /// See [`Snapshot`].
    Snapshot(Snapshot),
}

impl Object {
    /// What the object is.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Fleet(_) => Kind::Fleet,
            Self::Node(_) => Kind::Node,
            Self::Pool(_) => Kind::Pool,
            Self::Volume(_) => Kind::Volume,
            Self::Class(_) => Kind::Class,
            Self::Link(_) => Kind::Link,
            Self::Attachment(_) => Kind::Attachment,
            Self::Token(_) => Kind::Token,
            Self::Snapshot(_) => Kind::Snapshot,
        }
    }
}

/// The fleet itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    /// The life of the store (leader): see [`Epoch`].
    pub incarnation: u64,
}

/// A machine, as a host, as an owner of pools, or as both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// SHA-256 of the public key with which the machine was enrolled: its identity.
    pub identity: [u8; 32],
    /// The NVMe Qualified Name of the machine as a host.
    pub host_nqn: String,
    /// The Host Identifier (HOSTID) that goes with it.
    pub host_identifier: [u8; 16],
    /// Addresses under which hosts reach the machine's disks.
    pub addresses: Vec<String>,
    /// Words about the machine, which links refer to.
    pub labels: BTreeMap<String, String>,
    /// Why nothing new is placed here, as its user says; the user that said so may end it.
    pub cordon: Option<Cordon>,
}

/// A reason not to place volumes on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cordon {
    /// The user or program that ends the cordon.
    pub owner: String,
    /// The user's words.
    pub reason: String,
}

/// Space for volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The machine that has it.
    pub node: Name,
    /// A directory or a block device there.
    pub path: String,
    /// The space in bytes that volumes may take in all.
    pub bytes: u64,
    /// Whether snapshots and clones share blocks (reflinks).
    pub clones: bool,
}

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// The wanted size in bytes. It only grows.
    pub bytes: u64,
    /// The class that the volume is to hold.
    pub class: Option<Name>,
    /// The host that will use the volume, as far as placement knows.
    pub near: Option<Name>,
    /// The pool: the user's wish, or else the leader's choice.
    pub pool: Option<Name>,
    /// Whether the volume is to be deleted, once nothing is attached.
    pub delete: bool,
    /// The age of the list of hosts (leader).
    pub epoch: Epoch,
    /// The hosts that the owner lets in (leader).
    pub admitted: Vec<Admission>,
    /// The data with which the volume begins. It never changes.
    pub source: Option<Data>,
    /// Whether the owner has made the volume from its source (leader).
    pub copied: bool,
}

impl Volume {
    /// Whether the owner has yet to make the volume from its source.
    pub const fn is_to_copy(&self) -> bool {
        self.source.is_some() && !self.copied
    }
}

/// The data of a volume as it was at one time between the user's call and the owner's report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The volume, which the snapshot may outlive.
    pub volume: Name,
    /// The pool of both (leader).
    pub pool: Name,
    /// The size in bytes: the volume's at the time of the call (leader).
    pub bytes: u64,
    /// When the owner took the snapshot, in seconds since 1970 by its clock; `None` until then
    /// (leader). Nothing is decided by it.
    pub taken: Option<u64>,
    /// Whether the snapshot is to be deleted.
    pub delete: bool,
    /// What distinguishes it from others that had its name (leader). It never changes.
    pub epoch: Epoch,
}

/// Data that volumes and snapshots are made of, and that they are: the data of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Data {
    /// The data of a snapshot.
    Snapshot(Name),
    /// The data of a volume.
    Volume(Name),
}

impl Data {
    /// The object that has the data.
    pub fn key(&self) -> Key {
        let (kind, name) = match self {
            Self::Snapshot(name) => (Kind::Snapshot, name),
            Self::Volume(name) => (Kind::Volume, name),
        };
        Key { kind, name: name.clone() }
    }

    /// The name of that object.
    pub const fn name(&self) -> &Name {
        let (Self::Snapshot(name) | Self::Volume(name)) = self;
        name
    }
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot(name) => write!(f, "snapshot/{name}"),
            Self::Volume(name) => write!(f, "volume/{name}"),
        }
    }
}

/// A host that a volume's owner lets in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Admission {
    /// The attachment for which it is.
    pub attachment: Name,
    /// The host's machine.
    pub node: Name,
    /// What the host may do beside others.
    pub mode: Mode,
    /// The epoch in which the host was let in. Its keys and its subsystem's name have it.
    pub epoch: Epoch,
    /// What carries the host's commands.
    pub transport: Transport,
}

/// What carries the commands of a host to the owner of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// NVMe over TCP, to the owner's target.
    #[default]
    NvmeTcp,
    /// PCIe over TCP, to a far end of its own at the owner. It has one host.
    Tunnel,
}

/// What a host may do beside others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// No other host has the volume.
    #[default]
    Exclusive,
    /// Hosts write beside each other, with reservations if they wish.
    Shared,
    /// The host only reads. Others may read, too, or share.
    Read,
}

impl Mode {
    /// Whether hosts with these modes may have one volume at once.
    pub const fn agrees(self, other: Self) -> bool {
        !matches!(self, Self::Exclusive) && !matches!(other, Self::Exclusive)
    }
}

/// A host's use of a volume. The host has the volume when the volume's list names the attachment
/// and the owner has acknowledged that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The volume.
    pub volume: Name,
    /// The host's machine.
    pub node: Name,
    /// What the host may do beside others.
    pub mode: Mode,
    /// What carries the host's commands.
    pub transport: Transport,
    /// The user or the object (a claim's identifier) for which the attachment exists.
    pub owner: String,
    /// Whether the attachment is to end. It is deleted once the owner lets the host in no longer.
    pub detach: bool,
}

/// What users demand of volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// The time within which 99 of 100 reads of 4 KiB are to end; `None` if it does not matter.
    pub p99: Option<Nanos>,
    /// The wanted bandwidth in bytes per second; 0 if it does not matter.
    pub bandwidth: u64,
}

/// A way between machines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The labels that its machines have, at both ends.
    pub between: [BTreeMap<String, String>; 2],
    /// The scenario that models it.
    pub scenario: String,
}

/// The right of one machine to join, once. The token has the name of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// SHA-256 of the token's secret.
    pub secret: [u8; 32],
    /// When the token ends, in seconds since 1970.
    pub expires: u64,
    /// The identity of the machine that has used the token.
    pub used_by: Option<[u8; 32]>,
}
