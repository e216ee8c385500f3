//! The first line of a service for machines: where it listens.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a service listens, on its first line.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Listening {
    /// Address or path at which clients arrive.
    pub(crate) listening: String,
    /// Serial number of a far end's SSD.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) serial: Option<String>,
    /// Vendor and device of a far end's device, which another process has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<String>,
    /// Class of that device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) class: Option<String>,
    /// Path at which the other process has that device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) socket: Option<String>,
    /// Address of a far end for QUIC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) quic: Option<String>,
    /// Path of a far end for shared memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shm: Option<String>,
    /// Address of a far end for UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) udp: Option<String>,
    /// Interface and address of a far end for Ethernet frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) eth: Option<String>,
    /// The kernel's interface by which Ethernet frames pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) frames_by: Option<String>,
    /// Fingerprint of a far end's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// Fabric of a target's port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fabric: Option<String>,
    /// NQNs of a target's subsystems.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subsystems: Option<Vec<String>>,
    /// Address at which an emulated network continues connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) connect: Option<String>,
    /// Seed of an emulated network's random numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seed: Option<u64>,
}

impl Listening {
    /// A service at `listening`, without further words.
    pub(crate) fn at(listening: impl ToString) -> Self {
        Self { listening: listening.to_string(), ..Self::default() }
    }
}
