//! The tests of `pure/niq` on the circuit: its host drives the circuit as it drives the card in
//! software. All streams pause at random, and stores leave in parts.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "random numbers are below small limits"
)]

use super::*;
use ::niq::registers::queue;
use ::niq::{HOST_MEMORY_BYTES, Host, HostConfig, HostFault, PACKET_MAX, SendError};
use engine::Rng;
use pcie::memory::Ram;
use pcie::wire::Packet;
use std::collections::VecDeque;

const ADDRESSES: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const SLOTS: u64 = 256;
/// A packet to all stations.
const PACKET: [u8; 40] = [0xff; 40];

/// A card in hardware with its host.
struct Machine {
    card: Rc<RefCell<CardCircuit>>,
    host: Host,
    window: Window,
    memory: Ram,
}

impl Machine {
    fn new(address: [u8; 6], config: HostConfig, seed: u64) -> Self {
        let mut rng = Rng::from_seed(seed);
        let stalls = Stalls([None, Some(2), Some(5)][rng.below(3) as usize]);
        // Below and above 4 GiB, so that headers have 3 and 4 double words.
        let base = [0xd000_0000, 0x20_0000_0000][rng.below(2) as usize];
        let bars = Bars { registers: base + 0x10_0000, window: base };
        let card = Rc::new(RefCell::new(CardCircuit::new(address, bars, stalls, seed)));
        card.borrow_mut().tear();
        card.borrow_mut().set_link(true);
        let window = Window(Rc::clone(&card));
        let mut machine =
            Self { card, host: Host::new(config), window, memory: Ram::new(0, HOST_MEMORY_BYTES) };
        machine.start(config);
        machine
    }

    fn start(&mut self, config: HostConfig) {
        self.host = Host::new(config);
        for (register, value) in self.host.start(&mut self.memory).unwrap() {
            self.write(register, value);
        }
    }

    fn write(&mut self, register: u32, value: u32) {
        self.card.borrow_mut().register_write(register.into(), &value.to_le_bytes());
    }

    fn read(&mut self, register: u32) -> u32 {
        self.card.borrow_mut().register(register)
    }

    fn send(&mut self, packet: &[u8]) -> Result<u64, SendError> {
        self.host.send(&mut self.window, &mut self.memory, packet, false)
    }

    fn transmit(&mut self) -> Option<Vec<u8>> {
        self.card.borrow_mut().poll_transmit()
    }

    fn arrive(&mut self, packet: &[u8]) -> Fate {
        self.card.borrow_mut().receive(packet, false)
    }

    fn receive(&mut self) -> Result<Option<Vec<u8>>, HostFault> {
        let mut packet = [0; PACKET_MAX];
        let received = self.host.receive(&mut self.window, &mut self.memory, &mut packet)?;
        Ok(received.map(|received| packet[..received.length].to_vec()))
    }

    fn counts(&mut self) -> Counts {
        self.card.borrow_mut().counts()
    }

    fn interrupt(&mut self) -> Option<usize> {
        self.card.borrow_mut().poll_interrupt()
    }

