//! The node of a host: a real near machine, a model of the times of its memory and its driver, and
//! an analyser on the root port's link.

use std::collections::{BTreeMap, VecDeque};

use assemblies::near::{self, ControllerIndex, Near};
use assemblies::watch;
use engine::{Engine, Instant, Nanos, Rng, Watch};
use network_models::trail::Part;
use nvme::wire::{IoOpcode, NamespaceId};
use nvme_pcie::host::{Data, QueueId, Submission};
use pcie::memory::Memory as _;
use pcie::wire::{Kind as TlpKind, MemoryOperation, Packet};
use sim::Context;
use sim::models::host::{Memory, Parameters};

use super::Cargo;
use super::chain::Place;
use super::interrupts;
use super::jobs::{Job, Jobs, Operation, Wish};
use super::journal::{Cause, Journal, Step};
use super::port::Port;
use super::task::{Kind, Outcome, Seen, Task, What, classify};
use sim::Later;

/// The queue that all commands go to.
const QUEUE: QueueId = QueueId(1);
const NAMESPACE: NamespaceId = NamespaceId(1);
/// The only controller of a bench.
const CONTROLLER: ControllerIndex = ControllerIndex(0);
/// Length of a logical block in bytes.
const BLOCK: u64 = 512;
/// How long a job waits after the driver has refused a command.
const REFUSED: Nanos = Nanos::from_micros(1);
/// Number of failures and reasons for resets that are kept.
const FAILURES_MAX: usize = 64;
/// Number of packets that the analyser keeps.
const SEEN_MAX: usize = 1 << 20;

/// An action that waits for its time.
#[derive(Debug)]
enum Due {
    /// Host memory answers a read.
    Read(Packet),
    /// The interrupt handler looks at the queues.
    Interrupt(Packet),
    /// The task starts its next operation.
    Next,
    /// A job begins its next command.
    Job(usize),
    /// The command in this place of the jobs reaches the driver.
    Submit(usize),
}

/// How far a command at a depth of 1 has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No command is outstanding.
    Idle,
    /// The command's submission doorbell has not left.
    Submitted,
    /// The submission doorbell left at this time.
    Rung(Instant),
    /// The completion was seen, but its doorbell has not left. The time is that of the
    /// submission doorbell.
    Completed(Instant),
}

/// A host: a near machine, models of its times, and the task or the jobs that it runs.
#[derive(Debug)]
pub(super) struct HostNode {
    config: near::Config,
    parameters: Parameters,
    near: Option<Near>,
    memory: Memory,
    port: Port,
    due: Later<(Cause, Due)>,
    /// Writes of completion-queue entries that no interrupt handler has looked at.
    entries: Vec<Packet>,
    kinds: BTreeMap<u16, Kind>,
    rng: Rng,
    task: Option<Task>,
    started: u64,
    under_way: u32,
    free: Vec<u32>,
    slots: BTreeMap<u64, u32>,
    stage: Stage,
    jobs: Jobs,
    config_began: Option<Instant>,
    pub(super) outcome: Outcome,
    pub(super) enumerated: bool,
    pub(super) ready: bool,
    pub(super) failures: Vec<String>,
    analyser: Option<VecDeque<Seen>>,
    /// The watchers of the packets themselves.
    watch: Watch<watch::Port>,
    bytes: u64,
    journal: Journal,
    /// The journal's mark of the event that is being handled.
    cause: Cause,
}

impl HostNode {
    pub(super) fn new(
        config: near::Config,
        parameters: Parameters,
        port: Port,
        bytes: u64,
        rng: Rng,
        journal: Journal,
    ) -> Self {
        Self {
            config,
            parameters,
            near: None,
            memory: Memory::new(parameters),
            port,
            due: Later::default(),
            entries: Vec::new(),
            kinds: BTreeMap::new(),
            rng,
            task: None,
            started: 0,
            under_way: 0,
            free: Vec::new(),
            slots: BTreeMap::new(),
            stage: Stage::Idle,
            jobs: Jobs::default(),
            config_began: None,
            outcome: Outcome::default(),
            enumerated: false,
            ready: false,
            failures: Vec::new(),
            analyser: None,
            watch: Watch::new(),
            bytes,
            journal,
            cause: None,
        }
    }

