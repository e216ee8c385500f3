//! The exit status of each error.

use live::client::SubmitError;
use live::sys::unix::BindError;

use super::Error;
use crate::exit::Exit;

impl Error {
    /// The error that `command` was not taken.
    pub(crate) const fn refused(command: &'static str, error: SubmitError) -> Self {
        match error {
            SubmitError::Pcie(_) => Self::Submit { command, error },
            SubmitError::Fabrics(_) | SubmitError::FabricsAdmin(_) => Self::FabricsCommand { command, error },
        }
    }

    /// How the process ends with this error.
    pub(crate) const fn exit(&self) -> Exit {
        match self {
            Self::Open(_)
            | Self::State(_)
            | Self::PoolWithoutState { .. }
            | Self::TwoStates { .. }
            | Self::Vfio { .. }
            | Self::NothingToExport { .. }
            | Self::OneSerial { .. }
            | Self::Tcp(_)
            | Self::TooManyPaths { .. }
            | Self::WhosePath { .. }
            | Self::NoSecrets
            | Self::NewSecret { .. }
            | Self::NothingToAllow { .. }
            | Self::ExposedSubsystem { .. }
            | Self::TooManyTlsKeys { .. }
            | Self::NothingToAnnounce
            | Self::TooManyMedia { .. }
            | Self::MediaFull(_)
            | Self::NoSpread { .. }
            | Self::NothingToVerify { .. }
            | Self::GivenTwice { .. }
            | Self::Terminal
            | Self::Key(_)
            | Self::KnownEnds(_)
            | Self::Admission(_)
            | Self::Exposed { .. }
            | Self::SomebodyElse(_)
            | Self::Trust(_)
            | Self::Bind {
                error: BindError::TooLong(_) | BindError::NotASocket | BindError::NoDirectory(_),
                ..
            }
            | Self::OneDevice { .. }
            | Self::Config { .. }
            | Self::Options { .. }
            | Self::Simulation(_)
            | Self::Link { .. }
            | Self::JobFile { .. }
            | Self::Connect { .. }
            | Self::NoNamespaceFile { .. }
            | Self::NoNetworkAdmin { .. }
            | Self::Interface { .. }
            | Self::NoNamespace { .. }
            | Self::NoNamespaces { .. }
            | Self::Processor(_)
            | Self::FarNamespace { .. }
            | Self::Overwritten { .. }
            | Self::Ring { .. }
            | Self::RecordUrl { .. }
            | Self::FeedsItself { .. }
            | Self::TwoInputs
            | Self::OverItself { .. }
            | Self::BehindEnd { .. }
            | Self::Each { .. }
            | Self::Raw { .. }
            | Self::WhichDaemon { .. }
            | Self::NoSuchMeasurement { .. }
            | Self::WithoutForce { .. }
            | Self::NothingToTrace { .. }
            | Self::DataDirection { .. }
            | Self::NoPage { .. }
            | Self::LogFilter(_)
            | Self::Journal(_)
            | Self::Range { .. } => Exit::Wrong,
            Self::Interrupted => Exit::Interrupted,
            Self::Carrier(error) => error.exit(),
            Self::Block(error) => error.exit(),
            Self::Daemon(error) => error.exit(),
            Self::Nvme(error) => error.exit(),
            Self::Thread(error) => error.exit(),
            Self::Tsn(error) => error.exit(),
            Self::Capturing(error) => error.exit(),
            _ => Exit::Failed,
        }
    }
}
