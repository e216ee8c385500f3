//! Draws the places of random operations by their distribution.

use engine::Rng;

use super::shuffle;
use crate::args::RandomDistribution;

/// Terms of a sum that stands for one over all places, as in fio.
const TERMS_MAX: u64 = 10_000_000;

/// Draws places by a [`RandomDistribution`].
#[derive(Clone, Debug)]
pub(super) struct Draw {
    distribution: RandomDistribution,
    seed: u64,
    /// Places drawn until now.
    turn: u64,
    /// The number of places for which `sum` holds.
    places: u64,
    /// The sum of the shares of all ranks, for Zipf.
    sum: f64,
}

impl Draw {
    pub(super) const fn new(distribution: RandomDistribution, seed: u64) -> Self {
        Self { distribution, seed, turn: 0, places: 0, sum: 0.0 }
    }

    /// Whether each place comes once before any comes again.
    pub(super) const fn is_mapped(&self) -> bool {
        matches!(self.distribution, RandomDistribution::Uniform { is_mapped: true })
    }

    /// Draws one of `count` places, at least 1. Only places of one length (`is_whole`) can come
    /// once each.
    pub(super) fn next(&mut self, count: u64, is_whole: bool, rng: &mut Rng) -> u64 {
        let turn = self.turn;
        self.turn += 1;
        match &self.distribution {
            RandomDistribution::Uniform { is_mapped: true } if is_whole => {
                shuffle::place(turn % count, count, self.seed ^ (turn / count))
            }
            RandomDistribution::Uniform { .. } => rng.below(count),
            RandomDistribution::Zipf(theta) => {
                let theta = *theta;
                if self.places != count {
                    (self.places, self.sum) = (count, sum_of_shares(count, theta));
                }
                scattered(zipf(count, theta, self.sum, uniform(rng)), self.seed, count)
            }
            RandomDistribution::Pareto(h) => {
                let power = h.ln() / (1.0 - h).ln();
                scattered(scaled(uniform(rng).powf(power), count), self.seed, count)
            }
            RandomDistribution::Normal(percent) => normal(*percent, count, rng),
            RandomDistribution::Zoned(zones) => in_zone(zones, count, rng),
            RandomDistribution::Sequence { blocks, is_strided } => {
                let length = blocks.len() as u64;
                let at = usize::try_from(turn % length).unwrap_or_default();
                let base = if *is_strided { turn / length * length } else { 0 };
                (base + blocks[at]) % count
            }
        }
    }
}

/// From 0 to less than 1.
fn uniform(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// The place at `share`, from 0 to 1, of `count`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a count is between 0 and the count"
)]
fn scaled(share: f64, count: u64) -> u64 {
    ((share.clamp(0.0, 1.0) * count as f64) as u64).min(count - 1)
}

/// Where the place of a rank is: neighbours in rank are not neighbours in place.
fn scattered(rank: u64, seed: u64, count: u64) -> u64 {
    shuffle::place(rank, count, seed)
}

fn sum_of_shares(count: u64, theta: f64) -> f64 {
    (1..=count.min(TERMS_MAX)).map(|rank| (rank as f64).powf(-theta)).sum()
}

/// The rank, from 0, by the method of Gray and others, as fio draws it.
fn zipf(count: u64, theta: f64, sum: f64, drawn: f64) -> u64 {
    let (many, half) = (count as f64, 1.0 + 0.5_f64.powf(theta));
    let scaled_by = drawn * sum;
    if scaled_by < 1.0 || count < 3 {
        return scaled(if scaled_by < 1.0 { 0.0 } else { drawn }, count);
    }
    if scaled_by < half {
        return 1;
    }
    let eta = (1.0 - (2.0 / many).powf(1.0 - theta)) / (1.0 - half / sum);
    scaled((eta * drawn - eta + 1.0).powf(1.0 / (1.0 - theta)), count)
}

/// About the middle: the mean of twelve draws is near enough to the normal distribution.
fn normal(percent: f64, count: u64, rng: &mut Rng) -> u64 {
    let sum: f64 = (0..12).map(|_| uniform(rng)).sum::<f64>() - 6.0;
    scaled(0.5 + sum * percent / 100.0, count)
}

fn in_zone(zones: &[(u8, u8)], count: u64, rng: &mut Rng) -> u64 {
    let mut drawn = rng.below(100);
    let mut ahead = 0_u64;
    for (access, span) in zones {
        let (access, span) = (u64::from(*access), u64::from(*span));
        if drawn < access {
            let [start, end] = [ahead, ahead + span].map(|percent| scaled_percent(percent, count));
            return (start + rng.below((end - start).max(1))).min(count - 1);
        }
        (drawn, ahead) = (drawn - access, ahead + span);
    }
    rng.below(count)
}

fn scaled_percent(percent: u64, count: u64) -> u64 {
    u64::try_from(u128::from(count) * u128::from(percent.min(100)) / 100).unwrap_or(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each of 100 places comes in 10,000 draws.
    fn counts(text: &str) -> Vec<u32> {
        let (mut draw, mut rng) = (Draw::new(text.parse().unwrap(), 7), Rng::from_seed(1));
        let mut counts = vec![0; 100];
        for _ in 0..10_000 {
            counts[usize::try_from(draw.next(100, true, &mut rng)).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn zones_have_their_share() {
        let counts = counts("zoned:50/5:30/15:20/");
        let of = |range: std::ops::Range<usize>| counts[range].iter().sum::<u32>() / 100;
        assert!(of(0..5).abs_diff(50) <= 2 && of(5..20).abs_diff(30) <= 2 && of(20..100).abs_diff(20) <= 2);
    }

    #[test]
    fn few_places_are_hot() {
        for (text, least) in [("zipf:1.2", 60), ("zipf:0.5", 15), ("pareto:0.2", 70), ("normal:5", 90)] {
            let mut counts = counts(text);
            counts.sort_unstable_by(|one, other| other.cmp(one));
            let hot = counts[..20].iter().sum::<u32>() / 100;
            assert!(hot >= least && counts.iter().sum::<u32>() == 10_000, "{text}: {hot} %");
        }
        assert!(counts("random").iter().all(|count| *count == 100));
    }

    #[test]
    fn a_sequence_repeats_or_moves_on() {
        let mut rng = Rng::from_seed(1);
        let RandomDistribution::Sequence { blocks, .. } = "sequence:2,0,1".parse().unwrap() else { panic!() };
        for (is_strided, expected) in [(false, [2, 0, 1, 2, 0, 1]), (true, [2, 0, 1, 5, 3, 4])] {
            let mut draw = Draw::new(RandomDistribution::Sequence { blocks: blocks.clone(), is_strided }, 1);
            assert_eq!([0; 6].map(|_| draw.next(100, true, &mut rng)), expected);
        }
    }

    #[test]
    fn every_draw_is_a_place() {
        let mut rng = Rng::from_seed(1);
        for text in ["random", "zipf", "zipf:0.1", "pareto", "normal:80", "zoned:100/1:0/", "sequence:900"] {
            let mut draw = Draw::new(text.parse().unwrap(), 1);
            for count in [1, 2, 3, 1000] {
                assert!((0..100).all(|_| draw.next(count, true, &mut rng) < count), "{text} {count}");
            }
        }
    }
}
