//! A file or block device that takes a recording.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::RawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use engine::Buffer;
use record::Fault;
use record::Input;
use rustix::fs::OFlags;

use crate::media::file::kernel::{CALLS_MAX, Call, Kernel};
use crate::sys::lock::lock;

use super::LOOKED_AT;

/// A file, and the writes that are under way or wait for their turn.
pub(in crate::drivers::record) struct FileSink {
    kernel: Kernel,
    /// The recorder's name of each call under way; `None` for a sync.
    names: Vec<Option<u64>>,
    free: Vec<u32>,
    waiting: VecDeque<(Option<u64>, Call)>,
    is_direct: bool,
}

impl FileSink {
    /// Opens a file of its own for a recording. Transfers bypass the page cache where the file
    /// system allows it. With `overwrite`, whatever was in the file is gone.
    ///
    /// # Errors
    /// The system's; `WouldBlock` if somebody else records there; `AlreadyExists` if there is
    /// something that was not to be overwritten.
    pub(super) fn create(path: &Path, overwrite: bool) -> io::Result<Self> {
        let open = |flags: OFlags| {
            let flags = flags.bits().cast_signed();
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .custom_flags(flags)
                .open(path)
        };
        let (file, is_direct): (File, _) = match open(OFlags::DIRECT) {
            Ok(file) => (file, true),
            Err(_) => (open(OFlags::empty())?, false),
        };
        lock(&file, false).map_err(io::Error::from)?;
        if !overwrite && holds_something(path)? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if !file.metadata()?.file_type().is_block_device() {
            file.set_len(0)?;
        }
        let (kernel, _) = Kernel::new(file, true);
        let names = vec![None; CALLS_MAX as usize];
        let free = (0..CALLS_MAX).rev().collect();
        Ok(Self { kernel, names, free, waiting: VecDeque::new(), is_direct })
    }

    /// Whether writes bypass the page cache.
    pub(super) const fn is_direct(&self) -> bool {
        self.is_direct
    }

    pub(super) fn poll_fd(&self) -> Option<RawFd> {
        self.kernel.poll_fd()
    }

    pub(super) fn write(&mut self, name: u64, offset: u64, data: Buffer) {
        self.waiting.push_back((Some(name), Call::Write { offset, data, durable: false }));
    }

    pub(super) fn sync(&mut self) {
        // It concerns writes that have ended, and need not wait for others.
        self.waiting.push_front((None, Call::Sync));
    }

    /// Starts what waits, as far as the kernel takes it.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        while let (Some(name), false) = (self.free.last().copied(), self.waiting.is_empty()) {
            let Some((own, call)) = self.waiting.pop_front() else { break };
            self.free.pop();
            self.names[name as usize] = own;
            self.kernel.start(name, call);
        }
        self.kernel.submit()
    }

    /// The next call that has ended, for the recorder.
    pub(super) fn next_ended(&mut self) -> Option<Input> {
        let (name, call, result) = self.kernel.next_ended()?;
        self.free.push(name);
        let own = self.names[name as usize].take();
        Some(match (call, own) {
            (Call::Write { data, .. }, Some(name)) => {
                let result = match result {
                    Ok(bytes) if bytes == data.len() => Ok(()),
                    // The rest did not fit: the next attempt tells why.
                    Ok(_) => Err(Fault::Full),
                    Err(error) => Err(fault(&error)),
                };
                Input::Written { name, result }
            }
            (_, _) => Input::Synced(result.map(drop).map_err(|error| fault(&error))),
        })
    }
}

fn fault(error: &io::Error) -> Fault {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => Fault::Full,
        _ => Fault::Failed,
    }
}

/// Whether the file or block device begins with anything but zeroes.
fn holds_something(path: &Path) -> io::Result<bool> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LOOKED_AT as u64).read_to_end(&mut bytes)?;
    Ok(bytes.iter().any(|byte| *byte != 0))
}
