//! Turns requests to a medium into commands of an NVMe device: cuts requests into pieces and puts
//! the results of the pieces together.

mod extent;
mod job;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use engine::Buffer;
use nvme::host::{Data, command};
use nvme::media::{Completion, IoId, MediaError, Operation, Request};
use nvme::wire::{DatasetRange, IoOpcode, NamespaceId, Status, StatusCode, SubmissionQueueEntry};

use job::{Goal, Job, Zeroing};

pub use extent::Extent;
pub(super) use extent::{Abilities, misfit};

/// The most bytes that one command moves.
pub(super) const PIECE_BYTES: u32 = 128 << 10;
/// The most requests being turned into commands at once; more wait.
const JOBS_MAX: u32 = 1024;
/// The most requests under way or waiting at once: every entry of every queue of a controller, and
/// of many hosts. While the device does not answer, hosts may give up their commands and send more:
/// these fail.
const REQUESTS_MAX: usize = 64 * 4096;
/// Force Unit Access (FUA) in Command Dword 12.
const FORCE_UNIT_ACCESS: u32 = 1 << 30;
/// Deallocate (DEAC) in Command Dword 12 of Write Zeroes.
const WRITE_ZEROES_DEALLOCATE: u32 = 1 << 25;
/// Attribute - Deallocate (AD) in Command Dword 11 of Dataset Management.
const ATTRIBUTE_DEALLOCATE: u32 = 1 << 2;
/// The most blocks of one command: Number of Logical Blocks has 16 bits in most commands, and 32
/// bits in a range of Dataset Management.
const BLOCKS_MAX: u64 = 1 << 16;
const RANGE_BLOCKS_MAX: u64 = 0xffff_ffff;

/// Why a command was not taken.
pub(super) enum Refused {
    /// As many commands are under way as the device can have.
    Busy,
    /// The device is not there.
    Lost,
    /// The command can't be submitted at all.
    Impossible,
}

/// The device is not there.
#[derive(Debug)]
pub(super) struct Lost;

/// A command under way, which carries out a piece of a request.
#[derive(Clone, Copy, Debug)]
struct Piece {
    job: u32,
    /// The offset of the piece from the start of the request, in the unit of [`Job::at`].
    offset: u64,
    length: u64,
}

/// The requests to a medium, and the commands of the device that carry them out.
pub(super) struct Commands {
    /// The namespaces, in the order in which their bytes follow each other.
    pub(super) extents: Vec<Extent>,
    pub(super) abilities: Abilities,
    jobs: Vec<Option<Job>>,
    free_jobs: Vec<u32>,
    /// Jobs that have commands to be submitted.
    active: VecDeque<u32>,
    pieces: Vec<Option<Piece>>,
    free_pieces: Vec<u32>,
    /// Pieces that got no answer, and are to be submitted again. Their jobs count them
    /// as outstanding.
    again: Vec<Piece>,
    /// Whether [`Operation::Deallocate`] is a hint, after which nothing has to read as zeroes.
    pub(super) deallocates_as_hint: bool,
    zeroes: Buffer,
    waiting: VecDeque<Request>,
    /// Requests that have ended without a command, with their results.
    ended: VecDeque<(IoId, Result<(), MediaError>)>,
}

impl Commands {
    /// Creates a state without requests. At most `pieces` commands are under way at once; their
    /// names are the numbers below `pieces`.
    pub(super) fn new(extents: Vec<Extent>, abilities: Abilities, pieces: u32) -> Self {
        Self {
            extents,
            abilities,
            jobs: (0..JOBS_MAX).map(|_| None).collect(),
            free_jobs: (0..JOBS_MAX).rev().collect(),
            active: VecDeque::new(),
            pieces: vec![None; pieces as usize],
            free_pieces: (0..pieces).rev().collect(),
            again: Vec::new(),
            deallocates_as_hint: false,
            zeroes: Buffer::zeroed(PIECE_BYTES as usize),
            waiting: VecDeque::new(),
            ended: VecDeque::new(),
        }
    }

