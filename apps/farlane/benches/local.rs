//! What a device in another process of the same machine takes, used over vfio-user with mapped doorbells, as ratios to
//! a floor of the same run: a doorbell and its answer in shared memory with one copy of 4 KiB in between, two
//! processors spinning; and the speed of that copy.
//!
//! Medians over runs that interleave floor and subject; no figure here is a test. Whoever else wants one of the two
//! processors lowers the rates by far more than the medians: what a rate would be without them is told beside it.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]

mod support;

use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Instant;

use live::doorbells::{Doorbells, memory_file};
use live::reactor::pin;
use live::shared::{Mapping, SharedMemory};
use serde_json::Value;

use support::{farlane, median};

const RUNS: usize = 5;
/// Batches of a floor, of which the median counts.
const BATCHES: u32 = 2000;
/// Round trips of a batch.
const TRIPS: u32 = 100;
/// Copies of a batch, of 128 KiB each.
const COPIES: u32 = 8;
/// Bytes of the device: they stay in the caches, so that the path is measured and not the memory.
const DEVICE: u64 = 1 << 20;
/// Where the data is in the floor's file, behind the doorbells.
const DATA: u64 = 0x1000;
/// In the doorbells' page, on cache lines of their own.
const RING: usize = 0;
const ANSWER: usize = 128;

struct Run {
    trip_ns: f64,
    copy_mib_s: f64,
    read_ns: f64,
    iops: f64,
    quiet_iops: f64,
    mib_s: f64,
    quiet_mib_s: f64,
}

fn main() {
    println!("running {RUNS} interleaved measurements of shared memory and vfio-user …");
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("ssd");
    let mut device = device(&socket);
    fill(&socket);
    let runs: Vec<Run> = (0..RUNS).map(|_| run(&socket)).collect();
    device.kill().unwrap();
    device.wait().unwrap();
    println!("\n{:<44}{:>12}{:>12}{:>8}  aim", "", "floor", "vfio-user", "ratio");
    row("4 KiB read, depth 1, median ns", "at most 3", &runs, |run| (run.trip_ns, run.read_ns));
    // 1.5 million a second where a round trip takes 0.25 us: 2.67 commands in the time of one.
    let proportional = |run: &Run| (1e9 / run.trip_ns, run.iops);
    row("4 KiB random reads a second, depth 32", "at least 0.375", &runs, proportional);
    let proportional = |run: &Run| (1e9 / run.trip_ns, run.quiet_iops);
    row("  by the median latency", "", &runs, proportional);
    row("128 KiB reads, depth 8, MiB/s", "1", &runs, |run| (run.copy_mib_s, run.mib_s));
    row("  by the median latency", "", &runs, |run| (run.copy_mib_s, run.quiet_mib_s));
}

/// One line: the median of the ratios of single runs, not the ratio of medians, for the machine's mood changes.
fn row(name: &str, aim: &str, runs: &[Run], of: impl Fn(&Run) -> (f64, f64)) {
    let floor = median(runs.iter().map(|run| of(run).0));
    let subject = median(runs.iter().map(|run| of(run).1));
    let ratio = median(runs.iter().map(|run| of(run).1 / of(run).0));
    println!("{name:<44}{floor:>12.0}{subject:>12.0}{ratio:>8.3}  {aim}");
}

fn device(socket: &Path) -> Child {
    let mut device = farlane()
        .args(["device", "--json", "--poll-doorbells", "--spin", "10s", "--cpu", "0"])
        .args(["--ram", &DEVICE.to_string(), "--vfio-user"])
        .arg(socket)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(device.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("listening"), "{line}");
    device
}

fn run(socket: &Path) -> Run {
    let trip_ns = trip_ns();
    let read_ns = bench(socket, "4k", "1")["latency_ns"]["p50"].as_f64().unwrap();
    let deep = bench(socket, "4k", "32");
    let copy_mib_s = copy_mib_s();
    let large = bench(socket, "128k", "8");
    // So many are under way, each for so long.
    let rate = |report: &Value, depth: f64| depth * 1e9 / report["latency_ns"]["p50"].as_f64().unwrap();
    Run {
        trip_ns,
        copy_mib_s,
        read_ns,
        iops: deep["iops"].as_f64().unwrap(),
        quiet_iops: rate(&deep, 32.0),
        mib_s: large["mib_s"].as_f64().unwrap(),
        quiet_mib_s: rate(&large, 8.0) / 8.0,
    }
}

/// Writes every block: one that never was is a page of zeroes, the same for all, and read from the nearest cache.
fn fill(socket: &Path) {
    load(socket, &["--rw", "write", "--bs", "128k", "--runtime", "300ms"]);
}

fn bench(socket: &Path, bytes: &str, depth: &str) -> Value {
    load(socket, &["--bs", bytes, "--iodepth", depth, "--runtime", "1s"])
}

fn load(socket: &Path, arguments: &[&str]) -> Value {
    let output = farlane()
        .args(["bench", &format!("vfio-user:{}", socket.display()), "--json", "--cpu", "1", "--spin", "10s"])
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "the load failed");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// One end's view of the floor's file.
fn view(file: &OwnedFd) -> (Doorbells, SharedMemory) {
    let doorbells = Doorbells::map(file, 0, DATA).unwrap();
    let mut memory = SharedMemory::new();
    let mapping = Mapping { address: 0, length: DEVICE, offset: DATA, readable: true, writable: true };
    memory.map(file.try_clone().unwrap(), mapping).unwrap();
    (doorbells, memory)
}

/// The floor of a 4 KiB read: rung by a store, answered by a copy and a store, in nanoseconds.
fn trip_ns() -> f64 {
    let file = memory_file("floor", DATA + DEVICE).unwrap();
    let far_file = file.try_clone().unwrap();
    let far = std::thread::spawn(move || {
        pin(0).unwrap();
        let (doorbells, memory) = view(&far_file);
        let page = [7; 4096];
        for trip in 1..=BATCHES * TRIPS {
            while doorbells.look(RING) != Some(trip) {
                std::hint::spin_loop();
            }
            memory.write(0, &page).unwrap();
            doorbells.ring(ANSWER as u64, trip);
        }
    });
    let near = std::thread::spawn(move || {
        pin(1).unwrap();
        let (doorbells, _memory) = view(&file);
        let mut trip = 0;
        median((0..BATCHES).map(|_| {
            let started = Instant::now();
            for _ in 0..TRIPS {
                trip += 1;
                doorbells.ring(RING as u64, trip);
                while doorbells.look(ANSWER) != Some(trip) {
                    std::hint::spin_loop();
                }
            }
            started.elapsed().as_secs_f64() * 1e9 / f64::from(TRIPS)
        }))
    });
    far.join().unwrap();
    near.join().unwrap()
}

/// The floor of large reads: copies of 128 KiB from memory of one process into memory that it shares.
fn copy_mib_s() -> f64 {
    let file = memory_file("floor", DATA + DEVICE).unwrap();
    let copier = std::thread::spawn(move || {
        pin(0).unwrap();
        let (_doorbells, memory) = view(&file);
        let source = vec![7; 1 << 20];
        median((0..BATCHES).map(|_| {
            let started = Instant::now();
            for copy in 0..COPIES {
                let at = copy as usize * (128 << 10);
                memory.write(at as u64, &source[at..at + (128 << 10)]).unwrap();
            }
            // A batch is 1 MiB.
            1.0 / started.elapsed().as_secs_f64()
        }))
    });
    copier.join().unwrap()
}
