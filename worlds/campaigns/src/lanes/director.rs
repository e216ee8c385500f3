//! The director makes one change of the subsystem after the other: by commands, and as the world.

use engine::{Instant, Nanos, Rng};
use nvme::host::command;
use nvme::subsystem::{CompletionResult, Notification, Permit, SanitizeStatus};
use nvme::wire::feature::FeatureId;
use nvme::wire::log::LogPage;
use nvme::wire::{AdminOpcode, AnaState, CommandId, IoOpcode, NamespaceId, StatusCode, SubmissionQueueEntry};

use super::health::Tally;
use super::hosts::{Outgoing, name};
use super::rules::{BLOCKS, NAMESPACES, State};
use super::{BLOCK, Event, Pending, Place, Sender, World};
use crate::checker::{End, Kind, OperationId};

/// Ignore Existing Key (IEKEY), in CDW10 of Reservation Register.
const IGNORE_KEY: u32 = 1 << 3;
/// The number of the change that sanitizes.
const SANITIZE: u64 = 11;
/// Sanitize Action (SANACT): Block Erase.
const BLOCK_ERASE: u32 = 0b010;

/// A change that is under way.
#[derive(Debug, Default)]
struct Change {
    /// The command that makes the change.
    command: Option<u64>,
    /// The indices of the first and the last state that the change begins.
    states: Option<(usize, usize)>,
    /// The operations that erase namespaces.
    erasures: Vec<(usize, OperationId)>,
    /// Whether the change ends only when a sanitize operation has ended.
    sanitizes: bool,
    /// Whether the command preempts and aborts.
    aborts: bool,
}

/// Who makes changes.
#[derive(Debug)]
pub(super) struct Director {
    rng: Rng,
    under_way: Option<Change>,
    /// Commands to send before anything else: the host and the queue, and the command.
    steps: Vec<Step>,
    healing: bool,
    done: bool,
    /// When commands to preempt and abort were sent and ended.
    preemptions: Vec<(Instant, Option<Instant>)>,
    /// Whether blocks were ever made unreadable.
    pub(super) marked: bool,
    /// Whether media ever fail.
    pub(super) faulty: bool,
    /// What the block of fused pairs holds, as far as hosts know.
    pub(super) pair_value: u64,
    pub(super) tally: Tally,
    /// The reads, writes and errors that hosts had seen when the health log was asked for.
    pub(super) seen_before: [u64; 3],
}

/// A command of the director.
#[derive(Debug)]
pub(super) struct Step {
    host: usize,
    /// Whether the command is for an I/O queue.
    io: bool,
    entry: SubmissionQueueEntry,
    data: Vec<u8>,
    /// The states that the command leads to, the last one for good.
    states: Vec<State>,
    erases: Vec<usize>,
    sanitizes: bool,
    aborts: bool,
}

impl Step {
    pub(super) fn new(host: usize, entry: SubmissionQueueEntry) -> Self {
        let (data, states, erases) = (Vec::new(), Vec::new(), Vec::new());
        Self { host, io: false, entry, data, states, erases, sanitizes: false, aborts: false }
    }

    fn to(mut self, state: State) -> Self {
        self.states.push(state);
        self
    }
}

impl Director {
    pub(super) const fn new(rng: Rng) -> Self {
        Self {
            rng,
            under_way: None,
            steps: Vec::new(),
            healing: false,
            done: false,
            preemptions: Vec::new(),
            marked: false,
            faulty: false,
            pair_value: 0,
            tally: Tally::new(),
            seen_before: [0; 3],
        }
    }

    /// Makes no more changes but those that undo others.
    pub(super) const fn heal(&mut self) {
        self.healing = true;
    }

    pub(super) const fn is_done(&self) -> bool {
        self.done
    }

    /// Whether a command that was sent at this time may have been ended by a preemption.
    pub(super) fn may_have_preempted(&self, sent: Instant) -> bool {
        self.preemptions.iter().any(|(_, ended)| ended.is_none_or(|ended| ended >= sent))
    }
}

/// A command to a namespace.
fn admin(opcode: AdminOpcode, namespace: NamespaceId, cdw10: u32) -> SubmissionQueueEntry {
    SubmissionQueueEntry { opcode: opcode.into(), namespace, cdw10, ..Default::default() }
}

