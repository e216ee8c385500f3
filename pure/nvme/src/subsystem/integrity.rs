//! I/O commands of namespaces with metadata: protection information (Type 1), or bytes that the
//! controller does not interpret.
//!
//! A medium keeps each block as one unit ([`BlockSize::stored`]): the data, then a sector that
//! begins with the complement of the protection information, or has the layout of [`tagged`] for
//! other metadata. One request moves both, so that a medium's space without contents reads as a
//! deallocated block: zeros, and information of ones or metadata of zeros.

use engine::{Buffer, BufferMut, Pool};

use super::Subsystem;
use super::config::{BlockSize, TRANSFER_BYTES_MAX};
use super::errors::{Failure, Location};
use super::executor::Executor;
use super::flow::{Handled, Step};
use super::slots::{HostDataFor, MediaFor};
use super::tagged;
use super::types::CommandToken;
use super::view::{NamespaceView, blocks_of};
use crate::media::Operation;
use crate::wire::{
    Bits, CHECK_GUARD, CHECK_REFERENCE_TAG, DataTransfer, Guard, IoOpcode, PROTECTION_ACTION,
    ProtectionInformation, StatusCode, SubmissionQueueEntry,
};

/// Protection Information Check (PRCHK), in CDW12: guard, application tag and reference tag.
const CHECKS: Bits = Bits::new(28, 26);
const CHECK_APPLICATION_TAG: Bits = Bits::bit(27);
/// Logical Block Application Tag (LBAT) and its mask (LBATM), in CDW15.
const APPLICATION_TAG: Bits = Bits::new(15, 0);
const APPLICATION_MASK: Bits = Bits::new(31, 16);
/// The part of a reference tag of 48 bits that CDW3 has.
const REFERENCE_HIGH: Bits = Bits::new(15, 0);

/// The most bytes that one request to a medium moves: a longest transfer in its stored form.
const STORED_BYTES_MAX: u32 =
    TRANSFER_BYTES_MAX / BlockSize::Guarded16.bytes() * BlockSize::Guarded16.stored();
const _: () = assert!(STORED_BYTES_MAX as usize <= Pool::LENGTH_MAX);

/// The form of a namespace's blocks with metadata, and the command's fields about them.
#[derive(Clone, Copy)]
enum Form {
    /// The metadata are protection information.
    Protected(Protection),
    /// The controller does not interpret the metadata, and ignores the protection fields of
    /// commands.
    Tagged(BlockSize),
}

impl Form {
    fn of(block: BlockSize, entry: &SubmissionQueueEntry) -> Option<Self> {
        let Some(guard) = block.guard() else { return block.has_metadata().then_some(Self::Tagged(block)) };
        let acts = PROTECTION_ACTION.is_set(entry.cdw12);
        Some(Self::Protected(Protection { block, guard, acts, entry: *entry }))
    }

    /// Fails if the first reference tag is not the one that Type 1 requires.
    fn check_tag(&self) -> Result<(), Failure> {
        match self {
            Self::Protected(protection) => protection.check_tag(),
            Self::Tagged(_) => Ok(()),
        }
    }

    /// Bytes of metadata that the command transfers for each block.
    const fn metadata_bytes(&self) -> u32 {
        match self {
            Self::Protected(Protection { acts: true, .. }) => 0,
            Self::Protected(Protection { block, .. }) | Self::Tagged(block) => block.metadata(),
        }
    }

    /// Checks every stored block in `stored`, the first of which is the block `first` of the
    /// command `entry`.
    fn check_stored(&self, entry: &SubmissionQueueEntry, first: u64, stored: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Protected(protection) => protection.check_stored(first, stored),
            Self::Tagged(block) => match tagged::first_torn(*block, stored) {
                None => Ok(()),
                Some(index) => {
                    let lba = entry.starting_lba().wrapping_add(first).wrapping_add(index);
                    Err(Failure::at_lba(StatusCode::UnrecoveredReadError, lba))
                }
            },
        }
    }

    /// The stored form of the host's blocks: of `host`, the data and then the metadata.
    fn store(&self, host: &[u8], stored: &mut [u8]) -> Result<(), Failure> {
        match self {
            Self::Protected(protection) => protection.store(host, stored),
            Self::Tagged(block) => {
                tagged::store(*block, host, stored);
                Ok(())
            }
        }
    }

    /// Copies the host's part of `stored` to `host`: the data, and then the metadata unless it is
    /// stripped.
    fn load(&self, stored: &[u8], host: &mut [u8]) {
        match self {
            Self::Protected(protection) => protection.load(stored, host),
            Self::Tagged(block) => tagged::load(*block, stored, host),
        }
    }
}

