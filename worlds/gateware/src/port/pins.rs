//! The pins of a port: what its surroundings apply to them, cycle by cycle, until it is quiet.

use std::collections::VecDeque;

use engine::{Entropy, Instant};
use pcie::wire::Packet;

use super::Pace;
use super::queue::TlpQueue;
use crate::ffi::{PortIn, PortOut, TunnelPort};

/// Cycles after which a circuit that shows no work is quiet.
const QUIET_CYCLES: u32 = 4;
/// Cycles after which a circuit that never becomes quiet is at fault.
const CYCLES_MAX: u64 = 4_000_000;

/// What came out of the pins, in its order.
#[derive(Debug)]
pub(super) enum Effect {
    Bytes(Vec<u8>),
    Tlp(Vec<u8>),
    Dials,
    Closes,
    LinkUp,
    LinkDown,
    /// A connection no longer carries the link.
    Lost,
    Resumed,
    Reset,
}

/// A model of the circuit and its surroundings.
#[derive(Debug)]
pub(super) struct Pins {
    model: TunnelPort,
    pub(super) inputs: PortIn,
    outputs: PortOut,
    entropy: Entropy,
    pace: Pace,
    pub(super) tlps: TlpQueue,
    bytes: VecDeque<u8>,
    /// How many bytes the beat has that is offered; an offer must not change until it is taken.
    offered: usize,
    tlp_offered: bool,
    tlp: Vec<u8>,
    effects: VecDeque<Effect>,
    /// Whether the surroundings took bytes and TLPs in the cycle before, and had a connection.
    took: (bool, bool, bool),
    /// What the pins showed in the cycle before.
    dials: bool,
    closes: bool,
    link_up: bool,
    open: bool,
    cycles: u64,
}

impl Pins {
    pub(super) fn new(inputs: PortIn, entropy: Entropy, pace: Pace) -> Self {
        let mut pins = Self {
            model: TunnelPort::new(),
            inputs: PortIn { rst: true, ..inputs },
            outputs: PortOut::default(),
            entropy,
            pace,
            tlps: TlpQueue::default(),
            bytes: VecDeque::new(),
            offered: 0,
            tlp_offered: false,
            tlp: Vec::new(),
            effects: VecDeque::new(),
            took: (false, false, false),
            dials: false,
            closes: false,
            link_up: false,
            open: false,
            cycles: 0,
        };
        for _ in 0..3 {
            pins.model.cycle(&pins.inputs, &mut pins.outputs);
        }
        pins.inputs.rst = false;
        pins
    }

