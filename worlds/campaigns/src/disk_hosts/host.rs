//! A host's node: a near machine with a workload on the namespace that all hosts share and one on a
//! namespace of its own, and with wishes about the reservation of the shared one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use assemblies::near::{self, ControllerIndex, Near};
use engine::{Engine, Instant, Nanos, Rng};
use nvme::host::{Origin, command};
use nvme::wire::{IoOpcode, NamespaceId, SubmissionQueueEntry};
use nvme_pcie::host::{Completed, Data, QueueId, Submission, SubmitError};
use pcie::memory::Memory;
use sim::dialled::{DialledConnections, DialledEvent};
use sim::stream::{ConnectionId, StreamEvent};
use sim::{Context, NodeId};
use tunnel::session::Config as SessionConfig;

use super::rules::{ChangeId, HostNumber, Rules, Ticket, Type, Wish};
use super::{HOLD, SHARED};
use crate::campaign::Outcome;
use crate::checker::{End, Kind};
use crate::session::instance;
use crate::workload::{Operation, Phase, Workload};

/// Fills the memory of a read in advance, so that missing bytes are noticed.
const UNFILLED: u8 = 0xee;
/// Number of last events that are kept for the report of a failed run.
const EVENTS_MAX: usize = 12;
/// Ignore Existing Key (IEKEY) of a reservation command.
const IGNORE_KEY: u32 = 1 << 3;
/// How long the host that clears the reservation waits for the others, once the world is healed:
/// what they left behind is over by then.
const CLEAR_AFTER: Nanos = Nanos::new(HOLD.get() * 4);

/// A command that has not ended.
#[derive(Debug)]
enum Issued {
    /// An operation of the workload on a namespace.
    Access(usize, Operation, Ticket),
    Change(ChangeId, Wish),
}

/// What a host's node is made of.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) number: HostNumber,
    pub(super) settings: near::Config,
    pub(super) session: SessionConfig,
    pub(super) peer: NodeId,
    /// The namespaces, the shared one first, with their workloads.
    pub(super) works: Vec<(NamespaceId, Workload)>,
    /// The model of the reservation, and the number of hosts with wishes about it.
    pub(super) rules: Rc<RefCell<Rules>>,
    pub(super) rivals: usize,
    pub(super) slots: u64,
    pub(super) slot_bytes: u64,
}

/// A host over a tunnel: its near machine, its connections and its workloads.
#[derive(Debug)]
pub(super) struct HostNode {
    of: Parts,
    near: Near,
    connections: DialledConnections,
    rng: Rng,
    /// An operation that no queue had room for yet.
    pending: Option<(usize, Operation)>,
    issued: BTreeMap<u64, (Issued, u64)>,
    cookies: u64,
    free: Vec<u64>,
    phase: Phase,
    /// When the host has another wish.
    wishes_at: Instant,
    /// Whether this host has cleared the reservation after the faults.
    is_cleared: bool,
    events: Vec<String>,
}

impl HostNode {
    pub(super) fn new(of: Parts, rng: &Rng) -> Self {
        let near = build(&of, rng);
        let connections = near.upstream().map_or(1, |upstream| upstream.connections());
        let is_cleared = of.number.0 > 0 || of.rivals == 0;
        Self {
            near,
            connections: DialledConnections::new(connections),
            rng: rng.fork("wishes"),
            pending: None,
            issued: BTreeMap::new(),
            cookies: 0,
            free: (0..of.slots).collect(),
            phase: Phase::Chaos,
            wishes_at: Instant::ZERO,
            is_cleared,
            events: Vec::new(),
            of,
        }
    }

    pub(super) fn handle(&mut self, now: Instant, connection: ConnectionId, event: StreamEvent) {
        let Some((index, event)) = self.connections.on_event(connection, event) else { return };
        let input = match event {
            DialledEvent::Connected => near::Input::Connected(index),
            DialledEvent::Received(bytes) => near::Input::Received(index, bytes),
            DialledEvent::Disconnected => near::Input::Disconnected(index),
        };
        self.near.handle_input(now, input);
    }

