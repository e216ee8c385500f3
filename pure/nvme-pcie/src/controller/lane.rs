//! A lane of a controller: I/O queues on a thread of their own.
//!
//! The controller creates and deletes the queues by letters; [`super::lanes`] has its side.

use alloc::boxed::Box;

use engine::{Engine, Instant};
use nvme::subsystem::{
    CommandToken, ControllerKey, Input as CoreInput, Lane, Output as CoreOutput, Transfer as CoreTransfer,
};
use nvme::wire::{QueueId, Status, SubmissionQueueEntry};
use pcie::device::{Dma, DmaResult};

use super::letters::{Change, LaneStart, Order, Report, Settings, ToHome};
use super::queues::Executed;
use super::rings::{CompletionQueue, CompletionQueueId, SubmissionQueue};
use super::side::Side;
use super::{DoorbellFault, Input, Output, Queues};
use crate::registers::{DOORBELL_BYTES, low_16, offset};

/// I/O queues of a controller that another thread serves: a lane of the controller.
///
/// A lane takes writes to the doorbells of its queues ([`Input::RegisterWrite`]), answers to DMA
/// and of its media, and the controller's messages. Its outputs are DMA, interrupts, requests to
/// media and messages to the controller, to be carried out in their order.
pub type QueueLane = Queues<Away>;

/// What a lane has beside its queues.
#[derive(Debug)]
pub struct Away {
    lane: Lane,
    /// The life of the controller: the number of its resets.
    life: u64,
    /// Whether the lane's queues work. Doorbells are ignored while they do not.
    works: bool,
    /// Whether a shutdown waits for the commands in progress.
    drains: bool,
    /// Whether the controller knows that none is left.
    is_drained: bool,
    is_bus_master: bool,
    pub(super) settings: Settings,
}

impl Side for Away {
    #[inline]
    fn may_fetch(&self) -> bool {
        self.works && !self.drains
    }

    #[inline]
    fn handle_core(&mut self, now: Instant, input: CoreInput) {
        self.lane.handle_input(now, input);
    }

    #[inline]
    fn poll_core(&mut self) -> Option<CoreOutput> {
        self.lane.poll_output()
    }

    fn core_timeout(&self) -> Option<Instant> {
        self.lane.poll_timeout()
    }

    fn handle_core_timeout(&mut self, now: Instant) {
        self.lane.handle_timeout(now);
    }

    #[inline]
    fn transfer(&self, token: CommandToken) -> Option<CoreTransfer> {
        self.lane.transfer(token)
    }

    fn abort_queue(&mut self, now: Instant, controller: ControllerKey, queue: QueueId) {
        self.lane.abort_queue(now, controller, queue);
    }

    fn record_error(
        &mut self,
        now: Instant,
        controller: ControllerKey,
        queue: QueueId,
        entry: &SubmissionQueueEntry,
        status: Status,
    ) -> Status {
        self.lane.record_error(now, controller, queue, entry, status)
    }

    fn on_queue_command(_: &mut Queues<Self>, _: u16, _: &SubmissionQueueEntry) -> bool {
        false // A lane has no admin queue.
    }

    fn on_deleted(queues: &mut Queues<Self>, queue: u16, _: u16) {
        queues.report(Report::Done(Change::SubmissionQueueDeleted(queue)));
    }

    fn on_doorbell_fault(queues: &mut Queues<Self>, fault: DoorbellFault) {
        queues.report(Report::DoorbellFault(fault));
    }

    fn on_failed(queues: &mut Queues<Self>) {
        queues.forget();
        queues.report(Report::Failed);
    }

    fn on_core_output(queues: &mut Queues<Self>, output: CoreOutput) {
        match output {
            CoreOutput::ToSubsystem(message) => queues.report(Report::Engine(message)),
            // See `Home`: no other controller's request waits for it.
            CoreOutput::Disowned(_) => (),
            _ => unreachable!("a lane has no notifications"),
        }
    }
}

impl QueueLane {
    /// A lane that [`Controller::attach_lane`](super::Controller::attach_lane) has begun.
    pub fn new(now: Instant, start: LaneStart) -> Self {
        let LaneStart { views, key, life, limits, settings } = start;
        let away = Away {
            lane: Lane::new(now, views),
            life,
            works: false,
            drains: false,
            is_drained: false,
            is_bus_master: true,
            settings: Settings::default(),
        };
        let mut lane = Self::of(now, away, key, limits);
        lane.set(settings);
        lane
    }

    /// Number of requests that media have not answered.
    pub const fn media_outstanding(&self) -> usize {
        self.side.lane.media_outstanding()
    }

    fn report(&mut self, report: Report) {
        let message = ToHome { life: self.side.life, report };
        self.outputs.push_back(Output::ToHome(Box::new(message)));
    }

    /// Forgets all queues, and ends their commands without completions.
    fn forget(&mut self) {
        self.side.works = false;
        for id in 1..u16::try_from(self.submission_queues.len()).unwrap_or(u16::MAX) {
            if self.submission_queues[usize::from(id)].is_some() {
                self.side.lane.drop_queue(self.now, self.key, QueueId(id));
            }
        }
        self.forget_queues();
        // No slot has a command, so that only messages and requests are left.
        self.drain_core();
    }

