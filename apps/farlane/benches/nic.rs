//! The latency of packets through low-latency cards over shared memory, as ratios to the floor of
//! the same run: two crossings of a cache line; inline beside DMA; and what waking an end adds.
//!
//! Figures are medians over runs. No figure here is a test.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]

mod support;

use std::process::{Child, Stdio};

use serde_json::Value;

use support::{farlane, median};

const RUNS: usize = 5;

fn main() {
    println!("running {RUNS} measurements of packets over shared memory …");
    let runs = over_shared_memory(&[], &["--sizes", "60,64,1500", "--count", "20000"]);
    let served = of_another_process();
    let asleep =
        over_shared_memory(&["--spin", "0s"], &["--interval", "1ms", "--sizes", "60", "--count", "2000"]);
    println!("\n{:<44}{:>12}{:>12}{:>8}  aim", "", "floor", "nic", "ratio");
    let floor = |name: &str| {
        let name = name.to_owned();
        move |run: &Value| run["floor"][&name]["p50"].as_f64().unwrap()
    };
    row("60 B one way, two lines cross, ns", "at most 2", &runs, floor("round_trip_ns"), |run| {
        one_way(run, 60, "inline")
    });
    row("60 B one way, the kernel's UDP, ns", "", &runs, floor("kernel_udp_one_way_ns"), |run| {
        one_way(run, 60, "inline")
    });
    for (whose, runs) in [("own card", &runs), ("served card", &served)] {
        for size in [60, 64, 1500] {
            let name = format!("{size} B by DMA beside 60 B inline, {whose}");
            let aim = if size == 60 { "at least 1.5" } else { "" };
            row(&name, aim, runs, |run| one_way(run, 60, "inline"), |run| one_way(run, size, "dma"));
        }
    }
    let spinning = median(runs.iter().map(|run| one_way(run, 60, "inline") * 2.0));
    let added = |run: &Value| one_way(run, 60, "inline") * 2.0 - spinning;
    let name = "an end that has to be woken; a thread, ns";
    row(name, "at most 10000 more", &asleep, floor("wake_ns"), added);
}

/// Measures a host beside the card of another process, which receives its own packets: two
/// processes that poll, on as many processors.
fn of_another_process() -> Vec<Value> {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("card");
    let mut server: Child = farlane()
        .args(["measure", "nic", "serve", "--wire", "loop:", "--cpu", "0", "--spin", "1s", "--vfio-user"])
        .arg(&socket)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !socket.exists() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let card = format!("vfio-user:{}", socket.display());
    let runs = (0..RUNS).map(|_| ping(&card, &["--sizes", "60,64,1500", "--count", "20000"])).collect();
    server.kill().unwrap();
    server.wait().unwrap();
    runs
}

/// Measures packets over a wire of shared memory, [`RUNS`] times.
fn over_shared_memory(at_receiver: &[&str], at_sender: &[&str]) -> Vec<Value> {
    let directory = tempfile::tempdir().unwrap();
    let wire = format!("shm:{}", directory.path().join("wire").display());
    let mut receiver: Child = farlane()
        .args(["measure", "nic", "receive", &wire, "--echo", "--cpu", "0", "--json"])
        .args(at_receiver)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let runs = (0..RUNS).map(|_| ping(&wire, at_sender)).collect();
    receiver.kill().unwrap();
    receiver.wait().unwrap();
    runs
}

fn ping(wire: &str, options: &[&str]) -> Value {
    let output = farlane()
        .args(["measure", "nic", "ping", wire, "--json", "--cpu", "1"])
        .args(options)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "the measurement failed");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn one_way(run: &Value, size: u64, path: &str) -> f64 {
    let sizes = run["sizes"].as_array().unwrap();
    let found = sizes.iter().find(|one| one["size"] == size && one["path"] == path).unwrap();
    found["one_way_ns"]["p50"].as_f64().unwrap()
}

/// Prints a line with the median of the runs' ratios: the machine's mood changes between runs.
fn row(
    name: &str,
    aim: &str,
    runs: &[Value],
    floor: impl Fn(&Value) -> f64,
    subject: impl Fn(&Value) -> f64,
) {
    let ratio = median(runs.iter().map(|run| subject(run) / floor(run)));
    let (floor, subject) = (median(runs.iter().map(floor)), median(runs.iter().map(subject)));
    println!("{name:<44}{floor:>12.0}{subject:>12.0}{ratio:>8.3}  {aim}");
}
