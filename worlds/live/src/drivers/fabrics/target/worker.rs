//! The thread beside the loop that does the exponentiations of authentications: each takes up to
//! tens of milliseconds, in which the loop would serve no host.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use engine::Nanos;
use nvme_fabrics::authentication::{Product, Work};
use nvme_fabrics::target::WorkId;

use crate::sys::urgency;
use crate::sys::usage::thread_time;

/// A piece of work that is done, and how much of a processor's time it took.
type Done = (WorkId, Product, Nanos);

/// The loop's ends of the ways to and from the thread.
struct Ends {
    jobs: Sender<(WorkId, Work)>,
    done: Receiver<Done>,
}

/// The thread, which starts with the first piece of work: one that ran before the process gave up
/// rights would keep them.
#[derive(Default)]
pub(super) struct Worker {
    ends: Option<Ends>,
    /// Work that is done already, because there is no thread.
    done: Option<Done>,
    is_busy: bool,
}

impl Worker {
    /// Has the work done. `waker` ends the loop's sleep when it is.
    pub(super) fn begin(&mut self, id: WorkId, work: Work, waker: impl FnOnce() -> io::Result<mio::Waker>) {
        self.is_busy = true;
        if self.ends.is_none() {
            self.ends = waker().and_then(start).ok();
        }
        let lost = match &self.ends {
            Some(ends) => ends.jobs.send((id, work)).err().map(|unsent| unsent.0),
            None => Some((id, work)),
        };
        if let Some((id, work)) = lost {
            self.done = Some(timed(id, &work));
        }
    }

    /// The piece of work that is done, once.
    pub(super) fn take(&mut self) -> Option<Done> {
        if !self.is_busy {
            return None;
        }
        let of_thread = || self.ends.as_ref().and_then(|ends| ends.done.try_recv().ok());
        let done = self.done.take().or_else(of_thread)?;
        self.is_busy = false;
        Some(done)
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("is_busy", &self.is_busy).finish_non_exhaustive()
    }
}

fn start(waker: mio::Waker) -> io::Result<Ends> {
    let waker = Arc::new(waker);
    let (jobs, taken) = channel::<(WorkId, Work)>();
    let (finished, done) = channel();
    let run = move || {
        urgency::step_back();
        for (id, work) in taken {
            if finished.send(timed(id, &work)).is_err() {
                return;
            }
            // A loop that has ended needs no waking.
            let _ = waker.wake();
        }
    };
    std::thread::Builder::new().name("authentication".into()).spawn(run)?;
    Ok(Ends { jobs, done })
}

fn timed(id: WorkId, work: &Work) -> Done {
    let before = thread_time();
    let product = work.compute();
    (id, product, thread_time().saturating_sub(before))
}
