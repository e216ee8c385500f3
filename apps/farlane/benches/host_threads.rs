//! Two jobs of `farlane bench` on two threads, as ratios to the same jobs on one thread: NVMe/TCP,
//! one target, 4 KiB random reads of memory.
//!
//! Figures are medians over runs that interleave both. No figure here is a test. With two
//! processors, target and host share them: two threads of the host then take the target's
//! processor, and the ratio is near 1 or below it. Only with a processor for each thread of both
//! does the ratio say how the host scales. The processor time a command says it on any machine:
//! threads that share nothing need no more of it than one thread.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use live::reactor::processors;
use serde_json::Value;

use support::{farlane, median};

const RUNS: usize = 7;
/// The namespace stays in the caches, so that the path is measured and not the memory.
const MEDIUM: &str = "1MiB";
const NQN: &str = "nqn.2026-01.io.farlane:threads";
const DEPTHS: [&str; 3] = ["1", "32", "128"];

/// One thread, then two: commands a second, and microseconds of the host's processors a command.
type Run = [(f64, f64); 2];

fn main() {
    let count = processors().unwrap();
    println!("running {RUNS} interleaved measurements on {count} processors ...");
    let (mut target, address) = target();
    let measure = |depth: &str| -> Vec<Run> {
        (0..RUNS).map(|_| ["1", "2"].map(|cores| load(&address, depth, cores))).collect()
    };
    let all = DEPTHS.map(|depth| (depth, measure(depth)));
    target.kill().unwrap();
    target.wait().unwrap();
    println!("\n{:<40}{:>12}{:>12}{:>8}", "two jobs, 4 KiB random reads", "one thread", "two", "ratio");
    for (depth, runs) in &all {
        row(&format!("depth {depth} each, commands a second"), runs, |run| run.map(|(rate, _)| rate));
        row("  host's processor time a command, us", runs, |run| run.map(|(_, time)| time));
    }
    if count < 4 {
        println!("\ntarget and host share {count} processors: the ratios of rates do not show scaling");
    }
}

/// Prints the medians, and the median of the runs' ratios.
fn row(name: &str, runs: &[Run], of: impl Fn(&Run) -> [f64; 2]) {
    let [one, two] = [0, 1].map(|at| median(runs.iter().map(|run| of(run)[at])));
    let ratio = median(runs.iter().map(|run| of(run)[1] / of(run)[0]));
    println!("{name:<40}{one:>12.2}{two:>12.2}{ratio:>8.2}");
}

/// Starts a target with as many threads as connections can use.
fn target() -> (Child, String) {
    let mut target = farlane()
        .args(["target", "--json", "--listen", "127.0.0.1:0", "--nqn", NQN, "--ram", MEDIUM])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(target.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said: Value = serde_json::from_str(&line).unwrap();
    (target, said["listening"].as_str().unwrap().to_owned())
}

/// Runs two jobs on `cores` threads.
fn load(address: &str, depth: &str, cores: &str) -> (f64, f64) {
    let url = format!("nvme-tcp://{address}/{NQN}");
    let words = ["--numjobs", "2", "--iodepth", depth, "--cores", cores, "--runtime", "1s", "--json"];
    let before = children();
    let output = farlane().args(["bench", &url]).args(words).stderr(Stdio::null()).output().unwrap();
    let seconds = children() - before;
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let commands = report["commands"].as_f64().unwrap();
    (report["iops"].as_f64().unwrap(), seconds * 1e6 / commands)
}

/// Processor time in seconds of the processes that this one has waited for; the system's clock
/// ticks are hundredths of a second.
fn children() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[13].parse::<f64>().unwrap() + fields[14].parse::<f64>().unwrap()) / 100.0
}
