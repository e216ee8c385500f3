//! The host's node: a near machine with a workload on each far disk, or an intruder that only tries
//! to attach.

use std::collections::BTreeMap;

use assemblies::near::{self, ControllerIndex, Near};
use engine::{Engine, Instant, Rng};
use nvme::host::{Protection, command};
use nvme::wire::{IoOpcode, NamespaceId};
use nvme_pcie::host::{Data, QueueId, Submission, SubmitError};
use pcie::memory::Memory;
use sim::dialled::{DialledConnections, DialledEvent};
use sim::stream::{ConnectionId, StreamEvent};
use sim::{Context, NodeId};
use tunnel::session::Config as SessionConfig;
use tunnel::upstream::PortIndex;

use crate::campaign::Outcome;
use crate::checker::{End, Kind, OperationId};
use crate::session::instance;
use crate::workload::{Operation, Phase, Work};

/// Fills the memory of a read in advance, so that missing bytes are noticed.
const UNFILLED: u8 = 0xee;
/// Number of last events that are kept for the report of a failed run.
const EVENTS_MAX: usize = 12;

/// A workload on the disk of one far end.
#[derive(Debug)]
pub(super) struct Disk {
    /// The serial number that identifies the controller.
    serial: String,
    workload: Box<dyn Work>,
    /// An operation that no queue had room for yet.
    pending: Option<Operation>,
    /// The issued operations and their slots of memory, by cookie.
    issued: BTreeMap<u64, (Operation, u64)>,
    free: Vec<u64>,
    slot_bytes: u64,
    /// How blocks are protected, and whether the host makes and checks the information itself.
    protection: Option<(Protection, bool)>,
}

impl Disk {
    pub(super) fn new(serial: String, workload: Box<dyn Work>, slots: u64, slot_bytes: u64) -> Self {
        let (issued, free) = (BTreeMap::new(), (0..slots).collect());
        Self { serial, workload, pending: None, issued, free, slot_bytes, protection: None }
    }

    /// The disk with protection information, which the host or the controller makes and checks. It
    /// lies behind the data in a slot.
    pub(super) fn protected(self, protection: Protection, by_host: bool) -> Self {
        Self { protection: Some((protection, by_host)), ..self }
    }

    /// Makes the information of the blocks in `bytes`, which a write of `operation` moves.
    fn generate(&self, operation: &Operation, bytes: &mut Vec<u8>) {
        let Some((protection, true)) = self.protection else { return };
        let mut information = vec![UNFILLED; information_bytes(protection, operation)];
        if operation.kind == Kind::Write {
            protection.generate(operation.blocks.start, bytes, &mut information);
        }
        bytes.append(&mut information);
    }

    /// Whether the information behind the data that a read brought is that of the data.
    fn is_right(&self, operation: &Operation, bytes: &[u8]) -> bool {
        let Some((protection, true)) = self.protection else { return true };
        let (data, information) = bytes.split_at(bytes.len() - information_bytes(protection, operation));
        protection.check(operation.blocks.start, data, information).is_ok()
    }

    /// Lets a read or write of `submission` be protected.
    fn protect(&self, operation: &Operation, submission: Submission) -> Submission {
        let (Some((protection, by_host)), Kind::Read | Kind::Write) = (self.protection, operation.kind)
        else {
            return submission;
        };
        let entry = match (by_host, submission.data) {
            (true, Some(data)) => protection.by_host(submission.entry, data.address + u64::from(data.length)),
            _ => protection.by_controller(submission.entry),
        };
        Submission { entry, ..submission }
    }
}

/// Bytes of protection information that a read or write of `operation` moves.
fn information_bytes(protection: Protection, operation: &Operation) -> usize {
    let blocks = match operation.kind {
        Kind::Read | Kind::Write => operation.blocks.end - operation.blocks.start,
        Kind::WriteZeroes | Kind::Flush => 0,
    };
    let bytes = protection.bytes(u32::try_from(blocks).expect("few blocks"));
    usize::try_from(bytes).expect("a few bytes")
}

