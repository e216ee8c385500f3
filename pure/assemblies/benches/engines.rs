//! What the engines of both ends cost for one operation over a tunnel, without sockets: everything
//! between the application and the bytes of the stream, there and back. Reports medians of batches.
//!
//! An argument names a single measurement to run, for a profiler.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]

use std::time::Instant as Clock;

use engine::{Engine, Instant, Nanos, Rng};
use farlane_assemblies::far::{self, ConnectionId, Far};
use farlane_assemblies::near::{self, ControllerIndex, Event, Near};
use nvme::media::{self, MediumId, ram::RamDisk};
use nvme::wire::{IoOpcode, NamespaceId};
use nvme_pcie::host::{Data, QueueId, Submission};
use nvme_pcie::{controller, function};
use tunnel::downstream;
use tunnel::session::Dma;
use tunnel::upstream::ConnectionIndex;

const CONNECTION: ConnectionId = ConnectionId(1);
const NEAR_CONNECTION: ConnectionIndex = ConnectionIndex(0);
const DISK_BYTES: u64 = 1 << 20;
const BATCHES: usize = 200;
const BATCH: u32 = 200;

struct Pair {
    near: Near,
    far: Far,
    disk: RamDisk,
    now: Instant,
    completions: Vec<media::Completion>,
    finished: u32,
    ready: bool,
}

impl Pair {
    fn new(dma: Dma, lookahead: bool) -> Self {
        let now = Instant::from_nanos(1_000);
        let rng = Rng::from_seed(1);
        let session = tunnel::session::Config { dma, lookahead, ..tunnel::session::Config::default() };
        let core = nvme::subsystem::Config::new("BENCH").with_namespace(MediumId(0), DISK_BYTES);
        let function = function::Config::new(controller::Config::new(core));
        let mut pair = Self {
            near: Near::over_tunnels(near::Config::default(), [session.clone()].into(), &rng),
            far: Far::new(now, session, function, rng.fork("far")),
            disk: RamDisk::new(DISK_BYTES),
            now,
            completions: Vec::new(),
            finished: 0,
            ready: false,
        };
        while !pair.ready {
            pair.step();
        }
        pair
    }

    /// Delivers everything that is under way, once in each direction.
    fn step(&mut self) {
        self.now = self.now + Nanos::from_micros(1);
        let now = self.now;
        if self.near.poll_timeout().is_some_and(|at| at <= now) {
            self.near.handle_timeout(now);
        }
        while let Some(output) = self.near.poll_output() {
            match output {
                near::Output::Connect(_) => {
                    self.near.handle_input(now, near::Input::Connected(NEAR_CONNECTION));
                    self.far.handle_input(
                        now,
                        far::Input::Network(downstream::Input::Accepted(
                            CONNECTION,
                            core::net::Ipv4Addr::LOCALHOST.into(),
                        )),
                    );
                }
                near::Output::Transmit(_, bytes) => {
                    let input = downstream::Input::Received(CONNECTION, bytes);
                    self.far.handle_input(now, far::Input::Network(input));
                }
                near::Output::Event(Event::Ready { .. }) => self.ready = true,
                near::Output::Event(Event::Completed { .. } | Event::ConfigRead { .. }) => self.finished += 1,
                _ => {}
            }
        }
        if self.far.poll_timeout().is_some_and(|at| at <= now) {
            self.far.handle_timeout(now);
        }
        loop {
            for completion in self.completions.drain(..) {
                self.far.handle_input(now, far::Input::Device(completion));
            }
            let Some(output) = self.far.poll_output() else { break };
            match output {
                far::Output::Transmit(_, bytes) => {
                    self.near.handle_input(now, near::Input::Received(NEAR_CONNECTION, bytes));
                }
                far::Output::Device(far::Storage::Media(request)) => {
                    let completions = &mut self.completions;
                    self.disk.submit(request, &mut |completion| completions.push(completion));
                }
                _ => {}
            }
        }
    }

