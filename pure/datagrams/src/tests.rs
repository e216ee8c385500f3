//! Two endpoints over a bad network, in virtual time.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use engine::{Buffer, Entropy, Instant, Nanos, Rng};

use super::*;

/// Faults of the network: each affects one datagram in this many.
#[derive(Clone, Copy)]
struct Network {
    lost: u64,
    doubled: u64,
    late: u64,
    cut: u64,
    flipped: u64,
    latency: Nanos,
    mtu: usize,
    /// Longer datagrams are cut, and not lost.
    cuts: bool,
    is_out: bool,
}

const GOOD: Network = Network {
    lost: 0,
    doubled: 0,
    late: 0,
    cut: 0,
    flipped: 0,
    latency: Nanos::from_micros(50),
    mtu: 1472,
    cuts: false,
    is_out: false,
};

/// Two endpoints, `0` and `1`, which is also their address.
struct World {
    now: Instant,
    rng: Rng,
    network: Network,
    ends: [Endpoint<usize>; 2],
    /// Datagrams in transit, by their arrival: destination and bytes.
    under_way: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    passed: u64,
}

impl World {
    fn new(seed: u64, network: Network) -> Self {
        let end =
            |number: u64, port| Endpoint::new(Entropy::Seeded(Rng::from_seed(seed * 2 + number)), 9000, port);
        Self {
            now: Instant::from_nanos(1),
            rng: Rng::from_seed(seed),
            network,
            ends: [end(0, None), end(1, Some(0))],
            under_way: BTreeMap::new(),
            passed: 0,
        }
    }

    /// Lets both ends send.
    fn transmit(&mut self) {
        for from in 0..2 {
            let mut bytes = Vec::new();
            while let Some(to) = self.ends[from].poll_transmit(self.now, &mut bytes) {
                self.pass(to, core::mem::take(&mut bytes));
            }
        }
    }

    fn pass(&mut self, to: usize, mut bytes: Vec<u8>) {
        let Network { lost, doubled, late, cut, flipped, latency, mtu, cuts, is_out } = self.network;
        self.passed += 1;
        if is_out || bytes.len() > mtu && !cuts || self.rng.one_in(lost) {
            return;
        }
        bytes.truncate(mtu);
        if self.rng.one_in(cut) {
            bytes.truncate(usize::try_from(self.rng.below(bytes.len() as u64)).unwrap());
        }
        if self.rng.one_in(flipped) {
            // The network's own checks catch nearly every change: such a datagram is garbage.
            let at = usize::try_from(self.rng.below(12.min(bytes.len().max(1)) as u64)).unwrap();
            let flip = u8::try_from(1 + self.rng.below(255)).unwrap();
            bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= flip);
        }
        let copies = 1 + u64::from(self.rng.one_in(doubled));
        for _ in 0..copies {
            let late = if self.rng.one_in(late) { latency * self.rng.below(8) } else { Nanos::default() };
            let number = self.passed * 2 + self.under_way.len() as u64 % 2;
            self.under_way
                .insert((self.now + latency + late, number << 8 | self.rng.below(256)), (to, bytes.clone()));
        }
    }

    /// Advances to the next event; returns whether there is one.
    fn step(&mut self) -> bool {
        self.transmit();
        let arrival = self.under_way.keys().next().map(|(at, _)| *at);
        let timers = self.ends.iter().filter_map(Endpoint::poll_timeout).min();
        let Some(next) = Instant::earlier(arrival, timers) else { return false };
        self.now = self.now.max(next);
        while let Some(first) = self.under_way.first_entry()
            && first.key().0 <= self.now
        {
            let (to, bytes) = first.remove();
            self.ends[to].handle_datagram(self.now, 1 - to, &bytes);
        }
        for end in &mut self.ends {
            end.handle_timeout(self.now);
            assert!(end.poll_timeout().is_none_or(|at| at > self.now), "a deadline outlived its timeout");
        }
        true
    }

    fn meet(&mut self) -> [Id; 2] {
        let near = self.ends[0].connect(self.now, 1, 0);
        self.ends[0].get(near).unwrap().send(Buffer::copy_from_slice(b"!"));
        loop {
            assert!(self.step(), "the ends never met");
            if let Some((far, 0)) = self.ends[1].accept() {
                while self.receive(1, far).is_empty() {
                    assert!(self.step(), "the first byte got lost");
                }
                return [near, far];
            }
        }
    }

    fn receive(&mut self, end: usize, id: Id) -> Vec<u8> {
        self.ends[end].get(id).unwrap().receive().map(|bytes| bytes.to_vec()).unwrap_or_default()
    }

    /// Sends `bytes` each way and checks that they arrive, once and in order.
    fn exchange(&mut self, ids: [Id; 2], bytes: usize) {
        let mut sent = [0_usize; 2];
        let mut taken = [0_usize; 2];
        let byte = |at: usize| u8::try_from(at % 251).unwrap();
        while taken != [bytes; 2] {
            for end in 0..2 {
                let connection = self.ends[end].get(ids[end]).unwrap();
                if sent[end] < bytes && connection.unsent() < 64 << 10 {
                    let length = usize::try_from(1 + self.rng.below(5000)).unwrap().min(bytes - sent[end]);
                    let piece: Vec<u8> = (sent[end]..sent[end] + length).map(byte).collect();
                    connection.send(Buffer::from(piece));
                    sent[end] += length;
                }
                loop {
                    let came = self.receive(end, ids[end]);
                    if came.is_empty() {
                        break;
                    }
                    let start = taken[end];
                    assert!(came.iter().enumerate().all(|(at, one)| *one == byte(start + at)), "at {start}");
                    taken[end] += came.len();
                }
            }
            assert!(self.step(), "it stopped at {taken:?} of {bytes}");
            let ended = [0, 1].map(|end| self.ends[end].get(ids[end]).unwrap().ended());
            assert_eq!(ended, [None; 2], "at {taken:?}");
        }
    }
}

