//! The second look that commands of a lane take, and the messages of the subsystem.

use alloc::boxed::Box;
use alloc::vec::Vec;

use engine::Buffer;

use super::super::controller::ControllerKey;
use super::super::errors::Failure;
use super::super::exclusive::changes_data;
use super::super::flow::{Handled, Step};
use super::super::slots::{HostDataFor, MediaFor, Slot, State};
use super::super::types::{CommandToken, CompletionResult, Output};
use super::lane::Lane;
use super::message::{Ending, Hand, Order, Publication, Report};
use crate::wire::{FusedOperation, IoOpcode, NamespaceId, QueueId, Status, StatusCode, SubmissionQueueEntry};

/// What a namespace requires of a command's next step.
enum Care {
    /// The command may go on.
    None,
    /// The command waits until the lane is no longer held.
    Wait,
    /// The subsystem executes the command.
    HandOver,
}

impl Lane {
    /// Decides on the next step of a command for `namespace`.
    fn care_for(&self, namespace: NamespaceId) -> Care {
        let view = self.views.find(namespace);
        // A namespace that is being formatted or deleted refuses commands at once.
        let refused = view.is_none_or(|view| view.busy);
        match view {
            _ if self.views.is_held() && !refused => Care::Wait,
            Some(view) if view.needs_subsystem() => Care::HandOver,
            _ => Care::None,
        }
    }

    /// Executes a command while something requires a second look.
    #[cold]
    pub(super) fn on_command_with_care(
        &mut self,
        token: CommandToken,
        queue: QueueId,
        entry: &SubmissionQueueEntry,
    ) -> Handled {
        // The subsystem pairs the halves of fused commands, or ends a half without the other one.
        let of_queue = (self.flow.slots.of(token).controller, queue);
        let first = self.firsts.iter().position(|first| *first == of_queue);
        first.map(|index| self.firsts.swap_remove(index));
        match entry.fused() {
            FusedOperation::Normal if first.is_none() => (),
            FusedOperation::First => {
                self.firsts.push(of_queue);
                self.remember_care();
                return Ok(self.hand_over(token));
            }
            _ => {
                self.remember_care();
                return Ok(self.hand_over(token));
            }
        }
        self.on_single_command(token, entry)
    }

    /// Executes a command that is not half of a pair, or what follows one.
    fn on_single_command(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let opcode = IoOpcode::from(entry.opcode);
        if let Some(code) = self.views.sanitize() {
            // Only Flush succeeds, since it has nothing to do.
            return if opcode == IoOpcode::Flush { Ok(Step::Done(0)) } else { Err(Failure::new(code)) };
        }
        if self.views.is_erased() && changes_data(opcode) {
            return Ok(self.hand_over(token));
        }
        match self.care_for(entry.namespace) {
            Care::None => self.execute(token, entry),
            Care::Wait => Ok(self.defer(token, State::Deferred)),
            Care::HandOver => Ok(self.hand_over(token)),
        }
    }

    /// Whether commands take a second look.
    fn remember_care(&mut self) {
        self.care = self.views.need_care() || !self.firsts.is_empty();
    }

    /// Forgets that the last command of a queue was the first one of a fused pair.
    pub(super) fn forget_first(&mut self, of_queue: (ControllerKey, QueueId)) {
        self.firsts.retain(|first| *first != of_queue);
        self.remember_care();
    }

    /// Makes a command wait until the lane is no longer held.
    fn defer(&mut self, token: CommandToken, state: State) -> Step {
        self.flow.slots.of(token).state = state;
        self.waiting.push_back(token);
        Step::Waiting
    }

    /// Decides on a command whose data has arrived. Returns whether it does not go on now.
    #[cold]
    pub(super) fn must_wait_with_data(
        &mut self,
        token: CommandToken,
        purpose: HostDataFor,
        data: &Buffer,
    ) -> bool {
        let namespace = self.flow.slots.of(token).entry.namespace;
        let care = self.care_for(namespace);
        if !matches!(care, Care::None) {
            self.flow.slots.of(token).data = data.clone();
        }
        match care {
            Care::None => return false,
            Care::Wait => self.defer(token, State::DeferredData(purpose)),
            Care::HandOver => self.hand_over(token),
        };
        true
    }

