//! Connections over a modelled network, with the dials, sends and closes of [`crate::stream`].

use std::collections::{BTreeMap, VecDeque};

use engine::{Buffer, Engine, Instant, Pool};
use network_models::faults::Behaviour;
use network_models::network::{self, Input, Network, Output, Side};
use network_models::streams::Order;
use network_models::tcp::Gone;
use network_models::trail::Trail;

use crate::NodeId;
use crate::schedule::{Key, Slot, Source};
use crate::stream::{Closed, ConnectionId, Lane, StreamEvent};
use crate::world::Core;

/// A connection, as its nodes see it.
#[derive(Debug)]
struct Known {
    name: network::ConnectionId,
    generation: u32,
    dialler: Side,
    /// Whether the node of each side still has the connection.
    has: [bool; 2],
}

/// An event to be reported to a node.
#[derive(Debug)]
struct Report {
    key: Key,
    connection: ConnectionId,
    event: StreamEvent,
    /// The trail of the frame that brought the event's data, if the network is watched.
    trail: Option<Box<Trail>>,
}

/// A modelled network between two nodes.
#[derive(Debug)]
pub(crate) struct Modelled {
    nodes: [NodeId; 2],
    lane: Lane,
    network: Network,
    slot: Slot,
    /// The events to be reported to the node of each side, now.
    events: [VecDeque<Report>; 2],
    event_slots: [Slot; 2],
    known: Vec<Option<Known>>,
    free: Vec<usize>,
    by_name: BTreeMap<network::ConnectionId, usize>,
    generation: u32,
    pool: Pool,
}

impl Modelled {
    fn side_of(&self, node: NodeId) -> Side {
        if self.nodes[0] == node { Side::Near } else { Side::Far }
    }

    fn id(&self, model: usize, index: usize) -> ConnectionId {
        let generation = self.known[index].as_ref().map_or(0, |known| known.generation);
        ConnectionId::modelled(model, index, generation)
    }

    /// Adds a connection under a new name for the nodes.
    fn learn(&mut self, name: network::ConnectionId, dialler: Side) -> usize {
        self.generation += 1;
        let mut has = [false; 2];
        has[dialler.index()] = true;
        let known = Some(Known { name, generation: self.generation, dialler, has });
        let index = match self.free.pop() {
            Some(index) => {
                self.known[index] = known;
                index
            }
            None => {
                self.known.push(known);
                self.known.len() - 1
            }
        };
        self.by_name.insert(name, index);
        index
    }

    /// Removes the connection from the node of `side`.
    fn forget(&mut self, index: usize, side: Side) {
        let Some(known) = &mut self.known[index] else { return };
        known.has[side.index()] = false;
        if known.has == [false; 2] {
            self.by_name.remove(&known.name);
            self.known[index] = None;
            self.free.push(index);
        }
    }

    /// The connections that the node of `side` has.
    fn of_side(&self, side: Side) -> Vec<(usize, network::ConnectionId)> {
        let known = self.known.iter().enumerate();
        let known = known.filter_map(|(index, known)| Some((index, known.as_ref()?)));
        known.filter(|(_, known)| known.has[side.index()]).map(|(index, known)| (index, known.name)).collect()
    }
}

impl<P> Core<P> {
    pub(crate) fn add_model(&mut self, one: NodeId, other: NodeId, lane: Lane, network: Network) {
        assert!(!self.is_linked(one, other, lane), "two links join {one:?} and {other:?} as {lane:?}");
        let model = self.models.len();
        let slot = self.schedule.add(Source::Model(model));
        let event_slots = [0, 1].map(|side| self.schedule.add(Source::Report { model, side }));
        self.models.push(Modelled {
            nodes: [one, other],
            lane,
            network,
            slot,
            events: Default::default(),
            event_slots,
            known: Vec::new(),
            free: Vec::new(),
            by_name: BTreeMap::new(),
            generation: 0,
            pool: Pool::default(),
        });
    }

    /// The index of the modelled network between two nodes.
    pub(crate) fn model_between(&self, one: NodeId, other: NodeId, lane: Lane) -> Option<usize> {
        let joins = |model: &Modelled| model.nodes == [one, other] || model.nodes == [other, one];
        self.models.iter().position(|model| joins(model) && model.lane == lane)
    }

    pub(crate) fn network(&self, model: usize) -> &Network {
        &self.models[model].network
    }

    pub(crate) fn model_node(&self, model: usize, side: usize) -> NodeId {
        self.models[model].nodes[side]
    }

    pub(crate) fn dial_model(&mut self, node: NodeId, index: usize) -> ConnectionId {
        let model = &mut self.models[index];
        let side = model.side_of(node);
        let name = model.network.open(self.now, side).expect("as few connections as a network carries");
        let known = model.learn(name, side);
        let id = model.id(index, known);
        self.heed_model(index);
        id
    }

