//! A file or block device that takes a recording.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use engine::{Buffer, Nanos};
use record::Fault;
use record::Input;
use rustix::fs::{FallocateFlags, OFlags, fcntl_getfl, fcntl_setfl};

use crate::drivers::record::storage::media;
use crate::media::file::kernel::{CALLS_MAX, Call, Kernel, allocate};
use crate::sys::files::{Kind, Place, open_or_make};
use crate::sys::lock::lock;

use super::LOOKED_AT;

/// The first space that a file is given ahead of its writes, in bytes. Each further one makes the
/// file four times as long: writes under way have to end first.
const AHEAD_FIRST: u64 = 16 << 20;
/// The most space that a file is given at once, in bytes.
const AHEAD_MAX: u64 = 1 << 30;

/// More space is asked for when a file has no more than this left, in bytes.
const LEAD: u64 = 128 << 20;
/// The kernel takes this many calls at once, while there are more to come: a virtual disk is
/// notified once for all of them.
const TOGETHER: usize = 8;
/// Calls that the kernel has refused for now are submitted again after this time.
const AGAIN: Nanos = Nanos::from_millis(1);
/// The most space that a recording of known size is given at its start, in bytes.
const EXPECTED_MAX: u64 = 4 << 30;

/// Space that a file has behind its writes. A write into such space needs no space of its own: the
/// kernel carries out many at once, each without waiting.
#[derive(Debug)]
struct Ahead {
    /// Whether the medium is a file.
    grows: bool,
    /// Where the space ends. `None` if there is no more.
    end: Option<u64>,
    is_under_way: bool,
    /// Where the last write ends.
    written: u64,
}

impl Ahead {
    /// The space to ask for, if it is time. Its offset and length in bytes.
    fn next(&self) -> Option<(u64, u64)> {
        let end = self.end.filter(|_| !self.is_under_way)?;
        let length = end.saturating_mul(3).clamp(AHEAD_FIRST, AHEAD_MAX);
        (self.written + (length / 2).min(LEAD) >= end).then_some((end, length))
    }
}

/// A file, and the writes that are under way or wait for their turn.
pub(in crate::drivers::record) struct FileSink {
    kernel: Kernel,
    /// The recorder's name of each call under way; `None` for a sync.
    names: Vec<Option<u64>>,
    free: Vec<u32>,
    waiting: VecDeque<(Option<u64>, Call)>,
    is_direct: bool,
    ahead: Ahead,
    is_file: bool,
    /// The file, if it was made for this recording and nothing was done with it.
    made: Option<Place>,
}

impl FileSink {
    /// Opens a file of its own for a recording. Transfers bypass the page cache where the file
    /// system allows it. The former content stays until [`FileSink::empty`].
    ///
    /// # Errors
    /// The system's; `WouldBlock` if another process records there; `AlreadyExists` if the former
    /// content was not to be overwritten.
    pub(super) fn create(path: &Path, overwrite: bool, first: u64) -> io::Result<Self> {
        media(path)?;
        let (made, file) = loop {
            let (file, made) = open_or_make(path, Kind::Private)?;
            lock(&file, false).map_err(io::Error::from)?;
            // The process that had locked it may have removed it since, because it did nothing with
            // it.
            if !is_removed(&file, path)? {
                // Or recorded to it.
                let made = made.filter(|_| file.metadata().is_ok_and(|found| found.len() == 0));
                break (made, file);
            }
        };
        if !overwrite && holds_something(&file, first)? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let direct = fcntl_getfl(&file).and_then(|flags| fcntl_setfl(&file, flags | OFlags::DIRECT));
        let is_direct = direct.is_ok();
        let is_file = !file.metadata()?.file_type().is_block_device();
        let ahead = Ahead { grows: false, end: None, is_under_way: false, written: 0 };
        let kernel = Kernel::cooperative(file);
        let names = vec![None; CALLS_MAX as usize];
        let free = (0..CALLS_MAX).rev().collect();
        Ok(Self { kernel, names, free, waiting: VecDeque::new(), is_direct, ahead, is_file, made })
    }

    /// The file stays after this call, even if the recording fails.
    ///
    /// # Errors
    /// When the name of a new file can't be made durable.
    pub(super) fn keep(&mut self) -> io::Result<()> {
        if let Some(place) = &self.made {
            place.sync_folder()?;
        }
        self.made = None;
        Ok(())
    }

