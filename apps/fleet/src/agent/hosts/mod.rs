//! The attachments of a machine as a host.
//!
//! Each attachment that is to be connected has a record in the agent's folder, and the kernel or a
//! process of its own has the device. All of them outlive the agent. The agent reads from the
//! records and from the kernel which devices there are, and so does the next agent.

mod credentials;
mod guest;
mod kernel;
mod process;
mod record;
mod ublk;
mod user;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fleet::Name;
use fleet::agent::SavedAttachment;
use fleet::object::Transport;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::backoff::Backoff;
use super::problems::Problems;
use super::state::Folder;
use super::{AgentError, Devices, Settings, files};
pub(crate) use credentials::{Credentials, named};
use kernel::Kernel;
pub use record::{Record, Way};

/// The most attachments that are connected or disconnected at once.
const JOBS_MAX: usize = 8;
/// The time between two looks at devices.
const LOOK: Duration = Duration::from_secs(1);
/// The same, while something is to be done.
const LOOK_BUSY: Duration = Duration::from_millis(100);

/// What the agent's engine asks for.
#[derive(Debug)]
pub(crate) enum Command {
    /// Connect, or stay connected.
    Connect(Name, SavedAttachment),
    /// Disconnect.
    Disconnect(Name),
}

/// The devices of attachments, and whether each reaches its volume.
pub(crate) type Found = Vec<(Name, bool)>;

/// The wanted state of an attachment, and how far it is reached.
#[derive(Debug)]
struct Wish {
    /// `None` to disconnect.
    wanted: Option<SavedAttachment>,
    /// Grows with each wish, so that the end of a job for an earlier one is no end of this one.
    number: u64,
    is_done: bool,
    has_job: bool,
    backoff: Backoff,
}

/// What jobs need.
#[derive(Debug)]
struct Machine {
    /// Keeps other agents out until all jobs have ended.
    _folder: Arc<Folder>,
    /// Where the records are.
    records: PathBuf,
    node: Name,
    way: Way,
    farlane: PathBuf,
    kernel: Kernel,
    credentials: Credentials,
}

/// Drives the devices.
#[derive(Debug)]
pub(crate) struct Hosts {
    machine: Arc<Machine>,
    wishes: BTreeMap<Name, Wish>,
    number: u64,
    problems: Problems,
}

/// The record of an attachment on this machine, if it has one: where a program finds the volume.
/// `folder` is that of the agent.
///
/// # Errors
/// The system's.
pub fn find(folder: &Path, attachment: &Name) -> std::io::Result<Option<Record>> {
    Record::read(&folder.join("attachments"), attachment)
}

/// How volumes become usable on this machine.
fn way(devices: Devices) -> Way {
    match devices {
        Devices::Kernel => Way::Kernel,
        Devices::Ublk => Way::Ublk,
        Devices::User => Way::User,
        Devices::Guest => Way::Guest,
        Devices::Auto if Path::new(kernel::FABRICS).exists() => Way::Kernel,
        Devices::Auto if Path::new(ublk::CONTROL).exists() => Way::Ublk,
        Devices::Auto => Way::User,
    }
}

/// How an attachment becomes usable on a machine with this way: the kernel's initiator has no
/// tunnels, and a guest's SSD comes by nothing else.
fn way_of(way: Way, transport: Transport) -> Result<Way, String> {
    match (way, transport) {
        (Way::Kernel, Transport::Tunnel) if Path::new(ublk::CONTROL).exists() => Ok(Way::Ublk),
        (Way::Kernel, Transport::Tunnel) => Ok(Way::User),
        (Way::Guest, Transport::NvmeTcp) => Err(
            "virtual machines of this machine get volumes by tunnel only: attach with --transport tunnel, or \
             start the agent with other --devices"
                .to_owned(),
        ),
        (way, _) => Ok(way),
    }
}