    pub(super) const fn cycles(&self) -> u64 {
        self.cycles
    }
    pub(super) const fn outputs(&self) -> &PortOut {
        &self.outputs
    }
    pub(super) fn poll(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }
    pub(super) fn push_tlp(&mut self, packet: &Packet) {
        self.tlps.push(packet);
    }
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }
    /// Bytes that no connection has any more are forgotten.
    pub(super) fn forget_bytes(&mut self) {
        self.bytes.clear();
        self.offered = 0;
    }

    /// Gives the circuit cycles at the time `now`, until it is quiet. To its surroundings, the
    /// circuit's work takes no time.
    ///
    /// # Panics
    /// When the circuit never becomes quiet.
    pub(super) fn settle(&mut self, now: Instant) {
        self.inputs.now = now.as_nanos();
        let (mut quiet, began) = (0, self.cycles);
        while quiet < QUIET_CYCLES {
            let works = self.cycle(quiet > 0);
            quiet = if works { 0 } else { quiet + 1 };
            assert!(self.cycles - began < CYCLES_MAX, "the circuit is never quiet: {}", self.describe());
        }
    }

    /// One cycle, in which nothing pauses if `even`. Returns whether anything went on.
    pub(super) fn cycle(&mut self, even: bool) -> bool {
        let mut pauses = || !even && self.pace.pauses();
        let [gives, takes, gives_tlp, takes_tlp] = std::array::from_fn(|_| !pauses());
        self.inputs.m_net_tready = takes;
        self.inputs.m_tlp_tready = takes_tlp;
        self.inputs.m_tlp_np_ok = !pauses();
        self.inputs.reset_ready = !pauses();
        if self.offered == 0 && gives {
            let most = self.bytes.len().min(16);
            self.offered = if most == 0 { 0 } else { self.pace.width(most) };
        }
        self.offer_bytes();
        let tlp =
            if gives_tlp || self.tlp_offered { self.tlps.beat(self.outputs.s_tlp_np_room) } else { None };
        self.inputs.s_tlp_tvalid = tlp.is_some();
        self.tlp_offered = tlp.is_some();
        (self.inputs.s_tlp_tdata, self.inputs.s_tlp_tlast) = tlp.unwrap_or_default();
        let mut random = [0; 24];
        self.entropy.fill(&mut random);
        let words = random.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word));
        self.inputs.entropy.iter_mut().zip(words).for_each(|(place, word)| *place = word);

        let before = self.outputs.clone();
        self.model.cycle(&self.inputs, &mut self.outputs);
        self.cycles += 1;
        self.check_stability(&before);
        let moved = self.on_outputs();
        let pulsed = self.inputs.net_failed || self.inputs.hot_reset;
        (self.inputs.net_failed, self.inputs.hot_reset) = (false, false);
        let waits = !self.bytes.is_empty() && self.outputs.s_net_tready;
        let held = !gives_tlp && self.tlps.len() > 0;
        self.outputs.busy || moved || pulsed || waits || held
    }

    /// A beat that was not taken in the cycle before, whose outputs were `before`, is still there.
    ///
    /// # Panics
    /// When it is not.
    fn check_stability(&mut self, before: &PortOut) {
        let now = &self.outputs;
        if before.m_net_tvalid && !self.took.0 && self.inputs.net_connected && self.took.2 {
            let same = (now.m_net_tvalid, now.m_net_tdata, now.m_net_tkeep)
                == (true, before.m_net_tdata, before.m_net_tkeep);
            assert!(same, "m_net changed a beat that was not taken");
        }
        if before.m_tlp_tvalid && !self.took.1 {
            let same = (now.m_tlp_tvalid, now.m_tlp_tdata, now.m_tlp_tkeep, now.m_tlp_tlast)
                == (true, before.m_tlp_tdata, before.m_tlp_tkeep, before.m_tlp_tlast);
            assert!(same, "m_tlp changed a beat that was not taken");
        }
        self.took = (self.inputs.m_net_tready, self.inputs.m_tlp_tready, self.inputs.net_connected);
    }

    fn offer_bytes(&mut self) {
        let mut beat = [0; 16];
        beat.iter_mut().zip(&self.bytes).take(self.offered).for_each(|(place, byte)| *place = *byte);
        let words = beat.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word));
        self.inputs.s_net_tdata.iter_mut().zip(words).for_each(|(place, word)| *place = word);
        self.inputs.s_net_tvalid = self.offered > 0;
        self.inputs.s_net_tkeep = (1_u32 << self.offered) - 1;
    }

    /// Handles what the pins showed. Returns whether anything moved.
    fn on_outputs(&mut self) -> bool {
        let Self { inputs, outputs, effects, .. } = self;
        let mut moved = false;
        if outputs.m_net_tvalid && inputs.m_net_tready {
            let length = usize::try_from(outputs.m_net_tkeep.count_ones()).expect("at most 16");
            let bytes = outputs.m_net_tdata.map(u32::to_le_bytes);
            match effects.back_mut() {
                Some(Effect::Bytes(whole)) => whole.extend(&bytes.as_flattened()[..length]),
                _ => effects.push_back(Effect::Bytes(bytes.as_flattened()[..length].to_vec())),
            }
            moved = true;
        }
        if outputs.m_tlp_tvalid && inputs.m_tlp_tready {
            let length = 4 * usize::try_from(outputs.m_tlp_tkeep.count_ones()).expect("at most 4");
            self.tlp.extend(&outputs.m_tlp_tdata.map(u32::to_le_bytes).as_flattened()[..length]);
            if outputs.m_tlp_tlast {
                effects.push_back(Effect::Tlp(std::mem::take(&mut self.tlp)));
            }
            moved = true;
        }
        if outputs.reset_valid && inputs.reset_ready {
            effects.push_back(Effect::Reset);
            moved = true;
        }
        for (shown, before, effect) in [
            (outputs.net_dial, &mut self.dials, Effect::Dials),
            (outputs.net_close, &mut self.closes, Effect::Closes),
        ] {
            if shown && !*before {
                effects.push_back(effect);
            }
            moved |= shown != *before;
            *before = shown;
        }
        if inputs.s_tlp_tvalid && outputs.s_tlp_tready {
            self.tlps.took();
            (self.tlp_offered, moved) = (false, true);
        }
        let was_up = self.link_up;
        if outputs.link_up != was_up {
            effects.push_back(if outputs.link_up { Effect::LinkUp } else { Effect::LinkDown });
            (self.link_up, moved) = (outputs.link_up, true);
            if !self.link_up {
                // What waited for the link is gone with it, as in a hard core whose link is down.
                self.tlps.clear();
                self.tlp_offered = false;
            }
        }
        if outputs.open != self.open {
            match (outputs.open, was_up && outputs.link_up) {
                (true, true) => effects.push_back(Effect::Resumed),
                (false, true) => effects.push_back(Effect::Lost),
                _ => {}
            }
            (self.open, moved) = (outputs.open, true);
        }
        if inputs.s_net_tvalid && outputs.s_net_tready {
            self.bytes.drain(..self.offered);
            (self.offered, moved) = (0, true);
        }
        moved
    }

    /// Who waits for whom.
    pub(super) fn describe(&self) -> String {
        let PortOut { link_up, open, busy, s_net_tready, m_net_tvalid, s_tlp_np_room, m_tlp_tvalid, .. } =
            self.outputs;
        format!(
            "link up: {link_up}, open: {open}, busy: {busy}; {} bytes wait to go in (taken: {s_net_tready}), \
             {} TLPs wait to go in (places for non-posted requests: {s_tlp_np_room}); bytes wait to come out: \
             {m_net_tvalid}, a TLP waits to come out: {m_tlp_tvalid}",
            self.bytes.len(),
            self.tlps.len()
        )
    }
}
