//! The controller behind BAR0: registers, queues, data pointers and interrupts around the
//! command core.
//!
//! Inputs are register writes and the answers of host memory and media. Outputs are DMA and
//! requests to media. The controller never accesses host memory directly, so that the same code
//! serves a distant link, a local virtual machine and virtual time.

mod arbitration;
mod config;
mod dma;
mod doorbells;
mod fetch;
mod home;
mod interrupts;
mod lane;
mod lanes;
mod letters;
mod memory;
mod posting;
mod properties;
mod queues;
mod rings;
mod shadow;
mod shared;
mod side;
mod slots;
mod transfer;

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Buffer, Instant, Pool};
use nvme::media;
use nvme::pointer::PageSize;
use nvme::rate::Ceiling;
use nvme::subsystem::{
    CommandToken, ControllerKey, Input as CoreInput, LaneId, Notification, Output as CoreOutput,
};
use nvme::wire::{QueueId, Status, StatusCode, SubmissionQueueEntry};
use pcie::device::{Dma, DmaId, DmaResult};
use serde::{Deserialize, Serialize};

pub use config::{Config, IO_QUEUES_MAX, QUEUE_ENTRIES_MAX, SGL_SUPPORT};
pub use dma::READS_MAX;
pub use fetch::{FETCH_ENTRIES_MAX, FETCHES_MAX};
pub use home::{Controller, Home};
pub use lane::{Away, QueueLane};
pub use letters::{LaneStart, ToHome, ToLane};
pub use memory::{MEMORY_BUFFER_BAR, MEMORY_BUFFER_BYTES_MAX, MEMORY_BUFFER_BYTES_MIN};
pub use rings::{CompletionQueueId, QueuePlace};
pub use shared::SEATS_MAX;

use arbitration::Classes;
use dma::{Piece, Purpose, Reads};
use fetch::Fetches;
use interrupts::Interrupts;
use letters::Limits;
use memory::MemoryBuffer;
use rings::{CompletionQueue, SubmissionQueue};
use shadow::{Doorbell, Shadow};
use side::Side;
use slots::{Ending, Slots, Transfer};

/// Bytes of buffers that are kept for reuse, per buffer size.
const POOL_RETAIN: usize = 8 << 20;

/// An input of a controller or of one of its lanes.
#[derive(Debug)]
pub enum Input<'a> {
    /// The host wrote to BAR0. A lane takes writes to the doorbells of its queues.
    RegisterWrite {
        /// Offset in bytes from the start of the BAR.
        offset: u32,
        /// The written bytes, of any length.
        bytes: &'a [u8],
    },
    /// The host wrote to the controller memory buffer.
    MemoryBufferWrite {
        /// Offset in bytes from the start of the buffer.
        offset: u64,
        /// The written bytes, of any length.
        bytes: &'a [u8],
    },
    /// A read of host memory ([`Dma::Read`]) was answered. An answer to a read from before a reset
    /// is ignored.
    Dma(DmaResult),
    /// A medium answered.
    Media(media::Completion),
    /// A message of a lane, for the controller.
    FromLane(LaneId, Box<ToHome>),
    /// A message of the controller, for a lane.
    FromHome(Box<ToLane>),
}

/// An output of a controller or of one of its lanes.
#[derive(Debug, Serialize, Deserialize)]
pub enum Output {
    /// An access to host memory, or an interrupt.
    Dma(Dma),
    /// A request to a medium.
    Media(media::Request),
    /// A change that the next start may need, such as a new block size.
    Notify(Notification),
    /// A message of the controller to a lane. There is none while no lane is attached.
    ToLane(LaneId, Box<ToLane>),
    /// A message of a lane to the controller.
    ToHome(Box<ToHome>),
}

/// A fault of the host in the use of a doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DoorbellFault {
    /// The doorbell belongs to no queue.
    Register,
    /// The value is out of range, or covers entries that do not exist.
    Value,
}

