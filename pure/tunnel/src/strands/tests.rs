//! Two ends with several connections between them, with random delays and cuts.

use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use engine::{Buffer, Instant, Nanos, Pool, Rng};
use pcie::switch::{AheadKey, FarLink};
use pcie::wire::{Bdf, Packet, Tag};

use super::courses::{COURSES_MAX, Courses};
use super::message::{After, Message};
use super::*;
use crate::test_bench::config;

const STRANDS: usize = 4;
const UP: usize = 0;
const DOWN: usize = 1;

#[derive(Debug)]
enum Event {
    Dialled(Strand, u32),
    Bytes(Strand, u32, usize, Buffer),
    Lost(Strand, u32, usize),
}

struct Line {
    number: u32,
    alive: bool,
    reachable: bool,
    latest: [Instant; 2],
}

/// The packets that an end has sent, and those that have arrived.
#[derive(Default)]
struct Account {
    /// For each packet, its strand and whether it is posted.
    sent: Vec<(Strand, bool)>,
    arrived: BTreeSet<usize>,
    /// Packets before this one need not arrive any more.
    from: usize,
}

struct Net {
    ends: [LinkEnd; 2],
    now: Instant,
    rng: Rng,
    lines: Vec<Line>,
    events: BTreeMap<(Instant, u64), Event>,
    count: u64,
    /// The accounts by sender.
    accounts: [Account; 2],
    /// For each time that the device's end has shown registers, how many packets it had sent by
    /// then. `shown_come` counts how often registers have arrived.
    shown: Vec<usize>,
    shown_come: usize,
    /// How often the host's end found that all packets have arrived; `None` where packets may be
    /// lost.
    flushed: Option<usize>,
    ups: [usize; 2],
    downs: [usize; 2],
    resets: usize,
    ahead: usize,
}

impl Net {
    fn new(seed: u64, host: Config, device: Config) -> Self {
        let rng = Rng::from_seed(seed);
        let line = || Line { number: 0, alive: false, reachable: true, latest: [Instant::ZERO; 2] };
        Self {
            ends: [LinkEnd::upstream(host, rng.fork("up")), LinkEnd::downstream(device, rng.fork("down"))],
            now: Instant::from_nanos(1_000),
            rng,
            lines: (0..STRANDS).map(|_| line()).collect(),
            events: BTreeMap::new(),
            count: 0,
            accounts: Default::default(),
            shown: Vec::new(),
            shown_come: 0,
            flushed: None,
            ups: [0; 2],
            downs: [0; 2],
            resets: 0,
            ahead: 0,
        }
    }

    fn joined(seed: u64) -> Self {
        let strands = u8::try_from(STRANDS).unwrap();
        let host = Config { strands, config_cache: true, ..config("host", 1) };
        let mut net = Self::new(seed, host, config("box", 2));
        net.run_for(Nanos::from_millis(200));
        assert_eq!((net.ups, net.downs), ([1, 1], [0, 0]));
        for end in &net.ends {
            assert!(
                Strand::first(STRANDS).skip(1).all(|strand| end.further.as_ref().unwrap().is_open(strand))
            );
        }
        net
    }

    fn schedule(&mut self, at: Instant, event: Event) {
        self.count += 1;
        self.events.insert((at, self.count), event);
    }

    fn delayed(&mut self) -> Instant {
        // Now and then, a delay is much longer.
        let most = if self.rng.one_in(10) { 20_000_000 } else { 200_000 };
        self.now + Nanos::new(10_000 + self.rng.below(most))
    }

    /// Sends a packet on this strand, or on the main one if this one is not open.
    fn send(&mut self, from: usize, strand: Strand) {
        let posted = !strand.is_main() || !self.rng.one_in(3);
        let account = &mut self.accounts[from];
        let number = u32::try_from(account.sent.len()).unwrap();
        let open = self.ends[from].further.as_ref().is_some_and(|further| further.is_open(strand));
        account.sent.push((if open { strand } else { Strand::MAIN }, posted));
        let packet = if posted {
            let length = 4 + 4 * usize::try_from(self.rng.below(300)).unwrap();
            let mut data = std::vec![0; length];
            data[..4].copy_from_slice(&number.to_be_bytes());
            Packet::memory_write(Bdf::new(1, 0, 0), 0x1000, Buffer::from(data))
        } else {
            Packet::memory_read(Bdf::new(1, 0, 0), Tag::new(1), u64::from(number) * 4096, 4)
        };
        self.ends[from].send_on(self.now, strand, packet);
    }

