//! Cards and hosts together: models over many seeds, and each fault with its answer.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "random numbers are below small limits"
)]

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::Rng;
use pcie::memory::{Memory, Ram, Unmapped};
use proptest::prelude::*;

use crate::layout::{credit_at, line_at, slot_at, taken_at};
use crate::registers::{self as at, queue};
use crate::*;

const ADDRESSES: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
/// The hosts' memory is not at address 0, so that an address that was forgotten shows.
const MEMORY: u64 = 0x10_0000;

/// A card with its host, and the memory between them.
struct Machine {
    card: Card,
    host: Host,
    window: Ram,
    memory: Ram,
}

impl Machine {
    fn new(address: [u8; 6], config: HostConfig) -> Self {
        let config = HostConfig { memory: MEMORY, ..config };
        let mut machine = Self {
            card: Card::new(address),
            host: Host::new(config),
            window: Ram::new(0, WINDOW_BYTES),
            memory: Ram::new(MEMORY, HOST_MEMORY_BYTES),
        };
        machine.card.set_link(true);
        machine.start(config);
        machine
    }

    fn start(&mut self, config: HostConfig) {
        self.host = Host::new(HostConfig { memory: MEMORY, ..config });
        for (register, value) in self.host.start(&mut self.memory).unwrap() {
            self.write(register, value);
        }
    }

    fn write(&mut self, register: u32, value: u32) {
        self.card.register_write(&mut self.window, register.into(), &value.to_le_bytes());
    }

    fn read(&self, register: u32) -> u32 {
        let mut word = [0; 4];
        self.card.register_read(register.into(), &mut word);
        u32::from_le_bytes(word)
    }

    fn send(&mut self, packet: &[u8]) -> Result<u64, SendError> {
        self.host.send(&mut self.window, &mut self.memory, packet, false)
    }

    fn transmit(&mut self) -> Option<Vec<u8>> {
        let mut packet = [0; PACKET_MAX];
        let length = self.card.poll_transmit(&mut self.window, &mut self.memory, &mut packet)?;
        Some(packet[..length].to_vec())
    }

    fn arrive(&mut self, packet: &[u8]) -> Arrival {
        self.card.receive(&mut self.window, &mut self.memory, packet)
    }

    fn receive(&mut self) -> Result<Option<(Received, Vec<u8>)>, HostFault> {
        let mut packet = [0; PACKET_MAX];
        let received = self.host.receive(&mut self.window, &mut self.memory, &mut packet)?;
        Ok(received.map(|received| (received, packet[..received.length].to_vec())))
    }

    /// Stores a slot as a host does that keeps to no rule.
    fn store(&mut self, number: u64, header: [u8; 4], start: &[u8]) {
        let mut line = [0; 64];
        line[..start.len()].copy_from_slice(start);
        line[60..].copy_from_slice(&header);
        self.window.write(slot_at(0, number), &line).unwrap();
    }
}

/// A packet to all stations.
const PACKET: [u8; 40] = [0xff; 40];

fn packet(to: [u8; 6], length: usize, seed: u8) -> Vec<u8> {
    let rest = (0..=255_u8).cycle().map(|byte| byte.wrapping_mul(31) ^ seed);
    to.into_iter().chain(rest).take(length).collect()
}

/// Counts of a random run.
#[derive(Default)]
struct Seen {
    delivered: usize,
    full: usize,
    refused: usize,
}

