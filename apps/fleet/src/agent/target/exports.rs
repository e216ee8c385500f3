//! The far ends of the volumes that hosts reach by tunnel: a process for each, which has one host.
//!
//! Like the target, they outlive the agent. Each has a record, from which the next agent knows it,
//! and a list with the key of its host. To let the host out, the agent empties the list durably,
//! then ends the process. A process that was started and has not read the list yet finds it empty.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use fleet::Name;
use fleet::agent::{Observation, Served};
use fleet::object::{Admission, Transport};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use status::{Report, Status};

use super::super::backoff::Backoff;
use super::super::daemon::{self, NoAnswer};
use super::super::files;
use super::super::keys::{Far, Master};
use super::super::ports::Ports;
use super::super::problems::Problems;
use super::super::state::Folder;
use super::volumes::Volumes;
use crate::naming;
use crate::wire::{self, Wire};

/// The most bytes of a record.
const BYTES_MAX: u64 = 64 << 10;
/// How long a far end may take to end in good order. Requests of its host may be in progress.
const ENDS_WITHIN: Duration = Duration::from_secs(1);
/// How long the agent waits for an answer of a far end in one turn: one that hangs must not hold up
/// the others.
const ANSWERS_WITHIN: Duration = Duration::from_millis(200);
/// How long a far end keeps the session of a lost host. A process that takes the place of a killed
/// one waits as long, and a virtual machine survives a network that is away as long.
const HOLD: &str = "15s";
/// What ends the names of records.
const RECORD: &str = ".json";
/// The problems of the choice of ports have this name.
const PORTS: &str = "the ports of tunnels";
/// The namespace of a far end.
const NAMESPACE: u32 = 1;

/// A volume that one host is to reach by tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) pool: Name,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) admitted: Admission,
}

/// What the next agent has to know of a far end.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    pool: wire::Name,
    path: PathBuf,
    admitted: wire::Admission,
}

/// A far end that was begun.
#[derive(Debug)]
struct Export {
    pool: Name,
    path: PathBuf,
    admitted: Admission,
    /// The process, if this agent has started it.
    child: Option<Child>,
    /// The process, as far as this agent has started it or had an answer of it.
    process: Option<u32>,
    /// A question that has no answer yet.
    question: Option<Receiver<Result<Report, NoAnswer>>>,
    /// The length of the volume by the latest status; `None` if there is no answer.
    bytes: Option<u64>,
    ends: Option<Ending>,
    backoff: Backoff,
}

/// The end of a far end.
#[derive(Clone, Copy, Debug)]
struct Ending {
    since: Instant,
    /// Whether the process was asked to end. A second time would end it amid its host's requests.
    is_asked: bool,
}

/// The far ends of a machine.
#[derive(Debug)]
pub(super) struct Exports {
    folder: PathBuf,
    program: PathBuf,
    ports: Arc<Ports>,
    master: Arc<Master>,
    /// `None` until it is known: nothing is started or ended before.
    wanted: Option<BTreeMap<Name, Wanted>>,
    all: BTreeMap<Name, Export>,
    problems: Problems,
}

/// Whether the only host of a volume comes by tunnel.
pub(super) fn is_by_tunnel(served: &Served) -> bool {
    served.admitted.first().is_some_and(|one| one.transport == Transport::Tunnel)
}

impl Exports {
    /// Takes over the far ends of the agent before this one.
    ///
    /// # Errors
    /// When the folder can't be used.
    pub(super) fn open(
        folder: &Folder,
        program: PathBuf,
        (ports, master): (Arc<Ports>, Arc<Master>),
    ) -> io::Result<Self> {
        let folder = folder.join("exports");
        files::make_folder(&folder)?;
        let (all, problems) = (BTreeMap::new(), Problems::default());
        let mut exports = Self { folder, program, ports, master, wanted: None, all, problems };
        for name in files::names(&exports.folder)? {
            let volume = name.strip_suffix(RECORD).and_then(|volume| Name::new(volume).ok());
            if let Some(volume) = volume {
                let export = exports.read(&volume)?;
                exports.all.insert(volume, export);
            }
        }
        Ok(exports)
    }

