//! The driver: brings a controller up, submits commands and follows each one to its end.
//!
//! Queues, PRP lists and data are in host memory, which the caller lends to each method that needs
//! it. After inputs and time-outs, and whenever there may be completions, the caller calls
//! [`Host::poll_completions`] and then drains the outputs. Registers are accessed by outputs and
//! answered by inputs, so that they may be at the far end of a link.
//!
//! An I/O command that does not complete in time is aborted. If that does not help, the controller
//! is reset and outstanding I/O commands are submitted again. Each command completes exactly once
//! to its caller, with the controller's status or, if the driver had to give up, with a status of
//! the driver.

mod bring_up;
mod initialise;
mod layout;
mod queue;
mod recovery;
mod types;
mod watch;

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Deadlines, Engine, Instant, Script};
use nvme::host::command;
use nvme::wire::{CommandId, CompletionQueueEntry, NamespaceId, SubmissionQueueEntry};
use pcie::memory::{Memory, Unmapped};

pub use nvme::host::{AsynchronousEvent, Identity, Origin};
pub use nvme::wire::QueueId;

pub use initialise::InitError;
pub use layout::{ArenaTooSmall, DataRegion};
pub use queue::Data;
pub use types::{
    Completed, Config, Input, Output, RegisterBytes, ResetReason, Statistics, Submission, SubmitError,
};

use crate::controller::QueuePlace;
use crate::registers::{DOORBELL_BYTES, low_16, offset};
use initialise::{Answer, Question};
use layout::{Layout, PAGE};
use queue::{Command, Owner, Queue};
use watch::Watch;

/// The most completions to take from one queue at a time. A flooded queue then can't starve the
/// other queues.
const COMPLETIONS_PER_POLL_MAX: u32 = 4096;

/// The deadlines of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    /// The time-out of a register read.
    Register,
    /// The end of a sleep of the initialisation script.
    Sleep,
    /// The next attempt to bring the controller up again.
    Retry,
    /// The end of the wait for a lost device.
    Hold,
    /// The next check whether anything has completed since the last one.
    Watch,
}

type InitScript = Script<Question, Answer, Result<Identity, InitError>>;

/// The event that the initialisation script waits for.
#[derive(Debug)]
enum Awaiting {
    /// The answer to the register read with this cookie.
    Register(u64),
    /// The end of a sleep ([`Timer::Sleep`]).
    Sleep,
    /// A call of [`Host::poll_completions`], because the question needs host memory.
    Memory(Question),
    /// The completion of an admin command. `with_page` says whether the page then has data.
    Admin { with_page: bool },
}

/// The state of the driver.
#[derive(Debug)]
enum State {
    /// The driver was not started.
    Idle,
    /// The controller is being brought up.
    Initialising {
        script: Box<InitScript>,
        awaiting: Awaiting,
    },
    Ready,
    /// Commands wait for the next attempt ([`Timer::Retry`]).
    Retrying,
    /// The device is lost, and commands wait for it until [`Timer::Hold`] expires.
    Away,
    /// The driver has given up.
    Failed,
}

/// A command that the controller has completed.
#[derive(Clone, Copy, Debug)]
struct Ended {
    owner: Owner,
    submitted: Instant,
    entry: CompletionQueueEntry,
}

/// The driver of one controller: submits commands and follows each one to its end.
#[derive(Debug)]
pub struct Host {
    config: Config,
    layout: Layout,
    state: State,
    identity: Option<Identity>,
    queues: Vec<Queue>,
    /// Number of queue pairs that exist on the controller, including the admin queues.
    active: usize,
    /// Whether I/O commands with much data have SGLs.
    takes_sgls: bool,
    timers: Deadlines<Timer>,
    next_cookie: u64,
    /// Number of resets and failed attempts to bring the controller up since the last I/O command
    /// that completed.
    resets_in_a_row: u32,
    /// Finds out whether the controller was reset behind the driver's back.
    watch: Watch,
    /// Work that needs host memory.
    pending: Vec<Pending>,
    /// Whether a doorbell may be due, because entries were put on a ring or taken off one.
    doorbells: bool,
    outputs: VecDeque<Output>,
    statistics: Statistics,
}

/// Work that waits for [`Host::poll_completions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    /// Put all commands on the rings again.
    Resubmit,
    /// Submit the Asynchronous Event Requests.
    RequestEvents,
    /// Read this log page, so that the controller reports its events again.
    ClearEvent { log_page: u8 },
    /// Send an Abort for this command.
    Abort { queue: QueueId, command: CommandId },
}