/// Two machines send to each other at random. Every packet arrives complete and in order, unless a
/// card has reported that there was no room; a host that respects its credits never causes a fault.
fn run(seed: u64) -> Seen {
    let mut rng = Rng::from_seed(seed);
    let configs = [(); 2].map(|()| HostConfig {
        queue: rng.below(QUEUES as u64) as usize,
        credits: if rng.below(2) == 0 { Credits::Read } else { Credits::Pushed },
        head: rng.below(45) as u8,
        inline_max: [0, 20, 60][rng.below(3) as usize],
        ..HostConfig::default()
    });
    let mut machines = [0, 1].map(|which| Machine::new(ADDRESSES[which], configs[which]));
    for (which, machine) in machines.iter_mut().enumerate() {
        let [a, b, c, d, e, f] = ADDRESSES[which];
        machine.write(at::FILTER + 24, u32::from_le_bytes([a, b, c, d]));
        machine.write(at::FILTER + 28, u32::from_le_bytes([e, f, configs[which].queue as u8, 0x80]));
    }
    let mut wires: [VecDeque<Vec<u8>>; 2] = Default::default();
    let mut expected: [VecDeque<Vec<u8>>; 2] = Default::default();
    let mut seen = Seen::default();
    // Some runs let the receiver or the card sleep long enough for everything to fill up.
    let (eager, steps) = ([1, 5, 60][rng.below(3) as usize], 3_000);
    for step in 0..steps {
        let from = rng.below(2) as usize;
        let to = 1 - from;
        match rng.below(4 + eager) {
            0 => {
                let at_once = 1 + rng.below(30);
                for _ in 0..at_once {
                    if let Some(sent) = machines[from].transmit() {
                        wires[to].push_back(sent);
                    }
                }
            }
            1 => {
                while let Some(next) = wires[to].pop_front() {
                    match machines[to].arrive(&next) {
                        Arrival::Delivered(queue) => {
                            assert_eq!(queue, configs[to].queue);
                            expected[to].push_back(next);
                        }
                        Arrival::NoRoom => seen.refused += 1,
                        other => panic!("seed {seed}, step {step}: {other:?}"),
                    }
                }
            }
            2 => {
                for _ in 0..rng.below(100) {
                    let Some((received, bytes)) = machines[to].receive().unwrap() else { break };
                    assert_eq!(Some(&bytes), expected[to].pop_front().as_ref(), "seed {seed}, step {step}");
                    let by_dma = received.path == Path::Dma;
                    assert_eq!(by_dma, bytes.len() > INLINE_MAX);
                    assert_eq!(received.head, if by_dma { configs[to].head.into() } else { 0 });
                    seen.delivered += 1;
                }
            }
            _ => {
                let length = match rng.below(3) {
                    0 => 14 + rng.below(47),
                    1 => 60 + rng.below(8),
                    _ => 14 + rng.below(9_203),
                };
                let packet = packet(ADDRESSES[to], length as usize, step as u8);
                match machines[from].send(&packet) {
                    Ok(_) => {}
                    Err(SendError::Full) => seen.full += 1,
                    Err(other) => panic!("seed {seed}, step {step}: {other:?}"),
                }
            }
        }
    }
    for machine in &machines {
        assert_eq!(machine.card.counts().faults, 0, "seed {seed}");
    }
    let sent: u64 = machines.iter().map(|one| one.card.counts().sent).sum();
    let received: u64 = machines.iter().map(|one| one.card.counts().received).sum();
    let waiting: usize = wires.iter().map(VecDeque::len).sum();
    assert_eq!(sent, received + seen.refused as u64 + waiting as u64, "seed {seed}");
    seen
}

#[test]
fn packets_come_whole_and_in_order_over_many_seeds() {
    let mut total = Seen::default();
    for seed in 0..200 {
        let seen = run(seed);
        total.delivered += seen.delivered;
        total.full += seen.full;
        total.refused += seen.refused;
    }
    // The runs cover the intended cases.
    assert!(total.delivered > 50_000, "{}", total.delivered);
    assert!(total.full > 10_000 && total.refused > 300, "{} full, {} refused", total.full, total.refused);
}