    fn arrive(&mut self, from: usize, packet: &Packet) {
        let number = match packet.payload.first_chunk() {
            Some(number) => u32::from_be_bytes(*number),
            None => match packet.header.kind {
                pcie::wire::Kind::Memory(request) => u32::try_from(request.address / 4096).unwrap(),
                _ => panic!("{packet} was never sent"),
            },
        };
        let number = usize::try_from(number).unwrap();
        let Account { sent, arrived, from: first } = &mut self.accounts[from];
        assert!(number >= *first, "packet {number} is from before");
        let (strand, _) = sent[number];
        for (earlier, (other, posted)) in sent.iter().enumerate().take(number).skip(*first) {
            let tied = strand.is_main() || other.is_main() || *other == strand;
            assert!(
                !(tied && *posted) || arrived.contains(&earlier),
                "packet {number} of strand {strand} has overtaken {earlier} of strand {other}"
            );
        }
        assert!(arrived.insert(number), "packet {number} came twice");
    }

    /// The device's end shows registers.
    fn show(&mut self) {
        let registers = crate::frame::Registers {
            function: 0,
            space: crate::frame::RegisterSpace::Configuration,
            offset: 0,
            registers: std::vec![crate::frame::Register { value: 1, writable: 0 }],
        };
        let Account { sent, .. } = &self.accounts[DOWN];
        self.shown.push(sent.len());
        self.ends[DOWN].show(registers);
    }

    /// Checks registers that arrive: behind packets sent on the main strand before, and ahead of
    /// those sent later.
    fn on_registers(&mut self) {
        let at = self.shown[self.shown_come];
        self.shown_come += 1;
        let Account { sent, arrived, from } = &self.accounts[DOWN];
        for (number, (strand, _)) in sent.iter().enumerate().skip(*from) {
            assert!(
                !strand.is_main() || (number < at) == arrived.contains(&number),
                "packet {number}, shown at {at}"
            );
        }
    }

    /// If the host's end finds that all packets have arrived, checks that they have been passed on.
    fn check_flushed(&mut self) {
        if let Some(flushed) = &mut self.flushed
            && self.ends[UP].is_flushed()
        {
            *flushed += 1;
            let Account { sent, arrived, from } = &self.accounts[UP];
            for (number, (_, posted)) in sent.iter().enumerate().skip(*from) {
                assert!(!posted || arrived.contains(&number), "packet {number} is under way");
            }
        }
    }

    fn cut(&mut self, strand: Strand) {
        if core::mem::take(&mut self.lines[strand.index()].alive) {
            let number = self.lines[strand.index()].number;
            for end in [UP, DOWN] {
                let at = self.delayed();
                self.schedule(at, Event::Lost(strand, number, end));
            }
        }
    }

    fn settle(&mut self, end: usize) {
        let now = self.now;
        self.ends[end].advance(now);
        loop {
            if self.ends[end].poll_timeout().is_some_and(|at| at <= now) {
                self.ends[end].handle_timeout(now);
            }
            let Some((strand, output)) = self.ends[end].poll_output() else { break };
            self.on_output(end, strand, output);
        }
    }

    fn on_output(&mut self, end: usize, strand: Strand, output: Output) {
        let number = self.lines[strand.index()].number;
        match output {
            Output::Transmit(bytes) if self.lines[strand.index()].alive => {
                let at = self.delayed().max(self.lines[strand.index()].latest[end]);
                self.lines[strand.index()].latest[end] = at;
                self.schedule(at, Event::Bytes(strand, number, 1 - end, bytes));
            }
            Output::Transmit(_) => {}
            Output::Tlp { packet, .. } => self.arrive(1 - end, &packet),
            Output::Connect => {
                self.lines[strand.index()].alive = false;
                self.lines[strand.index()].number += 1;
                let (at, number) = (self.delayed(), self.lines[strand.index()].number);
                self.schedule(at, Event::Dialled(strand, number));
            }
            Output::CloseConnection => {
                let at = self.delayed().max(self.lines[strand.index()].latest[end]);
                self.schedule(at, Event::Lost(strand, number, 1 - end));
            }
            Output::LinkUp { .. } if strand.is_main() => self.ups[end] += 1,
            Output::LinkDown { .. } if strand.is_main() => self.downs[end] += 1,
            Output::Reset => self.resets += 1,
            Output::Ahead(..) => self.ahead += 1,
            Output::Registers(_) => self.on_registers(),
            _ => {}
        }
    }

