//! Direct hops: packets that pass from node to node after a fixed time.

use std::collections::VecDeque;

use engine::{Instant, Nanos};

use crate::NodeId;
use crate::schedule::{Key, Slot, Source};
use crate::world::Core;

/// A node's end of a direct link. A node's ports are numbered from 0 in the order in which its
/// links were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortId(pub u32);

#[derive(Debug)]
pub(crate) struct Direct<P> {
    /// Node and port of each side.
    sides: [(NodeId, PortId); 2],
    latency: Nanos,
    /// The packets on their way towards each side.
    queues: [VecDeque<(Key, P)>; 2],
    slots: [Slot; 2],
}

impl<P> Core<P> {
    pub(crate) fn add_direct(&mut self, one: NodeId, other: NodeId, latency: Nanos) -> (PortId, PortId) {
        let link = self.directs.len();
        let slots = [0, 1].map(|side| self.schedule.add(Source::Direct { link, side }));
        let ports = [(one, 0), (other, 1)].map(|(node, side)| {
            let ports = &mut self.nodes[node.index()].ports;
            ports.push((link, side));
            (node, PortId(u32::try_from(ports.len() - 1).expect("few ports")))
        });
        self.directs.push(Direct { sides: ports, latency, queues: Default::default(), slots });
        (ports[0].1, ports[1].1)
    }

    pub(crate) fn send_packet(&mut self, node: NodeId, port: PortId, packet: P) {
        self.send_packet_at(node, port, packet, self.now);
    }

    pub(crate) fn send_packet_at(&mut self, node: NodeId, port: PortId, packet: P, at: Instant) {
        let (link, side) = self.nodes[node.index()].ports[port.0 as usize];
        let towards = 1 - side;
        let direct = &mut self.directs[link];
        let at = at.max(self.now) + direct.latency;
        let at = direct.queues[towards].back().map_or(at, |(last, _)| at.max(last.at));
        let key = self.schedule.key(at);
        if direct.queues[towards].is_empty() {
            self.schedule.arm(direct.slots[towards], key);
        }
        direct.queues[towards].push_back((key, packet));
    }

    pub(crate) fn direct_receiver(&self, link: usize, side: usize) -> (NodeId, PortId) {
        self.directs[link].sides[side]
    }

    pub(crate) fn pop_packet(&mut self, link: usize, side: usize) -> P {
        let direct = &mut self.directs[link];
        let (_, packet) = direct.queues[side].pop_front().expect("an armed link has a packet");
        self.schedule.show(direct.slots[side], direct.queues[side].front().map(|(key, _)| *key));
        packet
    }
}