    fn read(&self, volume: &Name) -> io::Result<Export> {
        let path = self.file(volume, RECORD);
        let bytes = files::read(&path, BYTES_MAX)?.unwrap_or_default();
        let wrong = |why: String| {
            let text = format!(
                "{}: {why}; it says which host has the volume {volume}. End that volume's farlane export, \
                 then remove the file",
                path.display()
            );
            io::Error::new(io::ErrorKind::InvalidData, text)
        };
        let record: Record = serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
        let pool = record.pool.pure().map_err(|error| wrong(error.to_string()))?;
        let admitted = record.admitted.pure().map_err(|error| wrong(error.to_string()))?;
        Ok(Export::new(pool, record.path, admitted))
    }

    /// Whether a volume has a far end, or one that has yet to end.
    pub(super) fn has(&self, volume: &Name) -> bool {
        self.all.contains_key(volume)
    }

    /// Takes the volumes that are to have far ends.
    pub(super) fn want(&mut self, wanted: BTreeMap<Name, Wanted>) {
        self.wanted = Some(wanted);
    }

    /// The far end that a volume was to have, if it is for the same host.
    pub(super) fn known(&self, served: &Served) -> Option<Wanted> {
        let known = self.wanted.as_ref()?.get(&served.name)?;
        served.admitted.contains(&known.admitted).then(|| known.clone())
    }

    /// Gives back the ports of volumes that are no more.
    pub(super) fn forget(&mut self, is_there: impl Fn(&str) -> bool) {
        match self.ports.retain(is_there) {
            Ok(()) => self.problems.end(PORTS),
            Err(error) => self.problems.note(PORTS, error.to_string()),
        }
    }

    /// Starts and ends far ends. Returns whether one is to change soon.
    pub(super) fn turn(&mut self, volumes: &mut Volumes, now: Instant) -> bool {
        let wanted = self.wanted.iter().flatten().map(|(volume, _)| volume);
        let names: BTreeSet<_> = self.all.keys().chain(wanted).cloned().collect();
        let mut is_busy = false;
        self.problems.retain(|name| names.iter().any(|volume| name == problem_of(volume)) || name == PORTS);
        for volume in names {
            let name = problem_of(&volume);
            match self.step(&volume, volumes, now) {
                Ok(is_done) => {
                    is_busy |= !is_done;
                    if is_done {
                        self.problems.end(&name);
                    }
                }
                Err(why) => {
                    self.problems.note(&name, why);
                    if let Some(export) = self.all.get_mut(&volume) {
                        export.backoff.fail(now);
                    }
                }
            }
        }
        is_busy
    }

    /// Whether a far end has a problem, which is tried again.
    pub(super) fn is_troubled(&self) -> bool {
        !self.problems.is_empty()
    }

    /// Brings the far end of a volume nearer to what it is to be. Returns whether it is there.
    fn step(&mut self, volume: &Name, volumes: &mut Volumes, now: Instant) -> Result<bool, String> {
        let text = |error: io::Error| error.to_string();
        let wanted = self.wanted.as_ref().and_then(|wanted| wanted.get(volume).cloned());
        let Some(export) = self.all.get_mut(volume) else {
            let Some(wanted) = wanted else { return Ok(true) };
            // The target or an earlier far end may be carrying out the last requests of a host.
            if volumes.is_in_use(&wanted.path).map_err(text)? {
                return Ok(false);
            }
            self.begin(volume, &wanted).map_err(text)?;
            return Ok(false);
        };
        let socket = self.folder.join(socket_name(volume));
        let answer = export.ask(&socket);
        let is_same = wanted.as_ref().is_some_and(|wanted| export.is_for(wanted));
        match (answer, wanted.filter(|_| is_same)) {
            _ if self.wanted.is_none() => Ok(true),
            (Ok(report), Some(wanted)) => {
                export.backoff.reset();
                match export.bytes {
                    Some(bytes) if bytes < wanted.bytes => self.lengthen(&socket).map(|()| false),
                    Some(_) => Ok(true),
                    None => Err(daemon::stranger(&socket, &report).to_string()),
                }
            }
            (Err(NoAnswer::Absent(_)), Some(_)) => self.start(volume, volumes, now),
            (Err(error), Some(_)) => Err(error.to_string()),
            (answer, None) => self.end(volume, !matches!(answer, Err(NoAnswer::Absent(_))), volumes, now),
        }
    }