/// The command's fields about protection information, and the format of its namespace.
#[derive(Clone, Copy)]
struct Protection {
    block: BlockSize,
    guard: Guard,
    /// Whether the controller generates and strips the information (PRACT).
    acts: bool,
    entry: SubmissionQueueEntry,
}

impl Protection {
    /// The reference tag of the command's block `index`.
    fn reference_tag(&self, index: u64) -> u64 {
        let high = u64::from(REFERENCE_HIGH.of(self.entry.cdw3));
        (high << 32 | u64::from(self.entry.cdw14)).wrapping_add(index) & self.guard.reference_mask()
    }

    /// Fails if the first reference tag is not the one that Type 1 requires.
    fn check_tag(&self) -> Result<(), Failure> {
        let lba = self.entry.starting_lba();
        if CHECK_REFERENCE_TAG.is_set(self.entry.cdw12)
            && self.reference_tag(0) != lba & self.guard.reference_mask()
        {
            return Err(Failure::field(StatusCode::InvalidProtectionInformation, Location::CDW14));
        }
        Ok(())
    }

    /// Checks the command's block `index` as PRCHK requires.
    fn check(&self, index: u64, data: &[u8], info: &[u8]) -> Result<(), Failure> {
        let at = |code| Err(self.failure_at(index, code));
        let Some(found) = ProtectionInformation::parse(self.guard, info) else {
            return at(StatusCode::InternalError);
        };
        let (flags, tags) = (self.entry.cdw12, self.entry.cdw15);
        if found.is_unchecked() {
            return Ok(());
        }
        if CHECK_GUARD.is_set(flags) && found.guard != self.guard.of(data) {
            return at(StatusCode::GuardCheckError);
        }
        let differs = u32::from(found.application_tag) ^ APPLICATION_TAG.of(tags);
        if CHECK_APPLICATION_TAG.is_set(flags) && differs & APPLICATION_MASK.of(tags) != 0 {
            return at(StatusCode::ApplicationTagCheckError);
        }
        if CHECK_REFERENCE_TAG.is_set(flags) && found.reference_tag != self.reference_tag(index) {
            return at(StatusCode::ReferenceTagCheckError);
        }
        Ok(())
    }

    /// Checks every stored block in `stored`, the first of which is the command's block `first`.
    fn check_stored(&self, first: u64, stored: &[u8]) -> Result<(), Failure> {
        for (index, unit) in (first..).zip(stored.chunks_exact(self.unit())) {
            let (data, kept) = unit.split_at(self.data());
            let info = &self.complement(kept)[..self.guard.length()];
            if CHECKS.is_set(self.entry.cdw12) && self.is_stray(data, kept, info) {
                return Err(self.failure_at(index, StatusCode::GuardCheckError));
            }
            self.check(index, data, info)?;
        }
        Ok(())
    }

    /// Whether a stored block that is marked as unchecked was never written as a block. It has data
    /// and no information, as after a torn write, or its sector of information holds other bytes,
    /// as after a write that covered only a part of the block.
    fn is_stray(&self, data: &[u8], kept: &[u8], info: &[u8]) -> bool {
        let has_bits = |bytes: &[u8]| bytes.iter().any(|byte| *byte != 0);
        let is_unchecked = ProtectionInformation::parse(self.guard, info).is_some_and(|it| it.is_unchecked());
        is_unchecked && (is_blank(info) && has_bits(data) || has_bits(&kept[info.len()..]))
    }

    /// A failed check of the command's block `index`.
    fn failure_at(&self, index: u64, code: StatusCode) -> Failure {
        Failure::at_lba(code, self.entry.starting_lba().wrapping_add(index))
    }

