//! One user of a store's file at a time.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::store::StoreError;

/// The most bytes of a lock's file that an error quotes.
const QUOTED_MAX: u64 = 200;

/// A lock that ends with the process, or when it is dropped. Its file stays, and says who has it.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of the store at `path`.
    pub(super) fn take(path: &Path) -> Result<Self, StoreError> {
        let beside = beside(path);
        let shown = |error: &dyn std::fmt::Display| StoreError::File {
            path: path.display().to_string(),
            reason: format!("{}: {error}", beside.display()),
        };
        let options = &mut OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&beside).map_err(|error| shown(&error))?;
        match file.try_lock() {
            Ok(()) => (),
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::Busy { path: path.display().to_string(), user: user(&mut file) });
            }
            Err(TryLockError::Error(error)) => return Err(shown(&error)),
        }
        // Only for people: the lock holds without these words, on a full disk for instance.
        let _ =
            file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(words().as_bytes()));
        Ok(Self { _file: file })
    }
}

/// The lock's file of a store.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// What this process says of itself.
fn words() -> String {
    let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("process {} ({}) on {}\n", std::process::id(), name.trim(), host.trim())
}

/// What the process that has the lock says of itself.
fn user(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let read = file.take(QUOTED_MAX).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    match read {
        Ok(_) if !text.is_empty() => text.escape_debug().to_string(),
        _ => "another process".to_owned(),
    }
}