    /// The size in bytes of all namespaces together.
    pub(super) fn size(&self) -> u64 {
        self.extents.last().map_or(0, |extent| extent.offset + extent.bytes)
    }

    /// The number of requests that have not ended.
    pub(super) fn in_flight(&self) -> usize {
        self.jobs.len() - self.free_jobs.len() + self.waiting.len() + self.ended.len()
    }

    /// Takes a request. [`Commands::fill`] passes its commands to the device. With too many
    /// requests under way, another one fails.
    pub(super) fn submit(&mut self, request: Request) {
        let is_full = self.in_flight() >= REQUESTS_MAX;
        match self.refusal(&request.operation) {
            _ if is_full => self.ended.push_back((request.id, Err(MediaError::Unreachable))),
            Some(result) => self.ended.push_back((request.id, result)),
            None if self.waiting.is_empty() && !self.free_jobs.is_empty() => self.begin(request),
            None => self.waiting.push_back(request),
        }
    }

    /// Hands over the requests that have ended without a command; returns how many.
    pub(super) fn take_ended(&mut self, out: &mut impl FnMut(Completion)) -> usize {
        let count = self.ended.len();
        self.ended.drain(..).for_each(|(id, result)| out(Completion::Done { id, result }));
        count
    }

    /// The answer to an operation for which nothing needs to be done, be it an error or success.
    fn refusal(&self, operation: &Operation) -> Option<Result<(), MediaError>> {
        let (offset, length) = range_of(operation)?;
        match self.extent_of(offset, length) {
            None => Some(Err(MediaError::OutOfRange)),
            Some(_) => (length == 0).then_some(Ok(())),
        }
    }

    /// The index of the namespace that holds the bytes, if one namespace holds all of them.
    fn extent_of(&self, offset: u64, length: u64) -> Option<usize> {
        let end = offset.checked_add(length)?;
        let index = self.extents.partition_point(|extent| extent.offset <= offset).checked_sub(1)?;
        let extent = &self.extents[index];
        (end <= extent.offset + extent.bytes).then_some(index)
    }

    fn begin(&mut self, request: Request) {
        let name = self.free_jobs.pop().expect("room was asked for");
        let (offset, length) = range_of(&request.operation).unwrap_or((0, 0));
        let extent = self.extent_of(offset, length).unwrap_or(0);
        let mut begin = offset - self.extents[extent].offset;
        let mut end = begin + length;
        let how = if self.abilities.write_zeroes { Zeroing::Command } else { Zeroing::ByWriting };
        let goal = match request.operation {
            Operation::Read { .. } => Goal::Read,
            Operation::Write { data, durable, .. } => Goal::Write { data, durable },
            Operation::WriteZeroes { deallocate, durable, .. } => Goal::Zero { how, deallocate, durable },
            // Dataset Management alone does not promise that the range reads as zeroes.
            Operation::Deallocate { .. } if self.deallocates_as_hint && self.abilities.dataset_management => {
                Goal::Deallocate
            }
            Operation::Deallocate { .. } => Goal::Zero { how, deallocate: true, durable: false },
            Operation::Flush => {
                (begin, end) = (0, length_u64(self.extents.len()));
                Goal::Flush
            }
        };
        let job = Job { id: request.id, extent, begin, at: begin, end, outstanding: 0, error: None, goal };
        self.jobs[name as usize] = Some(job);
        self.active.push_back(name);
    }

