//! The nodes of the distributed switch: the upstream end at the host and the downstream end at the
//! device.
//!
//! Each end has a PCIe port, a connection over the network, and a pipeline between the two that
//! delays each packet by a fixed time.

use std::collections::VecDeque;

use assemblies::Upstream;
use engine::{Engine, Instant, Nanos, Rng};
use network_models::network::Side;
use network_models::trail::{self, Part};
use pcie::config::{ClassCode, Identity, Link as LinkRegisters, ids};
use pcie::switch::SwitchConfig;
use pcie::wire::Packet;
use sim::stream::{ConnectionId, StreamEvent};
use sim::{Context, NodeId};
use tunnel::downstream::{self, Downstream};
use tunnel::session::Config as SessionConfig;
use tunnel::upstream;

use super::Cargo;
use super::chain::Place;
use super::journal::{Cause, Journal, Step};
use super::port::Port;
use sim::accepted::AcceptedConnections;
use sim::dialled::{DialledConnections, DialledEvent};

/// Packets on their way between the port and the tunnel.
#[derive(Debug)]
struct Pipeline {
    latency: Nanos,
    inwards: VecDeque<(Instant, Cause, Packet)>,
    outwards: VecDeque<(Instant, Cause, Packet)>,
    side: Side,
    journal: Journal,
    /// The mark of the packet that entered the tunnel last.
    entered: Cause,
}

impl Pipeline {
    const fn new(latency: Nanos, side: Side, journal: Journal) -> Self {
        Self { latency, inwards: VecDeque::new(), outwards: VecDeque::new(), side, journal, entered: None }
    }

    /// When a packet that enters the pipeline now leaves it, and the journal's mark of the passage.
    fn pass(&self, now: Instant, cause: Cause) -> (Instant, Cause) {
        let (at, place) = (now + self.latency, Place::Switch(self.side));
        (at, self.journal.mark(cause, at, Step { place, part: Part::Processing, what: "pipeline" }))
    }

    /// A packet has arrived over PCIe.
    fn receive(&mut self, now: Instant, packet: Packet, cause: Cause) {
        let (at, cause) = self.pass(now, cause);
        self.inwards.push_back((at, cause, packet));
    }

    /// A packet has left the tunnel; `arrived` marks the arrival of its bytes.
    fn emerge(&mut self, now: Instant, packet: Packet, arrived: Cause) {
        let causes = (arrived, self.entered);
        let cause = self.journal.leave_tunnel(self.side.other(), &packet, causes, now);
        let (at, cause) = self.pass(now, cause);
        self.outwards.push_back((at, cause, packet));
    }

    fn next(&self) -> Option<Instant> {
        let fronts = [self.inwards.front(), self.outwards.front()];
        fronts.into_iter().flatten().map(|(at, ..)| *at).min()
    }

    /// The next packet that has passed the pipeline towards the tunnel.
    fn take(&mut self, now: Instant) -> Option<Packet> {
        self.inwards.front().filter(|(at, ..)| *at <= now)?;
        let (_, cause, packet) = self.inwards.pop_front()?;
        self.journal.enter_tunnel(self.side, &packet, cause);
        self.entered = cause;
        Some(packet)
    }

    /// Sends the packets that have passed the pipeline towards the port.
    fn send(&mut self, context: &mut Context<'_, Cargo>, port: &mut Port) {
        while self.outwards.front().is_some_and(|(at, ..)| *at <= context.now()) {
            let (_, cause, packet) = self.outwards.pop_front().expect("it was looked at");
            port.send(context, packet, cause);
        }
    }

    /// Drops all packets in the pipeline, when the link goes down.
    fn clear(&mut self) {
        self.inwards.clear();
        self.outwards.clear();
    }

    /// Marks the way of the frame that the current event comes from; returns the mark of its
    /// arrival.
    fn arrive(&self, context: &mut Context<'_, Cargo>, connection: ConnectionId) -> Cause {
        let trail = context.trail()?;
        let side = self.side.other();
        let mark = |after, at, place, part, what| self.journal.mark(after, at, Step { place, part, what });
        let tunnel = "window, line, traffic before it";
        let mut cause = mark(None, trail.made, Place::Tunnel(side), Part::Waiting, tunnel);
        cause = mark(cause, trail.sent, Place::Stack(side), Part::Processing, "sending");
        let path = context.network(connection)?.path(side);
        for (hop, part, at) in trail::steps(&trail, path) {
            cause = mark(cause, at, Place::Hop(side, hop), part, "");
        }
        mark(cause, trail.arrived, Place::Stack(self.side), Part::Processing, "receiving")
    }
}

/// A switch whose ports are 5 GT/s x4, like the switch of the published set-ups.
fn switch_config(payload_max: u32) -> SwitchConfig {
    let identity = |device| Identity {
        vendor: ids::VENDOR,
        device,
        revision: 0,
        class: ClassCode::PCI_BRIDGE,
        subsystem_vendor: 0,
        subsystem: 0,
    };
    SwitchConfig {
        upstream: identity(ids::SWITCH_UPSTREAM_PORT),
        downstream: identity(ids::SWITCH_DOWNSTREAM_PORT),
        ports: 1,
        link: LinkRegisters { speed: 2, width: 4, port: 0, payload_max },
        surprise: true,
        serial_number: 0,
    }
}

/// The switch's end at the host.
#[derive(Debug)]
pub(super) struct UpstreamNode {
    engine: Upstream,
    port: Port,
    pipeline: Pipeline,
    /// The node of the downstream end.
    peer: NodeId,
    connections: DialledConnections,
    up: bool,
    /// The journal's mark of the arrival of the last bytes.
    cause: Cause,
}

