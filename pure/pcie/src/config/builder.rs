//! Construction of a configuration space.

use super::{
    Access, Bar, BarIndex, CONFIG_SPACE_SIZE, ClassCode, ConfigSpace, Field, aer, bar, bridge, capability,
    error, express, header, msi, msix, power, serial_number,
};

/// Byte offsets of the capabilities in functions that this crate builds. For other functions,
/// search the capability lists.
pub mod offset {
    /// Offset of Power Management.
    pub const POWER: u16 = 0x40;
    /// Offset of MSI.
    pub const MSI: u16 = 0x50;
    /// Offset of PCI Express.
    pub const EXPRESS: u16 = 0x70;
    /// Offset of MSI-X.
    pub const MSIX: u16 = 0xb0;
    /// Offset of Advanced Error Reporting.
    pub const AER: u16 = 0x100;
    /// Offset of Device Serial Number.
    pub const SERIAL_NUMBER: u16 = 0x150;
}

/// Identification registers of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Revision ID.
    pub revision: u8,
    /// Class Code.
    pub class: ClassCode,
    /// Subsystem Vendor ID; type 0 headers only.
    pub subsystem_vendor: u16,
    /// Subsystem ID; type 0 headers only.
    pub subsystem: u16,
}

/// Device/Port Type of the PCI Express capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortType {
    /// PCI Express Endpoint, encoded as 0.
    Endpoint,
    /// Root Port, encoded as 4.
    RootPort,
    /// Upstream Port of a switch, encoded as 5.
    Upstream,
    /// Downstream Port of a switch, encoded as 6.
    Downstream,
}

impl PortType {
    const fn encoded(self) -> u32 {
        match self {
            Self::Endpoint => 0,
            Self::RootPort => 4,
            Self::Upstream => 5,
            Self::Downstream => 6,
        }
    }
    const fn has_link_below(self) -> bool {
        matches!(self, Self::RootPort | Self::Downstream)
    }
}

/// Capabilities of a function's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Max Link Speed: 1 (2.5 GT/s) to 5 (32 GT/s).
    pub speed: u8,
    /// Maximum Link Width in lanes: 1, 2, 4, 8, 12, 16 or 32.
    pub width: u8,
    /// Port Number in Link Capabilities.
    pub port: u8,
    /// Max_Payload_Size Supported in bytes: a power of two, 128..=4096.
    pub payload_max: u32,
}

impl Default for Link {
    /// 16 GT/s, four lanes, payloads of 4 KiB.
    fn default() -> Self {
        Self { speed: 4, width: 4, port: 0, payload_max: 4096 }
    }
}

/// The slot below a downstream port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Physical Slot Number, which has 13 bits.
    pub number: u16,
    /// Hot-Plug Surprise: a device may vanish without notice, which is not an error.
    pub surprise: bool,
}

/// Builds a [`ConfigSpace`]. Capabilities join their list in the order in which they are added.
#[derive(Clone, Debug)]
pub struct Builder {
    space: ConfigSpace,
    last: Field,
    last_extended: Option<u16>,
}

impl Builder {
    /// Starts with the type 0 header of an endpoint.
    pub fn endpoint(identity: Identity) -> Self {
        let mut space = ConfigSpace::new();
        define_common(&mut space, identity, 0);
        space.define(header::SUBSYSTEM_VENDOR, Access::ReadOnly, u32::from(identity.subsystem_vendor));
        space.define(header::SUBSYSTEM, Access::ReadOnly, u32::from(identity.subsystem));
        Self { space, last: header::CAPABILITIES, last_extended: None }
    }

    /// Starts with the type 1 header of a bridge: a root port or a port of a switch. It has 32-bit
    /// I/O and 64-bit prefetchable windows.
    pub fn bridge(identity: Identity) -> Self {
        let mut space = ConfigSpace::new();
        define_common(&mut space, identity, 1);
        for field in [
            header::IO_SPACE,
            bridge::PRIMARY_BUS,
            bridge::SECONDARY_BUS,
            bridge::SUBORDINATE_BUS,
            bridge::MEMORY_BASE,
            bridge::MEMORY_LIMIT,
            bridge::IO_BASE,
            bridge::IO_LIMIT,
            bridge::IO_BASE_UPPER,
            bridge::IO_LIMIT_UPPER,
            bridge::PREFETCHABLE_BASE,
            bridge::PREFETCHABLE_LIMIT,
            bridge::PREFETCHABLE_BASE_UPPER,
            bridge::PREFETCHABLE_LIMIT_UPPER,
            bridge::PARITY_RESPONSE,
            bridge::SERR,
            bridge::ISA,
            bridge::SECONDARY_BUS_RESET,
        ] {
            space.define(field, Access::ReadWrite, 0);
        }
        for field in [
            bridge::IO_BASE_TYPE,
            bridge::IO_LIMIT_TYPE,
            bridge::PREFETCHABLE_BASE_TYPE,
            bridge::PREFETCHABLE_LIMIT_TYPE,
        ] {
            space.define(field, Access::ReadOnly, 1);
        }
        space.define(bridge::SECONDARY_MASTER_DATA_PARITY, Access::WriteOneToClear, 0);
        space.define(bridge::SECONDARY_ERRORS, Access::WriteOneToClear, 0);
        Self { space, last: header::CAPABILITIES, last_extended: None }
    }

