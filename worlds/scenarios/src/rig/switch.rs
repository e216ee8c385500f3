//! The nodes of the distributed switch: its upstream end at the host, its downstream end at the device.
//!
//! Each has a PCIe port, which is the node's first, a network port, which is its second, and a pipeline between the two
//! that takes a packet a fixed time.

use std::collections::VecDeque;

use engine::{Engine, Instant, Nanos, Rng};
use link::network::Side;
use link::trail::Part;
use pcie::config::{Identity, Link as LinkRegisters, ids};
use pcie::switch::SwitchConfig;
use pcie::wire::Packet;
use sim::Context;
use sim::direct::PortId;
use tunnel::downstream::{self, Downstream};
use tunnel::session::Config as SessionConfig;
use tunnel::upstream::{self, PortIndex, Upstream};

use super::Cargo;
use super::chain::Place;
use super::journal::{Cause, Journal, Step};
use super::network::Line;
use super::port::Port;

/// Where the network is.
const NETWORK: PortId = PortId(1);

/// Packets on their way between the port and the tunnel.
#[derive(Debug)]
struct Pipeline {
    latency: Nanos,
    inwards: VecDeque<(Instant, Cause, Packet)>,
    outwards: VecDeque<(Instant, Cause, Packet)>,
    side: Side,
    journal: Journal,
}

impl Pipeline {
    const fn new(latency: Nanos, side: Side, journal: Journal) -> Self {
        Self { latency, inwards: VecDeque::new(), outwards: VecDeque::new(), side, journal }
    }

    /// When what enters now has passed, and the mark of that.
    fn pass(&self, now: Instant, cause: Cause) -> (Instant, Cause) {
        let (at, place) = (now + self.latency, Place::Switch(self.side));
        (at, self.journal.mark(cause, at, Step { place, part: Part::Processing, what: "pipeline" }))
    }

    /// A packet has come over PCIe.
    fn receive(&mut self, now: Instant, packet: Packet, cause: Cause) {
        let (at, cause) = self.pass(now, cause);
        self.inwards.push_back((at, cause, packet));
    }

    /// A packet has come through the tunnel, with the bytes that `cause` was the arrival of.
    fn emerge(&mut self, now: Instant, packet: Packet, cause: Cause) {
        let cause = self.journal.leave_tunnel(self.side.other(), &packet, cause, now);
        let (at, cause) = self.pass(now, cause);
        self.outwards.push_back((at, cause, packet));
    }

    fn next(&self) -> Option<Instant> {
        let fronts = [self.inwards.front(), self.outwards.front()];
        fronts.into_iter().flatten().map(|(at, ..)| *at).min()
    }

    /// What has passed towards the tunnel.
    fn take(&mut self, now: Instant) -> Option<Packet> {
        self.inwards.front().filter(|(at, ..)| *at <= now)?;
        let (_, cause, packet) = self.inwards.pop_front()?;
        self.journal.enter_tunnel(self.side, &packet, cause);
        Some(packet)
    }

    /// Sends what has passed towards the port.
    fn send(&mut self, context: &mut Context<'_, Cargo>, port: &mut Port) {
        while self.outwards.front().is_some_and(|(at, ..)| *at <= context.now()) {
            let (_, cause, packet) = self.outwards.pop_front().expect("it was looked at");
            port.send(context, packet, cause);
        }
    }
}

