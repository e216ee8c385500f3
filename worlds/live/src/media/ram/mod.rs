//! Memory as a medium that several threads use, without a lock on a read.
//!
//! The medium consists of pages of 4 KiB, which a table names. A write makes new pages and puts
//! them into the table; pages that were in the table never change. A read hands out the pages
//! themselves, so that it copies nothing, and each read is a snapshot. `guard` says how readers
//! and writers agree.
//!
//! Pages that follow each other share a block of 64 KiB where possible, so that a long read has few
//! pieces:
//!
//! - The first write to a run of 16 pages gives the run a block. Pages of the block that were never
//!   in the table are written in place.
//! - A write of more than `MOVED_AT_ONCE` pages of a run that were written before makes a new
//!   block. A shorter one makes pages by themselves.
//! - A run whose block has more than `DEAD_MAX` replaced pages gives the block up: the block's
//!   other pages are copied to pages by themselves.

mod guard;
mod lender;
mod memory;
mod table;
#[cfg(test)]
mod tests;
mod write;

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use engine::{Buffer, Loan};
use nvme::media::ram::BYTES_MAX;
use nvme::media::{Completion, IoId, MediaError, Operation, Request};

use guard::{Registry, protect};
use lender::Pages;
use memory::Memory;
use table::{LOCKED_MAX, Table, address, is_in_block, whole};
use write::Writer;

use super::sync::{self, Arc, pause};

/// Length of a page in bytes.
const PAGE: usize = 4096;
/// Number of pages in a run.
const RUN_PAGES: usize = 16;
/// Length of a run in bytes.
const RUN: usize = RUN_PAGES * PAGE;
/// The most pages of a run that one write makes beside the run's block.
const MOVED_AT_ONCE: u32 = 4;
/// The most pages of a block that are neither in the table nor ready for their first contents.
const DEAD_MAX: u32 = 4;
/// How often a read tries without locks to see no half of a write.
const ATTEMPTS: u32 = 1000;

/// What all threads share.
#[derive(Debug)]
struct Shared {
    /// The length in bytes, which hardly ever changes.
    bytes: AtomicU64,
    table: Table,
    registry: Registry,
    memory: Memory,
    /// Pages and blocks that threads had taken out of the table and not freed when they ended.
    left: Mutex<Vec<usize>>,
}

/// Memory of this process that several threads use, each through a value of its own.
#[derive(Debug)]
pub struct SharedRam {
    shared: Arc<Shared>,
    pages: Rc<Pages>,
    writer: Writer,
    /// Zeroes for reads of what was never written.
    zeroes: Buffer,
    /// The pieces of the read that is being prepared, and the versions of its runs.
    pieces: Vec<Piece>,
    versions: Vec<(usize, Option<u64>)>,
}

/// A [`SharedRam`] on its way to another thread.
#[derive(Clone, Debug)]
pub struct SharedRamForLane(Arc<Shared>);

/// Adjacent bytes of a read, in a page, a block, or nowhere.
#[derive(Debug)]
struct Piece {
    /// The slot that protects the bytes; `None` for zeroes.
    loan: Option<Rc<Loan>>,
    address: usize,
    length: usize,
}

const fn assert_send<T: Send + Sync>() {}
const _: () = assert_send::<Shared>();

impl SharedRamForLane {
    /// The memory as this thread uses it.
    pub fn open(self) -> SharedRam {
        SharedRam::over(self.0)
    }
}

impl SharedRam {
    /// Memory of `bytes` zero bytes.
    ///
    /// # Panics
    /// When `bytes` is more than [`BYTES_MAX`].
    pub fn new(bytes: u64) -> Self {
        assert!(bytes <= BYTES_MAX, "shared memory of {bytes} B: at most {BYTES_MAX}");
        Self::over(Arc::new(Shared {
            bytes: AtomicU64::new(bytes),
            table: Table::new(BYTES_MAX),
            registry: Registry::new(),
            memory: Memory::default(),
            left: Mutex::default(),
        }))
    }

    fn over(shared: Arc<Shared>) -> Self {
        let (pages, zeroes) = (Pages::new(Arc::clone(&shared)), Buffer::zeroed(RUN));
        let (writer, pieces, versions) = (Writer::default(), Vec::new(), Vec::new());
        Self { shared, pages, writer, zeroes, pieces, versions }
    }

