//! The agent of a machine: makes durable what controllers demand, has the target of the machine
//! enforce it, connects the machine's attachments, and reports the outcome.
//!
//! The engine [`fleet::Agent`] decides. The target and the devices are processes or the kernel's,
//! and outlive the agent: without it, and without any controller, hosts go on, and those that were
//! let out stay out.
//!
//! # The folder of an agent
//! | file | contents |
//! |---|---|
//! | `state.json` | the durable state of the engine |
//! | `master.key` | the secret from which those of hosts are derived |
//! | `target/` | the target's file, and the secrets of the hosts that it lets in |
//! | `target.sock`, `target.log` | the target's control socket, and its messages |
//! | `exports/`, `ports.json` | the far ends of volumes that hosts reach by tunnel; ports |
//! | `volumes/` | a mark for each volume whose file was made |
//! | `attachments/` | a [`Record`] for each attachment: where programs find the volume |
//! | `credentials/` | the secrets of this machine as a host |
//! | `agent.lock` | one agent alone uses the folder |

mod backoff;
mod daemon;
mod files;
mod hosts;
mod keys;
mod ports;
mod problems;
mod state;
mod target;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, mpsc as blocking};
use std::time::Duration;

use engine::{Engine as _, Instant, drain};
use fleet::Name;
use fleet::agent::{Agent, Input, Observation, Output, State};
use fleet::object::{Admission, Transport};
use fleet::slice::Report;
use live::sys::clock::Clock;
use live::sys::secrets::keep_from_dumps;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::channel::Link;
use crate::wire::{self, Credential, FromAgent, ToAgent, Wire};
use backoff::Backoff;
use hosts::{Credentials, Found, Hosts};
pub use hosts::{Record, Way, find};
use keys::Master;
use ports::Ports;
pub use ports::Tunnels;
use state::Folder;
use target::{Known, Worker};

/// How long an agent that ends waits for what it has begun.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// The most bytes of a folder's path: the path of a control socket has 107 at most.
const FOLDER_BYTES_MAX: usize = 70;

/// How volumes become usable on a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Devices {
    /// The first of these that the machine has.
    #[default]
    Auto,
    /// Block devices of the kernel's NVMe/TCP initiator.
    Kernel,
    /// Block devices of `farlane connect`.
    Ublk,
    /// No block devices: programs connect by themselves, by a [`Record`].
    User,
    /// Sockets of `farlane attach`, at which virtual machines find SSDs. Tunnels carry them.
    Guest,
}

/// What an agent needs to know of its machine.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The agent's own folder.
    pub folder: PathBuf,
    /// Where the target listens.
    pub listen: Vec<SocketAddr>,
    /// Where the far ends of volumes listen that hosts reach by tunnel.
    pub tunnels: Tunnels,
    /// The program `farlane`.
    pub farlane: PathBuf,
    /// The pools of this machine, each a folder. A controller does not choose paths.
    pub pools: Vec<(Name, PathBuf)>,
    /// How volumes become usable here.
    pub devices: Devices,
    /// Whether hosts must encrypt.
    pub encrypt: bool,
    /// The name of this machine in the fleet.
    pub node: Name,
}

/// Why an agent can't run.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The system refuses.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Another agent has the folder.
    #[error("another agent uses {}: stop it, or give this one another --folder", .0.display())]
    Taken(PathBuf),
    /// The state can't be read.
    #[error(
        "{}: {why}; put back a copy of the file. It says which hosts this machine's disks let in: without it, \
         the agent could let in two at once. If there is no copy, detach all that uses this machine's volumes \
         first, then remove the file",
        path.display()
    )]
    State {
        /// The file.
        path: PathBuf,
        /// Its fault.
        why: String,
    },
    /// The master secret is lost or damaged.
    #[error(
        "{}: {why}; put back a copy of the file. The secrets of all hosts follow from it. If there is no copy, \
         detach all that uses this machine's volumes first, then remove this file and state.json",
        path.display()
    )]
    Master {
        /// The file.
        path: PathBuf,
        /// Its fault.
        why: String,
    },
    /// The folder's path is too long for sockets.
    #[error("{}: expected a path of at most {FOLDER_BYTES_MAX} bytes, as sockets are in this folder", .0.display())]
    LongFolder(PathBuf),
}

