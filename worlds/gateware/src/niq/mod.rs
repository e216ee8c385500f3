//! The circuit of the low-latency network card, with the functions of the engine `niq::Card`.

mod ports;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::rc::Rc;

use ::niq::registers as at;
use ::niq::{Counts, QUEUES, WINDOW_BYTES};
use engine::Buffer;
use pcie::memory::{Memory, Unmapped};
use pcie::wire::{Bdf, CompletionStatus, Kind, Packet, Tag, Tlp};

use crate::stream::Stalls;
use ports::Ports;

pub use ports::Times;

/// Where a host puts the card's registers and its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bars {
    /// BAR0, a multiple of 4 KiB.
    pub registers: u64,
    /// BAR2, a multiple of 256 KiB.
    pub window: u64,
}

/// The fate of a packet of the cable, by the counter that rose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is in a line of a queue.
    Delivered,
    /// No filter accepts it.
    Unwanted,
    /// It is too short or too long for a packet, or its check sequence is wrong.
    Misshapen,
    /// The host has no line free, its queue does not run, or the packet is longer than a line.
    NoRoom,
}

/// A card in hardware, and the PCIe hierarchy and the cable that it is connected to.
#[derive(Debug)]
pub struct CardCircuit {
    ports: Ports,
    bars: Bars,
    is_link_up: bool,
    /// The tag of the next read.
    tag: u8,
    /// Whether stores of a line leave in parts and in any order.
    is_torn: bool,
}

/// The host's function, root port 0.
const HOST: Bdf = Bdf::new(0, 0, 0);
/// The card's function.
const CARD: Bdf = Bdf::new(1, 0, 0);

impl CardCircuit {
    /// A card with this Ethernet address, after power-up. Streams pause by `seed`.
    pub fn new(address: [u8; 6], bars: Bars, stalls: Stalls, seed: u64) -> Self {
        let ports = Ports::new(address, bars, CARD, stalls, seed);
        Self { ports, bars, is_link_up: false, tag: 0, is_torn: false }
    }

    /// Has stores of a host leave its processor in parts of whole double words, in any order.
    pub const fn tear(&mut self) {
        self.is_torn = true;
    }

    /// When beats were seen last.
    pub const fn times(&self) -> Times {
        self.ports.times()
    }

    /// Sets the card's link up or down.
    pub fn set_link(&mut self, is_up: bool) {
        self.is_link_up = is_up;
        self.ports.set_link(is_up);
        self.ports.settle();
    }

    /// Writes registers. Incomplete double words and unknown registers are ignored.
    pub fn register_write(&mut self, offset: u64, bytes: &[u8]) {
        let data = Buffer::copy_from_slice(bytes);
        self.ports.send(&Packet::memory_write(HOST, self.bars.registers + offset, data));
        self.ports.settle();
    }

    /// Reads registers into `bytes`.
    pub fn register_read(&mut self, offset: u64, bytes: &mut [u8]) {
        self.read(self.bars.registers + offset, bytes);
    }

    /// A register of a double word.
    pub fn register(&mut self, offset: u32) -> u32 {
        let mut word = [0; 4];
        self.register_read(offset.into(), &mut word);
        u32::from_le_bytes(word)
    }

    /// The card's counts since its last reset.
    pub fn counts(&mut self) -> Counts {
        let mut bytes = [0; 72];
        self.register_read(at::COUNTS.into(), &mut bytes);
        let [sent, sent_bytes, received, received_bytes, link_down, unwanted, misshapen, no_room, faults] =
            std::array::from_fn(|index| {
                let (words, _) = bytes.as_chunks::<8>();
                u64::from_le_bytes(words[index])
            });
        Counts { sent, sent_bytes, received, received_bytes, link_down, unwanted, misshapen, no_room, faults }
    }

    /// The state of a queue, as its register has it: 0 stopped, 1 running, 2 stopped by the fault
    /// in bits 15:8.
    pub fn state(&mut self, queue: usize) -> u32 {
        assert!(queue < QUEUES, "a card has {QUEUES} queues");
        let place = at::QUEUE + at::QUEUE_STRIDE * u32::try_from(queue).expect("a few") + at::queue::STATUS;
        self.register(place)
    }