/// A reservation command, with the keys of hosts.
fn reserve(opcode: IoOpcode, namespace: usize, host: usize, cdw10: u32, keys: [usize; 2]) -> Step {
    let entry = SubmissionQueueEntry {
        opcode: opcode.into(),
        namespace: name(namespace),
        cdw10,
        ..Default::default()
    };
    let keys = keys.into_iter().flat_map(|key| (key as u64).to_le_bytes());
    let length = if opcode == IoOpcode::ReservationRelease { 8 } else { 16 };
    Step { io: true, data: keys.take(length).collect(), ..Step::new(host, entry) }
}

fn register(namespace: usize, host: usize) -> Step {
    reserve(IoOpcode::ReservationRegister, namespace, host, IGNORE_KEY, [0, host + 1])
}

fn kind_of(excludes_reads: bool) -> u32 {
    (1 + u32::from(excludes_reads)) << 8
}

impl World {
    /// Goes on with changes.
    pub(super) fn direct(&mut self) {
        let pause = Nanos::from_micros(20 + self.director.rng.below(150));
        let is_free = self.unseen.is_empty() && self.hosts.iter().all(|host| host.waits_for.is_none());
        if self.director.under_way.is_none() && is_free && !self.director.done {
            match self.director.steps.pop() {
                Some(step) => self.take_step(step),
                None if self.director.healing => self.undo(),
                None => self.begin_change(),
            }
        }
        if !self.director.done {
            self.after(pause, Event::Direct);
        }
    }

    pub(super) fn take_step(&mut self, step: Step) {
        let queue = if step.io { self.some_queue(step.host) } else { None };
        if step.io && queue.is_none() {
            return self.director.steps.push(step); // The host connects a queue meanwhile.
        }
        let Step { host, entry, data, states, erases, sanitizes, aborts, .. } = step;
        let begun: Vec<_> = states.into_iter().map(|state| self.timeline.begin(self.now, state)).collect();
        let erasures: Vec<_> = erases
            .into_iter()
            .map(|namespace| (namespace, self.checkers[namespace].begin(Kind::WriteZeroes, 0..BLOCKS)))
            .collect();
        let states = begun.first().copied().zip(begun.last().copied());
        if aborts {
            self.director.preemptions.push((self.now, None));
        }
        let command = Some(self.send(Outgoing { data, ..Outgoing::of_director(host, queue, entry) }));
        self.director.under_way = Some(Change { command, states, erasures, sanitizes, aborts });
    }

    /// A command of the director has ended.
    pub(super) fn on_changed(&mut self, id: u64, one: &Pending, completion: CompletionResult) {
        let success = completion.status.is_success();
        self.director.tally.count(one, completion.status.code());
        let is_log = one.queue.is_admin() && one.entry.opcode == u8::from(AdminOpcode::GetLogPage);
        if success && is_log && LogPage::from(one.entry.cdw10.to_le_bytes()[0]) == LogPage::Smart {
            self.check_health(&one.data);
        }
        self.end_change(id, success);
    }

    /// A command of the director was lost, which the world avoids for changes.
    pub(super) fn on_lost_change(&mut self, id: u64) {
        if self.director.under_way.as_ref().is_some_and(|change| change.command == Some(id)) {
            self.fail(format!("the command of a change was lost: {:?}", self.director.under_way));
        }
    }

    fn end_change(&mut self, id: u64, success: bool) {
        let Some(change) = self.director.under_way.take_if(|change| change.command == Some(id)) else {
            return;
        };
        if change.aborts
            && let Some((_, ended)) = self.director.preemptions.last_mut()
        {
            *ended = Some(self.now);
        }
        if let Some((first, last)) = change.states {
            if success {
                self.timeline.end(self.now, last);
            } else {
                self.timeline.fail(self.now, first);
            }
        }
        if change.sanitizes && success {
            self.director.under_way = Some(Change { command: None, ..change });
            return;
        }
        for (namespace, operation) in change.erasures {
            let end = if success { End::Done(&[]) } else { End::Failed };
            self.checkers[namespace].end(operation, end);
        }
        if !success {
            // What was to follow makes no sense.
            self.director.steps.clear();
        }
    }

