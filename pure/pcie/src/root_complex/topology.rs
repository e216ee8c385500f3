//! The result of enumeration.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use crate::config::{ClassCode, Field};
use crate::requester::RequestError;
use crate::wire::Bdf;

/// The functions below a root port, with the root port itself at the top.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The root port. It is boxed to keep an output that carries a topology as small as one with a
    /// packet.
    pub root: Box<Function>,
    /// Faults of functions, in the order of detection.
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
    /// Whether every function supports requests with 10-bit tags.
    pub fn takes_ten_bit_tags(&self) -> bool {
        self.functions().all(|function| function.express.is_some_and(|express| express.ten_bit_completer))
    }
    /// The largest payload that every function supports, in bytes; at least 128.
    pub fn payload_size(&self) -> u32 {
        self.functions().filter_map(|function| Some(function.express?.payload_size)).min().unwrap_or(128)
    }
}

/// One function that enumeration found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Bus, device and function number.
    pub bdf: Bdf,
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Class Code: [`ClassCode::NVME`] is an NVMe controller.
    pub class: ClassCode,
    /// Revision ID.
    pub revision: u8,
    /// Subsystem Vendor ID; type 0 headers only.
    pub subsystem_vendor: u16,
    /// Subsystem ID; type 0 headers only.
    pub subsystem: u16,
    /// Header Layout: 0 for endpoints, 1 for bridges.
    pub layout: u8,
    /// The Base Address Registers that the function implements.
    pub bars: Vec<BarRegister>,
    /// The registers that only a bridge has; `None` for an endpoint.
    pub bridge: Option<Bridge>,
    /// Capabilities in the order of the function's lists.
    pub capabilities: Vec<Capability>,
    /// The PCI Express capability, if the function has one.
    pub express: Option<Express>,
    /// The MSI-X capability, if the function has one.
    pub msix: Option<MsiX>,
    /// Device Serial Number, if the function has one.
    pub serial_number: Option<u64>,
    /// Whether enumeration set Memory Space Enable and Bus Master Enable, so that the function
    /// works.
    pub enabled: bool,
    /// Functions on the bus below a bridge.
    pub children: Vec<Self>,
}

impl Function {
    /// Byte offset of capability `id` in the configuration space.
    pub fn capability(&self, id: CapabilityId) -> Option<u16> {
        self.capabilities.iter().find(|capability| capability.id == id).map(|capability| capability.offset)
    }
    /// The Base Address Register numbered `index`.
    pub fn bar(&self, index: u8) -> Option<&BarRegister> {
        self.bars.iter().find(|bar| bar.index == index)
    }
    /// Max_Read_Request_Size in bytes; 128 without a PCI Express capability.
    pub fn read_request_size(&self) -> u32 {
        self.express.map_or(128, |express| express.read_request_size)
    }
}

/// The address space that a BAR decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// I/O space; never placed.
    Io,
    /// Memory with 32-bit addresses.
    Memory32,
    /// Memory with 64-bit addresses.
    Memory64,
}

/// A Base Address Register, or a pair of registers for 64-bit addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarRegister {
    /// Number of the register, or of the first one of a pair: 0..6.
    pub index: u8,
    /// The address space that the BAR decodes.
    pub space: Space,
    /// Whether reads have no side effects.
    pub prefetchable: bool,
    /// Size of the decoded range in bytes, a power of two.
    pub size: u64,
    /// First address of the decoded range; `None` if there was no room for it.
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
    /// Size of the window in bytes.
    pub const fn size(self) -> u64 {
        self.last - self.first + 1
    }
}

/// The address ranges that a bridge forwards: its buses and its windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bridge {
    /// Primary Bus Number: the bus above.
    pub primary: u8,
    /// Secondary Bus Number: the bus directly below.
    pub secondary: u8,
    /// Subordinate Bus Number: the last bus below.
    pub subordinate: u8,
    /// Whether the prefetchable window may be above 4 GiB.
    pub prefetchable_64: bool,
    /// Memory Base and Memory Limit; `None` when the window is closed.
    pub memory: Option<Window>,
    /// Prefetchable Memory Base and Limit; `None` when the window is closed.
    pub prefetchable: Option<Window>,
}

/// Identifier of a capability in one of the two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapabilityId {
    /// A capability in the first 256 bytes.
    Standard(u8),
    /// A capability in the extended configuration space.
    Extended(u16),
}

/// One entry of a function's capability lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Identifier of the capability.
    pub id: CapabilityId,
    /// Byte offset of the capability in the configuration space.
    pub offset: u16,
    /// Version of an extended capability or of Power Management; 0 for others.
    pub version: u8,
}

