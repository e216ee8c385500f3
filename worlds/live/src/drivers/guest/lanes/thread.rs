//! A lane of a guest's function: the loop of its thread.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use engine::{Engine, Instant, Pool};
use nvme::media::Completion;
use nvme_pcie::controller::{Input, LaneStart, Output, QueueLane};
use pcie::device::{Dma, DmaResult};

use super::letters::{Counts, Letter, News};
use crate::drivers::guest::doorbells::LaneDoorbells;
use crate::drivers::guest::signal::Signaller;
use crate::drivers::guest::{LEISURE, LOOK_EVERY};
use crate::media::Media;
use crate::reactor::{Attention, Context, Driver, Glance, Pump, Shell, Sources, Stop, Turn};
use crate::sys::shared::SharedMemory;
use crate::sys::usage::thread_time;

/// The most letters that are taken in one go.
const LETTERS_AT_ONCE: usize = 64;

/// Letters to the home thread, and its waker.
pub(super) struct Post {
    pub(super) lane: usize,
    pub(super) news: Sender<(usize, News)>,
    pub(super) home: Stop,
}

impl Post {
    /// Sends news without waking the home thread.
    fn send(&self, news: News) {
        // A home thread that has ended needs no news.
        let _ = self.news.send((self.lane, news));
    }

    pub(super) fn send_now(&self, news: News) {
        self.send(news);
        self.home.wake();
    }
}

/// The surroundings of a lane's engine.
struct LaneShell {
    memory: SharedMemory,
    vectors: Vec<Option<Arc<Signaller>>>,
    media: Media,
    completions: VecDeque<Completion>,
    pool: Pool,
    post: Post,
    /// Something was sent to the home thread, which must be woken.
    has_sent: bool,
}

impl LaneShell {
    fn send(&mut self, news: News) {
        self.post.send(news);
        self.has_sent = true;
    }

    fn interrupt(&mut self, vector: u16) {
        let index = usize::from(vector);
        let Some(Some(signaller)) = self.vectors.get(index) else {
            return self.send(News::Interrupt(vector));
        };
        if let Err(error) = signaller.signal() {
            self.vectors[index] = None;
            self.send(News::SignalFailed(index, error));
        }
    }

    /// Carries out an access to the guest's memory. Returns the answer to a read.
    #[inline]
    fn access(&mut self, dma: Dma) -> Option<DmaResult> {
        match dma {
            Dma::Read { id, address, length } => {
                let mut bytes = self.pool.take(usize::try_from(length).expect("32 bits fit"));
                Some(match self.memory.read(address, &mut bytes) {
                    Ok(()) => DmaResult::Data { id, offset: 0, data: self.pool.seal(bytes), last: true },
                    Err(_) => DmaResult::Failed { id },
                })
            }
            Dma::Write { address, data } => {
                // A write to memory that is not mapped is dropped, as on PCIe.
                let _ = self.memory.write(address, &data);
                None
            }
            Dma::Interrupt { vector } => {
                self.interrupt(vector);
                None
            }
        }
    }

    /// Takes the media's completions, and gives the system the media's next requests.
    fn reap(&mut self) -> io::Result<bool> {
        let Self { media, completions, .. } = self;
        media.reap(&mut |completion| completions.push_back(completion))?;
        Ok(!self.completions.is_empty())
    }
}

impl Shell<QueueLane> for LaneShell {
    #[inline]
    fn pass(&mut self, now: Instant, output: Output, lane: &mut QueueLane) {
        match output {
            Output::Dma(dma) => {
                if let Some(result) = self.access(dma) {
                    lane.handle_input(now, Input::Dma(result));
                }
            }
            // Media in memory complete a request at once.
            Output::Media(request) => self.media.submit(request, &mut |completion| {
                lane.handle_input(now, Input::Media(completion));
            }),
            Output::ToHome(message) => self.send(News::Engine(message)),
            Output::Notify(_) | Output::ToLane(..) => {}
        }
    }

    fn answer(&mut self, now: Instant, lane: &mut QueueLane) -> bool {
        let has_any = !self.completions.is_empty();
        while let Some(completion) = self.completions.pop_front() {
            lane.handle_input(now, Input::Media(completion));
        }
        has_any
    }
}

/// The driver of a lane's thread.
pub(super) struct LaneDriver {
    lane: Pump<QueueLane>,
    shell: LaneShell,
    letters: Receiver<Letter>,
    doorbells: LaneDoorbells,
    counts: Arc<Counts>,
    looked_at: Instant,
    rung_at: Instant,
    /// The memory address of the entry that the next ring will announce.
    next_entry: Option<u64>,
    is_ending: bool,
}

