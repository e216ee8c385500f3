//! A PCIe link: serialisation, the overhead of its data-link layer, credits, propagation.
//!
//! After pcie-bench and its model (Neugebauer et al., SIGCOMM 2018) and the PCI Express Base
//! Specification. A link of `lanes` lanes carries `lanes` times the lane's rate without the line
//! code. A TLP takes its own bytes and 8 more: framing, sequence number and LCRC. In the other
//! direction, the receiver answers with DLLPs of 8 bytes: for every [`Link::acknowledge_limit`]
//! bytes received, an Ack and an UpdateFC. With both directions full, the rate is the published
//! `raw * (1 - 8 / AckLimit - 8 / FcLimit - 4 / 1538)`; [`Link::usable_bits`] computes it.

use std::collections::VecDeque;

use engine::{Instant, Nanos};

/// Picoseconds in a nanosecond. Times are in ps because a byte takes half a ns on Gen2 x4.
const PICOS: u64 = 1_000;
/// Number of bytes around a TLP on the link: STP 1, sequence number 2, LCRC 4, END 1 (PCIe Base,
/// 8b/10b framing).
pub const FRAMING: u32 = 8;
/// Length in bytes of a DLLP with its framing.
pub const DLLP: u32 = 8;
/// An SKP ordered set of 4 symbols is inserted every 1538 symbols (PCIe Base 4.2.7; pcie-bench).
const SKIP: (u64, u64) = (4, 1538);
/// Number of bytes in a data credit.
const CREDIT: u32 = 16;

/// Length in bytes of a memory write's header and framing on the link, with a 64-bit address.
pub const MEMORY_WRITE: u32 = 16 + FRAMING;
/// Length in bytes of a memory read on the link, with a 64-bit address.
pub const MEMORY_READ: u32 = 16 + FRAMING;
/// Length in bytes of a completion's header and framing on the link.
pub const COMPLETION: u32 = 12 + FRAMING;

/// The flow-control class of a TLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Memory writes and messages.
    Posted,
    /// Reads and configuration requests.
    NonPosted,
    /// Completions with and without data.
    Completion,
}

/// The room that a receiver has for TLPs of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credits {
    /// Number of TLPs.
    pub headers: u32,
    /// Units of 16 bytes of payload.
    pub data: u32,
}

impl Credits {
    /// More room than any sender needs.
    pub const INFINITE: Self = Self { headers: u32::MAX, data: u32::MAX };
}

/// The parameters of a PCIe link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The PCIe generation, 1 to 5.
    pub generation: u8,
    /// Number of lanes: 1, 2, 4, 8 or 16.
    pub lanes: u8,
    /// Max_Payload_Size in bytes, which decides how often the receiver acknowledges.
    pub payload_size: u32,
    /// Time from one end's transaction layer to the other's without serialisation: both physical
    /// layers and the wire.
    pub propagation: Nanos,
    /// Time from the end of a TLP until its Ack has reached the sender, propagation included.
    pub acknowledge: Nanos,
    /// The room that each receiver has for posted requests, non-posted requests and completions.
    pub credits: [Credits; 3],
    /// How long a received TLP occupies the receiver's buffer.
    pub drain: Nanos,
}

impl Link {
    /// The link of the published set-ups: Gen2 x4 with a payload of 256 B.
    ///
    /// A doorbell's acknowledgement was measured 212 ns after the doorbell's start
    /// (published-figures, nvme-tsn: `cq_head_doorbell_acked` - `cq_head_doorbell`); the doorbell
    /// itself takes 12 ns of them. The 50 ns of the physical layers in each direction are an
    /// estimate on which no published figure depends: the 280 ns of a configuration read are twice
    /// this time and the device's answer. The credits are those of a common root port, and far from
    /// limiting here.
    pub const GEN2_X4: Self = Self {
        generation: 2,
        lanes: 4,
        payload_size: 256,
        propagation: Nanos::new(50),
        acknowledge: Nanos::new(200),
        credits: [
            Credits { headers: 32, data: 256 },
            Credits { headers: 32, data: 32 },
            Credits { headers: 64, data: 512 },
        ],
        drain: Nanos::new(100),
    };