    fn on_event(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Dialled(strand, number) if number == self.lines[strand.index()].number => {
                let main = self.ends[DOWN].main();
                let member = main.id().map(|session| Member { session, strand: strand.0.into() });
                let instance = InstanceId([1; 16]);
                let admitted = strand.is_main()
                    || member.is_some_and(|member| {
                        self.ends[DOWN].admits(instance, member, self.ends[UP].main().secret())
                    });
                if self.lines[strand.index()].reachable && admitted {
                    self.lines[strand.index()].alive = true;
                    self.lines[strand.index()].latest = [now; 2];
                    self.settle(DOWN);
                    self.ends[DOWN].connect(now, strand);
                    self.ends[UP].handle_input(now, strand, session::Input::Connected);
                } else {
                    self.ends[UP].handle_input(now, strand, session::Input::Disconnected);
                }
            }
            Event::Bytes(strand, number, to, bytes)
                if number == self.lines[strand.index()].number && self.lines[strand.index()].alive =>
            {
                self.ends[to].handle_input(now, strand, session::Input::Received(bytes));
            }
            Event::Lost(strand, number, end) if number == self.lines[strand.index()].number => {
                self.ends[end].handle_input(now, strand, session::Input::Disconnected);
            }
            _ => {}
        }
        self.settle(UP);
        self.settle(DOWN);
        self.check_flushed();
    }

    fn run_for(&mut self, length: Nanos) {
        let end = self.now + length;
        self.settle(UP);
        self.settle(DOWN);
        loop {
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let wakes = self.ends.iter().filter_map(LinkEnd::poll_timeout);
            let Some(at) = event.into_iter().chain(wakes).min().filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            match self.events.first_key_value() {
                Some(((due, _), _)) if *due <= self.now => {
                    let (_, event) = self.events.pop_first().unwrap();
                    self.on_event(event);
                }
                _ => {
                    self.settle(UP);
                    self.settle(DOWN);
                }
            }
        }
        self.now = end;
    }

    fn all_has_come(&self) -> bool {
        self.accounts.iter().all(|account| account.arrived.len() == account.sent.len() - account.from)
    }

    /// Packets sent so far need not arrive any more.
    fn forget(&mut self) {
        for account in &mut self.accounts {
            account.from = account.sent.len();
            account.arrived.clear();
        }
    }

    fn chatter(&mut self, packets: usize, mut cuts: bool) {
        for _ in 0..packets {
            let from = if self.rng.one_in(2) { UP } else { DOWN };
            let strand = Strand(u8::try_from(self.rng.below(STRANDS as u64)).unwrap());
            self.send(from, strand);
            self.check_flushed();
            if self.rng.one_in(3) {
                let length = self.rng.below(500_000);
                self.run_for(Nanos::new(length));
            }
            if cuts && self.rng.one_in(40) {
                let strand = Strand(u8::try_from(self.rng.below(STRANDS as u64)).unwrap());
                self.cut(strand);
                cuts = !self.rng.one_in(8);
            }
        }
    }
}

#[test]
fn each_strand_keeps_its_order_and_the_main_one_with_all() {
    for seed in 0..40 {
        let mut net = Net::joined(seed);
        net.chatter(400, false);
        net.run_for(Nanos::from_secs(1));
        assert!(net.all_has_come(), "seed {seed}");
        assert!(
            net.accounts.iter().all(|account| account.sent.iter().any(|(strand, _)| *strand == Strand(3)))
        );
    }
}

#[test]
fn cut_connections_change_nothing_of_that() {
    for seed in 100..160 {
        let mut net = Net::joined(seed);
        net.chatter(400, true);
        net.run_for(Nanos::from_secs(3));
        assert_eq!((net.ups, net.downs), ([1, 1], [0, 0]), "seed {seed}");
        assert!(net.all_has_come(), "seed {seed}");
    }
}

#[test]
fn a_message_that_is_too_long_for_the_device_holds_nothing_up() {
    let host = Config { strands: u8::try_from(STRANDS).unwrap(), ..config("host", 1) };
    let mut net = Net::new(1, host, Config { max_payload: 128, ..config("box", 2) });
    net.run_for(Nanos::from_millis(200));
    assert!(net.ends[UP].further.as_ref().unwrap().is_open(Strand(1)));
    let ranges: Vec<(u64, u32)> = (0..64_u64).map(|number| (number << 12, 512)).collect();
    let now = net.now;
    net.ends[UP].lay(now, Strand(1), Strand(1), AheadKey(1), &ranges);
    // The read comes behind all that was posted before it.
    net.accounts[UP].sent.push((Strand::MAIN, false));
    let read = Packet::memory_read(Bdf::new(1, 0, 0), Tag::new(1), 0, 4);
    net.ends[UP].send_on(now, Strand::MAIN, read);
    net.run_for(Nanos::from_secs(1));
    assert!(net.all_has_come());
}

