//! The cost at both ends of one operation of 4 KiB, without sockets: bytes are copied once from an
//! outbox into a block, as by a socket. Reports medians of batches, and the cost of the copy alone
//! in the same run.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]

use std::time::Instant as Clock;

use engine::{Buffer, Engine, Entropy, Instant, Rng};
use farlane_iwarp::{Config, Connection, Input};
use rdma::{
    Done, Endpoint, Event, Exposure, Inline, Operation, ProtectionDomain, QueuePairId, ReceiveRequest,
    Remote, SendRequest, SharedDomain, SharedPool,
};

const NOW: Instant = Instant::ZERO;
const BATCHES: usize = 200;
const BATCH: u32 = 512;
const BLOCK: u32 = 4096;
/// Maximum number of bytes of one receive.
const RECEIVED_MAX: usize = 64 << 10;

struct Pair {
    near: Connection,
    far: Connection,
    pool: SharedPool,
    block: Buffer,
    read: Remote,
    written: Remote,
}

impl Pair {
    fn new(crc: bool) -> Self {
        let pool = SharedPool::default();
        let config = |seed| {
            let domain = ProtectionDomain::new(8, pool.clone(), Entropy::Seeded(Rng::from_seed(seed)));
            let domain = SharedDomain::new(domain.into());
            Config { crc, ..Config::new(domain, pool.clone(), QueuePairId(1)) }
        };
        let mut near = Connection::connect(NOW, config(1), b"");
        let mut far = Connection::accept(NOW, config(2));
        carry(&mut near, &mut far, &pool);
        assert!(matches!(far.poll_event(), Some(Event::Requested { .. })));
        far.accept(b"");
        carry(&mut far, &mut near, &pool);
        carry(&mut near, &mut far, &pool);
        let block = pool.borrow_mut().copy(&[0x5a; BLOCK as usize]);
        let read = far.register(Exposure::Read(block.clone())).unwrap();
        let written = far.register(Exposure::Write(BLOCK)).unwrap();
        Self { near, far, pool: pool.clone(), block, read, written }
    }

    /// Runs a batch of operations, `depth` at a time. Returns the ns for each.
    fn batch(&mut self, depth: u32, operation: &Operation) -> u128 {
        let start = Clock::now();
        for _ in 0..BATCH / depth {
            for id in 0..depth {
                if let Operation::Send { .. } = operation {
                    self.far.post_receive(ReceiveRequest { id: id.into(), length_max: BLOCK }).unwrap();
                }
                let request = SendRequest { id: id.into(), operation: operation.clone(), signalled: true };
                self.near.post_send(request).unwrap();
            }
            let mut finished = 0;
            while finished < depth {
                carry(&mut self.near, &mut self.far, &self.pool);
                carry(&mut self.far, &mut self.near, &self.pool);
                while let Some(completion) = self.far.poll_completion() {
                    assert!(matches!(completion.result, Ok(Done::Received { .. })));
                }
                while let Some(completion) = self.near.poll_completion() {
                    assert!(completion.result.is_ok());
                    finished += 1;
                }
            }
        }
        start.elapsed().as_nanos() / u128::from(BATCH)
    }
}

/// Moves all bytes from one end to the other, as a socket would: each is copied once.
fn carry(from: &mut Connection, to: &mut Connection, pool: &SharedPool) {
    while !from.outbox().is_empty() {
        let length = from.outbox().len().min(RECEIVED_MAX);
        let mut block = pool.borrow_mut().take(length);
        let mut at = 0;
        for slice in from.outbox().slices() {
            let count = slice.len().min(length - at);
            block[at..at + count].copy_from_slice(&slice[..count]);
            at += count;
            if at == length {
                break;
            }
        }
        let block = pool.borrow_mut().seal(block);
        from.sent(length);
        to.handle_input(NOW, Input::Received(block));
    }
}

fn print(name: &str, mut times: Vec<u128>) -> u128 {
    times.sort_unstable();
    let median = times[BATCHES / 2].max(1);
    println!("{name:<36} {median:>6} ns, fastest {:>6} ns, {:>9} a second", times[0], 1_000_000_000 / median);
    median
}

fn main() {
    let source = Buffer::zeroed(BLOCK as usize);
    let mut place = vec![0_u8; BLOCK as usize];
    let copies = (0..BATCHES).map(|_| {
        let start = Clock::now();
        for _ in 0..BATCH {
            place.copy_from_slice(std::hint::black_box(&source));
            std::hint::black_box(&mut place);
        }
        start.elapsed().as_nanos() / u128::from(BATCH)
    });
    let copy = print("copy of 4 KiB", copies.collect());
    for crc in [false, true] {
        let mut pair = Pair::new(crc);
        let message = Operation::Send {
            inline: Inline::EMPTY,
            data: pair.block.clone(),
            invalidate: None,
            immediate: None,
        };
        let write = Operation::Write { data: pair.block.clone(), remote: pair.written };
        let read = Operation::Read { remote: pair.read };
        for (word, operation) in [("send", message), ("write", write), ("read", read)] {
            for depth in [1, 32] {
                let times = (0..BATCHES).map(|_| pair.batch(depth, &operation)).collect();
                let crc = if crc { "CRC in tables" } else { "no CRC" };
                let name = format!("4 KiB {word}, {depth} deep, {crc}");
                let median = print(&name, times);
                println!("{name}: {:.1} x the copy", median as f64 / copy as f64);
            }
        }
    }
}