    /// Decides on the next step of a command of several steps.
    #[cold]
    pub(super) fn go_on_with_care(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        after: MediaFor,
    ) -> Handled {
        match self.care_for(entry.namespace) {
            Care::None => self.go_on(token, entry, after),
            Care::Wait => Ok(self.defer(token, State::DeferredStep(after))),
            // The subsystem executes the command from its beginning: it reads again, or deallocates
            // again.
            Care::HandOver => Ok(self.hand_over(token)),
        }
    }

    /// Handles a message of the subsystem.
    #[cold]
    pub(super) fn on_order(&mut self, order: Order) {
        match order {
            Order::Publish(publication) => self.on_publication(publication),
            Order::Pull { hand, length } if self.has_handed(hand) => self.pull(hand.token, length),
            Order::Push { hand, offset, length, data } if self.has_handed(hand) => {
                let token = hand.token;
                self.flow.slots.of(token).length = length;
                let data = Buffer::from(Vec::from(data));
                self.flow.outputs.push_back(Output::PushHostData { token, offset, length, data });
            }
            Order::Complete { hand, completion } if self.has_handed(hand) => {
                self.end_handed(hand.token, completion);
            }
            // The command has ended in the meantime.
            Order::Pull { .. } | Order::Push { .. } | Order::Complete { .. } => (),
            Order::End => {
                self.drop_commands(false, |_, _| true);
                self.firsts.clear();
                self.ending = true;
                self.older.publish(self.views.version(), self.flow.slots.requests());
                self.acknowledge();
            }
        }
    }

    fn has_handed(&self, Hand { token, number }: Hand) -> bool {
        let slot = self.flow.slots.peek(token);
        slot.is_some_and(|slot| slot.state == State::HandedOver && slot.cursor == number)
    }

    fn hand_of(&mut self, token: CommandToken) -> Hand {
        Hand { token, number: self.flow.slots.of(token).cursor }
    }

    /// Pulls data for the subsystem, unless the lane has pulled it before.
    fn pull(&mut self, token: CommandToken, length: u32) {
        let slot = self.flow.slots.of(token);
        slot.length = length;
        let data = core::mem::take(&mut slot.data);
        if data.is_empty() {
            self.flow.outputs.push_back(Output::PullHostData { token, length });
        } else if u32::try_from(data.len()) == Ok(length) {
            self.pass_data(token, &data);
        } else {
            // A format has changed the blocks since.
            let hand = self.hand_of(token);
            let status = Status::from(StatusCode::FormatInProgress);
            self.send(Report::HostDataFailed { hand, status });
        }
    }

    #[cold]
    pub(super) fn pass_data(&mut self, token: CommandToken, data: &Buffer) {
        let hand = self.hand_of(token);
        self.send(Report::HostData { hand, data: data.to_vec() });
    }

    /// Passes on that a transfer has failed, which the subsystem may notice too late.
    #[cold]
    pub(super) fn pass_failure(&mut self, token: CommandToken, status: Status) {
        let hand = self.hand_of(token);
        self.failed.push((token, status));
        self.send(Report::HostDataFailed { hand, status });
    }

    /// Ends a command that the subsystem has executed, logged and counted.
    fn end_handed(&mut self, token: CommandToken, mut completion: CompletionResult) {
        if let Some(status) = self.take_failed(token)
            && completion.status.is_success()
        {
            completion = CompletionResult { dw0: 0, dw1: 0, status };
        }
        self.counting.smart.end_io(self.flow.now);
        self.flow.slots.retire(token);
        self.flow.outputs.push_back(Output::Complete { token, completion });
    }

    fn take_failed(&mut self, token: CommandToken) -> Option<Status> {
        let index = self.failed.iter().position(|(one, _)| *one == token)?;
        Some(self.failed.swap_remove(index).1)
    }

