//! The carriers of the tunnel: shared memory beside the cost of a cache line and of a copy, and
//! datagrams beside raw TCP.
//!
//! `make bench` runs this. Floors are measured in the same run, by this program or by the demo. The
//! rows for frames want to make a network of their own, and are left out where they may not. No
//! figure here is a test.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]

mod support;

use std::hint::{black_box, spin_loop};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use live::carrier::datagrams::Ethernet;
use live::carrier::datagrams::floor::Rally;
use serde_json::Value;

use support::{farlane, median};

const RUNS: usize = 3;
/// Round trips of a cache line, and copies, in one measurement; and in one of the parts of which
/// the median counts.
const ROUNDS: u64 = 200_000;
const PART: u64 = 1000;
/// The bytes of a copy.
const PAGE: usize = 4096;
/// Pages that are copied in turn: as many as commands under way.
const PAGES: usize = 32;

/// A cache line of its own.
#[repr(align(64))]
struct Line(AtomicU64);

fn main() {
    if let Ok(place) = std::env::var(FAR_PLACE) {
        return answer(&place);
    }
    if let Some(far) = std::env::var_os(FAR_NETWORK) {
        return over_one_pair(&far.to_string_lossy());
    }
    println!("{:<44}{:>14}{:>14}{:>8}  aim", "", "floor", "tunnel", "ratio");
    let runs: Vec<(Value, f64, f64)> =
        (0..RUNS).map(|_| (demo("shm").unwrap(), crossings(), copy())).collect();
    let of = |figure: fn(&(Value, f64, f64)) -> f64| median(runs.iter().map(figure));
    let lines = of(|run| run.1);
    row(
        "config read, shm:, ns; two crossings",
        lines,
        of(|run| p50(&run.0, "tunnel", "config_read_ns")),
        "3",
    );
    let page = lines + of(|run| run.2);
    row(
        "4 KiB read, shm:, ns; the same and a copy",
        page,
        of(|run| p50(&run.0, "tunnel", "read_4k_ns")),
        "3",
    );
    let copies = 1e9 / of(|run| run.2);
    row("4 KiB reads/s 32 deep, shm:; copies", copies, of(|run| rate(&run.0, "tunnel")), "0.5 or more");
    for carrier in ["tcp", "udp", "eth"] {
        let Some(runs) = (0..RUNS).map(|_| demo(carrier)).collect::<Option<Vec<Value>>>() else {
            println!("{carrier}: left out: no network of its own can be made here");
            continue;
        };
        for (name, figure) in [("config read", "config_read_ns"), ("4 KiB read", "read_4k_ns")] {
            let side = |side: &str| median(runs.iter().map(|run| p50(run, side, figure)));
            row(&format!("{name}, {carrier}, ns; raw TCP"), side("floor"), side("tunnel"), "");
        }
        let side = |side: &str| median(runs.iter().map(|run| rate(run, side)));
        row(&format!("4 KiB reads/s 32 deep, {carrier}; raw TCP"), side("floor"), side("tunnel"), "");
    }
    // Again in a network of its own, where the far end is in another.
    let mut again = Command::new("unshare");
    again.args(["--net", "sh", "-c", TWO_NETWORKS, "sh"]).arg(std::env::current_exe().unwrap());
    if !again.status().is_ok_and(|status| status.success()) {
        println!("frames beside TCP over one pair: left out: no networks of its own can be made here");
    }
}

/// A carrier of a tunnel over the pair of interfaces: its name, what the far end's `--eth` says,
/// and the URL for the far end's address.
struct Way {
    name: &'static str,
    place: &'static str,
    url: fn(&str) -> String,
}

const TCP_THERE: Way = Way { name: "TCP", place: "far", url: |_| format!("tcp://{TCP}") };
const UDP_THERE: Way = Way { name: "udp", place: "far", url: |_| format!("udp://{UDP}") };
const ETH: Way = Way { name: "eth", place: "far", url: |mac| format!("eth:near/{mac}") };
// A program at an interface changes how the kernel's TCP goes there.
const ETH_XDP: Way = Way { name: "eth,xdp", place: "far,xdp", url: |mac| format!("eth:near,xdp/{mac}") };

