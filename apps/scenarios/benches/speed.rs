//! Measures how fast the published experiments run on one core: `cargo bench -p farlane-scenarios`.
//! No figure here is a test.

use scenarios::published;

/// Number of register reads over 5G.
const READS: u64 = 100_000;

const RUNS: usize = 3;

/// The result of `work`, and the median of its run times in seconds.
fn seconds<T>(mut work: impl FnMut() -> T) -> (T, f64) {
    let mut times = Vec::new();
    loop {
        let start = std::time::Instant::now();
        let done = work();
        times.push(start.elapsed().as_secs_f64());
        if times.len() == RUNS {
            times.sort_by(f64::total_cmp);
            return (done, times[RUNS / 2]);
        }
    }
}

fn main() {
    let (reads, took) = seconds(|| published::register_reads_over_5g(1, READS).expect("the experiment runs"));
    let count = reads.times.len();
    row(&format!("{count} register reads over 5G (aim: under 2 s)"), reads.events, took);
    for name in ["nvme-tsn", "nvme-5g"] {
        let (report, took) = seconds(|| published::run(name, 1).expect("the experiment runs"));
        row(&format!("{name}, digest {:016x}", report.digest), report.events, took);
    }
}

fn row(what: &str, events: u64, seconds: f64) {
    let millions = f64::from(u32::try_from(events).expect("some million events")) / 1e6;
    let rate = millions / seconds;
    println!(
        "simulation: {what}: {seconds:.2} s, {millions:.2} million events, {rate:.2} million a second on one core (aim: at least 3)"
    );
}
