//! The time from a slice to the report that acknowledges it.

use std::time::{Duration, Instant};

use crate::machine::{Machine, PATIENCE, alone, farlane};

/// Grants and fences that are measured.
const ROUNDS: u64 = 100;

fn figures(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: usize| times[(times.len() - 1) * part / 100];
    println!("{what}: median {:?}, p99 {:?}, max {:?} ({} rounds)", at(50), at(99), at(100), times.len());
    // A report that comes by REPORT_EVERY would hide a lost observation.
    assert!(at(50) < PATIENCE / 20, "{what} takes {:?}", at(50));
}

#[test]
fn the_time_from_a_slice_to_its_acknowledgement() {
    let Some(farlane) = farlane() else { return };
    let mut owner = Machine::new(&farlane, "owner");
    owner.start();
    owner.enforce(1, &[]);
    let (mut grants, mut fences) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        let begin = Instant::now();
        owner.enforce(2 * round, &[alone("a", "host", 2 * round)]);
        grants.push(begin.elapsed());
        let begin = Instant::now();
        owner.enforce(2 * round + 1, &[]);
        fences.push(begin.elapsed());
    }
    figures("grant", grants);
    figures("fence", fences);
}
