//! Reports of daemons about themselves.
//!
//! A daemon builds a [`Report`] and sends it as JSON. Each reader (`farlane observe status`,
//! `list`, `top`, the page of `farlane observe ui`) parses the JSON into the same type with
//! [`Report::read`]. The [`metrics`] of a daemon are derived from the same types. So are the JSON
//! schemas in `docs/schemas`, whose descriptions are the doc comments here.
//!
//! ```
//! use status::{Report, Status};
//!
//! let answer = r#"{"schema_version":1,"pid":7,"kind":"export","far_ends":[],"new":true}"#;
//! let report = Report::read(serde_json::from_str(answer).unwrap()).unwrap();
//! assert!(matches!(report.status, Status::Export(export) if export.far_ends.is_empty()));
//!
//! let answer = r#"{"schema_version":1,"pid":7,"kind":"teleport","farlane":"0.9.0"}"#;
//! let error = Report::read(serde_json::from_str(answer).unwrap()).unwrap_err();
//! assert!(error.to_string().contains("is a daemon of kind \"teleport\""));
//! ```
//!
//! # Versions
//! - A new field does not change [`SCHEMA_VERSION`]. A reader ignores fields that it does not know.
//!   A field that older daemons lack is an `Option` or has a default.
//! - A field that goes away, or changes its meaning, raises [`SCHEMA_VERSION`]. A reader rejects
//!   another version.
//! - A reader rejects a kind that it does not know. It never takes one kind for another.
//!
//! The crate does no I/O and uses no engine: `apps/farlane` fills the types in.

#![forbid(unsafe_code)]

mod connect;
pub mod metrics;
mod network;
mod recorder;
mod storage;
mod target;
mod tunnel;
mod unreadable;

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

pub use connect::{BlockQueue, Connect, FarEndState, Requests, Way};
pub use network::{Emulate, Ends, Nic, Passed, Rdma};
pub use recorder::{Medium, Recorder, RecorderState, Trigger, Writes};
pub use storage::{
    Activity, CommandKinds, ControllerCounts, Counts, Health, HostActivity, HostKinds, Latencies, Namespace,
    Ssd, StatusCount, TimedCounts,
};
pub use target::{
    Access, AccessState, Controller, Core, DiscoveryAccess, Draining, Exponentiations, Memory, Queue,
    Strangers, Subsystem, Target,
};
pub use tunnel::{
    Admits, Callers, ConfigCache, Connection, Copies, Datagrams, Dma, DmaMode, Export, FarEnd, FarReads,
    Guest, Host, Lane, Link, Lookahead, Path, Port, Seat, Slot, Tcp,
};
pub use unreadable::Unreadable;

/// The version of all that is printed as JSON. It rises when a name goes away or changes its
/// meaning; new names come without a change.
pub const SCHEMA_VERSION: u32 = 1;

/// A daemon's report about itself, by its kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// Version of this schema.
    #[serde(default)]
    pub schema_version: SchemaVersion,
    /// Version of the program that runs.
    #[serde(default)]
    pub farlane: String,
    /// Process identifier.
    pub pid: u32,
    /// The rest, by the kind of the daemon.
    #[serde(flatten)]
    pub status: Status,
}

/// The part of a report that depends on the kind of the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Status {
    /// A far end, or several: SSDs or devices that tunnels reach.
    Export(Export),
    /// A target of NVMe over Fabrics.
    Target(Target),
    /// A far end's SSD, offered to a virtual machine.
    Attach(Slot),
    /// An SSD of this machine, offered to a virtual machine.
    Device(Slot),
    /// A block device of this machine.
    Connect(Connect),
    /// A recorder.
    Record(Recorder),
    /// A replayer.
    Replay(Recorder),
    /// An emulated network.
    Emulate(Emulate),
    /// A network card for another process.
    Nic(Nic),
    /// A server of RDMA measurements.
    Rdma(Rdma),
}

impl Status {
    /// Every kind of daemon that this version knows.
    pub const KINDS: [&'static str; 10] =
        ["export", "target", "attach", "device", "connect", "record", "replay", "emulate", "nic", "rdma"];

    /// The kind of the daemon, as the JSON has it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Export(_) => "export",
            Self::Target(_) => "target",
            Self::Attach(_) => "attach",
            Self::Device(_) => "device",
            Self::Connect(_) => "connect",
            Self::Record(_) => "record",
            Self::Replay(_) => "replay",
            Self::Emulate(_) => "emulate",
            Self::Nic(_) => "nic",
            Self::Rdma(_) => "rdma",
        }
    }
}

impl Report {
    /// The report of this process.
    pub fn of(status: Status) -> Self {
        let farlane = env!("CARGO_PKG_VERSION").to_owned();
        Self { schema_version: SchemaVersion, farlane, pid: std::process::id(), status }
    }

    /// Parses the answer of a daemon.
    ///
    /// # Errors
    /// When the answer has another schema version or an unknown kind, or lacks a field.
    pub fn read(answer: Value) -> Result<Self, Unreadable> {
        let (pid, farlane) = (answer["pid"].as_u64(), answer["farlane"].as_str().map(str::to_owned));
        let daemon = unreadable::Daemon { pid, farlane };
        let version = answer.get("schema_version").map_or(Some(u64::from(SCHEMA_VERSION)), Value::as_u64);
        if version != Some(u64::from(SCHEMA_VERSION)) {
            return Err(Unreadable::Version { daemon, version: answer["schema_version"].to_string() });
        }
        let Some(kind) = answer["kind"].as_str().map(str::to_owned) else { return Err(Unreadable::NoStatus) };
        if !Status::KINDS.contains(&kind.as_str()) {
            return Err(Unreadable::Kind { daemon, kind });
        }
        serde_json::from_value(answer).map_err(|error| Unreadable::Field {
            daemon,
            kind,
            error: error.to_string(),
        })
    }
}

/// Stands for [`SCHEMA_VERSION`] in a printed report, so that no other value can be printed or
/// read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchemaVersion;

impl Serialize for SchemaVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(SCHEMA_VERSION)
    }
}

impl<'de> Deserialize<'de> for SchemaVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            SCHEMA_VERSION => Ok(Self),
            other => {
                Err(serde::de::Error::custom(format!("schema version {other}, expected {SCHEMA_VERSION}")))
            }
        }
    }
}

impl JsonSchema for SchemaVersion {
    fn schema_name() -> Cow<'static, str> {
        "SchemaVersion".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "const": SCHEMA_VERSION })
    }
}

#[cfg(test)]
mod tests;
