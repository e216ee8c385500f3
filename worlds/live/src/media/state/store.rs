//! A file of state in use: its sections, and the thread that saves them.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use serde::de::{DeserializeOwned, DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserializer, Serialize};
use toml::{Table, Value};

use super::error::{StateCause, StateError};
use super::file::{Found, StateFile};
use super::text::text_of;

/// The time from a failure to save until the next attempt.
const RETRY: Duration = Duration::from_secs(5);

/// A change to a store, as the number of changes put into the store up to this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(u64);

/// News about a store for its owner.
#[derive(Debug)]
pub enum Notice {
    /// The state could not be saved; saving is tried again until it succeeds.
    Failed(String),
    /// The state is saved again after a failure.
    Recovered(String),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(why) => write!(f, "{why}; trying again every {} s", RETRY.as_secs()),
            Self::Recovered(what) => f.write_str(what),
        }
    }
}

/// A file of state that this process has for itself. Clones share the file. Dropping the last clone
/// waits until everything that can be saved is saved.
#[derive(Clone, Debug)]
pub struct Store(Arc<Owner>);

/// The thread that saves, ended when dropped.
#[derive(Debug)]
struct Owner {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Data that users and the thread share.
#[derive(Debug)]
struct Shared {
    path: String,
    /// A note for the owner on how the file was found.
    note: Option<String>,
    inner: Mutex<Inner>,
    changed: Condvar,
    /// The number of ended attempts to save, which can be read without the lock.
    attempts: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    /// The text read from the file, from which sections are taken.
    text: Option<String>,
    sections: Table,
    put: u64,
    /// The generation of the latest attempt, and of the latest that has succeeded.
    tried: u64,
    durable: u64,
    error: Option<(io::ErrorKind, String)>,
    watches: Vec<Arc<OwnedFd>>,
    closing: bool,
}

impl Store {
    /// Takes the file at `path`, and begins one if there is none. Nothing is written before
    /// [`Store::put`].
    ///
    /// # Errors
    /// When the file is in use, damaged, or not a state of Farlane's; see [`StateError`].
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let (file, found) = StateFile::open(path)?;
        let Found { text, sections, note } = found;
        let shared = Arc::new(Shared {
            path: file.path().display().to_string(),
            note,
            inner: Mutex::new(Inner { text, sections, ..Inner::default() }),
            changed: Condvar::new(),
            attempts: AtomicU64::new(0),
        });
        let theirs = shared.clone();
        let thread = std::thread::Builder::new().name("state".to_owned()).spawn(move || theirs.save(file));
        let thread = thread.map_err(|error| {
            StateError::new(path, StateCause::Io { doing: "begin a thread to save it", error })
        })?;
        Ok(Self(Arc::new(Owner { shared, thread: Some(thread) })))
    }

    /// The path of the file, with symbolic links resolved.
    pub fn path(&self) -> &Path {
        Path::new(&self.0.shared.path)
    }

    /// A note for the owner on how the file was found, for example that it was damaged and replaced
    /// by the generation before it.
    pub fn note(&self) -> Option<&str> {
        self.0.shared.note.as_deref()
    }

    /// Waits until every put section is saved; retries failed saves once.
    ///
    /// # Errors
    /// When the state can't be saved.
    pub fn finish(&self) -> Result<(), StateError> {
        let shared = &self.0.shared;
        let mut inner = shared.lock();
        if inner.durable == inner.put {
            return Ok(());
        }
        inner.put += 1;
        let last = Generation(inner.put);
        drop(inner);
        shared.changed.notify_all();
        self.wait(last)
    }

    /// Makes an error about the contents of this file.
    pub fn error(&self, cause: StateCause) -> StateError {
        StateError::new(self.path(), cause)
    }

    /// Checks that the file has no sections but those of `names`.
    ///
    /// # Errors
    /// When there are other sections, which are of another kind of device.
    pub fn expect_only(&self, names: &[&str]) -> Result<(), StateError> {
        let inner = self.0.shared.lock();
        match inner.sections.keys().find(|name| !names.contains(&name.as_str())) {
            None => Ok(()),
            Some(other) => Err(self.error(StateCause::Mismatch {
                key: format!("[{other}]"),
                what: format!("is not of this kind of device: expected [{}]", names.join("], [")),
                remedy: "give another --state: this file was left as it is".to_owned(),
            })),
        }
    }

    /// The section called `name` as it was in the file, if there is one.
    ///
    /// # Errors
    /// When the section is not a `T`; the error shows the line and the expected form.
    pub fn section<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, StateError> {
        let inner = self.0.shared.lock();
        let Some(text) = inner.text.as_deref().filter(|_| inner.sections.contains_key(name)) else {
            return Ok(None);
        };
        let damaged = |error: toml::de::Error| {
            self.error(StateCause::Damaged(format!("[{name}]\n{}", error.to_string().trim_end())))
        };
        let read = toml::Deserializer::parse(text).map_err(damaged)?;
        Only { name, of: std::marker::PhantomData }.deserialize(read).map_err(damaged)
    }

