//! Who reaches whom: the store, the controllers and the machines.

use std::collections::{BTreeMap, BTreeSet};

use engine::{Instant, Nanos};
use fleet::agent;
use fleet::controller::{Input, Output, Reply};
use fleet::object::{Data, Object, Transport};
use fleet::slice::{Report, Slice};
use fleet::store::{Answer, Transaction};

use super::machine::{Device, Write};
use super::rules::Rules;
use super::{Event, Plant, World, index_of, name_of};

/// A place of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Store,
    Controller(usize),
    Machine(usize),
}

/// A message of a controller to an agent.
#[derive(Clone, Debug)]
pub(super) enum Message {
    Ask(u64),
    Slice(Slice),
}

/// A connection between a controller and an agent.
#[derive(Clone, Copy, Debug)]
struct Connection {
    id: u64,
    /// When the latest messages arrive at the agent, and at the controller.
    last: [Instant; 2],
}

/// The network.
#[derive(Debug)]
pub(super) struct Network {
    parted: BTreeSet<(Place, Place)>,
    pub(super) store_is_away: bool,
    connections: BTreeMap<(usize, usize), Connection>,
    next: u64,
    controllers: usize,
    machines: usize,
}

impl Network {
    pub(super) const fn new(controllers: usize, machines: usize) -> Self {
        Self {
            parted: BTreeSet::new(),
            store_is_away: false,
            connections: BTreeMap::new(),
            next: 0,
            controllers,
            machines,
        }
    }

    /// All places but the store.
    pub(super) fn places(&self) -> Vec<Place> {
        let controllers = (0..self.controllers).map(Place::Controller);
        controllers.chain((0..self.machines).map(Place::Machine)).collect()
    }

    pub(super) fn part(&mut self, a: Place, b: Place) {
        self.parted.insert((a.min(b), a.max(b)));
    }

    pub(super) fn join_all(&mut self) {
        self.parted.clear();
        self.store_is_away = false;
    }

    pub(super) fn reach(&self, a: Place, b: Place) -> bool {
        let is_away = self.store_is_away && (a == Place::Store || b == Place::Store);
        !is_away && !self.parted.contains(&(a.min(b), a.max(b)))
    }

    /// Forgets the connections of a controller or a machine.
    pub(super) fn break_of(&mut self, place: Place) {
        self.connections.retain(|(controller, machine), _| match place {
            Place::Controller(one) => *controller != one,
            Place::Machine(one) => *machine != one,
            Place::Store => true,
        });
    }
}

impl World {
    /// A controller looks after its lease and its watch.
    pub(super) fn tick(&mut self, index: usize) {
        if self.stations[index].engine.is_none() {
            return; // The next start ticks again.
        }
        if self.network.reach(Place::Controller(index), Place::Store) {
            self.look_after_lease(index);
            self.watch(index);
        }
        self.after(Nanos::from_millis(250), Event::Tick(index));
    }

    fn look_after_lease(&mut self, index: usize) {
        let known = self.stations[index].term;
        let term = self.store.campaign(self.now, index, known);
        if term == known {
            return;
        }
        self.stations[index].term = term;
        self.input_controller(index, term.map_or(Input::Deposed, Input::Elected));
    }

    fn watch(&mut self, index: usize) {
        let station = &mut self.stations[index];
        if station.lists || station.term.is_none() {
            return;
        }
        let (watched, events) = self.store.since(station.watched);
        station.watched = watched;
        for event in events {
            self.input_controller(index, Input::Store(event));
        }
    }

    /// A transaction arrives at the store, or is lost on its way, or its answer is.
    pub(super) fn on_transaction(
        &mut self,
        controller: usize,
        life: u64,
        number: u64,
        transaction: &Transaction,
    ) {
        let reaches = self.network.reach(Place::Controller(controller), Place::Store);
        let is_lost = !reaches || self.rng.one_in(60);
        let arrives = reaches && !(is_lost && self.rng.one_in(2));
        let mut answer = Answer::Unknown;
        if arrives {
            answer = self.apply(transaction);
        } else if self.rng.one_in(3) {
            let delay = Nanos::from_millis(1_000 + self.rng.below(4_000));
            self.after(delay, Event::Late(transaction.clone()));
        }
        if is_lost {
            answer = match self.plant {
                Some(Plant::UnknownIsDone) => Answer::Done(self.store.revision() + 1),
                _ => Answer::Unknown,
            };
        }
        let delay = if is_lost { Nanos::from_secs(1) } else { self.some_time() };
        let input = Box::new(Input::Answered(number, answer));
        self.after(delay, Event::ToController { controller, life, input });
    }

