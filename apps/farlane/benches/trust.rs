//! The cost of encryption: TLS beside the plain tunnel, and beside its cipher alone.
//!
//! `make bench` runs this. Figures are medians over runs that interleave the two. No figure here is
//! a test.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]

mod support;

use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Buffer, Pool};
use live::carrier::Acceptor;
use live::carrier::Received;
use live::carrier::identity::{Identity, Pin};
use live::carrier::route::{Route, Trust};
use live::carrier::tcp::{Dialer, Dialled, Listener, Options};
use live::sys::clock::Clock;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde_json::Value;

use support::ends::Listening;
use support::{farlane, median, number};

const RUNS: usize = 7;
/// Number of connections of which each end is idle.
const IDLE: usize = 200;
/// Bytes of the longest record of TLS.
const RECORD: usize = 16 << 10;

fn main() {
    let directory = tempfile::tempdir().unwrap();
    let key = format!("{}/key.pem", directory.path().display());
    let options = ["--ram", "16MiB", "--key", &key, "--spin", "10s", "--cpu", "0"];
    let export = Listening::export(&options);
    // Any key: a host's own key need not be known.
    let (plain, sealed) = (export.url(), format!("{}?key=any", export.url()));
    println!("{:<46}{:>12}{:>12}{:>8}  aim", "median ns, 4 KiB, depth 1", "plain", "TLS", "ratio");
    for workload in ["randread", "randwrite"] {
        let pairs: Vec<[f64; 2]> = (0..RUNS)
            .map(|run| {
                let latency =
                    |url: &str| bench(url, workload, "4k", "1")["latency_ns"]["p50"].as_f64().unwrap();
                in_turn(run, || latency(&plain), || latency(&sealed))
            })
            .collect();
        row(workload, &pairs, "at most 1.3");
    }
    println!("{:<46}{:>12}{:>12}{:>8}  aim", "MiB/s, 128 KiB, depth 4", "cipher", "TLS", "ratio");
    for workload in ["read", "write"] {
        let pairs: Vec<[f64; 2]> = (0..RUNS)
            .map(|run| {
                let rate = || {
                    let report = bench(&sealed, workload, "128k", "4");
                    report["mib_s"].as_f64().unwrap()
                };
                in_turn(run, cipher, rate)
            })
            .collect();
        row(workload, &pairs, "at least 0.60");
    }
    drop(export);
    idle();
    nvme_tcp(directory.path().to_str().unwrap());
}

/// Prints what TLS costs a host of NVMe/TCP.
fn nvme_tcp(directory: &str) {
    let (mut target, plain, sealed) = target(directory);
    println!("{:<46}{:>12}{:>12}{:>8}  aim", "NVMe/TCP, median ns, 4 KiB, depth 1", "plain", "TLS", "ratio");
    for workload in ["randread", "randwrite"] {
        let latency = |url: &str| bench(url, workload, "4k", "1")["latency_ns"]["p50"].as_f64().unwrap();
        let pairs: Vec<_> =
            (0..RUNS).map(|run| in_turn(run, || latency(&plain), || latency(&sealed))).collect();
        row(workload, &pairs, "at most 1.3");
    }
    println!("{:<46}{:>12}{:>12}{:>8}  aim", "NVMe/TCP, MiB/s, 128 KiB, depth 4", "plain", "TLS", "ratio");
    for workload in ["read", "write"] {
        let rate = |url: &str| bench(url, workload, "128k", "4")["mib_s"].as_f64().unwrap();
        let pairs: Vec<_> = (0..RUNS).map(|run| in_turn(run, || rate(&plain), || rate(&sealed))).collect();
        row(workload, &pairs, "at least 0.60");
    }
    target.kill().unwrap();
    target.wait().unwrap();
}

