//! The I/O commands of one namespace, as the subsystem and its lanes execute them.

use engine::Buffer;

use super::errors::{Failure, Location};
use super::flow::{Flow, Handled, Step};
use super::slots::{HostDataFor, MediaFor};
use super::types::CommandToken;
use super::unreadable::Unreadable;
use super::view::{Extent, NamespaceView, Touch, Views, blocks_of};
use crate::media::Operation;
use crate::wire::{Bits, DatasetRange, IoOpcode, NamespaceId, StatusCode, SubmissionQueueEntry};

/// Maximum number of unanswered requests to media for each command of the core, including those of
/// commands that a reset has ended. Beyond that, the core asks the host to retry a command whose
/// own medium has as many of the latter as the core has commands.
const OUTSTANDING_PER_COMMAND: usize = 2;

/// Directive Type (DTYPE) of a write, in CDW12.
const DIRECTIVE_TYPE: Bits = Bits::new(23, 20);
/// Deallocate (DEAC) of Write Zeroes, in CDW12.
const DEALLOCATE: Bits = Bits::bit(25);
/// Force Unit Access (FUA), in CDW12.
const FORCE_UNIT_ACCESS: Bits = Bits::bit(30);
/// Number of Ranges (NR) of Dataset Management, 0's based, in CDW10.
const RANGES: Bits = Bits::new(7, 0);
/// Attribute – Deallocate (AD) of Dataset Management, in CDW11.
const ATTRIBUTE_DEALLOCATE: Bits = Bits::bit(2);

/// The views that the subsystem has published, and the commands in flight. These alone decide
/// whether a command may continue.
pub(super) struct Executor<'a> {
    pub(super) flow: &'a mut Flow,
    pub(super) views: &'a Views,
    pub(super) unreadable: &'a Unreadable,
}

