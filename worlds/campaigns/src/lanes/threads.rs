//! The threads of the subsystem and its lanes, and the messages between them.

use std::collections::{BTreeMap, VecDeque};

use engine::{Buffer, Engine, Instant, Nanos};
use nvme::media::{Operation, Request};
use nvme::subsystem::{CommandToken, Input, Lane, LaneId, Output, ToLane, ToSubsystem};
use nvme::wire::{Status, StatusCode};

use super::health::Tally;
use super::hosts::Doubt;
use super::{Event, Pending, Place, Plant, Sender, World};

/// A thread with its engine; the subsystem is elsewhere.
#[derive(Debug)]
pub(super) struct Station {
    pub(super) lane: Option<Lane>,
    /// Until when the thread does nothing.
    pub(super) stalled: Instant,
    /// What happened while the thread did nothing, in its order.
    pub(super) backlog: VecDeque<Event>,
    /// The commands of the engine by token.
    commands: BTreeMap<u32, u64>,
    /// When the latest message to the lane arrives, and the latest one from it.
    last_to: Instant,
    last_from: Instant,
    /// Until when messages to the lane are kept from it, because of a planted fault.
    late: Option<Instant>,
    /// Whether no new commands come to the lane, because it will end.
    pub(super) leaving: bool,
    /// Whether the lane has ended all commands and takes no more.
    ended: bool,
    /// The commands that the lane has completed since it last reported its counts.
    unreported: Tally,
}

impl Station {
    pub(super) fn new(lane: Option<Lane>) -> Self {
        Self {
            lane,
            stalled: Instant::ZERO,
            backlog: VecDeque::new(),
            commands: BTreeMap::new(),
            last_to: Instant::ZERO,
            last_from: Instant::ZERO,
            late: None,
            leaving: false,
            ended: false,
            unreported: Tally::new(),
        }
    }

    /// A token for a command.
    fn begin(&mut self, id: u64) -> CommandToken {
        let token = (0..).find(|token| !self.commands.contains_key(token)).expect("there are few commands");
        self.commands.insert(token, id);
        CommandToken(token)
    }
}

impl World {
    /// Attaches a lane.
    pub(super) fn attach(&mut self) {
        let (id, views) = self.subsystem.attach_lane(self.now);
        self.stations.insert(Place::Lane(id), Station::new(Some(Lane::new(self.now, views))));
        self.settle(Place::Subsystem);
    }

    /// The lanes that take commands.
    pub(super) fn lanes(&self) -> Vec<LaneId> {
        let lanes = self.stations.iter().filter(|(_, station)| !station.leaving);
        lanes
            .filter_map(|(place, _)| if let Place::Lane(lane) = place { Some(*lane) } else { None })
            .collect()
    }

    /// Hands an input to the engine of a thread.
    pub(super) fn hand(&mut self, place: Place, input: Input) {
        let now = self.now;
        match place {
            Place::Subsystem => self.subsystem.handle_input(now, input),
            Place::Lane(_) => {
                let station = self.stations.get_mut(&place);
                let Some(lane) = station.and_then(|one| one.lane.as_mut()) else { return };
                lane.handle_input(now, input);
            }
        }
        self.settle(place);
    }

    pub(super) fn on_timer(&mut self, place: Place) {
        let now = self.now;
        match self.stations.get_mut(&place).and_then(|one| one.lane.as_mut()) {
            Some(lane) => lane.handle_timeout(now),
            None => self.subsystem.handle_timeout(now),
        }
        self.settle(place);
    }

    fn poll(&mut self, place: Place) -> Option<Output> {
        match place {
            Place::Subsystem => self.subsystem.poll_output(),
            Place::Lane(_) => self.stations.get_mut(&place)?.lane.as_mut()?.poll_output(),
        }
    }

    /// Carries out what an engine asks for.
    pub(super) fn settle(&mut self, place: Place) {
        while let Some(output) = self.poll(place) {
            match output {
                Output::PullHostData { token, length } => self.on_pull(place, token, length),
                Output::PushHostData { token, offset, length, data } => {
                    if let Some(one) = self.command_of(place, token).and_then(|id| self.pending.get_mut(&id))
                    {
                        one.data.resize(usize::try_from(length).expect("a transfer"), 0);
                        one.data[usize::try_from(offset).expect("a transfer")..][..data.len()]
                            .copy_from_slice(&data);
                    }
                }
                Output::Complete { token, completion } => {
                    let station = self.stations.get_mut(&place).expect("it has just completed a command");
                    let id = station.commands.remove(&token.0);
                    let Some(id) = id else {
                        self.fail(format!("{place:?} completes {token:?}, which has no command"));
                        return;
                    };
                    if let Some(one) = self.pending.get_mut(&id) {
                        one.token = None;
                        station.unreported.count(one, completion.status.code());
                        let delay = Nanos::from_micros(1 + self.rng.below(15));
                        self.after(delay, Event::Completed(id, completion));
                    }
                }
                Output::Media(request) => self.on_request(place, request),
                Output::Notify(notification) => self.on_notification(&notification),
                Output::ToLane(lane, message) => self.post_to_lane(lane, message),
                Output::ToSubsystem(message) => self.post_to_subsystem(place, message),
                Output::Disowned(id) => self.disown(place, id),
            }
        }
        if place == Place::Subsystem {
            // A lane that has reported its end is no more.
            let alive: Vec<_> = self.subsystem.lanes().map(Place::Lane).collect();
            let is_gone = |place: &Place, _: &mut _| *place != Place::Subsystem && !alive.contains(place);
            let gone: Vec<_> = self.stations.extract_if(.., is_gone).collect();
            for (place, station) in gone {
                self.resolve_doubts(|doubt| matches!(doubt, Doubt::Lane(one) if one == place));
                for event in station.backlog {
                    self.after(Nanos::ZERO, event);
                }
            }
        }
    }

