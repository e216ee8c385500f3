//! Jobs that other threads hand to a loop, to be done between two of its turns.

use std::borrow::Borrow;
use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use engine::Instant;

use super::{Context, Driver, Glance, Sources, Stop, Turn};

/// How soon a loop that refuses jobs heeds a request to end.
const REFUSED_AT_ONCE: Duration = Duration::from_millis(20);

type Job<D> = Box<dyn FnOnce(&mut D) + Send>;

/// Both ends of a way for jobs to the driver of the loop that `stop` ends.
pub fn jobs<D>(stop: Stop) -> (JobSender<D>, Jobs<D>) {
    let (jobs, taken) = channel();
    (JobSender { jobs, stop }, Jobs(taken))
}

/// The driver's end of a way for jobs.
pub struct Jobs<D>(Receiver<Job<D>>);

impl<D> Jobs<D> {
    /// Does the next job, if one waits. Returns whether one did.
    pub fn turn(&self, driver: &mut D) -> bool {
        self.0.try_recv().map(|job| job(driver)).is_ok()
    }

    /// Refuses all jobs for `time`, for as long as `stop` does not end the loop.
    pub fn refuse_for(&self, time: Duration, stop: &Stop) {
        let until = std::time::Instant::now() + time;
        while !stop.is_asked_for() {
            let left = until.saturating_duration_since(std::time::Instant::now());
            // The senders' ends are dropped with the jobs: they wait no longer.
            let refused = self.0.recv_timeout(left.min(REFUSED_AT_ONCE)).map(drop);
            if left.is_zero() || refused == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
    }
}

impl<D> fmt::Debug for Jobs<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Jobs")
    }
}

/// Hands jobs to the driver of a loop, from any thread.
pub struct JobSender<D> {
    jobs: Sender<Job<D>>,
    stop: Stop,
}

impl<D> JobSender<D> {
    /// Has the loop run `job`, and waits for the result of `job`. `None` if the loop has ended.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce(&mut D) -> T + Send + 'static) -> Option<T> {
        let (answer, answered) = channel();
        let job = move |driver: &mut D| {
            // The answer has no receiver only when the process ends.
            let _ = answer.send(job(driver));
        };
        self.jobs.send(Box::new(job)).ok()?;
        self.stop.wake();
        answered.recv().ok()
    }

    /// Wakes the loop, which something else than a job waits for.
    pub fn wake(&self) {
        self.stop.wake();
    }
}

impl<D> Clone for JobSender<D> {
    fn clone(&self) -> Self {
        Self { jobs: self.jobs.clone(), stop: self.stop.clone() }
    }
}

impl<D> fmt::Debug for JobSender<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobSender").field("stop", &self.stop).finish_non_exhaustive()
    }
}

/// A driver that does jobs between its turns.
#[derive(Debug)]
pub struct WithJobs<D, J = Jobs<D>> {
    driver: D,
    jobs: J,
}

impl<D, J: Borrow<Jobs<D>>> WithJobs<D, J> {
    /// Wraps `driver`, which does the jobs that come by `jobs`.
    pub const fn new(driver: D, jobs: J) -> Self {
        Self { driver, jobs }
    }
}

impl<D: Driver, J: Borrow<Jobs<D>>> Driver for WithJobs<D, J> {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        self.driver.start(sources)
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let turn = self.driver.turn(context)?;
        // One job a turn: each is short, and many of them must not keep the driver waiting.
        let worked = context.news && self.jobs.borrow().turn(&mut self.driver);
        Ok(if worked && turn == Turn::Idle { Turn::Busy } else { turn })
    }

    fn glance(&mut self, context: &Context<'_>) -> Glance {
        self.driver.glance(context)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.driver.poll_timeout()
    }

    fn on_stop(&mut self, now: Instant) {
        self.driver.on_stop(now);
    }
}
