//! A packet's way from one processor to another, through the engines of two hosts and two cards.
//!
//! The engines are those of `niq`, as they run live. Their memory accesses become PCIe
//! transactions, whose times are those of [`models::nic`](crate::models::nic).

use std::cell::RefCell;

use engine::Nanos;
use niq::{Card, HOST_MEMORY_BYTES, Host, HostConfig, PACKET_MAX, WINDOW_BYTES};
use pcie::memory::{Memory, Ram, Unmapped};

use crate::models::nic::{CacheLine, Parameters};

/// A step of a packet's way, and its duration.
pub type Step = (&'static str, Nanos);

/// Memory that records the lengths of accesses.
struct Watched {
    ram: Ram,
    read: RefCell<Vec<u64>>,
    written: Vec<u64>,
}

impl Watched {
    fn new(length: usize) -> Self {
        Self { ram: Ram::new(0, length), read: RefCell::default(), written: Vec::new() }
    }

    /// The number of bytes read and written since the last call.
    fn take(&mut self) -> (u64, u64) {
        let read = self.read.take().iter().sum();
        (read, core::mem::take(&mut self.written).iter().sum())
    }
}

impl Memory for Watched {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Unmapped> {
        self.read.borrow_mut().push(bytes.len() as u64);
        self.ram.read(address, bytes)
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Unmapped> {
        self.written.push(bytes.len() as u64);
        self.ram.write(address, bytes)
    }
}

/// A host with its card.
struct Machine {
    host: Host,
    card: Card,
    window: Watched,
    memory: Watched,
}

impl Machine {
    fn new(address: [u8; 6], inline_max: usize) -> Self {
        let mut machine = Self {
            host: Host::new(HostConfig { inline_max, ..HostConfig::default() }),
            card: Card::new(address),
            window: Watched::new(WINDOW_BYTES),
            memory: Watched::new(HOST_MEMORY_BYTES),
        };
        machine.card.set_link(true);
        let start = machine.host.start(&mut machine.memory).expect("the memory is mapped");
        for (register, value) in start {
            machine.card.register_write(&mut machine.window, register.into(), &value.to_le_bytes());
        }
        machine.window.take();
        machine.memory.take();
        machine
    }
}

/// The steps of a packet of `bytes`, 14 to 9216, from one processor to the other. Up to
/// `inline_max` bytes it leaves its host in a line, otherwise by DMA.
///
/// # Panics
/// When no packet has such a length.
pub fn one_way(parameters: &Parameters, bytes: usize, inline_max: usize) -> Vec<Step> {
    let mut near = Machine::new([2, 0, 0, 0, 0, 1], inline_max);
    let mut far = Machine::new([2, 0, 0, 0, 0, 2], inline_max);
    let mut packet = vec![0xff; bytes];
    let mut steps = Vec::new();

    near.host.send(&mut near.window, &mut near.memory, &packet, false).expect("the card is idle");
    let (_, stored) = near.window.take();
    steps.push(("PCIe write", parameters.store_lines(stored.div_ceil(64))));
    near.memory.take();

    packet.resize(PACKET_MAX, 0);
    let taken = near.card.poll_transmit(&mut near.window, &mut near.memory, &mut packet);
    let length = taken.expect("the card takes the stored packet");
    let (fetched, _) = near.memory.take();
    let (mut logic_out, mut logic_in) = (parameters.logic_inline, parameters.logic_inline);
    if fetched > 0 {
        // The processor has just written the packet, and owns its lines.
        steps.push(("PCIe read", parameters.dma_read(fetched, CacheLine::Written)));
        logic_out = parameters.logic_dma.0;
    }
    let onto_wire = steps.len();
    steps.extend(parameters.wire(length as u64));

    far.card.receive(&mut far.window, &mut far.memory, &packet[..length]);
    let ((_, by_dma), (_, line)) = (far.memory.take(), far.window.take());
    assert_eq!(line, 64, "the card gives the host a line");
    if by_dma > 0 {
        logic_in = parameters.logic_dma.1;
    }
    steps.insert(onto_wire, ("NIC logic, transmit", Nanos::new(logic_out)));
    steps.push(("NIC logic, receive", Nanos::new(logic_in)));
    if by_dma > 0 {
        steps.push(("PCIe write, receive", parameters.dma_write(by_dma)));
    }
    steps.push(("PCIe reply", parameters.reply(by_dma > 0)));

    let received = far.host.receive(&mut far.window, &mut far.memory, &mut packet);
    assert!(matches!(received, Ok(Some(received)) if received.length == length), "{received:?}");
    let (missed, _) = far.memory.take();
    if missed > 0 {
        steps.push(("cache misses", parameters.fetch(missed)));
    }
    steps
}

/// The time of all steps.
pub fn total(steps: &[Step]) -> Nanos {
    Nanos::new(steps.iter().map(|(_, time)| time.get()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::nic::{Generation, read_ticks};
    use engine::Rng;

    #[test]
    fn the_published_totals_come_out_of_the_engines() {
        let total = |bytes| total(&one_way(&Parameters::NIQ, bytes, 60)).get();
        assert_eq!(total(60), 1_989);
        // 3059 are published.
        assert!(total(64).abs_diff(3_059) <= 10, "{}", total(64));
    }

    #[test]
    fn a_line_is_faster_than_dma_and_less_so_over_faster_links() {
        let gain = |generation| {
            let parameters = Parameters { generation, ..Parameters::NIQ };
            let of = |inline_max| total(&one_way(&parameters, 60, inline_max)).get();
            of(0) - of(60)
        };
        assert!(gain(Generation::One) > gain(Generation::Four));
        assert!(gain(Generation::Four) > gain(Generation::Five) && gain(Generation::Five) > 500);
    }

    #[test]
    fn reads_spread_as_published() {
        let mut rng = Rng::from_seed(1);
        for (line, mean, least, most) in [
            (CacheLine::Idle, 768, 764, 776),
            (CacheLine::Read, 768, 764, 784),
            (CacheLine::Written, 756, 736, 776),
        ] {
            let times: Vec<_> =
                (0..10_000).map(|_| read_ticks(&Parameters::NIQ, line, &mut rng).get()).collect();
            let found = times.iter().sum::<u64>() / 10_000;
            assert!(found.abs_diff(mean) <= 1, "{line:?}: {found}");
            assert!(times.iter().all(|time| time % 4 == 0 && (least..=most).contains(time)), "{line:?}");
        }
    }
}
