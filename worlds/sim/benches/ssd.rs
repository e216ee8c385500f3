//! Measures how much faster than real time the model of an SSD writes a whole disk.

use std::hint::black_box;

use engine::{Instant, Rng};
use sim::models::ssd::drive::{self, Load};
use sim::models::ssd::{Parameters, Ssd};

/// Length of a write in bytes.
const CHUNK: u64 = 128 << 10;

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn main() {
    let mut rng = Rng::from_seed(1);
    let parameters = Parameters::named("960-evo").expect("a known model");
    let mut ssd = Ssd::new(parameters, rng.fork("ssd"));
    let count = parameters.capacity / CHUNK;
    let load = Load { write: true, random: false, length: CHUNK, depth: 32, count, rate: None };
    let start = std::time::Instant::now();
    let end = drive::run(&mut ssd, &load, Instant::ZERO, parameters.capacity, &mut rng, |done| {
        black_box(done);
    });
    let (wall, simulated) = (start.elapsed().as_secs_f64(), (end - Instant::ZERO).get());
    let simulated = std::time::Duration::from_nanos(simulated).as_secs_f64();
    println!(
        "SSD: {} written in {simulated:.1} s of virtual time and {wall:.3} s of real time, {:.0} times as fast",
        parameters.name,
        simulated / wall
    );
    assert!(wall < 60.0, "a whole disk is to be written within a minute");
}
