//! Writes to memory that several threads use.

use std::sync::Arc;

use nvme::media::MediaError;

use super::table::{LOCKED_MAX, Locked, Run, address, alone, in_block, is_in_block, whole};
use super::{DEAD_MAX, MOVED_AT_ONCE, PAGE, RUN, RUN_PAGES, Shared, split};

/// How many pages wait at least before a thread looks which of them have no reader.
const RETIRED_MIN: usize = 256;
/// The most free pages that a thread keeps for itself.
const KEPT_MAX: usize = 256;
/// How many free pages a thread keeps of those.
const KEPT_AFTER: usize = 128;
/// The most free blocks that a thread keeps for itself.
const BLOCKS_KEPT_MAX: usize = 16;

/// What one thread needs to write.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// Free memory of this thread.
    pages: Vec<usize>,
    blocks: Vec<usize>,
    /// Pages and blocks that are out of the table, by name. They may have readers.
    retired: Vec<usize>,
    /// How many pages `retired` has, and from how many on the thread looks for readers.
    waiting: usize,
    look_at: usize,
    held: Vec<usize>,
    /// What the write that is being prepared will change.
    plans: Vec<Plan>,
}

/// The new entries of a run.
#[derive(Debug)]
struct Plan {
    run: usize,
    /// A bit for each entry that changes.
    changed: u16,
    entries: [usize; RUN_PAGES],
    /// The run's block afterwards, and its pages that were never in the table.
    block: usize,
    spare: u16,
    /// Whether the block is new.
    is_new: bool,
}

/// A part of a run, and its new contents; zeroes if there are none.
#[derive(Clone, Copy)]
struct Part<'a> {
    start: usize,
    end: usize,
    data: Option<&'a [u8]>,
}

/// The machine has no more memory.
struct NoMemory;

impl Part<'_> {
    fn pages(&self) -> u16 {
        pages_of(self.start, self.end)
    }

    /// Writes the part of the page into `page`, whose other bytes are there.
    fn fill(&self, number: usize, page: &mut [u8]) {
        let (from, to) = self.within(number);
        let into = &mut page[from..to];
        match self.data {
            Some(data) => into.copy_from_slice(&data[number * PAGE + from - self.start..][..to - from]),
            None => into.fill(0),
        }
    }

    /// The bytes of the page that the part covers.
    fn within(&self, number: usize) -> (usize, usize) {
        let page = number * PAGE;
        (self.start.max(page) - page, self.end.min(page + PAGE) - page)
    }

    fn covers(&self, number: usize) -> bool {
        self.within(number) == (0, PAGE)
    }
}

impl Writer {
    /// Writes `data` at `offset`, which other threads see at once as a whole.
    #[inline]
    pub(super) fn write(&mut self, shared: &Arc<Shared>, offset: u64, data: &[u8]) -> Result<(), MediaError> {
        shared.check(offset, data.len() as u64)?;
        let (mut offset, mut rest) = (offset, data);
        while !rest.is_empty() {
            // A command's data are fewer bytes than this.
            let (now, after) = rest.split_at(rest.len().min((LOCKED_MAX - 1) * RUN));
            self.change(shared, offset, now.len(), Some(now))?;
            (offset, rest) = (offset + now.len() as u64, after);
        }
        Ok(())
    }

