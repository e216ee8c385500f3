//! The nodes of the distributed switch: its upstream end at the host, its downstream end at the device.
//!
//! Each has a PCIe port, which is the node's first, a network port, which is its second, and a pipeline between the two
//! that takes a packet a fixed time.

use std::collections::VecDeque;

use engine::{Engine, Instant, Nanos, Rng};
use pcie::config::{Identity, Link as LinkRegisters, ids};
use pcie::switch::SwitchConfig;
use pcie::wire::Packet;
use sim::Context;
use sim::direct::PortId;
use tunnel::downstream::{self, Downstream};
use tunnel::session::Config as SessionConfig;
use tunnel::upstream::{self, PortIndex, Upstream};

use super::Cargo;
use super::network::Line;
use super::port::Port;

/// Where the network is.
const NETWORK: PortId = PortId(1);

/// Packets on their way between the port and the tunnel.
#[derive(Debug)]
struct Pipeline {
    latency: Nanos,
    inwards: VecDeque<(Instant, Packet)>,
    outwards: VecDeque<(Instant, Packet)>,
}

impl Pipeline {
    const fn new(latency: Nanos) -> Self {
        Self { latency, inwards: VecDeque::new(), outwards: VecDeque::new() }
    }

    fn next(&self) -> Option<Instant> {
        let fronts = [self.inwards.front(), self.outwards.front()];
        fronts.into_iter().flatten().map(|(at, _)| *at).min()
    }

    /// What has passed towards the tunnel.
    fn take(&mut self, now: Instant) -> Option<Packet> {
        let (at, _) = self.inwards.front()?;
        if *at > now { None } else { self.inwards.pop_front().map(|(_, packet)| packet) }
    }

    /// Sends what has passed towards the port.
    fn send(&mut self, context: &mut Context<'_, Cargo>, port: &mut Port) {
        while self.outwards.front().is_some_and(|(at, _)| *at <= context.now()) {
            let (_, packet) = self.outwards.pop_front().expect("it was looked at");
            port.send(context, packet);
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
}

impl UpstreamNode {
    pub(super) fn new(
        session: SessionConfig,
        payload_max: u32,
        latency: Nanos,
        port: Port,
        rng: &Rng,
    ) -> Self {
        Self {
            engine: Upstream::new(&switch_config(payload_max), vec![session], rng),
            port,
            pipeline: Pipeline::new(latency),
            open: false,
            up: false,
        }
    }

    /// Whether the link below is up.
    pub(super) const fn is_up(&self) -> bool {
        self.up
    }

    pub(super) fn receive(&mut self, now: Instant, packet: Packet) {
        self.port.receive(now, &packet);
        self.pipeline.inwards.push_back((now + self.pipeline.latency, packet));
    }

    pub(super) fn network(&mut self, now: Instant, line: Line) {
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
                upstream::Output::Tlp { packet, .. } => {
                    self.pipeline.outwards.push_back((now + self.pipeline.latency, packet));
                }
                upstream::Output::Transmit { bytes, .. } => {
                    if self.open {
                        context.send_packet(NETWORK, Cargo::Line(Line::Data(bytes)));
                    }
                }
                upstream::Output::Connect { .. } => context.send_packet(NETWORK, Cargo::Line(Line::Dial)),
                upstream::Output::CloseConnection { .. } => {
                    self.open = false;
                    context.send_packet(NETWORK, Cargo::Line(Line::Closed));
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
}

impl DownstreamNode {
    pub(super) fn new(session: SessionConfig, latency: Nanos, port: Port, rng: Rng) -> Self {
        Self {
            engine: Downstream::new(session, rng),
            port,
            pipeline: Pipeline::new(latency),
            accepted: 0,
            connection: None,
        }
    }

    pub(super) fn receive(&mut self, now: Instant, packet: Packet) {
        self.port.receive(now, &packet);
        self.pipeline.inwards.push_back((now + self.pipeline.latency, packet));
    }

    pub(super) fn network(&mut self, now: Instant, line: Line) {
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
                downstream::Output::Tlp { packet, .. } => {
                    self.pipeline.outwards.push_back((now + self.pipeline.latency, packet));
                }
                downstream::Output::Transmit { connection, bytes } => {
                    if self.connection == Some(connection) {
                        context.send_packet(NETWORK, Cargo::Line(Line::Data(bytes)));
                    }
                }
                downstream::Output::Close { connection } => {
                    if self.connection == Some(connection) {
                        self.connection = None;
                        context.send_packet(NETWORK, Cargo::Line(Line::Closed));
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
