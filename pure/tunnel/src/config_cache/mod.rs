//! The config cache: reads of registers that cannot change by themselves are answered near the
//! host.
//!
//! The device's end shows the registers of its functions when the link comes up and after each
//! reset. This module decides which of these registers are steady. Writes by the host go to the
//! device, and their values are known once the device has answered. `config-cache.md` says
//! when known values are dropped.
#![cfg_attr(doc, doc = include_str!("../../config-cache.md"))]

mod function;
pub(crate) mod fuzz;
mod patience;
mod port;
mod steady;
#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Instant, Pool};
use pcie::completer::{self, Completer};
use pcie::switch::{Ascent, FarLink, Interposer, Passage, Strand, Surroundings};
use pcie::wire::{CompletionStatus, Kind, Packet};

use crate::frame::Registers;
use port::{Answer, Port};

/// Counters of the config cache since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Reads of configuration space that were answered near the host.
    pub reads_near: u64,
    /// Reads of configuration space that went to the far end.
    pub reads_far: u64,
    /// Writes of configuration space, all of which go to the far end.
    pub writes: u64,
    /// Reads of an NVMe controller's properties that were answered near the host.
    pub properties_near: u64,
    /// Configuration requests that were answered with Configuration Request Retry Status, because
    /// the connection was lost.
    pub retries: u64,
    /// How often the far end has shown registers.
    pub shown: u64,
}

/// The config cache for all ports of a switch.
#[derive(Debug)]
pub(crate) struct ConfigCache {
    ports: Vec<Port>,
    completer: Completer,
    pool: Pool,
    /// Answers to packets that have waited long enough.
    answers: VecDeque<Packet>,
    statistics: Statistics,
}

impl ConfigCache {
    /// Creates the cache. `answers` has an entry for each port: whether the cache answers for its
    /// device.
    pub(crate) fn new(answers: &[bool]) -> Self {
        Self {
            ports: answers.iter().map(|answers| Port::new(*answers)).collect(),
            completer: Completer::default(),
            pool: Pool::default(),
            answers: VecDeque::new(),
            statistics: Statistics::default(),
        }
    }

    pub(crate) const fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Forgets the functions below a port, since its session begins or ends or the device is reset.
    fn forget(&mut self, port: usize) {
        self.ports[port].forget();
    }

    /// Takes in registers that the far end of a port has shown.
    pub(crate) fn on_registers(&mut self, port: usize, registers: Registers) {
        self.statistics.shown += 1;
        self.ports[port].on_registers(registers);
    }

    /// The answer to a packet that goes down to a port, if the packet need not go. `flushed`
    /// returns whether the device has everything that was sent before.
    fn answer(&mut self, port: usize, packet: &Packet, flushed: impl FnOnce() -> bool) -> Option<Packet> {
        match &packet.header.kind {
            Kind::Config(_) => self.on_config(port, packet, flushed),
            Kind::Memory(_) if packet.header.is_non_posted() => self.on_memory(port, packet, flushed),
            _ => None,
        }
    }

    fn on_config(&mut self, port: usize, packet: &Packet, flushed: impl FnOnce() -> bool) -> Option<Packet> {
        let Kind::Config(request) = &packet.header.kind else { return None };
        if request.write {
            self.statistics.writes += 1;
            self.ports[port].on_write(packet, request);
            return None;
        }
        self.ports[port].on_request(packet);
        let answer = self.ports[port].read(packet, request).filter(|_| flushed());
        match answer {
            Some(_) => {
                self.statistics.reads_near += 1;
                self.ports[port].patience.on_answered(request.target.function());
            }
            None => {
                self.statistics.reads_far += 1;
                self.ports[port].on_far_read(request);
            }
        }
        answer.map(|answer| self.complete(packet, answer))
    }

    fn on_memory(&mut self, port: usize, packet: &Packet, flushed: impl FnOnce() -> bool) -> Option<Packet> {
        self.ports[port].on_request(packet);
        let answer = self.ports[port].read_properties(packet).filter(|_| flushed())?;
        self.statistics.properties_near += 1;
        Some(self.complete(packet, answer))
    }

