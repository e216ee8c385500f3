//! The cost of strangers to a host that is served: its verified load beside attacks, and without.
//!
//! The strangers are a process of the lowest priority, which makes so many attempts a second as
//! `ATTEMPTS` says: their attacks must cost the far end, and not the machine. Figures are medians
//! of runs in which a quiet second and one under attack take turns. No figure here is a test.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]

mod support;

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use support::ends::Listening;
use support::table::{Cell, Table};
use support::{farlane, median};

const RUNS: usize = 5;
/// Attempts of strangers in a second.
const ATTEMPTS: u32 = 2_000;
/// The number of connections that strangers hold.
const HELD: usize = 500;
/// The first bytes of a TLS handshake.
const BEGINNING: [u8; 6] = [0x16, 3, 1, 0, 200, 1];
/// Length in bytes of a Hello by datagrams, and its first bytes: version, kind and length.
const HELLO_BYTES: usize = 1200;
const HELLO: [u8; 4] = [1, 1, 4, 0xb0];

/// One attempt of the strangers, with its number.
type Attack = fn(SocketAddr, u64);

/// The attacks of the strangers.
const ATTACKS: [(&str, Attack); 4] = [
    ("begun and held", held),
    ("begun and closed", closed),
    ("one byte, and silence", silent),
    ("datagrams of forged addresses", forged),
];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, attack, address, ..] = &arguments[..]
        && let Some((_, attack)) = ATTACKS.iter().find(|(name, _)| name == attack)
    {
        return repeat(*attack, address.parse().unwrap());
    }
    let json = arguments.iter().any(|word| word == "--json");
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let key = |name| {
        let made = farlane().args(["setup", "key", "new", &path(name), "--json"]).output().unwrap();
        let made: Value = serde_json::from_slice(&made.stdout).unwrap();
        made["key"].as_str().unwrap().to_owned()
    };
    let (far, host) = (key("far"), key("host"));
    // The port of TCP is free for UDP, too.
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let options = ["--ram", "16MiB", "--key", &path("far"), "--allow", &host, "--udp", &port.to_string()];
    let export = Listening::export(&options);
    let url = format!("{}?key={far}", export.url());
    let load = || {
        let bench = ["bench", &url, "--key", &path("host"), "--rw", "randrw", "--iodepth", "4", "--size"];
        let further = ["8MiB", "--verify", "--runtime", "1s", "--json"];
        let output = farlane().args(bench).args(further).stderr(Stdio::null()).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&report["errors"], &report["verified"]), (&0.into(), &true.into()), "{report}");
        (report["iops"].as_f64().unwrap(), report["latency_ns"]["p99"].as_f64().unwrap())
    };
    let mut table = Table::new(&["attack", "quiet IOPS", "attacked", "ratio", "p99 more, ms", "aim"]);
    for (name, _) in ATTACKS {
        let address = if name.starts_with("datagrams") { port.to_string() } else { export.address.clone() };
        let pairs: Vec<_> = (0..RUNS)
            .map(|_| {
                let quiet = load();
                let mut strangers = Strangers::start(name, &address);
                let attacked = load();
                strangers.end();
                Pair { quiet, attacked }
            })
            .collect();
        let of = |figure: fn(&Pair) -> f64| median(pairs.iter().map(figure));
        table.row(vec![
            name.into(),
            Cell::Number(of(|pair| pair.quiet.0), 0),
            Cell::Number(of(|pair| pair.attacked.0), 0),
            Cell::Number(of(|pair| pair.attacked.0 / pair.quiet.0), 2),
            Cell::Number(of(|pair| (pair.attacked.1 - pair.quiet.1) / 1e6), 3),
            "at least 0.80, at most 5 ms".into(),
        ]);
    }
    table.print("strangers before a far end's gate", json);
}

/// Commands a second and p99 in ns, without strangers and beside them.
struct Pair {
    quiet: (f64, f64),
    attacked: (f64, f64),
}

/// The process of the strangers.
struct Strangers(Child);

impl Strangers {
    fn start(attack: &str, address: &str) -> Self {
        let me = std::env::current_exe().unwrap();
        let mut command = Command::new("nice");
        Self(command.args(["-n", "19"]).arg(me).args([attack, address]).spawn().unwrap())
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Attacks `address` again and again, until the process is killed.
fn repeat(attack: Attack, address: SocketAddr) {
    let began = Instant::now();
    for number in 0_u64.. {
        let at = Duration::from_secs(1) / ATTEMPTS * u32::try_from(number).unwrap_or(u32::MAX);
        std::thread::sleep(at.saturating_sub(began.elapsed()));
        attack(address, number);
    }
}

thread_local! {
    /// The connections that are held.
    static CONNECTIONS: std::cell::RefCell<std::collections::VecDeque<TcpStream>> = const {
        std::cell::RefCell::new(std::collections::VecDeque::new())
    };
}

/// Sends a part of a handshake's beginning.
fn begin(address: SocketAddr, length: usize) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).ok()?;
    let _ = stream.write_all(&BEGINNING[..length]);
    Some(stream)
}

fn held(address: SocketAddr, number: u64) {
    let length = 1 + usize::try_from(number).unwrap() % BEGINNING.len();
    CONNECTIONS.with_borrow_mut(|held| {
        held.extend(begin(address, length));
        if held.len() > HELD {
            held.pop_front();
        }
    });
}

fn closed(address: SocketAddr, _: u64) {
    drop(begin(address, BEGINNING.len()));
}

fn silent(address: SocketAddr, number: u64) {
    // Few connections, which stay: those that are closed here are replaced.
    if number.is_multiple_of(100) {
        held(address, 0);
    }
}

fn forged(address: SocketAddr, number: u64) {
    // All of 127.0.0.0/8 is this machine's.
    let [.., a, b] = number.to_be_bytes();
    let Ok(socket) = UdpSocket::bind((Ipv4Addr::new(127, 1, a, b.max(1)), 0)) else { return };
    let mut hello = vec![0; HELLO_BYTES];
    hello[..HELLO.len()].copy_from_slice(&HELLO);
    hello[4..12].copy_from_slice(&(number | 1 << 40).to_be_bytes());
    let _ = socket.send_to(&hello, address);
}
