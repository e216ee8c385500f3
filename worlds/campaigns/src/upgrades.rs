//! Upgrades in place: in the middle of a bad day, successors take over from far ends again and
//! again, with the state that is handed over and nothing else.

use crate::campaign::Outcome;
use crate::{disk, disk_hosts};

/// Runs a scenario for `seed` with one process from its start to its end, and with successors. The
/// two runs must be the same in every event.
pub fn run(seed: u64) -> Outcome {
    let play = if seed.is_multiple_of(2) { disk::run_succeeded } else { disk_hosts::run_succeeded };
    let [alone, mut succeeded] = [false, true].map(|upgrades| play(seed / 2, upgrades));
    if alone.digest != succeeded.digest {
        succeeded
            .failures
            .push(format!("digest {:016x} with successors, {:016x} without", succeeded.digest, alone.digest));
    }
    Outcome { seed, ..succeeded }
}
