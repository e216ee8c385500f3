//! An SSD whose I/O queues are on lanes, in virtual time: every message between the controller and
//! its lanes takes its own time, as between threads, and the host frees what a device may no longer
//! touch.
//!
//! The host creates and deletes queues, aborts commands, resets the controller and shuts it down.
//! Threads stall or panic, media are slow or fail, lanes come and go, doorbells are seen late, and
//! the device is reset or removed at any moment.

mod commands;
mod host;
mod memory;
mod threads;

use std::collections::BTreeMap;

use engine::{Buffer, Instant, Nanos, Rng};
use nvme::media::ram::RamDisk;
use nvme::media::{Completion, MediumId, Request};
use nvme::subsystem::LaneId;
use nvme_pcie::controller::{Config, Controller, ToHome, ToLane};
use nvme_pcie::registers::status;
use pcie::device::DmaResult;

use crate::campaign::Outcome;
use crate::checker::{Checker, OperationId};
use crate::workload::Counts;
use host::{Host, Stage};
use memory::HostMemory;
use threads::Station;

/// Length of a logical block in bytes.
const BLOCK: usize = 512;
/// Number of logical blocks of the namespace.
const BLOCKS: u64 = 96;
/// How long faults happen.
const CHAOS: Nanos = Nanos::from_millis(12);
/// How long everything may take to end afterwards.
const DRAIN: Nanos = Nanos::from_secs(20);
/// Number of failures that a run reports.
const FAILURES_MAX: usize = 8;

/// A fault of the lanes' machinery, for tests of the campaign itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// The controller says that it is not ready before a lane has acknowledged a reset.
    EarlyReady,
    /// A lane posts a completion of an earlier life of the controller, once.
    OldCompletion,
    /// The deletion of a submission queue is answered while commands of the queue are in progress.
    EarlyDeletion,
}

impl Plant {
    /// All faults.
    pub const ALL: [Self; 3] = [Self::EarlyReady, Self::OldCompletion, Self::EarlyDeletion];
}

/// The thread that an engine runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Home,
    Lane(LaneId),
}

/// What happens at a time.
#[derive(Debug)]
enum Event {
    /// A write of the host to a register arrives.
    Register {
        offset: u32,
        value: u64,
    },
    /// A lane sees a doorbell of a queue that was created as this one of the host.
    Doorbell {
        place: Place,
        offset: u32,
        value: u32,
        created: u64,
    },
    ToLane(LaneId, Box<ToLane>),
    ToHome(LaneId, Box<ToHome>),
    /// The answer to a read of host memory arrives.
    Read(Place, DmaResult),
    /// A planted fault: a write of a lane that was kept.
    Kept {
        address: u64,
        data: Buffer,
    },
    /// A medium executes a request.
    Execute(Place, Request),
    /// The answers of a medium arrive at the thread that sent the request.
    Answer(Place, Vec<Completion>),
    /// The host looks at a completion queue.
    Interrupt(u16),
    /// The host goes on.
    Host,
    /// A thread does nothing for so long.
    Stall(Place, Nanos),
    /// A thread may go on, unless another stall has begun.
    Resume(Place),
    /// The thread of some lane panics.
    Die,
    /// The home declares a lane ended.
    Gone(LaneId),
    Attach,
    Detach,
    /// The function is reset, without the host (a link that fails) or by it.
    Reset {
        by_host: bool,
    },
    /// The device loses its power, and comes back as another.
    Remove,
    /// The link may be up again.
    Return,
}

impl Event {
    /// Whether the event belongs to a device that is no more once it was removed.
    const fn is_of_device(&self) -> bool {
        !matches!(
            self,
            Self::Host
                | Self::Attach
                | Self::Detach
                | Self::Die
                | Self::Reset { by_host: false }
                | Self::Remove
                | Self::Return
        )
    }
}

