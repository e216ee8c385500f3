//! The threads: the home and its lanes, each with its engine, and what passes between them, the
//! medium and the host's memory.

use std::collections::VecDeque;

use engine::{Buffer, Engine, Instant, Nanos};
use nvme::media::{Completion, MediaError, Operation, Request};
use nvme::subsystem::LaneId;
use nvme_pcie::controller::{Controller, Input, Output, QueueLane, ToHome, ToLane};
use pcie::device::{Dma, DmaResult};

use super::host::Stage;
use super::{Event, Place, Plant, World};

/// A thread.
#[derive(Debug)]
pub(super) struct Station {
    /// The engine of a lane; the home's is the world's.
    pub(super) lane: Option<QueueLane>,
    /// Until when the thread does nothing.
    pub(super) stalled: Instant,
    /// What happens when it goes on.
    pub(super) backlog: VecDeque<Event>,
    /// When the latest message to the lane arrives, and the latest one from it.
    last_to: Instant,
    last_from: Instant,
}

impl Station {
    pub(super) const fn new(lane: Option<QueueLane>) -> Self {
        Self {
            lane,
            stalled: Instant::ZERO,
            backlog: VecDeque::new(),
            last_to: Instant::ZERO,
            last_from: Instant::ZERO,
        }
    }
}

impl World {
    pub(super) fn attach(&mut self) {
        let (id, start) = self.home.attach_lane(self.now);
        let lane = QueueLane::new(self.now, start);
        self.stations.insert(Place::Lane(id), Station::new(Some(lane)));
        self.settle(Place::Home);
    }

    /// Makes some lane end.
    pub(super) fn detach(&mut self) {
        let lanes: Vec<_> = self.home.lanes().map(|(id, _)| id).collect();
        if !lanes.is_empty() {
            let lane = lanes[self.below(lanes.len())];
            self.home.detach_lane(self.now, lane);
            self.settle(Place::Home);
        }
    }

    pub(super) fn some_place(&mut self) -> Place {
        let places: Vec<_> = self.stations.keys().copied().collect();
        places[self.below(places.len())]
    }

    pub(super) fn timer(&self, station: &Station) -> Option<Instant> {
        let at = match &station.lane {
            Some(lane) => lane.poll_timeout(),
            None => self.home.poll_timeout(),
        };
        at.map(|at| at.max(station.stalled))
    }

    pub(super) fn on_timer(&mut self, place: Place) {
        let now = self.now;
        match self.stations.get_mut(&place).and_then(|one| one.lane.as_mut()) {
            Some(lane) => lane.handle_timeout(now),
            None => self.home.handle_timeout(now),
        }
        self.settle(place);
    }

    /// Hands an input to the engine of a thread, which may be no more.
    pub(super) fn hand(&mut self, place: Place, input: Input<'_>) {
        let now = self.now;
        match place {
            Place::Home => self.home.handle_input(now, input),
            Place::Lane(_) => {
                let station = self.stations.get_mut(&place);
                let Some(lane) = station.and_then(|one| one.lane.as_mut()) else { return };
                lane.handle_input(now, input);
            }
        }
        self.settle(place);
    }

    fn poll(&mut self, place: Place) -> Option<Output> {
        match place {
            Place::Home => self.home.poll_output(),
            Place::Lane(_) => self.stations.get_mut(&place)?.lane.as_mut()?.poll_output(),
        }
    }

    /// Carries out what an engine asks for.
    pub(super) fn settle(&mut self, place: Place) {
        while let Some(output) = self.poll(place) {
            match output {
                Output::Dma(Dma::Read { id, address, length }) => {
                    let length = usize::try_from(length).expect("a short read");
                    let data = self.read(place, address, length);
                    let result = match data {
                        Some(data) => DmaResult::Data { id, offset: 0, data, last: true },
                        None => DmaResult::Failed { id },
                    };
                    let delay = Nanos::from_micros(self.rng.below(10));
                    self.after(delay, Event::Read(place, result));
                }
                Output::Dma(Dma::Write { address, data }) => self.on_write(place, address, data),
                Output::Dma(Dma::Interrupt { vector }) => {
                    let delay = Nanos::from_micros(1 + self.rng.below(10));
                    self.after(delay, Event::Interrupt(vector));
                }
                Output::Media(request) => self.on_request(place, request),
                Output::Notify(_) => (),
                Output::ToLane(lane, message) => self.post_to_lane(lane, message),
                Output::ToHome(message) => self.post_home(place, message),
            }
        }
    }