    /// A thread goes on with what has happened meanwhile.
    pub(super) fn resume(&mut self, place: Place) {
        while let Some(station) = self.stations.get_mut(&place).filter(|one| one.stalled <= self.now)
            && let Some(event) = station.backlog.pop_front()
        {
            self.happen(event);
        }
    }

    fn command_of(&self, place: Place, token: CommandToken) -> Option<u64> {
        self.stations.get(&place)?.commands.get(&token.0).copied()
    }

    fn on_pull(&mut self, place: Place, token: CommandToken, length: u32) {
        let Some(id) = self.command_of(place, token) else { return };
        let Some(one) = self.pending.get(&id) else { return };
        if u32::try_from(one.data.len()) != Ok(length) {
            let entry = one.entry;
            return self.fail(format!("{place:?} pulls {length} B for {entry:?}"));
        }
        let rare = if self.rng.one_in(20) { 700 } else { 0 };
        let fails = self.rng.one_in(200);
        let delay = Nanos::from_micros(1 + self.rng.below(50) + rare);
        self.after(delay, Event::Data(id, fails));
    }

    /// A command arrives at its thread, which may be no more.
    pub(super) fn on_arrival(&mut self, id: u64) {
        let Some(one) = self.pending.get_mut(&id) else { return };
        let (place, controller, queue, mut entry) = (one.place, one.controller, one.queue, one.entry);
        let Some(station) = self.stations.get_mut(&place).filter(|station| !station.ended) else {
            return self.lose(id);
        };
        let token = station.begin(id);
        one.token = Some(token);
        entry.command_id = nvme::wire::CommandId(u16::try_from(id % 65_536).expect("16 bits"));
        self.hand(place, Input::Command { controller, token, queue, entry });
    }

    pub(super) fn on_data(&mut self, id: u64, fails: bool) {
        let Some(one) = self.pending.get_mut(&id) else { return };
        let (Some(token), place) = (one.token, one.place) else { return };
        let input = if fails {
            one.cut = true;
            Input::HostDataFailed { token, status: Status::from(StatusCode::DataTransferError) }
        } else {
            Input::HostData { token, data: Buffer::from(one.data.clone()) }
        };
        self.hand(place, input);
    }

    /// A thread sends a request to a medium. Checks that the command may still do so, and that the
    /// subsystem has the media to itself when it relies on that.
    fn on_request(&mut self, place: Place, request: Request) {
        let owner = match self.stations.get(&place).and_then(|station| station.lane.as_ref()) {
            Some(lane) => lane.requester(request.id),
            None => self.subsystem.requester(request.id),
        };
        if place == Place::Subsystem && (owner.is_none() || self.subsystem.is_alone()) {
            let others = self.medium.of_lanes();
            if others > 0 {
                self.fail(format!("the subsystem is alone with media that have {others} requests of lanes"));
            }
        }
        let is_volatile = matches!(
            request.operation,
            Operation::Write { durable: false, .. } | Operation::WriteZeroes { durable: false, .. }
        );
        // The subsystem's own requests may be those of a format, which flushes in the end.
        let of_lane = place != Place::Subsystem;
        if is_volatile && of_lane && !self.timeline.may_be_volatile(self.now) {
            self.fail(format!("{place:?} begins a change that is not durable, but a write cache is off"));
        }
        let token = CommandToken(request.id.0 & 0xffff);
        if let (Place::Lane(_), Some(id)) = (place, self.command_of(place, token))
            && let Some(access) = self.pending.get(&id).and_then(|one| one.access.as_ref())
            && !self.timeline.may_step(self.now, access)
        {
            let state = self.timeline.newest();
            self.fail(format!(
                "{place:?} begins a step of {access:?} at {:?}, but all is {state:?}",
                self.now
            ));
        }
        self.enter(place, owner, request);
    }

