//! One of the jobs that run at the same time: its next step, and its figures.

use std::collections::VecDeque;

use engine::{Instant, Nanos, Rng};

use super::arrivals::Arrivals;
use super::book::Book;
use super::job::{Job, Kind};
use super::places::Places;
use super::report::Report;
use crate::args::Workload;

/// How many places are tried before a job gives up finding a free one and waits for a completion.
const PICKS_MAX: u32 = 8;

/// Where a job is in its course.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It has not begun.
    Waiting,
    Running,
    /// It reads back its writes, from this chunk on; none when the last read has begun.
    Checking(Option<u64>),
    Done,
}

/// An operation that is to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    pub(super) kind: Kind,
    /// Where it begins in the namespace, in bytes, and how long it is.
    pub(super) offset: u64,
    pub(super) length: u32,
    /// Whether it reads back its writes, which no figure includes.
    pub(super) is_check: bool,
    /// When it was due; none to count its latency from when it did begin.
    pub(super) due: Option<Instant>,
}

/// The next step of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Begin(Operation),
    /// Nothing before then.
    At(Instant),
    /// Nothing before an operation ends.
    Wait,
}

/// One of the jobs that run at the same time.
#[derive(Debug)]
pub(super) struct Stream {
    /// The number of its description.
    pub(super) job: usize,
    pub(super) state: State,
    /// Slots without an operation, of `slots`.
    pub(super) free: Vec<usize>,
    slots: usize,
    is_filling: bool,
    /// The number of the book that it writes to and checks with.
    pub(super) book: Option<usize>,
    /// Where its part of the namespace begins, in bytes.
    offset: u64,
    rng: Rng,
    places: Places,
    pub(super) end: Instant,
    /// From when on its operations count.
    pub(super) counted_from: Instant,
    /// Bytes and operations that it still has to begin with; none if its time ends it.
    left: Option<u64>,
    operations_left: Option<u64>,
    loops_left: u32,
    has_loop: bool,
    is_stopped: bool,
    /// The allowance of its pace, by kind: in bytes, and in operations.
    arrivals: [[Option<Arrivals>; 2]; 3],
    drawn: Option<Kind>,
    /// An operation whose place was busy.
    held: Option<Operation>,
    /// Places that were trimmed and are to be written.
    follow: VecDeque<(u64, u32)>,
    /// Operations that have ended since the last pause.
    since_pause: u32,
    resting: Option<Instant>,
    /// Writes since the last Flush, and whether any has come since the last one at the end.
    unflushed: u32,
    flush_every: u32,
    is_dirty: bool,
    /// Chunks that were written and are to be read back, and how many of them right now.
    backlog: VecDeque<u64>,
    checks: u32,
    /// Operations that have begun.
    pub(super) begun: u64,
    pub(super) report: Report,
}

impl Stream {
    /// The copy `number` of `job`, with these slots.
    pub(super) fn new(job: &Job, index: usize, number: u32, slots: Vec<usize>) -> Self {
        let (offset, range) = job.region(number);
        let range = if job.check.is_some() { range - range % u64::from(job.chunk()).max(1) } else { range };
        let mut rng = Rng::from_seed(job.seed);
        if number > 0 {
            rng = Rng::from_seed(rng.next_u64() ^ u64::from(number));
        }
        let places = Places::new(job, range, job.seed ^ u64::from(number) << 32);
        Self {
            job: index,
            state: State::Waiting,
            slots: slots.len(),
            is_filling: false,
            free: slots,
            book: None,
            offset,
            rng,
            places,
            end: Instant::ZERO,
            counted_from: Instant::ZERO,
            left: job.limits.bytes,
            operations_left: job.limits.operations,
            loops_left: job.limits.loops.saturating_sub(1),
            has_loop: false,
            is_stopped: false,
            arrivals: Default::default(),
            drawn: None,
            held: None,
            follow: VecDeque::new(),
            since_pause: 0,
            resting: None,
            unflushed: 0,
            flush_every: job.durable.every,
            is_dirty: false,
            backlog: VecDeque::new(),
            checks: 0,
            begun: 0,
            report: Report::default(),
        }
    }

