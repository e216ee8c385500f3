//! Reads capability lists, including malformed ones.

use super::enumerate::{Scanner, Stop};
use super::topology::{Capability, CapabilityId, Express, Fault, Function, MsiX, Slot, half, narrow};
use crate::config::{EXTENDED_START, capability, express, header, msix, payload_bytes, power, serial_number};
use crate::wire::Bdf;

/// First byte offset in configuration space that can hold a capability.
const STANDARD_START: u16 = 0x40;
/// Alignment of capabilities in bytes; the low two bits of pointers are reserved.
const DWORD: u16 = 4;
/// Maximum number of capabilities that fit into the 192 bytes of the list's space.
const STANDARD_MAX: u16 = (EXTENDED_START - STANDARD_START) / DWORD;
/// Maximum length of an extended list; far more than there are kinds of extended capabilities.
const EXTENDED_MAX: u16 = 128;

impl Scanner {
    pub(super) async fn read_capabilities(&self, function: &mut Function) -> Result<(), Stop> {
        let bdf = function.bdf;
        let status = self.read(bdf, header::CAPABILITIES_LIST.offset()).await?;
        if header::CAPABILITIES_LIST.is_set(status) {
            self.walk_standard(function).await?;
        }
        if let Some(offset) = function.capability(CapabilityId::Standard(capability::EXPRESS)) {
            function.express = Some(self.read_express(bdf, offset).await?);
            // Only PCI Express functions have extended configuration space.
            self.walk_extended(function).await?;
        }
        if let Some(offset) = function.capability(CapabilityId::Standard(capability::MSIX)) {
            function.msix = Some(self.read_msix(bdf, offset).await?);
        }
        let id = CapabilityId::Extended(capability::SERIAL_NUMBER);
        if let Some(offset) = function.capability(id).filter(|offset| *offset <= 0x1000 - serial_number::SIZE)
        {
            let low = self.read(bdf, serial_number::LOW.at(offset).offset()).await?;
            let high = self.read(bdf, serial_number::HIGH.at(offset).offset()).await?;
            function.serial_number = Some(u64::from(high) << 32 | u64::from(low));
        }
        Ok(())
    }

    async fn walk_standard(&self, function: &mut Function) -> Result<(), Stop> {
        let pointer = self.read(function.bdf, header::CAPABILITIES.offset()).await?;
        let mut offset = half(header::CAPABILITIES, pointer) / DWORD * DWORD;
        for _ in 0..STANDARD_MAX {
            if offset == 0 {
                return Ok(());
            }
            if offset < STANDARD_START || is_known(function, offset) {
                break;
            }
            let entry = self.read(function.bdf, offset).await?;
            let id = narrow(capability::ID, entry);
            let version = match id {
                capability::POWER_MANAGEMENT => narrow(power::VERSION, entry),
                _ => 0,
            };
            let id = CapabilityId::Standard(id);
            function.capabilities.push(Capability { id, offset, version });
            offset = half(capability::NEXT, entry) / DWORD * DWORD;
        }
        self.note(function.bdf, Fault::CapabilityList { offset });
        Ok(())
    }

    async fn walk_extended(&self, function: &mut Function) -> Result<(), Stop> {
        let mut offset = EXTENDED_START;
        for _ in 0..EXTENDED_MAX {
            if offset < EXTENDED_START || is_known(function, offset) {
                break;
            }
            let entry = self.read(function.bdf, offset).await?;
            if entry == 0 || entry == u32::MAX {
                return Ok(());
            }
            let id = CapabilityId::Extended(half(capability::EXTENDED_ID, entry));
            let version = narrow(capability::EXTENDED_VERSION, entry);
            function.capabilities.push(Capability { id, offset, version });
            offset = half(capability::EXTENDED_NEXT, entry) / DWORD * DWORD;
            if offset == 0 {
                return Ok(());
            }
        }
        self.note(function.bdf, Fault::CapabilityList { offset });
        Ok(())
    }

    pub(super) async fn read_express(&self, bdf: Bdf, offset: u16) -> Result<Express, Stop> {
        if offset > EXTENDED_START - express::SIZE {
            return Err(Stop::Function(Fault::CapabilityList { offset }));
        }
        let read = async |field: crate::config::Field| self.read(bdf, field.at(offset).offset()).await;
        let capabilities = read(express::PORT_TYPE).await?;
        let device = read(express::PAYLOAD_SUPPORTED).await?;
        let control = read(express::PAYLOAD_SIZE).await?;
        let link = read(express::LINK_SPEED_MAX).await?;
        let link_status = read(express::LINK_SPEED).await?;
        let device_2 = read(express::TIMEOUT_RANGES).await?;
        let control_2 = read(express::TIMEOUT_VALUE).await?;
        let mut found = Express {
            offset,
            port_type: narrow(express::PORT_TYPE, capabilities),
            payload_supported: payload_bytes(express::PAYLOAD_SUPPORTED.of(device)),
            payload_size: payload_bytes(express::PAYLOAD_SIZE.of(control)),
            read_request_size: payload_bytes(express::READ_REQUEST_SIZE.of(control)),
            extended_tags: express::EXTENDED_TAG_SUPPORTED.is_set(device),
            ten_bit_tags: express::TEN_BIT_REQUESTER.is_set(device_2),
            ten_bit_completer: express::TEN_BIT_COMPLETER.is_set(device_2),
            timeout_ranges: narrow(express::TIMEOUT_RANGES, device_2),
            timeout: narrow(express::TIMEOUT_VALUE, control_2),
            function_level_reset: express::FUNCTION_LEVEL_RESET.is_set(device),
            link_speed_max: narrow(express::LINK_SPEED_MAX, link),
            link_width_max: narrow(express::LINK_WIDTH_MAX, link),
            link_speed: narrow(express::LINK_SPEED, link_status),
            link_width: narrow(express::LINK_WIDTH, link_status),
            link_active: express::LINK_ACTIVE.is_set(link_status),
            slot: None,
        };
        if express::SLOT_IMPLEMENTED.is_set(capabilities) && found.has_link_below() {
            let slot = read(express::SLOT_NUMBER).await?;
            let status = read(express::PRESENCE).await?;
            found.slot = Some(Slot {
                number: half(express::SLOT_NUMBER, slot),
                hot_plug: express::HOT_PLUG_CAPABLE.is_set(slot),
                surprise: express::HOT_PLUG_SURPRISE.is_set(slot),
                present: express::PRESENCE.is_set(status),
            });
        }
        Ok(found)
    }

    async fn read_msix(&self, bdf: Bdf, offset: u16) -> Result<MsiX, Stop> {
        if offset > EXTENDED_START - msix::SIZE {
            return Err(Stop::Function(Fault::CapabilityList { offset }));
        }
        let control = self.read(bdf, msix::TABLE_SIZE.at(offset).offset()).await?;
        let table = self.read(bdf, msix::TABLE_BAR.at(offset).offset()).await?;
        let pending = self.read(bdf, msix::PENDING_BAR.at(offset).offset()).await?;
        Ok(MsiX {
            offset,
            vectors: half(msix::TABLE_SIZE, control) + 1,
            table_bar: narrow(msix::TABLE_BAR, table),
            table_offset: msix::TABLE_OFFSET.of(table) * 8,
            pending_bar: narrow(msix::PENDING_BAR, pending),
            pending_offset: msix::PENDING_OFFSET.of(pending) * 8,
        })
    }
}

/// Whether the walk has already been at `offset`, which means that the list loops.
fn is_known(function: &Function, offset: u16) -> bool {
    function.capabilities.iter().any(|capability| capability.offset == offset)
}
