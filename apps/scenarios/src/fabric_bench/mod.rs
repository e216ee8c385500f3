//! A host and a controller of NVMe over Fabrics, joined by a modelled network: NVMe/TCP over
//! modelled TCP, or NVMe/RDMA over modelled cards.
//!
//! Both ends of the transport are the real engines, on one I/O queue that is connected already. The
//! controller's medium keeps its data. Software, cards, links and media take modelled time.

mod ends;
mod over_rdma;
mod over_tcp;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use engine::{Buffer, Instant, Nanos, Rng};
use network_models::network::{self, Side};
use network_models::streams::{Measured, Order};
use network_models::trail::{Named, Part};
use network_models::{Path, Rate};
use nvme::host::{Data, command};
use nvme::media::ram::RamDisk;
use nvme::media::{Completion, IoId, MediumId, Operation, Request};
use nvme::wire::{CompletionQueueEntry, IoOpcode, NamespaceId, Status, StatusCode, SubmissionQueueEntry};
use nvme_fabrics::transport::Slot;
use sim::marks::{Cause, Spot};
use sim::models::hca::{Card, Driver};
use sim::models::ssd::{self, Ssd};
use sim::{Digest, Later};

use crate::test_bench::{Chain, Kind, Outcome, Place, Segment, Task};
use ends::{Demand, Ends};
use over_rdma::OverRdma;
use over_tcp::OverTcp;

/// Length of a logical block in bytes.
const BLOCK: u32 = 512;
/// How long a bench may take until its connection is made.
const BOOT_MAX: Nanos = Nanos::from_secs(60);

/// The carrier of the commands.
#[derive(Clone, Debug)]
pub enum Transport {
    /// NVMe/TCP, by the stacks of `config`.
    Tcp(network::Config),
    /// NVMe/RDMA, by the cards of host and controller, with the rate of each card's line.
    Rdma([Card; 2], [Option<Rate>; 2]),
}

/// The medium of the controller.
#[derive(Clone, Debug)]
pub enum Medium {
    /// Memory that the controller's software copies from and to.
    Memory {
        /// Bytes a second of the copy.
        rate: u64,
    },
    /// An SSD on the controller's machine, which is used as a local one is.
    Ssd(Box<ssd::Parameters>),
}

/// Times of the software above the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Software {
    /// In the host, from the application to the transport.
    pub submit: Nanos,
    /// In the host, from the transport to the application.
    pub complete: Nanos,
    /// In the controller, from a command's arrival to the medium.
    pub command: Nanos,
    /// In the controller, from the medium to the transport.
    pub respond: Nanos,
}

/// Machines and network of a bench, but for the paths.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The seed of every random choice.
    pub seed: u64,
    /// The carrier of the commands.
    pub transport: Transport,
    /// How host and controller notice arrivals, and the cost of that.
    pub drivers: [Driver; 2],
    /// The software above the transport.
    pub software: Software,
    /// The controller's medium.
    pub medium: Medium,
    /// Size of the namespace in bytes.
    pub namespace_bytes: u64,
    /// Number of commands of the queue.
    pub queue_size: u16,
    /// Data of a capsule in bytes at most.
    pub capsule_data_max: u32,
}

/// An event that is due in the controller or the application.
#[derive(Debug)]
enum Due {
    /// The application begins the next operation of the task with this number.
    Next(u64),
    /// The medium is to begin a command.
    Execute(Slot, SubmissionQueueEntry, Option<Buffer>, Cause),
    /// The SSD has done a command; the software notices it.
    Noticed(Slot, Answer, Cause),
    /// The software has the SSD's answer.
    Respond(Slot, Answer, Cause),
}

/// The medium's answer to a command.
#[derive(Debug)]
struct Answer {
    status: Status,
    /// Pieces of a read, with their places in it, and the length of the whole.
    pieces: Vec<(u32, Buffer)>,
    total: u32,
}

