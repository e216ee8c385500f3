//! `farlane bench` with several threads, each of which has a controller at the target.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::proxy::Proxy;
use crate::support::running::{Running, times, wait_until};
use crate::support::{Export, FARLANE, fail, farlane, json};

const NQN: &str = "nqn.2026-01.io.farlane:threads";

fn target() -> Export {
    let mut command = Command::new(&*FARLANE);
    command.args(["target", "--json", "--listen", "127.0.0.1:0", "--nqn", NQN, "--ram", "32MiB"]);
    Export::of(command)
}

fn url(address: &str) -> String {
    format!("nvme-tcp://{address}/{NQN}")
}

/// The commands of each thread, which together are all commands.
fn commands(report: &Value) -> Vec<u64> {
    let threads = report["threads"].as_array().unwrap_or_else(|| panic!("no threads in {report}"));
    let each: Vec<u64> = threads.iter().map(|one| one["commands"].as_u64().unwrap()).collect();
    assert_eq!(Some(each.iter().sum()), report["commands"].as_u64(), "{report}");
    each
}

#[test]
fn threads_share_the_jobs_and_check_the_writes_of_each_other() {
    let target = target();
    // 16 chunks for 16 operations under way: jobs of both threads write and read the same chunks.
    let words = ["--rw", "randrw", "--verify", "--size", "64k", "--numjobs", "4", "--iodepth", "4"];
    let more = ["--runtime", "1s", "--cores", "2", "--status-interval", "300ms", "--json"];
    let load = Running::start(&[&["bench", &url(&target.address)][..], &words, &more].concat());
    let output = load.output();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{errors}");
    let report: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!((&report["verified"], &report["errors"]), (&true.into(), &0.into()), "{report}");
    assert!(report["compared"].as_u64().unwrap() > 100, "{report}");
    let each = commands(&report);
    assert!(each.len() == 2 && each.iter().all(|commands| *commands > 100), "{report}");
    assert_eq!(report["latency_ns"]["count"], report["commands"], "{report}");
    // The progress is that of both threads.
    let text = format!("{said}{errors}");
    let progress = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let progress: Vec<Value> = progress.filter(|line| line["event"] == "progress").collect();
    assert!(!progress.is_empty(), "{text}");
    // One thread that checks what several have written finds it.
    let words = ["--rw", "write", "--size", "1m", "--io_size", "1m", "--verify", "--numjobs", "2", "--json"];
    let report = json(&[&["bench", &url(&target.address)][..], &words, &["--cores", "1"]].concat());
    assert_eq!((&report["verified"], report.get("threads")), (&true.into(), None), "{report}");
}

#[test]
fn limits_and_rates_of_jobs_stay_what_they_are() {
    let target = target();
    let url = url(&target.address);
    let words = ["--rw", "randwrite", "--io_size", "1m", "--numjobs", "3", "--cores", "2", "--json"];
    let report = json(&[&["bench", &url][..], &words].concat());
    assert_eq!((&report["bytes"], commands(&report)), (&(3 << 20).into(), vec![512, 256]), "{report}");
    let words = ["--rate_iops", "200", "--numjobs", "2", "--runtime", "1s", "--cores", "2", "--json"];
    let report = json(&[&["bench", &url][..], &words].concat());
    let each = commands(&report);
    assert!(each.iter().all(|commands| (1..=201).contains(commands)), "{report}");
    // Jobs that depend on each other have one thread.
    let words = ["--flow", "1", "--numjobs", "2", "--runtime", "300ms", "--cores", "2", "--json"];
    let report = json(&[&["bench", &url][..], &words].concat());
    assert!(report.get("threads").is_none() && report["errors"] == 0, "{report}");
}

#[test]
fn all_threads_report_when_the_user_interrupts() {
    let target = target();
    let words = ["--iodepth", "4", "--numjobs", "2", "--cores", "2", "--runtime", "60s", "--json"];
    let more = ["--status-interval", "100ms"];
    let load = Running::start(&[&["bench", &url(&target.address)][..], &words, &more].concat());
    wait_until("progress", || load.printed().contains("progress"));
    load.signal("INT");
    let output = load.output();
    let said = String::from_utf8_lossy(&output.stdout);
    let report: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!((output.status.code(), &report["interrupted"]), (Some(130), &true.into()), "{report}");
    assert!(commands(&report).iter().all(|commands| *commands > 0), "{report}");
    assert!(report["runtime_s"].as_f64().unwrap() < 60.0, "{report}");
}

#[test]
fn a_thread_whose_connection_is_lost_connects_again() {
    let target = target();
    let proxy = Proxy::to(&target.address, |_, _| None);
    let words = ["--rw", "randwrite", "--verify", "--iodepth", "4", "--numjobs", "2", "--cores", "2"];
    let more = ["--runtime", "3s", "--json", "--status-interval", "100ms"];
    // Writes that had no answer wait until the lost controller has surely ended: three times this.
    let url = format!("{}?keep-alive-tmo=3s", url(&proxy.address.to_string()));
    let load = Running::start(&[&["bench", &url][..], &words, &more].concat());
    wait_until("progress", || load.printed().contains("progress"));
    proxy.cut_one();
    let output = load.output();
    let [printed, said] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    assert_eq!(proxy.cuts(), 1, "{report}");
    assert_eq!((&report["verified"], &report["errors"]), (&true.into(), &0.into()), "{report}{said}");
    // The other thread's connections stay.
    assert_eq!((times(&said, "is lost"), times(&said, "is up again")), (1, 1), "{said}");
    let mut each = commands(&report);
    each.sort_unstable();
    assert!(each[0] > 0 && each[1] > 100, "{report}");
}

#[test]
fn a_device_with_one_host_has_one_thread() {
    let far = Export::start(&["--ram", "8MiB"]);
    let report = json(&["bench", &far.url(), "--numjobs", "2", "--runtime", "200ms", "--json"]);
    assert!(report.get("threads").is_none() && report["errors"] == 0, "{report}");
    let said = fail(&["bench", &far.url(), "--numjobs", "2", "--cores", "2"]);
    assert!(said.contains("--cores 2 does not fit: expected 1: this device has one host"), "{said}");
    let (target, folder) = (target(), tempfile::tempdir().unwrap());
    let file = folder.path().join("a.pcapng");
    let file = file.to_str().unwrap();
    let said = fail(&["bench", &url(&target.address), "--numjobs", "2", "--cores", "2", "--capture", file]);
    assert!(said.contains("--cores 2") && said.contains("1 with --capture"), "{said}");
}

/// The threads that have connected end at once, and the one that has not is named.
#[test]
fn a_thread_without_descriptors_ends_the_run_and_is_named() {
    let target = target();
    let words = "--numjobs 16 --cores 16 --runtime 30s --timeout 2s";
    let script = format!("ulimit -n 40; exec '{}' bench '{}' {words}", *FARLANE, url(&target.address));
    let begun = Instant::now();
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(" of 16: "), "{said}");
    assert!(said.contains("Too many open files"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(25), "{said}");
    // The target has no trouble with the hosts that have gone.
    let after = farlane(&["bench", &url(&target.address), "--runtime", "100ms", "--json"]);
    assert!(after.status.success(), "{}", String::from_utf8_lossy(&after.stderr));
}