    /// Model, index and side of a connection that `node` has.
    fn name_of(&self, node: NodeId, id: ConnectionId) -> Option<(usize, usize, Side)> {
        let (model, index, generation) = id.of_model()?;
        let modelled = &self.models[model];
        let side = modelled.side_of(node);
        let known = modelled.known.get(index)?.as_ref()?;
        (known.generation == generation && known.has[side.index()]).then_some((model, index, side))
    }

    pub(crate) fn model_room(&mut self, node: NodeId, id: ConnectionId, wanted: usize) -> usize {
        let Some((model, index, side)) = self.name_of(node, id) else { return 0 };
        let modelled = &mut self.models[model];
        let Some(known) = &modelled.known[index] else { return 0 };
        modelled.network.room(known.name, side, wanted)
    }

    pub(crate) fn send_modelled(&mut self, node: NodeId, id: ConnectionId, bytes: &[u8]) -> usize {
        let taken = self.model_room(node, id, bytes.len()).min(bytes.len());
        let Some((model, index, side)) = self.name_of(node, id) else { return 0 };
        let modelled = &mut self.models[model];
        let Some(known) = &modelled.known[index] else { return 0 };
        let connection = known.name;
        for piece in bytes[..taken].chunks(Pool::LENGTH_MAX) {
            let data = modelled.pool.copy(piece);
            modelled.network.handle_input(self.now, Input::Send { connection, side, data });
        }
        self.heed_model(model);
        taken
    }

    /// Sends `data` without a copy, and returns the number of accepted bytes.
    pub(crate) fn send_buffer_modelled(&mut self, node: NodeId, id: ConnectionId, data: &Buffer) -> usize {
        let taken = self.model_room(node, id, data.len()).min(data.len());
        let Some((model, index, side)) = self.name_of(node, id).filter(|_| taken > 0) else { return 0 };
        let modelled = &mut self.models[model];
        let Some(known) = &modelled.known[index] else { return 0 };
        let (connection, data) = (known.name, data.slice(0..taken));
        modelled.network.handle_input(self.now, Input::Send { connection, side, data });
        self.heed_model(model);
        taken
    }

    pub(crate) fn close_modelled(&mut self, node: NodeId, id: ConnectionId) {
        let Some((model, index, side)) = self.name_of(node, id) else { return };
        let modelled = &mut self.models[model];
        if let Some(known) = &modelled.known[index] {
            let connection = known.name;
            modelled.network.handle_input(self.now, Input::Finish { connection, side });
        }
        modelled.forget(index, side);
        self.heed_model(model);
    }

    /// Runs the network, whose deadline has come.
    pub(crate) fn run_model(&mut self, index: usize) {
        let model = &mut self.models[index];
        if model.network.poll_timeout().is_some_and(|at| at <= self.now) {
            model.network.handle_timeout(self.now);
        }
        self.heed_model(index);
    }

    /// Handles the network's outputs, and schedules its next deadline.
    fn heed_model(&mut self, index: usize) {
        while let Some(output) = self.models[index].network.poll_output() {
            self.heed_output(index, output);
        }
        let model = &self.models[index];
        let (slot, wake) = (model.slot, model.network.poll_timeout());
        if self.schedule.armed(slot).map(|key| key.at) != wake {
            let key = wake.map(|at: Instant| self.schedule.key(at.max(self.now)));
            self.schedule.show(slot, key);
        }
    }

    fn heed_output(&mut self, index: usize, output: Output) {
        let now = self.now;
        match output {
            Output::Incoming { connection, side } => {
                let model = &mut self.models[index];
                let alive = self.nodes[model.nodes[side.index()].index()].alive;
                let peer = model.nodes[side.other().index()];
                let known = model.by_name.get(&connection).and_then(|known| model.known[*known].as_mut());
                let Some(known) = known.filter(|_| alive) else {
                    return model.network.handle_input(now, Input::Reset { connection, side });
                };
                known.has[side.index()] = true;
                model.network.handle_input(now, Input::Accept(connection));
                let lane = model.lane;
                self.report(index, side, connection, StreamEvent::Accepted { peer, lane });
            }
            Output::Opened { connection, side } => {
                let model = &self.models[index];
                let known = model.by_name.get(&connection).and_then(|known| model.known[*known].as_ref());
                // The dialled node has had the connection since the SYN.
                if known.is_some_and(|known| known.dialler == side) {
                    self.report(index, side, connection, StreamEvent::Opened);
                }
            }
            Output::Writable { connection, side } => {
                self.report(index, side, connection, StreamEvent::Writable);
            }
            Output::Data { connection, side, data } => {
                // Nodes consume data at once, even when they have closed the connection.
                let consume = Input::Consume { connection, side, bytes: data.len() };
                let network = &mut self.models[index].network;
                let trail = network.trail().map(Box::new);
                network.handle_input(now, consume);
                self.report_with_trail(index, side, connection, StreamEvent::Data(data), trail);
            }
            Output::Finished { connection, side } => {
                // In this world, a close ends both directions.
                self.models[index].network.handle_input(now, Input::Finish { connection, side });
                self.report(index, side, connection, StreamEvent::Closed(Closed::ByPeer));
            }
            Output::Closed { connection, side, why } => {
                let why = match why {
                    Gone::Refused => Closed::Refused,
                    Gone::TimedOut => Closed::TimedOut,
                    Gone::Reset => Closed::Lost,
                    Gone::Closed => Closed::ByPeer,
                };
                self.report(index, side, connection, StreamEvent::Closed(why));
            }
        }
    }