#[test]
fn a_queue_goes_on_for_more_laps_than_it_has_marks() {
    let mut machine = Machine::new(ADDRESSES[0], HostConfig::default());
    let small = packet(ADDRESSES[1], 14, 1);
    let header = |lap: u16| u32::from_le_bytes([14, 0, lap.to_le_bytes()[0], lap.to_le_bytes()[1]]);
    assert_eq!(machine.send(&small), Ok(1));
    let mut stored = [0; 4];
    machine.window.read(60, &mut stored).unwrap();
    assert_eq!(u32::from_le_bytes(stored), header(1));
    for number in [0, 255, 256, 65_535 * 256 - 1, 65_535 * 256, 65_536 * 256 + 7] {
        let line = line::Slot::inline(&small, true, number);
        assert_eq!(line::Slot::parse(&line, number), line::Slot::Inline { length: 14, completion: true });
        assert_eq!(line::Slot::parse(&line, number + SLOTS), line::Slot::Empty);
        if let Some(before) = number.checked_sub(SLOTS) {
            assert_eq!(line::Slot::parse(&line, before), line::Slot::Overrun);
        }
        assert_eq!(line::Slot::parse(&line, number + 5 * SLOTS), line::Slot::Malformed);
    }
}

#[test]
fn each_fault_of_a_host_stops_its_queue_alone_and_is_shown() {
    let cases: [(Fault, u64, [u8; 4], &[u8]); 8] = [
        (Fault::Overrun, 0, [14, 0, 2, 0], &[]),
        (Fault::Malformed, 0, [14, 0, 9, 0], &[]),
        (Fault::Malformed, 0, [13, 0, 1, 0], &[]),
        (Fault::Malformed, 0, [61, 0, 1, 0], &[]),
        (Fault::Malformed, 0, [14, 2, 1, 0], &[]),
        (Fault::Malformed, 0, [0xff, 0, 1, 0], &[0, 0, 0x10, 0, 0, 0, 0, 0, 13, 0, 0, 0]),
        (Fault::Malformed, 0, [0xff, 0, 1, 0], &[0, 0, 0x10, 0, 0, 0, 0, 0, 1, 0x24, 0, 0]),
        (Fault::Memory, 0, [0xff, 0, 1, 0], &[0, 0, 0, 0, 0, 0, 0, 0x80, 20, 0, 0, 0]),
    ];
    for (fault, number, header, start) in cases {
        let mut machine = Machine::new(ADDRESSES[0], HostConfig::default());
        // Another queue runs at the same time.
        let mut other = Host::new(HostConfig { queue: 2, memory: MEMORY, ..HostConfig::default() });
        for (register, value) in other.start(&mut machine.memory).unwrap() {
            machine.write(register, value);
        }
        machine.store(number, header, start);
        let packet = packet(ADDRESSES[1], 60, 3);
        other.send(&mut machine.window, &mut machine.memory, &packet, false).unwrap();
        assert_eq!(machine.transmit(), Some(packet), "{fault:?}: the other queue continues");
        assert_eq!(machine.transmit(), None);
        assert_eq!(machine.card.fault(0), Some(fault), "{header:?}");
        assert_eq!(machine.read(at::QUEUE + queue::STATUS), 2 | (fault as u32) << 8);
        assert_eq!(machine.card.counts().faults, 1);
        // After a restart, it works again.
        machine.start(HostConfig::default());
        machine.send(&[0; 14]).unwrap();
        assert_eq!(machine.transmit(), Some([0; 14].to_vec()));
        assert_eq!(machine.card.fault(0), None);
    }
}

#[test]
fn a_packet_whose_credit_cannot_be_pushed_leaves_or_is_counted() {
    for is_up in [true, false] {
        let config = HostConfig { credits: Credits::Pushed, ..HostConfig::default() };
        let mut machine = Machine::new(ADDRESSES[0], config);
        machine.write(at::QUEUE + queue::CREDIT_ADDRESS + 4, u32::MAX);
        machine.card.set_link(is_up);
        machine.host.send(&mut machine.window, &mut machine.memory, &PACKET, true).unwrap();
        assert_eq!(machine.transmit(), is_up.then(|| PACKET.to_vec()));
        assert_eq!(machine.card.fault(0), Some(Fault::Memory));
        let counts = *machine.card.counts();
        let expected = if is_up { (1, 0, 1) } else { (0, 1, 1) };
        assert_eq!((counts.sent, counts.link_down, counts.faults), expected);
        assert_eq!(machine.transmit(), None);
    }
}

