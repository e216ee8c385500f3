//! Fused operations: Compare and Write, with nothing between the two commands.

use super::Subsystem;
use super::errors::{Failure, Location};
use super::flow::{Handled, Step};
use super::slots::{Alone, State};
use super::types::CommandToken;
use super::view::blocks_of;
use crate::wire::{FusedOperation, IoOpcode, QueueId, StatusCode, SubmissionQueueEntry};

/// Fused Operation Support (FUSES): Compare and Write.
pub(super) const COMPARE_AND_WRITE: u16 = 1 << 0;

impl Subsystem {
    /// Executes a command that declares itself part of a fused operation.
    #[cold]
    pub(super) fn on_fused_command(
        &mut self,
        token: CommandToken,
        queue: QueueId,
        entry: &SubmissionQueueEntry,
    ) -> Handled {
        let invalid = Failure::field(StatusCode::InvalidField, Location::FUSED_OPERATION);
        if queue.is_admin() {
            return Err(invalid);
        }
        match entry.fused() {
            FusedOperation::Second => {
                let Some(first) = self.take_first(token, queue) else {
                    return Err(Failure::field(StatusCode::AbortedMissingFused, Location::FUSED_OPERATION));
                };
                self.pair(first, token, entry)
            }
            FusedOperation::First => {
                self.abandon_first(token, queue);
                self.flow.slots.of(token).state = State::AwaitingSecond;
                self.restrictions.hold_first(token);
                Ok(Step::Waiting)
            }
            FusedOperation::Normal | FusedOperation::Reserved => Err(invalid),
        }
    }

    /// Fails a first command on this queue if `next` is not its second command.
    pub(super) fn abandon_first(&mut self, next: CommandToken, queue: QueueId) {
        if let Some(first) = self.take_first(next, queue) {
            self.fail(first, Failure::field(StatusCode::AbortedMissingFused, Location::FUSED_OPERATION));
        }
    }

    /// Takes the first command on the queue of `next` whose second command has not arrived.
    fn take_first(&mut self, next: CommandToken, queue: QueueId) -> Option<CommandToken> {
        let controller = self.flow.slots.of(next).controller;
        let of_queue = |first: &CommandToken| {
            let slot = self.flow.slots.peek(*first);
            slot.is_some_and(|slot| slot.controller == controller && slot.queue == queue)
        };
        let first = self.restrictions.firsts().find(|first| of_queue(first))?;
        self.restrictions.withdraw(first);
        Some(first)
    }

    /// Pairs both commands. The first one then proceeds like any other command, and brings the
    /// second one along.
    fn pair(&mut self, first: CommandToken, second: CommandToken, write: &SubmissionQueueEntry) -> Handled {
        let compare = self.flow.slots.of(first).entry;
        let range = |entry: &SubmissionQueueEntry| (entry.namespace, entry.starting_lba(), blocks_of(entry));
        let fused = IoOpcode::from(compare.opcode) == IoOpcode::Compare
            && IoOpcode::from(write.opcode) == IoOpcode::Write
            && range(&compare) == range(write);
        if !fused {
            let invalid = Failure::field(StatusCode::InvalidField, Location::FUSED_OPERATION);
            self.fail(first, invalid);
            return Err(invalid);
        }
        self.flow.slots.of(first).partner = Some(second);
        self.flow.slots.of(second).state = State::AwaitingFirst;
        let handled = self.on_io_command_with_care(first, &compare);
        self.finish(first, handled);
        Ok(Step::Waiting)
    }

    /// Runs the Compare of a pair exclusively, so that no write happens between the Compare and the
    /// Write.
    pub(super) fn on_fused_compare(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        self.executor().check_writable(token, entry)?;
        if self.restrictions.is_owned() {
            return self.defer(token);
        }
        self.alone(token, Alone::CompareAndWrite)
    }

    pub(super) fn compare_alone(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        self.executor().pull_compare(token, entry)
    }

    /// Completes a Compare that succeeded, and continues with the Write in its place.
    pub(super) fn on_fused_equal(&mut self, token: CommandToken, second: CommandToken) -> Handled {
        self.flow.slots.of(token).partner = None;
        self.restrictions.hand_over(second);
        self.complete(token, 0, crate::wire::Status::SUCCESS);
        if self.namespaces.views().is_erased() {
            self.on_first_change();
        }
        let entry = self.flow.slots.of(second).entry;
        self.flow.slots.of(second).state = State::Started;
        let handled = self.on_io_command(second, &entry);
        self.finish(second, handled);
        Ok(Step::Waiting)
    }
}
