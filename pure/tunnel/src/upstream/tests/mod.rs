mod patience;

use std::vec::Vec;

use engine::{Nanos, Rng, settle};
use pcie::config::{ClassCode, Identity as Function, Link};
use pcie::wire::{Bdf, CompletionStatus, ConfigType, Kind, Tag};

use super::*;
use crate::downstream::{self, ConnectionId, Downstream};
use crate::test_bench::config;

const ROOT: Bdf = Bdf::new(0, 0, 0);
const SWITCH: Bdf = Bdf::new(1, 0, 0);

/// A switch with two ports, connected to two devices' ends that answer every request with the
/// device's number.
struct World {
    now: Instant,
    upstream: Upstream,
    far: Vec<Downstream>,
    /// The connection of each port, if there is one.
    connections: [Option<u32>; 2],
    reachable: bool,
    count: u32,
    to_root: Vec<(Packet, Option<(PortIndex, Arrival)>)>,
    events: Vec<std::string::String>,
    resets: [u32; 2],
}

impl World {
    fn new() -> Self {
        Self::with(&config("host", 1))
    }

    fn with(host: &Config) -> Self {
        let function = Function {
            vendor: 0x1234,
            device: 1,
            revision: 0,
            class: ClassCode::PCI_BRIDGE,
            subsystem_vendor: 0,
            subsystem: 0,
        };
        let switch = SwitchConfig {
            upstream: function,
            downstream: function,
            ports: 2,
            link: Link::default(),
            surprise: true,
            serial_number: 1,
        };
        let rng = Rng::from_seed(1);
        let far = |index: u8| Downstream::new(config("box", 10 + index), Rng::from_seed(u64::from(index)));
        let mut world = Self {
            now: Instant::from_nanos(1),
            upstream: Upstream::new(&switch, std::vec![host.clone(), host.clone()], &rng),
            far: std::vec![far(0), far(1)],
            connections: [None; 2],
            reachable: true,
            count: 0,
            to_root: Vec::new(),
            events: Vec::new(),
            resets: [0; 2],
        };
        world.run_for(Nanos::from_millis(100));
        // Bus 2 is inside the switch, bus 3 below port 0 and bus 4 below port 1.
        world.config_write(SWITCH, 0x18, 0x0004_0201);
        world.config_write(Bdf::new(2, 0, 0), 0x18, 0x0003_0302);
        world.config_write(Bdf::new(2, 1, 0), 0x18, 0x0004_0402);
        world.to_root.clear();
        world
    }

    fn run_for(&mut self, length: Nanos) {
        let end = self.now + length;
        loop {
            self.exchange();
            let wakes = self.far.iter().map(Engine::poll_timeout);
            let next = wakes.chain([self.upstream.poll_timeout()]).flatten().min();
            match next.filter(|at| *at <= end) {
                Some(at) => self.now = self.now.max(at),
                None => break,
            }
        }
        self.now = end;
    }

    /// Passes everything on until all ends are quiet.
    fn exchange(&mut self) {
        loop {
            let mut outputs = Vec::new();
            settle(&mut self.upstream, self.now, |output| outputs.push(output));
            let mut quiet = outputs.is_empty();
            outputs.into_iter().for_each(|output| self.on_upstream(output));
            for index in 0..2 {
                let mut outputs = Vec::new();
                settle(&mut self.far[index], self.now, |output| outputs.push(output));
                quiet &= outputs.is_empty();
                outputs.into_iter().for_each(|output| self.on_downstream(index, output));
            }
            if quiet {
                break;
            }
        }
    }

    fn on_upstream(&mut self, output: Output) {
        match output {
            Output::Tlp { packet, from } => self.to_root.push((packet, from)),
            Output::Transmit { connection: ConnectionIndex(index), bytes } => {
                let index = usize::from(index);
                if let Some(connection) = self.connections[index] {
                    let input = downstream::Input::Received(ConnectionId(connection), bytes);
                    self.far[index].handle_input(self.now, input);
                }
            }
            Output::Connect { connection: index } if self.reachable => {
                self.count += 1;
                self.connections[usize::from(index.0)] = Some(self.count);
                let input = downstream::Input::Accepted(
                    ConnectionId(self.count),
                    core::net::Ipv4Addr::LOCALHOST.into(),
                );
                self.far[usize::from(index.0)].handle_input(self.now, input);
                self.upstream.handle_input(self.now, Input::Connected(index));
            }
            Output::Connect { connection } => {
                self.upstream.handle_input(self.now, Input::Disconnected(connection));
            }
            Output::CloseConnection { connection } => self.cut(connection.0, false),
            Output::Event { port, event } => self.events.push(std::format!("{}: {event}", port.0)),
        }
    }

