//! The services, at a socket.

use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use super::Controller;
use super::fleet::Fleet;
use super::identity::Identity;
use super::node::{Linux, Machine, Node, NodeSettings};
use super::proto::controller_server::ControllerServer;
use super::proto::identity_server::IdentityServer;
use super::proto::node_server::NodeServer;

/// The largest message in bytes that callers may send.
const MESSAGE_MAX: usize = 1 << 20;
/// The most calls at a time of one connection.
const CALLS_MAX: usize = 64;
/// How long a call takes at most.
const CALL: Duration = Duration::from_secs(120);

/// Which services a driver has, beside Identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Controller alone: once a cluster.
    Controller,
    /// Node alone: on each machine.
    Node,
    /// Both.
    All,
}

/// What a driver is to do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its socket.
    pub socket: PathBuf,
    /// Its services.
    pub role: Role,
    /// How long a call of the Controller service waits for the fleet.
    pub patience: Duration,
    /// What the Node service is to know. The Controller service takes the limit of volumes.
    pub node: NodeSettings,
}

/// Why a driver has ended.
#[derive(Debug, thiserror::Error)]
pub enum CsiError {
    /// The socket cannot be made.
    #[error("the socket {path}: {source}")]
    Socket {
        /// Its path.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Something else is at the socket's path.
    #[error("{0} is there, and is no socket: give --socket another path")]
    Occupied(PathBuf),
    /// Another driver has the socket.
    #[error("another program answers at {0}: end it, or give --socket another path")]
    InUse(PathBuf),
    /// The server has failed.
    #[error("the gRPC server: {0}")]
    Server(#[from] tonic::transport::Error),
}

/// Runs a driver on this machine, until it is asked to end (SIGTERM, SIGINT).
///
/// # Errors
/// When the socket cannot be made, or the server fails.
pub async fn run<F: Fleet>(settings: Settings, fleet: F) -> Result<(), CsiError> {
    serve(settings, fleet, Linux::default(), asked_to_end()).await
}

/// Runs a driver for this fleet and this machine, until `stop` is ready. Calls in progress end
/// first.
///
/// # Errors
/// When the socket cannot be made, or the server fails.
pub async fn serve<F: Fleet, M: Machine>(
    settings: Settings,
    fleet: F,
    machine: M,
    stop: impl Future<Output = ()>,
) -> Result<(), CsiError> {
    let Settings { socket, role, patience, node } = settings;
    let listener = listen(&socket)?;
    let controller = Controller::new(fleet, patience, node.volumes_max);
    let controller = ControllerServer::new(controller).max_decoding_message_size(MESSAGE_MAX);
    let service = NodeServer::new(Node::new(machine, node)).max_decoding_message_size(MESSAGE_MAX);
    let identity = IdentityServer::new(Identity).max_decoding_message_size(MESSAGE_MAX);
    tracing::info!(socket = %socket.display(), ?role, "serving CSI");
    let served = Server::builder()
        .concurrency_limit_per_connection(CALLS_MAX)
        .timeout(CALL)
        .add_service(identity)
        .add_optional_service((role != Role::Node).then_some(controller))
        .add_optional_service((role != Role::Controller).then_some(service))
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), stop)
        .await;
    let _ = fs::remove_file(&socket);
    Ok(served?)
}

/// Listens at a socket. One that another program has left behind is replaced.
fn listen(path: &Path) -> Result<UnixListener, CsiError> {
    let failed = |source| CsiError::Socket { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(CsiError::Occupied(path.to_owned())),
        Ok(_) if std::os::unix::net::UnixStream::connect(path).is_ok() => {
            return Err(CsiError::InUse(path.to_owned()));
        }
        Ok(_) => fs::remove_file(path).map_err(failed)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => (),
        Err(error) => return Err(failed(error)),
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    // Who may connect may mount.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

/// Waits until the program is asked to end.
async fn asked_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    let waits = [SignalKind::terminate(), SignalKind::interrupt()].map(|kind| async move {
        match signal(kind) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    });
    let [first, second] = waits;
    tokio::select! {
        () = first => (),
        () = second => (),
    }
}
