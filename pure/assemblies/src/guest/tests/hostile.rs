//! Functions whose configuration space is nonsense and whose packets are arbitrary: they must cause
//! nothing but errors.

use engine::Rng;
use pcie::completer::{Completer, Settings};
use pcie::wire::{Bdf, CompletionStatus, Kind, MemoryOperation};

use super::*;

/// A hostile function.
struct Hostile {
    rng: Rng,
    space: Vec<u32>,
    /// By double word: the bits that can be written.
    masks: Vec<u32>,
    completer: Completer,
}

impl Hostile {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::from_seed(seed);
        let mut space: Vec<u32> = (0..1024).map(|_| odd(&mut rng)).collect();
        let masks = (0..1024).map(|_| if rng.below(3) == 0 { u32::MAX } else { odd(&mut rng) }).collect();
        // This much must be right, or the rest is not examined.
        (space[0], space[2], space[3]) = (0x0010_fa1a, 0x0108_0201, 0);
        space[1] |= 1 << 20;
        space[0x34 / 4] = u32::try_from(0x40 + rng.below(0x30) * 4).unwrap();
        for index in (0x40 / 4..0x100 / 4).chain(0x100 / 4..0x180 / 4) {
            let next = u32::try_from(0x40 + rng.below(0x30) * 4).unwrap();
            let id = [1, 5, 0x10, 0x11, 9, 0][usize::try_from(rng.below(6)).unwrap()];
            match rng.below(4) {
                0 if index < 0x40 => space[index] = id | next << 8 | odd(&mut rng) << 16,
                0 => space[index] = (id & 3) | 1 << 16 | next << 20,
                _ => {}
            }
        }
        Self { rng, space, masks, completer: Completer::new(Settings::default()) }
    }

    fn answer(&mut self, packet: &Packet, out: &mut Vec<Packet>) {
        let header = &packet.header;
        match &header.kind {
            Kind::Config(request) => {
                let index = usize::from(request.offset / 4) % 1024;
                if request.write {
                    let value = packet.payload.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
                    let mask = self.masks[index];
                    self.space[index] = (self.space[index] & !mask) | (value & mask);
                }
                let status = match self.rng.below(3000) {
                    0 => CompletionStatus::UnsupportedRequest,
                    1 => CompletionStatus::ConfigRequestRetry,
                    2 => CompletionStatus::CompleterAbort,
                    _ if request.write => CompletionStatus::Success,
                    _ => {
                        let data = Buffer::copy_from_slice(&self.space[index].to_le_bytes());
                        return self.completer.data(header, &data, |packet| out.push(packet));
                    }
                };
                out.push(self.completer.status(header, status));
            }
            Kind::Memory(request) if request.operation == MemoryOperation::Read => {
                let length = usize::from(header.length) * 4;
                self.completer.data(header, &Buffer::zeroed(length), |packet| out.push(packet));
            }
            _ => {}
        }
    }

    /// Sends unsolicited packets.
    fn volunteer(&mut self, out: &mut Vec<Packet>) {
        let requester = Bdf::new(1, 0, 0);
        let address = match self.rng.below(3) {
            0 => 0xffff_ffff_fee0_0000,
            1 => BASE + self.rng.below(BYTES) / 4 * 4,
            _ => self.rng.next_u64() / 4 * 4,
        };
        let data = Buffer::copy_from_slice(&odd(&mut self.rng).to_le_bytes());
        out.push(Packet::memory_write(requester, address, data));
    }
}

/// A value of zeros, of ones, of few bits, or of many bits.
fn odd(rng: &mut Rng) -> u32 {
    let [a, b, ..] = [rng.next_u64(), rng.next_u64()];
    let value = u32::try_from(a >> 32).unwrap();
    match b % 5 {
        0 => 0,
        1 => u32::MAX,
        2 => value & u32::try_from(b >> 32).unwrap() & 0x1111_1111,
        3 => !0xf & (u32::MAX << (b % 29)),
        _ => value,
    }
}

#[test]
fn whatever_a_function_says_only_errors_come_of_it() {
    let (mut offered, mut answered) = (0, 0);
    for seed in 0..400 {
        let now = Instant::from_nanos(1_000);
        let config = Config { doorbells: true, function: Some(0), ..config() };
        let mut bench = TestBench::around(Guest::direct(config, now), None, now);
        let mut hostile = Hostile::new(seed);
        let mut requests = Vec::new();
        for step in 0..3000_u64 {
            bench.now = bench.now + Nanos::from_micros(if step % 50 == 0 { 2_000 } else { 1 });
            bench.settle();
            let mut out = Vec::new();
            for packet in core::mem::take(&mut bench.packets) {
                hostile.answer(&packet, &mut out);
            }
            if step % 7 == 0 {
                hostile.volunteer(&mut out);
            }
            for packet in out {
                bench.guest.handle_input(bench.now, Input::Packet(packet));
            }
            if bench.guest.takes_client() && bench.client.negotiated().is_none() {
                offered += 1;
                bench.guest.handle_input(bench.now, Input::ClientConnected);
                bench.client.handle_input(bench.now, client::Input::Connected);
            }
            if bench.client.negotiated().is_some() && requests.len() < 200 {
                requests.push(ask(&mut bench, step));
            }
        }
        answered += requests.iter().filter(|request| bench.answers.contains_key(request)).count();
    }
    assert!(offered > 20 && answered > 1000, "{offered} were offered, {answered} were answered");
}

/// Sends some request that a client may make.
fn ask(bench: &mut TestBench, step: u64) -> RequestId {
    let now = bench.now;
    let offset = step * 37 % 4096;
    let length = u32::try_from((4096 - offset).min(step % 70 + 1)).unwrap();
    match step % 6 {
        0 => bench.client.read(now, RegionIndex::CONFIG, 0, 4096),
        1 => bench.client.read(now, RegionIndex::CONFIG, offset, length),
        2 => bench.client.write(now, RegionIndex::CONFIG, offset, &[0xa5; 4][..(length as usize).min(4)]),
        3 => bench.client.read(now, RegionIndex(u32::try_from(step % 9).unwrap()), offset, length),
        4 if step % 60 == 4 => bench.client.reset(now),
        4 => bench.client.write(now, RegionIndex::BAR0, offset, &[0xff; 8]),
        _ => {
            let map = DmaMap { readable: true, writable: true, offset: 0, address: BASE, length: BYTES };
            bench.client.map(now, map, (step % 12 == 5).then_some(MEMORY_FILE))
        }
    }
}
