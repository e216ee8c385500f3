//! The times of a low-latency network card and its host: PCIe transactions, caches, MAC,
//! PHY, cable.
//!
//! After "Low Latency Network Interfaces" (Flajslik, Rosenblum; published-figures, niq). A PCIe
//! packet takes a fixed time for each way, and passes in which it is stored as a whole. The state
//! of the host's caches changes the time of a read. The times are those of single transactions;
//! [`sim::nic`](crate::nic) combines them to a packet's path from the requests of the engines of
//! card and host.

mod cable;
mod caches;

pub use cable::Cable;
pub use caches::{CacheLine, Caches, read_ticks};

use engine::Nanos;

/// Bytes of a PCIe packet around its payload: a write or read request with a 64-bit address, and a
/// completion (worlds/sim/README.md).
const REQUEST: u64 = 24;
const COMPLETION: u64 = 20;
/// Payload of a PCIe packet in bytes at most; longer transfers are several packets.
const PAYLOAD_MAX: u64 = 128;
/// Ethernet: shortest frame without its check sequence, the check sequence, and the preamble,
/// in bytes.
const FRAME_MIN: u64 = 60;
const CHECK: u64 = 4;
const PREAMBLE: u64 = 8;
/// Femtoseconds of a nanosecond.
const FEMTOS: u64 = 1_000_000;

/// The speed of a PCIe link of eight lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// 2.5 GT/s, 8b/10b: that of the published card.
    One,
    /// 16 GT/s, 128b/130b.
    Four,
    /// 32 GT/s, 128b/130b.
    Five,
}

impl Generation {
    /// Time of a byte on eight lanes in femtoseconds.
    const fn femtos_per_byte(self) -> u64 {
        match self {
            Self::One => 500_000,
            Self::Four => 63_477,
            Self::Five => 31_738,
        }
    }
}

/// The times of a card and its host, in nanoseconds. Each names its row of the publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The PCIe link. The published card has the first generation with eight lanes (NetFPGA-10G).
    pub generation: Generation,
    /// How often a PCIe packet is stored as a whole on its way: in the root complex, on the link,
    /// and in the card's core. From the read of 64 bytes (850) compared with that of 4 bytes.
    pub passes: u64,
    /// A write-combined line from the store to the card, fence included, without its passes. From
    /// `pcie_write` (484).
    pub store: u64,
    /// A packet from the card into the processor or memory, without its passes. From `pcie_reply`
    /// (280).
    pub inbound: u64,
    /// A read of an idle line of host memory by the card, without its passes. From `cpu_idle`
    /// (768).
    pub read: u64,
    /// The card's logic for a packet in a line, in either direction (150).
    pub logic_inline: u64,
    /// The card's logic for a packet by DMA, on the way out (260) and in (160).
    pub logic_dma: (u64, u64),
    /// The MAC on the way out (202).
    pub mac_out: u64,
    /// The MAC's time for arriving frames in femtoseconds: 438 ns without the duration of the
    /// frame.
    pub mac_in_femtos: u64,
    /// The PHY, in either direction (135).
    pub phy: u64,
    /// A line that the processor fetches after DMA has written it: half of `cache_miss_twice`
    /// (100).
    pub cache_miss: u64,
    /// A further line of the same buffer, which the processor has prefetched. Not published: 64
    /// bytes at 10 GB/s.
    pub next_line: u64,
    /// The rate of the Ethernet in Mbit/s.
    pub mbit_s: u64,
    /// The kind of the cable.
    pub cable: Cable,
    /// Length of the cable in metres.
    pub metres: u64,
    /// The host's caches.
    pub caches: Caches,
}

impl Parameters {
    /// The published card: 10 GbE over 3 m of twinax.
    pub const NIQ: Self = Self {
        generation: Generation::One,
        passes: 3,
        store: 352,
        inbound: 154,
        read: 696,
        logic_inline: 150,
        logic_dma: (260, 160),
        mac_out: 202,
        mac_in_femtos: 380_400_000,
        phy: 135,
        cache_miss: 50,
        next_line: 6,
        mbit_s: 10_000,
        cable: Cable::Twinax,
        metres: 3,
        caches: Caches::NIQ,
    };