    fn measure(&mut self, name: &str, depth: u32, mut begin: impl FnMut(&mut Self, u32)) {
        let wanted = std::env::args().nth(1).filter(|argument| !argument.starts_with('-'));
        if wanted.is_some_and(|wanted| wanted != name) {
            return;
        }
        let times: Vec<u128> = (0..BATCHES).map(|_| self.batch(depth, &mut begin)).collect();
        print(name, times);
    }

    /// Runs a batch of operations. Returns the ns for each.
    fn batch(&mut self, depth: u32, begin: &mut impl FnMut(&mut Self, u32)) -> u128 {
        let start = Clock::now();
        for _ in 0..BATCH / depth {
            self.finished = 0;
            for slot in 0..depth {
                begin(self, slot);
            }
            while self.finished < depth {
                self.step();
            }
        }
        start.elapsed().as_nanos() / u128::from(BATCH)
    }

    /// Begins to move the block of a slot.
    fn transfer(&mut self, slot: u32, write: bool) {
        let controller = ControllerIndex(0);
        let base = self.near.driver(controller).unwrap().data_region().base;
        let data = Data { address: base + u64::from(slot) * 4096, length: 4096 };
        let (queue, namespace, lba) = (QueueId(1), NamespaceId(1), u64::from(slot) * 8);
        let opcode = if write { IoOpcode::Write } else { IoOpcode::Read };
        let submission = Submission::on_blocks(opcode, queue, namespace, lba, 8, data, 0);
        self.near.submit(self.now, controller, submission).unwrap();
    }
}

fn print(name: &str, mut times: Vec<u128>) -> u128 {
    times.sort_unstable();
    println!("{name:<36} {:>6} ns, fastest {:>6} ns", times[BATCHES / 2], times[0]);
    times[BATCHES / 2]
}

/// The cost of the DMA rule: the same reads with it and without, in turns.
fn rule(lookahead: bool) {
    let name = if lookahead { "4 KiB read, 1 deep, ahead" } else { "4 KiB read, 1 deep" };
    let names = [(Dma::Strict, "strict"), (Dma::Mapped, "mapped")].map(|(dma, word)| {
        let name = format!("{name}, {word}");
        (dma, name)
    });
    let wanted = std::env::args().nth(1).filter(|argument| !argument.starts_with('-'));
    let mut begin = |pair: &mut Pair, slot| pair.transfer(slot, false);
    let mut pairs: Vec<_> = names
        .into_iter()
        .filter(|(_, name)| wanted.as_ref().is_none_or(|wanted| wanted == name))
        .map(|(dma, name)| (Pair::new(dma, lookahead), name, Vec::new()))
        .collect();
    for _ in 0..BATCHES {
        for (pair, _, times) in &mut pairs {
            times.push(pair.batch(1, &mut begin));
        }
    }
    let medians: Vec<u128> = pairs.into_iter().map(|(_, name, times)| print(&name, times)).collect();
    if let [strict, mapped] = medians[..] {
        println!("{name}: strict {:.3} x mapped", strict as f64 / mapped as f64);
    }
}

fn main() {
    let mut pair = Pair::new(Dma::Strict, false);
    let (_, target) = pair.near.controllers().next().unwrap();
    pair.measure("configuration read", 1, |pair, _| {
        pair.near.config_read(pair.now, target, 0, 0).unwrap();
    });
    for depth in [1, 32] {
        pair.measure(&format!("4 KiB write, {depth} deep"), depth, |pair, slot| pair.transfer(slot, true));
        pair.measure(&format!("4 KiB read, {depth} deep"), depth, |pair, slot| pair.transfer(slot, false));
    }
    let mut pair = Pair::new(Dma::Strict, true);
    pair.measure("4 KiB write, 1 deep, ahead", 1, |pair, slot| pair.transfer(slot, true));
    [false, true].into_iter().for_each(rule);
}