    pub(super) fn settle<P>(&mut self, context: &mut Context<'_, P>) -> Option<Instant> {
        let now = context.now();
        if self.near.poll_timeout().is_some_and(|at| at <= now) {
            self.near.handle_timeout(now);
        }
        loop {
            self.wish(now);
            self.access(now);
            let Some(output) = self.near.poll_output() else { break };
            match output {
                near::Output::Connect(index) => self.connections.dial(context, index, self.of.peer),
                near::Output::Transmit(index, bytes) => self.connections.push(index, bytes),
                near::Output::Close(index) => self.connections.close(context, index),
                near::Output::Packet(packet) => unreachable!("there is no direct link for {packet}"),
                near::Output::Event(near::Event::Completed { completed, .. }) => {
                    self.on_completed(&completed)
                }
                near::Output::Event(event) => self.note(now, &event),
            }
        }
        self.connections.flush(context);
        let pauses = self.of.works.iter().filter_map(|(_, work)| work.poll_timeout(now));
        let wishes = (self.wishes_at > now).then_some(self.wishes_at);
        self.near.poll_timeout().into_iter().chain(pauses).chain(wishes).min()
    }

    fn note(&mut self, now: Instant, event: &near::Event) {
        if self.events.len() == EVENTS_MAX {
            self.events.remove(0);
        }
        let text: String = format!("{event:?}").chars().take(160).collect();
        self.events.push(format!("{}: {text}", now - Instant::ZERO));
    }

    /// Submits the next operations of the workloads.
    fn access(&mut self, now: Instant) {
        while !self.free.is_empty() {
            let next = self.pending.take().or_else(|| {
                let mut works = self.of.works.iter_mut().enumerate();
                works.find_map(|(index, (_, work))| Some((index, work.poll(now)?)))
            });
            let Some((index, operation)) = next else { return };
            let (namespace, work) = &self.of.works[index];
            let mut bytes = vec![UNFILLED; work.length(&operation)];
            if operation.kind == Kind::Write {
                work.stamp(&operation, &mut bytes);
            }
            let ticket = self.of.rules.borrow().ticket();
            let entry = entry_of(&operation, *namespace);
            match self.submit(now, entry, &bytes, Issued::Access(index, operation, ticket)) {
                None => {}
                Some(Issued::Access(index, operation, _)) => {
                    self.pending = Some((index, operation));
                    return;
                }
                Some(Issued::Change(..)) => unreachable!("it was an access"),
            }
        }
    }

    /// Submits a command with its data. Returns it if there is no room, or no controller.
    fn submit(
        &mut self,
        now: Instant,
        entry: SubmissionQueueEntry,
        bytes: &[u8],
        issued: Issued,
    ) -> Option<Issued> {
        let controller = self.near.controllers().map(|(controller, _)| controller).next();
        let place = controller.and_then(|one| Some((one, self.near.driver(one)?.data_region().base)));
        let (Some((controller, base)), Some(&slot)) = (place, self.free.last()) else { return Some(issued) };
        let address = base + slot * self.of.slot_bytes;
        self.near.memory_mut().write(address, bytes).expect("a slot lies within the data region");
        let length = u32::try_from(bytes.len()).expect("a short transfer");
        let data = (length > 0).then_some(Data { address, length });
        self.cookies += 1;
        let queues = u64::from(self.of.settings.driver.queue_pairs);
        let queue = QueueId(1 + u16::try_from(slot % queues).expect("few queues"));
        match self.near.submit(now, controller, Submission { queue, entry, data, cookie: self.cookies }) {
            Ok(_) => {
                self.free.pop();
                self.issued.insert(self.cookies, (issued, slot));
                None
            }
            Err(SubmitError::Busy | SubmitError::NotReady) => Some(issued),
            Err(error) => panic!("{issued:?} was refused: {error}"),
        }
    }

