//! Locations and names of registers and their fields (PCI Express Base Specification 4.0, chapter
//! "Software Initialization and Configuration").
//!
//! Offsets of fields in a capability are relative to the capability's start.
//! [`Field::at`](super::Field::at) places such a field.

/// Size of a configuration space in bytes.
pub const CONFIG_SPACE_SIZE: u16 = 4096;
/// Byte offset at which the extended configuration space and its capability list begin.
pub const EXTENDED_START: u16 = 0x100;

/// The header that type 0 and type 1 functions share.
pub mod header {
    use crate::config::Field;

    /// Vendor ID.
    pub const VENDOR: Field = Field::new(0x00, 15, 0);
    /// Device ID.
    pub const DEVICE: Field = Field::new(0x00, 31, 16);
    /// I/O Space Enable, Command.
    pub const IO_SPACE: Field = Field::bit(0x04, 0);
    /// Memory Space Enable, Command.
    pub const MEMORY_SPACE: Field = Field::bit(0x04, 1);
    /// Bus Master Enable, Command.
    pub const BUS_MASTER: Field = Field::bit(0x04, 2);
    /// Parity Error Response, Command.
    pub const PARITY_RESPONSE: Field = Field::bit(0x04, 6);
    /// SERR# Enable, Command.
    pub const SERR: Field = Field::bit(0x04, 8);
    /// Interrupt Disable, Command.
    pub const INTERRUPT_DISABLE: Field = Field::bit(0x04, 10);
    /// Capabilities List, Status.
    pub const CAPABILITIES_LIST: Field = Field::bit(0x04, 20);
    /// Master Data Parity Error, Status.
    pub const MASTER_DATA_PARITY: Field = Field::bit(0x04, 24);
    /// The error bits of Status that are cleared by writing ones, without Master Data Parity Error:
    /// Signaled Target Abort, Received Target Abort, Received Master Abort, Signaled System Error
    /// and Detected Parity Error.
    pub const STATUS_ERRORS: Field = Field::new(0x04, 31, 27);
    /// Signaled Target Abort, Status: this function answered Completer Abort.
    pub const SIGNALED_TARGET_ABORT: Field = Field::bit(0x04, 27);
    /// Received Target Abort, Status: this function was answered Completer Abort.
    pub const RECEIVED_TARGET_ABORT: Field = Field::bit(0x04, 28);
    /// Received Master Abort, Status: this function was answered Unsupported Request.
    pub const RECEIVED_MASTER_ABORT: Field = Field::bit(0x04, 29);
    /// Signaled System Error, Status: this function sent ERR_NONFATAL or ERR_FATAL.
    pub const SIGNALED_SYSTEM_ERROR: Field = Field::bit(0x04, 30);
    /// Detected Parity Error, Status: this function received a poisoned TLP.
    pub const DETECTED_PARITY_ERROR: Field = Field::bit(0x04, 31);
    /// Revision ID.
    pub const REVISION: Field = Field::new(0x08, 7, 0);
    /// Class Code: base class, subclass, programming interface.
    pub const CLASS: Field = Field::new(0x08, 31, 8);
    /// Cache Line Size: writable, without effect.
    pub const CACHE_LINE_SIZE: Field = Field::new(0x0c, 7, 0);
    /// Header Layout: 0 for type 0, 1 for type 1.
    pub const LAYOUT: Field = Field::new(0x0c, 22, 16);
    /// Multi-Function Device.
    pub const MULTI_FUNCTION: Field = Field::bit(0x0c, 23);
    /// Byte offset of Base Address Register 0; the others follow.
    pub const BAR0: u16 = 0x10;
    /// Number of Base Address Registers in a type 0 header.
    pub const TYPE0_BARS: usize = 6;
    /// Number of Base Address Registers in a type 1 header.
    pub const TYPE1_BARS: usize = 2;
    /// Subsystem Vendor ID (type 0).
    pub const SUBSYSTEM_VENDOR: Field = Field::new(0x2c, 15, 0);
    /// Subsystem ID (type 0).
    pub const SUBSYSTEM: Field = Field::new(0x2c, 31, 16);
    /// Capabilities Pointer: byte offset of the first capability.
    pub const CAPABILITIES: Field = Field::new(0x34, 7, 0);
    /// Interrupt Line: scratch space for software.
    pub const INTERRUPT_LINE: Field = Field::new(0x3c, 7, 0);
    /// Interrupt Pin: 0 is no pin.
    pub const INTERRUPT_PIN: Field = Field::new(0x3c, 15, 8);
    /// The fields that software can write in every function, without I/O Space Enable.
    pub const WRITABLE: [Field; 7] =
        [MEMORY_SPACE, BUS_MASTER, PARITY_RESPONSE, SERR, INTERRUPT_DISABLE, CACHE_LINE_SIZE, INTERRUPT_LINE];
}