    /// The store applies a transaction, or not.
    pub(super) fn apply(&mut self, transaction: &Transaction) -> Answer {
        let answer = self.store.transact(transaction);
        let allowed = Rules::on_change(&self.store.content, self.restored);
        self.check(allowed);
        if matches!(answer, Answer::Done(_)) {
            for (key, object) in &transaction.writes {
                match object {
                    Some(Object::Snapshot(one)) if one.taken.is_some() => {
                        self.on_ready(&Data::Snapshot(key.name.clone()));
                    }
                    Some(Object::Volume(one)) if one.copied => {
                        self.on_ready(&Data::Volume(key.name.clone()));
                    }
                    _ => (),
                }
            }
        }
        answer
    }

    pub(super) fn on_controller_output(&mut self, controller: usize, output: Output) {
        let life = self.stations[controller].life;
        match output {
            Output::Transact(number, transaction) => {
                let delay = self.some_time();
                self.after(delay, Event::Transact { controller, life, number, transaction });
            }
            Output::Resign => self.stations[controller].term = None,
            Output::List(number) => {
                self.stations[controller].lists = true;
                let (revision, event) = self.store.list(number);
                let reaches = self.network.reach(Place::Controller(controller), Place::Store);
                let delay = if reaches { self.some_time() } else { Nanos::from_secs(1) };
                let event = Box::new(event);
                self.after(delay, Event::Listed { controller, life, revision, event });
            }
            Output::Ask(node, term) => self.send_to_agent(controller, index_of(&node), Message::Ask(term)),
            Output::Slice(node, slice) => self.send_slice(controller, index_of(&node), slice),
            Output::Reply(id, mut reply) => {
                if self.plant == Some(Plant::EndedAtOnce) {
                    // Users take the mark for the end.
                    reply = reply.map(|_| Reply::Gone);
                }
                if !self.rng.one_in(20) {
                    let delay = self.some_time();
                    self.after(delay, Event::Reply(id, Some(reply)));
                }
            }
        }
    }

    fn send_slice(&mut self, controller: usize, machine: usize, mut slice: Slice) {
        if self.plant == Some(Plant::GrantedBeforeAcknowledged) {
            self.forge_acknowledgement(controller, machine, &slice);
        }
        if self.plant == Some(Plant::EpochIgnored) && self.rng.one_in(4) {
            // The agent takes even a late message.
            slice.seen.revision = 0;
        }
        self.send_to_agent(controller, machine, Message::Slice(slice));
    }

    fn send_to_agent(&mut self, controller: usize, machine: usize, message: Message) {
        let delay = self.some_time();
        let Some(connection) = self.network.connections.get_mut(&(controller, machine)) else { return };
        connection.last[0] = connection.last[0].max(self.now + delay);
        let (at, connection) = (connection.last[0], connection.id);
        self.at(at, Event::ToAgent { machine, connection, message });
    }

    /// Reports to a controller that an owner has what it was only sent.
    fn forge_acknowledgement(&mut self, controller: usize, machine: usize, slice: &Slice) {
        let Some(agent) = &self.machines[machine].agent else { return };
        let mut report = agent.describe();
        report.term = slice.seen.term;
        for volume in &mut report.volumes {
            if let Some(sent) = slice.volumes.iter().find(|one| one.name == volume.name) {
                (volume.epoch, volume.admitted) = (sent.epoch, sent.admitted.clone());
                volume.enforced = true;
            }
        }
        let input = Box::new(Input::Report(name_of(machine), report));
        let life = self.stations[controller].life;
        self.after(Nanos::from_millis(1), Event::ToController { controller, life, input });
    }

    fn is_connection(&self, controller: usize, machine: usize, id: u64) -> bool {
        self.network.connections.get(&(controller, machine)).is_some_and(|one| one.id == id)
    }

