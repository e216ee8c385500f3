//! The common part of jobs that run at the same time, whichever threads have them.

use engine::{Instant, Nanos};

use super::book::Book;
use super::check;
use super::job::Job;
use super::report::{Kinds, Report};
use crate::error::Error;
use crate::session::Session;

/// The place of an operation's data begins with a page of memory.
pub(super) const PAGE: u64 = 4096;

/// A copy of a job: `numjobs` of them do the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    pub(super) job: usize,
    pub(super) number: u32,
    /// The number of the book that it writes to and checks with.
    pub(super) book: Option<usize>,
}

/// The part of the copies that one of several threads has: each thread takes every `of`-th.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(super) index: usize,
    pub(super) of: usize,
}

impl Part {
    /// All copies, on one thread.
    pub(crate) const WHOLE: Self = Self { index: 0, of: 1 };

    /// The thread's number, counted from 0.
    pub(crate) const fn index(self) -> usize {
        self.index
    }

    fn has(self, copy: usize) -> bool {
        copy % self.of == self.index
    }
}

/// Jobs that run at the same time.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    pub(super) jobs: &'a [Job],
    pub(super) books: &'a [Book],
    copies: Vec<Copy>,
    /// When the run began, from which delays count.
    pub(super) genesis: Instant,
}

impl<'a> Run<'a> {
    /// Jobs that run at the same time on the controller of `session`. `books` are those of jobs
    /// before.
    ///
    /// # Errors
    /// When a job can't be run.
    pub(crate) fn new(
        session: &Session,
        jobs: &'a [Job],
        books: &'a mut Vec<Book>,
        genesis: Instant,
    ) -> Result<Self, Error> {
        for job in jobs {
            check::check(session, job)?;
        }
        let copies = check::copies(jobs, books);
        Ok(Self { jobs, books, copies, genesis })
    }

    /// The number of threads, at most `wanted`, that can have a part of the jobs. Jobs that depend
    /// on each other at every moment have one thread.
    pub(crate) fn threads(&self, wanted: usize) -> usize {
        let is_tied = |job: &Job| {
            let limits = &job.limits;
            let is_timed = job.pace.flow.is_some() || limits.steady.is_some();
            is_timed || limits.ends.is_some() || !limits.after.is_empty()
        };
        if self.jobs.iter().any(is_tied) { 1 } else { wanted.clamp(1, self.copies.len().max(1)) }
    }

    /// The copies of jobs in `part`.
    pub(super) fn copies(&self, part: Part) -> impl Iterator<Item = &Copy> {
        self.copies.iter().enumerate().filter(move |(at, _)| part.has(*at)).map(|(_, copy)| copy)
    }

    /// The bytes of data of the operations that `part` has under way at once.
    pub(crate) fn data_bytes(&self, part: Part) -> u64 {
        let one = |job: &Job| {
            let longest = job.longest();
            let metadata = job.protected.bytes(longest / job.namespace.block_bytes);
            u64::from(longest).next_multiple_of(PAGE) + u64::from(metadata)
        };
        self.copies(part).map(|copy| &self.jobs[copy.job]).map(|job| u64::from(job.depth) * one(job)).sum()
    }

    /// A report for each job, without figures.
    pub(super) fn reports(&self) -> Vec<Report> {
        self.jobs.iter().map(|_| Report::default()).collect()
    }
}

/// The measurements until now.
pub(crate) struct Progress<'a> {
    /// The time since the phase began.
    pub(crate) elapsed: Nanos,
    /// The number of operations and of bytes of all jobs.
    pub(crate) moved: (u64, u64),
    /// The counts of the job with this number, and their time.
    pub(crate) of: &'a dyn Fn(usize) -> (Nanos, Kinds),
}

/// The result of jobs that ran at the same time.
#[derive(Debug)]
pub(crate) struct Ended {
    /// One for each job.
    pub(crate) reports: Vec<Report>,
    /// Whether a job has ended that ends all others, also jobs that have not begun.
    pub(crate) ends_all: bool,
}
