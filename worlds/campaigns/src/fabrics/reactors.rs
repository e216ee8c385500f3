//! The reactors of a target: the home of its subsystem, and others with lanes. Letters between them
//! take times of their own, as between threads, and a reactor may do nothing for a while.

use std::collections::{BTreeMap, VecDeque};

use assemblies::target::{
    Accepted, Config, ConnectionId, Handover, Input, Output, ReactorId, Target, ToHome, ToLane,
};
use engine::{Engine, Instant, Nanos, Outbox, Rng};
use nvme::media::{Completion, IoId, MediaError, Ranges, Request};
use nvme::subsystem::ControllerKey;

use super::HOLD;
use super::target::KEY;

const HOME: usize = 0;

/// What one reactor sends another.
#[derive(Debug)]
enum Letter {
    /// A connection, and the number of its route.
    Connection(ConnectionId, u64, Handover),
    ToLane(ToLane),
    ToHome(ReactorId, ToHome),
}

/// A reactor with its target.
#[derive(Debug)]
struct Reactor {
    target: Target,
    inbox: VecDeque<(Instant, Letter)>,
    /// Until when the reactor does nothing.
    stalled: Instant,
}

/// A connection of a host.
#[derive(Debug)]
struct Route {
    /// Distinguishes the connection from others of the same name.
    number: u64,
    /// The reactor that has the connection.
    reactor: usize,
    /// The connection is on its way to the reactor.
    moves: bool,
    /// What is known since it was accepted; `None` of a queue pair, which never moves.
    accepted: Option<Accepted>,
}

/// The name of a request of one reactor.
type Name = (usize, IoId);

/// All reactors of a target. Connections have the same names in all of them.
#[derive(Debug)]
pub(super) struct Reactors {
    reactors: Vec<Reactor>,
    routes: BTreeMap<ConnectionId, Route>,
    /// Number of connections so far.
    accepted: u64,
    ranges: Ranges<Name, Option<ControllerKey>>,
    /// The requests of the medium, by the names that it knows.
    requests: Vec<Option<Name>>,
    outputs: VecDeque<Output>,
    rng: Rng,
}

impl Reactors {
    /// A target with `count` reactors.
    pub(super) fn new(
        now: Instant,
        config: &Config,
        core: &nvme::subsystem::Config,
        count: usize,
        rng: Rng,
    ) -> Self {
        let reactor = |index: usize| {
            let mut config = config.clone();
            config.rng = config.rng.fork(&format!("reactor {index}"));
            config.directory.subsystems[0].is_here = index == HOME;
            let mut target = Target::new(now, config);
            if index == HOME {
                target.add_subsystem(now, KEY, core.clone());
                if count > 1 {
                    target.allow_lanes(KEY);
                }
            }
            Reactor { target, inbox: VecDeque::new(), stalled: Instant::ZERO }
        };
        Self {
            reactors: (0..count).map(reactor).collect(),
            routes: BTreeMap::new(),
            accepted: 0,
            ranges: Ranges::default(),
            requests: Vec::new(),
            outputs: VecDeque::new(),
            rng,
        }
    }

    /// The target that has a connection now.
    fn target_of(&mut self, id: ConnectionId) -> Option<&mut Target> {
        let route = self.routes.get(&id).filter(|route| !route.moves)?;
        Some(&mut self.reactors[route.reactor].target)
    }

    pub(super) fn accept(&mut self, now: Instant, mut accepted: Accepted) {
        let id = accepted.connection;
        let kept = accepted.pair.is_none().then(|| Accepted {
            connection: id,
            port: accepted.port,
            fabric: accepted.fabric,
            peer: accepted.peer,
            local: accepted.local,
            proved: accepted.proved.take(),
            resume: None,
            pair: None,
        });
        self.accepted += 1;
        self.routes.insert(id, Route { number: self.accepted, reactor: HOME, moves: false, accepted: kept });
        self.reactors[HOME].target.handle_input(now, Input::Accepted(accepted));
        self.drain(now);
    }