    /// Submits commands through `submit` as long as there are some and `submit` takes them. Each
    /// command has a name that no other command under way has. Returns how many were submitted
    /// or failed.
    ///
    /// # Errors
    /// When `submit` says that the device is not there.
    pub(super) fn fill(
        &mut self,
        mut submit: impl FnMut(u32, SubmissionQueueEntry, Data) -> Result<(), Refused>,
        out: &mut impl FnMut(Completion),
    ) -> Result<usize, Lost> {
        let mut moved = 0;
        loop {
            while !self.waiting.is_empty() && !self.free_jobs.is_empty() {
                let request = self.waiting.pop_front().expect("there is a front");
                self.begin(request);
            }
            let Some(next) = self.next_piece() else { return Ok(moved) };
            let Some(piece) = self.free_pieces.last().copied() else { return Ok(moved) };
            let (name, is_again) = (next.job, !self.again.is_empty());
            let job = self.jobs[name as usize].as_ref().expect("a piece has its job");
            let (entry, data) = self.command_of(job, job.begin + next.offset, next.length);
            let submitted = submit(piece, entry, data);
            match submitted {
                Ok(()) => {
                    self.free_pieces.pop();
                    self.pieces[piece as usize] = Some(next);
                    if is_again {
                        self.on_submitted_again(next);
                    } else {
                        self.on_submitted(next);
                    }
                }
                Err(Refused::Busy) => return Ok(moved),
                Err(Refused::Lost) => return Err(Lost),
                Err(Refused::Impossible) => {
                    if is_again && let Some(job) = self.jobs[name as usize].as_mut() {
                        self.again.pop();
                        job.outstanding -= 1;
                    }
                    self.fail(name, StatusCode::InternalError.into());
                    self.end_stage(name, out);
                }
            }
            moved += 1;
        }
    }

    /// The piece to submit next: one that got no answer, or the next one of the first active job.
    fn next_piece(&self) -> Option<Piece> {
        if let Some(piece) = self.again.last() {
            let job = self.jobs[piece.job as usize].as_ref().expect("a piece has its job");
            // The device may have come back with lower limits.
            let length = piece.length.min(self.limit_at(job, job.begin + piece.offset));
            return Some(Piece { length, ..*piece });
        }
        let name = *self.active.front()?;
        let job = self.jobs[name as usize].as_ref().expect("an active job is there");
        Some(Piece { job: name, offset: job.at - job.begin, length: self.length_of_next(job) })
    }

    /// The namespace that the command of a job at `at` is for.
    fn extent_at(&self, job: &Job, at: u64) -> &Extent {
        match job.goal {
            Goal::Flush => &self.extents[usize::try_from(at).unwrap_or(0)],
            _ => &self.extents[job.extent],
        }
    }

    /// How much of a job its next command does, in the unit of [`Job::at`].
    fn length_of_next(&self, job: &Job) -> u64 {
        (job.end - job.at).min(self.limit_at(job, job.at))
    }

    /// How much a command of a job at `at` can do, in the unit of [`Job::at`].
    fn limit_at(&self, job: &Job, at: u64) -> u64 {
        let block = u64::from(self.extent_at(job, at).block);
        match &job.goal {
            Goal::Zero { how: Zeroing::Command | Zeroing::Refused, .. } => {
                self.abilities.zeroes_max.min(BLOCKS_MAX * block)
            }
            Goal::Deallocate => RANGE_BLOCKS_MAX * block,
            Goal::Flush => 1,
            _ => self.abilities.transfer_max,
        }
    }

    /// The command of a job that does `length` of it from `at` on.
    fn command_of(&self, job: &Job, at: u64, length: u64) -> (SubmissionQueueEntry, Data) {
        let extent = self.extent_at(job, at);
        let block = u64::from(extent.block);
        let range = Range { namespace: extent.id, lba: at / block, blocks: length / block };
        let done = at - job.begin;
        let part = |data: &Buffer, from: u64| {
            Data::Write(data.slice(memory_length(from)..memory_length(from + length)))
        };
        match &job.goal {
            Goal::Read => {
                (range.command(IoOpcode::Read, 0), Data::Read(u32::try_from(length).unwrap_or(u32::MAX)))
            }
            Goal::Write { data, durable } => {
                (range.command(IoOpcode::Write, access(*durable)), part(data, done))
            }
            Goal::Zero { how: Zeroing::ByWriting, durable, .. } => {
                (range.command(IoOpcode::Write, access(*durable)), part(&self.zeroes, 0))
            }
            Goal::Zero { durable, deallocate, .. } => {
                let gives_back = *deallocate && extent.zeroes_deallocate;
                let flag = if gives_back { WRITE_ZEROES_DEALLOCATE } else { 0 };
                (range.command(IoOpcode::WriteZeroes, access(*durable) | flag), Data::None)
            }
            Goal::Deallocate => range.deallocate(),
            Goal::Flush => (command::flush(extent.id), Data::None),
        }
    }

