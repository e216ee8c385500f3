//! A modelled network in real time between live ends, in two ways:
//!
//! - [`Relay`]: connections that come to an address go on to another one, and their bytes pass a network with a TCP of its
//!   own. Needs nothing of the system.
//! - [`Packets`]: a network interface in each of two network namespaces, and what the kernel's own stacks send between them
//!   passes as packets: TCP, QUIC and whatever else there is meet the modelled path. Needs CAP_NET_ADMIN.

mod alarm;
mod model;
mod pace;
pub mod packets;
mod rehearsal;
pub mod relay;

pub use packets::Packets;
pub use relay::Relay;

/// What has passed in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Direction {
    /// Frames that were sent, and their bytes.
    pub frames: u64,
    /// Bytes of those frames.
    pub frame_bytes: u64,
    /// Frames that were lost.
    pub lost: u64,
    /// Frames that are under way: in queues, on the line.
    pub under_way: u64,
    /// Bytes that have arrived, of what the ends have sent.
    pub bytes: u64,
}

impl Direction {
    fn of(counts: link::Counts, frame_bytes: u64, bytes: u64) -> Self {
        Self {
            frames: counts.entered,
            frame_bytes,
            lost: counts.lost,
            under_way: (counts.entered + counts.copied).saturating_sub(counts.left + counts.lost),
            bytes,
        }
    }
}