/// A host over tunnels: its near machine, its connections and its workloads.
#[derive(Debug)]
pub(super) struct HostNode {
    settings: near::Config,
    session: SessionConfig,
    /// The nodes of the far ends, by port.
    peers: Vec<NodeId>,
    near: Near,
    /// The first connections are one for each port. Behind them are the further connections of
    /// links over several connections.
    connections: DialledConnections,
    disks: Vec<Disk>,
    /// Whether this is an intruder, which leaves in the drain phase.
    intruder: bool,
    events: Vec<String>,
}

impl HostNode {
    pub(super) fn new(
        settings: near::Config,
        session: SessionConfig,
        peers: Vec<NodeId>,
        disks: Vec<Disk>,
        rng: &Rng,
    ) -> Self {
        let near = build(settings, &session, peers.len(), rng);
        let connections = near.upstream().map_or(peers.len(), |upstream| upstream.connections());
        Self {
            near,
            settings,
            session,
            connections: DialledConnections::new(connections),
            peers,
            intruder: disks.is_empty(),
            disks,
            events: Vec::new(),
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
            (0..self.disks.len()).for_each(|disk| self.submit(now, disk));
            let Some(output) = self.near.poll_output() else { break };
            self.on_output(context, output);
        }
        self.connections.flush(context);
        let pauses = self.disks.iter().filter_map(|disk| disk.workload.poll_timeout(now));
        self.near.poll_timeout().into_iter().chain(pauses).min()
    }

    fn on_output<P>(&mut self, context: &mut Context<'_, P>, output: near::Output) {
        match output {
            near::Output::Connect(index) => {
                let port = self.near.upstream().expect("a host over tunnels dials").port_of(index);
                self.connections.dial(context, index, self.peers[usize::from(port.0)]);
            }
            near::Output::Transmit(index, bytes) => self.connections.push(index, bytes),
            near::Output::Close(index) => self.connections.close(context, index),
            near::Output::Packet(packet) => {
                unreachable!("a host over tunnels has no direct link for {packet}")
            }
            near::Output::Event(event) => self.on_event(context.now(), event),
        }
    }

    fn on_event(&mut self, now: Instant, event: near::Event) {
        if let near::Event::Completed { controller, completed } = event {
            return self.on_completed(controller, completed.cookie, completed.status.is_success());
        }
        if self.events.len() == EVENTS_MAX {
            self.events.remove(0);
        }
        let text: String = format!("{event:?}").chars().take(160).collect();
        self.events.push(format!("{}: {text}", now - Instant::ZERO));
    }

    /// The controller with the disk `disk`, once it is known.
    fn controller_of(&self, disk: usize) -> Option<ControllerIndex> {
        let serial = &self.disks[disk].serial;
        self.near.controllers().map(|(controller, _)| controller).find(|controller| {
            let identity = self.near.driver(*controller).and_then(|driver| driver.identity());
            identity.is_some_and(|identity| identity.controller.serial_number.to_string() == *serial)
        })
    }

    fn submit(&mut self, now: Instant, number: usize) {
        if self.disks[number].free.is_empty() {
            return;
        }
        let Some(controller) = self.controller_of(number) else { return };
        let region = self.near.driver(controller).expect("it was found").data_region();
        let disk = &mut self.disks[number];
        while let Some(&slot) = disk.free.last() {
            let Some(operation) = disk.pending.take().or_else(|| disk.workload.poll(now)) else { return };
            let address = region.base + slot * disk.slot_bytes;
            let mut bytes = vec![UNFILLED; disk.workload.length(&operation)];
            if operation.kind == Kind::Write {
                disk.workload.stamp(&operation, &mut bytes);
            }
            let length = bytes.len();
            disk.generate(&operation, &mut bytes);
            self.near.memory_mut().write(address, &bytes).expect("a slot lies within the data region");
            let queue = QueueId(
                1 + u16::try_from(slot % u64::from(self.settings.driver.queue_pairs)).expect("few queues"),
            );
            let submission = disk.protect(&operation, submission(&operation, queue, address, length));
            match self.near.submit(now, controller, submission) {
                Ok(_) => {
                    disk.free.pop();
                    disk.issued.insert(operation.id.0, (operation, slot));
                }
                Err(SubmitError::Busy | SubmitError::NotReady) => {
                    disk.pending = Some(operation);
                    return;
                }
                Err(error) => panic!("{operation:?} was refused: {error}"),
            }
        }
    }