    /// Reports an event to the node of `side`, if the node has the connection.
    fn report(&mut self, index: usize, side: Side, name: network::ConnectionId, event: StreamEvent) {
        self.report_with_trail(index, side, name, event, None);
    }

    /// Reports an event with the data of a frame, and the frame's `trail`.
    fn report_with_trail(
        &mut self,
        index: usize,
        side: Side,
        name: network::ConnectionId,
        event: StreamEvent,
        trail: Option<Box<Trail>>,
    ) {
        let model = &mut self.models[index];
        let Some(&known) = model.by_name.get(&name) else { return };
        if !model.known[known].as_ref().is_some_and(|known| known.has[side.index()]) {
            return;
        }
        let (id, key) = (model.id(index, known), self.schedule.key(self.now));
        let events = &mut model.events[side.index()];
        if events.is_empty() {
            self.schedule.arm(model.event_slots[side.index()], key);
        }
        events.push_back(Report { key, connection: id, event, trail });
    }

    /// Takes the next event for the node of a side, unless the node has closed the connection
    /// meanwhile.
    pub(crate) fn pop_report(&mut self, index: usize, side: usize) -> Option<(ConnectionId, StreamEvent)> {
        let model = &mut self.models[index];
        let report = model.events[side].pop_front().expect("an armed side has an event");
        let Report { connection: id, event, trail, .. } = report;
        let next = model.events[side].front().map(|report| report.key);
        self.schedule.show(model.event_slots[side], next);
        let node = model.nodes[side];
        let (_, known, at) = self.name_of(node, id)?;
        if matches!(event, StreamEvent::Closed(_)) {
            self.models[index].forget(known, at);
        }
        self.trail = trail;
        Some((id, event))
    }

    /// Handles the kill of a node; the network informs its peers.
    pub(crate) fn drop_modelled(&mut self, node: NodeId) {
        for index in 0..self.models.len() {
            if self.models[index].nodes.contains(&node) {
                let side = self.models[index].side_of(node);
                self.reset_side(index, side);
                self.models[index].events[side.index()].clear();
                self.schedule.disarm(self.models[index].event_slots[side.index()]);
                self.heed_model(index);
            }
        }
    }

    fn reset_side(&mut self, index: usize, side: Side) {
        let now = self.now;
        let model = &mut self.models[index];
        for (known, connection) in model.of_side(side) {
            model.network.handle_input(now, Input::Reset { connection, side });
            model.forget(known, side);
        }
    }

    /// The network that `node`'s connection runs over, if it is a modelled one.
    pub(crate) fn network_of(&self, node: NodeId, id: ConnectionId) -> Option<&Network> {
        self.name_of(node, id).map(|(model, ..)| &self.models[model].network)
    }

    /// Starts or stops following the frames of the network that `node`'s connection runs over.
    pub(crate) fn watch_model(&mut self, node: NodeId, id: ConnectionId, on: bool) {
        if let Some((model, ..)) = self.name_of(node, id) {
            self.models[model].network.watch(on);
        }
    }

    /// Gives the streams of a modelled network an order.
    pub(crate) fn order_streams(&mut self, index: usize, order: Order) {
        self.models[index].network.order_streams(self.now, order);
        self.heed_model(index);
    }

    /// Replaces the network's additional behaviour; its own models continue.
    pub(crate) fn impair_model(&mut self, index: usize, behaviour: Behaviour) {
        let rng = self.rng.fork(&format!("faults of model {index}"));
        self.models[index].network.impair(self.now, behaviour, &rng);
        self.heed_model(index);
    }

    /// Lets nothing arrive over a modelled network before `until`.
    pub(crate) fn hold_model(&mut self, index: usize, until: Instant) {
        let rng = self.rng.fork(&format!("faults of model {index}"));
        self.models[index].network.hold(self.now, until, &rng);
        self.heed_model(index);
    }

    /// Ends every connection of a modelled network at both ends.
    pub(crate) fn cut_model(&mut self, index: usize) {
        let now = self.now;
        for side in Side::BOTH {
            for (_, connection) in self.models[index].of_side(side) {
                self.models[index].network.handle_input(now, Input::Reset { connection, side });
                self.report(index, side, connection, StreamEvent::Closed(Closed::Lost));
            }
        }
        self.heed_model(index);
    }
}
