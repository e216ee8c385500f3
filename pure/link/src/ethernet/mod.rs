//! Ethernet (IEEE 802.3, and what IEEE 802.1Q has a port do).

pub mod medium;
mod port;
mod settings;
#[cfg(test)]
mod tests;

pub use port::Port;
pub use settings::{FifoStage, Forwarding, Handover, PortSettings};
