//! Devices with a network between them, in virtual time.

mod data;
mod hostile;
mod manager;
mod tshark;
mod wire;

use std::collections::BTreeMap;
use std::net::IpAddr;

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use engine::{Buffer, Engine, Entropy, Instant, Nanos, Rng, settle};
use rdma::{
    Done, Endpoint, Event, Inline, Operation, ProtectionDomain, ReceiveRequest, SendRequest, SharedPool,
    WorkCompletion,
};

use crate::{Config, Datagram, Device, Input, Output, PathMtu, Received, RoceEndpoint, SharedDevice};

const PORT: u16 = 4420;

/// Faults of a network: each occurs once in this many datagrams, or never if 0.
#[derive(Clone, Copy, Default)]
struct Faults {
    lost: u64,
    doubled: u64,
    late: u64,
    corrupt: u64,
}

/// Devices and the network between them.
struct Net {
    addresses: Vec<IpAddr>,
    devices: Vec<SharedDevice>,
    now: Instant,
    under_way: BTreeMap<(Instant, u64), (usize, Received)>,
    count: u64,
    rng: Rng,
    faults: Faults,
    /// Whether receivers know the identification in IPv4 headers.
    is_raw: bool,
    /// Whether the network marks packets.
    is_congested: bool,
    /// Every sent datagram.
    seen: Vec<(Instant, Datagram)>,
}

/// A device with its own domain.
fn device(config: Config, entropy: Entropy) -> SharedDevice {
    let pool = SharedPool::default();
    let domain = ProtectionDomain::new(64, Rc::clone(&pool), entropy.fork("keys"));
    Rc::new(RefCell::new(Device::new(config, Rc::new(RefCell::new(domain)), pool, entropy)))
}

fn address(index: usize, is_ipv6: bool) -> IpAddr {
    let text = if is_ipv6 { format!("fd00::{}", index + 1) } else { format!("192.0.2.{}", index + 1) };
    text.parse().unwrap()
}

impl Net {
    fn new(seed: u64, configure: impl Fn(&mut Config)) -> Self {
        let rng = Rng::from_seed(seed);
        let addresses: Vec<_> = (0..2).map(|index| address(index, seed % 3 == 2)).collect();
        let devices = addresses.iter().map(|address| {
            let mut config = Config::new(*address);
            config.mtu = PathMtu::B256;
            configure(&mut config);
            device(config, Entropy::Seeded(rng.fork(&address.to_string())))
        });
        Self {
            devices: devices.collect(),
            addresses: addresses.clone(),
            now: Instant::ZERO,
            under_way: BTreeMap::new(),
            count: 0,
            rng: rng.fork("net"),
            faults: Faults::default(),
            is_raw: seed.is_multiple_of(2),
            is_congested: false,
            seen: Vec::new(),
        }
    }

    fn once_in(&mut self, times: u64) -> bool {
        self.rng.one_in(times)
    }

    fn carry(&mut self, datagram: Datagram) {
        self.seen.push((self.now, datagram.clone()));
        if self.once_in(self.faults.lost) {
            return;
        }
        let Some(to) = self.addresses.iter().position(|address| *address == datagram.to.ip()) else { return };
        let copies = 1 + usize::from(self.once_in(self.faults.doubled));
        for _ in 0..copies {
            let mut bytes = datagram.slices().concat();
            if self.once_in(self.faults.corrupt) {
                let bit = usize::try_from(self.rng.below(bytes.len() as u64 * 8)).unwrap();
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            let mut delay = Nanos::from_micros(20);
            if self.once_in(self.faults.late) {
                delay += Nanos::from_micros(self.rng.below(5_000));
            }
            self.put(to, datagram.from.ip(), bytes, delay);
        }
    }

    /// Lets a datagram arrive.
    fn put(&mut self, to: usize, from: IpAddr, bytes: Vec<u8>, delay: Nanos) {
        let received = Received {
            from: (from, crate::PORT).into(),
            to: (self.addresses[to], crate::PORT).into(),
            identification: self.is_raw.then_some(0),
            is_marked: self.is_congested,
            bytes: Buffer::from(bytes),
        };
        self.count += 1;
        self.under_way.insert((self.now + delay, self.count), (to, received));
    }

    /// Settles the devices, then advances to the next event. Returns whether there is one.
    fn step(&mut self) -> bool {
        self.step_before(None)
    }

    /// The same, if the event is before `end`.
    fn step_before(&mut self, end: Option<Instant>) -> bool {
        let wakes: Vec<_> = (0..self.devices.len()).map(|index| self.settle(index)).collect();
        let arrival = self.under_way.keys().next().map(|(at, _)| *at);
        let next = wakes.into_iter().fold(arrival, Instant::earlier);
        let Some(next) = next.filter(|next| end.is_none_or(|end| *next < end)) else { return false };
        self.now = next;
        while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= next) {
            let (to, received) = entry.remove();
            self.devices[to].borrow_mut().handle_input(next, Input::Datagram(received));
        }
        true
    }

