//! Names of the classes, vendors and capabilities that are likely to appear.

use crate::config::{ClassCode, ids};

/// Names by class and subclass.
const CLASSES: [(u16, &str); 30] = [
    (0x0000, "Non-VGA unclassified device"),
    (0x0100, "SCSI storage controller"),
    (0x0101, "IDE interface"),
    (0x0104, "RAID bus controller"),
    (0x0106, "SATA controller"),
    (0x0107, "Serial Attached SCSI controller"),
    (0x0108, "Non-Volatile memory controller"),
    (0x0180, "Mass storage controller"),
    (0x0200, "Ethernet controller"),
    (0x0207, "Infiniband controller"),
    (0x0280, "Network controller"),
    (0x0300, "VGA compatible controller"),
    (0x0302, "3D controller"),
    (0x0380, "Display controller"),
    (0x0403, "Audio device"),
    (0x0480, "Multimedia controller"),
    (0x0500, "RAM memory"),
    (0x0580, "Memory controller"),
    (0x0600, "Host bridge"),
    (0x0601, "ISA bridge"),
    (0x0604, "PCI bridge"),
    (0x0680, "Bridge"),
    (0x0700, "Serial controller"),
    (0x0780, "Communication controller"),
    (0x0880, "System peripheral"),
    (0x0c03, "USB controller"),
    (0x0c05, "SMBus"),
    (0x1000, "Network and computing encryption device"),
    (0x1180, "Signal processing controller"),
    (0x1200, "Processing accelerators"),
];

/// Names by base class, for subclasses that are not listed.
const BASE_CLASSES: [(u8, &str); 14] = [
    (0x00, "Unclassified device"),
    (0x01, "Mass storage controller"),
    (0x02, "Network controller"),
    (0x03, "Display controller"),
    (0x04, "Multimedia controller"),
    (0x05, "Memory controller"),
    (0x06, "Bridge"),
    (0x07, "Communication controller"),
    (0x08, "Generic system peripheral"),
    (0x0c, "Serial bus controller"),
    (0x0d, "Wireless controller"),
    (0x11, "Signal processing controller"),
    (0x12, "Processing accelerators"),
    (0x13, "Non-Essential Instrumentation"),
];

/// Names by class, subclass and programming interface.
const INTERFACES: [(ClassCode, &str); 4] = [
    (ClassCode(0x01_0601), "AHCI 1.0"),
    (ClassCode::NVME, "NVM Express"),
    (ClassCode::PCI_BRIDGE, "Normal decode"),
    (ClassCode(0x0c_0330), "XHCI"),
];

const VENDORS: [(u16, &str); 18] = [
    (0x1000, "Broadcom / LSI"),
    (0x1022, "Advanced Micro Devices, Inc. [AMD]"),
    (0x10b5, "PLX Technology, Inc."),
    (0x10de, "NVIDIA Corporation"),
    (0x10ec, "Realtek Semiconductor Co., Ltd."),
    (0x10ee, "Xilinx Corporation"),
    (0x1179, "Toshiba Corporation"),
    (0x11f8, "Microsemi"),
    (0x126f, "Silicon Motion, Inc."),
    (0x1344, "Micron Technology Inc"),
    (0x144d, "Samsung Electronics Co Ltd"),
    (0x14e4, "Broadcom Inc."),
    (0x15b3, "Mellanox Technologies"),
    (0x15b7, "Sandisk Corp"),
    (0x1af4, "Red Hat, Inc."),
    (0x1b36, "Red Hat, Inc."),
    (0x8086, "Intel Corporation"),
    (ids::VENDOR, "Farlane"),
];

const DEVICES: [((u16, u16), &str); 8] = [
    ((0x1b36, 0x000c), "QEMU PCIe Root port"),
    ((0x1b36, 0x0010), "QEMU NVM Express Controller"),
    ((0x144d, 0xa808), "NVMe SSD Controller SM981/PM981/PM983"),
    ((ids::VENDOR, ids::SWITCH_UPSTREAM_PORT), "Switch Upstream Port"),
    ((ids::VENDOR, ids::SWITCH_DOWNSTREAM_PORT), "Switch Downstream Port"),
    ((ids::VENDOR, ids::NVME_CONTROLLER), "NVMe Controller"),
    ((ids::VENDOR, ids::RECORDER), "Stream Recorder"),
    ((ids::VENDOR, ids::LOW_LATENCY_NIC), "Low-Latency Network Card"),
];

const STANDARD: [(u8, &str); 7] = [
    (0x03, "Vital Product Data"),
    (0x05, "MSI"),
    (0x09, "Vendor Specific Information"),
    (0x0d, "Subsystem"),
    (0x10, "Express"),
    (0x11, "MSI-X"),
    (0x12, "SATA HBA"),
];

const EXTENDED: [(u16, &str); 15] = [
    (0x0001, "Advanced Error Reporting"),
    (0x0002, "Virtual Channel"),
    (0x0003, "Device Serial Number"),
    (0x0004, "Power Budgeting"),
    (0x000b, "Vendor Specific Information"),
    (0x000d, "Access Control Services"),
    (0x000e, "Alternative Routing-ID Interpretation (ARI)"),
    (0x000f, "Address Translation Service (ATS)"),
    (0x0010, "Single Root I/O Virtualization (SR-IOV)"),
    (0x0018, "Latency Tolerance Reporting"),
    (0x0019, "Secondary PCI Express"),
    (0x001e, "L1 PM Substates"),
    (0x001f, "Precision Time Measurement"),
    (0x0025, "Data Link Feature"),
    (0x0026, "Physical Layer 16.0 GT/s"),
];

fn look_up<K: Copy + PartialEq>(table: &[(K, &'static str)], key: K) -> Option<&'static str> {
    table.iter().find(|(known, _)| *known == key).map(|(_, name)| *name)
}

/// The name of a class code's class and subclass, or else of its base class.
pub(super) fn class(code: ClassCode) -> Option<&'static str> {
    look_up(&CLASSES, code.subclass()).or_else(|| look_up(&BASE_CLASSES, code.base()))
}

/// The name of a class code's programming interface.
pub(super) fn interface(code: ClassCode) -> Option<&'static str> {
    look_up(&INTERFACES, code)
}

pub(super) fn vendor(id: u16) -> Option<&'static str> {
    look_up(&VENDORS, id)
}

pub(super) fn device(vendor: u16, device: u16) -> Option<&'static str> {
    look_up(&DEVICES, (vendor, device))
}

/// The name of a capability in the first 256 bytes.
pub(super) fn standard(id: u8) -> Option<&'static str> {
    look_up(&STANDARD, id)
}

/// The name of an extended capability.
pub(super) fn extended(id: u16) -> Option<&'static str> {
    look_up(&EXTENDED, id)
}