    /// Has a wish about the reservation now and then. After the faults, the first host clears it.
    fn wish(&mut self, now: Instant) {
        let has_one = self.issued.values().any(|(one, _)| matches!(one, Issued::Change(..)));
        if self.wishes_at > now || has_one || self.free.is_empty() || self.of.rivals == 0 {
            return;
        }
        let wish = match self.phase {
            Phase::Chaos => self.draw(),
            Phase::Drain if !self.is_cleared => {
                if self.wishes_at == Instant::ZERO {
                    self.wishes_at = now + CLEAR_AFTER;
                    return;
                }
                // A host that is not registered can't clear anything.
                if self.rng.one_in(2) { Wish::Register } else { Wish::Clear }
            }
            _ => return,
        };
        self.wishes_at = now + Nanos::new(1 + self.rng.below(HOLD.get() / 4));
        let (entry, keys) = command_of(wish, self.of.number);
        let change = self.of.rules.borrow_mut().begin(self.of.number, wish);
        let bytes: Vec<u8> = keys.into_iter().flat_map(u64::to_le_bytes).collect();
        if self.submit(now, entry, &bytes, Issued::Change(change, wish)).is_some() {
            self.of.rules.borrow_mut().end(change, false);
        }
    }

    fn draw(&mut self) -> Wish {
        let kind = if self.rng.one_in(2) { Type::WriteExclusive } else { Type::ExclusiveAccess };
        let other = usize::try_from(self.rng.below(self.of.rivals as u64)).expect("few hosts");
        match self.rng.below(12) {
            0..4 => Wish::Register,
            4..7 => Wish::Acquire(kind),
            7..9 => Wish::Preempt(kind, HostNumber(other)),
            9..11 => Wish::Release(kind),
            _ => Wish::Unregister,
        }
    }

    fn on_completed(&mut self, completed: &Completed) {
        let Some((issued, slot)) = self.issued.remove(&completed.cookie) else {
            panic!("{completed:?} was not outstanding");
        };
        self.free.push(slot);
        let (code, host) = (completed.status.code(), self.of.number);
        let is_answered = completed.origin != Origin::Host;
        if is_answered && completed.status.is_success() {
            self.of.rules.borrow_mut().settle(host);
        }
        match issued {
            Issued::Change(change, _) if !is_answered => self.of.rules.borrow_mut().doubt(change),
            Issued::Change(change, wish) => {
                let success = completed.status.is_success();
                self.of.rules.borrow_mut().end(change, success);
                self.is_cleared |= self.phase == Phase::Drain && success && wish == Wish::Clear;
            }
            Issued::Access(index, operation, _) if !is_answered => self.of.works[index].1.doubt(operation.id),
            Issued::Access(index, operation, ticket) => {
                let is_write = matches!(operation.kind, Kind::Write | Kind::WriteZeroes);
                if index == 0 && operation.kind != Kind::Flush {
                    self.of.rules.borrow_mut().judge(host, is_write, ticket, code);
                }
                self.end_access(index, &operation, slot, completed.status.is_success());
            }
        }
    }

    fn end_access(&mut self, index: usize, operation: &Operation, slot: u64, success: bool) {
        let work = &mut self.of.works[index].1;
        if !success {
            return work.end(operation.id, End::Failed);
        }
        let length = if operation.kind == Kind::Read { work.length(operation) } else { 0 };
        let base = self.near.driver(ControllerIndex(0)).expect("it completes").data_region().base;
        let bytes = self.near.memory().slice(base + slot * self.of.slot_bytes, length);
        work.end(operation.id, End::Done(bytes.expect("a slot lies within the data region")));
    }

    pub(super) fn restart(&mut self, rng: &Rng) {
        self.of.session.identity.instance = instance(&mut rng.fork("instance"));
        self.near = build(&self.of, rng);
        self.connections.clear();
        self.pending = None;
        for (issued, slot) in std::mem::take(&mut self.issued).into_values() {
            self.free.push(slot);
            if let Issued::Change(change, _) = issued {
                self.of.rules.borrow_mut().doubt(change);
            }
        }
        self.of.works.iter_mut().for_each(|(_, work)| work.abandon());
    }