/// A host and a controller in a world of their own.
#[derive(Debug)]
pub struct FabricBench {
    setup: Setup,
    ends: Box<dyn Ends>,
    disk: RamDisk,
    ssd: Option<Ssd>,
    due: Later<Due>,
    rng: Rng,
    now: Instant,
    task: Option<Task>,
    /// Number of tasks that have begun.
    tasks: u64,
    started: u64,
    /// When each operation under way began.
    began: BTreeMap<u64, Instant>,
    /// Writes whose data are still coming.
    awaited: BTreeMap<Slot, SubmissionQueueEntry>,
    outcome: Outcome,
    wanted: Option<u64>,
    chain: Option<Chain>,
    digest: Digest,
    events: u64,
}

impl FabricBench {
    /// A bench over `paths`, there and back. Everything is switched off.
    pub fn new(setup: &Setup, paths: [Path; 2]) -> Self {
        let rng = Rng::from_seed(setup.seed);
        let ends: Box<dyn Ends> = match &setup.transport {
            Transport::Tcp(config) => Box::new(OverTcp::new(setup, *config, paths)),
            Transport::Rdma(cards, line) => Box::new(OverRdma::new(setup, *cards, *line, paths)),
        };
        let ssd = match &setup.medium {
            Medium::Memory { .. } => None,
            Medium::Ssd(parameters) => Some(Ssd::new(**parameters, rng.fork("ssd"))),
        };
        Self {
            ends,
            disk: RamDisk::new(setup.namespace_bytes),
            ssd,
            due: Later::default(),
            rng: rng.fork("operations"),
            now: Instant::ZERO,
            task: None,
            tasks: 0,
            started: 0,
            began: BTreeMap::new(),
            awaited: BTreeMap::new(),
            outcome: Outcome::default(),
            wanted: None,
            chain: None,
            digest: Digest::default(),
            events: 0,
            setup: setup.clone(),
        }
    }

    /// Waits until the connection is made, and returns how long that took.
    ///
    /// # Errors
    /// When it is not made, as a sentence.
    pub fn boot(&mut self) -> Result<Nanos, String> {
        self.poll();
        while !self.ends.is_ready() {
            if let Some(why) = self.ends.failure() {
                return Err(format!("the connection is not made: {why}"));
            }
            if !self.step(Instant::ZERO + BOOT_MAX) {
                return Err(format!("the connection is not made within {BOOT_MAX}"));
            }
        }
        Ok(self.now - Instant::ZERO)
    }

    /// Runs a task to its end; `None` if it does not end within `limit`, or the connection is lost.
    /// A task that reads configuration space has nothing to read here, and fails.
    pub fn run(&mut self, task: Task, limit: Nanos) -> Option<Outcome> {
        let Task::Commands { depth, .. } = task else { return None };
        self.outcome = Outcome { began: self.now, ended: self.now, ..Outcome::default() };
        (self.task, self.started) = (Some(task), 0);
        self.tasks += 1;
        for _ in 0..depth {
            self.due.put(self.now, Due::Next(self.tasks));
        }
        let end = self.now + limit;
        while self.started < task.count() || !self.began.is_empty() {
            if !self.step(end) {
                return None;
            }
        }
        self.task = None;
        Some(std::mem::take(&mut self.outcome))
    }

    /// Follows operation `number` of the next task. Following changes nothing that happens.
    pub const fn follow(&mut self, number: u64) {
        self.wanted = Some(number);
    }

    /// Takes the critical path of the operation that was followed, once it has ended.
    pub const fn chain(&mut self) -> Option<Chain> {
        self.chain.take()
    }

    /// Gives the streams that share the paths an order.
    pub fn order_streams(&mut self, order: Order) {
        self.ends.order_streams(self.now, order);
        self.poll();
    }

    /// Shows the measurements of the streams from `side`.
    pub fn measured(&self, side: Side, look: &mut dyn FnMut(&Measured)) {
        self.ends.measured(side, look);
    }

