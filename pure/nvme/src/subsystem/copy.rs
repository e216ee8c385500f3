//! The Copy command: copies blocks from several ranges of a namespace to one, piece by piece.

use engine::Buffer;

use super::Subsystem;
use super::errors::{Failure, Location};
use super::executor::Executor;
use super::flow::{Handled, Step};
use super::slots::{HostDataFor, MediaFor};
use super::types::CommandToken;
use crate::media::Operation;
use crate::wire::{Bits, CopyRange, StatusCode, SubmissionQueueEntry};

/// The most source ranges of a command (MSRC + 1).
pub(super) const COPY_RANGES_MAX: u32 = 128;
/// Maximum number of bytes that a command or one of its ranges copies (MCL, MSSRL).
pub(super) const COPY_BYTES_MAX: u64 = 16 << 20;
/// Copy Descriptor Formats Supported (CDFS): 0h and 1h.
pub(super) const COPY_FORMATS: u16 = 0b11;

/// Number of Ranges (NR), 0's based, in CDW12.
const RANGES: Bits = Bits::new(7, 0);
/// Descriptor Format (DF), in CDW12.
const FORMAT: Bits = Bits::new(11, 8);
/// Directive Type (DTYPE), in CDW12.
const DIRECTIVE_TYPE: Bits = Bits::new(23, 20);

/// A piece that is copied in one step: its source and destination in the medium, and its length in
/// bytes.
struct Piece {
    range: u32,
    source: u64,
    destination: u64,
    length: u32,
}

impl Executor<'_> {
    pub(super) fn on_copy(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        if self.writable(token, entry)?.block.has_metadata() {
            // Identify names limits of 0 for such namespaces.
            return Err(Failure::field(StatusCode::CommandSizeLimitExceeded, Location::CDW12));
        }
        let length = CopyRange::length_of(FORMAT.of(entry.cdw12));
        let length = length.ok_or(Failure::field(StatusCode::InvalidField, Location::at(49, 0)))?;
        if DIRECTIVE_TYPE.is_set(entry.cdw12) {
            return Err(Failure::field(StatusCode::InvalidField, Location::at(50, 4)));
        }
        let ranges = RANGES.of(entry.cdw12) + 1;
        if ranges > COPY_RANGES_MAX {
            return Err(Failure::field(StatusCode::CommandSizeLimitExceeded, Location::CDW12));
        }
        Ok(self.flow.pull(token, ranges * length, HostDataFor::Copy))
    }

    /// Checks every range before the first block is copied.
    pub(super) fn on_copy_ranges(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        data: Buffer,
    ) -> Handled {
        let view = self.writable(token, entry)?;
        let most = COPY_BYTES_MAX >> view.block.shift();
        let mut total = 0;
        for (index, range) in (0..).zip(CopyRange::list(FORMAT.of(entry.cdw12), &data)) {
            let at_range = |failure: Failure| Failure { dw0: index, ..failure };
            total += range.blocks();
            if range.blocks() > most || total > most {
                return Err(at_range(Failure::new(StatusCode::CommandSizeLimitExceeded)));
            }
            view.extent_within(range.starting_lba, range.blocks()).map_err(at_range)?;
            self.unreadable.check(entry.namespace, range.starting_lba, range.blocks()).map_err(at_range)?;
        }
        view.extent_within(entry.starting_lba(), total)?;
        self.flow.slots.of(token).data = data;
        self.copy_from(token, entry, 0)
    }

    /// Reads the piece that begins after `copied` bytes.
    fn copy_from(&mut self, token: CommandToken, entry: &SubmissionQueueEntry, copied: u64) -> Handled {
        let Some(piece) = self.piece_after(token, entry, copied)? else {
            return Ok(Step::Done(0));
        };
        let medium = self.writable(token, entry)?.medium;
        let buffer = self.flow.pool.take(piece.length as usize);
        let slot = self.flow.slots.of(token);
        slot.cursor = copied;
        slot.gathered = Some(buffer);
        let operation = Operation::Read { offset: piece.source, length: piece.length };
        Ok(self.flow.ask_medium(token, MediaFor::CopyRead(piece.range), medium, piece.length, operation))
    }

    /// Writes the piece that was read.
    pub(super) fn on_copy_read(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let copied = self.flow.slots.of(token).cursor;
        let gathered = self.flow.slots.of(token).gathered.take();
        let piece = self.piece_after(token, entry, copied)?;
        let (Some(piece), Some(gathered)) = (piece, gathered) else {
            return Err(Failure::new(StatusCode::InternalError));
        };
        let medium = self.writable(token, entry)?.medium;
        let data = self.flow.pool.seal(gathered);
        let durable = self.must_be_durable(entry);
        let operation = Operation::Write { offset: piece.destination, data, durable };
        Ok(self.flow.ask_medium(token, MediaFor::CopyWrite(piece.range), medium, 0, operation))
    }

    /// The piece that begins after `copied` bytes: within one range, and at most one transfer long.
    fn piece_after(
        &self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        copied: u64,
    ) -> Result<Option<Piece>, Failure> {
        let view = self.writable(token, entry)?;
        let shift = view.block.shift();
        let Some(slot) = self.flow.slots.peek(token) else { return Ok(None) };
        let mut before = 0;
        for (index, range) in (0..).zip(CopyRange::list(FORMAT.of(entry.cdw12), &slot.data)) {
            let bytes = range.blocks() << shift;
            if copied < before + bytes {
                let done = copied - before;
                let source = view.extent_within(range.starting_lba, range.blocks())?;
                let most = u64::from(self.views.transfer_bytes_max);
                let length = u32::try_from((bytes - done).min(most)).unwrap_or_default();
                let lba = entry.starting_lba() + (copied >> shift);
                let destination = view.extent_within(lba, u64::from(length) >> shift)?;
                let (source, destination) = (source.offset + done, destination.offset);
                return Ok(Some(Piece { range: index, source, destination, length }));
            }
            before += bytes;
        }
        Ok(None)
    }
}

impl Subsystem {
    /// Continues with the next piece after one was written.
    pub(super) fn on_copy_written(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let copied = self.flow.slots.of(token).cursor;
        let executor = self.executor();
        let Some(piece) = executor.piece_after(token, entry, copied)? else {
            return Err(Failure::new(StatusCode::InternalError));
        };
        let shift = executor.writable(token, entry)?.block.shift();
        self.smart.count_copied(piece.length);
        let (lba, blocks) = (entry.starting_lba() + (copied >> shift), u64::from(piece.length) >> shift);
        self.unmark(entry.namespace, lba, blocks);
        self.executor().copy_from(token, entry, copied + u64::from(piece.length))
    }
}
