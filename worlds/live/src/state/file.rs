//! The file: locked, read, and replaced whole.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::error::{StateCause, StateError};
use crate::lock::lock;
use crate::media::file::survive_size_limits;

/// Bytes of a file of state at most: two firmware images as text, and all that devices remember beside them.
const BYTES_MAX: u64 = 64 << 20;
/// How often a file is opened again because another process has replaced it meanwhile.
const REOPENS_MAX: usize = 100;

/// A file of state that this process has for itself.
///
/// The lock is on whatever file is at the path: a replacement is locked before it takes the place of what was there.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    /// Keeps the lock.
    locked: File,
    /// There is nothing at the path yet: `locked` is what will take that place.
    first: bool,
}

impl StateFile {
    /// Takes the file at `path` for this process, and what is in it: nothing if there is no file yet.
    pub(super) fn open(path: &Path) -> Result<(Self, Option<String>), StateError> {
        survive_size_limits();
        let failed = |cause| StateError::new(path, cause);
        // A link stays one: what it points to is replaced.
        let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        for _ in 0..REOPENS_MAX {
            if let Some((locked, text)) = try_open(&real).map_err(failed)? {
                return Ok((Self { path: real, locked, first: text.is_none() }, text));
            }
        }
        Err(failed(StateCause::InUse))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Puts `text` in the place of what is there. When this fails, what is there stays.
    pub(super) fn replace(&mut self, text: &str) -> io::Result<()> {
        let new = new_path(&self.path);
        if self.first {
            self.locked.set_len(0)?;
            self.locked.rewind()?;
            write_durably(&mut self.locked, text)?;
            std::fs::rename(&new, &self.path)?;
            self.first = false;
            return sync_directory(&self.path);
        }
        match write_new(&new, text) {
            Ok(file) => {
                std::fs::rename(&new, &self.path)?;
                self.locked = file;
                sync_directory(&self.path)
            }
            Err(error) => {
                // The room that it has taken may be what others need; it may not even be there.
                let _ = std::fs::remove_file(&new);
                Err(error)
            }
        }
    }
}

impl Drop for StateFile {
    fn drop(&mut self) {
        if self.first {
            // Nothing was ever kept: nothing is left behind.
            let _ = std::fs::remove_file(new_path(&self.path));
        }
    }
}

/// Where a replacement is written.
fn new_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// The file and what is in it; none if it was replaced meanwhile.
fn try_open(path: &Path) -> Result<Option<(File, Option<String>)>, StateCause> {
    let io = |doing| move |error| StateCause::Io { doing, error };
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let mut file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return begin(path),
        Err(error) if error.kind() == ErrorKind::IsADirectory => return Err(StateCause::NotAFile),
        Err(error) => return Err(io("open it")(error)),
    };
    let metadata = file.metadata().map_err(io("look at it"))?;
    if !metadata.is_file() {
        return Err(StateCause::NotAFile);
    }
    take(&file)?;
    if !is_at(&file, path) {
        return Ok(None);
    }
    if metadata.len() > BYTES_MAX {
        return Err(StateCause::Foreign);
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(io("read it"))?;
    let text = String::from_utf8(bytes).map_err(|_| StateCause::Foreign)?;
    Ok(Some((file, Some(text))))
}

/// There is no file yet: whoever has the lock of the one that will take its place makes the first.
fn begin(path: &Path) -> Result<Option<(File, Option<String>)>, StateCause> {
    let new = new_path(path);
    let io = |doing| move |error| StateCause::Io { doing, error };
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).open(&new).map_err(io("make it"))?;
    take(&file)?;
    let ours = is_at(&file, &new) && !path.exists();
    Ok(ours.then_some((file, None)))
}

fn take(file: &File) -> Result<(), StateCause> {
    match lock(file, false) {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(StateCause::InUse),
        // A file system without locks: nothing keeps two processes apart there.
        Err(TryLockError::Error(error)) if error.raw_os_error() == Some(libc::ENOLCK) => Ok(()),
        Err(TryLockError::Error(error)) => Err(StateCause::Io { doing: "lock it", error }),
    }
}

/// Whether `file` is what is at `path`.
fn is_at(file: &File, path: &Path) -> bool {
    let there = std::fs::metadata(path);
    let ours = file.metadata();
    matches!((there, ours), (Ok(there), Ok(ours)) if (there.dev(), there.ino()) == (ours.dev(), ours.ino()))
}

/// A file with `text`, locked and durable.
fn write_new(path: &Path, text: &str) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).open(path)?;
    match take(&file) {
        Ok(()) => {}
        Err(StateCause::Io { error, .. }) => return Err(error),
        Err(_) => return Err(ErrorKind::WouldBlock.into()),
    }
    write_durably(&mut file, text)?;
    Ok(file)
}

fn write_durably(file: &mut File, text: &str) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Makes the name of `path` durable.
fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match File::open(parent.unwrap_or(Path::new(".")))?.sync_all() {
        // Some file systems can't, and keep names in order by other means.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        result => result,
    }
}