#[test]
fn a_queue_keeps_the_fault_that_stopped_it_and_counts_it_once() {
    let mut machine = Machine::new(ADDRESSES[0], HostConfig::default());
    assert_eq!(machine.arrive(&PACKET), Arrival::Delivered(0));
    machine.store(0, [14, 0, 9, 0], &[]);
    assert_eq!(machine.transmit(), None);
    // The window is unmapped before the card looks whether the host waits for the line.
    assert_eq!(machine.card.poll_interrupt(&Ram::new(0, 0)), None);
    assert_eq!(machine.card.fault(0), Some(Fault::Malformed));
    assert_eq!(machine.card.counts().faults, 1);
}

#[test]
fn a_host_that_reports_too_many_taken_lines_is_stopped() {
    let mut machine = Machine::new(ADDRESSES[0], HostConfig::default());
    let small = packet(ADDRESSES[0], 30, 0);
    for _ in 0..SLOTS {
        assert_eq!(machine.arrive(&small), Arrival::Delivered(0));
    }
    assert_eq!(machine.arrive(&small), Arrival::NoRoom, "the host has taken no line");
    machine.window.write(taken_at(0), &(SLOTS + 1).to_le_bytes()).unwrap();
    assert_eq!(machine.arrive(&small), Arrival::NoRoom);
    assert_eq!(machine.card.fault(0), Some(Fault::Taken));
}

/// Memory at every address; it keeps the addresses that were written.
#[derive(Default)]
struct Everywhere(Vec<u64>);

impl Memory for Everywhere {
    fn read(&self, _: u64, bytes: &mut [u8]) -> Result<(), Unmapped> {
        bytes.fill(0);
        Ok(())
    }
    fn write(&mut self, address: u64, _: &[u8]) -> Result<(), Unmapped> {
        self.0.push(address);
        Ok(())
    }
}

#[test]
fn receive_buffers_do_not_go_on_at_address_0() {
    let mut machine = Machine::new(ADDRESSES[0], HostConfig::default());
    // Two buffers of 128 bytes, and only the first ends within 64 bits.
    machine.write(at::QUEUE + queue::BUFFERS_ADDRESS, 0xffff_ff80);
    machine.write(at::QUEUE + queue::BUFFERS_ADDRESS + 4, u32::MAX);
    machine.write(at::QUEUE + queue::BUFFERS, 2 | 2 << 16);
    machine.write(at::QUEUE + queue::CONTROL, queue::ENABLE);
    let (large, mut memory) = (packet(ADDRESSES[0], 100, 0), Everywhere::default());
    for expected in [Arrival::Delivered(0), Arrival::NoRoom] {
        assert_eq!(machine.card.receive(&mut machine.window, &mut memory, &large), expected);
    }
    assert_eq!(memory.0, [u64::MAX - 127]);
    assert_eq!(machine.card.fault(0), Some(Fault::Memory));
}