    fn read(&mut self, place: Place, address: u64, length: usize) -> Option<Buffer> {
        if !self.link_is_up {
            return None;
        }
        let data = self.memory.at(address, length).map(|bytes| Buffer::copy_from_slice(bytes));
        if data.is_none() {
            self.fail(format!("{place:?} reads {length} B of freed memory at {address:#x}"));
        }
        data
    }

    /// A thread writes to the host's memory.
    pub(super) fn write(&mut self, place: Place, address: u64, data: &[u8]) {
        if !self.link_is_up {
            return;
        }
        match self.memory.at(address, data.len()) {
            Some(bytes) => bytes.copy_from_slice(data),
            None => self.fail(format!("{place:?} writes {} B to freed memory at {address:#x}", data.len())),
        }
    }

    fn on_write(&mut self, place: Place, address: u64, data: Buffer) {
        let keeps = self.plant == Some(Plant::OldCompletion) && !self.planted && place != Place::Home;
        if keeps && self.host.stage == Stage::Disabling && self.link_is_up && data.len() == 16 {
            self.planted = true;
            return self.after(Nanos::from_micros(600), Event::Kept { address, data });
        }
        self.write(place, address, &data);
    }

    pub(super) fn on_read(&mut self, place: Place, result: DmaResult) {
        self.hand(place, Input::Dma(result));
    }

    fn on_request(&mut self, place: Place, request: Request) {
        let changes = !matches!(request.operation, Operation::Read { .. } | Operation::Flush);
        self.outstanding.push((place, request.id, changes));
        let rare = if self.rng.one_in(self.slow) { 900 } else { 0 };
        let delay = Nanos::from_micros(1 + self.rng.below(60) + rare);
        self.after(delay, Event::Execute(place, request));
    }

    /// The medium executes a request, or fails to.
    pub(super) fn on_execution(&mut self, place: Place, request: Request) {
        let id = request.id;
        self.outstanding.retain(|(one, of, _)| (*one, *of) != (place, id));
        let mut completions = Vec::new();
        if self.rng.one_in(self.failing) {
            let error = if self.rng.one_in(2) { MediaError::Write } else { MediaError::NoSpace };
            completions.push(Completion::Done { id, result: Err(error) });
        } else {
            self.disk.submit(request, &mut |completion| completions.push(completion));
        }
        let delay = Nanos::from_micros(self.rng.below(20));
        self.after(delay, Event::Answer(place, completions));
        self.bury(place);
    }

    pub(super) fn on_answers(&mut self, place: Place, completions: Vec<Completion>) {
        for completion in completions {
            self.hand(place, Input::Media(completion));
        }
    }

    fn post_to_lane(&mut self, lane: LaneId, message: Box<ToLane>) {
        let delay = self.message_delay();
        self.life = message.resets().unwrap_or(self.life);
        let place = Place::Lane(lane);
        match self.plant {
            Some(Plant::EarlyReady) => {
                if let Some(life) = message.resets() {
                    self.post_home(place, Box::new(ToHome::reset(life)));
                }
            }
            Some(Plant::EarlyDeletion) => {
                if let Some(queue) = message.deletes() {
                    self.post_home(place, Box::new(ToHome::deleted(self.life, queue)));
                }
            }
            _ => (),
        }
        let Some(station) = self.stations.get_mut(&place) else { return };
        station.last_to = station.last_to.max(self.now + delay);
        let at = station.last_to;
        self.at(at, Event::ToLane(lane, message));
    }

    fn post_home(&mut self, place: Place, message: Box<ToHome>) {
        let delay = self.message_delay();
        let Place::Lane(lane) = place else { return };
        let Some(station) = self.stations.get_mut(&place) else { return };
        station.last_from = station.last_from.max(self.now + delay);
        let at = station.last_from;
        self.at(at, Event::ToHome(lane, message));
    }

