//! The types of the REST interface.

use std::collections::BTreeMap;

use fleet::controller::{ApiError, Orphan, Phase, SnapshotPhase, VolumePhase};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::wire::{Epoch, Hex, Name, Object, Wire};

/// An object with its name, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Item {
    /// The name among objects of its kind.
    pub name: Name,
    /// The revision of its last change.
    pub revision: u64,
    /// The object.
    #[serde(flatten)]
    pub object: Object,
    /// How far it is; for volumes, attachments, nodes and pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

/// Objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Items {
    /// The objects, in the order of their names.
    pub items: Vec<Item>,
}

/// How far an object is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// A word for programs: `ready`, `attached`, `connected`, `away`, `unplaced`,
    /// `waits-for-owner`, `waits-for-host`, `waits-for-volume`, `waits-for-recovery`,
    /// `waits-for-acknowledgement`, `waits-for-copy`, `lost`, `deleting`, `ended`.
    pub phase: String,
    /// A sentence for people: why, and the remedy.
    pub message: String,
    /// The object for which this one waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<Name>,
    /// The epoch of the owner's acknowledgement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// Whether the host of an attachment reaches its volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected: Option<bool>,
    /// Bytes of a pool that no volume takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// The subsystem's NVMe Qualified Name (NQN), of an attachment whose host is let in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nqn: Option<String>,
}

impl Status {
    /// A phase with its sentence.
    pub fn new(phase: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            phase: phase.to_owned(),
            message,
            waits_for: None,
            epoch: None,
            connected: None,
            free_bytes: None,
            nqn: None,
        }
    }

    /// How far a volume is.
    pub fn of_volume(phase: &VolumePhase) -> Self {
        match phase {
            VolumePhase::Unplaced(unfit) if unfit.is_empty() => {
                Self::new("unplaced", "the controller is about to choose a pool")
            }
            VolumePhase::Unplaced(unfit) => {
                let reasons: Vec<_> = unfit.iter().map(|(pool, why)| format!("{pool}: {why}")).collect();
                Self::new("unplaced", format!("no pool is fit for the volume ({})", reasons.join("; ")))
            }
            VolumePhase::WaitsForOwner(node) => Self {
                waits_for: Some(Name::wire(node)),
                ..Self::new("waits-for-owner", format!("the agent of the owner {node} is away: start it"))
            },
            VolumePhase::WaitsForRecovery => Self::recovery(),
            VolumePhase::WaitsForAcknowledgement(epoch) => Self {
                epoch: Some(Epoch(*epoch)),
                ..Self::new("waits-for-acknowledgement", "the owner has not yet made it so")
            },
            VolumePhase::Ready => Self::new("ready", "the owner has the volume"),
            VolumePhase::WaitsForCopy(problem) => Self::copy(problem),
            VolumePhase::Deleting => Self::new(
                "deleting",
                "the volume goes when no host and no attachment has it any longer, and nothing is still to be \
                 made from it",
            ),
        }
    }

    /// How far an attachment is.
    pub fn of_attachment(phase: &Phase, connected: Option<bool>) -> Self {
        let status = match phase {
            Phase::WaitsForVolume => {
                Self::new("waits-for-volume", "the volume has no pool yet, or not yet the data of its source")
            }
            Phase::WaitsForOwner(node) => Self {
                waits_for: Some(Name::wire(node)),
                ..Self::new(
                    "waits-for-owner",
                    format!(
                        "the agent of the owner {node} is away, and nothing is safe without it: start it"
                    ),
                )
            },
            Phase::WaitsForHost { attachment, owner } => Self {
                waits_for: Some(Name::wire(attachment)),
                ..Self::new(
                    "waits-for-host",
                    format!("the volume is attached by {attachment}, for \"{owner}\": detach that first"),
                )
            },
            Phase::WaitsForRecovery => Self::recovery(),
            Phase::WaitsForAcknowledgement(epoch) => Self {
                epoch: Some(Epoch(*epoch)),
                ..Self::new(
                    "waits-for-acknowledgement",
                    "the owner has not yet acknowledged the list of hosts",
                )
            },
            Phase::Attached(epoch) => {
                Self { epoch: Some(Epoch(*epoch)), ..Self::new("attached", "the owner lets the host in") }
            }
            Phase::Ended => Self::new("ended", "the owner lets the host in no longer"),
        };
        Self { connected, ..status }
    }

    /// How far a snapshot is.
    pub fn of_snapshot(phase: &SnapshotPhase) -> Self {
        match phase {
            SnapshotPhase::WaitsForOwner(node) => Self::of_volume(&VolumePhase::WaitsForOwner(node.clone())),
            SnapshotPhase::WaitsForRecovery => Self::recovery(),
            SnapshotPhase::WaitsForCopy(problem) => Self::copy(problem),
            SnapshotPhase::Ready => Self::new("ready", "the owner has the snapshot"),
            SnapshotPhase::Lost(problem) => Self::new("lost", problem),
            SnapshotPhase::Deleting => {
                Self::new("deleting", "the snapshot goes when nothing is still to be made from it")
            }
        }
    }

    fn copy(problem: &str) -> Self {
        let at_work = "the owner is about to make it";
        Self::new("waits-for-copy", if problem.is_empty() { at_work } else { problem })
    }

    fn recovery() -> Self {
        Self::new(
            "waits-for-recovery",
            "the store knows less than the owner, so it was restored from an old backup: farlane fleet recover",
        )
    }
}

