//! Fuzz targets: each accepts any bytes and must not panic.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::IpAddr;

use engine::fuzz::Source;
use engine::{Buffer, Engine, Entropy, Instant, Nanos, Rng, settle};
use rdma::{
    Endpoint, Exposure, Inline, Operation, ProtectionDomain, ReceiveRequest, SendRequest, SharedPool,
};

use crate::wire::{MAD_LENGTH, Mad, Message, Packet};
use crate::{Config, Device, Input, Output, PathMtu, Received, RoceEndpoint, SharedDevice};

const STEP: Nanos = Nanos::from_millis(3);
const PORT: u16 = 4420;
/// Number of rounds of datagrams before the next input bytes.
const ROUNDS: usize = 4;

/// Parses a datagram as a packet, and as a message of connection management, which is emitted
/// again.
///
/// # Panics
/// When an emitted message differs from the parsed one.
pub fn message(bytes: &[u8]) {
    drop(Packet::parse(bytes));
    let mut block = [0; MAD_LENGTH];
    let length = bytes.len().min(MAD_LENGTH);
    block[..length].copy_from_slice(&bytes[..length]);
    block[..4].copy_from_slice(&[1, 7, 2, 3]);
    let Some(mad) = Mad::parse(&block) else { return };
    let Some(message) = Message::parse(&mad) else { return };
    let emitted = message.emit(mad.transaction);
    let again = Mad::parse(&emitted).and_then(|mad| Message::parse(&mad)).expect("it is a message");
    assert_eq!(again.emit(mad.transaction), emitted);
}

fn device(address: IpAddr, seed: u64) -> SharedDevice {
    let pool = SharedPool::default();
    let entropy = Entropy::Seeded(Rng::from_seed(seed));
    let domain = ProtectionDomain::new(16, Rc::clone(&pool), entropy.fork("keys"));
    // A constant CRC, so that random bytes reach further code.
    let config = Config { crc32: |_, _| u32::MAX, mtu: PathMtu::B256, ..Config::new(address) };
    Rc::new(RefCell::new(Device::new(config, Rc::new(RefCell::new(domain)), pool, entropy)))
}

/// Two devices, and the time.
struct World {
    devices: [SharedDevice; 2],
    addresses: [IpAddr; 2],
    now: Instant,
    /// The latest datagram of each device.
    last: [Vec<u8>; 2],
}

impl World {
    fn put(&self, to: usize, mut bytes: Vec<u8>) {
        bytes.extend([0xff; 4]);
        let [from, to_address] = [self.addresses[1 - to], self.addresses[to]];
        let received = Received {
            from: (from, crate::PORT).into(),
            to: (to_address, crate::PORT).into(),
            identification: Some(0),
            is_marked: bytes.len().is_multiple_of(7),
            bytes: Buffer::from(bytes),
        };
        self.devices[to].borrow_mut().handle_input(self.now, Input::Datagram(received));
    }

    fn carry(&mut self) {
        for _ in 0..ROUNDS {
            for from in 0..2 {
                let mut sent = Vec::new();
                let device = Rc::clone(&self.devices[from]);
                settle(&mut *device.borrow_mut(), self.now, |Output::Datagram(one)| sent.push(one));
                for datagram in sent {
                    let mut bytes = datagram.slices().concat();
                    bytes.truncate(bytes.len() - 4);
                    self.last[from].clone_from(&bytes);
                    self.put(1 - from, bytes);
                }
            }
        }
    }

