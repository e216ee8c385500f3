//! Loads on a namespace, in fio's words (the operations, how many at once, for how long), and their
//! results: rate, latency and errors. Several jobs run at the same time on one session.

mod arrivals;
mod book;
mod check;
mod commands;
mod contents;
mod crew;
mod draw;
mod job;
mod marks;
mod places;
mod report;
mod run;
mod shuffle;
mod steady;
mod stream;
mod threads;

use std::collections::VecDeque;

use engine::{Instant, Nanos, Rng};
use nvme_pcie::host::Data;

use crate::error::Error;
use crate::session::Session;

pub(crate) use contents::Contents;
pub(crate) use job::{Check, Choice, Durable, Job, Kind, Limits, Pace, Scope, Zones};
pub(crate) use report::{Kinds, Report, Sums, rate, total};
use run::PAGE;
pub(crate) use run::{Ended, Part, Progress, Run};
pub(crate) use steady::Steady;
use steady::Watch;
use stream::{Next, Operation, State, Stream};
pub(crate) use threads::{ThreadFigures, Threads, carry_out as carry_out_on_threads};

/// How soon a job looks again at places that jobs on other threads have.
const LOOK_AGAIN: Nanos = Nanos::from_micros(20);

/// The operation under way in a slot.
#[derive(Clone, Copy, Debug)]
struct Under {
    operation: Operation,
    /// The bytes whose commands were submitted.
    submitted: u32,
    /// Commands that have not ended.
    outstanding: u32,
    /// When its first command was submitted.
    begun: Instant,
    has_failed: bool,
    /// The note that the chunk gets when a write succeeds.
    generation: u32,
}

/// A place for an operation under way.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The job that has it.
    stream: usize,
    /// Where the data is in memory, and its protection information, where the host keeps it.
    data: u64,
    metadata: u64,
    under: Option<Under>,
}

struct Runner<'a> {
    session: &'a mut Session,
    run: &'a Run<'a>,
    part: Part,
    streams: Vec<Stream>,
    slots: Vec<Slot>,
    /// The longest command.
    limit: u32,
    /// Operations that have commands to be submitted.
    backlog: VecDeque<usize>,
    /// Commands under way.
    commands: u32,
    /// Number of I/O queues, which take turns.
    queues: u16,
    rng: Rng,
    has_flow: bool,
    /// One for each job; none for a job that does not end when it is steady.
    watches: Vec<Option<Watch>>,
    /// Whether a job has ended that ends all others, also those of later phases.
    ends_all: bool,
}

/// Runs `job` alone.
pub(crate) fn run(session: &mut Session, job: Job) -> Result<Report, Error> {
    let (genesis, jobs, mut books) = (session.now(), [job], Vec::new());
    let run = Run::new(session, &jobs, &mut books, genesis)?;
    let ended = carry_out(session, &run, Part::WHOLE, |_| ())?;
    Ok(ended.reports.into_iter().next().unwrap_or_default())
}

