//! A fleet in virtual time: controllers and agents with a store, targets and hosts, while machines
//! die, links part, replies are lost, and the store is away, compacted or restored.
//!
//! The engines are those of `pure/fleet`. The store, the targets and the hosts are models: a target
//! lets in the hosts of its file, and takes its time to execute what they write.

mod calls;
mod convergence;
mod copies;
mod faults;
mod machine;
mod network;
mod rules;
mod store;

use std::collections::BTreeMap;

use engine::{Engine, Instant, Nanos, Rng, settle};
use fleet::agent::{self, State};
use fleet::controller::{self, CallId, Reply};
use fleet::object::{Data, Key, Kind, Node, Object, Pool};
use fleet::slice::Report;
use fleet::store::{Event as StoreEvent, Revision, Transaction};
use fleet::{Agent, Controller, Epoch, Name};

use crate::campaign::Outcome;
use crate::workload::Counts;
use calls::User;
use machine::{Machine, Write};
use network::{Message, Network};
use rules::Rules;
use store::{Content, Store};

/// How long faults happen.
const CHAOS: Nanos = Nanos::from_secs(60);
/// How long everything may take to be as users want it afterwards.
const DRAIN: Nanos = Nanos::from_secs(60);
/// Number of failures that a run reports.
const FAILURES_MAX: usize = 6;

/// The size of a fleet.
#[derive(Clone, Copy, Debug)]
struct Shape {
    scenario: &'static str,
    machines: usize,
    /// Bytes of a pool.
    pool: u64,
    /// The number of volumes that users create one after the other, each for a host. Otherwise they
    /// do this and that.
    volumes: usize,
}

/// The machines and the volumes of a large fleet.
const LARGE: Shape = Shape { scenario: "fleet-large", machines: 100, pool: 1_000, volumes: 1_000 };
/// The most transactions that a call of a user leads to, and those of all calls together beside.
const WRITES_PER_CALL: u64 = 8;

/// A fault of the machinery, for tests of the campaign itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// Controllers take it that owners have acknowledged every list at once.
    GrantedBeforeAcknowledged,
    /// Agents do not make their states durable.
    NotSaved,
    /// Agents forget the epochs that they have made durable.
    EpochIgnored,
    /// The unknown outcome of a transaction is taken for a success.
    UnknownIsDone,
    /// The store applies transactions of controllers that lead no longer.
    TermIgnored,
    /// Targets do not make durable what their agents ask for, and start again with older lists.
    FileNotSaved,
    /// Agents do not look for requests in progress before they acknowledge a list.
    RequestsOverlooked,
    /// A user learns that an attachment has ended as soon as it is marked.
    EndedAtOnce,
    /// Agents delete the data of volumes that a slice lacks.
    DeletedByAbsence,
    /// A copy counts as made as soon as it is begun.
    ReadyBeforeDurable,
    /// A snapshot is deleted as soon as it is marked, although a volume is yet to be made from it.
    SourceDeletedEarly,
    /// A copy that takes its time is made while hosts write.
    CopiedUnderWrites,
}

impl Plant {
    /// All faults.
    pub const ALL: [Self; 12] = [
        Self::GrantedBeforeAcknowledged,
        Self::NotSaved,
        Self::EpochIgnored,
        Self::UnknownIsDone,
        Self::TermIgnored,
        Self::FileNotSaved,
        Self::RequestsOverlooked,
        Self::EndedAtOnce,
        Self::DeletedByAbsence,
        Self::ReadyBeforeDurable,
        Self::SourceDeletedEarly,
        Self::CopiedUnderWrites,
    ];
}

/// A controller on a machine of its own.
#[derive(Debug, Default)]
struct Station {
    engine: Option<Controller>,
    life: u64,
    /// The term in which the controller leads, as far as it knows.
    term: Option<u64>,
    /// The revision up to which it has got changes.
    watched: Revision,
    /// Whether it waits for a list before it watches.
    lists: bool,
    /// How far its clock has jumped ahead.
    ahead: Nanos,
}

