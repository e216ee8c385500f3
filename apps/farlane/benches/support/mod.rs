//! The common parts of the benchmarks: the program that is measured, medians, and the resources of
//! a process.

#![allow(dead_code, reason = "each benchmark uses a part of it")]

pub(crate) mod ends;
pub(crate) mod guests;
pub(crate) mod simulated;
pub(crate) mod table;

use std::process::{Child, Command};
use std::time::Duration;

/// A command for the binary that is measured: the one that `FARLANE` names, or else the one built
/// for this.
pub(crate) fn farlane() -> Command {
    Command::new(std::env::var_os("FARLANE").unwrap_or_else(|| env!("CARGO_BIN_EXE_farlane").into()))
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The number behind `name` in a file of the system's.
pub(crate) fn number(path: &str, name: &str) -> f64 {
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Sends a process a signal by its name.
pub(crate) fn signal(process: u32, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status();
    assert!(sent.unwrap().success(), "no signal {name} for process {process}");
}

/// Percent of a processor that `process` takes while it does nothing, over two seconds. The
/// system's clock ticks are hundredths of a second.
pub(crate) fn idle_percent(process: &Child) -> f64 {
    let ticks = || -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()
    };
    std::thread::sleep(Duration::from_millis(500));
    let before = ticks();
    std::thread::sleep(Duration::from_secs(2));
    (ticks() - before) / 2.0
}