    /// Switches the host on: it enumerates the hierarchy and brings the controller up.
    pub(super) fn power_on(&mut self, now: Instant) {
        self.near = Some(Near::direct(self.config, now));
    }

    /// Starts a task, with nothing left of the task before.
    pub(super) fn start(&mut self, now: Instant, task: Task) {
        self.outcome = Outcome { began: now, ended: now, ..Outcome::default() };
        (self.started, self.stage) = (0, Stage::Idle);
        self.free = match task {
            Task::Commands { depth, .. } => (0..depth).rev().collect(),
            Task::ConfigReads { .. } => vec![0],
        };
        self.task = Some(task);
        for _ in 0..self.free.len() {
            self.due.put(now, (None, Due::Next));
        }
    }

    /// Starts jobs, which run side by side.
    pub(super) fn start_jobs(&mut self, now: Instant, jobs: Vec<Job>) {
        (self.task, self.stage) = (None, Stage::Idle);
        self.jobs = Jobs::new(now, jobs, &self.rng.fork("jobs"));
        for number in 0..self.jobs.len() {
            self.ask(now, number);
        }
    }

    /// Takes the jobs out, so that none are left.
    pub(super) fn end_jobs(&mut self) -> Jobs {
        std::mem::take(&mut self.jobs)
    }

    /// Whether a job has work left.
    pub(super) fn has_jobs(&self, now: Instant) -> bool {
        self.jobs.is_busy(now)
    }

    /// Whether the task has work left.
    pub(super) fn is_busy(&self) -> bool {
        self.task.is_some_and(|task| {
            self.started < task.count() || self.under_way > 0 || self.stage != Stage::Idle
        })
    }

    /// Switches the analyser on or off, and returns the packets that it has seen.
    pub(super) fn analyse(&mut self, on: bool) -> Vec<Seen> {
        let seen = self.analyser.take().map(Vec::from).unwrap_or_default();
        self.analyser = on.then(VecDeque::new);
        seen
    }

    /// The packets on the root port's link, each at the time of its first symbol there. They are
    /// shown when they are sent and when they have arrived, so those of the two directions may be
    /// shown in another order than their times'.
    pub(super) const fn watch(&mut self) -> &mut Watch<watch::Port> {
        &mut self.watch
    }

    /// The near machine; `None` before the host is switched on.
    pub(super) const fn near(&self) -> Option<&Near> {
        self.near.as_ref()
    }

    pub(super) fn receive(&mut self, now: Instant, packet: Packet, cause: Cause) {
        self.cause = cause;
        let start = self.port.receive(now, &packet);
        let what = self.see(start, false, &packet);
        let Some(near) = &mut self.near else { return };
        match (what, &packet.header.kind) {
            (What::Completion, _) if packet.tag() == interrupts::TAG => self.ready = true,
            (What::MemoryRead, TlpKind::Memory(request)) => {
                let queue = is_queue(near, request.address);
                let at = self.memory.read(now, request.address, queue);
                let cause = self.work(at, "root complex and memory");
                self.due.put(at, (cause, Due::Read(packet)));
            }
            (What::MemoryWrite, TlpKind::Memory(request))
                if self.ready && is_queue(near, request.address) =>
            {
                self.entries.push(packet);
            }
            (What::Interrupt, _) if self.ready => {
                let time = match self.entries.last().and_then(|entry| self.kinds.get(&command_of(entry))) {
                    Some(Kind::Write | Kind::Flush) => self.parameters.complete_write,
                    Some(Kind::Read) | None => self.parameters.complete_read,
                };
                let cause = self.work(now + time, "interrupt, driver, application");
                self.due.put(now + time, (cause, Due::Interrupt(packet)));
            }
            (what, _) => {
                near.handle_input(now, near::Input::Packet(packet));
                if what == What::Completion
                    && let Some(began) = self.config_began.take()
                {
                    self.measured(self.started - 1, began, start, cause);
                }
            }
        }
    }

