//! The rows of each view: the output of `--json`, and the cells of a table.

use schemars::JsonSchema;
use serde::Serialize;

/// The work of daemons between two looks, as the cells of a terminal show it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Top {
    /// Tunnels, as both their ends see them.
    pub(super) far_ends: Vec<FarEndRow>,
    /// Namespaces of far ends and targets.
    pub(super) namespaces: Vec<NamespaceRow>,
    /// Hosts of far ends and targets.
    pub(super) hosts: Vec<HostRow>,
    /// Threads of targets, and those of devices beside the device's own.
    pub(super) threads: Vec<ThreadRow>,
    /// Block devices, by the threads that serve their queues.
    pub(super) block_devices: Vec<BlockDeviceRow>,
}

/// A tunnel.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct FarEndRow {
    /// URL of the far end.
    pub(super) place: String,
    /// State of the link: up, down, or lost and held.
    pub(super) link: String,
    /// The other end.
    pub(super) peer: String,
    /// Round trip through the tunnel.
    pub(super) round_trip: String,
    /// Commands a second.
    pub(super) commands_s: String,
    /// MB received a second.
    pub(super) in_mb_s: String,
    /// MB sent a second.
    pub(super) out_mb_s: String,
    /// Times that the tunnel continued over a new connection.
    pub(super) resumed: String,
}

/// A namespace.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct NamespaceRow {
    /// URL of its far end, or NQN of its subsystem.
    pub(super) of: String,
    /// Namespace identifier (NSID).
    pub(super) nsid: String,
    /// Read commands a second.
    pub(super) reads_s: String,
    /// Write commands a second.
    pub(super) writes_s: String,
    /// MB read a second.
    pub(super) read_mb_s: String,
    /// MB written a second.
    pub(super) written_mb_s: String,
    /// The class of latency that half of the commands reach at most.
    pub(super) p50: String,
    /// The class of latency that 99 % of the commands reach at most.
    pub(super) p99: String,
    /// Commands that failed so far.
    pub(super) errors: String,
}

/// A host.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct HostRow {
    /// URL of the far end, or NQN of the subsystem, that it uses.
    pub(super) of: String,
    /// Its name, its key or its address.
    pub(super) host: String,
    /// State of its link or of its controller.
    pub(super) state: String,
    /// Number of its queues.
    pub(super) queues: String,
    /// Commands a second.
    pub(super) commands_s: String,
    /// MB read a second.
    pub(super) read_mb_s: String,
    /// MB written a second.
    pub(super) written_mb_s: String,
    /// Commands that failed so far.
    pub(super) errors: String,
}

/// A thread of a target or a device.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct ThreadRow {
    /// Address of the target, or path of the device's socket.
    pub(super) of: String,
    /// Number of the thread.
    pub(super) thread: String,
    /// Share of a processor that it took, in percent.
    pub(super) processor: String,
    /// Number of its connections.
    pub(super) connections: String,
    /// Number of I/O queues whose commands it executes.
    pub(super) queues: String,
    /// Commands a second.
    pub(super) commands_s: String,
}

/// A queue of a block device, or all of them where one thread serves them.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct BlockDeviceRow {
    /// Path of the block device.
    pub(super) device: String,
    /// Number of the queue, or `all`.
    pub(super) queue: String,
    /// Whether the thread can reach the far end: here or away.
    pub(super) far_end: String,
    /// Requests that are not answered yet.
    pub(super) under_way: String,
    /// Requests a second.
    pub(super) requests_s: String,
    /// MB a second.
    pub(super) mb_s: String,
    /// Requests that failed so far.
    pub(super) errors: String,
}

/// A row of a table.
pub(super) trait Row {
    /// Its cells, in the order of the view's head.
    fn cells(self) -> Vec<String>;
}

impl Row for FarEndRow {
    fn cells(self) -> Vec<String> {
        let Self { place, link, peer, round_trip, commands_s, in_mb_s, out_mb_s, resumed } = self;
        vec![place, link, peer, round_trip, commands_s, in_mb_s, out_mb_s, resumed]
    }
}

impl Row for NamespaceRow {
    fn cells(self) -> Vec<String> {
        let Self { of, nsid, reads_s, writes_s, read_mb_s, written_mb_s, p50, p99, errors } = self;
        vec![of, nsid, reads_s, writes_s, read_mb_s, written_mb_s, p50, p99, errors]
    }
}

impl Row for ThreadRow {
    fn cells(self) -> Vec<String> {
        let Self { of, thread, processor, connections, queues, commands_s } = self;
        vec![of, thread, processor, connections, queues, commands_s]
    }
}

impl Row for BlockDeviceRow {
    fn cells(self) -> Vec<String> {
        let Self { device, queue, far_end, under_way, requests_s, mb_s, errors } = self;
        vec![device, queue, far_end, under_way, requests_s, mb_s, errors]
    }
}

impl Row for HostRow {
    fn cells(self) -> Vec<String> {
        let Self { of, host, state, queues, commands_s, read_mb_s, written_mb_s, errors } = self;
        vec![of, host, state, queues, commands_s, read_mb_s, written_mb_s, errors]
    }
}
