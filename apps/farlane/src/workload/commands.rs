//! The commands of operations: their submission, and their ends.

use engine::Instant;
use live::client::Completed;
use nvme::host::Mismatch;
use nvme::wire::{DatasetRange, IoOpcode, SubmissionQueueEntry};
use nvme_pcie::host::{Data, QueueId, Submission};

use super::book::Book;
use super::job::{Job, Kind};
use super::marks::{first_difference, mark};
use super::stream::Operation;
use super::{Runner, Under};
use crate::error::Error;

/// Force Unit Access, in command dword 12 of reads and writes.
const FORCED: u32 = 1 << 30;
/// Attribute - Deallocate, in command dword 11 of Dataset Management.
const DEALLOCATE: u32 = 1 << 2;

impl<'a> Runner<'a> {
    fn job_of(&self, slot: usize) -> &'a Job {
        &self.run.jobs[self.streams[self.slots[slot].stream].job]
    }

    fn book_of(&self, slot: usize) -> Option<&'a Book> {
        self.run.books.get(self.streams[self.slots[slot].stream].book?)
    }

    fn data(&self, slot: usize, length: u32) -> Data {
        Data { address: self.slots[slot].data, length }
    }

    /// Where the protection information of a slot's data is.
    fn metadata(&self, slot: usize, length: u32) -> Data {
        let job = self.job_of(slot);
        let length = job.protected.bytes(length / job.namespace.block_bytes);
        Data { address: self.slots[slot].metadata, length }
    }

    /// Begins an operation in a free slot. The operation has its chunk of the book.
    pub(super) fn begin(&mut self, now: Instant, at: usize, operation: Operation) -> Result<(), Error> {
        let slot = self.streams[at].free.pop().expect("there is a free slot");
        let job = self.job_of(slot);
        let Operation { kind, offset, length, .. } = operation;
        let data = self.data(slot, length);
        let mut generation = 0;
        match (kind, self.book_of(slot)) {
            (Kind::Flush, _) => {}
            (Kind::Write, Some(book)) => {
                generation = book.next_generation();
                let (seed, chunk) = (book.seed, book.chunk_at(offset));
                self.session.put(data, |bytes| mark(bytes, seed, chunk, generation));
            }
            (Kind::Write, None) if job.contents.is_fresh() => {
                let rng = &mut self.rng;
                self.session.put(data, |bytes| job.contents.fill(bytes, rng));
            }
            _ => {}
        }
        match kind {
            Kind::Write => {
                let lba = offset / u64::from(job.namespace.block_bytes);
                let metadata = self.metadata(slot, length);
                job.protected.generate(self.session, lba, data, metadata);
            }
            Kind::Trim => self.put_ranges(at, slot, operation),
            Kind::Read | Kind::Flush => {}
        }
        self.slots[slot].under = Some(Under {
            operation,
            submitted: 0,
            outstanding: 0,
            begun: now,
            has_failed: false,
            generation,
        });
        self.backlog.push_back(slot);
        self.advance(now)
    }

    /// Writes the ranges of a trim to its place in memory.
    fn put_ranges(&mut self, at: usize, slot: usize, operation: Operation) {
        let job = self.job_of(slot);
        let block = job.namespace.block_bytes;
        let further = self.streams[at].further_ranges(job, operation.length);
        let data = self.data(slot, 16 * job.ranges);
        self.session.put(data, |bytes| {
            let places = std::iter::once(operation.offset).chain(further);
            for (place, bytes) in places.zip(bytes.chunks_exact_mut(DatasetRange::LENGTH)) {
                let (starting_lba, blocks) = (place / u64::from(block), operation.length / block);
                let mut range = [0; DatasetRange::LENGTH];
                DatasetRange { context: 0, blocks, starting_lba }.emit(&mut range);
                bytes.copy_from_slice(&range);
            }
        });
    }

    /// Submits commands of operations that have some left, as far as there is room.
    fn advance(&mut self, now: Instant) -> Result<(), Error> {
        while self.commands < self.run.jobs[0].commands
            && let Some(slot) = self.backlog.front().copied()
        {
            let is_left = |under: &Under| {
                under.submitted < under.operation.length
                    || under.operation.length == 0 && under.outstanding == 0
            };
            let Some(under) = self.slots[slot].under.filter(is_left) else {
                self.backlog.pop_front();
                continue;
            };
            let (command, submission, submitted) = self.submission(slot, &under);
            self.session.submit_at(now, command, submission)?;
            self.commands += 1;
            self.slots[slot].under = Some(Under { submitted, outstanding: under.outstanding + 1, ..under });
        }
        Ok(())
    }

    /// The next command of an operation, its name, and the bytes that are then submitted.
    fn submission(&self, slot: usize, under: &Under) -> (&'static str, Submission, u32) {
        let job = self.job_of(slot);
        let Operation { kind, offset, length, is_check, .. } = under.operation;
        let (queue, cookie, id) = (self.queue(slot), slot as u64, job.namespace.id);
        let (command, opcode) = match kind {
            Kind::Read => ("a read", IoOpcode::Read),
            Kind::Write => ("a write", IoOpcode::Write),
            Kind::Flush => return ("a Flush", Submission::flush(queue, id, cookie), length),
            Kind::Trim => {
                let entry = SubmissionQueueEntry {
                    opcode: IoOpcode::DatasetManagement.into(),
                    namespace: id,
                    cdw10: job.ranges - 1,
                    cdw11: DEALLOCATE,
                    ..SubmissionQueueEntry::default()
                };
                let data = Some(self.data(slot, 16 * job.ranges));
                return ("Dataset Management", Submission { queue, entry, data, cookie }, length);
            }
        };
        let (at, block) = (under.submitted, job.namespace.block_bytes);
        let part = (length - at).min(self.limit);
        let lba = (offset + u64::from(at)) / u64::from(block);
        let place = Data { address: self.slots[slot].data + u64::from(at), length: part };
        let metadata = self.slots[slot].metadata + u64::from(job.protected.bytes(at / block));
        let mut submission = Submission::on_blocks(opcode, queue, id, lba, part / block, place, cookie);
        if job.durable.forced[kind as usize] && !is_check {
            submission.entry.cdw12 |= FORCED;
        }
        (command, job.protected.submission(submission, metadata), at + part)
    }

    /// The I/O queue of a slot's commands: slots take turns on the queues.
    fn queue(&self, slot: usize) -> QueueId {
        let turn = slot % usize::from(self.queues);
        QueueId(1 + u16::try_from(turn).expect("a turn is less than the queues"))
    }

    /// Waits for a command to end, until `deadline`, then takes every other command that has ended.
    /// Returns the time at which that was: reading the clock again would delay the next operation.
    pub(super) fn reap(&mut self, deadline: Option<Instant>) -> Result<Instant, Error> {
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
        let Some(mut under) = self.slots[slot].under else { return };
        let at = self.slots[slot].stream;
        self.commands -= 1;
        under.outstanding -= 1;
        if !ended.status.is_success() {
            under.has_failed = true;
            self.streams[at].report.first_error.get_or_insert_with(|| ended.status.to_string());
        }
        let Under { operation, begun, has_failed, generation, .. } = under;
        if under.outstanding > 0 || under.submitted < operation.length && !under.has_failed {
            self.slots[slot].under = Some(under);
            return;
        }
        self.slots[slot].under = None;
        let job = self.job_of(slot);
        self.streams[at].free.push(slot);
        let book = self.book_of(slot);
        let claimed = book.filter(|_| operation.kind != Kind::Flush);
        let claimed = claimed.map(|book| (book, book.chunk_at(operation.offset)));
        if let Some((book, chunk)) = claimed {
            match operation.kind {
                // A write that failed may have taken effect or not: nothing may be said any more.
                Kind::Write => book.set_note(chunk, if has_failed { 0 } else { generation }),
                Kind::Trim => book.set_note(chunk, 0),
                Kind::Read | Kind::Flush => {}
            }
        }
        self.streams[at].ended(job, &operation, !has_failed, book);
        if has_failed {
            self.streams[at].report.errors += 1;
        } else {
            // An operation of one command has begun when the command was submitted.
            let is_one = operation.length <= self.limit || operation.kind == Kind::Trim;
            self.count(at, now, &operation, if is_one { ended.submitted } else { begun });
            if operation.kind == Kind::Read {
                self.compare(slot, operation.offset);
            }
        }
        // Another thread may have the chunk from here on.
        if let Some((book, chunk)) = claimed {
            book.release(chunk);
        }
    }

    /// Counts an operation of the load that began at `begun` and has ended well.
    fn count(&mut self, at: usize, now: Instant, operation: &Operation, begun: Instant) {
        let stream = &mut self.streams[at];
        if operation.is_check || now < stream.counted_from {
            return;
        }
        let is_trim = operation.kind == Kind::Trim;
        let ranges = if is_trim { u64::from(self.run.jobs[stream.job].ranges) } else { 1 };
        let sums = &mut stream.report.kinds[operation.kind as usize];
        sums.operations += 1;
        sums.bytes += u64::from(operation.length) * ranges;
        sums.latency.record(now - operation.due.unwrap_or(begun));
    }

    /// Compares the bytes read with those written there.
    fn compare(&mut self, slot: usize, offset: u64) {
        let Some(book) = self.book_of(slot) else { return };
        let (chunk, seed) = (book.chunk_at(offset), book.seed);
        let Some(generation) = book.note(chunk) else { return };
        let job = self.job_of(slot);
        let at = self.slots[slot].stream;
        let data = self.data(slot, job.chunk());
        let id = job.namespace.id.0;
        let differs = first_difference(self.session.bytes(data), seed, chunk, generation);
        let wrong = match differs {
            Some(at) => Some(format!("byte {} of namespace {id}", offset + at as u64)),
            None => {
                let lba = offset / u64::from(job.namespace.block_bytes);
                let metadata = self.metadata(slot, job.chunk());
                let checked = job.protected.check(self.session, lba, data, metadata);
                checked.err().map(|Mismatch { block, what }| {
                    format!("block {} of namespace {id}, where {what}", lba + u64::from(block))
                })
            }
        };
        let stream = &mut self.streams[at];
        stream.report.compared += 1;
        if let Some(wrong) = wrong {
            stream.report.corrupt.push(wrong);
            if job.check.is_some_and(|check| check.is_fatal) {
                stream.stop();
            }
        }
    }
}