#[test]
fn every_byte_arrives_once_and_in_order_over_bad_networks() {
    let mut lost = 0;
    for seed in 0..300 {
        let mut rng = Rng::from_seed(seed + 1_000_000);
        let mut one_in = |most| if rng.below(3) == 0 { 0 } else { 5 + rng.below(most) };
        let network = Network {
            lost: one_in(50),
            doubled: one_in(30),
            late: one_in(30),
            cut: one_in(100),
            flipped: one_in(100),
            latency: Nanos::from_micros(1 + one_in(30_000)),
            ..GOOD
        };
        let mut world = World::new(seed, network);
        let ids = world.meet();
        world.exchange(ids, 100_000);
        lost += world.ends[0].get(ids[0]).unwrap().counters().lost;
    }
    assert!(lost > 1000, "{lost} losses");
}

#[test]
fn a_good_network_loses_nothing_and_gets_long_datagrams() {
    for (mtu, expected) in [(1300, 1200), (1460, 1452), (1472, 1472), (8972, 8972), (9000, 9000)] {
        let mut world = World::new(1, Network { mtu, ..GOOD });
        let ids = world.meet();
        world.exchange(ids, 1 << 20);
        world.passed = 0;
        world.ends[0].get(ids[0]).unwrap().send(Buffer::zeroed(4 << 20));
        let mut came = 0;
        while came < 4 << 20 {
            assert!(world.step(), "it stopped at {came}");
            while let Some(bytes) = world.ends[1].get(ids[1]).unwrap().receive() {
                came += bytes.len();
            }
        }
        let near = world.ends[0].get(ids[0]).unwrap();
        assert_eq!(near.datagram_bytes(), expected, "an MTU of {mtu}");
        let tries = if expected == 9000 { 0 } else { 3 };
        assert!(near.counters().lost <= tries, "{:?}", near.counters());
        // Packets are full, and there is one acknowledgement for each two.
        let least = (4 << 20) / expected as u64;
        assert!(world.passed < least * 2, "{} datagrams for {least}", world.passed);
    }
}

#[test]
fn a_path_that_becomes_narrower_is_found_out() {
    let mut world = World::new(2, Network { mtu: 9000, ..GOOD });
    let ids = world.meet();
    world.exchange(ids, 1 << 20);
    assert_eq!(world.ends[0].get(ids[0]).unwrap().datagram_bytes(), 9000);
    world.network.mtu = 1472;
    world.exchange(ids, 1 << 20);
    assert_eq!(world.ends[0].get(ids[0]).unwrap().datagram_bytes(), 1472);
}

