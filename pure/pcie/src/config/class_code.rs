//! Class codes: the kind of device of a function.

use core::fmt;

use serde::{Deserialize, Serialize};

/// Class Code of a function: base class, subclass and programming interface, 24 bits. Written as
/// six hexadecimal digits. PCI Code and ID Assignment Specification, section 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClassCode(pub u32);

impl ClassCode {
    /// Mass storage, non-volatile memory, NVM Express I/O controller.
    pub const NVME: Self = Self(0x01_0802);
    /// Network controller, other.
    pub const NETWORK: Self = Self(0x02_8000);
    /// Bridge, PCI-to-PCI bridge, normal decode: every port of a root complex or a switch.
    pub const PCI_BRIDGE: Self = Self(0x06_0400);
    /// Data acquisition and signal processing, other.
    pub const DATA_ACQUISITION: Self = Self(0x11_8000);

    /// The class code in the configuration space's double word at 8, whose low byte is the
    /// Revision ID.
    #[must_use]
    pub const fn from_dword(dword: u32) -> Self {
        Self(dword >> 8)
    }

    /// Base class, bits 23 to 16.
    #[must_use]
    pub const fn base(self) -> u8 {
        self.0.to_be_bytes()[1]
    }

    /// Base class and subclass, bits 23 to 8.
    #[must_use]
    pub const fn subclass(self) -> u16 {
        let [_, base, subclass, _] = self.0.to_be_bytes();
        u16::from_be_bytes([base, subclass])
    }

    /// Programming interface, bits 7 to 0.
    #[must_use]
    pub const fn interface(self) -> u8 {
        self.0.to_be_bytes()[3]
    }
}

impl fmt::Display for ClassCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::ClassCode;
    use std::string::ToString;

    #[test]
    fn a_class_code_has_three_parts() {
        // As `lspci -x` shows an NVMe controller of revision 2: 02 02 08 01.
        let code = ClassCode::from_dword(u32::from_le_bytes([0x02, 0x02, 0x08, 0x01]));
        assert_eq!((code, code.to_string().as_str()), (ClassCode::NVME, "010802"));
        assert_eq!((code.base(), code.subclass(), code.interface()), (0x01, 0x0108, 0x02));
        assert_eq!(ClassCode(0x00_0001).to_string(), "000001");
    }
}
