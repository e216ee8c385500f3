//! Conversions of the world's errors into errors for users.

use live::client::{AttachError, Failure};
use live::reactor::blocking::WaitError;
use nvme_fabrics::host;

use super::{CaptureError, Error, TsnError};

impl From<captures::Error> for Error {
    fn from(error: captures::Error) -> Self {
        match error {
            captures::Error::File { path, error } => Self::File { path, error },
            captures::Error::Broken { path, offset, what } => Self::BrokenCapture { path, offset, what },
            captures::Error::Nothing { path, unknown } => CaptureError::Nothing { path, unknown }.into(),
            captures::Error::NoColumn { path, name, there } => {
                CaptureError::NoColumn { path, name, there }.into()
            }
        }
    }
}

impl From<WaitError> for Error {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Interrupted => Self::Interrupted,
            WaitError::Io(error) => AttachError::Io(error).into(),
        }
    }
}

impl From<AttachError> for Error {
    fn from(error: AttachError) -> Self {
        use assemblies::vfio_user_client::Failure::TurnedAway;
        use tunnel::frame::RefuseCode;
        use tunnel::session::HandshakeError;
        let error = match error {
            AttachError::NoTime(socket, error) => return TsnError::NoTime { socket, error }.into(),
            error => error,
        };
        match &error {
            AttachError::Unreachable(..) => Self::Unreachable(error),
            AttachError::Refused(
                HandshakeError::RefusedByPeer { code: RefuseCode::InUse | RefuseCode::Busy, .. }
                | HandshakeError::Refused { code: RefuseCode::InUse | RefuseCode::Busy, .. },
            ) => Self::InUse(error),
            AttachError::Refused(HandshakeError::RefusedByPeer { code: RefuseCode::Forbidden, .. }) => {
                Self::Forbidden(error)
            }
            AttachError::Refused(_) => Self::Refused(error),
            AttachError::Trust(_) => Self::Trust(error),
            AttachError::SomebodyElse(..) => Self::SomebodyElse(error),
            AttachError::Socket(..) => Self::NoSocket(error),
            AttachError::Failed(Failure::VfioUser(TurnedAway)) => Self::TurnedAway(error),
            AttachError::Interrupted => Self::Interrupted,
            // The failure names the remedy.
            AttachError::Failed(Failure::Fabrics(host::Failure::Authentication { .. })) => {
                Self::Attach(error)
            }
            AttachError::HostRefused { .. }
            | AttachError::Failed(Failure::Fabrics(_))
            | AttachError::NoSubsystem { .. }
            | AttachError::ResolvePath(_)
            | AttachError::Submit(_)
            | AttachError::Command(_) => Self::Fabrics(error),
            _ => Self::Attach(error),
        }
    }
}
