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

/// How long after a failure to try again what could not be saved.
const RETRY: Duration = Duration::from_secs(5);

/// How many changes were put into a store, up to one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(u64);

/// Something about a store that its owner wants to know.
#[derive(Debug)]
pub enum Notice {
    /// The state could not be saved, and will be tried again until it can be.
    Failed(String),
    /// What could not be saved before is saved.
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

/// A file of state that this process has for itself. Clones are of the same one; the last of them waits until everything
/// is saved that can be.
#[derive(Clone, Debug)]
pub struct Store(Arc<Owner>);

/// Ends the thread.
#[derive(Debug)]
struct Owner {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What users and the thread share.
#[derive(Debug)]
struct Shared {
    path: String,
    /// What its owner should know of how it was found.
    note: Option<String>,
    inner: Mutex<Inner>,
    changed: Condvar,
    /// How often an attempt to save has ended: to be looked at without the lock.
    attempts: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    /// What is read from the file, for as long as sections are asked for.
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
    /// Takes the file at `path`, and begins one if there is none. Nothing is written before [`Store::put`].
    ///
    /// # Errors
    /// When it is in use, damaged, or of somebody else; see [`StateError`].
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

    /// Where it is.
    pub fn path(&self) -> &Path {
        Path::new(&self.0.shared.path)
    }

    /// What its owner should know of how it was found: damaged, say, and replaced by the generation before it.
    pub fn note(&self) -> Option<&str> {
        self.0.shared.note.as_deref()
    }

    /// Waits until everything that was put is saved, and tries once more what could not be before.
    ///
    /// # Errors
    /// When it can't be saved.
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

    /// An error about what is in it.
    pub fn error(&self, cause: StateCause) -> StateError {
        StateError::new(self.path(), cause)
    }

    /// Checks that there are no sections but these.
    ///
    /// # Errors
    /// When there are: they are of another command's.
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
    /// When it is not a `T`: the line, and what was expected.
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
    /// When `value` can't be a table: a mistake in its type.
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

    /// Waits until what was put is durable.
    ///
    /// # Errors
    /// When it could not be saved; that is tried again later.
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

    /// Tells of the ends of attempts to save.
    ///
    /// # Errors
    /// When there is no descriptor left for it.
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
            // It does not panic; and if it did, that has been said.
            let _ = thread.join();
        }
    }
}

/// Sees what becomes of what was put into a store.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Shared>,
    descriptor: Arc<OwnedFd>,
    seen: u64,
    failing: bool,
}

impl Watch {
    /// Becomes readable when an attempt has ended.
    pub fn poll_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    /// Whether an attempt has ended since this was last asked. Costs nothing if not.
    pub fn has_news(&mut self) -> bool {
        let attempts = self.shared.attempts.load(Ordering::Acquire);
        if attempts == self.seen {
            return false;
        }
        self.seen = attempts;
        // That it is empty already is as good.
        let _ = rustix::io::read(&self.descriptor, &mut [0; 8]);
        true
    }

    /// What has become of a generation: nothing yet, or durable, or not to be saved for now.
    pub fn outcome(&self, generation: Generation) -> Option<Result<(), io::ErrorKind>> {
        self.shared.lock().outcome(generation)
    }

    /// What the owner should be told, once.
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

    /// Saves what is put, until the store is closed.
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
                // A counter that is full is readable.
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