    fn post_to_lane(&mut self, lane: LaneId, message: Box<ToLane>) {
        let delay = self.message_delay();
        let Some(station) = self.stations.get_mut(&Place::Lane(lane)) else { return };
        station.last_to = station.last_to.max(self.now + delay);
        let at = station.last_to;
        self.at(at, Event::ToLane(lane, message));
    }

    fn post_to_subsystem(&mut self, place: Place, message: Box<ToSubsystem>) {
        let delay = self.message_delay();
        let Place::Lane(lane) = place else { return };
        let Some(station) = self.stations.get_mut(&place) else { return };
        if message.has_counts() {
            station.unreported = Tally::new();
        }
        station.last_from = station.last_from.max(self.now + delay);
        let at = station.last_from;
        self.at(at, Event::ToSubsystem(lane, message));
    }

    /// Makes a lane's thread report that it has dropped a queue, after the messages of the lane.
    pub(super) fn report_drop(&mut self, place: Place, report: Event) {
        let Some(station) = self.stations.get(&place) else { return };
        let at = station.last_from.max(self.now);
        self.at(at, report);
    }

    /// How long a message takes: mostly little, at times as long as a thread that sleeps.
    fn message_delay(&mut self) -> Nanos {
        let rare = if self.rng.one_in(15) { 300 } else { 0 };
        Nanos::from_micros(self.rng.below(12) + self.rng.below(1 + rare))
    }

    pub(super) fn on_message_to_lane(&mut self, lane: LaneId, message: Box<ToLane>) {
        let place = Place::Lane(lane);
        let (now, version) = (self.now, message.version());
        let Some(station) = self.stations.get_mut(&place) else { return };
        // All times are whole microseconds: what was kept arrives before anything later.
        let kept_until = |late: Instant| late + Nanos::new(1);
        if let Some(late) = station.late.filter(|late| *late >= now) {
            return self.at(kept_until(late), Event::ToLane(lane, message));
        }
        if let Some(version) = version {
            match self.plant {
                Some(Plant::OlderView) if !self.planted && self.rng.one_in(8) => {
                    self.planted = true;
                    let late = now + Nanos::from_micros(400);
                    station.late = Some(late);
                    let late = kept_until(late);
                    let seen = Box::new(ToSubsystem::acknowledgement(version, 0));
                    self.post_to_subsystem(place, seen);
                    return self.at(late, Event::ToLane(lane, message));
                }
                Some(Plant::EarlyQuiet) => {
                    let quiet = Box::new(ToSubsystem::acknowledgement(0, version));
                    self.post_to_subsystem(place, quiet);
                }
                _ => (),
            }
        }
        let ends = message.is_end();
        if ends {
            self.doubt_handed(Doubt::Lane(place), |one| one.place == place);
        }
        self.hand(place, Input::FromSubsystem(message));
        if ends {
            self.end_station(place);
        }
    }

    /// The thread of some lane panics: its connections are gone with it. The medium goes on.
    pub(super) fn die(&mut self) {
        let lanes = self.lanes();
        let places = self.stations.keys().filter(|place| **place != Place::Subsystem);
        let places: Vec<_> = places.copied().collect();
        let place = places[self.below(places.len())];
        let is_last = matches!(lanes[..], [last] if Place::Lane(last) == place);
        let has_change = |one: &Pending| one.sender == Sender::Director && one.place == place;
        if is_last || self.pending.values().any(has_change) {
            return;
        }
        let Some(station) = self.stations.remove(&place) else { return };
        self.director.tally.lose(&station.unreported);
        self.dying.insert(place, station.last_from);
        self.doubt_where(Doubt::Lane(place), |one| one.place == place && one.token.is_some());
        self.lose_where(|one| one.place == place);
        self.disown_all(place);
        self.bury(place);
    }

    /// Makes the subsystem's thread notice that a lane is gone, once media have answered all its
    /// requests, and after the messages that the lane has sent.
    pub(super) fn bury(&mut self, place: Place) {
        let (Place::Lane(lane), Some(last_from)) = (place, self.dying.get(&place).copied()) else { return };
        if self.plant == Some(Plant::EarlyGone) {
            self.at(self.now.max(last_from), Event::Gone(lane));
        } else if !self.medium.has_of(place) {
            let noticed = self.now + Nanos::from_micros(self.rng.below(400));
            self.at(noticed.max(last_from), Event::Gone(lane));
        }
    }

    /// Notes that a lane has ended all its commands: their hosts lose them.
    fn end_station(&mut self, place: Place) {
        if let Some(station) = self.stations.get_mut(&place) {
            station.ended = true;
            station.commands.clear();
        }
        self.lose_where(|one| one.place == place);
    }

    /// Ends commands of a thread without completions.
    pub(super) fn forget_commands(&mut self, place: Place, ids: &[u64]) {
        if let Some(station) = self.stations.get_mut(&place) {
            station.commands.retain(|_, id| !ids.contains(id));
        }
    }
}