/// Counters since the creation of the controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// Number of commands fetched.
    pub commands: u64,
    /// Number of reads of submission queue entries. One read can fetch a batch of commands.
    pub fetches: u64,
    /// Number of commands taken from the controller memory buffer, without a read of host memory.
    pub pushed: u64,
    /// Number of completion queue entries written.
    pub completions: u64,
    /// Number of writes of completion queue entries. One write can post a batch of entries.
    pub postings: u64,
    /// Number of interrupts raised.
    pub interrupts: u64,
}

/// Queues of a controller, with the commands that were fetched from them: all queues but those of
/// lanes ([`Controller`]), or the I/O queues of one lane ([`QueueLane`]).
#[derive(Debug, Serialize, Deserialize)]
pub struct Queues<S> {
    side: S,
    /// The key of this controller in its subsystem.
    key: ControllerKey,
    now: Instant,
    memory: MemoryBuffer,
    page_size: PageSize,
    submission_queues: Vec<Option<SubmissionQueue>>,
    completion_queues: Vec<Option<CompletionQueue>>,
    /// The set of submission queues with entries to fetch, one bit each.
    ready: u128,
    /// The set of completion queues with entries to post and possibly room for them, one bit each.
    dirty: u128,
    /// Bytes of data sent to the host since completions were last posted.
    unposted_bytes: usize,
    /// The submission queue that is served next.
    turn: u32,
    /// Arbitration Burst: the most entries to fetch from a queue before the next one is served.
    burst: u32,
    /// Arbitration weights of high, medium and low priority.
    weights: [u16; 3],
    /// The queues by priority class, if the host selected weighted round robin.
    classes: Option<Classes>,
    throttled: bool,
    /// The ceiling on the host's rate.
    ceiling: Ceiling,
    slots: Slots,
    reads: Reads,
    fetches: Fetches,
    /// Commands whose pulls wait for [`Config::bytes_in_flight_max`].
    waiting: VecDeque<u16>,
    /// Commands that wait for a free identifier for a read.
    stalled: VecDeque<u16>,
    /// Reads of shadow doorbells that wait for a free identifier.
    stalled_looks: VecDeque<Doorbell>,
    /// The buffers in which the host leaves doorbells.
    shadow: Option<Shadow>,
    bytes_in_flight: u64,
    bytes_in_flight_max: u64,
    interrupts: Interrupts,
    pool: Pool,
    outputs: VecDeque<Output>,
    statistics: Statistics,
}

impl<S> Queues<S> {
    fn of(now: Instant, side: S, key: ControllerKey, limits: Limits) -> Self {
        let queues = usize::from(limits.io_queues) + 1;
        Self {
            side,
            key,
            now,
            memory: MemoryBuffer::default(),
            page_size: PageSize::KIB4,
            submission_queues: (0..queues).map(|_| None).collect(),
            completion_queues: (0..queues).map(|_| None).collect(),
            ready: 0,
            dirty: 0,
            unposted_bytes: 0,
            turn: 0,
            burst: FETCH_ENTRIES_MAX,
            weights: [1; 3],
            classes: None,
            throttled: false,
            ceiling: Ceiling::default(),
            slots: Slots::new(limits.commands_max),
            reads: Reads::new(),
            fetches: Fetches::new(),
            waiting: VecDeque::new(),
            stalled: VecDeque::new(),
            stalled_looks: VecDeque::new(),
            shadow: None,
            bytes_in_flight: 0,
            bytes_in_flight_max: limits.bytes_in_flight_max,
            interrupts: Interrupts::new(limits.interrupt_vectors),
            pool: Pool::new(POOL_RETAIN),
            outputs: VecDeque::new(),
            statistics: Statistics::default(),
        }
    }

    /// Sets whether no submission queue entries are fetched, because the link could not take the
    /// results.
    pub const fn set_throttled(&mut self, throttled: bool) {
        self.throttled = throttled;
    }

    /// Host memory address of the next entry of the submission queue that was served last, for a
    /// caller that can prefetch it.
    #[inline]
    pub fn next_entry(&self) -> Option<u64> {
        let last = (self.turn + u128::BITS - 1) % u128::BITS;
        self.submission_queues.get(last as usize)?.as_ref()?.next_address()
    }