impl<'a> Executor<'a> {
    /// The namespace of an I/O command, if it is ready for the command.
    #[inline]
    pub(super) fn ready(
        &self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
    ) -> Result<&'a NamespaceView, Failure> {
        match self.views.find(entry.namespace) {
            Some(view) if view.plain => Ok(view),
            _ => self.ready_with_care(token, entry),
        }
    }

    /// The namespace of an I/O command when it is absent or needs a second look.
    #[cold]
    fn ready_with_care(
        &self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
    ) -> Result<&'a NamespaceView, Failure> {
        let missing = || self.views.missing(entry.namespace);
        let view = self.views.find(entry.namespace).ok_or_else(missing)?;
        let controller = self.flow.slots.peek(token).ok_or_else(missing)?.controller;
        match view.refusal(controller, Touch::of(IoOpcode::from(entry.opcode))) {
            None => Ok(view),
            Some(refusal) => Err(self.views.failure(entry.namespace, refusal)),
        }
    }

    /// The namespace of an I/O command that changes blocks, if it is ready for the command.
    #[inline]
    pub(super) fn writable(
        &self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
    ) -> Result<&'a NamespaceView, Failure> {
        let view = self.ready(token, entry)?;
        if view.write_protected {
            return Err(Failure::new(StatusCode::NamespaceWriteProtected));
        }
        Ok(view)
    }

    /// Whether media owe few enough answers for one more command. A host that reconnects again and
    /// again leaves abandoned requests behind, and a medium may never answer them.
    #[inline]
    pub(super) fn check_room(&self, namespace: NamespaceId, commands_max: u32) -> Result<(), Failure> {
        let commands = usize::try_from(commands_max).unwrap_or(usize::MAX);
        if self.flow.media_outstanding < commands.saturating_mul(OUTSTANDING_PER_COMMAND) {
            return Ok(());
        }
        self.check_share(namespace, commands)
    }

    /// Whether the medium of a namespace owes few enough answers to abandoned requests, when all
    /// media together owe too many: a medium that hangs must not stop the others.
    #[cold]
    fn check_share(&self, namespace: NamespaceId, share: usize) -> Result<(), Failure> {
        let view = self.views.find(namespace);
        match view.is_some_and(|view| self.flow.slots.strays.of(view.medium) < share) {
            true => Ok(()),
            false => Err(Failure::new(StatusCode::NamespaceNotReady)),
        }
    }

    /// Fails if one of the command's blocks is unreadable.
    #[inline]
    fn check_readable(&self, view: &NamespaceView, entry: &SubmissionQueueEntry) -> Result<(), Failure> {
        if view.plain {
            return Ok(());
        }
        self.unreadable.check(entry.namespace, entry.starting_lba(), blocks_of(entry))
    }

    #[inline]
    pub(super) fn on_read(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let view = self.ready(token, entry)?;
        let extent = view.extent_of(entry)?;
        if !view.plain {
            self.check_readable(view, entry)?;
            if view.block.has_metadata() {
                return self.on_read_protected(token, entry, view);
            }
        }
        let medium = view.medium;
        let length = self.transfer_length(extent)?;
        self.flow.slots.of(token).length = length;
        let operation = Operation::Read { offset: extent.offset, length };
        Ok(self.flow.ask_medium(token, MediaFor::Read, medium, length, operation))
    }

    #[inline]
    pub(super) fn on_write(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let view = self.writable(token, entry)?;
        let extent = view.extent_of(entry)?;
        if DIRECTIVE_TYPE.is_set(entry.cdw12) {
            return Err(Failure::field(StatusCode::InvalidField, Location::at(50, 4)));
        }
        if !view.plain && view.block.has_metadata() {
            return self.pull_protected(token, entry, view, HostDataFor::Write);
        }
        let length = self.transfer_length(extent)?;
        Ok(self.flow.pull(token, length, HostDataFor::Write))
    }

    /// Continues a write whose data has arrived. The range is checked again, because the namespace
    /// may have been formatted meanwhile.
    #[inline]
    pub(super) fn on_write_data(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        data: Buffer,
    ) -> Handled {
        let view = self.writable(token, entry)?;
        let extent = view.extent_of(entry)?;
        let medium = view.medium;
        let purpose = if view.plain { MediaFor::Write } else { MediaFor::WriteMarked };
        if !view.plain && view.block.has_metadata() {
            return self.on_write_data_protected(token, entry, view, &data);
        }
        self.check_pulled(extent, &data)?;
        let durable = self.must_be_durable(entry);
        let operation = Operation::Write { offset: extent.offset, data, durable };
        Ok(self.flow.ask_medium(token, purpose, medium, 0, operation))
    }

    /// Pulls the data of a Compare.
    pub(super) fn pull_compare(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let view = self.ready(token, entry)?;
        let extent = view.extent_of(entry)?;
        if view.block.has_metadata() {
            return self.pull_protected(token, entry, view, HostDataFor::Compare);
        }
        let length = self.transfer_length(extent)?;
        Ok(self.flow.pull(token, length, HostDataFor::Compare))
    }

    /// Fails if one of the blocks of a Verify can't be read.
    pub(super) fn check_verifiable(
        &self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
    ) -> Result<(), Failure> {
        let view = self.ready(token, entry)?;
        view.extent_of(entry)?;
        self.check_readable(view, entry)
    }

    pub(super) fn on_compare_data(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        data: Buffer,
    ) -> Handled {
        let view = self.ready(token, entry)?;
        let extent = view.extent_of(entry)?;
        let medium = view.medium;
        self.check_readable(view, entry)?;
        if view.block.has_metadata() {
            return self.on_compare_data_protected(token, entry, view, data);
        }
        self.check_pulled(extent, &data)?;
        let slot = self.flow.slots.of(token);
        slot.data = data;
        let length = slot.length;
        let operation = Operation::Read { offset: extent.offset, length };
        Ok(self.flow.ask_medium(token, MediaFor::Compare { equal: true }, medium, length, operation))
    }

    pub(super) fn on_write_zeroes(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let view = self.writable(token, entry)?;
        let Extent { offset, length } = view.extent_of(entry)?;
        let medium = view.medium;
        let deallocate = DEALLOCATE.is_set(entry.cdw12);
        let durable = self.must_be_durable(entry);
        let operation = Operation::WriteZeroes { offset, length, deallocate, durable };
        Ok(self.flow.ask_medium(token, MediaFor::WriteZeroes, medium, 0, operation))
    }

    pub(super) fn on_verify(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let view = self.ready(token, entry)?;
        view.extent_of(entry)?;
        self.check_readable(view, entry)?;
        self.verify_from(token, entry, 0)
    }

    /// Reads the next piece, at most one transfer long: a command's 65,536 blocks would be too much
    /// to hold at once.
    pub(super) fn verify_from(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        verified: u64,
    ) -> Handled {
        let view = self.ready(token, entry)?;
        let extent = view.extent_of(entry)?;
        let medium = view.medium;
        let left = extent.length.saturating_sub(verified);
        if left == 0 {
            return Ok(Step::Done(0));
        }
        let step = u32::try_from(left).unwrap_or(u32::MAX).min(self.views.transfer_bytes_max);
        self.flow.slots.of(token).cursor = verified;
        let operation = Operation::Read { offset: extent.offset + verified, length: step };
        Ok(self.flow.ask_medium(token, MediaFor::Verify, medium, step, operation))
    }

    pub(super) fn on_dataset_management(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
    ) -> Handled {
        self.ready(token, entry)?;
        let ranges = RANGES.of(entry.cdw10) + 1;
        let length = ranges * u32::try_from(DatasetRange::LENGTH).unwrap_or(u32::MAX);
        Ok(self.flow.pull(token, length, HostDataFor::DatasetManagement))
    }

    /// Continues a Dataset Management command whose ranges have arrived. Only Deallocate has an
    /// effect; the other attributes and the context attributes are hints.
    pub(super) fn on_dataset_ranges(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        data: Buffer,
    ) -> Handled {
        let deallocate = ATTRIBUTE_DEALLOCATE.is_set(entry.cdw11);
        let view = if deallocate { self.writable(token, entry)? } else { self.ready(token, entry)? };
        for range in DatasetRange::list(&data) {
            view.extent_within(range.starting_lba, u64::from(range.blocks))?;
        }
        if !deallocate {
            return Ok(Step::Done(0));
        }
        self.flow.slots.of(token).data = data;
        self.deallocate_from(token, entry, 0)
    }

    /// Deallocates the range with this index in the kept list, or the next range that is not empty.
    pub(super) fn deallocate_from(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        index: u16,
    ) -> Handled {
        let view = self.writable(token, entry)?;
        let medium = view.medium;
        let data = self.flow.slots.peek(token).map(|slot| slot.data.clone()).unwrap_or_default();
        let ranges = DatasetRange::list(&data).skip(usize::from(index));
        let next = (index..).zip(ranges).find(|(_, range)| range.blocks > 0);
        let Some((index, range)) = next else {
            return Ok(Step::Done(0));
        };
        let Extent { offset, length } = view.extent_within(range.starting_lba, u64::from(range.blocks))?;
        let operation = Operation::Deallocate { offset, length };
        Ok(self.flow.ask_medium(token, MediaFor::Deallocate(index), medium, 0, operation))
    }

    pub(super) fn on_flush(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let medium = self.ready(token, entry)?.medium;
        Ok(self.flow.ask_medium(token, MediaFor::Flush, medium, 0, Operation::Flush))
    }

    /// Fails if the command may not write its blocks.
    pub(super) fn check_writable(
        &self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
    ) -> Result<(), Failure> {
        self.writable(token, entry)?.extent_of(entry).map(|_| ())
    }

    #[inline]
    pub(super) fn must_be_durable(&self, entry: &SubmissionQueueEntry) -> bool {
        FORCE_UNIT_ACCESS.is_set(entry.cdw12) || self.views.is_write_through()
    }

    /// The length of a command's transfer in bytes. Fails beyond the Maximum Data Transfer Size.
    #[inline]
    fn transfer_length(&self, extent: Extent) -> Result<u32, Failure> {
        u32::try_from(extent.length)
            .ok()
            .filter(|length| *length <= self.views.transfer_bytes_max)
            .ok_or_else(|| Failure::field(StatusCode::InvalidField, Location::CDW12))
    }

    /// Fails if a format changed the block size between the pull and the arrival of the data.
    #[inline]
    fn check_pulled(&self, extent: Extent, data: &Buffer) -> Result<(), Failure> {
        if u64::try_from(data.len()) == Ok(extent.length) {
            Ok(())
        } else {
            Err(Failure::new(StatusCode::FormatInProgress))
        }
    }
}
