//! What an error is for whoever has started the command: the exit status, and a name.

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
            | Self::NoFileToSave
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
            Self::Nvme(error) => error.exit(),
            Self::Tsn(error) => error.exit(),
            Self::Capturing(error) => error.exit(),
            _ => Exit::Failed,
        }
    }

    /// The error's name for programs: the words of its variant, such as `no-namespace`.
    pub(crate) fn code(&self) -> String {
        let debug = format!("{self:?}");
        let name = debug.split(|one: char| !one.is_ascii_alphanumeric()).next().unwrap_or_default();
        let mut code = String::new();
        for one in name.chars() {
            if one.is_ascii_uppercase() && !code.is_empty() {
                code.push('-');
            }
            code.push(one.to_ascii_lowercase());
        }
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_an_error_is_its_name() {
        assert_eq!(Error::Interrupted.code(), "interrupted");
        assert_eq!(Error::NoNamespaces { wanted: 7 }.code(), "no-namespaces");
        assert_eq!(Error::Simulation("x".to_owned()).code(), "simulation");
    }
}