#[test]
fn each_fault_of_a_card_is_reported_to_its_host() {
    let line = |header: [u8; 4], start: &[u8]| {
        let mut line = [0; 64];
        line[..start.len()].copy_from_slice(start);
        line[60..].copy_from_slice(&header);
        line
    };
    let place = |address: u64, length: u32| [&address.to_le_bytes()[..], &length.to_le_bytes()].concat();
    let first = MEMORY + 4096 + 64 * 9216;
    let cases = [
        (line([14, 0, 3, 0], &[]), HostFault::Line(0)),
        (line([14, 1, 1, 0], &[]), HostFault::Line(0)),
        (line([13, 0, 1, 0], &[]), HostFault::Line(0)),
        (line([0xff, 45, 1, 0], &place(first, 100)), HostFault::Line(0)),
        (line([0xff, 0, 1, 0], &place(first, 9217)), HostFault::Line(0)),
        (line([0xff, 0, 1, 0], &place(first + 64, 100)), HostFault::Buffer(first + 64)),
    ];
    for (line, fault) in cases {
        let mut machine = Machine::new(ADDRESSES[0], HostConfig::default());
        machine.window.write(line_at(0, 0), &line).unwrap();
        assert_eq!(machine.receive(), Err(fault));
    }
    for (taken, completed) in [(2_u64, 0_u64), (1, 2), (0, 1)] {
        let mut machine = Machine::new(ADDRESSES[0], HostConfig::default());
        machine.send(&[0; 20]).unwrap();
        let credit = [taken.to_le_bytes(), completed.to_le_bytes()].concat();
        machine.window.write(credit_at(0), &credit).unwrap();
        let reported = machine.host.poll_completed(&machine.window, &machine.memory);
        assert!(matches!(reported, Err(HostFault::Taken(_))), "{taken} {completed}: {reported:?}");
    }
}

#[test]
fn completions_come_where_they_were_asked_for_and_nowhere_else() {
    for credits in [Credits::Read, Credits::Pushed] {
        let mut machine = Machine::new(ADDRESSES[0], HostConfig { credits, ..HostConfig::default() });
        for (number, ask) in [(1, false), (2, true), (3, false)] {
            let sent = machine.host.send(&mut machine.window, &mut machine.memory, &[0; 100], ask);
            assert_eq!(sent, Ok(number));
            machine.transmit().unwrap();
            let completed = machine.host.poll_completed(&machine.window, &machine.memory);
            assert_eq!(completed, Ok(if number < 2 { 0 } else { 2 }), "{credits:?}");
        }
    }
}

#[test]
fn a_host_without_credit_is_refused_and_hears_of_new_ones() {
    let mut machine = Machine::new(ADDRESSES[0], HostConfig::default());
    for number in 0..SLOTS {
        assert_eq!(machine.send(&[7; 60]), Ok(number + 1));
    }
    assert_eq!(machine.send(&[7; 60]), Err(SendError::Full));
    for _ in 0..SLOTS / 4 {
        machine.transmit().unwrap();
    }
    assert_eq!(machine.send(&[7; 60]), Ok(SLOTS + 1));
    assert_eq!(machine.send(&[7; 13]), Err(SendError::Length(13)));
    assert_eq!(machine.send(&[7; PACKET_MAX + 1]), Err(SendError::Length(PACKET_MAX + 1)));
}

/// Both directions, by line and by DMA: each has counts of its own.
#[test]
fn a_host_that_was_used_starts_its_queue_anew() {
    let mut machine = Machine::new(ADDRESSES[0], HostConfig::default());
    for round in 0..3 {
        for length in [14, 60, 61, 1500] {
            let sent = packet(ADDRESSES[0], length, round);
            machine.send(&sent).unwrap();
            assert_eq!(machine.transmit().as_ref(), Some(&sent), "round {round}: {length} B leave");
            assert_eq!(machine.arrive(&sent), Arrival::Delivered(0));
            let (_, came) = machine.receive().unwrap().expect("it is there");
            assert!(came == sent, "round {round}: {length} B arrive");
        }
        for (register, value) in machine.host.start(&mut machine.memory).unwrap() {
            machine.write(register, value);
        }
    }
}

