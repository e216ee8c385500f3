//! Farlane's hosts beside SPDK's driver, which both use one and the same target process: over
//! vfio-user with mapped doorbells, and over NVMe/TCP with and without digests.
//!
//! `FARLANE_SPDK` names a build of SPDK. Without it, the benchmark measures nothing. Figures are
//! medians of runs in which the two drivers take turns, and a ratio is the median of the runs'
//! ratios. No figure here is a test.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]

mod support;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use support::{farlane, median, number};

const RUNS: usize = 5;
/// The namespace stays in the caches, so that the drivers are measured and not the memory.
const MEDIUM: &str = "1MiB";
const NQN: &str = "nqn.2026-01.io.farlane:strangers";
/// Memory that SPDK's driver takes, in MiB.
const MEMORY_MIB: &str = "256";
/// The loads of the two drivers, at each target.
const LOADS: [Load; 3] = [
    Load { name: "4 KiB, depth 1", bytes: 4 << 10, depth: 1 },
    Load { name: "4 KiB, depth 32", bytes: 4 << 10, depth: 32 },
    Load { name: "128 KiB, depth 8", bytes: 128 << 10, depth: 8 },
];

/// Random reads for a second.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    bytes: u32,
    depth: u32,
}

/// A target as both drivers name it.
struct Way {
    name: &'static str,
    ours: String,
    spdk: Vec<String>,
}

/// SPDK's program that drives a load.
struct Spdk {
    program: PathBuf,
    /// Whether there are huge pages for its memory, and a file system to take them from.
    is_huge: bool,
}

fn main() {
    let Some(spdk) = Spdk::find() else { return };
    println!("running {RUNS} interleaved measurements of SPDK's driver and Farlane's hosts …");
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path();
    let mut device = device(&folder.join("cntrl"));
    let (mut target, address) = target(&folder.join("control"));
    let ways = [local(folder), tcp(address, false), tcp(address, true)];
    for way in &ways {
        fill(way);
    }
    println!("\n{:<44}{:>12}{:>12}{:>8}  aim", "random reads a second", "SPDK", "Farlane", "ratio");
    for way in &ways {
        for load in LOADS {
            let runs: Vec<_> = (0..RUNS).map(|_| (spdk.run(way, load), ours(way, load))).collect();
            let name = format!("{}, {}", way.name, load.name);
            let [theirs, ours] = [0, 1].map(|side| median(runs.iter().map(|run| [run.0, run.1][side])));
            let ratio = median(runs.iter().map(|run| run.1 / run.0));
            println!("{name:<44}{theirs:>12.0}{ours:>12.0}{ratio:>8.2}  at least 1.0");
        }
    }
    for process in [&mut device, &mut target] {
        process.kill().unwrap();
        process.wait().unwrap();
    }
}

/// The function of another process, over vfio-user.
fn local(folder: &Path) -> Way {
    let place = format!("trtype:VFIOUSER traddr:{} subnqn:nqn.2019-07.io.spdk:cnode0", folder.display());
    Way {
        name: "vfio-user",
        ours: format!("vfio-user:{}", folder.display()),
        spdk: ["-r", &place].map(str::to_owned).to_vec(),
    }
}

/// The subsystem at `address`, over NVMe/TCP.
fn tcp(address: SocketAddr, digests: bool) -> Way {
    let (ip, port) = (address.ip(), address.port());
    let place = format!("trtype:TCP adrfam:IPv4 traddr:{ip} trsvcid:{port} subnqn:{NQN}");
    let (name, query, flags) = match digests {
        false => ("TCP", "hdgst=off&ddgst=off", &["-r", &place][..]),
        true => ("TCP, digests", "hdgst=on&ddgst=on", &["-H", "-I", "-r", &place][..]),
    };
    Way {
        name,
        ours: format!("nvme-tcp://{address}/{NQN}?queue-size=256&{query}"),
        spdk: flags.iter().map(|&flag| flag.to_owned()).collect(),
    }
}

