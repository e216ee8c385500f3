//! Ethernet (IEEE 802.3), with the functions of a port from IEEE 802.1Q.

pub mod medium;
mod port;
mod settings;
#[cfg(test)]
mod tests;

pub use port::Port;
pub use settings::{FifoStage, Forwarding, Handover, PortSettings};
