//! Hosts: what they send, and what they check.

use engine::{Instant, Nanos};
use nvme::host::command;
use nvme::subsystem::{CompletionResult, ControllerConfig, ControllerKey, HostIdentity};
use nvme::wire::{IoOpcode, NamespaceId, QueueId, StatusCode, SubmissionQueueEntry};

use super::rules::{Access, BLOCKS, EVERY, NAMESPACES};
use super::{BLOCK, CHAOS, Event, Pending, Place, Sender, World};
use crate::checker::{End, Kind, OperationId};

/// The block that only fused pairs write. The checkers do not know it.
const PAIR_BLOCK: u64 = BLOCKS - 1;
/// Deallocate, in CDW11 of Dataset Management.
const DEALLOCATE: u32 = 1 << 2;

/// A queue of a host, and the thread that it is on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    pub(super) id: QueueId,
    pub(super) place: Place,
    /// When the latest command arrives.
    last: Instant,
    /// Whether the target does not accept the queue again yet.
    closing: bool,
}

/// Until when the subsystem may execute a command that its host has lost.
#[derive(Clone, Copy, Debug)]
pub(super) enum Doubt {
    /// Until the subsystem has handled the messages by which the lane drops a queue: the number of
    /// the drop.
    Drop(u64),
    /// Until the subsystem knows that the lane is no more.
    Lane(Place),
}

/// A command that is to be sent.
pub(super) struct Outgoing {
    pub(super) sender: Sender,
    pub(super) host: usize,
    /// The index of the host's I/O queue; `None` for the admin queue.
    pub(super) queue: Option<usize>,
    pub(super) entry: SubmissionQueueEntry,
    pub(super) data: Vec<u8>,
    pub(super) access: Option<Access>,
    pub(super) operations: Vec<OperationId>,
}

impl Outgoing {
    /// A command of a host, without data.
    fn of_host(host: usize, queue: usize, entry: SubmissionQueueEntry) -> Self {
        Self { sender: Sender::Host, queue: Some(queue), ..Self::of_director(host, None, entry) }
    }

    /// A command of the director, without data.
    pub(super) fn of_director(host: usize, queue: Option<usize>, entry: SubmissionQueueEntry) -> Self {
        let (sender, data, operations) = (Sender::Director, Vec::new(), Vec::new());
        Self { sender, host, queue, entry, data, access: None, operations }
    }
}

/// A host with one controller.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) key: ControllerKey,
    pub(super) queues: Vec<Queue>,
    depth: usize,
    pub(super) outstanding: usize,
    /// The version that all lanes must have seen before the host may go on.
    pub(super) waits_for: Option<u64>,
    /// Whether the host waits for the end of a reset, too.
    pub(super) is_reset: bool,
}

impl World {
    pub(super) fn add_host(&mut self) {
        let key = self.add_controller(self.hosts.len());
        let queues = (1..=1 + self.rng.below(4)).map(|id| QueueId(u16::try_from(id).expect("few queues")));
        let queues: Vec<_> = queues.collect();
        let queues = queues.into_iter().map(|id| self.place_queue(id)).collect();
        let depth = 1 + self.below(10);
        let waits_for = Some(self.subsystem.version());
        self.hosts.push(Host { key, queues, depth, outstanding: 0, waits_for, is_reset: false });
    }

    /// Adds the controller of a host.
    pub(super) fn add_controller(&mut self, host: usize) -> ControllerKey {
        let number = u8::try_from(host + 1).expect("few hosts");
        let identity = HostIdentity {
            name: format!("nqn.2014-08.org.nvmexpress:host{number}"),
            identifier: [number; 16],
        };
        let key = self.subsystem.add_controller(self.now, ControllerConfig::fabrics(number.into(), identity));
        self.settle(Place::Subsystem);
        key
    }

    /// A queue on some lane.
    pub(super) fn place_queue(&mut self, id: QueueId) -> Queue {
        let lanes = self.lanes();
        let place = Place::Lane(lanes[self.below(lanes.len())]);
        Queue { id, place, last: self.now, closing: false }
    }

