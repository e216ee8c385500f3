//! An NVMe controller as a medium: its namespaces, one behind another, driven by our own driver.

pub(super) mod job;
mod open;
mod port;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::RawFd;

use engine::{Engine, Instant, Nanos, Pool};
use nvme::media::{Completion, IoId, MediaError, Operation, Request};
use nvme::wire::{DatasetRange, IoOpcode, NamespaceId, Status, StatusCode, SubmissionQueueEntry};
use nvme_pcie::host::{
    AsynchronousEvent, Completed, Data, Host, InitError, Input, Output, QueueId, ResetReason, Submission,
    SubmitError,
};
use pcie::memory::Memory;

use crate::clock::Clock;
use job::{Goal, Job, Zeroing};

pub use open::{Extent, OpenError, open};
pub use port::{Port, VfioPort};

/// Requests that are looked after at once; more wait.
const JOBS_MAX: u32 = 1024;
/// Requests under way or waiting at once: every entry of every queue of a controller.
const REQUESTS_MAX: usize = 64 * 4096;
/// Rounds of commands and completions in one `reap`, so that a fast device can't keep a reactor.
const ROUNDS_MAX: usize = 16;
/// How often completions are looked for where no interrupt tells of them and the reactor would sleep.
const POLL_EVERY: Nanos = Nanos::from_millis(1);
/// The same where there are interrupts, should one get lost: doorbells that free entries are rung late, and not every
/// controller interrupts again before that.
const POLL_BEHIND: Nanos = Nanos::from_millis(10);
/// The one queue pair that is used.
const QUEUE: QueueId = QueueId(1);
/// Force Unit Access (FUA) in Command Dword 12.
const FORCE_UNIT_ACCESS: u32 = 1 << 30;
/// Deallocate (DEAC) in Command Dword 12 of Write Zeroes.
const WRITE_ZEROES_DEALLOCATE: u32 = 1 << 25;
/// Attribute - Deallocate (AD) in Command Dword 11 of Dataset Management.
const ATTRIBUTE_DEALLOCATE: u32 = 1 << 2;
/// Number of Logical Blocks has 16 bits in a command, and 32 in a range of Dataset Management.
const BLOCKS_MAX: u64 = 1 << 16;
const RANGE_BLOCKS_MAX: u64 = 0xffff_ffff;

/// What is worth telling a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The controller did not answer, or lost its way, and is being reset; commands wait.
    Resetting(ResetReason),
    /// The controller is up again.
    Back,
    /// The controller was given up: every request fails from now on.
    Failed(InitError),
    /// The controller reports an event.
    Event(AsynchronousEvent),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resetting(ResetReason::Timeout { queue, command }) => {
                write!(
                    f,
                    "command {} of queue {} was not answered; resetting the controller",
                    command.0, queue.0
                )
            }
            Self::Resetting(_) => f.write_str("resetting the controller"),
            Self::Back => f.write_str("the controller is up again"),
            Self::Failed(error) => {
                write!(f, "the controller has failed: {error}; every request fails until a new start")
            }
            Self::Event(AsynchronousEvent { kind, information, log_page }) => {
                write!(f, "event {information:#04x} of type {kind}; log page {log_page:02x}h says more")
            }
        }
    }
}

/// A command under way, by the slot of memory that is its own.
#[derive(Clone, Copy, Debug)]
struct Piece {
    job: u32,
    /// Bytes from the start of the request.
    offset: u64,
    length: u32,
}

/// What the controller can do.
#[derive(Clone, Copy, Debug)]
struct Abilities {
    write_zeroes: bool,
    dataset_management: bool,
    /// The longest piece of a read or a write, and of a Write Zeroes, in bytes.
    transfer_max: u64,
    zeroes_max: u64,
}