    /// Whether the outstanding read of host memory called `id` fetches submission queue entries,
    /// for models of timing.
    pub fn is_fetch(&self, id: DmaId) -> bool {
        self.reads.find(id).is_some_and(|(purpose, _)| matches!(purpose, Purpose::Fetch(_)))
    }

    /// The counters since the beginning.
    pub const fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// The submission queues in host memory, the Admin Queue first.
    pub fn submission_queues(&self) -> impl Iterator<Item = QueuePlace> {
        self.submission_queues.iter().flatten().filter_map(SubmissionQueue::place)
    }

    /// The completion queues, the Admin Queue first.
    pub fn completion_queues(&self) -> impl Iterator<Item = QueuePlace> {
        (0..).zip(&self.completion_queues).filter_map(|(id, queue)| Some(queue.as_ref()?.place(id)))
    }

    /// Forgets every queue and command, and what the host has set, so that late answers match
    /// nothing.
    fn forget_queues(&mut self) {
        self.forget_commands();
        self.submission_queues.fill_with(|| None);
        self.completion_queues.fill_with(|| None);
        self.interrupts.reset();
        self.burst = FETCH_ENTRIES_MAX;
        self.weights = [1; 3];
        self.classes = None;
        self.turn = 0;
    }

    fn forget_commands(&mut self) {
        // Requests to media stay: the core counts them, and waits for their answers before it is
        // ready again.
        self.outputs.retain(|output| !matches!(output, Output::Dma(_)));
        self.slots.clear();
        self.reads.clear();
        self.fetches.clear();
        self.waiting.clear();
        self.stalled.clear();
        self.stalled_looks.clear();
        self.shadow = None;
        self.bytes_in_flight = 0;
        self.ready = 0;
        self.dirty = 0;
    }

    /// Sets Arbitration Burst; `None` for no limit.
    fn set_burst(&mut self, burst: Option<u8>) {
        self.burst = burst.map_or(FETCH_ENTRIES_MAX, |burst| u32::from(burst).max(1));
    }

    /// The slot of a command that the core names; `None` for a command from before a reset.
    fn slot_of(&self, token: CommandToken) -> Option<u16> {
        u16::try_from(token.0).ok().filter(|index| self.slots.is_busy(*index))
    }
}

impl<S: Side> Queues<S> {
    fn on_dma(&mut self, result: DmaResult) {
        let (DmaResult::Data { id, .. } | DmaResult::Failed { id }) = result;
        let Some((purpose, length)) = self.reads.find(id) else { return };
        match (purpose, result) {
            (Purpose::Fetch(fetch), DmaResult::Data { offset, data, last, .. }) => {
                self.on_fetched(fetch, Piece { id, length, offset, data, last });
            }
            (Purpose::Shadow { doorbell, tag }, DmaResult::Data { data, .. }) => {
                self.reads.retire(id);
                if let Some(bytes) = data.first_chunk() {
                    self.on_shadow(doorbell, tag, *bytes);
                }
            }
            (Purpose::Fetch(_) | Purpose::Shadow { .. }, DmaResult::Failed { .. }) => S::on_failed(self),
            (Purpose::List(slot), DmaResult::Data { offset, data, last, .. }) => {
                self.on_list(slot, Piece { id, length, offset, data, last });
            }
            (Purpose::List(slot), DmaResult::Failed { .. }) => self.on_list_failed(id, slot),
            (Purpose::Data { slot, base }, DmaResult::Data { offset, data, last, .. }) => {
                self.on_data(id, slot, base.saturating_add(offset), &data, last);
            }
            (Purpose::Data { slot, .. }, DmaResult::Failed { .. }) => self.on_read_failed(id, slot),
        }
        self.resume_stalled();
    }

    /// Passes the command's data to the core, unless an Abort has ended the command meanwhile.
    fn give_host_data(&mut self, index: u16, data: Buffer) {
        if self.slots.slot(index).ending.is_some() {
            self.finish(index);
            return;
        }
        self.pass_to_core(CoreInput::HostData { token: CommandToken(u32::from(index)), data });
    }

