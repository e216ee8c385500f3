//! A store in one file, for a fleet with one controller.
//!
//! One process has the file at a time; each transaction is durable before its answer. Transactions
//! that arrive together become durable together.
//!
//! If the file can't be written, transactions wait for `PATIENCE`. Then their answers are
//! [`Answer::Unknown`], and the term ends: a new one begins once the file can be written again.

mod content;
mod lock;

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fleet::store::{Answer, Revision, Transaction};
use redb::backends::FileBackend;
use redb::{Builder, Database, DatabaseError};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{Event, Request, Store, StoreError};
use content::{Content, ContentError, Outcome};
use lock::Lock;

/// The most transactions that become durable together.
const BATCH: usize = 256;
/// How long transactions wait for a file that can't be written.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a file that can't be written is tried.
const RETRY: Duration = Duration::from_millis(500);
/// How often requests are looked for between two tries.
const GLANCE: Duration = Duration::from_millis(20);
/// Memory for pages of the database. All objects of a fleet fit.
const CACHE_BYTES: usize = 16 << 20;

/// Opens the store in a file, which is made if it does not exist. A thread serves it until its
/// sender of requests is dropped.
///
/// # Errors
/// When another process has the file, or the file can't be used as a store.
pub fn open(path: &Path) -> Result<Store, StoreError> {
    let path = resolve(path)?;
    let lock = Lock::take(&path)?;
    let again = path.clone();
    let mut store = Worker::new(&path, move || open_database(&again), PATIENCE)?;
    let (requests, incoming) = unbounded_channel();
    let (outgoing, events) = unbounded_channel();
    let begun = std::thread::Builder::new().name("fleet-store".to_owned()).spawn(move || {
        store.run(incoming, &outgoing);
        // The file is free once the events have ended.
        drop((store, lock));
        drop(outgoing);
    });
    begun.map_err(|error| StoreError::Settings(format!("a thread for the store can't begin: {error}")))?;
    Ok(Store { requests, events })
}

/// The file at the end of symbolic links, so that each of its names has one lock.
fn resolve(path: &Path) -> Result<PathBuf, StoreError> {
    let error = |reason: String| StoreError::File { path: path.display().to_string(), reason };
    if let Ok(resolved) = path.canonicalize() {
        if resolved.is_dir() {
            return Err(error("it is a folder: name a file in it".to_owned()));
        }
        return Ok(resolved);
    }
    let name = path.file_name().ok_or_else(|| error("it names no file".to_owned()))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.canonicalize();
    let folder = folder.map_err(|cause| error(format!("its folder: {cause}; make the folder first")))?;
    Ok(folder.join(name))
}

fn open_file(path: &Path, is_new: bool) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let options = &mut OpenOptions::new();
    let options = options.read(true).write(true).mode(0o600);
    let options = if is_new { options.create_new(true) } else { options.create(true).truncate(false) };
    let file = options.open(path)?;
    sync_folder(path)?;
    Ok(file)
}

/// Makes the name of a file durable.
fn sync_folder(path: &Path) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    // A file that was damaged gives an error when it is opened, not a panic later.
    builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true);
    builder
}

fn open_database(path: &Path) -> Result<Database, DatabaseError> {
    let file =
        open_file(path, false).map_err(|error| DatabaseError::Storage(redb::StorageError::Io(error)))?;
    builder().create_with_backend(FileBackend::new(file)?)
}

/// Serves a file's requests.
struct Worker<Open> {
    path: String,
    open: Open,
    patience: Duration,
    /// The content, unless it has to be opened again after an error.
    content: Option<Content>,
    term: Option<u64>,
    is_watched: bool,
    is_away: bool,
    retry_at: Option<Instant>,
}

