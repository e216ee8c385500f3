//! Snapshots, and volumes that are made from other data: files of a pool that begin with the
//! content of another.
//!
//! A copy is written under another name, made durable, then renamed: a crash leaves nothing that
//! counts. Where files share blocks, the kernel takes all of the source at one moment, whatever
//! hosts write. Elsewhere the engine keeps the hosts out, and a lock keeps the target out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Instant, UNIX_EPOCH};

use fleet::agent::{SavedCopy, ToCopy};
use fleet::object::Data;
use fleet::{Epoch, Name};
use rustix::fs::SeekFrom as From;
use rustix::io::Errno;

use super::file::{Frame, volume_path};
use super::volumes::{check_room, rounded};
use crate::agent::backoff::Backoff;
use crate::agent::files;
use crate::naming::epoch_text;

/// The most copies that are being made at once.
const JOBS_MAX: usize = 4;
/// The bytes between two looks at whether a copy is still wanted.
const CHUNK: u64 = 8 << 20;
/// What ends the names of files with snapshots.
const SNAPSHOT: &str = "snapshot";
/// What ends the names of files that are not complete yet.
const PART: &str = "part";
/// The files by which a pool is tried.
const TRIALS: [&str; 2] = [".farlane-trial-1", ".farlane-trial-2"];

/// The file with a snapshot. No name of an object has a dot.
fn snapshot_path(pool: &Path, name: &Name, epoch: Epoch) -> PathBuf {
    pool.join(format!("{name}.{}.{SNAPSHOT}", epoch_text(epoch)))
}

/// The file with the data of a copy.
fn path_of(pool: &Path, data: &Data, epoch: Epoch) -> PathBuf {
    match data {
        Data::Snapshot(name) => snapshot_path(pool, name, epoch),
        Data::Volume(name) => volume_path(pool, name),
    }
}

/// A copy that is being made.
#[derive(Debug)]
struct Job {
    copy: ToCopy,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<()>>,
}

/// The copies of a machine.
#[derive(Debug, Default)]
pub(super) struct Copies {
    known: BTreeMap<Data, SavedCopy>,
    number: u64,
    wanted: Vec<ToCopy>,
    jobs: BTreeMap<Data, Job>,
    /// The copies that were not made: why, and when that is tried again.
    problems: BTreeMap<Data, (String, Backoff)>,
    /// The file system of each pool, and whether its files share blocks, as far as that was found
    /// out.
    clones: BTreeMap<Name, (u64, bool)>,
    /// Files whose names are durable.
    durable: BTreeSet<PathBuf>,
}

impl Copies {
    /// Takes the copies of the durable state.
    pub(super) fn know(&mut self, known: BTreeMap<Data, SavedCopy>) {
        self.known = known;
    }

    /// Takes a list of what to make. Work on anything else ends.
    pub(super) fn want(&mut self, number: u64, wanted: Vec<ToCopy>) {
        (self.number, self.wanted) = (number, wanted);
        let wanted = &self.wanted;
        for job in self.jobs.values().filter(|job| !wanted.contains(&job.copy)) {
            job.stop.store(true, Ordering::Relaxed);
        }
        self.problems.retain(|data, _| wanted.iter().any(|copy| copy.data == *data));
        self.problems.values_mut().for_each(|(_, backoff)| backoff.reset());
    }

    /// Deletes a snapshot that the durable state wants to be deleted.
    pub(super) fn delete(&mut self, frame: &Frame, snapshot: &Name, epoch: Epoch) {
        let data = Data::Snapshot(snapshot.clone());
        let known = self.known.get(&data).filter(|known| known.delete && known.epoch == epoch);
        let Some(folder) = known.and_then(|known| frame.pool(&known.pool)) else { return };
        let path = snapshot_path(folder, snapshot, epoch);
        match files::remove(&path).and_then(|()| files::sync_folder_of(&path)) {
            Ok(()) => tracing::info!(%snapshot, "the snapshot {snapshot} is deleted"),
            // The engine asks again as long as it sees the file.
            Err(error) => tracing::warn!("the snapshot {snapshot} is not deleted: {error}"),
        }
        self.durable.remove(&path);
    }

