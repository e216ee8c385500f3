//! The host: its stages, its queues, and what it looks at.

use std::collections::BTreeMap;

use engine::{Instant, Nanos, Rng};
use nvme::subsystem::Counters;
use nvme::wire::{CompletionQueueEntry, QueueId, SubmissionQueueEntry};
use nvme_pcie::controller::Input;
use nvme_pcie::registers::{offset, status};

use super::commands::Command;
use super::{Event, Place, World};
use crate::checker::End;

/// Number of I/O queue pairs that the controller has.
pub(super) const QUEUES_MAX: u16 = 6;
/// Entries of the admin queues.
const ADMIN_ENTRIES: u32 = 16;
/// CC: 64 B and 16 B entries, enabled.
const ENABLED: u64 = 0x0046_0001;
/// Shutdown Notification (SHN) in CC: normal.
const SHUTDOWN: u64 = 1 << 14;

/// How far the host is with the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The device is away.
    Away,
    /// The controller is to become not ready.
    Disabling,
    /// The controller is to become ready.
    Enabling,
    Running,
    ShuttingDown,
}

/// How far a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Creating,
    Ready,
    Deleting,
}

/// A submission queue.
#[derive(Debug)]
pub(super) struct SubmissionQueue {
    pub(super) base: u64,
    pub(super) entries: u32,
    tail: u32,
    head: u32,
    pub(super) completes_to: u16,
    pub(super) state: State,
    /// Names the queue among all that were ever created.
    created: u64,
    next_id: u16,
    /// Whether the last command was the first half of a fused pair.
    pub(super) is_open: bool,
}

/// A completion queue.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    pub(super) base: u64,
    entries: u32,
    head: u32,
    phase: bool,
    vector: Option<u16>,
    pub(super) state: State,
    created: u64,
}

/// The host.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) stage: Stage,
    pub(super) submission: BTreeMap<u16, SubmissionQueue>,
    pub(super) completion: BTreeMap<u16, CompletionQueue>,
    /// Commands in progress, by queue and identifier.
    pub(super) commands: BTreeMap<(u16, u16), Command>,
    /// The most commands of a queue.
    pub(super) depth: usize,
    created: u64,
    /// When the latest write to a register arrives, and the latest one to each doorbell.
    last_register: Instant,
    last_doorbells: BTreeMap<u32, Instant>,
    /// The shadow doorbells.
    pub(super) shadow: Option<u64>,
    /// Number of lanes of this device whose threads are gone.
    pub(super) deaths: u64,
    /// Whether media have ever failed.
    pub(super) may_fail: bool,
    /// Whether blocks were made unreadable.
    pub(super) marked: bool,
    /// Reads, writes and failures that this device has completed, as far as the host saw.
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) errors: u64,
}

impl Host {
    pub(super) fn new(rng: &mut Rng) -> Self {
        Self {
            stage: Stage::Disabling,
            submission: BTreeMap::new(),
            completion: BTreeMap::new(),
            commands: BTreeMap::new(),
            depth: usize::try_from(1 + rng.below(12)).expect("a few"),
            created: 0,
            last_register: Instant::ZERO,
            last_doorbells: BTreeMap::new(),
            shadow: None,
            deaths: 0,
            may_fail: false,
            marked: false,
            reads: 0,
            writes: 0,
            errors: 0,
        }
    }

    /// Whether no command is in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.commands.is_empty()
    }

    /// Waits until the controller is not ready, and brings it up again.
    pub(super) const fn disable(&mut self) {
        self.stage = Stage::Disabling;
    }

    /// Another device comes in the place of the one before.
    pub(super) const fn on_new_device(&mut self) {
        (self.deaths, self.reads, self.writes, self.errors) = (0, 0, 0, 0);
        self.marked = false;
    }

    /// Names a queue.
    const fn next_created(&mut self) -> u64 {
        self.created += 1;
        self.created
    }

    /// The number of commands in progress of a queue.
    pub(super) fn in_progress(&self, queue: u16) -> usize {
        self.commands.keys().filter(|(one, _)| *one == queue).count()
    }

    /// The name of the queue that a doorbell belongs to.
    fn created_at(&self, offset: u32) -> Option<u64> {
        let number = (offset - offset::DOORBELLS) / 4;
        let queue = u16::try_from(number / 2).ok()?;
        match number.is_multiple_of(2) {
            true => self.submission.get(&queue).map(|queue| queue.created),
            false => self.completion.get(&queue).map(|queue| queue.created),
        }
    }
}

impl World {
    /// Controller Status (CSTS).
    pub(super) fn status(&self) -> u64 {
        let mut bytes = [0; 4];
        self.home.read_register(offset::STATUS, &mut bytes);
        u32::from_le_bytes(bytes).into()
    }

