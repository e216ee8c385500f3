//! Threads that serve I/O queues of a guest's function beside its home thread: lanes.
//!
//! The home thread has the monitor's socket, the registers and the Admin Queue. A lane's thread
//! reads and writes the guest's memory, sends requests to the media by a ring of its own, and
//! signals the guest's interrupts. Before the monitor is answered that memory or an interrupt has
//! changed, every lane has reported that it knows of the change.

mod letters;
#[cfg(test)]
mod tests;
mod thread;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use engine::Nanos;
use nvme::subsystem::LaneId;
use nvme_pcie::controller::{LaneStart, ToHome, ToLane};

use letters::{Counts, Letter, News};
use thread::{LaneDriver, Post};

use super::doorbells::ForLanes;
use super::signal::Signaller;
use crate::media::MediaForLane;
use crate::reactor::{Reactor, Stop, pin, processors};
use crate::sys::clock::Clock;
use crate::sys::shared::SharedRegion;

/// The most lanes of a function.
pub const LANES_MAX: usize = 63;

/// How the threads of lanes run.
#[derive(Clone, Debug)]
pub struct Threads {
    /// The clock of all threads.
    pub clock: Clock,
    /// How long a thread spins before it sleeps.
    pub spin: Nanos,
    /// The processor of the home thread, if it has one: the lanes have those after it.
    pub processor: Option<usize>,
    /// Wakes the home thread.
    pub home: Stop,
}

/// What a lane does and has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneStatus {
    /// I/O completion queues that the lane serves.
    pub queues: u64,
    /// Commands that it has fetched.
    pub commands: u64,
    /// Reads of the guest's memory that fetched them.
    pub fetches: u64,
    /// Interrupts that it has raised.
    pub interrupts: u64,
    /// Processor time of its thread.
    pub processor: Nanos,
}

/// What a lane has for the function.
pub(super) enum ForFunction {
    /// A message for the controller.
    Engine(LaneId, Box<ToHome>),
    /// An interrupt that goes the home thread's way.
    Interrupt(u16),
    /// A vector's descriptor can't be signalled.
    SignalFailed(usize, io::Error),
    /// Nothing: a lane has heeded changes, for which the client's answer may have waited.
    Heeded,
    /// The lane's thread has failed.
    Gone(LaneId, u8),
}

/// A lane's thread.
struct Lane {
    id: LaneId,
    letters: Sender<Letter>,
    stop: Stop,
    counts: Arc<Counts>,
    /// The last fence that the lane has reported.
    heeded: u64,
    is_gone: bool,
    /// Whether the lane gets no more queues.
    is_retired: bool,
    thread: Option<JoinHandle<()>>,
}

/// The lanes of a function.
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    news: Receiver<(usize, News)>,
    sender: Sender<(usize, News)>,
    /// The number of the last fence.
    fence: u64,
}

impl Lanes {
    pub(super) fn new() -> Self {
        let (sender, news) = channel();
        Self { lanes: Vec::new(), news, sender, fence: 0 }
    }

    /// Starts the thread of a lane.
    ///
    /// # Errors
    /// When the process has no descriptors or threads left.
    pub(super) fn start(
        &mut self,
        (id, start): (LaneId, LaneStart),
        media: MediaForLane,
        threads: &Threads,
    ) -> io::Result<()> {
        let index = self.lanes.len();
        let reactor = Reactor::new(threads.clock, threads.spin)?;
        let (letters, received) = channel();
        let counts = Arc::<Counts>::default();
        let (stop, own) = (reactor.stop(), Arc::clone(&counts));
        let post = || Post { lane: index, news: self.sender.clone(), home: threads.home.clone() };
        let (of_thread, obituary) = (post(), post());
        let Threads { clock, processor, .. } = *threads;
        let processor = processor.map(|first| first + 1 + index);
        let run = move || {
            let serve = move || -> io::Result<()> {
                let mut reactor = reactor;
                if let Some(processor) = processor {
                    // If there are more threads than processors, threads share a processor.
                    pin(processor % processors()?.max(1)).map_err(io::Error::other)?;
                }
                let media = media.open()?;
                reactor.run(&mut LaneDriver::new(clock.now(), start, media, received, of_thread, own))?;
                Ok(())
            };
            // All that the lane has is dropped before the home thread learns of its end.
            if !matches!(catch_unwind(AssertUnwindSafe(serve)), Ok(Ok(()))) {
                obituary.send_now(News::Failed);
            }
        };
        let thread = Some(std::thread::Builder::new().name(format!("lane {}", index + 1)).spawn(run)?);
        self.lanes.push(Lane {
            id,
            letters,
            stop,
            counts,
            heeded: 0,
            is_gone: false,
            is_retired: false,
            thread,
        });
        Ok(())
    }

