//! The Format NVM command.

use super::Subsystem;
use super::config::BlockSize;
use super::controller::ControllerKey;
use super::errors::{Failure, Location};
use super::flow::{Handled, Step};
use super::namespace::{Busy, Namespace};
use super::self_test::Outcome;
use super::slots::{Alone, Erasure, MediaFor};
use super::types::{CommandToken, Notification};
use super::view::Touch;
use crate::media::{MediaError, Operation};
use crate::wire::{Bits, NamespaceId, Status, StatusCode, SubmissionQueueEntry};

/// LBA Format, low bits (LBAFL), in CDW10.
const FORMAT_LOW: Bits = Bits::new(3, 0);
/// Metadata Settings (MSET), in CDW10: metadata at the end of each block's data.
const METADATA_SETTINGS: Bits = Bits::bit(4);
/// Protection Information (PI), in CDW10.
const PROTECTION: Bits = Bits::new(7, 5);
/// Protection information of Type 1; 0 stands for none, and the other types are not supported.
const TYPE_1: u32 = 1;
/// Protection Information Location (PIL), in CDW10.
const FIRST_BYTES: Bits = Bits::bit(8);
/// Secure Erase Settings (SES), in CDW10.
const SECURE_ERASE: Bits = Bits::new(11, 9);
/// LBA Format, high bits (LBAFU), in CDW10.
const FORMAT_HIGH: Bits = Bits::new(13, 12);
/// Secure Erase Settings: User Data Erase. The next higher value is Cryptographic Erase, which
/// needs keys.
const USER_DATA_ERASE: u32 = 0b001;

impl Subsystem {
    /// Formats the namespaces of the command. The contents are erased for any Secure Erase
    /// Settings, because they would be meaningless in blocks of another size.
    pub(super) fn on_format(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let format = FORMAT_HIGH.of(entry.cdw10) << 4 | FORMAT_LOW.of(entry.cdw10);
        let invalid_format = Failure::field(StatusCode::InvalidFormat, Location::CDW10);
        let controller = self.flow.slots.of(token).controller;
        let block = self.format_for(controller, format, PROTECTION.of(entry.cdw10)).ok_or(invalid_format)?;
        if METADATA_SETTINGS.is_set(entry.cdw10) || FIRST_BYTES.is_set(entry.cdw10) {
            return Err(invalid_format);
        }
        if SECURE_ERASE.of(entry.cdw10) > USER_DATA_ERASE {
            return Err(Failure::field(StatusCode::InvalidField, Location::at(41, 1)));
        }
        let all = entry.namespace == NamespaceId::ALL;
        if !all {
            self.namespaces.active_for(controller, entry.namespace)?;
        }
        let of_command =
            |one: &&Namespace| one.is_attached_to(controller) && (all || one.id == entry.namespace);
        let chosen = || self.namespaces.iter().filter(of_command);
        for namespace in chosen() {
            self.namespaces.check_access(controller, namespace)?;
            self.namespaces.check_reservation(controller, namespace, Touch::Writes)?;
        }
        if chosen().any(|namespace| namespace.bytes < u64::from(block.stored())) {
            return Err(invalid_format); // Not a single block of this size would fit.
        }
        if chosen().any(|namespace| namespace.is_write_protected()) {
            return Err(Failure::new(StatusCode::NamespaceWriteProtected));
        }
        if chosen().any(|namespace| namespace.busy.is_some()) {
            return Err(Failure::new(StatusCode::FormatInProgress));
        }
        if self.restrictions.is_owned() {
            return self.defer(token);
        }
        self.set_formatting(controller, entry, true);
        self.alone(token, Alone::Format)
    }

    /// The block format of the LBA format with this index and the Protection Information (PI)
    /// `protection`, if hosts of the controller can use it. Metadata without protection information
    /// cannot be generated and stripped, so they need a separate buffer, which fabrics lack.
    pub(super) fn format_for(
        &self,
        controller: ControllerKey,
        format: u32,
        protection: u32,
    ) -> Option<BlockSize> {
        let block = BlockSize::from_format(format, protection == TYPE_1).filter(|_| protection <= TYPE_1)?;
        let is_unreachable =
            block.has_metadata() && block.guard().is_none() && self.flow.lacks_metadata(controller);
        (!is_unreachable).then_some(block)
    }

    /// Formats once no other command is in progress, so that no earlier write ends after the
    /// format.
    pub(super) fn format_alone(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let format = FORMAT_HIGH.of(entry.cdw10) << 4 | FORMAT_LOW.of(entry.cdw10);
        let protected = PROTECTION.is_set(entry.cdw10);
        let block = BlockSize::from_format(format, protected).expect("checked before");
        let controller = self.flow.slots.of(token).controller;
        self.event_log.record_format_start(&mut self.flow, &self.controllers, controller, entry);
        self.format_next(token, block)
    }

    /// Formats the next namespace that is marked for it; ends when none is left.
    fn format_next(&mut self, token: CommandToken, block: BlockSize) -> Handled {
        let Some(next) = self.namespaces.iter().find(|one| one.busy == Some(Busy::Formatting)) else {
            let slot = self.flow.slots.of(token);
            let (controller, entry) = (slot.controller, slot.entry);
            self.event_log.record_format_end(
                &mut self.flow,
                &self.controllers,
                controller,
                &entry,
                Status::SUCCESS,
            );
            return Ok(Step::Done(0));
        };
        let (id, medium, offset, length) = (next.id, next.medium, next.offset, next.bytes);
        self.self_test.end_of(&mut self.flow, &self.smart, id, Outcome::AbortedByFormat);
        let operation = Operation::Deallocate { offset, length };
        let purpose = MediaFor::Erase(Erasure::Format(id, block));
        Ok(self.flow.ask_medium(token, purpose, medium, 0, operation))
    }

    pub(super) fn on_formatted(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        id: NamespaceId,
        block: BlockSize,
        result: Result<(), MediaError>,
    ) -> Handled {
        if let Err(error) = result {
            let controller = self.flow.slots.of(token).controller;
            self.set_formatting(controller, entry, false);
            let purpose = MediaFor::Erase(Erasure::Format(id, block));
            let failure = self.media_failure(entry, purpose, error);
            self.event_log.record_format_end(
                &mut self.flow,
                &self.controllers,
                controller,
                entry,
                failure.status,
            );
            return Err(failure);
        }
        self.unreadable.forget(id);
        self.namespaces.change(id, |one| {
            one.format(block);
            (one.busy, one.marked) = (None, false);
        });
        self.flow.notify(Notification::NamespaceFormatted { namespace: id, block });
        self.announce_change(id);
        self.format_next(token, block)
    }

    /// Sets or clears the mark of the namespaces that the command formats.
    pub(super) fn set_formatting(
        &mut self,
        controller: ControllerKey,
        entry: &SubmissionQueueEntry,
        formatting: bool,
    ) {
        let all = entry.namespace == NamespaceId::ALL;
        let of_command = |one: &Namespace| {
            (all && one.is_attached_to(controller) || one.id == entry.namespace)
                && one.busy == if formatting { None } else { Some(Busy::Formatting) }
        };
        self.namespaces.change_each(of_command, |one| one.busy = formatting.then_some(Busy::Formatting));
    }
}
