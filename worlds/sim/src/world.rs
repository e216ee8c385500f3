//! The world: its nodes, the links between them, and virtual time.

use engine::{Instant, Nanos, Rng};
use network_models::Network;
use network_models::faults::Behaviour;
use network_models::streams::Order;
use network_models::trail::Trail;
use nvme::media::{Completion, MediumId};

use crate::direct::{Direct, PortId};
use crate::faults::{Fault, LaneFault, Plan};
use crate::media::{MediaProfile, Medium};
use crate::modelled::Modelled;
use crate::schedule::{Schedule, Slot, Source};
use crate::stream::{Lane, LinkProfile, StreamEvent, Streams};
use crate::{Context, Digest, Event, Node, NodeId};

/// The world's state of a node, besides the node itself.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) alive: bool,
    /// The node's ends of direct links by port: the index of the link, and the side.
    pub(crate) ports: Vec<(usize, usize)>,
    wake: Slot,
    paused_until: Instant,
    incarnation: u64,
}

/// The world without its nodes, which is the part that nodes may access.
#[derive(Debug)]
pub(crate) struct Core<P> {
    pub(crate) now: Instant,
    pub(crate) rng: Rng,
    pub(crate) schedule: Schedule,
    pub(crate) nodes: Vec<Place>,
    pub(crate) directs: Vec<Direct<P>>,
    pub(crate) streams: Streams,
    pub(crate) media: Vec<Medium>,
    pub(crate) models: Vec<Modelled>,
    /// The trail of the frame with the current event's data, if the network is watched.
    pub(crate) trail: Option<Box<Trail>>,
}

/// The largest number of events at one instant. A world with more has a node that never settles.
const EVENTS_PER_INSTANT_MAX: u64 = 10_000_000;

/// Nodes, links and media in virtual time; runs as a deterministic discrete-event simulation.
#[derive(Debug)]
pub struct World<N: Node> {
    core: Core<N::Packet>,
    nodes: Vec<N>,
    digest: Digest,
    events: u64,
    /// The number of events before the current instant.
    instant_began: u64,
}

impl<N: Node> World<N> {
    /// An empty world, whose every random choice follows from `seed`.
    pub fn new(seed: u64) -> Self {
        let core = Core {
            now: Instant::ZERO,
            rng: Rng::from_seed(seed),
            schedule: Schedule::default(),
            nodes: Vec::new(),
            directs: Vec::new(),
            streams: Streams::default(),
            media: Vec::new(),
            models: Vec::new(),
            trail: None,
        };
        Self { core, nodes: Vec::new(), digest: Digest::default(), events: 0, instant_began: 0 }
    }

    /// A random generator for the part of the scenario called `name`.
    pub fn rng(&self, name: &str) -> Rng {
        self.core.rng.fork(name)
    }

    /// Adds a node. The node is first settled when the world next runs.
    pub fn add(&mut self, node: N) -> NodeId {
        let id = NodeId(u32::try_from(self.nodes.len()).expect("few nodes"));
        let wake = self.core.schedule.add(Source::Wake(id));
        let (ports, paused_until) = (Vec::new(), Instant::ZERO);
        self.core.nodes.push(Place { alive: true, ports, wake, paused_until, incarnation: 0 });
        self.nodes.push(node);
        self.rouse(id);
        id
    }

    /// Joins two nodes by a direct link, and returns the new port of each node.
    pub fn join(&mut self, one: NodeId, other: NodeId, latency: Nanos) -> (PortId, PortId) {
        self.core.add_direct(one, other, latency)
    }

    /// Lets two nodes dial each other.
    ///
    /// # Panics
    /// When a link already joins the two nodes.
    pub fn link(&mut self, one: NodeId, other: NodeId, profile: LinkProfile) {
        self.link_lane(one, other, Lane::default(), profile);
    }

