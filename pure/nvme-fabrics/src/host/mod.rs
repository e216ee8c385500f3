//! The host's side: a controller brought up and kept ([`Association`]), several of them as one ([`Multipath`]), and what
//! a discovery controller tells ([`discovery`]).

mod ana;
mod association;
pub mod discovery;
mod identity;
pub mod multipath;

pub use ana::{AnaState, ana_states};
pub use association::{Association, Config, Failure, Loss, Output, SubmitError};
pub use identity::{Identity, ImpactedController};
pub use multipath::Multipath;

/// The most bytes that one command moves here, whatever a controller allows.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;
