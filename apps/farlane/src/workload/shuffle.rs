//! An order of places in which each comes once, as if drawn at random, without a table.

/// Rounds of the permutation.
const ROUNDS: u64 = 4;

/// The place that comes at `turn` of `count`, both counted from 0: a permutation by a Feistel
/// network over the next even number of bits, which is walked until it is back within `count`.
pub(super) fn place(turn: u64, count: u64, seed: u64) -> u64 {
    let bits = (64 - count.saturating_sub(1).leading_zeros()).next_multiple_of(2).max(2);
    let (half, mask) = (bits / 2, (1_u64 << (bits / 2)) - 1);
    let mut value = turn;
    loop {
        let (mut left, mut right) = (value >> half, value & mask);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ mix(right ^ round << 40, seed) & mask);
        }
        value = left << half | right;
        if value < count {
            return value;
        }
    }
}

/// A number whose bits all depend on those of `value` and `seed`: the finisher of SplitMix64.
const fn mix(value: u64, seed: u64) -> u64 {
    let value = value.wrapping_add(seed).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn each_place_comes_once_and_in_no_order() {
        for count in [1, 2, 3, 5, 64, 1000, 4097] {
            for seed in 0..4 {
                let order: Vec<_> = (0..count).map(|turn| place(turn, count, seed)).collect();
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert!(sorted.iter().copied().eq(0..count), "{count} {seed}");
                let steps = order.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
                assert!(count < 64 || steps < order.len() / 8, "{count} {seed}: {steps}");
            }
        }
    }
}
