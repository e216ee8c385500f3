//! Lanes: I/O queues of one subsystem on several threads.
//!
//! A [`Lane`] executes the I/O commands of its queues under a copy of the subsystem's views. The
//! subsystem sends each lane what it publishes ([`ToLane`]), and executes the commands that lanes
//! hand over ([`ToSubsystem`]). The README has the protocol.

mod care;
mod counts;
mod lane;
mod message;
mod older;
mod publish;
mod registry;
mod reports;

pub use lane::Lane;
pub use message::{LaneId, LaneViews, ToLane, ToSubsystem};

pub(super) use message::Ending;
pub(super) use registry::Lanes;
