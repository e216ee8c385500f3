//! What several applications of the host do at once, and what came of it.

use std::sync::Arc;

use engine::{Instant, Nanos, Rng};
use link::Chance;

use super::task::{Kind, Outcome};

/// One command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// When it begins, after the job.
    pub at: Nanos,
    /// What it does.
    pub kind: Kind,
    /// Where, in bytes: a multiple of a block.
    pub offset: u64,
    /// How many bytes: a multiple of a block, none of a flush.
    pub length: u32,
}

/// Commands that follow from a few figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mixed {
    /// The share that reads; the others write.
    pub reads: Chance,
    /// Bytes of each.
    pub bytes: u32,
    /// Anywhere in the region, or one behind the other.
    pub random: bool,
    /// Where the region begins, in bytes.
    pub offset: u64,
    /// Its length.
    pub region: u64,
    /// How many commands at most.
    pub count: u64,
    /// None begins later than this after the job.
    pub runtime: Option<Nanos>,
    /// One begins each time this has passed, or as soon as one of the others is done.
    pub interval: Option<Nanos>,
}

/// Where a job's commands come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Figures.
    Mixed(Mixed),
    /// A list, in order of time.
    Trace(Arc<[Operation]>),
}

/// What one application does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its commands.
    pub source: Source,
    /// How many at a time; others wait, and the time for which they do counts.
    pub depth: u32,
}

impl Job {
    /// Bytes of its longest command.
    pub fn longest(&self) -> u32 {
        match &self.source {
            Source::Mixed(mixed) => mixed.bytes,
            Source::Trace(operations) => operations.iter().map(|one| one.length).max().unwrap_or(0),
        }
    }
}

/// A job at work.
#[derive(Debug)]
struct Running {
    job: Job,
    rng: Rng,
    began: Instant,
    issued: u64,
    /// Its places in [`Jobs::flights`] that are free.
    free: Vec<usize>,
    /// It will be looked at when its next command begins.
    waits: bool,
    outcomes: [Outcome; Kind::ALL.len()],
}

impl Running {
    /// When the next command begins, at `now` if nothing else says when; `None` when there is none.
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

    /// The next command.
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

/// A command of a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    job: usize,
    /// When the application wanted it.
    begin: Instant,
    /// The command.
    pub(super) operation: Operation,
    /// Where its data is, after the beginning of the host's room for data.
    pub(super) data: u64,
}

/// What a job wants of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// Be looked at again then.
    Wait(Instant),
    /// Submit the command in this place.
    Submit(usize),
}

/// Jobs side by side.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    running: Vec<Running>,
    /// A place for each command that may be under way.
    flights: Vec<Flight>,
    under_way: usize,
}

/// Bytes of a page: where each command's data begins.
const PAGE: u64 = 4096;

/// Bytes that these jobs' commands need for their data.
pub fn data_bytes(jobs: &[Job]) -> u64 {
    jobs.iter().map(|job| u64::from(job.depth) * u64::from(job.longest()).next_multiple_of(PAGE)).sum()
}

impl Jobs {
    /// Jobs that begin at `now`.
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

    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.running.len()
    }

    /// Whether one of them has something to do.
    pub(super) fn is_busy(&self, now: Instant) -> bool {
        self.under_way > 0 || self.running.iter().any(|running| running.next_at(now).is_some())
    }

    /// What job `number` wants next; to be asked until it wants nothing or to wait.
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

    /// The time that a job waited for has come.
    pub(super) fn woken(&mut self, number: usize) {
        self.running[number].waits = false;
    }

    /// The command in a place.
    pub(super) fn flight(&self, place: usize) -> &Flight {
        &self.flights[place]
    }

    /// A command is over; whose it was.
    pub(super) fn finish(&mut self, now: Instant, place: usize, success: bool) -> usize {
        let Flight { job, begin, operation, .. } = self.flights[place];
        self.under_way -= 1;
        let running = &mut self.running[job];
        running.free.push(place);
        let outcome = &mut running.outcomes[operation.kind as usize];
        outcome.ended = now;
        if success {
            outcome.times.push(now - begin);
            outcome.bytes += u64::from(operation.length);
        } else {
            outcome.failed += 1;
        }
        job
    }

    /// What came of them, a job after the other; by [`Kind::ALL`].
    pub(super) fn outcomes(self) -> Vec<[Outcome; Kind::ALL.len()]> {
        self.running.into_iter().map(|running| running.outcomes).collect()
    }
}
