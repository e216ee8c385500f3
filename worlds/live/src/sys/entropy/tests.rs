//! A stranger that was given six sessions tries to predict the name of the seventh.

use core::net::Ipv4Addr;

use engine::{Buffer, Engine, Instant, Rng, settle};
use tunnel::downstream::{ConnectionId, Downstream, Input, Output};
use tunnel::session::{self, Config, Session};

use super::*;

/// Number of bits of a generator's state.
const STATE: usize = 256;
/// Number of session names that determine the state; each name reveals 64 bits of it.
const SEEN: usize = 6;

/// The names of the sessions that a far end gives one host, one after another.
fn names(entropy: Entropy, count: usize) -> Vec<u64> {
    let now = Instant::ZERO;
    let mut far = Downstream::new(Config::default(), entropy);
    let mut next = || {
        let connection = ConnectionId(1);
        far.handle_input(now, Input::Accepted(connection, Ipv4Addr::LOCALHOST.into()));
        let mut host = Session::upstream(Config::default(), system());
        settle(&mut host, now, |_| ());
        host.handle_input(now, session::Input::Connected);
        let said = |host: &mut Session| {
            let mut said = Vec::new();
            settle(host, now, |output| {
                if let session::Output::Transmit(bytes) = output {
                    said.extend_from_slice(&bytes);
                }
            });
            Buffer::from(said)
        };
        let hello = said(&mut host);
        far.handle_input(now, Input::Received(connection, hello));
        let mut welcome = Vec::new();
        settle(&mut far, now, |output| {
            if let Output::Transmit { bytes, .. } = output {
                welcome.extend_from_slice(&bytes);
            }
        });
        // pure/tunnel/protocol.md places the name 16 bytes into the body.
        let name = u64::from_be_bytes(welcome[28..36].try_into().unwrap());
        host.handle_input(now, session::Input::Received(Buffer::from(welcome)));
        host.close(now, "that was all");
        let bye = said(&mut host);
        far.handle_input(now, Input::Received(connection, bye));
        settle(&mut far, now, |_| ());
        name
    };
    (0..count).map(|_| next()).collect()
}

/// A sum of state bits, and whether the sum is odd.
type Equation = ([u64; 4], bool);

/// The state of xoshiro256** as sums of the bits of its initial state.
#[derive(Clone)]
struct Symbols(Vec<[u64; 4]>);

impl Symbols {
    fn new() -> Self {
        let unit =
            |bit: usize| core::array::from_fn(|word| if bit / 64 == word { 1 << (bit % 64) } else { 0 });
        Self((0..STATE).map(unit).collect())
    }
    fn add(&mut self, to: usize, from: usize) {
        for bit in 0..64 {
            let with = self.0[from * 64 + bit];
            self.0[to * 64 + bit].iter_mut().zip(with).for_each(|(part, with)| *part ^= with);
        }
    }
    fn step(&mut self) {
        let shifted = self.0[64..128].to_vec();
        for (to, from) in [(2, 0), (3, 1), (1, 2), (0, 3)] {
            self.add(to, from);
        }
        for (sum, with) in self.0[128 + 17..192].iter_mut().zip(shifted) {
            sum.iter_mut().zip(with).for_each(|(part, with)| *part ^= with);
        }
        self.0[192..256].rotate_right(45);
    }
}

/// The inverse of an odd `number` modulo 2^64.
fn inverse(number: u64) -> u64 {
    (0..6).fold(1, |found: u64, _| found.wrapping_mul(2_u64.wrapping_sub(number.wrapping_mul(found))))
}

/// The name that would follow `seen` if such a generator had made the names, one after another.
fn prediction(seen: &[u64]) -> Option<u64> {
    let second = |output: u64| output.wrapping_mul(inverse(9)).rotate_right(7).wrapping_mul(inverse(5));
    let mut symbols = Symbols::new();
    let mut equations: Vec<Equation> = Vec::new();
    for output in seen {
        let word = second(*output);
        equations.extend((0..64).map(|bit| (symbols.0[64 + bit], word >> bit & 1 == 1)));
        symbols.step();
    }
    let state = solve(equations)?;
    let odd = |sum: &[u64; 4]| {
        let ones: u32 = sum.iter().zip(&state).map(|(sum, state)| (sum & state).count_ones()).sum();
        ones % 2 == 1
    };
    let word = (0..64).fold(0, |word, bit| word | u64::from(odd(&symbols.0[64 + bit])) << bit);
    Some(word.wrapping_mul(5).rotate_left(7).wrapping_mul(9))
}

/// The initial bits that satisfy all equations, if there are any.
fn solve(mut equations: Vec<Equation>) -> Option<[u64; 4]> {
    let mut state = [0; 4];
    for bit in 0..STATE {
        let has = |sum: &[u64; 4]| sum[bit / 64] >> (bit % 64) & 1 == 1;
        let row = equations[bit.min(equations.len())..].iter().position(|(sum, _)| has(sum))? + bit;
        equations.swap(bit, row);
        let pivot = equations[bit];
        for (other, (sum, value)) in equations.iter_mut().enumerate() {
            if other != bit && has(sum) {
                sum.iter_mut().zip(pivot.0).for_each(|(part, with)| *part ^= with);
                *value ^= pivot.1;
            }
        }
    }
    for (bit, (_, value)) in equations[..STATE].iter().enumerate() {
        state[bit / 64] |= u64::from(*value) << (bit % 64);
    }
    equations[STATE..].iter().all(|(_, value)| !value).then_some(state)
}

#[test]
fn the_name_of_the_next_session_does_not_follow_from_the_names_before() {
    // For a generator that is not meant for secrets, the attack predicts the name exactly.
    let seeded = names(Rng::from_seed(7).into(), SEEN + 2);
    assert_eq!(prediction(&seeded[..SEEN]), Some(seeded[SEEN]));
    for _ in 0..10 {
        let found = names(system(), SEEN + 1);
        assert_ne!(prediction(&found[..SEEN]), Some(found[SEEN]));
        let mut once = found.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), SEEN + 1);
    }
}

#[test]
fn the_system_fills_all_of_what_it_is_given() {
    let mut bytes = [0; 5_000];
    system().fill(&mut bytes);
    // One byte in 256 keeps its old value by chance, but a row of eight such bytes is too unlikely.
    assert!(bytes.windows(8).all(|row| row != [0; 8]));
}