    /// The subsystem reports a change to the world.
    pub(super) fn on_notification(&mut self, notification: &Notification) {
        let Notification::SanitizeChanged(record) = notification else { return };
        if self.timeline.newest().sanitize != Some(StatusCode::SanitizeInProgress) {
            return;
        }
        let (end, sanitize) = match record.status {
            SanitizeStatus::Completed if record.data_erased => (End::Done(&[]), None),
            SanitizeStatus::Failed => (End::Failed, Some(StatusCode::SanitizeFailed)),
            _ => return,
        };
        let erasures = self.director.under_way.take().map(|change| change.erasures).unwrap_or_default();
        for (namespace, operation) in erasures {
            self.checkers[namespace].end(operation, end);
        }
        self.director.pair_value = 0;
        let state = State { sanitize, ..self.timeline.newest().clone() };
        self.change_by_world(state);
    }

    /// Notes a change that the world has made, and that ends once all lanes have seen it.
    fn change_by_world(&mut self, state: State) {
        let index = self.timeline.begin(self.now, state);
        self.unseen.push((self.subsystem.version(), index));
    }

    fn begin_change(&mut self) {
        let state = self.timeline.newest().clone();
        let namespace = self.below(NAMESPACES);
        let host = self.below(self.hosts.len());
        let one = &state.namespaces[namespace];
        let mut next = state.clone();
        let place = &mut next.namespaces[namespace];
        if one.absent {
            return self.add_namespace(next, namespace);
        }
        let kind = match self.director.rng.below(22) {
            // The subsystem refuses any other command that changes something.
            kind if kind < SANITIZE && state.sanitize.is_some() => SANITIZE,
            kind => kind,
        };
        match kind {
            0..5 => self.change_reservation(&state, namespace, host),
            5 => {
                place.protected = !one.protected;
                self.protect(namespace, host, next);
            }
            6 => {
                if one.blocks < BLOCKS {
                    return self.resize(next, namespace, BLOCKS);
                }
                place.formatting = true;
                let entry = admin(AdminOpcode::FormatNvm, name(namespace), 0);
                let mut step = Step::new(host, entry).to(next).to(state);
                step.erases.push(namespace);
                self.take_step(step);
            }
            7 => self.attach_or_detach(next, namespace, host),
            8 => self.reach(next, if state.unreached.is_some() { None } else { Some(host) }),
            9 => self.set_read_only(next, namespace, !one.read_only),
            10 => {
                let blocks = if one.blocks < BLOCKS { BLOCKS } else { 8 + self.director.rng.below(48) };
                self.resize(next, namespace, blocks);
            }
            SANITIZE => self.sanitize(next, host),
            12 => self.attach(),
            13 => self.detach(),
            14 => self.kill(next, host),
            15 => self.abort_something(),
            16 => self.cache(next, host),
            17 => self.permit(next, if state.reader.is_some() { None } else { Some(host) }),
            18 => self.reset(next, host),
            19 => self.read_log(host),
            20 => self.remove_namespace(next, namespace),
            _ => self.read_health(host),
        }
    }

    fn sanitize(&mut self, mut next: State, host: usize) {
        if let Some(short) = next.namespaces.iter().position(|one| one.blocks < BLOCKS) {
            return self.resize(next, short, BLOCKS);
        }
        if let Some(absent) = next.namespaces.iter().position(|one| one.absent) {
            return self.add_namespace(next, absent);
        }
        next.sanitize = Some(StatusCode::SanitizeInProgress);
        // A reservation of another host would deny this.
        let holder = next.namespaces.iter().find_map(|one| one.holder);
        let sender = holder.map_or(host, |(holder, _)| holder);
        let entry = admin(AdminOpcode::Sanitize, NamespaceId::NONE, BLOCK_ERASE);
        let mut step = Step::new(sender, entry).to(next);
        (step.erases, step.sanitizes) = ((0..NAMESPACES).collect(), true);
        self.take_step(step);
    }

    /// Switches the write cache of a host off, or on again.
    fn cache(&mut self, mut next: State, host: usize) {
        let of = next.uncached.unwrap_or(host);
        let enable = next.uncached.is_some();
        next.uncached = (!enable).then_some(of);
        let entry = command::set_features(FeatureId::VolatileWriteCache, enable.into());
        self.take_step(Step::new(of, entry).to(next));
    }

    /// Lets a host only read, or everything again.
    fn permit(&mut self, mut next: State, reader: Option<usize>) {
        let of = next.reader.or(reader);
        next.reader = reader;
        let permit = Permit { read_only: reader.is_some(), ..Permit::default() };
        if let Some(of) = of {
            self.subsystem.set_permit(self.now, self.hosts[of].key, permit);
            self.settle(Place::Subsystem);
            self.change_by_world(next);
        }
    }