/// The parts of the PCI Express capability that enumeration uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Express {
    /// Byte offset of the capability in the configuration space.
    pub offset: u16,
    /// Device/Port Type as encoded: 0 endpoint, 4 root port, 5 upstream port, 6 downstream port.
    pub port_type: u8,
    /// Max_Payload_Size Supported, in bytes.
    pub payload_supported: u32,
    /// Max_Payload_Size as set, in bytes.
    pub payload_size: u32,
    /// Max_Read_Request_Size as set, in bytes.
    pub read_request_size: u32,
    /// Whether extended (8-bit) tags are supported; enumeration then enables them.
    pub extended_tags: bool,
    /// Whether the function can send requests with 10-bit tags; enumeration then enables them.
    pub ten_bit_tags: bool,
    /// Whether the function supports requests with 10-bit tags.
    pub ten_bit_completer: bool,
    /// Completion Timeout Ranges Supported: bit 0 is range A.
    pub timeout_ranges: u8,
    /// Completion Timeout Value as set, as encoded.
    pub timeout: u8,
    /// Whether the function supports Function Level Reset (FLR).
    pub function_level_reset: bool,
    /// Max Link Speed: 1 is 2.5 GT/s.
    pub link_speed_max: u8,
    /// Maximum Link Width, in lanes.
    pub link_width_max: u8,
    /// Current Link Speed: 1 is 2.5 GT/s.
    pub link_speed: u8,
    /// Negotiated Link Width, in lanes.
    pub link_width: u8,
    /// Whether the data link layer of the link is up (Data Link Layer Link Active).
    pub link_active: bool,
    /// The slot below a port, if there is one.
    pub slot: Option<Slot>,
}

impl Express {
    /// Device/Port Type of an upstream port.
    pub const UPSTREAM: u8 = 5;
    /// Device/Port Type of a root port.
    pub const ROOT_PORT: u8 = 4;
    /// Device/Port Type of a downstream port.
    pub const DOWNSTREAM: u8 = 6;

    /// Whether a link is below this port; a link has device 0 only.
    pub const fn has_link_below(&self) -> bool {
        matches!(self.port_type, Self::ROOT_PORT | Self::DOWNSTREAM)
    }
    /// Whether devices may come and go below this port.
    pub fn is_hot_plug(&self) -> bool {
        self.slot.is_some_and(|slot| slot.hot_plug)
    }
}

/// The slot below a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Physical Slot Number.
    pub number: u16,
    /// Whether the slot supports hot-plug (Hot-Plug Capable).
    pub hot_plug: bool,
    /// Whether a device may vanish without notice (Hot-Plug Surprise).
    pub surprise: bool,
    /// Whether a device is in the slot (Presence Detect State).
    pub present: bool,
}

/// The MSI-X capability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MsiX {
    /// Byte offset of the capability in the configuration space.
    pub offset: u16,
    /// Number of vectors, 1..=2048.
    pub vectors: u16,
    /// Number of the BAR that holds the table.
    pub table_bar: u8,
    /// Byte offset of the table in its BAR.
    pub table_offset: u32,
    /// Number of the BAR that holds the Pending Bit Array.
    pub pending_bar: u8,
    /// Byte offset of the Pending Bit Array in its BAR.
    pub pending_offset: u32,
}

/// A fault of a function, or a resource that was not available for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The function still answered with Configuration Request Retry Status (CRS) after the
    /// deadline.
    NotReady,
    /// A mandatory register could not be read or written.
    Register {
        /// Byte offset of the register.
        offset: u16,
        /// Why the access failed.
        error: RequestError,
    },
    /// The writable bits of a BAR are not a valid size.
    BarSize {
        /// Number of the register.
        index: u8,
        /// The bits that could be set.
        mask: u64,
    },
    /// A 64-bit BAR is in the last register, without room for its upper half.
    BarPair {
        /// Number of the register.
        index: u8,
    },
    /// A capability list leaves its part of the configuration space or loops.
    CapabilityList {
        /// Byte offset at which the list is broken.
        offset: u16,
    },
    /// There are more functions than enumeration examines; the search ended here.
    TooMany,
    /// No bus number was left for a bridge.
    NoBus,
    /// No room was left for a BAR, or for a bridge's window (`index` is `None`).
    NoSpace {
        /// Number of the BAR; `None` for a bridge's window.
        index: Option<u8>,
        /// Number of required bytes.
        size: u64,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady => f.write_str("not ready within the deadline"),
            Self::Register { offset, error } => write!(f, "register {offset:#05x}: {error}"),
            Self::BarSize { index, mask } => {
                write!(f, "BAR {index} has the writable bits {mask:#x}, which are not a valid size")
            }
            Self::BarPair { index } => write!(f, "BAR {index} has 64 bits but no upper half"),
            Self::CapabilityList { offset } => write!(f, "broken capability list at {offset:#05x}"),
            Self::TooMany => f.write_str("too many functions: the search ends here"),
            Self::NoBus => f.write_str("no bus number left"),
            Self::NoSpace { index: Some(index), size } => {
                write!(f, "no room for the {size:#x} bytes of BAR {index}")
            }
            Self::NoSpace { index: None, size } => write!(f, "no room for a window of {size:#x} bytes"),
        }
    }
}

/// The value of `field`, which has at most 8 bits, in a double word that was read.
pub(super) fn narrow(field: Field, dword: u32) -> u8 {
    field.of(dword).to_le_bytes()[0]
}

/// The value of `field`, which has at most 16 bits, in a double word that was read.
pub(super) fn half(field: Field, dword: u32) -> u16 {
    let [low, high, ..] = field.of(dword).to_le_bytes();
    u16::from_le_bytes([low, high])
}
