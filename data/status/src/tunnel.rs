//! Both ends of a tunnel: far ends, and slots in which guests find a device.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Activity, ControllerCounts, Health, Namespace, Ssd};

/// The far ends of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Export {
    /// Each far end.
    pub far_ends: Vec<FarEnd>,
}

/// A device's end of a tunnel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FarEnd {
    /// Address at which tunnels arrive.
    pub listening: String,
    /// Hosts that may have the device.
    pub admits: Admits,
    /// The host that has the device; null if none has it, if it has shown no key, or if there are
    /// places for several.
    pub host: Option<Host>,
    /// The tunnel, or all tunnels together.
    pub link: Link,
    /// The place of each host, if there are places for several; otherwise empty.
    #[serde(default)]
    pub seats: Vec<Seat>,
    /// The connections of a tunnel over several, the main one first; otherwise empty.
    pub connections: Vec<Connection>,
    /// The kernel's figures of each TCP connection of the tunnel.
    #[serde(default)]
    pub tcp: Vec<Tcp>,
    /// Connections whose hosts had proved nothing.
    #[serde(rename = "strangers")]
    pub callers: Callers,
    /// Each connection that datagrams carry: udp:// or eth:.
    pub datagrams: Vec<Datagrams>,
    /// Commands that the SSD has executed, of all hosts; null if another process has the device.
    pub commands: Option<u64>,
    /// Writes that found no space on the medium of an SSD.
    pub space_errors: Option<u64>,
    /// Counts of the SSD's controller, or of all its controllers; null if another process has the
    /// device.
    pub controller: Option<ControllerCounts>,
    /// Health of the SSD; null if another process has the device.
    pub health: Option<Health>,
    /// The SSD's report about itself; null if another process has the device.
    pub ssd: Option<Ssd>,
    /// Namespaces of the SSD; null if another process has the device.
    pub namespaces: Option<Vec<Namespace>>,
    /// Counts of the commands of each namespace; null if another process has the device.
    pub activity: Option<Vec<Activity>>,
    /// The device's reads of the host's memory.
    pub far_reads: FarReads,
}

/// Hosts that may have a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Admits {
    /// Those whose keys are listed.
    #[serde(rename = "listed keys")]
    ListedKeys,
    /// All of them.
    #[serde(rename = "anyone")]
    Anyone,
}

impl fmt::Display for Admits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ListedKeys => "listed keys",
            Self::Anyone => "anyone",
        })
    }
}

/// The host that has a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    /// Fingerprint of its key.
    pub key: String,
    /// Its name in the list of keys.
    pub name: Option<String>,
}

/// A host's place at a far end that has places for several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Seat {
    /// Controller ID (CNTLID) of the host's NVMe controller.
    pub controller_id: u16,
    /// The host that has the place; null if none has it, or if it has shown no key.
    pub host: Option<Host>,
    /// The tunnel.
    pub link: Link,
    /// The connections of a tunnel over several, the main one first; otherwise empty.
    pub connections: Vec<Connection>,
    /// Counts of the controller.
    pub controller: ControllerCounts,
    /// The controller's reads of the host's memory.
    pub far_reads: FarReads,
}

/// A tunnel, as one of its ends sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Link {
    /// The other end; null if there is none.
    pub peer: Option<String>,
    /// Whether the tunnel has a connection now.
    pub connected: bool,
    /// Seconds since the link came up.
    pub up_s: Option<u64>,
    /// Nanoseconds since the link came up.
    pub up_ns: Option<u64>,
    /// Round trip through the tunnel.
    pub round_trip_ns: Option<u64>,
    /// PCIe packets sent.
    pub packets_sent: u64,
    /// PCIe packets received.
    pub packets_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Times that the tunnel continued over a new connection.
    pub resumptions: u64,
    /// Frames that were sent again after that.
    pub sent_again: u64,
    /// Packets dropped, as the link was down.
    #[serde(default)]
    pub dropped: u64,
    /// Bytes that wait to be sent.
    pub waiting_bytes: u64,
    /// Bytes that are kept until the other end acknowledges them.
    pub unacknowledged_bytes: u64,
    /// The most bytes that may be kept.
    pub unacknowledged_bytes_max: u64,
}

impl Link {
    /// Several tunnels together: sums, the longest time, and the only peer if there is one.
    pub fn together(links: &[Self]) -> Self {
        let sum = |of: fn(&Self) -> u64| links.iter().map(of).sum();
        let mut peers = links.iter().filter_map(|link| link.peer.clone());
        let peer = peers.next().filter(|_| peers.next().is_none());
        Self {
            peer,
            connected: links.iter().any(|link| link.connected),
            up_s: links.iter().filter_map(|link| link.up_s).max(),
            up_ns: links.iter().filter_map(|link| link.up_ns).max(),
            round_trip_ns: links.iter().filter_map(|link| link.round_trip_ns).max(),
            packets_sent: sum(|link| link.packets_sent),
            packets_received: sum(|link| link.packets_received),
            bytes_sent: sum(|link| link.bytes_sent),
            bytes_received: sum(|link| link.bytes_received),
            resumptions: sum(|link| link.resumptions),
            sent_again: sum(|link| link.sent_again),
            dropped: sum(|link| link.dropped),
            waiting_bytes: sum(|link| link.waiting_bytes),
            unacknowledged_bytes: sum(|link| link.unacknowledged_bytes),
            unacknowledged_bytes_max: sum(|link| link.unacknowledged_bytes_max),
        }
    }
}

