//! What a device is.

use super::fields::{Emitter, Fields, ParseError};
use super::memory::{argsz, check_argsz};

/// `VFIO_USER_DEVICE_GET_INFO`'s reply; its request has the same form, with zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Whether it can be reset by a message.
    pub resettable: bool,
    /// Whether it is a PCI function.
    pub pci: bool,
    /// How many regions it has, absent ones among them included.
    pub regions: u32,
    /// How many kinds of interrupts it has, absent ones among them included.
    pub interrupts: u32,
}

impl DeviceInfo {
    /// Bytes of the payload.
    pub const LENGTH: usize = 16;
    const RESET: u32 = 1;
    const PCI: u32 = 1 << 1;

    /// Reads a payload; unknown flags are ignored.
    ///
    /// # Errors
    /// When it is too short, or says that less fits in a reply.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut fields = Fields::new(bytes, Self::LENGTH)?;
        let (argsz, flags, regions, interrupts) = (fields.u32(), fields.u32(), fields.u32(), fields.u32());
        check_argsz(argsz, Self::LENGTH)?;
        Ok(Self { resettable: flags & Self::RESET != 0, pci: flags & Self::PCI != 0, regions, interrupts })
    }

    /// The payload's bytes.
    pub fn emit(&self) -> [u8; Self::LENGTH] {
        let flags = if self.resettable { Self::RESET } else { 0 } | if self.pci { Self::PCI } else { 0 };
        Emitter::new().u32(argsz(Self::LENGTH)).u32(flags).u32(self.regions).u32(self.interrupts).done()
    }
}