    /// The same memory for another thread.
    pub fn for_lane(&self) -> SharedRamForLane {
        SharedRamForLane(Arc::clone(&self.shared))
    }

    /// The length in bytes.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of memory that the pages occupy, those included that wait for their readers.
    pub fn resident_bytes(&self) -> usize {
        self.shared.memory.used_bytes()
    }

    /// Sets the length in bytes. Contents beyond a new end are lost, and added bytes read as
    /// zeroes.
    ///
    /// # Errors
    /// When the machine has no memory for the page at the new end. The length is then as before.
    ///
    /// # Panics
    /// When `bytes` is more than [`BYTES_MAX`].
    pub fn resize(&mut self, bytes: u64) -> Result<(), MediaError> {
        assert!(bytes <= BYTES_MAX, "shared memory of {bytes} B: at most {BYTES_MAX}");
        let before = self.shared.bytes.swap(bytes, Ordering::Relaxed);
        if bytes < before {
            // A writer that has checked its range under the old length holds its locks until it is
            // done; a later one sees the new length.
            self.shared.table.settle();
            let cleared = self.writer.clear(&self.shared, bytes, before - bytes);
            if cleared.is_err() {
                self.shared.bytes.store(before, Ordering::Relaxed);
            }
            return cleared;
        }
        Ok(())
    }

    /// Executes `request` at once and passes its completions to `complete`.
    #[inline]
    pub fn submit(&mut self, request: Request, complete: &mut impl FnMut(Completion)) {
        let id = request.id;
        let result = match request.operation {
            Operation::Read { offset, length } => self.read(id, offset, length, complete),
            Operation::Write { offset, data, durable: _ } => self.writer.write(&self.shared, offset, &data),
            Operation::Flush => Ok(()),
            Operation::WriteZeroes { offset, length, .. } | Operation::Deallocate { offset, length } => {
                let checked = self.shared.check(offset, length);
                checked.and_then(|()| self.writer.clear(&self.shared, offset, length))
            }
        };
        complete(Completion::Done { id, result });
    }

    #[inline]
    fn read(
        &mut self,
        id: IoId,
        offset: u64,
        length: u32,
        complete: &mut impl FnMut(Completion),
    ) -> Result<(), MediaError> {
        self.shared.check(offset, u64::from(length))?;
        let (run, start) = split(offset);
        if start / PAGE == (start + (length as usize).max(1) - 1) / PAGE {
            let data = self.take_page(run, start, length as usize);
            complete(Completion::Data { id, offset: 0, data });
            return Ok(());
        }
        if !self.take(offset, length as usize) {
            self.take_patiently(offset, length as usize);
        }
        let mut done = 0;
        for Piece { loan, address, length } in self.pieces.drain(..) {
            let data = match loan {
                // SAFETY: `take` has protected the page and checked its version afterwards, or has
                // held the lock of its run.
                Some(loan) => unsafe { Pages::lend(loan, address, length) },
                None => self.zeroes.slice(0..length),
            };
            complete(Completion::Data { id, offset: done, data });
            done += u32::try_from(length).unwrap_or(u32::MAX);
        }
        Ok(())
    }

    /// Takes bytes of a single page, which no writer changes by half.
    #[inline]
    fn take_page(&self, run: usize, start: usize, length: usize) -> Buffer {
        let Some(of_table) = self.shared.table.run(run) else { return self.zeroes.slice(0..length) };
        let entry = &of_table.entries()[start / PAGE];
        loop {
            let name = entry.load();
            if name == 0 {
                return self.zeroes.slice(0..length);
            }
            let loan = self.pages.take(whole(name));
            protect();
            if entry.is_still(name) {
                // SAFETY: the page was in the table after `protect`.
                return unsafe { Pages::lend(loan, address(name) + start % PAGE, length) };
            }
            // A write has replaced the page.
            self.pages.give(loan);
        }
    }

    /// Protects the pieces of a range. Returns whether they are from one moment; otherwise none is
    /// protected.
    #[inline]
    fn take(&mut self, offset: u64, length: usize) -> bool {
        self.versions.clear();
        if self.try_take(offset, length) {
            return true;
        }
        self.untake();
        false
    }

