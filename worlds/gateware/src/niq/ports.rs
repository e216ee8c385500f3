//! The ports of the circuit, cycle by cycle.

use std::collections::VecDeque;
use std::fmt;

use engine::Rng;
use pcie::wire::{Bdf, Packet};

use super::Bars;
use crate::ffi::{Niq, NiqInputs, NiqOutputs};
use crate::stream::{Sink, Source, Stalls};

/// So many cycles without any progress are a circuit that hangs. A start of a queue takes 1,024.
const PATIENCE: u32 = 3_000;
/// So many cycles without progress, while the cable takes nothing, are a circuit that waits for it.
const QUIET: u32 = 40;

/// The circuit, and the models at its ports.
pub(super) struct Ports {
    model: Niq,
    inputs: NiqInputs,
    rng: Rng,
    stalls: Stalls,
    cycles: u64,
    rx_tlp: Source,
    tx_tlp: Sink,
    rx_mac: Source,
    tx_mac: Sink,
    interrupts: VecDeque<usize>,
    is_busy: bool,
    /// Cycles since a beat passed.
    quiet: u32,
    times: Times,
}

/// The cycles since power-up in which beats were seen last.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// The last beat of a TLP of the host passed.
    pub request: u64,
    /// The first beat of a packet was offered to the cable.
    pub departure: u64,
    /// The last beat of a packet of the cable passed.
    pub arrival: u64,
    /// The first beat of a TLP was offered to the host.
    pub answer: u64,
    /// The circuit was busy.
    pub work: u64,
}

impl Ports {
    pub(super) fn new(address: [u8; 6], bars: Bars, card: Bdf, stalls: Stalls, seed: u64) -> Self {
        let [a, b, c, d, e, f] = address;
        let inputs = NiqInputs {
            bar0: bars.registers,
            bar2: bars.window,
            station: u64::from_le_bytes([a, b, c, d, e, f, 0, 0]),
            completer: card.bits(),
            ..NiqInputs::default()
        };
        let mut ports = Self {
            model: Niq::new(),
            inputs,
            rng: Rng::from_seed(seed),
            stalls,
            cycles: 0,
            rx_tlp: Source::new(stalls),
            tx_tlp: Sink::new("tx_tlp", stalls),
            rx_mac: Source::new(stalls),
            tx_mac: Sink::new("tx_mac", stalls),
            interrupts: VecDeque::new(),
            is_busy: true,
            quiet: 0,
            times: Times::default(),
        };
        ports.tx_mac.is_open = false;
        ports.inputs.rst = true;
        ports.cycle();
        ports.cycle();
        ports.inputs.rst = false;
        ports
    }

    pub(super) const fn set_link(&mut self, is_up: bool) {
        self.inputs.link_up = is_up;
        // The circuit shows that it is busy once it has seen the change.
        self.is_busy = true;
    }

    pub(super) fn send(&mut self, request: &Packet) {
        let mut bytes = vec![0; request.encoded_len()];
        request.emit(&mut bytes);
        self.rx_tlp.push(&bytes, false);
    }

    pub(super) fn arrive(&mut self, packet: &[u8], is_bad: bool) {
        self.rx_mac.push(packet, is_bad);
    }

    pub(super) const fn times(&self) -> Times {
        self.times
    }

    fn cycle(&mut self) {
        let (rng, inputs) = (&mut self.rng, &mut self.inputs);
        let offers = [&mut self.rx_tlp, &mut self.rx_mac].map(|source| source.offer(rng));
        (inputs.rx_tlp_valid, inputs.rx_mac_valid) = (offers[0].is_some(), offers[1].is_some());
        (inputs.rx_tlp, inputs.rx_mac) = (offers[0].unwrap_or_default(), offers[1].unwrap_or_default());
        inputs.tx_tlp_ready = self.tx_tlp.ready(rng);
        inputs.tx_mac_ready = self.tx_mac.ready(rng);
        inputs.interrupt_ready = !self.stalls.pauses(rng);
        let outputs = self.model.cycle(inputs);
        self.cycles += 1;
        if inputs.rst {
            return;
        }
        let inputs = *inputs;
        let tlp = (outputs.tx_tlp_valid != 0).then_some(outputs.tx_tlp);
        let packet = (outputs.tx_mac_valid != 0).then_some(outputs.tx_mac);
        let interrupts = outputs.interrupt_valid != 0 && inputs.interrupt_ready;
        self.note_times(&outputs);
        let passed = [
            self.rx_tlp.passed(outputs.rx_tlp_ready != 0),
            self.rx_mac.passed(outputs.rx_mac_ready != 0),
            self.tx_tlp.passed(inputs.tx_tlp_ready, tlp),
            self.tx_mac.passed(inputs.tx_mac_ready, packet),
            interrupts,
        ];
        if interrupts {
            self.interrupts.push_back(outputs.interrupt.into());
        }
        self.quiet = if passed.contains(&true) { 0 } else { self.quiet + 1 };
        self.is_busy = outputs.busy != 0;
    }