    /// Begins with the job.
    pub(super) fn start(&mut self, job: &Job, now: Instant) {
        self.state = State::Running;
        self.report.began = Some(now);
        self.counted_from = now + job.limits.ramp;
        self.end = self.counted_from + job.limits.runtime;
        for kind in [Kind::Read, Kind::Write, Kind::Trim] {
            let one = |rate: Option<u64>| match job.pace.is_poisson {
                true => rate.map(|rate| Arrivals::poisson(now, rate)),
                false => rate.map(|rate| Arrivals::even(now, rate)),
            };
            let (bytes, operations) = (job.pace.bytes[kind as usize], job.pace.operations[kind as usize]);
            self.arrivals[kind as usize] = [one(bytes), one(operations)];
        }
    }

    /// Ends the job early.
    pub(super) const fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Whether the job is to end early.
    pub(super) const fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Whether so few operations are under way that more may begin, up to the depth.
    pub(super) fn has_room(&mut self, refill: u32) -> bool {
        let refill = usize::try_from(refill).unwrap_or(usize::MAX).min(self.slots);
        self.is_filling = !self.free.is_empty() && (self.is_filling || self.free.len() >= refill);
        self.is_filling
    }

    pub(super) const fn under_way(&self) -> usize {
        self.slots - self.free.len()
    }

    /// Whether there is more to begin with, were it not for the time.
    fn has_more(&self) -> bool {
        self.left != Some(0) && self.operations_left != Some(0)
    }

