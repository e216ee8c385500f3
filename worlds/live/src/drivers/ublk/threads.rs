//! The threads of a block device's queues but the first: each serves one queue, with an io_uring
//! and a host of its own, so that no request of a queue passes to another thread.

use std::any::Any;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use engine::{Instant, Nanos};

use super::growth::Lengths;
use super::server::Server;
use super::{Event, Figures, StartError};
use crate::media::RemoteMedium;
use crate::media::remote::{self, OpenError, Place};
use crate::reactor::{
    Context, Driver, JobSender, Reactor, Sources, Stop, Turn, WithJobs, jobs, pin, processors,
};
use crate::sys::clock::Clock;
use crate::sys::ublk::{Device, DeviceFile, Info};

/// How the threads of queues reach the device, and how they run.
#[derive(Clone, Debug)]
pub struct Threads {
    /// The device, which each thread reaches by a host of its own.
    pub place: Place,
    /// How long the device may take to appear.
    pub patience: Nanos,
    /// Logs an event of the device.
    pub log: fn(&str),
    /// How long a thread spins after it last had something to do.
    pub spin: Nanos,
    /// The processor of the first queue's thread; further threads run on the following ones.
    pub processor: Option<usize>,
    /// Wakes the loop of the first queue.
    pub stop: Stop,
}

/// Where threads report to.
#[derive(Clone)]
pub(super) struct Reports {
    /// Takes events.
    pub(super) report: fn(Event),
    /// The lengths that the threads know.
    pub(super) lengths: Lengths,
}

/// The driver of a thread.
pub(super) struct QueueDriver {
    server: Server,
    /// Whether the device is being removed.
    removes: Arc<AtomicBool>,
    /// Whether that is known.
    has_seen: bool,
    is_over: bool,
    report: fn(Event),
    /// The lengths that the threads know, and the number of this one.
    lengths: Lengths,
    number: u16,
    /// Wakes the loop of the first queue.
    first: Stop,
}

impl QueueDriver {
    /// The figures of the queue.
    pub(super) fn figures(&self) -> Figures {
        Figures::of(&self.server)
    }

    pub(super) const fn medium_mut(&mut self) -> &mut RemoteMedium {
        &mut self.server.medium
    }
}

impl Driver for QueueDriver {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        self.server.register(sources)
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        if !self.has_seen && self.removes.load(Ordering::Acquire) {
            self.has_seen = true;
            self.server.refuse_if_away();
        }
        let busy = self.server.turn(context.now)?;
        if let Some(error) = self.server.refusal() {
            (self.report)(Event::Refused(error));
        }
        if self.lengths.note(self.number.into(), self.server.medium.adopt_growth()) {
            self.first.wake();
        }
        Ok(match (self.is_over || self.server.is_over(), busy) {
            (true, _) => Turn::Done,
            (false, true) => Turn::Busy,
            (false, false) => Turn::Idle,
        })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.server.medium.poll_timeout()
    }

    /// The process ends, and the device stays.
    fn on_stop(&mut self, _now: Instant) {
        self.is_over = true;
    }
}