    pub(super) fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.wishes_at = Instant::ZERO;
        self.of.works.iter_mut().for_each(|(_, work)| work.enter(phase));
    }

    /// Whether work is left. Once the world is healed, the reservation must be gone, too.
    pub(super) fn is_busy(&self, phase: Phase) -> bool {
        let has_changes = self.issued.values().any(|(one, _)| matches!(one, Issued::Change(..)));
        self.of.works.iter().any(|(_, work)| work.is_busy(phase))
            || phase == Phase::Drain && (has_changes || !self.is_cleared)
    }

    pub(super) fn report(&mut self, outcome: &mut Outcome) {
        self.of.works.iter_mut().for_each(|(_, work)| work.report(outcome));
        let (violations, judged) = self.of.rules.borrow_mut().take();
        outcome.failures.extend(violations);
        outcome.judged += judged;
    }

    pub(super) fn describe(&self) -> String {
        let upstream = self.near.upstream();
        let session = upstream.and_then(|upstream| upstream.session(tunnel::upstream::PortIndex(0)));
        let driver =
            self.near.driver(ControllerIndex(0)).map(|driver| (driver.is_ready(), driver.statistics()));
        format!(
            "{:?}: {:?} issued, waits: {:?}, cleared: {}; {session:?}; {driver:?}; latest events:\n    {}",
            self.of.number,
            self.issued,
            self.pending,
            self.is_cleared,
            self.events.join("\n    ")
        )
    }
}

fn build(of: &Parts, rng: &Rng) -> Near {
    Near::over_tunnels(of.settings, vec![of.session.clone()], rng.fork("upstream"))
}

/// The reservation key of a host.
const fn key_of(host: HostNumber) -> u64 {
    host.0 as u64 + 1
}

/// The command of a wish, and its keys.
fn command_of(wish: Wish, host: HostNumber) -> (SubmissionQueueEntry, [u64; 2]) {
    let number = |kind| match kind {
        Type::WriteExclusive => 1 << 8,
        Type::ExclusiveAccess => 2 << 8,
    };
    let own = key_of(host);
    let (opcode, cdw10, keys) = match wish {
        Wish::Register => (IoOpcode::ReservationRegister, IGNORE_KEY, [0, own]),
        Wish::Unregister => (IoOpcode::ReservationRegister, IGNORE_KEY | 1, [0, 0]),
        Wish::Acquire(kind) => (IoOpcode::ReservationAcquire, number(kind), [own, 0]),
        Wish::Preempt(kind, other) => (IoOpcode::ReservationAcquire, number(kind) | 1, [own, key_of(other)]),
        Wish::Release(kind) => (IoOpcode::ReservationRelease, number(kind), [own, 0]),
        Wish::Clear => (IoOpcode::ReservationRelease, 1, [own, 0]),
    };
    let entry = SubmissionQueueEntry {
        opcode: opcode.into(),
        namespace: SHARED,
        cdw10,
        ..SubmissionQueueEntry::EMPTY
    };
    (entry, keys)
}

fn entry_of(operation: &Operation, namespace: NamespaceId) -> SubmissionQueueEntry {
    let first = operation.blocks.start;
    let blocks = u32::try_from(operation.blocks.end - first).expect("few blocks");
    let opcode = match operation.kind {
        Kind::Read => IoOpcode::Read,
        Kind::Write => IoOpcode::Write,
        Kind::WriteZeroes => IoOpcode::WriteZeroes,
        Kind::Flush => {
            let opcode = IoOpcode::Flush.into();
            return SubmissionQueueEntry { opcode, namespace, ..SubmissionQueueEntry::EMPTY };
        }
    };
    command::on_blocks(opcode, namespace, first, blocks)
}
