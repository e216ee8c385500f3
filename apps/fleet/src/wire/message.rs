//! The messages between controllers and agents, and the state that an agent makes durable.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use fleet::{agent, slice};
use serde::{Deserialize, Serialize};

use super::object::{is_nvme_tcp, nvme_tcp};
use super::{Admission, Data, Epoch, Invalid, Mode, Name, Transport, Wire, mirrors, words};
use crate::channel::Message;

/// A message of a controller to an agent: one line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "kebab-case")]
pub enum ToAgent {
    /// The agent reports to this term from now on.
    Ask {
        /// The term of the controller.
        term: u64,
    },
    /// All that concerns the machine.
    Slice {
        /// The volumes and attachments.
        slice: Slice,
        /// What the machine as a host needs to prove itself, for each of its attachments.
        credentials: Vec<Credential>,
    },
    /// The controller is there: at least every few seconds.
    Alive,
    /// The controller does not take the agent, and closes the connection.
    Refused {
        /// A sentence: the reason and the remedy.
        why: String,
    },
}

/// A message of an agent to a controller: one line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "kebab-case")]
pub enum FromAgent {
    /// The first message of a connection.
    Hello {
        /// The kernel's identifier of this start of the machine, by which two machines with one key
        /// are known.
        boot: String,
    },
    /// The machine's volumes and attachments.
    Report {
        /// The report of the engine.
        report: Report,
        /// What the hosts of the machine's volumes need to prove themselves. Controllers keep them
        /// in memory only.
        credentials: Vec<Credential>,
    },
    /// The machine and its agent are there: at least every few seconds.
    Alive,
}

impl Message for ToAgent {
    const KINDS: &[&str] = &["ask", "slice", "alive", "refused"];
}

impl Message for FromAgent {
    const KINDS: &[&str] = &["hello", "report", "alive"];
}

/// What a host needs to prove itself to the owner of a volume.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// The attachment.
    pub attachment: Name,
    /// The epoch in which the host was let in.
    pub epoch: Epoch,
    /// The subsystem's NVMe Qualified Name.
    pub nqn: String,
    /// The secret of DH-HMAC-CHAP, as nvme-cli writes it.
    pub dhchap: String,
    /// The key of TLS, as nvme-cli writes it, if the host must encrypt.
    pub tls: Option<String>,
    /// Where the host finds the far end, if it comes by tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<TunnelCredential>,
}

/// What a host needs to reach a far end of its own.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelCredential {
    /// The port of the far end, at the owner's addresses.
    pub port: u16,
    /// The fingerprint of the far end's key.
    pub far: String,
    /// The private key of the host (PEM).
    pub key: String,
}

impl fmt::Debug for TunnelCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { port, far, .. } = self;
        f.debug_struct("TunnelCredential").field("port", port).field("far", far).finish_non_exhaustive()
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attachment, epoch, nqn, .. } = self;
        f.debug_struct("Credential")
            .field("attachment", attachment)
            .field("epoch", epoch)
            .field("nqn", nqn)
            .finish_non_exhaustive()
    }
}