    /// The next packet that has left for the cable. The cable takes packets only here, so at any
    /// other time one packet that was taken from its slot may wait for it.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.ports.transmitted()
    }

    /// Gives a packet of the cable to the card. A packet is `is_bad` when its check sequence is
    /// wrong.
    pub fn receive(&mut self, packet: &[u8], is_bad: bool) -> Fate {
        let before = self.counts();
        self.ports.arrive(packet, is_bad);
        self.ports.settle();
        let after = self.counts();
        let rises = [
            after.received - before.received,
            after.unwanted - before.unwanted,
            after.misshapen - before.misshapen,
            after.no_room - before.no_room,
        ];
        match rises {
            [1, 0, 0, 0] => Fate::Delivered,
            [0, 1, 0, 0] => Fate::Unwanted,
            [0, 0, 1, 0] => Fate::Misshapen,
            [0, 0, 0, 1] => Fate::NoRoom,
            other => panic!("one packet came, and the counters rose by {other:?}"),
        }
    }

    /// The next queue whose host was interrupted.
    pub fn poll_interrupt(&mut self) -> Option<usize> {
        self.ports.settle();
        self.ports.interrupted()
    }

    /// Sends a TLP to the card as it is.
    pub fn send(&mut self, request: &Packet) {
        self.ports.send(request);
        self.ports.settle();
    }

    /// The next TLP of the card.
    pub fn poll_answer(&mut self) -> Option<Vec<u8>> {
        self.ports.settle();
        self.ports.answer()
    }

    /// Reads by as many requests as pages are touched.
    fn read(&mut self, address: u64, bytes: &mut [u8]) {
        let (mut address, mut rest) = (address, bytes);
        while !rest.is_empty() {
            let page = 4096 - usize::try_from(address % 4096).expect("below 4096");
            let (part, behind) = rest.split_at_mut(page.min(rest.len()));
            self.read_page(address, part);
            address += u64::try_from(part.len()).expect("a page at most");
            rest = behind;
        }
    }

    fn read_page(&mut self, address: u64, bytes: &mut [u8]) {
        self.tag = self.tag.wrapping_add(1);
        let length = u32::try_from(bytes.len()).expect("a page at most");
        let request = Packet::memory_read(HOST, Tag::new(self.tag.into()), address, length);
        self.ports.send(&request);
        let mut filled = 0;
        while filled < bytes.len() {
            let answer = self.ports.await_answer();
            let answer = Tlp::<&[u8]>::parse(&answer[..]).expect("the card sends valid TLPs");
            let Kind::Completion(completion) = answer.header.kind else {
                panic!("{answer} is no completion")
            };
            assert_eq!((completion.requester, completion.tag), (HOST, Tag::new(self.tag.into())));
            assert_eq!((completion.completer, completion.status), (CARD, CompletionStatus::Success));
            assert_eq!(usize::from(completion.byte_count), bytes.len() - filled, "{answer}");
            let place = address + u64::try_from(filled).expect("a page at most");
            assert_eq!(u64::from(completion.lower_address), place % 128, "{answer}");
            let data = answer.data_bytes();
            bytes[filled..filled + data.len()].copy_from_slice(data);
            filled += data.len();
        }
        assert_eq!(self.ports.answer(), None, "no more than was asked for comes");
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        let parts = if self.is_torn { self.ports.tear(address, bytes) } else { vec![(address, bytes)] };
        for (address, part) in parts {
            self.ports.send(&Packet::memory_write(HOST, address, Buffer::copy_from_slice(part)));
        }
        self.ports.settle();
    }
}

/// The window of a card, as a host has it mapped.
#[derive(Clone, Debug)]
pub struct Window(pub Rc<RefCell<CardCircuit>>);

impl Window {
    /// The address in the hierarchy of `length` bytes at `offset`.
    fn place(&self, offset: u64, length: usize) -> Result<u64, Unmapped> {
        let end = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(length));
        if end.is_none_or(|end| end > WINDOW_BYTES) {
            return Err(Unmapped { address: offset, length });
        }
        Ok(self.0.borrow().bars.window + offset)
    }
}

impl Memory for Window {
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Unmapped> {
        let place = self.place(offset, bytes.len())?;
        self.0.borrow_mut().read(place, bytes);
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Unmapped> {
        let place = self.place(offset, bytes.len())?;
        self.0.borrow_mut().write(place, bytes);
        Ok(())
    }
}
