//! Time-Sensitive Networking: the additions of IEEE 802.1 to Ethernet that bound a delay.

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
