//! The far end's node: an SSD with a place for each host.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;

use assemblies::far::{self, Admitted, Seats, Storage};
use engine::{Engine, Instant, Rng};
use nvme::media::{Completion, Operation, Request};
use nvme_pcie::function;
use sim::accepted::AcceptedConnections;
use sim::stream::{ConnectionId, StreamEvent};
use sim::{Context, NodeId};
use tunnel::session::{Config as SessionConfig, SEGMENT_LIMIT};
use tunnel::{Fingerprint, downstream};

use super::Plant;
use super::rules::Rules;
use crate::session::instance;
use crate::succession::Succession;

/// How an SSD with places for several hosts is built.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) session: SessionConfig,
    pub(super) function: function::Config,
    pub(super) seats: u16,
    pub(super) admitted: Vec<Admitted>,
}

impl Settings {
    fn build(&self, now: Instant, rng: &Rng) -> Seats {
        let (session, function) = (self.session.clone(), self.function.clone());
        let mut far = Seats::new(now, session, function, rng.fork("far"), self.seats);
        far.admit(now, Some(self.admitted.clone()));
        far
    }
}

/// The node of a box with an SSD; a restart gives it a new instance.
#[derive(Debug)]
pub(super) struct DeviceNode {
    settings: Settings,
    far: Seats,
    connections: AcceptedConnections,
    /// The key that the host at an address proves.
    keys: Vec<(IpAddr, Fingerprint)>,
    rules: Rc<RefCell<Rules>>,
    plant: Option<Plant>,
    succession: Succession,
}

impl DeviceNode {
    pub(super) fn new(
        settings: Settings,
        rules: Rc<RefCell<Rules>>,
        rng: &Rng,
        plant: Option<Plant>,
    ) -> Self {
        let far = settings.build(Instant::ZERO, rng);
        let connections = AcceptedConnections::default();
        let (keys, succession) = (Vec::new(), Succession::default());
        Self { settings, far, connections, keys, rules, plant, succession }
    }

    /// Says whether successors take over from the far end.
    pub(super) fn succeed(&mut self, succession: Succession) {
        self.succession = succession;
    }

    /// The host at `node` proves `key` from now on.
    pub(super) fn know(&mut self, node: NodeId, key: Fingerprint) {
        self.keys.push((AcceptedConnections::address(node), key));
    }

    pub(super) fn handle(&mut self, now: Instant, connection: ConnectionId, event: StreamEvent) {
        let Some(input) = self.connections.on_event(connection, event) else { return };
        let accepted = match &input {
            downstream::Input::Accepted(name, address) => Some((*name, *address)),
            _ => None,
        };
        self.far.handle_input(now, far::Input::Network(input));
        let Some((name, address)) = accepted else { return };
        if let Some((_, key)) = self.keys.iter().find(|(one, _)| *one == address) {
            self.far.handle_input(now, far::Input::Network(downstream::Input::Identified(name, *key)));
        }
        // Every other connection takes long segments.
        if name.0 % 2 == 0 {
            self.far.set_segment_max(name, SEGMENT_LIMIT);
        }
    }

    pub(super) fn media(&mut self, now: Instant, completion: Completion) {
        self.far.handle_input(now, far::Input::Device(self.succession.received(completion)));
    }

    pub(super) fn settle<P>(&mut self, context: &mut Context<'_, P>) -> Option<Instant> {
        self.succession.turn(&mut self.far);
        let now = context.now();
        if self.far.poll_timeout().is_some_and(|at| at <= now) {
            self.far.handle_timeout(now);
        }
        while let Some(output) = self.far.poll_output() {
            match output {
                far::Output::Transmit(name, bytes) => self.connections.push(name, bytes),
                far::Output::Close(name) => self.connections.close(name),
                far::Output::Device(Storage::Media(request)) => self.ask(context, request),
                far::Output::Event(..) | far::Output::Device(Storage::Notify(_)) => {}
            }
        }
        self.connections.flush(context);
        self.far.poll_timeout()
    }

    fn ask<P>(&self, context: &mut Context<'_, P>, mut request: Request) {
        let last = u32::try_from(self.keys.len()).expect("few hosts");
        // The first medium is the one that all hosts share, and each host has another one.
        if self.plant == Some(Plant::CrossedMedia)
            && matches!(request.operation, Operation::Read { .. })
            && request.medium.0 > 0
        {
            request.medium.0 = 1 + request.medium.0 % last;
        }
        context.media(request);
    }

    pub(super) fn restart(&mut self, now: Instant, rng: &Rng) {
        self.rules.borrow_mut().on_power_loss();
        self.settings.session.identity.instance = instance(&mut rng.fork("instance"));
        self.far = self.settings.build(now, rng);
        self.connections.clear();
    }

    pub(super) fn describe(&self) -> String {
        let sessions: Vec<_> = self.far.seats().iter().map(|seat| seat.downstream().session()).collect();
        format!("{sessions:?}, {} connections", self.connections.count())
    }
}