impl Host {
    /// A driver with its queues in the arena that `config` names. The driver accesses nothing
    /// before [`Host::start`].
    ///
    /// # Errors
    /// When the arena is too short for the queues.
    ///
    /// # Panics
    /// When `config` exceeds a limit of one of its fields.
    pub fn new(config: Config) -> Result<Self, ArenaTooSmall> {
        config.check();
        let layout = Layout::new(&config)?;
        let queues = (0..=config.queue_pairs)
            .map(|number| {
                let rings_for_each = config.rings_for_each && number > 0;
                Queue::new(layout.queue(number), layout.list_bytes, rings_for_each)
            })
            .collect();
        Ok(Self {
            config,
            layout,
            state: State::Idle,
            identity: None,
            queues,
            active: 1,
            takes_sgls: false,
            timers: Deadlines::new(),
            next_cookie: 0,
            resets_in_a_row: 0,
            watch: Watch::default(),
            pending: Vec::new(),
            doorbells: false,
            outputs: VecDeque::new(),
            statistics: Statistics::default(),
        })
    }

    /// Begins to bring the controller up. [`Output::Ready`] or [`Output::Failed`] reports how that
    /// has ended.
    pub fn start(&mut self, now: Instant) {
        self.timers.disarm(Timer::Retry);
        self.timers.disarm(Timer::Hold);
        self.abandon_admin(now);
        self.pending.clear();
        self.active = 1;
        for queue in &mut self.queues {
            queue.hush();
        }
        let (config, layout) = (self.config, self.layout);
        let (script, step) = Script::start(|asker| initialise::initialise(asker, config, layout));
        self.on_step(now, Box::new(script), step);
    }