#[test]
fn filters_choose_the_queue_and_drop_unmatched_packets() {
    let mut machine = Machine::new(ADDRESSES[0], HostConfig::default());
    let mut second = Host::new(HostConfig { queue: 1, memory: MEMORY, ..HostConfig::default() });
    for (register, value) in second.start(&mut machine.memory).unwrap() {
        machine.write(register, value);
    }
    let stranger = [6, 5, 4, 3, 2, 1];
    assert_eq!(machine.arrive(&packet(ADDRESSES[0], 60, 0)), Arrival::Delivered(0));
    assert_eq!(machine.arrive(&packet([0xff; 6], 60, 0)), Arrival::Delivered(0));
    assert_eq!(machine.arrive(&packet(stranger, 60, 0)), Arrival::Unwanted);
    machine.write(at::FILTER + 8 * 15, u32::from_le_bytes([6, 5, 4, 3]));
    machine.write(at::FILTER + 8 * 15 + 4, u32::from_le_bytes([2, 1, 1, 0x80]));
    assert_eq!(machine.arrive(&packet(stranger, 60, 0)), Arrival::Delivered(1));
    machine.write(at::FILTER + 8 * 15 + 4, u32::from_le_bytes([2, 1, 200, 0x80]));
    assert_eq!(machine.arrive(&packet(stranger, 60, 0)), Arrival::Unwanted, "there is no such queue");
    machine.write(at::CONTROL, at::PROMISCUOUS);
    assert_eq!(machine.arrive(&packet(stranger, 60, 0)), Arrival::Delivered(0));
    assert_eq!(machine.arrive(&[0xff; 13]), Arrival::Misshapen);
    assert_eq!(machine.arrive(&[0xff; PACKET_MAX + 1]), Arrival::Misshapen);
    let counts = *machine.card.counts();
    assert_eq!((counts.received, counts.unwanted, counts.misshapen), (4, 2, 2));
    // The registers show the same, in order.
    let shown: Vec<u32> = (0..9).map(|index| machine.read(at::COUNTS + 8 * index)).collect();
    assert_eq!(shown, [0, 0, 4, 240, 0, 2, 2, 0, 0]);
}

#[test]
fn a_filter_that_names_no_queue_of_the_card_takes_no_packet() {
    let mut machine = Machine::new(ADDRESSES[0], HostConfig::default());
    let (stranger, none) = ([6, 5, 4, 3, 2, 1], QUEUES as u8);
    let filter = |machine: &mut Machine, index: u32, [a, b, c, d, e, f]: [u8; 6], queue: u8| {
        machine.write(at::FILTER + 8 * index, u32::from_le_bytes([a, b, c, d]));
        machine.write(at::FILTER + 8 * index + 4, u32::from_le_bytes([e, f, queue, 0x80]));
    };
    filter(&mut machine, 0, stranger, none);
    filter(&mut machine, 1, ADDRESSES[0], none);
    assert_eq!(machine.arrive(&packet(stranger, 60, 0)), Arrival::Unwanted);
    assert_eq!(machine.arrive(&packet(ADDRESSES[0], 60, 0)), Arrival::Delivered(0));
    // The next filter applies.
    filter(&mut machine, 2, stranger, 0);
    assert_eq!(machine.arrive(&packet(stranger, 60, 0)), Arrival::Delivered(0));
    assert_eq!(machine.card.counts().faults, 0);
}

#[test]
fn a_link_that_is_down_loses_packets_and_no_credits() {
    let mut machine = Machine::new(ADDRESSES[0], HostConfig::default());
    machine.card.set_link(false);
    for _ in 0..1_000 {
        machine.send(&[1; 60]).unwrap();
        assert_eq!(machine.transmit(), None);
    }
    assert_eq!(machine.card.counts().link_down, 1_000);
    // None of several packets waits until the link is up again.
    for _ in 0..10 {
        machine.send(&[1; 60]).unwrap();
    }
    assert_eq!(machine.transmit(), None);
    assert_eq!(machine.card.counts().link_down, 1_010);
    assert_eq!((machine.read(at::STATUS), machine.read(at::LINK_CHANGES)), (0, 2));
    machine.card.set_link(true);
    machine.send(&[2; 60]).unwrap();
    assert_eq!(machine.transmit(), Some([2; 60].to_vec()));
}

