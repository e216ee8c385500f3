//! The target of a machine: its file, its process, and what it does.
//!
//! The target outlives the agent: it reads its file by itself when it starts, and a next agent
//! finds it by its control socket. The file is durable before the target reads it. So each host
//! that a file leaves out stays out, whichever of the two processes ends in between.

mod copies;
mod exports;
mod file;
mod observe;
mod offers;
mod process;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use fleet::agent::{Observation, SavedCopy, Served, ToCopy};
use fleet::object::{Admission, Data};
use fleet::{Epoch, Name};

use super::backoff::Backoff;
use super::daemon::NoAnswer;
use super::keys::Master;
use super::ports::Ports;
use super::problems::Problems;
use super::state::Folder;
use super::{AgentError, Settings, files};
use copies::Copies;
use exports::{Exports, is_by_tunnel};
use file::{Content, Frame};
use process::Process;
use volumes::Volumes;

/// The time between two looks at a target at which nothing changes.
const IDLE: Duration = Duration::from_secs(1);
/// The same, while a problem lasts.
const TROUBLED: Duration = Duration::from_millis(200);
/// The same, while hosts leave or the target starts.
const BUSY: Duration = Duration::from_millis(10);
/// The most bytes of the target's file: that of the target's own limit.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// The problems of the target itself have this name.
const TARGET: &str = "the target";

/// What the agent's engine asks for.
#[derive(Debug)]
pub(crate) enum Command {
    /// The durable state has these volumes, each with a pool and perhaps about to be deleted, and
    /// these copies.
    Known(BTreeMap<Name, Known>, BTreeMap<Data, SavedCopy>),
    /// Serve these volumes, and no others.
    Serve(u64, Vec<Served>),
    /// Delete a volume's data.
    Delete(Name),
    /// Make these copies, and no others.
    Copy(u64, Vec<ToCopy>),
    /// Delete a snapshot.
    DeleteSnapshot(Name, Epoch),
    /// End the target, and start the program that is installed now.
    Restart,
}

/// A volume of the durable state.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// The pool that holds it.
    pub(crate) pool: Name,
    /// Whether it and its data are to go.
    pub(crate) delete: bool,
}

/// How far the target was reached.
#[derive(Debug)]
enum Reached {
    /// It has read its file, and has this status.
    Running(Box<status::Target>),
    /// There is no process, and the next one will read the file.
    Down,
    /// It starts, or does not answer.
    Unsure,
}

/// A file, as a text and as what it says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Written {
    text: String,
    content: Content,
}

/// Drives the target, in a thread of its own.
#[derive(Debug)]
pub(crate) struct Worker {
    /// Keeps other agents out until this thread has ended.
    _folder: Arc<Folder>,
    config: PathBuf,
    frame: Frame,
    process: Process,
    volumes: Volumes,
    exports: Exports,
    master: Arc<Master>,
    known: BTreeMap<Name, Known>,
    copies: Copies,
    /// The volumes that are to be deleted now.
    deletes: BTreeSet<Name>,
    /// The number of the latest demand, and its volumes.
    number: u64,
    wanted: Vec<Served>,
    /// The number of the demand that the file has, and of the one that was done.
    written_for: Option<u64>,
    done: u64,
    written: Written,
    /// What the running target has read.
    loaded: Option<Written>,
    /// The volumes that the running target serves.
    serving: BTreeSet<Name>,
    /// Secrets whose files are as they should be.
    secured: BTreeSet<PathBuf>,
    /// The subsystem that each volume had last, and the hosts that were let in there.
    past: BTreeMap<Name, (String, Vec<Admission>)>,
    problems: Problems,
    retry: Backoff,
    restart: Backoff,
    /// Whether the target starts with a file without volumes: with all, it did not start.
    is_bare: bool,
    /// Whether the target answered when it was asked last.
    is_up: bool,
    /// Whether the target is to be ended, or ends, so that another one starts.
    restarts: Restart,
}

/// How far the restart of a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Restart {
    /// None is under way.
    Idle,
    /// The target is to be ended.
    Wanted,
    /// The target ends by itself.
    Ending,
}

