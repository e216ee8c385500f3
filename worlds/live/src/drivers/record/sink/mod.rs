//! Where a recording is written to.

mod file;
mod medium;
mod stripes;

use std::io;
use std::os::fd::RawFd;
use std::path::Path;

use engine::{Buffer, Nanos};
use record::Input;

use super::far::Far;
use super::handle::Medium;
use file::FileSink;
pub use stripes::Refused;
pub(super) use stripes::Stripes;

/// Bytes at the start of a medium that show whether it is in use: a recording, a partition table
/// and most file systems begin there.
const LOOKED_AT: usize = 128 << 10;

/// A medium that takes a recording.
pub(super) struct Sink {
    kind: Kind,
    medium: Medium,
}

enum Kind {
    File(Box<FileSink>),
    Far(Box<Far>),
}

/// Which medium takes a recording.
#[derive(Debug)]
pub enum Target<'a> {
    /// A file or block device.
    Path(&'a Path),
    /// A namespace of another device.
    Far(Box<Far>),
}

impl Sink {
    /// Takes the medium for a recording from the address `first` on. The former content stays until
    /// [`Sink::empty`].
    ///
    /// # Errors
    /// The system's; `WouldBlock` if another process records there; `AlreadyExists` if the former
    /// content was not to be overwritten.
    pub(super) fn create(target: Target<'_>, overwrite: bool, first: u64) -> io::Result<Self> {
        match target {
            Target::Path(path) => {
                let kind = Kind::File(Box::new(FileSink::create(path, overwrite, first)?));
                Ok(Self { kind, medium: medium::of_path(path)? })
            }
            Target::Far(mut far) => {
                let mut start = vec![0; LOOKED_AT];
                let length = far.read_at(&mut start, first)?;
                match !overwrite && start[..length].iter().any(|byte| *byte != 0) {
                    true => Err(io::ErrorKind::AlreadyExists.into()),
                    false => {
                        let medium = Medium { bytes: far.bytes(), model: far.model().to_owned() };
                        Ok(Self { kind: Kind::Far(far), medium })
                    }
                }
            }
        }
    }

    /// Drops the former content, as far as the medium is not written over anyway.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn empty(&mut self) -> io::Result<()> {
        match &mut self.kind {
            Kind::File(file) => file.empty(),
            Kind::Far(_) => Ok(()),
        }
    }

    /// Only written places change, and a file that was made stays.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn keep(&mut self) -> io::Result<()> {
        match &mut self.kind {
            Kind::File(file) => file.keep(),
            Kind::Far(_) => Ok(()),
        }
    }

    /// The properties of the medium.
    pub(super) const fn medium(&self) -> &Medium {
        &self.medium
    }

    /// The length in bytes of a medium that can't grow.
    pub(super) fn bytes(&self) -> Option<u64> {
        match &self.kind {
            Kind::File(_) => None,
            Kind::Far(far) => Some(far.bytes()),
        }
    }

    /// Whether writes bypass the host's page cache.
    pub(super) const fn is_direct(&self) -> bool {
        match &self.kind {
            Kind::File(file) => file.is_direct(),
            Kind::Far(_) => true,
        }
    }

    /// Prepares for `bytes` bytes.
    pub(super) fn expect(&mut self, bytes: u64) {
        if let Kind::File(file) = &mut self.kind {
            file.expect(bytes);
        }
    }

    /// The descriptor that is readable when something has ended.
    pub(super) fn poll_fd(&self) -> Option<RawFd> {
        match &self.kind {
            Kind::File(file) => file.poll_fd(),
            Kind::Far(far) => Some(far.poll_fd()),
        }
    }

    /// After what time it has to be looked at, although its descriptor reports nothing.
    pub(super) fn patience(&self) -> Option<Nanos> {
        match &self.kind {
            Kind::File(file) => file.patience(),
            Kind::Far(far) => far.wake_in(),
        }
    }

    pub(super) fn write(&mut self, name: u64, offset: u64, data: Buffer) {
        match &mut self.kind {
            Kind::File(file) => file.write(name, offset, data),
            Kind::Far(far) => far.write(name, offset, data),
        }
    }

    pub(super) fn sync(&mut self) {
        match &mut self.kind {
            Kind::File(file) => file.sync(),
            Kind::Far(far) => far.sync(),
        }
    }

    /// Starts what waits, as far as the medium takes it; with `more`, once it is enough for a call
    /// of the system. Returns whether the medium may have more to do at once.
    pub(super) fn submit(&mut self, more: bool) -> io::Result<bool> {
        match &mut self.kind {
            Kind::File(file) => file.submit(more).map(|()| false),
            Kind::Far(far) => Ok(far.submit()),
        }
    }

    /// The next write or sync that has ended, for the recorder.
    pub(super) fn next_ended(&mut self) -> Option<Input> {
        match &mut self.kind {
            Kind::File(file) => file.next_ended(),
            Kind::Far(far) => far.next_ended(),
        }
    }
}