    /// Bits a second that the lanes carry without the line code (8b/10b up to Gen2, 128b/130b from
    /// Gen3 on).
    pub const fn raw_bits(&self) -> u64 {
        let lane = match self.generation {
            0 | 1 => 2_000_000_000,
            2 => 4_000_000_000,
            3 => 8_000_000_000 / 130 * 128,
            4 => 16_000_000_000 / 130 * 128,
            _ => 32_000_000_000 / 130 * 128,
        };
        lane * self.lanes as u64
    }

    /// AckLimit and FcLimit: the number of bytes received for each Ack and for each UpdateFC
    /// (pcie-bench, Gen2 x4).
    pub const fn acknowledge_limit(&self) -> u64 {
        match self.payload_size {
            0..=128 => 124,
            129..=256 => 169,
            _ => 205,
        }
    }

    /// Bits a second that are left for TLPs when both directions are full.
    pub const fn usable_bits(&self) -> u64 {
        let raw = self.raw_bits();
        raw - raw * 2 * DLLP as u64 / self.acknowledge_limit() - raw * SKIP.0 / SKIP.1
    }

    /// The time that `bytes` take on the link.
    pub const fn serialise(&self, bytes: u32) -> Nanos {
        Nanos::new(self.picos(bytes as u64).div_ceil(PICOS))
    }

    const fn picos(&self, bytes: u64) -> u64 {
        // bits * 10^12 / rate, in ps; rates are whole numbers of MHz.
        bytes * 8 * 1_000_000 / (self.raw_bits() / 1_000_000)
    }
}

/// The times at which a TLP passes a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// When the first symbol leaves.
    pub start: Instant,
    /// When the last symbol has arrived.
    pub arrival: Instant,
}

/// The room of one class that is in use, and when it becomes free.
#[derive(Debug, Default)]
struct Window {
    headers: u32,
    data: u32,
    /// Times in ps at which room becomes free, each with the numbers of headers and data units.
    returns: VecDeque<(u64, u32, u32)>,
}

/// The sending side of one end of a [`Link`].
#[derive(Debug)]
pub struct Transmitter {
    link: Link,
    /// Until when the line is busy, in ps.
    busy_until: u64,
    /// DLLP bytes that are owed for received TLPs, multiplied by the limit.
    owed: u64,
    windows: [Window; 3],
}

impl Transmitter {
    /// The sending side of an idle link, with all credits.
    pub fn new(link: Link) -> Self {
        Self { link, busy_until: 0, owed: 0, windows: Default::default() }
    }

    /// The link's parameters.
    pub const fn link(&self) -> &Link {
        &self.link
    }

    /// Notes that this end has received a TLP of `bytes` on the link, and owes DLLPs for it.
    pub const fn on_received(&mut self, bytes: u32) {
        self.owed += bytes as u64 * 2 * DLLP as u64;
    }

    /// Sends a TLP of `bytes` on the link, of which `payload` are payload, as soon as credits and
    /// the line allow.
    pub fn send(&mut self, now: Instant, class: Class, bytes: u32, payload: u32) -> Passage {
        let units = payload.div_ceil(CREDIT);
        let room = self.room_at(class, units);
        let begin = (now.as_nanos() * PICOS).max(self.busy_until).max(room);
        // DLLPs go first. The line's gaps for SKP are spread over all bytes.
        let dllps = self.owed / (self.link.acknowledge_limit() * u64::from(DLLP));
        self.owed -= dllps * self.link.acknowledge_limit() * u64::from(DLLP);
        let start = if self.busy_until == begin {
            begin + self.link.picos(dllps * u64::from(DLLP))
        } else {
            // The idle line has sent the DLLPs already.
            begin
        };
        let length = self.link.picos(u64::from(bytes));
        self.busy_until = start + length + length * SKIP.0 / SKIP.1;
        let arrival = start + length + self.link.propagation.get() * PICOS;
        let back = arrival + (self.link.drain + self.link.propagation).get() * PICOS;
        let window = &mut self.windows[class as usize];
        window.headers += 1;
        window.data += units;
        window.returns.push_back((back, 1, units));
        Passage {
            start: Instant::from_nanos(start / PICOS),
            arrival: Instant::from_nanos(arrival.div_ceil(PICOS)),
        }
    }