    /// Stores a slot as a host does that keeps to no rule.
    fn store(&mut self, number: u64, header: [u8; 4], start: &[u8]) {
        let mut line = [0; 64];
        line[..start.len()].copy_from_slice(start);
        line[60..].copy_from_slice(&header);
        self.window.write(number % SLOTS * 64, &line).unwrap();
    }
}

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
/// card has counted that there was no room; a host that respects its credits never causes a fault.
fn run(seed: u64) -> Seen {
    let mut rng = Rng::from_seed(seed);
    let configs =
        [(); 2].map(|()| HostConfig { queue: rng.below(QUEUES as u64) as usize, ..HostConfig::default() });
    let mut machines =
        [0, 1].map(|which| Machine::new(ADDRESSES[which], configs[which], 2 * seed + which as u64));
    for (which, machine) in machines.iter_mut().enumerate() {
        let [a, b, c, d, e, f] = ADDRESSES[which];
        machine.write(at::FILTER + 24, u32::from_le_bytes([a, b, c, d]));
        machine.write(at::FILTER + 28, u32::from_le_bytes([e, f, configs[which].queue as u8, 0x80]));
    }
    let mut wires: [VecDeque<Vec<u8>>; 2] = Default::default();
    let mut expected: [VecDeque<Vec<u8>>; 2] = Default::default();
    let mut seen = Seen::default();
    // Some runs let the receiver or the cable sleep long enough for everything to fill up.
    let (eager, lazy, steps) = ([1, 5, 60][rng.below(3) as usize], [1, 30][rng.below(2) as usize], 1_500);
    for step in 0..steps {
        let from = rng.below(2) as usize;
        let to = 1 - from;
        match rng.below(4 + eager) {
            0 => {
                for _ in 0..=rng.below(30) {
                    wires[to].extend(machines[from].transmit());
                }
            }
            1 => {
                while let Some(next) = wires[to].pop_front() {
                    match machines[to].arrive(&next) {
                        Fate::Delivered => expected[to].push_back(next),
                        Fate::NoRoom => seen.refused += 1,
                        other => panic!("seed {seed}, step {step}: {other:?}"),
                    }
                }
            }
            2 if rng.below(lazy) == 0 => {
                for _ in 0..rng.below(100) {
                    let Some(received) = machines[to].receive().unwrap() else { break };
                    assert_eq!(Some(received), expected[to].pop_front(), "seed {seed}, step {step}");
                    seen.delivered += 1;
                }
            }
            2 => {}
            _ => {
                let packet = packet(ADDRESSES[to], 14 + rng.below(47) as usize, step as u8);
                match machines[from].send(&packet) {
                    Ok(_) => {}
                    Err(SendError::Full) => seen.full += 1,
                    Err(other) => panic!("seed {seed}, step {step}: {other:?}"),
                }
            }
        }
    }
    let counts = machines.each_mut().map(Machine::counts);
    assert_eq!(counts.map(|counts| counts.faults), [0; 2], "seed {seed}");
    // The MAC may have begun with one more packet.
    for (which, machine) in machines.iter_mut().enumerate() {
        while let Some(packet) = machine.transmit() {
            wires[1 - which].push_back(packet);
        }
    }
    let counts = machines.each_mut().map(Machine::counts);
    let sent: u64 = counts.iter().map(|counts| counts.sent).sum();
    let received: u64 = counts.iter().map(|counts| counts.received).sum();
    let waiting: usize = wires.iter().map(VecDeque::len).sum();
    assert_eq!(sent, received + seen.refused as u64 + waiting as u64, "seed {seed}");
    seen
}

#[test]
fn packets_come_whole_and_in_order_over_many_seeds() {
    let mut total = Seen::default();
    for seed in 0..50 {
        let seen = run(seed);
        total.delivered += seen.delivered;
        total.full += seen.full;
        total.refused += seen.refused;
    }
    // The runs cover the intended cases.
    assert!(total.delivered > 3_000, "{}", total.delivered);
    assert!(total.full > 100 && total.refused > 10, "{} full, {} refused", total.full, total.refused);
}

#[test]
fn a_queue_goes_on_for_several_laps() {
    let mut machine = Machine::new(ADDRESSES[0], HostConfig::default(), 2);
    for number in 0..3 * SLOTS + 10 {
        let sent = packet(ADDRESSES[0], 14 + (number % 47) as usize, number as u8);
        machine.send(&sent).unwrap();
        assert_eq!(machine.transmit().as_ref(), Some(&sent), "number {number}");
        assert_eq!(machine.arrive(&sent), Fate::Delivered, "number {number}");
        assert_eq!(machine.receive().unwrap(), Some(sent), "number {number}");
    }
    assert_eq!(machine.read(at::QUEUE + queue::TAKEN), 3 * 256 + 10);
}

