//! The gain of lookahead: round trips, latencies, rates and bytes sent in vain, with and without
//! it; simulated, through `farlane model emulate`, and over loopback.
//!
//! `cargo bench -p farlane --bench lookahead -- [--json] [--seconds N] [--commands N] [--runs N]
//! [--mebibytes N] [--first N] [--networks N] [PART…]`
//! prints the tables of `docs/lookahead.md`: all of them, or those of the parts `trips`, `latency`,
//! `loopback`, `files`, `enumerate` and `guest`.
//!
//! No figure here is a test. Run as a test, this shows that the tables can be printed.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures for people, and small ones"
)]

mod support;

use std::path::{Path, PathBuf};
use std::time::Instant;

use engine::Nanos;
use scenarios::file::link::Link;
use serde_json::Value;

use support::ends::{Far, Way, raw};
use support::simulated::{self, Load};
use support::table::{Cell, Table};
use support::{guests, median};

const PARTS: [&str; 6] = ["trips", "latency", "loopback", "files", "enumerate", "guest"];
/// Time there and back over `scenarios/plain.toml`.
const ROUND_TRIP: Nanos = Nanos::from_millis(20);
/// Size of the far end's memory where commands are small: it stays in the caches.
const RAM: &str = "1MiB";
/// Size of a guest's disk.
const GUEST_RAM: &str = "64MiB";

struct Settings {
    json: bool,
    parts: Vec<String>,
    /// Seconds that each live or emulated load runs.
    seconds: f64,
    /// Number of commands of each simulated load.
    commands: u64,
    /// Number of interleaved runs over loopback.
    runs: usize,
    /// Size of the copied file in MiB.
    mebibytes: u64,
    /// Index of the first network to measure in each table.
    first: usize,
    /// Most networks to measure in each table.
    networks: usize,
}

impl Settings {
    fn of_arguments() -> Self {
        let mut settings = Self {
            json: false,
            parts: Vec::new(),
            seconds: 10.0,
            commands: 1000,
            runs: 5,
            mebibytes: 64,
            first: 0,
            networks: usize::MAX,
        };
        let measures = std::env::args().any(|argument| argument == "--bench");
        if !measures {
            // A test measures no figures, and long links take their time.
            settings.parts = ["latency", "loopback"].map(str::to_owned).to_vec();
            settings = Self { seconds: 0.1, commands: 20, runs: 1, mebibytes: 2, networks: 1, ..settings };
        }
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut number = || -> f64 {
                let text = arguments.next().unwrap_or_default();
                text.parse().unwrap_or_else(|_| panic!("{argument} takes a number, not '{text}'"))
            };
            match argument.as_str() {
                // Cargo's own option.
                "--bench" => {}
                "--json" => settings.json = true,
                "--seconds" => settings.seconds = number(),
                "--commands" => settings.commands = number() as u64,
                "--runs" => settings.runs = number() as usize,
                "--mebibytes" => settings.mebibytes = number() as u64,
                "--first" => settings.first = number() as usize,
                "--networks" => settings.networks = number() as usize,
                // Options for the test runner, and the name of another test.
                _ if !measures && argument.starts_with('-') => {}
                _ if !measures => settings.parts = vec![argument],
                part if PARTS.contains(&part) => settings.parts.push(part.to_owned()),
                other => panic!("'{other}' is none of the parts {PARTS:?}"),
            }
        }
        settings
    }

    fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|wanted| wanted == part)
    }

    fn of<'a>(&self, networks: &'a [Network]) -> impl Iterator<Item = &'a Network> + use<'a> {
        networks.iter().skip(self.first).take(self.networks)
    }

    fn runtime(&self) -> String {
        format!("{}ms", (self.seconds * 1e3).round())
    }
}

fn main() {
    let settings = Settings::of_arguments();
    let parts: [fn(&Settings) -> Table; PARTS.len()] =
        [trips, latency, loopback, files, enumerate, guest_boots];
    for (name, part) in PARTS.into_iter().zip(parts) {
        if settings.wants(name) {
            part(&settings).print(name, settings.json);
        }
    }
}