/// A thread that serves a queue.
struct Queue {
    number: u16,
    sender: JobSender<QueueDriver>,
    stop: Stop,
    /// Whether the thread ends, or has ended.
    has_ended: Arc<AtomicBool>,
    /// `None` once it was joined.
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// The threads of the queues but the first.
#[derive(Default)]
pub(super) struct Queues {
    queues: Vec<Queue>,
    removes: Arc<AtomicBool>,
}

impl Queues {
    /// Starts a thread for each of `queues`, and waits until all of them serve. `idle` does the
    /// first queue's work meanwhile.
    ///
    /// # Errors
    /// When a thread can't reach the device, or the process has no descriptors or threads left.
    pub(super) fn start(
        clock: Clock,
        (file, info): (&DeviceFile, Info),
        queues: Range<u16>,
        threads: &Threads,
        reports: &Reports,
        mut idle: impl FnMut(),
    ) -> Result<Self, StartError> {
        let mut all = Self::default();
        let (ready, heard) = channel();
        for number in queues {
            let reactor = Reactor::new(clock, threads.spin).map_err(StartError::System)?;
            let stop = reactor.stop();
            let (sender, taken) = jobs(stop.clone());
            let start = Start {
                number,
                clock,
                file: file.clone(),
                info,
                threads: threads.clone(),
                removes: all.removes.clone(),
                reports: reports.clone(),
                ready: ready.clone(),
            };
            let has_ended = Arc::new(AtomicBool::new(false));
            let waking = Waking { has_ended: has_ended.clone(), stop: threads.stop.clone() };
            let run = move || {
                let result = start.serve().map_or(Ok(()), |driver| {
                    let mut reactor = reactor;
                    reactor.run(&mut WithJobs::new(driver, taken)).map(|_| ())
                });
                drop(waking);
                result
            };
            let thread = std::thread::Builder::new().name(format!("queue {number}")).spawn(run);
            let thread = Some(thread.map_err(StartError::System)?);
            all.queues.push(Queue { number, sender, stop, has_ended, thread });
        }
        drop(ready);
        if let Err(error) = all.wait(&heard, &mut idle) {
            // Those that still look for the device end with the process.
            all.queues.iter_mut().for_each(|queue| drop(queue.thread.take()));
            return Err(error);
        }
        Ok(all)
    }

    fn wait(&mut self, heard: &Receiver<Ready>, idle: &mut impl FnMut()) -> Result<(), StartError> {
        use std::sync::mpsc::RecvTimeoutError;
        let mut left = self.queues.len();
        while left > 0 {
            match heard.recv_timeout(IDLE_EVERY) {
                Ok((_, Ok(()))) => left -= 1,
                Ok((queue, Err(error))) => return Err(StartError::Queue { queue, error }),
                Err(RecvTimeoutError::Timeout) => idle(),
                // A thread has ended without a message, which is a panic.
                Err(RecvTimeoutError::Disconnected) => {
                    let why = self.ended().err().unwrap_or_else(|| io::Error::other("a queue has ended"));
                    return Err(StartError::System(why));
                }
            }
            // A thread that panics while others still look for the device.
            self.ended().map_err(StartError::System)?;
        }
        Ok(())
    }

    /// Has the threads refuse requests that wait for an absent device, which is being removed.
    pub(super) fn remove(&self) {
        self.removes.store(true, Ordering::Release);
        self.queues.iter().for_each(|queue| queue.stop.wake());
    }

    /// Whether all threads have ended, because their queues are over.
    ///
    /// # Errors
    /// When one has failed or panicked; the error names its queue.
    pub(super) fn ended(&mut self) -> io::Result<bool> {
        for queue in &mut self.queues {
            if !queue.has_ended.load(Ordering::Acquire) {
                continue;
            }
            let Some(thread) = queue.thread.take() else { continue };
            let number = queue.number;
            let named = |why: String| io::Error::other(format!("the thread of queue {number}: {why}"));
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(named(error.to_string())),
                Err(panic) => return Err(named(format!("a fault of farlane: {}", words(&*panic)))),
            }
        }
        Ok(self.queues.iter().all(|queue| queue.thread.is_none()))
    }

    /// The number of threads.
    pub(super) const fn count(&self) -> usize {
        self.queues.len()
    }

    /// Gives jobs to the threads, in the order of their queues.
    pub(super) fn senders(&self) -> impl Iterator<Item = JobSender<QueueDriver>> {
        self.queues.iter().map(|queue| queue.sender.clone())
    }
}

/// Ends the threads. A device that was not removed waits for another server.
impl Drop for Queues {
    fn drop(&mut self) {
        self.queues.iter().for_each(|queue| queue.stop.ask());
        for queue in &mut self.queues {
            // How the thread ended does not matter any more.
            let _ = queue.thread.take().map(JoinHandle::join);
        }
    }
}

/// How often the first queue's thread does its work while it waits for the others.
const IDLE_EVERY: std::time::Duration = std::time::Duration::from_millis(20);

/// A queue, and whether its thread serves it.
type Ready = (u16, Result<(), OpenError>);

