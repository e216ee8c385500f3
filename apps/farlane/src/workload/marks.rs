//! The patterns by which a verified load recognises its writes.

use engine::Rng;

fn pattern(seed: u64, chunk: u64, generation: u32) -> Rng {
    Rng::from_seed(seed ^ chunk.rotate_left(24) ^ (u64::from(generation) << 40))
}

/// Fills `bytes` with a pattern that only this write of this chunk has.
pub(super) fn mark(bytes: &mut [u8], seed: u64, chunk: u64, generation: u32) {
    pattern(seed, chunk, generation).fill(bytes);
}

/// Where `bytes` differ from the pattern, if they do.
pub(super) fn first_difference(bytes: &[u8], seed: u64, chunk: u64, generation: u32) -> Option<usize> {
    let mut rng = pattern(seed, chunk, generation);
    for (word, at) in bytes.chunks(8).zip((0..).step_by(8)) {
        if word != &rng.next_u64().to_le_bytes()[..word.len()] {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_of_one_write_of_one_chunk() {
        let mut bytes = [0; 4096];
        mark(&mut bytes, 1, 2, 3);
        assert_eq!(first_difference(&bytes, 1, 2, 3), None);
        for (seed, chunk, generation) in [(2, 2, 3), (1, 3, 3), (1, 2, 4)] {
            assert_eq!(first_difference(&bytes, seed, chunk, generation), Some(0));
        }
        bytes[4095] ^= 1;
        assert_eq!(first_difference(&bytes, 1, 2, 3), Some(4088));
    }
}