#[test]
fn a_path_that_cuts_long_datagrams_is_as_narrow_as_one_that_loses_them() {
    let mut world = World::new(16, Network { cuts: true, ..GOOD });
    let ids = world.meet();
    world.exchange(ids, 1 << 20);
    let near = world.ends[0].get(ids[0]).unwrap();
    assert_eq!(near.datagram_bytes(), 1472);
    assert!(near.counters().lost <= 3, "{:?}", near.counters());
}

#[test]
fn an_idle_connection_sends_nothing() {
    let mut world = World::new(3, GOOD);
    let ids = world.meet();
    world.exchange(ids, 1000);
    while world.step() {}
    assert!(world.now - Instant::ZERO < Nanos::from_secs(2), "{:?}", world.now);
    let before = world.passed;
    world.now = world.now + Nanos::from_secs(3600);
    world.exchange(ids, 1);
    assert!(world.passed - before < 8, "{} datagrams", world.passed - before);
}

#[test]
fn an_outage_is_survived_and_a_long_one_ends_the_connection() {
    for (seconds, survives) in [(1, true), (5, true), (15, false)] {
        let mut world = World::new(4, GOOD);
        let ids = world.meet();
        world.exchange(ids, 10_000);
        world.network.is_out = true;
        world.ends[0].get(ids[0]).unwrap().send(Buffer::copy_from_slice(&[7; 5000]));
        let end = world.now + Nanos::from_secs(seconds);
        while world.now < end && world.step() {}
        world.network.is_out = false;
        while world.step() {}
        let near = world.ends[0].get(ids[0]).unwrap();
        assert_eq!(near.ended(), (!survives).then_some(Ended::Silence));
        assert_eq!(near.unacknowledged() == 0, survives);
        let mut came = 0;
        while let Some(bytes) = world.ends[1].get(ids[1]).unwrap().receive() {
            came += bytes.len();
        }
        assert_eq!(came, if survives { 5000 } else { 0 });
    }
}

#[test]
fn an_end_that_was_started_again_says_so() {
    let mut world = World::new(5, GOOD);
    let ids = world.meet();
    world.ends[1] = World::new(99, GOOD).ends.into_iter().nth(1).unwrap();
    world.ends[0].get(ids[0]).unwrap().send(Buffer::copy_from_slice(b"there?"));
    while world.step() {}
    assert_eq!(world.ends[0].get(ids[0]).unwrap().ended(), Some(Ended::Forgotten));
}

#[test]
fn a_refusal_ends_a_new_connection_and_several_an_established_one() {
    let mut world = World::new(11, GOOD);
    let id = world.ends[0].connect(world.now, 1, 0);
    world.ends[0].handle_refusal(world.now, 1);
    assert_eq!(world.ends[0].get(id).unwrap().ended(), Some(Ended::Refused));
    let ids = world.meet();
    for (millis, expected) in [(0, None), (1, None), (2, None), (300, Some(Ended::Refused))] {
        world.ends[0].handle_refusal(world.now + Nanos::from_millis(millis), 1);
        assert_eq!(world.ends[0].get(ids[0]).unwrap().ended(), expected, "{millis}");
    }
}

#[test]
fn an_end_is_reported() {
    for ender in 0..2 {
        let mut world = World::new(6, GOOD);
        let ids = world.meet();
        world.ends[ender].get(ids[ender]).unwrap().end();
        while world.step() {}
        let ended = [0, 1].map(|end| world.ends[end].get(ids[end]).unwrap().ended());
        let expected = if ender == 0 { [Ended::Here, Ended::There] } else { [Ended::There, Ended::Here] };
        assert_eq!(ended, expected.map(Some));
    }
}

