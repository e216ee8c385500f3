//! The tunnel's times over shared memory: both ends in this process, a processor each, no kernel in
//! between. Reports medians of batches, and the fastest batch.
//!
//! `cargo bench -p farlane-live --bench shm`, with `tcp` behind `--` for the same over loopback.

#![allow(missing_docs, reason = "a program that is run by hand")]
#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]

use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::thread::spawn;
use std::time::Instant;

use assemblies::far::Far;
use engine::{Nanos, Rng};
use live::carrier::{shm, tcp};
use live::client::{Address, Controller, Event, Options};
use live::drivers::far::FarDriver;
use live::media::Media;
use live::reactor::{Reactor, pin};
use live::sys::clock::Clock;
use nvme::media::MediumId;
use nvme::media::ram::RamDisk;
use nvme::wire::{IoOpcode, NamespaceId};
use nvme_pcie::host::{Data, QueueId, Submission};
use nvme_pcie::{controller, function};

const DISK_BYTES: u64 = 1 << 20;
const BATCHES: usize = 400;
const BATCH: u32 = 1000;
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
        let session = tunnel::session::Config::default();
        let far = Far::new(clock.now(), session, function, Rng::from_seed(1));
        let mut media = Media::new();
        media.add(RamDisk::new(DISK_BYTES)).unwrap();
        say.send([format!("shm:{}", socket.display()), format!("tcp://{}", listener.address())]).unwrap();
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
    let mut times: Vec<u128> = (0..BATCHES).map(|_| batch()).collect();
    times.sort_unstable();
    println!("{name:<28} {:>6} ns, fastest {:>6} ns", times[BATCHES / 2], times[0]);
}

/// Begins to read the block of a slot.
fn read(host: &mut Controller, slot: u32) {
    let data = Data { address: host.data_region().base + u64::from(slot) * 4096, length: 4096 };
    let (queue, namespace, lba) = (QueueId(1), NamespaceId(1), u64::from(slot) * 8);
    let now = host.now();
    host.submit(now, Submission::on_blocks(IoOpcode::Read, queue, namespace, lba, 8, data, 0)).unwrap();
}

fn main() {
    let by_tcp = std::env::args().any(|argument| argument == "tcp");
    let folder = tempfile::tempdir().unwrap();
    let urls = far_end(folder.path().join("far"));
    let _ = pin(0);
    let mut options = Options { spin: SPIN, ..Options::new("benchmark") };
    options.session.lookahead = true;
    let mut host = Controller::open(&Address::Far(urls[usize::from(by_tcp)].clone()), &options).unwrap();
    host.wait_ready(Nanos::from_secs(10)).unwrap();
    measure(&mut host, "configuration read", 1, |host, _| {
        let now = host.now();
        host.probe(now).unwrap();
    });
    measure(&mut host, "4 KiB read, 1 deep", 1, read);
    measure(&mut host, "4 KiB read, 32 deep", 32, read);
}
