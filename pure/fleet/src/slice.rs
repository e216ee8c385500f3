//! The messages between the controller and the agent of a machine.
//!
//! A [`Slice`] is all that concerns one machine. The agent compares it with what it has: a lost
//! slice is made good by the next. Nothing is deleted or disconnected because a slice lacks it;
//! only marks do that.

use alloc::string::String;
use alloc::vec::Vec;

use crate::object::{Admission, Data, Mode, Transport};
use crate::store::Revision;
use crate::{Epoch, Name};

/// All that concerns one machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// How old the slice is. Agents ignore one that is older than another that they had.
    pub seen: Seen,
    /// The volumes that the machine owns.
    pub volumes: Vec<OwnedVolume>,
    /// The attachments of the machine as a host.
    pub attachments: Vec<HostAttachment>,
    /// The snapshots that the machine owns, and the volumes that it is to make from others. Those
    /// are not among `volumes`: an agent of an earlier version would make them empty.
    pub copies: Vec<OwnedCopy>,
}

/// The age of a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    /// The life of the store.
    pub incarnation: u64,
    /// The term of the controller.
    pub term: u64,
    /// The revision of the store.
    pub revision: Revision,
}

/// A volume, for its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedVolume {
    /// The volume.
    pub name: Name,
    /// The pool that holds it.
    pub pool: Name,
    /// Its size in bytes.
    pub bytes: u64,
    /// The age of the list of hosts.
    pub epoch: Epoch,
    /// The hosts to let in.
    pub admitted: Vec<Admission>,
    /// Whether to delete the volume and its data. The list of hosts is empty then.
    pub delete: bool,
}

/// Data that is made from other data in its pool, for its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedCopy {
    /// The copy.
    pub data: Data,
    /// What it is made from.
    pub of: Data,
    /// The pool that holds both.
    pub pool: Name,
    /// The size of the copy in bytes.
    pub bytes: u64,
    /// What distinguishes it from others that had its name.
    pub epoch: Epoch,
    /// When it was made, as far as the store knows. It is not made once more.
    pub made: Option<u64>,
    /// Whether to delete it.
    pub delete: bool,
}

/// An attachment, for its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAttachment {
    /// The attachment.
    pub name: Name,
    /// The volume.
    pub volume: Name,
    /// The epoch in which the host was let in.
    pub epoch: Epoch,
    /// What the host may do.
    pub mode: Mode,
    /// What carries the host's commands.
    pub transport: Transport,
    /// The machine that owns the volume.
    pub owner: Name,
    /// Where the owner is reached.
    pub addresses: Vec<String>,
    /// What the host is to do.
    pub wish: Wish,
}

/// What a host is to do with an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Connect, and stay connected.
    Connect,
    /// Disconnect: the owner does not let the host in any longer.
    Disconnect,
}

/// What an agent reports of its machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The term of the controller that asked for reports last. A report is for no other.
    pub term: u64,
    /// The latest slice of which the agent has made something durable.
    pub seen: Seen,
    /// The volumes that the machine has, whether the latest slice has them or not.
    pub volumes: Vec<VolumeReport>,
    /// The attachments that the machine has, likewise.
    pub attachments: Vec<AttachmentReport>,
    /// The snapshots that the machine has, and the volumes that it makes from others, likewise.
    pub copies: Vec<CopyReport>,
    /// The machine's pools.
    pub pools: Vec<PoolReport>,
}

/// A pool, as its machine sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolReport {
    /// The pool.
    pub name: Name,
    /// Whether its files can share blocks (reflinks).
    pub clones: bool,
}

/// Data that is made from other data, as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyReport {
    /// The copy.
    pub data: Data,
    /// What it is made from.
    pub of: Data,
    /// The pool that holds both.
    pub pool: Name,
    /// The size of the copy in bytes.
    pub bytes: u64,
    /// What distinguishes it from others that had its name.
    pub epoch: Epoch,
    /// When it was made, in seconds since 1970, if it is there for good.
    pub made: Option<u64>,
    /// Whether it is to be deleted.
    pub delete: bool,
    /// Whether it is gone for good.
    pub deleted: bool,
    /// For what it waits, in a sentence; empty if for nothing.
    pub problem: String,
}

/// A volume, as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeReport {
    /// The volume.
    pub name: Name,
    /// The pool that holds it.
    pub pool: Name,
    /// Its size in bytes.
    pub bytes: u64,
    /// The age of the list of hosts that is durable.
    pub epoch: Epoch,
    /// The hosts of that list.
    pub admitted: Vec<Admission>,
    /// Whether the target has the list, and serves no host beside those.
    pub enforced: bool,
    /// Whether the volume and its data are gone for good.
    pub deleted: bool,
}

/// An attachment, as its host sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentReport {
    /// The attachment.
    pub name: Name,
    /// The volume.
    pub volume: Name,
    /// The machine that owns the volume.
    pub owner: Name,
    /// The epoch in which the host was let in.
    pub epoch: Epoch,
    /// Whether the host reaches the volume.
    pub connected: bool,
}