/// What happens at a time.
#[derive(Debug)]
enum Event {
    /// A controller looks after its lease and its watch.
    Tick(usize),
    /// A transaction arrives at the store.
    Transact { controller: usize, life: u64, number: u64, transaction: Transaction },
    /// A transaction arrives that its controller has given up.
    Late(Transaction),
    /// An answer of the store arrives at a controller.
    ToController { controller: usize, life: u64, input: Box<controller::Input> },
    /// A list arrives at a controller.
    Listed { controller: usize, life: u64, revision: Revision, event: Box<StoreEvent> },
    /// A message of a controller arrives at a machine, over a connection.
    ToAgent { machine: usize, connection: u64, message: Message },
    /// A report arrives at a controller, over a connection.
    Report { controller: usize, connection: u64, report: Report },
    /// Connections are made and found broken.
    Dial,
    /// The state of an agent is durable.
    Saved { machine: usize, life: u64, number: u64, state: State },
    /// A target has carried out what its agent asked for.
    Served { machine: usize, life: u64, number: u64, volumes: Vec<agent::Served> },
    /// A machine has connected a device, or disconnected it.
    Device { machine: usize, name: Name, attachment: Option<agent::SavedAttachment> },
    /// A machine has deleted a volume's data.
    Deleted { machine: usize, life: u64, volume: Name },
    /// A machine gets to know which copies its agent wants.
    Copies { machine: usize, life: u64, number: u64, copies: Vec<agent::ToCopy> },
    /// A machine has made a copy, and it is durable.
    Copied { machine: usize, life: u64, data: Data, attempt: u64 },
    /// A machine has deleted a snapshot.
    SnapshotDeleted { machine: usize, life: u64, snapshot: Name, epoch: Epoch },
    /// An agent looks at its machine.
    Observe(usize),
    /// Hosts write.
    Write(usize),
    /// A write arrives at a target.
    Arrive { machine: usize, write: Write },
    /// A disk executes a write.
    Execute { machine: usize, id: u64 },
    /// A user does something.
    Act,
    /// A reply arrives at a user, or the user has waited long enough.
    Reply(CallId, Option<Result<Reply, controller::ApiError>>),
    /// Something goes wrong.
    Fault,
    /// A controller or an agent starts again.
    Start { controller: bool, index: usize },
}

/// The whole world of a run.
struct World {
    now: Instant,
    shape: Shape,
    sequence: u64,
    rng: Rng,
    events: BTreeMap<(Instant, u64), Event>,
    store: Store,
    backup: Option<Content>,
    stations: Vec<Station>,
    machines: Vec<Machine>,
    network: Network,
    user: User,
    rules: Rules,
    /// Whether the store was restored, so that users no longer know its content.
    restored: bool,
    next_id: u64,
    plant: Option<Plant>,
    counts: Counts,
    handled: u64,
    digest: sim::Digest,
    failures: Vec<String>,
}

/// Runs one seed.
pub fn run(seed: u64) -> Outcome {
    run_planted(seed, None)
}

/// Runs one seed of a fleet of 100 machines, which get 1,000 volumes with a host each.
pub fn run_large(seed: u64) -> Outcome {
    run_shape(seed, None, LARGE)
}

/// Runs one seed with a fault of the machinery, which the run should find.
pub fn run_planted(seed: u64, plant: Option<Plant>) -> Outcome {
    let machines = 2 + usize::try_from(Rng::from_seed(seed).fork("machines").below(5)).expect("few");
    run_shape(seed, plant, Shape { scenario: "fleet", machines, pool: 60, volumes: 0 })
}

fn run_shape(seed: u64, plant: Option<Plant>, shape: Shape) -> Outcome {
    let mut world = World::new(seed, plant, shape);
    world.chaos();
    world.heal();
    Outcome { seed, ..world.finish() }
}

/// The time at which a clock that is ahead shows `at`.
fn before(at: Instant, ahead: Nanos) -> Instant {
    Instant::from_nanos(at.as_nanos().saturating_sub(ahead.get()))
}

/// The name of a machine, and of its pool.
fn name_of(machine: usize) -> Name {
    Name::new(&format!("m{machine}")).expect("a name")
}

