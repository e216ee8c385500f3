//! Packets of all lanes between circuits and engines whose surroundings pause and cut.

use campaigns::sessions::Member;
use engine::{Buffer, Instant, Nanos, Rng};
use pcie::ordering::Lane;
use pcie::wire::{Bdf, Kind, Packet, Tag};
use tunnel::frame::Role;
use tunnel::session::{Config, Input, Output};

use super::super::{Pace, Port};

/// Two ends whose bytes arrive at once, cut anywhere.
struct Pair {
    ends: [Box<dyn Member>; 2],
    packets: [Vec<Packet>; 2],
    resets: usize,
    now: Instant,
    rng: Rng,
}

impl Pair {
    fn new(circuits: [bool; 2], seed: u64) -> Self {
        let rng = Rng::from_seed(seed);
        let roles = [Role::Upstream, Role::Downstream];
        let ends = std::array::from_fn(|end| {
            let rng = rng.fork(["up", "down"][end]);
            let config = Config { digests: seed % 2 == 0, stamps: seed % 3 == 0, ..Config::default() };
            if circuits[end] {
                // Windows of a few packets, which block often.
                let mut draw = rng.fork("window");
                let window = [0; 6].map(|_: u32| u32::try_from(2 + draw.below(9)).unwrap());
                let window =
                    std::array::from_fn(|place| window[place] + if place % 2 == 1 { 512 } else { 0 });
                let pace = Pace::random(rng.fork("pace"));
                Box::new(Port::with_window(roles[end], &config, rng, pace, window)) as Box<dyn Member>
            } else {
                campaigns::sessions::engine(roles[end], &config, &rng)
            }
        });
        let mut pair = Self { ends, packets: [vec![], vec![]], resets: 0, now: Instant::ZERO, rng };
        pair.run(Instant::from_nanos(1_000_000));
        pair
    }

    /// Exchanges bytes until both ends are quiet, and then goes on to their deadlines, up to `end`.
    fn run(&mut self, end: Instant) {
        loop {
            let mut quiet = true;
            for from in [0, 1] {
                while let Some(output) = self.ends[from].poll_output() {
                    quiet = false;
                    self.on_output(from, output);
                }
            }
            if !quiet {
                continue;
            }
            let wakes = self.ends.iter().filter_map(|member| member.poll_timeout());
            let Some(at) = wakes.min().filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            for member in &mut self.ends {
                if member.poll_timeout().is_some_and(|at| at <= self.now) {
                    member.handle_timeout(self.now);
                }
            }
        }
        self.now = end;
    }

    fn on_output(&mut self, from: usize, output: Output) {
        let to = 1 - from;
        match output {
            Output::Connect => {
                self.ends[1].handle_input(self.now, Input::Connected);
                self.ends[0].handle_input(self.now, Input::Connected);
            }
            Output::Transmit(bytes) => {
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let length = 1 + usize::try_from(self.rng.below(rest.len() as u64)).unwrap();
                    let piece = Buffer::copy_from_slice(&rest[..length]);
                    self.ends[to].handle_input(self.now, Input::Received(piece));
                    rest = &rest[length..];
                }
            }
            Output::Tlp { packet, .. } => self.packets[from].push(packet),
            Output::CloseConnection => self.ends[to].handle_input(self.now, Input::Disconnected),
            Output::Reset => self.resets += 1,
            _ => {}
        }
    }

    fn cut(&mut self) {
        // All that is under way is lost.
        for end in [0, 1] {
            while let Some(output) = self.ends[end].poll_output() {
                if !matches!(output, Output::Transmit(_)) {
                    self.on_output(end, output);
                }
            }
        }
        for member in &mut self.ends {
            member.handle_input(self.now, Input::Disconnected);
        }
    }
}