impl<Open: FnMut() -> Result<Database, DatabaseError>> Worker<Open> {
    fn new(path: &Path, mut open: Open, patience: Duration) -> Result<Self, StoreError> {
        let path = path.display().to_string();
        let content = match Content::new(open()) {
            Ok(content) => content,
            Err(ContentError::Foreign(what)) => return Err(StoreError::Foreign { path, what }),
            Err(ContentError::Database(redb::Error::DatabaseAlreadyOpen)) => {
                return Err(StoreError::Busy { path, user: "another process".to_owned() });
            }
            Err(error) => return Err(StoreError::File { path, reason: error.to_string() }),
        };
        let (term, is_watched, is_away, retry_at) = (None, false, false, None);
        Ok(Self { path, open, patience, content: Some(content), term, is_watched, is_away, retry_at })
    }

    fn run(&mut self, mut requests: UnboundedReceiver<Request>, events: &UnboundedSender<Event>) {
        let mut waiting = VecDeque::new();
        loop {
            if self.term.is_none() && self.retry_at.is_none_or(|at| at <= Instant::now()) {
                self.stand(events);
            }
            let request = match waiting.pop_front() {
                Some(request) => Some(request),
                None if self.term.is_some() => match requests.blocking_recv() {
                    Some(request) => Some(request),
                    None => return,
                },
                None => match requests.try_recv() {
                    Ok(request) => Some(request),
                    Err(TryRecvError::Empty) => None,
                    Err(TryRecvError::Disconnected) => return,
                },
            };
            match request {
                None => std::thread::sleep(GLANCE),
                Some(Request::Transact(number, transaction)) => {
                    let mut batch = vec![(number, transaction)];
                    while batch.len() < BATCH {
                        match requests.try_recv() {
                            Ok(Request::Transact(number, transaction)) => batch.push((number, transaction)),
                            Ok(other) => {
                                waiting.push_back(other);
                                break;
                            }
                            Err(_) => break,
                        }
                    }
                    self.transact(batch, events);
                }
                Some(Request::List(number)) => self.list(number, events),
                Some(Request::Resign) => self.end_term(events),
                Some(Request::Backup(number, path)) => self.back_up(number, path, events.clone()),
            }
        }
    }

    /// Tries to begin a term.
    fn stand(&mut self, events: &UnboundedSender<Event>) {
        // A controller that can't have a list need not be elected.
        let begun = self.content().and_then(|content| content.list(0).and_then(|_| content.begin_term()));
        match begun {
            Ok(term) => {
                (self.term, self.retry_at) = (Some(term), None);
                self.report_back(events);
                send(events, Event::Elected(term));
            }
            Err(error) => {
                self.content = None;
                self.report_away(&error, events);
                self.retry_at = Some(Instant::now() + RETRY);
            }
        }
    }

    fn end_term(&mut self, events: &UnboundedSender<Event>) {
        self.is_watched = false;
        if self.term.take().is_some() {
            send(events, Event::Deposed);
        }
    }

    /// The content; opens it again after an error.
    fn content(&mut self) -> Result<&Content, ContentError> {
        if self.content.is_none() {
            self.content = Some(Content::new((self.open)())?);
        }
        Ok(self.content.as_ref().expect("the content was opened above"))
    }

    fn transact(&mut self, batch: Vec<(u64, Transaction)>, events: &UnboundedSender<Event>) {
        let (numbers, transactions): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        match self.apply(&transactions, events) {
            Some(outcomes) => {
                for (number, (answer, changes)) in numbers.into_iter().zip(outcomes) {
                    if self.is_watched {
                        changes.into_iter().for_each(|change| send(events, Event::Changed(change)));
                    }
                    send(events, Event::Answered(number, answer));
                }
            }
            None => {
                for number in numbers {
                    send(events, Event::Answered(number, Answer::Unknown));
                }
                self.end_term(events);
            }
        }
    }

    /// Applies transactions, again and again while the file can't be written. `None` if it is not
    /// known whether they were applied.
    fn apply(
        &mut self,
        transactions: &[Transaction],
        events: &UnboundedSender<Event>,
    ) -> Option<Vec<Outcome>> {
        let until = Instant::now() + self.patience;
        let mut before: Option<Revision> = None;
        loop {
            match self.try_to_apply(transactions, before) {
                Ok(outcomes) => {
                    if outcomes.is_some() {
                        self.report_back(events);
                    }
                    return outcomes;
                }
                Err((error, revision)) => {
                    before = before.or(revision);
                    // After an error, the database takes no more requests.
                    self.content = None;
                    self.report_away(&error, events);
                }
            }
            if Instant::now() + RETRY > until {
                return None;
            }
            std::thread::sleep(RETRY);
        }
    }