impl Worker {
    /// # Errors
    /// When the folder can't be used.
    pub(crate) fn new(
        folder: Arc<Folder>,
        settings: &Settings,
        (master, ports): (Arc<Master>, Arc<Ports>),
    ) -> Result<Self, AgentError> {
        let secrets = folder.join("target");
        files::make_folder(&secrets)?;
        let config = secrets.join("target.toml");
        let socket = folder.join("target.sock");
        let absolute = |(name, path): &(Name, PathBuf)| {
            std::path::absolute(path)
                .map(|path| (name.clone(), path))
                .map_err(|error| files::at(path, &error))
        };
        let pools: Vec<_> = settings.pools.iter().map(absolute).collect::<io::Result<_>>()?;
        let places = [config.clone(), socket, folder.join("target.log")];
        let folders = pools.iter().map(|(_, path)| path.clone()).collect();
        let process = Process::new(settings.farlane.clone(), places, folders);
        let volumes = Volumes::open(folder.join("volumes"))?;
        let exports = Exports::open(&folder, settings.farlane.clone(), (ports, Arc::clone(&master)))?;
        let (listen, encrypt) = (settings.listen.clone(), settings.encrypt);
        let frame = Frame { listen, pools, secrets, encrypt };
        let mut worker = Self {
            _folder: folder,
            config,
            frame,
            process,
            volumes,
            exports,
            master,
            known: BTreeMap::new(),
            copies: Copies::default(),
            deletes: BTreeSet::new(),
            number: 0,
            wanted: Vec::new(),
            written_for: None,
            done: 0,
            written: Written::default(),
            loaded: None,
            serving: BTreeSet::new(),
            secured: BTreeSet::new(),
            past: BTreeMap::new(),
            problems: Problems::default(),
            retry: Backoff::default(),
            restart: Backoff::default(),
            is_bare: false,
            is_up: false,
            restarts: Restart::Idle,
        };
        worker.read_file()?;
        Ok(worker)
    }

    /// Takes over the file of the agent before this one. A file that says nothing is replaced by
    /// one without volumes: all hosts are let out, until the engine lets in those of the durable
    /// state.
    fn read_file(&mut self) -> Result<(), AgentError> {
        let parsed = match files::read(&self.config, FILE_BYTES_MAX) {
            Ok(None) => return Ok(self.put(Content::not_yet())?),
            Ok(Some(bytes)) => {
                let text = String::from_utf8(bytes).map_err(|error| error.to_string());
                text.and_then(|text| Ok(Written { content: self.frame.parse(&text)?, text }))
            }
            Err(error) => Err(error.to_string()),
        };
        match parsed {
            Ok(written) => self.note_written(written),
            Err(why) => {
                let path = self.config.display();
                tracing::warn!("{path}: {why}; all hosts are let out, and let in again by the durable state");
                self.put(Content::not_yet())?;
            }
        }
        Ok(())
    }

    fn note_written(&mut self, written: Written) {
        for (volume, offer) in &written.content.volumes {
            self.volumes.note_served(&offer.path);
            let (nqn, past) = self.past.entry(volume.clone()).or_default();
            if *nqn != offer.nqn {
                nqn.clone_from(&offer.nqn);
                past.clear();
            }
            past.retain(|one| !offer.admitted.iter().any(|other| other.node == one.node));
            past.extend(offer.admitted.iter().cloned());
        }
        self.written = written;
    }

    /// Makes a file with this content durable, if it is another one.
    fn put(&mut self, content: Content) -> io::Result<()> {
        let text = self.frame.emit(&content).map_err(io::Error::other)?;
        if text != self.written.text {
            files::replace(&self.config, text.as_bytes())?;
        }
        self.note_written(Written { text, content });
        Ok(())
    }

