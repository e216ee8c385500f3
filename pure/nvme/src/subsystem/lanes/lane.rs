//! The engine of a lane: executes the I/O commands of its queues under a copy of the views.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Buffer, Engine, Instant, Nanos};

use super::super::controller::ControllerKey;
use super::super::errors::{Failure, Location};
use super::super::executor::Executor;
use super::super::flow::{Flow, Handled, Step};
use super::super::io::failure_of;
use super::super::slots::{HostDataFor, MediaFor, State};
use super::super::types::{CommandToken, CompletionResult, Input, Output, Transfer};
use super::super::unreadable::Unreadable;
use super::super::view::Views;
use super::counts::{Counting, Logged};
use super::message::{Hand, HandedOver, LaneViews, Report, ToSubsystem};
use super::older::Older;
use crate::media::{self, IoId, MediaError};
use crate::wire::{FusedOperation, IoOpcode, NamespaceId, QueueId, Status, StatusCode, SubmissionQueueEntry};

/// How long a lane counts before it reports.
const REPORT_AFTER: Nanos = Nanos::from_millis(100);

/// I/O queues of a subsystem, on a thread of their own.
///
/// A lane takes [`Input::Command`] of I/O queues, host data, completions of media and
/// [`Input::FromSubsystem`], and gives the same outputs as the subsystem, but for
/// [`Output::ToSubsystem`] in place of notifications. Its tokens are its own: 0..`commands_max`.
///
/// A queue of a controller may come to the lane when the lane has the views of the controller: its
/// [`Lane::version`] is at least the [`Subsystem::version`](super::super::Subsystem::version)
/// after [`add_controller`](super::super::Subsystem::add_controller).
#[derive(Debug)]
pub struct Lane {
    pub(super) flow: Flow,
    pub(super) views: Views,
    /// Stays empty: the subsystem executes the commands of namespaces with unreadable blocks.
    unreadable: Unreadable,
    commands_max: u32,
    /// Whether commands take a second look before they continue.
    pub(super) care: bool,
    /// The queues whose last command was the first one of a fused pair.
    pub(super) firsts: Vec<(ControllerKey, QueueId)>,
    /// Commands that wait until the lane is no longer held, in their order.
    pub(super) waiting: VecDeque<CommandToken>,
    /// Number of commands handed over so far.
    handed: u64,
    /// Commands handed over whose transfers have failed.
    pub(super) failed: Vec<(CommandToken, Status)>,
    pub(super) counting: Counting,
    report_at: Option<Instant>,
    pub(super) older: Older,
    /// Whether the lane ends, once it is quiet.
    pub(super) ending: bool,
}

impl Engine for Lane {
    type Input<'a> = Input;
    type Output = Output;

    #[inline]
    fn handle_input(&mut self, now: Instant, input: Input) {
        self.flow.now = now;
        match input {
            Input::Command { controller, token, queue, entry } => {
                self.on_command(controller, token, queue, entry);
            }
            Input::HostData { token, data } => self.on_host_data(token, data),
            Input::HostDataFailed { token, status } => self.on_host_data_failed(token, status),
            Input::Media(media::Completion::Data { id, offset, data }) => {
                self.flow.on_media_data(id, offset, data);
            }
            Input::Media(media::Completion::Done { id, result }) => self.on_media_done(id, result),
            Input::FromSubsystem(message) => self.on_order(message.0),
            Input::FromLane(..) => unreachable!("messages of lanes are for the subsystem"),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.flow.now = now;
        if self.report_at.is_some_and(|at| at <= now) {
            self.report_counts();
        }
    }

    #[inline]
    fn poll_output(&mut self) -> Option<Output> {
        self.flow.outputs.pop_front()
    }

    /// When the lane reports what it has counted.
    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        self.report_at
    }
}

impl Lane {
    /// A lane that [`Subsystem::attach_lane`](super::super::Subsystem::attach_lane) has begun.
    pub fn new(now: Instant, LaneViews { views, commands_max }: LaneViews) -> Self {
        let mut flow = Flow::of_lane(now, commands_max);
        flow.overlaps.leave_to_media();
        Self {
            flow,
            unreadable: Unreadable::default(),
            commands_max,
            care: views.need_care(),
            firsts: Vec::new(),
            waiting: VecDeque::new(),
            handed: 0,
            failed: Vec::new(),
            counting: Counting::new(now),
            report_at: None,
            older: Older::new(views.version()),
            ending: false,
            views,
        }
    }

    /// The version of the views that the lane has seen.
    pub const fn version(&self) -> u64 {
        self.views.version()
    }