#[test]
fn a_slot_waits_for_the_last_of_its_double_words() {
    // The header comes first, then the others from both ends.
    let mut machine = Machine::new(ADDRESSES[0], HostConfig::default(), 3);
    for lap in 1..=3_u8 {
        for slot in 0..SLOTS {
            let number = u64::from(lap - 1) * SLOTS + slot;
            let sent = packet(ADDRESSES[1], 60, number as u8);
            let mut line = [0; 64];
            line[..60].copy_from_slice(&sent);
            line[60..].copy_from_slice(&[60, 0, lap, 0]);
            let order = if slot % 37 == 0 {
                [15, 0, 14, 1, 13, 2, 12, 3, 11, 4, 10, 5, 9, 6, 8, 7]
            } else {
                std::array::from_fn(|word| word)
            };
            for (count, word) in order.into_iter().enumerate() {
                if slot % 37 == 0 {
                    assert_eq!(machine.transmit(), None, "{count} double words of {number} came");
                }
                let place = slot * 64 + word as u64 * 4;
                machine.window.write(place, &line[word * 4..word * 4 + 4]).unwrap();
            }
            assert_eq!(machine.transmit(), Some(sent), "number {number}");
        }
    }
}

#[test]
fn each_fault_of_a_host_stops_its_queue_alone_and_is_shown() {
    let cases: [(u32, [u8; 4], &[u8]); 8] = [
        (1, [14, 0, 2, 0], &[]),
        (2, [14, 0, 9, 0], &[]),
        (2, [13, 0, 1, 0], &[]),
        (2, [61, 0, 1, 0], &[]),
        (2, [14, 2, 1, 0], &[]),
        (2, [0xff, 0, 1, 0], &[0, 0, 0x10, 0, 0, 0, 0, 0, 13, 0, 0, 0]),
        (2, [0xff, 0, 1, 0], &[0, 0, 0x10, 0, 0, 0, 0, 0, 1, 0x24, 0, 0]),
        (3, [0xff, 0, 1, 0], &[0, 0, 0, 0, 0, 0, 0, 0x80, 20, 0, 0, 0]),
    ];
    for (seed, (fault, header, start)) in (0..).zip(cases) {
        let mut machine = Machine::new(ADDRESSES[0], HostConfig::default(), seed);
        // Another queue runs at the same time.
        let mut other = Host::new(HostConfig { queue: 2, ..HostConfig::default() });
        for (register, value) in other.start(&mut machine.memory).unwrap() {
            machine.write(register, value);
        }
        machine.store(0, header, start);
        let packet = packet(ADDRESSES[1], 60, 3);
        other.send(&mut machine.window, &mut machine.memory, &packet, false).unwrap();
        assert_eq!(machine.transmit(), Some(packet), "{fault:?}: the other queue continues");
        assert_eq!(machine.transmit(), None);
        assert_eq!(machine.read(at::QUEUE + queue::STATUS), 2 | fault << 8, "{header:?}");
        assert_eq!(machine.counts().faults, 1);
        // After a restart, it works again.
        machine.start(HostConfig::default());
        machine.send(&[0; 14]).unwrap();
        assert_eq!(machine.transmit(), Some([0; 14].to_vec()));
        assert_eq!(machine.read(at::QUEUE + queue::STATUS), 1);
    }
}

/// What the card without DMA answers to hosts that want it.
#[test]
fn a_card_that_reaches_no_host_memory_reports_it() {
    let config = HostConfig { credits: ::niq::Credits::Pushed, ..HostConfig::default() };
    for is_up in [true, false] {
        let mut machine = Machine::new(ADDRESSES[0], config, 4);
        machine.card.borrow_mut().set_link(is_up);
        machine.host.send(&mut machine.window, &mut machine.memory, &PACKET, true).unwrap();
        assert_eq!(machine.transmit(), is_up.then(|| PACKET.to_vec()));
        assert_eq!(machine.read(at::QUEUE + queue::STATUS), 2 | 3 << 8);
        let counts = machine.counts();
        let expected = if is_up { (1, 0, 1) } else { (0, 1, 1) };
        assert_eq!((counts.sent, counts.link_down, counts.faults), expected);
    }
    let mut machine = Machine::new(ADDRESSES[0], HostConfig::default(), 5);
    for length in [61, 64, 65, 1_500, PACKET_MAX] {
        assert_eq!(machine.arrive(&packet(ADDRESSES[0], length, 1)), Fate::NoRoom, "{length} B");
    }
}

