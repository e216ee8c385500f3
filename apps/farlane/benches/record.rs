//! The recorder beside `fio` (same file system, sizes and depth), its processor time, its memory,
//! what pauses of the disk cost it, and the pace of a replay.
//!
//! `make bench` runs this. Figures are medians of runs that interleave the recorder and fio. No
//! figure here is a test. FOLDER names where the files go; otherwise they go to this directory.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use support::{farlane, median};

const RUNS: usize = 5;
/// The values of `--digest`.
const DIGESTS: [&str; 3] = ["sha256", "blake3", "none"];
/// Bytes of a run.
const SIZE: u64 = 2 << 30;
fn main() {
    let folder = std::env::var_os("FOLDER").map_or_else(|| PathBuf::from("."), PathBuf::from);
    let directory = tempfile::tempdir_in(folder).unwrap();
    let at = |name: &str| directory.path().join(name);
    if Command::new("fio").arg("--version").output().is_err() {
        return println!("recorder: no fio here (Debian package fio), so there is nothing to compare with");
    }
    println!("\nrecorder, {RUNS} interleaved runs of {} MiB, chunks of 128 KiB, 64 deep:", SIZE >> 20);
    println!("{:<46}{:>12}{:>12}{:>8}  aim", "", "fio, MB/s", "farlane", "ratio");
    rates(&at("fio"), &at("a.rec"));
    let disk = throughput(&at("fio"), "write");
    processor(&at("a.rec"));
    pauses(&at("a.rec"), disk);
    disk_pauses(&at("disk"));
    pace(&at("a.rec"));
    datagrams(&at("a.rec"), disk);
}

/// The rate at which fio reads or writes, in MB a second.
fn throughput(path: &Path, direction: &str) -> f64 {
    let output = Command::new("fio")
        .args(["--name=a", "--bs=128k", "--ioengine=io_uring", "--direct=1", "--iodepth=64", "--end_fsync=1"])
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--size={SIZE}"))
        .args([&format!("--rw={direction}"), "--output-format=json"])
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["jobs"][0][direction]["bw_bytes"].as_f64().unwrap() / 1e6
}

/// Runs the program to its end. Returns the last event, and megabytes of [`SIZE`] a second.
fn timed(arguments: &[&str]) -> (Value, f64) {
    let start = Instant::now();
    let output = farlane().args(arguments).arg("--json").stderr(Stdio::null()).output().unwrap();
    let rate = SIZE as f64 / 1e6 / start.elapsed().as_secs_f64();
    assert!(output.status.success(), "{arguments:?} failed");
    let text = String::from_utf8(output.stdout).unwrap();
    (serde_json::from_str(text.lines().last().unwrap()).unwrap(), rate)
}

fn rates(floor: &Path, path: &Path) {
    let (file, size) = (path.to_str().unwrap(), SIZE.to_string());
    let record = ["record", "--from", "generate:100GB", "--size", &size, "--to", file, "--force", "--digest"];
    let mut rows: [Vec<[f64; 2]>; 4] = Default::default();
    for _ in 0..RUNS {
        let _ = (std::fs::remove_file(floor), std::fs::remove_file(path));
        let floor_rate = throughput(floor, "write");
        for (row, digest) in (0..).zip(DIGESTS) {
            // As fio's, the file is a new one.
            let _ = std::fs::remove_file(path);
            rows[row].push([floor_rate, timed(&[&record[..], &[digest]].concat()).1]);
        }
        let replayed = timed(&["recording", "replay", file, "--to", "/dev/null", "--speed", "max"]).1;
        rows[3].push([throughput(floor, "read"), replayed]);
    }
    let names = ["written, with SHA-256", "written, with BLAKE3", "written, without", "replayed to nowhere"];
    for (name, row) in names.iter().zip(&rows) {
        let of = |which: usize| median(row.iter().map(|pair| pair[which]));
        let ratio = median(row.iter().map(|[floor, ours]| ours / floor));
        println!("{name:<46}{:>12.0}{:>12.0}{ratio:>8.2}  at least 0.97", of(0), of(1));
    }
}

/// A recorder and the addresses that it reported.
struct Recorder {
    child: Child,
    said: BufReader<std::process::ChildStderr>,
}

impl Recorder {
    fn start(arguments: &[&str]) -> Self {
        let mut command = farlane();
        command.args(["record", "--json", "--force"]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        Self { child, said }
    }

    /// The address behind `words` in its next line.
    fn address(&mut self, words: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.said.read_line(&mut line).unwrap(), 0, "the recorder ended");
            if let Some((_, address)) = line.trim().split_once(words) {
                return address.to_owned();
            }
        }
    }

    /// The system's account of the process, and processor seconds so far.
    fn uses(&self) -> (f64, f64) {
        let id = self.child.id();
        let peak = support::number(&format!("/proc/{id}/status"), "VmHWM:") / 1024.0;
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        (peak, (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0)
    }

    fn signal(&self, name: &str) {
        support::signal(self.child.id(), name);
    }

    fn end(mut self) -> Value {
        let mut text = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        self.child.wait().unwrap();
        serde_json::from_str(text.lines().last().unwrap()).unwrap()
    }
}

