//! SSDs, namespaces, and what their commands did.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The report of an SSD or a subsystem about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ssd {
    /// Serial number.
    pub serial: String,
    /// Model number.
    pub model: String,
    /// Firmware revision.
    pub firmware: String,
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Namespace {
    /// Namespace identifier (NSID).
    pub nsid: u32,
    /// Size in bytes.
    pub bytes: u64,
    /// Bytes of data in a block.
    pub block: u32,
    /// Whether the namespace rejects writes.
    #[serde(default)]
    pub readonly: bool,
    /// Writes that found no space on the medium.
    pub space_errors: u64,
}

/// Counts of the commands of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Activity {
    /// Namespace identifier (NSID).
    pub nsid: u32,
    /// Read commands.
    pub reads: u64,
    /// Bytes that they read.
    pub read_bytes: u64,
    /// Write commands.
    pub writes: u64,
    /// Bytes that they wrote.
    pub written_bytes: u64,
    /// Commands of other kinds.
    pub others: u64,
    /// Commands that failed.
    pub errors: u64,
    /// Commands by their time: at most 2, 5, 10, 20 us and so on to 10 s, and longer.
    pub took: Vec<u64>,
}

/// Counts of the commands of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostActivity {
    /// Read commands.
    pub reads: u64,
    /// Bytes that they read.
    pub read_bytes: u64,
    /// Write commands.
    pub writes: u64,
    /// Bytes that they wrote.
    pub written_bytes: u64,
    /// Commands of other kinds.
    pub others: u64,
    /// Commands that failed.
    pub errors: u64,
}