    pub(super) fn settle(&mut self, context: &mut Context<'_, Cargo>) -> Option<Instant> {
        let now = context.now();
        while let Some((cause, due)) = self.due.take(now) {
            self.cause = cause;
            self.on_due(now, due);
        }
        let near = self.near.as_mut()?;
        if near.poll_timeout().is_some_and(|at| at <= now) {
            near.handle_timeout(now);
        }
        while let Some(output) = self.near.as_mut().and_then(Engine::poll_output) {
            match output {
                near::Output::Packet(packet) => self.send(context, packet),
                near::Output::Event(event) => self.on_event(context, event),
                output => unreachable!("a host with one link has no use for {output:?}"),
            }
        }
        [self.near.as_ref()?.poll_timeout(), self.due.next()].into_iter().flatten().min()
    }

    fn send(&mut self, context: &mut Context<'_, Cargo>, packet: Packet) {
        let header = packet.header;
        let copy = (self.analyser.is_some() || self.watch.is_on()).then(|| packet.clone());
        let sent = self.port.send(context, packet, self.cause);
        let passage = sent.passage;
        if let Some(copy) = copy {
            self.see(passage.start, true, &copy);
        }
        match header.kind {
            TlpKind::Config(_) if self.under_way > 0 && self.ready => {
                self.config_began = Some(passage.start);
            }
            TlpKind::Memory(request) if request.operation == MemoryOperation::Write => {
                self.on_doorbell(passage.start, sent.started);
            }
            _ => {}
        }
    }

    /// Notes that a doorbell leaves the root port at `start`.
    fn on_doorbell(&mut self, start: Instant, started: Cause) {
        match self.stage {
            Stage::Submitted => self.stage = Stage::Rung(start),
            Stage::Completed(rung) => {
                let link = self.port.link();
                // A doorbell has a header of 12 bytes and 4 bytes of data.
                let length = link.serialise(16 + sim::models::pcie::FRAMING);
                let acknowledged = start + length + link.acknowledge;
                let step = |part, what| Step { place: Place::HostLink, part, what };
                let sent = self.journal.mark(started, start + length, step(Part::Serialisation, ""));
                let step = step(Part::Propagation, "until the link acknowledges");
                let cause = self.journal.mark(sent, acknowledged, step);
                self.measured(self.started - 1, rung, acknowledged, cause);
                self.stage = Stage::Idle;
                self.next_after_gap(acknowledged);
            }
            Stage::Idle | Stage::Rung(_) => {}
        }
    }

    fn on_due(&mut self, now: Instant, due: Due) {
        let Some(near) = &mut self.near else { return };
        match due {
            Due::Read(packet) => near.handle_input(now, near::Input::Packet(packet)),
            Due::Interrupt(packet) => {
                for entry in self.entries.drain(..) {
                    near.handle_input(now, near::Input::Packet(entry));
                }
                near.handle_input(now, near::Input::Packet(packet));
            }
            Due::Next => self.next(now),
            Due::Job(number) => {
                self.jobs.woken(number);
                self.ask(now, number);
            }
            Due::Submit(place) => self.submit_of_job(now, place),
        }
    }

    /// Starts the task's next operation, if any is left.
    fn next(&mut self, now: Instant) {
        let Some(task) = self.task.filter(|task| self.started < task.count()) else { return };
        let Some(slot) = self.free.pop() else { return };
        let number = self.started;
        self.begin(now, number, &task);
        let near = self.near.as_mut().expect("a task is for a host that is on");
        self.started += 1;
        self.under_way += 1;
        match task {
            Task::ConfigReads { .. } => {
                let target = near.controllers().next().map(|(_, target)| target);
                let cookie = u32::try_from(number % u64::from(u32::MAX)).expect("it was reduced");
                if target.is_none_or(|target| near.config_read(now, target, 0, cookie).is_err()) {
                    self.refused(now, slot);
                }
            }
            Task::Commands { kind, bytes, depth, random, .. } => {
                let places = (self.bytes / u64::from(bytes)).max(1);
                let place = if random { self.rng.below(places) } else { number % places };
                let operation = Operation {
                    at: Nanos::ZERO,
                    kind,
                    offset: place * u64::from(bytes),
                    length: if kind == Kind::Flush { 0 } else { bytes },
                };
                if !self.submit(now, &operation, u64::from(slot) * u64::from(bytes), number) {
                    return self.refused(now, slot);
                }
                self.slots.insert(number, slot);
                if depth == 1 {
                    self.stage = Stage::Submitted;
                }
            }
        }
    }

