//! The cost of a device in another process of the same machine, used over vfio-user with mapped
//! doorbells, as ratios to floors of the same run: a doorbell and its answer in shared memory with
//! one copy of 4 KiB in between, with two processors spinning; and the speed of copies.
//!
//! Figures are medians over runs that interleave the floor and vfio-user. No figure here is a test.
//! Another process on one of the two processors lowers rates by far more than medians; the rate
//! that follows from the median latency is printed beside each.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]

mod support;

use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Instant;

use live::reactor::pin;
use live::sys::doorbells::{Doorbells, memory_file};
use live::sys::shared::{Mapping, SharedMemory};
use serde_json::Value;

use support::{farlane, median};

const RUNS: usize = 5;
/// Number of batches that measure a floor, of which the median counts.
const BATCHES: u32 = 2000;
/// Round trips per batch.
const TRIPS: u32 = 100;
/// Copies of 128 KiB per batch.
const COPIES: u32 = 8;
/// Bytes of the device: they stay in the caches, so that the path is measured and not the memory.
const DEVICE: u64 = 1 << 20;
/// Offset of the data in the floor's file, behind the doorbells.
const DATA: u64 = 0x1000;
/// Offset of the doorbell in its page, on a cache line of its own.
const RING: usize = 0;
/// Offset of the answer in its page, on a cache line of its own.
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
    // The aim is 1.5 million reads a second where a round trip takes 0.25 µs: a read for every 2.67
    // round trips.
    let proportional = |run: &Run| (1e9 / run.trip_ns, run.iops);
    row("4 KiB random reads a second, depth 32", "at least 0.375", &runs, proportional);
    let proportional = |run: &Run| (1e9 / run.trip_ns, run.quiet_iops);
    row("  by the median latency", "", &runs, proportional);
    row("128 KiB reads, depth 8, MiB/s", "1", &runs, |run| (run.copy_mib_s, run.mib_s));
    row("  by the median latency", "", &runs, |run| (run.copy_mib_s, run.quiet_mib_s));
}

/// Prints a line with the median of the runs' ratios, not the ratio of their medians, since the
/// machine's mood changes from run to run.
fn row(name: &str, aim: &str, runs: &[Run], of: impl Fn(&Run) -> (f64, f64)) {
    let floor = median(runs.iter().map(|run| of(run).0));
    let subject = median(runs.iter().map(|run| of(run).1));
    let ratio = median(runs.iter().map(|run| of(run).1 / of(run).0));
    println!("{name:<44}{floor:>12.0}{subject:>12.0}{ratio:>8.3}  {aim}");
}

fn device(socket: &Path) -> Child {
    let mut device = farlane()
        .args(["offer", "device", "--json", "--poll-doorbells", "--spin", "10s", "--cpu", "0"])
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
    // The rate that follows from the median latency with `depth` commands under way.
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

/// Writes every block: blocks that were never written share one page of zeroes, which would be read
/// from the nearest cache.
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

/// One process's view of the floor's file: its doorbells and its memory.
fn view(file: &OwnedFd) -> (Doorbells, SharedMemory) {
    let doorbells = Doorbells::map(file, 0, DATA).unwrap();
    let mut memory = SharedMemory::new();
    let mapping = Mapping { address: 0, length: DEVICE, offset: DATA, readable: true, writable: true };
    memory.map(file.try_clone().unwrap(), mapping).unwrap();
    (doorbells, memory)
}

/// The floor of a 4 KiB read, in nanoseconds: a store rings, a copy and a store answer.
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

/// The floor of large reads, in MiB/s: copies of 128 KiB from a process's own memory into shared
/// memory.
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
