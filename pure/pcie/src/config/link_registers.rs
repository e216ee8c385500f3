//! Fields of the PCI Express and Advanced Error Reporting capabilities.

/// PCI Express capability, version 2.
pub mod express {
    use crate::config::Field;

    /// Length of the capability in bytes.
    pub const SIZE: u16 = 0x3c;
    /// Capability Version, which is 2.
    pub const VERSION: Field = Field::new(0x00, 19, 16);
    /// Device/Port Type; see [`PortType`](crate::config::PortType).
    pub const PORT_TYPE: Field = Field::new(0x00, 23, 20);
    /// Slot Implemented.
    pub const SLOT_IMPLEMENTED: Field = Field::bit(0x00, 24);

    /// Max_Payload_Size Supported, Device Capabilities: 128 B shifted left by the value.
    pub const PAYLOAD_SUPPORTED: Field = Field::new(0x04, 2, 0);
    /// Extended Tag Field Supported, Device Capabilities.
    pub const EXTENDED_TAG_SUPPORTED: Field = Field::bit(0x04, 5);
    /// Role-Based Error Reporting, Device Capabilities.
    pub const ROLE_BASED_ERRORS: Field = Field::bit(0x04, 15);
    /// Function Level Reset Capability, Device Capabilities.
    pub const FUNCTION_LEVEL_RESET: Field = Field::bit(0x04, 28);

    /// Correctable Error Reporting Enable, Device Control.
    pub const REPORT_CORRECTABLE: Field = Field::bit(0x08, 0);
    /// Non-Fatal Error Reporting Enable, Device Control.
    pub const REPORT_NON_FATAL: Field = Field::bit(0x08, 1);
    /// Fatal Error Reporting Enable, Device Control.
    pub const REPORT_FATAL: Field = Field::bit(0x08, 2);
    /// Unsupported Request Reporting Enable, Device Control.
    pub const REPORT_UNSUPPORTED: Field = Field::bit(0x08, 3);
    /// Enable Relaxed Ordering, Device Control.
    pub const RELAXED_ORDERING: Field = Field::bit(0x08, 4);
    /// Max_Payload_Size, Device Control: 128 B shifted left by the value.
    pub const PAYLOAD_SIZE: Field = Field::new(0x08, 7, 5);
    /// Extended Tag Field Enable, Device Control.
    pub const EXTENDED_TAG: Field = Field::bit(0x08, 8);
    /// Enable No Snoop, Device Control.
    pub const NO_SNOOP: Field = Field::bit(0x08, 11);
    /// Max_Read_Request_Size, Device Control: 128 B shifted left by the value.
    pub const READ_REQUEST_SIZE: Field = Field::new(0x08, 14, 12);
    /// Initiate Function Level Reset, Device Control of an endpoint.
    pub const INITIATE_RESET: Field = Field::bit(0x08, 15);

    /// Correctable Error Detected, Device Status.
    pub const CORRECTABLE_DETECTED: Field = Field::bit(0x08, 16);
    /// Non-Fatal Error Detected, Device Status.
    pub const NON_FATAL_DETECTED: Field = Field::bit(0x08, 17);
    /// Fatal Error Detected, Device Status.
    pub const FATAL_DETECTED: Field = Field::bit(0x08, 18);
    /// Unsupported Request Detected, Device Status.
    pub const UNSUPPORTED_DETECTED: Field = Field::bit(0x08, 19);
    /// All the error bits of Device Status.
    pub const ERRORS_DETECTED: Field = Field::new(0x08, 19, 16);
    /// Transactions Pending, Device Status.
    pub const TRANSACTIONS_PENDING: Field = Field::bit(0x08, 21);

    /// Max Link Speed, Link Capabilities: 1 is 2.5 GT/s, 4 is 16 GT/s.
    pub const LINK_SPEED_MAX: Field = Field::new(0x0c, 3, 0);
    /// Maximum Link Width, Link Capabilities: number of lanes.
    pub const LINK_WIDTH_MAX: Field = Field::new(0x0c, 9, 4);
    /// Surprise Down Error Reporting Capable, Link Capabilities.
    pub const SURPRISE_DOWN_CAPABLE: Field = Field::bit(0x0c, 19);
    /// Data Link Layer Link Active Reporting Capable, Link Capabilities.
    pub const LINK_ACTIVE_CAPABLE: Field = Field::bit(0x0c, 20);
    /// ASPM Optionality Compliance, Link Capabilities.
    pub const ASPM_OPTIONALITY: Field = Field::bit(0x0c, 22);
    /// Port Number, Link Capabilities.
    pub const PORT_NUMBER: Field = Field::new(0x0c, 31, 24);

    /// Active State Power Management (ASPM) Control, Link Control.
    pub const ASPM_CONTROL: Field = Field::new(0x10, 1, 0);
    /// Read Completion Boundary (RCB), Link Control: 0 is 64 B, 1 is 128 B.
    pub const READ_COMPLETION_BOUNDARY: Field = Field::bit(0x10, 3);
    /// Link Disable, Link Control of a downstream port.
    pub const LINK_DISABLE: Field = Field::bit(0x10, 4);
    /// Common Clock Configuration, Link Control.
    pub const COMMON_CLOCK: Field = Field::bit(0x10, 6);
    /// Extended Synch, Link Control.
    pub const EXTENDED_SYNCH: Field = Field::bit(0x10, 7);
    /// Current Link Speed, Link Status.
    pub const LINK_SPEED: Field = Field::new(0x10, 19, 16);
    /// Negotiated Link Width, Link Status.
    pub const LINK_WIDTH: Field = Field::new(0x10, 25, 20);
    /// Data Link Layer Link Active, Link Status.
    pub const LINK_ACTIVE: Field = Field::bit(0x10, 29);

