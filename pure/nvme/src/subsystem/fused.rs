//! Fused operations: Compare and Write, in which nothing comes between the two.

use super::errors::{Failure, Location};
use super::exclusive::Alone;
use super::slots::{HostDataFor, State};
use super::{CommandToken, Handled, Step, Subsystem};
use crate::wire::{FusedOperation, IoOpcode, StatusCode, SubmissionQueueEntry, SubmissionQueueId};

/// Fused Operation Support (FUSES): Compare and Write.
pub(super) const COMPARE_AND_WRITE: u16 = 1 << 0;

impl Subsystem {
    /// A command that says that it is part of a fused operation.
    #[cold]
    pub(super) fn on_fused_command(
        &mut self,
        token: CommandToken,
        queue: SubmissionQueueId,
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
                self.slots.of(token).state = State::AwaitingSecond;
                self.care.hold_first(token);
                Ok(Step::Waiting)
            }
            FusedOperation::Normal | FusedOperation::Reserved => Err(invalid),
        }
    }

    /// The queue's next command is not the second of the pair that its last one was the first of.
    pub(super) fn abandon_first(&mut self, next: CommandToken, queue: SubmissionQueueId) {
        if let Some(first) = self.take_first(next, queue) {
            self.fail(first, Failure::field(StatusCode::AbortedMissingFused, Location::FUSED_OPERATION));
        }
    }

    /// The first command of a pair on the queue of the `next` one whose second one has not come.
    fn take_first(&mut self, next: CommandToken, queue: SubmissionQueueId) -> Option<CommandToken> {
        let controller = self.slots.of(next).controller;
        let of_queue = |first: &CommandToken| {
            let slot = self.slots.peek(*first);
            slot.is_some_and(|slot| slot.controller == controller && slot.queue == queue)
        };
        let first = self.care.firsts().find(|first| of_queue(first))?;
        self.care.withdraw(first);
        Some(first)
    }

    /// Both commands are there: the first one goes on like any other, and takes the second with it.
    fn pair(&mut self, first: CommandToken, second: CommandToken, write: &SubmissionQueueEntry) -> Handled {
        let compare = self.slots.of(first).entry;
        let range = |entry: &SubmissionQueueEntry| {
            (entry.namespace, entry.starting_lba(), super::io::blocks_of(entry))
        };
        let fused = IoOpcode::from(compare.opcode) == IoOpcode::Compare
            && IoOpcode::from(write.opcode) == IoOpcode::Write
            && range(&compare) == range(write);
        if !fused {
            let invalid = Failure::field(StatusCode::InvalidField, Location::FUSED_OPERATION);
            self.fail(first, invalid);
            return Err(invalid);
        }
        self.slots.of(first).partner = Some(second);
        self.slots.of(second).state = State::AwaitingFirst;
        let handled = self.on_io_command_with_care(first, &compare);
        self.finish(first, handled);
        Ok(Step::Waiting)
    }

    /// The Compare of a pair: alone, so that nothing is written between it and the Write.
    pub(super) fn on_fused_compare(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        self.check_writable(token, entry)?;
        if self.care.is_owned() {
            return self.defer(token);
        }
        self.alone(token, Alone::CompareAndWrite)
    }

    pub(super) fn compare_alone(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let length = self.compare_length(token, entry)?;
        Ok(self.pull(token, length, HostDataFor::Compare))
    }

    /// The Compare has succeeded, and ends: the Write goes on in its place.
    pub(super) fn on_fused_equal(&mut self, token: CommandToken, second: CommandToken) -> Handled {
        self.slots.of(token).partner = None;
        self.care.hand_over(second);
        self.complete(token, 0, crate::wire::Status::SUCCESS);
        if self.care.is_erased() {
            self.on_first_change();
        }
        let entry = self.slots.of(second).entry;
        self.slots.of(second).state = State::Started;
        let handled = self.on_io_command(second, &entry);
        self.finish(second, handled);
        Ok(Step::Waiting)
    }
}