    /// Makes the record of a far end durable, and the list of its host.
    fn begin(&mut self, volume: &Name, wanted: &Wanted) -> io::Result<()> {
        let Wanted { pool, path, admitted, .. } = wanted;
        let record = Record {
            pool: wire::Name::wire(pool),
            path: path.clone(),
            admitted: wire::Admission::wire(admitted),
        };
        let Far { key, host } = self.master.far(volume, admitted)?;
        files::replace(&self.file(volume, ".pem"), key.as_bytes())?;
        let host = format!("{host},name={}\n", admitted.node);
        files::replace(&self.file(volume, ".hosts"), host.as_bytes())?;
        files::replace(&self.file(volume, RECORD), &serde_json::to_vec_pretty(&record)?)?;
        let export = Export::new(pool.clone(), path.clone(), admitted.clone());
        self.all.insert(volume.clone(), export);
        Ok(())
    }

    /// Starts the process of a far end, unless it starts already. Returns that it is not there yet.
    fn start(&mut self, volume: &Name, volumes: &mut Volumes, now: Instant) -> Result<bool, String> {
        let (folder, text) = (self.folder.clone(), |error: io::Error| error.to_string());
        let Some(export) = self.all.get_mut(volume) else { return Ok(false) };
        if let Some(child) = &mut export.child {
            let Some(status) = child.try_wait().map_err(text)? else { return Ok(false) };
            export.child = None;
            return Err(format!(
                "farlane export ended with {status}: see {volume}.log in {}",
                folder.display()
            ));
        }
        if !export.backoff.is_due(now) {
            return Ok(false);
        }
        let port = self.ports.of(volume).map_err(text)?;
        volumes.note_served(&export.path);
        let log = folder.join(format!("{volume}.log"));
        let log = File::create(&log).map_err(|error| files::at(&log, &error).to_string())?;
        let file = |ending: &str| folder.join(format!("{volume}{ending}"));
        let mut command = Command::new(&self.program);
        command
            .arg("export")
            .arg("--listen")
            .arg(std::net::SocketAddr::from((self.ports.address(), port)).to_string());
        command.arg("--namespace").arg(&export.path).args(["--serial", &naming::serial(volume)]);
        command.args(["--hold", HOLD]).arg("--key").arg(file(".pem")).arg("--allow-file").arg(file(".hosts"));
        command.arg("--control").arg(folder.join(socket_name(volume)));
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().map_err(|error| files::at(&self.program, &error).to_string())?;
        tracing::info!(%volume, process = child.id(), "the far end of {volume} is started");
        (export.process, export.child) = (Some(child.id()), Some(child));
        Ok(false)
    }

    /// Has a far end use the present length of its file.
    fn lengthen(&self, socket: &Path) -> Result<(), String> {
        let request = serde_json::json!({"command": "resize", "nsid": NAMESPACE});
        daemon::ask::<Value>(socket, &request.to_string()).map(drop).map_err(|error| error.to_string())
    }

