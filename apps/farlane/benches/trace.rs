//! How fast a capture is understood: packets and commands of a second of one processor, beside a
//! program that only reads the file.
//!
//! `cargo bench -p farlane --bench trace` captures `scenarios/direct.toml`, puts the capture
//! behind itself 20 times, and analyses it. No figure here is a test.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]

mod support;

use std::io::Read;
use std::path::Path;
use std::time::Instant;

use serde_json::Value;
use support::{farlane, median};

const RUNS: usize = 5;
/// How often the capture is in the file.
const TIMES: usize = 20;

fn json(arguments: &[&str]) -> Value {
    let output = farlane().args(arguments).arg("--json").output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Reads the file as the analyser does, a mebibyte at a time.
fn read(path: &Path) -> f64 {
    let start = Instant::now();
    let mut file = std::fs::File::open(path).unwrap();
    let mut bytes = vec![0; 1 << 20];
    while file.read(&mut bytes).unwrap() > 0 {}
    start.elapsed().as_secs_f64()
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let [one, many] = ["one.pcapng", "many.pcapng"].map(|name| folder.path().join(name));
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/direct.toml");
    json(&["model", "sim", scenario.to_str().unwrap(), "--capture", one.to_str().unwrap()]);
    std::fs::write(&many, std::fs::read(&one).unwrap().repeat(TIMES)).unwrap();
    let mut rows = Vec::new();
    let mut packets = 0.0;
    for _ in 0..RUNS {
        let floor = read(&many);
        let start = Instant::now();
        let stats = json(&["observe", "trace", "stats", many.to_str().unwrap()]);
        packets = stats["tlps"].as_f64().unwrap();
        rows.push((start.elapsed().as_secs_f64(), floor));
    }
    let took = median(rows.iter().map(|(took, _)| *took));
    let ratio = median(rows.iter().map(|(took, floor)| took / floor));
    let megabytes = std::fs::metadata(&many).unwrap().len() as f64 / 1e6;
    println!("\na capture of {packets} packets, {megabytes:.0} MB, {RUNS} interleaved runs, medians:");
    println!("{:42}{:>8.2} million packets a second, aim 2", "decoded and correlated", packets / took / 1e6);
    println!("{:42}{ratio:>8.1} × as long", "beside reading the file");
}