/// The progress of an end on its way to sleep.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    Awake,
    /// It has announced that it sleeps and must look once more.
    Drowsy,
    Asleep,
}

/// Both ends of a card and its host fall asleep whenever they find no work, one step at a time, and
/// wake only when they are woken. An end that misses a wake-up stays asleep for ever.
fn sleepers(seed: u64) -> (usize, usize) {
    const PACKETS: usize = 200;
    let mut rng = Rng::from_seed(seed);
    let config = HostConfig { queue: 1 + rng.below(QUEUES as u64 - 1) as usize, ..HostConfig::default() };
    let mut machine = Machine::new(ADDRESSES[0], config);
    machine.write(at::CONTROL, at::PROMISCUOUS);
    let config = HostConfig { memory: MEMORY, queue: 0, ..config };
    let mut other = Host::new(config);
    for (register, value) in other.start(&mut machine.memory).unwrap() {
        machine.write(register, value);
    }
    let (mut card, mut host) = (Rest::Awake, Rest::Awake);
    let (mut sent, mut came, mut wakes, mut interrupts) = (0, 0, 0, 0);
    let mut bytes = [0; PACKET_MAX];
    while came < PACKETS {
        let idle = [card, host].map(|rest| rest == Rest::Asleep);
        assert!(sent < PACKETS || idle != [true; 2], "seed {seed}: both sleep, and {came} of {sent} arrived");
        match rng.below(3) {
            // Packets from one host's slots return to the other host's lines.
            0 if sent < PACKETS && sent - came < 100 => {
                machine.host.send(&mut machine.window, &mut machine.memory, &PACKET, false).unwrap();
                sent += 1;
                if let Some((register, value)) = machine.host.poll_wake(&machine.window).unwrap() {
                    machine.write(register, value);
                    (card, wakes) = (Rest::Awake, wakes + 1);
                }
            }
            1 if card != Rest::Asleep => match machine.transmit() {
                Some(packet) => {
                    card = Rest::Awake;
                    machine.card.sleep(&mut machine.window, false);
                    assert_eq!(machine.arrive(&packet), Arrival::Delivered(0));
                    if machine.card.poll_interrupt(&machine.window) == Some(0) {
                        (host, interrupts) = (Rest::Awake, interrupts + 1);
                    }
                }
                None if card == Rest::Drowsy => card = Rest::Asleep,
                None => {
                    machine.card.sleep(&mut machine.window, true);
                    card = Rest::Drowsy;
                }
            },
            2 if host != Rest::Asleep => {
                if other.receive(&mut machine.window, &mut machine.memory, &mut bytes).unwrap().is_some() {
                    (host, came) = (Rest::Awake, came + 1);
                } else if host == Rest::Drowsy {
                    host = Rest::Asleep;
                } else {
                    other.await_interrupt(&mut machine.window).unwrap();
                    host = Rest::Drowsy;
                }
            }
            _ => {}
        }
    }
    (wakes, interrupts)
}

#[test]
fn sleeping_cards_and_hosts_are_woken_by_packets() {
    let (mut wakes, mut interrupts) = (0, 0);
    for seed in 0..300 {
        let (card, host) = sleepers(seed);
        wakes += card;
        interrupts += host;
    }
    assert!(wakes > 3_000 && interrupts > 3_000, "{wakes} wakes, {interrupts} interrupts");
}