    /// Adds a Base Address Register.
    ///
    /// # Panics
    /// When a BAR cannot have this size, or when a 64-bit BAR has no second register.
    #[must_use]
    pub fn bar(mut self, index: BarIndex, bar: Bar) -> Self {
        if bar.kind == super::BarKind::Io {
            self.space.define(header::IO_SPACE, Access::ReadWrite, 0);
        }
        bar::define(&mut self.space, index, bar);
        self
    }

    fn link_capability(&mut self, at: u16, id: u8) {
        self.space.define(self.last, Access::ReadOnly, u32::from(at));
        self.space.define(capability::ID.at(at), Access::ReadOnly, u32::from(id));
        self.space.define(header::CAPABILITIES_LIST, Access::ReadOnly, 1);
        self.last = capability::NEXT.at(at);
    }

    fn link_extended(&mut self, at: u16, id: u16, version: u32) {
        match self.last_extended {
            Some(before) => {
                self.space.define(capability::EXTENDED_NEXT.at(before), Access::ReadOnly, u32::from(at));
            }
            None => assert_eq!(at, super::EXTENDED_START, "the extended list starts at 100h"),
        }
        self.space.define(capability::EXTENDED_ID.at(at), Access::ReadOnly, u32::from(id));
        self.space.define(capability::EXTENDED_VERSION.at(at), Access::ReadOnly, version);
        self.last_extended = Some(at);
    }

    /// Adds Power Management with D0 and D3hot. Without `no_soft_reset`, a change from D3hot to D0
    /// resets the function.
    #[must_use]
    pub fn power_management(mut self, no_soft_reset: bool) -> Self {
        let at = offset::POWER;
        self.link_capability(at, capability::POWER_MANAGEMENT);
        self.space.define(power::VERSION.at(at), Access::ReadOnly, 3);
        self.space.define(power::STATE.at(at), Access::ReadWrite, power::D0);
        self.space.define(power::NO_SOFT_RESET.at(at), Access::ReadOnly, u32::from(no_soft_reset));
        self
    }

    /// Adds MSI with one vector, a 64-bit address and a mask.
    #[must_use]
    pub fn msi(mut self) -> Self {
        let at = offset::MSI;
        self.link_capability(at, capability::MSI);
        self.space.define(msi::ADDRESS_64.at(at), Access::ReadOnly, 1);
        self.space.define(msi::VECTOR_MASKING.at(at), Access::ReadOnly, 1);
        for field in [msi::ENABLE, msi::ADDRESS_LOW, msi::ADDRESS_HIGH, msi::DATA, msi::MASK] {
            self.space.define(field.at(at), Access::ReadWrite, 0);
        }
        self.space.define(msi::PENDING.at(at), Access::ReadOnly, 0);
        self
    }

    /// Adds MSI-X with `vectors` (1..=2048) in a table at `table_offset` and a pending bit array at
    /// `pending_offset`, both in BAR `bar`.
    ///
    /// # Panics
    /// When MSI-X cannot have this number of vectors, or when an offset is not a multiple of 8.
    #[must_use]
    pub fn msix(mut self, bar: BarIndex, vectors: u16, table_offset: u32, pending_offset: u32) -> Self {
        assert!((1..=msix::VECTORS_MAX).contains(&vectors), "MSI-X can't have {vectors} vectors");
        assert!(table_offset.is_multiple_of(8) && pending_offset.is_multiple_of(8), "8-byte alignment");
        let at = offset::MSIX;
        self.link_capability(at, capability::MSIX);
        self.space.define(msix::TABLE_SIZE.at(at), Access::ReadOnly, u32::from(vectors) - 1);
        self.space.define(msix::FUNCTION_MASK.at(at), Access::ReadWrite, 0);
        self.space.define(msix::ENABLE.at(at), Access::ReadWrite, 0);
        self.space.define(msix::TABLE_BAR.at(at), Access::ReadOnly, u32::from(bar.get()));
        self.space.define(msix::TABLE_OFFSET.at(at), Access::ReadOnly, table_offset / 8);
        self.space.define(msix::PENDING_BAR.at(at), Access::ReadOnly, u32::from(bar.get()));
        self.space.define(msix::PENDING_OFFSET.at(at), Access::ReadOnly, pending_offset / 8);
        self
    }