#[test]
fn a_host_that_reports_too_many_taken_lines_is_stopped() {
    let mut machine = Machine::new(ADDRESSES[0], HostConfig::default(), 6);
    let small = packet(ADDRESSES[0], 30, 0);
    for _ in 0..SLOTS {
        assert_eq!(machine.arrive(&small), Fate::Delivered);
    }
    assert_eq!(machine.arrive(&small), Fate::NoRoom, "the host has taken no line");
    machine.window.write(0x9000, &(SLOTS + 1).to_le_bytes()).unwrap();
    assert_eq!(machine.arrive(&small), Fate::NoRoom);
    assert_eq!(machine.read(at::QUEUE + queue::STATUS), 2 | 4 << 8);
    // And one that reports fewer than before.
    machine.start(HostConfig::default());
    assert_eq!(machine.arrive(&small), Fate::Delivered);
    for taken in [1, 0_u64] {
        assert_eq!(machine.read(at::QUEUE + queue::STATUS), 1);
        machine.window.write(0x9000, &taken.to_le_bytes()).unwrap();
    }
    assert_eq!(machine.read(at::QUEUE + queue::STATUS), 2 | 4 << 8);
}

#[test]
fn completions_come_where_they_were_asked_for_and_nowhere_else() {
    let mut machine = Machine::new(ADDRESSES[0], HostConfig::default(), 7);
    for (number, ask) in [(1, false), (2, true), (3, false)] {
        let sent = machine.host.send(&mut machine.window, &mut machine.memory, &[0; 40], ask);
        assert_eq!(sent, Ok(number));
        machine.transmit().unwrap();
        let completed = machine.host.poll_completed(&machine.window, &machine.memory);
        assert_eq!(completed, Ok(if number < 2 { 0 } else { 2 }));
    }
}

#[test]
fn a_host_without_credit_is_refused_and_hears_of_new_ones() {
    let mut machine = Machine::new(ADDRESSES[0], HostConfig::default(), 8);
    for number in 0..SLOTS {
        assert_eq!(machine.send(&[7; 60]), Ok(number + 1));
    }
    assert_eq!(machine.send(&[7; 60]), Err(SendError::Full));
    for _ in 0..SLOTS / 4 {
        machine.transmit().unwrap();
    }
    assert_eq!(machine.send(&[7; 60]), Ok(SLOTS + 1));
}

#[test]
fn a_host_that_was_used_starts_its_queue_anew() {
    let mut machine = Machine::new(ADDRESSES[0], HostConfig::default(), 9);
    for round in 0..3 {
        for length in [14, 15, 16, 17, 59, 60] {
            let sent = packet(ADDRESSES[0], length, round);
            machine.send(&sent).unwrap();
            assert_eq!(machine.transmit().as_ref(), Some(&sent), "round {round}: {length} B leave");
            assert_eq!(machine.arrive(&sent), Fate::Delivered);
            assert_eq!(machine.receive().unwrap(), Some(sent), "round {round}: {length} B arrive");
        }
        // A slot that is half stored, and a count of which one half came, belong to the old run.
        let half = [0xff; 32];
        machine.window.write(6 * 64, &half).unwrap();
        machine.window.write(0x9004, &half[..4]).unwrap();
        for (register, value) in machine.host.start(&mut machine.memory).unwrap() {
            machine.write(register, value);
        }
    }
}

