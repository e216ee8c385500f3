//! Emulated networks, network cards, and servers of RDMA measurements.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A card that another process finds at a socket of vfio-user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Nic {
    /// Path of the socket.
    pub vfio_user: String,
    /// The wire.
    pub wire: String,
    /// Packets that went to the wire.
    pub sent: u64,
    /// Bytes of these packets.
    #[serde(default)]
    pub sent_bytes: u64,
    /// Packets that went to the host.
    pub received: u64,
    /// Bytes of these packets.
    #[serde(default)]
    pub received_bytes: u64,
    /// Packets lost because the link was down.
    pub link_down: u64,
    /// Packets that no queue wanted.
    pub unwanted: u64,
    /// Packets that were no whole packets.
    pub misshapen: u64,
    /// Packets that found no room.
    pub no_room: u64,
    /// Queues stopped by a fault.
    pub faults: u64,
}

/// A server of RDMA measurements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rdma {
    /// Address at which clients arrive.
    pub listening: Vec<String>,
    /// The provider of RDMA.
    pub provider: String,
    /// Connections of clients.
    pub connections: u64,
}

/// An emulated network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Emulate {
    /// File of the network.
    pub network: String,
    /// Seed of its random numbers.
    pub seed: u64,
    /// Traffic in the direction there.
    pub there: Passed,
    /// Traffic in the direction back.
    pub back: Passed,
    /// Its two ends.
    #[serde(flatten)]
    pub ends: Ends,
}

/// Traffic through a network in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Passed {
    /// Bytes that arrived.
    pub bytes: u64,
    /// Frames that were sent.
    pub frames: u64,
    /// Bytes of these frames.
    pub frame_bytes: u64,
    /// Frames that were lost.
    pub lost: u64,
    /// Frames in queues or on the line.
    pub under_way: u64,
}

/// The two ends of an emulated network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Ends {
    /// Connections are relayed.
    Relay {
        /// Address at which connections arrive.
        listening: Vec<String>,
        /// Address at which they continue.
        connect: String,
    },
    /// Packets pass between two interfaces.
    Packets {
        /// The network namespaces.
        between: [String; 2],
        /// The interface in each.
        interfaces: [String; 2],
        /// The address of each.
        addresses: [String; 2],
    },
}
