//! The captures that were named, each read in the background, one after the other.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use schemars::JsonSchema;
use serde::Serialize;

use super::api::query::Refusal;
use super::index::{Index, Summary};

/// A file that was named.
#[derive(Debug)]
pub(crate) struct Capture {
    path: PathBuf,
    /// Bytes of the file; 0 if it is not there.
    bytes: u64,
    read: AtomicU64,
    index: OnceLock<Result<Arc<Index>, String>>,
}

/// The captures that were named, and how far each was read. Times of all answers count from the
/// first packet.
#[derive(Serialize, JsonSchema)]
pub(crate) struct List<'a> {
    pub(super) captures: Vec<Entry<'a>>,
}

/// A capture that was named.
#[derive(Serialize, JsonSchema)]
pub(super) struct Entry<'a> {
    name: String,
    path: &'a Path,
    /// Bytes of the file; 0 if it is not there.
    file_bytes: u64,
    /// Bytes that were read.
    read_bytes: u64,
    state: State,
    /// Why the file can't be read; none unless that failed.
    why: Option<&'a str>,
    /// The contents of the capture; none until it is read.
    summary: Option<Summary<'a>>,
}

/// How far a capture is.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum State {
    Reading,
    Ready,
    Failed,
}

impl Capture {
    pub(super) fn new(path: &Path) -> Self {
        let bytes = path.metadata().map_or(0, |it| it.len());
        Self { path: path.to_owned(), bytes, read: AtomicU64::new(0), index: OnceLock::new() }
    }

    /// Reads the file. Returns why it can't be.
    pub(super) fn read(&self) -> Result<(), String> {
        let made = Index::make(&self.path, &self.read);
        let made = made.map(Arc::new).map_err(|error| error.to_string());
        self.index.get_or_init(|| made).as_ref().map(drop).map_err(Clone::clone)
    }

    /// Bytes of the file, and how many of them were read.
    pub(super) fn progress(&self) -> (u64, u64) {
        match self.index.get() {
            Some(_) => (self.bytes, self.bytes),
            None => (self.bytes, self.read.load(Ordering::Relaxed)),
        }
    }

    /// The index of the capture.
    ///
    /// # Errors
    /// When it is not read yet, or can't be.
    pub(super) fn index(&self) -> Result<Arc<Index>, Refusal> {
        match self.index.get() {
            Some(Ok(index)) => Ok(index.clone()),
            Some(Err(why)) => Err(Refusal::conflict(why.clone())),
            None => Err(Refusal::conflict(format!("{} is still being read", self.path.display()))),
        }
    }

    /// The entry in the list of captures.
    pub(super) fn entry(&self) -> Entry<'_> {
        let (file_bytes, read_bytes) = self.progress();
        let name = self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy().into_owned();
        let (state, why, summary) = match self.index.get() {
            None => (State::Reading, None, None),
            Some(Ok(index)) => (State::Ready, None, Some(index.summary())),
            Some(Err(why)) => (State::Failed, Some(why.as_str()), None),
        };
        Entry { name, path: &self.path, file_bytes, read_bytes, state, why, summary }
    }
}
