//! Network namespaces, as `ip netns add` makes and names them.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The directory where `ip netns add` puts names.
const NAMES: &str = "/run/netns";

/// A network namespace, which exists at least as long as this value.
#[derive(Debug)]
pub struct Namespace(File);

impl Namespace {
    /// The path of the namespace that users call `name`: a name that `ip netns` knows, or a path
    /// such as `/proc/PID/ns/net`.
    pub fn path(name: &str) -> PathBuf {
        if name.contains('/') { PathBuf::from(name) } else { Path::new(NAMES).join(name) }
    }

    /// Opens the namespace that users call `name`, as [`Namespace::path`] finds it.
    ///
    /// # Errors
    /// When the namespace does not exist, or may not be opened.
    pub fn open(name: &str) -> io::Result<Self> {
        File::open(Self::path(name)).map(Self)
    }

    /// Runs `what` within the namespace, in a thread of its own; the calling thread stays where it
    /// is.
    ///
    /// # Errors
    /// When this process may not enter the namespace, or when `what` fails.
    pub fn within<T: Send>(&self, what: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?;
                what()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}