    /// Sends commands for a host.
    pub(super) fn on_host(&mut self, host: usize) {
        let may_send = self.now < Instant::ZERO + CHAOS;
        if !may_send && self.hosts[host].waits_for.is_none() {
            return;
        }
        let one = &self.hosts[host];
        let seen = |version: u64| {
            let is_ready = !one.is_reset || self.subsystem.media_outstanding(one.key) == 0;
            is_ready && self.subsystem.lanes_have_seen(version)
        };
        if one.waits_for.is_none_or(seen) {
            self.check_reset(host);
            if self.hosts[host].waits_for.take().is_some() {
                // What an earlier life of the host has sent is gone everywhere.
                let key = self.hosts[host].key;
                let now = self.now;
                let of_host = |one: &Pending| one.sender == Sender::Host && one.host == host;
                self.lose_where(|one| of_host(one) && (one.controller != key || one.sent < now));
            }
            while may_send && self.hosts[host].outstanding < self.hosts[host].depth && !self.rng.one_in(6) {
                self.send_something(host);
            }
        }
        let pause = Nanos::from_micros(2 + self.rng.below(60));
        self.after(pause, Event::Host(host));
    }

    /// Checks that media have no change left of a controller whose reset has ended. A read of an
    /// aborted command does no harm.
    fn check_reset(&mut self, host: usize) {
        let key = self.hosts[host].key;
        if core::mem::take(&mut self.hosts[host].is_reset) && !self.medium.changes_of(key).is_empty() {
            self.fail(format!(
                "the reset of host {host} has ended, but media have changes of before: {:?}",
                self.medium.changes_of(key)
            ));
        }
    }

    /// Whether a host can use a queue. A queue moves to another lane if its own is no more: its
    /// connection is gone, and the host makes another. The target accepts that once nothing
    /// executes commands of the old connection.
    fn has_queue(&mut self, host: usize, queue: usize) -> bool {
        let Queue { id, place, closing, .. } = self.hosts[host].queues[queue];
        let Some(station) = self.stations.get(&place) else {
            if self.dying.contains_key(&place) {
                return false;
            }
            self.hosts[host].queues[queue] = self.place_queue(id);
            return true;
        };
        !station.leaving && !closing
    }

    /// Some queue that a host can use.
    pub(super) fn some_queue(&mut self, host: usize) -> Option<usize> {
        let queue = self.below(self.hosts[host].queues.len());
        self.has_queue(host, queue).then_some(queue)
    }

    fn send_something(&mut self, host: usize) {
        let Some(queue) = self.some_queue(host) else { return };
        if self.rng.one_in(400) {
            let (place, id) = (self.hosts[host].queues[queue].place, self.hosts[host].queues[queue].id);
            return self.drop_queue(host, place, id);
        }
        let namespace = self.below(NAMESPACES);
        let first = self.rng.below(PAIR_BLOCK - 8);
        let blocks = 1 + self.rng.below(8);
        let (opcode, kind) = match self.rng.below(40) {
            0..12 => (IoOpcode::Read, Kind::Read),
            12..26 => (IoOpcode::Write, Kind::Write),
            26..28 => (IoOpcode::WriteZeroes, Kind::WriteZeroes),
            28..30 => (IoOpcode::DatasetManagement, Kind::WriteZeroes),
            30..32 => (IoOpcode::Compare, Kind::Read),
            32..34 => (IoOpcode::Verify, Kind::Flush),
            34 => (IoOpcode::Flush, Kind::Flush),
            35 => return self.flush_every_namespace(host, queue),
            36 => return self.mark(host, queue, namespace, first),
            _ => return self.send_pair(host, queue),
        };
        self.send_io(host, queue, namespace, opcode, kind, first..first + blocks);
    }

