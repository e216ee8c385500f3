//! A load on a namespace, in fio's words (what to do, how much at once, for how long), and its
//! result: rate, latency and errors.

mod arrivals;
mod job;
mod marks;
mod report;
mod shuffle;
mod sizes;

use std::collections::VecDeque;

use distribution::Distribution;
use engine::{Instant, Nanos, Rng};
use live::drivers::controller::Completed;
use nvme::host::Mismatch;
use nvme::wire::IoOpcode;
use nvme_pcie::host::{Data, QueueId, Submission};

use crate::args::Workload;
use crate::error::Error;
use crate::session::Session;

use arrivals::Arrivals;
pub(crate) use job::Job;
use marks::{first_difference, mark};
pub(crate) use report::{Report, Sums, rate};
pub(crate) use sizes::Sizes;

/// Most chunks that a verified load may cover: each has a 4-byte note of its last write.
const VERIFIED_CHUNKS_MAX: u64 = 1 << 28;
/// How many chunks are tried before the load gives up finding a free one and waits for
/// a completion.
const PICKS_MAX: u32 = 8;

/// The operation under way in a slot.
#[derive(Clone, Copy, Debug)]
struct Under {
    /// Where it begins, in bytes, and how long it is.
    offset: u64,
    length: u32,
    /// The bytes whose commands were submitted.
    submitted: u32,
    /// Commands that have not ended.
    outstanding: u32,
    /// When its first command was submitted.
    begun: Instant,
    has_failed: bool,
    /// The note that the chunk gets when the write succeeds; none for a read.
    writes: Option<u32>,
    /// When the command was due to begin; none to count its latency from when it did begin.
    intended: Option<Instant>,
}

/// Where a job goes on, and how it chooses.
struct Cursor {
    rng: Rng,
    next: u64,
    /// Bytes that the job still has to begin with; none if its time ends it.
    left: Option<u64>,
}

struct Runner<'a> {
    session: &'a mut Session,
    job: Job,
    /// The longest operation, which is the place of each slot in memory.
    longest: u32,
    /// The longest command.
    limit: u32,
    /// Operations that have commands to be submitted.
    backlog: VecDeque<usize>,
    /// Commands under way.
    commands: u32,
    /// Chunks of a verified load.
    chunks: u64,
    /// Number of I/O queues, which take turns.
    queues: u16,
    slots: Vec<Option<Under>>,
    free: Vec<usize>,
    base: u64,
    cursors: Vec<Cursor>,
    arrivals: Option<Arrivals>,
    /// Generation of the last write to each chunk; 0 for none. Empty unless verifying.
    notes: Vec<u32>,
    /// Whether each chunk has a command under way. Reads count too: two reads of a chunk might hide
    /// a write. Empty unless verifying.
    busy: Vec<bool>,
    generation: u32,
    report: Report,
}

/// Runs `job`, and tells `progress` now and then how long the load has been running, and what
/// reads and writes have done. When the user interrupts, the report says what was measured
/// until then.
pub(crate) fn run(
    session: &mut Session,
    job: Job,
    mut progress: impl FnMut(Nanos, &[Sums; 2]),
) -> Result<Report, Error> {
    let mut runner = Runner::new(session, job)?;
    let start = runner.session.now();
    let end = start + job.runtime;
    runner.arrivals = job.rate.map(|rate| Arrivals { start, rate, begun: 0 });
    runner.report.interrupted = match runner.until(start, end, &mut progress) {
        Ok(()) => false,
        Err(Error::Interrupted) => true,
        Err(error) => return Err(error),
    };
    let now = runner.session.now();
    // Once every job has begun with its last byte, no more commands are due.
    let arrivals = runner.arrivals.filter(|_| runner.has_more());
    runner.report.late = arrivals.map_or(0, |arrivals| arrivals.late(end.min(now)));
    runner.report.elapsed = now - start;
    let [reads, writes] = &runner.report.kinds;
    let mut latency = reads.latency.clone();
    latency.merge(&writes.latency);
    let (commands, bytes) = (reads.operations + writes.operations, reads.bytes + writes.bytes);
    (runner.report.latency, runner.report.commands, runner.report.bytes) = (latency, commands, bytes);
    // An interrupted session has let go of its controller: nothing can be read back.
    if job.verify && !runner.report.interrupted {
        // The load's figures are worth telling even if the device has gone since.
        runner.report.unverified = runner.read_back(&mut progress).err();
    }
    Ok(runner.report)
}