#[test]
fn a_reader_that_does_not_read_stops_the_sender_and_later_gets_all() {
    let mut world = World::new(7, GOOD);
    let ids = world.meet();
    let bytes = 20 << 20;
    world.ends[0].get(ids[0]).unwrap().send(Buffer::zeroed(bytes));
    let end = world.now + Nanos::from_secs(5);
    while world.now < end && world.step() {}
    let near = world.ends[0].get(ids[0]).unwrap();
    let waiting = near.unsent();
    assert!(waiting > 11 << 20, "{waiting} B wait");
    let mut came = 0;
    while came < bytes {
        came += world.receive(1, ids[1]).len();
        world.step();
    }
}

#[test]
fn a_sender_hears_of_room_even_if_the_news_of_it_gets_lost() {
    let mut world = World::new(15, GOOD);
    let ids = world.meet();
    let bytes = 20 << 20;
    world.ends[0].get(ids[0]).unwrap().send(Buffer::zeroed(bytes));
    while world.step() {}
    let take_all = |world: &mut World| -> usize {
        core::iter::from_fn(|| Some(world.receive(1, ids[1]).len()).filter(|more| *more > 0)).sum()
    };
    world.network.is_out = true;
    let mut came = take_all(&mut world);
    world.transmit();
    world.network.is_out = false;
    while came < bytes {
        assert!(world.step(), "the sender waits for ever: {came} of {bytes} B arrived");
        came += take_all(&mut world);
    }
}

#[test]
fn bytes_that_come_one_by_one_take_bounded_memory() {
    let mut world = World::new(12, GOOD);
    let ids = world.meet();
    let mut bytes = Vec::new();
    world.ends[0].get(ids[0]).unwrap().send(Buffer::copy_from_slice(b"x"));
    world.ends[0].poll_transmit(world.now, &mut bytes).unwrap();
    let number = u64::from_be_bytes(*bytes[12..].first_chunk().unwrap());
    let offset = u64::from_be_bytes(*bytes[60..].first_chunk().unwrap());
    for more in 0..50_000 {
        bytes[12..20].copy_from_slice(&(number + more).to_be_bytes());
        bytes[60..68].copy_from_slice(&(offset + more).to_be_bytes());
        world.ends[1].handle_datagram(world.now, 0, &bytes);
    }
    let far = world.ends[1].get(ids[1]).unwrap();
    let pieces: Vec<usize> = core::iter::from_fn(|| far.receive()).map(|piece| piece.len()).collect();
    assert_eq!((pieces.len(), pieces.iter().sum()), (1, 50_000), "they share a block");
}

#[test]
fn work_for_an_acknowledgement_does_not_grow_with_the_packets_in_flight() {
    use packet::Ack;
    use recovery::{Fate, Recovery, Sent};
    for (window, every) in [(10, 1), (1_000, 1), (10_000, 1), (10_000, 8), (10_000, 100)] {
        let (mut recovery, mut came) = (Recovery::new(Instant::ZERO), 0_u64);
        for number in 1..=100_000_u64 {
            let part = number * 1000..number * 1000 + 1000;
            recovery.on_sent(Sent { number, at: Instant::ZERO, part, bytes: 1068, is_probe: false });
            let Some(largest) = number.checked_sub(window).filter(|one| *one > 0 && one % every == 0) else {
                continue;
            };
            // One packet in a hundred is missing until the next one arrives.
            let before = if largest % 100 == 0 { u128::MAX - 1 } else { u128::MAX };
            let ack = Ack { largest, before, ..Ack::default() };
            assert!(recovery.on_ack(Instant::ZERO, &ack, number, |_, fate| {
                assert_eq!(fate, Fate::Came);
                came += 1;
            }));
        }
        let most = 100_000 + 2_000;
        assert!(came > 80_000 && recovery.looks <= most, "{} looks, {came} packets arrived", recovery.looks);
    }
}

#[test]
fn a_missing_packet_is_taken_however_many_wait_for_it() {
    let mut world = World::new(13, GOOD);
    let ids = world.meet();
    let packets = 6_000;
    let near = world.ends[0].get(ids[0]).unwrap();
    near.send(Buffer::copy_from_slice(b"first"));
    let mut first = Vec::new();
    world.ends[0].poll_transmit(world.now, &mut first).unwrap();
    let [number, offset] = [12, 60].map(|at| u64::from_be_bytes(*first[at..].first_chunk().unwrap()));
    for more in 1..packets {
        let mut next = first.clone();
        next[12..20].copy_from_slice(&(number + more).to_be_bytes());
        next[60..68].copy_from_slice(&(offset + 5 * more).to_be_bytes());
        world.ends[1].handle_datagram(world.now, 0, &next);
    }
    assert!(world.receive(1, ids[1]).is_empty());
    // The lost part is sent again in a new packet.
    first[12..20].copy_from_slice(&(number + packets).to_be_bytes());
    world.ends[1].handle_datagram(world.now, 0, &first);
    assert!(world.receive(1, ids[1]).len() > 4_000 * 5);
}