#[test]
fn what_is_shown_is_in_order_with_the_main_strand_and_what_has_arrived_has_been_passed_on() {
    for seed in 300..340 {
        let mut net = Net::joined(seed);
        net.flushed = Some(0);
        for _ in 0..40 {
            net.chatter(10, seed % 2 == 0);
            net.show();
            net.chatter(5, false);
            if net.rng.one_in(4) {
                net.run_for(Nanos::from_millis(100));
            }
        }
        net.run_for(Nanos::from_secs(3));
        assert_eq!((net.ups, net.downs), ([1, 1], [0, 0]), "seed {seed}");
        assert!(net.all_has_come() && net.shown_come == 40 && net.flushed > Some(10), "seed {seed}");
    }
}

#[test]
fn after_a_reset_nothing_comes_from_before() {
    for seed in 200..240 {
        let mut net = Net::joined(seed);
        net.chatter(100, false);
        // Packets that came up before the host's reset count. Packets that the device has sent
        // since then are gone.
        let now = net.now;
        net.ends[UP].reset(now);
        net.settle(UP);
        let sent = net.accounts[UP].sent.len();
        net.accounts[DOWN].from = usize::MAX;
        net.run_for(Nanos::from_millis(200));
        assert_eq!(net.resets, 1);
        net.forget();
        assert_eq!(net.accounts[UP].from, sent);
        net.chatter(100, true);
        net.run_for(Nanos::from_secs(3));
        assert!(net.all_has_come(), "seed {seed}");
        assert_eq!(net.downs, [0, 0]);
        assert!(net.ends.iter().all(|end| end.further.as_ref().unwrap().is_open(Strand(3))));
    }
}

#[test]
fn a_strand_that_does_not_come_back_takes_the_link_down() {
    let mut net = Net::joined(7);
    net.lines[2].reachable = false;
    net.cut(Strand(2));
    net.run_for(Nanos::from_secs(9));
    assert_eq!(net.downs, [0, 0]);
    net.run_for(Nanos::from_secs(9));
    assert_eq!(net.downs, [1, 1]);
    // The link is up again without the lost strand.
    net.run_for(Nanos::from_secs(5));
    assert_eq!(net.ups, [2, 2]);
    net.forget();
    net.chatter(100, false);
    net.run_for(Nanos::from_secs(1));
    assert!(net.all_has_come());
}

#[test]
fn ends_that_do_not_ask_or_do_not_take_have_one_connection() {
    for (strands, strands_max) in [(1, 8), (4, 1)] {
        let host = Config { strands, ..config("host", 1) };
        let mut net = Net::new(1, host, Config { strands_max, ..config("box", 2) });
        net.run_for(Nanos::from_millis(200));
        assert_eq!(net.ups, [1, 1]);
        assert!(net.ends.iter().all(|end| !end.is_spread()));
        net.chatter(100, true);
        net.run_for(Nanos::from_secs(3));
        assert!(net.all_has_come());
    }
}

#[test]
fn messages_are_read_as_they_were_written() {
    let mut pool = Pool::default();
    let after =
        std::vec![After { strand: Strand(1), posted: 7 }, After { strand: Strand(7), posted: u32::MAX }];
    let ranges = std::vec![(0x1234_5678_9abc_d000, 4096), (0, 4)];
    let messages = [
        Message::Order(after),
        Message::Courses { key: AheadKey(3), strand: Strand(2), ranges },
        Message::Clear,
    ];
    for message in messages {
        let packet = message.packet(&mut pool);
        assert!(message::is_message(&packet));
        assert_eq!(Message::parse(&packet.payload), Some(message));
        for length in 0..packet.payload.len() {
            // No prefix of a message causes a panic.
            let _ = Message::parse(&packet.payload[..length]);
        }
    }
    assert_eq!(Message::parse(&[0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 0]), None);
    assert_eq!(Message::parse(&[0, 0, 0, 4]), None);
}