impl UpstreamNode {
    pub(super) fn new(
        session: SessionConfig,
        payload_max: u32,
        latency: Nanos,
        port: Port,
        peer: NodeId,
        rng: &Rng,
    ) -> Self {
        Self {
            engine: assemblies::upstream(&switch_config(payload_max), vec![session], rng),
            port,
            pipeline: Pipeline::new(latency, Side::Near, Journal::default()),
            peer,
            connections: DialledConnections::new(1),
            up: false,
            cause: None,
        }
    }

    /// Has the node make its marks in `journal`.
    pub(super) fn with_journal(mut self, journal: Journal) -> Self {
        self.pipeline.journal = journal;
        self
    }

    /// Statistics of the lookahead, if it is on.
    pub(super) fn lookahead(&self) -> Option<nvme_lookahead::Statistics> {
        self.engine.interposer().map(|lookahead| *lookahead.statistics())
    }

    /// Whether the link below the downstream port is up.
    pub(super) const fn is_up(&self) -> bool {
        self.up
    }

    pub(super) fn receive(&mut self, now: Instant, packet: Packet, cause: Cause) {
        self.port.receive(now, &packet);
        self.pipeline.receive(now, packet, cause);
    }

    pub(super) fn network(
        &mut self,
        context: &mut Context<'_, Cargo>,
        connection: ConnectionId,
        event: StreamEvent,
    ) {
        self.cause = self.pipeline.arrive(context, connection);
        let Some((index, event)) = self.connections.on_event(connection, event) else { return };
        let input = match event {
            DialledEvent::Connected => upstream::Input::Connected(index),
            DialledEvent::Received(bytes) => upstream::Input::Received(index, bytes),
            DialledEvent::Disconnected => upstream::Input::Disconnected(index),
        };
        self.engine.handle_input(context.now(), input);
    }

    pub(super) fn settle(&mut self, context: &mut Context<'_, Cargo>) -> Option<Instant> {
        let now = context.now();
        if self.engine.poll_timeout().is_some_and(|at| at <= now) {
            self.engine.handle_timeout(now);
        }
        while let Some(packet) = self.pipeline.take(now) {
            self.engine.handle_input(now, upstream::Input::Tlp(packet));
        }
        while let Some(output) = self.engine.poll_output() {
            match output {
                upstream::Output::Tlp { packet, .. } => self.pipeline.emerge(now, packet, self.cause),
                upstream::Output::Transmit { connection, bytes } => self.connections.push(connection, bytes),
                upstream::Output::Connect { connection } => {
                    self.connections.dial(context, connection, self.peer);
                }
                upstream::Output::CloseConnection { connection } => {
                    self.connections.close(context, connection);
                }
                upstream::Output::Event { event, .. } => match event {
                    tunnel::Event::LinkUp { .. } => self.up = true,
                    tunnel::Event::LinkDown { .. } => self.up = false,
                    _ => {}
                },
            }
        }
        for connection in self.connections.names() {
            context.watch(connection, self.pipeline.journal.is_on());
        }
        self.connections.flush(context);
        self.pipeline.send(context, &mut self.port);
        [self.engine.poll_timeout(), self.pipeline.next()].into_iter().flatten().min()
    }
}

/// The switch's end at the device.
#[derive(Debug)]
pub(super) struct DownstreamNode {
    engine: Downstream,
    port: Port,
    pipeline: Pipeline,
    connections: AcceptedConnections,
    /// The journal's mark of the arrival of the last bytes.
    cause: Cause,
}

impl DownstreamNode {
    pub(super) fn new(
        session: SessionConfig,
        latency: Nanos,
        port: Port,
        rng: Rng,
        journal: Journal,
    ) -> Self {
        Self {
            engine: Downstream::new(session, rng),
            port,
            pipeline: Pipeline::new(latency, Side::Far, journal),
            connections: AcceptedConnections::default(),
            cause: None,
        }
    }

    pub(super) fn receive(&mut self, now: Instant, packet: Packet, cause: Cause) {
        self.port.receive(now, &packet);
        self.pipeline.receive(now, packet, cause);
    }

    pub(super) fn network(
        &mut self,
        context: &mut Context<'_, Cargo>,
        connection: ConnectionId,
        event: StreamEvent,
    ) {
        self.cause = self.pipeline.arrive(context, connection);
        if let Some(input) = self.connections.on_event(connection, event) {
            self.engine.handle_input(context.now(), input);
        }
    }

    pub(super) fn settle(&mut self, context: &mut Context<'_, Cargo>) -> Option<Instant> {
        let now = context.now();
        if self.engine.poll_timeout().is_some_and(|at| at <= now) {
            self.engine.handle_timeout(now);
        }
        while let Some(packet) = self.pipeline.take(now) {
            self.engine.send(now, packet);
        }
        while let Some(output) = self.engine.poll_output() {
            match output {
                downstream::Output::Tlp { packet, .. } => self.pipeline.emerge(now, packet, self.cause),
                downstream::Output::Transmit { connection, bytes } => {
                    self.connections.push(connection, bytes)
                }
                downstream::Output::Close { connection } => self.connections.close(connection),
                downstream::Output::DeviceReset => {
                    self.pipeline.clear();
                    self.port.reset(context);
                }
                downstream::Output::Event { .. } => {}
            }
        }
        self.connections.flush(context);
        self.pipeline.send(context, &mut self.port);
        [self.engine.poll_timeout(), self.pipeline.next()].into_iter().flatten().min()
    }
}
