//! The tunnel's bytes through memory that both ends share, on one machine.
//!
//! The ends meet at a Unix socket. The dialling end makes the memory and passes its descriptor; the
//! rings in it are those of [`lines`]. The socket stays: a byte on it wakes an end that sleeps, and
//! the kernel closes it when the peer's process ends.

mod connection;
mod rings;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

use crate::sys::unix::{self, BindError};

pub use connection::Connection;
pub(crate) use rings::{Rings, ring};

/// The Unix socket at which far ends wait for hosts of the same machine.
pub struct Listener(unix::Listener);

impl Listener {
    /// Listens at `path`. A socket that no process listens on any more is replaced.
    ///
    /// # Errors
    /// When the path is too long, taken, or cannot be created.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        unix::Listener::bind(path).map(Self)
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The next host's connection, if one waits.
    ///
    /// # Errors
    /// When the process has no descriptors left for the connection; the host has been turned away.
    pub(crate) fn accept(&self) -> io::Result<Option<Connection>> {
        Ok(self.0.accept()?.map(Connection::accepted))
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listener({})", self.path().display())
    }
}
