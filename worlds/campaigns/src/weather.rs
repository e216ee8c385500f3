//! The effects of a lossy network on datagrams: spells in which they get lost, doubled, late, cut
//! short or changed.

use engine::{Instant, Nanos, Rng};

/// How long the weather stays as it is, at most.
const SPELL_MAX: Nanos = Nanos::from_millis(150);
/// How late a datagram is that others overtake, at most.
const LATE_MAX: Nanos = Nanos::from_millis(3);

/// The rates of faults for a while: each hits one datagram in this many.
#[derive(Clone, Copy, Debug)]
struct Spell {
    until: Instant,
    is_out: bool,
    lost: u64,
    doubled: u64,
    late: u64,
    cut: u64,
    flipped: u64,
}

/// The weather of one direction of a network.
#[derive(Debug)]
pub(crate) struct Weather {
    rng: Rng,
    spell: Spell,
    /// Whether bits of datagrams change.
    flips: bool,
    /// Whether little goes wrong.
    is_fair: bool,
}

impl Weather {
    /// Weather drawn from `rng`; with `flips`, bits change, too.
    pub(crate) const fn new(rng: Rng, flips: bool) -> Self {
        let until = Instant::ZERO;
        let spell = Spell { until, is_out: false, lost: 0, doubled: 0, late: 0, cut: 0, flipped: 0 };
        Self { rng, spell, flips, is_fair: false }
    }

    /// From now on little goes wrong.
    pub(crate) const fn clear_up(&mut self) {
        self.is_fair = true;
        self.spell.until = Instant::ZERO;
    }

    /// Passes a datagram: none, one or two copies arrive, with these delays.
    pub(crate) fn pass(&mut self, now: Instant, bytes: &[u8], mut arrive: impl FnMut(Nanos, Vec<u8>)) {
        if now >= self.spell.until {
            self.spell = self.draw(now);
        }
        let Spell { is_out, lost, doubled, late, cut, flipped, .. } = self.spell;
        if is_out || self.rng.one_in(lost) {
            return;
        }
        let is_cut = self.rng.one_in(cut);
        let length = if is_cut { self.rng.below(bytes.len() as u64) } else { bytes.len() as u64 };
        let bytes = &bytes[..usize::try_from(length).expect("less than a datagram")];
        for _ in 0..=u64::from(self.rng.one_in(doubled)) {
            let delay = if self.rng.one_in(late) { self.rng.below(LATE_MAX.get()) } else { 0 };
            let mut copy = bytes.to_vec();
            if self.flips && !copy.is_empty() && self.rng.one_in(flipped) {
                let bit = self.rng.below(8 * copy.len() as u64);
                copy[usize::try_from(bit / 8).expect("less than a datagram")] ^= 1 << (bit % 8);
            }
            arrive(Nanos::new(delay), copy);
        }
    }

    fn draw(&mut self, now: Instant) -> Spell {
        let until = now + Nanos::new(1 + self.rng.below(SPELL_MAX.get()));
        if self.is_fair {
            return Spell { until, is_out: false, lost: 100, doubled: 100, late: 100, cut: 0, flipped: 0 };
        }
        let is_out = self.rng.one_in(6);
        let mut one_in = |most| if self.rng.one_in(2) { 0 } else { 3 + self.rng.below(most) };
        let [lost, doubled, late, cut] = [one_in(60), one_in(60), one_in(30), one_in(200)];
        let flipped = if self.flips { one_in(60) } else { 0 };
        Spell { until, is_out, lost, doubled, late, cut, flipped }
    }
}