#[test]
fn ranges_that_two_commands_claim_belong_to_neither() {
    let write = |address, length| {
        Packet::memory_write(Bdf::new(1, 0, 0), address, Buffer::from(std::vec![0; length]))
    };
    let mut courses = Courses::default();
    courses.insert(AheadKey(1), Strand(1), (0x1000, 0x1000));
    courses.insert(AheadKey(2), Strand(2), (0x2000, 0x1000));
    assert_eq!(courses.strand_of(&write(0x1000, 4096)), Strand(1));
    assert_eq!(courses.strand_of(&write(0x2ffc, 4)), Strand(2));
    assert_eq!(courses.strand_of(&write(0xffc, 4)), Strand(0));
    assert_eq!(courses.strand_of(&write(0x3000, 4)), Strand(0));
    courses.insert(AheadKey(3), Strand(2), (0x1800, 0x1000));
    assert_eq!(courses.strand_of(&write(0x1000, 4)), Strand(0));
    assert_eq!(courses.strand_of(&write(0x1800, 4)), Strand(0));
    courses.insert(AheadKey(4), Strand(1), (0x1000, 0x1000));
    courses.forget(AheadKey(4));
    assert_eq!(courses.strand_of(&write(0x1000, 4)), Strand(0));
    // The range does not belong to a third command either while the other commands are under way.
    courses.insert(AheadKey(5), Strand(3), (0x1000, 0x800));
    assert_eq!(courses.strand_of(&write(0x1000, 4)), Strand(0));
    (1..=3).for_each(|key| courses.forget(AheadKey(key)));
    courses.insert(AheadKey(6), Strand(3), (0x2000, 0x800));
    assert_eq!(
        (courses.strand_of(&write(0x2000, 4)), courses.strand_of(&write(0x1000, 4))),
        (Strand(3), Strand(0))
    );
    // A repeated or longer range of one command is no dispute.
    courses.insert(AheadKey(6), Strand(3), (0x2000, 0x1000));
    assert_eq!(courses.strand_of(&write(0x2ffc, 4)), Strand(3));
}

#[test]
fn where_too_much_is_claimed_no_end_is_trusted() {
    let write = |address| Packet::memory_write(Bdf::new(1, 0, 0), address, Buffer::from(std::vec![0; 4]));
    let mut courses = Courses::default();
    for page in 1..=COURSES_MAX as u64 + 1 {
        assert_eq!(courses.strand_of(&write(4096)), Strand(u8::from(page > 1)));
        courses.insert(AheadKey(1), Strand(1), (page * 4096, 4));
    }
    assert_eq!(courses.strand_of(&write(4096)), Strand(0));
    courses.forget(AheadKey(1));
    courses.insert(AheadKey(2), Strand(1), (4096, 4));
    assert_eq!(courses.strand_of(&write(4096)), Strand(0));
    courses.forget(AheadKey::ALL);
    courses.insert(AheadKey(2), Strand(1), (4096, 4));
    assert_eq!(courses.strand_of(&write(4096)), Strand(1));
}

/// A message that neither end would send.
fn nonsense(rng: &mut Rng, pool: &mut Pool) -> Packet {
    let word = |rng: &mut Rng| u32::try_from(rng.below(12)).unwrap();
    let mut bytes: Vec<u8> = word(rng).to_be_bytes().to_vec();
    for _ in 0..rng.below(30) {
        let word = if rng.one_in(4) {
            rng.next_u64().to_be_bytes()[..4].to_vec()
        } else {
            word(rng).to_be_bytes().to_vec()
        };
        bytes.extend(word);
    }
    let mut packet = Message::Clear.packet(pool);
    let pcie::wire::Kind::Message(message) = packet.header.kind else { unreachable!() };
    packet = Packet::message_with_data(
        message.requester,
        message.routing,
        message.code,
        message.body,
        Buffer::from(bytes),
    );
    packet
}

#[test]
fn hosts_that_talk_nonsense_do_other_hosts_no_harm() {
    for seed in 300..330 {
        let mut net = Net::joined(seed);
        let mut pool = Pool::default();
        for _ in 0..200 {
            let packet = nonsense(&mut net.rng, &mut pool);
            let strand = Strand(u8::try_from(net.rng.below(STRANDS as u64)).unwrap());
            let now = net.now;
            if let Some(session) = net.ends[UP].session(strand) {
                session.send(now, packet);
                let ahead = Ahead {
                    address: 0x1000,
                    key: AheadKey(1),
                    completer: Bdf::default(),
                    payload_size: 256,
                    once: false,
                };
                session.send_ahead(ahead, Buffer::from(std::vec![0; 4096]));
                session.forget_ahead(AheadKey(2));
            }
            // Writes of the device must have a valid strand.
            let address = net.rng.below(12) << 32;
            let write = Packet::memory_write(Bdf::new(1, 0, 0), address, Buffer::from(std::vec![0; 4]));
            let strand = net.ends[DOWN].strand_of(&write);
            assert!(strand.index() < STRANDS_MAX);
            net.run_for(Nanos::from_micros(100));
        }
        net.run_for(Nanos::from_secs(1));
        // Nonsense ends the link. An order that can never be met holds the packets behind it,
        // within limits.
        let others = net.ends[DOWN].further.as_ref().unwrap();
        assert!(others.held_bytes() <= 4 << 20, "seed {seed}");
    }
}
