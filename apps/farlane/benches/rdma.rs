//! The cost of RDMA in software, as ratios to floors of the same run: NVMe over iWARP beside
//! NVMe/TCP over loopback, and RoCE beside a UDP ping-pong of the same sizes over a veth pair
//! between two network namespaces. Both sides spin, each on a processor of its own.
//!
//! Figures are medians over runs that interleave floor and subject. No figure here is a test. Where
//! no network namespace can be made, the rows of RoCE are left out.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]

mod support;

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use live::reactor::pin;
use serde_json::Value;

use support::{farlane, median};

const RUNS: usize = 5;
/// Number of round trips of a ping-pong.
const TRIPS: u32 = 20_000;
const NQN: &str = "nqn.2026-01.io.farlane:speed";
/// Addresses of the two ends of the veth pair.
const NEAR: &str = "10.78.0.1";
const FAR: &str = "10.78.0.2";
/// Port of the server that measures RoCE, and of the target of NVMe.
const PORTS: [u16; 2] = [18_515, 4420];
/// Bytes of headers and CRC of a packet with a message, with a read's request, and with the first
/// part of an answer to a read.
const MESSAGE: usize = 16;
const REQUEST: usize = 32;
const ANSWER: usize = 20;
const PAGE: usize = 4096;
/// Bytes of a command, and of a message that is measured.
const COMMAND: usize = 64;

/// A process that is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["udp-serve"] => serve(),
        ["udp-ping", request, reply] => ping(request.parse().unwrap(), reply.parse().unwrap()),
        _ => {
            iwarp();
            roce();
        }
    }
}

/// Prints a line with the median of the runs' ratios.
fn row(name: &str, aim: &str, runs: &[(f64, f64)]) {
    let [floor, subject, ratio] = [
        median(runs.iter().map(|run| run.0)),
        median(runs.iter().map(|run| run.1)),
        median(runs.iter().map(|run| run.1 / run.0)),
    ];
    println!("{name:<46}{floor:>12.1}{subject:>12.1}{ratio:>8.2}  {aim}");
}

fn heading(floor: &str, subject: &str) {
    println!("\n{:<46}{floor:>12}{subject:>12}{:>8}  aim", "", "ratio");
}

/// Starts a program that prints a line of JSON for each port. Returns the addresses of the ports.
fn start(mut command: Command, ports: usize) -> (Running, Vec<String>) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(ports);
    let address = |line: String| -> String {
        serde_json::from_str::<Value>(&line).unwrap()["listening"].as_str().unwrap().to_owned()
    };
    let addresses = lines.map(|line| address(line.unwrap())).collect();
    (Running(child), addresses)
}

/// Runs a program that prints JSON.
fn report_of(mut command: Command) -> Value {
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?} failed");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn target(mut command: Command, control: &Path, ports: &[&str]) -> (Running, Vec<String>) {
    command.args(["target", "--json", "--insecure", "--nqn", NQN, "--ram", "1MiB", "--cpu", "0"]);
    command.args(["--spin", "10s", "--control"]).arg(control).args(ports);
    start(command, ports.len() / 2)
}

fn bench(mut command: Command, url: &str, bytes: &str, depth: u32) -> Value {
    command.args(["bench", url, "--json", "--cpu", "1", "--spin", "10s", "--rw", "randread"]);
    command.args(["--bs", bytes, "--iodepth", &depth.to_string(), "--runtime", "1s"]);
    report_of(command)
}

fn median_us(report: &Value) -> f64 {
    report["latency_ns"]["p50"].as_f64().unwrap() / 1e3
}

/// NVMe over iWARP beside NVMe/TCP, to one target.
fn iwarp() {
    println!("running {RUNS} interleaved measurements of NVMe/TCP and iWARP over loopback …");
    let directory = tempfile::tempdir().unwrap();
    let ports = ["--listen", "127.0.0.1:0", "--rdma", "iwarp,127.0.0.1:0"];
    let (_target, addresses) = target(farlane(), &directory.path().join("control"), &ports);
    let urls = [
        format!("nvme-tcp://{}/{NQN}?queue-size=256", addresses[0]),
        format!("nvme-rdma://{}/{NQN}?queue-size=256&provider=iwarp", addresses[1]),
    ];
    let pair = |bytes, depth, of: fn(&Value) -> f64| {
        let [floor, subject] = [0, 1].map(|index| of(&bench(farlane(), &urls[index], bytes, depth)));
        (floor, subject)
    };
    let mut rows = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..RUNS {
        rows[0].push(pair("4k", 1, median_us));
        rows[1].push(pair("4k", 32, |report| report["iops"].as_f64().unwrap() / 1e3));
        rows[2].push(pair("128k", 8, |report| report["mib_s"].as_f64().unwrap()));
    }
    heading("NVMe/TCP", "iWARP");
    row("4 KiB read, depth 1, median µs", "at most 1.10", &rows[0]);
    row("4 KiB reads, depth 32, thousands a second", "at least 0.90", &rows[1]);
    row("128 KiB reads, depth 8, MiB/s", "at least 0.90", &rows[2]);
}

/// A network namespace, as long as a process that sleeps in it is there.
struct Namespace(Running);

impl Namespace {
    fn make() -> Option<Self> {
        let mut command = Command::new("unshare");
        let sleeper = Running(command.args(["--net", "sleep", "infinity"]).spawn().ok()?);
        let own = std::fs::read_link("/proc/self/ns/net").ok()?;
        let begun = Instant::now();
        let mut one = Self(sleeper);
        while std::fs::read_link(one.path()).map_or(true, |there| there == own) {
            let has_ended = one.0.0.try_wait().map_or(true, |ended| ended.is_some());
            if has_ended || begun.elapsed() > Duration::from_secs(10) {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Some(one)
    }

    fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.0.0.id())
    }

