//! The PCI identifiers of Farlane's own functions, for the code that builds them and the code that
//! names them.

/// Vendor ID and Subsystem Vendor ID of all of Farlane's functions.
///
/// When this value was chosen, the PCI-SIG had not assigned it, and it is not assigned to Farlane
/// either. The vendor ID of another emulated device would trigger that device's quirks in the
/// drivers of operating systems.
pub const VENDOR: u16 = 0xfa1a;
/// Device ID of the switch's upstream port.
pub const SWITCH_UPSTREAM_PORT: u16 = 0x0001;
/// Device ID of the switch's downstream ports.
pub const SWITCH_DOWNSTREAM_PORT: u16 = 0x0002;
/// Device ID and Subsystem ID of the NVMe controller.
pub const NVME_CONTROLLER: u16 = 0x0010;
/// Device ID and Subsystem ID of the function that controls a recorder.
pub const RECORDER: u16 = 0x0020;
/// Device ID and Subsystem ID of the low-latency network card.
pub const LOW_LATENCY_NIC: u16 = 0x0030;