/// Tunnels over TCP, UDP, frames and frames by AF_XDP, all over one pair of interfaces between two
/// network namespaces. The far end is in that of the process `far`.
fn over_one_pair(far: &str) {
    for (mtu, ways) in
        [("1500", &[TCP_THERE, UDP_THERE, ETH, ETH_XDP][..]), ("9000", &[TCP_THERE, UDP_THERE, ETH])]
    {
        ip(far, mtu);
        let runs: Vec<Vec<[f64; 3]>> =
            (0..RUNS).map(|_| ways.iter().map(|way| beside(far, way)).collect()).collect();
        let of = |way: usize, index: usize| median(runs.iter().map(|run| run[way][index]));
        println!("an MTU of {mtu} bytes, one pair of interfaces");
        for (way, Way { name, .. }) in ways.iter().enumerate().skip(1) {
            row(&format!("config read, {name}, ns; TCP"), of(0, 0), of(way, 0), "0.8");
            row(&format!("4 KiB read, {name}, ns; TCP"), of(0, 1), of(way, 1), "0.8");
            row(&format!("4 KiB reads/s 32 deep, {name}; TCP"), of(0, 2), of(way, 2), "");
        }
        for (way, Way { name, place, .. }) in ways.iter().enumerate().skip(2) {
            let floor = median((0..RUNS).map(|_| rally(far, place)));
            row(&format!("config read, {name}, ns; frames there and back"), floor, of(way, 0), "1.25");
        }
    }
}

/// Gives both interfaces an MTU of `mtu` bytes.
fn ip(far: &str, mtu: &str) {
    let set = |program: &str, before: &[&str], interface: &str| {
        let status =
            Command::new(program).args(before).args(["link", "set", interface, "mtu", mtu]).status().unwrap();
        assert!(status.success(), "{interface} has no MTU of {mtu}");
    };
    set("ip", &[], "near");
    set("nsenter", &["-t", far, "-n", "ip"], "far");
}

/// Where the far end listens for TCP and UDP in its own network.
const TCP: &str = "10.77.0.2:4430";
const UDP: &str = "10.77.0.2:4432";

