//! What namespaces are kept on in the live world.

pub mod file;

use std::io;
use std::os::fd::RawFd;

use nvme::media::{Completion, MediumId, Request};

pub use file::{FileMedium, Note, OpenError, Options, open};

/// The most media of one process.
pub const MEDIA_MAX: usize = 1024;

/// The media of a far end, by their names.
#[derive(Default)]
pub struct Media {
    files: Vec<FileMedium>,
}

impl Media {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a medium; its name is the number of those before it.
    ///
    /// # Panics
    /// When there are [`MEDIA_MAX`] already.
    pub fn add(&mut self, medium: FileMedium) -> MediumId {
        assert!(self.files.len() < MEDIA_MAX, "more than {MEDIA_MAX} media");
        self.files.push(medium);
        MediumId(u32::try_from(self.files.len() - 1).expect("media are few"))
    }

    /// Takes a request.
    ///
    /// # Panics
    /// When there is no such medium.
    pub fn submit(&mut self, request: Request) {
        self.files[request.medium.0 as usize].submit(request);
    }

    /// Hands over what has come of the requests, without waiting; returns how much was done, 0 when there is
    /// nothing to do until one of [`Media::poll_fds`] is readable.
    ///
    /// # Errors
    /// When io_uring itself fails, which a healthy kernel does not.
    pub fn reap(&mut self, out: &mut impl FnMut(Completion)) -> io::Result<usize> {
        self.files.iter_mut().try_fold(0, |done, medium| Ok(done + medium.reap(out)?))
    }

    /// Requests that have not ended.
    pub fn in_flight(&self) -> usize {
        self.files.iter().map(FileMedium::in_flight).sum()
    }

    /// The descriptors that become readable when `reap` has something to do.
    pub fn poll_fds(&self) -> impl Iterator<Item = RawFd> {
        self.files.iter().filter_map(FileMedium::poll_fd)
    }
}
