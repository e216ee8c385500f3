//! The cost of NVMe/TCP between two processes of one machine, as ratios to a floor of the same run:
//! raw TCP round trips of the same sizes, and a raw TCP stream, with both sides spinning. Also the
//! cost of idle connections.
//!
//! Figures are medians over runs that interleave the floor and NVMe/TCP. No figure here is a test.
//! Another process on one of the two processors lowers rates by far more than medians; the rate
//! that follows from the median latency is printed beside each.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

use live::carrier::floor::{Client, Server};
use live::reactor::pin;
use serde_json::Value;

use support::{farlane, idle_percent, median, number};

const RUNS: usize = 5;
/// Number of round trips that measure a floor.
const TRIPS: u32 = 20_000;
/// Bytes of a stream.
const STREAM: u32 = 1_000 << 20;
/// Bytes of a chunk of a stream: of a long read, and of the longest.
const CHUNK: u32 = 128 << 10;
const LONGEST: u32 = 1 << 20;
/// Length in bytes of a command capsule without data.
const COMMAND: u32 = 72;
/// Length in bytes of the header of a data PDU.
const DATA_HEADER: u32 = 24;
/// Length in bytes of a response capsule.
const RESPONSE: u32 = 24;
/// Bytes of data of a 4 KiB command.
const PAGE: u32 = 4096;
/// Round trip, in microseconds, for which the aimed-at rates are given. For other round trips,
/// rates are scaled in proportion.
const TRIP_US: f64 = 11.0;
/// The namespace stays in the caches, so that the path is measured and not the memory.
const MEDIUM: &str = "1MiB";
const NQN: &str = "nqn.2026-01.io.farlane:speed";
const CONNECTIONS: u32 = 1_000;

struct Run {
    read_trip_us: f64,
    write_trip_us: f64,
    stream_mib_s: f64,
    read: Value,
    write: Value,
    deep: Value,
    deeper: Value,
    /// Reads at half the rate that the deepest load reached.
    half: Value,
    large: Value,
    longest_stream_mib_s: f64,
    /// Without digests: reads and writes of 1 MiB, in order.
    longest: [Value; 2],
    /// Without digests: reads at a depth of 1, and at 32.
    plain: [Value; 2],
}

fn main() {
    println!("running {RUNS} interleaved measurements of raw TCP and NVMe/TCP …");
    let directory = tempfile::tempdir().unwrap();
    let (mut target, address) =
        target(&directory.path().join("control"), &["--spin", "10s", "--cpu", "0", "--max-transfer", "1MiB"]);
    let runs: Vec<Run> = (0..RUNS).map(|_| run(address)).collect();
    target.kill().unwrap();
    target.wait().unwrap();
    println!("\n{:<46}{:>12}{:>12}{:>8}  aim", "", "raw TCP", "NVMe/TCP", "ratio");
    let us = |report: &Value| report["latency_ns"]["p50"].as_f64().unwrap() / 1e3;
    row("4 KiB read, depth 1, median µs", "at most 1.15", &runs, |run| (run.read_trip_us, us(&run.read)));
    row("4 KiB write, depth 1, median µs", "at most 1.15", &runs, |run| (run.write_trip_us, us(&run.write)));
    let mib_s = |run: &Run| (run.stream_mib_s, run.large["mib_s"].as_f64().unwrap());
    row("128 KiB reads, depth 8, MiB/s", "at least 0.80", &runs, mib_s);
    row("  by the median latency", "", &runs, |run| (run.stream_mib_s, rate(&run.large, 8) / 8.0));
    for (index, name) in
        ["1 MiB reads, depth 4, MiB/s", "1 MiB writes, depth 4, MiB/s"].into_iter().enumerate()
    {
        let rates = |run: &Run| (run.longest_stream_mib_s, run.longest[index]["mib_s"].as_f64().unwrap());
        row(name, "at least 0.95", &runs, rates);
    }
    println!("\n{:<46}{:>12}{:>24}  aim", "4 KiB random reads a second", "", "at a trip of 11 µs");
    rates("depth 32", "450,000", &runs, |run| run.deep["iops"].as_f64().unwrap());
    rates("  by the median latency", "", &runs, |run| rate(&run.deep, 32));
    rates("depth 128", "600,000", &runs, |run| run.deeper["iops"].as_f64().unwrap());
    rates("  by the median latency", "", &runs, |run| rate(&run.deeper, 128));
    println!(
        "\n{:<46}{:>12}{:>12}{:>8}  aim",
        "4 KiB random reads, median µs", "no digests", "digests", "ratio"
    );
    row("depth 1", "at most 1.03", &runs, |run| (us(&run.plain[0]), us(&run.read)));
    row("depth 32", "at most 1.03", &runs, |run| (us(&run.plain[1]), us(&run.deep)));
    println!("\n{:<46}{:>12}{:>12}{:>12}", "4 KiB random reads, latency in µs", "a second", "p50", "p99.9");
    latency("depth 32", &runs, |run| &run.deep);
    latency("half of what depth 128 gives", &runs, |run| &run.half);
    idle(&directory.path().join("idle"));
}

