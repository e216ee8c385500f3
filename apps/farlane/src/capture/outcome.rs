//! The outcome of a capture, for the program that has lent its file.

use std::fs::File;
use std::io::{self, Write};

use live::drivers::control::is_read;
use serde::{Deserialize, Serialize};

use captures::Tally;

/// How a capture has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Packets that passed.
    pub(crate) passed: u64,
    /// Packets that found no room.
    pub(crate) lost: u64,
    /// Bytes of the frames in the file.
    pub(crate) bytes: u64,
    /// The system's number of the error by which it has ended.
    pub(crate) error: Option<i32>,
}

impl Outcome {
    /// The outcome of `result` and `tally`; `result` has the bytes of all frames.
    pub(super) fn of(result: &io::Result<u64>, tally: Tally) -> Self {
        let bytes = result.as_ref().copied().unwrap_or(0);
        let error = result.as_ref().err().map(|error| error.raw_os_error().unwrap_or(EIO));
        Self { passed: tally.seen, lost: tally.lost, bytes, error }
    }

    /// The counts of written frames.
    pub(crate) const fn tally(&self) -> Tally {
        Tally { seen: self.passed, lost: self.lost }
    }
}

/// Input/output error, for errors without a number.
const EIO: i32 = 5;

/// A file that another program has lent, which listens at a pipe for the outcome. The daemon writes
/// no more after it has closed the pipe.
#[derive(Debug)]
pub(crate) struct Lent {
    file: File,
    listener: File,
}

impl Lent {
    /// The file, and the writing end of the pipe.
    ///
    /// # Errors
    /// When a descriptor can't be doubled.
    pub(crate) fn new(file: File, listener: &File) -> io::Result<Self> {
        Ok(Self { file, listener: listener.try_clone()? })
    }
}

impl Write for Lent {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if is_read(&self.listener) { self.file.write(bytes) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }
    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
