//! What both ends cost for one command, without a wire: host and controller over endpoints of one
//! thread. The work of the wire's own engines comes on top. Reports medians of batches, and beside
//! them what the copy alone of the same data costs in the same run.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]

use std::time::Instant as Clock;

use engine::{Buffer, Instant};
use farlane_nvme_rdma::controller::{self, Queue};
use farlane_nvme_rdma::{SharedPool, host};
use nvme::host::{Data, command};
use nvme::wire::{CompletionQueueEntry, IoOpcode, NamespaceId, QueueId};
use rdma::{LocalConfig, LocalEndpoint};

const BATCHES: usize = 200;
const BATCH: u32 = 1024;
const BLOCK: u32 = 4096;
const DEPTH_MAX: u16 = 32;

struct Pair {
    host: host::Connection<LocalEndpoint>,
    controller: controller::Connection<LocalEndpoint>,
    block: Buffer,
    finished: u32,
}

impl Pair {
    fn new() -> Self {
        let (now, pool) = (Instant::ZERO, SharedPool::default());
        let asked = host::Config::new().for_queue(QueueId(1), 1, DEPTH_MAX, 8192);
        let [near, far] = LocalEndpoint::pair(&LocalConfig::default(), &pool, &asked.private_data());
        let mut controller = controller::Connection::new(now, controller::Config::new(pool.clone()), far);
        controller.set_queue(Queue { size: DEPTH_MAX, capsule_data_max: 8192, success_flag: false });
        let block = pool.borrow_mut().copy(&[0x5a; BLOCK as usize]);
        let mut pair = Self { host: host::Connection::new(now, asked, near), controller, block, finished: 0 };
        while !pair.host.is_ready() {
            pair.step();
        }
        pair
    }

    fn step(&mut self) {
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
    println!("{name:<28} {median:>6} ns, fastest {:>6} ns, {:>9} a second", times[0], 1_000_000_000 / median);
    median
}

fn main() {
    let mut pair = Pair::new();
    let mut place = vec![0_u8; BLOCK as usize];
    let source = pair.block.clone();
    let copies = (0..BATCHES).map(|_| {
        let start = Clock::now();
        for _ in 0..BATCH {
            place.copy_from_slice(std::hint::black_box(&source));
            std::hint::black_box(&mut place);
        }
        start.elapsed().as_nanos() / u128::from(BATCH)
    });
    let copy = print("copy of 4 KiB", copies.collect());
    for (word, opcode) in [("read", IoOpcode::Read), ("write", IoOpcode::Write)] {
        for depth in [1, u32::from(DEPTH_MAX)] {
            let times = (0..BATCHES).map(|_| pair.batch(depth, opcode)).collect();
            let median = print(&format!("4 KiB {word}, {depth} deep"), times);
            println!("4 KiB {word}, {depth} deep: {:.1} x the copy", median as f64 / copy as f64);
        }
    }
}