    /// Writes a register, behind the earlier writes.
    fn write_register(&mut self, offset: u32, value: u64) {
        let rare = if self.rng.one_in(20) { 200 } else { 0 };
        let at = self.now + Nanos::from_micros(1 + self.rng.below(6) + self.rng.below(1 + rare));
        self.host.last_register = self.host.last_register.max(at);
        let at = self.host.last_register;
        self.at(at, Event::Register { offset, value });
    }

    pub(super) fn on_register(&mut self, offset: u32, value: u64) {
        let is_wide = matches!(offset, offset::ADMIN_SUBMISSION_QUEUE | offset::ADMIN_COMPLETION_QUEUE);
        let bytes = value.to_le_bytes();
        let bytes = if is_wide { &bytes[..] } else { &bytes[..4] };
        self.hand(Place::Home, Input::RegisterWrite { offset, bytes });
    }

    /// Rings a doorbell. A thread that sees doorbells itself sees it some time later.
    fn ring(&mut self, queue: u16, is_tail: bool, value: u32) {
        let number = u32::from(queue) * 2 + u32::from(!is_tail);
        let offset = offset::DOORBELLS + number * 4;
        if let Some(shadow) = self.host.shadow.filter(|_| queue != 0)
            && let Some(bytes) = self.memory.at(shadow + u64::from(number) * 4, 4)
        {
            bytes.copy_from_slice(&value.to_le_bytes());
        }
        let (Some(place), Some(created)) = (self.place_of(queue, is_tail), self.host.created_at(offset))
        else {
            return self.write_register(offset, value.into());
        };
        let rare = if self.rng.one_in(20) { 400 } else { 0 };
        let at = self.now + Nanos::from_micros(self.rng.below(10) + self.rng.below(1 + rare));
        let last = self.host.last_doorbells.entry(offset).or_insert(at);
        *last = at.max(*last);
        let at = *last;
        self.at(at, Event::Doorbell { place, offset, value, created });
    }

    /// The lane that has a queue, if threads see doorbells themselves.
    fn place_of(&self, queue: u16, is_tail: bool) -> Option<Place> {
        let mut stations = self.stations.iter().filter(|_| self.sees_doorbells);
        let has_it = |(_, station): &(&Place, &super::Station)| match &station.lane {
            Some(lane) if is_tail => lane.submission_queues().any(|one| one.id == queue),
            Some(lane) => lane.completion_queues().any(|one| one.id == queue),
            None => false,
        };
        stations.find(has_it).map(|(place, _)| *place)
    }

    pub(super) fn see_doorbell(&mut self, place: Place, offset: u32, value: u32, created: u64) {
        // A doorbell of an earlier queue is none of this one.
        if self.host.created_at(offset) == Some(created) {
            let bytes = value.to_le_bytes();
            self.hand(place, Input::RegisterWrite { offset, bytes: &bytes });
        }
    }

