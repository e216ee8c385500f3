//! Fuzz target for the strands of a link.

use engine::{Buffer, Instant, Nanos, Pool, Rng};
use pcie::switch::{AheadKey, FarLink};
use pcie::wire::{Bdf, Kind, Packet};

use super::courses::COURSES_MAX;
use super::message::Message;
use super::*;

const STRANDS: u8 = 4;
const UP: usize = 0;
const DOWN: usize = 1;
/// The most rounds in which the two ends answer each other. By then, both are quiet.
const ROUNDS_MAX: usize = 10_000;

/// Both ends of a link with four strands.
struct World {
    ends: [LinkEnd; 2],
    alive: [bool; STRANDS as usize],
    now: Instant,
    pool: Pool,
}

/// Runs the two ends of a link that is up. Each step takes three bytes from `bytes`: the event, its
/// strand, and how many bytes of data follow.
///
/// # Panics
/// When more is kept than may be, or a message is decoded as another message.
pub fn strands(bytes: &[u8]) {
    if let Some(message) = Message::parse(bytes) {
        let packet = message.packet(&mut Pool::default());
        assert_eq!(Message::parse(&packet.payload), Some(message));
    }
    let mut world = World::joined();
    let mut rest = bytes;
    while let [what, strand, length, stream @ ..] = rest {
        let (piece, after) = stream.split_at(usize::from(*length).min(stream.len()));
        rest = after;
        world.step(*what, Strand(*strand % STRANDS), piece);
    }
}

impl World {
    fn joined() -> Self {
        let config = Config { strands: STRANDS, ..Config::default() };
        let rng = Rng::from_seed(1);
        let ends = [
            LinkEnd::upstream(config.clone(), rng.fork("up")),
            LinkEnd::downstream(config, rng.fork("down")),
        ];
        let now = Instant::from_nanos(1_000);
        let mut world = Self { ends, alive: [false; STRANDS as usize], now, pool: Pool::default() };
        world.settle();
        world
    }

    fn step(&mut self, what: u8, strand: Strand, piece: &[u8]) {
        let now = self.now;
        let end = if what & 0x80 == 0 { UP } else { DOWN };
        match what & 0x07 {
            // An arbitrary message, which need not make sense, bypasses the checks of the sender.
            0..=2 => {
                let packet = self.message(piece);
                if let Some(session) = self.ends[end].session(strand) {
                    session.send(now, packet);
                }
            }
            3 => {
                let mut address = [0; 8];
                address[..piece.len().min(8)].copy_from_slice(&piece[..piece.len().min(8)]);
                let address = u64::from_be_bytes(address) & !63;
                let write = Packet::memory_write(Bdf::new(1, 0, 0), address, Buffer::zeroed(64));
                let strand = self.ends[DOWN].strand_of(&write);
                assert!(strand.index() < STRANDS_MAX);
                self.ends[DOWN].send_on(now, strand, write);
            }
            4 => {
                self.ends[UP].send_on(
                    now,
                    strand,
                    Packet::memory_write(Bdf::default(), 0, Buffer::zeroed(4)),
                );
            }
            5 => self.cut(strand),
            6 => {
                let piece = Buffer::copy_from_slice(piece);
                self.ends[end].handle_input(now, strand, session::Input::Received(piece));
            }
            _ => {
                if let [key, ranges @ ..] = piece {
                    let key = AheadKey(u32::from(*key));
                    let ranges: Vec<_> = ranges
                        .iter()
                        .map(|range| (u64::from(*range) << 10, u32::from(*range) << 4))
                        .collect();
                    self.ends[UP].lay(now, strand, strand, key, &ranges);
                    self.ends[UP].forget_ahead(AheadKey(key.0 / 2));
                } else {
                    self.now = self.now + Nanos::from_millis(100);
                }
            }
        }
        self.now = self.now + Nanos::from_micros(50);
        self.settle();
        for further in self.ends.iter().filter_map(|end| end.further.as_ref()) {
            let most = usize::try_from(further.config.ahead).unwrap_or(usize::MAX);
            assert!(further.held_bytes() <= most, "{} B wait", further.held_bytes());
            assert!(further.courses.len() <= COURSES_MAX, "{} courses", further.courses.len());
        }
    }

    fn message(&mut self, payload: &[u8]) -> Packet {
        let packet = Message::Clear.packet(&mut self.pool);
        let Kind::Message(message) = packet.header.kind else { return packet };
        let length = payload.len() / 4 * 4;
        let payload = if length == 0 { &[0; 4] } else { &payload[..length] };
        let payload = Buffer::copy_from_slice(payload);
        Packet::message_with_data(message.requester, message.routing, message.code, message.body, payload)
    }

    fn cut(&mut self, strand: Strand) {
        if core::mem::take(&mut self.alive[strand.index()]) {
            for end in &mut self.ends {
                end.handle_input(self.now, strand, session::Input::Disconnected);
            }
        }
    }

    /// Lets both ends send everything that they have now.
    fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let mut busy = false;
            for end in [UP, DOWN] {
                if self.ends[end].poll_timeout().is_some_and(|at| at <= self.now) {
                    self.ends[end].handle_timeout(self.now);
                }
                while let Some((strand, output)) = self.ends[end].poll_output() {
                    busy = true;
                    self.on_output(end, strand, output);
                }
            }
            if !busy {
                return;
            }
        }
        panic!("the ends are never quiet");
    }

    fn on_output(&mut self, end: usize, strand: Strand, output: Output) {
        let now = self.now;
        match output {
            Output::Transmit(bytes) if self.alive[strand.index()] => {
                self.ends[1 - end].handle_input(now, strand, session::Input::Received(bytes));
            }
            Output::Connect => {
                let member =
                    self.ends[DOWN].main().id().map(|session| Member { session, strand: strand.0.into() });
                let instance = self.ends[UP].main().config().identity.instance;
                let admitted = strand.is_main()
                    || member.is_some_and(|member| {
                        let secret = self.ends[UP].main().secret();
                        self.ends[DOWN].admits(instance, member, secret)
                    });
                if admitted {
                    self.cut(strand);
                    self.alive[strand.index()] = true;
                    self.ends[DOWN].connect(now, strand);
                    self.ends[UP].handle_input(now, strand, session::Input::Connected);
                } else {
                    self.ends[UP].handle_input(now, strand, session::Input::Disconnected);
                }
            }
            Output::CloseConnection if core::mem::take(&mut self.alive[strand.index()]) => {
                self.ends[1 - end].handle_input(now, strand, session::Input::Disconnected);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{ProptestConfig, any, prop, proptest};

    #[test]
    fn all_strands_are_there() {
        let world = World::joined();
        assert!(world.ends.iter().all(|end| {
            (1..STRANDS)
                .map(Strand)
                .all(|strand| end.further.as_ref().is_some_and(|further| further.is_open(strand)))
        }));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn nothing_panics(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            words in prop::collection::vec((any::<u8>(), 0..4_u8, prop::collection::vec(0..9_u8, 0..12)), 0..20),
        ) {
            strands(&bytes);
            // Bytes in the form of messages reach further code.
            let mut script = Vec::new();
            for (what, strand, words) in words {
                script.extend([what, strand, u8::try_from(words.len() * 4).unwrap()]);
                script.extend(words.iter().flat_map(|word| u32::from(*word).to_be_bytes()));
            }
            strands(&script);
        }
    }
}
