//! The cost of one command at both ends: host and controller over endpoints of one thread, without
//! a wire; then over iWARP, with its own engines and bytes, but without sockets. Reports medians of
//! batches, and the cost of the copy alone of the same data in the same run.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]

use std::time::Instant as Clock;

use engine::{Buffer, Engine, Entropy, Instant, Rng};
use farlane_nvme_rdma::controller::{self, Queue};
use farlane_nvme_rdma::{SharedPool, host};
use nvme::host::{Data, command};
use nvme::wire::{CompletionQueueEntry, IoOpcode, NamespaceId, QueueId};
use nvme_fabrics::transport::{ControllerEnd, HostEnd};
use rdma::{Endpoint, LocalConfig, LocalEndpoint, ProtectionDomain, QueuePairId, SharedDomain};

const BATCHES: usize = 200;
const BATCH: u32 = 1024;
const BLOCK: u32 = 4096;
const DEPTH_MAX: u16 = 32;

/// An endpoint whose bytes are moved from one end to the other.
trait Carried: Endpoint {
    fn carry(_from: &mut Self, _to: &mut Self, _pool: &SharedPool) {}
}

impl Carried for LocalEndpoint {}

impl Carried for iwarp::Connection {
    /// Moves all bytes, like a world that receives them into a block of its pool.
    fn carry(from: &mut Self, to: &mut Self, pool: &SharedPool) {
        let count = from.outbox().len().min(64 << 10);
        if count == 0 {
            return;
        }
        let mut block = pool.borrow_mut().take(count);
        let mut rest = &mut block[..];
        for slice in from.outbox().slices() {
            let (place, behind) = rest.split_at_mut(slice.len().min(rest.len()));
            place.copy_from_slice(&slice[..place.len()]);
            rest = behind;
        }
        from.sent(count);
        let received = pool.borrow_mut().seal(block);
        to.handle_input(Instant::ZERO, iwarp::Input::Received(received));
    }
}

struct Pair<E> {
    host: host::Connection<E>,
    controller: controller::Connection<E>,
    pool: SharedPool,
    block: Buffer,
    finished: u32,
}

/// The host's settings.
fn asked() -> host::Config {
    host::Config::new().for_queue(QueueId(1), 1, DEPTH_MAX, 0)
}

fn local() -> Pair<LocalEndpoint> {
    let pool = SharedPool::default();
    let ends = LocalEndpoint::pair(&LocalConfig::default(), &pool, &asked().private_data());
    Pair::new(pool, ends)
}

fn over_iwarp(crc: bool) -> Pair<iwarp::Connection> {
    let pool = SharedPool::default();
    let config = |seed| {
        let entropy = Entropy::Seeded(Rng::from_seed(seed));
        let domain = SharedDomain::new(ProtectionDomain::new(64, pool.clone(), entropy).into());
        iwarp::Config { crc, ..iwarp::Config::new(domain, pool.clone(), QueuePairId(1)) }
    };
    let near = iwarp::Connection::connect(Instant::ZERO, config(1), &asked().private_data());
    let far = iwarp::Connection::accept(Instant::ZERO, config(2));
    Pair::new(pool, [near, far])
}

impl<E: Carried> Pair<E> {
    fn new(pool: SharedPool, [near, far]: [E; 2]) -> Self {
        let now = Instant::ZERO;
        let mut controller = controller::Connection::new(now, controller::Config::new(pool.clone()), far);
        controller.set_queue(Queue { size: DEPTH_MAX, capsule_data_max: 8192, success_flag: false });
        let block = pool.borrow_mut().copy(&[0x5a; BLOCK as usize]);
        let host = host::Connection::new(now, asked(), near);
        let mut pair = Self { host, controller, pool, block, finished: 0 };
        while !pair.host.is_ready() {
            pair.step();
        }
        pair
    }

    fn step(&mut self) {
        E::carry(self.host.endpoint_mut(), self.controller.endpoint_mut(), &self.pool);
        while let Some(output) = self.controller.poll() {
            match output {
                controller::Output::Command { slot, entry } => {
                    let is_write = entry.opcode == u8::from(IoOpcode::Write);
                    if is_write && self.controller.pull(slot, BLOCK).unwrap().is_none() {
                        continue;
                    }
                    if !is_write {
                        self.controller.push(slot, 0, BLOCK, self.block.clone()).unwrap();
                    }
                    self.controller.complete(slot, CompletionQueueEntry::default());
                }
                controller::Output::HostData { slot, .. } => {
                    self.controller.complete(slot, CompletionQueueEntry::default());
                }
                controller::Output::Initialized(_) => {}
                controller::Output::Closed(why) => panic!("{why}"),
            }
        }
        E::carry(self.controller.endpoint_mut(), self.host.endpoint_mut(), &self.pool);
        while let Some(output) = self.host.poll() {
            match output {
                host::Output::Completed(completed) => {
                    assert!(completed.entry.status().is_success());
                    self.finished += 1;
                }
                host::Output::Initialized(_) => {}
                host::Output::Closed(why) => panic!("{why}"),
            }
        }
    }

    /// Runs a batch of commands, `depth` at a time. Returns the ns for each.
    fn batch(&mut self, depth: u32, opcode: IoOpcode) -> u128 {
        let start = Clock::now();
        for _ in 0..BATCH / depth {
            self.finished = 0;
            for cookie in 0..depth {
                let entry = command::on_blocks(opcode, NamespaceId(1), u64::from(cookie) * 8, 8);
                let data = match opcode {
                    IoOpcode::Write => Data::Write(self.block.clone()),
                    _ => Data::Read(BLOCK),
                };
                self.host.submit(cookie.into(), entry, data).unwrap();
            }
            while self.finished < depth {
                self.step();
            }
        }
        start.elapsed().as_nanos() / u128::from(BATCH)
    }
}

fn print(name: &str, mut times: Vec<u128>) -> u128 {
    times.sort_unstable();
    let median = times[BATCHES / 2].max(1);
    println!("{name:<36} {median:>6} ns, fastest {:>6} ns, {:>9} a second", times[0], 1_000_000_000 / median);
    median
}

/// Measures reads and writes, and prints how many copies of the same data each costs.
fn measure<E: Carried>(wire: &str, mut pair: Pair<E>, copy: u128) {
    for (word, opcode) in [("read", IoOpcode::Read), ("write", IoOpcode::Write)] {
        for depth in [1, u32::from(DEPTH_MAX)] {
            let times = (0..BATCHES).map(|_| pair.batch(depth, opcode)).collect();
            let name = format!("4 KiB {word}, {depth} deep, {wire}");
            let median = print(&name, times);
            println!("{name}: {:.1} x the copy", median as f64 / copy as f64);
        }
    }
}

fn main() {
    let mut place = vec![0_u8; BLOCK as usize];
    let source = vec![0x5a_u8; BLOCK as usize];
    let copies = (0..BATCHES).map(|_| {
        let start = Clock::now();
        for _ in 0..BATCH {
            place.copy_from_slice(std::hint::black_box(&source));
            std::hint::black_box(&mut place);
        }
        start.elapsed().as_nanos() / u128::from(BATCH)
    });
    let copy = print("copy of 4 KiB", copies.collect());
    measure("no wire", local(), copy);
    measure("iWARP", over_iwarp(true), copy);
    measure("iWARP, no CRC", over_iwarp(false), copy);
}