#[test]
fn filters_choose_the_queue_and_drop_unmatched_packets() {
    let mut machine = Machine::new(ADDRESSES[0], HostConfig::default(), 10);
    let mut second = Host::new(HostConfig { queue: 1, ..HostConfig::default() });
    for (register, value) in second.start(&mut machine.memory).unwrap() {
        machine.write(register, value);
    }
    let stranger = [6, 5, 4, 3, 2, 1];
    assert_eq!(machine.arrive(&packet(ADDRESSES[0], 60, 0)), Fate::Delivered);
    assert_eq!(machine.arrive(&packet([0xff; 6], 60, 0)), Fate::Delivered);
    assert_eq!(machine.arrive(&packet(stranger, 60, 0)), Fate::Unwanted);
    machine.write(at::FILTER + 8 * 15, u32::from_le_bytes([6, 5, 4, 3]));
    machine.write(at::FILTER + 8 * 15 + 4, u32::from_le_bytes([2, 1, 1, 0x80]));
    assert_eq!(machine.arrive(&packet(stranger, 60, 0)), Fate::Delivered);
    let mut bytes = [0; PACKET_MAX];
    let received = second.receive(&mut machine.window, &mut machine.memory, &mut bytes).unwrap().unwrap();
    assert_eq!(bytes[..received.length], packet(stranger, 60, 0));
    machine.write(at::FILTER + 8 * 15 + 4, u32::from_le_bytes([2, 1, 200, 0x80]));
    assert_eq!(machine.arrive(&packet(stranger, 60, 0)), Fate::Unwanted, "there is no such queue");
    // The next filter applies.
    machine.write(at::FILTER + 8 * 14, u32::from_le_bytes([6, 5, 4, 3]));
    machine.write(at::FILTER + 8 * 14 + 4, u32::from_le_bytes([2, 1, 4, 0x80]));
    machine.write(at::FILTER + 8 * 15 + 4, u32::from_le_bytes([2, 1, 0, 0x80]));
    assert_eq!(machine.arrive(&packet(stranger, 60, 0)), Fate::Delivered);
    machine.write(at::FILTER + 8 * 15 + 4, 0);
    machine.write(at::CONTROL, at::PROMISCUOUS);
    assert_eq!(machine.arrive(&packet(stranger, 60, 0)), Fate::Delivered);
    assert_eq!(machine.arrive(&[0xff; 13]), Fate::Misshapen);
    assert_eq!(machine.arrive(&[0xff; PACKET_MAX + 1]), Fate::Misshapen);
    assert_eq!(machine.card.borrow_mut().receive(&packet(ADDRESSES[0], 60, 0), true), Fate::Misshapen);
    // The registers show the same, in order.
    let shown: Vec<u32> = (0..9).map(|index| machine.read(at::COUNTS + 8 * index)).collect();
    assert_eq!(shown, [0, 0, 5, 300, 0, 2, 3, 0, 0]);
}

#[test]
fn a_link_that_is_down_loses_packets_and_no_credits() {
    let mut machine = Machine::new(ADDRESSES[0], HostConfig::default(), 11);
    machine.card.borrow_mut().set_link(false);
    for _ in 0..600 {
        machine.send(&[1; 60]).unwrap();
        assert_eq!(machine.transmit(), None);
    }
    assert_eq!(machine.counts().link_down, 600);
    assert_eq!((machine.read(at::STATUS), machine.read(at::LINK_CHANGES)), (0, 2));
    machine.card.borrow_mut().set_link(true);
    machine.send(&[2; 60]).unwrap();
    assert_eq!(machine.transmit(), Some([2; 60].to_vec()));
}

