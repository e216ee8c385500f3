//! The path through a low-latency network card: stores, DMA, logic, MAC, PHY, cable, cache misses.
//!
//! After "Low Latency Network Interfaces" (Flajslik, Rosenblum; published-figures, niq). A packet
//! of at most 60 bytes is one write-combined 64-byte store into the card, and at the receiver the
//! answer to the poll that waits there. A longer packet is fetched by DMA and written to host
//! memory.

use engine::{Nanos, Rng};

/// The kind of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cable {
    /// Coaxial cable.
    Coax,
    /// Twisted-pair cable.
    TwistedPair,
    /// Optical fibre.
    Optical,
    /// Direct-attach copper (twinax).
    Twinax,
}

impl Cable {
    /// Delay of the cable in ps a metre (published-figures, niq.wire_ns_per_m).
    pub const fn picos_per_metre(self) -> u64 {
        match self {
            Self::Coax => 5_130,
            Self::TwistedPair => 5_650,
            Self::Optical => 5_050,
            Self::Twinax => 5_100,
        }
    }

    /// The time that a signal takes through `metres` of the cable.
    pub const fn delay(self, metres: u64) -> Nanos {
        Nanos::new((self.picos_per_metre() * metres + 500) / 1_000)
    }
}

/// The largest packet in bytes that travels inline: a 64-byte line without 4 bytes of descriptor.
pub const INLINE_MAX: u32 = 60;

/// The times of a network card and its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Time of a write-combined line from the store to the card's logic, the fence included.
    pub pcie_write: Nanos,
    /// Time of a read of host memory by the card.
    pub pcie_read: Nanos,
    /// Times in the card's logic of an inline packet: on the way out, and on the way in.
    pub logic_inline: (Nanos, Nanos),
    /// Times in the card's logic of a packet that goes by DMA, on the way out and in. The way out
    /// takes longer, because a read is made and its answer awaited.
    pub logic_dma: (Nanos, Nanos),
    /// Times in the MAC: on the way out, and on the way in.
    pub mac: (Nanos, Nanos),
    /// Time in the PHY, in either direction.
    pub phy: Nanos,
    /// The kind of the cable.
    pub cable: Cable,
    /// Length of the cable in metres.
    pub metres: u64,
    /// Time from the card's logic into the CPU: the answer to a poll, or a posted write and its
    /// line.
    pub pcie_reply: Nanos,
    /// Time in which the CPU fetches a line that DMA has written.
    pub cache_miss: Nanos,
    /// Number of lines of credit that the card gives the sender; each packet takes one.
    pub credits: u32,
    /// Times of a 4-byte read of the card's registers by the CPU: the mean, and the spread in
    /// either direction. The index is what the CPU does meanwhile: 0 nothing, 1 reading, 2 writing.
    pub register_read: [(Nanos, Nanos); 3],
}

impl Parameters {
    /// The published card: 10 GbE over 3 m of twinax. Every time is a component of the publication;
    /// the published total is not used. The spread of a register read is 1.73 standard deviations,
    /// as for an even distribution.
    pub const NIQ: Self = Self {
        pcie_write: Nanos::new(484),
        pcie_read: Nanos::new(850),
        logic_inline: (Nanos::new(150), Nanos::new(150)),
        logic_dma: (Nanos::new(260), Nanos::new(160)),
        mac: (Nanos::new(202), Nanos::new(438)),
        phy: Nanos::new(135),
        cable: Cable::Twinax,
        metres: 3,
        pcie_reply: Nanos::new(280),
        cache_miss: Nanos::new(50),
        credits: 64,
        register_read: [
            (Nanos::new(768), Nanos::new(3)),
            (Nanos::new(768), Nanos::new(4)),
            (Nanos::new(756), Nanos::new(15)),
        ],
    };

    /// The stages of a packet of `bytes` from one CPU to the other, in order, with their times.
    pub fn one_way(&self, bytes: u32) -> Vec<(&'static str, Nanos)> {
        let inline = bytes <= INLINE_MAX;
        let (logic_out, logic_in) = if inline { self.logic_inline } else { self.logic_dma };
        let mut stages = vec![("PCIe write", self.pcie_write)];
        if !inline {
            stages.push(("PCIe read", self.pcie_read));
        }
        stages.extend([
            ("NIC logic, transmit", logic_out),
            ("MAC, transmit", self.mac.0),
            ("PHY, transmit", self.phy),
            ("cable", self.cable.delay(self.metres)),
            ("PHY, receive", self.phy),
            ("MAC, receive", self.mac.1),
            ("NIC logic, receive", logic_in),
        ]);
        if inline {
            stages.push(("PCIe reply", self.pcie_reply));
        } else {
            stages.push(("PCIe write, receive", self.pcie_reply));
            stages.push(("cache misses", self.cache_miss * 2));
        }
        stages
    }
}

/// A sender's credits. Each packet in the card takes one credit, which returns when the packet is
/// sent.
#[derive(Clone, Copy, Debug)]
pub struct Credits {
    free: u32,
}

impl Credits {
    /// The credits of an idle card.
    pub const fn new(parameters: &Parameters) -> Self {
        Self { free: parameters.credits }
    }

    /// Takes a credit; returns false if none is left, and the sender must wait.
    pub const fn take(&mut self) -> bool {
        let any = self.free > 0;
        if any {
            self.free -= 1;
        }
        any
    }

    /// Returns a credit.
    pub const fn give(&mut self) {
        self.free += 1;
    }
}

/// A random time of a register read with the CPU otherwise idle (`load` 0), reading (1) or writing
/// (2).
pub fn register_read(parameters: &Parameters, load: usize, rng: &mut Rng) -> Nanos {
    let (mean, spread) = parameters.register_read[load];
    Nanos::new(mean.get() - spread.get() + rng.below(2 * spread.get() + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stages_add_up_to_the_published_totals() {
        let total = |bytes| Parameters::NIQ.one_way(bytes).iter().map(|(_, time)| time.get()).sum::<u64>();
        assert_eq!((total(60), total(64)), (1_989, 3_059));
    }

    #[test]
    fn a_card_without_credits_makes_the_sender_wait() {
        let mut credits = Credits::new(&Parameters { credits: 1, ..Parameters::NIQ });
        assert!(credits.take() && !credits.take());
        credits.give();
        assert!(credits.take());
    }
}