/// For what a call waits before its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WaitFor {
    /// The owner lets the host of an attachment in.
    Attached,
    /// The attachment, the volume or the snapshot is gone.
    Gone,
    /// The owner has the volume, in its wanted size, or the snapshot.
    Ready,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The kind of failure.
    pub code: FailureCode,
    /// A sentence: the value, the expected form, the remedy.
    pub message: String,
}

/// Kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FailureCode {
    /// Another controller leads, or none does, or the store is away (503).
    NotLeader,
    /// The object has another revision (412).
    Revision,
    /// There is no such object (404).
    NotFound,
    /// The object, or the call, cannot be so (400).
    Invalid,
    /// Something else must be changed first (409).
    InUse,
    /// The user may not do that (403).
    Forbidden,
    /// The wanted state has not come in time; what was wanted stays wanted (504).
    Timeout,
    /// The controller could not be reached, or has failed (502 in the client only).
    Unreachable,
}

impl FailureCode {
    /// The status of HTTP.
    pub const fn http(self) -> u16 {
        match self {
            Self::NotLeader => 503,
            Self::Revision => 412,
            Self::NotFound => 404,
            Self::Invalid => 400,
            Self::InUse => 409,
            Self::Forbidden => 403,
            Self::Timeout => 504,
            Self::Unreachable => 502,
        }
    }
}

impl Failure {
    /// A failure with its sentence.
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        let code = match &error {
            ApiError::NotLeader => FailureCode::NotLeader,
            ApiError::Revision { .. } => FailureCode::Revision,
            ApiError::NotFound(_) => FailureCode::NotFound,
            ApiError::Invalid(_) => FailureCode::Invalid,
            ApiError::InUse(_) => FailureCode::InUse,
        };
        Self::new(code, error.to_string())
    }
}

/// A change of an object, as `watch` reports it: one line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The kind of the object.
    pub kind: String,
    /// The object's name.
    pub name: Name,
    /// The revision of the change.
    pub revision: u64,
    /// The new object; null if it is gone.
    pub item: Option<Item>,
}

/// What a machine says of itself to join.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Enrolment {
    /// The name of the machine, which is the token's.
    pub name: Name,
    /// The secret of the token.
    pub secret: Hex<16>,
    /// Addresses at which hosts reach the machine's disks, as `HOST:PORT`.
    pub addresses: Vec<String>,
    /// Words about the machine, which links refer to.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

impl std::fmt::Debug for Enrolment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Enrolment").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What machines have and the store does not know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Orphans {
    /// Volumes and devices.
    pub orphans: Vec<OrphanItem>,
}

/// A volume, a snapshot or a device that the store does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OrphanItem {
    /// The machine that has it.
    pub node: Name,
    /// The volume.
    pub volume: Name,
    /// The attachment for which a device was made; null for a volume.
    pub attachment: Option<Name>,
    /// The snapshot of the volume, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Name>,
}

impl OrphanItem {
    /// What an engine has found.
    pub fn of(orphan: &Orphan) -> Self {
        match orphan {
            Orphan::Volume { node, volume } => {
                Self { node: Name::wire(node), volume: Name::wire(volume), attachment: None, snapshot: None }
            }
            Orphan::Snapshot { node, snapshot, volume } => Self {
                node: Name::wire(node),
                volume: Name::wire(volume),
                attachment: None,
                snapshot: Some(Name::wire(snapshot)),
            },
            Orphan::Device { node, attachment, volume } => Self {
                node: Name::wire(node),
                volume: Name::wire(volume),
                attachment: Some(Name::wire(attachment)),
                snapshot: None,
            },
        }
    }
}

/// The answer to a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Recovered {
    /// The life of the store from now on.
    pub incarnation: u64,
}

/// The state of a controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// The version of the program.
    pub version: String,
    /// The controllers' key and addresses, as agents and users name them.
    pub controllers: String,
    /// Whether the controller leads and knows the store.
    pub leads: bool,
    /// Why the store is away; null if it is there.
    pub store: Option<String>,
    /// The machines whose agents are connected.
    pub connected: Vec<Name>,
    /// Whether some owner knows more than the store, so that `farlane fleet recover` is due.
    pub needs_recovery: bool,
}

/// Why a volume is, or would be, where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// The volume.
    pub volume: Name,
    /// Its class.
    pub class: Option<Name>,
    /// The pool in which it is.
    pub pool: Option<Name>,
    /// The pools that are fit for it now, best first.
    pub fit: Vec<Ranked>,
    /// The others, each with the reason.
    pub unfit: Vec<Unfit>,
}

/// A pool that is fit for a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ranked {
    /// The pool.
    pub pool: Name,
    /// The predicted time in nanoseconds within which 99 of 100 reads of 4 KiB end.
    pub p99_ns: Option<u64>,
    /// The predicted bandwidth in bytes per second.
    pub bandwidth: Option<u64>,
    /// The links between host and pool that were simulated, and where their models come from.
    #[serde(default)]
    pub path: Vec<String>,
}

/// A pool that is not fit for a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unfit {
    /// The pool.
    pub pool: Name,
    /// The reason.
    pub why: String,
}

/// The pools that are fit for a volume of a class, for a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Spaces {
    /// The pools, best first.
    pub fit: Vec<Space>,
    /// The others, each with the reason.
    pub unfit: Vec<Unfit>,
}

/// The free space of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Space {
    /// The pool.
    pub pool: Name,
    /// Bytes that no volume takes.
    pub free_bytes: u64,
}