#[test]
fn an_interrupt_comes_once_and_only_where_it_was_asked_for() {
    let mut machine = Machine::new(ADDRESSES[0], HostConfig { queue: 3, ..HostConfig::default() }, 12);
    machine.write(at::FILTER, u32::MAX);
    machine.write(at::FILTER + 4, 0x8003_ffff);
    machine.arrive(&PACKET);
    assert_eq!(machine.interrupt(), None, "no interrupt was requested");
    // The host requests it without having seen the available packet: it looks once more itself.
    machine.host.await_interrupt(&mut machine.window).unwrap();
    assert_eq!(machine.interrupt(), None);
    assert!(machine.receive().unwrap().is_some());
    machine.host.await_interrupt(&mut machine.window).unwrap();
    for expected in [Some(3), None] {
        machine.arrive(&PACKET);
        assert_eq!(machine.interrupt(), expected);
    }
    assert_eq!(machine.host.poll_wake(&machine.window), Ok(None), "a card in hardware never sleeps");
}

#[test]
fn a_reset_forgets_all_but_the_link() {
    let mut machine = Machine::new(ADDRESSES[0], HostConfig::default(), 13);
    machine.write(at::FILTER + 4, 0x8000_0000);
    machine.send(&[1; 60]).unwrap();
    machine.transmit().unwrap();
    machine.write(at::CONTROL, at::RESET | at::PROMISCUOUS);
    let shown = [
        at::CONTROL,
        at::FILTER + 4,
        at::COUNTS,
        at::QUEUE,
        at::QUEUE + queue::STATUS,
        at::QUEUE + queue::BUFFERS,
    ];
    for register in shown {
        assert_eq!(machine.read(register), 0, "{register:#x}");
    }
    assert_eq!(machine.read(at::STATUS), at::LINK_UP);
    machine.send(&[1; 60]).unwrap();
    assert_eq!(machine.transmit(), None, "no queue runs");
    assert_eq!(machine.arrive(&packet(ADDRESSES[0], 60, 0)), Fate::NoRoom);
    machine.start(HostConfig::default());
    machine.send(&[3; 60]).unwrap();
    assert_eq!(machine.transmit(), Some([3; 60].to_vec()));
}

