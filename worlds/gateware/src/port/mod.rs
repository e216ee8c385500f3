//! The circuit `tunnel_port` behind the contract of [`Session`](tunnel::Session), which it can
//! take the place of.

mod pace;
mod pins;
mod queue;
#[cfg(test)]
mod tests;

pub use pace::Pace;

use engine::{Buffer, Engine, Entropy, Instant, Nanos};
use pcie::ordering::Lane;
use pcie::wire::Packet;
use tunnel::frame::{Identity, InstanceId, Role};
use tunnel::session::{Arrival, Config, DownReason, Input, LossReason, Output};

use crate::ffi::{PortIn, PortOut};
use pins::{Effect, Pins};

/// The credits that a port's peer gets by default: as many as the model's stores have room for.
const WINDOW: [u32; 6] = [128, 2048, 32, 512, 128, 2048];

/// The circuit `tunnel_port` as an [`Engine`] with the inputs and outputs of a session.
///
/// To the world, the circuit's work takes no time: at each input, the port gets cycles until it is
/// quiet. Events of the link have no details, as the circuit shows none.
pub struct Port {
    pins: Pins,
    now: Instant,
    /// The circuit has had no cycle but those of its reset.
    fresh: bool,
    dialling: bool,
    /// TLPs that break the rules of PCIe, which were dropped.
    malformed: u64,
}

impl Port {
    /// Creates a port. Of `config` it takes what its pins can express: names of 16 bytes at most,
    /// and no lookahead, no strands, no Registers. Its peer may send as much as its stores hold.
    pub fn new(role: Role, config: &Config, entropy: impl Into<Entropy>, pace: Pace) -> Self {
        Self::with_window(role, config, entropy, pace, WINDOW)
    }

    /// Creates a port whose peer gets the credits `window`, in the order of a Credit. More than the
    /// stores hold makes a peer that uses it break the protocol.
    pub fn with_window(
        role: Role,
        config: &Config,
        entropy: impl Into<Entropy>,
        pace: Pace,
        window: [u32; 6],
    ) -> Self {
        let mut entropy = entropy.into();
        let mut instance = config.identity.instance;
        if instance == InstanceId::default() {
            entropy.fill(&mut instance.0);
        }
        let (name, name_length) = name(&config.identity.name);
        let inputs = PortIn {
            run: true,
            cfg_upstream: role == Role::Upstream,
            cfg_digests: role == Role::Upstream && config.digests,
            cfg_stamps: config.stamps,
            cfg_instance: wide(instance.0),
            cfg_name: wide(name),
            cfg_name_length: name_length,
            cfg_hold_ms: millis(config.hold),
            cfg_silence_ms: millis(config.silence),
            cfg_handshake: config.handshake.get(),
            cfg_ping: config.ping_interval.get(),
            cfg_acknowledge: config.acknowledge_delay.get(),
            cfg_redial_min: config.redial.0.get(),
            cfg_redial_max: config.redial.1.get(),
            cfg_window: std::array::from_fn(|place| window[5 - place]),
            ..PortIn::default()
        };
        Self {
            pins: Pins::new(inputs, entropy, pace),
            now: Instant::ZERO,
            fresh: true,
            dialling: false,
            malformed: 0,
        }
    }

    fn settle(&mut self, now: Instant) {
        (self.now, self.fresh) = (now, false);
        self.pins.settle(now);
    }

    /// Sends `packet` to the peer. While the link is down, the circuit drops it.
    pub fn send(&mut self, now: Instant, packet: &Packet) {
        self.pins.push_tlp(packet);
        self.settle(now);
    }

    /// Resets the device, as [`Session::reset`](tunnel::Session::reset) does.
    pub fn reset(&mut self, now: Instant) {
        self.pins.tlps.clear();
        self.pins.inputs.hot_reset = true;
        self.settle(now);
    }

    /// Ends the session. The port stays closed until [`Port::restart`].
    pub fn close(&mut self, now: Instant) {
        self.pins.inputs.run = false;
        self.settle(now);
    }

    /// Begins again after [`Port::close`] or a final refusal.
    pub fn restart(&mut self, now: Instant) {
        self.pins.inputs.run = false;
        self.settle(now);
        self.pins.inputs.run = true;
        self.settle(now);
    }

