//! TCP in virtual time: both ends of connections whose segments pass modelled paths.
//!
//! RFC 9293 (data transfer, handshake, close), 5681 and 9438 (congestion control), 6298 (timeouts),
//! 2018 and 2883 (selective acknowledgement), 6675 and 8985 (loss recovery, tail loss probes), 6937
//! (rate reduction), 7323 (scaled windows). Sequence numbers do not wrap. A segment's bytes stay
//! where the sender put them until the receiver takes them, because a model needs neither checksums
//! nor copies.

mod congestion;
mod endpoint;
mod parameters;
mod receiver;
mod rtt;
mod scoreboard;
mod segment;
mod sender;

pub(crate) use endpoint::{Endpoint, Event};
pub(crate) use segment::{HEADER_BYTES_MAX, Segment};

pub use endpoint::Gone;
pub use parameters::{
    Acknowledgement, CongestionControl, Parameters, Processing, Retransmission, TailLossProbe,
};

/// Counters of one end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Segments that were sent again, including probes.
    pub retransmitted: u64,
    /// Retransmission timeouts that expired.
    pub timeouts: u64,
    /// Probes for a loss at the tail that were sent.
    pub probes: u64,
}

impl core::ops::Add for Statistics {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            retransmitted: self.retransmitted + other.retransmitted,
            timeouts: self.timeouts + other.timeouts,
            probes: self.probes + other.probes,
        }
    }
}
