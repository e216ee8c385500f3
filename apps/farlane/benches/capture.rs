//! The cost of a capture to the host of a far end: commands a second at a depth of 32 with a
//! capture, beside those without one in the same run.
//!
//! `cargo bench -p farlane --bench capture`. Runs with and without a capture alternate, and each
//! ratio is one of neighbours. No figure here is a test.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]

mod support;

use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::Value;
use support::ends::Listening;
use support::{farlane, median, signal};

const RUNS: usize = 7;

/// Commands a second of a load of 4 KiB reads.
fn load(url: &str) -> f64 {
    let arguments = ["bench", url, "--iodepth", "32", "--runtime", "1s", "--json"];
    let output = farlane().args(arguments).stderr(Stdio::null()).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["iops"].as_f64().unwrap()
}

/// A capture of the far end with this control socket, into a file.
fn capture(control: &Path, out: &Path, options: &[&str]) -> Child {
    let mut command = farlane();
    command.arg("capture").arg(control).arg("--out").arg(out).args(options);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("control");
    let far = Listening::export(&["--ram", "256MiB", "--control", control.to_str().unwrap()]);
    println!("commands a second at a depth of 32, {RUNS} runs beside runs without a capture, medians:\n");
    println!("{:<34}{:>10}{:>10}{:>8}  aim", "", "without", "with", "ratio");
    let rows =
        [("headers alone (--snap 0)", "0"), ("entries (--snap 128)", "128"), ("all of each packet", "4096")];
    for (name, snap) in rows {
        let runs: Vec<_> = (0..RUNS)
            .map(|_| {
                let without = load(&far.url());
                let mut captured = capture(&control, &folder.path().join("out"), &["--snap", snap]);
                let with = load(&far.url());
                signal(captured.id(), "INT");
                captured.wait().unwrap();
                (without, with)
            })
            .collect();
        let ratio = median(runs.iter().map(|(without, with)| with / without));
        let [without, with] = [median(runs.iter().map(|run| run.0)), median(runs.iter().map(|run| run.1))];
        println!("{name:<34}{without:>10.0}{with:>10.0}{ratio:>8.3}  0.97");
    }
}
