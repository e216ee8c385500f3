//! A node's end of a PCIe link.

use engine::Instant;
use pcie::wire::Packet;
use sim::Context;
use sim::direct::PortId;
use sim::models::pcie::{Class, FRAMING, Link, Passage, Transmitter};

use super::Cargo;

/// A port: packets leave by the world's direct link of the same number when the model says so.
#[derive(Debug)]
pub(super) struct Port {
    id: PortId,
    transmitter: Transmitter,
}

/// Bytes of a packet on a link.
pub(super) fn bytes_of(packet: &Packet) -> u32 {
    u32::try_from(packet.encoded_len()).expect("a TLP is short") + FRAMING
}

impl Port {
    pub(super) fn new(id: PortId, link: Link) -> Self {
        Self { id, transmitter: Transmitter::new(link) }
    }

    pub(super) const fn link(&self) -> &Link {
        self.transmitter.link()
    }

    /// Sends `packet` at `now` or as soon as the line allows.
    pub(super) fn send(&mut self, context: &mut Context<'_, Cargo>, packet: Packet) -> Passage {
        let class = if packet.is_completion() {
            Class::Completion
        } else if packet.is_posted() {
            Class::Posted
        } else {
            Class::NonPosted
        };
        let payload = u32::try_from(packet.payload.len()).expect("a TLP is short");
        let passage = self.transmitter.send(context.now(), class, bytes_of(&packet), payload);
        context.send_packet_at(self.id, Cargo::Tlp(packet), passage.arrival);
        passage
    }

    /// A packet has come; when its first symbol did.
    pub(super) fn receive(&mut self, now: Instant, packet: &Packet) -> Instant {
        let bytes = bytes_of(packet);
        self.transmitter.on_received(bytes);
        let length = self.link().serialise(bytes);
        Instant::from_nanos(now.as_nanos().saturating_sub(length.get()))
    }
}