/// Wakes the loop of the first queue when a thread has ended, for any reason.
struct Waking {
    has_ended: Arc<AtomicBool>,
    stop: Stop,
}

impl Drop for Waking {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Release);
        self.stop.wake();
    }
}

/// What a thread begins with.
struct Start {
    number: u16,
    clock: Clock,
    file: DeviceFile,
    info: Info,
    threads: Threads,
    removes: Arc<AtomicBool>,
    reports: Reports,
    ready: Sender<Ready>,
}

impl Start {
    /// Reaches the device and begins to serve the queue; `None` if that is not possible, which the
    /// starting thread then knows.
    fn serve(self) -> Option<QueueDriver> {
        let server = self.server();
        let (result, server) = match server {
            Ok(server) => (Ok(()), Some(server)),
            Err(error) => (Err(error), None),
        };
        // Without a receiver, the start has failed already.
        let is_wanted = self.ready.send((self.number, result)).is_ok();
        let Self { removes, reports: Reports { report, lengths }, number, threads, .. } = self;
        let (server, first) = (server.filter(|_| is_wanted)?, threads.stop);
        Some(QueueDriver { server, removes, has_seen: false, is_over: false, report, lengths, number, first })
    }

    fn server(&self) -> Result<Server, OpenError> {
        if let Some(first) = self.threads.processor {
            // If there are more threads than processors, threads share a processor.
            let count = processors().map_err(OpenError::Io)?.max(1);
            pin((first + usize::from(self.number)) % count)
                .map_err(|error| OpenError::Io(io::Error::other(error)))?;
        }
        let Threads { place, patience, log, .. } = &self.threads;
        let medium = remote::open(self.clock, place.clone(), *patience, *log)?;
        let queues = self.number..self.number + 1;
        let device = Device::serve(&self.file, self.info, queues);
        let device = device.map_err(|error| OpenError::Io(io::Error::other(error)))?;
        Ok(Server::new(self.clock, device, medium))
    }
}

/// The message of a panic.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Queue 3, whose thread does `work`.
    fn queue(stop: &Stop, work: impl FnOnce() -> io::Result<()> + Send + 'static) -> Queues {
        let has_ended = Arc::new(AtomicBool::new(false));
        let waking = Waking { has_ended: has_ended.clone(), stop: stop.clone() };
        let run = move || {
            let _waking = waking;
            work()
        };
        let (sender, _) = jobs(stop.clone());
        let thread = Some(std::thread::spawn(run));
        let queue = Queue { number: 3, sender, stop: stop.clone(), has_ended, thread };
        Queues { queues: vec![queue], removes: Arc::default() }
    }

    fn end(queues: &mut Queues) -> io::Result<bool> {
        loop {
            match queues.ended() {
                Ok(false) => std::thread::sleep(std::time::Duration::from_millis(1)),
                result => return result,
            }
        }
    }

    #[test]
    fn a_thread_that_fails_or_panics_is_named() {
        let reactor = Reactor::new(Clock::start(), Nanos::ZERO).unwrap();
        let stop = reactor.stop();
        assert!(end(&mut queue(&stop, || Ok(()))).unwrap());
        let error = end(&mut queue(&stop, || Err(io::Error::other("the ring is full")))).unwrap_err();
        assert_eq!(error.to_string(), "the thread of queue 3: the ring is full");
        let error = end(&mut queue(&stop, || panic!("two of {}", 1))).unwrap_err();
        assert_eq!(error.to_string(), "the thread of queue 3: a fault of farlane: two of 1");
    }

    #[test]
    fn threads_end_with_the_device() {
        let reactor = Reactor::new(Clock::start(), Nanos::ZERO).unwrap();
        let (stop, asked) = (reactor.stop(), reactor.stop());
        let mut queues = queue(&stop, move || {
            while !asked.is_asked_for() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            Ok(())
        });
        assert!(!queues.ended().unwrap());
        let has_ended = queues.queues[0].has_ended.clone();
        drop(queues);
        assert!(has_ended.load(Ordering::Acquire));
    }
}