    /// Sets the section called `name`, to be saved as soon as possible.
    ///
    /// # Panics
    /// When `value` can't be a table, which is a mistake in its type.
    pub fn put<T: Serialize>(&self, name: &str, value: &T) -> Generation {
        let value = Value::try_from(value).expect("a section is a table of plain values");
        let shared = &self.0.shared;
        let mut inner = shared.lock();
        inner.sections.insert(name.to_owned(), value);
        inner.put += 1;
        let generation = Generation(inner.put);
        drop(inner);
        shared.changed.notify_all();
        generation
    }

    /// Waits until the change `generation` is durable.
    ///
    /// # Errors
    /// When it could not be saved; saving is tried again later.
    pub fn wait(&self, generation: Generation) -> Result<(), StateError> {
        let shared = &self.0.shared;
        let mut inner = shared.lock();
        loop {
            match inner.outcome(generation) {
                Some(Ok(())) => return Ok(()),
                Some(Err(kind)) => {
                    let what = inner.error.as_ref().map_or_else(String::new, |(_, what)| what.clone());
                    let error = io::Error::new(kind, what);
                    return Err(self.error(StateCause::Io { doing: "save it", error }));
                }
                None => inner = shared.changed.wait(inner).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Watches the ends of attempts to save.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn watch(&self) -> io::Result<Watch> {
        let descriptor = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        self.0.shared.lock().watches.push(descriptor.clone());
        let failing = false;
        Ok(Watch { shared: self.0.shared.clone(), descriptor, seen: 0, failing })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread does not panic; if it ever did, the panic was already reported.
            let _ = thread.join();
        }
    }
}

/// Reports the fate of changes that were put into a store.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Shared>,
    descriptor: Arc<OwnedFd>,
    seen: u64,
    failing: bool,
}

impl Watch {
    /// The descriptor that becomes readable when an attempt to save has ended.
    pub fn poll_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    /// Whether an attempt has ended since the last call. If not, the call costs nothing.
    pub fn has_news(&mut self) -> bool {
        let attempts = self.shared.attempts.load(Ordering::Acquire);
        if attempts == self.seen {
            return false;
        }
        self.seen = attempts;
        // An empty counter is as good.
        let _ = rustix::io::read(&self.descriptor, &mut [0; 8]);
        true
    }

    /// The outcome of saving `generation`: `None` while undecided, `Ok` when durable, or the error
    /// of the failed attempt, which is tried again.
    pub fn outcome(&self, generation: Generation) -> Option<Result<(), io::ErrorKind>> {
        self.shared.lock().outcome(generation)
    }

    /// The next notice for the owner, if any. Each notice is returned once.
    pub fn notice(&mut self) -> Option<Notice> {
        let inner = self.shared.lock();
        let failing = inner.error.is_some();
        if failing == std::mem::replace(&mut self.failing, failing) {
            return None;
        }
        let path = &self.shared.path;
        Some(match &inner.error {
            Some((_, why)) => Notice::Failed(format!("the state can't be saved in {path}: {why}")),
            None => Notice::Recovered(format!("the state is saved again in {path}")),
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        inner.watches.retain(|other| !Arc::ptr_eq(other, &self.descriptor));
    }
}

impl Inner {
    fn outcome(&self, Generation(generation): Generation) -> Option<Result<(), io::ErrorKind>> {
        match &self.error {
            _ if generation <= self.durable => Some(Ok(())),
            Some((kind, _)) if generation <= self.tried => Some(Err(*kind)),
            _ => None,
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Saves put sections, until the store is closed.
    fn save(&self, mut file: StateFile) {
        let mut inner = self.lock();
        loop {
            while inner.put == inner.tried && !inner.closing {
                if inner.durable == inner.tried {
                    inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                let waited = self.changed.wait_timeout(inner, RETRY).unwrap_or_else(PoisonError::into_inner);
                inner = waited.0;
                if waited.1.timed_out() {
                    break;
                }
            }
            if inner.durable == inner.put
                || inner.closing && inner.put == inner.tried && inner.error.is_none()
            {
                return;
            }
            let last = inner.closing;
            let (generation, sections) = (inner.put, inner.sections.clone());
            drop(inner);
            let result = file.replace(&text_of(&sections));
            inner = self.lock();
            inner.tried = generation;
            match result {
                Ok(()) => (inner.durable, inner.error) = (generation, None),
                Err(error) => inner.error = Some((error.kind(), error.to_string())),
            }
            self.attempts.fetch_add(1, Ordering::Release);
            self.changed.notify_all();
            for watch in &inner.watches {
                // A counter that is full is readable already.
                let _ = rustix::io::write(watch, &1_u64.to_ne_bytes());
            }
            if last && inner.put == generation {
                return;
            }
        }
    }
}

/// Reads one section of a text, so that an error can show its line.
struct Only<'a, T> {
    name: &'a str,
    of: std::marker::PhantomData<T>,
}

impl<'de, T: DeserializeOwned> DeserializeSeed<'de> for Only<'_, T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: DeserializeOwned> Visitor<'de> for Only<'_, T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a table with [{}]", self.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<String>()? {
            if key == self.name {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}