#[test]
fn ends_that_share_an_address_leave_each_other_alone() {
    let mut world = World::new(14, GOOD);
    let mut other = Endpoint::new(Entropy::Seeded(Rng::from_seed(1)), 9000, Some(1));
    let mut room = Vec::new();
    // Datagrams for the far end at port 0 also arrive at the one at port 1.
    let id = world.ends[0].connect(world.now, 1, 0);
    world.ends[0].get(id).unwrap().send(Buffer::copy_from_slice(b"for port 0"));
    for _ in 0..100 {
        while world.ends[0].poll_transmit(world.now, &mut room).is_some() {
            other.handle_datagram(world.now, 0, &room);
            world.pass(1, core::mem::take(&mut room));
        }
        world.step();
        assert!(other.poll_transmit(world.now, &mut room).is_none() && !other.has_arrivals());
    }
    let (far, _) = world.ends[1].accept().unwrap();
    assert_eq!(world.receive(1, far), b"for port 0");
    // A far end that shares its address with an end that dials answers for itself only.
    for (name, answers) in [(names_of(0), false), (names_of(1), true), ([0, 1], false)] {
        let ack = packet::Ack { largest: 1, ..packet::Ack::default() };
        let to = packet::Name(u64::from(u16::from_be_bytes(name)) << 48 | 7);
        let (purpose, number, offset, bytes) = (packet::Purpose::Data, 1, 0, &b"?"[..]);
        room.clear();
        packet::Datagram::Packet { to, purpose, number, ack, offset, bytes }.emit(&mut room);
        other.handle_datagram(world.now, 0, &room);
        assert_eq!(other.poll_transmit(world.now, &mut room).is_some(), answers, "{name:?}");
    }
}

#[test]
fn forged_and_old_datagrams_do_nothing() {
    let mut world = World::new(8, GOOD);
    let ids = world.meet();
    let mut kept = Vec::new();
    world.ends[0].get(ids[0]).unwrap().send(Buffer::copy_from_slice(b"once"));
    let to = world.ends[0].poll_transmit(world.now, &mut kept).unwrap();
    world.pass(to, kept.clone());
    while world.step() {}
    assert_eq!(world.receive(1, ids[1]), b"once");
    // The same datagram again, from its sender and from another address.
    for (from, again) in [(0, 1), (5, 0)] {
        let before = world.ends[1].get(ids[1]).unwrap().counters().again;
        world.ends[1].handle_datagram(world.now, from, &kept);
        assert_eq!(world.ends[1].get(ids[1]).unwrap().counters().again - before, again);
        assert!(world.receive(1, ids[1]).is_empty());
    }
    // Names that were guessed.
    for guess in 0..1000_u64 {
        kept[4..12].copy_from_slice(&guess.to_be_bytes());
        world.ends[1].handle_datagram(world.now, 0, &kept);
    }
    assert!(world.ends[1].dropped() >= 1000);
    world.exchange(ids, 10_000);
}

#[test]
fn floods_of_requests_use_little_memory_and_block_no_host() {
    let mut world = World::new(9, GOOD);
    for name in 0..10_000_u64 {
        let mut question = Vec::new();
        packet::Datagram::Hello { from: packet::Name(name), port: 0, echo: 0 }.emit(&mut question);
        world.ends[1].handle_datagram(world.now, 0, &question);
    }
    world.under_way.clear();
    assert!(!world.ends[1].has_peer(0), "a host that has only sent a request does not count");
    let ids = world.meet();
    assert!(world.ends[0].has_peer(1) && world.ends[1].has_peer(0));
    world.exchange(ids, 10_000);
    let end = Endpoint::<usize>::new(Entropy::Seeded(Rng::from_seed(1)), 1200, None);
    assert!(!end.has_arrivals());
}

