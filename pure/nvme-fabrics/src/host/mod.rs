//! The host's side: a controller brought up and kept ([`Association`]), several of them as one ([`Multipath`]), and what
//! a discovery controller tells ([`discovery`]).

mod ana;
mod association;
pub mod discovery;
mod identity;
pub mod multipath;

pub use ana::{AnaState, ana_states};
pub use association::{Association, Config, Failure, Loss, Output, SubmitError};
pub use identity::{Identity, ImpactedController, NAMESPACES_MAX, Namespace};
pub use multipath::Multipath;

use engine::Buffer;

/// The most bytes that one command moves here, whatever a controller allows.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;

/// The data of a command.
#[derive(Clone, Debug)]
pub enum Data {
    /// It moves none.
    None,
    /// These go to the controller.
    Write(Buffer),
    /// So many bytes come from the controller.
    Read(u32),
}

impl Data {
    /// Bytes that it moves.
    pub fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Write(data) => data.len(),
            Self::Read(length) => *length as usize,
        }
    }

    /// Whether it moves nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