    /// Counts an operation as failed that was not begun, because the device is gone, be it for a
    /// while or for good.
    fn refused(&mut self, now: Instant, slot: u32) {
        self.under_way -= 1;
        self.outcome.failed += 1;
        self.free.push(slot);
        self.next_after_gap(now + REFUSED);
    }

    /// Submits a command to the driver, with its data at offset `data` of the data region. Returns
    /// whether the driver took the command.
    fn submit(&mut self, now: Instant, operation: &Operation, data: u64, cookie: u64) -> bool {
        let near = self.near.as_mut().expect("commands are for a host that is on");
        let Some(driver) = near.driver(CONTROLLER) else { return false };
        let data = Data { address: driver.data_region().base + data, length: operation.length };
        let lba = operation.offset / BLOCK;
        let blocks = operation.length / u32::try_from(BLOCK).expect("a block is short");
        let submission = match operation.kind {
            Kind::Read => Submission::on_blocks(IoOpcode::Read, QUEUE, NAMESPACE, lba, blocks, data, cookie),
            Kind::Write => {
                self.memory.map(data.address, u64::from(data.length));
                let stamp = cookie.to_le_bytes();
                near.memory_mut().write(data.address, &stamp).expect("a slot is in the data region");
                Submission::on_blocks(IoOpcode::Write, QUEUE, NAMESPACE, lba, blocks, data, cookie)
            }
            Kind::Flush => Submission::flush(QUEUE, NAMESPACE, cookie),
        };
        let Ok(command) = near.submit(now, CONTROLLER, submission) else { return false };
        self.kinds.insert(command.0, operation.kind);
        true
    }

    /// Carries out the wishes of a job.
    fn ask(&mut self, now: Instant, number: usize) {
        while let Some(wish) = self.jobs.ask(now, number) {
            match wish {
                Wish::Wait(until) => self.due.put(until, (None, Due::Job(number))),
                Wish::Submit(place) => self.due.put(now + self.parameters.submit, (None, Due::Submit(place))),
            }
        }
    }

    fn submit_of_job(&mut self, now: Instant, place: usize) {
        let flight = *self.jobs.flight(place);
        if !self.submit(now, &flight.operation, flight.data, place as u64) {
            let job = self.jobs.finish(now, place, false);
            // The job is not asked at once: with a driver that refuses every command, this would
            // never end.
            self.due.put(now + REFUSED, (None, Due::Job(job)));
        }
    }