/// The whole world of a run.
struct World {
    now: Instant,
    sequence: u64,
    rng: Rng,
    events: BTreeMap<(Instant, u64), Event>,
    config: Config,
    home: Controller,
    stations: BTreeMap<Place, Station>,
    /// The lanes whose threads are gone, and when the latest message of each arrives.
    dying: BTreeMap<Place, Instant>,
    disk: RamDisk,
    /// The requests that the medium has not executed, and whether each changes blocks.
    outstanding: Vec<(Place, nvme::media::IoId, bool)>,
    /// One in how many requests fails, or takes much longer; 0 for none.
    failing: u64,
    slow: u64,
    memory: HostMemory,
    host: Host,
    link_is_up: bool,
    /// Whether threads see doorbells themselves.
    sees_doorbells: bool,
    checker: Checker,
    /// Operations whose commands a reset has ended, which media may still carry out.
    doubts: Vec<OperationId>,
    plant: Option<Plant>,
    planted: bool,
    /// The life of the controller that lanes were sent last.
    life: u64,
    healing: bool,
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
        let mut rng = Rng::from_seed(seed).fork("disk-lanes");
        let core = nvme::subsystem::Config::new("LANES").with_namespace(MediumId(0), BLOCKS * BLOCK as u64);
        let mut config = Config::new(core);
        (config.io_queues, config.interrupt_vectors, config.commands_max) = (host::QUEUES_MAX, 5, 64);
        config.doorbell_buffers = rng.one_in(3);
        if rng.one_in(4) {
            config.bytes_in_flight_max = 16 << 10;
        }
        let mut world = Self {
            now: Instant::ZERO,
            sequence: 0,
            events: BTreeMap::new(),
            home: Controller::new(Instant::ZERO, config.clone()),
            config,
            stations: BTreeMap::from([(Place::Home, Station::new(None))]),
            dying: BTreeMap::new(),
            disk: RamDisk::new(BLOCKS * BLOCK as u64),
            outstanding: Vec::new(),
            failing: if rng.one_in(4) { 80 } else { 0 },
            slow: if rng.one_in(2) { 30 } else { 0 },
            memory: HostMemory::new(),
            host: Host::new(&mut rng),
            link_is_up: true,
            sees_doorbells: rng.one_in(2),
            checker: Checker::new(BLOCKS, BLOCK),
            doubts: Vec::new(),
            plant,
            planted: false,
            life: 0,
            healing: false,
            counts: Counts::default(),
            handled: 0,
            digest: sim::Digest::default(),
            failures: Vec::new(),
            rng,
        };
        world.host.may_fail = world.failing > 0;
        (0..world.rng.below(9)).for_each(|_| world.attach());
        world
    }

    fn chaos(&mut self) {
        self.after(Nanos::ZERO, Event::Host);
        for _ in 0..self.rng.below(5) {
            let at = Nanos::from_micros(self.rng.below(11_000));
            let place = self.some_place();
            let length = Nanos::from_micros(100 + self.rng.below(3_000));
            self.after(at, Event::Stall(place, length));
        }
        self.draw(3, 2, || Event::Die);
        self.draw(4, 1, || Event::Attach);
        self.draw(4, 1, || Event::Detach);
        self.draw(3, 2, || Event::Reset { by_host: false });
        self.draw(3, 2, || Event::Reset { by_host: true });
        self.draw(3, 2, || Event::Remove);
        self.run_until(Instant::ZERO + CHAOS, |_| true);
    }

    /// Lets an event happen at up to `most - spared` times.
    fn draw(&mut self, most: u64, spared: u64, event: impl Fn() -> Event) {
        for _ in 0..self.rng.below(most + 1).saturating_sub(spared) {
            let at = Nanos::from_micros(200 + self.rng.below(11_300));
            self.after(at, event());
        }
    }

    /// Ends the faults, and lets everything end that is under way.
    fn heal(&mut self) {
        (self.failing, self.slow, self.healing) = (0, 0, true);
        let until = self.now + DRAIN;
        self.run_until(until, |world| {
            let is_busy = !world.host.is_idle() || !world.outstanding.is_empty() || !world.dying.is_empty();
            // The host may not have seen yet that the controller has failed.
            let has_failed = status::FATAL.of(world.status()) == 1;
            world.host.stage != Stage::Running || is_busy || has_failed
        });
        if self.failures.is_empty() && (!self.host.is_idle() || self.host.stage != Stage::Running) {
            let host = &self.host;
            let status = self.status();
            self.failures.push(format!("the host is not idle, CSTS {status:#x}: {host:?}"));
        }
    }

    fn finish(mut self) -> Outcome {
        if self.failures.is_empty() {
            self.verify();
        }
        let violations = self.checker.take_violations();
        self.failures.extend(violations.iter().map(ToString::to_string));
        self.failures.truncate(FAILURES_MAX);
        Outcome {
            scenario: "disk-lanes",
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

    fn fail(&mut self, failure: String) {
        if self.failures.len() < FAILURES_MAX {
            self.failures.push(failure);
        }
    }

    /// Lets events happen until `until`, while `go_on` and nothing has failed.
    fn run_until(&mut self, until: Instant, go_on: impl Fn(&Self) -> bool) {
        while self.failures.is_empty() && go_on(self) {
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let timers = self.stations.iter().filter_map(|(place, one)| Some((self.timer(one)?, *place)));
            let timer = timers.min();
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
        }
    }

    /// Lets an event happen, or keeps it until its thread goes on.
    fn on_event(&mut self, event: Event) {
        let now = self.now;
        let place = place_of(&event);
        match place.and_then(|place| self.stations.get_mut(&place)) {
            Some(station) if station.stalled > now || !station.backlog.is_empty() => {
                station.backlog.push_back(event);
            }
            _ => self.happen(event),
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Register { offset, value } => self.on_register(offset, value),
            Event::Doorbell { place, offset, value, created } => {
                self.see_doorbell(place, offset, value, created);
            }
            Event::ToLane(lane, message) => self.on_message_to_lane(lane, message),
            Event::ToHome(lane, message) => self.on_message_home(lane, message),
            Event::Read(place, result) => self.on_read(place, result),
            Event::Kept { address, data } => self.write(Place::Home, address, &data),
            Event::Execute(place, request) => self.on_execution(place, request),
            Event::Answer(place, completions) => self.on_answers(place, completions),
            Event::Interrupt(vector) => self.on_interrupt(vector),
            Event::Host => self.on_host(),
            Event::Stall(place, length) => self.stall(place, length),
            Event::Resume(place) => self.resume(place),
            // A fault that a stalled thread has kept comes too late.
            Event::Die | Event::Detach | Event::Reset { .. } | Event::Remove if self.healing => (),
            Event::Die => self.die(),
            Event::Gone(lane) => self.on_gone(lane),
            Event::Attach => self.attach(),
            Event::Detach => self.detach(),
            Event::Reset { by_host } => self.reset_function(by_host),
            Event::Remove => self.remove(),
            Event::Return => self.try_to_return(),
        }
    }
}

/// The thread that an event happens on.
const fn place_of(event: &Event) -> Option<Place> {
    match event {
        Event::Doorbell { place, .. } | Event::Read(place, _) | Event::Answer(place, _) => Some(*place),
        Event::ToLane(lane, _) => Some(Place::Lane(*lane)),
        Event::Register { .. }
        | Event::ToHome(..)
        | Event::Gone(_)
        | Event::Attach
        | Event::Detach
        | Event::Reset { .. } => Some(Place::Home),
        Event::Kept { .. }
        | Event::Execute(..)
        | Event::Interrupt(_)
        | Event::Host
        | Event::Stall(..)
        | Event::Resume(_)
        | Event::Die
        | Event::Remove
        | Event::Return => None,
    }
}