impl<'a> Runner<'a> {
    fn new(session: &'a mut Session, job: Job) -> Result<Self, Error> {
        check(session, &job)?;
        let longest = job.sizes.longest();
        let chunks = job.range / u64::from(longest);
        let region = session.data_region();
        let depth = usize::try_from(job.depth * job.jobs).expect("32 bits fit");
        let limit = session.identity()?.transfer_bytes_max;
        let limit = limit - limit % job.namespace.block_bytes;
        let queues = session.identity()?.queues.max(1);
        let mut rng = Rng::from_seed(job.seed);
        // Without --verify, commands write noise, so that nothing on the way can compress it.
        for slot in 0..depth {
            let address = region.base + slot as u64 * u64::from(longest);
            session.put(Data { address, length: longest }, |bytes| rng.fill(bytes));
        }
        let left = job.bytes;
        let cursor = |job| Cursor {
            rng: if job == 0 { rng.clone() } else { Rng::from_seed(rng.clone().next_u64() ^ job) },
            next: 0,
            left,
        };
        let cursors = (0..u64::from(job.jobs)).map(cursor).collect();
        let noted = if job.verify { usize::try_from(chunks).expect("checked above") } else { 0 };
        Ok(Self {
            session,
            job,
            longest,
            limit,
            backlog: VecDeque::new(),
            commands: 0,
            chunks,
            queues,
            slots: vec![None; depth],
            free: (0..depth).rev().collect(),
            base: region.base,
            cursors,
            arrivals: None,
            notes: vec![0; noted],
            busy: vec![false; noted],
            generation: 0,
            report: Report {
                latency: Distribution::new(),
                commands: 0,
                bytes: 0,
                kinds: Default::default(),
                elapsed: Nanos::ZERO,
                errors: 0,
                first_error: None,
                late: 0,
                compared: 0,
                corrupt: Vec::new(),
                unverified: None,
                interrupted: false,
            },
        })
    }

    /// Keeps commands under way from `start` to `end`, and waits until the last of them has ended.
    fn until(
        &mut self,
        start: Instant,
        end: Instant,
        progress: &mut impl FnMut(Nanos, &[Sums; 2]),
    ) -> Result<(), Error> {
        let (mut told, mut now) = (start, start);
        while now < end && self.has_more() {
            if now - told > Nanos::from_millis(100) {
                progress(now - start, &self.report.kinds);
                told = now;
            }
            let wanted = self.fill(now)?;
            now = self.reap(Some(wanted.map_or(end, |at| at.min(end))))?;
        }
        while self.under_way() > 0 {
            self.reap(None)?;
        }
        Ok(())
    }

    /// Whether any job has more to begin with.
    fn has_more(&self) -> bool {
        self.cursors.iter().any(|cursor| cursor.left != Some(0))
    }

    /// The number of the job that a slot belongs to.
    fn job_of(&self, slot: usize) -> usize {
        slot / usize::try_from(self.job.depth).expect("32 bits fit")
    }

