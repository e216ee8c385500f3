//! The node of a box that offers a subsystem at several ports.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};

use assemblies::fabric::{Fabric, Pair, controller};
use assemblies::target::{Accepted, Config, ConnectionId, Input, Output};
use engine::{Buffer, Instant, Rng};
use nvme_fabrics::authentication::Credentials;
use nvme_fabrics::target::{ControllerModel, Directory, Hosts, Port, Subsystem, SubsystemKey};
use nvme_fabrics::wire::PortId;
use sim::Context;
use sim::stream::{self, StreamEvent};

use super::air::{Air, Parcel};
use super::behind::Behind;
use super::reactors::Reactors;
use super::settings::{HOST_NUMBERS, host_name, subsystem_name};

pub(super) const KEY: SubsystemKey = SubsystemKey(0);
/// Number of last events that are kept for the report of a failed run.
const EVENTS_MAX: usize = 24;

/// The ports of a box: a port on each lane.
#[derive(Clone, Debug)]
pub(super) struct Ports {
    pub(super) count: u8,
    /// The carrier of their connections.
    pub(super) fabric: Fabric,
    /// Number of reactors that serve the hosts.
    pub(super) reactors: usize,
    /// The secrets by which hosts must authenticate, if they must.
    pub(super) keys: Option<Credentials>,
}