    pub(super) fn closed(&mut self, now: Instant, id: ConnectionId) {
        let target = self.target_of(id);
        if let Some(target) = target {
            target.handle_input(now, Input::Closed(id));
        }
        // A connection that moves is found closed where it arrives.
        self.routes.remove(&id);
        self.drain(now);
    }

    /// An input for the reactor that has a connection.
    pub(super) fn handle_input(&mut self, now: Instant, id: ConnectionId, input: Input) {
        self.choose_lane();
        if let Some(target) = self.target_of(id) {
            target.handle_input(now, input);
        }
        self.drain(now);
    }

    /// Chooses the reactor for the next I/O queue.
    fn choose_lane(&mut self) {
        let count = self.reactors.len() as u64;
        let next = u32::try_from(self.rng.below(count)).expect("few reactors");
        self.reactors[HOME].target.set_next_lane((next > 0).then_some(ReactorId(next)));
    }

    /// Whether bytes of a connection are wanted now.
    pub(super) fn wants_input(&self, now: Instant, id: ConnectionId) -> bool {
        let Some(route) = self.routes.get(&id).filter(|route| !route.moves) else { return false };
        let reactor = &self.reactors[route.reactor];
        reactor.stalled <= now && reactor.target.wants_input(id)
    }

    pub(super) fn landing(&mut self, id: ConnectionId) -> Option<&mut [u8]> {
        self.target_of(id)?.landing(id)
    }

    pub(super) fn landed(&mut self, now: Instant, id: ConnectionId, count: usize) {
        if let Some(target) = self.target_of(id) {
            target.landed(now, id, count);
        }
        self.drain(now);
    }

    pub(super) fn outbox(&mut self, id: ConnectionId) -> Option<&Outbox> {
        self.target_of(id)?.outbox(id)
    }

    pub(super) fn sent(&mut self, now: Instant, id: ConnectionId, count: usize) {
        if let Some(target) = self.target_of(id) {
            target.sent(now, id, count);
        }
        self.drain(now);
    }

    /// A medium's answer to the request that it knows as `id`.
    pub(super) fn media(&mut self, now: Instant, completion: Completion) {
        let id = match &completion {
            Completion::Data { id, .. } | Completion::Done { id, .. } => *id,
        };
        // Requests of an earlier life are not known any more.
        let Some(place) = self.requests.get_mut(id.0 as usize) else { return };
        let Some(name) = *place else { return };
        let completion = match completion {
            Completion::Data { offset, data, .. } => Completion::Data { id: name.1, offset, data },
            Completion::Done { result, .. } => {
                *place = None;
                self.ranges.end(name);
                Completion::Done { id: name.1, result }
            }
        };
        self.reactors[name.0].target.handle_input(now, Input::Media { subsystem: KEY, completion });
        while let Some((name, request)) = self.ranges.begin_next() {
            self.begin(name, request);
        }
        self.drain(now);
    }

