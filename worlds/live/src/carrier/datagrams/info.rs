//! Counts of a connection's datagrams, for the status of an end.

use datagrams::Counters;
pub use datagrams::redundancy::Counters as Copies;
use engine::Nanos;

/// Counts of the datagrams of one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Datagrams of this connection.
    pub datagrams: Counters,
    /// The smoothed round trip.
    pub round_trip: Nanos,
    /// Bytes that may be under way, as congestion control has it.
    pub window: u64,
    /// Bytes that are under way.
    pub under_way: u64,
    /// The longest datagrams that are known to pass, in bytes.
    pub datagram_bytes: usize,
    /// Datagrams of all connections at this socket or interface that missed their times of launch.
    pub late: u64,
    /// The interfaces over which bare frames go; none over UDP.
    pub paths: Vec<Path>,
    /// The peer's frames of all paths together (802.1CB), if there are several.
    pub copies: Option<Copies>,
}

/// One interface over which a connection's frames go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Its name.
    pub interface: String,
    /// Frames of all connections that the kernel dropped: this end did not take them in time.
    pub dropped: u64,
    /// The peer's frames on this path (802.1CB), if there are several paths.
    pub copies: Option<Copies>,
    /// Whether the path fails while other paths deliver: it is silent, or its interface is down or
    /// was deleted.
    pub is_failing: bool,
}