fn scenario(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(name)
}

const fn command(write: bool) -> &'static str {
    if write { "write" } else { "read" }
}

const fn word(lookahead: bool) -> &'static str {
    if lookahead { "with" } else { "without" }
}

/// A load of 4 KiB commands on a far end, in the form of `farlane bench --json`.
fn load(far: &Far, write: bool, lookahead: bool, depth: u32, runtime: &str) -> Value {
    far.ask(
        "bench",
        &[
            "--rw",
            if write { "randwrite" } else { "randread" },
            "--iodepth",
            &depth.to_string(),
            "--runtime",
            runtime,
            if lookahead { "--lookahead" } else { "--no-lookahead" },
        ],
    )
}

fn number(report: &Value, pointer: &str) -> f64 {
    report.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {pointer} in {report}"))
}

const BOTH: [bool; 2] = [false, true];
/// Reads and writes, each without and with lookahead.
const CASES: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

/// Counted round trips of 4 KiB commands, one at a time, and the time of the commands over a link
/// of 10 ms each way.
fn trips(settings: &Settings) -> Table {
    let mut table = Table::new(&[
        "4 KiB, one at a time",
        "",
        "simulated, counted",
        "emulated, counted",
        "loopback, counted",
        "emulated, p50",
        "loopback, p50",
        "emulated less loopback, of 20 ms",
    ]);
    let (path, near_by) = (scenario("plain.toml"), Far::near_by(RAM));
    let (link, far) = (Link::read(&path).unwrap(), Far::over(&path, RAM));
    for (write, lookahead) in CASES {
        let simulated = simulated::over(&link, lookahead, Load::small(write, 1, settings.commands));
        let emulated = load(&far, write, lookahead, 1, &settings.runtime());
        let live = load(&near_by, write, lookahead, 1, "500ms");
        let [over, beside] = [&emulated, &live].map(|report| number(report, "/latency_ns/p50"));
        table.row(vec![
            command(write).into(),
            word(lookahead).into(),
            Cell::Number(simulated.round_trips(ROUND_TRIP), 3),
            Cell::Number(number(&emulated, "/round_trips"), 3),
            Cell::Number(number(&live, "/round_trips"), 3),
            Cell::Time(over as u64),
            Cell::Time(beside as u64),
            Cell::Number((over - beside) / ROUND_TRIP.get() as f64, 3),
        ]);
    }
    table
}

/// A link file of `scenarios`, with the TCP of Linux at both ends if so asked.
struct Network {
    name: &'static str,
    path: PathBuf,
    link: Link,
    /// Directory of the link file, which is a copy of the one in `scenarios`.
    _directory: tempfile::TempDir,
}