    /// When there is room for a TLP of `class` with `units` of data, in ps.
    fn room_at(&mut self, class: Class, units: u32) -> u64 {
        let limit = self.link.credits[class as usize];
        let window = &mut self.windows[class as usize];
        let mut at = 0;
        while let Some(&(back, headers, data)) = window.returns.front() {
            let lacks = window.headers >= limit.headers
                || window.data.saturating_add(units) > limit.data && window.data > 0;
            if !lacks && back > self.busy_until {
                break;
            }
            if lacks {
                at = back;
            }
            window.headers -= headers;
            window.data -= data;
            window.returns.pop_front();
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_derivations_of_gen2_x4_come_out() {
        let link = |payload_size| Link { payload_size, ..Link::GEN2_X4 };
        assert_eq!(link(256).raw_bits(), 16_000_000_000);
        for (payload, hundredths) in [(128, 1_389), (256, 1_444), (512, 1_471)] {
            assert_eq!((link(payload).usable_bits() + 5_000_000) / 10_000_000, hundredths);
        }
        assert_eq!(link(256).serialise(MEMORY_READ), Nanos::new(12));
        assert_eq!(link(256).serialise(MEMORY_WRITE + 256), Nanos::new(140));
        assert_eq!(link(256).serialise(COMPLETION + 128), Nanos::new(74));
    }

    /// With both directions full, the rate is that of the formula, although the model does not use
    /// the formula.
    #[test]
    fn a_link_full_in_both_directions_has_the_rate_of_the_formula() {
        let link = Link { credits: [Credits::INFINITE; 3], ..Link::GEN2_X4 };
        let mut end = Transmitter::new(link);
        let (bytes, count) = (MEMORY_WRITE + 256, 10_000);
        let mut last = Instant::ZERO;
        for _ in 0..count {
            end.on_received(bytes);
            last = end.send(Instant::ZERO, Class::Posted, bytes, 256).arrival;
        }
        let rate = u64::from(bytes) * count * 8_000 / (last - Instant::ZERO).get();
        // The formula subtracts DLLPs from the whole line, but only TLPs cause DLLPs. The
        // difference is below 1 %.
        let formula = link.usable_bits() / 1_000_000;
        assert!(rate.abs_diff(formula) * 100 < formula, "{rate} Mbit/s, the formula yields {formula}");
    }

    #[test]
    fn a_line_that_one_side_fills_carries_its_raw_rate() {
        let mut end = Transmitter::new(Link { credits: [Credits::INFINITE; 3], ..Link::GEN2_X4 });
        let first = end.send(Instant::ZERO, Class::Completion, 148, 128);
        let second = end.send(Instant::ZERO, Class::Completion, 148, 128);
        assert_eq!((first.start.as_nanos(), first.arrival.as_nanos()), (0, 124));
        assert_eq!(second.start.as_nanos(), 74);
    }

    #[test]
    fn without_credits_a_sender_waits_for_them() {
        let mut credits = [Credits::INFINITE; 3];
        credits[0] = Credits { headers: 2, data: 16 };
        let mut end = Transmitter::new(Link { credits, ..Link::GEN2_X4 });
        let passages: Vec<_> = (0..3).map(|_| end.send(Instant::ZERO, Class::Posted, 152, 128)).collect();
        // The third TLP waits until the first one has arrived and was drained, and its UpdateFC is
        // back.
        assert_eq!(passages[2].start, passages[0].arrival + Nanos::new(150));
        let later = end.send(Instant::from_nanos(10_000), Class::Posted, 152, 128);
        assert_eq!(later.start.as_nanos(), 10_000);
    }
}