#[test]
fn forged_questions_get_no_more_bytes_than_they_have_and_keep_no_host_out() {
    const FORGED: usize = 100;
    let mut world = World::new(11, GOOD);
    let near = world.ends[0].connect(world.now, 1, 0);
    world.ends[0].get(near).unwrap().send(Buffer::copy_from_slice(b"!"));
    let (mut came, mut answered, mut number) = (0, 0, 0);
    let met = (0..1000).any(|_| {
        for _ in 0..FORGED {
            number += 1;
            let mut question = Vec::new();
            let echo = if number % 2 == 0 { world.rng.next_u64() } else { 0 };
            let from = packet::Name(world.rng.below(1 << 63));
            packet::Datagram::Hello { from, port: 0, echo }.emit(&mut question);
            came += question.len();
            world.ends[1].handle_datagram(world.now, 100 + number, &question);
        }
        for from in 0..2 {
            let mut bytes = Vec::new();
            while let Some(to) = world.ends[from].poll_transmit(world.now, &mut bytes) {
                match to {
                    0 | 1 => world.pass(to, core::mem::take(&mut bytes)),
                    _ => answered += core::mem::take(&mut bytes).len(),
                }
            }
        }
        world.now = world.now + Nanos::from_millis(1);
        while let Some(first) = world.under_way.first_entry()
            && first.key().0 <= world.now
        {
            let (to, bytes) = first.remove();
            world.ends[to].handle_datagram(world.now, 1 - to, &bytes);
        }
        world.ends.iter_mut().for_each(|end| end.handle_timeout(world.now));
        matches!(world.ends[1].accept(), Some((_, 0)))
    });
    assert!(met, "{number} forged questions");
    assert!(answered <= came, "{answered} B were sent for {came} received B");
    // A host that is challenged repeats its question at once, and not after a pause.
    assert!(world.now < Instant::from_nanos(0) + Nanos::from_millis(50), "{:?}", world.now);
}

#[test]
fn hosts_of_one_network_take_each_others_places_only() {
    let ask = |end: &mut Endpoint<usize>, now, address: usize, echo| {
        let mut question = Vec::new();
        let from = packet::Name(address as u64);
        packet::Datagram::Hello { from, port: 0, echo }.emit(&mut question);
        end.handle_datagram(now, address, &question);
    };
    let now = Instant::from_nanos(1);
    let mut far = Endpoint::new(Entropy::Seeded(Rng::from_seed(12)), 1200, Some(0))
        .with_networks(|address: usize| [u8::try_from(address / 1000).unwrap(); 16]);
    let welcomed = |far: &mut Endpoint<usize>| {
        let (mut welcomed, mut bytes) = (Vec::new(), Vec::new());
        while let Some(to) = far.poll_transmit(now, &mut bytes) {
            match packet::Datagram::parse(&bytes).unwrap() {
                packet::Datagram::Challenge { value, .. } => ask(far, now, to, value),
                packet::Datagram::Welcome { from, .. } => welcomed.push((to, from)),
                other => panic!("{other:?}"),
            }
            bytes.clear();
        }
        welcomed
    };
    ask(&mut far, now, 5000, 0);
    let mut names = welcomed(&mut far);
    for address in 0..500 {
        ask(&mut far, now, address, 0);
        names.extend(welcomed(&mut far));
    }
    assert_eq!(names.len(), 501);
    // The host of the other network still has its place.
    let mut bytes = Vec::new();
    let (to, ack) = (names[0].1, packet::Ack { window: 1 << 20, ..packet::Ack::default() });
    let purpose = packet::Purpose::Probe;
    packet::Datagram::Packet { to, purpose, number: 1, ack, offset: 0, bytes: &[] }.emit(&mut bytes);
    far.handle_datagram(now, 5000, &bytes);
    assert!(matches!(far.accept(), Some((_, 5000))));
}