/// The machine with a name.
fn index_of(name: &Name) -> usize {
    name.as_str()[1..].parse().expect("the name of a machine")
}

impl World {
    fn new(seed: u64, plant: Option<Plant>, shape: Shape) -> Self {
        let mut rng = Rng::from_seed(seed).fork("fleet");
        let controllers = 1 + usize::try_from(rng.below(3)).expect("few");
        let machines = shape.machines;
        let mut world = Self {
            now: Instant::ZERO,
            shape,
            sequence: 0,
            user: User::new(rng.fork("user")),
            network: Network::new(controllers, machines),
            rng,
            events: BTreeMap::new(),
            store: Store::default(),
            backup: None,
            stations: Vec::new(),
            machines: Vec::new(),
            rules: Rules::default(),
            restored: false,
            next_id: 0,
            plant,
            counts: Counts::default(),
            handled: 0,
            digest: sim::Digest::default(),
            failures: Vec::new(),
        };
        world.store.ignores_terms = plant == Some(Plant::TermIgnored);
        world.populate(machines);
        let [mut kinds, mut versions] = ["pools", "versions"].map(|name| Rng::from_seed(seed).fork(name));
        for index in 0..controllers {
            world.stations.push(Station::default());
            world.at(Instant::ZERO, Event::Start { controller: true, index });
        }
        for index in 0..machines {
            let (shares, is_old) = (kinds.one_in(2), versions.one_in(3));
            world.machines.push(Machine::new(name_of(index), shares, is_old));
            world.at(Instant::ZERO, Event::Start { controller: false, index });
            world.at(Instant::ZERO, Event::Write(index));
        }
        world.at(Instant::ZERO, Event::Dial);
        world
    }

    /// Enrols the machines, each with a pool.
    fn populate(&mut self, machines: usize) {
        let writes = (0..machines).flat_map(|index| {
            let name = name_of(index);
            let node = Node {
                identity: [u8::try_from(index).expect("at most 256"); 32],
                addresses: vec![name.to_string()],
                ..Node::default()
            };
            let pool =
                Pool { node: name.clone(), path: "/pool".to_owned(), bytes: self.shape.pool, clones: false };
            [
                (Key { kind: Kind::Node, name: name.clone() }, Some(Object::Node(node))),
                (Key { kind: Kind::Pool, name }, Some(Object::Pool(pool))),
            ]
        });
        let writes = writes.collect();
        self.store.transact(&Transaction { term: 0, compares: Vec::new(), writes });
    }

    fn chaos(&mut self) {
        self.after(Nanos::from_secs(2), Event::Act);
        self.after(Nanos::from_secs(3), Event::Fault);
        self.run_until(Instant::ZERO + CHAOS, |_| true);
    }

    /// Ends all faults, and lets everything become as users want it.
    fn heal(&mut self) {
        self.end_faults();
        let until = self.now + DRAIN;
        while self.failures.is_empty() && self.now < until {
            let step = self.now + Nanos::from_secs(1);
            self.run_until(step, |_| true);
            if self.restored && self.needs_recovery() {
                self.ask_for_recovery();
            }
            if self.what_is_missing().is_none() {
                let kept = self.copies_are_as_promised();
                self.check(kept);
                return;
            }
        }
        if let Err(failure) = self.copies_are_as_promised() {
            self.failures.push(failure);
        }
        if let Some(missing) = self.what_is_missing().filter(|_| self.failures.is_empty()) {
            self.failures.push(format!("not as users want it: {missing}"));
        }
    }

    fn finish(mut self) -> Outcome {
        // A call costs a bounded number of writes, and time costs none.
        let (writes, calls) = (self.store.writes, self.user.calls());
        if self.failures.is_empty() && writes > WRITES_PER_CALL * (calls + 10) {
            self.failures.push(format!("{calls} calls have led to {writes} writes of the store"));
        }
        self.failures.truncate(FAILURES_MAX);
        Outcome {
            scenario: self.shape.scenario,
            digest: self.digest.value(),
            events: self.handled,
            elapsed: self.now - Instant::ZERO,
            counts: self.counts,
            failures: self.failures,
            ..Outcome::default()
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.rng.below(bound as u64)).expect("less than a usize")
    }