    fn settle(&mut self, index: usize) -> Option<Instant> {
        let mut sent = Vec::new();
        let device = Rc::clone(&self.devices[index]);
        let wake = settle(&mut *device.borrow_mut(), self.now, |Output::Datagram(one)| sent.push(one));
        for datagram in sent {
            self.carry(datagram);
        }
        wake
    }

    /// Steps until `done`.
    fn run(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let mut idle = 0;
        for _ in 0..200_000 {
            if done(self) {
                return;
            }
            if !self.step() {
                // Only users can make progress.
                idle += 1;
                assert!(idle < 1000, "{what}: nothing is due any more");
                self.now = self.now + Nanos::from_micros(100);
            }
        }
        panic!("{what}: it does not come");
    }

    /// Steps for a time.
    fn pass(&mut self, time: Nanos) {
        let end = self.now + time;
        while self.step_before(Some(end)) {}
        self.now = self.now.max(end);
    }

    /// A connection from device 0 to device 1.
    fn connect(&mut self) -> [RoceEndpoint; 2] {
        self.devices[1].borrow_mut().listen(PORT);
        let mut here = RoceEndpoint::connect(&self.devices[0], self.addresses[1], PORT, b"hello").unwrap();
        let mut there = None;
        self.run("the request", |net| {
            there = RoceEndpoint::next_requested(&net.devices[1]);
            there.is_some()
        });
        let mut there: RoceEndpoint = there.unwrap();
        let event = there.poll_event();
        assert!(
            matches!(&event, Some(Event::Requested { private_data }) if private_data.starts_with(b"hello\0")),
            "{event:?}"
        );
        there.accept(b"welcome");
        let mut events = [None, None];
        self.run("the connection", |_| {
            events[0] = events[0].take().or_else(|| here.poll_event());
            events[1] = events[1].take().or_else(|| there.poll_event());
            // The accepting end is established when the other end sends.
            if events[0].is_some() && events[1].is_none() {
                return false;
            }
            events.iter().all(Option::is_some)
        });
        assert!(
            matches!(&events[0], Some(Event::Established { private_data }) if private_data.starts_with(b"welcome")),
            "{events:?}"
        );
        assert_eq!(events[1], Some(Event::Established { private_data: Vec::new() }));
        [here, there]
    }
}

fn bytes(rng: &mut Rng, length: usize) -> Buffer {
    let mut bytes = vec![0; length];
    rng.fill(&mut bytes);
    Buffer::from(bytes)
}

fn message(id: u64, data: Buffer) -> SendRequest {
    let operation = Operation::Send { inline: Inline::EMPTY, data, invalidate: None, immediate: None };
    SendRequest { id, operation, signalled: true }
}

const fn receive(id: u64, length_max: u32) -> ReceiveRequest {
    ReceiveRequest { id, length_max }
}

/// All available completions.
fn completions(endpoint: &mut RoceEndpoint) -> Vec<WorkCompletion> {
    core::iter::from_fn(|| endpoint.poll_completion()).collect()
}

fn received(completion: &WorkCompletion) -> Option<&Buffer> {
    match &completion.result {
        Ok(Done::Received { data, .. }) => Some(data),
        _ => None,
    }
}