    fn send_io(
        &mut self,
        host: usize,
        queue: usize,
        namespace: usize,
        opcode: IoOpcode,
        kind: Kind,
        blocks: std::ops::Range<u64>,
    ) {
        let id = self.checkers[namespace].begin(kind, blocks.clone());
        let count = blocks.end - blocks.start;
        let length = usize::try_from(count).expect("few blocks") * BLOCK;
        let mut data = vec![0; length];
        let mut entry = command::on_blocks(
            opcode,
            name(namespace),
            blocks.start,
            u32::try_from(count).expect("few blocks"),
        );
        match opcode {
            IoOpcode::Write => self.checkers[namespace].stamp(id, blocks.clone(), &mut data),
            IoOpcode::DatasetManagement => {
                entry = command::flush(name(namespace));
                (entry.opcode, entry.cdw11) = (opcode.into(), DEALLOCATE);
                data = vec![0; 16];
                data[4..8].copy_from_slice(&u32::try_from(count).expect("few blocks").to_le_bytes());
                data[8..16].copy_from_slice(&blocks.start.to_le_bytes());
            }
            IoOpcode::Flush => entry = command::flush(name(namespace)),
            _ => (),
        }
        let end = if opcode == IoOpcode::Flush { 0 } else { blocks.end };
        let access = Access { host, namespace, opcode, end };
        let (sender, queue, access, operations) = (Sender::Host, Some(queue), Some(access), vec![id]);
        self.send(Outgoing { sender, host, queue, entry, data, access, operations });
    }

    /// Sends a flush of all namespaces. The media of these runs never lose data, so that the
    /// checkers need not know it.
    fn flush_every_namespace(&mut self, host: usize, queue: usize) {
        let access = Access { host, namespace: EVERY, opcode: IoOpcode::Flush, end: 0 };
        let entry = command::flush(NamespaceId::ALL);
        self.send(Outgoing { access: Some(access), ..Outgoing::of_host(host, queue, entry) });
    }

    /// Sends a flush to each queue.
    pub(super) fn flush_all(&mut self) {
        for host in 0..self.hosts.len() {
            if self.hosts[host].waits_for.is_some() {
                continue; // It has sent nothing yet.
            }
            for queue in 0..self.hosts[host].queues.len() {
                if !self.has_queue(host, queue) {
                    continue; // The connection's end ends first halves, too.
                }
                self.send_io(host, queue, 0, IoOpcode::Flush, Kind::Flush, 0..1);
            }
        }
    }

    /// Makes blocks unreadable: reads may fail from now on, and the writes that follow go through
    /// the subsystem.
    fn mark(&mut self, host: usize, queue: usize, namespace: usize, first: u64) {
        if !self.rng.one_in(4) {
            return self.send_pair(host, queue);
        }
        self.director.marked = true;
        let entry = command::on_blocks(IoOpcode::WriteUncorrectable, name(namespace), first, 2);
        let access = Access { host, namespace, opcode: IoOpcode::WriteUncorrectable, end: first + 2 };
        self.send(Outgoing { access: Some(access), ..Outgoing::of_host(host, queue, entry) });
    }

    /// Sends a fused pair, or only its first half.
    fn send_pair(&mut self, host: usize, queue: usize) {
        let data = |value: u64| value.to_le_bytes().repeat(BLOCK / 8);
        let (old, new) = (self.director.pair_value, self.next_id + 1);
        for (opcode, fuse, value) in [(IoOpcode::Compare, 1, old), (IoOpcode::Write, 2, new)] {
            if fuse == 2 && self.rng.one_in(20) {
                return;
            }
            let mut entry = command::on_blocks(opcode, name(0), PAIR_BLOCK, 1);
            entry.flags |= fuse;
            let access = Access { host, namespace: 0, opcode, end: BLOCKS };
            let (data, access) = (data(value), Some(access));
            self.send(Outgoing { data, access, ..Outgoing::of_host(host, queue, entry) });
        }
    }

    /// Sends a command to an I/O queue of a host, or to its admin queue.
    pub(super) fn send(&mut self, command: Outgoing) -> u64 {
        let Outgoing { sender, host, queue, entry, data, access, operations } = command;
        self.next_id += 1;
        let id = self.next_id;
        let mut at = self.now + Nanos::from_micros(1 + self.rng.below(15));
        let (place, name) = match queue.map(|queue| &mut self.hosts[host].queues[queue]) {
            Some(queue) => {
                // A queue keeps the order of its commands.
                queue.last = queue.last.max(at);
                at = queue.last;
                (queue.place, queue.id)
            }
            None => (Place::Subsystem, QueueId::ADMIN),
        };
        let pending = Pending {
            sender,
            place,
            token: None,
            host,
            controller: self.hosts[host].key,
            queue: name,
            entry,
            access,
            sent: self.now,
            operations,
            data,
            aborted: false,
            cut: false,
        };
        self.pending.insert(id, pending);
        self.hosts[host].outstanding += usize::from(sender == Sender::Host);
        self.at(at, Event::Arrive(id));
        id
    }

