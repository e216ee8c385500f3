//! What lies between two MACs: their own latency, the PHYs, the cable.

use engine::Nanos;

use crate::Rate;

/// How long a bit stays in each part of a port, besides what its rate takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortLatency {
    /// From the MAC's user side to its PHY.
    pub mac_transmit: Nanos,
    /// From there to the cable.
    pub phy_transmit: Nanos,
    /// From the cable to the other MAC.
    pub phy_receive: Nanos,
    /// From there to that MAC's user side.
    pub mac_receive: Nanos,
}

impl PortLatency {
    /// No latency at all, as textbooks and simulators have it.
    pub const NONE: Self = Self::of(0, 0, 0, 0);
    /// 1 Gbit/s in an FPGA, 1000BASE-X: MAC 48, PCS 64 and transceiver 84 ns to the cable; 8, 56 and 113 from it (AMD
    /// PG138, AXI 1G/2.5G Ethernet Subsystem 8.0, "Latency Values - Theoretical").
    pub const FPGA_1G: Self = Self::of(48, 64 + 84, 56 + 113, 8);
    /// 10 Gbit/s in an FPGA, MAC and PCS 67.2 and 121.62 ns without the transceiver (AMD PG210, 10G/25G High Speed
    /// Ethernet Subsystem 5.1, "Latency").
    pub const FPGA_10G: Self = Self::of(67, 0, 0, 122);
    /// 25 Gbit/s likewise, 29.58 and 50.83 ns (ibid.).
    pub const FPGA_25G: Self = Self::of(30, 0, 0, 51);
    /// 50 Gbit/s likewise, 25.6 and 58.8 ns (AMD PG211, 40G/50G High Speed Ethernet Subsystem 3.2, "Latency").
    pub const FPGA_50G: Self = Self::of(26, 0, 0, 59);
    /// 100 Gbit/s: taken to be that of 50 Gbit/s. To check: no published figure was found.
    pub const FPGA_100G: Self = Self::FPGA_50G;
    /// 10 Gbit/s of a low-latency NIC: MAC 202 and 438, PHY 135 each way (Flajslik and Rosenblum, "Low Latency
    /// Network Interfaces").
    pub const NIC_10G: Self = Self::of(202, 135, 135, 438);

    const fn of(mac_transmit: u64, phy_transmit: u64, phy_receive: u64, mac_receive: u64) -> Self {
        Self {
            mac_transmit: Nanos::new(mac_transmit),
            phy_transmit: Nanos::new(phy_transmit),
            phy_receive: Nanos::new(phy_receive),
            mac_receive: Nanos::new(mac_receive),
        }
    }

    /// That of an FPGA's port of this rate: the next slower one that is known.
    pub fn of_rate(rate: Rate) -> Self {
        match rate.bits() {
            0..10_000_000_000 => Self::FPGA_1G,
            10_000_000_000..25_000_000_000 => Self::FPGA_10G,
            25_000_000_000..50_000_000_000 => Self::FPGA_25G,
            50_000_000_000..100_000_000_000 => Self::FPGA_50G,
            _ => Self::FPGA_100G,
        }
    }

    /// All of it: from one MAC's user side to the other's.
    pub fn total(&self) -> Nanos {
        self.mac_transmit + self.phy_transmit + self.phy_receive + self.mac_receive
    }
}

/// What a cable is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Medium {
    /// Coaxial cable: 5.13 ns/m (Flajslik and Rosenblum, as all but the last).
    Coax,
    /// Twisted pair: 5.65 ns/m.
    #[default]
    TwistedPair,
    /// Fibre: 5.05 ns/m.
    Optical,
    /// Twinaxial cable: 5.10 ns/m.
    Twinax,
    /// Two thirds of the speed of light: 5 ns/m, as the simulator INET has it.
    TwoThirds,
}

impl Medium {
    /// Picoseconds a metre.
    pub const fn picoseconds_a_metre(self) -> u64 {
        match self {
            Self::Coax => 5_130,
            Self::TwistedPair => 5_650,
            Self::Optical => 5_050,
            Self::Twinax => 5_100,
            Self::TwoThirds => 5_000,
        }
    }
}

/// A cable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cable {
    /// What it is made of.
    pub medium: Medium,
    /// How long it is, millimetres.
    pub millimetres: u64,
}

impl Cable {
    /// One of `metres`.
    pub const fn metres(medium: Medium, metres: u64) -> Self {
        Self { medium, millimetres: metres.saturating_mul(1_000) }
    }

    /// How long a bit takes, rounded to the next nanosecond.
    pub const fn latency(&self) -> Nanos {
        let femtoseconds = self.millimetres.saturating_mul(self.medium.picoseconds_a_metre());
        Nanos::new(femtoseconds.saturating_add(500_000) / 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_metres_of_twinax_take_15_ns() {
        assert_eq!(Cable::metres(Medium::Twinax, 3).latency(), Nanos::new(15));
        assert_eq!(Cable::metres(Medium::TwoThirds, 10).latency(), Nanos::new(50));
    }

    #[test]
    fn the_published_sums_come_out() {
        assert_eq!(PortLatency::FPGA_1G.mac_transmit + PortLatency::FPGA_1G.phy_transmit, Nanos::new(196));
        assert_eq!(PortLatency::FPGA_1G.mac_receive + PortLatency::FPGA_1G.phy_receive, Nanos::new(177));
        assert_eq!(PortLatency::of_rate(Rate::from_gigabits(40)), PortLatency::FPGA_25G);
    }
}
