//! Which registers of a configuration space cannot change by themselves.
//!
//! The list is fixed, independent of the registers that the device's end shows. Identity, class,
//! BARs and control registers stay as software has left them. Status registers, and registers that
//! are not known here, belong to the device alone.

use alloc::vec::Vec;

use pcie::config::{EXTENDED_START, aer, capability, express, header, msi, msix, power, serial_number};

use crate::frame::Register;

/// How many capabilities of a list are examined: as many as have room.
const CAPABILITIES_MAX: usize = 48;
const EXTENDED_CAPABILITIES_MAX: usize = 96;
/// Where capabilities begin.
const HEADER_END: u16 = 0x40;

/// Bytes of a double word, as a mask of four bits.
const ALL: u8 = 0b1111;
const LOW_HALF: u8 = 0b0011;
const HIGH_HALF: u8 = 0b1100;
const BUT_SELF_TEST: u8 = 0b0111;
/// Built-in Self Test: BIST Capable.
const SELF_TEST_CAPABLE: u32 = 1 << 31;
/// Length of Alternative Routing-ID Interpretation, and of Latency Tolerance Reporting.
const ROUTING_OR_LATENCY_BYTES: u16 = 8;
/// Express capabilities of version 1 end here, for endpoints.
const EXPRESS_1_BYTES: u16 = 0x14;
/// Where MSI has its mask and pending bits, without and with 64-bit addresses.
const MSI_MASK: [u16; 2] = [0x0c, 0x10];

/// The steady registers of a function's configuration space.
#[derive(Debug, Default)]
pub(super) struct Steady {
    /// For each double word, a mask of the bytes that only software and resets change.
    pub(super) bytes: Vec<u8>,
    /// For each double word, a mask of the bytes that software may write without changing other
    /// steady bytes.
    pub(super) plain: Vec<u8>,
    /// Offset of the PCI Express capability.
    pub(super) express: Option<u16>,
    /// Offset of the PCI Power Management capability.
    pub(super) power: Option<u16>,
}

impl Steady {
    /// Examines the configuration space of an endpoint. In any other space, nothing is steady.
    pub(super) fn of(registers: &[Option<Register>]) -> Self {
        let mut steady = Self {
            bytes: alloc::vec![0; registers.len()],
            plain: alloc::vec![0; registers.len()],
            express: None,
            power: None,
        };
        let space = Space { registers };
        if space.get(header::LAYOUT.offset()).is_none_or(|dword| header::LAYOUT.of(dword) != 0) {
            return steady;
        }
        steady.header(&space);
        steady.capabilities(&space);
        steady.extended(&space);
        // Registers that were not shown are not known.
        for (bytes, register) in steady.bytes.iter_mut().zip(registers) {
            if register.is_none() {
                *bytes = 0;
            }
        }
        steady
    }

    /// Marks bytes of the double word at `offset` that only software changes.
    fn keep(&mut self, offset: u16, bytes: u8) {
        if let Some(place) = self.bytes.get_mut(usize::from(offset / 4)) {
            *place |= bytes;
        }
        self.leave(offset, bytes);
    }
    /// Marks bytes of the double word at `offset` that software can write without changing others.
    /// They may change by themselves.
    fn leave(&mut self, offset: u16, bytes: u8) {
        if let Some(place) = self.plain.get_mut(usize::from(offset / 4)) {
            *place |= bytes;
        }
    }
    fn keep_all(&mut self, start: u16, bytes: u16) {
        for offset in (start..start + bytes).step_by(4) {
            self.keep(offset, ALL);
        }
    }

    fn header(&mut self, space: &Space<'_>) {
        self.keep_all(0, HEADER_END);
        // Status and a running self-test belong to the device.
        self.bytes[usize::from(header::BUS_MASTER.offset() / 4)] = LOW_HALF;
        let layout = header::LAYOUT.offset();
        if space.get(layout).is_none_or(|dword| dword & SELF_TEST_CAPABLE != 0) {
            self.bytes[usize::from(layout / 4)] = BUT_SELF_TEST;
            self.plain[usize::from(layout / 4)] = BUT_SELF_TEST;
        }
    }