    fn on_event(&mut self, context: &mut Context<'_, Cargo>, event: near::Event) {
        let now = context.now();
        match event {
            near::Event::Enumerated => self.enumerated = true,
            near::Event::Ready { .. } => {
                // This happens again after each reset of the device.
                if let Some(near) = &self.near {
                    interrupts::enable(near).into_iter().for_each(|packet| self.send(context, packet));
                }
            }
            near::Event::Failed(failure) => self.failures.push(failure.to_string()),
            near::Event::ConfigRead { result, .. } => {
                self.under_way -= 1;
                self.free.push(0);
                if result.is_err() {
                    self.outcome.failed += 1;
                    self.config_began = None;
                }
                self.next_after_gap(now);
            }
            near::Event::Completed { completed, .. } if self.jobs.len() > 0 => {
                let place = usize::try_from(completed.cookie).expect("a job's place");
                let job = self.jobs.finish(now, place, completed.status.is_success());
                self.ask(now, job);
            }
            near::Event::Completed { completed, .. } => {
                self.under_way -= 1;
                let succeeded = completed.status.is_success();
                self.outcome.failed += u64::from(!succeeded);
                if let Some(slot) = self.slots.remove(&completed.cookie) {
                    self.free.push(slot);
                }
                let Some(Task::Commands { bytes, .. }) = self.task else { return };
                if succeeded {
                    self.outcome.bytes += u64::from(bytes);
                }
                match self.stage {
                    Stage::Rung(rung) if succeeded => self.stage = Stage::Completed(rung),
                    // The command may have ended without the device, and then no doorbell follows.
                    Stage::Submitted | Stage::Rung(_) => {
                        self.stage = Stage::Idle;
                        self.next_after_gap(now);
                    }
                    Stage::Idle | Stage::Completed(_) => {
                        if succeeded {
                            let (begin, end) = (completed.submitted, completed.completed);
                            self.measured(completed.cookie, begin, end, self.cause);
                        }
                        self.outcome.ended = now;
                        let at = now + self.parameters.submit;
                        let cause = self.work(at, "system call, block layer, driver");
                        self.due.put(at, (cause, Due::Next));
                    }
                }
            }
            near::Event::Resetting { reason, .. } => {
                if self.failures.len() < FAILURES_MAX {
                    self.failures.push(format!("{reason:?}"));
                }
                // The completion's doorbell will not come any more.
                if matches!(self.stage, Stage::Completed(_)) {
                    self.stage = Stage::Idle;
                    self.next_after_gap(now);
                }
            }
            near::Event::Link { .. }
            | near::Event::Asynchronous { .. }
            | near::Event::RegisterRead { .. } => {}
        }
    }

    /// Notes in the journal that operation `number` begins.
    fn begin(&mut self, now: Instant, number: u64, task: &Task) {
        let others = match task {
            // The journal begins two rounds earlier, so that operations that this one waits for are
            // followed, too.
            Task::Commands { depth, .. } if *depth > 1 => 2 * u64::from(*depth),
            Task::Commands { .. } | Task::ConfigReads { .. } => 0,
        };
        self.journal.begin(number, others);
        if self.cause.is_none() {
            let step = Step { place: Place::Host, part: Part::Processing, what: "submission" };
            self.cause = self.journal.mark(None, now, step);
        }
    }

    /// Records the time of operation `number`, which has ended because of `cause`.
    fn measured(&mut self, number: u64, began: Instant, ended: Instant, cause: Cause) {
        self.outcome.times.push(ended - began);
        let bytes = match self.task {
            Some(Task::Commands { bytes, .. }) => bytes,
            Some(Task::ConfigReads { .. }) | None => 0,
        };
        self.outcome.ends.push((ended, bytes));
        self.outcome.numbers.push(number);
        self.outcome.ended = ended;
        self.journal.end(number, cause, began, ended);
    }

    /// Marks that the host works on the current event until `at`.
    fn work(&self, at: Instant, what: &'static str) -> Cause {
        self.journal.mark(self.cause, at, Step { place: Place::Host, part: Part::Processing, what })
    }

    fn next_after_gap(&mut self, now: Instant) {
        let gap = match self.task {
            Some(Task::ConfigReads { gap, .. } | Task::Commands { gap, .. }) => gap,
            None => return,
        };
        let varied = Nanos::new(self.rng.below(gap.get() + 1));
        self.due.put(now + gap / 2 + varied, (None, Due::Next));
    }

    /// Classifies a packet, and shows it to the watchers.
    fn see(&mut self, at: Instant, down: bool, packet: &Packet) -> What {
        let (what, bytes) = classify(packet);
        let direction = if down { watch::Direction::Down } else { watch::Direction::Up };
        self.watch.show(at, || watch::Seen::Packet { direction, packet, arrival: None });
        if let Some(seen) = self.analyser.as_mut().filter(|seen| seen.len() < SEEN_MAX) {
            seen.push_back(Seen { at, down, what, bytes });
        }
        what
    }
}

/// Whether `address` is in the driver's queues, which lie below the data region.
fn is_queue(near: &Near, address: u64) -> bool {
    near.driver(CONTROLLER).is_none_or(|driver| address < driver.data_region().base)
}

/// The identifier of the command that a completion-queue entry is about.
fn command_of(entry: &Packet) -> u16 {
    entry.payload.get(12..14).map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
}