/// See the module.
pub struct NvmeMedium<P: Port = VfioPort> {
    host: Host,
    port: P,
    clock: Clock,
    report: fn(Notice),
    pool: Pool,
    extents: Vec<Extent>,
    abilities: Abilities,
    jobs: Vec<Option<Job>>,
    free_jobs: Vec<u32>,
    /// Jobs that have commands to be submitted, and perhaps some that do not any more.
    active: VecDeque<u32>,
    pieces: Vec<Option<Piece>>,
    free_slots: Vec<u32>,
    slots_base: u64,
    zeroes: Vec<u8>,
    waiting: VecDeque<Request>,
    /// Requests that have ended without a command.
    ended: VecDeque<(IoId, Result<(), MediaError>)>,
    reaped: Instant,
    resetting: bool,
    /// Why the controller was given up, if it was.
    failed: Option<InitError>,
}

impl<P: Port> NvmeMedium<P> {
    /// The namespaces, in the order in which their bytes follow each other.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Bytes of all namespaces together.
    pub fn size(&self) -> u64 {
        self.extents.last().map_or(0, |extent| extent.offset + extent.bytes)
    }

    /// Requests that have not ended.
    pub fn in_flight(&self) -> usize {
        self.jobs.len() - self.free_jobs.len() + self.waiting.len() + self.ended.len()
    }

    /// Descriptors that become readable when `reap` has something to do.
    pub fn poll_fds(&self) -> impl Iterator<Item = RawFd> {
        self.port.interrupts()
    }