    fn after(&mut self, delay: Nanos, event: Event) {
        self.at(self.now + delay, event);
    }

    fn at(&mut self, at: Instant, event: Event) {
        self.sequence += 1;
        self.events.insert((at, self.sequence), event);
    }

    /// A time that mostly is short, and sometimes long.
    fn some_time(&mut self) -> Nanos {
        let rare = if self.rng.one_in(40) { 3_000 } else { 0 };
        Nanos::from_millis(1 + self.rng.below(20) + self.rng.below(1 + rare))
    }

    fn check(&mut self, result: Result<(), String>) {
        if let Err(failure) = result
            && self.failures.len() < FAILURES_MAX
        {
            self.failures.push(format!("{failure}, at {:?}", self.now));
        }
    }

    /// Lets events happen until `until`, while `go_on` and nothing has failed.
    fn run_until(&mut self, until: Instant, go_on: impl Fn(&Self) -> bool) {
        while self.failures.is_empty() && go_on(self) {
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let timers = self.timers();
            let timer = timers.iter().min().copied();
            let Some(at) = event.into_iter().chain(timer.map(|(at, ..)| at)).min().filter(|at| *at <= until)
            else {
                self.now = self.now.max(until);
                return;
            };
            self.now = self.now.max(at);
            self.handled += 1;
            self.digest.word(self.now.as_nanos());
            match timer.filter(|(timer, ..)| event.is_none_or(|event| *timer < event)) {
                Some((_, true, index)) => self.settle_controller(index),
                Some((_, false, index)) => self.settle_agent(index),
                None => {
                    if let Some((_, event)) = self.events.pop_first() {
                        self.happen(event);
                    }
                }
            }
        }
    }

