//! Why a daemon ends early, as far as all daemons have it in common.

use daemon::Failure;

use super::{DaemonError, Error};

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Descriptors(error) => Self::Descriptors(error),
            Failure::Processor(error) => Self::Processor(error),
            Failure::NothingToAllow { path } => Self::NothingToAllow { path },
            Failure::Sandbox(error) => Self::Sandbox(error),
            Failure::Renounce { user, error } => Self::Renounce { user, error },
            Failure::System(error) => Self::System(error),
            Failure::Bind { path, error } => Self::Bind { path, error },
            Failure::Metrics { address, error } => Self::Metrics { address, error },
            Failure::NoSuccession { .. } => DaemonError::Asked { why: failure.to_string() }.into(),
            Failure::Interrupted => Self::Interrupted,
            Failure::Loop { what, error } => Self::Child { what, error },
        }
    }
}
