//! 5G New Radio: the times at which a slot may be used, and the steps before that.
//!
//! Time division duplex (TS 38.213): a pattern of downlink slots, one special slot and uplink slots
//! repeats. A downlink frame waits for the next downlink slot. An uplink frame needs a grant, which
//! the device asks for with a scheduling request or gets in advance. Each transmission may fail and
//! is then repeated (HARQ). Failures are sampled, never averaged, since the tail of the
//! distribution matters. The layers above keep the order of frames.

mod cell;
mod core;
mod downlink;
#[cfg(test)]
mod tests;
mod uplink;

pub use cell::{Cell, Direction, Grants, Harq, Pattern, Proactive, RoundTrip};
pub use core::{Core, CoreSettings};
pub use downlink::Downlink;
pub use uplink::Uplink;