    fn command(&self, program: &std::ffi::OsStr) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path())).arg(program);
        command
    }

    fn ip(&self, arguments: &str) -> Option<()> {
        let status = self.command("ip".as_ref()).args(arguments.split(' ')).status().ok()?;
        status.success().then_some(())
    }

    fn farlane(&self) -> Command {
        self.command(farlane().get_program())
    }

    fn itself(&self) -> Command {
        self.command(std::env::current_exe().unwrap().as_os_str())
    }
}

/// Two namespaces with a veth pair between them that takes packets of 4 KiB.
fn veth() -> Option<[Namespace; 2]> {
    let [near, far] = [Namespace::make()?, Namespace::make()?];
    let to = far.0.0.id();
    near.ip(&format!("link add veth0 mtu 9000 type veth peer name veth0 mtu 9000 netns {to}"))?;
    for (one, address) in [(&near, NEAR), (&far, FAR)] {
        one.ip(&format!("addr add {address}/24 dev veth0"))?;
        one.ip("link set veth0 up")?;
    }
    Some([near, far])
}

/// RoCE beside UDP.
fn roce() {
    let Some([near, far]) = veth() else {
        println!("\nno network namespaces can be made here: RoCE is not measured");
        return;
    };
    println!("\nrunning {RUNS} interleaved measurements of UDP and RoCE over a veth pair …");
    let directory = tempfile::tempdir().unwrap();
    let [measured, offered] = PORTS.map(|port| format!("{FAR}:{port}"));
    let udp = |sizes: (usize, usize)| {
        let mut command = far.itself();
        let _server = Running(command.arg("udp-serve").spawn().unwrap());
        std::thread::sleep(Duration::from_millis(200));
        let mut command = near.itself();
        command.args(["udp-ping", &sizes.0.to_string(), &sizes.1.to_string()]);
        report_of(command).as_f64().unwrap()
    };
    // One program at a time has RoCE at an address, so each measurement starts its own.
    let verb = |verb: &str, bytes: usize| {
        let mut command = far.farlane();
        command.args(["measure", "rdma", "serve", "--json", "--provider", "roce", "--listen", &measured]);
        command.args(["--cpu", "0", "--spin", "10s"]);
        let (_server, _) = start(command, 1);
        let mut command = near.farlane();
        command.args(["measure", "rdma", "ping", &measured, "--provider", "roce", "--verb", verb, "--json"]);
        command.args(["--size", &bytes.to_string(), "--iters", &TRIPS.to_string()]);
        median_us(&report_of(command_on(command))["rows"][0])
    };
    let nvme = || {
        let port = format!("roce,{offered}");
        let control = directory.path().join("control");
        let (_target, _) = target(far.farlane(), &control, &["--rdma", &port]);
        let url = format!("nvme-rdma://{offered}/{NQN}?provider=roce");
        median_us(&bench(near.farlane(), &url, "4k", 1))
    };
    let mut rows = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..RUNS {
        // A message counts one way, to which half of a round trip belongs.
        rows[0].push((udp((COMMAND + MESSAGE, COMMAND + MESSAGE)) / 2.0, verb("send", COMMAND)));
        rows[1].push((udp((REQUEST, PAGE + ANSWER)), verb("read", PAGE)));
        rows[2].push((udp((COMMAND + MESSAGE, PAGE + REQUEST)), nvme()));
    }
    heading("UDP", "RoCE");
    row("send of 64 bytes, one way, median µs", "at most 1.25", &rows[0]);
    row("read of 4 KiB, median µs", "at most 1.25", &rows[1]);
    row("NVMe read of 4 KiB, depth 1, median µs", "", &rows[2]);
}

/// The command of a client, which spins on its own processor.
fn command_on(mut command: Command) -> Command {
    command.args(["--cpu", "1", "--spin", "10s"]);
    command
}

/// Answers datagrams with as many bytes as their first four say, without sleeping.
fn serve() {
    pin(0).unwrap();
    let socket = UdpSocket::bind((FAR, PORTS[0])).unwrap();
    socket.set_nonblocking(true).unwrap();
    let (mut request, reply) = ([0; 2 * PAGE], [0; 2 * PAGE]);
    loop {
        if let Ok((_, from)) = socket.recv_from(&mut request) {
            let length = u32::from_le_bytes([request[0], request[1], request[2], request[3]]);
            let _ = socket.send_to(&reply[..length as usize], from);
        }
    }
}

/// Prints the median time of round trips in microseconds.
fn ping(request: usize, reply: u32) {
    pin(1).unwrap();
    let socket = UdpSocket::bind((NEAR, 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    let (mut bytes, mut answer) = ([0; 2 * PAGE], [0; 2 * PAGE]);
    bytes[..4].copy_from_slice(&reply.to_le_bytes());
    let mut trip = || {
        let begun = Instant::now();
        socket.send_to(&bytes[..request], (FAR, PORTS[0])).unwrap();
        while socket.recv_from(&mut answer).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(5), "the server does not answer");
        }
        begun.elapsed().as_secs_f64() * 1e6
    };
    let times: Vec<f64> = (0..TRIPS).map(|_| trip()).collect();
    println!("{:.3}", median(times.into_iter()));
}