/// One of several connections of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Connection {
    /// Whether it is connected now.
    pub connected: bool,
    /// PCIe packets sent.
    pub packets_sent: u64,
    /// PCIe packets received.
    pub packets_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Times that the tunnel continued over a new connection in this place.
    pub resumptions: u64,
}

/// The kernel's figures of a TCP connection, or of several that serve one purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tcp {
    /// The smoothed round trip; the longest of several.
    pub round_trip_ns: u64,
    /// Segments that were sent again.
    pub retransmissions: u64,
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} packets sent, {} received", self.packets_sent, self.packets_received)?;
        if self.connected { Ok(()) } else { f.write_str(", not connected") }
    }
}

/// Connections that came to a far end, by their fate until their host said Hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Callers {
    /// Whose Hello is awaited now.
    pub waiting: u64,
    /// That were accepted.
    pub accepted: u64,
    /// That carried a session.
    pub admitted: u64,
    /// That were refused for their Hello, or its key.
    pub refused: u64,
    /// Whose Hello did not come in time.
    pub late: u64,
    /// That made room for later ones.
    pub displaced: u64,
}

/// A connection that datagrams carry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Datagrams {
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams received.
    pub received: u64,
    /// Datagrams taken for lost; their bytes were sent again.
    pub lost: u64,
    /// Datagrams that came again, or too late to know.
    pub again: u64,
    /// Datagrams that missed their times of launch, all connections together.
    pub late: u64,
    /// Round trip.
    pub round_trip_ns: u64,
    /// The most bytes that may be sent before one is acknowledged.
    pub window_bytes: u64,
    /// Bytes sent that are not acknowledged yet.
    pub under_way_bytes: u64,
    /// The longest datagrams known to pass.
    pub datagram_bytes: u64,
    /// Each path, if there are several.
    pub paths: Vec<Path>,
    /// Frames of all paths together, if there are several.
    pub copies: Option<Copies>,
}

/// One of several paths of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Path {
    /// Its network interface.
    pub interface: String,
    /// Frames that found no room.
    pub dropped: u64,
    /// Whether the path fails in silence, so that only the others bring its frames.
    pub failing: bool,
    /// Frames that came over this path.
    pub copies: Option<Copies>,
}

/// Frames that were sent over several paths (IEEE 802.1CB), as frerCpsSeqRcvy counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Copies {
    /// Frames that passed.
    pub passed: u64,
    /// Copies of frames that had passed.
    pub eliminated: u64,
    /// Frames that came out of order.
    pub out_of_order: u64,
    /// Frames whose number is beyond those that are remembered.
    pub rogue: u64,
    /// Numbers of which no frame came.
    pub lost: u64,
    /// Times that the numbering began anew.
    pub resets: u64,
    /// Times that a path was found failing in silence.
    pub latent_errors: u64,
}

/// The far device's reads of the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FarReads {
    /// Reads that were answered from memory sent ahead.
    pub hits: u64,
    /// Reads that went to the host.
    pub misses: u64,
    /// Bytes of memory that came ahead.
    pub bytes_ahead: u64,
    /// Bytes that came ahead and that the device has not read.
    pub bytes_in_vain: u64,
    /// Pieces that were dropped for lack of room.
    pub evicted: u64,
}

impl FarReads {
    /// The sum of several.
    #[must_use]
    pub fn together(reads: impl Iterator<Item = Self>) -> Self {
        let none = Self { hits: 0, misses: 0, bytes_ahead: 0, bytes_in_vain: 0, evicted: 0 };
        reads.fold(none, |sum, one| Self {
            hits: sum.hits + one.hits,
            misses: sum.misses + one.misses,
            bytes_ahead: sum.bytes_ahead + one.bytes_ahead,
            bytes_in_vain: sum.bytes_in_vain + one.bytes_in_vain,
            evicted: sum.evicted + one.evicted,
        })
    }

    /// Round trips of a command whose memory reads follow each other: one for its doorbell and
    /// completion, and one for each read that went to the host.
    pub fn round_trips(&self, commands: u64) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a mean, shown with two digits")]
        let share = |part: u64| part as f64 / commands as f64;
        (commands > 0).then(|| 1.0 + share(self.misses))
    }
}

impl fmt::Display for FarReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hits, misses, bytes_ahead, bytes_in_vain, .. } = self;
        write!(
            f,
            "{hits} reads of memory answered there, {misses} by the host; {bytes_in_vain} of {bytes_ahead} B sent in vain"
        )
    }
}