    /// A completion arrives at its host, which checks it.
    pub(super) fn on_completed(&mut self, id: u64, completion: CompletionResult) {
        let Some(one) = self.pending.remove(&id) else { return };
        let code = completion.status.code();
        self.digest.word(completion.status.raw().into());
        if completion.status.is_success() {
            self.counts.done += 1;
        } else {
            self.counts.failed += 1;
        }
        if one.sender == Sender::Director {
            return self.on_changed(id, &one, completion);
        }
        self.hosts[one.host].outstanding -= 1;
        self.judge(&one, code);
        self.director.tally.count(&one, code);
        let Some(access) = &one.access else { return };
        let zeroes = vec![0; one.data.len()];
        for operation in &one.operations {
            let end = match (code, access.opcode) {
                (StatusCode::SuccessfulCompletion, IoOpcode::Read) => End::Done(&one.data),
                (StatusCode::SuccessfulCompletion, IoOpcode::Compare) => End::Done(&zeroes),
                (StatusCode::SuccessfulCompletion, _) => End::Done(&[]),
                _ => End::Failed,
            };
            self.checkers[access.namespace].end(*operation, end);
        }
        if one.entry.flags & 3 == 2 && code == StatusCode::SuccessfulCompletion {
            self.director.pair_value = u64::from_le_bytes(one.data[..8].try_into().expect("8 bytes"));
        }
    }

    /// Checks a status against the states that were possible meanwhile.
    fn judge(&mut self, one: &Pending, code: StatusCode) {
        let Some(access) = &one.access else { return };
        let fused = one.entry.flags & 3;
        let allows = |access: &Access| self.timeline.allows(one.sent, self.now, access, code);
        // The first half of a pair also fails if its second half could not be executed.
        let as_write = Access { opcode: IoOpcode::Write, ..access.clone() };
        let excused = match code {
            StatusCode::CompareFailure => access.opcode == IoOpcode::Compare,
            StatusCode::AbortedMissingFused | StatusCode::AbortedFailedFused => fused != 0,
            StatusCode::CommandAbortRequested => one.aborted,
            StatusCode::DataTransferError => one.cut,
            // A sanitize operation ends even a flush that was sent before.
            StatusCode::SanitizeInProgress if access.opcode == IoOpcode::Flush => {
                allows(&Access { opcode: IoOpcode::Read, ..access.clone() })
            }
            StatusCode::AbortedPreempt => self.director.may_have_preempted(one.sent),
            StatusCode::UnrecoveredReadError => self.director.marked || self.director.faulty,
            StatusCode::WriteFault | StatusCode::CapacityExceeded => self.director.faulty,
            _ => fused == 1 && allows(&as_write),
        };
        if !excused && !allows(access) {
            let (sent, now) = (one.sent, self.now);
            self.fail(format!("{access:?}, sent at {sent:?}, has ended with {code:?} at {now:?}"));
        }
    }

    /// A host loses the connection of a queue.
    fn drop_queue(&mut self, host: usize, place: Place, id: QueueId) {
        let (now, key) = (self.now, self.hosts[host].key);
        if self.pending.values().any(|one| one.sender == Sender::Director && one.host == host) {
            return; // The director could not know whether its change was made.
        }
        let of_queue = |one: &Pending| (one.host, one.place, one.queue) == (host, place, id);
        self.drops += 1;
        self.doubt_handed(Doubt::Drop(self.drops), of_queue);
        let Some(lane) = self.stations.get_mut(&place).and_then(|one| one.lane.as_mut()) else { return };
        lane.drop_queue(now, key, id);
        let ids: Vec<_> = self.pending.iter().filter(|(_, one)| of_queue(one)).map(|(id, _)| *id).collect();
        self.forget_commands(place, &ids);
        self.settle(place);
        self.lose_where(|one| one.sender == Sender::Host && of_queue(one));
        if let Some(queue) = self.hosts[host].queues.iter_mut().find(|one| one.id == id) {
            queue.closing = true;
        }
        self.report_drop(place, Event::Dropped { number: self.drops, host, queue: id });
    }

