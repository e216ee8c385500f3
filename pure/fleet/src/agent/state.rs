//! What an agent makes durable.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use crate::object::{Admission, Data, Mode, Transport};
use crate::slice::Seen;
use crate::{Epoch, Name};

/// Everything that an agent makes durable before it acts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The latest slice.
    pub seen: Seen,
    /// The volumes of the machine.
    pub volumes: BTreeMap<Name, SavedVolume>,
    /// The attachments of the machine as a host.
    pub attachments: BTreeMap<Name, SavedAttachment>,
    /// The attachments that have ended, as long as they have devices.
    pub ended: BTreeSet<Name>,
    /// The snapshots of the machine, and the volumes that are made from others.
    pub copies: BTreeMap<Data, SavedCopy>,
}

/// Data of the machine that is made from other data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedCopy {
    /// What it is made from.
    pub of: Data,
    /// The pool that holds both.
    pub pool: Name,
    /// The size of the copy in bytes.
    pub bytes: u64,
    /// What distinguishes it from others that had its name.
    pub epoch: Epoch,
    /// When it was made. It is never made once more.
    pub made: Option<u64>,
    /// Whether it is to go.
    pub delete: bool,
}

/// A volume of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedVolume {
    /// The pool that holds it.
    pub pool: Name,
    /// Its size in bytes.
    pub bytes: u64,
    /// The age of the list of hosts.
    pub epoch: Epoch,
    /// The hosts that are let in.
    pub admitted: Vec<Admission>,
    /// Whether the volume and its data are to go.
    pub delete: bool,
}

/// An attachment of the machine as a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedAttachment {
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
}