    /// The transfer of the command called `token`; `None` if the command moves no data.
    pub fn transfer(&self, token: CommandToken) -> Option<Transfer> {
        self.flow.transfer(token)
    }

    /// The controller of a request to a medium that was just polled.
    pub fn requester(&self, request: IoId) -> Option<ControllerKey> {
        self.flow.slots.peek(request.token()).map(|slot| slot.controller)
    }

    /// Number of requests that media have not answered, those of commands that have ended included.
    pub const fn media_outstanding(&self) -> usize {
        self.flow.media_outstanding
    }

    /// Number of commands of `queue` that have not ended.
    pub fn in_flight(&self, controller: ControllerKey, queue: QueueId) -> usize {
        self.flow.slots.of_controller(controller).filter(|(_, slot)| slot.queue == queue).count()
    }

    /// Number of commands that the lane has handed over and that have not ended.
    pub fn handed_over(&self) -> usize {
        self.flow.slots.in_flight().filter(|(_, slot)| slot.state == State::HandedOver).count()
    }

    /// Ends the commands of a queue that the transport has lost for good, without completions.
    /// Requests that media have begun continue, and end before another request reads or changes the
    /// same blocks. The subsystem may begin requests of commands that the lane has handed over
    /// until it has handled the messages of this call: a transport accepts the queue again after
    /// that.
    pub fn drop_queue(&mut self, now: Instant, controller: ControllerKey, queue: QueueId) {
        self.flow.now = now;
        self.firsts.retain(|first| *first != (controller, queue));
        self.drop_commands(true, |one, of| (one, of) == (controller, queue));
        // The host may be gone: its figures are not to lag behind.
        if self.report_at.is_some() {
            self.report_counts();
        }
    }

    /// Ends those commands of a queue that can end at once, for the deletion of the queue, as
    /// [`Subsystem::abort_queue`](super::super::Subsystem::abort_queue) does. Returns how many
    /// commands remain in flight. Those that the lane has handed over are among them: the subsystem
    /// aborts them, once it has handled the messages that the lane has sent.
    pub fn abort_queue(&mut self, now: Instant, controller: ControllerKey, queue: QueueId) -> usize {
        self.flow.now = now;
        self.forget_first((controller, queue));
        self.abort(Failure::new(StatusCode::AbortedSubmissionQueueDeletion), |slot| {
            (slot.controller, slot.queue) == (controller, queue)
        });
        self.in_flight(controller, queue)
    }

    /// Logs a failure that the transport answered itself, as
    /// [`Subsystem::record_error`](super::super::Subsystem::record_error) does. Returns the status
    /// to post.
    pub fn record_error(
        &mut self,
        now: Instant,
        controller: ControllerKey,
        queue: QueueId,
        entry: &SubmissionQueueEntry,
        status: Status,
    ) -> Status {
        self.flow.now = now;
        let failure = Failure { status, location: Location::UNSPECIFIED, lba: 0, dw0: 0 };
        self.counting.log(Logged { controller, queue, entry: *entry, failure });
        self.report_at.get_or_insert(now + REPORT_AFTER);
        if self.counting.is_urgent() {
            self.report_counts();
        }
        status.with_more()
    }

    /// Reports what the lane has counted, if it has not yet.
    pub fn report(&mut self, now: Instant) {
        self.flow.now = now;
        if self.report_at.is_some() {
            self.report_counts();
        }
    }

    /// Whether the subsystem executes the command called `token`, for simulations that check this.
    #[doc(hidden)]
    pub fn has_handed_over(&self, token: CommandToken) -> bool {
        self.flow.slots.peek(token).is_some_and(|slot| slot.state == State::HandedOver)
    }

    /// Sends a message to the subsystem.
    pub(super) fn send(&mut self, report: Report) {
        self.flow.outputs.push_back(Output::ToSubsystem(Box::new(ToSubsystem(report))));
    }

