//! The host's node: the upstream half of a switch, a root complex, memory that takes its time, and
//! a station for each device.

use std::collections::{BTreeMap, VecDeque};

use assemblies::Upstream;
use engine::{Buffer, Engine, Instant, Nanos, Rng};
use pcie::config::ClassCode;
use pcie::requester::Answer;
use pcie::root_complex::{self, MemoryReadToken, Plan, RootComplex, Topology};
use pcie::switch::SwitchConfig;
use sim::dialled::{DialledConnections, DialledEvent};
use sim::stream::{ConnectionId, StreamEvent};
use sim::{Context, NodeId};
use tunnel::session::Config as SessionConfig;
use tunnel::upstream::{self, PortIndex};

use super::memory::Shared;
use super::station::{Found, Ground, Station, StationCookie};
use super::tap::Tap;
use crate::campaign::Outcome;
use crate::session::instance;
use crate::workload::Phase;

/// The pause before a failed enumeration is tried again.
const AGAIN: Nanos = Nanos::from_millis(30);

/// A host with a switch's upstream half, a root complex and a station for each device.
#[derive(Debug)]
pub(super) struct HostNode {
    switch: SwitchConfig,
    root_config: root_complex::Config,
    plan: Plan,
    session: SessionConfig,
    peers: Vec<NodeId>,
    upstream: Upstream,
    root: RootComplex,
    memory: Shared,
    /// The longest time that a read of memory takes.
    slow: Nanos,
    reads: BTreeMap<(Instant, u64), (MemoryReadToken, u64, u32)>,
    read_names: u64,
    connections: DialledConnections,
    links: Vec<bool>,
    stations: Vec<Station>,
    taps: Vec<Tap>,
    topology: Option<Topology>,
    scans: VecDeque<usize>,
    scanning: Option<usize>,
    scan_at: Option<Instant>,
    rng: Rng,
}

/// The parts of a host, and its parameters.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) switch: SwitchConfig,
    pub(super) root: root_complex::Config,
    pub(super) plan: Plan,
    pub(super) session: SessionConfig,
    pub(super) peers: Vec<NodeId>,
    pub(super) memory: Shared,
    pub(super) slow: Nanos,
}

impl HostNode {
    pub(super) fn new(settings: Settings, stations: Vec<Station>, taps: Vec<Tap>, rng: Rng) -> Self {
        let Settings { switch, root, plan, session, peers, memory, slow } = settings;
        let sessions = peers.iter().map(|_| session.clone()).collect();
        Self {
            switch,
            root_config: root,
            plan,
            upstream: assemblies::upstream(&switch, sessions, rng.fork("upstream")),
            session,
            root: RootComplex::new(root),
            memory,
            slow,
            reads: BTreeMap::new(),
            read_names: 0,
            connections: DialledConnections::new(peers.len()),
            links: peers.iter().map(|_| false).collect(),
            peers,
            stations,
            taps,
            topology: None,
            scans: VecDeque::new(),
            scanning: None,
            scan_at: None,
            rng,
        }
    }

    pub(super) fn handle(&mut self, now: Instant, connection: ConnectionId, event: StreamEvent) {
        let Some((index, event)) = self.connections.on_event(connection, event) else { return };
        let input = match event {
            DialledEvent::Connected => {
                self.taps[usize::from(index.0)].on_connection();
                upstream::Input::Connected(index)
            }
            DialledEvent::Received(bytes) => upstream::Input::Received(index, bytes),
            DialledEvent::Disconnected => upstream::Input::Disconnected(index),
        };
        self.upstream.handle_input(now, input);
    }

    pub(super) fn settle<P>(&mut self, context: &mut Context<'_, P>) -> Option<Instant> {
        let now = context.now();
        if self.upstream.poll_timeout().is_some_and(|at| at <= now) {
            self.upstream.handle_timeout(now);
        }
        if self.root.poll_timeout().is_some_and(|at| at <= now) {
            self.root.handle_timeout(now);
        }
        while let Some(entry) = self.reads.first_entry()
            && entry.key().0 <= now
        {
            let (token, address, length) = entry.remove();
            self.answer(token, address, length);
        }
        self.scan(now);
        loop {
            (0..self.stations.len()).for_each(|index| self.with(now, index, Station::poll));
            for (index, station) in self.stations.iter_mut().enumerate() {
                if std::mem::take(&mut station.rescan) && self.links[index] {
                    request(&mut self.scans, index);
                }
            }
            self.scan(now);
            if let Some(output) = self.root.poll_output() {
                self.on_root(now, output);
                continue;
            }
            let Some(output) = self.upstream.poll_output() else { break };
            self.on_upstream(context, output);
        }
        self.connections.flush(context);
        let stations = self.stations.iter().filter_map(|station| station.poll_timeout(now));
        let others = [self.upstream.poll_timeout(), self.root.poll_timeout(), self.scan_at];
        let read = self.reads.first_key_value().map(|(key, _)| key.0);
        stations.chain(others.into_iter().flatten()).chain(read).min()
    }

