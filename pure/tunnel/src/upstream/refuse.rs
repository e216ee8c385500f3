//! Packets from below that an interposer does not let pass.

use pcie::switch::{Interposer, PortId};
use pcie::wire::{CompletionStatus, Packet};

use super::{Output, PortIndex, Upstream};
use crate::event::Event;

impl<I: Interposer> Upstream<I> {
    /// Answers a packet that an interposer refused, as the switch answers a packet that it cannot
    /// route, and reports the refusal.
    #[cold]
    pub(super) fn refuse(&mut self, from: PortIndex, packet: &Packet) {
        if packet.is_non_posted() {
            let completer = self.switch.id(PortId::Downstream(from.0));
            let status = CompletionStatus::UnsupportedRequest;
            self.down(from.0, Packet::completion(completer, status, &packet.header));
        }
        while let Some((port, refusal)) = self.interposers.poll_refusal() {
            let port = PortIndex(u8::try_from(port).expect("a switch has at most 32 ports"));
            self.outputs.push_back(Output::Event { port, event: Event::Refused(refusal) });
        }
    }
}