    #[inline]
    fn try_take(&mut self, offset: u64, length: usize) -> bool {
        let (mut run, mut start) = split(offset);
        let mut left = length;
        while left > 0 {
            let count = left.min(RUN - start);
            let Some(of_table) = self.shared.table.run(run) else {
                self.versions.push((run, None));
                push_zeroes(&mut self.pieces, count);
                (run, start, left) = (run + 1, 0, left - count);
                continue;
            };
            let Some(version) = of_table.version().begin_read() else { return false };
            self.versions.push((run, Some(version)));
            self.push_run(run, start, start + count);
            (run, start, left) = (run + 1, 0, left - count);
        }
        protect();
        let table = &self.shared.table;
        self.versions.iter().all(|(run, version)| match (table.run(*run), version) {
            (Some(run), Some(version)) => run.version().is_still(*version),
            (run, version) => run.is_none() && version.is_none(),
        })
    }

    /// Protects the pieces of a run from `start` to `end`.
    #[inline]
    fn push_run(&mut self, run: usize, start: usize, end: usize) {
        let Self { shared, pages, pieces, .. } = self;
        let Some(of_table) = shared.table.run(run) else { return };
        let entries = of_table.entries();
        let mut at = start;
        while at < end {
            let mut page = at / PAGE;
            let first = entries[page].load();
            let from = at;
            at = end.min((page + 1) * PAGE);
            if first == 0 {
                push_zeroes(pieces, at - from);
                continue;
            }
            let mut name = first;
            while at < end && is_in_block(first) {
                (page, name) = (page + 1, name + PAGE);
                if entries[page].load() != name {
                    break;
                }
                at = end.min((page + 1) * PAGE);
            }
            let loan = Some(pages.take(whole(first)));
            pieces.push(Piece { loan, address: address(first) + from % PAGE, length: at - from });
        }
    }

    fn untake(&mut self) {
        self.pieces.drain(..).filter_map(|piece| piece.loan).for_each(|loan| self.pages.give(loan));
    }

    /// Takes a range that writers change all the time.
    #[cold]
    fn take_patiently(&mut self, offset: u64, length: usize) {
        for attempt in 0..ATTEMPTS {
            pause(attempt);
            if self.take(offset, length) {
                return;
            }
        }
        let shared = Arc::clone(&self.shared);
        let (mut run, mut start) = split(offset);
        let last = split(offset + (length as u64).saturating_sub(1)).0;
        // Longer reads than a command can have are snapshots of parts.
        while run <= last {
            let end = last.min(run + LOCKED_MAX - 1);
            let locked = shared.table.lock(run, end, false);
            for one in run..=end {
                let until = if one == last { split_end(offset + length as u64) } else { RUN };
                match locked.run(one) {
                    Some(_) => self.push_run(one, start, until),
                    None => push_zeroes(&mut self.pieces, until - start),
                }
                start = 0;
            }
            protect();
            drop(locked);
            run = end + 1;
        }
    }
}

impl Drop for SharedRam {
    fn drop(&mut self) {
        self.writer.leave(&self.shared);
        self.pages.close();
    }
}

impl Shared {
    #[inline]
    fn check(&self, offset: u64, length: u64) -> Result<(), MediaError> {
        match offset.checked_add(length) {
            Some(end) if end <= self.bytes.load(Ordering::Relaxed) => Ok(()),
            _ => Err(MediaError::OutOfRange),
        }
    }

    fn left(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds zeroes to the pieces, up to the length of a run in one piece.
fn push_zeroes(pieces: &mut Vec<Piece>, length: usize) {
    match pieces.last_mut() {
        Some(last) if last.loan.is_none() && last.length + length <= RUN => last.length += length,
        _ => pieces.push(Piece { loan: None, address: 0, length }),
    }
}

/// The run with the byte at `offset`, and the byte's offset within the run.
#[inline]
fn split(offset: u64) -> (usize, usize) {
    let run = usize::try_from(offset / RUN as u64).expect("BYTES_MAX has fewer runs than an address space");
    (run, usize::try_from(offset % RUN as u64).unwrap_or_default())
}

/// The end within its run of a range that ends at `end`.
fn split_end(end: u64) -> usize {
    split(end - 1).1 + 1
}