    /// When `reap` is wanted even though no descriptor is readable.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let every = if self.port.interrupts().next().is_some() { POLL_BEHIND } else { POLL_EVERY };
        let poll = (self.in_flight() > 0).then(|| self.reaped + every);
        [poll, self.host.poll_timeout()].into_iter().flatten().min()
    }

    /// Takes a request. The controller hears of it in the next `reap`, so that several requests cost one doorbell.
    ///
    /// # Panics
    /// When more requests are under way than a controller can have.
    pub fn submit(&mut self, request: Request) {
        assert!(self.in_flight() < REQUESTS_MAX, "more requests than queue entries");
        match self.refusal(&request.operation) {
            Some(result) => self.ended.push_back((request.id, result)),
            None if self.waiting.is_empty() && !self.free_jobs.is_empty() => self.begin(request),
            None => self.waiting.push_back(request),
        }
    }

    /// Hands over what has come of the requests, without waiting; returns how much was done, 0 when there is nothing
    /// to do until one of [`NvmeMedium::poll_fds`] is readable or [`NvmeMedium::poll_timeout`] is due.
    pub fn reap(&mut self, out: &mut impl FnMut(Completion)) -> usize {
        let now = self.clock.now();
        self.reaped = now;
        let mut done = 0;
        while let Some((id, result)) = self.ended.pop_front() {
            out(Completion::Done { id, result });
            done += 1;
        }
        if self.host.poll_timeout().is_some_and(|at| at <= now) {
            self.host.handle_timeout(now);
        }
        for _ in 0..ROUNDS_MAX {
            let moved = self.exchange(now, out) + self.fill(now, out);
            done += moved;
            if moved == 0 {
                return done;
            }
        }
        // The doorbell of what was submitted last.
        done + self.exchange(now, out)
    }

    /// The answer to an operation for which nothing needs to be done.
    fn refusal(&self, operation: &Operation) -> Option<Result<(), MediaError>> {
        let (offset, length) = range_of(operation)?;
        match self.extent_of(offset, length) {
            None => Some(Err(MediaError::OutOfRange)),
            Some(_) => (length == 0).then_some(Ok(())),
        }
    }

    /// The namespace that holds these bytes.
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
            // Dataset Management alone is a hint: what it leaves would have to be read as zeroes.
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

    /// Passes on what the driver wants; how much that was.
    fn exchange(&mut self, now: Instant, out: &mut impl FnMut(Completion)) -> usize {
        self.host.poll_completions(now, self.port.memory());
        let mut moved = 0;
        while let Some(output) = self.host.poll_output() {
            moved += 1;
            match output {
                Output::RegisterRead { cookie, offset, length } => {
                    let bytes = self.port.read_register(offset, length);
                    let bytes = bytes.as_ref().and_then(|bytes| bytes.get(..length as usize));
                    self.host.handle_input(now, Input::RegisterRead { cookie, bytes });
                }
                Output::RegisterWrite { offset, bytes } => self.port.write_register(offset, &bytes),
                Output::Completed(completed) => self.on_completed(&completed, out),
                Output::Ready(_) => {
                    if std::mem::take(&mut self.resetting) {
                        (self.report)(Notice::Back);
                    }
                }
                Output::Failed(error) => {
                    self.failed = Some(error);
                    (self.report)(Notice::Failed(error));
                }
                Output::Event(event) => (self.report)(Notice::Event(event)),
                Output::Resetting(reason) => {
                    self.resetting = true;
                    (self.report)(Notice::Resetting(reason));
                }
            }
        }
        moved
    }

    /// Submits commands as long as there is room; how many.
    fn fill(&mut self, now: Instant, out: &mut impl FnMut(Completion)) -> usize {
        let mut moved = 0;
        loop {
            while !self.waiting.is_empty() && !self.free_jobs.is_empty() {
                let request = self.waiting.pop_front().expect("there is a front");
                self.begin(request);
            }
            let Some(name) = self.active.front().copied() else { return moved };
            let Some(slot) = self.free_slots.last().copied() else { return moved };
            match self.submit_piece(now, name, slot) {
                Ok(()) => {
                    self.free_slots.pop();
                    let job = self.jobs[name as usize].as_ref();
                    if job.is_none_or(|job| job.at >= job.end) {
                        self.active.pop_front();
                    }
                }
                Err(SubmitError::Busy) => return moved,
                Err(_) => {
                    self.fail(name, Status::from(StatusCode::InternalError));
                    self.end_stage(name, out);
                }
            }
            moved += 1;
        }
    }

    /// Submits the next command of job `name`, whose data is in `slot`.
    fn submit_piece(&mut self, now: Instant, name: u32, slot: u32) -> Result<(), SubmitError> {
        let job = self.jobs[name as usize].as_mut().expect("an active job is there");
        let address = self.slots_base + u64::from(slot) * length_u64(self.zeroes.len());
        let memory = self.port.memory();
        let extent = match job.goal {
            Goal::Flush => &self.extents[usize::try_from(job.at).unwrap_or(0)],
            _ => &self.extents[job.extent],
        };
        let block = u64::from(extent.block);
        let limit = match &job.goal {
            Goal::Zero { how: Zeroing::Command | Zeroing::Refused, .. } => {
                self.abilities.zeroes_max.min(BLOCKS_MAX * block)
            }
            Goal::Deallocate => RANGE_BLOCKS_MAX * block,
            Goal::Flush => 1,
            _ => self.abilities.transfer_max,
        };
        let length = (job.end - job.at).min(limit);
        let done = job.at - job.begin;
        let mut command = Command { namespace: extent.id, cookie: u64::from(slot), ..Command::default() };
        command.lba = job.at / block;
        command.blocks = length / block;
        let data = Data { address, length: u32::try_from(length).unwrap_or(u32::MAX) };
        let put =
            |memory: &mut P::Memory, bytes: &[u8]| memory.write(address, bytes).map_err(SubmitError::Memory);
        let submission = match &job.goal {
            Goal::Read => command.with_range(IoOpcode::Read, 0, Some(data)),
            Goal::Write { data: bytes, durable } => {
                put(memory, &bytes[memory_length(done)..][..memory_length(length)])?;
                command.with_range(IoOpcode::Write, access(*durable), Some(data))
            }
            Goal::Zero { how: Zeroing::ByWriting, durable, .. } => {
                put(memory, &self.zeroes[..memory_length(length)])?;
                command.with_range(IoOpcode::Write, access(*durable), Some(data))
            }
            Goal::Zero { durable, deallocate, .. } => {
                let gives_back = *deallocate && extent.zeroes_deallocate;
                let flag = if gives_back { WRITE_ZEROES_DEALLOCATE } else { 0 };
                command.with_range(IoOpcode::WriteZeroes, access(*durable) | flag, None)
            }
            Goal::Deallocate => {
                let blocks = u32::try_from(command.blocks).unwrap_or(u32::MAX);
                let range = DatasetRange { context: 0, blocks, starting_lba: command.lba };
                let mut bytes = [0; DatasetRange::LENGTH];
                range.emit(&mut bytes);
                put(memory, &bytes)?;
                let length = u32::try_from(bytes.len()).expect("a range is small");
                command.deallocate(Data { address, length })
            }
            Goal::Flush => Submission::flush(QUEUE, command.namespace, command.cookie),
        };
        self.host.submit(now, memory, submission)?;
        job.at += length;
        job.outstanding += 1;
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        self.pieces[slot as usize] = Some(Piece { job: name, offset: done, length });
        Ok(())
    }

    fn on_completed(&mut self, completed: &Completed, out: &mut impl FnMut(Completion)) {
        let slot = u32::try_from(completed.cookie).unwrap_or(u32::MAX);
        let Some(piece) = self.pieces.get_mut(slot as usize).and_then(Option::take) else { return };
        self.free_slots.push(slot);
        let job = self.jobs[piece.job as usize].as_mut().expect("a command's job is there");
        job.outstanding -= 1;
        if !completed.status.is_success() {
            self.fail(piece.job, completed.status);
        } else if matches!(job.goal, Goal::Read) {
            let mut buffer = self.pool.take(piece.length as usize);
            let address = self.slots_base + u64::from(slot) * length_u64(self.zeroes.len());
            self.port.memory().read(address, &mut buffer).expect("slots lie in the memory");
            let offset = u32::try_from(piece.offset).expect("a read's length is 32 bits");
            out(Completion::Data { id: job.id, offset, data: self.pool.seal(buffer) });
        }
        self.end_stage(piece.job, out);
    }

    /// A command of job `name` has failed.
    fn fail(&mut self, name: u32, status: Status) {
        self.jobs[name as usize].as_mut().expect("a command's job is there").fail(status);
        self.active.retain(|active| *active != name);
    }

    /// Goes on with job `name` if nothing of its stage remains.
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

