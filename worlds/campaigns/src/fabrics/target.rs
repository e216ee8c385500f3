//! The node of a box that offers a subsystem at several ports.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};

use assemblies::fabric::{Fabric, controller};
use assemblies::target::{Accepted, Config, ConnectionId, Input, Output, Target};
use engine::{Buffer, Engine, Instant, Rng};
use nvme_fabrics::target::{ControllerModel, Directory, Hosts, Port, Subsystem, SubsystemKey};
use nvme_fabrics::wire::PortId;
use sim::Context;
use sim::stream::{self, Lane, StreamEvent};

use super::behind::Behind;

const KEY: SubsystemKey = SubsystemKey(0);
/// Number of last events that are kept for the report of a failed run.
const EVENTS_MAX: usize = 24;

/// The ports of a box: a port on each lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) count: u8,
    /// What carries their connections.
    pub(super) fabric: Fabric,
}

/// An accepted connection.
#[derive(Debug)]
struct Connection {
    connection: stream::ConnectionId,
    /// Received bytes that the target does not want yet.
    received: VecDeque<Buffer>,
    /// The target has ended the connection, which is closed when everything is sent.
    ended: bool,
}

/// A box that offers a subsystem at several ports, with its own medium or as a proxy.
#[derive(Debug)]
pub(super) struct TargetNode {
    ports: Ports,
    config: Config,
    core: nvme::subsystem::Config,
    /// Whether received data are placed directly into the target's landing buffers.
    lands: bool,
    target: Target,
    /// The other target that has the medium; `None` when the medium is the node's own.
    behind: Option<Behind>,
    /// The connections, by the target's numbers for them.
    connections: Vec<Option<Connection>>,
    events: Vec<String>,
}

impl TargetNode {
    pub(super) fn new(
        ports: Ports,
        connection: controller::Config,
        core: nvme::subsystem::Config,
        lands: bool,
        rng: Rng,
        behind: Option<Behind>,
    ) -> Self {
        let config = Config { connection, directory: directory(ports), rng: rng.into() };
        let target = build(Instant::ZERO, &config, &core);
        Self { ports, config, core, lands, target, behind, connections: Vec::new(), events: Vec::new() }
    }

    pub(super) fn handle(&mut self, now: Instant, connection: stream::ConnectionId, event: StreamEvent) {
        if let StreamEvent::Accepted { lane, .. } = event {
            return self.accept(now, connection, lane);
        }
        if let Some(behind) = &mut self.behind
            && behind.handle(now, connection, event.clone())
        {
            return;
        }
        let is_it = |one: &Option<Connection>| one.as_ref().is_some_and(|one| one.connection == connection);
        let Some(index) = self.connections.iter().position(is_it) else { return };
        match event {
            StreamEvent::Data(bytes) => {
                let one = self.connections[index].as_mut().expect("the connection was found");
                if !one.ended {
                    one.received.push_back(bytes);
                    self.feed(now, index);
                }
            }
            StreamEvent::Closed(_) => {
                self.connections[index] = None;
                self.target.handle_input(now, Input::Closed(id_of(index)));
            }
            _ => {}
        }
    }

    fn accept(&mut self, now: Instant, connection: stream::ConnectionId, lane: Lane) {
        let free = self.connections.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        self.connections[index] = Some(Connection { connection, received: VecDeque::new(), ended: false });
        let accepted = Accepted {
            connection: id_of(index),
            port: port(lane.0),
            fabric: self.ports.fabric,
            peer: SocketAddr::new(Ipv4Addr::new(198, 51, 100, 1).into(), 50_000),
            local: address(lane.0),
            proved: None,
            resume: None,
            pair: None,
        };
        self.target.handle_input(now, Input::Accepted(accepted));
    }

    /// Gives the target as much of the received bytes as it wants.
    fn feed(&mut self, now: Instant, index: usize) {
        let id = id_of(index);
        while self.target.wants_input(id)
            && let Some(one) = self.connections[index].as_mut().filter(|one| !one.ended)
            && let Some(mut bytes) = one.received.pop_front()
        {
            while self.lands
                && !bytes.is_empty()
                && let Some(place) = self.target.landing(id)
            {
                let count = place.len().min(bytes.len());
                place[..count].copy_from_slice(&bytes[..count]);
                bytes = bytes.slice(count..bytes.len());
                self.target.landed(now, id, count);
            }
            if !bytes.is_empty() {
                self.target.handle_input(now, Input::Received { connection: id, bytes });
            }
        }
    }

    pub(super) fn media(&mut self, now: Instant, completion: nvme::media::Completion) {
        self.target.handle_input(now, Input::Media { subsystem: KEY, completion });
    }

