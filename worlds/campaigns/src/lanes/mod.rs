//! Lanes of one subsystem in virtual time: every message between the subsystem and its lanes takes
//! its own time, as between threads, and hosts check by which views their commands are judged.
//!
//! The messages of each direction of a lane keep their order; nothing else does. Threads stall,
//! media are slow or fail, lanes come and go, hosts lose queues and whole controllers, and a
//! director makes one change of the subsystem after the other.

mod director;
mod health;
mod hosts;
mod medium;
mod rules;
mod threads;

use std::collections::BTreeMap;

use engine::{Engine, Instant, Nanos, Rng};
use nvme::media::Completion;
use nvme::subsystem::{
    CommandToken, CompletionResult, Config, ControllerKey, Input, LaneId, NamespaceConfig, Subsystem, ToLane,
    ToSubsystem,
};
use nvme::wire::{QueueId, SubmissionQueueEntry};

use crate::campaign::Outcome;
use crate::checker::{Checker, OperationId};
use crate::workload::Counts;
use director::Director;
use hosts::{Doubt, Host};
use medium::{Entry, Medium};
use rules::{Access, BLOCKS, NAMESPACES, Timeline};
use threads::Station;

/// Length of a logical block in bytes.
const BLOCK: usize = 512;
/// How long faults and changes happen.
const CHAOS: Nanos = Nanos::from_millis(12);
/// How long everything may take to end afterwards.
const DRAIN: Nanos = Nanos::from_secs(20);
/// Number of failures that a run reports.
const FAILURES_MAX: usize = 8;

/// A fault of the lanes' machinery, for tests of the campaign itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// A lane says that it has seen views, and goes on with the older ones for a while, once.
    OlderView,
    /// A lane says that it is quiet when it has only seen the views.
    EarlyQuiet,
    /// The range of a change is not released, once.
    LostRange,
    /// Lanes whose threads are gone are declared ended while media have their requests.
    EarlyGone,
}

impl Plant {
    /// All faults.
    pub const ALL: [Self; 4] = [Self::OlderView, Self::EarlyQuiet, Self::LostRange, Self::EarlyGone];
}

/// The thread that an engine runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Subsystem,
    Lane(LaneId),
}

/// What happens at a time.
#[derive(Debug)]
enum Event {
    /// A command arrives at its thread.
    Arrive(u64),
    /// The data of a command arrive, or fail to.
    Data(u64, bool),
    ToLane(LaneId, Box<ToLane>),
    ToSubsystem(LaneId, Box<ToSubsystem>),
    /// A medium executes a request.
    Execute(Entry),
    /// The answers of a medium arrive at the thread that sent the request.
    Answer(Place, Vec<Completion>),
    /// A completion arrives at its host.
    Completed(u64, CompletionResult),
    /// A host may send commands.
    Host(usize),
    /// The director goes on.
    Direct,
    /// Hosts end first halves of fused pairs, by a command that is not the second half.
    Flush,
    /// A thread does nothing for so long.
    Stall(Place, Nanos),
    /// A thread may go on, unless another stall has begun.
    Resume(Place),
    /// The subsystem's thread has handled the messages by which a lane has dropped a queue.
    Dropped {
        number: u64,
        host: usize,
        queue: QueueId,
    },
    /// The thread of some lane panics.
    Die,
    /// The subsystem's thread declares a lane ended.
    Gone(LaneId),
}

/// Who sent a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    Host,
    Director,
}

/// A command between its sending and its end.
#[derive(Debug)]
struct Pending {
    sender: Sender,
    place: Place,
    token: Option<CommandToken>,
    host: usize,
    controller: ControllerKey,
    queue: QueueId,
    entry: SubmissionQueueEntry,
    access: Option<Access>,
    sent: Instant,
    /// What the checkers know the command by.
    operations: Vec<OperationId>,
    /// The data for the device, or from it.
    data: Vec<u8>,
    /// Whether the host has asked to abort the command.
    aborted: bool,
    /// Whether a transfer was made to fail.
    cut: bool,
}

/// The whole world of a run.
struct World {
    now: Instant,
    sequence: u64,
    rng: Rng,
    events: BTreeMap<(Instant, u64), Event>,
    subsystem: Subsystem,
    stations: BTreeMap<Place, Station>,
    medium: Medium,
    /// The lanes whose threads are gone, and when the latest message of each arrives.
    dying: BTreeMap<Place, Instant>,
    /// Number of lanes whose threads were gone before they had reported their end.
    deaths: u64,
    /// Number of queues that hosts have lost.
    drops: u64,
    hosts: Vec<Host>,
    /// The namespaces, by index.
    configs: Vec<NamespaceConfig>,
    director: Director,
    pending: BTreeMap<u64, Pending>,
    next_id: u64,
    /// Operations of lost commands that the subsystem may still execute, by namespace.
    doubts: Vec<(Doubt, usize, OperationId)>,
    timeline: Timeline,
    /// Changes that no command completes: the version that lanes must have, and the new state.
    unseen: Vec<(u64, usize)>,
    checkers: Vec<Checker>,
    plant: Option<Plant>,
    /// Whether the planted fault has happened.
    planted: bool,
    counts: Counts,
    handled: u64,
    digest: sim::Digest,
    failures: Vec<String>,
}

