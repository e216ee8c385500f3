//! Unix sockets with a name in the file system, over which descriptors can be passed.

mod connection;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::{self, File, Metadata, TryLockError};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use crate::sys::descriptors::{Door, OWN_HEADROOM};
use crate::sys::files::{Kind, Place, open_ours};
pub use connection::{Connection, DESCRIPTORS_MAX, Received, SendError};

/// The largest length of a socket's path in bytes, without the terminating zero: the kernel's
/// limit.
pub const PATH_MAX: usize = 107;

/// As many connections wait to be accepted as the system allows.
const BACKLOG: i32 = -1;

/// Why a listener could not be created.
#[derive(Debug)]
pub enum BindError {
    /// The path has this many bytes, more than [`PATH_MAX`].
    TooLong(usize),
    /// Another process listens at the path, or begins to.
    InUse,
    /// A file of this name exists and is no socket; it is left alone.
    NotASocket,
    /// The path's directory, given here, does not exist.
    NoDirectory(PathBuf),
    /// The system refused.
    Io(io::Error),
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(length) => {
                write!(f, "the path has {length} bytes, a socket's at most {PATH_MAX}")
            }
            Self::InUse => f.write_str("another process listens there already"),
            Self::NotASocket => f.write_str("a file of this name is there, and it is no socket"),
            Self::NoDirectory(path) => write!(f, "there is no directory {}", path.display()),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BindError {}

impl From<io::Error> for BindError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A Unix socket's listener that never blocks. Dropping the listener removes its name.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    path: PathBuf,
    /// Device and inode of the name, so that only our own name is removed.
    name: Option<(u64, u64)>,
    door: Door,
}

impl Listener {
    /// Listens at `path`. A socket that no process listens on any more is replaced.
    ///
    /// # Errors
    /// When the path is too long, taken, or cannot be created.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        Self::bind_as(path, None)
    }

    /// Listens at `path` like [`Listener::bind`], for this user alone.
    ///
    /// # Errors
    /// As of [`Listener::bind`].
    pub fn bind_for_owner(path: &Path) -> Result<Self, BindError> {
        Self::bind_as(path, Some(Mode::RUSR | Mode::WUSR))
    }

    fn bind_as(path: &Path, mode: Option<Mode>) -> Result<Self, BindError> {
        let length = path.as_os_str().len();
        if length > PATH_MAX {
            return Err(BindError::TooLong(length));
        }
        let _claim = Claim::new(path)?;
        let socket = match listen(path, mode) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                remove_stale(path)?;
                listen(path, mode)
            }
            result => result,
        };
        let socket = socket.map_err(|error| why_not(path, error))?;
        let name = name_of(path);
        Ok(Self { socket, path: path.to_owned(), name, door: Door::new(OWN_HEADROOM) })
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next client's connection, if one waits.
    ///
    /// # Errors
    /// When the process has no descriptors left for the connection; the waiting client has been
    /// turned away.
    pub fn accept(&self) -> io::Result<Option<Connection>> {
        self.door.admit(|| self.take())
    }

    fn take(&self) -> io::Result<Option<Connection>> {
        loop {
            match self.socket.accept() {
                Ok((socket, _)) => return Connection::new(socket).map(Some),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(None),
                    // The client has closed its connection already.
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let now = name_of(&self.path);
        if now.is_some() && now == self.name {
            // Another process may have removed the name first.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Makes a socket that listens at `path` and never blocks.
fn listen(path: &Path, mode: Option<Mode>) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    if let Some(mode) = mode {
        // The name takes the mode of the socket: at no moment may another user connect.
        fchmod(&socket, mode)?;
    }
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Holds the name of a socket for one process at a time, until that process listens there. Without
/// it, a process that finds a stale name could remove the new name of another that found it, too.
///
/// A lock on a file beside the socket holds it, so it ends with its process.
struct Claim {
    path: PathBuf,
    /// Closing it releases the lock.
    _file: File,
}

impl Claim {
    fn new(socket: &Path) -> Result<Self, BindError> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        let file = Place::of_name(&path).and_then(|place| open_ours(&place, Kind::Private));
        let file = file.map_err(|error| why_not(socket, error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(BindError::InUse),
            Err(TryLockError::Error(error)) => return Err(BindError::Io(error)),
        }
        // The process that held it meanwhile has removed this file, and others lock a new one.
        if name_of(&path) != Some(identity(&file.metadata()?)) {
            return Err(BindError::InUse);
        }
        Ok(Self { path, _file: file })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // A file that stays is locked by the next process.
        let _ = fs::remove_file(&self.path);
    }
}

/// Device and inode of a file.
fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Device and inode of the file with the name `path`.
fn name_of(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|metadata| identity(&metadata))
}

/// Removes the socket at `path` if no process listens on it. The caller has the name's [`Claim`].
fn remove_stale(path: &Path) -> Result<(), BindError> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(BindError::NotASocket);
    }
    match Connection::connect(path) {
        Ok(_) => Err(BindError::InUse),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(BindError::Io)
        }
        // A full queue means that the listener is alive.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(BindError::InUse),
        Err(error) => Err(BindError::Io(error)),
    }
}

fn why_not(path: &Path, error: io::Error) -> BindError {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    match error.kind() {
        io::ErrorKind::NotFound if !directory.is_dir() => BindError::NoDirectory(directory.to_owned()),
        _ => BindError::Io(error),
    }
}