    /// A datagram in place of the latest one, with some bytes changed.
    fn forge(&self, source: &mut Source<'_>) {
        let control = source.byte();
        let from = usize::from(control & 1);
        let mut bytes = self.last[from].clone();
        for _ in 0..control >> 1 & 7 {
            let at = usize::from(source.byte());
            let value = source.byte();
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        if control & 0x10 != 0 {
            bytes.truncate(usize::from(source.half()));
        }
        if control & 0x20 != 0 {
            bytes.extend_from_slice(source.bytes(usize::from(control >> 6) * 64));
        }
        self.put(1 - from, bytes);
    }
}

fn request(kind: u8, length: u16, remote: rdma::Remote) -> SendRequest {
    let data = Buffer::zeroed(usize::from(length & 0xfff));
    let operation = match kind & 3 {
        0 => Operation::Read { remote: rdma::Remote { length: u32::from(length & 0xfff), ..remote } },
        1 => Operation::Write { data, remote },
        2 => Operation::Send { inline: Inline::new(b"inline"), data, invalidate: None, immediate: Some(1) },
        _ => Operation::Send { inline: Inline::EMPTY, data, invalidate: Some(remote.key), immediate: None },
    };
    SendRequest { id: 1, operation, signalled: true }
}

/// Runs a connection between two devices while its users work and an attacker injects datagrams.
/// Each step takes a byte that chooses the action.
pub fn session(bytes: &[u8]) {
    run(bytes);
}

/// Runs the session; returns the numbers of completions and events.
fn run(bytes: &[u8]) -> [usize; 2] {
    let mut seen = [0; 2];
    let mut source = Source::new(bytes);
    let addresses = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
    let devices = [device(addresses[0], 1), device(addresses[1], 2)];
    devices[1].borrow_mut().listen(PORT);
    let mut world = World { devices, addresses, now: Instant::ZERO, last: [Vec::new(), Vec::new()] };
    let Ok(here) = RoceEndpoint::connect(&world.devices[0], addresses[1], PORT, b"fuzz") else {
        return seen;
    };
    let mut ends = Vec::from([here]);
    let mut lent = Vec::new();
    while !source.is_empty() {
        let step = source.byte();
        let which = usize::from(step >> 4) % ends.len();
        let end = &mut ends[which];
        match step & 0xf {
            0..=4 => world.forge(&mut source),
            5 => world.put(which & 1, Vec::from(source.bytes(usize::from(step >> 4) * 4))),
            6 => {
                let receive = ReceiveRequest { id: 2, length_max: source.half().into() };
                let _: Result<(), rdma::PostError> = end.post_receive(receive);
            }
            7 => lent.extend(end.register(Exposure::Write(source.half().into()))),
            8 => lent.extend(end.register(Exposure::Read(Buffer::zeroed(source.half().into())))),
            9 | 10 => {
                if let Some(remote) = lent.last() {
                    let request = request(source.byte(), source.half(), *remote);
                    let _: Result<(), rdma::PostError> = end.post_send(request);
                }
            }
            11 => end.accept(b"yes"),
            12 if step > 0xe0 => end.disconnect(),
            13 => world.now = world.now + STEP * (1 << (step >> 4)),
            _ => world.carry(),
        }
        ends.extend(RoceEndpoint::next_requested(&world.devices[1]).filter(|_| ends.len() < 4));
        for end in &mut ends {
            seen[0] += core::iter::from_fn(|| end.poll_completion()).count();
            seen[1] += core::iter::from_fn(|| end.poll_event()).count();
        }
    }
    drop(ends);
    world.carry();
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A session without faults, as a seed for the fuzzer.
    const SESSION: &[u8] = &[
        0x0f, 0x1b, 0x0f, 0x16, 0, 4, 0x18, 0, 4, 0x17, 0, 8, 0x09, 1, 0, 1, 0x0f, 0x09, 2, 9, 0, 0x0f, 0xfc,
        0x0f,
    ];

    #[test]
    fn a_session_in_bytes_moves_packets() {
        let mut bytes = SESSION.to_vec();
        let [done, events] = run(&bytes);
        assert!(done >= 3 && events >= 3, "{done} completions, {events} events");
        bytes.extend([0x0d, 0x01, 0x07, 3, 4, 0x0f]);
        assert!(run(&bytes)[0] >= done);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            message(&bytes);
            let mut whole = SESSION[..13].to_vec();
            whole.extend(&bytes);
            session(&whole);
        }
    }
}
