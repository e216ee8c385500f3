//! A namespace of another device as a medium: one of a far PCIe device, or of a subsystem of NVMe over Fabrics.
//!
//! The host that uses the device has a loop of its own, which is turned by [`RemoteMedium::reap`] and whose descriptor ends
//! the sleep of the loop around it: nothing passes between threads.

mod fabrics;
mod open;
mod pcie;
mod way;

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsRawFd, RawFd};

use engine::{Buffer, Instant, Nanos};
use mio::unix::SourceFd;
use mio::{Interest, Poll, Token};
use nvme::media::{Completion, IoId, MediaError, Operation, Request};
use nvme::wire::{DatasetRange, IoOpcode, NamespaceId, StatusCode, SubmissionQueueEntry};
use nvme_fabrics::host::Data;
use nvme_pcie::host::Namespace;

use super::nvme::job::{Goal, Job, Zeroing};
use crate::clock::Clock;
use way::{Device, Ended, Happened, Refused, Way};

pub use open::{Address, OpenError, Place, open};

/// Commands under way at once.
const PIECES_MAX: u32 = 256;
/// The most bytes that one command moves.
const SLOT_BYTES: u32 = 128 << 10;
/// Bytes a class that the pool of buffers remembers.
const POOL_RETAIN: usize = 8 << 20;
/// Requests that are looked after at once; more wait.
const JOBS_MAX: u32 = 1024;
/// Requests under way or waiting at once: every entry of every queue of a controller, and of many hosts.
const REQUESTS_MAX: usize = 64 * 4096;
/// Rounds of commands and completions in one `reap`, so that a fast device can't keep a reactor.
const ROUNDS_MAX: usize = 16;
/// How often another way is tried when one has ended.
const RETRY: Nanos = Nanos::from_secs(1);
/// Force Unit Access (FUA) in Command Dword 12.
const FORCE_UNIT_ACCESS: u32 = 1 << 30;
/// Deallocate (DEAC) in Command Dword 12 of Write Zeroes.
const WRITE_ZEROES_DEALLOCATE: u32 = 1 << 25;
/// Attribute - Deallocate (AD) in Command Dword 11 of Dataset Management.
const ATTRIBUTE_DEALLOCATE: u32 = 1 << 2;
/// Number of Logical Blocks has 16 bits in a command, and 32 in a range of Dataset Management.
const BLOCKS_MAX: u64 = 1 << 16;
const RANGE_BLOCKS_MAX: u64 = 0xffff_ffff;
/// Write Zeroes deallocates if asked to, in Deallocate Logical Block Features (DLFEAT).
const DLFEAT_WRITE_ZEROES: u8 = 1 << 3;
/// What deallocated blocks read as, and its value for zeroes (DLFEAT).
const DLFEAT_READS: u8 = 0b111;
const DLFEAT_READS_ZERO: u8 = 0b001;

/// How it stands with the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Here,
    /// The host looks for it, and commands wait there.
    Away,
    /// The host has given it up: another one is made at this time.
    Lost {
        again: Instant,
    },
    /// Another host looks for it.
    Coming,
}

/// A command under way.
#[derive(Clone, Copy, Debug)]
struct Piece {
    job: u32,
    /// Bytes from the start of the request.
    offset: u64,
    length: u32,
}

/// See the module.
pub struct RemoteMedium {
    clock: Clock,
    place: Place,
    /// Tells of the place what has happened to it.
    report: fn(&str),
    /// Ends the sleep of the loop around this one, whichever way there is.
    gate: Poll,
    way: Option<Way>,
    link: Link,
    /// When the device was last there.
    seen: Instant,
    device: Device,
    namespace: Namespace,
    jobs: Vec<Option<Job>>,
    free_jobs: Vec<u32>,
    /// Jobs that have commands to be submitted, and perhaps some that do not any more.
    active: VecDeque<u32>,
    pieces: Vec<Option<Piece>>,
    free_pieces: Vec<u32>,
    zeroes: Buffer,
    waiting: VecDeque<Request>,
    /// Requests that have ended without a command.
    ended: VecDeque<(IoId, Result<(), MediaError>)>,
}

