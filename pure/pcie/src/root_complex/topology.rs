//! What enumeration found.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use crate::config::Field;
use crate::requester::RequestError;
use crate::wire::Bdf;

/// The functions below a root port, the root port itself at the top.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The root port. Boxed, so that what carries a topology among packets stays small.
    pub root: Box<Function>,
    /// What was wrong with functions, in the order in which it was noticed.
    pub faults: Vec<(Bdf, Fault)>,
}

impl Topology {
    /// Every function, parents before their children, the root port first.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        let mut waiting = alloc::vec![&*self.root];
        core::iter::from_fn(move || {
            let function = waiting.pop()?;
            waiting.extend(function.children.iter().rev());
            Some(function)
        })
    }
    /// The function at `bdf`.
    pub fn find(&self, bdf: Bdf) -> Option<&Function> {
        self.functions().find(|function| function.bdf == bdf)
    }
    /// Whether every function understands requests with 10-bit tags.
    pub fn takes_ten_bit_tags(&self) -> bool {
        self.functions().all(|function| function.express.is_some_and(|express| express.ten_bit_completer))
    }
    /// The largest payload that every function takes, in bytes.
    pub fn payload_size(&self) -> u32 {
        self.functions().filter_map(|function| Some(function.express?.payload_size)).min().unwrap_or(128)
    }
}

/// One function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Where it is.
    pub bdf: Bdf,
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Base class, subclass and programming interface: `0x010802` is an NVMe controller.
    pub class: u32,
    /// Revision ID.
    pub revision: u8,
    /// Subsystem Vendor ID, type 0 only.
    pub subsystem_vendor: u16,
    /// Subsystem ID, type 0 only.
    pub subsystem: u16,
    /// Header Layout: 0 for endpoints, 1 for bridges.
    pub layout: u8,
    /// Base Address Registers that are implemented.
    pub bars: Vec<BarRegister>,
    /// What a bridge has of its own.
    pub bridge: Option<Bridge>,
    /// Capabilities in the order of their lists.
    pub capabilities: Vec<Capability>,
    /// The PCI Express capability.
    pub express: Option<Express>,
    /// The MSI-X capability.
    pub msix: Option<MsiX>,
    /// Device Serial Number.
    pub serial_number: Option<u64>,
    /// Memory Space Enable and Bus Master Enable were set: it works.
    pub enabled: bool,
    /// Functions on the bus below, of a bridge.
    pub children: Vec<Self>,
}

impl Function {
    /// Where capability `id` is.
    pub fn capability(&self, id: CapabilityId) -> Option<u16> {
        self.capabilities.iter().find(|capability| capability.id == id).map(|capability| capability.offset)
    }
    /// The Base Address Register `index`.
    pub fn bar(&self, index: u8) -> Option<&BarRegister> {
        self.bars.iter().find(|bar| bar.index == index)
    }
    /// Max_Read_Request_Size in bytes, 128 without a PCI Express capability.
    pub fn read_request_size(&self) -> u32 {
        self.express.map_or(128, |express| express.read_request_size)
    }
}

/// Where a BAR's addresses are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// I/O; never placed.
    Io,
    /// Memory with 32-bit addresses.
    Memory32,
    /// Memory with 64-bit addresses.
    Memory64,
}

/// A Base Address Register (a pair of them for 64-bit addresses).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarRegister {
    /// The (first) register's number, 0..6.
    pub index: u8,
    /// What it decodes.
    pub space: Space,
    /// Whether reads have no side effects.
    pub prefetchable: bool,
    /// Bytes, a power of two.
    pub size: u64,
    /// Where it was placed; `None` where there was no room.
    pub address: Option<u64>,
}

/// A range of addresses, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first address.
    pub first: u64,
    /// The last address.
    pub last: u64,
}

impl Window {
    /// How many bytes it spans.
    pub const fn size(self) -> u64 {
        self.last - self.first + 1
    }
}

/// What a bridge forwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bridge {
    /// The bus above.
    pub primary: u8,
    /// The bus below.
    pub secondary: u8,
    /// The last bus below.
    pub subordinate: u8,
    /// Whether prefetchable addresses may be above 4 GiB.
    pub prefetchable_64: bool,
    /// Memory Base and Limit.
    pub memory: Option<Window>,
    /// Prefetchable Memory Base and Limit.
    pub prefetchable: Option<Window>,
}

/// What a capability is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapabilityId {
    /// In the first 256 bytes.
    Standard(u8),
    /// In the extended configuration space.
    Extended(u16),
}

/// One entry of a function's capability lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// What it is.
    pub id: CapabilityId,
    /// Where it starts.
    pub offset: u16,
    /// Version of an extended one and of Power Management, else 0.
    pub version: u8,
}

