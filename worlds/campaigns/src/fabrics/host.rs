//! The host's node: an initiator, and a workload on the subsystem's namespace.

use std::collections::BTreeMap;

use assemblies::initiator::Output;
use engine::{Buffer, Instant};
use nvme::host::{self, Data, Origin};
use nvme::wire::{IoOpcode, NamespaceId, SubmissionQueueEntry};
use nvme_fabrics::host::multipath::{Completed, Request, SubmitError};
use sim::Context;
use sim::stream::{self, StreamEvent};

use super::air::Parcel;
use super::wires::Wires;
use crate::campaign::Outcome;
use crate::checker::{End, Kind, OperationId};
use crate::workload::{Operation, Phase, Workload};

/// A host: an initiator, and a workload on the subsystem's namespace.
#[derive(Debug)]
pub(super) struct HostNode {
    wires: Wires,
    workload: Workload,
    /// An operation that the initiator had no room for yet.
    pending: Option<Operation>,
    issued: BTreeMap<u64, Operation>,
}

impl HostNode {
    pub(super) const fn new(wires: Wires, workload: Workload) -> Self {
        Self { wires, workload, pending: None, issued: BTreeMap::new() }
    }

    pub(super) fn handle(&mut self, now: Instant, connection: stream::ConnectionId, event: StreamEvent) {
        self.wires.handle(now, connection, event);
    }

    /// The wires, which lead to the subsystem.
    pub(super) const fn wires_mut(&mut self) -> &mut Wires {
        &mut self.wires
    }

    pub(super) fn settle(&mut self, context: &mut Context<'_, Parcel>) -> Option<Instant> {
        let now = context.now();
        self.wires.wake(now);
        loop {
            self.submit(now);
            match self.wires.poll(context) {
                None if self.wires.flush(context) => {}
                None => break,
                Some(Output::Completed(completed)) => self.on_completed(&completed),
                Some(Output::AdminCompleted(_)) => unreachable!("no admin command was submitted"),
                Some(event) => self.wires.note(now, &event),
            }
        }
        self.wires.poll_timeout(now).into_iter().chain(self.workload.poll_timeout(now)).min()
    }

    fn submit(&mut self, now: Instant) {
        while let Some(operation) = self.pending.take().or_else(|| self.workload.poll(now)) {
            let cookie = operation.id.0;
            let queue = u16::try_from(cookie % 8).expect("less than 8");
            let (entry, data) = command(&operation, &self.workload);
            match self.wires.initiator.submit(now, Request { cookie, entry, data, queue }) {
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
        // The checker judges completions of unknown commands.
        self.workload.end(id, if success { End::Done(&completed.data) } else { End::Failed });
    }

    pub(super) fn restart(&mut self) {
        self.wires.restart();
        self.workload.abandon();
        self.pending = None;
        self.issued.clear();
    }

    pub(super) fn enter(&mut self, phase: Phase) {
        self.workload.enter(phase);
    }

    /// Whether work is left. Once the world is healed, every path must come back, too.
    pub(super) fn is_busy(&self, phase: Phase) -> bool {
        self.workload.is_busy(phase) || (phase == Phase::Drain && !self.wires.is_whole())
    }

    pub(super) fn report(&mut self, outcome: &mut Outcome) {
        self.workload.report(outcome);
    }

    pub(super) fn describe(&self) -> String {
        let Self { issued, pending, wires, .. } = self;
        format!("{} issued, one waits: {}; {}", issued.len(), pending.is_some(), wires.describe())
    }
}

/// The command of an operation, and its data.
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
    let entry = match opcode {
        IoOpcode::Flush => host::command::flush(NamespaceId(1)),
        _ => host::command::on_blocks(opcode, NamespaceId(1), operation.blocks.start, blocks),
    };
    (entry, data)
}
