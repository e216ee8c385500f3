//! Targets of NVMe over Fabrics.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Activity, Health, HostActivity, Namespace, Ssd, Tcp};

/// A target: its subsystems, and the hosts that use them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Target {
    /// Addresses at which hosts arrive.
    pub listening: Vec<String>,
    /// The fabric of each of these addresses.
    pub fabrics: Vec<String>,
    /// Generation counter of the discovery log page.
    pub generation: u64,
    /// Connections of hosts.
    pub connections: u64,
    /// Memory held for hosts.
    pub memory: Memory,
    /// Connections of unauthenticated hosts, and the fate of others.
    pub strangers: Strangers,
    /// The part of each core in connections, memory and unauthenticated hosts.
    #[serde(default)]
    pub cores: Vec<Core>,
    /// Hosts that may ask for the discovery log page.
    pub discovery_access: DiscoveryAccess,
    /// Each subsystem.
    pub subsystems: Vec<Subsystem>,
    /// Discovery controllers.
    pub discovery: Vec<Controller>,
}

/// A core of a target: a thread with a loop of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Core {
    /// Number of the thread, from 0 on. A thread that has failed is left out until it works again.
    #[serde(default)]
    pub thread: u64,
    /// Time until the loop took up the request for this status.
    pub lag_ns: u64,
    /// Connections of hosts.
    pub connections: u64,
    /// I/O queues whose commands this core executes, of all subsystems.
    #[serde(default)]
    pub io_queues: u64,
    /// Commands of hosts that this core has taken, of Admin Queues and I/O queues.
    #[serde(default)]
    pub commands: u64,
    /// Processor time of the thread.
    #[serde(default)]
    pub processor_ns: u64,
    /// Memory held for hosts.
    pub memory: Memory,
    /// Connections of unauthenticated hosts, and the fate of others.
    pub strangers: Strangers,
}

/// Memory that a target holds for hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Memory {
    /// The most that it may hold.
    pub budget_bytes: u64,
    /// The memory that it holds.
    pub used_bytes: u64,
    /// Connections that wait for more.
    pub waiting: u64,
}

/// Connections of unauthenticated hosts, and the fate of others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Strangers {
    /// Such connections.
    pub connections: u64,
    /// The most of them.
    pub most: u64,
    /// Those of them that are for discovery.
    pub discovery: u64,
    /// The most of those.
    pub discovery_most: u64,
    /// Connections that were refused, by the reason.
    pub refused: BTreeMap<String, u64>,
    /// Connections that were dropped, by the reason.
    pub dropped: BTreeMap<String, u64>,
    /// The arithmetic of authentication, which takes time.
    pub exponentiations: Exponentiations,
}

/// Exponentiations of Diffie-Hellman groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Exponentiations {
    /// That wait for a processor.
    pub waiting: u64,
    /// That were done.
    pub done: u64,
    /// That were refused.
    pub refused: u64,
    /// Time of a processor that they took.
    pub processor_ns: u64,
}

/// Hosts that may ask for the discovery log page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiscoveryAccess {
    /// All of them.
    Open,
    /// Those that authenticate.
    Keyed,
    /// None.
    Closed,
}

/// A subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Subsystem {
    /// NVMe Qualified Name (NQN).
    pub nqn: String,
    /// NQNs of the hosts that may use it; null if all may.
    pub hosts: Option<Vec<String>>,
    /// Its report about itself; null if another process reports it.
    pub ssd: Option<Ssd>,
    /// Namespaces.
    pub namespaces: Vec<Namespace>,
    /// Writes that found no space on the medium of the subsystem.
    pub space_errors: Option<u64>,
    /// Health of the subsystem; null if another process reports it.
    pub health: Option<Health>,
    /// Counts of the commands of each namespace.
    pub activity: Option<Vec<Activity>>,
    /// Controllers that hosts have connected to.
    pub controllers: Vec<Controller>,
    /// Hosts whose controllers are gone while media have requests of theirs. A host that is neither
    /// here nor among the controllers changes nothing any more.
    #[serde(default)]
    pub draining: Vec<Draining>,
    /// Asymmetric Namespace Access (ANA): the state in which each port reaches each group.
    #[serde(default)]
    pub ana: Vec<Access>,
}

/// A host whose controllers are gone while media have requests of theirs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Draining {
    /// NQN of the host; `others` for all hosts together that are too many to be distinguished.
    pub host: String,
    /// Requests that media have not ended. A thread that may have some counts as one.
    pub requests: u64,
}

/// The state in which a port reaches a group of namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Access {
    /// Number of the ANA group.
    pub group: u32,
    /// Address of the port.
    pub port: String,
    /// The state.
    pub state: AccessState,
}

/// The state of an ANA group at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AccessState {
    /// Hosts reach the group well.
    Optimized,
    /// Hosts reach the group less well, and use another path if they can.
    NonOptimized,
    /// Hosts cannot reach the group now, and use another path or wait.
    Inaccessible,
    /// Hosts can never reach the group again.
    PersistentLoss,
    /// The state is about to change, and hosts wait.
    Change,
}

/// A controller that a host has connected to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Controller {
    /// Controller identifier (CNTLID).
    pub controller: u16,
    /// NQN of the host.
    pub host: String,
    /// Host Identifier.
    pub host_id: String,
    /// Whether the controller is enabled and ready.
    pub ready: bool,
    /// Bytes held for it.
    pub memory_bytes: u64,
    /// Counts of the commands of the host.
    pub activity: Option<HostActivity>,
    /// The kernel's figures of the host's TCP connections together; null over other fabrics.
    pub tcp: Option<Tcp>,
    /// Keep Alive Timeout; null if there is none.
    pub keep_alive_ms: Option<u64>,
    /// Queues.
    pub queues: Vec<Queue>,
}

/// A queue of a controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Queue {
    /// Queue Identifier; 0 is the admin queue.
    pub queue: u16,
    /// Its entries.
    pub entries: u16,
    /// Address of the host.
    pub peer: String,
    /// Whether PDU headers have a digest.
    pub header_digest: bool,
    /// Whether PDU data has a digest.
    pub data_digest: bool,
    /// Commands that came.
    pub commands: u64,
    /// Commands that were refused.
    pub refused: u64,
    /// Commands that are not completed yet.
    pub outstanding: u16,
}