#[test]
fn writes_of_other_than_whole_double_words_are_ignored() {
    let mut machine = Machine::new(ADDRESSES[0], HostConfig::default(), 14);
    for (offset, length) in [(0, 1), (0, 2), (0, 3), (0, 5), (0, 6), (0, 7), (1, 4), (2, 4), (2, 2)] {
        let place = u64::from(at::FILTER) + offset;
        machine.card.borrow_mut().register_write(place, &[0xff; 8][..length]);
        let shown = [at::FILTER, at::FILTER + 4].map(|register| machine.read(register));
        assert_eq!(shown, [0, 0], "{length} B at {offset}");
    }
    machine.card.borrow_mut().register_write(at::FILTER.into(), &[1, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!((machine.read(at::FILTER), machine.read(at::FILTER + 4)), (1, 2));
}

#[test]
fn registers_and_lines_are_read_from_any_byte_on() {
    let mut machine = Machine::new([1, 2, 3, 4, 5, 6], HostConfig::default(), 15);
    assert_eq!(machine.read(at::ID).to_le_bytes(), *b"NIQ1");
    assert_eq!(machine.read(at::CAPABILITIES), 4 | 256 << 16);
    assert_eq!((machine.read(at::ADDRESS), machine.read(at::ADDRESS + 4)), (0x0403_0201, 0x0605));
    let to = [1, 2, 3, 4, 5, 6];
    let lines: Vec<u8> = (0..64)
        .flat_map(|number| {
            let sent = packet(to, 60, number);
            assert_eq!(machine.arrive(&sent), Fate::Delivered);
            [&sent[..], &[60, 0, 1, 0]].concat()
        })
        .collect();
    let mut registers = vec![0; 4096];
    for (place, bytes) in registers.chunks_exact_mut(4).enumerate() {
        bytes.copy_from_slice(&machine.read(4 * place as u32).to_le_bytes());
    }
    let mut rng = Rng::from_seed(15);
    for _ in 0..300 {
        let start = rng.below(4_000) as usize;
        let most = [9, 64, 4_096][rng.below(3) as usize].min(4_096 - start as u64);
        let length = 1 + rng.below(most) as usize;
        let mut bytes = vec![0; length];
        machine.window.read(0x4000 + start as u64, &mut bytes).unwrap();
        assert_eq!(bytes, lines[start..start + length], "{length} B of lines from {start} on");
        machine.card.borrow_mut().register_read(start as u64, &mut bytes);
        assert_eq!(bytes, registers[start..start + length], "{length} B of registers from {start} on");
    }
    // What the card does not write is 0: slots, and the host's own words.
    machine.send(&PACKET).unwrap();
    let mut bytes = [1; 16];
    for place in [0, 0x8010, 0x9000, 0x3_ffe0] {
        machine.window.read(place, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 16], "{place:#x}");
    }
}

/// A card whose streams never pause, with queue 0 started, for TLPs as they are.
fn bare() -> (CardCircuit, Bars) {
    let bars = Bars { registers: 0x4000_0000, window: 0x4004_0000 };
    let mut card = CardCircuit::new(ADDRESSES[0], bars, Stalls(None), 0);
    card.set_link(true);
    card.register_write(at::QUEUE.into(), &queue::ENABLE.to_le_bytes());
    (card, bars)
}

#[test]
fn requests_for_no_register_and_no_window_are_answered_by_their_kind() {
    let (mut card, bars) = bare();
    let tag = Tag::new(9);
    let data = || Buffer::copy_from_slice(&[0xff; 4]);
    let refused = [
        Packet::memory_read(HOST, tag, bars.registers - 4, 4),
        Packet::memory_read(HOST, tag, bars.registers + 0x1000, 8),
        Packet::memory_read(HOST, tag, 0x20_4000_0000, 4),
        Packet::io_read(HOST, tag, 0x4000_0000, 4),
        Packet::io_write(HOST, tag, 0x4000_0000, data()),
        Packet::config_write(HOST, tag, CARD, 4, data()),
    ];
    for request in refused {
        card.send(&request);
        let answer = card.poll_answer().expect("what is not posted has an answer");
        let answer = Tlp::<&[u8]>::parse(&answer).unwrap();
        let expected = Packet::completion(CARD, CompletionStatus::UnsupportedRequest, &request.header);
        let (Kind::Completion(found), Kind::Completion(expected)) =
            (answer.header.kind, expected.header.kind)
        else {
            panic!("{answer} is no completion")
        };
        assert_eq!((found.status, found.data), (expected.status, false), "{request}");
        assert_eq!((found.requester, found.tag), (HOST, tag), "{request}");
    }
    // Posted ones are dropped: outside the BARs, poisoned, and completions that answer nothing.
    let mut poisoned = Packet::memory_write(HOST, bars.registers + u64::from(at::FILTER), data());
    poisoned.header.traits = poisoned.header.traits.with_poison(true);
    let outside = Packet::memory_write(HOST, bars.registers + 0x1000, Buffer::copy_from_slice(&[0xff; 256]));
    let read = Packet::memory_read(CARD, tag, 0, 4);
    let stray = Packet::completion_with_data(HOST, &read.header, 0, data());
    for request in [poisoned, outside, stray] {
        card.send(&request);
        assert_eq!(card.poll_answer(), None, "{request}");
    }
    assert_eq!(card.register(at::FILTER), 0);
    assert_eq!(card.register(at::ID), at::ID_VALUE);
}

#[test]
fn a_write_of_many_double_words_fills_registers_and_slots_from_any_word_on() {
    for seed in 0..60 {
        let mut rng = Rng::from_seed(seed);
        let base = [0xd000_0000, 0x20_0000_0000][rng.below(2) as usize];
        let bars = Bars { registers: base + 0x10_0000, window: base };
        let mut card =
            CardCircuit::new(ADDRESSES[0], bars, Stalls([None, Some(3)][rng.below(2) as usize]), seed);
        card.set_link(true);
        card.register_write(at::QUEUE.into(), &queue::ENABLE.to_le_bytes());
        // Slots of 10 packets as one run of bytes, cut anywhere, with and without a check sequence.
        let packets: Vec<Vec<u8>> = (0..10).map(|number| packet(ADDRESSES[1], 60, number)).collect();
        let bytes: Vec<u8> = packets.iter().flat_map(|one| [&one[..], &[60, 0, 1, 0]].concat()).collect();
        let (mut place, mut rest) = (bars.window, &bytes[..]);
        while !rest.is_empty() {
            let (part, behind) = rest.split_at((4 + 4 * rng.below(40) as usize).min(rest.len()));
            let request = Packet::memory_write(HOST, place, Buffer::copy_from_slice(part));
            card.send(&if rng.one_in(3) { request.with_ecrc() } else { request });
            (place, rest) = (place + part.len() as u64, behind);
        }
        for packet in packets {
            assert_eq!(card.poll_transmit(), Some(packet), "seed {seed}");
        }
        // Sixteen filters with one write.
        let mut filters = [0; 128];
        rng.fill(&mut filters);
        card.register_write(at::FILTER.into(), &filters);
        let mut shown = [0; 128];
        card.register_read(at::FILTER.into(), &mut shown);
        assert_eq!(shown, filters, "seed {seed}");
    }
}

#[test]
fn a_packet_that_leaves_is_not_touched_by_a_restart_of_its_queue() {
    let (mut card, bars) = bare();
    let (sent, line) = (packet(ADDRESSES[1], 60, 1), |packet: &[u8]| [packet, &[60, 0, 1, 0]].concat());
    let store = |card: &mut CardCircuit, packet: &[u8]| {
        card.send(&Packet::memory_write(HOST, bars.window, Buffer::copy_from_slice(&line(packet))));
    };
    store(&mut card, &sent);
    // The cable is closed: the packet waits at the MAC.
    card.register_write(at::QUEUE.into(), &queue::ENABLE.to_le_bytes());
    assert_eq!(card.register(at::QUEUE + queue::TAKEN), 0);
    let other = packet(ADDRESSES[1], 60, 2);
    store(&mut card, &other);
    assert_eq!(
        [card.poll_transmit(), card.poll_transmit(), card.poll_transmit()],
        [Some(sent), Some(other), None]
    );
}

/// Cycles through the card's logic, at 4 ns each. The publication has 150 ns for each direction.
#[test]
fn the_logic_takes_fewer_cycles_than_the_published_one() {
    let (mut card, bars) = bare();
    let line = [&packet(ADDRESSES[1], 60, 1)[..], &[60, 0, 1, 0]].concat();
    let mut transmit = Vec::new();
    for slot in 0..16 {
        card.send(&Packet::memory_write(HOST, bars.window + 64 * slot, Buffer::copy_from_slice(&line)));
        let times = card.times();
        transmit.push(times.departure - times.request);
        assert!(card.poll_transmit().is_some());
    }
    assert_eq!(card.receive(&packet(ADDRESSES[0], 60, 1), false), Fate::Delivered);
    card.ports.arrive(&packet(ADDRESSES[0], 60, 1), false);
    card.ports.settle();
    let times = card.times();
    let receive = times.work - times.arrival;
    let mut read = [0; 64];
    card.read(bars.window + 0x4000, &mut read);
    let times = card.times();
    let answer = times.answer - times.request;
    let (least, most) = (transmit.iter().min().unwrap(), transmit.iter().max().unwrap());
    println!("niq: last beat of a slot to first beat of its packet: {least} to {most} cycles");
    println!("niq: last beat of a packet to its line: {receive} cycles");
    println!("niq: a request of 64 B to the first beat of its answer: {answer} cycles");
    assert!(*most <= 37 && receive + answer <= 37, "{most}, {receive} and {answer} cycles");
}