    #[inline]
    pub(super) const fn executor(&mut self) -> Executor<'_> {
        Executor { flow: &mut self.flow, views: &self.views, unreadable: &self.unreadable }
    }

    #[inline]
    fn on_command(
        &mut self,
        controller: ControllerKey,
        token: CommandToken,
        queue: QueueId,
        entry: SubmissionQueueEntry,
    ) {
        self.flow.slots.start(self.flow.now, controller, token, queue, entry);
        self.counting.smart.begin_io(self.flow.now);
        let handled = if self.care || entry.fused() != FusedOperation::Normal {
            self.on_command_with_care(token, queue, &entry)
        } else {
            self.execute(token, &entry)
        };
        self.finish(token, handled);
    }

    #[inline]
    pub(super) fn execute(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let commands_max = self.commands_max;
        let mut executor = self.executor();
        executor.check_room(entry.namespace, commands_max)?;
        match IoOpcode::from(entry.opcode) {
            IoOpcode::Read => executor.on_read(token, entry),
            IoOpcode::Write => executor.on_write(token, entry),
            IoOpcode::Flush if entry.namespace != NamespaceId::ALL => executor.on_flush(token, entry),
            IoOpcode::Compare => executor.pull_compare(token, entry),
            IoOpcode::WriteZeroes => executor.on_write_zeroes(token, entry),
            IoOpcode::DatasetManagement => executor.on_dataset_management(token, entry),
            IoOpcode::Verify => executor.on_verify(token, entry),
            _ => Ok(self.hand_over(token)),
        }
    }

    /// Lets the subsystem execute a command.
    #[cold]
    pub(super) fn hand_over(&mut self, token: CommandToken) -> Step {
        self.handed += 1;
        let number = self.handed;
        let slot = self.flow.slots.of(token);
        (slot.state, slot.cursor) = (State::HandedOver, number);
        let (controller, queue, entry) = (slot.controller, slot.queue, slot.entry);
        let (hand, version) = (Hand { token, number }, self.views.version());
        self.send(Report::Command(HandedOver { hand, version, controller, queue, entry }));
        Step::Waiting
    }

    #[inline]
    pub(super) fn finish(&mut self, token: CommandToken, handled: Handled) {
        match handled {
            Ok(Step::Waiting) => (),
            Ok(Step::Done(dw0)) => self.complete(token, dw0, Status::SUCCESS),
            Err(failure) => self.fail(token, failure),
        }
    }

    fn on_host_data(&mut self, token: CommandToken, data: Buffer) {
        let slot = self.flow.slots.of(token);
        let purpose = match slot.state {
            State::AwaitingHostData(purpose) => purpose,
            State::HandedOver => return self.pass_data(token, &data),
            _ => return, // The command was aborted or reset in the meantime.
        };
        let wanted = usize::try_from(slot.length).unwrap_or(usize::MAX);
        assert!(data.len() == wanted, "{token:?} pulled {wanted} B and was given {} B", data.len());
        slot.spent.end_link(self.flow.now);
        if self.care && self.must_wait_with_data(token, purpose, &data) {
            return;
        }
        self.on_pulled(token, purpose, data);
    }

    /// Continues a command with the data that it pulled.
    #[inline]
    pub(super) fn on_pulled(&mut self, token: CommandToken, purpose: HostDataFor, data: Buffer) {
        let entry = self.flow.slots.of(token).entry;
        let mut executor = self.executor();
        let handled = match purpose {
            HostDataFor::Write => executor.on_write_data(token, &entry, data),
            HostDataFor::Compare => executor.on_compare_data(token, &entry, data),
            HostDataFor::DatasetManagement => executor.on_dataset_ranges(token, &entry, data),
            _ => unreachable!("a lane hands {purpose:?} over before it pulls data"),
        };
        self.finish(token, handled);
    }

    fn on_host_data_failed(&mut self, token: CommandToken, status: Status) {
        let failure = Failure { status, location: Location::DATA_POINTER, lba: 0, dw0: 0 };
        match self.flow.slots.of(token).state {
            State::Free => self.revoke_success(token, &failure),
            State::HandedOver => self.pass_failure(token, status),
            _ => self.fail(token, failure),
        }
    }

    /// Turns a success that was not polled into a failure, because the transport could not move the
    /// command's last data.
    #[cold]
    fn revoke_success(&mut self, token: CommandToken, failure: &Failure) {
        let Some(completion) = self.flow.success_of(token) else { return };
        *completion = CompletionResult { dw0: failure.dw0, dw1: 0, status: failure.status.with_more() };
        self.log(token, failure);
    }

    #[inline]
    fn on_media_done(&mut self, id: IoId, result: Result<(), MediaError>) {
        self.flow.media_outstanding = self.flow.media_outstanding.saturating_sub(1);
        match self.flow.slots.awaiting(id) {
            Some((token, purpose)) => self.on_awaited_media(token, purpose, result),
            None => self.flow.forget_orphan(id),
        }
        if !self.older.is_empty() {
            self.on_older_end(id);
        }
    }

    #[inline]
    fn on_awaited_media(&mut self, token: CommandToken, purpose: MediaFor, result: Result<(), MediaError>) {
        let slot = self.flow.slots.of(token);
        slot.spent.end_medium(self.flow.now);
        slot.asked = None;
        let (entry, length) = (slot.entry, slot.length);
        let handled = match (purpose, result) {
            (_, Ok(())) if slot.received != slot.expected => Err(Failure::new(StatusCode::InternalError)),
            (_, Err(error)) => Err(self.media_failure(&entry, purpose, error)),
            (MediaFor::Read | MediaFor::Compare { equal: true }, Ok(())) => {
                self.counting.smart.count_read(length);
                Ok(Step::Done(0))
            }
            (MediaFor::Write | MediaFor::WriteMarked, Ok(())) => {
                self.counting.smart.count_write(length);
                Ok(Step::Done(0))
            }
            (MediaFor::Compare { equal: false }, Ok(())) => {
                Err(Failure::at_lba(StatusCode::CompareFailure, entry.starting_lba()))
            }
            (MediaFor::Verify | MediaFor::Deallocate(_), Ok(())) if self.care => {
                self.go_on_with_care(token, &entry, purpose)
            }
            (MediaFor::Verify | MediaFor::Deallocate(_), Ok(())) => self.go_on(token, &entry, purpose),
            _ => Ok(Step::Done(0)),
        };
        self.finish(token, handled);
    }

    /// Continues a command of several steps after one of them.
    pub(super) fn go_on(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        after: MediaFor,
    ) -> Handled {
        let slot = self.flow.slots.of(token);
        match after {
            MediaFor::Verify => {
                let (verified, step) = (slot.cursor + u64::from(slot.expected), slot.expected);
                self.counting.smart.count_verified(step);
                self.executor().verify_from(token, entry, verified)
            }
            MediaFor::Deallocate(index) => self.executor().deallocate_from(token, entry, index + 1),
            _ => Ok(Step::Done(0)),
        }
    }

    #[cold]
    fn media_failure(
        &mut self,
        entry: &SubmissionQueueEntry,
        purpose: MediaFor,
        error: MediaError,
    ) -> Failure {
        match error {
            MediaError::Read | MediaError::ReadFailed | MediaError::Write => {
                self.counting.smart.count_media_error();
                self.counting.note_failed_medium();
            }
            MediaError::NoSpace => {
                self.counting.smart.count_space_error(self.flow.now);
            }
            MediaError::ReadOnly | MediaError::OutOfRange | MediaError::Unreachable => (),
        }
        failure_of(entry, purpose, error)
    }

    #[inline]
    pub(super) fn complete(&mut self, token: CommandToken, dw0: u32, status: Status) {
        let (now, slot) = (self.flow.now, self.flow.slots.of(token));
        let is_valid = self.views.is_valid(slot.entry.namespace);
        self.counting.count(now, slot, status, is_valid);
        if self.report_at.is_none() {
            self.report_at = Some(now + REPORT_AFTER);
        }
        self.flow.slots.retire(token);
        let completion = CompletionResult { dw0, dw1: 0, status };
        self.flow.outputs.push_back(Output::Complete { token, completion });
    }

    /// Ends the command with a failure, which the Error Information log records.
    #[cold]
    pub(super) fn fail(&mut self, token: CommandToken, failure: Failure) {
        let state = self.flow.slots.of(token).state;
        if matches!(state, State::Deferred | State::DeferredData(_) | State::DeferredStep(_)) {
            self.waiting.retain(|waiting| *waiting != token);
        }
        self.log(token, &failure);
        self.complete(token, failure.dw0, failure.status.with_more());
        if self.counting.is_urgent() {
            self.report_counts();
        }
    }

    fn log(&mut self, token: CommandToken, failure: &Failure) {
        let slot = self.flow.slots.of(token);
        let (controller, queue, entry) = (slot.controller, slot.queue, slot.entry);
        self.counting.log(Logged { controller, queue, entry, failure: *failure });
    }

    /// Reports what the lane has counted.
    #[cold]
    pub(super) fn report_counts(&mut self) {
        self.report_at = None;
        let counts = self.counting.take(self.flow.now, self.views.version());
        self.send(Report::Counts(Box::new(counts)));
    }

    #[cold]
    fn on_older_end(&mut self, id: IoId) {
        if self.older.end(id) || self.ending {
            self.acknowledge();
        }
    }

    /// Acknowledges the versions that the lane has seen, and since which it is quiet.
    pub(super) fn acknowledge(&mut self) {
        self.send(Report::Acknowledged { seen: self.views.version(), quiet: self.older.quiet() });
        if self.ending && self.flow.media_outstanding == 0 {
            self.report_counts();
            self.send(Report::Ended);
            (self.report_at, self.ending) = (None, false);
        }
    }
}
