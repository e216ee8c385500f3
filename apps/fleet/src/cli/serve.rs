//! Commands that run until a signal ends them, and the enrolment of a machine.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use live::carrier::identity::{Identity, KeyError};
use live::sys::runtime_folder;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::args::{AgentArgs, ControllerArgs, Devices, JoinArgs, JoinToken, MachineArgs, UpArgs};
use super::values::SizedPool;
use super::{Error, print};
use crate::agent;
use crate::api::Enrolment;
use crate::api::client::{Client, Place};
use crate::api::routes::Options;
use crate::channel::{self, Controllers};
use crate::controller::{self, Settings};
use crate::store;
use crate::wire::{Hex, Name, Object, Pool, Token};

/// The control socket of this user's controller.
pub(super) fn default_control() -> PathBuf {
    runtime_folder::place("farlane").join("fleet.sock")
}

/// The control socket of a controller: the given one, or the default one in its folder, which is
/// made.
fn control_socket(given: Option<PathBuf>) -> Result<PathBuf, Error> {
    if let Some(path) = given {
        return Ok(path);
    }
    let path = default_control();
    if let Some(folder) = path.parent() {
        runtime_folder::make(folder).map_err(|error| {
            Error::Wrong(format!("no control socket in {error}; choose one with --control"))
        })?;
    }
    Ok(path)
}

/// Random bytes.
pub(super) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let source = rustls::crypto::aws_lc_rs::default_provider().secure_random;
    source.fill(&mut bytes).map_err(|_| Error::Key(KeyError::NoRandomness))?;
    Ok(bytes)
}

/// The folder in which a machine keeps what it is in the fleet.
fn folder(given: Option<PathBuf>) -> Result<PathBuf, Error> {
    let path = given.unwrap_or_else(|| {
        let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".local/state"));
        let is_root = |home: &PathBuf| home.starts_with("/root");
        let base = state.or(home.filter(|home| !is_root(home))).unwrap_or_else(|| "/var/lib".into());
        base.join("farlane-fleet")
    });
    make_folder(&path)?;
    Ok(path)
}

fn make_folder(path: &Path) -> Result<(), Error> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| Error::File(path.to_owned(), error))
}

/// A value that becomes true when SIGTERM or SIGINT comes.
fn stop_on_signals() -> Result<watch::Receiver<bool>, Error> {
    let (stop, stopped) = watch::channel(false);
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Output)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Output)?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => (),
            _ = interrupt.recv() => (),
        }
        let _ = stop.send(true);
        stop.closed().await;
    });
    Ok(stopped)
}

/// The signals of an agent: SIGHUP restarts its target.
fn agent_signals(stop: watch::Receiver<bool>) -> Result<agent::Signals, Error> {
    let (restarts, restart) = watch::channel(0);
    let mut hangup = signal(SignalKind::hangup()).map_err(Error::Output)?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            restarts.send_modify(|count| *count += 1);
        }
    });
    Ok(agent::Signals { stop, restart })
}

async fn wait_for_stop(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// The first line of a controller, for people and machines.
#[derive(Serialize)]
struct Started<'a> {
    controllers: String,
    control: Option<&'a Path>,
}

/// `farlane fleet controller`.
pub(super) async fn controller(args: ControllerArgs, json: bool) -> Result<(), Error> {
    let beside = match &args.store {
        store::Place::File(path) => path.parent().map(|folder| folder.join("key.pem")),
        store::Place::Etcd { .. } => None,
    };
    let key = args.identity.or(beside).unwrap_or_else(Identity::default_path);
    let (identity, is_new) = Identity::keep(&key)?;
    if is_new {
        tracing::info!("made the key of the fleet's controllers, {}: copy it to each of them", key.display());
    }
    let tls = match (args.etcd_ca, args.etcd_cert, args.etcd_key) {
        (Some(ca), Some(certificate), Some(key)) => Some(store::Tls { ca, certificate, key }),
        _ => None,
    };
    let store = store::open(args.store, tls).await?;
    let control = control_socket(args.control)?;
    let stop = stop_on_signals()?;
    let settings = Settings {
        listen: args.listen,
        advertise: args.advertise,
        control: Some(control.clone()),
        identity,
        users: args.users,
        audit: args.audit,
    };
    let running = controller::start(settings, store, stop.clone()).await?;
    announce(&running.shared.controllers, &control, json)?;
    wait_for_stop(stop).await;
    let _ = std::fs::remove_file(&control);
    Ok(())
}