#[test]
fn emitted_datagrams_are_parsed_and_others_are_refused() {
    use packet::{Ack, Datagram, Name, Purpose};
    let ack = Ack { largest: 7, before: 5 << 70 | 3, whole: 9, window: 4, delay: 2 };
    let packet =
        |purpose, bytes| Datagram::Packet { to: Name(3), purpose, number: 8, ack, offset: 1 << 40, bytes };
    let all = [
        Datagram::Hello { from: Name(1), port: 0x1234, echo: 0 },
        Datagram::Hello { from: Name(1), port: 0x1234, echo: 0x0123_4567_89ab_cdef },
        Datagram::Welcome { to: Name(1), from: Name(2) },
        packet(Purpose::Data, b"bytes"),
        packet(Purpose::Ack, b""),
        packet(Purpose::Probe, b""),
        Datagram::End { to: Name(5) },
        Datagram::Unknown { name: Name(6) },
        Datagram::Challenge { to: Name(7), value: 8 },
    ];
    for datagram in all {
        let mut bytes = Vec::new();
        datagram.emit(&mut bytes);
        assert_eq!(Datagram::parse(&bytes), Ok(datagram));
        for length in 0..bytes.len() {
            assert!(Datagram::parse(&bytes[..length]).is_err(), "{length} B of {datagram:?}");
        }
        // Probes are padded, and so are frames that would be too short.
        let may_be_padded =
            !matches!(datagram, Datagram::Packet { purpose: Purpose::Data | Purpose::Ack, .. });
        let mut padded = [&bytes[..], &[0; 60]].concat();
        assert_eq!(Datagram::parse(&padded) == Ok(datagram), may_be_padded, "{datagram:?}");
        if let Datagram::Packet { purpose: Purpose::Probe, .. } = datagram {
            // A probe has a length field. A truncated one, or one with data, is invalid.
            packet::lengthen(&mut padded);
            let field = u16::try_from(padded.len()).unwrap();
            assert_eq!(Datagram::parse(&padded), Err(Malformed::Length(field)), "it names an offset");
            padded[60..68].fill(0);
            assert!(matches!(Datagram::parse(&padded), Ok(Datagram::Packet { bytes: [], .. })));
            let cut = padded.len() - 1;
            assert_eq!(Datagram::parse(&padded[..cut]), Err(Malformed::Short(cut)));
            padded[cut] = 1;
            assert_eq!(Datagram::parse(&padded), Err(Malformed::Length(field)), "it has data");
        }
        for (at, value, error) in
            [(0, 2, Malformed::Version(2)), (1, 9, Malformed::Kind(9)), (1, 0, Malformed::Kind(0))]
        {
            let mut wrong = bytes.clone();
            wrong[at] = value;
            assert_eq!(Datagram::parse(&wrong), Err(error));
        }
    }
    assert_eq!(Datagram::parse(&[1, 6, 0, 13, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Err(Malformed::Length(13)));
    assert!(
        [Ended::Here, Ended::There, Ended::Nonsense].iter().all(|one| !alloc::format!("{one}").is_empty())
    );
}

#[test]
fn a_peer_that_acknowledges_unsent_packets_is_given_up() {
    for (largest, whole) in [(1 << 40, 0), (1, 1 << 40)] {
        let mut world = World::new(10, GOOD);
        let ids = world.meet();
        let mut bytes = Vec::new();
        world.ends[1].get(ids[1]).unwrap().send(Buffer::copy_from_slice(b"x"));
        world.ends[1].poll_transmit(world.now, &mut bytes).unwrap();
        bytes[20..28].copy_from_slice(&u64::to_be_bytes(largest));
        bytes[44..52].copy_from_slice(&u64::to_be_bytes(whole));
        world.ends[0].handle_datagram(world.now, 1, &bytes);
        assert_eq!(world.ends[0].get(ids[0]).unwrap().ended(), Some(Ended::Nonsense));
    }
}

#[test]
fn anything_may_be_sent() {
    for seed in 0..500 {
        let mut rng = Rng::from_seed(seed);
        let mut data = vec![0; usize::try_from(rng.below(600)).unwrap()];
        rng.fill(&mut data);
        if seed % 2 == 0 {
            data.iter_mut().take(2).for_each(|byte| *byte = 1 + (*byte & 3));
        }
        fuzz::datagrams(&data);
    }
}