impl Hosts {
    /// # Errors
    /// When the folder can't be used.
    pub(crate) fn new(
        folder: Arc<Folder>,
        settings: &Settings,
        credentials: Credentials,
    ) -> Result<Self, AgentError> {
        let records = folder.join("attachments");
        files::make_folder(&records)?;
        let machine = Machine {
            _folder: folder,
            records,
            node: settings.node.clone(),
            way: way(settings.devices),
            farlane: settings.farlane.clone(),
            kernel: Kernel::default(),
            credentials,
        };
        let (machine, wishes, problems) = (Arc::new(machine), BTreeMap::new(), Problems::default());
        Ok(Self { machine, wishes, number: 0, problems })
    }

    /// Does what comes by `commands`, and reports the devices, until the other end is gone.
    pub(crate) async fn run(
        mut self,
        mut commands: mpsc::UnboundedReceiver<Command>,
        found: mpsc::UnboundedSender<Found>,
    ) {
        let mut jobs: JoinSet<(Name, u64, Result<(), String>)> = JoinSet::new();
        self.look(&found).await;
        loop {
            self.start_jobs(&mut jobs);
            let is_busy = self.wishes.values().any(|wish| !wish.is_done);
            let look = tokio::time::sleep(if is_busy { LOOK_BUSY } else { LOOK });
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => self.take(command),
                    None => return,
                },
                Some(job) = jobs.join_next() => {
                    match job {
                        Ok((name, number, result)) => self.end_job(name, number, result),
                        Err(error) => tracing::error!("a job of attachments: {error}"),
                    }
                    self.look(&found).await;
                }
                () = look => self.look(&found).await,
            }
        }
    }

    fn take(&mut self, command: Command) {
        self.number += 1;
        let (name, wanted) = match command {
            Command::Connect(name, saved) => (name, Some(saved)),
            Command::Disconnect(name) => (name, None),
        };
        let has_job = self.wishes.get(&name).is_some_and(|wish| wish.has_job);
        let backoff = Backoff::default();
        let wish = Wish { wanted, number: self.number, is_done: false, has_job, backoff };
        // The engine repeats a demand to disconnect until the device is gone.
        let is_known = self.wishes.get(&name).is_some_and(|one| one.wanted == wish.wanted && !one.is_done);
        if !is_known {
            self.wishes.insert(name, wish);
        }
    }

    fn start_jobs(&mut self, jobs: &mut JoinSet<(Name, u64, Result<(), String>)>) {
        let now = Instant::now();
        for (name, wish) in &mut self.wishes {
            if wish.is_done || wish.has_job || jobs.len() >= JOBS_MAX || !wish.backoff.is_due(now) {
                continue;
            }
            wish.has_job = true;
            let (machine, name) = (Arc::clone(&self.machine), name.clone());
            let (number, wanted) = (wish.number, wish.wanted.clone());
            jobs.spawn_blocking(move || {
                let result = machine.bring(&name, wanted.as_ref());
                (name, number, result)
            });
        }
    }

    fn end_job(&mut self, name: Name, number: u64, result: Result<(), String>) {
        let Some(wish) = self.wishes.get_mut(&name) else { return };
        wish.has_job = false;
        if wish.number != number {
            return;
        }
        let what = format!("attachment {name}");
        match result {
            Ok(()) => {
                wish.is_done = true;
                self.problems.end(&what);
                if wish.wanted.is_none() {
                    self.wishes.remove(&name);
                }
            }
            Err(why) => {
                self.problems.note(&what, why);
                wish.backoff.fail(Instant::now());
            }
        }
    }

    /// Reports the devices. One that is wanted and is gone is connected again.
    async fn look(&mut self, found: &mpsc::UnboundedSender<Found>) {
        let machine = Arc::clone(&self.machine);
        let looked = tokio::task::spawn_blocking(move || machine.look()).await;
        let devices = match looked {
            Ok(Ok(devices)) => {
                self.problems.end("the records of attachments");
                devices
            }
            Ok(Err(error)) => return self.problems.note("the records of attachments", error.to_string()),
            Err(error) => return tracing::error!("a look at devices: {error}"),
        };
        for (name, wish) in &mut self.wishes {
            let is_gone = !devices.iter().any(|(device, _)| device == name);
            if wish.is_done && wish.wanted.is_some() && is_gone {
                tracing::warn!(%name, "the device of attachment {name} is gone; it is connected again");
                wish.is_done = false;
            }
        }
        // The agent may be ending.
        let _ = found.send(devices);
    }
}

