//! A load on a namespace, in fio's words (what to do, how much at once, for how long), and its
//! result: rate, latency and errors.

use engine::{Instant, Nanos, Rng};
use live::drivers::controller::Completed;
use nvme::host::{Mismatch, Namespace};
use nvme::wire::IoOpcode;
use nvme_pcie::host::{Data, QueueId, Submission};

use crate::args::Workload;
use crate::distribution::Distribution;
use crate::error::Error;
use crate::protected::Protected;
use crate::session::Session;

/// Most chunks that a verified load may cover: each has a 4-byte note of its last write.
const VERIFIED_CHUNKS_MAX: u64 = 1 << 28;
/// How many chunks are tried before the load gives up finding a free one and waits for
/// a completion.
const PICKS_MAX: u32 = 8;

/// What a load does, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) namespace: Namespace,
    /// Who protects the namespace's blocks.
    pub(crate) protected: Protected,
    pub(crate) workload: Workload,
    /// Percent of reads in a load that reads and writes.
    pub(crate) reads: u8,
    /// Length of each command's data in bytes.
    pub(crate) bytes: u32,
    pub(crate) depth: u32,
    /// Commands to begin per second; none to begin a command whenever there is room.
    pub(crate) rate: Option<u32>,
    pub(crate) runtime: Nanos,
    /// Length in bytes of the part of the namespace that the load uses, which begins at its
    /// first block.
    pub(crate) range: u64,
    pub(crate) verify: bool,
    pub(crate) seed: u64,
}

impl Job {
    /// A load on all of `namespace`, whose blocks have no protection, with `bytes` in each command.
    pub(crate) fn plain(
        namespace: Namespace,
        workload: Workload,
        bytes: u32,
        depth: u32,
        runtime: Nanos,
    ) -> Self {
        Self {
            namespace,
            protected: Protected::No,
            workload,
            reads: 50,
            bytes,
            depth,
            rate: None,
            runtime,
            range: namespace.blocks * u64::from(namespace.block_bytes),
            verify: false,
            seed: 1,
        }
    }
}

/// The result of a load.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) latency: Distribution,
    pub(crate) commands: u64,
    pub(crate) bytes: u64,
    pub(crate) elapsed: Nanos,
    pub(crate) errors: u64,
    /// Status of the first command that failed, as text for people.
    pub(crate) first_error: Option<String>,
    /// Commands that were due and had not begun for lack of room when the load ended.
    pub(crate) late: u64,
    /// Reads whose data was compared with what had been written.
    pub(crate) compared: u64,
    /// Compared reads whose data was not what had been written, each named by byte and namespace.
    pub(crate) corrupt: Vec<String>,
    /// Why not everything that was written could be read back; none when it could.
    pub(crate) unverified: Option<Error>,
    /// Whether the user ended the load early. The figures are those until then, without the
    /// commands that were under way.
    pub(crate) interrupted: bool,
}

impl Report {
    /// Commands per second.
    pub(crate) fn iops(&self) -> f64 {
        rate(self.commands, self.elapsed)
    }
    /// Mebibytes per second.
    pub(crate) fn mib_s(&self) -> f64 {
        rate(self.bytes, self.elapsed) / f64::from(1 << 20)
    }
}

/// The rate per second of `count` in `elapsed`.
#[expect(clippy::cast_precision_loss, reason = "a rate for people: 53 bits are plenty")]
pub(crate) fn rate(count: u64, elapsed: Nanos) -> f64 {
    count as f64 * 1e9 / elapsed.get().max(1) as f64
}

/// The command under way in a slot.
#[derive(Clone, Copy, Debug)]
struct Under {
    chunk: u64,
    /// The note that the chunk gets when the write succeeds; none for a read.
    writes: Option<u32>,
    /// When the command was due to begin; none to count its latency from when it did begin.
    intended: Option<Instant>,
}

/// When the commands of a load with a rate are due to begin.
#[derive(Clone, Copy, Debug)]
struct Arrivals {
    start: Instant,
    rate: u32,
    /// Commands that have begun.
    begun: u64,
}