    /// Lets this time pass.
    pub fn pass(&mut self, time: Nanos) {
        let end = self.now + time;
        while self.step(end) {}
        self.now = self.now.max(end);
    }

    /// Names of the hops for packets of `side`.
    pub fn hops(&self, side: Side) -> Vec<Named> {
        self.ends.hops(side)
    }

    /// Whether commands travel by RDMA.
    pub const fn is_rdma(&self) -> bool {
        matches!(self.setup.transport, Transport::Rdma(..))
    }

    /// Whether the controller's medium is an SSD.
    pub const fn has_ssd(&self) -> bool {
        self.ssd.is_some()
    }

    /// Number of events so far.
    pub fn events(&self) -> u64 {
        self.events + self.ends.events()
    }

    /// A fingerprint of all that has happened.
    pub fn digest(&self) -> u64 {
        self.digest.value() ^ self.ends.digest().rotate_left(1)
    }

    /// Carries out the next due event, unless that is later than `end`. Returns whether there was
    /// one.
    fn step(&mut self, end: Instant) -> bool {
        let Some(at) = [self.due.next(), self.ends.next()].into_iter().flatten().min() else { return false };
        if at > end {
            return false;
        }
        self.now = self.now.max(at);
        self.ends.advance(self.now);
        while let Some(due) = self.due.take(self.now) {
            self.events += 1;
            self.on_due(due);
        }
        self.poll();
        self.ends.failure().is_none()
    }

    /// Handles all outputs of both ends.
    fn poll(&mut self) {
        // An action of one end is news to the other, also without a report to its owner.
        let mut silent = 0;
        while silent < 2 {
            silent += 1;
            if let Some(completed) = self.ends.poll_host(self.now) {
                self.on_completed(completed.cookie, &completed.data, completed.entry.status());
            } else if let Some(demand) = self.ends.poll_controller(self.now) {
                self.on_demand(demand);
            } else {
                continue;
            }
            silent = 0;
        }
    }

    fn on_due(&mut self, due: Due) {
        match due {
            Due::Next(task) if task == self.tasks => self.begin(),
            // The task was over before.
            Due::Next(_) => {}
            Due::Execute(slot, entry, data, cause) => {
                self.ends.set_cause(Side::Far, cause);
                self.execute(slot, &entry, data);
            }
            Due::Noticed(slot, answer, cause) => {
                let at = self.ends.notice(Side::Far, self.now);
                let spot = Spot::Software(Side::Far);
                let cause = self.ends.marks().mark(cause, at, spot, Part::Processing, "polling or interrupt");
                self.due.put(at, Due::Respond(slot, answer, cause));
            }
            Due::Respond(slot, answer, cause) => {
                self.ends.set_cause(Side::Far, cause);
                self.respond(slot, answer);
            }
        }
    }

    /// The application begins an operation.
    fn begin(&mut self) {
        let Some(Task::Commands { kind, count, bytes, random, .. }) = self.task else { return };
        if self.started >= count {
            return;
        }
        let number = self.started;
        self.started += 1;
        self.began.insert(number, self.now);
        let places = (self.setup.namespace_bytes / u64::from(bytes)).max(1);
        let place = if random { self.rng.below(places) } else { number % places };
        let offset = place * u64::from(bytes);
        self.digest.word(self.now.as_nanos() ^ offset << 1);
        if self.wanted == Some(number) {
            self.ends.follow(true);
        }
        let start = self.ends.marks().mark(None, self.now, Spot::Software(Side::Near), Part::Processing, "");
        self.ends.set_cause(Side::Near, start);
        self.ends.work(Side::Near, self.setup.software.submit, "submission");
        let lba = offset / u64::from(BLOCK);
        let (opcode, data) = match kind {
            Kind::Read => (IoOpcode::Read, Data::Read(bytes)),
            Kind::Write => (IoOpcode::Write, Data::Write(pattern(number, bytes))),
            Kind::Flush => (IoOpcode::Flush, Data::None),
        };
        let entry = match kind {
            Kind::Flush => command::flush(NamespaceId(1)),
            Kind::Read | Kind::Write => command::on_blocks(opcode, NamespaceId(1), lba, bytes / BLOCK),
        };
        if !self.ends.submit(self.now, number, entry, data) {
            self.end(number, None, self.now);
        }
    }