    fn capabilities(&mut self, space: &Space<'_>) {
        let first = space.get(header::CAPABILITIES.offset()).unwrap_or(0);
        let mut at = header::CAPABILITIES.of(first);
        for _ in 0..CAPABILITIES_MAX {
            let place = u16::try_from(at).unwrap_or(0) & !0b11;
            let Some(dword) = space.get(place).filter(|_| (HEADER_END..EXTENDED_START).contains(&place))
            else {
                return;
            };
            // Identifier and next pointer.
            self.keep(place, LOW_HALF);
            let id = u8::try_from(capability::ID.of(dword)).unwrap_or(0);
            match id {
                capability::POWER_MANAGEMENT => {
                    self.power = Some(place);
                    self.keep(place, ALL);
                    self.leave(place + power::STATE.offset(), ALL);
                }
                capability::MSI => self.msi(place, dword),
                capability::MSIX => self.keep_all(place, msix::SIZE),
                capability::EXPRESS => self.express(place, dword),
                _ => {}
            }
            at = capability::NEXT.of(dword);
        }
    }

    fn msi(&mut self, at: u16, dword: u32) {
        let wide = msi::ADDRESS_64.is_set(dword);
        let mask = MSI_MASK[usize::from(wide)];
        self.keep_all(at, mask);
        if msi::VECTOR_MASKING.is_set(dword) {
            self.keep(at + mask, ALL);
        }
    }

    fn express(&mut self, at: u16, dword: u32) {
        self.express = Some(at);
        self.keep(at, ALL);
        self.keep(at + express::PAYLOAD_SUPPORTED.offset(), ALL);
        self.keep(at + express::PAYLOAD_SIZE.offset(), LOW_HALF);
        self.leave(at + express::PAYLOAD_SIZE.offset(), ALL);
        self.keep(at + express::LINK_SPEED_MAX.offset(), ALL);
        self.keep(at + express::LINK_SPEED.offset(), LOW_HALF);
        self.leave(at + express::LINK_SPEED.offset(), ALL);
        if express::VERSION.of(dword) < 2 {
            const { assert!(EXPRESS_1_BYTES > express::LINK_SPEED.offset()) };
            return;
        }
        self.keep(at + express::TIMEOUT_RANGES.offset(), ALL);
        self.keep(at + express::TIMEOUT_VALUE.offset(), LOW_HALF);
        self.leave(at + express::TIMEOUT_VALUE.offset(), HIGH_HALF);
        self.keep(at + express::LINK_SPEEDS.offset(), ALL);
        self.keep(at + express::TARGET_SPEED.offset(), LOW_HALF);
        self.leave(at + express::TARGET_SPEED.offset(), HIGH_HALF);
    }

    fn extended(&mut self, space: &Space<'_>) {
        let mut at = u32::from(EXTENDED_START);
        for _ in 0..EXTENDED_CAPABILITIES_MAX {
            let place = u16::try_from(at).unwrap_or(0) & !0b11;
            let Some(dword) = space.get(place).filter(|_| place >= EXTENDED_START) else { return };
            self.keep(place, ALL);
            match u16::try_from(capability::EXTENDED_ID.of(dword)).unwrap_or(0) {
                capability::ADVANCED_ERROR_REPORTING => {
                    for field in [aer::UNCORRECTABLE_MASK, aer::UNCORRECTABLE_SEVERITY, aer::CORRECTABLE_MASK]
                    {
                        self.keep(place + field.offset(), ALL);
                    }
                    for field in [aer::UNCORRECTABLE_STATUS, aer::CORRECTABLE_STATUS, aer::FIRST_ERROR] {
                        self.leave(place + field.offset(), ALL);
                    }
                }
                capability::SERIAL_NUMBER => self.keep_all(place, serial_number::SIZE),
                capability::ALTERNATIVE_ROUTING_ID | capability::LATENCY_TOLERANCE => {
                    self.keep_all(place, ROUTING_OR_LATENCY_BYTES);
                }
                _ => {}
            }
            at = capability::EXTENDED_NEXT.of(dword);
        }
    }
}

struct Space<'a> {
    registers: &'a [Option<Register>],
}

impl Space<'_> {
    fn get(&self, offset: u16) -> Option<u32> {
        (*self.registers.get(usize::from(offset / 4))?).map(|register| register.value)
    }
}