/// What a command is about.
#[derive(Clone, Copy, Debug, Default)]
struct Command {
    namespace: NamespaceId,
    lba: u64,
    blocks: u64,
    cookie: u64,
}

impl Command {
    /// A command on a range of blocks, with these bits in Command Dword 12.
    fn with_range(self, opcode: IoOpcode, bits: u32, data: Option<Data>) -> Submission {
        let blocks = u32::try_from(self.blocks.saturating_sub(1)).unwrap_or(u32::MAX);
        let entry = SubmissionQueueEntry {
            opcode: opcode.into(),
            namespace: self.namespace,
            // Number of Logical Blocks (NLB) is 0's based.
            cdw12: blocks | bits,
            ..SubmissionQueueEntry::default()
        };
        Submission { queue: QUEUE, entry: entry.with_starting_lba(self.lba), data, cookie: self.cookie }
    }

    /// Dataset Management of the one range that `data` holds.
    fn deallocate(self, data: Data) -> Submission {
        let entry = SubmissionQueueEntry {
            opcode: IoOpcode::DatasetManagement.into(),
            namespace: self.namespace,
            cdw11: ATTRIBUTE_DEALLOCATE,
            ..SubmissionQueueEntry::default()
        };
        Submission { queue: QUEUE, entry, data: Some(data), cookie: self.cookie }
    }
}

const fn access(durable: bool) -> u32 {
    if durable { FORCE_UNIT_ACCESS } else { 0 }
}

/// First byte and bytes; none of a flush, which concerns all.
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
    usize::try_from(length).expect("what is in memory fits it")
}

impl<P: Port> fmt::Debug for NvmeMedium<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NvmeMedium")
            .field("extents", &self.extents)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}