    fn complete(&mut self, packet: &Packet, answer: Answer) -> Packet {
        self.completer.set(completer::Settings { id: answer.id, ..completer::Settings::default() });
        let bytes: [[u8; 4]; 3] = answer.values.map(u32::to_le_bytes);
        let bytes = bytes.as_flattened();
        let data = match packet.header.kind {
            Kind::Memory(_) => {
                let lead = usize::from(packet.header.lead());
                let length = usize::try_from(packet.header.byte_length()).unwrap_or(0);
                self.pool.copy(&bytes[lead..lead + length])
            }
            _ => self.pool.copy(&bytes[..4]),
        };
        let mut answered = Packet::blank();
        // The few bytes stay below the Read Completion Boundary, so they fit in one completion.
        self.completer.data(&packet.header, &data, |packet| answered = packet);
        answered
    }

    /// Takes in a packet that comes up from a port, if it is an answer.
    #[inline]
    fn on_answer(&mut self, port: usize, packet: &Packet) {
        if let Kind::Completion(completion) = &packet.header.kind {
            self.ports[port].on_completion(completion);
        }
    }

    /// Handles a packet for a port whose connection is lost. Returns whether the packet waits here
    /// for the connection; then it has left a blank one.
    fn wait(&mut self, now: Instant, port: usize, packet: &mut Packet) -> bool {
        let port = &mut self.ports[port];
        port.answers() && port.patience.wait(now, packet)
    }
    /// The next packet that waited for the connection of a port, now that it is back.
    pub(crate) fn take_waiting(&mut self, port: usize) -> Option<Packet> {
        self.ports[port].patience.take()
    }
    /// The next answer to a packet that has waited long enough, in which its function asks for
    /// patience.
    fn give_up(&mut self, now: Instant) -> Option<Packet> {
        let (id, packet) = self.ports.iter_mut().find_map(|port| {
            let packet = port.patience.give_up(now)?;
            let Kind::Config(request) = &packet.header.kind else { return None };
            Some((port.id(request.target.function()), packet))
        })?;
        self.statistics.retries += 1;
        self.completer.set(completer::Settings { id, ..completer::Settings::default() });
        Some(self.completer.status(&packet.header, CompletionStatus::ConfigRequestRetry))
    }
}

impl Interposer for ConfigCache {
    fn on_link(&mut self, port: usize, _link: &impl FarLink) {
        self.forget(port);
    }

    fn on_reset(&mut self, port: usize) {
        self.forget(port);
    }

    #[inline]
    fn on_down<L: FarLink>(
        &mut self,
        around: &mut Surroundings<'_, L>,
        port: usize,
        packet: &mut Packet,
    ) -> Passage {
        if !packet.is_non_posted() {
            return Passage::On(Strand::MAIN);
        }
        let link = &around.links[port];
        // A function whose device is not connected asks for patience.
        if !link.is_open() && self.wait(around.now, port, packet) {
            return Passage::Kept;
        }
        // Only the root complex sends configuration requests. Memory requests may come from another
        // device.
        let below = around.switch.is_below(packet.requester());
        // A read flushes earlier writes: its answer proves to the reader that they have arrived.
        let flushed = || !below && around.is_clear && link.is_flushed();
        match self.answer(port, packet, flushed) {
            Some(answer) => Passage::Answered(answer),
            None => Passage::On(Strand::MAIN),
        }
    }

    #[inline]
    fn on_up(&mut self, _now: Instant, port: usize, packet: &Packet, _link: &mut impl FarLink) -> Ascent {
        self.on_answer(port, packet);
        Ascent::On
    }

    fn handle_timeout<L: FarLink>(&mut self, around: &mut Surroundings<'_, L>) {
        while let Some(answer) = self.give_up(around.now) {
            self.answers.push_back(answer);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.ports.iter().filter_map(|port| port.patience.deadline()).min()
    }

    fn poll_packet(&mut self) -> Option<Packet> {
        self.answers.pop_front()
    }
}
