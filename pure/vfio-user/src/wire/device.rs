//! Information about a device.

use super::fields::{Emitter, Fields, ParseError, flags};
use super::memory::{argsz, check_argsz};

/// The reply to `VFIO_USER_DEVICE_GET_INFO`. The request has the same form, with zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Whether a message can reset the device.
    pub resettable: bool,
    /// Whether the device is a PCI function.
    pub pci: bool,
    /// How many regions the device has, absent ones included.
    pub regions: u32,
    /// How many kinds of interrupts the device has, absent ones included.
    pub interrupts: u32,
}

impl DeviceInfo {
    /// Length of the payload in bytes.
    pub const LENGTH: usize = 16;
    const RESET: u32 = 1;
    const PCI: u32 = 1 << 1;

    /// Decodes a payload. Unknown flags are ignored.
    ///
    /// # Errors
    /// When `bytes` or its field argsz is too short for this structure.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut fields = Fields::new(bytes, Self::LENGTH)?;
        let (argsz, flags, regions, interrupts) = (fields.u32(), fields.u32(), fields.u32(), fields.u32());
        check_argsz(argsz, Self::LENGTH)?;
        Ok(Self { resettable: flags & Self::RESET != 0, pci: flags & Self::PCI != 0, regions, interrupts })
    }

    /// Encodes the payload.
    pub fn emit(&self) -> [u8; Self::LENGTH] {
        let flags = flags([(self.resettable, Self::RESET), (self.pci, Self::PCI)]);
        Emitter::new().u32(argsz(Self::LENGTH)).u32(flags).u32(self.regions).u32(self.interrupts).done()
    }
}
