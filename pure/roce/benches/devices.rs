//! The cost of two devices without sockets: for the packets of an NVMe read of 4 KiB (a command, an
//! RDMA WRITE, a response), and for long RDMA WRITEs and READs. Reports medians of batches, and the
//! cost of the CRC and the copy alone of the same data in the same run.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]

use std::cell::RefCell;
use std::hint::black_box;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Instant as Clock;

use engine::{Buffer, Crc32, Engine, Entropy, Instant, Rng, crc32, drain};
use farlane_roce::{Config, Device, Input, Output, PathMtu, Received, RoceEndpoint, SharedDevice};
use rdma::{
    Endpoint, Event, Exposure, Inline, Operation, ProtectionDomain, ReceiveRequest, Remote, SendRequest,
    SharedPool,
};

const BATCHES: usize = 100;
const BATCH: u32 = 256;
const SERVICE: u16 = 4420;

struct Two {
    devices: [SharedDevice; 2],
    ends: [RoceEndpoint; 2],
    pool: SharedPool,
}

/// Moves all datagrams, like a world that receives them into blocks of its pool.
fn carry(devices: &[SharedDevice; 2], pool: &SharedPool) -> bool {
    let mut busy = false;
    for (from, to) in [(0, 1), (1, 0)] {
        let (mut from, mut to) = (devices[from].borrow_mut(), devices[to].borrow_mut());
        from.handle_timeout(Instant::ZERO);
        drain(&mut *from, |Output::Datagram(one)| {
            busy = true;
            let mut pool = pool.borrow_mut();
            let mut block = pool.take(one.len());
            let mut at = 0;
            for slice in one.slices() {
                block[at..at + slice.len()].copy_from_slice(slice);
                at += slice.len();
            }
            let bytes = pool.seal(block);
            drop(pool);
            let (from, identification) = (one.from, Some(0));
            let received = Received { from, to: one.to, identification, is_marked: false, bytes };
            to.handle_input(Instant::ZERO, Input::Datagram(received));
        });
    }
    busy
}

impl Two {
    fn new(crc32: Crc32) -> Self {
        let pool = SharedPool::default();
        let addresses: [IpAddr; 2] = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
        let devices = addresses.map(|address| {
            let entropy = Entropy::Seeded(Rng::from_seed(1).fork(&address.to_string()));
            let domain = ProtectionDomain::new(64, Rc::clone(&pool), entropy.fork("keys"));
            let config = Config { mtu: PathMtu::B4096, crc32, ..Config::new(address) };
            let domain = Rc::new(RefCell::new(domain));
            Rc::new(RefCell::new(Device::new(config, domain, Rc::clone(&pool), entropy)))
        });
        devices[1].borrow_mut().listen(SERVICE);
        let mut here = RoceEndpoint::connect(&devices[0], addresses[1], SERVICE, b"").unwrap();
        let mut there = None;
        while there.is_none() {
            carry(&devices, &pool);
            there = RoceEndpoint::next_requested(&devices[1]);
        }
        let mut there: RoceEndpoint = there.unwrap();
        there.accept(b"");
        while !matches!(here.poll_event(), Some(Event::Established { .. })) {
            carry(&devices, &pool);
        }
        while carry(&devices, &pool) {}
        Self { devices, ends: [here, there], pool }
    }

    fn post(&mut self, side: usize, operation: Operation) {
        self.ends[side].post_send(SendRequest { id: 0, operation, signalled: true }).unwrap();
    }

    /// Moves datagrams until each end has this many completions.
    fn finish(&mut self, mut wanted: [u32; 2]) {
        while wanted != [0; 2] {
            carry(&self.devices, &self.pool);
            for (end, wanted) in self.ends.iter_mut().zip(&mut wanted) {
                while let Some(completion) = end.poll_completion() {
                    assert!(completion.result.is_ok(), "{completion:?}");
                    *wanted -= 1;
                }
            }
        }
    }

    /// An NVMe read of 4 KiB, 32 at a time.
    fn read(&mut self, room: Remote, block: &Buffer) {
        const DEPTH: u32 = 32;
        let send = |length: usize| Operation::Send {
            inline: Inline::new(&[0; 64][..length]),
            data: Buffer::EMPTY,
            invalidate: None,
            immediate: None,
        };
        for _ in 0..DEPTH {
            for end in &mut self.ends {
                end.post_receive(ReceiveRequest { id: 1, length_max: 64 }).unwrap();
            }
            self.post(0, send(64));
        }
        self.finish([DEPTH; 2]);
        for _ in 0..DEPTH {
            self.post(1, Operation::Write { data: block.clone(), remote: room });
            self.post(1, send(16));
        }
        self.finish([DEPTH, 2 * DEPTH]);
    }
}

/// The median time of a batch, divided by its number of operations, in nanoseconds.
fn median(each: u32, mut batch: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let start = Clock::now();
            batch();
            start.elapsed().as_secs_f64() * 1e9 / f64::from(each)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[BATCHES / 2]
}

fn main() {
    // Worlds have faster code for the CRC, so one run goes without it.
    let mut free = Two::new(|_, _| 0);
    let mut two = Two::new(crc32);
    let block = Buffer::zeroed(4096);
    let room = two.ends[0].register(Exposure::Write(4096)).unwrap();
    let reads = median(BATCH, || (0..BATCH / 32).for_each(|_| two.read(room, &block)));
    let free_room = free.ends[0].register(Exposure::Write(4096)).unwrap();
    let free_reads = median(BATCH, || (0..BATCH / 32).for_each(|_| free.read(free_room, &block)));
    let crc = median(BATCH, || {
        for _ in 0..BATCH {
            black_box(crc32(0, black_box(&block)));
        }
    });
    let mut place = vec![0_u8; 4096];
    let copy = median(BATCH, || {
        for _ in 0..BATCH {
            place.copy_from_slice(black_box(&block));
            black_box(&mut place);
        }
    });
    println!("4 KiB read, 32 deep: {reads:.0} ns, {:.0} a second", 1e9 / reads);
    println!("without any CRC: {free_reads:.0} ns, {:.0} a second", 1e9 / free_reads);
    println!("the CRC of the data, twice: {:.0} ns; a copy: {copy:.0} ns", 2.0 * crc);
    let long = Buffer::zeroed(1 << 20);
    let lent = two.ends[1].register(Exposure::Read(long.clone())).unwrap();
    let room = two.ends[1].register(Exposure::Write(1 << 20)).unwrap();
    for (name, operation) in
        [("write", Operation::Write { data: long, remote: room }), ("read", Operation::Read { remote: lent })]
    {
        let time = median(1, || {
            two.post(0, operation.clone());
            two.finish([1, 0]);
        });
        println!("RDMA {name} of 1 MiB: {:.1} µs, {:.0} MB/s", time / 1e3, f64::from(1 << 20) * 1e3 / time);
    }
}
