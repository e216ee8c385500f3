//! The threads that jobs run on.

use live::reactor::processors;

use super::Planned;
use crate::args::BenchArgs;
use crate::error::Error;
use crate::processor::stay_on;
use crate::session::{Needs, Session};
use crate::workload::{self, Ended, Part, Progress, Run, ThreadFigures, Threads};

/// The threads of all phases.
pub(super) struct Crew<'a> {
    args: &'a BenchArgs,
    needs: Needs,
    /// The most threads that a phase has.
    most: usize,
    processors: usize,
}

impl<'a> Crew<'a> {
    /// The threads for the jobs of `planned`.
    ///
    /// # Errors
    /// When the options ask for threads that the device can't have, or the system does not report
    /// the processors.
    pub(super) fn of(planned: &'a [Planned], needs: Needs) -> Result<Self, Error> {
        let args = &planned[0].args;
        let processors = processors().map_err(Error::System)?;
        let copies = |phase: &[Planned]| phase.iter().map(|one| one.args.numjobs as usize).sum();
        let most = planned.chunk_by(|one, other| one.phase == other.phase).map(copies).max();
        let most = wanted(args, processors)?.min(most.unwrap_or(1));
        Ok(Self { args, needs, most, processors })
    }

    /// Attaches for this thread, which carries out all jobs or waits for the other threads.
    pub(super) fn attach_first(&self) -> Result<Session, Error> {
        Session::attach(&self.args.target, self.needs)
    }

    /// The number of threads for the jobs of `run`; `None` if this thread carries them out.
    pub(super) fn count(&self, run: &Run<'_>) -> Option<usize> {
        let count = run.threads(self.most);
        (count > 1).then_some(count)
    }

    /// Carries out the jobs of `run` on this many threads, and adds their figures.
    pub(super) fn carry_out(
        &self,
        session: &mut Session,
        run: &Run<'_>,
        (count, figures): (usize, &mut Vec<ThreadFigures>),
        progress: impl FnMut(&Progress<'_>),
    ) -> Result<Ended, Error> {
        let (target, clock) = (&self.args.target, session.clock());
        let url = target.url.for_one_of(count);
        let attach = |part: Part| {
            // If there are more threads than processors, threads share a processor.
            let processor = target.spin.cpu.map(|first| (first + part.index()) % self.processors.max(1));
            stay_on(processor)?;
            let needs = Needs { data_bytes: run.data_bytes(part), ..self.needs };
            Session::attach_beside(clock, &url, target, needs)
        };
        let shows_jobs = self.args.status_interval.is_some();
        let threads = Threads { count, attach, shows_jobs, session };
        let (ended, more) = workload::carry_out_on_threads(run, threads, progress)?;
        figures.resize_with(figures.len().max(more.len()), ThreadFigures::default);
        figures.iter_mut().zip(&more).for_each(|(sum, one)| sum.add(one));
        Ok(ended)
    }
}

/// The most threads that the options allow.
fn wanted(args: &BenchArgs, processors: usize) -> Result<usize, Error> {
    let target = &args.target;
    let one = if !target.url.takes_many_hosts() {
        Some("1: this device has one host at a time, and RoCE one port for a process")
    } else if target.capture.is_some() {
        Some("1 with --capture, whose file has the connections of one controller")
    } else {
        None
    };
    match (args.cores, one) {
        (None | Some(1), Some(_)) => Ok(1),
        (Some(cores), Some(expected)) => {
            Err(Error::Range { what: "--cores", value: cores as u64, expected: expected.to_owned() })
        }
        (Some(cores), None) => Ok(cores),
        // A load that is to run on one processor has one thread.
        (None, None) if target.spin.cpu.is_some() => Ok(1),
        (None, None) => Ok(processors.max(1)),
    }
}
