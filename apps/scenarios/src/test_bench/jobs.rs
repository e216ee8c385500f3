//! Several applications that run side by side on the host, and their results.

use std::sync::Arc;

use engine::{Instant, Nanos, Rng};
use network_models::Chance;

use super::task::{Kind, Outcome};

/// One command of a trace or a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// When the command begins, counted from the job's begin.
    pub at: Nanos,
    /// The kind of the command.
    pub kind: Kind,
    /// Where the command's data are on the namespace, in bytes: a multiple of a block.
    pub offset: u64,
    /// Length of the data in bytes: a multiple of a block; zero for a flush.
    pub length: u32,
}

/// Commands that follow from a few figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mixed {
    /// The share of commands that read; the others write.
    pub reads: Chance,
    /// Length of each command's data in bytes.
    pub bytes: u32,
    /// Whether commands are at random places of the region, or one behind another.
    pub random: bool,
    /// Where the region begins on the namespace, in bytes.
    pub offset: u64,
    /// Length of the region in bytes.
    pub region: u64,
    /// The largest number of commands.
    pub count: u64,
    /// Commands begin only until this time after the job's begin.
    pub runtime: Option<Nanos>,
    /// The time between two commands' begins; without one, a command begins as soon as another one
    /// is done.
    pub interval: Option<Nanos>,
}

/// The source of a job's commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Commands that follow from figures.
    Mixed(Mixed),
    /// A list of commands, sorted by time.
    Trace(Arc<[Operation]>),
}

/// The work of one application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The source of the job's commands.
    pub source: Source,
    /// The largest number of outstanding commands. Further commands wait, and their waiting counts
    /// as part of their latency.
    pub depth: u32,
}

impl Job {
    /// Length in bytes of the longest command's data.
    pub fn longest(&self) -> u32 {
        match &self.source {
            Source::Mixed(mixed) => mixed.bytes,
            Source::Trace(operations) => operations.iter().map(|one| one.length).max().unwrap_or(0),
        }
    }
}

/// A job that runs.
#[derive(Debug)]
struct Running {
    job: Job,
    rng: Rng,
    began: Instant,
    issued: u64,
    /// The job's free places in [`Jobs::flights`].
    free: Vec<usize>,
    /// Whether the job waits for the time of its next command.
    waits: bool,
    outcomes: [Outcome; Kind::ALL.len()],
}

impl Running {
    /// When the next command begins: `now`, unless the source gives a time. `None` when no command
    /// is left.
    fn next_at(&self, now: Instant) -> Option<Instant> {
        match &self.job.source {
            Source::Mixed(mixed) => {
                let at = mixed.interval.map_or(now, |interval| self.began + interval * self.issued);
                let over = mixed.runtime.is_some_and(|runtime| at - self.began >= runtime);
                (self.issued < mixed.count && !over).then_some(at)
            }
            Source::Trace(operations) => {
                let operation = operations.get(usize::try_from(self.issued).ok()?)?;
                Some(self.began + operation.at)
            }
        }
    }

    /// The job's next command.
    fn take(&mut self) -> Operation {
        let number = self.issued;
        self.issued += 1;
        match &self.job.source {
            Source::Mixed(mixed) => {
                let places = (mixed.region / u64::from(mixed.bytes)).max(1);
                let place = if mixed.random { self.rng.below(places) } else { number % places };
                let reads = mixed.reads.happens(&mut self.rng);
                Operation {
                    at: Nanos::ZERO,
                    kind: if reads { Kind::Read } else { Kind::Write },
                    offset: mixed.offset + place * u64::from(mixed.bytes),
                    length: mixed.bytes,
                }
            }
            Source::Trace(operations) => {
                operations[usize::try_from(number).expect("fewer commands than a list holds")]
            }
        }
    }
}

/// A command of a job, from its begin to its completion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    job: usize,
    /// When the application wanted the command.
    begin: Instant,
    /// The operation of the command.
    pub(super) operation: Operation,
    /// Offset of the command's data in the host's data region, in bytes.
    pub(super) data: u64,
}