/// Runs one seed.
pub fn run(seed: u64) -> Outcome {
    run_planted(seed, None)
}

/// Runs one seed with a fault of the machinery, which the run should find.
pub fn run_planted(seed: u64, plant: Option<Plant>) -> Outcome {
    let mut world = World::new(seed, plant);
    world.chaos();
    world.heal();
    Outcome { seed, ..world.finish() }
}

impl World {
    fn new(seed: u64, plant: Option<Plant>) -> Self {
        let mut rng = Rng::from_seed(seed).fork("lanes");
        let mut config = Config::new("LANES");
        for index in 0..NAMESPACES {
            let medium = nvme::media::MediumId(u32::try_from(index).expect("few namespaces"));
            config = config.with_namespace(medium, BLOCKS * BLOCK as u64);
        }
        (config.ana_groups, config.commands_max) = (1, 256);
        let configs = config.namespaces.clone();
        let subsystem = Subsystem::new(Instant::ZERO, config);
        let lanes = 1 + rng.below(8);
        let hosts = 2 + rng.below(3);
        let mut world = Self {
            now: Instant::ZERO,
            sequence: 0,
            medium: Medium::new(rng.fork("medium"), &mut rng),
            director: Director::new(rng.fork("director")),
            rng,
            events: BTreeMap::new(),
            subsystem,
            stations: BTreeMap::from([(Place::Subsystem, Station::new(None))]),
            dying: BTreeMap::new(),
            deaths: 0,
            drops: 0,
            hosts: Vec::new(),
            configs,
            pending: BTreeMap::new(),
            next_id: 0,
            doubts: Vec::new(),
            timeline: Timeline::new(),
            unseen: Vec::new(),
            checkers: (0..NAMESPACES).map(|_| Checker::new(BLOCKS, BLOCK)).collect(),
            plant,
            planted: false,
            counts: Counts::default(),
            handled: 0,
            digest: sim::Digest::default(),
            failures: Vec::new(),
        };
        world.director.faulty = world.medium.may_fail();
        (0..lanes).for_each(|_| world.attach());
        (0..hosts).for_each(|_| world.add_host());
        world
    }

    fn chaos(&mut self) {
        for host in 0..self.hosts.len() {
            self.after(Nanos::ZERO, Event::Host(host));
        }
        self.after(Nanos::from_micros(50), Event::Direct);
        for _ in 0..self.rng.below(4) {
            let at = Nanos::from_micros(self.rng.below(11_000));
            let places: Vec<_> = self.stations.keys().copied().collect();
            let place = places[self.below(places.len())];
            let length = Nanos::from_micros(100 + self.rng.below(3_000));
            self.after(at, Event::Stall(place, length));
        }
        for _ in 0..self.rng.below(5).saturating_sub(2) {
            let at = Nanos::from_micros(self.rng.below(11_500));
            self.after(at, Event::Die);
        }
        self.run_until(Instant::ZERO + CHAOS, |_| true);
    }

    /// Ends the changes, and lets everything end that is under way.
    fn heal(&mut self) {
        self.medium.heal();
        self.director.heal();
        self.after(Nanos::ZERO, Event::Direct);
        self.after(Nanos::from_micros(100), Event::Flush);
        let until = self.now + DRAIN;
        let is_busy = |world: &Self| {
            let has_doubts = !world.doubts.is_empty() || !world.dying.is_empty();
            !world.pending.is_empty() || has_doubts || !world.medium.is_idle()
        };
        self.run_until(until, |world| !world.director.is_done() || is_busy(world));
        if !self.failures.is_empty() {
            return; // The run has stopped at the failure.
        }
        for (id, one) in self.pending.iter().take(2) {
            let Pending { sender, place, host, queue, entry, sent, .. } = one;
            self.failures.push(format!(
                "command {id} has not ended: {sender:?} {host} sent it to {queue:?} of {place:?} at {sent:?}: \
                 {entry:?}"
            ));
        }
        if !self.doubts.is_empty() {
            self.failures.push(format!("a lost command has not ended: {:?}", self.doubts));
        }
        if !self.director.is_done() {
            self.failures.push(format!("a change has not ended: {:?}", self.director));
        }
    }

    fn finish(mut self) -> Outcome {
        if self.failures.is_empty() {
            self.verify();
        }
        for checker in &mut self.checkers {
            let violations = checker.take_violations();
            self.failures.extend(violations.iter().map(ToString::to_string));
        }
        self.failures.truncate(FAILURES_MAX);
        Outcome {
            scenario: "fabrics-lanes",
            digest: self.digest.value(),
            events: self.handled,
            elapsed: self.now - Instant::ZERO,
            counts: self.counts,
            failures: self.failures,
            ..Outcome::default()
        }
    }

