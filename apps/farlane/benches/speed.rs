//! The figures that Farlane answers for, each as a ratio to a floor of the same run: what the
//! tunnel adds to raw TCP between two spinning processes, what digests add to the tunnel, and what
//! a far end costs in memory and, when idle, in processor time.
//!
//! `make bench` runs this after the engines' own benchmarks. Figures are medians over runs that
//! interleave the floor and the tunnel. No figure here is a test.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]

mod support;

use std::process::Stdio;

use serde_json::Value;

use support::ends::Listening;
use support::{farlane, idle_percent, median, number};

const RUNS: usize = 5;

fn main() {
    println!("running {RUNS} interleaved measurements of floor, direct and tunnel …");
    let runs: Vec<Value> = (0..RUNS).map(|_| demo()).collect();
    println!("\n{:<46}{:>12}{:>12}{:>8}  aim", "", "raw TCP", "tunnel", "ratio");
    for (name, key, aim) in [
        ("configuration read, median ns", "config_read_ns", "at most 1.25"),
        ("4 KiB read, depth 1, median ns", "read_4k_ns", "at most 1.25"),
        ("4 KiB write, depth 1, median ns", "write_4k_ns", "as low as it goes"),
    ] {
        row(&runs, name, aim, |subject| subject[key]["p50"].as_f64().unwrap());
    }
    for (name, key, aim) in [
        ("4 KiB random reads a second, 32 deep", "iops_qd32", "as high as it goes"),
        ("128 KiB reads, MiB/s", "mib_s_128k", "at least 0.60"),
    ] {
        row(&runs, name, aim, |subject| subject[key].as_f64().unwrap());
    }
    println!("\ndirect, in one process, through TLPs:");
    for (name, key) in
        [("4 KiB random reads a second, 32 deep", "iops_qd32"), ("128 KiB reads, MiB/s", "mib_s_128k")]
    {
        println!("  {name:<44}{:>12.0}", median(runs.iter().map(|run| run["direct"][key].as_f64().unwrap())));
    }
    println!("  T_tunnel, ns{:>44.0}", median(runs.iter().map(|run| run["t_tunnel_ns"].as_f64().unwrap())));
    digests();
    far_end();
}

/// Prints a line with the median of the runs' ratios, not the ratio of their medians, since the
/// machine's mood changes from run to run.
fn row(runs: &[Value], name: &str, aim: &str, of: impl Fn(&Value) -> f64) {
    let floor = median(runs.iter().map(|run| of(&run["floor"])));
    let tunnel = median(runs.iter().map(|run| of(&run["tunnel"])));
    let ratio = median(runs.iter().map(|run| of(&run["tunnel"]) / of(&run["floor"])));
    println!("{name:<46}{floor:>12.0}{tunnel:>12.0}{ratio:>8.2}  {aim}");
}

fn demo() -> Value {
    let output = farlane()
        .args(["demo", "--json", "--size", "1MiB", "--runtime", "1s"])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "the demo failed");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Prints what the digests of frames add to a command over TCP, with a processor for each end.
fn digests() {
    let export = Listening::export(&["--ram", "1MiB", "--spin", "10s", "--cpu", "0"]);
    let url = export.url();
    let median_ns = |workload: &str, depth: &str, more: &[&str]| {
        let output = farlane()
            .args(["bench", &url, "--json", "--cpu", "1", "--spin", "10s", "--runtime", "1s"])
            .args(["--rw", workload, "--bs", "4k", "--iodepth", depth])
            .args(more)
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(output.status.success(), "the load failed");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        report["latency_ns"]["p50"].as_f64().unwrap()
    };
    println!(
        "\n{:<46}{:>12}{:>12}{:>8}  aim",
        "CRC32C of each frame, 4 KiB, median ns", "without", "with", "ratio"
    );
    for (workload, depth) in [("randread", "1"), ("randwrite", "1"), ("randread", "32"), ("randwrite", "32")]
    {
        let pairs: Vec<[f64; 2]> = (0..2 * RUNS)
            .map(|run| {
                // The load with digests runs first in every other run.
                let with_first = run % 2 == 0;
                let first = median_ns(workload, depth, if with_first { &[] } else { &["--no-crc"] });
                let second = median_ns(workload, depth, if with_first { &["--no-crc"] } else { &[] });
                if with_first { [second, first] } else { [first, second] }
            })
            .collect();
        let [without, with] = [0, 1].map(|which| median(pairs.iter().map(|pair| pair[which])));
        let ratio = median(pairs.iter().map(|[without, with]| with / without));
        let name = format!("{workload}, depth {depth}");
        println!("{name:<46}{without:>12.0}{with:>12.0}{ratio:>8.3}  at most 1.03");
    }
}

/// Prints what a far end with a 1 GiB namespace costs.
fn far_end() {
    let directory = tempfile::tempdir().unwrap();
    let disk = directory.path().join("disk.img");
    let export = Listening::export(&["--namespace", &format!("{},size=1GiB", disk.display())]);
    let url = export.url();
    for workload in ["randwrite", "randread"] {
        for bytes in ["4k", "128k"] {
            let status = farlane()
                .args(["bench", &url, "--rw", workload, "--bs", bytes, "--iodepth", "128", "--runtime", "1s"])
                .stdout(Stdio::null())
                .status();
            assert!(status.unwrap().success(), "{workload} of {bytes} failed");
        }
    }
    println!("\nfar end with a 1 GiB file, after 4 KiB and 128 KiB reads and writes at depth 128:");
    let most = number(&format!("/proc/{}/status", export.process.id()), "VmHWM:") / 1024.0;
    println!("  most memory resident, MiB {most:>30.0}  aim: under 64");
    println!("  idle, processor time {:>34.2}%  aim: under 1", idle_percent(&export.process));
}
