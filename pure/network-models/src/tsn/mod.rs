//! Time-Sensitive Networking: what IEEE 802.1 adds to Ethernet so that a delay has a bound.

pub mod bound;
pub mod clock;
pub mod conformance;
pub(crate) mod credit;
pub mod gates;
pub mod launch;
pub mod plan;
pub mod preemption;
pub mod replication;
pub mod taprio;
pub mod traffic;
