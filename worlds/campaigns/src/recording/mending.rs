//! A power cut while a recording is made whole.

use engine::Rng;

use super::disk::torn;
use super::judge::Reading;

/// One recovery in this many is cut off.
const CUT_ONE_IN: u64 = 2;

/// Whether the power fails while this recording is made whole.
pub(super) fn is_cut(reading: &Reading, rng: &Rng) -> bool {
    let is_mended = !reading.is_proved() && reading.survey.recording.is_some();
    is_mended && rng.fork("recovery is cut").one_in(CUT_ONE_IN)
}

/// Begins to make a recording whole, and has the power fail: the data that a sync was to make
/// durable are there, are not, or are in part. Returns the faults then.
pub(super) fn cut(reading: &mut Reading, rng: &Rng) -> Vec<String> {
    let mut rng = rng.fork("recovery");
    let before = reading.survey.ring.clone().map(|ring| ring.holding);
    let steps = reading.steps_of_mending();
    let last = usize::try_from(rng.below(steps.len() as u64)).expect("a few steps");
    let mut medium = reading.medium().to_vec();
    for (number, writes) in steps.into_iter().enumerate().take(last + 1) {
        for (offset, bytes) in writes {
            if medium.len() < offset + bytes.len() {
                medium.resize(offset + bytes.len(), 0);
            }
            let pieces = if number < last { vec![(0, bytes)] } else { torn(&bytes, &mut rng) };
            for (at, piece) in pieces {
                medium[offset + at..][..piece.len()].copy_from_slice(&piece);
            }
        }
    }
    *reading = Reading::new(medium, reading.chunk());
    match before.filter(|before| !reading.accounts_for(before)) {
        Some(before) => vec![format!("held was {before:?}, reported {:?}", reading.survey.ring)],
        None => Vec::new(),
    }
}
