//! The host's node: an initiator, and a workload on the namespace behind it.

use std::collections::BTreeMap;

use engine::{Buffer, Engine, Instant};
use machine::initiator::{self, ConnectionId, Initiator, Input, Output};
use nvme::wire::{IoOpcode, NamespaceId, SubmissionQueueEntry};
use nvme_fabrics::host as association;
use nvme_fabrics::host::Data;
use nvme_fabrics::host::multipath::{Completed, Origin, Request, SubmitError};
use nvme_tcp::host as tcp;
use sim::stream::{self, Lane, StreamEvent};
use sim::{Context, NodeId};

use crate::campaign::Outcome;
use crate::checker::{End, Kind, OperationId};
use crate::workload::{Operation, Phase, Workload};

/// The last events that are kept for the report of a run that fails.
const EVENTS_MAX: usize = 24;

/// A connection of the world.
#[derive(Debug)]
struct Line {
    id: ConnectionId,
    open: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct HostNode {
    target: NodeId,
    config: initiator::Config,
    associations: Vec<association::Config>,
    /// Data are received where they belong, where that is known.
    lands: bool,
    initiator: Initiator,
    started: bool,
    lines: BTreeMap<stream::ConnectionId, Line>,
    workload: Workload,
    /// What there was no room for yet.
    pending: Option<Operation>,
    issued: BTreeMap<u64, Operation>,
    events: Vec<String>,
}

impl HostNode {
    pub(super) fn new(
        target: NodeId,
        config: initiator::Config,
        associations: Vec<association::Config>,
        workload: Workload,
        lands: bool,
    ) -> Self {
        Self {
            target,
            initiator: Initiator::new(config.clone(), associations.clone()),
            config,
            associations,
            lands,
            started: false,
            lines: BTreeMap::new(),
            workload,
            pending: None,
            issued: BTreeMap::new(),
            events: Vec::new(),
        }
    }

    pub(super) fn handle(&mut self, now: Instant, connection: stream::ConnectionId, event: StreamEvent) {
        let Some(line) = self.lines.get_mut(&connection) else { return };
        let id = line.id;
        match event {
            StreamEvent::Opened => {
                line.open = true;
                self.initiator.handle_input(now, Input::Connected(id));
            }
            StreamEvent::Data(bytes) => self.receive(now, id, bytes),
            StreamEvent::Closed(_) => {
                self.lines.remove(&connection);
                self.initiator.handle_input(now, Input::Closed(id));
            }
            StreamEvent::Writable | StreamEvent::Accepted { .. } => {}
        }
    }

    fn receive(&mut self, now: Instant, id: ConnectionId, mut bytes: Buffer) {
        while self.lands
            && !bytes.is_empty()
            && let Some(place) = self.initiator.landing(id)
        {
            let count = place.len().min(bytes.len());
            place[..count].copy_from_slice(&bytes[..count]);
            bytes = bytes.slice(count..bytes.len());
            self.initiator.handle_input(now, Input::Landed { connection: id, count });
        }
        if !bytes.is_empty() {
            self.initiator.handle_input(now, Input::Received { connection: id, bytes });
        }
    }

    pub(super) fn settle<P>(&mut self, context: &mut Context<'_, P>) -> Option<Instant> {
        let now = context.now();
        if !self.started {
            self.started = true;
            self.initiator.start(now);
        }
        if self.initiator.poll_timeout().is_some_and(|at| at <= now) {
            self.initiator.handle_timeout(now);
        }
        loop {
            self.submit(now);
            let Some(output) = self.initiator.poll_output() else { break };
            self.on_output(context, output);
        }
        self.flush(context);
        self.initiator.poll_timeout().into_iter().chain(self.workload.poll_timeout(now)).min()
    }

    fn flush<P>(&mut self, context: &mut Context<'_, P>) {
        for (connection, line) in self.lines.iter().filter(|(_, line)| line.open) {
            let Some(outbox) = self.initiator.outbox(line.id) else { continue };
            let mut sent = 0;
            for slice in outbox.slices() {
                let taken = context.send(*connection, slice);
                sent += taken;
                if taken < slice.len() {
                    break;
                }
            }
            if sent > 0 {
                self.initiator.sent(line.id, sent);
            }
        }
    }