    /// Adds the PCI Express capability, with `slot` for a downstream port that has one.
    ///
    /// # Panics
    /// When `link.payload_max` is not one of 128, 256, 512, 1024, 2048 and 4096 bytes.
    #[must_use]
    pub fn express(mut self, port: PortType, link: Link, slot: Option<Slot>) -> Self {
        self.link_capability(offset::EXPRESS, capability::EXPRESS);
        self.define_device(port, link);
        self.define_link(port, link, slot);
        if let Some(slot) = slot {
            self.define_slot(slot);
        }
        if port == PortType::RootPort {
            let at = offset::EXPRESS;
            self.space.define(express::CRS_VISIBILITY_ENABLE.at(at), Access::ReadWrite, 0);
            self.space.define(express::CRS_VISIBILITY.at(at), Access::ReadOnly, 1);
        }
        self
    }

    fn define_device(&mut self, port: PortType, link: Link) {
        let sizes = [128, 256, 512, 1024, 2048, 4096];
        let payload = sizes.iter().position(|&size| size == link.payload_max);
        let payload =
            payload.and_then(|code| u32::try_from(code).ok()).expect("a payload size that PCIe has");
        let at = offset::EXPRESS;
        let endpoint = port == PortType::Endpoint;
        let space = &mut self.space;
        let mut read_only = |field: Field, value: u32| space.define(field.at(at), Access::ReadOnly, value);
        read_only(express::VERSION, 2);
        read_only(express::PORT_TYPE, port.encoded());
        read_only(express::PAYLOAD_SUPPORTED, payload);
        read_only(express::EXTENDED_TAG_SUPPORTED, 1);
        read_only(express::ROLE_BASED_ERRORS, 1);
        read_only(express::FUNCTION_LEVEL_RESET, u32::from(endpoint));
        // Every range, A to D, because the link may be long.
        read_only(express::TIMEOUT_RANGES, if endpoint { 0b1111 } else { 0 });
        read_only(express::TIMEOUT_DISABLE_SUPPORTED, u32::from(endpoint));
        read_only(express::TEN_BIT_COMPLETER, 1);
        read_only(express::TEN_BIT_REQUESTER, 1);
        let mut writable = |field: Field, value: u32| space.define(field.at(at), Access::ReadWrite, value);
        writable(express::REPORT_CORRECTABLE, 0);
        writable(express::REPORT_NON_FATAL, 0);
        writable(express::REPORT_FATAL, 0);
        writable(express::REPORT_UNSUPPORTED, 0);
        writable(express::RELAXED_ORDERING, 1);
        writable(express::EXTENDED_TAG, 1);
        writable(express::NO_SNOOP, 1);
        writable(express::READ_REQUEST_SIZE, 0b010);
        writable(express::TEN_BIT_ENABLE, 0);
        if endpoint {
            writable(express::INITIATE_RESET, 0);
            writable(express::TIMEOUT_VALUE, 0);
            writable(express::TIMEOUT_DISABLE, 0);
            writable(express::IDO_REQUEST, 0);
            writable(express::IDO_COMPLETION, 0);
        }
        space.define(express::PAYLOAD_SIZE.at(at), Access::ReadWriteOfLink, 0);
        space.define(express::ERRORS_DETECTED.at(at), Access::WriteOneToClear, 0);
    }

    fn define_link(&mut self, port: PortType, link: Link, slot: Option<Slot>) {
        let at = offset::EXPRESS;
        let space = &mut self.space;
        let below = u32::from(port.has_link_below());
        let surprise_down = u32::from(port.has_link_below() && slot.is_some());
        let (speed, width) = (u32::from(link.speed), u32::from(link.width));
        for (field, value) in [
            (express::LINK_SPEED_MAX, speed),
            (express::LINK_WIDTH_MAX, width),
            (express::SURPRISE_DOWN_CAPABLE, surprise_down),
            (express::LINK_ACTIVE_CAPABLE, below),
            (express::ASPM_OPTIONALITY, 1),
            (express::PORT_NUMBER, u32::from(link.port)),
            (express::LINK_SPEEDS, (1 << speed) - 1),
        ] {
            space.define(field.at(at), Access::ReadOnly, value);
        }
        for field in [express::ASPM_CONTROL, express::COMMON_CLOCK, express::EXTENDED_SYNCH] {
            space.define(field.at(at), Access::ReadWriteOfLink, 0);
        }
        match port {
            PortType::Endpoint => {
                space.define(express::READ_COMPLETION_BOUNDARY.at(at), Access::ReadWriteOfLink, 0);
            }
            PortType::RootPort => space.define(express::READ_COMPLETION_BOUNDARY.at(at), Access::ReadOnly, 0),
            PortType::Upstream | PortType::Downstream => {}
        }
        if port.has_link_below() {
            space.define(express::LINK_DISABLE.at(at), Access::ReadWrite, 0);
            space.define(express::LINK_ACTIVE.at(at), Access::State, 0);
        }
        space.define(express::LINK_SPEED.at(at), Access::State, speed);
        space.define(express::LINK_WIDTH.at(at), Access::State, width);
        space.define(express::TARGET_SPEED.at(at), Access::ReadWriteSticky, speed);
    }