/// A target with a host that has a key and one that has none: its process, and the URLs of both.
fn target(directory: &str) -> (Child, String, String) {
    let (nqn, host) = ("nqn.2026-01.io.farlane:disk", "nqn.2014-08.org.example");
    let (key, config) = (format!("{directory}/host.tls"), format!("{directory}/target.toml"));
    assert!(farlane().args(["setup", "key", "tls", &key]).stdout(Stdio::null()).status().unwrap().success());
    let text = format!(
        "[[port]]\nlisten = \"127.0.0.1:0\"\n[[subsystem]]\nnqn = \"{nqn}\"\nhosts = [\"{host}:plain\"]\n\
         [[subsystem.host]]\nnqn = \"{host}:sealed\"\ntls-key-file = \"{key}\"\n\
         [[subsystem.namespace]]\nram = \"16MiB\"\n"
    );
    std::fs::write(&config, text).unwrap();
    let (target, address) = announced(farlane().args([
        "target",
        "--json",
        "--config",
        &config,
        "--control",
        &format!("{directory}/control"),
        "--spin",
        "10s",
        "--cpu",
        "0",
    ]));
    // Neither has digests, so that the cipher alone differs.
    let url = |name: &str| format!("nvme-tcp://{address}/{nqn}?hdgst=off&ddgst=off&hostnqn={host}:{name}");
    (target, url("plain"), format!("{}&tls-key-file={key}", url("sealed")))
}

/// Starts a server that announces its address in JSON. Returns its process and the address.
fn announced(command: &mut Command) -> (Child, String) {
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said: Value = serde_json::from_str(&line).unwrap();
    (server, said["listening"].as_str().unwrap().to_owned())
}

/// Prints the cost of idle connections that both ends have proved.
fn idle() {
    let identity = Arc::new(Identity::generate().unwrap());
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let listener = listener.with_tls(Acceptor::new(&identity).unwrap());
    let trust = Some(Trust { identity, pin: Pin::Any });
    let (addresses, tcp) = (vec![listener.address()], Options::default());
    let route = Route {
        addresses,
        others: Vec::new(),
        tcp,
        quic: None,
        trust,
        digests: false,
        shm: None,
        datagrams: None,
    };
    let resident = || number("/proc/self/status", "VmRSS:");
    let (clock, mut pool, mut open) = (Clock::start(), Pool::default(), Vec::new());
    let mut meet = || {
        let mut dialer = Dialer::along(&route, &route.addresses, clock.now());
        let mut far = None;
        loop {
            far = far.or_else(|| listener.accept().unwrap());
            if let Some(far) = &mut far {
                let _ = far.receive(&mut pool);
            }
            if let Dialled::Connected(mut near) = dialer.poll(clock.now()) {
                let mut far = far.unwrap();
                near.send(Buffer::copy_from_slice(&[0; 4096])).unwrap();
                near.flush().unwrap();
                while far.receive(&mut pool).unwrap() == Received::Nothing {}
                let _ = far.receive(&mut pool);
                return [near, far];
            }
        }
    };
    open.extend((0..20).flat_map(|_| meet()));
    let before = resident();
    open.extend((0..IDLE).flat_map(|_| meet()));
    let each = (resident() - before) / (2 * IDLE) as f64;
    println!("an idle connection, KiB {each:>46.0}  aim: under 64");
}

/// Measures both; every other run, the second one goes first.
fn in_turn(run: usize, one: impl Fn() -> f64, other: impl Fn() -> f64) -> [f64; 2] {
    if run.is_multiple_of(2) {
        let first = one();
        [first, other()]
    } else {
        let second = other();
        [one(), second]
    }
}

fn row(name: &str, pairs: &[[f64; 2]], aim: &str) {
    let [one, other] = [0, 1].map(|which| median(pairs.iter().map(|pair| pair[which])));
    let ratio = median(pairs.iter().map(|[one, other]| other / one));
    println!("{name:<46}{one:>12.0}{other:>12.0}{ratio:>8.2}  {aim}");
}

fn bench(url: &str, workload: &str, bytes: &str, depth: &str) -> Value {
    let output = farlane()
        .args(["bench", url, "--json", "--cpu", "1", "--spin", "10s", "--runtime", "1s"])
        .args(["--rw", workload, "--bs", bytes, "--iodepth", depth])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "the load failed");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// MiB a second that AES-256-GCM seals in records on one core.
fn cipher() -> f64 {
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &[7; 32]).unwrap());
    let mut record = vec![0; RECORD];
    let (start, mut sealed) = (Instant::now(), 0.0);
    while start.elapsed() < Duration::from_millis(500) {
        for counter in 0..64_u8 {
            let mut nonce = [0; NONCE_LEN];
            nonce[0] = counter;
            let nonce = Nonce::assume_unique_for_key(nonce);
            let _ = key.seal_in_place_separate_tag(nonce, Aad::from([23; 5]), &mut record).unwrap();
            sealed += 1.0;
        }
    }
    sealed * 16.0 / 1024.0 / start.elapsed().as_secs_f64()
}