    /// The passes of `payload` bytes in packets with `around` bytes each, in femtoseconds. The
    /// first packet is stored in each place; those that follow it are right behind.
    fn passing(&self, around: u64, payload: u64) -> u64 {
        let first = around + payload.min(PAYLOAD_MAX);
        let behind = payload.saturating_sub(PAYLOAD_MAX);
        let behind = behind + behind.div_ceil(PAYLOAD_MAX) * around;
        (self.passes * first + behind) * self.generation.femtos_per_byte()
    }

    /// `lines` lines of 64 bytes that the processor stores one after the other: from the first
    /// store until the card has the last.
    pub fn store_lines(&self, lines: u64) -> Nanos {
        let behind = lines.saturating_sub(1) * (REQUEST + 64) * self.generation.femtos_per_byte();
        nanos(self.store * FEMTOS + self.passing(REQUEST, 64) + behind)
    }

    /// A read of `bytes` of host memory by the card, in a line whose state is `line`: the mean.
    pub fn dma_read(&self, bytes: u64, line: CacheLine) -> Nanos {
        let fixed = (self.read * FEMTOS).saturating_add_signed(line.mean_femtos(&self.caches));
        nanos(fixed + self.passing(REQUEST, 0) + self.passing(COMPLETION, bytes))
    }

    /// A write of `bytes` of host memory by the card.
    pub fn dma_write(&self, bytes: u64) -> Nanos {
        nanos(self.inbound * FEMTOS + self.passing(REQUEST, bytes))
    }

    /// The answer of 64 bytes to the processor's read that waits at the card. Directly behind a
    /// write, it takes only its time on the link.
    pub fn reply(&self, is_behind_write: bool) -> Nanos {
        let link = (COMPLETION + 64) * self.generation.femtos_per_byte();
        nanos(if is_behind_write { link } else { self.inbound * FEMTOS + self.passing(COMPLETION, 64) })
    }

    /// The way of a frame of `bytes`, without its check sequence, from one card's logic to
    /// the other's.
    pub fn wire(&self, bytes: u64) -> [(&'static str, Nanos); 5] {
        let frame = bytes.max(FRAME_MIN) + CHECK + PREAMBLE;
        let comes_in = frame * 8 * 1_000 * FEMTOS / self.mbit_s;
        [
            ("MAC, transmit", Nanos::new(self.mac_out)),
            ("PHY, transmit", Nanos::new(self.phy)),
            ("cable", self.cable.delay(self.metres)),
            ("PHY, receive", Nanos::new(self.phy)),
            ("MAC, receive", nanos(self.mac_in_femtos + comes_in)),
        ]
    }

    /// The processor's read of `bytes` that DMA has written.
    pub fn fetch(&self, bytes: u64) -> Nanos {
        Nanos::new(self.cache_miss + bytes.div_ceil(64).saturating_sub(1) * self.next_line)
    }
}

/// Whole nanoseconds, rounded.
const fn nanos(femtos: u64) -> Nanos {
    Nanos::new((femtos + FEMTOS / 2) / FEMTOS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_transactions_take_as_long_as_published() {
        let niq = Parameters::NIQ;
        assert_eq!(niq.store_lines(1).get(), 484);
        assert_eq!(niq.reply(false).get(), 280);
        assert_eq!(niq.dma_read(4, CacheLine::Idle).get(), 768);
        assert_eq!(niq.dma_read(4, CacheLine::Written).get(), 756);
        // Not fitted: 850 and 280 are published.
        assert_eq!(niq.dma_read(64, CacheLine::Written).get(), 846);
        assert_eq!(niq.dma_write(64).get(), 286);
        let wire: u64 = niq.wire(60).iter().map(|(_, time)| time.get()).sum();
        assert_eq!(wire, 202 + 135 + 15 + 135 + 438);
    }

    #[test]
    fn more_bytes_and_slower_links_never_take_less() {
        for bytes in 1..600 {
            for (slow, fast) in [(Generation::One, Generation::Four), (Generation::Four, Generation::Five)] {
                let [slow, fast] =
                    [slow, fast].map(|generation| Parameters { generation, ..Parameters::NIQ });
                assert!(slow.dma_read(bytes, CacheLine::Idle) > fast.dma_read(bytes, CacheLine::Idle));
                assert!(slow.dma_write(bytes) <= slow.dma_write(bytes + 1));
                assert!(slow.wire(bytes)[4].1 <= slow.wire(bytes + 1)[4].1);
            }
        }
    }
}
