//! Latency between two MACs: of the MACs, the PHYs and the cable.

use engine::Nanos;

use crate::Rate;

/// How long a bit stays in each part of a port, in addition to the time that its rate takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortLatency {
    /// From the MAC's user side to its PHY.
    pub mac_transmit: Nanos,
    /// From the sending MAC through the PHY to the cable.
    pub phy_transmit: Nanos,
    /// From the cable through the PHY to the receiving MAC.
    pub phy_receive: Nanos,
    /// From the receiving MAC's PHY side to its user side.
    pub mac_receive: Nanos,
}

impl PortLatency {
    /// No latency, as in textbooks and simulators.
    pub const NONE: Self = Self::of(0, 0, 0, 0);
    /// 1 Gbit/s in an FPGA, 1000BASE-X. To the cable: MAC 48, PCS 64 and transceiver 84 ns. From
    /// the cable: 8, 56 and 113 ns (AMD PG138, AXI 1G/2.5G Ethernet Subsystem 8.0, "Latency
    /// Values - Theoretical").
    pub const FPGA_1G: Self = Self::of(48, 64 + 84, 56 + 113, 8);
    /// 10 Gbit/s in an FPGA: MAC and PCS 67.2 and 121.62 ns, without the transceiver (AMD PG210,
    /// 10G/25G High Speed Ethernet Subsystem 5.1, "Latency").
    pub const FPGA_10G: Self = Self::of(67, 0, 0, 122);
    /// 25 Gbit/s in an FPGA: MAC and PCS 29.58 and 50.83 ns, without the transceiver (AMD PG210,
    /// 10G/25G High Speed Ethernet Subsystem 5.1, "Latency").
    pub const FPGA_25G: Self = Self::of(30, 0, 0, 51);
    /// 50 Gbit/s in an FPGA: MAC and PCS 25.6 and 58.8 ns, without the transceiver (AMD PG211,
    /// 40G/50G High Speed Ethernet Subsystem 3.2, "Latency").
    pub const FPGA_50G: Self = Self::of(26, 0, 0, 59);
    /// 100 Gbit/s in an FPGA: assumed equal to 50 Gbit/s, whose sum of 85 ns is close to the 80 ns
    /// of 25 Gbit/s. A hard block may take half or twice as long: 40 to 170 ns.
    pub const FPGA_100G: Self = Self::FPGA_50G;
    /// 10 Gbit/s of a low-latency NIC: MAC 202 and 438 ns, PHY 135 ns each way (Flajslik and
    /// Rosenblum, "Low Latency Network Interfaces").
    pub const NIC_10G: Self = Self::of(202, 135, 135, 438);

    const fn of(mac_transmit: u64, phy_transmit: u64, phy_receive: u64, mac_receive: u64) -> Self {
        Self {
            mac_transmit: Nanos::new(mac_transmit),
            phy_transmit: Nanos::new(phy_transmit),
            phy_receive: Nanos::new(phy_receive),
            mac_receive: Nanos::new(mac_receive),
        }
    }

    /// The latency of an FPGA's port of this rate: that of the next slower known rate, or of 1
    /// Gbit/s for rates below.
    pub fn of_rate(rate: Rate) -> Self {
        match rate.bits() {
            0..10_000_000_000 => Self::FPGA_1G,
            10_000_000_000..25_000_000_000 => Self::FPGA_10G,
            25_000_000_000..50_000_000_000 => Self::FPGA_25G,
            50_000_000_000..100_000_000_000 => Self::FPGA_50G,
            _ => Self::FPGA_100G,
        }
    }

    /// Total latency, from one MAC's user side to the other's.
    pub fn total(&self) -> Nanos {
        self.mac_transmit + self.phy_transmit + self.phy_receive + self.mac_receive
    }
}

/// Material of a cable, which decides its latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Medium {
    /// Coaxial cable: 5.13 ns/m (Flajslik and Rosenblum).
    Coax,
    /// Twisted pair: 5.65 ns/m (Flajslik and Rosenblum).
    #[default]
    TwistedPair,
    /// Fibre: 5.05 ns/m (Flajslik and Rosenblum).
    Optical,
    /// Twinaxial cable: 5.10 ns/m (Flajslik and Rosenblum).
    Twinax,
    /// Two thirds of the speed of light: 5 ns/m, as in the simulator INET.
    TwoThirds,
}

impl Medium {
    /// Latency in picoseconds per metre.
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

/// A cable between two ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cable {
    /// Material of the cable.
    pub medium: Medium,
    /// Length of the cable in millimetres.
    pub millimetres: u64,
}

impl Cable {
    /// A cable of `metres` metres.
    pub const fn metres(medium: Medium, metres: u64) -> Self {
        Self { medium, millimetres: metres.saturating_mul(1_000) }
    }

    /// Latency of a bit, rounded to the nearest nanosecond.
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
