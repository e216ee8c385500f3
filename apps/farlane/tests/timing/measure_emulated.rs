//! `farlane measure report` of a tunnel over an emulated network says what the simulation says of
//! the same file, but for how late the emulator itself says that it was, for what this machine
//! takes to wake a process, and for the software of the ends.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Mutex;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use crate::support::{Export, FARLANE};
use serde_json::{Value, json};

/// The latency of the network in each direction.
const LATENCY_NS: f64 = 5e6;
/// Measurements of the time of waking, before and after the compared measurement.
const WAKINGS: u32 = 100;
/// Something comes twice in each crossing to a process that has slept: to the emulator, and to the
/// end behind it. The emulator knows of the first only when it is awake.
const WAKINGS_PER_CROSSING: f64 = 2.0;
/// The same network and commands for both. The live SSD is memory, which answers at once.
const FILE: &str = r#"
[link]
latency = "5ms"
rate = "1Gbit/s"

[ssd]
firmware = "0us"
array_read = "0us"
array_spread = "0us"
completion = "0us"

[[task]]
kind = "config-read"
count = 40

[[task]]
kind = "read"
count = 40

[[task]]
kind = "write"
count = 40
"#;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// A mean, and three standard errors of it: further off it is once in several hundred times.
fn mean_and_error(of: &Value) -> (f64, f64) {
    let [count, mean, deviation] = ["count", "mean", "deviation"].map(|key| number(&of[key]));
    (mean, 3.0 * deviation / count.max(1.0).sqrt())
}

/// The time that this machine takes from a send to a thread that has slept for [`LATENCY_NS`] until
/// that thread has the bytes, in nanoseconds.
fn waking() -> Vec<f64> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    sender.set_nodelay(true).unwrap();
    let (mut receiver, _) = listener.accept().unwrap();
    let sent = Mutex::new(Instant::now());
    scope(|scope| {
        let receiving = scope.spawn(|| {
            let once = |_| {
                receiver.read_exact(&mut [0]).unwrap();
                let now = Instant::now();
                (now - *sent.lock().unwrap()).as_secs_f64() * 1e9
            };
            (0..WAKINGS).map(once).collect()
        });
        for _ in 0..WAKINGS {
            sleep(Duration::from_secs_f64(LATENCY_NS / 1e9));
            *sent.lock().unwrap() = Instant::now();
            sender.write_all(&[0]).unwrap();
        }
        receiving.join().unwrap()
    })
}

/// Count, mean and deviation.
fn distribution(took: &[f64]) -> Value {
    let count = took.len() as f64;
    let mean = took.iter().sum::<f64>() / count;
    let variance = took.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / count;
    json!({ "count": count, "mean": mean, "deviation": variance.sqrt() })
}

#[test]
fn what_is_measured_over_an_emulated_network_is_what_is_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("network.toml");
    std::fs::write(&file, FILE).unwrap();
    let file = file.to_str().unwrap();
    let simulated = crate::support::json(&["model", "sim", file, "--json"]);
    // How busy others keep the machine may change meanwhile.
    let before = waking();

    let ram = ["--ram", "16MiB", "--listen", "127.0.0.1:0", "--ram", "16MiB"];
    let mut far = Export::start(&ram);
    let beside = far.next_url();
    let mut command = Command::new(&*FARLANE);
    command.args([
        "model",
        "emulate",
        "--listen",
        "127.0.0.1:0",
        "--connect",
        &far.address,
        "--link",
        file,
        "--json",
    ]);
    let mut network = Export::of(command);
    // The simulated switch has packets of 256 B, and its host reads no further ahead.
    let host = ["--payload-size", "256", "--no-lookahead"];
    let points = ["--rw", "read,write", "--sizes", "4k", "--load", "2", "--samples", "60", "--time", "500ms"];
    let url = network.url();
    let report = crate::support::json(
        &[&["measure", "report", &url, "--beside", &beside, "--json"][..], &host, &points].concat(),
    );
    network.end_by("TERM");
    let late = loop {
        let line = network.next_line();
        if line["end"] == true {
            break line["late_ns"].clone();
        }
    };

    let measured = |url: &str, operation: &str| {
        let points = report["points"].as_array().unwrap();
        let is_it =
            |point: &&Value| point["url"] == url && point["operation"] == operation && point["depth"] == 1;
        points.iter().find(is_it).unwrap_or_else(|| panic!("{operation} of {url} in {report}"))["latency_ns"]
            .clone()
    };
    let waking = distribution(&[before, waking()].concat());
    for (task, operation) in [("config-read", "round trip"), ("read", "read"), ("write", "write")] {
        let tasks = simulated["tasks"].as_array().unwrap();
        let task = tasks.iter().find(|one| one["task"] == task).unwrap();
        let (through, direct) = (measured(&url, operation), measured(&beside, operation));
        // Nothing comes earlier than the model says. Of each time, three digits are kept.
        let (least, median) = (number(&task["min_ns"]), number(&through["p50"]));
        assert!(median > 0.99 * least, "{operation}: {median} ns, simulated {least} ns and more");
        // It comes later by what the emulator was late in each crossing, by what waking took, and
        // by the ends' software.
        let crossings = (number(&task["p50_ns"]) / LATENCY_NS).round();
        let (mean, error) = mean_and_error(&through);
        let (late_mean, late_error) = mean_and_error(&late);
        let (direct_mean, direct_error) = mean_and_error(&direct);
        let (waking_mean, waking_error) = mean_and_error(&waking);
        let (crossing_mean, crossing_error) = (
            late_mean + WAKINGS_PER_CROSSING * waking_mean,
            late_error + WAKINGS_PER_CROSSING * waking_error,
        );
        let expected = number(&task["mean_ns"]) + crossings * crossing_mean + direct_mean;
        let error = error + crossings * crossing_error + direct_error;
        let text = format!("{operation}: {mean} ns, expected {expected} and at most {error} more");
        assert!(mean < expected + error, "{text}; {through} {direct} {late} {waking} {task}");
    }
}