    /// How long a message takes: mostly little, at times as long as a thread that sleeps.
    fn message_delay(&mut self) -> Nanos {
        let rare = if self.rng.one_in(15) { 300 } else { 0 };
        Nanos::from_micros(self.rng.below(12) + self.rng.below(1 + rare))
    }

    pub(super) fn on_message_to_lane(&mut self, lane: LaneId, message: Box<ToLane>) {
        self.hand(Place::Lane(lane), Input::FromHome(message));
    }

    pub(super) fn on_message_home(&mut self, lane: LaneId, message: Box<ToHome>) {
        let is_last = message.is_last();
        self.hand(Place::Home, Input::FromLane(lane, message));
        if is_last {
            self.stations.remove(&Place::Lane(lane));
        }
    }

    pub(super) fn stall(&mut self, place: Place, length: Nanos) {
        let until = self.now + length;
        if let Some(station) = self.stations.get_mut(&place) {
            station.stalled = station.stalled.max(until);
            self.at(until, Event::Resume(place));
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

    /// The thread of some lane panics. The medium goes on.
    pub(super) fn die(&mut self) {
        let lanes = self.stations.keys().filter(|place| **place != Place::Home);
        let lanes: Vec<_> = lanes.copied().collect();
        if lanes.is_empty() {
            return;
        }
        let place = lanes[self.below(lanes.len())];
        let Some(station) = self.stations.remove(&place) else { return };
        self.dying.insert(place, station.last_from);
        self.host.deaths += 1;
        self.bury(place);
    }

    /// Makes the home notice that a lane is gone, once the medium has answered all its requests,
    /// and after the messages that the lane has sent.
    fn bury(&mut self, place: Place) {
        let (Place::Lane(lane), Some(last_from)) = (place, self.dying.get(&place).copied()) else { return };
        if !self.outstanding.iter().any(|(of, ..)| *of == place) {
            let noticed = self.now + Nanos::from_micros(self.rng.below(400));
            self.at(noticed.max(last_from), Event::Gone(lane));
        }
    }

    pub(super) fn on_gone(&mut self, lane: LaneId) {
        if self.dying.remove(&Place::Lane(lane)).is_some() {
            self.home.lane_gone(self.now, lane);
            self.settle(Place::Home);
        }
    }

    /// Resets the function. Without the host, the link is down until no lane has the host's memory.
    pub(super) fn reset_function(&mut self, by_host: bool) {
        if !self.link_is_up || by_host && self.host.stage != Stage::Running {
            return;
        }
        self.home.reset();
        if by_host {
            self.host.disable();
        } else {
            self.cut_link();
        }
        self.settle(Place::Home);
    }

    /// The host loses the device, with all that it has sent.
    fn cut_link(&mut self) {
        self.link_is_up = false;
        self.host.stage = Stage::Away;
        self.lose_everything();
        let is_on_its_way = |event: &Event| matches!(event, Event::Register { .. } | Event::Doorbell { .. });
        self.events.retain(|_, event| !is_on_its_way(event));
        for station in self.stations.values_mut() {
            station.backlog.retain(|event| !is_on_its_way(event));
        }
        let delay = Nanos::from_micros(20 + self.rng.below(800));
        self.after(delay, Event::Return);
    }

    pub(super) fn try_to_return(&mut self) {
        if self.home.is_resetting() {
            return self.after(Nanos::from_micros(20), Event::Return);
        }
        self.link_is_up = true;
        self.host.disable();
    }

    /// The device loses its power with all its threads, and another one comes in its place. What
    /// the medium has begun is done or not.
    pub(super) fn remove(&mut self) {
        if !self.link_is_up {
            return;
        }
        let begun: Vec<_> = self.events.extract_if(.., |_, event| event.is_of_device()).collect();
        for (_, event) in begun {
            match event {
                Event::Execute(_, request) if self.rng.one_in(2) => self.disk.submit(request, &mut |_| ()),
                _ => (),
            }
        }
        self.outstanding.clear();
        self.stations.clear();
        self.stations.insert(Place::Home, Station::new(None));
        self.dying.clear();
        self.host.on_new_device();
        self.home = Controller::new(self.now, self.config.clone());
        self.life = 0;
        self.cut_link();
        (0..1 + self.rng.below(4)).for_each(|_| self.attach());
    }
}