    /// The host's end has a completion.
    fn on_completed(&mut self, number: u64, data: &Buffer, status: Status) {
        let at = self.ends.work(Side::Near, self.setup.software.complete, "completion in the application");
        let expected = match self.task {
            Some(Task::Commands { kind: Kind::Read, bytes, .. }) => bytes as usize,
            _ => 0,
        };
        let is_good = status.is_success() && data.len() == expected;
        self.digest.word(self.now.as_nanos());
        self.end(number, is_good.then_some(at), at);
    }

    /// An operation has ended at `at`; `measured` is the time if it was good.
    fn end(&mut self, number: u64, measured: Option<Instant>, at: Instant) {
        let Some(Task::Commands { bytes, depth, gap, .. }) = self.task else { return };
        let began = self.began.remove(&number).unwrap_or(at);
        match measured {
            None => self.outcome.failed += 1,
            Some(ended) => {
                self.outcome.times.push(ended - began);
                self.outcome.numbers.push(number);
                self.outcome.ends.push((ended, bytes));
                self.outcome.ended = self.outcome.ended.max(ended);
                self.outcome.bytes += u64::from(bytes);
            }
        }
        if self.wanted == Some(number) {
            let last = self.ends.cause(Side::Near);
            self.chain = Some(self.segments(number, began, at, last));
            self.wanted = None;
            self.ends.follow(false);
        }
        let pause = match depth {
            1 => gap / 2 + Nanos::new(self.rng.below(gap.get() + 1)),
            _ => Nanos::ZERO,
        };
        self.due.put(at + pause, Due::Next(self.tasks));
    }

    /// The critical path that led to `last`.
    fn segments(&mut self, number: u64, began: Instant, ended: Instant, last: Cause) -> Chain {
        let is_rdma = self.is_rdma();
        let mut at = began;
        let mut segments = Vec::new();
        for mark in self.ends.marks().chain(last) {
            let until = mark.at.min(ended);
            if until >= at {
                segments.push(Segment {
                    start: at - began,
                    length: until - at,
                    place: place(mark.spot, is_rdma),
                    part: mark.part,
                    what: mark.what,
                    packet: None,
                });
                at = until;
            }
        }
        Chain { number, latency: ended - began, segments }
    }

    /// The controller's end asks for something.
    fn on_demand(&mut self, demand: Demand) {
        match demand {
            Demand::Command(slot, entry) => {
                let at = self.ends.work(Side::Far, self.setup.software.command, "command");
                let cause = self.ends.cause(Side::Far);
                if entry.opcode == u8::from(IoOpcode::Write) {
                    let length = bytes_of(&entry);
                    match self.ends.pull(self.now, slot, length) {
                        Ok(Some(data)) => self.due.put(at, Due::Execute(slot, entry, Some(data), cause)),
                        Ok(None) => drop(self.awaited.insert(slot, entry)),
                        Err(status) => self.answer(slot, status),
                    }
                } else {
                    self.due.put(at, Due::Execute(slot, entry, None, cause));
                }
            }
            Demand::Data(slot, data) => {
                let Some(entry) = self.awaited.remove(&slot) else { return };
                let cause = self.ends.cause(Side::Far);
                self.due.put(self.now, Due::Execute(slot, entry, Some(data), cause));
            }
        }
    }

    fn answer(&mut self, slot: Slot, status: Status) {
        let answer = Answer { status, pieces: Vec::new(), total: 0 };
        let cause = self.ends.cause(Side::Far);
        self.due.put(self.now, Due::Respond(slot, answer, cause));
    }