    pub(super) fn settle<P>(&mut self, context: &mut Context<'_, P>) -> Option<Instant> {
        let now = context.now();
        if self.target.poll_timeout().is_some_and(|at| at <= now) {
            self.target.handle_timeout(now);
        }
        loop {
            while let Some(output) = self.target.poll_output() {
                self.on_output(context, output);
            }
            let mut moved = self.settle_behind(context);
            for index in 0..self.connections.len() {
                moved |= self.flush(context, index);
                self.feed(now, index);
            }
            if !moved {
                break;
            }
        }
        while let Some(output) = self.target.poll_output() {
            self.on_output(context, output);
        }
        let behind = self.behind.as_ref().and_then(|behind| behind.wires.initiator.poll_timeout());
        self.target.poll_timeout().into_iter().chain(behind).min()
    }

    /// Lets the other target's requests go on; returns whether any were completed.
    fn settle_behind<P>(&mut self, context: &mut Context<'_, P>) -> bool {
        let Self { behind: Some(behind), target, .. } = self else { return false };
        let (now, mut answered) = (context.now(), false);
        behind.settle(context, |completion| {
            answered = true;
            target.handle_input(now, Input::Media { subsystem: KEY, completion });
        });
        answered
    }

    /// Whether the connections to the other target are all there.
    pub(super) fn is_whole(&self) -> bool {
        self.behind.as_ref().is_none_or(|behind| behind.wires.is_whole())
    }

    fn on_output<P>(&mut self, context: &mut Context<'_, P>, output: Output) {
        match output {
            Output::Close(id) => {
                if let Some(one) = self.connections[id.0 as usize].as_mut() {
                    one.ended = true;
                }
            }
            Output::Media { request, .. } => match &mut self.behind {
                Some(behind) => behind.submit(request),
                None => context.media(request),
            },
            Output::Listen(_) => {}
            Output::HandOver { .. } => unreachable!("there is one reactor"),
            Output::Event(event) => {
                if self.events.len() == EVENTS_MAX {
                    self.events.remove(0);
                }
                self.events.push(format!("{}: {event}", context.now() - Instant::ZERO));
            }
            Output::Send(_) | Output::Notify { .. } => {}
        }
    }

    /// Sends as much as a connection takes. Returns whether anything was sent, or the connection
    /// was closed.
    fn flush<P>(&mut self, context: &mut Context<'_, P>, index: usize) -> bool {
        let Some(&Connection { connection, ended, .. }) = self.connections[index].as_ref() else {
            return false;
        };
        let (id, now) = (id_of(index), context.now());
        let mut sent = 0;
        let mut all = true;
        for slice in self.target.outbox(id).into_iter().flat_map(nvme_tcp::Outbox::slices) {
            let taken = context.send(connection, slice);
            sent += taken;
            all = taken == slice.len();
            if !all {
                break;
            }
        }
        if sent > 0 {
            self.target.sent(now, id, sent);
        }
        if all && ended {
            context.close(connection);
            self.connections[index] = None;
            self.target.handle_input(now, Input::Closed(id));
            return true;
        }
        sent > 0
    }

    pub(super) fn restart(&mut self, now: Instant, rng: Rng) {
        self.config.rng = rng.into();
        self.target = build(now, &self.config, &self.core);
        self.connections.clear();
        if let Some(behind) = &mut self.behind {
            behind.restart();
        }
    }

    pub(super) fn describe(&self) -> String {
        let connections = self.connections.iter().flatten().count();
        let behind = self.behind.as_ref().map_or(String::new(), |behind| behind.wires.describe());
        format!("{connections} connections; latest events:\n    ") + &self.events.join("\n    ") + &behind
    }
}

fn build(now: Instant, config: &Config, core: &nvme::subsystem::Config) -> Target {
    let mut target = Target::new(now, config.clone());
    target.add_subsystem(now, KEY, core.clone());
    target
}

fn id_of(index: usize) -> ConnectionId {
    ConnectionId(u32::try_from(index).expect("few connections"))
}

fn port(lane: u8) -> PortId {
    PortId(u16::from(lane) + 1)
}

fn address(lane: u8) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::new(192, 0, 2, lane + 1).into(), 4420)
}

fn directory(ports: Ports) -> Directory {
    let subsystem = Subsystem {
        key: KEY,
        name: super::settings::subsystem_name(),
        hosts: Hosts::Any,
        terms: Vec::new(),
        model: ControllerModel::default(),
        ports: (0..ports.count).map(port).collect(),
        is_here: true,
    };
    let of = |lane| Port { id: port(lane), address: ports.fabric.address(address(lane)), is_any: false };
    let ports = (0..ports.count).map(of).collect();
    Directory { subsystems: vec![subsystem], ports, ..Directory::default() }
}