/// Prints a line with the median of the runs' ratios, not the ratio of their medians, since the
/// machine's mood changes from run to run.
fn row(name: &str, aim: &str, runs: &[Run], of: impl Fn(&Run) -> (f64, f64)) {
    let floor = median(runs.iter().map(|run| of(run).0));
    let subject = median(runs.iter().map(|run| of(run).1));
    let ratio = median(runs.iter().map(|run| of(run).1 / of(run).0));
    println!("{name:<46}{floor:>12.1}{subject:>12.1}{ratio:>8.2}  {aim}");
}

/// Prints a line with a rate, and with that rate scaled to the floor of its run.
fn rates(name: &str, aim: &str, runs: &[Run], of: impl Fn(&Run) -> f64) {
    let plain = median(runs.iter().map(&of));
    let scaled = median(runs.iter().map(|run| of(run) * run.read_trip_us / TRIP_US));
    println!("{name:<46}{plain:>12.0}{scaled:>24.0}  {aim}");
}

/// Prints a line with a load's rate and its latencies.
fn latency(name: &str, runs: &[Run], of: impl Fn(&Run) -> &Value) {
    let [rate, p50, p999] = [
        median(runs.iter().map(|run| of(run)["iops"].as_f64().unwrap())),
        median(runs.iter().map(|run| of(run)["latency_ns"]["p50"].as_f64().unwrap() / 1e3)),
        median(runs.iter().map(|run| of(run)["latency_ns"]["p999"].as_f64().unwrap() / 1e3)),
    ];
    println!("{name:<46}{rate:>12.0}{p50:>12.1}{p999:>12.1}");
}

/// The commands per second that follow from the median latency with `depth` commands under way.
fn rate(report: &Value, depth: u32) -> f64 {
    f64::from(depth) * 1e9 / report["latency_ns"]["p50"].as_f64().unwrap()
}

/// Starts a target. Returns its process and the address that it listens on.
fn target(control: &std::path::Path, options: &[&str]) -> (Child, SocketAddr) {
    let mut target = farlane()
        .args(["target", "--json", "--listen", "127.0.0.1:0", "--nqn", NQN, "--ram", MEDIUM])
        .args(options)
        .arg("--control")
        .arg(control)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(target.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said: Value = serde_json::from_str(&line).unwrap();
    (target, said["listening"].as_str().unwrap().parse().unwrap())
}

fn run(address: SocketAddr) -> Run {
    let (read_trip_us, write_trip_us) = trips_us();
    let plain = |depth| bench_by(address, "&hdgst=off&ddgst=off", ("randread", "4k", depth), &[]);
    let plain_1 = plain(1);
    let read = bench(address, "randread", "4k", 1, &[]);
    let write = bench(address, "randwrite", "4k", 1, &[]);
    let plain = [plain_1, plain(32)];
    let deep = bench(address, "randread", "4k", 32, &[]);
    let deeper = bench(address, "randread", "4k", 128, &[]);
    let half = format!("{:.0}", deeper["iops"].as_f64().unwrap() / 2.0);
    let half = bench(address, "randread", "4k", 128, &["--rate_iops", &half]);
    let [stream_mib_s, longest_stream_mib_s] = [CHUNK, LONGEST].map(stream_mib_s);
    let large = bench(address, "randread", "128k", 8, &[]);
    let longest =
        ["read", "write"].map(|workload| bench_by(address, "&hdgst=off&ddgst=off", (workload, "1m", 4), &[]));
    Run {
        read_trip_us,
        write_trip_us,
        stream_mib_s,
        read,
        write,
        deep,
        deeper,
        half,
        large,
        longest_stream_mib_s,
        longest,
        plain,
    }
}

fn bench(address: SocketAddr, workload: &str, bytes: &str, depth: u32, more: &[&str]) -> Value {
    bench_by(address, "", (workload, bytes, depth), more)
}

/// Runs `farlane bench` with `query` added to the query of the URL.
fn bench_by(
    address: SocketAddr,
    query: &str,
    (workload, bytes, depth): (&str, &str, u32),
    more: &[&str],
) -> Value {
    let output = farlane()
        .args(["bench", &format!("nvme-tcp://{address}/{NQN}?queue-size=256{query}"), "--json"])
        .args(["--cpu", "1", "--spin", "10s", "--rw", workload, "--bs", bytes])
        .args(["--iodepth", &depth.to_string(), "--runtime", "1s"])
        .args(more)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "the load failed");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The result of `measure` with a client of a floor server, each on a processor of its own.
fn floor<T: Send + 'static>(measure: impl FnOnce(&mut Client) -> T + Send + 'static) -> T {
    let server = Server::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = server.address().unwrap();
    let far = std::thread::spawn(move || {
        pin(0).unwrap();
        server.serve_one().unwrap();
    });
    let near = std::thread::spawn(move || {
        pin(1).unwrap();
        measure(&mut Client::connect(address).unwrap())
    });
    let measured = near.join().unwrap();
    far.join().unwrap();
    measured
}