/// What the process of an agent demands while the agent runs.
#[derive(Debug)]
pub struct Signals {
    /// Whether the agent is to end. An end of the sender is the same.
    pub stop: watch::Receiver<bool>,
    /// Each change restarts the target, with the program that is installed by then.
    pub restart: watch::Receiver<u64>,
}

impl Signals {
    /// Those of an agent that never restarts its target.
    pub fn of(stop: watch::Receiver<bool>) -> Self {
        Self { stop, restart: watch::channel(0).1 }
    }
}

/// Runs the agent of a machine until it is to end. The target and the devices stay.
///
/// # Errors
/// When the folder can't be used. Later problems are logged, and tried again.
pub async fn run(settings: Settings, link: Link, signals: Signals) -> Result<(), AgentError> {
    keep_from_dumps();
    let running = tokio::task::spawn_blocking(move || Running::start(&settings, link));
    let running = running.await.map_err(io::Error::other)??;
    running.run(signals).await;
    Ok(())
}

/// A running agent.
struct Running {
    folder: Arc<Folder>,
    master: Arc<Master>,
    ports: Arc<Ports>,
    credentials: Credentials,
    clock: Clock,
    engine: Agent,
    incoming: mpsc::Receiver<ToAgent>,
    outgoing: mpsc::UnboundedSender<FromAgent>,
    target: blocking::Sender<target::Command>,
    hosts: mpsc::UnboundedSender<hosts::Command>,
    observed: mpsc::UnboundedReceiver<Observation>,
    found: mpsc::UnboundedReceiver<Found>,
    /// What was observed last, of the target and of the devices.
    latest: (Option<Observation>, Option<Found>),
    /// The thread of the target, and the task of the devices.
    worker: std::thread::JoinHandle<()>,
    devices: JoinHandle<()>,
    saving: Option<Saving>,
}

/// A state that is being made durable.
struct Saving {
    number: u64,
    state: Arc<State>,
    job: JoinHandle<io::Result<()>>,
    backoff: Backoff,
}

impl Running {
    fn start(settings: &Settings, link: Link) -> Result<Self, AgentError> {
        if settings.folder.as_os_str().len() > FOLDER_BYTES_MAX {
            return Err(AgentError::LongFolder(settings.folder.clone()));
        }
        let folder = Arc::new(Folder::open(&settings.folder)?);
        let state = folder.load()?;
        let is_used = state.as_ref().is_some_and(|state| !state.volumes.is_empty());
        let state = state.unwrap_or_default();
        let master = Arc::new(Master::of(&folder, is_used, settings.encrypt)?);
        let credentials = Credentials::open(folder.join("credentials"))?;
        let ports = Arc::new(Ports::open(folder.join("ports.json"), settings.tunnels.clone())?);
        let keys = (Arc::clone(&master), Arc::clone(&ports));
        let worker = Worker::new(Arc::clone(&folder), settings, keys)?;
        let machine = Hosts::new(Arc::clone(&folder), settings, credentials.clone())?;
        let (target, commands) = blocking::channel();
        let (observe, observed) = mpsc::unbounded_channel();
        // Without it, a target whose file is lost would not be started.
        let _ = target.send(known(&state));
        let thread = std::thread::Builder::new().name("target".to_owned());
        let worker = thread.spawn(move || {
            worker.run(&commands, |observation| {
                // The agent may be ending.
                let _ = observe.send(observation);
            });
        })?;
        let (hosts, demands) = mpsc::unbounded_channel();
        let (find, found) = mpsc::unbounded_channel();
        let devices = tokio::runtime::Handle::current().spawn(machine.run(demands, find));
        let clock = Clock::start();
        Ok(Self {
            folder,
            master,
            ports,
            credentials,
            clock,
            engine: Agent::new(clock.now(), state),
            incoming: link.incoming,
            outgoing: link.outgoing,
            target,
            hosts,
            observed,
            found,
            latest: (None, None),
            worker,
            devices,
            saving: None,
        })
    }

