//! A link as what stands between the switch and the link uses it.

use engine::{Buffer, Instant};
use pcie::switch::{Ahead, AheadKey, FarLink, Strand};
use pcie::wire::Packet;

use super::Bundle;
use super::message::{Message, RANGES_MAX};

impl FarLink for Bundle {
    fn is_open(&self) -> bool {
        self.main.is_open()
    }
    fn ahead_window(&self) -> u32 {
        if self.main.config().lookahead { self.main.ahead_window() } else { 0 }
    }
    #[inline]
    fn is_spread(&self) -> bool {
        Self::is_spread(self)
    }
    #[inline]
    fn send_on(&mut self, now: Instant, strand: Strand, packet: Packet) {
        Self::send_on(self, now, strand, packet);
    }
    fn strand_of_queue(&self, queue: u16) -> Strand {
        let Some(others) = self.others.as_ref().filter(|others| others.active) else { return 0 };
        let strand = match usize::from(queue).checked_sub(1) {
            Some(queue) => 1 + queue % others.others.len().max(1),
            None => 0,
        };
        if others.is_open(strand) { strand } else { 0 }
    }
    fn is_flushed(&self) -> bool {
        // The device's end has passed them on, too: nothing that they could wait for is still to
        // come.
        let others = self.others.iter().flat_map(|others| &others.others);
        self.main.is_flushed() && others.filter(|other| other.open).all(|other| other.session.is_flushed())
    }
    #[inline]
    fn send_ahead_on(&mut self, strand: Strand, ahead: Ahead, bytes: Buffer) -> bool {
        match &mut self.others {
            Some(others) if others.is_open(strand) => {
                others.others[strand - 1].session.send_ahead(ahead, bytes)
            }
            _ => self.main.send_ahead(ahead, bytes),
        }
    }
    #[inline]
    fn forget_ahead(&mut self, key: AheadKey) {
        let now = self.now();
        if let Some(others) = &mut self.others
            && others.active
        {
            for strand in 1..=others.others.len() {
                if others.is_open(strand) {
                    others.forget(&mut self.main, now, strand, key);
                }
            }
            return others.forget(&mut self.main, now, 0, key);
        }
        self.main.forget_ahead(key);
    }
    fn lay(&mut self, now: Instant, via: Strand, strand: Strand, key: AheadKey, ranges: &[(u64, u32)]) {
        let Some(others) = self.others.as_mut().filter(|others| others.is_open(strand)) else { return };
        let via = if others.is_open(via) { via } else { 0 };
        let number = u8::try_from(strand).expect("there are few strands");
        for ranges in ranges.chunks(RANGES_MAX) {
            let message = Message::Courses { key, strand: number, ranges: ranges.to_vec() };
            others.tell(&mut self.main, now, via, &message);
        }
    }
}