/// A configuration read and a 4 KiB read in nanoseconds, and reads a second 32 deep, by `way`.
fn beside(far: &str, way: &Way) -> [f64; 3] {
    let mut export = Command::new("nsenter");
    export.args(["-t", far, "-n"]).arg(farlane().get_program());
    export.args(["export", "--insecure", "--json", "--ram", "64MiB", "--cpu", "1"]);
    export.args(["--listen", TCP, "--udp", UDP, "--eth", way.place]);
    let mut export = export.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let said: Value = serde_json::from_str(&first_line(&mut export)).unwrap();
    let url = (way.url)(said["eth"].as_str().unwrap().rsplit('/').next().unwrap());
    let report = |arguments: &[&str]| -> Value {
        let output = farlane().args(arguments).args([&url, "--json", "--cpu", "0"]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let bench = |depth| report(&["bench", "--iodepth", depth, "--runtime", "500ms"]);
    let p50 = |report: &Value| report["latency_ns"]["p50"].as_f64().unwrap();
    let figures = [
        p50(&report(&["measure", "ping", "--count", "5000"])),
        p50(&bench("1")),
        bench("32")["iops"].as_f64().unwrap(),
    ];
    let _ = export.kill();
    let _ = export.wait();
    figures
}

fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line
}

/// Nanoseconds in which a frame goes to the far end's `place` and back, without our protocol.
fn rally(far: &str, place: &str) -> f64 {
    let mut other = Command::new("nsenter");
    other.args(["-t", far, "-n"]).arg(std::env::current_exe().unwrap()).env(FAR_PLACE, place);
    let mut other = other.stdout(Stdio::piped()).spawn().unwrap();
    let name = first_line(&mut other);
    let near = Ethernet { interfaces: vec!["near".to_owned()], ..place.parse().unwrap() };
    // A thread of its own, so that this one's children may use every processor.
    let took = std::thread::spawn(move || {
        let _ = live::reactor::pin(0);
        let mut rally = Rally::open(near, true).unwrap();
        rally.round_trips(name.trim(), FRAME, RALLIES).unwrap()
    });
    let took = took.join().unwrap();
    let _ = other.wait();
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    median(took.iter().map(|one| one.get() as f64))
}

/// Answers what [`rally`] sends to the interface `place`.
fn answer(place: &str) {
    let _ = live::reactor::pin(1);
    let mut rally = Rally::open(place.parse().unwrap(), false).unwrap();
    println!("{}", rally.name());
    rally.answer(RALLIES).unwrap();
}

/// Frames that go there and back, and the bytes of each: about those of a configuration read.
const RALLIES: u32 = 20_000;
const FRAME: usize = 128;
/// In the environment: the interface where this process answers frames.
const FAR_PLACE: &str = "FARLANE_BENCH_FAR_PLACE";
/// In the environment: a process whose network is that of the far end.
const FAR_NETWORK: &str = "FARLANE_BENCH_FAR_NETWORK";
/// Makes two networks with a pair of interfaces between them, and runs what follows in one of them.
const TWO_NETWORKS: &str = "unshare --net sleep 600 & far=$!; sleep 0.2; ip link set lo up; \
    ip link add near type veth peer name far && ip link set far netns $far && \
    ip addr add 10.77.0.1/24 dev near && ip link set near up && \
    nsenter -t $far -n ip addr add 10.77.0.2/24 dev far && nsenter -t $far -n ip link set far up && \
    FARLANE_BENCH_FAR_NETWORK=$far \"$@\"; status=$?; kill $far; exit $status";

fn row(name: &str, floor: f64, tunnel: f64, aim: &str) {
    println!("{name:<44}{floor:>14.0}{tunnel:>14.0}{:>7.2}x  {aim}", tunnel / floor);
}

/// The demo's report over `carrier`; none if it can't run.
fn demo(carrier: &str) -> Option<Value> {
    let arguments = ["demo", "--size", "1MiB", "--runtime", "300ms", "--json", "--carrier", carrier];
    let output = farlane().args(arguments).output().unwrap();
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}

fn p50(report: &Value, side: &str, figure: &str) -> f64 {
    report[side][figure]["p50"].as_f64().unwrap()
}

fn rate(report: &Value, side: &str) -> f64 {
    report[side]["iops_qd32"].as_f64().unwrap()
}

/// Nanoseconds in which a cache line goes to another processor and back.
fn crossings() -> f64 {
    let [there, back] = [const { Line(AtomicU64::new(0)) }; 2];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = live::reactor::pin(1);
            for round in 1..=ROUNDS {
                while there.0.load(Ordering::Acquire) < round {
                    spin_loop();
                }
                back.0.store(round, Ordering::Release);
            }
        });
        // A thread of its own, so that this one's children may use every processor.
        let here = scope.spawn(|| {
            let _ = live::reactor::pin(0);
            in_parts(|round| {
                there.0.store(round, Ordering::Release);
                while back.0.load(Ordering::Acquire) < round {
                    spin_loop();
                }
            })
        });
        here.join().unwrap()
    })
}

/// Nanoseconds in which 4 KiB are copied.
fn copy() -> f64 {
    let (from, mut to) = (vec![7_u8; PAGE * PAGES], vec![0_u8; PAGE * PAGES]);
    in_parts(|round| {
        let at = usize::try_from(round).unwrap() % PAGES * PAGE;
        black_box(&mut to)[at..at + PAGE].copy_from_slice(&black_box(&from)[at..at + PAGE]);
    })
}

/// Nanoseconds that `each` takes, as the median of parts: others use the processors too.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn in_parts(mut each: impl FnMut(u64)) -> f64 {
    let parts: Vec<f64> = (0..ROUNDS / PART)
        .map(|part| {
            let start = Instant::now();
            (part * PART + 1..=(part + 1) * PART).for_each(&mut each);
            start.elapsed().as_nanos() as f64 / PART as f64
        })
        .collect();
    median(parts.into_iter())
}
