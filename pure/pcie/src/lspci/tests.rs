use std::boxed::Box;
use std::vec;

use super::*;
use crate::config::{ClassCode, ids};
use crate::root_complex::{Slot, Topology, Window};
use crate::wire::Bdf;

fn ssd(bus: u8) -> Function {
    Function {
        bdf: Bdf::new(bus, 0, 0),
        vendor: 0x144d,
        device: 0xa808,
        class: ClassCode::NVME,
        subsystem_vendor: 0x144d,
        subsystem: 0xa801,
        bars: vec![
            BarRegister {
                index: 0,
                space: Space::Memory64,
                prefetchable: false,
                size: 0x4000,
                address: Some(0xfe80_0000),
            },
            BarRegister { index: 2, space: Space::Io, prefetchable: false, size: 256, address: None },
        ],
        capabilities: vec![
            Capability { id: CapabilityId::Standard(0x01), offset: 0x40, version: 3 },
            Capability { id: CapabilityId::Standard(0x10), offset: 0x70, version: 0 },
            Capability { id: CapabilityId::Extended(0x0001), offset: 0x100, version: 2 },
            Capability { id: CapabilityId::Extended(0x0003), offset: 0x148, version: 1 },
        ],
        express: Some(Express {
            offset: 0x70,
            payload_size: 256,
            read_request_size: 512,
            extended_tags: true,
            link_speed: 3,
            link_width: 4,
            ..Express::default()
        }),
        serial_number: Some(0x0025_3800_0000_0001),
        enabled: true,
        ..Function::default()
    }
}

fn bridge(bdf: Bdf, secondary: u8, subordinate: u8, children: Vec<Function>) -> Function {
    let memory = Some(Window { first: 0xfe80_0000, last: 0xfe8f_ffff });
    let bridge = Bridge {
        primary: bdf.bus(),
        secondary,
        subordinate,
        prefetchable_64: true,
        memory,
        prefetchable: None,
    };
    Function {
        bdf,
        class: ClassCode::PCI_BRIDGE,
        layout: 1,
        bridge: Some(bridge),
        children,
        ..Function::default()
    }
}

use alloc::vec::Vec;

fn topology() -> Topology {
    let ports = vec![
        bridge(Bdf::new(2, 0, 0), 3, 3, vec![ssd(3)]),
        bridge(Bdf::new(2, 1, 0), 4, 7, vec![]),
        bridge(Bdf::new(2, 2, 0), 8, 8, vec![ssd(8), Function { bdf: Bdf::new(8, 0, 1), ..ssd(8) }]),
    ];
    let mut upstream = bridge(Bdf::new(1, 0, 0), 2, 8, ports);
    (upstream.vendor, upstream.device, upstream.revision) = (0x10b5, 0x8747, 0xca);
    let mut root = bridge(Bdf::new(0, 0, 0), 1, 8, vec![upstream]);
    root.express = Some(Express {
        payload_size: 4096,
        read_request_size: 4096,
        ten_bit_tags: true,
        slot: Some(Slot { number: 0, hot_plug: true, surprise: true, present: true }),
        ..Express::default()
    });
    Topology { root: Box::new(root), faults: vec![] }
}

#[test]
fn plain_lines_are_lspcis() {
    let text = plain(&topology());
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "00:00.0 PCI bridge: Farlane Root Port");
    assert_eq!(lines[1], "01:00.0 PCI bridge: PLX Technology, Inc. Device 8747 (rev ca)");
    let ssd =
        "Non-Volatile memory controller: Samsung Electronics Co Ltd NVMe SSD Controller SM981/PM981/PM983";
    assert_eq!(lines[3], format!("03:00.0 {ssd}"));
    assert_eq!(lines.len(), 8);
}

#[test]
fn the_tree_has_its_branches_in_line() {
    let text = tree(&topology(), false);
    let expected = r"-[0000:00]---00.0-[01-08]----00.0-[02-08]--+-00.0-[03]----00.0
                                           +-01.0-[04-07]--
                                           \-02.0-[08]--+-00.0
                                                        \-00.1
";
    assert_eq!(text, expected);
}

#[test]
fn the_tree_names_devices_when_asked() {
    let text = tree(&topology(), true);
    let end = "--00.0  Samsung Electronics Co Ltd NVMe SSD Controller SM981/PM981/PM983";
    assert!(text.lines().next().is_some_and(|line| line.ends_with(end)), "{text}");
}

#[test]
fn verbose_text_has_addresses_links_and_capabilities() {
    let text = verbose(&Topology { root: Box::new(ssd(1)), faults: vec![] });
    let expected = "\
01:00.0 Non-Volatile memory controller: Samsung Electronics Co Ltd NVMe SSD Controller SM981/PM981/PM983 (prog-if 02 [NVM Express])
\tSubsystem: Samsung Electronics Co Ltd Device a801
\tFlags: bus master, fast devsel, latency 0
\tMemory at fe800000 (64-bit, non-prefetchable) [size=16K]
\tI/O ports at <unassigned> [disabled] [size=256]
\tCapabilities: [40] Power Management version 3
\tCapabilities: [70] Express Endpoint
\t\tDevCtl: MaxPayload 256 bytes, MaxReadReq 512 bytes, 8-bit tags
\t\tLnkSta: Speed 8GT/s, Width x4
\tCapabilities: [100] Advanced Error Reporting
\tCapabilities: [148] Device Serial Number 00-25-38-00-00-00-00-01

";
    assert_eq!(text, expected);
}

#[test]
fn verbose_text_has_the_ranges_that_a_bridge_forwards() {
    let mut root = topology().root;
    root.children.clear();
    let text = verbose(&Topology { root, faults: vec![] });
    let expected = "\
00:00.0 PCI bridge: Farlane Root Port (prog-if 00 [Normal decode])
\tFlags: fast devsel, latency 0
\tBus: primary=00, secondary=01, subordinate=08, sec-latency=0
\tI/O behind bridge: [disabled] [32-bit]
\tMemory behind bridge: fe800000-fe8fffff [size=1M] [32-bit]
\tPrefetchable memory behind bridge: [disabled] [64-bit]
\t\tDevCtl: MaxPayload 4096 bytes, MaxReadReq 4096 bytes, 10-bit tags
\t\tSltCap: Slot #0, HotPlug+ Surprise+
\t\tSltSta: PresDet+

";
    assert_eq!(text, expected);
}

#[test]
fn functions_of_our_own_have_names() {
    let named = |device| product(&Function { vendor: ids::VENDOR, device, ..Function::default() });
    assert_eq!(named(ids::NVME_CONTROLLER), "Farlane NVMe Controller");
    assert_eq!(named(ids::SWITCH_UPSTREAM_PORT), "Farlane Switch Upstream Port");
    assert_eq!(named(ids::SWITCH_DOWNSTREAM_PORT), "Farlane Switch Downstream Port");
    assert_eq!(named(0xffff), "Farlane Device ffff");
    assert_eq!(
        (class_name(ClassCode::NVME), vendor_name(0x1234)),
        (Some("Non-Volatile memory controller"), None)
    );
    assert_eq!(capability_name(CapabilityId::Standard(0x01)), Some("Power Management"));
    assert_eq!(capability_name(CapabilityId::Extended(0xffff)), None);
}