    /// Must come before the sinks see this cycle's beats.
    const fn note_times(&mut self, outputs: &NiqOutputs) {
        let (inputs, now, times) = (&self.inputs, self.cycles, &mut self.times);
        if inputs.rx_tlp_valid && outputs.rx_tlp_ready != 0 {
            times.request = now;
        }
        if inputs.rx_mac_valid && outputs.rx_mac_ready != 0 {
            times.arrival = now;
        }
        if outputs.tx_mac_valid != 0 && self.tx_mac.is_between() {
            times.departure = now;
        }
        if outputs.tx_tlp_valid != 0 && self.tx_tlp.is_between() {
            times.answer = now;
        }
        if outputs.busy != 0 {
            times.work = now;
        }
    }

    fn step(&mut self) {
        self.cycle();
        assert!(self.quiet < PATIENCE, "nothing moved for {PATIENCE} cycles: {self:?}");
    }

    /// Runs until a further cycle would change nothing, or only the cable is waited for.
    pub(super) fn settle(&mut self) {
        loop {
            self.step();
            let is_given = self.rx_tlp.is_empty() && self.rx_mac.is_empty();
            let is_blocked = self.tx_mac.is_awaited() && !self.tx_mac.is_open && self.quiet > QUIET;
            if is_given && (!self.is_busy || is_blocked) {
                return;
            }
        }
    }

    /// Opens the cable until a packet has left, if one is there.
    pub(super) fn transmitted(&mut self) -> Option<Vec<u8>> {
        self.settle();
        self.tx_mac.is_open = true;
        let packet = loop {
            if let Some(packet) = self.tx_mac.pop() {
                break Some(packet);
            }
            if !self.is_busy && self.tx_mac.is_between() {
                break None;
            }
            self.step();
        };
        self.tx_mac.is_open = false;
        self.settle();
        packet
    }

    pub(super) fn interrupted(&mut self) -> Option<usize> {
        self.interrupts.pop_front()
    }

    pub(super) fn answer(&mut self) -> Option<Vec<u8>> {
        self.tx_tlp.pop()
    }

    /// Runs until the circuit has sent a TLP.
    pub(super) fn await_answer(&mut self) -> Vec<u8> {
        loop {
            if let Some(answer) = self.tx_tlp.pop() {
                return answer;
            }
            self.step();
        }
    }

    /// The parts in which a store leaves a processor: whole double words, in any order.
    pub(super) fn tear<'a>(&mut self, address: u64, bytes: &'a [u8]) -> Vec<(u64, &'a [u8])> {
        let (mut parts, mut place, mut rest) = (Vec::new(), address, bytes);
        while !rest.is_empty() {
            let words = 1 + usize::try_from(self.rng.below(16)).expect("below 16");
            let (part, behind) = rest.split_at((4 * words).min(rest.len()));
            parts.push((place, part));
            place += u64::try_from(part.len()).expect("64 at most");
            rest = behind;
        }
        for end in (1..parts.len()).rev() {
            let other = usize::try_from(self.rng.below(end as u64 + 1)).expect("a few");
            parts.swap(end, other);
        }
        parts
    }
}

impl fmt::Debug for Ports {
    /// Writes who waits for whom: the watchdog's message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cycle {}", self.cycles)?;
        for (name, source) in [("rx_tlp", &self.rx_tlp), ("rx_mac", &self.rx_mac)] {
            if !source.is_empty() {
                write!(f, ", {name} waits for the circuit")?;
            }
        }
        for (name, sink) in [("tx_tlp", &self.tx_tlp), ("tx_mac", &self.tx_mac)] {
            if sink.is_awaited() {
                write!(f, ", the circuit waits for {name}")?;
            }
        }
        f.write_str(if self.is_busy { ", busy" } else { ", idle" })
    }
}