    /// Does what comes by `commands`, and reports what was observed, until the other end is gone.
    pub(crate) fn run(mut self, commands: &Receiver<Command>, observed: impl Fn(Observation)) {
        let mut next = Instant::now();
        loop {
            let wait = next.saturating_duration_since(Instant::now());
            let mut has_news = false;
            match commands.recv_timeout(wait) {
                Ok(command) => has_news = self.take(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            while let Ok(command) = commands.try_recv() {
                has_news |= self.take(command);
            }
            let now = Instant::now();
            if !has_news && now < next {
                continue;
            }
            let (observation, pace) = self.turn(now);
            next = now + pace;
            if let Some(observation) = observation {
                observed(observation);
            }
        }
    }

    /// Takes a command. Returns whether there is something new to do.
    fn take(&mut self, command: Command) -> bool {
        match command {
            Command::Known(known, copies) => {
                self.copies.know(copies);
                self.past.retain(|volume, _| known.contains_key(volume));
                self.exports.forget(|volume| known.keys().any(|one| one.as_str() == volume));
                self.known = known;
            }
            Command::Serve(number, volumes) => {
                (self.number, self.wanted) = (number, volumes);
                self.retry.reset();
                return true;
            }
            Command::Delete(volume) => return self.deletes.insert(volume),
            Command::Copy(number, copies) => {
                self.copies.want(number, copies);
                return true;
            }
            Command::DeleteSnapshot(snapshot, epoch) => {
                self.copies.delete(&self.frame, &snapshot, epoch);
                return true;
            }
            Command::Restart => {
                self.restarts = Restart::Wanted;
                return true;
            }
        }
        false
    }

    /// Does all that is due. Returns what was observed, and the time until the next turn.
    fn turn(&mut self, now: Instant) -> (Option<Observation>, Duration) {
        if self.must_write() && self.retry.is_due(now) {
            match self.write() {
                Ok(()) => self.problems.end("the target's file"),
                Err(error) => {
                    self.problems.note("the target's file", error.to_string());
                    self.retry.fail(now);
                }
            }
        }
        if self.restarts == Restart::Wanted {
            self.end_target();
        }
        let reached = self.reach(now);
        let is_done = match &reached {
            Reached::Running(_) => self.loaded.as_ref() == Some(&self.written),
            Reached::Down => true,
            Reached::Unsure => false,
        };
        if is_done && let Some(number) = self.written_for {
            self.done = number;
        }
        // A target that starts may have read the file before this one: without the data of a volume
        // that is named there, it would not start.
        if !matches!(reached, Reached::Unsure) {
            self.delete(now);
        }
        let (makes, lacks) = self.copies.turn(&self.frame, now);
        let changes = self.exports.turn(&mut self.volumes, now);
        let observation = match &reached {
            Reached::Running(target) => {
                let target = self.check_offers(target, now);
                Some(self.observe(Some(&target)))
            }
            Reached::Down => Some(self.observe(None)),
            Reached::Unsure => None,
        };
        self.process.shorten_log();
        let leave = observation.as_ref().is_some_and(|observation| self.others_are_in(observation));
        let pace = match reached {
            _ if leave || makes || changes || self.restarts != Restart::Idle => BUSY,
            Reached::Unsure if self.process.is_alive() => BUSY,
            _ if !self.problems.is_empty() || lacks || self.exports.is_troubled() || self.must_write() => {
                TROUBLED
            }
            _ => IDLE,
        };
        (observation, pace)
    }

    /// Whether the file differs from the latest demand, or volumes have problems.
    fn must_write(&mut self) -> bool {
        // A target that starts with a file without volumes must find that one.
        if self.number == 0 || self.is_bare && self.process.is_alive() && self.loaded.is_none() {
            return false;
        }
        self.written_for != Some(self.number) || self.problems.has("volume ")
    }

    /// Makes files, secrets, the target's file and the far ends as they are to be.
    fn write(&mut self) -> io::Result<()> {
        let (mut content, mut tunnels) = (Content::default(), BTreeMap::new());
        for served in self.wanted.clone() {
            let name = format!("volume {}", served.name);
            let problem = if is_by_tunnel(&served) {
                let (wanted, problem) = self.tunnel(&served);
                tunnels.extend(wanted.map(|wanted| (served.name, wanted)));
                problem
            } else {
                let (offer, problem) = match self.offer(&served) {
                    Ok(offered) => offered,
                    Err(error) => {
                        content.is_partial = true;
                        (None, Some(error.to_string()))
                    }
                };
                content.volumes.extend(offer.map(|offer| (served.name, offer)));
                problem
            };
            match problem {
                None => self.problems.end(&name),
                Some(problem) => {
                    self.problems.note(&name, problem);
                    self.retry.fail(Instant::now());
                }
            }
        }
        let wanted = &self.wanted;
        let is_wanted = |name: &str| wanted.iter().any(|one| *name == format!("volume {}", one.name));
        self.problems.retain(|name| !name.starts_with("volume ") || is_wanted(name));
        self.secure(&content)?;
        self.put(content)?;
        self.exports.want(tunnels);
        self.written_for = Some(self.number);
        Ok(())
    }

    /// Writes the secrets of the hosts of a file.
    fn secure(&mut self, content: &Content) -> io::Result<()> {
        for (volume, offer) in &content.volumes {
            for one in &offer.admitted {
                self.secure_one(volume, one)?;
            }
        }
        Ok(())
    }

    fn secure_one(&mut self, volume: &Name, one: &Admission) -> io::Result<()> {
        let path = self.frame.secret(volume, one);
        if self.secured.contains(&path) {
            return Ok(());
        }
        let credential = self.master.credential(volume, one);
        let key = credential.tls.as_ref().map(|key| (self.frame.tls_key(volume, one), key));
        for (path, text) in key.into_iter().chain([(path.clone(), &credential.dhchap)]) {
            let known = files::read(&path, FILE_BYTES_MAX)?.map(zeroize::Zeroizing::new);
            if known.is_none_or(|known| known.as_slice() != text.as_bytes()) {
                files::replace(&path, text.as_bytes())?;
            }
        }
        self.secured.insert(path);
        Ok(())
    }

    /// Has the target read its file, and starts it if there is none.
    fn reach(&mut self, now: Instant) -> Reached {
        if self.loaded.as_ref() != Some(&self.written) {
            match self.process.reload() {
                Ok(changes) => {
                    changes.iter().for_each(|change| tracing::debug!("the target: {change}"));
                    self.loaded = Some(self.written.clone());
                    self.process.note_answer();
                    self.is_bare = false;
                    self.restart.reset();
                    self.problems.end(TARGET);
                    if !std::mem::replace(&mut self.is_up, true) {
                        tracing::info!("the target serves");
                    }
                    self.remove_secrets();
                }
                Err(error) => return self.miss(error, now),
            }
        }
        match self.process.status() {
            Ok(target) => Reached::Running(Box::new(target)),
            Err(error) => self.miss(error, now),
        }
    }

    /// Has the target end, so that the next one is the program that is installed now.
    fn end_target(&mut self) {
        match self.process.terminate() {
            Ok(version) => {
                tracing::info!("the target, farlane {version}, ends for its successor");
                self.restarts = Restart::Ending;
            }
            Err(NoAnswer::Absent(_)) => self.restarts = Restart::Idle,
            Err(error) => self.problems.note(TARGET, error.to_string()),
        }
    }

    /// The target gives no answer.
    fn miss(&mut self, error: NoAnswer, now: Instant) -> Reached {
        if !matches!(error, NoAnswer::Absent(_)) {
            self.problems.note(TARGET, error.to_string());
            return Reached::Unsure;
        }
        (self.loaded, self.is_up) = (None, false);
        let ended = self.process.ended();
        if self.process.is_alive() {
            return Reached::Unsure;
        }
        if std::mem::replace(&mut self.restarts, Restart::Idle) == Restart::Ending {
            self.restart.reset();
        } else if let Some(ended) = ended {
            self.is_bare = ended.is_of_file && !self.is_bare;
            self.problems.note(TARGET, ended.why);
            self.restart.fail(now);
        }
        let is_needed = !self.known.is_empty() || !self.written.content.volumes.is_empty();
        if !is_needed || !self.restart.is_due(now) {
            return Reached::Down;
        }
        match self.prepare_start().and_then(|()| self.process.start()) {
            Ok(()) => Reached::Unsure,
            Err(error) => {
                self.problems.note(TARGET, error.to_string());
                self.restart.fail(now);
                Reached::Down
            }
        }
    }

    /// Makes the file one with which a target starts: without lost volumes, and without any if the
    /// last target did not start.
    fn prepare_start(&mut self) -> io::Result<()> {
        let mut content = self.written.content.clone();
        content.volumes.retain(|_, offer| !self.is_bare && offer.path.exists());
        if content.volumes.len() < self.written.content.volumes.len() {
            content.is_partial = true;
            self.written_for = None;
            self.put(content)?;
        }
        Ok(())
    }

    /// Removes the secrets of hosts that the running target lets in no longer.
    fn remove_secrets(&mut self) {
        let (frame, volumes) = (&self.frame, &self.written.content.volumes);
        let all = volumes.iter().flat_map(|(volume, offer)| {
            let of = |one| [frame.secret(volume, one), frame.tls_key(volume, one)];
            offer.admitted.iter().flat_map(of)
        });
        let kept: BTreeSet<_> = all.collect();
        let names = files::names(&frame.secrets).unwrap_or_default();
        let is_secret = |name: &String| name.ends_with(".dhchap") || name.ends_with(".tls");
        for path in names.iter().filter(|name| is_secret(name)).map(|name| frame.secrets.join(name)) {
            if !kept.contains(&path) {
                match files::remove(&path) {
                    Ok(()) => self.problems.end("old secrets"),
                    Err(error) => self.problems.note("old secrets", error.to_string()),
                }
            }
        }
        self.secured.retain(|path| kept.contains(path));
    }

    /// Deletes the data of volumes.
    fn delete(&mut self, now: Instant) {
        if !self.retry.is_due(now) {
            return;
        }
        for volume in std::mem::take(&mut self.deletes) {
            // Another volume may have the name by now.
            let Some(known) = self.known.get(&volume).filter(|known| known.delete) else { continue };
            let Some(folder) = self.frame.pool(&known.pool) else { continue };
            let name = format!("deletion of {volume}");
            match self.volumes.delete(&volume, (&known.pool, folder)) {
                Ok(is_new) => {
                    if is_new {
                        tracing::info!(%volume, "the data of {volume} is deleted");
                    }
                    self.problems.end(&name);
                }
                Err(error) => {
                    self.problems.note(&name, error.to_string());
                    self.retry.fail(now);
                    self.deletes.insert(volume);
                }
            }
        }
    }
}