/// The registers that only a type 1 header (a bridge) has.
pub mod bridge {
    use crate::config::Field;

    /// Primary Bus Number.
    pub const PRIMARY_BUS: Field = Field::new(0x18, 7, 0);
    /// Secondary Bus Number.
    pub const SECONDARY_BUS: Field = Field::new(0x18, 15, 8);
    /// Subordinate Bus Number.
    pub const SUBORDINATE_BUS: Field = Field::new(0x18, 23, 16);
    /// I/O Base, address bits 15:12.
    pub const IO_BASE: Field = Field::new(0x1c, 7, 4);
    /// Type of I/O Base: 1 is 32-bit addressing.
    pub const IO_BASE_TYPE: Field = Field::new(0x1c, 3, 0);
    /// I/O Limit, address bits 15:12.
    pub const IO_LIMIT: Field = Field::new(0x1c, 15, 12);
    /// Type of I/O Limit: 1 is 32-bit addressing.
    pub const IO_LIMIT_TYPE: Field = Field::new(0x1c, 11, 8);
    /// Master Data Parity Error, Secondary Status.
    pub const SECONDARY_MASTER_DATA_PARITY: Field = Field::bit(0x1c, 24);
    /// Secondary Status: the error bits that are cleared by writing ones, without Master Data
    /// Parity Error.
    pub const SECONDARY_ERRORS: Field = Field::new(0x1c, 31, 27);
    /// Received System Error, Secondary Status: an ERR_FATAL or ERR_NONFATAL arrived from below.
    pub const RECEIVED_SYSTEM_ERROR: Field = Field::bit(0x1c, 30);
    /// Memory Base, address bits 31:20.
    pub const MEMORY_BASE: Field = Field::new(0x20, 15, 4);
    /// Memory Limit, address bits 31:20.
    pub const MEMORY_LIMIT: Field = Field::new(0x20, 31, 20);
    /// Prefetchable Memory Base, address bits 31:20.
    pub const PREFETCHABLE_BASE: Field = Field::new(0x24, 15, 4);
    /// Type of Prefetchable Memory Base: 1 is 64-bit addressing.
    pub const PREFETCHABLE_BASE_TYPE: Field = Field::new(0x24, 3, 0);
    /// Prefetchable Memory Limit, address bits 31:20.
    pub const PREFETCHABLE_LIMIT: Field = Field::new(0x24, 31, 20);
    /// Type of Prefetchable Memory Limit: 1 is 64-bit addressing.
    pub const PREFETCHABLE_LIMIT_TYPE: Field = Field::new(0x24, 19, 16);
    /// Prefetchable Base Upper 32 Bits.
    pub const PREFETCHABLE_BASE_UPPER: Field = Field::dword(0x28);
    /// Prefetchable Limit Upper 32 Bits.
    pub const PREFETCHABLE_LIMIT_UPPER: Field = Field::dword(0x2c);
    /// I/O Base Upper 16 Bits.
    pub const IO_BASE_UPPER: Field = Field::new(0x30, 15, 0);
    /// I/O Limit Upper 16 Bits.
    pub const IO_LIMIT_UPPER: Field = Field::new(0x30, 31, 16);
    /// Parity Error Response Enable, Bridge Control.
    pub const PARITY_RESPONSE: Field = Field::bit(0x3c, 16);
    /// SERR# Enable, Bridge Control: forward ERR_* messages.
    pub const SERR: Field = Field::bit(0x3c, 17);
    /// ISA Enable, Bridge Control: the upper 768 bytes of each KiB in the first 64 KiB of I/O space
    /// are not forwarded.
    pub const ISA: Field = Field::bit(0x3c, 18);
    /// Secondary Bus Reset, Bridge Control.
    pub const SECONDARY_BUS_RESET: Field = Field::bit(0x3c, 22);
}

/// Fields that every capability has, and the identifiers of the known capabilities.
pub mod capability {
    use crate::config::Field;

    /// Capability ID.
    pub const ID: Field = Field::new(0x00, 7, 0);
    /// Next Capability Pointer.
    pub const NEXT: Field = Field::new(0x00, 15, 8);
    /// Capability ID of PCI Power Management.
    pub const POWER_MANAGEMENT: u8 = 0x01;
    /// Capability ID of Message Signaled Interrupts (MSI).
    pub const MSI: u8 = 0x05;
    /// Capability ID of PCI Express.
    pub const EXPRESS: u8 = 0x10;
    /// Capability ID of MSI-X.
    pub const MSIX: u8 = 0x11;

