//! A modelled network in real time between live ends, in two forms:
//!
//! - [`Relay`]: connections to an address go on to another address, and their bytes pass a modelled
//!   network with a TCP of its own. Needs nothing of the system.
//! - [`Packets`]: each of two network namespaces gets a network interface. The packets that the
//!   kernel's own stacks send between the namespaces pass the modelled path, be it TCP, QUIC or
//!   anything else. Needs CAP_NET_ADMIN.

mod alarm;
mod emulator;
mod model;
mod pace;
pub mod packets;
mod rehearsal;
pub mod relay;

pub use emulator::Emulator;
pub use packets::Packets;
pub use relay::Relay;

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Direction {
    /// Frames that were sent.
    pub frames: u64,
    /// Bytes of the frames that were sent.
    pub frame_bytes: u64,
    /// Frames that were lost.
    pub lost: u64,
    /// Frames that are under way, in queues or on the line.
    pub under_way: u64,
    /// Bytes that have arrived, of those that the ends have sent.
    pub bytes: u64,
}

impl Direction {
    fn of(counts: network_models::Counts, frame_bytes: u64, bytes: u64) -> Self {
        Self {
            frames: counts.entered,
            frame_bytes,
            lost: counts.lost,
            under_way: (counts.entered + counts.copied).saturating_sub(counts.left + counts.lost),
            bytes,
        }
    }
}