    /// Lets two nodes dial each other by the link `lane`, one of several between the two nodes.
    ///
    /// # Panics
    /// When a link of this number already joins the two nodes.
    pub fn link_lane(&mut self, one: NodeId, other: NodeId, lane: Lane, profile: LinkProfile) {
        self.core.add_link(one, other, lane, profile);
    }

    /// Lets two nodes dial each other over a modelled network, whose near side is `one`. Faults act
    /// in addition to the effects of the network's own models; see [`LaneFault`].
    ///
    /// # Panics
    /// When a link already joins the two nodes.
    pub fn model(&mut self, one: NodeId, other: NodeId, network: Network) {
        self.model_lane(one, other, Lane::default(), network);
    }

    /// Lets two nodes dial each other over a modelled network, as the link `lane` of several
    /// between the two nodes.
    ///
    /// # Panics
    /// When a link of this number already joins the two nodes.
    pub fn model_lane(&mut self, one: NodeId, other: NodeId, lane: Lane, network: Network) {
        self.core.add_model(one, other, lane, network);
    }

    /// The modelled network between two nodes, for its counters.
    pub fn network(&self, one: NodeId, other: NodeId, lane: Lane) -> Option<&Network> {
        self.core.model_between(one, other, lane).map(|model| self.core.network(model))
    }

    /// Gives the streams of the modelled network between two nodes an order.
    pub fn order_streams(&mut self, one: NodeId, other: NodeId, lane: Lane, order: Order) {
        if let Some(model) = self.core.model_between(one, other, lane) {
            self.core.order_streams(model, order);
        }
    }

    /// Gives a node a medium of `bytes` bytes. A node's media are numbered from 0.
    pub fn medium(&mut self, node: NodeId, bytes: u64, profile: MediaProfile) -> MediumId {
        self.core.add_medium(node, bytes, profile)
    }

    /// The current virtual time.
    pub const fn now(&self) -> Instant {
        self.core.now
    }

    /// A fingerprint of every event so far. Equal scenarios with equal seeds have equal
    /// fingerprints.
    pub const fn digest(&self) -> u64 {
        self.digest.value()
    }

    /// Number of events so far.
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// The node with this id.
    pub fn node(&self, id: NodeId) -> &N {
        &self.nodes[id.index()]
    }