impl Machine {
    /// Brings an attachment to its wanted state.
    fn bring(&self, name: &Name, wanted: Option<&SavedAttachment>) -> Result<(), String> {
        let text = |error: std::io::Error| error.to_string();
        let known = Record::read(&self.records, name).map_err(text)?;
        let Some(wanted) = wanted else {
            if let Some(record) = &known {
                self.disconnect(record)?;
                tracing::info!(%name, "attachment {name} is disconnected");
            }
            files::remove(&Record::path(&self.records, name)).map_err(text)?;
            return self.credentials.remove(name, None).map_err(text);
        };
        let paths = self.credentials.paths(name, wanted.epoch);
        let way = way_of(self.way, wanted.transport)?;
        let mut record = Record::new((&self.node, way), name, wanted, paths)?;
        if let Some(known) = &known {
            if known.is_same(&record) {
                record.device.clone_from(&known.device);
            } else {
                self.disconnect(known)?;
                files::remove(&Record::path(&self.records, name)).map_err(text)?;
            }
        }
        let is_new = known.as_ref() != Some(&record);
        self.connect(name, &mut record, is_new)?;
        if is_new {
            tracing::info!(%name, "attachment {name} is connected");
        }
        self.credentials.remove(name, Some(wanted.epoch)).map_err(text)
    }

    /// Connects, or finds that it is connected.
    fn connect(&self, name: &Name, record: &mut Record, is_new: bool) -> Result<(), String> {
        let write = |record: &Record| record.write(&self.records, name).map_err(|error| error.to_string());
        match record.way {
            // A program that finds a record may connect.
            Way::User if is_new => {
                user::log_in(&self.farlane, record)?;
                write(record)
            }
            Way::User => Ok(()),
            // The record comes first: without it, the next agent would not find the device.
            Way::Kernel => {
                write(record)?;
                self.kernel.connect(record)
            }
            Way::Guest => {
                write(record)?;
                if guest::state(&self.records, record)?.is_none() {
                    record.device = Some(guest::connect(&self.farlane, &self.records, record)?);
                    write(record)?;
                }
                Ok(())
            }
            Way::Ublk => {
                write(record)?;
                if ublk::state(&self.records, record)?.is_none() {
                    record.device = Some(ublk::connect(&self.farlane, &self.records, record)?);
                    write(record)?;
                }
                Ok(())
            }
        }
    }

    fn disconnect(&self, record: &Record) -> Result<(), String> {
        match record.way {
            Way::User => Ok(()),
            Way::Kernel => self.kernel.disconnect(record),
            Way::Guest => guest::disconnect(&self.records, record),
            Way::Ublk => ublk::disconnect(&self.farlane, &self.records, record),
        }
    }

    /// The devices of all records.
    fn look(&self) -> std::io::Result<Found> {
        let mut found = Vec::new();
        for name in Record::all(&self.records)? {
            let Some(mut record) = Record::read(&self.records, &name)? else { continue };
            let state = match record.way {
                Way::User => Ok(Some((None, true))),
                Way::Kernel => self.kernel.state(&record),
                Way::Guest => some(guest::state(&self.records, &record)),
                Way::Ublk => some(ublk::state(&self.records, &record)),
            };
            let (device, is_connected) = match state {
                Ok(Some(state)) => state,
                // A process that was killed has left its device to the kernel.
                Ok(None)
                    if record.way == Way::Ublk
                        && record.device.as_ref().is_some_and(|device| device.exists()) =>
                {
                    (record.device.clone(), false)
                }
                Ok(None) => continue,
                // It may be there.
                Err(_) => (record.device.clone(), false),
            };
            if device.is_some() && device != record.device {
                record.device = device;
                record.write(&self.records, &name)?;
            }
            found.push((name, is_connected));
        }
        Ok(found)
    }
}

/// What was found of a device that certainly has a path.
fn some<E>(found: Result<Option<(PathBuf, bool)>, E>) -> Result<Option<(Option<PathBuf>, bool)>, E> {
    found.map(|found| found.map(|(device, is_here)| (Some(device), is_here)))
}