    /// The stored form of the host's blocks: of `host`, the data and then the metadata.
    fn store(&self, host: &[u8], stored: &mut [u8]) -> Result<(), Failure> {
        let (data, unit, length) = (self.data(), self.unit(), self.guard.length());
        let blocks = stored.len() / unit;
        let (blocks, metadata) = host.split_at(blocks * data);
        for (index, (block, unit)) in blocks.chunks_exact(data).zip(stored.chunks_exact_mut(unit)).enumerate()
        {
            let number = u64::try_from(index).unwrap_or(u64::MAX);
            let mut info = [0; 16];
            if self.acts {
                let generated = ProtectionInformation {
                    guard: self.guard.of(block),
                    application_tag: crate::wire::low_u16(APPLICATION_TAG.of(self.entry.cdw15)),
                    reference_tag: self.reference_tag(number),
                };
                generated.emit(self.guard, &mut info);
            } else {
                info[..length].copy_from_slice(&metadata[index * length..][..length]);
            }
            if is_blank(&info[..length]) && block.iter().any(|byte| *byte != 0) {
                // These bits are those of a block without contents, and would hide a torn write.
                return Err(self.failure_at(number, StatusCode::InvalidProtectionInformation));
            }
            if !self.acts {
                self.check(number, block, &info[..length])?;
            }
            unit[..data].copy_from_slice(block);
            unit[data..].fill(0);
            unit[data..][..length].copy_from_slice(&self.complement(&info)[..length]);
        }
        Ok(())
    }

    /// Copies the host's part of `stored` to `host`: the data, and then the metadata unless it is
    /// stripped.
    fn load(&self, stored: &[u8], host: &mut [u8]) {
        let (data, length) = (self.data(), if self.acts { 0 } else { self.guard.length() });
        let (blocks, metadata) = host.split_at_mut(stored.len() / self.unit() * data);
        for (index, (unit, block)) in
            stored.chunks_exact(self.unit()).zip(blocks.chunks_exact_mut(data)).enumerate()
        {
            block.copy_from_slice(&unit[..data]);
            metadata[index * length..][..length].copy_from_slice(&self.complement(&unit[data..])[..length]);
        }
    }

    /// The complement of the first bytes, up to the longest protection information.
    fn complement(&self, bytes: &[u8]) -> [u8; 16] {
        core::array::from_fn(|index| !bytes.get(index).copied().unwrap_or(0))
    }

    const fn data(&self) -> usize {
        self.block.bytes() as usize
    }

    const fn unit(&self) -> usize {
        self.block.stored() as usize
    }
}

/// Whether protection information is that of a block without contents.
fn is_blank(info: &[u8]) -> bool {
    info.iter().all(|byte| *byte == 0xff)
}

impl Executor<'_> {
    /// Begins a Read, Compare or Write: records its transfer, and returns its blocks' form.
    fn begin_protected(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        view: &NamespaceView,
    ) -> Result<Form, Failure> {
        view.extent_of(entry)?;
        let internal = Failure::new(StatusCode::InternalError);
        let form = Form::of(view.block, entry).ok_or(internal)?;
        form.check_tag()?;
        let controller = self.flow.slots.of(token).controller;
        let moves = form.metadata_bytes() > 0;
        if moves && self.flow.lacks_metadata(controller) {
            return Err(Failure::field(StatusCode::InvalidField, Location::at(51, 5)));
        }
        // The metadata pointer is an address, a multiple of 4, and never that of an SGL segment.
        let by_segment = entry.data_transfer() == DataTransfer::SglSegmentMetadata;
        if moves && (by_segment || !entry.metadata_pointer.is_multiple_of(4)) {
            return Err(Failure::field(StatusCode::InvalidField, Location::at(16, 0)));
        }
        let blocks = u32::try_from(blocks_of(entry)).unwrap_or(u32::MAX);
        let data = u64::from(blocks) << view.block.shift();
        if data > self.views.transfer_bytes_max.into() {
            return Err(Failure::field(StatusCode::InvalidField, Location::CDW12));
        }
        let metadata = blocks * form.metadata_bytes();
        let slot = self.flow.slots.of(token);
        slot.metadata = metadata;
        slot.length = u32::try_from(data).unwrap_or(u32::MAX) + metadata;
        Ok(form)
    }

    #[cold]
    pub(super) fn on_read_protected(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        view: &NamespaceView,
    ) -> Handled {
        self.begin_protected(token, entry, view)?;
        self.read_stored(token, entry, view, 0)
    }

    /// Pulls the data and the metadata of a Write or a Compare.
    #[cold]
    pub(super) fn pull_protected(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        view: &NamespaceView,
        purpose: HostDataFor,
    ) -> Handled {
        self.begin_protected(token, entry, view)?;
        let length = self.flow.slots.of(token).length;
        Ok(self.flow.pull(token, length, purpose))
    }

    /// Reads the stored blocks from `done` bytes on, at most one transfer long.
    pub(super) fn read_stored(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        view: &NamespaceView,
        done: u64,
    ) -> Handled {
        let extent = view.extent_of(entry)?;
        let left = extent.length.saturating_sub(done);
        if left == 0 {
            return Ok(Step::Done(0));
        }
        let unit = view.block.stored();
        let most = STORED_BYTES_MAX / unit * unit;
        let step = u32::try_from(left).unwrap_or(u32::MAX).min(most);
        let buffer = self.flow.pool.take(step as usize);
        let slot = self.flow.slots.of(token);
        slot.cursor = done;
        slot.gathered = Some(buffer);
        let operation = Operation::Read { offset: extent.offset + done, length: step };
        Ok(self.flow.ask_medium(token, MediaFor::ReadStored, view.medium, step, operation))
    }

    /// Continues a Write whose data and metadata have arrived.
    #[cold]
    pub(super) fn on_write_data_protected(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        view: &NamespaceView,
        data: &Buffer,
    ) -> Handled {
        let (stored, offset) = self.stored_form(token, entry, view, data)?;
        let durable = self.must_be_durable(entry);
        let operation = Operation::Write { offset, data: self.flow.pool.seal(stored), durable };
        Ok(self.flow.ask_medium(token, MediaFor::WriteMarked, view.medium, 0, operation))
    }

    /// Continues a Compare whose data and metadata have arrived.
    #[cold]
    pub(super) fn on_compare_data_protected(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        view: &NamespaceView,
        data: Buffer,
    ) -> Handled {
        self.stored_form(token, entry, view, &data)?;
        self.flow.slots.of(token).data = data;
        self.read_stored(token, entry, view, 0)
    }

    /// The stored form of the data that a command pulled, and its byte offset in the medium. Checks
    /// the data as PRCHK requires, and that no format has changed the blocks since the pull.
    fn stored_form(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        view: &NamespaceView,
        data: &Buffer,
    ) -> Result<(BufferMut, u64), Failure> {
        let form = self.begin_protected(token, entry, view)?;
        let extent = view.extent_of(entry)?;
        if self.flow.slots.of(token).length as usize != data.len() {
            return Err(Failure::new(StatusCode::FormatInProgress));
        }
        let mut stored = self.flow.pool.take(usize::try_from(extent.length).unwrap_or_default());
        form.store(data, &mut stored)?;
        Ok((stored, extent.offset))
    }
}