    /// Reads a log page to which lanes contribute.
    fn read_log(&mut self, host: usize) {
        let entry = command::get_log_page(NamespaceId::ALL, LogPage::ErrorInformation.into(), 0, 64);
        self.take_step(Step::new(host, entry));
    }

    fn change_reservation(&mut self, state: &State, namespace: usize, host: usize) {
        let excludes = self.director.rng.one_in(2);
        let mut next = state.clone();
        let holder = &mut next.namespaces[namespace].holder;
        let (opcode, cdw10, keys) = match (*holder, self.director.rng.below(3)) {
            (Some((of, kind)), 0) => {
                *holder = None;
                let clear = u32::from(self.director.rng.one_in(2));
                let release =
                    reserve(IoOpcode::ReservationRelease, namespace, of, kind_of(kind) | clear, [of + 1, 0]);
                return self.take_step(release.to(next));
            }
            (Some((of, _)), abort) if of != host => {
                *holder = Some((host, excludes));
                let action = if abort == 1 { 1 } else { 2 };
                (IoOpcode::ReservationAcquire, kind_of(excludes) | action, [host + 1, of + 1])
            }
            (Some(_), _) => return,
            (None, _) => {
                *holder = Some((host, excludes));
                (IoOpcode::ReservationAcquire, kind_of(excludes), [host + 1, 0])
            }
        };
        let mut acquire = reserve(opcode, namespace, host, cdw10, keys).to(next);
        acquire.aborts = cdw10 & 7 == 2;
        self.director.steps.push(acquire);
        self.take_step(register(namespace, host));
    }

    fn protect(&mut self, namespace: usize, host: usize, next: State) {
        let value = u32::from(next.namespaces[namespace].protected);
        let mut entry = command::set_features(FeatureId::WriteProtection, value);
        entry.namespace = name(namespace);
        self.take_step(Step::new(host, entry).to(next));
    }

    fn attach_or_detach(&mut self, mut next: State, namespace: usize, host: usize) {
        let detached = next.namespaces[namespace].detached;
        let (of, select) = detached.map_or((host, 1), |of| (of, 0));
        next.namespaces[namespace].detached = detached.is_none().then_some(of);
        // A reservation of another host would deny this.
        let sender = next.namespaces[namespace].holder.map_or(of, |(holder, _)| holder);
        let entry = admin(AdminOpcode::NamespaceAttachment, name(namespace), select);
        let mut step = Step::new(sender, entry).to(next);
        step.data = vec![0; 4096];
        step.data[0] = 1;
        step.data[2] = u8::try_from(of + 1).expect("few hosts");
        self.take_step(step);
    }

    fn reach(&mut self, mut next: State, unreached: Option<usize>) {
        let of = next.unreached.or(unreached);
        next.unreached = unreached;
        let state = if unreached.is_some() { AnaState::Inaccessible } else { AnaState::Optimized };
        if let Some(of) = of {
            self.subsystem.set_ana_state(self.now, self.hosts[of].key, 1, state);
            self.settle(Place::Subsystem);
            self.change_by_world(next);
        }
    }

    fn set_read_only(&mut self, mut next: State, namespace: usize, read_only: bool) {
        next.namespaces[namespace].read_only = read_only;
        self.subsystem.set_read_only(self.now, name(namespace), read_only);
        self.settle(Place::Subsystem);
        self.change_by_world(next);
    }

    fn resize(&mut self, mut next: State, namespace: usize, blocks: u64) {
        next.namespaces[namespace].blocks = blocks;
        self.subsystem.resize_namespace(self.now, name(namespace), blocks * BLOCK as u64);
        self.settle(Place::Subsystem);
        self.change_by_world(next);
    }

    /// Removes a namespace that nothing else has changed. Its medium keeps the data.
    fn remove_namespace(&mut self, mut next: State, namespace: usize) {
        if next.namespaces[namespace] != State::new().namespaces[namespace] || next.sanitize.is_some() {
            return;
        }
        next.namespaces[namespace].absent = true;
        let removed = self.subsystem.remove_namespace(self.now, name(namespace));
        removed.expect("the namespace is there, on a medium of its own");
        self.settle(Place::Subsystem);
        self.change_by_world(next);
    }