impl RemoteMedium {
    /// Bytes of the namespace.
    pub fn size(&self) -> u64 {
        self.namespace.blocks * u64::from(self.namespace.block_bytes)
    }

    /// Bytes of a block: 512 or 4096.
    pub const fn block(&self) -> u32 {
        self.namespace.block_bytes
    }

    /// The device's name for the namespace.
    pub const fn namespace(&self) -> NamespaceId {
        self.namespace.id
    }

    /// Takes the size that the device says the namespace has by now; which, in bytes.
    pub fn measure(&mut self) -> u64 {
        if let Some(namespace) = self.way.as_ref().and_then(Way::device).and_then(|device| self.same(&device))
        {
            self.namespace = namespace;
        }
        self.size()
    }

    /// Requests that have not ended.
    pub fn in_flight(&self) -> usize {
        self.jobs.len() - self.free_jobs.len() + self.waiting.len() + self.ended.len()
    }

    /// Becomes readable when `reap` has something to do.
    pub fn poll_fd(&self) -> RawFd {
        self.gate.as_raw_fd()
    }

    /// When `reap` is wanted even though the descriptor is not readable.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let now = self.clock.now();
        let wake = self.way.as_ref().and_then(Way::wake_in).map(|length| now + length);
        let again = match self.link {
            Link::Lost { again } => Some(again),
            _ => None,
        };
        let expiry =
            (self.link != Link::Here && self.in_flight() > 0).then(|| self.expiry()).filter(|at| *at > now);
        [wake, again, expiry].into_iter().flatten().min()
    }

    /// Takes a request. The device hears of it in the next `reap`.
    ///
    /// # Panics
    /// When more requests are under way than hosts can have.
    pub fn submit(&mut self, request: Request) {
        assert!(self.in_flight() < REQUESTS_MAX, "more requests than queue entries");
        match self.refusal(&request.operation) {
            Some(result) => self.ended.push_back((request.id, result)),
            None if self.waiting.is_empty() && !self.free_jobs.is_empty() => self.begin(request),
            None => self.waiting.push_back(request),
        }
    }

    /// Hands over what has come of the requests, without waiting; returns how much was done, 0 when there is nothing
    /// to do until [`RemoteMedium::poll_fd`] is readable or [`RemoteMedium::poll_timeout`] is due.
    pub fn reap(&mut self, out: &mut impl FnMut(Completion)) -> usize {
        let mut done = 0;
        while let Some((id, result)) = self.ended.pop_front() {
            out(Completion::Done { id, result });
            done += 1;
        }
        for _ in 0..ROUNDS_MAX {
            let moved = self.fill(out) + self.exchange(out);
            done += moved;
            if moved == 0 {
                break;
            }
        }
        if self.link != Link::Here {
            self.on_absence(out);
        }
        done
    }

    /// Until when commands wait for the device.
    fn expiry(&self) -> Instant {
        self.seen + self.place.hold
    }

    /// The answer to an operation for which nothing needs to be done.
    fn refusal(&self, operation: &Operation) -> Option<Result<(), MediaError>> {
        let (offset, length) = range_of(operation)?;
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.size());
        if !inside {
            return Some(Err(MediaError::OutOfRange));
        }
        (length == 0).then_some(Ok(()))
    }

    fn begin(&mut self, request: Request) {
        let name = self.free_jobs.pop().expect("room was asked for");
        let (begin, length) = range_of(&request.operation).unwrap_or((0, 1));
        let how = if self.device.write_zeroes { Zeroing::Command } else { Zeroing::ByWriting };
        let goal = match request.operation {
            Operation::Read { .. } => Goal::Read,
            Operation::Write { data, durable, .. } => Goal::Write { data, durable },
            Operation::WriteZeroes { deallocate, durable, .. } => Goal::Zero { how, deallocate, durable },
            // Dataset Management alone is a hint: what it leaves would have to be read as zeroes.
            Operation::Deallocate { .. } => Goal::Zero { how, deallocate: true, durable: false },
            Operation::Flush => Goal::Flush,
        };
        let (at, end) = (begin, begin + length);
        let job = Job { id: request.id, extent: 0, begin, at, end, outstanding: 0, error: None, goal };
        self.jobs[name as usize] = Some(job);
        self.active.push_back(name);
    }

    /// Lets the host go on, and takes what has come of it; how much that was.
    fn exchange(&mut self, out: &mut impl FnMut(Completion)) -> usize {
        let Some(way) = &mut self.way else { return 0 };
        let mut moved = match way.step() {
            Ok(busy) => usize::from(busy),
            Err(error) => {
                self.lose(&error.to_string());
                return 1;
            }
        };
        while let Some(happened) = self.way.as_mut().and_then(Way::next) {
            moved += 1;
            match happened {
                Happened::Ended(ended) => self.on_ended(ended, out),
                Happened::Here => self.on_here(),
                Happened::Away(why) => {
                    if self.link == Link::Here {
                        self.tell(&format!("is away: {why}; commands wait for {}", self.place.hold));
                        (self.link, self.seen) = (Link::Away, self.clock.now());
                    }
                }
                Happened::Lost(why) => self.lose(&why),
            }
        }
        moved
    }

    fn tell(&self, what: &str) {
        (self.report)(&format!("{} {what}", self.place));
    }

    /// The host's end of a way is over: its commands have ended, or end now.
    fn lose(&mut self, why: &str) {
        let now = self.clock.now();
        if self.link == Link::Here {
            self.seen = now;
        }
        if !matches!(self.link, Link::Lost { .. } | Link::Coming) {
            self.tell(&format!("can't be used: {why}; it is tried again"));
        }
        self.way = None;
        self.link = Link::Lost { again: now + RETRY };
    }

    /// The device can be used, if it still is the one that it was.
    fn on_here(&mut self) {
        if self.link == Link::Here {
            return;
        }
        let found = self.way.as_ref().and_then(Way::device);
        match found.as_ref().and_then(|device| self.same(device)) {
            Some(namespace) => {
                self.tell("is back");
                self.namespace = namespace;
                self.link = Link::Here;
            }
            None => self.lose("another device is there, or its namespace is gone"),
        }
    }

    /// The namespace as a device has it by now, if that is the one.
    fn same(&self, device: &Device) -> Option<Namespace> {
        let is_same =
            |one: &&Namespace| one.id == self.namespace.id && one.block_bytes == self.namespace.block_bytes;
        device.namespaces.iter().find(is_same).filter(|_| device.serial == self.device.serial).copied()
    }

    /// Tries another way where one has ended, and ends what has waited for too long.
    fn on_absence(&mut self, out: &mut impl FnMut(Completion)) {
        let now = self.clock.now();
        if let Link::Lost { again } = self.link {
            // What the host had does not come back.
            for piece in 0..PIECES_MAX {
                if self.pieces[piece as usize].is_some() {
                    let result = Err(StatusCode::CommandInterrupted.into());
                    self.on_ended(Ended { piece, result, is_unheard: true }, out);
                }
            }
            if again <= now {
                self.link = Link::Lost { again: now + RETRY };
                if let Ok(way) = self.place.begin().and_then(|way| self.watch(way)) {
                    (self.way, self.link) = (Some(way), Link::Coming);
                }
            }
        }
        if now < self.expiry() || self.link == Link::Away {
            return;
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

    /// Has the way end sleeps.
    fn watch(&self, way: Way) -> Result<Way, OpenError> {
        let descriptor = way.poll_fd();
        let registered =
            self.gate.registry().register(&mut SourceFd(&descriptor), Token(0), Interest::READABLE);
        registered.map(|()| way).map_err(OpenError::Io)
    }

    /// Submits commands as long as there is room; how many.
    fn fill(&mut self, out: &mut impl FnMut(Completion)) -> usize {
        let mut moved = 0;
        while matches!(self.link, Link::Here | Link::Away) {
            while !self.waiting.is_empty() && !self.free_jobs.is_empty() {
                let request = self.waiting.pop_front().expect("there is a front");
                self.begin(request);
            }
            let Some(name) = self.active.front().copied() else { break };
            let Some(piece) = self.free_pieces.last().copied() else { break };
            match self.submit_piece(name, piece) {
                Ok(()) => {
                    self.free_pieces.pop();
                    if self.jobs[name as usize].as_ref().is_none_or(|job| job.at >= job.end) {
                        self.active.pop_front();
                    }
                }
                Err(Refused::Busy) => break,
                Err(Refused::Lost) => self.lose("it takes no commands"),
                Err(Refused::Impossible) => {
                    self.fail(name, StatusCode::InternalError.into());
                    self.end_stage(name, out);
                }
            }
            moved += 1;
        }
        moved
    }

    /// Submits the next command of job `name` as `piece`.
    fn submit_piece(&mut self, name: u32, piece: u32) -> Result<(), Refused> {
        let Some(way) = &mut self.way else { return Err(Refused::Lost) };
        let job = self.jobs[name as usize].as_mut().expect("an active job is there");
        let block = u64::from(self.namespace.block_bytes);
        let limit = match &job.goal {
            Goal::Zero { how: Zeroing::Command | Zeroing::Refused, .. } => {
                self.device.zeroes_max.min(BLOCKS_MAX * block)
            }
            Goal::Deallocate => RANGE_BLOCKS_MAX * block,
            Goal::Flush => 1,
            _ => self.device.transfer_max,
        };
        let length = (job.end - job.at).min(limit);
        let done = job.at - job.begin;
        let bytes = u32::try_from(length).unwrap_or(u32::MAX);
        let (lba, blocks) = (job.at / block, length / block);
        let id = self.namespace.id;
        let part = |data: &Buffer, from: u64| data.slice(memory_length(from)..memory_length(from + length));
        let (entry, data) = match &job.goal {
            Goal::Read => (ranged(IoOpcode::Read, id, lba, blocks, 0), Data::Read(bytes)),
            Goal::Write { data, durable } => {
                let entry = ranged(IoOpcode::Write, id, lba, blocks, access(*durable));
                (entry, Data::Write(part(data, done)))
            }
            Goal::Zero { how: Zeroing::ByWriting, durable, .. } => {
                let entry = ranged(IoOpcode::Write, id, lba, blocks, access(*durable));
                (entry, Data::Write(part(&self.zeroes, 0)))
            }
            Goal::Zero { durable, deallocate, .. } => {
                let gives_back = *deallocate && self.namespace.deallocate_features & DLFEAT_WRITE_ZEROES != 0;
                let flag = if gives_back { WRITE_ZEROES_DEALLOCATE } else { 0 };
                (ranged(IoOpcode::WriteZeroes, id, lba, blocks, access(*durable) | flag), Data::None)
            }
            Goal::Deallocate => {
                let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
                let range = DatasetRange { context: 0, blocks, starting_lba: lba };
                let mut bytes = [0; DatasetRange::LENGTH];
                range.emit(&mut bytes);
                let opcode = IoOpcode::DatasetManagement.into();
                let cdw11 = ATTRIBUTE_DEALLOCATE;
                let entry =
                    SubmissionQueueEntry { opcode, namespace: id, cdw11, ..SubmissionQueueEntry::default() };
                (entry, Data::Write(Buffer::copy_from_slice(&bytes)))
            }
            Goal::Flush => {
                let opcode = IoOpcode::Flush.into();
                (
                    SubmissionQueueEntry { opcode, namespace: id, ..SubmissionQueueEntry::default() },
                    Data::None,
                )
            }
        };
        way.submit(piece, entry, data)?;
        job.at += length;
        job.outstanding += 1;
        self.pieces[piece as usize] = Some(Piece { job: name, offset: done, length: bytes });
        Ok(())
    }

    fn on_ended(&mut self, ended: Ended, out: &mut impl FnMut(Completion)) {
        let Some(piece) = self.pieces.get_mut(ended.piece as usize).and_then(Option::take) else { return };
        self.free_pieces.push(ended.piece);
        let job = self.jobs[piece.job as usize].as_mut().expect("a command's job is there");
        job.outstanding -= 1;
        match ended.result {
            Err(_) if ended.is_unheard => {
                job.give_up(MediaError::Unreachable);
                self.active.retain(|active| *active != piece.job);
            }
            Err(status) => self.fail(piece.job, status),
            Ok(data) if matches!(job.goal, Goal::Read) => {
                let (id, offset) = (job.id, u32::try_from(piece.offset).expect("a read's length is 32 bits"));
                let data = match &mut self.way {
                    Some(Way::Pcie(way)) => way.read(ended.piece, piece.length).unwrap_or_default(),
                    _ => data,
                };
                match data.len() == piece.length as usize {
                    true => out(Completion::Data { id, offset, data }),
                    false => self.fail(piece.job, StatusCode::DataTransferError.into()),
                }
            }
            Ok(_) => {}
        }
        self.end_stage(piece.job, out);
    }

    /// A command of job `name` has failed.
    fn fail(&mut self, name: u32, status: nvme::wire::Status) {
        self.jobs[name as usize].as_mut().expect("a command's job is there").fail(status);
        self.active.retain(|active| *active != name);
    }

    /// Goes on with job `name` if nothing of its stage remains.
    fn end_stage(&mut self, name: u32, out: &mut impl FnMut(Completion)) {
        let Some(job) = self.jobs[name as usize].as_mut().filter(|job| job.is_over()) else { return };
        let features = self.namespace.deallocate_features;
        match job.goal {
            Goal::Zero { how: Zeroing::Refused, deallocate, durable } if job.error.is_none() => {
                self.device.write_zeroes = false;
                job.restart(Goal::Zero { how: Zeroing::ByWriting, deallocate, durable });
            }
            Goal::Zero { how, deallocate: true, .. }
                if job.error.is_none()
                    && self.device.dataset_management
                    && features & DLFEAT_READS == DLFEAT_READS_ZERO
                    && !(how == Zeroing::Command && features & DLFEAT_WRITE_ZEROES != 0) =>
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

/// A command on a range of blocks, with these bits in Command Dword 12.
fn ranged(
    opcode: IoOpcode,
    namespace: NamespaceId,
    lba: u64,
    blocks: u64,
    bits: u32,
) -> SubmissionQueueEntry {
    // Number of Logical Blocks (NLB) is 0's based.
    let blocks = u32::try_from(blocks.saturating_sub(1)).unwrap_or(u32::MAX);
    let (opcode, cdw12) = (opcode.into(), blocks | bits);
    SubmissionQueueEntry { opcode, namespace, cdw12, ..SubmissionQueueEntry::default() }
        .with_starting_lba(lba)
}

const fn access(durable: bool) -> u32 {
    if durable { FORCE_UNIT_ACCESS } else { 0 }
}

/// First byte and bytes; none of a flush, which concerns all.
fn range_of(operation: &Operation) -> Option<(u64, u64)> {
    match operation {
        Operation::Read { offset, length } => Some((*offset, u64::from(*length))),
        Operation::Write { offset, data, .. } => {
            Some((*offset, u64::try_from(data.len()).expect("memory has 64-bit addresses at most")))
        }
        Operation::WriteZeroes { offset, length, .. } | Operation::Deallocate { offset, length } => {
            Some((*offset, *length))
        }
        Operation::Flush => None,
    }
}

fn memory_length(length: u64) -> usize {
    usize::try_from(length).expect("what is in memory fits it")
}

impl fmt::Debug for RemoteMedium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteMedium")
            .field("place", &self.place)
            .field("link", &self.link)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}
