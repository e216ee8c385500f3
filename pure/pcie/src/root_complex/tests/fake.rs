//! A hierarchy of configuration spaces without engines, some of them broken.

use std::vec::Vec;

use super::*;
use crate::config::{
    Bar, BarIndex, Builder, ClassCode, ConfigSpace, Identity, Link, PortType, Slot as SlotConfig, bridge,
    offset,
};

/// One function and everything below it.
pub(super) struct Node {
    pub(super) device: u8,
    pub(super) space: ConfigSpace,
    /// Offset and value of registers that always read as this value, regardless of writes.
    pub(super) stuck: Vec<(u16, u32)>,
    /// How many more times the function answers with CRS.
    pub(super) retries: u32,
    /// Whether the function never answers.
    pub(super) silent: bool,
    pub(super) children: Vec<Node>,
}

const IDENTITY: Identity = Identity {
    vendor: 0x1b36,
    device: 0x0010,
    revision: 2,
    class: ClassCode::NVME,
    subsystem_vendor: 0x1af4,
    subsystem: 0x1100,
};

pub(super) fn node(space: ConfigSpace) -> Node {
    Node { device: 0, space, stuck: Vec::new(), retries: 0, silent: false, children: Vec::new() }
}

pub(super) fn ssd(payload_max: u32) -> Node {
    let link = Link { payload_max, ..Link::default() };
    let builder = Builder::endpoint(IDENTITY)
        .bar(BarIndex::new(0), Bar::memory64(0x4000))
        .bar(BarIndex::new(2), Bar::memory64(1 << 30).prefetchable())
        .bar(BarIndex::new(4), Bar::memory32(0x100))
        .power_management(true)
        .express(PortType::Endpoint, link, None)
        .msix(BarIndex::new(0), 33, 0x2000, 0x3000)
        .advanced_error_reporting()
        .serial_number(0x0011_2233_4455_6677);
    node(builder.build())
}

pub(super) fn switch(ports: Vec<Vec<Node>>) -> Node {
    let identity = Identity { device: 0x0100, class: ClassCode::PCI_BRIDGE, ..IDENTITY };
    let up = Builder::bridge(identity).express(PortType::Upstream, Link::default(), None);
    let mut upstream = node(up.build());
    for (device, children) in (0..).zip(ports) {
        let slot = SlotConfig { number: u16::from(device) + 1, surprise: true };
        let down =
            Builder::bridge(identity).express(PortType::Downstream, Link::default(), Some(slot)).build();
        upstream.children.push(Node { device, children, ..node(down) });
    }
    upstream
}

impl Node {
    fn find(&mut self, bus: u8, target: Bdf) -> Option<&mut Self> {
        if bus == target.bus() {
            return (self.device == target.device() && target.function() == 0).then_some(self);
        }
        let secondary = u8::try_from(self.space.get(bridge::SECONDARY_BUS)).unwrap();
        let subordinate = u8::try_from(self.space.get(bridge::SUBORDINATE_BUS)).unwrap();
        if secondary == 0 || !(secondary..=subordinate).contains(&target.bus()) {
            return None;
        }
        self.children.iter_mut().find_map(|child| child.find(secondary, target))
    }

    /// Answers a configuration request as the function would, if it answers at all.
    pub(super) fn answer(&mut self, bus: u8, packet: &Packet) -> Option<Packet> {
        let Kind::Config(request) = packet.header.kind else { panic!("{packet:?}") };
        let expected = if request.target.bus() == bus { ConfigType::Type0 } else { ConfigType::Type1 };
        assert_eq!(request.routing, expected);
        let completer = |status| Some(Packet::completion(request.target, status, &packet.header));
        let Some(node) = self.find(bus, request.target) else {
            return completer(CompletionStatus::UnsupportedRequest);
        };
        if node.silent {
            return None;
        }
        if node.retries > 0 {
            node.retries -= 1;
            return completer(CompletionStatus::ConfigRequestRetry);
        }
        if request.write {
            let value = u32::from_le_bytes((&*packet.payload).try_into().unwrap());
            node.space.write(request.offset, value, request.enables);
            return completer(CompletionStatus::Success);
        }
        let stuck = node.stuck.iter().find(|(offset, _)| *offset == request.offset);
        let value = stuck.map_or_else(|| node.space.read(request.offset), |(_, value)| *value);
        let data = Buffer::copy_from_slice(&value.to_le_bytes());
        Some(Packet::completion_with_data(request.target, &packet.header, 0, data))
    }
}

/// A root complex above a [`Node`], in virtual time.
pub(super) struct World {
    pub(super) root: RootComplex,
    pub(super) below: Option<Node>,
    pub(super) now: Instant,
}

impl World {
    pub(super) fn new(below: Option<Node>) -> Self {
        Self { root: RootComplex::new(Config::default()), below, now: Instant::ZERO }
    }
    pub(super) fn enumerate(&mut self) -> Topology {
        self.root.enumerate(self.now, Plan::default());
        self.run().unwrap()
    }
    /// Runs until enumeration ends.
    pub(super) fn run(&mut self) -> Result<Topology, EnumerationError> {
        for _ in 0..100_000 {
            while let Some(output) = self.root.poll_output() {
                match output {
                    Output::Packet(packet) => {
                        let bus = self.root.config().bus;
                        let answer = match &mut self.below {
                            Some(node) => node.answer(bus, &packet),
                            None => Some(unsupported(&packet)),
                        };
                        if let Some(answer) = answer {
                            self.root.handle_input(self.now, Input::Packet(answer));
                        }
                    }
                    Output::Enumerated(result) => return result,
                    other => panic!("{other:?}"),
                }
            }
            self.now = self.root.poll_timeout().expect("enumeration waits for something");
            self.root.handle_timeout(self.now);
        }
        panic!("enumeration does not end")
    }
}

fn unsupported(packet: &Packet) -> Packet {
    Packet::completion(Bdf::new(0, 0, 0), CompletionStatus::UnsupportedRequest, &packet.header)
}

/// Byte offset at which Builder puts the PCI Express capability.
pub(super) const EXPRESS: u16 = offset::EXPRESS;