    /// Extended Capability ID.
    pub const EXTENDED_ID: Field = Field::new(0x00, 15, 0);
    /// Extended Capability Version.
    pub const EXTENDED_VERSION: Field = Field::new(0x00, 19, 16);
    /// Next Extended Capability Offset.
    pub const EXTENDED_NEXT: Field = Field::new(0x00, 31, 20);
    /// Extended Capability ID of Advanced Error Reporting (AER).
    pub const ADVANCED_ERROR_REPORTING: u16 = 0x0001;
    /// Extended Capability ID of Device Serial Number.
    pub const SERIAL_NUMBER: u16 = 0x0003;
    /// Extended capability: Alternative Routing-ID Interpretation (ARI).
    pub const ALTERNATIVE_ROUTING_ID: u16 = 0x000e;
    /// Extended capability: Latency Tolerance Reporting (LTR).
    pub const LATENCY_TOLERANCE: u16 = 0x0018;
}

/// PCI Power Management capability.
pub mod power {
    use crate::config::Field;

    /// Version, Power Management Capabilities: 3 in the functions of this crate.
    pub const VERSION: Field = Field::new(0x00, 18, 16);
    /// PowerState, PMCSR.
    pub const STATE: Field = Field::new(0x04, 1, 0);
    /// No_Soft_Reset, PMCSR: D3hot to D0 keeps the function's state.
    pub const NO_SOFT_RESET: Field = Field::bit(0x04, 3);
    /// The value of PowerState in D0.
    pub const D0: u32 = 0;
    /// The value of PowerState in D3hot.
    pub const D3_HOT: u32 = 3;
    /// Length of the capability in bytes.
    pub const SIZE: u16 = 8;
}

/// MSI capability, with 64-bit addresses and per-vector masking.
pub mod msi {
    use crate::config::Field;

    /// MSI Enable.
    pub const ENABLE: Field = Field::bit(0x00, 16);
    /// 64-bit Address Capable.
    pub const ADDRESS_64: Field = Field::bit(0x00, 23);
    /// Per-Vector Masking Capable.
    pub const VECTOR_MASKING: Field = Field::bit(0x00, 24);
    /// Message Address, low half.
    pub const ADDRESS_LOW: Field = Field::new(0x04, 31, 2);
    /// Message Address, high half.
    pub const ADDRESS_HIGH: Field = Field::dword(0x08);
    /// Message Data.
    pub const DATA: Field = Field::new(0x0c, 15, 0);
    /// Mask bit of vector 0.
    pub const MASK: Field = Field::bit(0x10, 0);
    /// Pending bit of vector 0.
    pub const PENDING: Field = Field::bit(0x14, 0);
    /// Length of the capability in bytes.
    pub const SIZE: u16 = 24;
}

/// MSI-X capability.
pub mod msix {
    use crate::config::Field;

    /// Table Size, a 0's-based number of vectors.
    pub const TABLE_SIZE: Field = Field::new(0x00, 26, 16);
    /// Function Mask.
    pub const FUNCTION_MASK: Field = Field::bit(0x00, 30);
    /// MSI-X Enable.
    pub const ENABLE: Field = Field::bit(0x00, 31);
    /// Table BAR Indicator (BIR).
    pub const TABLE_BAR: Field = Field::new(0x04, 2, 0);
    /// Table Offset, in units of 8 bytes.
    pub const TABLE_OFFSET: Field = Field::new(0x04, 31, 3);
    /// Pending Bit Array (PBA) BIR.
    pub const PENDING_BAR: Field = Field::new(0x08, 2, 0);
    /// PBA Offset, in units of 8 bytes.
    pub const PENDING_OFFSET: Field = Field::new(0x08, 31, 3);
    /// Length of the capability in bytes.
    pub const SIZE: u16 = 12;
    /// Maximum number of vectors of a function.
    pub const VECTORS_MAX: u16 = 2048;
    /// Length of an entry of the table in bytes.
    pub const ENTRY_SIZE: u32 = 16;
}

/// Device Serial Number extended capability.
pub mod serial_number {
    use crate::config::Field;

    /// Serial Number, low half.
    pub const LOW: Field = Field::dword(0x04);
    /// Serial Number, high half.
    pub const HIGH: Field = Field::dword(0x08);
    /// Length of the capability in bytes.
    pub const SIZE: u16 = 12;
}