    /// Begins and ends copies. Returns whether some are being made, and whether some have problems.
    pub(super) fn turn(&mut self, frame: &Frame, now: Instant) -> (bool, bool) {
        for (pool, folder) in &frame.pools {
            // Another file system may have been mounted there since.
            let Ok(device) = std::fs::metadata(folder).map(|found| found.dev()) else { continue };
            if self.clones.get(pool).is_none_or(|(known, _)| *known != device)
                && let Ok(clones) = try_pool(folder)
            {
                let word = if clones { "share" } else { "share no" };
                tracing::info!(%pool, "files of the pool {pool} {word} blocks");
                self.clones.insert(pool.clone(), (device, clones));
            }
        }
        let ended: Vec<_> = self.jobs.extract_if(.., |_, job| job.thread.is_finished()).collect();
        for (data, job) in ended {
            let panicked = |_| Err(io::Error::other("the copy has panicked: see the log"));
            match job.thread.join().unwrap_or_else(panicked) {
                Ok(()) => {
                    tracing::info!(%data, "{data} is made from {}", job.copy.of);
                    self.problems.remove(&data);
                }
                Err(_) if job.stop.load(Ordering::Relaxed) => {}
                Err(error) => self.note(data, &error, now),
            }
        }
        for copy in self.wanted.clone() {
            let is_due = self.problems.get(&copy.data).is_none_or(|(_, backoff)| backoff.is_due(now));
            let is_there = self.made_at(frame, &copy.data, &copy.pool, copy.epoch).is_some();
            if self.jobs.len() >= JOBS_MAX || self.jobs.contains_key(&copy.data) || is_there || !is_due {
                continue;
            }
            if let Err(error) = self.begin(frame, &copy) {
                self.note(copy.data, &error, now);
            }
        }
        (!self.jobs.is_empty(), !self.problems.is_empty())
    }

    fn note(&mut self, data: Data, error: &io::Error, now: Instant) {
        let (problem, backoff) = self.problems.entry(data.clone()).or_default();
        backoff.fail(now);
        if problem.is_empty() {
            tracing::warn!(%data, "{data} is not made: {error}; it is tried again");
            // Later ones may differ in numbers, and controllers are not to hear of each.
            *problem = error.to_string();
        }
    }

    fn begin(&mut self, frame: &Frame, copy: &ToCopy) -> io::Result<()> {
        let no_pool = || io::Error::other(format!("this machine has no pool {}", copy.pool));
        let folder = frame.pool(&copy.pool).ok_or_else(no_pool)?;
        let from = match &copy.of {
            Data::Volume(name) => volume_path(folder, name),
            Data::Snapshot(name) => {
                let known = self.known.get(&copy.of).map(|known| known.epoch);
                snapshot_path(folder, name, known.unwrap_or_default())
            }
        };
        let to = path_of(folder, &copy.data, copy.epoch);
        let stop = Arc::new(AtomicBool::new(false));
        let (job, is_ended) = (copy.clone(), Arc::clone(&stop));
        let work = move || make(&job, &from, &to, &is_ended);
        let thread = std::thread::Builder::new().name("copy".to_owned()).spawn(work)?;
        self.jobs.insert(copy.data.clone(), Job { copy: copy.clone(), stop, thread });
        Ok(())
    }

    /// When a copy was made, in seconds since 1970, if it is there for good.
    fn made_at(&mut self, frame: &Frame, data: &Data, pool: &Name, epoch: Epoch) -> Option<u64> {
        let path = path_of(frame.pool(pool)?, data, epoch);
        let found = std::fs::metadata(&path).ok().filter(|found| found.is_file() && found.len() > 0)?;
        if !self.durable.contains(&path) {
            // An agent that was killed may have renamed it just before.
            files::sync_folder_of(&path).ok()?;
            self.durable.insert(path);
        }
        let time = found.modified().ok()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(time.as_secs())
    }

    /// What the machine has made, and is making.
    pub(super) fn observe(&mut self, frame: &Frame) -> fleet::agent::Copies {
        let known: Vec<_> = self.known.iter().map(|(data, copy)| (data.clone(), copy.clone())).collect();
        let mut present = Vec::new();
        for (data, copy) in known {
            if !self.jobs.contains_key(&data) {
                let made = self.made_at(frame, &data, &copy.pool, copy.epoch);
                present.extend(made.map(|at| (data, copy.epoch, at)));
            }
        }
        let problems = self.problems.iter();
        fleet::agent::Copies {
            number: self.number,
            present,
            making: self.jobs.keys().cloned().collect(),
            problems: problems.map(|(data, (problem, _))| (data.clone(), problem.clone())).collect(),
            pools: self.clones.iter().map(|(pool, (_, clones))| (pool.clone(), *clones)).collect(),
        }
    }
}