    /// Applies transactions, unless an earlier try from revision `before` was applied in spite of
    /// its error. An error has the revision from which it was tried.
    fn try_to_apply(
        &mut self,
        transactions: &[Transaction],
        before: Option<Revision>,
    ) -> Result<Option<Vec<Outcome>>, (ContentError, Option<Revision>)> {
        let term = self.term;
        let content = self.content().map_err(|error| (error, None))?;
        let revision = content.revision().map_err(|error| (error, None))?;
        if before.is_some_and(|before| before != revision) {
            return Ok(None);
        }
        content.apply(term, transactions).map(Some).map_err(|error| (error, Some(revision)))
    }

    fn list(&mut self, number: u64, events: &UnboundedSender<Event>) {
        if self.term.is_none() {
            return;
        }
        match self.content().and_then(|content| content.list(number)) {
            Ok(list) => {
                self.is_watched = true;
                send(events, Event::Changed(list));
            }
            // A controller without a list decides nothing. It asks again in its next term.
            Err(error) => {
                self.content = None;
                self.report_away(&error, events);
                self.end_term(events);
                self.retry_at = Some(Instant::now() + RETRY);
            }
        }
    }

    /// Copies the content into a new file, on a thread of its own.
    fn back_up(&mut self, number: u64, path: PathBuf, events: UnboundedSender<Event>) {
        let view = self.content().and_then(Content::view).map_err(|error| error.to_string());
        let answers = events.clone();
        let copy = move || {
            let result = view.and_then(|view| copy(&view, &path));
            send(&answers, Event::BackedUp(number, result));
        };
        if let Err(error) = std::thread::Builder::new().name("fleet-backup".to_owned()).spawn(copy) {
            let reason = format!("a thread for the backup can't begin: {error}");
            send(&events, Event::BackedUp(number, Err(reason)));
        }
    }

    fn report_away(&mut self, error: &ContentError, events: &UnboundedSender<Event>) {
        if !std::mem::replace(&mut self.is_away, true) {
            let path = &self.path;
            let reason = format!(
                "{path}: {error}; the fleet's disks go on, and nothing changes until this file can be read \
                 and written again"
            );
            send(events, Event::Reachable(Err(reason)));
        }
    }

    fn report_back(&mut self, events: &UnboundedSender<Event>) {
        if std::mem::replace(&mut self.is_away, false) {
            send(events, Event::Reachable(Ok(())));
        }
    }
}

/// Copies a view into a new file, which has its name only once it is complete.
fn copy(view: &redb::ReadTransaction, path: &Path) -> Result<(), String> {
    let shown = |error: &dyn std::fmt::Display| format!("no backup was made: {}: {error}", path.display());
    if path.symlink_metadata().is_ok() {
        return Err(shown(&"it exists; name a new file"));
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let written = || -> Result<(), ContentError> {
        // What a backup that was interrupted has left behind.
        let _ = std::fs::remove_file(&partial);
        let file = open_file(&partial, true).map_err(redb::StorageError::Io)?;
        let database = builder().create_with_backend(FileBackend::new(file)?)?;
        content::copy(view, &database)?;
        Ok(database.close()?)
    };
    let renamed = || {
        std::fs::rename(&partial, path)?;
        sync_folder(path)
    };
    let result =
        written().map_err(|error| shown(&error)).and_then(|()| renamed().map_err(|error| shown(&error)));
    if result.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    result
}

/// Reports an event. A controller that has gone needs none.
fn send(events: &UnboundedSender<Event>, event: Event) {
    let _ = events.send(event);
}

#[cfg(test)]
mod tests;
