//! Errors of a controller.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use assemblies::{near, vfio_user_client};
use engine::Nanos;
use nvme::wire::Status;
use nvme_fabrics::host::{self as fabrics, multipath};
use nvme_fabrics::wire::{FabricsStatus, Nqn};
use nvme_pcie::host::SubmitError as Refused;
use pcie::requester::RequestError;
use tunnel::session::HandshakeError;

use crate::drivers::secret_file::SecretFileError;
use crate::reactor::blocking::WaitError;

/// Why there is no controller to use, or no longer one.
#[derive(Debug)]
pub enum AttachError {
    /// The name of a far end has no address.
    Resolve(String, io::Error),
    /// The identity of the far end, or of this host, can't be determined.
    Trust(io::Error),
    /// The name of a path to a subsystem has no address; the error names the path.
    ResolvePath(io::Error),
    /// Nothing answers at the address; the error is that of the latest attempt.
    Unreachable(SocketAddr, io::Error),
    /// Something other than the far end answers at the address.
    SomebodyElse(SocketAddr, io::Error),
    /// The far end, or another peer at its address, refuses the handshake.
    Refused(HandshakeError),
    /// The far end was reached, but was not ready within this time.
    TimedOut(Nanos),
    /// The subsystem could not be reached in time.
    NoSubsystem {
        /// How long it was tried.
        timeout: Nanos,
        /// The last failure to reach the subsystem, if there was one.
        last: Option<String>,
    },
    /// The subsystem does not let this host in: not under this name, or without proof of it.
    HostRefused {
        /// The name under which this host came (HOSTNQN).
        host: Box<Nqn>,
        /// The subsystem's answer.
        failure: fabrics::Failure,
    },
    /// A file gives no secret.
    Secret(SecretFileError),
    /// There is a secret for the controller and none for the host. Holds the controller's file.
    HalfAuthenticated(PathBuf),
    /// The key in this file encrypts, and the fabric cannot.
    CannotEncrypt(PathBuf),
    /// Enumeration found no NVMe controller.
    NoController,
    /// No process listens at this socket path.
    Socket(PathBuf, io::Error),
    /// The PTP daemon at this socket, which the user named, does not answer.
    NoTime(PathBuf, io::Error),
    /// The controller can't be used, or no longer.
    Failed(Failure),
    /// A read of the configuration space failed.
    ConfigRead(RequestError),
    /// A command was not taken.
    Submit(SubmitError),
    /// A command completed with this error status.
    Command(Status),
    /// The wait was stopped from outside.
    Interrupted,
    /// The system refuses an operation.
    Io(io::Error),
}

impl AttachError {
    /// The error of a far end called `name` to which there is no route.
    pub fn without_route(name: &str, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidInput => Self::Trust(error),
            _ => Self::Resolve(name.to_owned(), error),
        }
    }
}

