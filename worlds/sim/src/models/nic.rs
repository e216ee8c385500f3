//! The path through a low-latency network card: stores, DMA, logic, MAC, PHY, cable, cache misses.
//!
//! After "Low Latency Network Interfaces" (Flajslik, Rosenblum; published-figures, niq): a packet of at most 60 bytes is
//! one write-combined 64-byte store into the card and, at the receiver, the answer to the poll that waits there; a
//! longer one is fetched by DMA and written to host memory.

use engine::{Nanos, Rng};

/// What a cable is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cable {
    /// Coaxial.
    Coax,
    /// Twisted pair.
    TwistedPair,
    /// Fibre.
    Optical,
    /// Direct attach.
    Twinax,
}

impl Cable {
    /// Picoseconds a metre (published-figures, niq.wire_ns_per_m).
    pub const fn picos_per_metre(self) -> u64 {
        match self {
            Self::Coax => 5_130,
            Self::TwistedPair => 5_650,
            Self::Optical => 5_050,
            Self::Twinax => 5_100,
        }
    }

    /// How long a signal takes through `metres`.
    pub const fn delay(self, metres: u64) -> Nanos {
        Nanos::new((self.picos_per_metre() * metres + 500) / 1_000)
    }
}

/// Bytes of a packet that travels inline: a 64-byte line less 4 bytes of descriptor.
pub const INLINE_MAX: u32 = 60;

/// What a card and its host are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// A write-combined line, from the store to the card's logic, the fence included.
    pub pcie_write: Nanos,
    /// A read of host memory by the card.
    pub pcie_read: Nanos,
    /// The logic on the way out and in, of an inline packet.
    pub logic_inline: (Nanos, Nanos),
    /// The same of one that goes by DMA: more on the way out, where a read has to be made and its answer awaited.
    pub logic_dma: (Nanos, Nanos),
    /// The MAC on the way out and in.
    pub mac: (Nanos, Nanos),
    /// The PHY, each way.
    pub phy: Nanos,
    /// The cable.
    pub cable: Cable,
    /// Its length in metres.
    pub metres: u64,
    /// From the card's logic into the CPU: the answer to a poll, or a posted write and its line.
    pub pcie_reply: Nanos,
    /// A line that DMA has written and the CPU fetches.
    pub cache_miss: Nanos,
    /// Lines of credits that the card gives the sender, a packet each.
    pub credits: u32,
    /// A 4-byte read of the card's registers by the CPU: mean, and spread either way, by what the CPU does meanwhile.
    pub register_read: [(Nanos, Nanos); 3],
}

impl Parameters {
    /// The published card: 10 GbE over 3 m of twinax. Every time is one of the publication's components; the total
    /// is not among them. The spread of a register read is 1.73 standard deviations, as an even distribution has.
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

    /// The stages of a packet of `bytes` from one CPU to the other, in order.
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

/// A sender's credits: one for each packet in the card, which come back as it is sent.
#[derive(Clone, Copy, Debug)]
pub struct Credits {
    free: u32,
}

impl Credits {
    /// All of a card's credits.
    pub const fn new(parameters: &Parameters) -> Self {
        Self { free: parameters.credits }
    }

    /// Takes one, unless none is left: the sender waits.
    pub const fn take(&mut self) -> bool {
        let any = self.free > 0;
        if any {
            self.free -= 1;
        }
        any
    }

    /// One comes back.
    pub const fn give(&mut self) {
        self.free += 1;
    }
}

/// A sample of a register read with the CPU idle, reading (1) or writing (2) otherwise.
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
