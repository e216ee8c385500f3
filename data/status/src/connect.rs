//! Block devices.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Activity, Counts, Latencies};

/// A block device of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Connect {
    /// URL of the namespace.
    pub url: String,
    /// Path of the block device; null until it is there.
    pub device: Option<String>,
    /// Size in bytes.
    pub bytes: u64,
    /// Bytes of a block.
    pub block: u32,
    /// Whether it rejects writes.
    pub read_only: bool,
    /// Counts of requests, or of the commands that the kernel makes of them.
    pub activity: Vec<Activity>,
    /// The driver of the kernel, and what depends on it.
    #[serde(flatten)]
    pub way: Way,
}

/// The driver of the kernel that has the block device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "over", rename_all = "kebab-case")]
pub enum Way {
    /// The driver for block devices in user space: this process answers requests.
    Ublk {
        /// Whether the far end can be reached.
        far_end: FarEndState,
        /// Why the far end refuses this host, if it does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refusal: Option<String>,
        /// Requests that are not answered yet.
        under_way: u64,
        /// Counts of the kernel's requests, by their kind.
        #[serde(default)]
        requests: Vec<Requests>,
        /// The queues of the block device, where each has a thread and a host of its own.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        queues: Vec<BlockQueue>,
    },
    /// The initiator of NVMe/TCP: this process is its target.
    NvmeTcp {
        /// Address at which the target listens.
        target: String,
        /// Why the far end refuses this host, if it does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refusal: Option<String>,
    },
}

/// Requests of the kernel of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Requests {
    /// The kind: read, write, flush or discard.
    pub request: String,
    /// How many there were.
    #[serde(flatten)]
    pub counts: Counts,
    /// Time from the kernel's request to the answer.
    pub latencies: Latencies,
}

/// A queue of a block device, which has a thread and a host of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlockQueue {
    /// The queue's number, from 0.
    pub queue: u16,
    /// Whether the thread can reach the far end.
    pub far_end: FarEndState,
    /// Requests that are not answered yet.
    pub under_way: u64,
    /// How many requests there were.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Whether a far end can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FarEndState {
    /// It can.
    Here,
    /// It cannot, and I/O waits.
    Away,
    /// It refuses this host for good, and I/O fails.
    Refused,
}

impl Way {
    /// The driver, as `--over` and the JSON name it.
    pub const fn over(&self) -> &'static str {
        match self {
            Self::Ublk { .. } => "ublk",
            Self::NvmeTcp { .. } => "nvme-tcp",
        }
    }

    /// Why the far end refuses this host, if it does.
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Self::Ublk { refusal, .. } | Self::NvmeTcp { refusal, .. } => refusal.as_deref(),
        }
    }

    /// Whether I/O waits because the far end cannot be reached.
    pub const fn is_away(&self) -> bool {
        matches!(self, Self::Ublk { far_end: FarEndState::Away, .. })
    }
}