    /// When the engines want to be called: whether it is a controller, and which.
    fn timers(&self) -> Vec<(Instant, bool, usize)> {
        let controllers = self.stations.iter().enumerate().filter_map(|(index, one)| {
            Some((before(one.engine.as_ref()?.poll_timeout()?, one.ahead), true, index))
        });
        let agents = self.machines.iter().enumerate().filter_map(|(index, one)| {
            let at = before(one.agent.as_ref()?.poll_timeout()?, one.ahead).max(one.stopped);
            Some((at, false, index))
        });
        controllers.chain(agents).collect()
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Tick(index) => self.tick(index),
            Event::Transact { controller, life, number, transaction } => {
                self.on_transaction(controller, life, number, &transaction);
            }
            Event::Late(transaction) => {
                self.apply(&transaction);
            }
            Event::ToController { controller, life, input } => {
                if self.stations[controller].life == life {
                    self.input_controller(controller, *input);
                }
            }
            Event::Listed { controller, life, revision, event } => {
                let station = &mut self.stations[controller];
                if station.life == life {
                    (station.watched, station.lists) = (revision, false);
                    self.input_controller(controller, controller::Input::Store(*event));
                }
            }
            Event::ToAgent { machine, connection, message } => self.on_message(machine, connection, &message),
            Event::Report { controller, connection, report } => {
                self.on_report(controller, connection, report)
            }
            Event::Dial => self.dial(),
            Event::Saved { machine, life, number, state } => {
                if self.machines[machine].life == life {
                    if self.plant != Some(Plant::NotSaved) || !self.rng.one_in(2) {
                        self.machines[machine].disk = state;
                    }
                    self.input_agent(machine, agent::Input::Saved(number));
                }
            }
            Event::Served { machine, life, number, volumes } => {
                self.on_served(machine, life, number, volumes)
            }
            Event::Device { machine, name, attachment } => self.on_device(machine, name, attachment),
            Event::Deleted { machine, life, volume } => {
                let one = &mut self.machines[machine];
                if one.life == life && one.serving.iter().all(|served| served.name != volume) {
                    self.on_deleted(machine, &volume);
                    self.observe(machine);
                }
            }
            Event::Copies { machine, life, number, copies } => {
                self.on_copies(machine, life, number, &copies);
            }
            Event::Copied { machine, life, data, attempt } => self.on_copied(machine, life, &data, attempt),
            Event::SnapshotDeleted { machine, life, snapshot, epoch } => {
                self.on_snapshot_deleted(machine, life, &snapshot, epoch);
            }
            Event::Observe(machine) => {
                self.observe(machine);
                self.after(Nanos::from_millis(200), Event::Observe(machine));
            }
            Event::Write(machine) => self.on_write(machine),
            Event::Arrive { machine, write } => self.on_arrival(machine, write),
            Event::Execute { machine, id } => self.on_execution(machine, id),
            Event::Act => self.act(),
            Event::Reply(id, reply) => self.on_reply(id, reply),
            Event::Fault => self.on_fault(),
            Event::Start { controller: true, index } => self.start_controller(index),
            Event::Start { controller: false, index } => self.start_agent(index),
        }
    }

    /// A machine deletes a volume's data.
    fn on_deleted(&mut self, machine: usize, volume: &Name) {
        let one = &mut self.machines[machine];
        let data = Data::Volume(volume.clone());
        one.data.remove(volume);
        one.made.retain(|(made, _)| *made != data);
        self.rules.on_delete(machine, volume);
        let allowed = self.may_delete(&data);
        self.check(allowed);
    }

    fn start_controller(&mut self, index: usize) {
        let station = &mut self.stations[index];
        if station.engine.is_some() {
            return;
        }
        let life = station.life + 1;
        *station = Station { engine: Some(Controller::new()), life, lists: true, ..Station::default() };
        self.after(Nanos::from_millis(1), Event::Tick(index));
    }

    fn start_agent(&mut self, index: usize) {
        let (now, plant) = (self.now, self.plant);
        let machine = &mut self.machines[index];
        if machine.agent.is_some() {
            return;
        }
        machine.is_down = false;
        machine.life += 1;
        (machine.served, machine.ahead) = (0, Nanos::ZERO);
        machine.copies_number = 0;
        machine.making.clear();
        if plant == Some(Plant::EpochIgnored) {
            for volume in machine.disk.volumes.values_mut() {
                volume.epoch = Epoch::default();
            }
            machine.disk.seen = fleet::slice::Seen::default();
        }
        // After a fault, the program starts that is installed by then.
        machine.is_old &= machine.life == 1;
        machine.agent = Some(Agent::new(now, machine.disk.clone()));
        // A target that starts reads its file.
        machine.serving = machine.file.clone();
        let first = machine.life == 1;
        self.settle_agent(index);
        if first {
            self.after(Nanos::from_millis(200), Event::Observe(index));
        }
    }

    fn input_controller(&mut self, index: usize, input: controller::Input) {
        let now = self.now + self.stations[index].ahead;
        if let Some(engine) = &mut self.stations[index].engine {
            engine.handle_input(now, input);
            self.settle_controller(index);
        }
    }

    fn settle_controller(&mut self, index: usize) {
        let mut outputs = Vec::new();
        let now = self.now + self.stations[index].ahead;
        if let Some(engine) = &mut self.stations[index].engine {
            settle(engine, now, |output| outputs.push(output));
        }
        for output in outputs {
            self.on_controller_output(index, output);
        }
    }

    fn input_agent(&mut self, index: usize, input: agent::Input<'_>) {
        let now = self.now + self.machines[index].ahead;
        if let Some(agent) = &mut self.machines[index].agent {
            agent.handle_input(now, input);
            self.settle_agent(index);
        }
    }

    fn settle_agent(&mut self, index: usize) {
        let mut outputs = Vec::new();
        let now = self.now + self.machines[index].ahead;
        if let Some(agent) = &mut self.machines[index].agent {
            settle(agent, now, |output| outputs.push(output));
        }
        for output in outputs {
            self.on_agent_output(index, output);
        }
    }

    fn observe(&mut self, machine: usize) {
        let one = &self.machines[machine];
        if one.stopped <= self.now && !one.is_down {
            let mut observation = one.observe(self.plant);
            if self.plant == Some(Plant::RequestsOverlooked) {
                observation.associations.clear();
            }
            self.input_agent(machine, agent::Input::Observed(&observation));
        }
    }
}