fn announce(controllers: &Controllers, control: &Path, json: bool) -> Result<(), Error> {
    if json {
        return print::json(&Started { controllers: controllers.to_string(), control: Some(control) });
    }
    print::line(&format!("controllers {controllers}, control socket {}", control.display()))
}

/// What a machine has learnt when it joined.
#[derive(Serialize, Deserialize)]
struct Membership {
    node: String,
    controllers: String,
}

/// The ports of tunnels unless others are given.
const TUNNEL_PORTS: std::ops::RangeInclusive<u16> = 4440..=4695;
const MEMBERSHIP: &str = "fleet.json";
const KEY: &str = "key.pem";

impl Membership {
    fn write(&self, folder: &Path) -> Result<(), Error> {
        let path = folder.join(MEMBERSHIP);
        let text = serde_json::to_vec_pretty(self).map_err(|error| Error::Output(error.into()))?;
        std::fs::write(&path, text).map_err(|error| Error::File(path, error))
    }

    fn read(folder: &Path) -> Result<(fleet::Name, Controllers), Error> {
        let path = folder.join(MEMBERSHIP);
        let text = std::fs::read(&path).map_err(|error| {
            let why = format!("{}: {error}; farlane fleet join enrols this machine", path.display());
            Error::Wrong(why)
        })?;
        let wrong = |why: String| Error::Wrong(format!("{}: {why}; join again", path.display()));
        let read: Self = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        let node = fleet::Name::new(&read.node).map_err(|error| wrong(error.to_string()))?;
        let controllers =
            read.controllers.parse::<Controllers>().map_err(|error| wrong(error.to_string()))?;
        Ok((node, controllers))
    }
}

/// `farlane fleet join`.
pub(super) async fn join(args: JoinArgs, json: bool) -> Result<(), Error> {
    let folder = folder(args.folder)?;
    let (identity, _) = Identity::keep(&folder.join(KEY))?;
    let JoinToken { node, secret, controllers } = args.token;
    let client = Client::new(Place::Network(controllers.clone()), Some(Arc::new(identity)));
    let labels = args.labels.into_iter().collect();
    let enrolment = Enrolment { name: Name(node.clone()), secret, addresses: args.addresses, labels };
    let item = client.join(&enrolment).await?;
    Membership { node: node.clone(), controllers: controllers.to_string() }.write(&folder)?;
    if json { print::json(&item) } else { print::line(&format!("this machine is {node} of the fleet")) }
}

/// `farlane fleet agent`.
pub(super) async fn agent(args: AgentArgs) -> Result<(), Error> {
    let folder = folder(args.folder)?;
    let (node, controllers) = Membership::read(&folder)?;
    let identity = Identity::read(&folder.join(KEY))?;
    let stop = stop_on_signals()?;
    let link = channel::dial(Arc::new(identity), controllers, stop.clone());
    let pools = args.pools.into_iter().map(|(name, path)| Ok((pure_name(&name)?, path)));
    let pools = pools.collect::<Result<_, Error>>()?;
    let settings = agent_settings(folder, node, args.listen, pools, &args.machine)?;
    Ok(agent::run(settings, link, agent_signals(stop)?).await?)
}

fn pure_name(name: &str) -> Result<fleet::Name, Error> {
    fleet::Name::new(name).map_err(|error| Error::Wrong(error.to_string()))
}