/// Carries out a `part` of the jobs on this thread, and gives `progress` the measurements now and
/// then. When the user interrupts, the reports have the measurements until then.
pub(crate) fn carry_out(
    session: &mut Session,
    run: &Run<'_>,
    part: Part,
    mut progress: impl FnMut(&Progress<'_>),
) -> Result<Ended, Error> {
    let mut runner = Runner::new(session, run, part)?;
    let (mut interrupted, mut unverified) = (false, None);
    match runner.carry_out(&mut progress) {
        Ok(()) => {}
        Err(Error::Interrupted) => interrupted = true,
        // The load's figures are worth reporting even if the device has gone since.
        Err(error) if runner.is_load_over() => unverified = Some(error),
        Err(error) => return Err(error),
    }
    let now = runner.session.now();
    let ends_all = runner.ends_all;
    let mut reports = run.reports();
    for mut stream in runner.streams {
        stream.report.elapsed = stream.elapsed(now);
        stream.report.interrupted = interrupted;
        let is_checking = matches!(stream.state, State::Checking(_));
        stream.report.unverified = if is_checking { unverified.take() } else { None };
        reports[stream.job].merge(stream.report);
    }
    reports.iter_mut().for_each(Report::sum_up);
    match unverified {
        Some(error) => Err(error),
        None => Ok(Ended { reports, ends_all }),
    }
}

/// The counts of the job with this number until `now`, and their time.
fn figures(streams: &[Stream], now: Instant, job: usize) -> (Nanos, Kinds) {
    let mut sum = Report::default();
    for stream in streams.iter().filter(|stream| stream.job == job) {
        let elapsed = stream.elapsed(now);
        sum.merge(Report { kinds: stream.report.kinds.clone(), elapsed, ..Report::default() });
    }
    (sum.elapsed, sum.kinds)
}

/// The number of operations and of bytes of all jobs until now.
fn moved(streams: &[Stream]) -> (u64, u64) {
    let sums = streams.iter().flat_map(|stream| &stream.report.kinds[..3]);
    sums.fold((0, 0), |sum, kind| (sum.0 + kind.operations, sum.1 + kind.bytes))
}

impl<'a> Runner<'a> {
    fn new(session: &'a mut Session, run: &'a Run<'a>, part: Part) -> Result<Self, Error> {
        let namespace = run.jobs[0].namespace;
        let limit = session.identity()?.transfer_bytes_max;
        let limit = limit - limit % namespace.block_bytes;
        let queues = session.identity()?.queues.max(1);
        let mut runner = Self {
            session,
            run,
            part,
            streams: Vec::new(),
            slots: Vec::new(),
            limit,
            backlog: VecDeque::new(),
            commands: 0,
            queues,
            rng: Rng::from_seed(run.jobs[0].seed ^ (part.index as u64) << 32),
            watches: run.jobs.iter().map(|job| job.limits.steady.map(Watch::new)).collect(),
            has_flow: run.jobs.iter().any(|job| job.pace.flow.is_some()),
            ends_all: false,
        };
        runner.lay_out();
        Ok(runner)
    }

    /// Gives each job its slots, and the data that it writes unless it is verified.
    fn lay_out(&mut self) {
        let mut data = self.session.data_region().base;
        let run = self.run;
        for copy in run.copies(self.part) {
            let job = &run.jobs[copy.job];
            let first = self.slots.len();
            for _ in 0..job.depth {
                let longest = job.longest();
                self.slots.push(Slot { stream: self.streams.len(), data, metadata: 0, under: None });
                let rng = &mut self.rng;
                self.session.put(Data { address: data, length: longest }, |bytes| {
                    job.contents.fill(bytes, rng);
                });
                data += u64::from(longest).next_multiple_of(PAGE);
            }
            let slots = (first..self.slots.len()).rev().collect();
            let mut stream = Stream::new(job, copy.job, copy.number, slots);
            stream.book = copy.book;
            self.streams.push(stream);
        }
        // Protection information is behind all data.
        for slot in &mut self.slots {
            let job = &run.jobs[self.streams[slot.stream].job];
            slot.metadata = data;
            data += u64::from(job.protected.bytes(job.longest() / job.namespace.block_bytes));
        }
    }

    /// Runs all jobs to their end.
    fn carry_out(&mut self, progress: &mut impl FnMut(&Progress<'_>)) -> Result<(), Error> {
        let start = self.session.now();
        let (mut reported, mut now) = (start, start);
        loop {
            self.turn(now)?;
            if self.streams.iter().all(|stream| stream.state == State::Done) {
                return Ok(());
            }
            if now - reported > Nanos::from_millis(100) {
                let streams = &self.streams;
                let of = |job| figures(streams, now, job);
                progress(&Progress { elapsed: now - start, moved: moved(streams), of: &of });
                reported = now;
            }
            let watched = self.watch(now);
            let wanted = self.fill(now)?;
            now = self.reap(Instant::earlier(wanted, watched))?;
        }
    }

    /// Whether only the reads that verify the writes are left.
    fn is_load_over(&self) -> bool {
        self.streams.iter().all(|stream| matches!(stream.state, State::Done | State::Checking(_)))
    }

    /// Begins and ends jobs.
    fn turn(&mut self, now: Instant) -> Result<(), Error> {
        let mut changed = true;
        while std::mem::take(&mut changed) {
            for at in 0..self.streams.len() {
                let (stream, jobs) = (&self.streams[at], self.run.jobs);
                let job = &jobs[stream.job];
                match stream.state {
                    State::Waiting if stream.is_stopped() => {
                        if let Some(book) = stream.book {
                            self.run.books[book].end_load();
                        }
                        self.streams[at].state = State::Done;
                    }
                    State::Waiting if self.may_start(job) && now >= self.run.genesis + job.limits.delay => {
                        self.streams[at].start(job, now);
                    }
                    State::Running if stream.is_over(now) && stream.under_way() == 0 => {
                        match self.streams[at].last_flush(job) {
                            Some(flush) => self.begin(now, at, flush)?,
                            None => self.finish(now, at),
                        }
                    }
                    State::Checking(None) if stream.under_way() == 0 => {
                        match self.streams[at].report.corrupt.is_empty() && self.streams[at].repeats() {
                            true => self.again(now, at),
                            false => self.streams[at].state = State::Done,
                        }
                    }
                    _ => continue,
                }
                changed = true;
            }
        }
        Ok(())
    }

    /// Ends jobs whose figures are steady. Returns when the next figure is due.
    fn watch(&mut self, now: Instant) -> Option<Instant> {
        let mut next = None;
        for (job, watch) in self.watches.iter_mut().enumerate() {
            let Some(watch) = watch else { continue };
            let runs = |stream: &&Stream| stream.job == job && stream.state == State::Running;
            if !self.streams.iter().any(|stream| runs(&stream)) {
                continue;
            }
            watch.start(now);
            if watch.next.is_some_and(|at| at <= now) {
                let ours = || self.streams.iter().filter(|stream| stream.job == job);
                let is_steady = watch.take(now, ours().flat_map(|stream| &stream.report.kinds[..3]));
                for stream in self.streams.iter_mut().filter(|stream| stream.job == job) {
                    stream.report.is_steady = Some(is_steady);
                    if is_steady {
                        stream.stop();
                    }
                }
            }
            next = Instant::earlier(next, watch.next);
        }
        next
    }

    /// Whether the jobs have ended that end before `job` begins.
    fn may_start(&self, job: &Job) -> bool {
        let has_ended = |stream: &Stream| stream.state == State::Done;
        self.streams.iter().all(|stream| !job.limits.after.contains(&stream.job) || has_ended(stream))
    }

    /// Ends the load of a job: its writes are read back, or it begins again.
    fn finish(&mut self, now: Instant, at: usize) {
        let repeats = self.streams[at].finish(now);
        let (index, book) = (self.streams[at].job, self.streams[at].book);
        let jobs = self.run.jobs;
        let job = &jobs[index];
        if !repeats && let Some(scope) = job.limits.ends {
            self.ends_all |= scope == Scope::All;
            let group = job.limits.group;
            let in_scope =
                |stream: &&mut Stream| scope != Scope::Group || jobs[stream.job].limits.group == group;
            self.streams.iter_mut().filter(in_scope).for_each(Stream::stop);
        }
        let is_last = book.is_none_or(|book| self.run.books[book].end_load());
        let stream = &mut self.streams[at];
        // The last of the jobs that share a book reads back the data of all.
        match job.check.filter(|check| check.at_end && book.is_some()) {
            Some(check) if check.backlog.is_some() || is_last => {
                stream.start_check(check.backlog.is_some());
            }
            _ if repeats => self.again(now, at),
            _ => stream.state = State::Done,
        }
    }

    /// Begins the load of a job once more.
    fn again(&mut self, now: Instant, at: usize) {
        let stream = &mut self.streams[at];
        if let Some(book) = stream.book {
            self.run.books[book].begin_load();
        }
        stream.again(&self.run.jobs[stream.job], now);
    }

    /// Begins the operations that are due by `now`, as far as there is room. Returns when a job is
    /// to do something next; none when all wait for operations to end.
    fn fill(&mut self, now: Instant) -> Result<Option<Instant>, Error> {
        loop {
            let (mut wanted, before) = (None, self.commands);
            for at in 0..self.streams.len() {
                wanted = Instant::earlier(wanted, self.fill_one(now, at)?);
            }
            // With weights, a begun operation of one job lets another job begin one.
            if !self.has_flow || self.commands == before {
                return Ok(wanted);
            }
        }
    }

    fn fill_one(&mut self, now: Instant, at: usize) -> Result<Option<Instant>, Error> {
        let jobs = self.run.jobs;
        let job = &jobs[self.streams[at].job];
        while self.streams[at].has_room(job.refill) {
            if job.pace.flow.is_some() && !self.may_flow(now, at) {
                break;
            }
            let book = self.streams[at].book.map(|book| &self.run.books[book]);
            match self.streams[at].next(job, now, book) {
                Next::Begin(operation) => self.begin(now, at, operation)?,
                Next::At(wanted) => return Ok(Some(wanted.min(self.streams[at].end))),
                Next::Wait => break,
            }
        }
        let stream = &self.streams[at];
        Ok(match stream.state {
            State::Waiting if self.may_start(job) => Some(self.run.genesis + job.limits.delay),
            State::Running | State::Checking(Some(_)) if self.is_kept_out(at) => Some(now + LOOK_AGAIN),
            State::Running if !stream.is_over(now) => Some(stream.end),
            // It has begun with its last chunk: whether it is over shows at once.
            State::Checking(None) if stream.under_way() == 0 => Some(now),
            _ => None,
        })
    }

    /// Whether jobs on other threads may have every place that a job would use next: no completion
    /// on this thread says when a place is free.
    fn is_kept_out(&self, at: usize) -> bool {
        let stream = &self.streams[at];
        self.part.of > 1 && stream.book.is_some() && stream.under_way() == 0
    }

    /// Whether a job has not done more, for its weight, than another one of its flow.
    fn may_flow(&self, now: Instant, at: usize) -> bool {
        let weight = |stream: &Stream| self.run.jobs[stream.job].pace.flow;
        let Some((flow, ours)) = weight(&self.streams[at]) else { return true };
        let (begun, state) = (u128::from(self.streams[at].begun), self.streams[at].state);
        state != State::Running
            || self.streams.iter().all(|stream| match weight(stream) {
                Some((other, theirs)) if other == flow && stream.state == State::Running => {
                    stream.is_over(now)
                        || begun * u128::from(theirs) <= u128::from(stream.begun) * u128::from(ours)
                }
                _ => true,
            })
    }
}