    /// The target has forgotten a queue, which its host may connect again.
    pub(super) fn on_dropped(&mut self, number: u64, host: usize, id: QueueId) {
        if let Some(queue) = self.hosts[host].queues.iter_mut().find(|one| one.id == id) {
            queue.closing = false;
        }
        self.resolve_doubts(|doubt| matches!(doubt, Doubt::Drop(one) if one == number));
    }

    /// Notes which commands the subsystem may execute although their hosts lose them.
    pub(super) fn doubt_handed(&mut self, doubt: Doubt, is_lost: impl Fn(&Pending) -> bool) {
        let handed_over = |one: &&Pending| {
            let lane = self.stations.get(&one.place).and_then(|station| station.lane.as_ref());
            let (Some(lane), Some(token)) = (lane, one.token) else { return false };
            lane.has_handed_over(token)
        };
        let handed = self.pending.iter().filter(|(_, one)| is_lost(one) && handed_over(one));
        let handed: Vec<_> = handed.map(|(id, _)| *id).collect();
        self.doubt(doubt, handed);
    }

    /// Notes which commands may take effect although their hosts lose them.
    pub(super) fn doubt_where(&mut self, doubt: Doubt, is_lost: impl Fn(&Pending) -> bool) {
        let lost = self.pending.iter().filter(|(_, one)| is_lost(one));
        let lost: Vec<_> = lost.map(|(id, _)| *id).collect();
        self.doubt(doubt, lost);
    }

    fn doubt(&mut self, doubt: Doubt, ids: Vec<u64>) {
        for id in ids {
            let Some(one) = self.pending.get_mut(&id) else { continue };
            let Some(Access { namespace, .. }) = one.access else { continue };
            self.doubts.extend(one.operations.drain(..).map(|operation| (doubt, namespace, operation)));
        }
    }

    /// Ends lost operations that nothing executes any longer.
    pub(super) fn resolve_doubts(&mut self, is_over: impl Fn(Doubt) -> bool) {
        for (_, namespace, operation) in self.doubts.extract_if(.., |(doubt, ..)| is_over(*doubt)) {
            self.checkers[namespace].end(operation, End::Failed);
        }
    }

    /// Hosts lose the commands that `is_lost` selects.
    pub(super) fn lose_where(&mut self, is_lost: impl Fn(&Pending) -> bool) {
        let lost: Vec<_> = self.pending.iter().filter(|(_, one)| is_lost(one)).map(|(id, _)| *id).collect();
        lost.into_iter().for_each(|id| self.lose(id));
    }

    /// A host loses a command, which will never complete.
    pub(super) fn lose(&mut self, id: u64) {
        let Some(one) = self.pending.remove(&id) else { return };
        self.forget_commands(one.place, &[id]);
        self.counts.abandoned += 1;
        self.director.tally.lost += 1;
        if one.sender == Sender::Director {
            return self.on_lost_change(id);
        }
        self.hosts[one.host].outstanding -= 1;
        if let Some(access) = &one.access {
            for operation in &one.operations {
                self.checkers[access.namespace].end(*operation, End::Failed);
            }
        }
    }

    /// Reads all blocks through the queue of a host, after everything has ended.
    pub(super) fn verify_through(&mut self, index: usize) {
        let lanes = self.lanes();
        let Some(lane) = lanes.get(index) else { return };
        self.hosts[0].queues[0].place = Place::Lane(*lane);
        for namespace in 0..NAMESPACES {
            self.send_io(0, 0, namespace, IoOpcode::Write, Kind::Write, 0..PAIR_BLOCK);
            let until = self.now + Nanos::from_secs(1);
            self.run_until(until, |world| !world.pending.is_empty());
            self.send_io(0, 0, namespace, IoOpcode::Read, Kind::Read, 0..PAIR_BLOCK);
        }
    }
}

/// The name of the namespace with an index.
pub(super) fn name(namespace: usize) -> NamespaceId {
    NamespaceId(u32::try_from(namespace + 1).expect("few namespaces"))
}