    fn on_submitted(&mut self, piece: Piece) {
        let job = self.jobs[piece.job as usize].as_mut().expect("an active job is there");
        job.at += piece.length;
        job.outstanding += 1;
        if job.at >= job.end {
            self.active.pop_front();
        }
    }

    /// A piece that got no answer was submitted again, or the part of it that one command can do.
    fn on_submitted_again(&mut self, piece: Piece) {
        let Some(mut rest) = self.again.pop() else { return };
        if piece.length < rest.length {
            (rest.offset, rest.length) = (rest.offset + piece.length, rest.length - piece.length);
            self.again.push(rest);
            self.jobs[piece.job as usize].as_mut().expect("a piece has its job").outstanding += 1;
        }
    }

    /// The number of bytes that the command named `piece` is to read; `None` if no such read is
    /// under way.
    pub(super) fn read_length(&self, piece: u32) -> Option<u32> {
        let piece = self.pieces.get(piece as usize)?.as_ref()?;
        let job = self.jobs[piece.job as usize].as_ref()?;
        matches!(job.goal, Goal::Read).then_some(u32::try_from(piece.length).unwrap_or(u32::MAX))
    }

    fn take_piece(&mut self, piece: u32) -> Option<(Piece, &mut Job)> {
        let taken = self.pieces.get_mut(piece as usize).and_then(Option::take)?;
        self.free_pieces.push(piece);
        let job = self.jobs[taken.job as usize].as_mut().expect("a command's job is there");
        job.outstanding -= 1;
        Some((taken, job))
    }

    /// The command named `piece` has ended. The data of `result` are empty unless the command is
    /// a read.
    pub(super) fn on_ended(
        &mut self,
        piece: u32,
        result: Result<Buffer, Status>,
        out: &mut impl FnMut(Completion),
    ) {
        let Some((piece, job)) = self.take_piece(piece) else { return };
        match result {
            Err(status) => self.fail(piece.job, status),
            Ok(data) if matches!(job.goal, Goal::Read) => {
                let (id, offset) = (job.id, u32::try_from(piece.offset).expect("a read's length is 32 bits"));
                if length_u64(data.len()) == piece.length {
                    out(Completion::Data { id, offset, data });
                } else {
                    self.fail(piece.job, StatusCode::DataTransferError.into());
                }
            }
            Ok(_) => {}
        }
        self.end_stage(piece.job, out);
    }

    /// The command named `piece` got no answer from the device.
    pub(super) fn on_unheard(&mut self, piece: u32, out: &mut impl FnMut(Completion)) {
        let Some((piece, job)) = self.take_piece(piece) else { return };
        job.give_up(MediaError::Unreachable);
        self.withdraw(piece.job);
        self.end_stage(piece.job, out);
    }

    /// The command named `piece` got no answer, and is submitted again when the device is there.
    pub(super) fn take_back(&mut self, piece: u32) {
        if let Some(taken) = self.pieces.get_mut(piece as usize).and_then(Option::take) {
            self.free_pieces.push(piece);
            self.again.push(taken);
        }
    }

    /// No command under way will get an answer any more: all are submitted again when the device
    /// is there.
    pub(super) fn take_back_all(&mut self) {
        (0..).take(self.pieces.len()).for_each(|piece| self.take_back(piece));
    }

    /// Submits nothing of job `name` any more.
    fn withdraw(&mut self, name: u32) {
        self.active.retain(|active| *active != name);
        let before = self.again.len();
        self.again.retain(|piece| piece.job != name);
        let taken = u32::try_from(before - self.again.len()).expect("pieces have 32-bit names");
        self.jobs[name as usize].as_mut().expect("a piece has its job").outstanding -= taken;
    }