    /// Adds a namespace again that was removed.
    fn add_namespace(&mut self, mut next: State, namespace: usize) {
        next.namespaces[namespace].absent = false;
        let added = self.subsystem.add_namespace(self.now, &self.configs[namespace]);
        added.expect("the namespace was removed");
        self.settle(Place::Subsystem);
        self.change_by_world(next);
    }

    fn detach(&mut self) {
        let lanes = self.lanes();
        let index = self.below(lanes.len());
        let leaving = self.subsystem.lanes().count() > lanes.len();
        if lanes.len() > 1 && !leaving {
            if let Some(station) = self.stations.get_mut(&Place::Lane(lanes[index])) {
                station.leaving = true;
            }
            self.subsystem.detach_lane(self.now, lanes[index]);
            self.settle(Place::Subsystem);
        }
    }

    /// Kills a host, which comes back with another controller.
    fn kill(&mut self, mut next: State, host: usize) {
        if next.namespaces.iter().any(|one| one.detached.is_some()) {
            return; // A new controller could then lack the namespace, too.
        }
        self.subsystem.remove_controller(self.now, self.hosts[host].key);
        self.medium.remove_controller(self.hosts[host].key);
        self.settle(Place::Subsystem);
        // Commands that are on their way go down with their connections.
        self.lose_where(|one| one.host == host && (one.place == Place::Subsystem || one.token.is_none()));
        self.hosts[host].key = self.add_controller(host);
        next.unreached = next.unreached.filter(|of| *of != host);
        next.reader = next.reader.filter(|of| *of != host);
        next.uncached = next.uncached.filter(|of| *of != host);
        self.hosts[host].waits_for = Some(self.subsystem.version());
        self.change_by_world(next);
    }

    /// Resets the controller of a host, which goes on when nothing of before is left.
    fn reset(&mut self, mut next: State, host: usize) {
        self.subsystem.reset(self.now, self.hosts[host].key);
        self.settle(Place::Subsystem);
        self.lose_where(|one| one.host == host && (one.place == Place::Subsystem || one.token.is_none()));
        next.uncached = next.uncached.filter(|of| *of != host);
        self.hosts[host].waits_for = Some(self.subsystem.version());
        self.hosts[host].is_reset = true;
        self.change_by_world(next);
    }

    fn abort_something(&mut self) {
        let of_hosts: Vec<_> =
            self.pending.iter().filter(|(_, one)| one.sender == Sender::Host).map(|(id, _)| *id).collect();
        if of_hosts.is_empty() {
            return;
        }
        let id = of_hosts[self.below(of_hosts.len())];
        let Some(one) = self.pending.get_mut(&id) else { return };
        if one.controller != self.hosts[one.host].key {
            return;
        }
        one.aborted = true;
        let (host, queue) = (one.host, one.queue);
        let entry = command::abort(queue, CommandId(u16::try_from(id % 65_536).expect("16 bits")));
        self.take_step(Step::new(host, entry));
    }

    /// Undoes one change after the other; done when none is left.
    fn undo(&mut self) {
        let state = self.timeline.newest().clone();
        let next = state.clone();
        if state.reader.is_some() {
            return self.permit(next, None);
        }
        if state.sanitize.is_some() {
            return self.sanitize(next, 0);
        }
        if state.unreached.is_some() {
            return self.reach(next, None);
        }
        if state.uncached.is_some() {
            return self.cache(next, 0);
        }
        for (index, one) in state.namespaces.iter().enumerate() {
            let mut next = next.clone();
            let place = &mut next.namespaces[index];
            if one.absent {
                return self.add_namespace(next, index);
            }
            if one.read_only {
                return self.set_read_only(next, index, false);
            }
            if one.blocks < BLOCKS {
                return self.resize(next, index, BLOCKS);
            }
            if one.detached.is_some() {
                return self.attach_or_detach(next, index, 0);
            }
            if let Some((of, kind)) = one.holder {
                place.holder = None;
                let release = reserve(IoOpcode::ReservationRelease, index, of, kind_of(kind), [of + 1, 0]);
                return self.take_step(release.to(next));
            }
            if one.protected {
                place.protected = false;
                return self.protect(index, 0, next);
            }
        }
        self.director.done = self.unseen.is_empty();
    }
}