impl LaneDriver {
    pub(super) fn new(
        now: Instant,
        start: LaneStart,
        media: Media,
        letters: Receiver<Letter>,
        post: Post,
        counts: Arc<Counts>,
    ) -> Self {
        let lane = u8::try_from(post.lane + 1).expect("lanes are few");
        Self {
            lane: Pump::new(QueueLane::new(now, start)),
            shell: LaneShell {
                memory: SharedMemory::new(),
                vectors: Vec::new(),
                media,
                completions: VecDeque::new(),
                pool: Pool::default(),
                post,
                has_sent: false,
            },
            letters,
            doorbells: LaneDoorbells::new(lane),
            counts,
            looked_at: Instant::ZERO,
            rung_at: Instant::ZERO,
            next_entry: None,
            is_ending: false,
        }
    }

    /// Heeds the letters of the home thread. Returns whether there were any.
    fn take_letters(&mut self, now: Instant) -> bool {
        let mut busy = false;
        for _ in 0..LETTERS_AT_ONCE {
            let Ok(letter) = self.letters.try_recv() else { break };
            busy = true;
            match letter {
                Letter::Engine(message) => {
                    self.lane.engine_mut().handle_input(now, Input::FromHome(message));
                    // The client rings the doorbells of a queue after the answer to its creation.
                    self.own_doorbells();
                    self.lane.exchange(now, &mut self.shell);
                }
                Letter::Map(region) => self.shell.memory.adopt(region),
                Letter::Unmap(address, length) => self.shell.memory.unmap(address, length),
                Letter::Vector(vector, signaller) => {
                    let vectors = &mut self.shell.vectors;
                    if vector >= vectors.len() {
                        vectors.resize_with(vector + 1, || None);
                    }
                    vectors[vector] = signaller;
                }
                Letter::Doorbells(doorbells) => self.doorbells.set(doorbells),
                Letter::ClientGone => {
                    self.shell.memory.clear();
                    self.shell.vectors.clear();
                    self.doorbells.set(None);
                }
                Letter::Fence(number) => self.shell.send(News::Fenced(number)),
                Letter::End => self.is_ending = true,
                #[cfg(test)]
                Letter::Panic => panic!("a planted failure"),
            }
        }
        busy
    }

    /// Looks at the doorbells of all queues that are here: tails of submission queues and heads of
    /// completion queues.
    fn own_doorbells(&mut self) {
        let lane = self.lane.engine();
        let tails = lane.submission_queues().map(|queue| 2 * usize::from(queue.id));
        let heads = lane.completion_queues().map(|queue| 2 * usize::from(queue.id) + 1);
        self.doorbells.own(tails.chain(heads));
    }

    /// Passes on the doorbells that were rung in shared memory; returns whether there were any.
    #[inline]
    fn look_at_doorbells(&mut self, now: Instant) -> bool {
        let Self { doorbells, lane, shell, next_entry, .. } = self;
        // The entry is written just before its ring: fetching both at once saves a wait.
        if let Some(address) = *next_entry {
            shell.memory.prefetch(address);
        }
        let mut rung = false;
        doorbells.take(|offset, value| {
            rung = true;
            if let Ok(offset) = u32::try_from(offset) {
                let bytes = &value.to_le_bytes();
                lane.engine_mut().handle_input(now, Input::RegisterWrite { offset, bytes });
            }
        });
        if rung {
            self.lane.exchange(now, &mut self.shell);
            self.next_entry = self.lane.engine().next_entry();
            self.wake_home();
            self.rung_at = now;
        }
        rung
    }

    fn wake_home(&mut self) {
        if std::mem::take(&mut self.shell.has_sent) {
            self.shell.post.home.wake();
        }
    }
}

impl Driver for LaneDriver {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        self.shell.media.poll_fds().try_for_each(|descriptor| sources.add(descriptor, Attention::EachTurn))
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let now = context.now;
        self.looked_at = now;
        let mut busy = self.take_letters(now);
        busy |= self.look_at_doorbells(now);
        if self.shell.reap()? {
            busy = true;
            self.lane.exchange(now, &mut self.shell);
        }
        // As at home: a client that rings by stores rings again before a deadline can matter.
        let ringing = self.doorbells.is_shared() && now - self.rung_at < LEISURE;
        if self.lane.wants_settling(now, busy || ringing) {
            busy |= self.lane.settle(now, &mut self.shell);
            self.counts.set(self.lane.engine().statistics(), thread_time().get());
        }
        // Only this call starts the requests that were submitted last.
        busy |= self.shell.reap()?;
        self.wake_home();
        if self.is_ending && self.shell.media.in_flight() == 0 {
            self.counts.set(self.lane.engine().statistics(), thread_time().get());
            return Ok(Turn::Done);
        }
        Ok(if busy { Turn::Busy } else { Turn::Idle })
    }

    fn glance(&mut self, context: &Context<'_>) -> Glance {
        match (self.doorbells.is_shared(), self.look_at_doorbells(context.now)) {
            (false, _) => Glance::Blind,
            (true, false) => Glance::Nothing,
            (true, true) => Glance::Done,
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let look = self.doorbells.is_shared().then(|| self.looked_at + LOOK_EVERY);
        let own = [look, self.shell.media.poll_timeout()].into_iter().flatten();
        self.lane.poll_timeout().into_iter().chain(own).min()
    }

    fn on_stop(&mut self, _now: Instant) {
        self.is_ending = true;
    }
}