#[test]
fn an_interrupt_comes_once_and_only_where_it_was_asked_for() {
    let mut machine = Machine::new(ADDRESSES[0], HostConfig::default());
    machine.arrive(&PACKET);
    assert_eq!(machine.card.poll_interrupt(&machine.window), None, "no interrupt was requested");
    // The host requests it without having seen the available packet: it looks once more itself.
    machine.host.await_interrupt(&mut machine.window).unwrap();
    assert_eq!(machine.card.poll_interrupt(&machine.window), None);
    assert!(machine.receive().unwrap().is_some());
    machine.host.await_interrupt(&mut machine.window).unwrap();
    for expected in [Some(0), None] {
        machine.arrive(&PACKET);
        assert_eq!(machine.card.poll_interrupt(&machine.window), expected);
    }
    // A card that is restarted while it sleeps still announces it.
    machine.card.sleep(&mut machine.window, true);
    machine.start(HostConfig::default());
    machine.send(&PACKET).unwrap();
    let wake = machine.host.poll_wake(&machine.window).unwrap();
    assert_eq!(wake, Some((at::QUEUE + queue::WAKE, 1)));
    assert_eq!(machine.host.poll_wake(&machine.window).unwrap(), None, "nothing was stored since");
}

#[test]
fn a_reset_forgets_all_but_the_link() {
    let mut machine = Machine::new(ADDRESSES[0], HostConfig::default());
    machine.write(at::FILTER + 4, 0x8000_0000);
    machine.send(&[1; 60]).unwrap();
    machine.transmit().unwrap();
    assert!(machine.card.is_running());
    machine.write(at::CONTROL, at::RESET | at::PROMISCUOUS);
    assert!(!machine.card.is_running());
    for register in [at::CONTROL, at::FILTER + 4, at::COUNTS, at::QUEUE, at::QUEUE + queue::STATUS] {
        assert_eq!(machine.read(register), 0, "{register:#x}");
    }
    assert_eq!(machine.read(at::STATUS), at::LINK_UP);
    machine.send(&[1; 60]).unwrap();
    assert_eq!(machine.transmit(), None, "no queue runs");
    assert_eq!(machine.arrive(&packet(ADDRESSES[0], 60, 0)), Arrival::NoRoom);
    machine.start(HostConfig::default());
    machine.send(&[3; 60]).unwrap();
    assert_eq!(machine.transmit(), Some([3; 60].to_vec()));
}

#[test]
fn writes_of_other_than_whole_double_words_are_ignored() {
    let mut machine = Machine::new(ADDRESSES[0], HostConfig::default());
    for (offset, length) in [(0, 1), (0, 2), (0, 3), (0, 5), (0, 6), (0, 7), (1, 4), (2, 4), (2, 2)] {
        let place = u64::from(at::FILTER) + offset;
        machine.card.register_write(&mut machine.window, place, &[0xff; 8][..length]);
        let shown = [at::FILTER, at::FILTER + 4].map(|register| machine.read(register));
        assert_eq!(shown, [0, 0], "{length} B at {offset}");
    }
    machine.card.register_write(&mut machine.window, at::FILTER.into(), &[1, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!((machine.read(at::FILTER), machine.read(at::FILTER + 4)), (1, 2));
}

#[test]
fn registers_identify_the_card() {
    let machine = Machine::new([1, 2, 3, 4, 5, 6], HostConfig::default());
    assert_eq!(machine.read(at::ID).to_le_bytes(), *b"NIQ1");
    assert_eq!(machine.read(at::CAPABILITIES), 4 | 256 << 16);
    assert_eq!((machine.read(at::ADDRESS), machine.read(at::ADDRESS + 4)), (0x0403_0201, 0x0605));
    let mut bytes = [0; 6];
    machine.card.register_read(u64::from(at::ADDRESS), &mut bytes);
    assert_eq!(bytes, [1, 2, 3, 4, 5, 6]);
    machine.card.register_read(u64::MAX - 2, &mut bytes[..3]);
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        fuzz::card(&bytes);
        fuzz::host(&bytes);
        // And with a queue that runs.
        fuzz::card(&[&[4, 0x14, 0x19][..], &bytes].concat());
    }
}
