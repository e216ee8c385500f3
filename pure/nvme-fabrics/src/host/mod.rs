//! The host's side. [`Association`] brings one controller up and keeps it, [`Multipath`] uses
//! several as one, and [`discovery`] reads the log of a discovery controller.

mod association;
pub mod discovery;
mod identity;
pub mod multipath;
mod table;

pub use association::{Association, Authentication, Config, Failure, Loss, Output, SubmitError};
pub use identity::{Identity, ImpactedController};
pub use multipath::Multipath;

/// Maximum number of bytes that one command of this host moves, regardless of a controller's limit.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;
