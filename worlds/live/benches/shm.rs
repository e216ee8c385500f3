//! The tunnel's times over shared memory: both ends in this process, a processor each, no kernel in
//! between. Reports medians of batches, and the fastest batch.
//!
//! `cargo bench -p farlane-live --bench shm`, with `tcp` behind `--` for the same over loopback,
//! and with `floor` for raw TCP with the same round trips and sends. Other arguments name the
//! measurements to run.

#![allow(missing_docs, reason = "a program that is run by hand")]
#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]

use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::thread::spawn;
use std::time::Instant;

use assemblies::far::Far;
use engine::{Nanos, Rng};
use live::carrier::floor::{Client, Server};
use live::carrier::{shm, tcp};
use live::client::{Address, Controller, Event, Options};
use live::drivers::far::FarDriver;
use live::media::Media;
use live::reactor::{Reactor, pin};
use live::sys::clock::Clock;
use live::sys::digest::crc32c;
use nvme::media::MediumId;
use nvme::media::ram::RamDisk;
use nvme::wire::{IoOpcode, NamespaceId};
use nvme_pcie::host::{Data, QueueId, Submission};
use nvme_pcie::{controller, function};

const DISK_BYTES: u64 = 1 << 20;
const BATCHES: usize = 100;
const BATCH: u32 = 500;
const CONFIG_READ: &str = "configuration read";
/// The name, the opcode, the bytes and the depth of each measurement of commands.
const ROWS: [(&str, IoOpcode, u32, u32); 6] = [
    ("4 KiB read, 1 deep", IoOpcode::Read, 4096, 1),
    ("4 KiB write, 1 deep", IoOpcode::Write, 4096, 1),
    ("4 KiB read, 32 deep", IoOpcode::Read, 4096, 32),
    ("4 KiB write, 32 deep", IoOpcode::Write, 4096, 32),
    ("128 KiB read, 4 deep", IoOpcode::Read, 128 << 10, 4),
    ("128 KiB write, 4 deep", IoOpcode::Write, 128 << 10, 4),
];
/// How long either end spins: longer than anything here waits.
const SPIN: Nanos = Nanos::from_secs(10);

/// Runs a far end on processor 1 as long as the program; returns the URLs by which it is reached.
fn far_end(socket: std::path::PathBuf) -> [String; 2] {
    let (say, said) = channel();
    spawn(move || {
        let _ = pin(1);
        let clock = Clock::start();
        let listener = tcp::Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let lines = shm::Listener::bind(&socket).unwrap();
        let core = nvme::subsystem::Config::new("BENCH").with_namespace(MediumId(0), DISK_BYTES);
        let function = function::Config::new(controller::Config::new(core));
        let session = tunnel::session::Config { crc32c, ..Default::default() };
        let far = Far::new(clock.now(), session, function, Rng::from_seed(1));
        let mut media = Media::new();
        media.add(RamDisk::new(DISK_BYTES)).unwrap();
        say.send([format!("shm:{}", socket.display()), listener.address().to_string()]).unwrap();
        let mut driver = FarDriver::new(far, listener, media, |_| ()).with_shm(lines);
        Reactor::new(clock, SPIN).unwrap().run(&mut driver).unwrap();
    });
    said.recv().unwrap()
}

/// Runs batches of `depth` operations at a time, which `begin` begins.
fn measure(host: &mut Controller, name: &str, depth: u32, mut begin: impl FnMut(&mut Controller, u32)) {
    let mut batch = || {
        let start = Instant::now();
        let (mut begun, mut ended) = (0, 0);
        while begun < depth {
            begin(host, begun);
            begun += 1;
        }
        while ended < BATCH {
            match host.next_event(None).unwrap() {
                Some(Event::Completed(_) | Event::Probed(Ok(_))) => ended += 1,
                _ => continue,
            }
            if begun < BATCH {
                begin(host, begun % depth);
                begun += 1;
            }
        }
        start.elapsed().as_nanos() / u128::from(BATCH)
    };
    let batches = if name.starts_with("128") { BATCHES / 4 } else { BATCHES };
    print(name, (0..batches).map(|_| batch()).collect());
}

fn print(name: &str, mut times: Vec<u128>) {
    times.sort_unstable();
    println!("{name:<28} {:>6} ns, fastest {:>6} ns", times[times.len() / 2], times[0]);
}

/// Begins a command on the blocks of a slot.
fn begin(host: &mut Controller, opcode: IoOpcode, bytes: u32, slot: u32) {
    let data = Data { address: host.data_region().base + u64::from(slot * bytes), length: bytes };
    let blocks = bytes / 512;
    let (queue, namespace, lba) = (QueueId(1), NamespaceId(1), u64::from(slot * blocks));
    let now = host.now();
    host.submit(now, Submission::on_blocks(opcode, queue, namespace, lba, blocks, data, 0)).unwrap();
}

/// Raw TCP, both sides spinning: sends of 128 KiB, and the round trips of an operation without
/// lookahead, with about as many bytes.
fn floor() {
    let server = Server::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = server.address().unwrap();
    spawn(move || {
        let _ = pin(1);
        server.serve_one().unwrap();
    });
    let _ = pin(0);
    let mut client = Client::connect(address).unwrap();
    let mut send = || u128::from(client.stream(128 << 10, BATCH).unwrap().get() / u64::from(BATCH));
    print("a send of 128 KiB", (0..BATCHES).map(|_| send()).collect());
    for (name, trips) in [
        (CONFIG_READ, &[(24, 28)][..]),
        (ROWS[0].0, &[(28, 24), (76, 4136)]),
        (ROWS[1].0, &[(28, 24), (76, 24), (4108, 28)]),
    ] {
        let mut trip = || {
            let took = trips.iter().flat_map(|&(there, back)| client.ping_pong(there, back, BATCH).unwrap());
            took.map(|took| u128::from(took.get())).sum::<u128>() / u128::from(BATCH)
        };
        print(name, (0..BATCHES).map(|_| trip()).collect());
    }
}

fn main() {
    if std::env::args().any(|argument| argument == "floor") {
        return floor();
    }
    let by_tcp = std::env::args().any(|argument| argument == "tcp");
    let is_name = |argument: &String| !argument.starts_with('-') && argument != "tcp";
    let names: Vec<String> = std::env::args().skip(1).filter(is_name).collect();
    let wanted = |name: &str| names.is_empty() || names.iter().any(|one| one == name);
    let folder = tempfile::tempdir().unwrap();
    let urls = far_end(folder.path().join("far"));
    let _ = pin(0);
    let mut options = Options { spin: SPIN, ..Options::new("benchmark") };
    options.session.lookahead = true;
    let mut host = Controller::open(&Address::Far(urls[usize::from(by_tcp)].clone()), &options).unwrap();
    host.wait_ready(Nanos::from_secs(10)).unwrap();
    if wanted(CONFIG_READ) {
        measure(&mut host, CONFIG_READ, 1, |host, _| {
            let now = host.now();
            host.probe(now).unwrap();
        });
    }
    for (name, opcode, bytes, depth) in ROWS {
        if wanted(name) {
            measure(&mut host, name, depth, |host, slot| begin(host, opcode, bytes, slot));
        }
    }
}
