//! The latency of packets by their size, and the floor of the machine.

use distribution::Distribution;
use schemars::JsonSchema;
use serde::Serialize;

/// The unbeatable floor of this machine, and the figures of its kernel: measured in the same run.
#[derive(Serialize, JsonSchema)]
pub(super) struct Floor {
    /// Two crossings of a cache line between two threads.
    pub(super) round_trip_ns: Distribution,
    /// Half of it.
    pub(super) crossing_ns: Distribution,
    /// A datagram of 60 bytes to and fro over loopback, both ends polling: half of the round trip.
    pub(super) kernel_udp_one_way_ns: Distribution,
    /// How long the system takes to wake a thread by an eventfd, if there is time to sleep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) wake_ns: Option<Distribution>,
}

/// The latency of packets of one size.
#[derive(Serialize, JsonSchema)]
pub(super) struct Latency {
    /// Bytes of a packet.
    pub(super) size: usize,
    /// How the packets left their hosts: `inline` or `dma`.
    pub(super) path: &'static str,
    pub(super) one_way_ns: Distribution,
    pub(super) round_trip_ns: Distribution,
    /// Packets that did not come back.
    pub(super) lost: u64,
}