impl AttachError {
    /// The error of a subsystem that refuses `host`.
    pub(super) fn of_fabric(host: &Nqn, failure: fabrics::Failure) -> Self {
        let is_about_host = match failure {
            fabrics::Failure::Connect { status, .. } => matches!(
                FabricsStatus::of(status),
                Some(FabricsStatus::InvalidHost | FabricsStatus::AuthenticationRequired)
            ),
            fabrics::Failure::Authentication { .. } => true,
            _ => false,
        };
        match is_about_host {
            true => Self::HostRefused { host: Box::new(host.clone()), failure },
            false => Self::Failed(Failure::Fabrics(failure)),
        }
    }
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolve(name, error) => write!(f, "{name} has no address: {error}"),
            Self::CannotEncrypt(path) => write!(
                f,
                "the key in {} encrypts NVMe/TCP, and NVMe/RDMA has no encryption: use nvme-tcp://, or \
                 leave the key out",
                path.display()
            ),
            // Without a port it is no address of a network: frames or shared memory lead there.
            Self::Unreachable(address, error) if address.port() == 0 => {
                write!(f, "no far end answers: {error}")
            }
            Self::Unreachable(address, error) => write!(f, "no far end answers at {address}: {error}"),
            Self::SomebodyElse(address, error) => {
                write!(f, "the peer at {address} is not the far end: {error}")
            }
            Self::Refused(error) => error.fmt(f),
            Self::TimedOut(length) => write!(f, "the far end was not ready within {length}"),
            Self::NoSubsystem { timeout, last: None } => write!(f, "no controller within {timeout}"),
            Self::NoSubsystem { timeout, last: Some(last) } => {
                write!(f, "no controller within {timeout}: {last}")
            }
            Self::HostRefused { host, failure } => write!(f, "{failure}; this host's name is {host}"),
            Self::Secret(error) => error.fmt(f),
            Self::HalfAuthenticated(path) => write!(
                f,
                "{}: the controller's secret needs the host's: give dhchap-secret-file too",
                path.display()
            ),
            Self::NoController => f.write_str("there is no NVMe controller at the far end"),
            Self::Socket(path, error) => write!(f, "no process listens at {}: {error}", path.display()),
            Self::NoTime(socket, error) => {
                write!(f, "no PTP daemon answers at {}: {error}", socket.display())
            }
            Self::Failed(failure) => failure.fmt(f),
            Self::ConfigRead(error) => write!(f, "the configuration read failed: {error}"),
            Self::Submit(error) => write!(f, "the command was not taken: {error}"),
            Self::Command(status) => write!(f, "the command failed: {status}"),
            Self::Interrupted => f.write_str("interrupted"),
            Self::ResolvePath(error) | Self::Trust(error) | Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AttachError {}

impl From<io::Error> for AttachError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<WaitError> for AttachError {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Interrupted => Self::Interrupted,
            WaitError::Io(error) => Self::Io(error),
        }
    }
}

/// Why a controller can't be used, or no longer.
#[derive(Clone, Copy, Debug)]
pub enum Failure {
    /// The host on PCI Express has failed.
    Pcie(near::Failure),
    /// The function of another process has failed.
    VfioUser(vfio_user_client::Failure),
    /// The subsystem of NVMe over Fabrics refused, or was away for too long.
    Fabrics(fabrics::Failure),
}

impl Failure {
    /// Whether the subsystem has refused this host for good, as [`fabrics::Failure::is_refusal`]
    /// says.
    pub fn is_refusal(self) -> bool {
        matches!(self, Self::Fabrics(failure) if failure.is_refusal())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pcie(failure) => failure.fmt(f),
            Self::VfioUser(failure) => failure.fmt(f),
            Self::Fabrics(failure) => failure.fmt(f),
        }
    }
}

/// Why a command was not taken.
#[derive(Clone, Debug)]
pub enum SubmitError {
    /// The driver of a controller on PCI Express refuses.
    Pcie(Refused),
    /// The paths to a subsystem refuse an I/O command.
    Fabrics(multipath::SubmitError),
    /// The paths to a subsystem refuse an admin command.
    FabricsAdmin(fabrics::SubmitError),
}

impl SubmitError {
    /// Whether as many commands are under way as there may be.
    pub const fn is_busy(&self) -> bool {
        matches!(
            self,
            Self::Pcie(Refused::Busy)
                | Self::Fabrics(multipath::SubmitError::Busy)
                | Self::FabricsAdmin(fabrics::SubmitError::Busy)
        )
    }

    /// Whether the controller is not there, and no command waits for it.
    pub const fn is_away(&self) -> bool {
        matches!(
            self,
            Self::Pcie(Refused::NotReady | Refused::NoSuchQueue(_))
                | Self::Fabrics(multipath::SubmitError::NoPath)
                | Self::FabricsAdmin(fabrics::SubmitError::NotReady)
        )
    }
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pcie(error) => error.fmt(f),
            Self::Fabrics(error) => error.fmt(f),
            Self::FabricsAdmin(error) => error.fmt(f),
        }
    }
}
