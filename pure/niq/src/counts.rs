//! The counters of a card.

use core::ops::AddAssign;

/// Counters since the last reset, as the registers from [`crate::registers::COUNTS`] show them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that went to the wire.
    pub sent: u64,
    /// Bytes of these packets.
    pub sent_bytes: u64,
    /// Packets that went to the host.
    pub received: u64,
    /// Bytes of these packets.
    pub received_bytes: u64,
    /// Packets of the host that were dropped because the link was down.
    pub link_down: u64,
    /// Packets of the wire that no filter took.
    pub unwanted: u64,
    /// Packets of the wire that were too short or too long for a packet.
    pub misshapen: u64,
    /// Packets of the wire for which the host had no line or no buffer free.
    pub no_room: u64,
    /// Queues that were stopped by a fault.
    pub faults: u64,
}

impl Counts {
    /// How many counters there are.
    pub(crate) const LENGTH: usize = 9;

    /// The counters in the order of their registers.
    pub(crate) const fn words(&self) -> [u64; Self::LENGTH] {
        [
            self.sent,
            self.sent_bytes,
            self.received,
            self.received_bytes,
            self.link_down,
            self.unwanted,
            self.misshapen,
            self.no_room,
            self.faults,
        ]
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        let Self {
            sent,
            sent_bytes,
            received,
            received_bytes,
            link_down,
            unwanted,
            misshapen,
            no_room,
            faults,
        } = self;
        let words =
            [sent, sent_bytes, received, received_bytes, link_down, unwanted, misshapen, no_room, faults];
        words.into_iter().zip(other.words()).for_each(|(count, more)| *count = count.wrapping_add(more));
    }
}