    fn on_order(&mut self, order: Order) {
        match order {
            Order::Engine(message) => self.pass_to_core(CoreInput::FromSubsystem(message)),
            Order::CreateCompletionQueue { id, base, entries, vector, page_size } => {
                (self.page_size, self.side.works) = (page_size, true);
                self.completion_queues[usize::from(id)] = Some(CompletionQueue::new(base, entries, vector));
                self.report(Report::Done(Change::CompletionQueueCreated(id)));
            }
            Order::CreateSubmissionQueue { id, base, entries, completes_to } => {
                self.create_submission_queue(id, base, entries, completes_to);
            }
            Order::DeleteCompletionQueue(id) => {
                self.completion_queues[usize::from(id)] = None;
                self.dirty &= !(1 << id);
                self.report(Report::Done(Change::CompletionQueueDeleted(id)));
            }
            Order::DeleteSubmissionQueue(id) => match self.begin_deletion(id, 0) {
                Executed::Done => self.report(Report::Done(Change::SubmissionQueueDeleted(id))),
                // The last command may have ended meanwhile.
                Executed::Waits if self.submission_queues[usize::from(id)].is_none() => (),
                Executed::Waits => self.report(Report::Stopped(id)),
            },
            Order::Doorbell { queue, is_tail, value } => self.on_doorbell(queue, is_tail, value),
            Order::Reset { life } => {
                self.forget();
                (self.side.life, self.side.drains) = (life, false);
                self.side.settings = Settings::default();
                self.report(Report::Reset);
            }
            Order::Drain => (self.side.drains, self.side.is_drained) = (true, false),
            Order::GoOn => self.side.drains = false,
            Order::Settings(settings) => {
                self.set(settings);
                self.report(Report::Set);
            }
            Order::BusMaster(is_on) => self.side.is_bus_master = is_on,
        }
    }

    fn create_submission_queue(&mut self, id: u16, base: u64, entries: u32, completes_to: CompletionQueueId) {
        if let Some(queue) = &mut self.completion_queues[usize::from(completes_to.0)] {
            queue.submission_queues += 1;
            let queue = SubmissionQueue::new(QueueId(id), base, entries, completes_to);
            self.submission_queues[usize::from(id)] = Some(queue);
        }
        self.report(Report::Done(Change::SubmissionQueueCreated(id)));
    }

    fn on_doorbell(&mut self, queue: u16, is_tail: bool, value: u32) {
        if !self.side.works {
            return; // The doorbell is of an earlier life.
        }
        if let Err(fault) = self.ring(queue, is_tail, value) {
            self.report(Report::DoorbellFault(fault));
        }
    }

    /// Handles a write to BAR0: that of a doorbell.
    fn on_register_write(&mut self, at: u32, bytes: &[u8]) {
        let (Some(at), Some(bytes)) = (at.checked_sub(offset::DOORBELLS), bytes.first_chunk()) else {
            return;
        };
        let number = at / DOORBELL_BYTES;
        let Ok(queue) = u16::try_from(number / 2) else { return };
        let value = u32::from(low_16(u32::from_le_bytes(*bytes)));
        self.on_doorbell(queue, number.is_multiple_of(2), value);
    }

    /// Brings what the host has set for all queues into effect.
    fn set(&mut self, settings: Settings) {
        let before = core::mem::replace(&mut self.side.settings, settings.clone());
        self.set_burst(settings.burst);
        if settings.coalescing != before.coalescing {
            self.configure_coalescing(settings.coalescing);
        }
        for vector in before.vectors_apart {
            self.interrupts.configure_vector(vector, false);
        }
        for vector in settings.vectors_apart {
            self.interrupts.configure_vector(vector, true);
        }
        if let Some(buffers) = settings.shadow.filter(|_| settings.shadow != before.shadow) {
            self.set_shadow(buffers);
        }
    }

    /// Reports that no command is in progress, once none is.
    #[cold]
    fn check_drained(&mut self) {
        let held: usize = self.completion_queues.iter().flatten().map(|queue| queue.pending.len()).sum();
        // The home's shutdown does not wait for its own commands.
        if !self.side.is_drained && self.slots.taken() == held + self.side.lane.handed_over() {
            self.side.is_drained = true;
            // A loss of power may follow the shutdown.
            self.side.lane.report(self.now);
            self.drain_core();
            self.report(Report::Drained);
        }
    }

    /// Handles an access while the function may not access the host's memory, as the endpoint does.
    #[cold]
    fn refuse(&mut self, dma: Dma) -> Option<Output> {
        match dma {
            Dma::Read { id, .. } => {
                self.on_dma(DmaResult::Failed { id });
                None
            }
            Dma::Write { .. } => None,
            interrupt @ Dma::Interrupt { .. } => Some(Output::Dma(interrupt)),
        }
    }
}

impl Engine for QueueLane {
    type Input<'a> = Input<'a>;
    type Output = Output;

    fn handle_input(&mut self, now: Instant, input: Input<'_>) {
        self.now = now;
        match input {
            Input::RegisterWrite { offset, bytes } => self.on_register_write(offset, bytes),
            Input::Dma(result) => self.on_dma(result),
            Input::Media(completion) => self.on_media(completion),
            Input::FromHome(message) => self.on_order(message.0),
            Input::FromLane(..) | Input::MemoryBufferWrite { .. } => {
                unreachable!("a lane has no lanes and no memory buffer")
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.on_timeout(now);
    }

    #[inline]
    fn poll_output(&mut self) -> Option<Output> {
        loop {
            match self.next_output() {
                Some(Output::Dma(dma)) if !self.side.is_bus_master => {
                    let output = self.refuse(dma);
                    if output.is_some() {
                        return output;
                    }
                }
                None if self.side.drains && !self.side.is_drained => {
                    self.check_drained();
                    return self.outputs.pop_front();
                }
                output => return output,
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timeout()
    }
}