    /// Sends a request to the medium.
    fn begin(&mut self, name: Name, request: Request) {
        let free = self.requests.iter().position(Option::is_none).unwrap_or(self.requests.len());
        if free == self.requests.len() {
            self.requests.push(None);
        }
        self.requests[free] = Some(name);
        let id = IoId(u32::try_from(free).expect("few requests"));
        let request = Request { id, ..request };
        self.outputs.push_back(Output::Media { subsystem: KEY, owner: None, request });
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        for index in 0..self.reactors.len() {
            let reactor = &mut self.reactors[index];
            if reactor.target.poll_timeout().is_some_and(|at| at <= now) {
                reactor.target.handle_timeout(now);
            }
        }
        self.deliver(now);
        self.drain(now);
    }

    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let letters = self.reactors.iter().filter_map(|reactor| {
            let stalled = Some(reactor.stalled).filter(|at| *at > now);
            stalled.or_else(|| reactor.inbox.front().map(|(at, _)| *at))
        });
        let targets = self.reactors.iter().filter_map(|reactor| reactor.target.poll_timeout());
        letters.chain(targets).min()
    }

    /// The next output, for the world.
    pub(super) fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Delivers the letters that have arrived.
    fn deliver(&mut self, now: Instant) {
        for index in 0..self.reactors.len() {
            let has_letter =
                |one: &Reactor| one.stalled <= now && one.inbox.front().is_some_and(|(at, _)| *at <= now);
            while has_letter(&self.reactors[index])
                && let Some((_, letter)) = self.reactors[index].inbox.pop_front()
            {
                self.open(now, index, letter);
                self.drain(now);
            }
        }
    }

    fn open(&mut self, now: Instant, index: usize, letter: Letter) {
        let target = &mut self.reactors[index].target;
        match letter {
            Letter::ToLane(message) => {
                target.handle_input(now, Input::FromHome { subsystem: KEY, message });
            }
            Letter::ToHome(reactor, message) => {
                target.handle_input(now, Input::FromLane { subsystem: KEY, reactor, message });
            }
            Letter::Connection(id, number, handover) => {
                let ticket = handover.ticket.clone();
                let route = self.routes.get_mut(&id).filter(|one| one.number == number);
                match (route, ticket) {
                    (Some(route), _) => {
                        route.moves = false;
                        let Some(kept) = &route.accepted else { return };
                        let proved = kept.proved.clone();
                        let accepted = Accepted { resume: Some(handover), proved, pair: None, ..*kept };
                        target.handle_input(now, Input::Accepted(accepted));
                    }
                    (None, Some(ticket)) => target.return_ticket(now, ticket),
                    (None, None) => {}
                }
            }
        }
    }

    /// Passes on what all reactors have to say.
    fn drain(&mut self, now: Instant) {
        for index in 0..self.reactors.len() {
            while let Some(output) = self.reactors[index].target.poll_output() {
                self.on_output(now, index, output);
            }
        }
    }

    fn on_output(&mut self, now: Instant, index: usize, output: Output) {
        match output {
            Output::Media { owner, request, .. } => {
                let name = (index, request.id);
                if let Some(request) = self.ranges.enter(name, owner, request) {
                    self.begin(name, request);
                }
            }
            Output::Disowned { request, .. } => {
                if self.ranges.disown((index, request)) {
                    let completion = Completion::Done { id: request, result: Err(MediaError::Unreachable) };
                    let input = Input::Media { subsystem: KEY, completion };
                    self.reactors[index].target.handle_input(now, input);
                    while let Some((name, request)) = self.ranges.begin_next() {
                        self.begin(name, request);
                    }
                }
            }
            Output::HandOver { connection, lane, handover, .. } => {
                let lane = lane.expect("the subsystem has one home").0 as usize;
                let Some(route) = self.routes.get_mut(&connection) else { return };
                (route.reactor, route.moves) = (lane, true);
                let letter = Letter::Connection(connection, route.number, handover);
                self.post(now, lane, letter);
            }
            Output::ToLane { reactor, message, .. } => {
                self.post(now, reactor.0 as usize, Letter::ToLane(message));
            }
            Output::ToHome { message, .. } => {
                let own = ReactorId(u32::try_from(index).expect("few reactors"));
                self.post(now, HOME, Letter::ToHome(own, message));
            }
            output => self.outputs.push_back(output),
        }
    }

    /// Puts a letter into a reactor's mailbox, behind those that are there.
    fn post(&mut self, now: Instant, index: usize, letter: Letter) {
        let rare = if self.rng.one_in(50) { 5_000 } else { 0 };
        let delay = Nanos::from_micros(self.rng.below(20) + rare);
        let last = self.reactors[index].inbox.back().map_or(Instant::ZERO, |(at, _)| *at);
        self.reactors[index].inbox.push_back(((now + delay).max(last), letter));
        if self.rng.one_in(200) {
            let stall = Nanos::from_micros(1 + self.rng.below(HOLD.get() / 1_000));
            self.reactors[index].stalled = now + stall;
        }
    }
}