    /// Whether no more operations of the load begin.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let is_through = !self.has_more() && self.follow.is_empty() && !self.is_flush_due();
        self.is_stopped || now >= self.end || is_through
    }

    /// Whether enough writes have begun since the last Flush that one is due.
    const fn is_flush_due(&self) -> bool {
        self.flush_every > 0 && self.unflushed >= self.flush_every
    }

    /// The next step of the job. An operation that is to begin has its chunk of the book.
    pub(super) fn next(&mut self, job: &Job, now: Instant, book: Option<&Book>) -> Next {
        match self.state {
            State::Waiting | State::Done => Next::Wait,
            State::Checking(from) => self.next_check(from, book),
            State::Running if self.is_over(now) => Next::Wait,
            State::Running => self.next_of_load(job, now, book),
        }
    }

    fn next_check(&mut self, from: Option<u64>, book: Option<&Book>) -> Next {
        let Some((from, book)) = from.zip(book) else { return Next::Wait };
        let known = |chunk: &u64| book.note(*chunk).is_some();
        let waiting = self.backlog.iter().position(known);
        let chunk = match waiting {
            Some(at) => self.backlog.get(at).copied(),
            None if from == u64::MAX => None,
            None => book.next_known(from),
        };
        if chunk.is_some_and(|chunk| !book.claim(chunk)) {
            return Next::Wait;
        }
        if let Some(at) = waiting {
            // Chunks that were checked before are not read again.
            self.backlog.drain(..=at);
        }
        self.state = State::Checking(chunk.map(|chunk| if from == u64::MAX { from } else { chunk + 1 }));
        chunk.map_or(Next::Wait, |chunk| Next::Begin(check_of(book, chunk)))
    }

    /// Begins to read back: only the rest of the backlog, where there is one.
    pub(super) fn start_check(&mut self, has_backlog: bool) {
        self.state = State::Checking(Some(if has_backlog { u64::MAX } else { 0 }));
    }

    fn next_of_load(&mut self, job: &Job, now: Instant, book: Option<&Book>) -> Next {
        if let Some((offset, length)) = self.follow.front().copied() {
            if !claim(book, offset) {
                return Next::Wait;
            }
            self.follow.pop_front();
            self.count_write();
            let kind = Kind::Write;
            return Next::Begin(Operation { kind, offset, length, is_check: false, due: None });
        }
        if self.is_flush_due() {
            self.unflushed = 0;
            return Next::Begin(flush());
        }
        if let (true, Some(chunk), Some(book)) = (self.checks > 0, self.backlog.front().copied(), book)
            && book.claim(chunk)
        {
            self.backlog.pop_front();
            self.checks = if self.backlog.is_empty() { 0 } else { self.checks - 1 };
            return Next::Begin(check_of(book, chunk));
        }
        if !self.has_more() {
            return Next::Wait;
        }
        if let Some(rest) = self.rest(job, now) {
            return rest;
        }
        self.next_of_pattern(job, now, book)
    }

    /// The step during a pause between operations; none if there is no pause.
    fn rest(&mut self, job: &Job, now: Instant) -> Option<Next> {
        let (length, operations) = job.pace.pause?;
        if let Some(until) = self.resting {
            if until > now {
                return Some(Next::At(until));
            }
            self.resting = None;
        }
        // As in fio, the operations under way end first.
        if self.since_pause + u32::try_from(self.under_way()).unwrap_or(u32::MAX) < operations {
            return None;
        }
        if self.under_way() > 0 {
            return Some(Next::Wait);
        }
        self.since_pause = 0;
        self.resting = Some(now + length);
        Some(Next::At(now + length))
    }

    fn next_of_pattern(&mut self, job: &Job, now: Instant, book: Option<&Book>) -> Next {
        let operation = match self.held.take() {
            Some(held) => held,
            None => {
                let (kind, due) = match self.paced(job, now) {
                    Ok(paced) => paced,
                    Err(at) => return Next::At(at),
                };
                self.drawn = None;
                self.place(job, kind, due, book)
            }
        };
        if !claim(book, operation.offset) {
            // A place that comes once must not be passed over.
            if self.places.is_exhaustive() {
                self.held = Some(operation);
            }
            return Next::Wait;
        }
        self.count(job, &operation);
        Next::Begin(operation)
    }

    /// The kind of the next operation, and when it was due where there is a pace.
    ///
    /// # Errors
    /// When the next operation is due.
    fn paced(&mut self, job: &Job, now: Instant) -> Result<(Kind, Option<Instant>), Instant> {
        let drawn = self.drawn.unwrap_or_else(|| match job.workload {
            Workload::Read | Workload::RandRead => Kind::Read,
            Workload::Write | Workload::RandWrite => Kind::Write,
            Workload::Rw | Workload::RandRw if self.rng.below(100) < u64::from(job.reads) => Kind::Read,
            Workload::Rw | Workload::RandRw => Kind::Write,
            Workload::Trim | Workload::RandTrim | Workload::TrimWrite | Workload::RandTrimWrite => Kind::Trim,
        });
        self.drawn = Some(drawn);
        let mut wait = None;
        let other = job.kinds().iter().copied().filter(|kind| *kind != drawn && drawn != Kind::Trim);
        // As in fio, the rates come before the shares.
        for kind in std::iter::once(drawn).chain(other) {
            match self.due(kind) {
                Some(at) if at > now => wait = Instant::earlier(wait, Some(at)),
                due => return Ok((kind, due)),
            }
        }
        Err(wait.unwrap_or(self.end))
    }

    fn due(&self, kind: Kind) -> Option<Instant> {
        self.arrivals[kind as usize].iter().flatten().map(Arrivals::next).max()
    }

    /// The next operation of `kind`, at a place that is not busy if one comes up.
    fn place(&mut self, job: &Job, kind: Kind, due: Option<Instant>, book: Option<&Book>) -> Operation {
        let is_busy = |offset| book.is_some_and(|book| book.is_busy(book.chunk_at(offset)));
        let sizes = job.sizes[kind as usize];
        let mut picks = 0;
        loop {
            let length = sizes.draw(&mut self.rng);
            let (place, skipped) =
                self.places.next(kind, length.into(), sizes.shortest().into(), &mut self.rng);
            if let Some(left) = &mut self.left {
                *left = left.saturating_sub(skipped);
            }
            picks += 1;
            let offset = self.offset + place;
            if self.places.is_exhaustive() || picks == PICKS_MAX || !is_busy(offset) {
                return Operation { kind, offset, length, is_check: false, due };
            }
        }
    }

    /// Places of the further ranges of a trim.
    pub(super) fn further_ranges(&mut self, job: &Job, length: u32) -> Vec<u64> {
        let one = |_| {
            let place = self.places.next(Kind::Trim, length.into(), length.into(), &mut self.rng);
            self.offset + place.0
        };
        (1..job.ranges).map(one).collect()
    }

    /// Notes that an operation of the load begins.
    fn count(&mut self, job: &Job, operation: &Operation) {
        let bytes = u64::from(operation.length);
        let ranges = if operation.kind == Kind::Trim { u64::from(job.ranges) } else { 1 };
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(bytes * ranges);
        }
        if let Some(left) = &mut self.operations_left {
            *left = left.saturating_sub(1);
        }
        let [in_bytes, in_operations] = &mut self.arrivals[operation.kind as usize];
        for (arrivals, units) in [(in_bytes, bytes * ranges), (in_operations, 1)] {
            if let Some(arrivals) = arrivals {
                arrivals.begin(units, &mut self.rng);
            }
        }
        self.begun += 1;
        if operation.kind == Kind::Write {
            self.count_write();
        }
    }

    const fn count_write(&mut self) {
        self.unflushed += 1;
        self.is_dirty = true;
    }

    /// The Flush at the end of the job, if there is to be one.
    pub(super) const fn last_flush(&mut self, job: &Job) -> Option<Operation> {
        if !job.durable.at_end || !self.is_dirty {
            return None;
        }
        self.is_dirty = false;
        Some(flush())
    }

    /// Notes that an operation of the load has ended well, or has not.
    pub(super) fn ended(&mut self, job: &Job, operation: &Operation, is_good: bool, book: Option<&Book>) {
        if operation.is_check || operation.kind == Kind::Flush {
            return;
        }
        self.since_pause += 1;
        let writes = matches!(job.workload, Workload::TrimWrite | Workload::RandTrimWrite);
        if writes && operation.kind == Kind::Trim {
            self.follow.push_back((operation.offset, operation.length));
        }
        if let (true, Kind::Write, Some(book)) = (is_good, operation.kind, book)
            && let Some((every, batch)) = job.check.and_then(|check| check.backlog)
        {
            self.backlog.push_back(book.chunk_at(operation.offset));
            if self.checks == 0 && self.backlog.len() >= usize::try_from(every).unwrap_or(usize::MAX) {
                self.checks = batch;
            }
        }
    }

    /// Notes that the load has ended. Returns whether it begins again.
    pub(super) fn finish(&mut self, now: Instant) -> bool {
        self.report.elapsed += now - self.counted_from;
        self.counted_from = now;
        // Once the job has begun with its last byte, no more commands are due.
        if self.has_more() {
            self.report.late = self.late(now);
        }
        self.has_loop = !self.is_stopped && now < self.end && self.left == Some(0) && self.loops_left > 0;
        self.has_loop
    }

    /// Whether the job begins again when it has read back its writes.
    pub(super) const fn repeats(&self) -> bool {
        self.has_loop
    }

    fn late(&self, now: Instant) -> u64 {
        let end = self.end.min(now);
        self.arrivals.iter().flat_map(|[_, operations]| operations).map(|one| one.late(end)).sum()
    }

    /// Does the same once more.
    pub(super) fn again(&mut self, job: &Job, now: Instant) {
        self.loops_left -= 1;
        (self.left, self.operations_left) = (job.limits.bytes, job.limits.operations);
        (self.counted_from, self.state) = (now.max(self.counted_from), State::Running);
    }

    /// The time for which the job's operations have counted, at `now`.
    pub(super) fn elapsed(&self, now: Instant) -> Nanos {
        match self.state {
            State::Running => now - self.counted_from + self.report.elapsed,
            _ => self.report.elapsed,
        }
    }
}

/// Takes the chunk of an operation at `offset`, where there is a book. Returns whether the
/// operation may begin.
fn claim(book: Option<&Book>, offset: u64) -> bool {
    book.is_none_or(|book| book.claim(book.chunk_at(offset)))
}

fn check_of(book: &Book, chunk: u64) -> Operation {
    let (offset, length) = book.place(chunk);
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    Operation { kind: Kind::Read, offset, length, is_check: true, due: None }
}

const fn flush() -> Operation {
    Operation { kind: Kind::Flush, offset: 0, length: 0, is_check: false, due: None }
}