    /// Whether a connection carries the link.
    pub const fn is_open(&self) -> bool {
        self.pins.outputs().open
    }
    /// Whether the link is up.
    pub const fn is_up(&self) -> bool {
        self.pins.outputs().link_up
    }
    /// How often the link went on over a new connection.
    pub const fn resumptions(&self) -> u32 {
        self.pins.outputs().resumptions
    }
    /// TLPs that came while the link was down, or were longer than the peer takes.
    pub const fn dropped(&self) -> u32 {
        self.pins.outputs().dropped
    }
    /// Round-trip time of the latest Ping.
    pub const fn round_trip(&self) -> Nanos {
        Nanos::new(self.pins.outputs().round_trip)
    }
    /// Clock cycles that the circuit has had.
    pub const fn cycles(&self) -> u64 {
        self.pins.cycles()
    }
    /// TLPs that wait for the circuit to take them.
    pub fn waiting(&self) -> usize {
        self.pins.tlps.len()
    }
    /// Who waits for whom.
    pub fn describe(&self) -> String {
        format!("{}; {} malformed TLPs were dropped", self.pins.describe(), self.malformed)
    }

    /// The output of an effect; `None` for a TLP that breaks the rules of PCIe, which the circuit
    /// does not look at. A PCIe block drops such a TLP.
    fn translate(&mut self, effect: Effect) -> Option<Output> {
        let now = self.now;
        Some(match effect {
            Effect::Bytes(bytes) => Output::Transmit(Buffer::from(bytes)),
            Effect::Tlp(bytes) => {
                let Ok(packet) = Packet::parse(&Buffer::from(bytes)) else {
                    self.malformed += 1;
                    return None;
                };
                Output::Tlp { packet, arrival: Arrival { at: now, stamps: None } }
            }
            Effect::Dials => {
                self.dialling = true;
                Output::Connect
            }
            Effect::Closes => {
                // The connection brings no further input.
                self.pins.inputs.net_connected = false;
                self.pins.forget_bytes();
                self.dialling = false;
                Output::CloseConnection
            }
            Effect::LinkUp => Output::LinkUp { peer: Identity::default() },
            Effect::LinkDown => Output::LinkDown { reason: DownReason::Closed },
            Effect::Lost => Output::Interrupted { reason: LossReason::Disconnected },
            Effect::Resumed => Output::Resumed,
            Effect::Reset => Output::Reset,
        })
    }
}

impl core::fmt::Debug for Port {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "circuit: {}", self.describe())
    }
}

/// A name of at most 16 bytes, filled up with zeros, and its length.
fn name(text: &str) -> ([u8; 16], u32) {
    let end = (0..=text.len().min(16)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let mut name = [0; 16];
    name[..end].copy_from_slice(&text.as_bytes()[..end]);
    (name, u32::try_from(end).expect("at most 16"))
}

/// 16 bytes as a port has them, the first one in bits 127:120. The model's words begin with the
/// least significant one.
fn wide(bytes: [u8; 16]) -> [u32; 4] {
    let mut words = [0; 4];
    words
        .iter_mut()
        .zip(bytes.as_chunks().0.iter().rev())
        .for_each(|(word, bytes)| *word = u32::from_be_bytes(*bytes));
    words
}

fn millis(length: Nanos) -> u32 {
    u32::try_from(length.get() / 1_000_000).unwrap_or(u32::MAX)
}

impl Engine for Port {
    type Input<'a> = Input;
    type Output = Output;

    fn handle_input(&mut self, now: Instant, input: Input) {
        match input {
            Input::Connected => {
                if self.pins.inputs.net_connected {
                    // The circuit sees that the former connection has gone.
                    self.pins.inputs.net_connected = false;
                    self.pins.forget_bytes();
                    self.settle(now);
                }
                self.dialling = false;
                self.pins.inputs.net_connected = true;
            }
            Input::Received(bytes) if self.pins.inputs.net_connected => self.pins.push_bytes(&bytes),
            Input::Received(_) => {}
            Input::Disconnected => {
                self.pins.inputs.net_failed = std::mem::take(&mut self.dialling);
                self.pins.inputs.net_connected = false;
                self.pins.forget_bytes();
            }
        }
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.settle(now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        while let Some(effect) = self.pins.poll() {
            let closes = matches!(effect, Effect::Closes);
            let output = self.translate(effect);
            if closes {
                self.settle(self.now);
            }
            if output.is_some() {
                return output;
            }
        }
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.fresh {
            return Some(Instant::ZERO);
        }
        let PortOut { wake_at, .. } = *self.pins.outputs();
        (wake_at != u64::MAX).then_some(Instant::from_nanos(wake_at))
    }
}

/// The window of a session's configuration in the order of a Credit.
pub fn window_of(config: &Config) -> [u32; 6] {
    let lanes = Lane::ALL.map(|lane| config.window.of(lane));
    std::array::from_fn(|place| {
        let amount = lanes[place / 2];
        if place % 2 == 0 { amount.headers } else { amount.data }
    })
}