    /// Ends the requests, or the parts of them, that the device does not have, as unreachable.
    pub(super) fn give_up(&mut self, out: &mut impl FnMut(Completion)) {
        while let Some(Piece { job: name, .. }) = self.again.last().copied() {
            if let Some(job) = self.jobs[name as usize].as_mut() {
                job.give_up(MediaError::Unreachable);
            }
            self.withdraw(name);
            self.end_stage(name, out);
        }
        while let Some(name) = self.active.pop_front() {
            if let Some(job) = self.jobs[name as usize].as_mut() {
                job.give_up(MediaError::Unreachable);
            }
            self.end_stage(name, out);
        }
        for request in self.waiting.drain(..) {
            out(Completion::Done { id: request.id, result: Err(MediaError::Unreachable) });
        }
    }

    /// A command of job `name` has failed.
    fn fail(&mut self, name: u32, status: Status) {
        self.jobs[name as usize].as_mut().expect("a command's job is there").fail(status);
        self.withdraw(name);
    }

    /// Continues job `name` if nothing of its current stage remains.
    fn end_stage(&mut self, name: u32, out: &mut impl FnMut(Completion)) {
        let Some(job) = self.jobs[name as usize].as_mut().filter(|job| job.is_over()) else { return };
        let extent = &self.extents[job.extent];
        match job.goal {
            Goal::Zero { how: Zeroing::Refused, deallocate, durable } if job.error.is_none() => {
                self.abilities.write_zeroes = false;
                job.restart(Goal::Zero { how: Zeroing::ByWriting, deallocate, durable });
            }
            Goal::Zero { how, deallocate: true, .. }
                if job.error.is_none()
                    && self.abilities.dataset_management
                    && extent.deallocated_reads_zero
                    && !(how == Zeroing::Command && extent.zeroes_deallocate) =>
            {
                job.restart(Goal::Deallocate);
            }
            _ => {
                let (id, error) = (job.id, job.error);
                self.jobs[name as usize] = None;
                self.free_jobs.push(name);
                return out(Completion::Done { id, result: error.map_or(Ok(()), Err) });
            }
        }
        self.active.push_back(name);
    }
}

/// A range of blocks of a namespace.
#[derive(Clone, Copy)]
struct Range {
    namespace: NamespaceId,
    lba: u64,
    blocks: u64,
}

impl Range {
    /// A command on these blocks, with `bits` set in Command Dword 12.
    fn command(self, opcode: IoOpcode, bits: u32) -> SubmissionQueueEntry {
        let blocks = u32::try_from(self.blocks).unwrap_or(u32::MAX);
        let entry = command::on_blocks(opcode, self.namespace, self.lba, blocks);
        SubmissionQueueEntry { cdw12: entry.cdw12 | bits, ..entry }
    }

    /// A Dataset Management command that allows the device to give back the space of these blocks.
    fn deallocate(self) -> (SubmissionQueueEntry, Data) {
        let blocks = u32::try_from(self.blocks).unwrap_or(u32::MAX);
        let mut bytes = [0; DatasetRange::LENGTH];
        DatasetRange { context: 0, blocks, starting_lba: self.lba }.emit(&mut bytes);
        let (opcode, namespace) = (IoOpcode::DatasetManagement.into(), self.namespace);
        let entry =
            SubmissionQueueEntry { opcode, namespace, cdw11: ATTRIBUTE_DEALLOCATE, ..Default::default() };
        (entry, Data::Write(Buffer::copy_from_slice(&bytes)))
    }
}

const fn access(durable: bool) -> u32 {
    if durable { FORCE_UNIT_ACCESS } else { 0 }
}

/// The offset and the length of an operation in bytes; `None` for a flush, which concerns
/// all bytes.
fn range_of(operation: &Operation) -> Option<(u64, u64)> {
    match operation {
        Operation::Read { offset, length } => Some((*offset, u64::from(*length))),
        Operation::Write { offset, data, .. } => Some((*offset, length_u64(data.len()))),
        Operation::WriteZeroes { offset, length, .. } | Operation::Deallocate { offset, length } => {
            Some((*offset, *length))
        }
        Operation::Flush => None,
    }
}

fn length_u64(length: usize) -> u64 {
    u64::try_from(length).expect("memory has 64-bit addresses at most")
}

fn memory_length(length: u64) -> usize {
    usize::try_from(length).expect("data in memory fit it")
}