/// The medians of raw TCP round trips with the sizes of a 4 KiB read and of a 4 KiB write, in
/// microseconds.
fn trips_us() -> (f64, f64) {
    floor(|client| {
        let mut trip = |request, reply| {
            // The first round trips warm the caches.
            client.ping_pong(request, reply, TRIPS / 10).unwrap();
            let times = client.ping_pong(request, reply, TRIPS).unwrap();
            median(times.iter().map(|time| Duration::from(*time).as_secs_f64() * 1e6))
        };
        (trip(COMMAND, PAGE + DATA_HEADER), trip(COMMAND + PAGE, RESPONSE))
    })
}

/// The rate of a raw TCP stream in chunks of `chunk` bytes, in MiB/s.
fn stream_mib_s(chunk: u32) -> f64 {
    floor(move |client| {
        client.stream(chunk, STREAM / chunk / 10).unwrap();
        let time = client.stream(chunk, STREAM / chunk).unwrap();
        f64::from(STREAM >> 20) / Duration::from(time).as_secs_f64()
    })
}

/// Prints the cost of Admin Queues that are connected and idle.
fn idle(control: &std::path::Path) {
    let (mut target, address) = target(control, &[]);
    let resident = |target: &Child| number(&format!("/proc/{}/status", target.id()), "VmRSS:");
    // The shared parts of all connections exist after the first.
    let _first = connect(address);
    let before = resident(&target);
    let connections: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(address)).collect();
    let each = (resident(&target) - before) / f64::from(CONNECTIONS);
    println!("\n{CONNECTIONS} idle Admin Queues:");
    println!("  memory resident, each, KiB {each:>30.1}  aim: under 64");
    println!("  processor time {:>41.2}%  aim: none", idle_percent(&target));
    drop(connections);
    target.kill().unwrap();
    target.wait().unwrap();
}

/// Opens a connection and connects its Admin Queue.
fn connect(address: SocketAddr) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    // ICReq: PDU-Type 0, HLEN and PLEN 128; format 0, no digests, one R2T at a time.
    let mut request = [0; 128];
    request[2] = 128;
    request[4] = 128;
    socket.write_all(&request).unwrap();
    socket.read_exact(&mut request).unwrap();
    // A command capsule with 1 KiB in it: HLEN and PDO 72, PLEN 1096.
    let mut capsule = [0; 72 + 1024];
    capsule[0] = 4;
    (capsule[2], capsule[3]) = (72, 72);
    capsule[4..8].copy_from_slice(&1096_u32.to_le_bytes());
    // Connect: a Fabrics command with an SGL of data in the capsule; queue 0 of 32 entries, any
    // controller.
    let entry = &mut capsule[8..72];
    (entry[0], entry[1], entry[4]) = (0x7F, 0x40, 1);
    entry[32..36].copy_from_slice(&1024_u32.to_le_bytes());
    entry[39] = 1;
    entry[44] = 31;
    let data = &mut capsule[72..];
    data[0] = 1;
    data[16..18].fill(0xFF);
    data[256..256 + NQN.len()].copy_from_slice(NQN.as_bytes());
    let host = b"nqn.2026-01.io.farlane:host";
    data[512..512 + host.len()].copy_from_slice(host);
    socket.write_all(&capsule).unwrap();
    let mut response = [0; 24];
    socket.read_exact(&mut response).unwrap();
    assert_eq!(response[22..24], [0, 0], "not connected: {response:x?}");
    socket
}