    /// Hot-Plug Surprise, Slot Capabilities.
    pub const HOT_PLUG_SURPRISE: Field = Field::bit(0x14, 5);
    /// Hot-Plug Capable, Slot Capabilities.
    pub const HOT_PLUG_CAPABLE: Field = Field::bit(0x14, 6);
    /// Slot Power Limit Value, Slot Capabilities.
    pub const SLOT_POWER_LIMIT: Field = Field::new(0x14, 14, 7);
    /// No Command Completed Support, Slot Capabilities.
    pub const NO_COMMAND_COMPLETED: Field = Field::bit(0x14, 18);
    /// Physical Slot Number, Slot Capabilities.
    pub const SLOT_NUMBER: Field = Field::new(0x14, 31, 19);

    /// Presence Detect Changed Enable, Slot Control.
    pub const PRESENCE_CHANGED_ENABLE: Field = Field::bit(0x18, 3);
    /// Hot-Plug Interrupt Enable, Slot Control.
    pub const HOT_PLUG_INTERRUPT_ENABLE: Field = Field::bit(0x18, 5);
    /// Data Link Layer State Changed Enable, Slot Control.
    pub const LINK_STATE_CHANGED_ENABLE: Field = Field::bit(0x18, 12);
    /// Presence Detect Changed, Slot Status.
    pub const PRESENCE_CHANGED: Field = Field::bit(0x18, 19);
    /// Presence Detect State, Slot Status.
    pub const PRESENCE: Field = Field::bit(0x18, 22);
    /// Data Link Layer State Changed, Slot Status.
    pub const LINK_STATE_CHANGED: Field = Field::bit(0x18, 24);

    /// CRS Software Visibility Enable, Root Control.
    pub const CRS_VISIBILITY_ENABLE: Field = Field::bit(0x1c, 4);
    /// CRS Software Visibility, Root Capabilities.
    pub const CRS_VISIBILITY: Field = Field::bit(0x1c, 16);

    /// Completion Timeout Ranges Supported, Device Capabilities 2: bit 0 is A, bit 3 is D.
    pub const TIMEOUT_RANGES: Field = Field::new(0x24, 3, 0);
    /// Completion Timeout Disable Supported, Device Capabilities 2.
    pub const TIMEOUT_DISABLE_SUPPORTED: Field = Field::bit(0x24, 4);
    /// 10-Bit Tag Completer Supported, Device Capabilities 2.
    pub const TEN_BIT_COMPLETER: Field = Field::bit(0x24, 16);
    /// 10-Bit Tag Requester Supported, Device Capabilities 2.
    pub const TEN_BIT_REQUESTER: Field = Field::bit(0x24, 17);
    /// Completion Timeout Value, Device Control 2.
    pub const TIMEOUT_VALUE: Field = Field::new(0x28, 3, 0);
    /// Completion Timeout Disable, Device Control 2.
    pub const TIMEOUT_DISABLE: Field = Field::bit(0x28, 4);
    /// IDO Request Enable, Device Control 2.
    pub const IDO_REQUEST: Field = Field::bit(0x28, 8);
    /// IDO Completion Enable, Device Control 2.
    pub const IDO_COMPLETION: Field = Field::bit(0x28, 9);
    /// 10-Bit Tag Requester Enable, Device Control 2.
    pub const TEN_BIT_ENABLE: Field = Field::bit(0x28, 12);

    /// Supported Link Speeds Vector, Link Capabilities 2: bit 0 is 2.5 GT/s.
    pub const LINK_SPEEDS: Field = Field::new(0x2c, 7, 1);
    /// Target Link Speed, Link Control 2.
    pub const TARGET_SPEED: Field = Field::new(0x30, 3, 0);
}

/// Advanced Error Reporting (AER) extended capability.
pub mod aer {
    use crate::config::Field;

    /// Length of the capability in bytes, without the registers that root ports add.
    pub const SIZE: u16 = 0x48;
    /// Uncorrectable Error Status.
    pub const UNCORRECTABLE_STATUS: Field = Field::dword(0x04);
    /// Uncorrectable Error Mask.
    pub const UNCORRECTABLE_MASK: Field = Field::dword(0x08);
    /// Uncorrectable Error Severity: 1 is fatal.
    pub const UNCORRECTABLE_SEVERITY: Field = Field::dword(0x0c);
    /// Correctable Error Status.
    pub const CORRECTABLE_STATUS: Field = Field::dword(0x10);
    /// Correctable Error Mask.
    pub const CORRECTABLE_MASK: Field = Field::dword(0x14);
    /// First Error Pointer, Advanced Error Capabilities and Control.
    pub const FIRST_ERROR: Field = Field::new(0x18, 4, 0);
    /// Byte offset of Header Log, which holds the header of the first error in four double words.
    pub const HEADER_LOG: u16 = 0x1c;
    /// Bit number of Advisory Non-Fatal Error in the correctable registers.
    pub const ADVISORY_NON_FATAL: u8 = 13;
}