    /// Makes a range read as zeroes, in parts of up to 32 runs that other threads see as a whole.
    /// Memory of whole pages is freed. Pages that are not whole need memory.
    pub(super) fn clear(&mut self, shared: &Arc<Shared>, offset: u64, length: u64) -> Result<(), MediaError> {
        let part = (LOCKED_MAX * RUN) as u64;
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let until = end.min((at / part + 1) * part);
            if shared.table.run(split(at).0).is_some() {
                let length = usize::try_from(until - at).unwrap_or_default();
                self.change(shared, at, length, None)?;
            }
            at = until;
        }
        Ok(())
    }

    /// Changes up to [`LOCKED_MAX`] runs at once.
    fn change(
        &mut self,
        shared: &Arc<Shared>,
        offset: u64,
        length: usize,
        data: Option<&[u8]>,
    ) -> Result<(), MediaError> {
        let (first, start) = split(offset);
        let last = split(offset + (length as u64 - 1)).0;
        let locked = shared.table.lock(first, last, data.is_some());
        if data.is_some() {
            // The length may have changed before the locks were taken.
            shared.check(offset, length as u64)?;
        }
        let mut at = 0;
        for run in first..=last {
            let start = if run == first { start } else { 0 };
            let count = (length - at).min(RUN - start);
            let part = Part { start, end: start + count, data: data.map(|data| &data[at..at + count]) };
            if let Some(of_table) = locked.run(run)
                && let Err(NoMemory) = self.prepare(shared, of_table, run, part)
            {
                self.give_up();
                return Err(MediaError::NoSpace);
            }
            at += count;
        }
        self.publish(&locked);
        drop(locked);
        if self.waiting >= self.look_at.max(RETIRED_MIN) {
            self.look(shared);
        }
        Ok(())
    }

    /// Plans the change of a run.
    fn prepare(
        &mut self,
        shared: &Shared,
        of_table: Run<'_>,
        run: usize,
        part: Part<'_>,
    ) -> Result<(), NoMemory> {
        let (block, spare) = of_table.block();
        self.plans.push(Plan { run, changed: 0, entries: [0; RUN_PAGES], block, spare, is_new: false });
        match part.data {
            None => self.prepare_zeroes(shared, of_table, part),
            Some(_) => {
                let pages = part.pages();
                let is_empty = || of_table.entries().iter().all(|entry| entry.load() == 0);
                if pages & !spare != 0 && (pages.count_ones() > MOVED_AT_ONCE || is_empty()) {
                    self.prepare_block(shared, of_table, part)
                } else {
                    self.prepare_pages(shared, of_table, part)
                }
            }
        }
    }

    fn plan(&mut self) -> &mut Plan {
        self.plans.last_mut().expect("`prepare` has begun one")
    }

    fn set(&mut self, page: usize, name: usize) {
        let plan = self.plan();
        plan.entries[page] = name;
        plan.changed |= 1 << page;
    }

    /// Plans to free whole pages, and zeroes the covered bytes of others.
    fn prepare_zeroes(&mut self, shared: &Shared, run: Run<'_>, part: Part<'_>) -> Result<(), NoMemory> {
        for page in numbers(part.pages()) {
            let before = run.entries()[page].load();
            if before == 0 {
                continue;
            }
            let name = if part.covers(page) { 0 } else { self.copy_page(shared, page, before, part)? };
            self.set(page, name);
        }
        Ok(())
    }

    /// Plans a new block for the run.
    fn prepare_block(&mut self, shared: &Shared, run: Run<'_>, part: Part<'_>) -> Result<(), NoMemory> {
        let block = self.take_block(shared)?;
        (self.plan().block, self.plan().spare, self.plan().is_new) = (block, u16::MAX, true);
        let written = part.pages();
        for page in 0..RUN_PAGES {
            let before = run.entries()[page].load();
            let is_written = written >> page & 1 == 1;
            if before == 0 && !is_written {
                continue;
            }
            // SAFETY: the page is in a block that this thread has just taken. No other thread knows
            // it, and no other reference leads to it.
            let bytes = unsafe { page_mut(block + page * PAGE) };
            if !(is_written && part.covers(page)) {
                fill_from(bytes, before);
            }
            if is_written {
                part.fill(page, bytes);
            }
            self.set(page, in_block(block, page));
            self.plan().spare &= !(1 << page);
        }
        Ok(())
    }

    /// Plans new pages beside the run's block, or in it where it has such that were never in the
    /// table. Then gives up a block of which too little is left.
    fn prepare_pages(&mut self, shared: &Shared, run: Run<'_>, part: Part<'_>) -> Result<(), NoMemory> {
        for page in numbers(part.pages()) {
            let before = run.entries()[page].load();
            let Plan { block, spare, .. } = *self.plan();
            let name = if spare >> page & 1 == 1 {
                // SAFETY: the page was never in the table, so that no reader knows it, and this
                // thread holds the lock of its run.
                let bytes = unsafe { page_mut(block + page * PAGE) };
                if !part.covers(page) {
                    bytes.fill(0);
                }
                part.fill(page, bytes);
                self.plan().spare &= !(1 << page);
                in_block(block, page)
            } else {
                self.copy_page(shared, page, before, part)?
            };
            self.set(page, name);
        }
        let Plan { block, spare, changed, entries, .. } = *self.plan();
        if block == 0 {
            return Ok(());
        }
        let after =
            |page: usize| if changed >> page & 1 == 1 { entries[page] } else { run.entries()[page].load() };
        let live = (0..RUN_PAGES).filter(|page| is_in_block(after(*page)));
        let dead = u16::BITS - spare.count_ones() - u32::try_from(live.clone().count()).unwrap_or(0);
        if dead > DEAD_MAX {
            let nothing = Part { start: 0, end: 0, data: None };
            for page in live {
                let name = self.copy_page(shared, page, after(page), nothing)?;
                self.set(page, name);
            }
            (self.plan().block, self.plan().spare) = (0, 0);
        }
        Ok(())
    }

    /// Makes a page by itself: a copy of the page `before`, with the new contents of the part.
    fn copy_page(
        &mut self,
        shared: &Shared,
        number: usize,
        before: usize,
        part: Part<'_>,
    ) -> Result<usize, NoMemory> {
        let page = self.take_page(shared)?;
        // SAFETY: this thread has just taken the page, and no other reference leads to it.
        let bytes = unsafe { page_mut(page) };
        let is_covered = part.pages() >> number & 1 == 1;
        if !(is_covered && part.covers(number)) {
            fill_from(bytes, before);
        }
        if is_covered {
            part.fill(number, bytes);
        }
        Ok(alone(page))
    }

    /// Carries out the plans, and retires what they replace.
    fn publish(&mut self, locked: &Locked<'_>) {
        let mut plans = std::mem::take(&mut self.plans);
        let run_of = |plan: &Plan| locked.run(plan.run).expect("a planned run is locked");
        plans.iter().for_each(|plan| run_of(plan).version().begin_change());
        for plan in &plans {
            let run = run_of(plan);
            let (block, spare) = run.block();
            for page in numbers(plan.changed) {
                let before = run.entries()[page].load();
                run.entries()[page].store(plan.entries[page]);
                if before != 0 && !is_in_block(before) {
                    self.retire(before, 1);
                }
            }
            let is_used = || run.entries().iter().any(|entry| whole(entry.load()) == in_block(block, 0));
            let mut after = (plan.block, plan.spare);
            if block != 0 && (block != plan.block || !is_used()) {
                self.retire(in_block(block, 0), RUN_PAGES);
                if block == plan.block {
                    after = (0, 0);
                }
            }
            if after != (block, spare) {
                run.set_block(after.0, after.1);
            }
        }
        plans.clear();
        self.plans = plans;
    }

    fn retire(&mut self, name: usize, pages: usize) {
        self.retired.push(name);
        self.waiting += pages;
    }

    /// Frees what was made for plans that are not carried out.
    #[cold]
    fn give_up(&mut self) {
        for plan in std::mem::take(&mut self.plans) {
            for page in numbers(plan.changed) {
                let name = plan.entries[page];
                if name != 0 && !is_in_block(name) {
                    self.pages.push(name);
                }
            }
            if plan.is_new {
                self.blocks.push(plan.block);
            }
        }
    }

    fn take_page(&mut self, shared: &Shared) -> Result<usize, NoMemory> {
        if self.pages.is_empty() {
            shared.memory.take_pages(&mut self.pages);
        }
        self.pages.pop().ok_or(NoMemory)
    }

    fn take_block(&mut self, shared: &Shared) -> Result<usize, NoMemory> {
        self.blocks.pop().or_else(|| shared.memory.take_block()).ok_or(NoMemory)
    }

    /// Frees what is out of the table and has no reader.
    #[cold]
    fn look(&mut self, shared: &Shared) {
        self.retired.append(&mut shared.left());
        let slots = shared.registry.held(&mut self.held);
        let mut waiting = 0;
        let Self { pages, blocks, retired, held, .. } = self;
        retired.retain(|name| {
            let is_held = held.binary_search(name).is_ok();
            match is_in_block(*name) {
                true if is_held => waiting += RUN_PAGES,
                false if is_held => waiting += 1,
                true => blocks.push(address(*name)),
                false => pages.push(address(*name)),
            }
            is_held
        });
        // A look costs as much as there are slots. Their number bounds what waits.
        (self.waiting, self.look_at) = (waiting, RETIRED_MIN.max(slots / 4) + 2 * waiting);
        if self.pages.len() > KEPT_MAX {
            shared.memory.give_pages(self.pages.drain(KEPT_AFTER..));
        }
        while self.blocks.len() > BLOCKS_KEPT_MAX
            && let Some(block) = self.blocks.pop()
        {
            shared.memory.give_block(block);
        }
    }

    /// Leaves everything to the other threads.
    pub(super) fn leave(&mut self, shared: &Shared) {
        shared.memory.give_pages(self.pages.drain(..));
        self.blocks.drain(..).for_each(|block| shared.memory.give_block(block));
        shared.left().append(&mut self.retired);
    }
}

/// The bytes of a page for writing.
///
/// # Safety
/// The page has this address, and no other reference leads to it.
unsafe fn page_mut<'a>(address: usize) -> &'a mut [u8] {
    // SAFETY: the caller promises that the page is there, and has no other reference.
    unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(address), PAGE) }
}

/// Fills a page with the contents of another one, or with zeroes. The caller holds the lock of the
/// run in whose entries the other page is.
fn fill_from(page: &mut [u8], before: usize) {
    if before == 0 {
        return page.fill(0);
    }
    // SAFETY: a page in the table does not change, and only the holder of its run's lock takes it
    // out.
    let before =
        unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(address(before)), PAGE) };
    page.copy_from_slice(before);
}

/// A bit for each page of the bytes from `start` to `end` of a run.
fn pages_of(start: usize, end: usize) -> u16 {
    if start == end {
        return 0;
    }
    let (first, last) = (start / PAGE, (end - 1) / PAGE);
    u16::MAX << first & u16::MAX >> (RUN_PAGES - 1 - last)
}

/// The numbers of the pages whose bits are set.
fn numbers(pages: u16) -> impl Iterator<Item = usize> + Clone {
    (0..RUN_PAGES).filter(move |page| pages >> page & 1 == 1)
}