    fn on_downstream(&mut self, index: usize, output: downstream::Output) {
        let port = PortIndex(u8::try_from(index).unwrap());
        match output {
            downstream::Output::Tlp { packet, .. } if packet.is_non_posted() => {
                let data = Buffer::copy_from_slice(&[port.0; 4]);
                let id = Bdf::new(3 + port.0, 0, 0);
                let answer = Packet::completion_with_data(id, &packet.header, 0, data);
                self.far[index].send(self.now, answer);
            }
            downstream::Output::DeviceReset => self.resets[index] += 1,
            downstream::Output::Transmit { connection, bytes }
                if self.connections[index] == Some(connection.0) =>
            {
                self.upstream.handle_input(self.now, Input::Received(ConnectionIndex::main_of(port), bytes));
            }
            _ => (),
        }
    }

    fn cut(&mut self, port: u8, informs_upstream: bool) {
        if let Some(connection) = self.connections[usize::from(port)].take() {
            let input = downstream::Input::Disconnected(ConnectionId(connection));
            self.far[usize::from(port)].handle_input(self.now, input);
            if informs_upstream {
                self.upstream.handle_input(self.now, Input::Disconnected(ConnectionIndex(port)));
            }
        }
    }

    fn request(&mut self, packet: Packet, target: Bdf) {
        let kind = if target.bus() == 1 { ConfigType::Type0 } else { ConfigType::Type1 };
        self.upstream.handle_input(self.now, Input::Tlp(packet.with_config_type(kind)));
        self.exchange();
    }

    fn config_write(&mut self, target: Bdf, offset: u16, value: u32) {
        let data = Buffer::copy_from_slice(&value.to_le_bytes());
        self.request(Packet::config_write(ROOT, Tag::new(1), target, offset, data), target);
    }

    /// The answer to a read of the device below `port`, and the port that it came by.
    fn probe(&mut self, port: u8) -> (CompletionStatus, Vec<u8>, Option<PortIndex>) {
        let target = Bdf::new(3 + port, 0, 0);
        self.to_root.clear();
        self.request(Packet::config_read(ROOT, Tag::new(2), target, 0, 4), target);
        let answers = self.to_root.iter().filter(|(packet, _)| packet.is_completion());
        let [(packet, from)] = &answers.collect::<Vec<_>>()[..] else { panic!("{:?}", self.to_root) };
        let Kind::Completion(completion) = packet.header.kind else { panic!("{packet:?}") };
        (completion.status, packet.payload.to_vec(), from.map(|(port, _)| port))
    }
}

#[test]
fn each_port_leads_to_its_device() {
    let mut world = World::new();
    assert_eq!(world.events.len(), 2, "{:?}", world.events);
    for port in [0, 1] {
        let expected = (CompletionStatus::Success, std::vec![port; 4], Some(PortIndex(port)));
        assert_eq!(world.probe(port), expected);
    }
}

#[test]
fn a_far_end_that_is_gone_is_pulled_out_and_harms_no_other() {
    let mut world = World::new();
    let resets = world.resets;
    world.reachable = false;
    world.cut(0, true);
    world.run_for(Nanos::from_secs(11));
    assert!(world.events.last().unwrap().contains("0: link down"), "{:?}", world.events);
    assert_eq!(world.probe(0), (CompletionStatus::UnsupportedRequest, Vec::new(), None));
    assert_eq!(world.probe(1).1, [1; 4]);
    assert_eq!([world.resets[0] - resets[0], world.resets[1] - resets[1]], [1, 0]);
    world.reachable = true;
    world.run_for(Nanos::from_secs(5));
    assert_eq!(world.probe(0).1, [0; 4], "it was plugged in again");
}

#[test]
fn within_the_hold_time_a_request_waits_for_its_connection() {
    let mut world = World::new();
    world.reachable = false;
    world.cut(1, true);
    let target = Bdf::new(4, 0, 0);
    world.to_root.clear();
    world.request(Packet::config_read(ROOT, Tag::new(2), target, 0, 4), target);
    world.run_for(Nanos::from_secs(1));
    assert_eq!(world.to_root.len(), 0);
    world.reachable = true;
    world.run_for(Nanos::from_secs(3));
    assert_eq!(world.to_root.len(), 1);
    assert!(world.events.iter().any(|event| event == "1: resumed"));
}

#[test]
fn a_secondary_bus_reset_reaches_the_device_below() {
    let mut world = World::new();
    let resets = world.resets;
    let bridge_control = 0x3c;
    world.config_write(Bdf::new(2, 1, 0), bridge_control, 1 << 22);
    world.config_write(Bdf::new(2, 1, 0), bridge_control, 0);
    assert_eq!([world.resets[0] - resets[0], world.resets[1] - resets[1]], [0, 1]);
    assert_eq!(world.probe(1).1, [1; 4]);
}

#[test]
fn a_closed_port_stays_closed_until_it_is_restarted() {
    let mut world = World::new();
    let now = world.now;
    world.upstream.close(now, PortIndex(0), "enough");
    world.run_for(Nanos::from_secs(60));
    assert_eq!(world.events.last().unwrap(), "0: link down: closed");
    let now = world.now;
    world.upstream.restart(now, PortIndex(0));
    world.run_for(Nanos::from_millis(10));
    assert_eq!(world.probe(0).1, [0; 4]);
}