    fn on_completed(&mut self, controller: ControllerIndex, cookie: u64, success: bool) {
        let Some(number) = (0..self.disks.len()).find(|disk| self.controller_of(*disk) == Some(controller))
        else {
            return;
        };
        let region = self.near.driver(controller).expect("it completes").data_region();
        let disk = &mut self.disks[number];
        let id = OperationId(cookie);
        let Some((operation, slot)) = disk.issued.remove(&cookie) else {
            return disk.workload.end(id, End::Failed);
        };
        disk.free.push(slot);
        if !success {
            return disk.workload.end(id, End::Failed);
        }
        let length = if operation.kind == Kind::Read { disk.workload.length(&operation) } else { 0 };
        let further = match (operation.kind, disk.protection) {
            (Kind::Read, Some((protection, true))) => information_bytes(protection, &operation),
            _ => 0,
        };
        let bytes = self.near.memory().slice(region.base + slot * disk.slot_bytes, length + further);
        let bytes = bytes.expect("a slot lies within the data region");
        let end = match operation.kind != Kind::Read || disk.is_right(&operation, bytes) {
            true => End::Done(&bytes[..length]),
            false => End::Failed,
        };
        disk.workload.end(id, end);
    }

    pub(super) fn restart(&mut self, rng: &Rng) {
        self.session.identity.instance = instance(&mut rng.fork("instance"));
        self.near = build(self.settings, &self.session, self.peers.len(), rng);
        self.connections.clear();
        for disk in &mut self.disks {
            disk.workload.abandon();
            disk.pending = None;
            disk.free.extend(std::mem::take(&mut disk.issued).into_values().map(|(_, slot)| slot));
        }
    }

    pub(super) fn enter(&mut self, now: Instant, phase: Phase) {
        if self.intruder && phase == Phase::Drain {
            self.near.close(now, "the intruder leaves");
        }
        self.disks.iter_mut().for_each(|disk| disk.workload.enter(phase));
    }

    pub(super) fn is_busy(&self, phase: Phase) -> bool {
        self.disks.iter().any(|disk| disk.workload.is_busy(phase))
    }

    pub(super) fn report(&mut self, outcome: &mut Outcome) {
        self.disks.iter_mut().for_each(|disk| disk.workload.report(outcome));
    }

    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        for disk in &self.disks {
            let (issued, pending) = (disk.issued.len(), disk.pending.is_some());
            text += &format!("{}: {issued} issued, one waits: {pending}; ", disk.serial);
        }
        for port in 0..self.peers.len() {
            let session = self.near.upstream().and_then(|upstream| upstream.session(port_index(port)));
            text += &format!("port {port}: {session:?}; ");
        }
        for (controller, _) in self.near.controllers() {
            let driver = self.near.driver(controller).expect("it is a controller");
            let (ready, statistics) = (driver.is_ready(), driver.statistics());
            text += &format!("controller {}: ready: {ready}, {statistics:?}; ", controller.0);
        }
        text + "latest events:\n    " + &self.events.join("\n    ")
    }
}

fn build(settings: near::Config, session: &SessionConfig, ports: usize, rng: &Rng) -> Near {
    let sessions = (0..ports).map(|_| session.clone()).collect();
    Near::over_tunnels(settings, sessions, rng.fork("upstream"))
}

fn port_index(port: usize) -> PortIndex {
    PortIndex(u8::try_from(port).expect("few ports"))
}

fn submission(operation: &Operation, queue: QueueId, address: u64, length: usize) -> Submission {
    const NAMESPACE: NamespaceId = NamespaceId(1);
    let (first, cookie) = (operation.blocks.start, operation.id.0);
    let blocks = u32::try_from(operation.blocks.end - first).expect("few blocks");
    let data = Data { address, length: u32::try_from(length).expect("a short transfer") };
    match operation.kind {
        Kind::Read => Submission::on_blocks(IoOpcode::Read, queue, NAMESPACE, first, blocks, data, cookie),
        Kind::Write => Submission::on_blocks(IoOpcode::Write, queue, NAMESPACE, first, blocks, data, cookie),
        Kind::Flush => Submission::flush(queue, NAMESPACE, cookie),
        Kind::WriteZeroes => {
            let entry = command::on_blocks(IoOpcode::WriteZeroes, NAMESPACE, first, blocks);
            Submission { queue, entry, data: None, cookie }
        }
    }
}