/// Finds out whether the files of a folder share blocks, by trying. Removes what an earlier agent
/// has left incomplete there.
fn try_pool(folder: &Path) -> io::Result<bool> {
    for name in files::names(folder)? {
        let is_left = [SNAPSHOT, "raw"].iter().any(|kind| name.ends_with(&format!(".{kind}.{PART}")));
        if is_left || TRIALS.contains(&name.as_str()) {
            files::remove(&folder.join(name))?;
        }
    }
    let [first, second] = TRIALS.map(|name| folder.join(name));
    let tried = || {
        let create = |path| File::options().read(true).write(true).create_new(true).mode(0o600).open(path);
        let mut source = create(&first)?;
        source.write_all(&[0xa5; 4096])?;
        let target = create(&second)?;
        match rustix::fs::ioctl_ficlone(&target, &source) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL | Errno::NOSYS | Errno::XDEV) => Ok(false),
            Err(error) => Err(error.into()),
        }
    };
    let found = tried();
    files::remove(&first)?;
    files::remove(&second)?;
    found
}

/// Makes a copy durable under its name, or leaves nothing.
fn make(copy: &ToCopy, from: &Path, to: &Path, stop: &AtomicBool) -> io::Result<()> {
    let mut part = to.as_os_str().to_owned();
    part.push(format!(".{PART}"));
    let part = PathBuf::from(part);
    files::remove(&part)?;
    let made = write(copy, from, &part, stop).and_then(|()| {
        std::fs::rename(&part, to).map_err(|error| files::at(to, &error))?;
        files::sync_folder_of(to)
    });
    made.inspect_err(|_| {
        // The next attempt, or the next agent, removes the rest.
        let _ = std::fs::remove_file(&part);
    })
}

fn write(copy: &ToCopy, from: &Path, part: &Path, stop: &AtomicBool) -> io::Result<()> {
    let no_size = || io::Error::new(ErrorKind::FileTooLarge, format!("no file has {} bytes", copy.bytes));
    let bytes = rounded(copy.bytes).ok_or_else(no_size)?;
    check_room(part, bytes)?;
    let source = File::open(from).map_err(|error| files::at(from, &error))?;
    let at_part = |error| files::at(part, &error);
    let target = File::options().read(true).write(true).create_new(true).mode(0o600).open(part);
    let target = target.map_err(at_part)?;
    if copy.shares {
        let cloned = rustix::fs::ioctl_ficlone(&target, &source);
        cloned.map_err(|error| files::at(from, &error.into()))?;
    } else {
        match source.try_lock_shared() {
            Ok(()) => copy_data(&source, &target, bytes, stop).map_err(at_part)?,
            Err(TryLockError::WouldBlock) => {
                let text = format!("{}: a process still uses it", from.display());
                return Err(io::Error::new(ErrorKind::ResourceBusy, text));
            }
            Err(TryLockError::Error(error)) => return Err(files::at(from, &error)),
        }
    }
    target.set_len(bytes).and_then(|()| target.sync_all()).map_err(at_part)?;
    if stop.load(Ordering::Relaxed) {
        return Err(ErrorKind::Interrupted.into());
    }
    Ok(())
}

/// Copies the parts of a file that have data.
fn copy_data(mut source: &File, mut target: &File, bytes: u64, stop: &AtomicBool) -> io::Result<()> {
    let end = source.metadata()?.len().min(bytes);
    let mut at = 0;
    while at < end {
        let data = match rustix::fs::seek(source, From::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => break, // The rest is a hole.
            Err(error) => return Err(error.into()),
        };
        let hole = rustix::fs::seek(source, From::Hole(data))?.min(end);
        at = data;
        while at < hole {
            if stop.load(Ordering::Relaxed) {
                return Err(ErrorKind::Interrupted.into());
            }
            source.seek(io::SeekFrom::Start(at))?;
            target.seek(io::SeekFrom::Start(at))?;
            let copied = io::copy(&mut source.take(CHUNK.min(hole - at)), &mut target)?;
            if copied == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            at += copied;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