/// A packet of any lane and any length, recognisable by `number`.
fn packet(number: u32, rng: &mut Rng) -> Packet {
    let stamp = number.to_be_bytes();
    let length =
        4 * (1 + usize::try_from(if rng.one_in(8) { rng.below(1024) } else { rng.below(20) }).unwrap());
    let data = || Buffer::from(stamp.repeat(length / 4));
    let requester = Bdf::new(1, 0, 0);
    let tag = Tag::new(u16::try_from(number % 256).unwrap());
    let address = (if rng.one_in(2) { 1 << 32 } else { 0 }) + u64::from(number) * 4096;
    let read = Packet::memory_read(requester, tag, address, u32::try_from(length).unwrap());
    match rng.below(3) {
        0 => Packet::memory_write(requester, address, data()),
        1 => read,
        _ => Packet::completion_with_data(Bdf::new(2, 0, 0), &read.header, 0, data()),
    }
}

/// Checks that `found` is `sent`, in an order that PCI Express allows: each lane keeps its own, and
/// nothing passes a posted request.
fn check_order(sent: &[Packet], found: &[Packet]) {
    for lane in Lane::ALL {
        let of_lane = |packets: &[Packet]| {
            let mut posted = 0_usize;
            let mut found = Vec::new();
            for one in packets {
                if Lane::of(&one.header) == lane {
                    found.push((one.clone(), posted));
                }
                posted += usize::from(one.is_posted());
            }
            found
        };
        for ((sent, least), (found, posted)) in of_lane(sent).into_iter().zip(of_lane(found)) {
            assert!(sent == found, "{lane:?}: {found} came in the place of {sent}");
            assert!(posted >= least, "{found} has passed a posted request");
        }
    }
}

#[test]
fn packets_of_all_lanes_arrive_once_and_in_an_order_that_pci_express_allows() {
    for seed in 0..30 {
        let circuits = [[true, false], [false, true], [true, true]][usize::try_from(seed % 3).unwrap()];
        let mut pair = Pair::new(circuits, seed);
        let mut rng = Rng::from_seed(seed).fork("packets");
        let mut sent: [Vec<Packet>; 2] = [vec![], vec![]];
        for number in 0..300 {
            let end = usize::from(rng.one_in(2));
            let packet = packet(number, &mut rng);
            sent[end].push(packet.clone());
            pair.ends[end].send(pair.now, packet);
            if rng.one_in(4) {
                pair.run(pair.now + Nanos::from_micros(1));
            }
            if rng.one_in(40) {
                pair.cut();
            }
        }
        pair.run(pair.now + Nanos::from_millis(9_000));
        for end in [0, 1] {
            let found = &pair.packets[1 - end];
            // What an end has received is in its own list.
            println!("seed {seed}, from {end}, circuits: {circuits:?}, {:?}", pair.ends);
            assert_eq!(found.len(), sent[end].len());
            check_order(&sent[end], found);
        }
    }
}

#[test]
fn a_malformed_packet_of_a_peer_is_dropped_and_counted() {
    for upstream_is_circuit in [true, false] {
        let mut pair = Pair::new([upstream_is_circuit, !upstream_is_circuit], 1);
        let (circuit, peer) = if upstream_is_circuit { (0, 1) } else { (1, 0) };
        let write = |address| Packet::memory_write(Bdf::new(1, 0, 0), address, Buffer::from(vec![7; 8]));
        let mut crossing = write(0x1000);
        let Kind::Memory(request) = &mut crossing.header.kind else { panic!("{crossing} is a write") };
        // The second double word lies in the next page.
        request.address = 0x1ffc;
        for packet in [write(0x2000), crossing, write(0x3000)] {
            pair.ends[peer].send(pair.now, packet);
        }
        pair.run(pair.now + Nanos::from_millis(10));
        assert_eq!(pair.packets[circuit], [write(0x2000), write(0x3000)]);
        let described = format!("{:?}", pair.ends[circuit]);
        assert!(described.contains("; 1 malformed TLPs were dropped"), "{described}");
    }
}