    /// Reads every block through every lane, compares the health log with what hosts have seen,
    /// and looks for requests and ranges that are left.
    fn verify(&mut self) {
        for index in 0..self.stations.len() {
            self.verify_through(index);
        }
        let until = self.now + DRAIN;
        self.run_until(until, |world| !world.pending.is_empty());
        if !self.pending.is_empty() {
            self.failures.push(format!("{} reads of the verification have not ended", self.pending.len()));
        }
        for host in &self.hosts {
            let queues = host.queues.iter().map(|queue| self.subsystem.in_flight(host.key, queue.id));
            if queues.sum::<usize>() > 0 {
                self.failures.push(format!("the subsystem has commands of a queue of {:?}", host.key));
            }
        }
        if self.subsystem.lanes_lost() != self.deaths {
            self.failures.push(format!("{} lanes lost, not {}", self.subsystem.lanes_lost(), self.deaths));
        }
        if !self.medium.is_idle() {
            self.failures.push("a range or a request is left at the media".to_string());
        }
        self.verify_counts();
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

    fn fail(&mut self, failure: String) {
        if self.failures.len() < FAILURES_MAX {
            self.failures.push(failure);
        }
    }

    /// Lets events happen until `until`, while `go_on` and nothing has failed.
    fn run_until(&mut self, until: Instant, go_on: impl Fn(&Self) -> bool) {
        while self.failures.is_empty() && go_on(self) {
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let timer =
                self.stations.iter().filter_map(|(place, one)| Some((self.timer(one)?, *place))).min();
            let Some(at) = event.into_iter().chain(timer.map(|(at, _)| at)).min().filter(|at| *at <= until)
            else {
                self.now = self.now.max(until);
                return;
            };
            self.now = self.now.max(at);
            self.handled += 1;
            self.digest.word(self.now.as_nanos());
            match timer.filter(|(timer, _)| event.is_none_or(|event| *timer < event)) {
                Some((_, place)) => self.on_timer(place),
                None => {
                    if let Some((_, event)) = self.events.pop_first() {
                        self.on_event(event);
                    }
                }
            }
            self.note_seen();
        }
    }

    fn timer(&self, station: &Station) -> Option<Instant> {
        let at = match &station.lane {
            Some(lane) => lane.poll_timeout(),
            None => self.subsystem.poll_timeout(),
        };
        at.map(|at| at.max(station.stalled))
    }

    /// Lets an event happen, or keeps it until its thread goes on.
    fn on_event(&mut self, event: Event) {
        let now = self.now;
        let place = self.place_of(&event);
        match place.and_then(|place| self.stations.get_mut(&place)) {
            Some(station) if station.stalled > now || !station.backlog.is_empty() => {
                station.backlog.push_back(event);
            }
            _ => self.happen(event),
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(id) => self.on_arrival(id),
            Event::Data(id, fails) => self.on_data(id, fails),
            Event::ToLane(lane, message) => self.on_message_to_lane(lane, message),
            Event::ToSubsystem(lane, message) => {
                self.hand(Place::Subsystem, Input::FromLane(lane, message));
            }
            Event::Execute(entry) => self.on_execution(entry),
            Event::Answer(place, completions) => {
                for completion in completions {
                    self.hand(place, Input::Media(completion));
                }
            }
            Event::Completed(id, completion) => self.on_completed(id, completion),
            Event::Host(host) => self.on_host(host),
            Event::Direct => self.direct(),
            Event::Flush => self.flush_all(),
            Event::Stall(place, length) => {
                let until = self.now + length;
                if let Some(station) = self.stations.get_mut(&place) {
                    station.stalled = station.stalled.max(until);
                    self.at(until, Event::Resume(place));
                }
            }
            Event::Resume(place) => self.resume(place),
            Event::Dropped { number, host, queue } => self.on_dropped(number, host, queue),
            Event::Die => self.die(),
            Event::Gone(lane) => {
                self.dying.remove(&Place::Lane(lane));
                self.deaths += u64::from(self.subsystem.lanes().any(|one| one == lane));
                self.subsystem.lane_gone(self.now, lane);
                self.settle(Place::Subsystem);
                self.resolve_doubts(|doubt| matches!(doubt, Doubt::Lane(Place::Lane(one)) if one == lane));
            }
        }
    }

    /// The thread that an event happens on.
    fn place_of(&self, event: &Event) -> Option<Place> {
        match event {
            Event::Arrive(id) | Event::Data(id, _) => Some(self.pending.get(id)?.place),
            Event::ToLane(lane, _) => Some(Place::Lane(*lane)),
            Event::ToSubsystem(..) | Event::Dropped { .. } | Event::Gone(_) => Some(Place::Subsystem),
            Event::Answer(place, _) => Some(*place),
            _ => None,
        }
    }

    /// Notes that all lanes have seen changes of the world.
    fn note_seen(&mut self) {
        if self.unseen.is_empty() {
            return;
        }
        let lanes = self.stations.values().filter_map(|one| one.lane.as_ref());
        let seen = lanes.map(nvme::subsystem::Lane::version).min().unwrap_or(u64::MAX);
        let now = self.now;
        for (_, index) in self.unseen.extract_if(.., |(version, _)| *version <= seen) {
            self.timeline.end(now, index);
        }
    }
}
