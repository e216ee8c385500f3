//! The scenario `sessions-gateware`: a bad network between two ends of a tunnel, of which one or
//! both are circuits. Surroundings pause at random, and bits flip where digests detect that.

use campaigns::campaign::Outcome;
use campaigns::sessions::{self, Maker, Member};
use engine::{Buffer, Engine, Instant, Rng};
use pcie::wire::Packet;
use tunnel::frame::Role;
use tunnel::session::{Config, Input, Output};

use crate::port::{Pace, Port};

/// A bit flips in one of this many pieces of the stream.
const FLIPPED_ONE_IN: u64 = 400;

impl Member for Port {
    fn handle_input(&mut self, now: Instant, input: Input) {
        Engine::handle_input(self, now, input);
    }
    fn handle_timeout(&mut self, now: Instant) {
        Engine::handle_timeout(self, now);
    }
    fn poll_output(&mut self) -> Option<Output> {
        Engine::poll_output(self)
    }
    fn poll_timeout(&self) -> Option<Instant> {
        Engine::poll_timeout(self)
    }
    fn send(&mut self, now: Instant, packet: Packet) {
        Self::send(self, now, &packet);
    }
    /// A circuit has no segments.
    fn set_segment_max(&mut self, _: usize) {}
}

/// An end whose stream arrives with flipped bits, if the host's end wants digests.
struct Flipped {
    inner: Box<dyn Member>,
    rng: Rng,
    flips: bool,
}

impl core::fmt::Debug for Flipped {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.inner.fmt(f)
    }
}

impl Member for Flipped {
    fn handle_input(&mut self, now: Instant, input: Input) {
        let input = match input {
            Input::Received(bytes) if self.flips && self.rng.one_in(FLIPPED_ONE_IN) => {
                let mut bytes = bytes.to_vec();
                let bit = self.rng.below(8 * bytes.len() as u64);
                let place = usize::try_from(bit / 8).expect("within the piece");
                bytes[place] ^= 1 << (bit % 8);
                Input::Received(Buffer::from(bytes))
            }
            input => input,
        };
        self.inner.handle_input(now, input);
    }
    fn handle_timeout(&mut self, now: Instant) {
        self.inner.handle_timeout(now);
    }
    fn poll_output(&mut self) -> Option<Output> {
        self.inner.poll_output()
    }
    fn poll_timeout(&self) -> Option<Instant> {
        self.inner.poll_timeout()
    }
    fn send(&mut self, now: Instant, packet: Packet) {
        self.inner.send(now, packet);
    }
    fn set_segment_max(&mut self, bytes: usize) {
        self.inner.set_segment_max(bytes);
    }
}

fn flipped(inner: Box<dyn Member>, config: &Config, rng: &Rng) -> Box<dyn Member> {
    Box::new(Flipped { inner, rng: rng.fork("flips"), flips: config.digests })
}

fn engine(role: Role, config: &Config, rng: &Rng) -> Box<dyn Member> {
    flipped(sessions::engine(role, config, rng), config, rng)
}

fn circuit(role: Role, config: &Config, rng: &Rng) -> Box<dyn Member> {
    let mut draw = rng.fork("circuit");
    // Two of the longest TLPs at least.
    let mut window = [0; 6];
    for lane in window.as_chunks_mut::<2>().0 {
        *lane = [2 + draw.below(30), 512].map(|amount| u32::try_from(amount).expect("a small number"));
    }
    if draw.one_in(2) {
        window = [128, 2048, 32, 512, 128, 2048];
    }
    let pace = if draw.one_in(4) { Pace::none() } else { Pace::random(draw.fork("pace")) };
    let port = Port::with_window(role, config, rng.fork("session"), pace, window);
    flipped(Box::new(port), config, rng)
}

/// Runs two sessions for `seed`, of which at least one is a circuit.
pub fn run(seed: u64) -> Outcome {
    let pairs: [[Maker; 2]; 3] = [[circuit, engine], [engine, circuit], [circuit, circuit]];
    let pair = Rng::from_seed(seed).fork("pair").below(3);
    sessions::run_made(seed, pairs[usize::try_from(pair).expect("one of three")])
}