/// A switch whose ports are 5 GT/s x4, as that of the published set-ups.
fn switch_config(payload_max: u32) -> SwitchConfig {
    let identity = |device| Identity {
        vendor: ids::VENDOR,
        device,
        revision: 0,
        class: 0x06_0400,
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

/// The end at the host.
#[derive(Debug)]
pub(super) struct UpstreamNode {
    engine: Upstream,
    port: Port,
    pipeline: Pipeline,
    open: bool,
    up: bool,
    /// The bytes that came last.
    cause: Cause,
}

impl UpstreamNode {
    pub(super) fn new(
        session: SessionConfig,
        payload_max: u32,
        latency: Nanos,
        port: Port,
        rng: &Rng,
        journal: Journal,
    ) -> Self {
        Self {
            engine: Upstream::new(&switch_config(payload_max), vec![session], rng),
            port,
            pipeline: Pipeline::new(latency, Side::Near, journal),
            open: false,
            up: false,
            cause: None,
        }
    }

    /// What was sent ahead, if that is wanted.
    pub(super) fn lookahead(&self) -> Option<tunnel::lookahead::Statistics> {
        self.engine.lookahead().copied()
    }

    /// Whether the link below is up.
    pub(super) const fn is_up(&self) -> bool {
        self.up
    }

    pub(super) fn receive(&mut self, now: Instant, packet: Packet, cause: Cause) {
        self.port.receive(now, &packet);
        self.pipeline.receive(now, packet, cause);
    }

    pub(super) fn network(&mut self, now: Instant, line: Line, cause: Cause) {
        self.cause = cause;
        let port = PortIndex(0);
        let input = match line {
            Line::Opened => {
                self.open = true;
                upstream::Input::Connected(port)
            }
            Line::Data(bytes) => upstream::Input::Received(port, bytes),
            Line::Closed => {
                self.open = false;
                upstream::Input::Disconnected(port)
            }
            Line::Dial | Line::Accepted => unreachable!("nobody dials the upstream end"),
        };
        self.engine.handle_input(now, input);
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
                upstream::Output::Transmit { bytes, .. } => {
                    if self.open {
                        context.send_packet(NETWORK, Cargo::Line(Line::Data(bytes), None));
                    }
                }
                upstream::Output::Connect { .. } => {
                    context.send_packet(NETWORK, Cargo::Line(Line::Dial, None))
                }
                upstream::Output::CloseConnection { .. } => {
                    self.open = false;
                    context.send_packet(NETWORK, Cargo::Line(Line::Closed, None));
                }
                upstream::Output::Event { event, .. } => match event {
                    tunnel::Event::LinkUp { .. } => self.up = true,
                    tunnel::Event::LinkDown { .. } => self.up = false,
                    _ => {}
                },
            }
        }
        self.pipeline.send(context, &mut self.port);
        [self.engine.poll_timeout(), self.pipeline.next()].into_iter().flatten().min()
    }
}

/// The end at the device.
#[derive(Debug)]
pub(super) struct DownstreamNode {
    engine: Downstream,
    port: Port,
    pipeline: Pipeline,
    accepted: u32,
    connection: Option<downstream::ConnectionId>,
    /// The bytes that came last.
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
            accepted: 0,
            connection: None,
            cause: None,
        }
    }

    pub(super) fn receive(&mut self, now: Instant, packet: Packet, cause: Cause) {
        self.port.receive(now, &packet);
        self.pipeline.receive(now, packet, cause);
    }

    pub(super) fn network(&mut self, now: Instant, line: Line, cause: Cause) {
        self.cause = cause;
        let input = match (line, self.connection) {
            (Line::Accepted, _) => {
                self.accepted += 1;
                let name = downstream::ConnectionId(self.accepted);
                self.connection = Some(name);
                downstream::Input::Accepted(name)
            }
            (Line::Data(bytes), Some(name)) => downstream::Input::Received(name, bytes),
            (Line::Closed, Some(name)) => {
                self.connection = None;
                downstream::Input::Disconnected(name)
            }
            _ => return,
        };
        self.engine.handle_input(now, input);
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
                    if self.connection == Some(connection) {
                        context.send_packet(NETWORK, Cargo::Line(Line::Data(bytes), None));
                    }
                }
                downstream::Output::Close { connection } => {
                    if self.connection == Some(connection) {
                        self.connection = None;
                        context.send_packet(NETWORK, Cargo::Line(Line::Closed, None));
                    }
                }
                // Links of this rig do not go down once they are up.
                downstream::Output::DeviceReset | downstream::Output::Event { .. } => {}
            }
        }
        self.pipeline.send(context, &mut self.port);
        [self.engine.poll_timeout(), self.pipeline.next()].into_iter().flatten().min()
    }
}