/// The PCI Express capability, as far as enumeration cares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Express {
    /// Where it starts.
    pub offset: u16,
    /// Device/Port Type as encoded: 0 endpoint, 4 root port, 5 upstream, 6 downstream.
    pub port_type: u8,
    /// Max_Payload_Size Supported in bytes.
    pub payload_supported: u32,
    /// Max_Payload_Size set, in bytes.
    pub payload_size: u32,
    /// Max_Read_Request_Size set, in bytes.
    pub read_request_size: u32,
    /// Extended tags (8 bits) are supported, and then enabled.
    pub extended_tags: bool,
    /// 10-bit tags are supported by the requester, and then enabled.
    pub ten_bit_tags: bool,
    /// 10-bit tags are understood in requests.
    pub ten_bit_completer: bool,
    /// Completion Timeout Ranges Supported: bit 0 is A.
    pub timeout_ranges: u8,
    /// Completion Timeout Value set, as encoded.
    pub timeout: u8,
    /// Function Level Reset Capability.
    pub function_level_reset: bool,
    /// Max Link Speed: 1 is 2.5 GT/s.
    pub link_speed_max: u8,
    /// Maximum Link Width.
    pub link_width_max: u8,
    /// Current Link Speed.
    pub link_speed: u8,
    /// Negotiated Link Width.
    pub link_width: u8,
    /// Data Link Layer Link Active.
    pub link_active: bool,
    /// The slot below a port.
    pub slot: Option<Slot>,
}

impl Express {
    /// Device/Port Type of an upstream port.
    pub const UPSTREAM: u8 = 5;
    /// Device/Port Type of a root port.
    pub const ROOT_PORT: u8 = 4;
    /// Device/Port Type of a downstream port.
    pub const DOWNSTREAM: u8 = 6;

    /// Whether a link, and so device 0 only, is below.
    pub const fn has_link_below(&self) -> bool {
        matches!(self.port_type, Self::ROOT_PORT | Self::DOWNSTREAM)
    }
    /// Whether devices may come and go below.
    pub fn is_hot_plug(&self) -> bool {
        self.slot.is_some_and(|slot| slot.hot_plug)
    }
}

/// The slot below a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Physical Slot Number.
    pub number: u16,
    /// Hot-Plug Capable.
    pub hot_plug: bool,
    /// Hot-Plug Surprise.
    pub surprise: bool,
    /// Presence Detect State.
    pub present: bool,
}

/// The MSI-X capability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MsiX {
    /// Where it starts.
    pub offset: u16,
    /// Vectors, 1..=2048.
    pub vectors: u16,
    /// The BAR that holds the table.
    pub table_bar: u8,
    /// Where in it the table is.
    pub table_offset: u32,
    /// The BAR that holds the Pending Bit Array.
    pub pending_bar: u8,
    /// Where in it the Pending Bit Array is.
    pub pending_offset: u32,
}

/// What was wrong with a function, or could not be given to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It asked for patience (CRS) beyond the deadline.
    NotReady,
    /// A register that must be there could not be read or written.
    Register {
        /// Byte offset of the register.
        offset: u16,
        /// What came instead.
        error: RequestError,
    },
    /// A BAR whose writable bits are no size.
    BarSize {
        /// The register's number.
        index: u8,
        /// The bits that could be set.
        mask: u64,
    },
    /// A 64-bit BAR in the last register, with no room for its upper half.
    BarPair {
        /// The register's number.
        index: u8,
    },
    /// A list of capabilities that leaves its space or comes back to itself.
    CapabilityList {
        /// Where it went wrong.
        offset: u16,
    },
    /// More functions than are looked at; here the search ended.
    TooMany,
    /// No bus number was left for a bridge.
    NoBus,
    /// No room was left for a BAR, or for the window of a bridge (`index` `None`).
    NoSpace {
        /// The BAR.
        index: Option<u8>,
        /// How many bytes were asked for.
        size: u64,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady => f.write_str("not ready within the deadline"),
            Self::Register { offset, error } => write!(f, "register {offset:#05x}: {error}"),
            Self::BarSize { index, mask } => write!(f, "BAR {index} sizes to {mask:#x}, which is no size"),
            Self::BarPair { index } => write!(f, "BAR {index} has 64 bits but no upper half"),
            Self::CapabilityList { offset } => write!(f, "broken capability list at {offset:#05x}"),
            Self::TooMany => f.write_str("too many functions: none is looked for from here on"),
            Self::NoBus => f.write_str("no bus number left"),
            Self::NoSpace { index: Some(index), size } => {
                write!(f, "no room for the {size:#x} bytes of BAR {index}")
            }
            Self::NoSpace { index: None, size } => write!(f, "no room for a window of {size:#x} bytes"),
        }
    }
}

/// A field of a capability that starts at `base`, in a double word that was read.
pub(super) fn narrow(field: Field, dword: u32) -> u8 {
    field.of(dword).to_le_bytes()[0]
}

/// As [`narrow`], for fields of up to 16 bits.
pub(super) fn half(field: Field, dword: u32) -> u16 {
    let [low, high, ..] = field.of(dword).to_le_bytes();
    u16::from_le_bytes([low, high])
}
