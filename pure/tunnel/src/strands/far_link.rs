//! A link, as an interposer between the switch and the link uses it.

use engine::{Buffer, Instant};
use pcie::switch::{Ahead, AheadKey, FarLink, Strand};
use pcie::wire::Packet;

use super::LinkEnd;
use super::message::{Message, RANGES_MAX};

impl FarLink for LinkEnd {
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
        let Some(further) = self.further.as_ref().filter(|further| further.active) else {
            return Strand::MAIN;
        };
        let strand = further.of_queue(queue);
        if further.is_open(strand) { strand } else { Strand::MAIN }
    }
    fn is_flushed(&self) -> bool {
        // The device's end has passed them on, too: nothing that they could wait for is still to
        // come.
        let further = self.further.iter().flat_map(|further| &further.strands);
        self.main.is_flushed() && further.filter(|one| one.open).all(|one| one.session.is_flushed())
    }
    #[inline]
    fn send_ahead_on(&mut self, strand: Strand, ahead: Ahead, bytes: Buffer) -> bool {
        match &mut self.further {
            Some(further) if further.is_open(strand) => {
                further.of(&mut self.main, strand).send_ahead(ahead, bytes)
            }
            _ => self.main.send_ahead(ahead, bytes),
        }
    }
    #[inline]
    fn forget_ahead(&mut self, key: AheadKey) {
        let now = self.now();
        if let Some(further) = &mut self.further
            && further.active
        {
            for strand in further.all().skip(1) {
                if further.is_open(strand) {
                    further.forget(&mut self.main, now, strand, key);
                }
            }
            return further.forget(&mut self.main, now, Strand::MAIN, key);
        }
        self.main.forget_ahead(key);
    }
    fn lay(&mut self, now: Instant, via: Strand, strand: Strand, key: AheadKey, ranges: &[(u64, u32)]) {
        let Some(further) = self.further.as_mut().filter(|further| further.is_open(strand)) else { return };
        let via = if further.is_open(via) { via } else { Strand::MAIN };
        for ranges in ranges.chunks(RANGES_MAX) {
            let message = Message::Courses { key, strand, ranges: ranges.to_vec() };
            further.inform(&mut self.main, now, via, &message);
        }
    }
}
