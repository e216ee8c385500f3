//! How fast the published experiments are on one core: `cargo bench -p farlane-scenarios`.

use scenarios::published;

/// Events a second that an experiment is to make at least, in millions.
const EVENTS: f64 = 3.0;
/// How long 100,000 register reads over 5G may take, in seconds.
const READS_SECONDS: f64 = 2.0;
const READS: u64 = 100_000;

fn seconds<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = std::time::Instant::now();
    let done = work();
    (done, start.elapsed().as_secs_f64())
}

fn main() {
    let (reads, took) = seconds(|| published::register_reads_over_5g(1, READS).expect("the experiment runs"));
    let count = reads.times.len();
    println!("simulation: {count} register reads over 5G in {took:.2} s, {}", rate(reads.events, took));
    let mut slow = took > READS_SECONDS;
    for name in ["nvme-tsn", "nvme-5g"] {
        let (report, took) = seconds(|| published::run(name, 1).expect("the experiment runs"));
        let digest = report.digest;
        println!("simulation: {name} in {took:.2} s, {}, digest {digest:016x}", rate(report.events, took));
        slow |= millions(report.events) / took < EVENTS;
    }
    assert!(
        !slow,
        "{READS} reads take {READS_SECONDS} s at most, and {EVENTS} million events a second are made"
    );
}

fn millions(events: u64) -> f64 {
    f64::from(u32::try_from(events).expect("some million events")) / 1e6
}

fn rate(events: u64, seconds: f64) -> String {
    let events = millions(events);
    format!("{events:.2} million events, {:.2} million a second on one core", events / seconds)
}