    /// The identity of the controller; `None` before it was first brought up.
    pub const fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// Whether submitted commands go to the controller at once.
    pub const fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready)
    }

    /// The part of the arena that is left for callers' data.
    pub const fn data_region(&self) -> DataRegion {
        self.layout.data
    }

    /// Number of callers' commands that have not completed.
    pub fn outstanding(&self) -> u32 {
        self.queues[1..].iter().map(|queue| queue.outstanding).sum()
    }

    /// Where the queue pairs that exist on the controller are in host memory: the submission queue
    /// and the completion queue of each, the Admin Queues first.
    pub fn queues(&self) -> impl Iterator<Item = [QueuePlace; 2]> {
        (0..).zip(&self.queues[..self.active]).map(|(id, queue)| queue.places(id))
    }

    /// The counters since the driver's creation.
    pub const fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Submits a command. Its doorbell is rung by [`Host::ring`], or when the next output is
    /// polled. The command waits while the controller is being reset or the device is away.
    ///
    /// # Errors
    /// When the command can't be accepted, in which case it never completes.
    pub fn submit(
        &mut self,
        now: Instant,
        memory: &mut impl Memory,
        submission: Submission,
    ) -> Result<CommandId, SubmitError> {
        let Submission { queue, entry, data, cookie } = submission;
        if matches!(self.state, State::Failed | State::Idle) || self.identity.is_none() {
            return Err(SubmitError::NotReady);
        }
        let limit = self.identity.as_ref().map_or(0, |identity| identity.transfer_bytes_max);
        if let Some(data) = data {
            if data.length == 0 || data.length > limit {
                return Err(SubmitError::Length { length: data.length, limit });
            }
            if !data.address.is_multiple_of(4) || data.address.checked_add(u64::from(data.length)).is_none() {
                return Err(SubmitError::Address(data.address));
            }
        }
        let on_ring = self.is_ready();
        // The number of queues is unknown while the controller is being brought up.
        let known = if on_ring { self.active } else { self.queues.len() };
        if usize::from(queue.0) >= known || (queue == QueueId::ADMIN && !on_ring) {
            return Err(SubmitError::NoSuchQueue(queue));
        }
        let command =
            Command { owner: Owner::Caller(cookie), entry, submitted: now, on_ring, aborted: false };
        self.place(now, memory, queue, command, data)
    }

    fn place(
        &mut self,
        now: Instant,
        memory: &mut impl Memory,
        number: QueueId,
        command: Command,
        data: Option<Data>,
    ) -> Result<CommandId, SubmitError> {
        let queue = &mut self.queues[usize::from(number.0)];
        if !queue.has_room() {
            return Err(SubmitError::Busy);
        }
        let (owner, on_ring) = (command.owner, command.on_ring);
        // Admin commands have PRP entries, even if the controller supports SGLs.
        let takes_sgls = self.takes_sgls && number != QueueId::ADMIN;
        let id = queue.submit(memory, command, data, takes_sgls).map_err(SubmitError::Memory)?;
        self.doorbells = true;
        if on_ring && owner != Owner::Event {
            queue.deadlines.arm(Queue::index_of(id), now + self.config.command_timeout);
            self.begin_watch(now);
        }
        self.statistics.submitted += 1;
        Ok(id)
    }

    /// Rings each due doorbell once. Doorbells announce new submission queue entries, and room in
    /// completion queues.
    pub fn ring(&mut self) {
        while let Some((offset, value)) = self.next_doorbell() {
            let bytes = RegisterBytes::new(u64::from(value), DOORBELL_BYTES);
            self.outputs.push_back(Output::RegisterWrite { offset, bytes });
        }
    }

    /// The next due doorbell as its offset in BAR0 and value, for a caller that can ring it at
    /// once, in place of [`Host::ring`]. `None` while outputs wait, because these go first.
    #[inline]
    pub fn poll_doorbell(&mut self) -> Option<(u32, u32)> {
        if self.outputs.is_empty() { self.next_doorbell() } else { None }
    }

    #[inline]
    fn next_doorbell(&mut self) -> Option<(u32, u32)> {
        if !self.doorbells || !matches!(self.state, State::Ready | State::Initialising { .. }) {
            return None;
        }
        for (number, queue) in (0..).zip(&mut self.queues[..self.active]) {
            let (which, value) = match queue.take_head() {
                Some(head) => (number * 2 + 1, head),
                None => match queue.take_tail() {
                    Some(tail) => (number * 2, tail),
                    None => continue,
                },
            };
            self.statistics.doorbells += 1;
            return Some((offset::DOORBELLS + which * DOORBELL_BYTES, value));
        }
        self.doorbells = false;
        None
    }

    /// Takes new completions, and does other work that needs host memory. The call is cheap if
    /// there is nothing to do.
    pub fn poll_completions(&mut self, now: Instant, memory: &mut impl Memory) {
        self.answer_from_memory(now, memory);
        for number in 0..self.active {
            if self.queues[number].outstanding > 0 {
                self.poll_queue(now, memory, number);
            }
        }
        // The initialisation script may now continue with its next command.
        self.answer_from_memory(now, memory);
        if !self.pending.is_empty() {
            self.do_pending(now, memory);
        }
    }

    /// Takes the next new completion of an I/O queue, ahead of all outputs, for a caller that polls
    /// continuously. `None` also while outputs wait, because these go first.
    #[inline]
    pub fn poll_io_completed(&mut self, now: Instant, memory: &mut impl Memory) -> Option<Completed> {
        if !self.outputs.is_empty() {
            return None;
        }
        let mut left = COMPLETIONS_PER_POLL_MAX;
        for number in 1..self.active {
            if self.queues[number].outstanding > 0
                && let Some(Ended { owner: Owner::Caller(cookie), submitted, entry }) =
                    self.next_ended(memory, number, &mut left)
            {
                return Some(self.on_callers(now, number, (cookie, submitted), entry));
            }
        }
        None
    }

    fn poll_queue(&mut self, now: Instant, memory: &mut impl Memory, number: usize) {
        let mut left = COMPLETIONS_PER_POLL_MAX;
        while let Some(ended) = self.next_ended(memory, number, &mut left) {
            self.on_ended(now, memory, number, ended);
        }
    }

    /// Takes the next completion from a queue that belongs to a command, of at most `left` entries.
    #[inline]
    fn next_ended(&mut self, memory: &impl Memory, number: usize, left: &mut u32) -> Option<Ended> {
        if !matches!(self.state, State::Ready | State::Initialising { .. }) {
            return None;
        }
        while *left > 0 {
            *left -= 1;
            let entry = self.queues[number].next_completion(memory).ok()??;
            self.doorbells = true;
            self.watch.completions += 1;
            if let Some((owner, submitted)) = self.queues[number].retire(entry.command_id) {
                return Some(Ended { owner, submitted, entry });
            }
            self.statistics.unexpected += 1;
        }
        None
    }

    /// The result of a caller's command, with the caller's cookie.
    #[inline]
    fn on_callers(
        &mut self,
        now: Instant,
        number: usize,
        (cookie, submitted): (u64, Instant),
        entry: CompletionQueueEntry,
    ) -> Completed {
        if number != 0 {
            self.resets_in_a_row = 0;
        }
        self.statistics.completed += 1;
        Completed {
            cookie,
            queue: QueueId(u16::try_from(number).expect("queues are numbered by 16 bits")),
            command: entry.command_id,
            status: entry.status(),
            dw0: entry.dw0,
            dw1: entry.dw1,
            origin: Origin::Controller,
            submitted,
            completed: now,
        }
    }

    fn on_ended(&mut self, now: Instant, memory: &mut impl Memory, number: usize, ended: Ended) {
        let Ended { owner, submitted, entry } = ended;
        match owner {
            Owner::Caller(cookie) => {
                let completed = self.on_callers(now, number, (cookie, submitted), entry);
                self.outputs.push_back(Output::Completed(completed));
            }
            Owner::Script => self.on_script_command(now, memory, entry),
            Owner::Event if entry.status().is_success() => {
                let event = AsynchronousEvent::from_dw0(entry.dw0);
                self.outputs.push_back(Output::Event(event));
                self.pending.push(Pending::ClearEvent { log_page: event.log_page });
                self.pending.push(Pending::RequestEvents);
            }
            // An Abort that was too late reports that, and the command's own completion follows.
            Owner::Event | Owner::ClearEvent | Owner::Abort => {}
        }
    }

    fn do_pending(&mut self, now: Instant, memory: &mut impl Memory) {
        for pending in core::mem::take(&mut self.pending) {
            if !self.is_ready() {
                return;
            }
            let done = match pending {
                Pending::Resubmit => self.resubmit_all(now, memory).map_err(SubmitError::Memory),
                Pending::RequestEvents => {
                    let entry = command::asynchronous_event_request();
                    self.submit_own(now, memory, Owner::Event, entry, None)
                }
                Pending::ClearEvent { log_page } => {
                    let length = u32::try_from(PAGE).expect("a page is small");
                    let entry = command::get_log_page(NamespaceId::ALL, log_page, 0, length);
                    let data = Some(Data { address: self.layout.admin_page, length });
                    self.submit_own(now, memory, Owner::ClearEvent, entry, data)
                }
                Pending::Abort { queue, command } => {
                    let entry = command::abort(queue, command);
                    self.submit_own(now, memory, Owner::Abort, entry, None)
                }
            };
            match done {
                Ok(()) => {}
                // Without room for an Abort, the second time-out resets the controller.
                Err(SubmitError::Busy) if matches!(pending, Pending::Abort { .. }) => {}
                // A command that completes makes room.
                Err(SubmitError::Busy) => self.pending.push(pending),
                Err(_) => self.reset(now, ResetReason::Memory),
            }
        }
    }

    fn submit_own(
        &mut self,
        now: Instant,
        memory: &mut impl Memory,
        owner: Owner,
        entry: SubmissionQueueEntry,
        data: Option<Data>,
    ) -> Result<(), SubmitError> {
        let command = Command { owner, entry, submitted: now, on_ring: true, aborted: false };
        self.place(now, memory, QueueId::ADMIN, command, data).map(|_| ())
    }

    fn resubmit_all(&mut self, now: Instant, memory: &mut impl Memory) -> Result<(), Unmapped> {
        let deadline = now + self.config.command_timeout;
        for number in 1..self.queues.len() {
            for index in self.queues[number].indices() {
                let queue = &mut self.queues[number];
                if queue.command(index).is_none_or(|command| command.on_ring) {
                    continue;
                }
                if number >= self.active || queue.is_overfull() {
                    // The controller restarted with fewer or shorter queues.
                    self.give_up_command(now, number, index);
                    continue;
                }
                queue.resubmit(memory, index)?;
                self.doorbells = true;
                queue.deadlines.arm(u32::from(index), deadline);
                self.statistics.resubmitted += 1;
                self.begin_watch(now);
            }
        }
        Ok(())
    }
}