    fn with(&mut self, now: Instant, index: usize, act: impl FnOnce(&mut Station, &mut Ground<'_>)) {
        let Self { root, memory, rng, .. } = self;
        let mut ground = Ground { now, root, memory, tap: &mut self.taps[index], rng };
        act(&mut self.stations[index], &mut ground);
    }

    fn answer(&mut self, token: MemoryReadToken, address: u64, length: u32) {
        let memory = self.memory.borrow();
        let data = memory.slice(address, length as usize).map(Buffer::copy_from_slice);
        self.root.memory_read_done(token, data);
    }

    fn on_root(&mut self, now: Instant, output: root_complex::Output) {
        use root_complex::Output as From;
        match output {
            From::Packet(packet) => self.upstream.handle_input(now, upstream::Input::Tlp(packet)),
            From::Answer(Answer::ReadData { cookie, data, last, .. }) => {
                let index = StationCookie(cookie).station();
                if last && index < self.stations.len() {
                    self.with(now, index, |station, ground| station.on_register(ground, cookie, Some(&data)));
                }
            }
            From::Answer(Answer::ReadFailed { cookie, .. }) => {
                let index = StationCookie(cookie).station();
                if index < self.stations.len() {
                    self.with(now, index, |station, ground| station.on_register(ground, cookie, None));
                }
            }
            From::MemoryRead { token, address, length } => {
                let wait = if self.rng.one_in(2) { 0 } else { self.rng.below(self.slow.get() + 1) };
                if wait == 0 {
                    return self.answer(token, address, length);
                }
                self.read_names += 1;
                self.reads.insert((now + Nanos::new(wait), self.read_names), (token, address, length));
            }
            From::MemoryWrite { address, data } => {
                self.memory.borrow_mut().write(address, &data);
                (0..self.stations.len()).for_each(|index| self.with(now, index, Station::reap));
            }
            From::Enumerated(Ok(topology)) => self.on_enumerated(now, topology),
            From::Enumerated(Err(_)) => {
                self.scan_at = Some(now + AGAIN);
                self.scanning = None;
            }
            From::Answer(Answer::Register { cookie, .. }) => {
                self.stations.iter_mut().for_each(|station| station.forbidding.retain(|one| *one != cookie));
            }
            From::Interrupt { .. } | From::Message(_) | From::Unexpected(_) => {}
        }
    }

    fn on_upstream<P>(&mut self, context: &mut Context<'_, P>, output: upstream::Output) {
        use upstream::Output as From;
        let now = context.now();
        match output {
            From::Tlp { packet, .. } => self.root.handle_input(now, root_complex::Input::Packet(packet)),
            From::Transmit { connection, bytes } => {
                self.taps[usize::from(connection.0)].scan(&bytes);
                self.connections.push(connection, bytes);
            }
            From::Connect { connection } => {
                self.connections.dial(context, connection, self.peers[usize::from(connection.0)]);
            }
            From::CloseConnection { connection } => self.connections.close(context, connection),
            From::Event { port, event } => self.on_event(now, usize::from(port.0), &event),
        }
    }

    fn on_event(&mut self, now: Instant, port: usize, event: &tunnel::Event) {
        match event {
            tunnel::Event::LinkUp { .. } => {
                self.links[port] = true;
                self.taps[port].on_link();
                request(&mut self.scans, port);
                self.scan(now);
            }
            tunnel::Event::LinkDown { .. } => {
                self.links[port] = false;
                self.taps[port].on_link();
                self.stations[port].lose(&mut self.taps[port]);
            }
            _ => {}
        }
    }

    /// Enumerates below the ports whose links have come up, one after another.
    fn scan(&mut self, now: Instant) {
        if self.scan_at.is_some_and(|at| at <= now) {
            self.scan_at = None;
            let lost = |port: usize| self.links[port] && self.stations[port].lost;
            let waits = |port: usize| self.scans.contains(&port) || self.scanning == Some(port);
            let more: Vec<_> = (0..self.links.len()).filter(|&port| lost(port) && !waits(port)).collect();
            self.scans.extend(more);
        }
        if self.scanning.is_some() {
            return;
        }
        let Some(port) = self.scans.pop_front() else { return };
        self.scanning = Some(port);
        match &self.topology {
            None => self.root.enumerate(now, self.plan),
            Some(topology) => {
                let bridge = topology.root.children.first().and_then(|switch| switch.children.get(port));
                let bridge = bridge.expect("the switch is always there").bdf;
                self.root.enumerate_below(now, topology.clone(), bridge, self.plan);
            }
        }
    }

    fn on_enumerated(&mut self, now: Instant, topology: Topology) {
        let all = self.topology.is_none();
        let scanned = self.scanning.take();
        let ports = topology.root.children.first().map_or(&[][..], |switch| &switch.children[..]);
        for (index, station) in self.stations.iter_mut().enumerate() {
            // A link that has come up since is enumerated again, so this result is outdated for it.
            let is_old = self.scans.contains(&index);
            if !all && scanned != Some(index) || !self.links[index] || is_old {
                continue;
            }
            let found = ports.get(index).and_then(|port| {
                let function = port.children.first()?;
                let bar = |number| function.bar(number).and_then(|bar| bar.address);
                (function.class == ClassCode::NVME && function.enabled).then_some(Found {
                    bdf: function.bdf,
                    bar: bar(0)?,
                    memory_buffer: bar(2),
                    bridge: port.bdf,
                    express: function.express.map(|express| express.offset),
                })
            });
            match found {
                Some(found) => {
                    station.lose(&mut self.taps[index]);
                    station.found(now, found);
                }
                None => self.scan_at = Some(now + AGAIN),
            }
        }
        // A root port without a switch below is a fault of this code, not of the world.
        if !ports.is_empty() {
            self.topology = Some(topology);
        } else {
            self.scan_at = Some(now + AGAIN);
        }
        self.scan(now);
    }

    pub(super) fn restart(&mut self, rng: Rng) {
        self.session.identity.instance = instance(&mut rng.fork("instance"));
        let sessions = self.peers.iter().map(|_| self.session.clone()).collect();
        self.upstream = assemblies::upstream(&self.switch, sessions, rng.fork("upstream"));
        self.root = RootComplex::new(self.root_config);
        self.reads.clear();
        self.connections.clear();
        self.links.iter_mut().for_each(|link| *link = false);
        self.stations.iter_mut().for_each(Station::restart);
        self.taps.iter_mut().for_each(Tap::restart);
        (self.topology, self.scanning, self.scan_at) = (None, None, None);
        self.scans.clear();
        self.rng = rng;
    }

    pub(super) fn enter(&mut self, phase: Phase) {
        self.stations.iter_mut().for_each(|station| station.enter(phase));
    }

    pub(super) fn is_busy(&self, phase: Phase) -> bool {
        self.stations.iter().any(|station| station.is_busy(phase))
    }

    pub(super) fn report(&mut self, outcome: &mut Outcome) {
        for (station, tap) in self.stations.iter_mut().zip(&mut self.taps) {
            station.report(outcome);
            outcome.failures.append(&mut tap.failures);
            outcome.ahead.0 += tap.pieces;
        }
    }

    pub(super) fn describe(&self) -> String {
        let mut text = format!(
            "links {:?}, scanning {:?}, scans {:?}, {} reads; ",
            self.links,
            self.scanning,
            self.scans,
            self.reads.len()
        );
        for (port, station) in self.stations.iter().enumerate() {
            text += &station.describe();
            text += &format!(" session {:?}; ", self.upstream.session(port_index(port)));
        }
        text
    }
}

/// Moves `port` to the end of the queue of ports to be enumerated. A port is queued only once,
/// because a second enumeration would take away a working device.
fn request(scans: &mut VecDeque<usize>, port: usize) {
    scans.retain(|scan| *scan != port);
    scans.push_back(port);
}

fn port_index(port: usize) -> PortIndex {
    PortIndex(u8::try_from(port).expect("few ports"))
}