mirrors! {
    /// All that concerns one machine.
    struct Slice = slice::Slice {
        /// The age of the slice.
        seen: Seen,
        /// The volumes that the machine owns.
        volumes: Vec<OwnedVolume>,
        /// The attachments of the machine as a host.
        attachments: Vec<HostAttachment>,
        /// The snapshots that the machine owns, and the volumes that it is to make from others.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        copies: Vec<OwnedCopy>,
    }

    /// Data that is made from other data in its pool, for its owner.
    struct OwnedCopy = slice::OwnedCopy {
        /// The copy.
        data: Data,
        /// What it is made from.
        of: Data,
        /// The pool that holds both.
        pool: Name,
        /// The size of the copy in bytes.
        bytes: u64,
        /// What distinguishes it from others that had its name.
        epoch: Epoch,
        /// When it was made, as far as the store knows.
        made: Option<u64>,
        /// Whether to delete it.
        delete: bool,
    }

    /// The age of a slice.
    struct Seen = slice::Seen {
        /// The life of the store.
        incarnation: u64,
        /// The term of the controller.
        term: u64,
        /// The revision of the store.
        revision: u64,
    }

    /// A volume, for its owner.
    struct OwnedVolume = slice::OwnedVolume {
        /// The volume.
        name: Name,
        /// The pool that holds it.
        pool: Name,
        /// Its size in bytes.
        bytes: u64,
        /// The age of the list of hosts.
        epoch: Epoch,
        /// The hosts to let in.
        admitted: Vec<Admission>,
        /// Whether to delete the volume and its data.
        delete: bool,
    }

    /// An attachment, for its host.
    struct HostAttachment = slice::HostAttachment {
        /// The attachment.
        name: Name,
        /// The volume.
        volume: Name,
        /// The epoch in which the host was let in.
        epoch: Epoch,
        /// What the host may do.
        mode: Mode,
        /// What carries the host's commands.
        #[serde(default = "nvme_tcp", skip_serializing_if = "is_nvme_tcp")]
        transport: Transport,
        /// The machine that owns the volume.
        owner: Name,
        /// Where the owner is reached.
        addresses: Vec<String>,
        /// What the host is to do.
        wish: Wish,
    }

    /// What an agent reports of its machine.
    struct Report = slice::Report {
        /// The term of the controller that asked for reports last.
        term: u64,
        /// The latest slice of which the agent has made something durable.
        seen: Seen,
        /// The volumes that the machine has.
        volumes: Vec<VolumeReport>,
        /// The attachments that the machine has.
        attachments: Vec<AttachmentReport>,
        /// The snapshots that the machine has, and the volumes that it makes from others.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        copies: Vec<CopyReport>,
        /// The machine's pools.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pools: Vec<PoolReport>,
    }

    /// A pool, as its machine sees it.
    struct PoolReport = slice::PoolReport {
        /// The pool.
        name: Name,
        /// Whether its files can share blocks (reflinks).
        clones: bool,
    }

    /// Data that is made from other data, as its owner sees it.
    struct CopyReport = slice::CopyReport {
        /// The copy.
        data: Data,
        /// What it is made from.
        of: Data,
        /// The pool that holds both.
        pool: Name,
        /// The size of the copy in bytes.
        bytes: u64,
        /// What distinguishes it from others that had its name.
        epoch: Epoch,
        /// When it was made, in seconds since 1970, if it is there for good.
        made: Option<u64>,
        /// Whether it is to be deleted.
        delete: bool,
        /// Whether it is gone for good.
        deleted: bool,
        /// For what it waits, in a sentence.
        problem: String,
    }

    /// A volume, as its owner sees it.
    struct VolumeReport = slice::VolumeReport {
        /// The volume.
        name: Name,
        /// The pool that holds it.
        pool: Name,
        /// Its size in bytes.
        bytes: u64,
        /// The age of the list of hosts that is durable.
        epoch: Epoch,
        /// The hosts of that list.
        admitted: Vec<Admission>,
        /// Whether the target has the list, and serves no host beside those.
        enforced: bool,
        /// Whether the volume and its data are gone for good.
        deleted: bool,
    }

    /// An attachment, as its host sees it.
    struct AttachmentReport = slice::AttachmentReport {
        /// The attachment.
        name: Name,
        /// The volume.
        volume: Name,
        /// The machine that owns the volume.
        owner: Name,
        /// The epoch in which the host was let in.
        epoch: Epoch,
        /// Whether the host reaches the volume.
        connected: bool,
    }

    /// Everything that an agent makes durable before it acts.
    struct State = agent::State {
        /// The latest slice.
        seen: Seen,
        /// The volumes of the machine.
        volumes: BTreeMap<Name, SavedVolume>,
        /// The attachments of the machine as a host.
        attachments: BTreeMap<Name, SavedAttachment>,
        /// The attachments that have ended, as long as they have devices.
        ended: BTreeSet<Name>,
        /// The snapshots of the machine, and the volumes that are made from others.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        copies: BTreeMap<Data, SavedCopy>,
    }

    /// Data of the machine that is made from other data.
    struct SavedCopy = agent::SavedCopy {
        /// What it is made from.
        of: Data,
        /// The pool that holds both.
        pool: Name,
        /// The size of the copy in bytes.
        bytes: u64,
        /// What distinguishes it from others that had its name.
        epoch: Epoch,
        /// When it was made.
        made: Option<u64>,
        /// Whether it is to go.
        delete: bool,
    }

    /// A volume of the machine.
    struct SavedVolume = agent::SavedVolume {
        /// The pool that holds it.
        pool: Name,
        /// Its size in bytes.
        bytes: u64,
        /// The age of the list of hosts.
        epoch: Epoch,
        /// The hosts that are let in.
        admitted: Vec<Admission>,
        /// Whether the volume and its data are to go.
        delete: bool,
    }

    /// An attachment of the machine as a host.
    struct SavedAttachment = agent::SavedAttachment {
        /// The volume.
        volume: Name,
        /// The epoch in which the host was let in.
        epoch: Epoch,
        /// What the host may do.
        mode: Mode,
        /// What carries the host's commands.
        #[serde(default = "nvme_tcp", skip_serializing_if = "is_nvme_tcp")]
        transport: Transport,
        /// The machine that owns the volume.
        owner: Name,
        /// Where the owner is reached.
        addresses: Vec<String>,
    }

    /// A volume that a target serves.
    struct Served = agent::Served {
        /// The volume.
        name: Name,
        /// The pool that holds it.
        pool: Name,
        /// Its size in bytes.
        bytes: u64,
        /// The hosts that are let in.
        admitted: Vec<Admission>,
    }
}

words! {
    /// What a host is to do with an attachment.
    enum Wish = slice::Wish {
        /// Connect, and stay connected.
        Connect,
        /// Disconnect.
        Disconnect,
    }
}

impl Wire for BTreeSet<Name> {
    type Pure = BTreeSet<fleet::Name>;
    fn wire(pure: &Self::Pure) -> Self {
        pure.iter().map(Name::wire).collect()
    }
    fn pure(self) -> Result<Self::Pure, Invalid> {
        self.into_iter().map(Wire::pure).collect()
    }
}
