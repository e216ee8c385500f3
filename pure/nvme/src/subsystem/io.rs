//! The commands of the NVM command set.

use super::Subsystem;
use super::errors::{Failure, Location};
use super::events::AsynchronousEvent;
use super::executor::Executor;
use super::flow::{Handled, Step};
use super::namespace::Namespace;
use super::slots::MediaFor;
use super::types::CommandToken;
use super::view::Touch;
use crate::media::{MediaError, Operation};
use crate::wire::{DatasetRange, FusedOperation, IoOpcode, NamespaceId, StatusCode, SubmissionQueueEntry};

impl Subsystem {
    /// The executor of the I/O commands that the subsystem executes itself.
    #[inline]
    pub(super) const fn executor(&mut self) -> Executor<'_> {
        Executor { flow: &mut self.flow, views: self.namespaces.views(), unreadable: &self.unreadable }
    }

    #[inline]
    pub(super) fn on_io_command(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        match IoOpcode::from(entry.opcode) {
            IoOpcode::Read => self.executor().on_read(token, entry),
            IoOpcode::Write => self.executor().on_write(token, entry),
            IoOpcode::Flush if entry.namespace == NamespaceId::ALL => self.on_flush_of_all(token),
            IoOpcode::Flush => self.executor().on_flush(token, entry),
            IoOpcode::Compare => self.on_compare(token, entry),
            IoOpcode::WriteZeroes => self.executor().on_write_zeroes(token, entry),
            IoOpcode::DatasetManagement => self.executor().on_dataset_management(token, entry),
            IoOpcode::Verify if self.namespaces.views().has_metadata(entry.namespace) => {
                self.executor().check_verifiable(token, entry)?;
                self.on_verify_protected(token, entry)
            }
            IoOpcode::Verify => self.executor().on_verify(token, entry),
            IoOpcode::Copy => self.executor().on_copy(token, entry),
            IoOpcode::ReservationRegister
            | IoOpcode::ReservationReport
            | IoOpcode::ReservationAcquire
            | IoOpcode::ReservationRelease => self.on_reservation(token, entry),
            IoOpcode::WriteUncorrectable => self.on_write_uncorrectable(token, entry),
            _ => Err(Failure::field(StatusCode::InvalidCommandOpcode, Location::OPCODE)),
        }
    }

    fn on_compare(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        if entry.fused() == FusedOperation::First {
            self.executor().ready(token, entry)?.extent_of(entry)?;
            return self.on_fused_compare(token, entry);
        }
        self.executor().pull_compare(token, entry)
    }

    /// Continues a Verify whose piece was read.
    pub(super) fn on_verified(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let slot = self.flow.slots.of(token);
        let (verified, step) = (slot.cursor + u64::from(slot.expected), slot.expected);
        self.smart.count_verified(step);
        self.executor().verify_from(token, entry, verified)
    }

    pub(super) fn on_deallocated(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        index: u16,
    ) -> Handled {
        let data = self.flow.slots.peek(token).map(|slot| slot.data.clone()).unwrap_or_default();
        if let Some(range) = DatasetRange::list(&data).nth(usize::from(index)) {
            self.unmark(entry.namespace, range.starting_lba, u64::from(range.blocks));
        }
        self.executor().deallocate_from(token, entry, index + 1)
    }

    fn on_flush_of_all(&mut self, token: CommandToken) -> Handled {
        let controller = self.flow.slots.of(token).controller;
        for namespace in self.namespaces.iter().filter(|one| self.namespaces.is_active(controller, one)) {
            self.namespaces.check_reservation(controller, namespace, Touch::Writes)?;
        }
        Ok(self.flush_after(token, NamespaceId::NONE))
    }

    /// Flushes the first namespace after `previous` that the command's controller has; ends when
    /// none is left. A shutdown flushes every namespace.
    pub(super) fn flush_after(&mut self, token: CommandToken, previous: NamespaceId) -> Step {
        let is_command = self.flow.slots.is_command(token);
        let controller = self.flow.slots.of(token).controller;
        let is_meant = |one: &&Namespace| !is_command || self.namespaces.is_active(controller, one);
        let next = self.namespaces.iter().filter(|one| one.id > previous).find(is_meant);
        match next.map(|namespace| (namespace.id, namespace.medium)) {
            Some((id, medium)) => {
                self.flow.ask_medium(token, MediaFor::FlushAll(id), medium, 0, Operation::Flush)
            }
            None => Step::Done(0),
        }
    }

    /// Flushes the next namespace even after a failure, because the data of the other namespaces
    /// deserves to be kept.
    pub(super) fn on_flushed(
        &mut self,
        token: CommandToken,
        namespace: NamespaceId,
        result: Result<(), MediaError>,
    ) -> Handled {
        let slot = self.flow.slots.of(token);
        slot.failure = slot.failure.or(result.err());
        let (entry, failure) = (slot.entry, slot.failure);
        match (self.flush_after(token, namespace), failure) {
            (Step::Done(_), Some(error)) => Err(self.media_failure(&entry, MediaFor::Flush, error)),
            (step, _) => Ok(step),
        }
    }

    /// The failure that the host sees when a medium fails, and its consequences for the subsystem.
    #[cold]
    pub(super) fn media_failure(
        &mut self,
        entry: &SubmissionQueueEntry,
        purpose: MediaFor,
        error: MediaError,
    ) -> Failure {
        match error {
            _ if matches!(purpose, MediaFor::Save(_)) => (),
            MediaError::Read | MediaError::ReadFailed | MediaError::Write => {
                self.smart.count_media_error();
                self.capture_telemetry("a medium has failed");
            }
            MediaError::NoSpace => self.on_space_error(),
            MediaError::ReadOnly | MediaError::OutOfRange | MediaError::Unreachable => (),
        }
        failure_of(entry, purpose, error)
    }

    /// Counts a write that found no space, and reports the first one.
    #[cold]
    pub(super) fn on_space_error(&mut self) {
        if self.smart.count_space_error(self.flow.now) {
            self.controllers.raise(&mut self.flow, AsynchronousEvent::SpareBelowThreshold);
        }
    }
}