    /// Drops the former content of the file.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn empty(&mut self) -> io::Result<()> {
        self.keep()?;
        if self.is_file {
            self.ahead.grows = true;
            let file = self.kernel.file();
            file.set_len(0)?;
            let begun = allocate(file, 0, AHEAD_FIRST, FallocateFlags::empty()).is_ok();
            self.ahead.end = begun.then_some(AHEAD_FIRST);
        }
        Ok(())
    }

    /// Whether writes bypass the page cache.
    pub(super) const fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Gives the file space for `bytes` bytes at once, as far as that is no more than
    /// [`EXPECTED_MAX`] and the file system has it.
    pub(super) fn expect(&mut self, bytes: u64) {
        if bytes <= LEAD {
            return;
        }
        // Headers and index take less than a 64th.
        let bytes = bytes.saturating_add(bytes / 64).min(EXPECTED_MAX) + LEAD;
        if let Some(end) = self.ahead.end.filter(|end| *end < bytes) {
            let given = allocate(self.kernel.file(), end, bytes - end, FallocateFlags::empty());
            self.ahead.end = given.map_or(Some(end), |()| Some(bytes));
        }
    }

    pub(super) fn poll_fd(&self) -> Option<RawFd> {
        self.kernel.poll_fd()
    }

    /// After what time it has to be looked at, although its descriptor reports nothing.
    pub(super) fn patience(&self) -> Option<Nanos> {
        (self.kernel.unsubmitted() > 0).then_some(AGAIN)
    }

    pub(super) fn write(&mut self, name: u64, offset: u64, data: Buffer) {
        self.ahead.written = self.ahead.written.max(offset + data.len() as u64);
        if let Some((offset, length)) = self.ahead.next() {
            self.ahead.is_under_way = true;
            let call = Call::Allocate { offset, length, mode: FallocateFlags::empty() };
            self.waiting.push_back((None, call));
        }
        self.waiting.push_back((Some(name), Call::Write { offset, data, durable: false }));
    }

    pub(super) fn sync(&mut self) {
        // It concerns writes that have ended, and need not wait for others.
        self.waiting.push_front((None, Call::Sync));
    }

    /// Starts the waiting calls, as far as the kernel takes them. With `more`, there are more to
    /// come, and the kernel takes several calls at once.
    pub(super) fn submit(&mut self, more: bool) -> io::Result<()> {
        while let (Some(name), false) = (self.free.last().copied(), self.waiting.is_empty()) {
            let Some((own, call)) = self.waiting.pop_front() else { break };
            self.free.pop();
            self.names[name as usize] = own;
            self.kernel.start(name, call);
        }
        if more && self.kernel.unsubmitted() < TOGETHER { Ok(()) } else { self.kernel.submit() }
    }

    /// The next call that has ended, for the recorder.
    pub(super) fn next_ended(&mut self) -> Option<Input> {
        let (name, call, result) = self.kernel.next_ended()?;
        self.free.push(name);
        let own = self.names[name as usize].take();
        Some(match (call, own) {
            (Call::Allocate { offset, length, .. }, _) => {
                self.ahead.is_under_way = false;
                self.ahead.end = result.ok().map(|_| offset + length);
                return self.next_ended();
            }
            (Call::Write { data, .. }, Some(name)) => {
                let result = match result {
                    Ok(bytes) if bytes == data.len() => Ok(()),
                    // The rest did not fit: the next attempt returns the reason.
                    Ok(_) => Err(Fault::Full),
                    Err(error) => Err(fault(&error)),
                };
                Input::Written { name, result }
            }
            (_, _) => Input::Synced(result.map(drop).map_err(|error| fault(&error))),
        })
    }
}

impl Drop for FileSink {
    /// Gives back the space behind the last write, after all writes have ended; or the file, if
    /// nothing was done with it.
    fn drop(&mut self) {
        self.kernel.finish();
        if let Some(place) = &self.made {
            // A recording that is refused leaves everything as it was.
            let _ = place.remove();
            return;
        }
        let (file, written) = (self.kernel.file(), self.ahead.written);
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        if self.ahead.grows && length > written {
            // Where this fails, a reader takes the rest for empty slots.
            let _ = file.set_len(written);
        }
    }
}

fn fault(error: &io::Error) -> Fault {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => Fault::Full,
        _ => Fault::Failed,
    }
}

/// Whether `file` was removed: no directory has it, and it is not at `path`.
fn is_removed(file: &File, path: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    let named = std::fs::metadata(path);
    Ok(own.nlink() == 0 && !named.is_ok_and(|named| (named.dev(), named.ino()) == (own.dev(), own.ino())))
}

/// Whether the file or block device has anything but zeroes from the address `first` on.
fn holds_something(file: &File, first: u64) -> io::Result<bool> {
    let mut bytes = vec![0; LOOKED_AT];
    let mut length = 0;
    while length < bytes.len() {
        match file.read_at(&mut bytes[length..], first + length as u64) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes[..length].iter().any(|byte| *byte != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_removed_while_its_lock_was_waited_for_is_recognised() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.rec");
        let file = File::create(&path).unwrap();
        assert!(!is_removed(&file, &path).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(is_removed(&file, &path).unwrap());
        let other = File::create(&path).unwrap();
        assert!(is_removed(&file, &path).unwrap(), "another one is there");
        assert!(!is_removed(&other, &path).unwrap());
    }

    #[test]
    fn writes_that_the_kernel_does_not_know_yet_are_not_slept_on() {
        let directory = tempfile::tempdir().unwrap();
        let mut sink = FileSink::create(&directory.path().join("a.rec"), false, 0).unwrap();
        sink.empty().unwrap();
        sink.write(0, 0, Buffer::copy_from_slice(&[7; 4096]));
        sink.submit(true).unwrap();
        let has_ring = sink.poll_fd().is_some();
        assert_eq!(sink.patience(), has_ring.then_some(AGAIN));
        sink.submit(false).unwrap();
        assert_eq!(sink.patience(), None);
    }
}