impl Network {
    fn new(file: &str, linux: bool, name: &'static str) -> Self {
        let mut text = std::fs::read_to_string(scenario(file)).unwrap();
        if linux {
            text = text.replace("tcp = \"npap\"\n", "");
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(file);
        std::fs::write(&path, &text).unwrap();
        Self { name, path, link: Link::parse(&text).unwrap(), _directory: directory }
    }

    /// The networks over which latencies are measured.
    fn all() -> [Self; 5] {
        [
            Self::new("tcp-1g.toml", false, "1 Gigabit Ethernet"),
            Self::new("tsn-1g.toml", false, "the same with a TSN schedule"),
            Self::new("plain.toml", false, "10 ms each way, 1 Gbit/s"),
            Self::new("5g.toml", false, "5G, Release 15"),
            Self::new("5g.toml", true, "5G, Linux at both ends"),
        ]
    }
}

/// Latencies at a depth of 1 and commands per second at a depth of 32, simulated and emulated.
fn latency(settings: &Settings) -> Table {
    let mut table = Table::new(&[
        "link",
        "4 KiB",
        "lookahead",
        "",
        "p50",
        "p99",
        "p99.9",
        "max",
        "a second, 32 deep",
        "in vain",
    ]);
    for Network { name, path, link, .. } in settings.of(&Network::all()) {
        let far = Far::over(path, RAM);
        for (write, lookahead) in CASES {
            let row =
                |by: &str| vec![(*name).into(), command(write).into(), word(lookahead).into(), by.into()];
            let one = simulated::over(link, lookahead, Load::small(write, 1, settings.commands));
            let many = simulated::over(link, lookahead, Load::small(write, 32, settings.commands * 4));
            let mut cells = row("simulated");
            cells.extend([500, 990, 999, 1000].map(|part| Cell::Time(one.quantile(part))));
            cells.extend([Cell::Number(many.commands_per_second(), 0), Cell::None]);
            table.row(cells);
            let one = load(&far, write, lookahead, 1, &settings.runtime());
            let many = load(&far, write, lookahead, 32, &settings.runtime());
            let mut cells = row("emulated");
            cells.extend(quantiles(&one));
            cells.extend([Cell::Number(number(&many, "/iops"), 0), in_vain(&many)]);
            table.row(cells);
        }
    }
    table
}

fn quantiles(report: &Value) -> [Cell; 4] {
    ["p50", "p99", "p999", "max"]
        .map(|name| Cell::Time(number(report, &format!("/latency_ns/{name}")) as u64))
}

/// The share of the bytes sent ahead that the device did not read.
fn in_vain(report: &Value) -> Cell {
    let of = |name: &str| number(report, &format!("/far_reads/{name}"));
    match of("bytes_ahead") {
        0.0 => Cell::None,
        all => Cell::Share(of("bytes_in_vain") / all),
    }
}

/// Figures over loopback, with both ends spinning: medians of interleaved runs.
fn loopback(settings: &Settings) -> Table {
    let mut table = Table::new(&["4 KiB over loopback", "without", "with", "with / without"]);
    let far = Far::near_by(RAM);
    let mut reports: Vec<[[Value; 2]; 4]> = Vec::new();
    let loads = [(false, 1), (true, 1), (false, 32), (true, 32)];
    for _ in 0..settings.runs {
        let of =
            |(write, depth)| BOTH.map(|lookahead| load(&far, write, lookahead, depth, &settings.runtime()));
        reports.push(loads.map(of));
    }
    let mut row = |name: String, index: usize, pointer: &str, cell: fn(f64) -> Cell| {
        let at = |with: usize| reports.iter().map(move |report| number(&report[index][with], pointer));
        let ratio = median(at(1).zip(at(0)).map(|(with, without)| with / without));
        table.row(vec![name.into(), cell(median(at(0))), cell(median(at(1))), Cell::Number(ratio, 3)]);
    };
    for (index, (write, depth)) in loads.into_iter().enumerate() {
        let name = command(write);
        if depth == 1 {
            for (quantile, called) in [("p50", "p50"), ("p99", "p99"), ("p999", "p99.9"), ("max", "max")] {
                let pointer = format!("/latency_ns/{quantile}");
                row(format!("{name}, depth 1, {called}"), index, &pointer, |value| Cell::Time(value as u64));
            }
        } else {
            row(format!("{name}s a second, depth {depth}"), index, "/iops", |value| Cell::Number(value, 0));
        }
    }
    table
}

/// Rates of writing and reading a file, compared with a plain TCP connection through the same
/// network.
fn files(settings: &Settings) -> Table {
    let mut table =
        Table::new(&["link", "", "lookahead", "plain TCP, Mbit/s", "simulated", "emulated", "of plain TCP"]);
    let bytes = settings.mebibytes << 20;
    // Both ends are Linux machines, unlike some of the published ones.
    let networks = [
        Network::new("5g.toml", true, "5G, Linux at both ends"),
        Network::new("plain.toml", true, "10 ms each way, 1 Gbit/s"),
    ];
    for Network { name, path, link, .. } in settings.of(&networks) {
        for write in [true, false] {
            let way = if write { Way::There } else { Way::Back };
            let plain = bytes as f64 * 8.0 / raw(path, bytes, way).as_secs_f64();
            for lookahead in BOTH {
                let far = Far::over(path, &bytes.to_string());
                let rate = copy(&far, write, lookahead, bytes);
                let simulated = simulated::over(link, lookahead, in_order(write, bytes)).bits_per_second();
                table.row(vec![
                    (*name).into(),
                    command(write).into(),
                    word(lookahead).into(),
                    Cell::Number(plain / 1e6, 1),
                    Cell::Number(simulated / 1e6, 1),
                    Cell::Number(rate / 1e6, 1),
                    Cell::Share(rate / plain),
                ]);
            }
        }
    }
    table
}

/// The load of `farlane use read` and `farlane use write`: 32 commands of 128 KiB at a time.
fn in_order(write: bool, bytes: u64) -> Load {
    let each = 128 << 10;
    Load { write, bytes: each, depth: 32, count: bytes / u64::from(each), gap: Nanos::ZERO, in_order: true }
}

/// The rate of a copy in bits per second.
fn copy(far: &Far, write: bool, lookahead: bool, bytes: u64) -> f64 {
    let length = bytes.to_string();
    let lookahead = if lookahead { "--lookahead" } else { "--no-lookahead" };
    let report = match write {
        true => far.ask("write", &["--length", &length, "--input", "/dev/zero", lookahead]),
        false => far.ask("read", &["--length", &length, "--output", "/dev/null", lookahead]),
    };
    number(&report, "/bytes") * 8.0 / number(&report, "/elapsed_s")
}

/// The time to find the functions of the far end, and to take a controller into use.
fn enumerate(settings: &Settings) -> Table {
    let mut table = Table::new(&[
        "link",
        "simulated, until commands are taken",
        "emulated, enumerated",
        "emulated, until a command is done",
        "reads answered near",
        "accesses that went far",
    ]);
    for Network { name, path, link, .. } in settings.of(&Network::all()) {
        let far = Far::over(path, RAM);
        let timed = |subcommand: &str, arguments: &[&str]| {
            let began = Instant::now();
            let report = far.ask(subcommand, arguments);
            (Cell::Time(began.elapsed().as_nanos() as u64), report)
        };
        let (enumerated, _) = timed("lspci", &[]);
        let (used, report) = timed("bench", &["--runtime", "1ms"]);
        let of = |name: &str| report.pointer(&format!("/shadow/{name}")).and_then(Value::as_f64);
        let sum = |one, other| {
            of(one).zip(of(other)).map_or(Cell::None, |(one, other)| Cell::Number(one + other, 0))
        };
        table.row(vec![
            (*name).into(),
            Cell::Time(simulated::boot(link).get()),
            enumerated,
            used,
            sum("reads_near", "properties_near"),
            sum("reads_far", "writes"),
        ]);
    }
    table
}

/// The time of stock guests from power-on to a file system that is made and mounted.
fn guest_boots(settings: &Settings) -> Table {
    let mut table = Table::new(&[
        "link",
        "lookahead",
        "boot to its shell",
        "to an ext4, made and mounted",
        "round trips until it is off",
    ]);
    let Some(kit) = guest::skip::kit_or_skip("guests") else { return table };
    let networks = Network::all();
    let networks = networks.iter().filter(|network| network.name != "5G, Linux at both ends");
    for network in
        std::iter::once(None).chain(networks.map(Some)).skip(settings.first).take(settings.networks)
    {
        for lookahead in [true, false] {
            let far = match network {
                Some(network) => Far::over(&network.path, GUEST_RAM),
                None => Far::behind_nothing(GUEST_RAM),
            };
            let booted = guests::boot(kit, &far, lookahead);
            table.row(vec![
                network.map_or("loopback", |network| network.name).into(),
                word(lookahead).into(),
                Cell::Time(booted.boot.as_nanos() as u64),
                Cell::Time(booted.mounted.as_nanos() as u64),
                Cell::Number(booted.round_trips as f64, 0),
            ]);
        }
    }
    table
}