    async fn run(mut self, Signals { mut stop, mut restart }: Signals) {
        let mut has_link = true;
        loop {
            self.carry_out();
            let due = self.engine.poll_timeout().unwrap_or(Instant::from_nanos(u64::MAX));
            let timeout = tokio::time::sleep(Duration::from(due - self.clock.now()));
            tokio::select! {
                () = stopped(&mut stop) => break,
                Ok(()) = restart.changed() => self.send_target(target::Command::Restart),
                message = self.incoming.recv(), if has_link => match message {
                    Some(message) => self.take(message).await,
                    None => has_link = false,
                },
                Some(observation) = self.observed.recv() => {
                    self.latest.0 = Some(observation);
                    self.observe();
                }
                Some(found) = self.found.recv() => {
                    self.latest.1 = Some(found);
                    self.observe();
                }
                saved = saved(&mut self.saving) => self.end_saving(saved),
                () = timeout => self.engine.handle_timeout(self.clock.now()),
            }
        }
        self.end().await;
    }

    /// Gives the engine a message of a controller.
    async fn take(&mut self, message: ToAgent) {
        let now = self.clock.now();
        match message {
            ToAgent::Ask { term } => self.engine.handle_input(now, Input::Asked(term)),
            ToAgent::Slice { slice, credentials } => match slice.pure() {
                Ok(slice) => {
                    let all = hosts::named(credentials);
                    if !all.is_empty() {
                        let (keeper, attachments) = (self.credentials.clone(), slice.attachments.clone());
                        let keep = move || keeper.keep(&attachments, &all);
                        let refused = tokio::task::spawn_blocking(keep).await.unwrap_or_default();
                        refused.iter().for_each(|why| tracing::warn!("{why}"));
                    }
                    self.engine.handle_input(now, Input::Slice(&slice));
                }
                Err(error) => tracing::warn!("a controller's message is refused: {error}"),
            },
            // Of the connection, which the channel keeps.
            ToAgent::Alive | ToAgent::Refused { .. } => {}
        }
    }

    /// Gives the engine what was observed, once both parts are known.
    fn observe(&mut self) {
        if let (Some(observation), Some(found)) = &self.latest {
            let observation = Observation { devices: found.clone(), ..observation.clone() };
            self.engine.handle_input(self.clock.now(), Input::Observed(&observation));
        }
    }

    /// Carries out what the engine asks for.
    fn carry_out(&mut self) {
        let mut outputs = Vec::new();
        drain(&mut self.engine, |output| outputs.push(output));
        for output in outputs {
            match output {
                Output::Save { number, state } => self.save(number, Arc::new(state), Backoff::default()),
                Output::Serve { number, volumes } => {
                    self.send_target(target::Command::Serve(number, volumes));
                }
                Output::Delete { volume, .. } => self.send_target(target::Command::Delete(volume)),
                Output::Copy { number, copies } => self.send_target(target::Command::Copy(number, copies)),
                Output::DeleteSnapshot { snapshot, epoch, .. } => {
                    self.send_target(target::Command::DeleteSnapshot(snapshot, epoch));
                }
                Output::Connect { name, attachment } => {
                    self.send_hosts(hosts::Command::Connect(name, attachment));
                }
                Output::Disconnect(name) => self.send_hosts(hosts::Command::Disconnect(name)),
                Output::Report(report) => self.report(&report),
                Output::Refused(refusal) => tracing::warn!("{refusal}"),
            }
        }
    }