/// An accepted connection.
#[derive(Debug)]
struct Connection {
    /// The stream; none of a queue pair.
    connection: Option<stream::ConnectionId>,
    /// Received bytes that the target does not take yet.
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
    target: Reactors,
    /// The other target that has the medium; `None` when the medium is the node's own.
    behind: Option<Behind>,
    /// The devices of RoCE at which hosts come instead of by streams.
    air: Option<Air>,
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
        air: Option<Air>,
    ) -> Self {
        air.iter().for_each(Air::listen);
        let config = Config { connection, directory: directory(&ports), rng: rng.fork("target").into() };
        let target = Reactors::new(Instant::ZERO, &config, &core, ports.reactors, rng.fork("reactors"));
        let (connections, events) = (Vec::new(), Vec::new());
        Self { ports, config, core, lands, target, behind, air, connections, events }
    }

    pub(super) fn handle(&mut self, now: Instant, connection: stream::ConnectionId, event: StreamEvent) {
        if let StreamEvent::Accepted { lane, .. } = event {
            return self.accept(now, Some(connection), lane.0, None);
        }
        if let Some(behind) = &mut self.behind
            && behind.handle(now, connection, event.clone())
        {
            return;
        }
        let is_it =
            |one: &Option<Connection>| one.as_ref().is_some_and(|one| one.connection == Some(connection));
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
                self.target.closed(now, id_of(index));
            }
            _ => {}
        }
    }

    /// The devices of RoCE, if hosts come there.
    pub(super) fn airs_mut(&mut self) -> impl Iterator<Item = &mut Air> {
        let behind = self.behind.as_mut().and_then(|behind| behind.wires.air_mut());
        self.air.iter_mut().chain(behind)
    }

    /// Handles a datagram.
    pub(super) fn handle_parcel(&mut self, now: Instant, parcel: &Parcel) {
        let is_ours = self.air.as_ref().is_some_and(|air| air.handle(now, parcel));
        if is_ours {
            self.stir(now);
        } else if let Some(behind) = &mut self.behind {
            behind.wires.handle_parcel(now, parcel);
        }
    }

    /// Takes new connections of devices, and lets all of them look for received messages.
    fn stir(&mut self, now: Instant) {
        while let Some((lane, pair)) = self.air.as_ref().and_then(Air::next_requested) {
            self.accept(now, None, lane, Some(Box::new(pair)));
        }
        for index in 0..self.connections.len() {
            if self.connections[index].as_ref().is_some_and(|one| one.connection.is_none()) {
                let id = id_of(index);
                self.target.handle_input(now, id, Input::Stirred(id));
            }
        }
    }

    fn accept(
        &mut self,
        now: Instant,
        connection: Option<stream::ConnectionId>,
        lane: u8,
        pair: Option<Box<dyn Pair>>,
    ) {
        let free = self.connections.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        self.connections[index] = Some(Connection { connection, received: VecDeque::new(), ended: false });
        let accepted = Accepted {
            connection: id_of(index),
            port: port(lane),
            fabric: self.ports.fabric,
            peer: SocketAddr::new(Ipv4Addr::new(198, 51, 100, 1).into(), 50_000),
            local: address(lane),
            proved: None,
            resume: None,
            pair,
        };
        self.target.accept(now, accepted);
    }

    /// Gives the target as many of the received bytes as it takes.
    fn feed(&mut self, now: Instant, index: usize) {
        let id = id_of(index);
        while self.target.wants_input(now, id)
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
                self.target.handle_input(now, id, Input::Received { connection: id, bytes });
            }
        }
    }

    pub(super) fn media(&mut self, now: Instant, completion: nvme::media::Completion) {
        self.target.media(now, completion);
    }

    pub(super) fn settle(&mut self, context: &mut Context<'_, Parcel>) -> Option<Instant> {
        let now = context.now();
        self.target.handle_timeout(now);
        loop {
            while let Some(output) = self.target.poll_output() {
                self.on_output(context, output);
            }
            let mut moved = self.settle_behind(context);
            if self.air.as_mut().is_some_and(|air| air.exchange(context)) {
                self.stir(now);
                moved = true;
            }
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
        let behind = self.behind.as_ref().and_then(|behind| behind.wires.poll_timeout(now));
        let air = self.air.as_ref().and_then(|air| air.poll_timeout(now));
        self.target.poll_timeout(now).into_iter().chain(behind).chain(air).min()
    }

    /// Lets the other target's requests go on; returns whether any were completed.
    fn settle_behind(&mut self, context: &mut Context<'_, Parcel>) -> bool {
        let Self { behind: Some(behind), target, .. } = self else { return false };
        let (now, mut answered) = (context.now(), false);
        behind.settle(context, |completion| {
            answered = true;
            target.media(now, completion);
        });
        answered
    }

    /// Whether the connections to the other target are all there.
    pub(super) fn is_whole(&self) -> bool {
        self.behind.as_ref().is_none_or(|behind| behind.wires.is_whole())
    }

    fn on_output(&mut self, context: &mut Context<'_, Parcel>, output: Output) {
        match output {
            Output::Close(id) | Output::Drop(id) => {
                if let Some(one) = self.connections[id.0 as usize].as_mut() {
                    one.ended = true;
                }
            }
            Output::Media { request, .. } => match &mut self.behind {
                Some(behind) => behind.submit(request),
                None => context.media(request),
            },
            Output::Listen(id) => {
                let is_pair =
                    self.connections[id.0 as usize].as_ref().is_some_and(|one| one.connection.is_none());
                if is_pair {
                    self.target.handle_input(context.now(), id, Input::Stirred(id));
                }
            }
            Output::HandOver { .. }
            | Output::ToLane { .. }
            | Output::ToHome { .. }
            | Output::Disowned { .. } => unreachable!("letters are between reactors"),
            Output::Event(event) => {
                if self.events.len() == EVENTS_MAX {
                    self.events.remove(0);
                }
                self.events.push(format!("{}: {event}", context.now() - Instant::ZERO));
            }
            Output::Work { .. } => unreachable!("the engine works for itself"),
            Output::Send(_) | Output::Notify { .. } | Output::Admitted(_) => {}
        }
    }

    /// Sends as much as a connection takes. Returns whether anything was sent, or the connection
    /// was closed.
    fn flush(&mut self, context: &mut Context<'_, Parcel>, index: usize) -> bool {
        let Some(&Connection { connection, ended, .. }) = self.connections[index].as_ref() else {
            return false;
        };
        let (id, now) = (id_of(index), context.now());
        let Some(connection) = connection else {
            if ended {
                self.connections[index] = None;
                self.target.closed(now, id);
            }
            return ended;
        };
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
            self.target.closed(now, id);
            return true;
        }
        sent > 0
    }

    pub(super) fn restart(&mut self, now: Instant, rng: Rng) {
        self.config.rng = rng.fork("target").into();
        let rng = rng.fork("reactors");
        self.target = Reactors::new(now, &self.config, &self.core, self.ports.reactors, rng);
        self.connections.clear();
        if let Some(air) = &mut self.air {
            air.restart();
            air.listen();
        }
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

fn id_of(index: usize) -> ConnectionId {
    ConnectionId(u32::try_from(index).expect("few connections"))
}

fn port(lane: u8) -> PortId {
    PortId(u16::from(lane) + 1)
}

fn address(lane: u8) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::new(192, 0, 2, lane + 1).into(), 4420)
}

fn directory(ports: &Ports) -> Directory {
    let subsystem = Subsystem {
        key: KEY,
        name: subsystem_name(),
        hosts: Hosts::Any,
        terms: HOST_NUMBERS
            .filter_map(|number| Some((host_name(number), ports.keys.clone()?.into())))
            .collect(),
        model: ControllerModel::default(),
        ports: (0..ports.count).map(port).collect(),
        is_here: true,
    };
    let of = |lane| Port { id: port(lane), address: ports.fabric.address(address(lane)), is_any: false };
    let ports = (0..ports.count).map(of).collect();
    Directory { subsystems: vec![subsystem], ports, ..Directory::default() }
}
