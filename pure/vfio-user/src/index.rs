//! Regions and kinds of interrupts, which a PCI function has by number.

use core::fmt;

/// How many regions a PCI function has in this protocol (`VFIO_PCI_NUM_REGIONS`).
pub const REGIONS: usize = 9;
/// How many kinds of interrupts a PCI function has in this protocol (`VFIO_PCI_NUM_IRQS`).
pub const INTERRUPTS: usize = 5;

/// Number of a region: the memory of a base address register, or one of three other regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionIndex(pub u32);

impl RegionIndex {
    /// Base Address Register 0.
    pub const BAR0: Self = Self(0);
    /// The expansion ROM.
    pub const ROM: Self = Self(6);
    /// The configuration space.
    pub const CONFIG: Self = Self(7);
    /// The region for legacy VGA accesses.
    pub const VGA: Self = Self(8);

    /// Number of the base address register whose memory the region is, if any.
    pub const fn bar(self) -> Option<u32> {
        if self.0 < 6 { Some(self.0) } else { None }
    }
}

impl fmt::Display for RegionIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self(bar @ 0..6) => write!(f, "BAR{bar}"),
            Self::ROM => f.write_str("ROM"),
            Self::CONFIG => f.write_str("configuration space"),
            Self::VGA => f.write_str("VGA"),
            Self(other) => write!(f, "region {other}"),
        }
    }
}

/// A kind of interrupt of a PCI function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InterruptIndex {
    /// The interrupt pin (INTx).
    Intx,
    /// Message-signalled interrupts.
    Msi,
    /// Message-signalled interrupts with a table of their own (MSI-X).
    Msix,
    /// The function has failed and cannot be recovered.
    Error,
    /// The function requests its release from the user.
    Request,
}

impl InterruptIndex {
    /// All kinds of interrupts, by number.
    pub const ALL: [Self; INTERRUPTS] = [Self::Intx, Self::Msi, Self::Msix, Self::Error, Self::Request];

    /// The kind with this number, if there is one.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }
    /// Number of the kind.
    pub const fn number(self) -> u32 {
        match self {
            Self::Intx => 0,
            Self::Msi => 1,
            Self::Msix => 2,
            Self::Error => 3,
            Self::Request => 4,
        }
    }
    /// Index of the kind in an array of [`INTERRUPTS`] entries.
    pub const fn slot(self) -> usize {
        self.number() as usize
    }
}

/// A part of a region that may be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Offset of the area in the region, in bytes.
    pub offset: u64,
    /// Length of the area in bytes.
    pub length: u64,
}