    /// The medium does a command.
    fn execute(&mut self, slot: Slot, entry: &SubmissionQueueEntry, data: Option<Buffer>) {
        let (offset, bytes) = (entry.starting_lba().saturating_mul(u64::from(BLOCK)), bytes_of(entry));
        let is_read = data.is_none() && entry.opcode == u8::from(IoOpcode::Read);
        let length = if entry.opcode == u8::from(IoOpcode::Flush) { 0 } else { bytes };
        if offset.checked_add(u64::from(length)).is_none_or(|end| end > self.setup.namespace_bytes) {
            return self.answer(slot, StatusCode::LbaOutOfRange.into());
        }
        let operation = match data {
            Some(data) => Operation::Write { offset, data, durable: false },
            None if is_read => Operation::Read { offset, length },
            None => Operation::Flush,
        };
        let mut answer =
            Answer { status: Status::SUCCESS, pieces: Vec::new(), total: if is_read { length } else { 0 } };
        let request = Request { id: IoId(u32::from(slot.0)), medium: MediumId(0), operation };
        self.disk.submit(request, &mut |completion| match completion {
            Completion::Data { offset, data, .. } => answer.pieces.push((offset, data)),
            Completion::Done { result: Ok(()), .. } => {}
            Completion::Done { .. } => answer.status = StatusCode::InternalError.into(),
        });
        let cause = self.ends.cause(Side::Far);
        match (&mut self.ssd, &self.setup.medium) {
            (Some(ssd), _) => {
                let begin = self.now + ssd.parameters().fetch + ssd.parameters().firmware;
                let done = if is_read {
                    ssd.read(begin, offset, length.into(), |_, _, _| ())
                } else if length > 0 {
                    ssd.write(begin, offset, length.into())
                } else {
                    ssd.flush(begin)
                };
                let done = done + ssd.parameters().completion;
                let cause = self.ends.marks().mark(cause, done, Spot::Medium, Part::Processing, "SSD");
                self.due.put(done, Due::Noticed(slot, answer, cause));
            }
            (None, Medium::Memory { rate }) => {
                let copy = Nanos::new(u64::from(length) * 1_000_000_000 / (*rate).max(1));
                let done = self.ends.work(Side::Far, copy, "copy from or to memory");
                let cause = self.ends.cause(Side::Far);
                self.due.put(done, Due::Respond(slot, answer, cause));
            }
            (None, Medium::Ssd(_)) => unreachable!("an SSD was made for it"),
        }
    }

    /// The controller answers a command.
    fn respond(&mut self, slot: Slot, answer: Answer) {
        self.ends.work(Side::Far, self.setup.software.respond, "response");
        let mut status = answer.status;
        for (offset, data) in answer.pieces {
            if let Err(refused) = self.ends.push(self.now, slot, offset, answer.total, data) {
                status = refused;
            }
        }
        let entry = CompletionQueueEntry::default().with_status(status, false);
        self.ends.complete(self.now, slot, entry);
    }
}

/// Where the reports show the time of `spot`.
const fn place(spot: Spot, is_rdma: bool) -> Place {
    match spot {
        Spot::Software(Side::Near) => Place::Host,
        Spot::Bus(Side::Near) => Place::HostLink,
        Spot::Card(side) if is_rdma => Place::Card(side),
        Spot::Card(side) => Place::Stack(side),
        Spot::Hop(side, hop) => Place::Hop(side, hop),
        Spot::Bus(Side::Far) => Place::DeviceLink,
        Spot::Software(Side::Far) => Place::Target,
        Spot::Medium => Place::Ssd,
    }
}

/// Bytes that a Read or Write moves.
fn bytes_of(entry: &SubmissionQueueEntry) -> u32 {
    // Number of Logical Blocks (NLB) is 0's based.
    ((entry.cdw12 & 0xffff) + 1).saturating_mul(BLOCK)
}

/// The data of write `number`.
fn pattern(number: u64, bytes: u32) -> Buffer {
    let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let data: Vec<u8> = word.into_iter().cycle().take(bytes as usize).collect();
    Buffer::from(data)
}