    fn on_output<P>(&mut self, context: &mut Context<'_, P>, output: Output) {
        let now = context.now();
        match output {
            Output::Dial(id) => {
                let lane = Lane(u8::try_from(id.path.0).expect("few paths"));
                let connection = context.dial_lane(self.target, lane);
                self.lines.insert(connection, Line { id, open: false });
            }
            Output::Close { connection: id, last, .. } => {
                let found = self.lines.iter().find(|(_, line)| line.id == id);
                let Some((&connection, &Line { open, .. })) = found else { return };
                if open {
                    context.send(connection, &last);
                }
                context.close(connection);
                self.lines.remove(&connection);
            }
            Output::Completed(completed) => self.on_completed(&completed),
            Output::AdminCompleted { .. } => unreachable!("no admin command was submitted"),
            // The network may lose an ICResp; nothing else breaks between two that keep to the protocol.
            Output::ProtocolError(id, why) if why != tcp::Closed::InitialiseTimeout => {
                panic!("{id:?}: {why}")
            }
            event => {
                if self.events.len() == EVENTS_MAX {
                    self.events.remove(0);
                }
                let text: String = format!("{event:?}").chars().take(160).collect();
                self.events.push(format!("{}: {text}", now - Instant::ZERO));
            }
        }
    }

    fn submit(&mut self, now: Instant) {
        while let Some(operation) = self.pending.take().or_else(|| self.workload.poll(now)) {
            let cookie = operation.id.0;
            let queue = u16::try_from(cookie % 8).expect("less than 8");
            let (entry, data) = command(&operation, &self.workload);
            match self.initiator.submit(now, Request { cookie, entry, data, queue }) {
                Ok(()) => drop(self.issued.insert(cookie, operation)),
                Err(SubmitError::Busy) => {
                    self.pending = Some(operation);
                    return;
                }
                Err(SubmitError::NoPath) => self.workload.end(operation.id, End::Failed),
                Err(error) => panic!("{operation:?} was refused: {error}"),
            }
        }
    }

    fn on_completed(&mut self, completed: &Completed) {
        let id = OperationId(completed.cookie);
        let known = self.issued.remove(&completed.cookie).is_some();
        let success = known && completed.entry.status().is_success();
        if completed.origin == Origin::Host {
            return self.workload.doubt(id);
        }
        // One that is not known is the checker's to judge.
        self.workload.end(id, if success { End::Done(&completed.data) } else { End::Failed });
    }

    pub(super) fn restart(&mut self, now: Instant) {
        self.initiator = Initiator::new(self.config.clone(), self.associations.clone());
        self.initiator.start(now);
        self.lines.clear();
        self.workload.abandon();
        self.pending = None;
        self.issued.clear();
    }

    pub(super) fn enter(&mut self, phase: Phase) {
        self.workload.enter(phase);
    }

    /// Once healed, every path comes back, too.
    pub(super) fn is_busy(&self, phase: Phase) -> bool {
        let up = self.initiator.multipath().paths().all(|path| path.live);
        self.workload.is_busy(phase) || (phase == Phase::Drain && !up)
    }

    pub(super) fn report(&mut self, outcome: &mut Outcome) {
        self.workload.report(outcome);
    }

    pub(super) fn describe(&self) -> String {
        let mut text = format!("{} issued, one waits: {}; ", self.issued.len(), self.pending.is_some());
        for path in self.initiator.multipath().paths() {
            text += &format!("path live: {}, over: {}, {} on it; ", path.live, path.over, path.outstanding);
        }
        text + &format!("{} connections; latest events:\n    ", self.lines.len())
            + &self.events.join("\n    ")
    }
}

/// The command of an operation, with its data.
fn command(operation: &Operation, workload: &Workload) -> (SubmissionQueueEntry, Data) {
    let length = workload.length(operation);
    let (opcode, data) = match operation.kind {
        Kind::Read => (IoOpcode::Read, Data::Read(u32::try_from(length).expect("a short transfer"))),
        Kind::Write => {
            let mut bytes = vec![0; length];
            workload.stamp(operation, &mut bytes);
            (IoOpcode::Write, Data::Write(Buffer::from(bytes)))
        }
        Kind::WriteZeroes => (IoOpcode::WriteZeroes, Data::None),
        Kind::Flush => (IoOpcode::Flush, Data::None),
    };
    let blocks = u32::try_from(operation.blocks.end - operation.blocks.start).expect("few blocks");
    let entry = SubmissionQueueEntry {
        opcode: opcode.into(),
        namespace: NamespaceId(1),
        // Number of Logical Blocks (NLB) is 0's based; a Flush has none.
        cdw12: blocks.saturating_sub(1),
        ..SubmissionQueueEntry::default()
    };
    (entry.with_starting_lba(operation.blocks.start), data)
}
