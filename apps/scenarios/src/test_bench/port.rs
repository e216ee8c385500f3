//! A node's end of a PCIe link.

use engine::Instant;
use network_models::trail::Part;
use pcie::wire::Packet;
use sim::Context;
use sim::direct::PortId;
use sim::models::pcie::{Class, FRAMING, Link, Passage, Transmitter};

use super::Cargo;
use super::chain::Place;
use super::journal::{Cause, Journal, Step};
use super::task::classify;

/// A port whose model decides when packets leave by the world's direct link of the same number.
#[derive(Debug)]
pub(super) struct Port {
    id: PortId,
    transmitter: Transmitter,
    /// The journal's place of the link.
    place: Place,
    /// Whether packets begin their way at this port, and if so, whether they go down.
    origin: Option<bool>,
    journal: Journal,
}

/// A packet that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) passage: Passage,
    /// The journal's mark of the packet's first symbol.
    pub(super) started: Cause,
}

/// Length in bytes of a packet on a link, framing included.
pub(super) fn bytes_of(packet: &Packet) -> u32 {
    u32::try_from(packet.encoded_len()).expect("a TLP is short") + FRAMING
}

impl Port {
    pub(super) const fn new(transmitter: Transmitter, place: Place, journal: Journal) -> Self {
        Self { id: PortId(0), transmitter, place, origin: None, journal }
    }

    /// Makes this the port of a node where packets begin their way: down from a host, up from a
    /// device.
    pub(super) const fn with_origin(mut self, down: bool) -> Self {
        self.origin = Some(down);
        self
    }

    pub(super) const fn link(&self) -> &Link {
        self.transmitter.link()
    }

    /// Sends `packet` now or as soon as the line allows, because of `cause`.
    pub(super) fn send(&mut self, context: &mut Context<'_, Cargo>, packet: Packet, cause: Cause) -> Sent {
        let class = if packet.is_completion() {
            Class::Completion
        } else if packet.is_posted() {
            Class::Posted
        } else {
            Class::NonPosted
        };
        let payload = u32::try_from(packet.payload.len()).expect("a TLP is short");
        let bytes = bytes_of(&packet);
        let passage = self.transmitter.send(context.now(), class, bytes, payload);
        let (started, arrived) =
            if self.journal.is_on() { self.note(passage, bytes, &packet, cause) } else { (None, None) };
        context.send_packet_at(self.id, Cargo::Tlp(packet, arrived), passage.arrival);
        Sent { passage, started }
    }

    /// Marks a passage: the first symbol leaves, the first symbol arrives, the last symbol arrives.
    fn note(&self, passage: Passage, bytes: u32, packet: &Packet, cause: Cause) -> (Cause, Cause) {
        let place = self.place;
        let queue = Step { place, part: Part::Waiting, what: "line and credits" };
        let started = match self.origin {
            None => self.journal.mark(cause, passage.start, queue),
            Some(down) => self.journal.packet(cause, passage.start, queue, || {
                let (what, bytes) = classify(packet);
                super::Seen { at: passage.start, down, what, bytes }
            }),
        };
        let length = self.link().serialise(bytes);
        let first = Instant::from_nanos(passage.arrival.as_nanos() - length.get()).max(passage.start);
        let step = Step { place, part: Part::Propagation, what: "physical layers and wire" };
        let first = self.journal.mark(started, first, step);
        let step = Step { place, part: Part::Serialisation, what: "" };
        (started, self.journal.mark(first, passage.arrival, step))
    }

    /// Resets the device at the other end of the link, behind the packets that were sent before.
    pub(super) fn reset(&mut self, context: &mut Context<'_, Cargo>) {
        context.send_packet_at(self.id, Cargo::Reset, context.now());
    }

    /// Notes that a packet has arrived; returns when its first symbol arrived.
    pub(super) fn receive(&mut self, now: Instant, packet: &Packet) -> Instant {
        let bytes = bytes_of(packet);
        self.transmitter.on_received(bytes);
        let length = self.link().serialise(bytes);
        Instant::from_nanos(now.as_nanos().saturating_sub(length.get()))
    }
}