    /// Every node, in the order in which they were added.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + use<N> {
        let count = u32::try_from(self.nodes.len()).expect("few nodes");
        (0..count).map(NodeId)
    }

    /// The node with this id, for commands of its application. The node is settled when the world
    /// next runs.
    pub fn node_mut(&mut self, id: NodeId) -> &mut N {
        self.rouse(id);
        &mut self.nodes[id.index()]
    }

    /// Schedules a wake of the node for this instant.
    fn rouse(&mut self, id: NodeId) {
        let Place { alive, wake, .. } = self.core.nodes[id.index()];
        if alive {
            let key = self.core.schedule.key(self.core.now);
            self.core.schedule.arm(wake, key);
        }
    }

    /// Runs until no event is left at or before `until`, and sets the time to `until`.
    pub fn run(&mut self, until: Instant) {
        while self.step(until) {}
        self.core.now = self.core.now.max(until);
    }

    /// Runs until `busy`, called before every event, returns false, or to `until`. Returns whether
    /// `busy` did return false.
    pub fn run_while(&mut self, until: Instant, mut busy: impl FnMut(&Self) -> bool) -> bool {
        while busy(self) {
            if !self.step(until) {
                self.core.now = self.core.now.max(until);
                return !busy(self);
            }
        }
        true
    }

    /// Runs to `until`, and applies the faults of `plan` on the way.
    pub fn run_with(&mut self, plan: &Plan, until: Instant) {
        for (at, fault) in plan.iter().filter(|(at, _)| *at <= until) {
            self.run(at);
            self.apply(fault);
        }
        self.run(until);
    }

    /// Runs one event, if there is one at or before `until`; returns whether there was.
    pub fn step(&mut self, until: Instant) -> bool {
        let Some((key, source, slot)) = self.core.schedule.first().filter(|(key, ..)| key.at <= until) else {
            return false;
        };
        if key.at > self.core.now {
            self.instant_began = self.events;
        }
        let at_once = self.events - self.instant_began;
        assert!(at_once < EVENTS_PER_INSTANT_MAX, "the world spins at {:?}: {source:?}", key.at);
        self.core.now = self.core.now.max(key.at);
        if let Source::Model(model) = source {
            self.events += 1;
            self.core.run_model(model);
            return true;
        }
        let node = self.receiver(source);
        let paused_until = self.core.nodes[node.index()].paused_until;
        if paused_until > self.core.now {
            self.core.schedule.arm(slot, crate::schedule::Key { at: paused_until, ..key });
            return true;
        }
        self.events += 1;
        self.dispatch(source, slot);
        true
    }

    fn receiver(&self, source: Source) -> NodeId {
        match source {
            Source::Wake(node) => node,
            Source::Direct { link, side } => self.core.direct_receiver(link, side).0,
            Source::Arrival { connection, side } | Source::Writable { connection, side } => {
                self.core.end_node(connection, side)
            }
            Source::Medium(index) => self.core.medium_node(index),
            Source::Report { model, side } => self.core.model_node(model, side),
            Source::Model(_) => unreachable!("a network's deadline is not an event of a node"),
        }
    }

    fn dispatch(&mut self, source: Source, slot: Slot) {
        let node = self.receiver(source);
        match source {
            Source::Wake(_) => {
                self.core.schedule.disarm(slot);
                self.note(node, 0, 0);
                self.settle(node);
            }
            Source::Direct { link, side } => {
                let port = self.core.direct_receiver(link, side).1;
                let packet = self.core.pop_packet(link, side);
                self.note(node, 1, N::fingerprint(&packet));
                self.deliver(node, Event::Packet { port, packet });
            }
            Source::Arrival { connection, side } => {
                let (connection, event) = self.core.pop_arrival(connection, side);
                self.note_stream(node, &event);
                self.deliver(node, Event::Stream { connection, event });
            }
            Source::Writable { connection, side } => {
                if let Some(connection) = self.core.pop_writable(connection, side) {
                    self.note_stream(node, &StreamEvent::Writable);
                    self.deliver(node, Event::Stream { connection, event: StreamEvent::Writable });
                }
            }
            Source::Model(_) => {}
            Source::Report { model, side } => {
                if let Some((connection, event)) = self.core.pop_report(model, side) {
                    self.note_stream(node, &event);
                    self.deliver(node, Event::Stream { connection, event });
                }
            }
            Source::Medium(index) => {
                if let Some(completion) = self.core.pop_completion(index) {
                    self.note_completion(node, &completion);
                    self.deliver(node, Event::Media(completion));
                }
            }
        }
    }

    fn note_stream(&mut self, node: NodeId, event: &StreamEvent) {
        let code = match event {
            StreamEvent::Accepted { peer, .. } => 16 + u64::from(peer.0),
            StreamEvent::Opened => 1,
            StreamEvent::Data(_) => 2,
            StreamEvent::Writable => 3,
            StreamEvent::Closed(_) => 4,
        };
        self.note(node, 3, code);
        if let StreamEvent::Data(bytes) = event {
            self.digest.bytes(bytes);
        }
    }

    fn deliver(&mut self, node: NodeId, event: Event<N::Packet>) {
        if self.core.nodes[node.index()].alive {
            self.nodes[node.index()].handle(&mut Context { core: &mut self.core, node }, event);
            self.settle(node);
        }
    }

    fn settle(&mut self, node: NodeId) {
        let wake = self.nodes[node.index()].settle(&mut Context { core: &mut self.core, node });
        let slot = self.core.nodes[node.index()].wake;
        // A wake whose time has not changed keeps its place among the events of its instant.
        if self.core.schedule.armed(slot).map(|key| key.at) != wake {
            let key = wake.map(|at| self.core.schedule.key(at.max(self.core.now)));
            self.core.schedule.show(slot, key);
        }
    }

    /// Adds an event to the digest.
    const fn note(&mut self, node: NodeId, kind: u64, what: u64) {
        self.digest.word(self.core.now.as_nanos());
        self.digest.word(((node.0 as u64) << 8) | kind);
        self.digest.word(what);
    }

    fn note_completion(&mut self, node: NodeId, completion: &Completion) {
        match completion {
            Completion::Data { id, offset, data } => {
                self.note(node, 4, (u64::from(id.0) << 32) | u64::from(*offset));
                self.digest.bytes(data);
            }
            Completion::Done { id, result } => {
                self.note(node, 5, (u64::from(id.0) << 1) | u64::from(result.is_err()));
            }
        }
    }

    /// Applies a fault now.
    pub fn apply(&mut self, fault: Fault) {
        match fault {
            Fault::Cut(one, other) => self.apply_to_lane(one, other, Lane::default(), LaneFault::Cut),
            Fault::Hold(one, other, time) => {
                self.apply_to_lane(one, other, Lane::default(), LaneFault::Hold(time));
            }
            Fault::Link(one, other, profile) => {
                self.apply_to_lane(one, other, Lane::default(), LaneFault::Link(profile));
            }
            Fault::Lane(one, other, lane, fault) => self.apply_to_lane(one, other, lane, fault),
            Fault::Kill(node) => self.kill(node),
            Fault::Restart(node) => self.restart(node),
            Fault::Pause(node, time) => {
                let until = self.core.now + time;
                let place = &mut self.core.nodes[node.index()];
                place.paused_until = place.paused_until.max(until);
            }
            Fault::Media(node, profile) => self.core.set_media_profile(node, profile),
            Fault::Stall(node) => self.core.stall_media(node, true),
            Fault::Resume(node) => self.core.stall_media(node, false),
        }
    }

    /// Replaces the additional behaviour of the modelled network between two nodes; the network's
    /// own models continue. Returns whether there is such a network.
    pub fn impair(&mut self, one: NodeId, other: NodeId, lane: Lane, behaviour: Behaviour) -> bool {
        let model = self.core.model_between(one, other, lane);
        if let Some(model) = model {
            self.core.impair_model(model, behaviour);
        }
        model.is_some()
    }

    fn apply_to_lane(&mut self, one: NodeId, other: NodeId, lane: Lane, fault: LaneFault) {
        match fault {
            LaneFault::Cut => self.core.cut_link(one, other, lane),
            LaneFault::Hold(time) => {
                let until = self.core.now + time;
                self.core.hold_link(one, other, lane, until);
            }
            LaneFault::Link(profile) => self.core.set_profile(one, other, lane, profile),
        }
    }

    fn kill(&mut self, node: NodeId) {
        let place = &mut self.core.nodes[node.index()];
        if !place.alive {
            return;
        }
        place.alive = false;
        place.paused_until = Instant::ZERO;
        let wake = place.wake;
        self.core.schedule.disarm(wake);
        self.core.drop_connections(node);
        self.core.abandon_media(node);
    }

    fn restart(&mut self, node: NodeId) {
        let place = &mut self.core.nodes[node.index()];
        if place.alive {
            return;
        }
        place.alive = true;
        place.incarnation += 1;
        let rng = self.core.rng.fork(&format!("node {} incarnation {}", node.0, place.incarnation));
        self.nodes[node.index()].restart(self.core.now, rng);
        self.rouse(node);
    }

    /// Ends all faults: every node is up, and links and media have their first profiles again.
    pub fn heal(&mut self) {
        self.core.heal_links();
        for node in self.ids() {
            self.core.nodes[node.index()].paused_until = Instant::ZERO;
            self.core.heal_media(node);
            self.restart(node);
            self.rouse(node);
        }
    }
}