/// A request of a job to its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// To be asked again at this time.
    Wait(Instant),
    /// To submit the command in this place.
    Submit(usize),
}

/// Jobs that run side by side.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    running: Vec<Running>,
    /// A place for each command that may be outstanding.
    flights: Vec<Flight>,
    under_way: usize,
}

/// Length of a page in bytes; each command's data begin on a page.
const PAGE: u64 = 4096;

/// How many bytes the data of all outstanding commands of `jobs` need.
pub fn data_bytes(jobs: &[Job]) -> u64 {
    jobs.iter().map(|job| u64::from(job.depth) * u64::from(job.longest()).next_multiple_of(PAGE)).sum()
}

impl Jobs {
    /// Jobs that begin at `now`; everything random in them follows from `rng`.
    pub(super) fn new(now: Instant, jobs: Vec<Job>, rng: &Rng) -> Self {
        let mut all = Self::default();
        let mut data = 0;
        for (number, job) in jobs.into_iter().enumerate() {
            let room = u64::from(job.longest()).next_multiple_of(PAGE);
            let operation = Operation { at: Nanos::ZERO, kind: Kind::Flush, offset: 0, length: 0 };
            let first = all.flights.len();
            for _ in 0..job.depth {
                all.flights.push(Flight { job: number, begin: now, operation, data });
                data += room;
            }
            all.running.push(Running {
                rng: rng.fork(&format!("job {number}")),
                began: now,
                issued: 0,
                free: (first..all.flights.len()).rev().collect(),
                waits: false,
                outcomes: [(); 3].map(|()| Outcome { began: now, ended: now, ..Outcome::default() }),
                job,
            });
        }
        all
    }

    /// Number of jobs.
    pub(super) const fn len(&self) -> usize {
        self.running.len()
    }

    /// Whether a job has work left.
    pub(super) fn is_busy(&self, now: Instant) -> bool {
        self.under_way > 0 || self.running.iter().any(|running| running.next_at(now).is_some())
    }

    /// The next request of job `number`. To be called until the answer is `None` or [`Wish::Wait`].
    pub(super) fn ask(&mut self, now: Instant, number: usize) -> Option<Wish> {
        let running = &mut self.running[number];
        if running.waits || running.free.is_empty() {
            return None;
        }
        let begin = running.next_at(now)?;
        if begin > now {
            running.waits = true;
            return Some(Wish::Wait(begin));
        }
        let place = running.free.pop()?;
        let operation = running.take();
        self.flights[place] = Flight { begin, operation, ..self.flights[place] };
        self.under_way += 1;
        Some(Wish::Submit(place))
    }

    /// Notes that the time that job `number` waited for has come.
    pub(super) fn woken(&mut self, number: usize) {
        self.running[number].waits = false;
    }

    /// The command in `place`.
    pub(super) fn flight(&self, place: usize) -> &Flight {
        &self.flights[place]
    }

    /// Notes that the command in `place` is over; returns the number of its job.
    pub(super) fn finish(&mut self, now: Instant, place: usize, success: bool) -> usize {
        let Flight { job, begin, operation, .. } = self.flights[place];
        self.under_way -= 1;
        let running = &mut self.running[job];
        running.free.push(place);
        let outcome = &mut running.outcomes[operation.kind as usize];
        outcome.ended = now;
        if success {
            outcome.times.push(now - begin);
            outcome.ends.push((now, operation.length));
            outcome.bytes += u64::from(operation.length);
        } else {
            outcome.failed += 1;
        }
        job
    }

    /// The results of each job, in the order of the jobs; within a job in the order
    /// of [`Kind::ALL`].
    pub(super) fn outcomes(self) -> Vec<[Outcome; Kind::ALL.len()]> {
        self.running.into_iter().map(|running| running.outcomes).collect()
    }
}
