//! The bytes of a file, a named pipe or standard input.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::{Feed, Intake, Took};

/// An open file.
pub(super) struct Opened {
    file: File,
    /// Whether a read may have to wait: not for a file or a block device.
    waits: bool,
}

impl Opened {
    /// # Errors
    /// When its kind can't be found out.
    pub(super) fn new(file: File) -> io::Result<Self> {
        let kind = file.metadata()?.file_type();
        Ok(Self { file, waits: !kind.is_file() && !kind.is_block_device() })
    }

    /// # Errors
    /// When it can't be opened, or is a directory.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let kind = std::fs::metadata(path)?.file_type();
        if kind.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        // A thread that waits for a writer in the call that opens a pipe notices no signal.
        let flags = if kind.is_fifo() { libc::O_NONBLOCK } else { 0 };
        Self::new(OpenOptions::new().read(true).custom_flags(flags).open(path)?)
    }
}

impl Feed for Opened {
    fn take(&mut self, intake: &mut Intake<'_, '_>) -> Took {
        let Self { file, waits } = self;
        intake.read(|_, room| {
            // A pipe without any writer yet reads as one whose writers have gone.
            if *waits && !is_ready(file.as_fd())? {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            file.read(room)
        })
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.waits.then(|| self.file.as_raw_fd())
    }
}

/// Whether a read ends at once.
fn is_ready(descriptor: BorrowedFd<'_>) -> io::Result<bool> {
    let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    Ok(rustix::event::poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0)
}