    fn send_target(&self, command: target::Command) {
        if self.target.send(command).is_err() {
            tracing::error!("the thread of the target has ended: start the agent again");
        }
    }

    fn send_hosts(&self, command: hosts::Command) {
        if self.hosts.send(command).is_err() {
            tracing::error!("the task of the attachments has ended: start the agent again");
        }
    }

    fn report(&self, report: &Report) {
        let of = |volume: &fleet::slice::VolumeReport| {
            let credential = |one: &Admission| self.credential(&volume.name, one);
            volume.admitted.iter().map(credential).collect::<Vec<Credential>>()
        };
        let credentials = report.volumes.iter().flat_map(of).collect();
        let report = wire::Report::wire(report);
        // The link may be ending.
        let _ = self.outgoing.send(FromAgent::Report { report, credentials });
    }

    /// What a host that is let in needs to prove itself.
    fn credential(&self, volume: &Name, one: &Admission) -> Credential {
        let mut credential = self.master.credential(volume, one);
        if one.transport == Transport::Tunnel {
            let port = self.ports.of(volume);
            match port.and_then(|port| self.master.tunnel(volume, one, port)) {
                Ok(tunnel) => credential.tunnel = Some(tunnel),
                // The thread of the target has the same problem, and logs it once.
                Err(error) => tracing::debug!("the tunnel of {volume}: {error}"),
            }
        }
        credential
    }

    fn save(&mut self, number: u64, state: Arc<State>, backoff: Backoff) {
        let (folder, saved, wait) = (Arc::clone(&self.folder), Arc::clone(&state), backoff.wait());
        let job = tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            let save = tokio::task::spawn_blocking(move || folder.save(&saved));
            save.await.map_err(io::Error::other)?
        });
        self.saving = Some(Saving { number, state, job, backoff });
    }

    fn end_saving(&mut self, saved: io::Result<()>) {
        let Some(Saving { number, state, mut backoff, .. }) = self.saving.take() else { return };
        match saved {
            Ok(()) => {
                if backoff.has_failed() {
                    tracing::info!("the state is durable again");
                }
                self.send_target(known(&state));
                self.engine.handle_input(self.clock.now(), Input::Saved(number));
            }
            Err(error) => {
                if !backoff.has_failed() {
                    tracing::warn!(
                        "the state can't be made durable: {error}; nothing new is done until it is"
                    );
                }
                backoff.fail(std::time::Instant::now());
                self.save(number, state, backoff);
            }
        }
    }

    /// Ends the agent, and leaves target and devices as they are.
    async fn end(self) {
        let Self { target, hosts, worker, devices, saving, .. } = self;
        drop((target, hosts));
        let ended = async move {
            // The next agent goes on with either state.
            if let Some(saving) = saving {
                let _ = saving.job.await;
            }
            let _ = devices.await;
            let _ = tokio::task::spawn_blocking(move || worker.join()).await;
        };
        if tokio::time::timeout(ENDS_WITHIN, ended).await.is_err() {
            tracing::warn!("a request to the target has no answer yet");
        }
    }
}

/// Waits until an agent is to stop. One that can't be stopped any more is stopped.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}

/// The end of the saving of a state; never, if none is being saved.
async fn saved(saving: &mut Option<Saving>) -> io::Result<()> {
    match saving {
        Some(saving) => (&mut saving.job).await.unwrap_or_else(|error| Err(io::Error::other(error))),
        None => std::future::pending().await,
    }
}

/// What the target's thread has to know of a state.
fn known(state: &State) -> target::Command {
    let of = |(name, volume): (&Name, &fleet::agent::SavedVolume)| {
        (name.clone(), Known { pool: volume.pool.clone(), delete: volume.delete })
    };
    target::Command::Known(state.volumes.iter().map(of).collect(), state.copies.clone())
}
