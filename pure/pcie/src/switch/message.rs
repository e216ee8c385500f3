//! Messages: implicit routing, errors from below, legacy interrupts, and PME_Turn_Off.

use super::port::Route;
use super::{DOWNSTREAM_PORTS_MAX, Output, PortId, Switch};
use crate::config::{ErrorMessage, FunctionError};
use crate::wire::{Bdf, Kind, Message, MessageRouting, Packet, message};

/// Number of legacy interrupts: INTA to INTD.
const PINS: usize = 4;

/// State that a switch keeps between messages.
#[derive(Clone, Debug, Default)]
pub(super) struct Gathered {
    /// For each legacy interrupt of the upstream port: the downstream ports that assert it, bit n
    /// for port n.
    asserted: [u32; PINS],
    /// Downstream ports that still owe PME_TO_Ack; bit n is port n.
    owed: u32,
}

impl Switch {
    pub(super) fn on_message(&mut self, ingress: PortId, packet: Packet) {
        let Kind::Message(received) = packet.header.kind else { return };
        match (received.routing, ingress) {
            (MessageRouting::ToRootComplex, PortId::Downstream(_)) => {
                self.on_upward(ingress, packet, &received)
            }
            (MessageRouting::ByAddress, _) => {
                let route = self.routes.by_address(ingress, received.requester, received.body);
                self.deliver(ingress, route, packet);
            }
            (MessageRouting::ById, _) => {
                let [high, low, ..] = received.body.to_be_bytes();
                let route = self.routes.by_id(ingress, Bdf::from_bits(u16::from_be_bytes([high, low])));
                self.deliver(ingress, route, packet);
            }
            (MessageRouting::BroadcastFromRootComplex, PortId::Upstream) => {
                self.on_broadcast(&packet, &received)
            }
            (MessageRouting::Local | MessageRouting::Reserved(_), _) => {
                self.on_local(ingress, &packet, &received)
            }
            (MessageRouting::GatheredToRootComplex, PortId::Downstream(port)) => {
                self.on_acknowledged(port);
            }
            _ => self.refuse(ingress, ingress, &packet.header),
        }
    }

    /// Handles a message from below to the root complex. An error message passes only if the
    /// bridges on the way allow it.
    fn on_upward(&mut self, ingress: PortId, packet: Packet, received: &Message) {
        if let Some(error) = ErrorMessage::from_code(received.code)
            && !(self.port_mut(ingress).passes_error(error) && self.upstream.passes_error(error))
        {
            return;
        }
        self.deliver(ingress, Route::Forward(PortId::Upstream), packet);
    }

    fn on_broadcast(&mut self, packet: &Packet, received: &Message) {
        for port in 0..DOWNSTREAM_PORTS_MAX {
            if self.routes.is_up(port) {
                let route = Route::Forward(PortId::Downstream(port));
                self.deliver(PortId::Upstream, route, packet.clone());
            }
        }
        if received.code == message::PME_TURN_OFF {
            self.gathered.owed = self.routes.up;
            self.acknowledge_if_complete();
        }
    }

    fn on_acknowledged(&mut self, port: u8) {
        if self.gathered.owed >> port & 1 == 1 {
            self.gathered.owed &= !(1 << port);
            self.acknowledge_if_complete();
        }
    }

    fn acknowledge_if_complete(&mut self) {
        if self.gathered.owed == 0 {
            let routing = MessageRouting::GatheredToRootComplex;
            let packet = Packet::message(self.upstream.id, routing, message::PME_TO_ACK, 0);
            self.outputs.push_back(Output::Forward { port: PortId::Upstream, packet });
        }
    }

    fn on_local(&mut self, ingress: PortId, packet: &Packet, received: &Message) {
        match (received.code, ingress) {
            (code @ message::ASSERT_INTA..=message::DEASSERT_INTD, PortId::Downstream(port)) => {
                let pin = usize::from(code - message::ASSERT_INTA);
                self.on_interrupt_line(port, pin % PINS, pin < PINS);
            }
            (message::VENDOR_DEFINED_0, _) => self.refuse(ingress, ingress, &packet.header),
            _ => {}
        }
    }

    /// Handles a change of `pin` by a device below `port`. The upstream pin is `pin` rotated by the
    /// port's device number. It changes only when the first port asserts it or the last one
    /// deasserts it.
    fn on_interrupt_line(&mut self, port: u8, pin: usize, asserts: bool) {
        let rotated = (pin + usize::from(port)) % PINS;
        let before = self.gathered.asserted[rotated];
        let after = if asserts { before | 1 << port } else { before & !(1 << port) };
        self.gathered.asserted[rotated] = after;
        if (before == 0) != (after == 0) {
            let first = if after != 0 { message::ASSERT_INTA } else { message::DEASSERT_INTA };
            let code = first + u8::try_from(rotated).unwrap_or(0);
            let packet = Packet::message(self.upstream.id, MessageRouting::Local, code, 0);
            self.outputs.push_back(Output::Forward { port: PortId::Upstream, packet });
        }
    }

    /// Clears the interrupts and acknowledgements of the device below `port`, because its link is
    /// gone.
    pub(super) fn forget_below(&mut self, port: u8) {
        for pin in 0..PINS {
            let unrotated = (pin + PINS - usize::from(port) % PINS) % PINS;
            self.on_interrupt_line(port, unrotated, false);
        }
        self.on_acknowledged(port);
    }

    /// Logs an error of `port`, and sends the error message if this is enabled.
    pub(super) fn report(
        &mut self,
        port: PortId,
        error: FunctionError,
        advisory: bool,
        blamed: Option<&crate::wire::Header>,
    ) {
        let function = self.port_mut(port);
        let id = function.id;
        let Some(message) = crate::config::report_error(&mut function.space, error, advisory, blamed) else {
            return;
        };
        if port == PortId::Upstream || self.upstream.passes_error(message) {
            self.outputs.push_back(Output::Forward { port: PortId::Upstream, packet: message.packet(id) });
        }
    }
}
