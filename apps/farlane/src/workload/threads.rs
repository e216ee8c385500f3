//! Jobs on several threads, each with a controller of its own: nothing on the path of a command is
//! shared, but the chunks of a verified load.

use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::Nanos;

use super::crew::{self, Member};
use super::report::{Kinds, Report};
use super::run::{Ended, Part, Progress, Run};
use crate::error::Error;
use crate::session::Session;

/// The figures of one thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadFigures {
    /// Operations that ended well, without Flushes, and their bytes.
    pub(crate) commands: u64,
    pub(crate) bytes: u64,
    /// The time of its longest job, over all phases.
    pub(crate) elapsed: Nanos,
}

impl ThreadFigures {
    /// Adds the figures of the same thread in a later phase.
    pub(crate) fn add(&mut self, later: &Self) {
        self.commands += later.commands;
        self.bytes += later.bytes;
        self.elapsed += later.elapsed;
    }
}

/// The measurements of a thread until now, which the thread that reports reads. Neither waits for
/// the other on the path of a command: they are exchanged a few times a second.
#[derive(Debug, Default)]
struct Shown(Mutex<Figures>);

#[derive(Clone, Debug, Default)]
struct Figures {
    moved: (u64, u64),
    /// One for each job; empty where only the sums are wanted.
    jobs: Vec<(Nanos, Kinds)>,
}

impl Shown {
    fn lock(&self) -> MutexGuard<'_, Figures> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What each thread of a run needs.
pub(crate) struct Threads<'a, A> {
    /// Their number.
    pub(crate) count: usize,
    /// Gives a thread its controller.
    pub(crate) attach: A,
    /// Whether the progress is shown for each job.
    pub(crate) shows_jobs: bool,
    /// The session of this thread, which is kept alive meanwhile.
    pub(crate) session: &'a mut Session,
}

/// Carries out all jobs of `run` on several threads, and gives `progress` the measurements now and
/// then.
///
/// # Errors
/// The first error of a thread, which names the thread.
pub(crate) fn carry_out<A>(
    run: &Run<'_>,
    threads: Threads<'_, A>,
    mut progress: impl FnMut(&Progress<'_>),
) -> Result<(Ended, Vec<ThreadFigures>), Error>
where
    A: Fn(Part) -> Result<Session, Error> + Sync,
{
    let Threads { count, attach, shows_jobs, session } = threads;
    let shown: Vec<Shown> = (0..count).map(|_| Shown::default()).collect();
    let work = |member: &Member<'_, Ended>| {
        let part = Part { index: member.number(), of: count };
        let mut session = attach(part)?;
        member.wait_for_all(session.stop(), || session.keep_alive())?;
        let shown = &shown[part.index];
        let ended = super::carry_out(&mut session, run, part, |now| {
            let jobs = if shows_jobs { (0..run.jobs.len()).map(now.of).collect() } else { Vec::new() };
            *shown.lock() = Figures { moved: now.moved, jobs };
        })?;
        session.close()?;
        Ok(ended)
    };
    let begun = session.now();
    let mut is_interrupted = false;
    let meanwhile = || {
        match session.keep_alive() {
            // Each thread has seen the same signal, and reports its figures.
            Err(Error::Interrupted) => is_interrupted = true,
            result => result?,
        }
        if !is_interrupted {
            show(&shown, session.now() - begun, &mut progress);
        }
        Ok(())
    };
    let ended = crew::run(count, work, meanwhile)?;
    Ok(merged(run, ended))
}

/// Gives `progress` the measurements of all threads until now.
fn show(shown: &[Shown], elapsed: Nanos, progress: &mut impl FnMut(&Progress<'_>)) {
    let figures: Vec<Figures> = shown.iter().map(|one| one.lock().clone()).collect();
    let moved = figures.iter().fold((0, 0), |sum, one| (sum.0 + one.moved.0, sum.1 + one.moved.1));
    let of = |job: usize| {
        let mut sum = Report::default();
        for (elapsed, kinds) in figures.iter().filter_map(|one| one.jobs.get(job).cloned()) {
            sum.merge(Report { kinds, elapsed, ..Report::default() });
        }
        (sum.elapsed, sum.kinds)
    };
    progress(&Progress { elapsed, moved, of: &of });
}

/// The reports of all threads together, and the figures of each thread.
fn merged(run: &Run<'_>, parts: Vec<Ended>) -> (Ended, Vec<ThreadFigures>) {
    let (mut reports, mut ends_all, mut threads) = (run.reports(), false, Vec::new());
    for part in parts {
        ends_all |= part.ends_all;
        let mut figures = ThreadFigures::default();
        for (all, one) in reports.iter_mut().zip(part.reports) {
            figures.commands += one.commands;
            figures.bytes += one.bytes;
            figures.elapsed = figures.elapsed.max(one.elapsed);
            all.merge(one);
        }
        threads.push(figures);
    }
    reports.iter_mut().for_each(Report::sum_up);
    (Ended { reports, ends_all }, threads)
}