/// Data that the near end has sent ahead of the device's reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lookahead {
    /// Commands that went ahead.
    pub entries: u64,
    /// Pieces of memory that went ahead.
    pub pieces: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Pieces for which the far end had no room.
    pub over_budget: u64,
    /// Commands that were given up.
    pub given_up: u64,
    /// Reads of memory that the device sent all the same.
    pub reads: u64,
}

impl fmt::Display for Lookahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entries, pieces, bytes, reads, .. } = self;
        write!(
            f,
            "{entries} commands sent ahead in {pieces} pieces of {bytes} B; {reads} reads of memory arrived nevertheless"
        )
    }
}

/// Accesses to the far function's registers, which the config cache may answer near.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigCache {
    /// Reads of configuration space answered near.
    pub reads_near: u64,
    /// Reads that went to the far end.
    pub reads_far: u64,
    /// Writes that went to the far end.
    pub writes: u64,
    /// Reads of the controller's properties answered near.
    pub properties_near: u64,
    /// Requests that were asked to retry while the far end was away.
    pub retries: u64,
    /// Times that the far end has sent its registers.
    pub shown: u64,
}

impl fmt::Display for ConfigCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reads_near, reads_far, writes, properties_near, retries, .. } = self;
        let near = reads_near + properties_near;
        write!(
            f,
            "{near} reads of registers were answered near; {reads_far} and {writes} writes went to the far end"
        )?;
        if *retries > 0 {
            write!(f, "; {retries} requests were asked for patience while it was away")?;
        }
        Ok(())
    }
}

/// Accesses that a far device may make, and those that it was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Dma {
    /// The memory that the device may reach.
    pub mode: DmaMode,
    /// Reads that were refused.
    pub refused_reads: u64,
    /// Writes that were refused.
    pub refused_writes: u64,
}

/// The part of the host's memory that a far device may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DmaMode {
    /// Only memory that outstanding commands name.
    Strict,
    /// All memory that is mapped.
    Mapped,
}

impl fmt::Display for DmaMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Strict => "strict",
            Self::Mapped => "mapped",
        })
    }
}

/// A device that a virtual machine finds at a socket of vfio-user. The fields of a tunnel are null
/// or empty if the device is in this process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Slot {
    /// Path of the socket.
    pub vfio_user: String,
    /// URL of the far end.
    pub url: Option<String>,
    /// Whether a guest is there.
    pub client: bool,
    /// The port of QEMU that the device is plugged into; null without --qmp.
    #[serde(default)]
    pub port: Option<Port>,
    /// The tunnel.
    pub link: Option<Link>,
    /// The connections of a tunnel over several, the main one first; otherwise empty.
    pub connections: Vec<Connection>,
    /// The kernel's figures of each TCP connection of the tunnel.
    #[serde(default)]
    pub tcp: Vec<Tcp>,
    /// Each connection that datagrams carry: udp:// or eth:.
    pub datagrams: Vec<Datagrams>,
    /// Commands of the guest.
    pub commands: Option<u64>,
    /// Mean round trips of a command through the tunnel.
    pub round_trips: Option<f64>,
    /// Data sent ahead of the device's reads.
    pub lookahead: Option<Lookahead>,
    /// The memory that the far device may reach, and the refused accesses.
    pub dma: Option<Dma>,
    /// The device's reads of the host's memory.
    pub far_reads: Option<FarReads>,
    /// The config cache.
    #[serde(rename = "shadow")]
    pub config_cache: Option<ConfigCache>,
    /// The counts of the guest's actions.
    pub guest: Guest,
    /// Counts of the SSD's controller; null if the device is at the far end.
    pub controller: Option<ControllerCounts>,
    /// The threads that serve I/O queues beside the device's own; empty if there are none.
    #[serde(default)]
    pub lanes: Vec<Lane>,
    /// Health of the SSD; null if the device is at the far end.
    pub health: Option<Health>,
    /// Counts of the commands of each namespace; empty if the device is at the far end.
    #[serde(default)]
    pub activity: Vec<Activity>,
}

/// A port of a switch or root complex in QEMU, with native hot-plug.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Port {
    /// The port's id in QEMU.
    pub id: String,
    /// The device in the port: unknown, empty, plugging, plugged or unplugging.
    pub state: String,
    /// Times that the device was plugged in.
    pub plugs: u64,
    /// Times that the device was unplugged.
    pub unplugs: u64,
    /// Requests that QEMU or the guest refused.
    pub refusals: u64,
}

/// A thread that serves I/O queues of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lane {
    /// I/O completion queues that the thread serves.
    pub io_queues: u64,
    /// Commands that it took.
    pub commands: u64,
    /// Reads of submission queue entries in memory.
    pub fetches: u64,
    /// Interrupts that it raised.
    pub interrupts: u64,
    /// Processor time of the thread.
    pub processor_ns: u64,
}

/// Counts of a guest's accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Guest {
    /// Accesses to the configuration space.
    pub config_accesses: u64,
    /// Accesses to registers.
    pub register_accesses: u64,
    /// Interrupts that the guest got.
    pub interrupts: u64,
    /// Accesses that were not answered in time.
    pub given_up: u64,
    /// Accesses that waited for the far end.
    pub waited: u64,
}