/// The failure that the host sees when a medium fails.
#[cold]
pub(super) fn failure_of(entry: &SubmissionQueueEntry, purpose: MediaFor, error: MediaError) -> Failure {
    let reading = matches!(
        purpose,
        MediaFor::Read
            | MediaFor::ReadStored
            | MediaFor::Compare { .. }
            | MediaFor::Verify
            | MediaFor::CopyRead(_)
    );
    let dw0 = match purpose {
        MediaFor::CopyRead(range) | MediaFor::CopyWrite(range) => range,
        _ => 0,
    };
    let code = match error {
        _ if matches!(purpose, MediaFor::Save(_)) => StatusCode::InternalError,
        MediaError::Read | MediaError::ReadFailed | MediaError::Write if reading => {
            StatusCode::UnrecoveredReadError
        }
        MediaError::Read | MediaError::ReadFailed | MediaError::Write => StatusCode::WriteFault,
        MediaError::NoSpace => StatusCode::CapacityExceeded,
        MediaError::ReadOnly => StatusCode::NamespaceWriteProtected,
        MediaError::OutOfRange => StatusCode::LbaOutOfRange,
        MediaError::Unreachable => StatusCode::NamespaceNotReady,
    };
    let names_lba = !matches!(
        purpose,
        MediaFor::Flush
            | MediaFor::FlushAll(_)
            | MediaFor::Deallocate(_)
            | MediaFor::Erase(_)
            | MediaFor::FlushErased(_)
            | MediaFor::Protect(_)
            | MediaFor::Sanitize
            | MediaFor::SelfTest
            | MediaFor::Save(_)
    );
    let lba = if names_lba { entry.starting_lba() } else { 0 };
    Failure { dw0, ..Failure::at_lba(code, lba) }
}
