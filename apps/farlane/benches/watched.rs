//! The cost of being watched: commands a second of a far end and of a target that are scraped every
//! second, as ratios to those of the same process without scrapes, in runs that take turns; and the
//! effect on a host at work of being one of ten thousand, with scrapes and without. The word
//! `crowd` has only the latter measured.
//!
//! No figure here is a test. Another process on this machine moves each of them.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use serde_json::Value;

use support::{farlane, median, number};

const RUNS: usize = 7;
const NQN: &str = "nqn.2026-01.io.farlane:watched";
/// Hosts that a target is to know.
const HOSTS: usize = 10_000;
/// Scrapes of a target with that many hosts.
const SCRAPES: usize = 20;
/// Turns of the loads that say what the host at work notices; the median of each figure counts.
const TURNS: usize = 5;

/// A daemon with figures.
struct Daemon {
    process: Child,
    address: String,
    figures: String,
}

impl Daemon {
    fn start(kind: &str, options: &[&str]) -> Self {
        let figures = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut command = farlane();
        command.args([kind, "--json", "--listen", "127.0.0.1:0", "--ram", "64MiB", "--metrics", &figures]);
        let mut process = command.args(options).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        Self { process, address: said["listening"].as_str().unwrap().to_owned(), figures }
    }

    /// Asks for the figures once; the page, and how long it took.
    fn scrape(figures: &str) -> (String, Duration) {
        let (begun, mut page) = (Instant::now(), String::new());
        let mut stream = TcpStream::connect(figures).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        stream.read_to_string(&mut page).unwrap();
        (page, begun.elapsed())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("control");
    let control = control.to_str().unwrap();
    let target = Daemon::start("target", &["--nqn", NQN, "--control", control]);
    let url = format!("nvme-tcp://{}/{NQN}", target.address);
    if !std::env::args().any(|word| word == "crowd") {
        println!("running {RUNS} pairs of measurements, scraped and not …");
        let far = Daemon::start("export", &[]);
        ratio("far end", &far, &format!("tcp://{}", far.address));
        ratio("target", &target, &url);
    }
    crowd(&target, &url, control);
}

/// Prints the rate at depth 32 while the daemon is scraped, over the rate while it is not.
fn ratio(name: &str, daemon: &Daemon, url: &str) {
    let pairs: Vec<_> = (0..RUNS).map(|_| (iops(url, None), iops(url, Some(&daemon.figures)))).collect();
    let alone = median(pairs.iter().map(|(alone, _)| *alone));
    let ratio = median(pairs.iter().map(|(alone, scraped)| scraped / alone));
    println!("{name}: {alone:.0} commands a second; scraped every second {ratio:.3} of that");
}

/// Commands a second at depth 32, while `scraped` is asked for its figures every second.
fn iops(url: &str, scraped: Option<&String>) -> f64 {
    let stop = Arc::new(AtomicBool::new(false));
    let scraping = scraped.cloned().map(|figures| {
        let stop = Arc::clone(&stop);
        spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                Daemon::scrape(&figures);
                sleep(Duration::from_secs(1));
            }
        })
    });
    let load = ["--rw", "randread", "--bs", "4k", "--iodepth", "32", "--runtime", "3s", "--json"];
    let output = farlane().args(["bench", url]).args(load).output().unwrap();
    stop.store(true, Ordering::Relaxed);
    if let Some(scraping) = scraping {
        scraping.join().unwrap();
    }
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["iops"].as_f64().unwrap()
}

