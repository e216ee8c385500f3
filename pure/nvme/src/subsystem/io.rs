//! The commands of the NVM command set.

use engine::Buffer;

use super::Subsystem;
use super::errors::{Failure, Location};
use super::flow::{Handled, Step};
use super::namespace::{Busy, Namespace};
use super::reservation::Touch;
use super::slots::{HostDataFor, MediaFor, State};
use super::types::CommandToken;
use super::uncorrectable::check_readable;
use crate::media::{MediaError, Operation};
use crate::wire::{
    Bits, DatasetRange, FusedOperation, IoOpcode, NamespaceId, StatusCode, SubmissionQueueEntry,
};

/// Number of Logical Blocks (NLB), 0's based, in CDW12.
const NLB: Bits = Bits::new(15, 0);
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

/// The bytes of a medium that a command reads or writes.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl Subsystem {
    #[inline]
    pub(super) fn on_io_command(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        match IoOpcode::from(entry.opcode) {
            IoOpcode::Read => self.on_read(token, entry),
            IoOpcode::Write => self.on_write(token, entry),
            IoOpcode::Flush => self.on_flush(token, entry),
            IoOpcode::Compare => self.on_compare(token, entry),
            IoOpcode::WriteZeroes => self.on_write_zeroes(token, entry),
            IoOpcode::DatasetManagement => self.on_dataset_management(token, entry),
            IoOpcode::Verify => self.on_verify(token, entry),
            IoOpcode::Copy => self.on_copy(token, entry),
            IoOpcode::ReservationRegister
            | IoOpcode::ReservationReport
            | IoOpcode::ReservationAcquire
            | IoOpcode::ReservationRelease => self.on_reservation(token, entry),
            IoOpcode::WriteUncorrectable => self.on_write_uncorrectable(token, entry),
            _ => Err(Failure::field(StatusCode::InvalidCommandOpcode, Location::OPCODE)),
        }
    }

    #[inline]
    fn on_read(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let namespace = self.ready_namespace(token, entry)?;
        let extent = extent_of(namespace, entry)?;
        if !namespace.is_plain() {
            check_readable(namespace, entry.starting_lba(), blocks_of(entry))?;
        }
        let medium = namespace.medium;
        let length = self.transfer_length(extent)?;
        self.flow.slots.of(token).length = length;
        let operation = Operation::Read { offset: extent.offset, length };
        Ok(self.flow.ask_medium(token, MediaFor::Read, medium, length, operation))
    }

    #[inline]
    fn on_write(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let extent = extent_of(self.writable_namespace(token, entry)?, entry)?;
        if DIRECTIVE_TYPE.is_set(entry.cdw12) {
            return Err(Failure::field(StatusCode::InvalidField, Location::at(50, 4)));
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
        let namespace = self.writable_namespace(token, entry)?;
        let extent = extent_of(namespace, entry)?;
        let medium = namespace.medium;
        let purpose = if namespace.is_plain() { MediaFor::Write } else { MediaFor::WriteMarked };
        self.check_pulled(extent, &data)?;
        let durable = self.must_be_durable(entry);
        let operation = Operation::Write { offset: extent.offset, data, durable };
        Ok(self.flow.ask_medium(token, purpose, medium, 0, operation))
    }

    fn on_compare(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let length = self.compare_length(token, entry)?;
        if entry.fused() == FusedOperation::First {
            return self.on_fused_compare(token, entry);
        }
        Ok(self.flow.pull(token, length, HostDataFor::Compare))
    }

    pub(super) fn compare_length(
        &self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
    ) -> Result<u32, Failure> {
        let extent = extent_of(self.ready_namespace(token, entry)?, entry)?;
        self.transfer_length(extent)
    }

    pub(super) fn on_compare_data(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        data: Buffer,
    ) -> Handled {
        let namespace = self.ready_namespace(token, entry)?;
        let extent = extent_of(namespace, entry)?;
        let medium = namespace.medium;
        if !namespace.is_plain() {
            check_readable(namespace, entry.starting_lba(), blocks_of(entry))?;
        }
        self.check_pulled(extent, &data)?;
        let slot = self.flow.slots.of(token);
        slot.data = data;
        let length = slot.length;
        let operation = Operation::Read { offset: extent.offset, length };
        Ok(self.flow.ask_medium(token, MediaFor::Compare { equal: true }, medium, length, operation))
    }

    fn on_write_zeroes(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let namespace = self.writable_namespace(token, entry)?;
        let Extent { offset, length } = extent_of(namespace, entry)?;
        let medium = namespace.medium;
        let deallocate = DEALLOCATE.is_set(entry.cdw12);
        let durable = self.must_be_durable(entry);
        let operation = Operation::WriteZeroes { offset, length, deallocate, durable };
        Ok(self.flow.ask_medium(token, MediaFor::WriteZeroes, medium, 0, operation))
    }

    fn on_verify(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let namespace = self.ready_namespace(token, entry)?;
        extent_of(namespace, entry)?;
        check_readable(namespace, entry.starting_lba(), blocks_of(entry))?;
        self.verify_from(token, entry, 0)
    }

    pub(super) fn on_verified(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let slot = self.flow.slots.of(token);
        let (verified, step) = (slot.cursor + u64::from(slot.expected), slot.expected);
        self.smart.count_verified(step);
        self.verify_from(token, entry, verified)
    }

    /// Reads the next piece, at most one transfer long: a command's 65,536 blocks would be too much
    /// to hold at once.
    fn verify_from(&mut self, token: CommandToken, entry: &SubmissionQueueEntry, verified: u64) -> Handled {
        let namespace = self.ready_namespace(token, entry)?;
        let extent = extent_of(namespace, entry)?;
        let medium = namespace.medium;
        let left = extent.length.saturating_sub(verified);
        if left == 0 {
            return Ok(Step::Done(0));
        }
        let step = u32::try_from(left).unwrap_or(u32::MAX).min(self.config.transfer_bytes_max);
        self.flow.slots.of(token).cursor = verified;
        let operation = Operation::Read { offset: extent.offset + verified, length: step };
        Ok(self.flow.ask_medium(token, MediaFor::Verify, medium, step, operation))
    }

    fn on_dataset_management(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        self.ready_namespace(token, entry)?;
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
        let namespace = if deallocate {
            self.writable_namespace(token, entry)?
        } else {
            self.ready_namespace(token, entry)?
        };
        for range in DatasetRange::list(&data) {
            extent_within(namespace, range.starting_lba, u64::from(range.blocks))?;
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
        let namespace = self.writable_namespace(token, entry)?;
        let medium = namespace.medium;
        let data = self.flow.slots.peek(token).map(|slot| slot.data.clone()).unwrap_or_default();
        let ranges = DatasetRange::list(&data).skip(usize::from(index));
        let next = (index..).zip(ranges).find(|(_, range)| range.blocks > 0);
        let Some((index, range)) = next else {
            return Ok(Step::Done(0));
        };
        let Extent { offset, length } =
            extent_within(namespace, range.starting_lba, u64::from(range.blocks))?;
        let operation = Operation::Deallocate { offset, length };
        Ok(self.flow.ask_medium(token, MediaFor::Deallocate(index), medium, 0, operation))
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
        self.deallocate_from(token, entry, index + 1)
    }

    fn on_flush(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        if entry.namespace == NamespaceId::ALL {
            let controller = self.flow.slots.of(token).controller;
            for namespace in self.namespaces.iter() {
                self.check_reservation(controller, namespace, Touch::Writes)?;
            }
            return Ok(self.flush_after(token, NamespaceId::NONE));
        }
        let medium = self.ready_namespace(token, entry)?.medium;
        Ok(self.flow.ask_medium(token, MediaFor::Flush, medium, 0, Operation::Flush))
    }

    /// Flushes the first namespace after `previous`; ends when none is left.
    pub(super) fn flush_after(&mut self, token: CommandToken, previous: NamespaceId) -> Step {
        match self.namespaces.after(previous).map(|namespace| (namespace.id, namespace.medium)) {
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

    /// The failure that the host sees when a medium fails.
    #[cold]
    pub(super) fn media_failure(
        &mut self,
        entry: &SubmissionQueueEntry,
        purpose: MediaFor,
        error: MediaError,
    ) -> Failure {
        let reading = matches!(
            purpose,
            MediaFor::Read | MediaFor::Compare { .. } | MediaFor::Verify | MediaFor::CopyRead(_)
        );
        let dw0 = match purpose {
            MediaFor::CopyRead(range) | MediaFor::CopyWrite(range) => range,
            _ => 0,
        };
        let code = match error {
            _ if matches!(purpose, MediaFor::Save(_)) => StatusCode::InternalError,
            MediaError::Read | MediaError::Write => {
                self.smart.count_media_error();
                self.capture_telemetry("a medium has failed");
                if reading { StatusCode::UnrecoveredReadError } else { StatusCode::WriteFault }
            }
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
                | MediaFor::Format(..)
                | MediaFor::CreateNamespace(_)
                | MediaFor::DeleteNamespace(_)
                | MediaFor::Protect(_)
                | MediaFor::Sanitize
                | MediaFor::SelfTest
                | MediaFor::Save(_)
        );
        let lba = if names_lba { entry.starting_lba() } else { 0 };
        Failure { dw0, ..Failure::at_lba(code, lba) }
    }

    /// The namespace of an I/O command, if it is ready for the command.
    #[inline]
    pub(super) fn ready_namespace(
        &self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
    ) -> Result<&Namespace, Failure> {
        match self.namespaces.find(entry.namespace) {
            Some(namespace) if namespace.is_plain() => Ok(namespace),
            _ => self.namespace_with_care(token, entry),
        }
    }

    /// The namespace of an I/O command when it is absent or needs a second look.
    #[cold]
    fn namespace_with_care(
        &self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
    ) -> Result<&Namespace, Failure> {
        let missing = || self.missing_namespace(entry);
        let controller = self.flow.slots.peek(token).ok_or_else(missing)?.controller;
        let namespace = self.namespaces.active(controller, entry.namespace).ok_or_else(missing)?;
        self.check_access(controller, namespace)?;
        self.check_reservation(controller, namespace, Touch::of(IoOpcode::from(entry.opcode)))?;
        match namespace.busy() {
            None => Ok(namespace),
            Some(Busy::Formatting) => Err(Failure::new(StatusCode::FormatInProgress)),
            Some(Busy::Creating | Busy::Deleting) => Err(missing()),
        }
    }

    #[inline]
    pub(super) fn writable_namespace(
        &self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
    ) -> Result<&Namespace, Failure> {
        let namespace = self.ready_namespace(token, entry)?;
        if namespace.is_write_protected() {
            return Err(Failure::new(StatusCode::NamespaceWriteProtected));
        }
        Ok(namespace)
    }

    /// Fails if the command may not write its blocks.
    pub(super) fn check_writable(
        &self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
    ) -> Result<(), Failure> {
        extent_of(self.writable_namespace(token, entry)?, entry).map(|_| ())
    }

    /// The length of a command's transfer in bytes. Fails beyond the Maximum Data Transfer Size.
    #[inline]
    fn transfer_length(&self, extent: Extent) -> Result<u32, Failure> {
        u32::try_from(extent.length)
            .ok()
            .filter(|length| *length <= self.config.transfer_bytes_max)
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

    #[inline]
    pub(super) fn must_be_durable(&self, entry: &SubmissionQueueEntry) -> bool {
        FORCE_UNIT_ACCESS.is_set(entry.cdw12) || !self.config.volatile_write_cache || !self.write_cache
    }
}

/// Number of logical blocks of the command.
#[inline]
pub(super) const fn blocks_of(entry: &SubmissionQueueEntry) -> u64 {
    NLB.of(entry.cdw12) as u64 + 1
}

/// The extent of the command's logical blocks.
#[inline]
fn extent_of(namespace: &Namespace, entry: &SubmissionQueueEntry) -> Result<Extent, Failure> {
    extent_within(namespace, entry.starting_lba(), blocks_of(entry))
}

/// The extent of `blocks` logical blocks from `lba`. Fails if the namespace does not have them all.
#[inline]
pub(super) fn extent_within(namespace: &Namespace, lba: u64, blocks: u64) -> Result<Extent, Failure> {
    match lba.checked_add(blocks) {
        Some(end) if end <= namespace.blocks => {
            let shift = namespace.block.shift();
            Ok(Extent { offset: namespace.offset + (lba << shift), length: blocks << shift })
        }
        _ => Err(Failure { location: Location::CDW10, ..Failure::at_lba(StatusCode::LbaOutOfRange, lba) }),
    }
}

impl State {
    /// Whether a command in this state can be aborted without leaving its effect in doubt.
    pub(super) const fn can_abort(self) -> bool {
        match self {
            Self::AwaitingEvent
            | Self::AwaitingHostData(_)
            | Self::AwaitingQuiet(_)
            | Self::AwaitingSecond
            | Self::Deferred
            | Self::DeferredData(_) => true,
            Self::AwaitingMedia(purpose) => {
                matches!(purpose, MediaFor::Read | MediaFor::Compare { .. } | MediaFor::Verify)
            }
            Self::Free | Self::Started | Self::AwaitingFirst => false,
        }
    }
}