    fn fail_host_data(&mut self, index: u16, code: StatusCode) {
        if self.slots.slot(index).ending.is_some() {
            self.finish(index);
            return;
        }
        let status = Status::from(code);
        self.pass_to_core(CoreInput::HostDataFailed { token: CommandToken(u32::from(index)), status });
    }

    fn pass_to_core(&mut self, input: CoreInput) {
        self.side.handle_core(self.now, input);
        self.drain_core();
    }

    #[inline]
    fn drain_core(&mut self) {
        while let Some(output) = self.side.poll_core() {
            match output {
                CoreOutput::PullHostData { token, length } => {
                    if let Some(index) = self.slot_of(token) {
                        let metadata = self.side.transfer(token).map_or(0, |transfer| transfer.metadata);
                        self.slots.slot(index).metadata = metadata;
                        self.pull(index, length);
                    }
                }
                CoreOutput::PushHostData { token, offset, length, data } => {
                    if let Some(index) = self.slot_of(token) {
                        self.push(index, offset, length, data);
                    }
                }
                CoreOutput::Complete { token, completion } => {
                    if let Some(index) = self.slot_of(token) {
                        let (dw0, dw1, status) = (completion.dw0, completion.dw1, completion.status);
                        self.end(index, Ending { dw0, dw1, status });
                    }
                }
                CoreOutput::Media(request) => self.outputs.push_back(Output::Media(request)),
                other => S::on_core_output(self, other),
            }
        }
    }

    /// Logs a failure outside the core. Returns the status to complete the command with.
    fn record(&mut self, queue: u16, entry: &SubmissionQueueEntry, status: Status) -> Status {
        self.side.record_error(self.now, self.key, QueueId(queue), entry, status)
    }

    /// Notes that the core has ended the command in slot `index`. Its data may still move.
    fn end(&mut self, index: u16, ending: Ending) {
        let slot = self.slots.slot(index);
        slot.ending = Some(ending);
        match slot.transfer {
            // Reads name the slot, so the slot is kept until they have ended.
            Transfer::WalkingToHost | Transfer::WalkingToController { .. } | Transfer::Pulling { .. } => {}
            Transfer::Waiting { .. } => {
                slot.transfer = Transfer::None;
                self.finish(index);
            }
            Transfer::None | Transfer::Pushing | Transfer::Failed(_) => self.finish(index),
        }
    }

    /// Hands an answer of a medium to the core.
    #[inline]
    fn on_media(&mut self, completion: media::Completion) {
        let ends = matches!(completion, media::Completion::Done { .. });
        self.pass_to_core(CoreInput::Media(completion));
        if ends {
            self.post_behind_data();
        }
    }

    fn on_timeout(&mut self, now: Instant) {
        self.now = now;
        if self.side.core_timeout().is_some_and(|at| at <= now) {
            self.side.handle_core_timeout(now);
            self.drain_core();
        }
        while let Some(vector) = self.interrupts.expire(now) {
            self.raise(vector);
        }
    }

    /// Entries are fetched and completions posted after all other work. Entries that arrived
    /// together are therefore moved together, and none waits for others or for the data of many
    /// others.
    #[inline]
    fn next_output(&mut self) -> Option<Output> {
        if let Some(output) = engine::pop(&mut self.outputs) {
            return Some(output);
        }
        if self.dirty != 0 {
            self.post_completions();
        }
        if self.ready != 0 {
            self.fetch_entries();
        }
        engine::pop(&mut self.outputs)
    }

    fn timeout(&self) -> Option<Instant> {
        let own = Instant::earlier(self.side.core_timeout(), self.interrupts.earliest());
        // Bit 0 is the admin queue, which has no ceiling.
        let waits = self.ready & !1 != 0 && !self.throttled;
        if waits { Instant::earlier(own, self.ceiling.opens(self.now)) } else { own }
    }
}
