//! `farlane measure` of a tunnel over an emulated network says what the simulation says of the same
//! file, but for what the emulator itself says that it was late, and for the software of the ends.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::process::Command;

use serde_json::Value;
use support::{Export, FARLANE, json};

/// The latency of the network in each direction.
const LATENCY_NS: f64 = 5e6;
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

#[test]
fn what_is_measured_over_an_emulated_network_is_what_is_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("network.toml");
    std::fs::write(&file, FILE).unwrap();
    let file = file.to_str().unwrap();
    let simulated = json(&["sim", file, "--json"]);

    let ram = ["--ram", "16MiB", "--listen", "127.0.0.1:0", "--ram", "16MiB"];
    let mut far = Export::start(&ram);
    let beside = far.next_url();
    let mut command = Command::new(FARLANE);
    command.args(["emulate", "--listen", "127.0.0.1:0", "--connect", &far.address, "--link", file, "--json"]);
    let mut network = Export::of(command);
    // The simulated switch has packets of 256 B, and its host reads no further ahead.
    let host = ["--payload-size", "256", "--no-lookahead"];
    let points = ["--rw", "read,write", "--sizes", "4k", "--load", "2", "--samples", "60", "--time", "500ms"];
    let url = network.url();
    let report = json(&[&["measure", &url, "--beside", &beside, "--json"][..], &host, &points].concat());
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
    for (task, operation) in [("config-read", "round trip"), ("read", "read"), ("write", "write")] {
        let tasks = simulated["tasks"].as_array().unwrap();
        let task = tasks.iter().find(|one| one["task"] == task).unwrap();
        let (through, direct) = (measured(&url, operation), measured(&beside, operation));
        // Nothing comes earlier than the model says. Of each time, three digits are kept.
        let (least, median) = (number(&task["min_ns"]), number(&through["p50"]));
        assert!(median > 0.99 * least, "{operation}: {median} ns, simulated {least} ns and more");
        // It comes later by what the emulator was late in each crossing, and by the ends' software.
        let crossings = (number(&task["p50_ns"]) / LATENCY_NS).round();
        let (mean, error) = mean_and_error(&through);
        let (late_mean, late_error) = mean_and_error(&late);
        let (direct_mean, direct_error) = mean_and_error(&direct);
        let expected = number(&task["mean_ns"]) + crossings * late_mean + direct_mean;
        let error = error + crossings * late_error + direct_error;
        let text = format!("{operation}: {mean} ns, expected {expected} and at most {error} more");
        assert!(mean < expected + error, "{text}; {through} {direct} {late} {task}");
    }
}