/// Has many hosts connect to the target, and prints what that takes, how long its loop was kept by
/// scrapes, and what a host at work notices.
fn crowd(target: &Daemon, url: &str, control: &str) {
    // One descriptor for each host here, and one in the target.
    live::sys::descriptors::prepare(HOSTS as u64 + 100).unwrap();
    let resident = || number(&format!("/proc/{}/status", target.process.id()), "VmRSS:") * 1024.0;
    println!("a host at work, alone: {}", latencies(url));
    let (before, begun) = (resident(), Instant::now());
    let (mut hosts, mut slowest) = (Vec::new(), Duration::ZERO);
    for number in 0..HOSTS {
        let asked = Instant::now();
        match host(&target.address, number) {
            Ok(host) => hosts.push(host),
            Err(error) => {
                println!("the target takes no more hosts: {error}");
                // Room for the host at work.
                hosts.truncate(hosts.len() - 2);
                break;
            }
        }
        slowest = slowest.max(asked.elapsed());
    }
    println!(
        "{} hosts have connected in {:.1} s, the slowest in {:.1} ms; {:.1} KiB resident for each",
        hosts.len(),
        begun.elapsed().as_secs_f64(),
        slowest.as_secs_f64() * 1e3,
        (resident() - before) / hosts.len() as f64 / 1024.0
    );
    let mut lags = Vec::new();
    let mut took = Vec::new();
    for _ in 0..SCRAPES {
        let (page, time) = Daemon::scrape(&target.figures);
        assert!(page.matches("farlane_host_queues{").count() >= hosts.len(), "each host has metrics");
        let lag = page.lines().find_map(|line| line.strip_prefix("farlane_loop_lag_seconds{core=\"0\"} "));
        lags.push(lag.unwrap().parse::<f64>().unwrap() * 1e6);
        took.push(time.as_secs_f64() * 1e3);
    }
    let most = lags.iter().copied().fold(0.0, f64::max);
    println!(
        "target with {} hosts: a scrape takes {:.0} ms; the loop took up a request after {:.0} us, {most:.0} us at most",
        hosts.len(),
        median(took.into_iter()),
        median(lags.into_iter())
    );
    println!("a host at work, among them: {}", latencies(url));
    println!("... scraped all the time: {}", meanwhile(url, || drop(Daemon::scrape(&target.figures))));
    // The requests of top, list and status.
    let status = || drop(live::drivers::control::ask(Path::new(control), r#"{"command":"status"}"#).unwrap());
    println!("... asked for its status all the time: {}", meanwhile(url, status));
}

/// The latencies of a host at work while another thread does `look` again and again.
fn meanwhile(url: &str, look: impl Fn() + Sync) -> String {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                look();
                sleep(Duration::from_millis(10));
            }
        });
        let noticed = latencies(url);
        stop.store(true, Ordering::Relaxed);
        noticed
    })
}

/// The latencies of reads at depth 1, as text.
fn latencies(url: &str) -> String {
    let load = ["--rw", "randread", "--bs", "4k", "--iodepth", "1", "--runtime", "2s", "--json"];
    let mut reports = Vec::new();
    for _ in 0..TURNS {
        let output = farlane().args(["bench", url]).args(load).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        reports.push(report);
    }
    let of = |name: &str| median(reports.iter().map(|one| one["latency_ns"][name].as_f64().unwrap() / 1e3));
    format!("p50 {:.0}, p99 {:.0}, p99.9 {:.0}, max {:.0} us", of("p50"), of("p99"), of("p999"), of("max"))
}

/// A host with an Admin Queue, which stays while the stream does (NVMe/TCP: ICReq, Connect).
fn host(address: &str, number: usize) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    let mut request = [0; 128];
    (request[2], request[4]) = (128, 128);
    stream.write_all(&request)?;
    stream.read_exact(&mut [0; 128])?;
    // The capsule: a header of 8 bytes, the entry of 64, and 1,024 bytes of data.
    let mut capsule = [0; 72 + 1024];
    (capsule[0], capsule[2], capsule[3]) = (4, 72, 72);
    capsule[4..8].copy_from_slice(&(72_u32 + 1024).to_le_bytes());
    let (entry, data) = capsule[8..].split_at_mut(64);
    // Fabrics with an SGL, Connect, data in the capsule, 32 entries, no Keep Alive.
    (entry[0], entry[1], entry[4], entry[39], entry[44]) = (0x7f, 0x40, 1, 1, 31);
    entry[32..36].copy_from_slice(&1024_u32.to_le_bytes());
    data[..8].copy_from_slice(&(number as u64 + 1).to_le_bytes());
    data[16..18].copy_from_slice(&u16::MAX.to_le_bytes());
    data[256..256 + NQN.len()].copy_from_slice(NQN.as_bytes());
    let name = format!("nqn.2026-01.io.farlane:host-{number}");
    data[512..512 + name.len()].copy_from_slice(name.as_bytes());
    stream.write_all(&capsule)?;
    let mut answer = [0; 24];
    stream.read_exact(&mut answer)?;
    // The status is the last half word, above the phase bit.
    match u16::from_le_bytes([answer[22], answer[23]]) >> 1 {
        0 => Ok(stream),
        status => Err(std::io::Error::other(format!("Connect: status {status:#x}"))),
    }
}