impl Subsystem {
    /// Continues a Read, Compare or Verify whose stored blocks were read.
    #[cold]
    pub(super) fn on_stored(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let view = self.executor().ready(token, entry)?.clone();
        let slot = self.flow.slots.of(token);
        let (cursor, length) = (slot.cursor, slot.length as usize);
        let host = core::mem::replace(&mut slot.data, Buffer::EMPTY);
        let stored = slot.gathered.take();
        // A format may have changed the blocks since the read began.
        let formatted = Failure::new(StatusCode::FormatInProgress);
        let form = Form::of(view.block, entry).ok_or(formatted)?;
        let stored = stored.ok_or(Failure::new(StatusCode::InternalError))?;
        form.check_stored(entry, cursor / u64::from(view.block.stored()), &stored)?;
        if IoOpcode::from(entry.opcode) == IoOpcode::Verify {
            let step = u32::try_from(stored.len()).unwrap_or(u32::MAX);
            self.smart.count_verified(step);
            return self.executor().read_stored(token, entry, &view, cursor + u64::from(step));
        }
        let mut seen = self.flow.pool.take(length);
        form.load(&stored, &mut seen);
        self.smart.count_read(u32::try_from(length).unwrap_or(u32::MAX));
        if IoOpcode::from(entry.opcode) == IoOpcode::Read {
            let seen = self.flow.pool.seal(seen);
            self.flow.push_all(token, seen);
            return Ok(Step::Done(0));
        }
        if *seen != *host {
            return Err(Failure::at_lba(StatusCode::CompareFailure, entry.starting_lba()));
        }
        match self.flow.slots.of(token).partner {
            Some(second) => self.on_fused_equal(token, second),
            None => Ok(Step::Done(0)),
        }
    }

    /// Begins a Verify of a namespace with metadata.
    #[cold]
    pub(super) fn on_verify_protected(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
    ) -> Handled {
        let view = self.executor().ready(token, entry)?.clone();
        view.extent_of(entry)?;
        let form = Form::of(view.block, entry).ok_or(Failure::new(StatusCode::InternalError))?;
        if matches!(form, Form::Protected(Protection { acts: true, .. })) {
            return Err(Failure::field(StatusCode::InvalidField, Location::at(51, 5)));
        }
        form.check_tag()?;
        self.executor().read_stored(token, entry, &view, 0)
    }
}
