//! The thread that answers requests for which the loop has no time.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

use live::drivers::control::Reply;
use live::reactor::Stop;
use live::sys::urgency;

/// Makes the line that answers a request; `None` if the process ends before.
pub(crate) type Job = Box<dyn FnOnce() -> Option<String> + Send>;

/// Hands requests that take long to a thread, which the first of them starts.
#[derive(Default)]
pub(crate) struct AnswerThread(Option<Sender<(Job, Sender<String>)>>);

impl AnswerThread {
    /// Has the thread do `job`, and wake the loop of `stop` when the answer is there.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub(crate) fn answer(&mut self, job: Job, stop: &Stop) -> io::Result<Reply> {
        let jobs = match &self.0 {
            Some(jobs) => jobs,
            None => {
                let (jobs, taken) = channel();
                let stop = stop.clone();
                std::thread::Builder::new().name("answers".into()).spawn(move || work(&taken, &stop))?;
                self.0.insert(jobs)
            }
        };
        let (answer, answered) = channel();
        // If the thread is gone, so is the sender of the answer, and the client is turned away.
        let _ = jobs.send((job, answer));
        Ok(Reply::Later(answered))
    }
}

fn work(jobs: &Receiver<(Job, Sender<String>)>, stop: &Stop) {
    urgency::step_back();
    for (job, answer) in jobs {
        let Some(line) = job() else { return };
        // The loop has gone only when the process ends.
        let _ = answer.send(line);
        stop.wake();
    }
}
