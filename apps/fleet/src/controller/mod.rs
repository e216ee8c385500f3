//! `farlane-fleet controller`: the engine of a controller with a store, agents and users.

mod audit;
mod hub;
mod principal;

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use live::carrier::identity::{Fingerprint, Identity};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};

pub use audit::Audit;
pub use hub::{Feed, Hub, State};
pub use principal::{Principal, Role, Users, UsersError};

use crate::api::routes;
use crate::channel::{self, Acceptor, Controllers, Protocol};
use crate::predict;
use crate::store::Store;
use crate::wire::FromAgent;

/// Connections of agents and users at once.
const CONNECTIONS_MAX: usize = 4096;
/// How long a user may take to send the head of a request.
const HEAD_MAX: Duration = Duration::from_secs(10);

/// The settings of a controller.
#[derive(Debug)]
pub struct Settings {
    /// Where agents and users reach the controller.
    pub listen: Vec<SocketAddr>,
    /// The addresses of all controllers, as others name them; those of `listen` if there are none.
    pub advertise: Vec<String>,
    /// The socket for users of this machine.
    pub control: Option<PathBuf>,
    /// The key that all controllers of the fleet have.
    pub identity: Identity,
    /// The file of users.
    pub users: Option<PathBuf>,
    /// The file of the audit log.
    pub audit: Option<PathBuf>,
}

/// Why a controller cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// An address cannot be listened at.
    #[error("cannot listen at {0}: {1}; choose another address with --listen")]
    Listen(String, io::Error),
    /// The control socket cannot be made.
    #[error("cannot make the control socket {0}: {1}; choose another one with --control")]
    Control(PathBuf, io::Error),
    /// The audit log cannot be opened.
    #[error("cannot open the audit log {0}: {1}")]
    Audit(PathBuf, io::Error),
    /// The file of users is not usable.
    #[error(transparent)]
    Users(#[from] UsersError),
    /// The key is not usable.
    #[error("the controller's key is not usable: {0}")]
    Key(io::Error),
}

/// What all connections share.
#[derive(Debug)]
pub struct Shared {
    /// The engine's task.
    pub hub: Hub,
    /// The audit log.
    pub audit: Audit,
    /// The controllers, as agents and users name them.
    pub controllers: Controllers,
    users: Option<PathBuf>,
    places: Semaphore,
}

/// A controller that runs.
#[derive(Debug)]
pub struct Running {
    /// What its connections share.
    pub shared: Arc<Shared>,
    /// The addresses at which it listens.
    pub listening: Vec<SocketAddr>,
}

/// Starts a controller on a store. It ends when `stop` is true.
///
/// # Errors
/// When it cannot listen, or a file is not usable.
pub async fn start(
    settings: Settings,
    store: Store,
    stop: watch::Receiver<bool>,
) -> Result<Running, ControllerError> {
    let Settings { listen, mut advertise, control, identity, users, audit } = settings;
    if let Some(users) = &users {
        Users::read(users)?;
    }
    let opened = Audit::open(audit.as_deref());
    let audit = opened.map_err(|error| ControllerError::Audit(audit.unwrap_or_default(), error))?;
    let acceptor = Acceptor::new(&identity).map_err(ControllerError::Key)?;
    let (mut listeners, mut listening) = (Vec::new(), Vec::new());
    for address in listen {
        let explain = |error| ControllerError::Listen(address.to_string(), error);
        let listener = TcpListener::bind(address).await.map_err(explain)?;
        listening.push(listener.local_addr().map_err(explain)?);
        listeners.push(listener);
    }
    if advertise.is_empty() {
        advertise = listening.iter().map(ToString::to_string).collect();
    }
    let controllers = Controllers { addresses: advertise, key: identity.fingerprint() };
    let places = Semaphore::new(CONNECTIONS_MAX);
    let shared = Arc::new(Shared { hub: Hub::start(store), audit, controllers, users, places });
    tokio::spawn(predict::keep(shared.hub.clone(), stop.clone()));
    if let Some(path) = control {
        let listener = bind(&path).map_err(|error| ControllerError::Control(path.clone(), error))?;
        tokio::spawn(until(stop.clone(), serve_local(listener, Arc::clone(&shared))));
    }
    for listener in listeners {
        tokio::spawn(until(stop.clone(), serve_network(listener, acceptor.clone(), Arc::clone(&shared))));
    }
    Ok(Running { shared, listening })
}

async fn until(mut stop: watch::Receiver<bool>, task: impl Future<Output = ()>) {
    tokio::select! {
        () = task => (),
        _ = stop.wait_for(|stop| *stop) => (),
    }
}

/// Makes a socket that this user alone can open. One that another process has left is replaced.
fn bind(path: &Path) -> io::Result<UnixListener> {
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another controller answers there"));
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => (),
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

async fn serve_local(listener: UnixListener, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let user = stream.peer_cred().map_or(u32::MAX, |peer| peer.uid());
                tokio::spawn(serve_rest(stream, Principal::local(user), Arc::clone(&shared)));
            }
            Err(error) => pause(&error).await,
        }
    }
}

async fn serve_network(listener: TcpListener, acceptor: Acceptor, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => {
                let (acceptor, shared) = (acceptor.clone(), Arc::clone(&shared));
                tokio::spawn(async move {
                    let Ok(_place) = shared.places.try_acquire() else {
                        return tracing::warn!("{peer} is refused: {CONNECTIONS_MAX} connections are open");
                    };
                    match acceptor.accept(socket).await {
                        Ok((stream, key, Protocol::Agent)) => serve_agent(stream, key, &shared).await,
                        Ok((stream, key, Protocol::Rest)) => {
                            let users = shared.users();
                            let principal = Principal::with_key(key, &users);
                            serve_rest(stream, principal, Arc::clone(&shared)).await;
                        }
                        Err(error) => tracing::debug!("{peer} has not proved a key: {error}"),
                    }
                });
            }
            Err(error) => pause(&error).await,
        }
    }
}

/// Waits after a failure to accept, such as a lack of descriptors, which passes.
async fn pause(error: &io::Error) {
    tracing::warn!("no connection can be accepted: {error}");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

impl Shared {
    /// The users, as the file has them now. A file that has become unusable has none.
    fn users(&self) -> Users {
        let read = self.users.as_deref().map(Users::read).transpose();
        read.unwrap_or_else(|error| {
            tracing::warn!("{error}; users of the network have no rights meanwhile");
            None
        })
        .unwrap_or_default()
    }
}

async fn serve_rest<S>(stream: S, principal: Principal, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = TowerToHyperService::new(routes::router(shared, principal));
    let mut server = hyper::server::conn::http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!("a user's connection has ended: {error}");
    }
}

/// Hands an agent's connection to the hub, and waits until it ends.
async fn serve_agent<S>(stream: S, key: Fingerprint, shared: &Shared)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (mut link, connection) = channel::serve_agent(stream);
    let Some(FromAgent::Hello { boot }) = link.incoming.recv().await else { return };
    if shared.hub.agent(key.0, boot, link).await.is_ok() {
        let _ = connection.await; // The place is taken as long as the connection is there.
    }
}