    fn post(&self, lane: &Lane, letter: Letter) {
        // A lane that has failed takes no letters.
        if lane.letters.send(letter).is_ok() {
            lane.stop.wake();
        }
    }

    fn post_all(&self, letter: impl Fn() -> Letter) {
        self.lanes.iter().for_each(|lane| self.post(lane, letter()));
    }

    /// Passes on a message of the controller.
    pub(super) fn send(&self, id: LaneId, message: Box<ToLane>) {
        if let Some(lane) = self.lanes.iter().find(|lane| lane.id == id) {
            self.post(lane, Letter::Engine(message));
        }
    }

    /// Memory of the guest may be used, once [`Lanes::are_fenced`] is false.
    pub(super) fn map(&mut self, region: &SharedRegion) {
        self.change(|| Letter::Map(region.clone()));
    }

    /// Memory of the guest is not used any more, once [`Lanes::are_fenced`] is false.
    pub(super) fn unmap(&mut self, address: u64, length: u64) {
        self.change(|| Letter::Unmap(address, length));
    }

    /// This descriptor signals the vector, once [`Lanes::are_fenced`] is false.
    pub(super) fn set_vector(&mut self, vector: usize, signaller: Option<&Arc<Signaller>>) {
        self.change(|| Letter::Vector(vector, signaller.cloned()));
    }

    /// The client may ring these doorbells.
    pub(super) fn set_doorbells(&self, doorbells: &ForLanes) {
        self.post_all(|| Letter::Doorbells(Some(doorbells.clone())));
    }

    /// The client is gone. Before another one comes, the function is reset, which all lanes report.
    pub(super) fn forget_client(&self) {
        self.post_all(|| Letter::ClientGone);
    }

    /// Sends a change of which every lane must know before the client is answered.
    fn change(&mut self, letter: impl Fn() -> Letter) {
        self.post_all(letter);
        self.fence += 1;
        let fence = self.fence;
        self.post_all(|| Letter::Fence(fence));
    }

    /// Whether a lane has not heeded all changes of memory and interrupts.
    #[inline]
    pub(super) fn are_fenced(&self) -> bool {
        self.lanes.iter().any(|lane| lane.heeded < self.fence && !lane.is_gone)
    }

    /// The next thing that a lane has for the function.
    pub(super) fn next_news(&mut self) -> Option<ForFunction> {
        let (index, news) = self.news.try_recv().ok()?;
        let lane = &mut self.lanes[index];
        Some(match news {
            News::Engine(message) => ForFunction::Engine(lane.id, message),
            News::Interrupt(vector) => ForFunction::Interrupt(vector),
            News::SignalFailed(vector, error) => ForFunction::SignalFailed(vector, error),
            News::Fenced(number) => {
                lane.heeded = number;
                ForFunction::Heeded
            }
            News::Failed => {
                lane.is_gone = true;
                ForFunction::Gone(lane.id, u8::try_from(index + 1).expect("lanes are few"))
            }
        })
    }

    /// The lanes that may get queues, which from now on get none.
    pub(super) fn retire(&mut self) -> Vec<LaneId> {
        let retire = |lane: &mut Lane| {
            (!lane.is_gone && !std::mem::replace(&mut lane.is_retired, true)).then_some(lane.id)
        };
        self.lanes.iter_mut().filter_map(retire).collect()
    }

    /// Has all lanes end once media have answered.
    pub(super) fn end(&self) {
        self.post_all(|| Letter::End);
    }

    /// Whether all threads have ended.
    pub(super) fn have_ended(&self) -> bool {
        self.lanes.iter().all(|lane| lane.thread.as_ref().is_none_or(JoinHandle::is_finished))
    }

    /// The status of each lane that may have queues. `queues` has the number of queues of each.
    pub(super) fn status(&self, queues: impl Fn(LaneId) -> usize) -> Vec<LaneStatus> {
        let status = |lane: &Lane| LaneStatus {
            queues: queues(lane.id) as u64,
            commands: lane.counts.commands(),
            fetches: lane.counts.fetches(),
            interrupts: lane.counts.interrupts(),
            processor: Nanos::new(lane.counts.processor()),
        };
        self.lanes.iter().filter(|lane| !lane.is_gone && !lane.is_retired).map(status).collect()
    }

    /// Makes the thread of a lane panic.
    #[cfg(test)]
    pub(super) fn plant_panic(&self, index: usize) {
        self.post(&self.lanes[index], Letter::Panic);
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        for lane in &self.lanes {
            lane.stop.ask();
        }
        for lane in &mut self.lanes {
            // A thread that has failed has said so.
            if let Some(thread) = lane.thread.take() {
                let _ = thread.join();
            }
        }
    }
}