    /// Sees a publication: first ends the commands that end by it, then goes on under the new
    /// views.
    fn on_publication(&mut self, publication: Publication) {
        let Publication { changes, endings, wants_counts } = publication;
        if wants_counts || endings.iter().any(|ending| matches!(ending, Ending::Controller(_))) {
            self.report_counts();
        }
        let refused = self.views.sanitize();
        let version = changes.version;
        self.views.apply(changes);
        self.remember_care();
        for ending in endings {
            self.on_ending(ending);
        }
        if let Some(code) = self.views.sanitize().filter(|_| refused.is_none()) {
            self.abort(Failure::new(code), |_| true);
        }
        self.older.publish(version, self.flow.slots.requests());
        if !self.views.is_held() {
            self.release();
        }
        self.acknowledge();
    }

    fn on_ending(&mut self, ending: Ending) {
        match ending {
            Ending::Preempted { namespace, controllers } => {
                self.abort(Failure::new(StatusCode::AbortedPreempt), |slot| {
                    slot.entry.namespace == namespace && controllers.contains(&slot.controller)
                });
            }
            Ending::Controller(key) => {
                self.firsts.retain(|(controller, _)| *controller != key);
                self.remember_care();
                self.drop_commands(false, |controller, _| controller == key);
            }
            Ending::Abort { by, controller, queue, command } => {
                let is_meant = |slot: &Slot| {
                    (slot.controller, slot.queue, slot.entry.command_id) == (controller, queue, command)
                };
                if self.abort(Failure::new(StatusCode::CommandAbortRequested), is_meant) > 0 {
                    self.send(Report::Aborted { by });
                }
            }
        }
    }

    /// Ends those of the commands `is_meant` that can end at once. Returns their number.
    pub(super) fn abort(&mut self, failure: Failure, is_meant: impl Fn(&Slot) -> bool) -> usize {
        let meant = self.flow.slots.in_flight().filter(|(_, slot)| slot.state.can_abort() && is_meant(slot));
        let tokens: Vec<_> = meant.map(|(token, _)| token).collect();
        let count = tokens.len();
        tokens.into_iter().for_each(|token| self.fail(token, failure));
        count
    }

    /// Continues the commands that waited.
    fn release(&mut self) {
        for token in core::mem::take(&mut self.waiting) {
            let slot = self.flow.slots.of(token);
            let (entry, state) = (slot.entry, slot.state);
            slot.state = State::Started;
            match state {
                State::DeferredData(purpose) => {
                    let data = core::mem::take(&mut slot.data);
                    if !(self.care && self.must_wait_with_data(token, purpose, &data)) {
                        self.on_pulled(token, purpose, data);
                    }
                }
                State::DeferredStep(after) => {
                    let handled = self.go_on_with_care(token, &entry, after);
                    self.finish(token, handled);
                }
                _ => {
                    let handled = self.on_single_command(token, &entry);
                    self.finish(token, handled);
                }
            }
        }
    }

    /// Ends commands without completions. If `report`, the subsystem does not know that they end.
    pub(super) fn drop_commands(&mut self, report: bool, is_gone: impl Fn(ControllerKey, QueueId) -> bool) {
        let (gone, unseen) = self.flow.end_commands(|_, slot| is_gone(slot.controller, slot.queue));
        for gone in gone {
            let token = gone.token;
            self.counting.smart.end_io(self.flow.now);
            self.take_failed(token);
            match gone.state {
                State::HandedOver if report => {
                    let hand = self.hand_of(token);
                    self.send(Report::Dropped(hand));
                }
                State::Deferred | State::DeferredData(_) | State::DeferredStep(_) => {
                    self.waiting.retain(|waiting| *waiting != token);
                }
                _ => (),
            }
        }
        let mut quiet = false;
        for request in unseen {
            quiet |= self.older.end(request);
        }
        if quiet {
            self.acknowledge();
        }
    }
}

/// A message, boxed for an output.
pub(super) fn boxed(order: Order) -> Box<super::ToLane> {
    Box::new(super::ToLane(order))
}