fn agent_settings(
    folder: PathBuf,
    node: fleet::Name,
    listen: Vec<std::net::SocketAddr>,
    pools: Vec<(fleet::Name, PathBuf)>,
    machine: &MachineArgs,
) -> Result<agent::Settings, Error> {
    let devices = match machine.devices {
        Devices::Auto => agent::Devices::Auto,
        Devices::Kernel => agent::Devices::Kernel,
        Devices::Ublk => agent::Devices::Ublk,
        Devices::User => agent::Devices::User,
        Devices::Guest => agent::Devices::Guest,
    };
    let farlane = program()?;
    let tunnels = machine.tunnels.clone().unwrap_or_else(|| {
        let any = std::net::Ipv4Addr::UNSPECIFIED.into();
        let address = listen.first().map_or(any, std::net::SocketAddr::ip);
        agent::Tunnels { address, ports: TUNNEL_PORTS }
    });
    let encrypt = machine.encrypt;
    Ok(agent::Settings { folder, listen, tunnels, farlane, pools, devices, encrypt, node })
}

/// The program `farlane`, which is beside this one.
fn program() -> Result<PathBuf, Error> {
    if let Some(path) = std::env::var_os("FARLANE") {
        return Ok(path.into());
    }
    let this = std::env::current_exe().map_err(Error::Output)?;
    let beside = this.with_file_name("farlane");
    if beside.exists() {
        return Ok(beside);
    }
    Err(Error::Wrong(format!(
        "{} is not there: install farlane beside farlane-fleet, or name it in the variable FARLANE",
        beside.display()
    )))
}

/// `farlane fleet up`: controller and agent of one machine in one process.
pub(super) async fn up(args: UpArgs, json: bool) -> Result<(), Error> {
    let folder = folder(args.folder)?;
    let node = pure_name(&args.node)?;
    let control = control_socket(args.control)?;
    let store = store::open(store::Place::File(folder.join("store")), None).await?;
    let (identity, _) = Identity::keep(&folder.join("controller.pem"))?;
    let stop = stop_on_signals()?;
    let settings = Settings {
        listen: vec!["127.0.0.1:0".parse().map_err(|error| Error::Wrong(format!("{error}")))?],
        advertise: Vec::new(),
        control: Some(control.clone()),
        identity,
        users: None,
        audit: Some(folder.join("audit.jsonl")),
    };
    let running = controller::start(settings, store, stop.clone()).await?;
    let client = Client::new(Place::Socket(control.clone()), None);
    let (identity, _) = Identity::keep(&folder.join(KEY))?;
    let identity = Arc::new(identity);
    let controllers = running.shared.controllers.clone();
    enrol(&client, &identity, &args.node, args.listen, &controllers).await?;
    let link = channel::dial(identity, controllers.clone(), stop.clone());
    let mut pools = Vec::new();
    for SizedPool { name, folder, bytes } in args.pools {
        make_folder(&folder)?;
        let path = std::path::absolute(&folder).map_err(|error| Error::File(folder.clone(), error))?;
        let pool =
            Pool { node: Name(args.node.clone()), path: path.display().to_string(), bytes, clones: false };
        client.put(&name, &Object::Pool(pool), &Options::default(), None).await?;
        pools.push((pure_name(&name)?, path));
    }
    let settings = agent_settings(folder.join("agent"), node, vec![args.listen], pools, &args.machine)?;
    announce(&controllers, &control, json)?;
    let ended = agent::run(settings, link, agent_signals(stop)?).await;
    let _ = std::fs::remove_file(&control);
    Ok(ended?)
}

/// Enrols the only machine, by a token as any other.
async fn enrol(
    client: &Client,
    identity: &Arc<Identity>,
    node: &str,
    listen: std::net::SocketAddr,
    controllers: &Controllers,
) -> Result<(), Error> {
    let secret = random::<16>()?;
    let expires = std::time::SystemTime::now() + Duration::from_secs(60);
    let expires = expires.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
    let token = Token { secret: Hex(Sha256::digest(secret).into()), expires, used_by: None };
    client.put(node, &Object::Token(token), &Options::default(), None).await?;
    let joining = Client::new(Place::Network(controllers.clone()), Some(Arc::clone(identity)));
    let enrolment = Enrolment {
        name: Name(node.to_owned()),
        secret: Hex(secret),
        addresses: vec![listen.to_string()],
        labels: std::collections::BTreeMap::new(),
    };
    joining.join(&enrolment).await?;
    Ok(())
}