    pub(super) fn on_message(&mut self, machine: usize, connection: u64, message: &Message) {
        let is_open = (0..self.stations.len()).any(|one| self.is_connection(one, machine, connection));
        if self.machines[machine].stopped > self.now && is_open {
            let (at, message) = (self.machines[machine].stopped, message.clone());
            return self.at(at, Event::ToAgent { machine, connection, message });
        }
        match message {
            _ if !is_open => (),
            Message::Ask(term) => self.input_agent(machine, agent::Input::Asked(*term)),
            Message::Slice(slice) => {
                if self.plant == Some(Plant::SourceDeletedEarly) {
                    self.delete_marked(machine);
                }
                if self.plant == Some(Plant::DeletedByAbsence) {
                    self.delete_what_lacks(machine, slice);
                }
                if self.machines[machine].is_old {
                    self.input_agent(machine, agent::Input::Slice(&without_transports(slice.clone())));
                } else {
                    self.input_agent(machine, agent::Input::Slice(slice));
                }
            }
        }
    }

    /// Deletes the data of volumes that a slice lacks.
    fn delete_what_lacks(&mut self, machine: usize, slice: &Slice) {
        let data = self.machines[machine].data.keys();
        let lacking = data.filter(|name| slice.volumes.iter().all(|volume| volume.name != **name));
        for volume in lacking.cloned().collect::<Vec<_>>() {
            let one = &mut self.machines[machine];
            one.serving.retain(|served| served.name != volume);
            self.on_deleted(machine, &volume);
        }
    }

    pub(super) fn on_report(&mut self, controller: usize, connection: u64, report: Report) {
        let machine = (0..self.machines.len()).find(|one| self.is_connection(controller, *one, connection));
        if let Some(machine) = machine {
            self.input_controller(controller, Input::Report(name_of(machine), report));
        }
    }

    fn send_report(&mut self, machine: usize, report: &Report) {
        for controller in 0..self.stations.len() {
            let delay = self.some_time();
            let Some(connection) = self.network.connections.get_mut(&(controller, machine)) else { continue };
            connection.last[1] = connection.last[1].max(self.now + delay);
            let (at, connection) = (connection.last[1], connection.id);
            self.at(at, Event::Report { controller, connection, report: report.clone() });
        }
    }

    /// Makes the connections that can be made, and breaks those that cannot be.
    pub(super) fn dial(&mut self) {
        for controller in 0..self.stations.len() {
            for machine in 0..self.machines.len() {
                let ends = (Place::Controller(controller), Place::Machine(machine));
                let one = &self.machines[machine];
                let is_alive = self.stations[controller].engine.is_some() && one.agent.is_some();
                let reaches = is_alive && one.stopped <= self.now && self.network.reach(ends.0, ends.1);
                let is_connected = self.network.connections.contains_key(&(controller, machine));
                if is_connected && !reaches && (one.stopped <= self.now || self.rng.one_in(4)) {
                    self.network.connections.remove(&(controller, machine));
                    self.input_controller(controller, Input::Gone(name_of(machine)));
                } else if !is_connected && reaches {
                    self.network.next += 1;
                    let connection = Connection { id: self.network.next, last: [self.now; 2] };
                    self.network.connections.insert((controller, machine), connection);
                    self.input_controller(controller, Input::Hello(name_of(machine)));
                }
            }
        }
        self.after(Nanos::from_millis(400), Event::Dial);
    }

    pub(super) fn on_agent_output(&mut self, machine: usize, output: agent::Output) {
        let life = self.machines[machine].life;
        let delay = self.some_time();
        match output {
            agent::Output::Save { number, state } => {
                self.after(delay, Event::Saved { machine, life, number, state });
            }
            agent::Output::Serve { number, volumes } => {
                self.after(delay, Event::Served { machine, life, number, volumes });
            }
            agent::Output::Delete { volume, .. } => {
                self.after(delay, Event::Deleted { machine, life, volume });
            }
            agent::Output::Copy { number, copies } => {
                self.after(Nanos::from_millis(5), Event::Copies { machine, life, number, copies });
            }
            agent::Output::DeleteSnapshot { snapshot, epoch, .. } => {
                self.after(delay, Event::SnapshotDeleted { machine, life, snapshot, epoch });
            }
            agent::Output::Connect { name, attachment } => {
                self.after(
                    Nanos::from_millis(5),
                    Event::Device { machine, name, attachment: Some(attachment) },
                );
            }
            agent::Output::Disconnect(name) => {
                let allowed = self.rules.on_disconnect(&name);
                self.check(allowed);
                self.after(Nanos::from_millis(5), Event::Device { machine, name, attachment: None });
            }
            agent::Output::Report(report) => self.send_report(machine, &report),
            agent::Output::Refused(_) => (),
        }
    }