fn device(socket: &Path) -> Child {
    let arguments = ["device", "--json", "--poll-doorbells", "--ram", MEDIUM, "--vfio-user"];
    let (device, line) = spinning(farlane().args(arguments).arg(socket));
    assert!(line.contains("listening"), "{line}");
    device
}

fn target(control: &Path) -> (Child, SocketAddr) {
    let arguments = ["target", "--json", "--listen", "127.0.0.1:0", "--nqn", NQN, "--ram", MEDIUM];
    let (target, line) = spinning(farlane().args(arguments).arg("--control").arg(control));
    let said: Value = serde_json::from_str(&line).unwrap();
    (target, said["listening"].as_str().unwrap().parse().unwrap())
}

/// Starts a process that keeps the first processor for 50 ms after it was last asked something, and
/// returns what it says first. Of two such processes, the idle one leaves the processor to the
/// other.
fn spinning(command: &mut Command) -> (Child, String) {
    let command = command.args(["--spin", "50ms", "--cpu", "0"]);
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (process, line)
}

/// Writes every block: blocks that were never written share one page of zeroes.
fn fill(way: &Way) {
    bench(way, &["--rw", "write", "--bs", "128k", "--runtime", "300ms"]);
}

/// Reads a second by Farlane's host.
fn ours(way: &Way, load: Load) -> f64 {
    let (bytes, depth) = (load.bytes.to_string(), load.depth.to_string());
    let report = bench(way, &["--bs", &bytes, "--iodepth", &depth, "--runtime", "1s"]);
    report["iops"].as_f64().unwrap()
}

fn bench(way: &Way, arguments: &[&str]) -> Value {
    let mut command = farlane();
    command.args(["bench", &way.ours, "--json", "--cpu", "1", "--spin", "10s"]).args(arguments);
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

impl Spdk {
    /// The program of the build that `FARLANE_SPDK` names.
    fn find() -> Option<Self> {
        let Some(build) = std::env::var_os("FARLANE_SPDK").map(PathBuf::from) else {
            println!("SKIPPED: FARLANE_SPDK names no build of SPDK (docs/performance.md)");
            return None;
        };
        let program = build.join("build/bin/spdk_nvme_perf");
        if !program.is_file() {
            println!("SKIPPED: there is no {}; is FARLANE_SPDK the folder of a build?", program.display());
            return None;
        }
        let free_mib = number("/proc/meminfo", "HugePages_Free:") * 2.0;
        let are_enough = free_mib >= MEMORY_MIB.parse().unwrap();
        let is_mounted = std::fs::read_to_string("/proc/mounts").unwrap().contains(" hugetlbfs ");
        match (are_enough, is_mounted) {
            (true, true) => {}
            (true, false) => println!("SPDK gets ordinary pages: no hugetlbfs is mounted"),
            (false, _) => {
                println!("SPDK gets ordinary pages: {free_mib} MiB of huge pages are free, not {MEMORY_MIB}");
            }
        }
        Some(Self { program, is_huge: are_enough && is_mounted })
    }

    /// Reads a second by SPDK's driver.
    fn run(&self, way: &Way, load: Load) -> f64 {
        let (bytes, depth) = (load.bytes.to_string(), load.depth.to_string());
        let mut command = Command::new(&self.program);
        command.arg(if self.is_huge { "-g" } else { "--no-huge" });
        command.args(["-s", MEMORY_MIB, "-c", "0x2", "-w", "randread", "-t", "1"]);
        command.args(["-o", &bytes, "-q", &depth]).args(&way.spdk);
        let output = command.stderr(Stdio::piped()).output().unwrap();
        let (said, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let total = said.lines().find_map(|line| line.strip_prefix("Total")?.split(':').nth(1));
        let total = total.unwrap_or_else(|| panic!("{command:?} reported no total: {said}\n{errors}"));
        total.split_whitespace().next().unwrap().parse().unwrap()
    }
}