    fn define_slot(&mut self, slot: Slot) {
        let at = offset::EXPRESS;
        let space = &mut self.space;
        for (field, value) in [
            (express::SLOT_IMPLEMENTED, 1),
            (express::HOT_PLUG_SURPRISE, u32::from(slot.surprise)),
            (express::HOT_PLUG_CAPABLE, 1),
            (express::SLOT_POWER_LIMIT, 25),
            (express::NO_COMMAND_COMPLETED, 1),
            (express::SLOT_NUMBER, u32::from(slot.number)),
        ] {
            space.define(field.at(at), Access::ReadOnly, value);
        }
        for field in [
            express::PRESENCE_CHANGED_ENABLE,
            express::HOT_PLUG_INTERRUPT_ENABLE,
            express::LINK_STATE_CHANGED_ENABLE,
        ] {
            space.define(field.at(at), Access::ReadWrite, 0);
        }
        space.define(express::PRESENCE_CHANGED.at(at), Access::WriteOneToClear, 0);
        space.define(express::LINK_STATE_CHANGED.at(at), Access::WriteOneToClear, 0);
        space.define(express::PRESENCE.at(at), Access::State, 0);
    }

    /// Adds Advanced Error Reporting.
    #[must_use]
    pub fn advanced_error_reporting(mut self) -> Self {
        let at = offset::AER;
        self.link_extended(at, capability::ADVANCED_ERROR_REPORTING, 2);
        error::define(&mut self.space, at);
        for dword in 0..4 {
            self.space.define(Field::dword(aer::HEADER_LOG + dword * 4).at(at), Access::State, 0);
        }
        self
    }

    /// Adds a Device Serial Number.
    #[must_use]
    pub fn serial_number(mut self, number: u64) -> Self {
        let at = offset::SERIAL_NUMBER;
        self.link_extended(at, capability::SERIAL_NUMBER, 1);
        let [low, high] = halves(number);
        self.space.define(serial_number::LOW.at(at), Access::ReadOnly, low);
        self.space.define(serial_number::HIGH.at(at), Access::ReadOnly, high);
        self
    }

    /// The finished configuration space.
    pub fn build(self) -> ConfigSpace {
        self.space
    }
}

/// The low and the high double word of `number`.
pub(crate) fn halves(number: u64) -> [u32; 2] {
    let bytes = number.to_le_bytes();
    core::array::from_fn(|half| u32::from_le_bytes(core::array::from_fn(|byte| bytes[half * 4 + byte])))
}

fn define_common(space: &mut ConfigSpace, identity: Identity, layout: u32) {
    for (field, value) in [
        (header::VENDOR, u32::from(identity.vendor)),
        (header::DEVICE, u32::from(identity.device)),
        (header::REVISION, u32::from(identity.revision)),
        (header::CLASS, identity.class.0),
        (header::LAYOUT, layout),
        (header::INTERRUPT_PIN, 0),
    ] {
        space.define(field, Access::ReadOnly, value);
    }
    for field in header::WRITABLE {
        space.define(field, Access::ReadWrite, 0);
    }
    space.define(header::MASTER_DATA_PARITY, Access::WriteOneToClear, 0);
    space.define(header::STATUS_ERRORS, Access::WriteOneToClear, 0);
    const { assert!(offset::SERIAL_NUMBER + serial_number::SIZE <= CONFIG_SPACE_SIZE) };
}

const _: () = assert!(offset::POWER + power::SIZE <= offset::MSI);
const _: () = assert!(offset::MSI + msi::SIZE <= offset::EXPRESS);
const _: () = assert!(offset::EXPRESS + express::SIZE <= offset::MSIX);
const _: () = assert!(offset::MSIX + msix::SIZE <= super::EXTENDED_START);
const _: () = assert!(offset::AER + aer::SIZE <= offset::SERIAL_NUMBER);