    /// A target has what its agent asked for.
    pub(super) fn on_served(&mut self, machine: usize, life: u64, number: u64, volumes: Vec<agent::Served>) {
        let one = &mut self.machines[machine];
        if one.life != life || number < one.served {
            return;
        }
        for volume in &volumes {
            one.data.entry(volume.name.clone()).or_default();
        }
        if self.plant != Some(Plant::FileNotSaved) {
            one.file.clone_from(&volumes);
        }
        (one.serving, one.served) = (volumes, number);
        self.observe(machine);
    }

    pub(super) fn on_device(
        &mut self,
        machine: usize,
        name: fleet::Name,
        attachment: Option<agent::SavedAttachment>,
    ) {
        let one = &mut self.machines[machine];
        if one.is_down {
            return;
        }
        match attachment {
            Some(attachment) => {
                let is_there =
                    one.devices.get(&name).is_some_and(|one| one.attachment.epoch == attachment.epoch);
                if !is_there {
                    one.devices.insert(name, Device { attachment, connected: false });
                }
            }
            None => {
                one.devices.remove(&name);
            }
        }
        self.observe(machine);
    }

    /// The devices of a machine write, each a little, over paths that may be slow.
    pub(super) fn on_write(&mut self, machine: usize) {
        let one = &self.machines[machine];
        if one.stopped <= self.now && !one.is_down {
            let devices: Vec<_> =
                one.devices.iter().map(|(name, one)| (name.clone(), one.attachment.clone())).collect();
            for (attachment, agent::SavedAttachment { volume, epoch, mode, addresses, .. }) in devices {
                let Some(owner) = addresses.first().and_then(|name| fleet::Name::new(name).ok()) else {
                    continue;
                };
                let owner = index_of(&owner);
                let rare = if self.rng.one_in(30) { 5_000 } else { 0 };
                let delay = Nanos::from_millis(1 + self.rng.below(5) + self.rng.below(1 + rare));
                if self.network.reach(Place::Machine(machine), Place::Machine(owner)) {
                    self.next_id += 1;
                    let write = Write { id: self.next_id, volume, attachment, epoch, mode };
                    self.after(delay, Event::Arrive { machine: owner, write });
                }
            }
        }
        let pause = Nanos::from_millis(20 + self.rng.below(80));
        self.after(pause, Event::Write(machine));
    }

    pub(super) fn on_arrival(&mut self, machine: usize, write: Write) {
        let one = &self.machines[machine];
        if one.is_down {
            return;
        }
        if one.stopped > self.now {
            let at = one.stopped;
            return self.at(at, Event::Arrive { machine, write });
        }
        if one.lets_in(&write.volume, &write.attachment, write.epoch).is_none() {
            self.counts.failed += 1;
            return;
        }
        self.rules.on_entry(machine, &write);
        let id = write.id;
        self.machines[machine].in_progress.insert(id, write);
        let delay = self.some_time();
        self.after(delay, Event::Execute { machine, id });
    }

    pub(super) fn on_execution(&mut self, machine: usize, id: u64) {
        if self.machines[machine].stopped > self.now {
            let at = self.machines[machine].stopped;
            return self.at(at, Event::Execute { machine, id });
        }
        let Some(write) = self.machines[machine].in_progress.remove(&id) else { return };
        self.counts.done += 1;
        if let Some(content) = self.machines[machine].data.get_mut(&write.volume) {
            content.push(id);
        }
        let allowed = self.rules.on_write(machine, &write);
        self.check(allowed);
        for one in &mut self.machines {
            if let Some(device) = one.devices.get_mut(&write.attachment) {
                device.connected = true;
            }
        }
    }
}

/// A slice as the version reads it that knows no transports.
fn without_transports(mut slice: Slice) -> Slice {
    let admitted = slice.volumes.iter_mut().flat_map(|volume| &mut volume.admitted);
    admitted.for_each(|one| one.transport = Transport::default());
    slice.attachments.iter_mut().for_each(|one| one.transport = Transport::default());
    slice
}
