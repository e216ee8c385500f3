//! 5G New Radio: when a slot may be used, and what has to happen before it is.
//!
//! Time division duplex (TS 38.213): a pattern of downlink, uplink and one special slot repeats. A frame that goes down
//! waits for the next downlink slot. One that goes up needs a grant: asked for with a scheduling request, or given
//! beforehand. Each transmission may fail and is then repeated (HARQ); that is sampled, never averaged, since the
//! tail is what matters. Layers above keep the order of frames.

mod cell;
mod core;
mod downlink;
#[cfg(test)]
mod tests;
mod uplink;

pub use cell::{Cell, Direction, Grants, Harq, Pattern, Proactive};
pub use core::{Core, CoreSettings};
pub use downlink::Downlink;
pub use uplink::Uplink;