    fn under_way(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn data(&self, slot: usize, length: u32) -> Data {
        Data { address: self.base + slot as u64 * u64::from(self.longest), length }
    }

    /// Where the protection information of a slot's data is, behind all slots' data.
    fn metadata(&self, slot: usize, length: u32) -> Data {
        let room = self.job.protected.bytes(self.blocks(self.longest));
        let data = self.slots.len() as u64 * u64::from(self.longest);
        let address = self.base + data + slot as u64 * u64::from(room);
        Data { address, length: self.job.protected.bytes(self.blocks(length)) }
    }

    const fn blocks(&self, bytes: u32) -> u32 {
        bytes / self.job.namespace.block_bytes
    }

    /// The chunk of a verified load that begins at `offset`: its operations have one length.
    fn chunk(&self, offset: u64) -> u64 {
        offset / u64::from(self.longest)
    }

    /// Begins the commands that are due by `now`, as far as there is room. Returns when the next
    /// command is due; none when there is no room.
    fn fill(&mut self, now: Instant) -> Result<Option<Instant>, Error> {
        while let Some(at) =
            self.free.iter().rposition(|slot| self.cursors[self.job_of(*slot)].left != Some(0))
        {
            let slot = self.free[at];
            let intended = self.arrivals.map(|arrivals| arrivals.next());
            if intended.is_some_and(|at| at > now) {
                return Ok(intended);
            }
            let cursor = self.job_of(slot);
            let Some(place) = self.pick(cursor) else { return Ok(None) };
            let write = match self.job.workload {
                Workload::Read | Workload::RandRead => false,
                Workload::Write | Workload::RandWrite => true,
                Workload::Rw | Workload::RandRw => {
                    self.cursors[cursor].rng.below(100) >= u64::from(self.job.reads)
                }
            };
            self.free.remove(at);
            if let Some(left) = &mut self.cursors[cursor].left {
                *left = left.saturating_sub(u64::from(place.1));
            }
            if let Some(arrivals) = &mut self.arrivals {
                arrivals.begun += 1;
            }
            self.begin(now, slot, place, (write, intended))?;
        }
        Ok(None)
    }

    /// Where a job works next, and on how many bytes; none while the first [`PICKS_MAX`] places
    /// that come up are all busy.
    fn pick(&mut self, cursor: usize) -> Option<(u64, u32)> {
        for _ in 0..PICKS_MAX {
            let (range, index, cursor) = (self.job.range, cursor as u64, &mut self.cursors[cursor]);
            let length = self.job.sizes.draw(&mut cursor.rng);
            let bytes = u64::from(length);
            let offset = match self.job.workload {
                Workload::Read | Workload::Write | Workload::Rw => {
                    let offset = if cursor.next + bytes > range { 0 } else { cursor.next };
                    cursor.next = offset + bytes;
                    offset
                }
                // Each place once, which takes operations of one length.
                _ if cursor.left.is_some() && self.job.sizes.is_one() => {
                    let count = range / bytes;
                    let (round, place) = (cursor.next / count, cursor.next % count);
                    cursor.next += 1;
                    shuffle::place(place, count, self.job.seed ^ round ^ index << 32) * bytes
                }
                _ => cursor.rng.below(range / bytes) * bytes,
            };
            if !self.is_busy(self.chunk(offset)) {
                return Some((offset, length));
            }
        }
        None
    }

    fn is_busy(&self, chunk: u64) -> bool {
        self.busy.get(index(chunk)).copied().unwrap_or(false)
    }

    /// Begins an operation in a free slot.
    fn begin(
        &mut self,
        now: Instant,
        slot: usize,
        (offset, length): (u64, u32),
        (write, intended): (bool, Option<Instant>),
    ) -> Result<(), Error> {
        let (data, chunk) = (self.data(slot, length), self.chunk(offset));
        let lba = offset / u64::from(self.job.namespace.block_bytes);
        let writes = write.then(|| {
            // A note of 0 means that nothing was written.
            self.generation = self.generation.wrapping_add(1).max(1);
            self.generation
        });
        if let (Some(generation), true) = (writes, self.job.verify) {
            let seed = self.job.seed;
            self.session.put(data, |bytes| mark(bytes, seed, chunk, generation));
        }
        if write {
            let metadata = self.metadata(slot, length);
            self.job.protected.generate(self.session, lba, data, metadata);
        }
        if let Some(busy) = self.busy.get_mut(index(chunk)) {
            *busy = true;
        }
        self.slots[slot] = Some(Under {
            offset,
            length,
            submitted: 0,
            outstanding: 0,
            begun: now,
            has_failed: false,
            writes,
            intended,
        });
        self.backlog.push_back(slot);
        self.advance(now)
    }

    /// Submits commands of operations that have some left, as far as there is room.
    fn advance(&mut self, now: Instant) -> Result<(), Error> {
        while self.commands < self.job.commands
            && let Some(slot) = self.backlog.front().copied()
        {
            let Some(under) = self.slots[slot].filter(|under| under.submitted < under.length) else {
                self.backlog.pop_front();
                continue;
            };
            let at = under.submitted;
            let length = (under.length - at).min(self.limit);
            let lba = (under.offset + u64::from(at)) / u64::from(self.job.namespace.block_bytes);
            let place = Data { address: self.data(slot, 0).address + u64::from(at), length };
            let ahead = self.job.protected.bytes(self.blocks(at));
            let metadata = self.metadata(slot, 0).address + u64::from(ahead);
            let (queue, cookie) = (self.queue(slot), slot as u64);
            let (command, opcode) = match under.writes {
                Some(_) => ("a write", IoOpcode::Write),
                None => ("a read", IoOpcode::Read),
            };
            let (id, blocks) = (self.job.namespace.id, self.blocks(length));
            let submission = Submission::on_blocks(opcode, queue, id, lba, blocks, place, cookie);
            let submission = self.job.protected.submission(submission, metadata);
            self.session.submit_at(now, command, submission)?;
            self.commands += 1;
            self.slots[slot] =
                Some(Under { submitted: at + length, outstanding: under.outstanding + 1, ..under });
        }
        Ok(())
    }

    /// The I/O queue of a slot's commands: slots take turns on the queues.
    fn queue(&self, slot: usize) -> QueueId {
        let turn = slot % usize::from(self.queues);
        QueueId(1 + u16::try_from(turn).expect("a turn is less than the queues"))
    }

    /// Waits for a command to end, until `deadline`, then takes every other command that has ended.
    /// Returns the time at which that was: reading the clock again would delay what is next.
    fn reap(&mut self, deadline: Option<Instant>) -> Result<Instant, Error> {
        let mut completed = self.session.next_completed(deadline)?;
        let now = self.session.now();
        while let Some(ended) = completed {
            self.on_completed(now, &ended);
            completed = self.session.poll_completed()?;
        }
        self.advance(now)?;
        Ok(now)
    }

    /// Records a command that was seen to end at `now`: its latency is the time that the
    /// load waited.
    fn on_completed(&mut self, now: Instant, ended: &Completed) {
        let slot = usize::try_from(ended.cookie).expect("slots are few");
        let Some(mut under) = self.slots[slot] else { return };
        self.commands -= 1;
        under.outstanding -= 1;
        if !ended.status.is_success() {
            under.has_failed = true;
            self.report.first_error.get_or_insert_with(|| ended.status.to_string());
        }
        if under.outstanding > 0 || under.submitted < under.length && !under.has_failed {
            self.slots[slot] = Some(under);
            return;
        }
        self.slots[slot] = None;
        let Under { offset, length, writes, intended, begun, has_failed, .. } = under;
        let chunk = self.chunk(offset);
        self.free.push(slot);
        if let Some(busy) = self.busy.get_mut(index(chunk)) {
            *busy = false;
        }
        if has_failed {
            self.report.errors += 1;
            // The write may have taken effect or not: nothing may be said of the chunk any more.
            if writes.is_some() {
                self.note(chunk, 0);
            }
            return;
        }
        let sums = &mut self.report.kinds[usize::from(writes.is_some())];
        sums.operations += 1;
        sums.bytes += u64::from(length);
        // An operation of one command has begun when the command was submitted.
        let begun = if length <= self.limit { ended.submitted } else { begun };
        sums.latency.record(now - intended.unwrap_or(begun));
        match writes {
            Some(generation) => self.note(chunk, generation),
            None => self.compare(slot, chunk),
        }
    }

    fn note(&mut self, chunk: u64, generation: u32) {
        if let Some(note) = self.notes.get_mut(index(chunk)) {
            *note = generation;
        }
    }

    fn compare(&mut self, slot: usize, chunk: u64) {
        let Some(&generation) = self.notes.get(index(chunk)).filter(|generation| **generation != 0) else {
            return;
        };
        self.report.compared += 1;
        let data = self.data(slot, self.longest);
        let bytes = self.session.bytes(data);
        if let Some(at) = first_difference(bytes, self.job.seed, chunk, generation) {
            let offset = chunk * u64::from(self.longest) + at as u64;
            self.report.corrupt.push(format!("byte {offset} of namespace {}", self.job.namespace.id.0));
            return;
        }
        let lba = chunk * u64::from(self.blocks(self.longest));
        let metadata = self.metadata(slot, self.longest);
        if let Err(Mismatch { block, what }) = self.job.protected.check(self.session, lba, data, metadata) {
            let (lba, id) = (lba + u64::from(block), self.job.namespace.id.0);
            self.report.corrupt.push(format!("block {lba} of namespace {id}, where {what}"));
        }
    }

    /// Reads every chunk that was written once more, and compares it with what was written.
    fn read_back(&mut self, progress: &mut impl FnMut(Nanos, &[Sums; 2])) -> Result<(), Error> {
        let kinds = self.report.kinds.clone();
        let written: Vec<u64> = (0..self.chunks).filter(|chunk| self.notes[index(*chunk)] != 0).collect();
        let mut written = written.into_iter();
        let mut left = true;
        while left || self.under_way() > 0 {
            while let (true, Some(&slot)) = (left, self.free.last()) {
                match written.next() {
                    Some(chunk) => {
                        self.free.pop();
                        let (now, place) =
                            (self.session.now(), (chunk * u64::from(self.longest), self.longest));
                        self.begin(now, slot, place, (false, None))?;
                    }
                    None => left = false,
                }
            }
            if self.under_way() > 0 {
                self.reap(None)?;
            }
            progress(self.job.runtime, &kinds);
        }
        // The figures are those of the load, not of its verification.
        self.report.kinds = kinds;
        Ok(())
    }
}

fn index(chunk: u64) -> usize {
    usize::try_from(chunk).unwrap_or(usize::MAX)
}

fn check(session: &Session, job: &Job) -> Result<(), Error> {
    let limit = session.identity()?.transfer_bytes_max;
    let block = job.namespace.block_bytes;
    let bytes = u64::from(job.sizes.longest());
    if let Some(wrong) = job.sizes.each().find(|bytes| *bytes == 0 || !bytes.is_multiple_of(block)) {
        let expected = format!("a multiple of the block size {block}");
        return Err(Error::Range { what: "--bs", value: wrong.into(), expected });
    }
    if limit < block {
        let expected = format!("at least the block size {block}");
        return Err(Error::Range {
            what: "the controller's largest transfer",
            value: limit.into(),
            expected,
        });
    }
    let size = job.namespace.blocks * u64::from(block);
    if job.range < bytes || job.range > size {
        let expected = format!("at least --bs and at most the namespace's {size} bytes");
        return Err(Error::Range { what: "--size", value: job.range, expected });
    }
    if job.verify && job.range / bytes > VERIFIED_CHUNKS_MAX {
        let expected = format!("at most {} bytes with --verify", VERIFIED_CHUNKS_MAX.saturating_mul(bytes));
        return Err(Error::Range { what: "--size", value: job.range, expected });
    }
    Ok(())
}