    /// Lets a host out, and ends its far end, which may listen still. Returns whether it is gone.
    fn end(
        &mut self,
        volume: &Name,
        listens: bool,
        volumes: &mut Volumes,
        now: Instant,
    ) -> Result<bool, String> {
        let text = |error: io::Error| error.to_string();
        let [hosts, key, log, record] =
            [".hosts", ".pem", ".log", RECORD].map(|ending| self.file(volume, ending));
        let Some(export) = self.all.get_mut(volume) else { return Ok(true) };
        if export.ends.is_none() {
            files::replace(&hosts, b"").map_err(text)?;
        }
        let ending = export.ends.get_or_insert(Ending { since: now, is_asked: false });
        if listens {
            let process = export.process.ok_or("its far end does not answer: end its farlane export")?;
            let is_late = now.duration_since(ending.since) > ENDS_WITHIN;
            if is_late {
                daemon::signal(process, Signal::KILL).map_err(text)?;
            } else if !std::mem::replace(&mut ending.is_asked, true) {
                daemon::signal(process, Signal::TERM).map_err(text)?;
            }
            return Ok(false);
        }
        if let Some(child) = &mut export.child {
            // It may not have come so far as to answer.
            if child.try_wait().map_err(text)?.is_none() {
                child.kill().and_then(|()| child.wait()).map_err(text)?;
            }
            export.child = None;
        }
        volumes.note_served(&export.path);
        if volumes.is_in_use(&export.path).map_err(text)? {
            return Ok(false);
        }
        for path in [&key, &hosts, &log, &record] {
            files::remove(path).map_err(text)?;
        }
        files::sync_folder_of(&record).map_err(text)?;
        tracing::info!(%volume, "the far end of {volume} has ended");
        self.all.remove(volume);
        Ok(self.wanted.as_ref().is_none_or(|wanted| !wanted.contains_key(volume)))
    }

    fn file(&self, volume: &Name, ending: &str) -> PathBuf {
        // No name of an object has a dot.
        self.folder.join(format!("{volume}{ending}"))
    }

    /// Adds what far ends do to what the target does.
    pub(super) fn observe(&self, observation: &mut Observation) {
        for (name, export) in &self.all {
            observation.associations.push((name.clone(), export.admitted.attachment.clone()));
            if let (Some(bytes), None) = (export.bytes, export.ends) {
                let (name, pool) = (name.clone(), export.pool.clone());
                observation.served.push(Served {
                    name,
                    pool,
                    bytes,
                    admitted: vec![export.admitted.clone()],
                });
            }
        }
    }
}

impl Export {
    fn new(pool: Name, path: PathBuf, admitted: Admission) -> Self {
        let backoff = Backoff::default();
        let (child, process, question, bytes, ends) = (None, None, None, None, None);
        Self { pool, path, admitted, child, process, question, bytes, ends, backoff }
    }

    /// The status of the far end. At most one question waits for an answer.
    fn ask(&mut self, socket: &Path) -> Result<Report, NoAnswer> {
        let question = self.question.take().unwrap_or_else(|| {
            let (sender, receiver) = channel();
            let socket = socket.to_owned();
            std::thread::spawn(move || {
                // The agent may be ending.
                let _ = sender.send(daemon::report(&socket));
            });
            receiver
        });
        let answer = question.recv_timeout(ANSWERS_WITHIN).unwrap_or_else(|_| {
            self.question = Some(question);
            let error = io::Error::from(io::ErrorKind::TimedOut);
            Err(NoAnswer::Silent { path: socket.to_owned(), error })
        });
        self.bytes = answer.as_ref().ok().and_then(bytes_of);
        if let Ok(report) = &answer {
            self.process = Some(report.pid);
        }
        answer
    }

    /// Whether the far end is the wanted one.
    fn is_for(&self, wanted: &Wanted) -> bool {
        self.ends.is_none()
            && (&self.pool, &self.path, &self.admitted) == (&wanted.pool, &wanted.path, &wanted.admitted)
    }
}

/// The length of the volume that a far end serves; `None` for the status of another daemon.
fn bytes_of(report: &Report) -> Option<u64> {
    let Status::Export(export) = &report.status else { return None };
    let namespaces = export.far_ends.first()?.namespaces.as_ref()?;
    namespaces.iter().find(|one| one.nsid == NAMESPACE).map(|one| one.bytes)
}

/// The name under which the problems of a far end are logged.
fn problem_of(volume: &Name) -> String {
    format!("the tunnel of {volume}")
}

/// The name of the control socket of a far end, which is short.
fn socket_name(volume: &Name) -> String {
    format!("{}.sock", naming::serial(volume))
}