impl Arrivals {
    /// When the next command is due to begin.
    fn next(&self) -> Instant {
        let nanos = u128::from(self.begun) * 1_000_000_000 / u128::from(self.rate);
        self.start + Nanos::new(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Commands that were due to begin before `end` and have not.
    fn late(&self, end: Instant) -> u64 {
        let due = u128::from((end - self.start).get()) * u128::from(self.rate) / 1_000_000_000;
        u64::try_from(due).unwrap_or(u64::MAX).saturating_sub(self.begun)
    }
}

struct Runner<'a> {
    session: &'a mut Session,
    job: Job,
    chunks: u64,
    /// Number of I/O queues, which take turns.
    queues: u16,
    slots: Vec<Option<Under>>,
    free: Vec<usize>,
    base: u64,
    rng: Rng,
    next: u64,
    arrivals: Option<Arrivals>,
    /// Generation of the last write to each chunk; 0 for none. Empty unless verifying.
    notes: Vec<u32>,
    /// Whether each chunk has a command under way. Reads count too: two reads of a chunk might hide
    /// a write. Empty unless verifying.
    busy: Vec<bool>,
    generation: u32,
    report: Report,
}

/// Runs `job`, and tells `progress` now and then how long the load has been running, and how
/// many commands have ended well. When the user interrupts, the report says what was measured
/// until then.
pub(crate) fn run(
    session: &mut Session,
    job: Job,
    mut progress: impl FnMut(Nanos, u64),
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
    runner.report.late = runner.arrivals.map_or(0, |arrivals| arrivals.late(end.min(now)));
    runner.report.elapsed = now - start;
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
        let chunks = job.range / u64::from(job.bytes);
        let region = session.data_region();
        let depth = usize::try_from(job.depth).expect("32 bits fit");
        let queues = session.identity()?.queues.max(1);
        let mut rng = Rng::from_seed(job.seed);
        // Without --verify, commands write noise, so that nothing on the way can compress it.
        for slot in 0..depth {
            let address = region.base + slot as u64 * u64::from(job.bytes);
            session.put(Data { address, length: job.bytes }, |bytes| rng.fill(bytes));
        }
        let noted = if job.verify { usize::try_from(chunks).expect("checked above") } else { 0 };
        Ok(Self {
            session,
            job,
            chunks,
            queues,
            slots: vec![None; depth],
            free: (0..depth).rev().collect(),
            base: region.base,
            rng,
            next: 0,
            arrivals: None,
            notes: vec![0; noted],
            busy: vec![false; noted],
            generation: 0,
            report: Report {
                latency: Distribution::new(),
                commands: 0,
                bytes: 0,
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
        progress: &mut impl FnMut(Nanos, u64),
    ) -> Result<(), Error> {
        let mut told = start;
        loop {
            let now = self.session.now();
            if now >= end {
                break;
            }
            if now - told > Nanos::from_millis(100) {
                progress(now - start, self.report.commands);
                told = now;
            }
            let wanted = self.fill(now)?;
            self.reap(Some(wanted.map_or(end, |at| at.min(end))))?;
        }
        while self.under_way() > 0 {
            self.reap(None)?;
        }
        Ok(())
    }

    fn under_way(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn data(&self, slot: usize) -> Data {
        Data { address: self.base + slot as u64 * u64::from(self.job.bytes), length: self.job.bytes }
    }

    /// Where the protection information of a slot's data is, behind all slots' data.
    fn metadata(&self, slot: usize) -> Data {
        let length = self.job.protected.bytes(self.blocks());
        let data = self.slots.len() as u64 * u64::from(self.job.bytes);
        Data { address: self.base + data + slot as u64 * u64::from(length), length }
    }

    /// The blocks of a command.
    const fn blocks(&self) -> u32 {
        self.job.bytes / self.job.namespace.block_bytes
    }

    /// Begins the commands that are due by `now`, as far as there is room. Returns when the next
    /// command is due; none when there is no room.
    fn fill(&mut self, now: Instant) -> Result<Option<Instant>, Error> {
        while let Some(&slot) = self.free.last() {
            let intended = self.arrivals.map(|arrivals| arrivals.next());
            if intended.is_some_and(|at| at > now) {
                return Ok(intended);
            }
            let Some(chunk) = self.pick() else { return Ok(None) };
            let write = match self.job.workload {
                Workload::Read | Workload::RandRead => false,
                Workload::Write | Workload::RandWrite => true,
                Workload::Rw | Workload::RandRw => self.rng.below(100) >= u64::from(self.job.reads),
            };
            self.free.pop();
            if let Some(arrivals) = &mut self.arrivals {
                arrivals.begun += 1;
            }
            self.submit(slot, chunk, (write, intended))?;
        }
        Ok(None)
    }

    /// The next chunk to work on; none while the first [`PICKS_MAX`] that come up are all busy.
    fn pick(&mut self) -> Option<u64> {
        for _ in 0..PICKS_MAX {
            let chunk = match self.job.workload {
                Workload::Read | Workload::Write | Workload::Rw => {
                    let chunk = self.next;
                    self.next = (self.next + 1) % self.chunks;
                    chunk
                }
                _ => self.rng.below(self.chunks),
            };
            if !self.is_busy(chunk) {
                return Some(chunk);
            }
        }
        None
    }

    fn is_busy(&self, chunk: u64) -> bool {
        self.busy.get(index(chunk)).copied().unwrap_or(false)
    }

    fn submit(
        &mut self,
        slot: usize,
        chunk: u64,
        (write, intended): (bool, Option<Instant>),
    ) -> Result<(), Error> {
        let data = self.data(slot);
        let (id, blocks) = (self.job.namespace.id, self.blocks());
        let lba = chunk * u64::from(blocks);
        let writes = write.then(|| {
            // A note of 0 means that nothing was written.
            self.generation = self.generation.wrapping_add(1).max(1);
            self.generation
        });
        if let (Some(generation), true) = (writes, self.job.verify) {
            let seed = self.job.seed;
            self.session.put(data, |bytes| mark(bytes, seed, chunk, generation));
        }
        let metadata = self.metadata(slot);
        if write {
            self.job.protected.generate(self.session, lba, data, metadata);
        }
        if let Some(busy) = self.busy.get_mut(index(chunk)) {
            *busy = true;
        }
        self.slots[slot] = Some(Under { chunk, writes, intended });
        let (queue, cookie) = (self.queue(slot), slot as u64);
        let (command, submission) = match write {
            true => ("a write", Submission::on_blocks(IoOpcode::Write, queue, id, lba, blocks, data, cookie)),
            false => ("a read", Submission::on_blocks(IoOpcode::Read, queue, id, lba, blocks, data, cookie)),
        };
        self.session.submit(command, self.job.protected.submission(submission, metadata.address))
    }

    /// The I/O queue of a slot's commands: slots take turns on the queues.
    fn queue(&self, slot: usize) -> QueueId {
        let turn = slot % usize::from(self.queues);
        QueueId(1 + u16::try_from(turn).expect("a turn is less than the queues"))
    }

    /// Waits for a command to end, until `deadline`, then takes every other command that has ended.
    fn reap(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        let mut completed = self.session.next_completed(deadline)?;
        let now = self.session.now();
        while let Some(ended) = completed {
            self.on_completed(now, &ended);
            completed = self.session.poll_completed()?;
        }
        Ok(())
    }

    /// Records a command that was seen to end at `now`: its latency is the time that the
    /// load waited.
    fn on_completed(&mut self, now: Instant, ended: &Completed) {
        let slot = usize::try_from(ended.cookie).expect("slots are few");
        let Some(Under { chunk, writes, intended }) = self.slots[slot].take() else { return };
        self.free.push(slot);
        if let Some(busy) = self.busy.get_mut(index(chunk)) {
            *busy = false;
        }
        if !ended.status.is_success() {
            self.report.errors += 1;
            self.report.first_error.get_or_insert_with(|| ended.status.to_string());
            // The write may have taken effect or not: nothing may be said of the chunk any more.
            if writes.is_some() {
                self.note(chunk, 0);
            }
            return;
        }
        self.report.commands += 1;
        self.report.bytes += u64::from(self.job.bytes);
        self.report.latency.record(now - intended.unwrap_or(ended.submitted));
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
        let data = self.data(slot);
        let bytes = self.session.bytes(data);
        if let Some(at) = first_difference(bytes, self.job.seed, chunk, generation) {
            let offset = chunk * u64::from(self.job.bytes) + at as u64;
            self.report.corrupt.push(format!("byte {offset} of namespace {}", self.job.namespace.id.0));
            return;
        }
        let (lba, metadata) = (chunk * u64::from(self.blocks()), self.metadata(slot));
        if let Err(Mismatch { block, what }) = self.job.protected.check(self.session, lba, data, metadata) {
            let (lba, id) = (lba + u64::from(block), self.job.namespace.id.0);
            self.report.corrupt.push(format!("block {lba} of namespace {id}, where {what}"));
        }
    }

    /// Reads every chunk that was written once more, and compares it with what was written.
    fn read_back(&mut self, progress: &mut impl FnMut(Nanos, u64)) -> Result<(), Error> {
        let (latency, commands, bytes) =
            (self.report.latency.clone(), self.report.commands, self.report.bytes);
        let written: Vec<u64> = (0..self.chunks).filter(|chunk| self.notes[index(*chunk)] != 0).collect();
        let mut written = written.into_iter();
        let mut left = true;
        while left || self.under_way() > 0 {
            while let (true, Some(&slot)) = (left, self.free.last()) {
                match written.next() {
                    Some(chunk) => {
                        self.free.pop();
                        self.submit(slot, chunk, (false, None))?;
                    }
                    None => left = false,
                }
            }
            if self.under_way() > 0 {
                self.reap(None)?;
            }
            progress(self.job.runtime, commands);
        }
        // The figures are those of the load, not of its verification.
        (self.report.latency, self.report.commands, self.report.bytes) = (latency, commands, bytes);
        Ok(())
    }
}

fn index(chunk: u64) -> usize {
    usize::try_from(chunk).unwrap_or(usize::MAX)
}

fn check(session: &Session, job: &Job) -> Result<(), Error> {
    let limit = session.identity()?.transfer_bytes_max;
    let block = job.namespace.block_bytes;
    let bytes = u64::from(job.bytes);
    if job.bytes == 0 || !job.bytes.is_multiple_of(block) || job.bytes > limit {
        let expected = format!("a multiple of the block size {block}, {limit} at most");
        return Err(Error::Range { what: "--bs", value: bytes, expected });
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

fn pattern(seed: u64, chunk: u64, generation: u32) -> Rng {
    Rng::from_seed(seed ^ chunk.rotate_left(24) ^ (u64::from(generation) << 40))
}

/// Fills `bytes` with a pattern that only this write of this chunk has.
fn mark(bytes: &mut [u8], seed: u64, chunk: u64, generation: u32) {
    pattern(seed, chunk, generation).fill(bytes);
}

fn first_difference(bytes: &[u8], seed: u64, chunk: u64, generation: u32) -> Option<usize> {
    let mut rng = pattern(seed, chunk, generation);
    for (word, at) in bytes.chunks(8).zip((0..).step_by(8)) {
        if word != &rng.next_u64().to_le_bytes()[..word.len()] {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_of_one_write_of_one_chunk() {
        let mut bytes = [0; 4096];
        mark(&mut bytes, 1, 2, 3);
        assert_eq!(first_difference(&bytes, 1, 2, 3), None);
        for (seed, chunk, generation) in [(2, 2, 3), (1, 3, 3), (1, 2, 4)] {
            assert_eq!(first_difference(&bytes, seed, chunk, generation), Some(0));
        }
        bytes[4095] ^= 1;
        assert_eq!(first_difference(&bytes, 1, 2, 3), Some(4088));
    }

    #[test]
    fn commands_arrive_evenly() {
        let start = Instant::ZERO + Nanos::from_secs(5);
        let mut arrivals = Arrivals { start, rate: 4, begun: 0 };
        assert_eq!(arrivals.next(), start);
        arrivals.begun = 6;
        assert_eq!(arrivals.next(), start + Nanos::from_millis(1500));
        assert_eq!(arrivals.late(start + Nanos::from_secs(2)), 2);
        assert_eq!(arrivals.late(start), 0);
    }

    #[test]
    fn rates_are_a_second() {
        assert!((rate(500, Nanos::from_millis(500)) - 1_000.0).abs() < 1e-9);
    }
}