impl Engine for Host {
    type Input<'a> = Input<'a>;
    type Output = Output;

    fn handle_input(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::RegisterRead { cookie, bytes } => {
                let value = bytes.and_then(|bytes| match bytes.len() {
                    4 => bytes.try_into().ok().map(u32::from_le_bytes).map(u64::from),
                    8 => bytes.try_into().ok().map(u64::from_le_bytes),
                    _ => None,
                });
                self.on_register(now, cookie, value);
            }
            // Completions are found by their Phase Tag, without regard to the vector.
            Input::Interrupt { vector: _ } => {}
            Input::DeviceLost => self.on_device_lost(now),
            Input::DeviceBack => self.on_device_back(now),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(timer) = self.timers.expire(now) {
            match timer {
                Timer::Register => self.on_register_timeout(now),
                Timer::Sleep => self.on_woke(now),
                Timer::Retry => self.start(now),
                Timer::Hold => self.give_up(now, InitError::Lost),
                Timer::Watch => self.look(now),
            }
        }
        self.expire_commands(now);
    }

    /// Doorbells are rung after all other work, so that entries that were submitted together share
    /// one ring.
    fn poll_output(&mut self) -> Option<Output> {
        if let Some(output) = engine::pop(&mut self.outputs) {
            return Some(output);
        }
        self.ring();
        engine::pop(&mut self.outputs)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let commands = self.queues[..self.active].iter().map(|queue| queue.deadlines.earliest());
        commands.fold(self.timers.earliest(), Instant::earlier)
    }
}

/// The queue number as a [`QueueId`], from its low 16 bits.
const fn queue_id(number: u32) -> QueueId {
    QueueId(low_16(number))
}