    pub(super) fn on_interrupt(&mut self, vector: u16) {
        let of_vector = self.host.completion.iter().filter(|(_, queue)| queue.vector == Some(vector));
        let ids: Vec<_> = of_vector.map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.look(id));
    }

    /// The host goes on.
    pub(super) fn on_host(&mut self) {
        let is_answered = self.stations.get(&Place::Home).is_some_and(|home| home.stalled <= self.now);
        if is_answered && self.link_is_up {
            self.go_on();
        }
        let is_at_rest = self.healing && self.host.stage == Stage::Running && self.host.is_idle();
        let pause = if is_at_rest { 5_000 } else { 2 + self.rng.below(60) };
        self.after(Nanos::from_micros(pause), Event::Host);
    }

    fn go_on(&mut self) {
        let status = self.status();
        let fatal = status::FATAL.of(status) == 1;
        match self.host.stage {
            Stage::Away => (),
            Stage::Disabling if status::READY.of(status) == 0 => self.enable(),
            Stage::Disabling => (),
            Stage::Enabling if fatal => self.fail("the controller fails to become ready".to_string()),
            Stage::Enabling if status::READY.of(status) == 1 => {
                self.end_doubts();
                self.host.stage = Stage::Running;
            }
            Stage::Enabling => (),
            Stage::Running | Stage::ShuttingDown if fatal => {
                if self.host.deaths == 0 {
                    self.fail("the controller has failed, but no lane is gone".to_string());
                }
                self.disable();
            }
            Stage::Running => {
                self.look_everywhere();
                self.act();
            }
            Stage::ShuttingDown if status::SHUTDOWN.of(status) == status::SHUTDOWN_COMPLETE => {
                self.check_shutdown();
                self.disable();
            }
            Stage::ShuttingDown => self.look_everywhere(),
        }
    }

    /// Looks at the completion queues without interrupts.
    fn look_everywhere(&mut self) {
        let polled = self.host.completion.iter().filter(|(_, queue)| queue.vector.is_none());
        let ids: Vec<_> = polled.map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.look(id));
    }

    /// Clears CC.EN.
    pub(super) fn disable(&mut self) {
        self.host.disable();
        self.write_register(offset::CONFIGURATION, 0);
    }

    pub(super) fn begin_shutdown(&mut self) {
        self.host.stage = Stage::ShuttingDown;
        self.write_register(offset::CONFIGURATION, ENABLED | SHUTDOWN);
    }

    /// Checks that no change of a lane's command is in progress when a shutdown is complete. Those
    /// of aborted commands run on.
    fn check_shutdown(&mut self) {
        let is_of_lane = |(place, _, changes): &&(Place, _, bool)| *place != Place::Home && *changes;
        let left = self.outstanding.iter().filter(is_of_lane).count();
        if left > 0 && self.dying.is_empty() {
            self.fail(format!("the shutdown is complete, but {left} changes of lanes are not"));
        }
    }

    /// Forgets all queues and commands, and frees all memory.
    pub(super) fn lose_everything(&mut self) {
        for (_, command) in std::mem::take(&mut self.host.commands) {
            self.counts.abandoned += 1;
            self.doubts.extend(command.operation);
        }
        self.host.submission.clear();
        self.host.completion.clear();
        self.host.shadow = None;
        self.memory.clear();
    }

    /// Ends the operations that no medium can carry out any longer.
    fn end_doubts(&mut self) {
        for operation in std::mem::take(&mut self.doubts) {
            self.checker.end(operation, End::Failed);
        }
        if let Some((place, ..)) = self.outstanding.iter().find(|(_, _, changes)| *changes) {
            self.fail(format!("the reset has ended, but the medium has changes of {place:?} of before"));
        }
    }

    fn enable(&mut self) {
        self.lose_everything();
        let submission = self.add_submission_queue(0, ADMIN_ENTRIES, 0, State::Ready);
        let completion = self.add_completion_queue(0, ADMIN_ENTRIES, Some(0), State::Ready);
        let entries = u64::from(ADMIN_ENTRIES - 1);
        self.write_register(offset::ADMIN_QUEUE_ATTRIBUTES, entries << 16 | entries);
        self.write_register(offset::ADMIN_SUBMISSION_QUEUE, submission);
        self.write_register(offset::ADMIN_COMPLETION_QUEUE, completion);
        self.write_register(offset::CONFIGURATION, ENABLED);
        self.host.stage = Stage::Enabling;
    }

    /// Adds a submission queue. Returns its address.
    pub(super) fn add_submission_queue(
        &mut self,
        id: u16,
        entries: u32,
        completes_to: u16,
        state: State,
    ) -> u64 {
        let base = self.memory.allocate(usize::try_from(entries * 64).expect("a short queue"));
        let created = self.host.next_created();
        let next_id = u16::try_from(self.rng.below(1 << 16)).expect("16 bits");
        let queue = SubmissionQueue {
            base,
            entries,
            tail: 0,
            head: 0,
            completes_to,
            state,
            created,
            next_id,
            is_open: false,
        };
        self.host.submission.insert(id, queue);
        self.clear_shadow(u64::from(id) * 2);
        base
    }

    /// Adds a completion queue. Returns its address.
    pub(super) fn add_completion_queue(
        &mut self,
        id: u16,
        entries: u32,
        vector: Option<u16>,
        state: State,
    ) -> u64 {
        let base = self.memory.allocate(usize::try_from(entries * 16).expect("a short queue"));
        let created = self.host.next_created();
        let queue = CompletionQueue { base, entries, head: 0, phase: true, vector, state, created };
        self.host.completion.insert(id, queue);
        self.clear_shadow(u64::from(id) * 2 + 1);
        base
    }

    fn clear_shadow(&mut self, number: u64) {
        if let Some(bytes) = self.host.shadow.and_then(|shadow| self.memory.at(shadow + number * 4, 4)) {
            bytes.fill(0);
        }
    }

    /// The values that the doorbells of all I/O queues have now, for shadow doorbells that begin.
    pub(super) fn doorbells(&self) -> Vec<(u64, u32)> {
        let tails = self.host.submission.iter().map(|(id, queue)| (u64::from(*id) * 2, queue.tail));
        let heads = self.host.completion.iter().map(|(id, queue)| (u64::from(*id) * 2 + 1, queue.head));
        tails.chain(heads).collect()
    }

    /// Whether a submission queue has room for `count` entries.
    pub(super) fn has_room(&self, queue: u16, count: u32) -> bool {
        let Some(queue) = self.host.submission.get(&queue) else { return false };
        let used = (queue.tail + queue.entries - queue.head) % queue.entries;
        queue.entries - 1 - used >= count
    }

    /// Puts a command on a submission queue that has room, and rings.
    pub(super) fn submit(&mut self, id: u16, mut entry: SubmissionQueueEntry, command: Command) -> u16 {
        let queue = self.host.submission.get_mut(&id).expect("the queue exists");
        while self.host.commands.contains_key(&(id, queue.next_id)) {
            queue.next_id = queue.next_id.wrapping_add(1);
        }
        let name = queue.next_id;
        queue.next_id = name.wrapping_add(1);
        entry.command_id = nvme::wire::CommandId(name);
        let at = queue.base + u64::from(queue.tail) * 64;
        queue.tail = (queue.tail + 1) % queue.entries;
        let tail = queue.tail;
        self.memory.at(at, 64).expect("the queue's memory").copy_from_slice(&entry.emit());
        self.host.commands.insert((id, name), command);
        self.ring(id, true, tail);
        name
    }

    /// Takes the new entries of a completion queue.
    pub(super) fn look(&mut self, id: u16) {
        let mut moved = None;
        while self.failures.is_empty()
            && let Some(queue) = self.host.completion.get_mut(&id)
        {
            let at = queue.base + u64::from(queue.head) * 16;
            let bytes = self.memory.at(at, 16).and_then(|bytes| bytes.first_chunk()).copied();
            let entry = CompletionQueueEntry::parse(&bytes.expect("the queue's memory"));
            if entry.phase() != queue.phase {
                break;
            }
            queue.head += 1;
            if queue.head == queue.entries {
                (queue.head, queue.phase) = (0, !queue.phase);
            }
            moved = Some((queue.head, queue.created));
            self.on_entry(id, &entry);
        }
        // A completion may have ended the queue.
        if let Some((head, created)) = moved
            && self.host.completion.get(&id).is_some_and(|queue| queue.created == created)
        {
            self.ring(id, false, head);
        }
    }

    fn on_entry(&mut self, completion: u16, entry: &CompletionQueueEntry) {
        let QueueId(id) = entry.submission_queue;
        let name = entry.command_id.0;
        let Some(queue) = self.host.submission.get_mut(&id).filter(|one| one.completes_to == completion)
        else {
            return self.fail(format!("{entry:?} of no submission queue on completion queue {completion}"));
        };
        queue.head = u32::from(entry.submission_queue_head);
        let Some(command) = self.host.commands.remove(&(id, name)) else {
            return self.fail(format!("{entry:?} of no command on completion queue {completion}"));
        };
        self.digest.word(entry.status().raw().into());
        self.on_completed(id, command, entry);
    }

    /// Ends the deletion of a submission queue: its commands are over.
    pub(super) fn forget_submission_queue(&mut self, id: u16) {
        // What was completed before is there by now.
        if let Some(queue) = self.host.submission.get(&id) {
            self.look(queue.completes_to);
        }
        let Some(queue) = self.host.submission.remove(&id) else { return };
        self.memory.free(queue.base);
        for (_, command) in self.host.commands.extract_if(.., |(of, _), _| *of == id).collect::<Vec<_>>() {
            self.counts.abandoned += 1;
            command.pieces.iter().for_each(|piece| self.memory.free(*piece));
            if let Some(operation) = command.operation {
                self.checker.end(operation, End::Failed);
            }
        }
    }

    /// Reads and writes every block through every queue, and compares what was counted.
    pub(super) fn verify(&mut self) {
        if !self.host.submission.values().any(|queue| queue.completes_to != 0) {
            self.create_queues();
            self.run_until(self.now + super::DRAIN, |world| !world.host.is_idle());
        }
        let ids: Vec<_> = self.host.submission.keys().copied().filter(|id| *id != 0).collect();
        if ids.is_empty() {
            self.fail("there is no queue to verify through".to_string());
        }
        for id in ids {
            self.verify_through(id);
        }
        // Lanes report ten times a second.
        self.run_until(self.now + Nanos::from_millis(250), |_| true);
        let Counters { host_reads, host_writes, error_entries, .. } = self.home.counters();
        let Host { reads, writes, errors, .. } = self.host;
        let is_short = host_reads < reads || host_writes < writes || error_entries < errors;
        if is_short && self.host.deaths == 0 {
            self.fail(format!(
                "the health log has {host_reads} reads, {host_writes} writes and {error_entries} errors, but \
                 the host has seen {reads}, {writes} and {errors}"
            ));
        }
    }

    /// Whether a submission queue is being deleted.
    pub(super) fn is_deleting(&self, id: u16) -> bool {
        self.host.submission.get(&id).is_some_and(|queue| queue.state == State::Deleting)
    }
}