/// Processor seconds a gigabyte from TCP to the file, and memory.
fn processor(path: &Path) {
    println!("\n{:<46}{:>12}  aim", "from TCP to the file", "");
    let block = vec![7; 1 << 20];
    for digest in DIGESTS {
        let mut seconds = Vec::new();
        let mut memory = Vec::new();
        for _ in 0..RUNS {
            let to = path.to_str().unwrap();
            let mut recorder =
                Recorder::start(&["--from", "tcp-listen://127.0.0.1:0", "--to", to, "--digest", digest]);
            let address = recorder.address("waiting for a connection at ");
            let mut producer = TcpStream::connect(address).unwrap();
            (0..SIZE >> 20).for_each(|_| producer.write_all(&block).unwrap());
            std::thread::sleep(Duration::from_millis(500));
            let (peak, took) = recorder.uses();
            seconds.push(took / (SIZE as f64 / 1e9));
            memory.push(peak);
            drop(producer);
            assert_eq!(recorder.end()["bytes_lost"], 0);
        }
        let seconds = median(seconds.into_iter());
        println!("  processor seconds a GB, digest {digest:<14}{seconds:>12.2}  under 0.25");
        let memory = median(memory.into_iter());
        println!("  most memory, MiB (the buffer has 32)      {memory:>13.0}  under 64");
    }
}

/// The recorder stands still for 50 ms in each second while 80 % of the disk's rate comes.
fn pauses(path: &Path, disk: f64) {
    let (to, rate) = (path.to_str().unwrap(), format!("{:.0}MB", (disk * 0.8).min(1_000.0)));
    let from = format!("generate:{rate}");
    let arguments = ["--from", &from, "--rate", &rate, "--pause", "200ms", "--to", to, "--digest", "none"];
    let recorder = Recorder::start(&[&arguments[..], &["--for", "5s"]].concat());
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(950));
        recorder.signal("STOP");
        std::thread::sleep(Duration::from_millis(50));
        recorder.signal("CONT");
    }
    let end = recorder.end();
    println!(
        "\nstopped 50 ms in each second at {rate}/s: {} B lost of {}; aim: none",
        end["bytes_lost"], end["bytes_in"]
    );
}

/// A disk stands still for 50 ms in each second while 80 % of its rate comes: a target, which is
/// stopped, takes 250 MB a second at most from its host.
fn disk_pauses(disk: &Path) {
    let (nqn, host) = ("nqn.2026-01.io.farlane:recorder", "nqn.2014-08.org.example:recorder");
    let mut command = farlane();
    command.args(["target", "--json", "--listen", "127.0.0.1:0", "--nqn", nqn]);
    command.args(["--host", &format!("{host},bandwidth=250MB")]);
    command.args(["--namespace", &format!("{},size={SIZE}", disk.display())]);
    let mut target = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(target.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let reported: Value = serde_json::from_str(&line).unwrap();
    let url = format!("nvme-tcp://{}/{nqn}?hostnqn={host}", reported["listening"].as_str().unwrap());
    let arguments = ["--from", "generate:200MB", "--rate", "200MB", "--pause", "200ms", "--to", &url];
    let recorder = Recorder::start(&[&arguments[..], &["--digest", "none", "--for", "5s"]].concat());
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(950));
        support::signal(target.id(), "STOP");
        std::thread::sleep(Duration::from_millis(50));
        support::signal(target.id(), "CONT");
    }
    let end = recorder.end();
    println!(
        "disk of 250 MB/s stopped 50 ms in each second, at 200 MB/s: {} B lost of {}, at most {} B in the \
         buffer; aim: none lost",
        end["bytes_lost"], end["bytes_in"], end["high_water_bytes"]
    );
    let _ = (target.kill(), target.wait());
}

/// How late a replay at its pace sends its data.
fn pace(path: &Path) {
    let to = path.to_str().unwrap();
    assert_eq!(
        Recorder::start(&["--from", "generate:50MB", "--to", to, "--for", "3s"]).end()["event"],
        "end"
    );
    let (report, _) = timed(&["recording", "replay", to, "--to", "/dev/null"]);
    let error = &report["pacing_error_ns"];
    println!(
        "pacing error of a replay: p50 {} ns, p99 {} ns; aim: p99 under 50000",
        error["p50"], error["p99"]
    );
}

/// The highest rate at which 8 streams of datagrams are recorded without loss, and what limits it.
fn datagrams(path: &Path, disk: f64) {
    let output = farlane()
        .args(["recording", "preflight", "--udp", "8", "--digest", "none", "--buffer", "128MiB", "--json"])
        .arg(path)
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let reported: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (rate, length) = (reported["rate"].as_f64().unwrap() / 1e6, &reported["datagram_bytes"]);
    println!(
        "{} UDP streams of datagrams of {length} B without loss: {rate:.0} MB/s together; limit: the {} (the \
         disk takes {disk:.0} MB/s)",
        reported["streams"],
        reported["limit"]["part"].as_str().unwrap()
    );
}
