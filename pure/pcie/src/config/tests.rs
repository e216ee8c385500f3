//! Tests of configuration spaces.

use super::*;
use crate::wire::{Bdf, Packet, Tag};
use proptest::prelude::*;
use std::vec::Vec;

fn identity() -> Identity {
    Identity {
        vendor: 0x1234,
        device: 0x5678,
        revision: 1,
        class: ClassCode::NVME,
        subsystem_vendor: 0x1234,
        subsystem: 1,
    }
}

fn endpoint() -> ConfigSpace {
    Builder::endpoint(identity())
        .bar(BarIndex::ZERO, Bar::memory64(64 << 10))
        .bar(BarIndex::new(2), Bar::memory64(8 << 30).prefetchable())
        .bar(BarIndex::new(4), Bar::memory32(4096))
        .power_management(false)
        .express(PortType::Endpoint, Link::default(), None)
        .msix(BarIndex::ZERO, 65, 0x2000, 0x3000)
        .advanced_error_reporting()
        .serial_number(0x0123_4567_89ab_cdef)
        .build()
}

fn downstream_port() -> ConfigSpace {
    Builder::bridge(identity())
        .power_management(true)
        .msi()
        .express(PortType::Downstream, Link::default(), Some(Slot { number: 3, surprise: true }))
        .advanced_error_reporting()
        .build()
}

/// Walks the capability list as software does.
fn capabilities(space: &ConfigSpace) -> Vec<(u8, u16)> {
    let mut found = Vec::new();
    let mut at = space.get(header::CAPABILITIES);
    while at != 0 && found.len() < 48 {
        let offset = u16::try_from(at).unwrap();
        found.push((u8::try_from(space.get(capability::ID.at(offset))).unwrap(), offset));
        at = space.get(capability::NEXT.at(offset));
    }
    found
}

#[test]
fn the_capability_lists_can_be_walked() {
    let space = endpoint();
    assert!(space.is_set(header::CAPABILITIES_LIST));
    assert_eq!(capabilities(&space), [(0x01, 0x40), (0x10, 0x70), (0x11, 0xb0)]);
    assert_eq!(space.read(0x100), 0x1502_0001);
    assert_eq!(space.read(0x150), 0x0001_0003);
    assert_eq!((space.read(0x154), space.read(0x158)), (0x89ab_cdef, 0x0123_4567));
    assert_eq!(capabilities(&downstream_port()), [(0x01, 0x40), (0x05, 0x50), (0x10, 0x70)]);
    assert_eq!(endpoint().read(0xffc), 0);
}

#[test]
fn bars_are_sized_by_writing_ones() {
    let mut space = endpoint();
    let mut size = |offset: u16| {
        space.write(offset, u32::MAX, 0b1111);
        space.read(offset)
    };
    // PCI Local Bus 3.0, 6.2.5.1: the bits that stay set are the address bits. The type bits are
    // fixed.
    assert_eq!([size(0x10), size(0x14)], [0xffff_0004, 0xffff_ffff]);
    assert_eq!([size(0x18), size(0x1c)], [0x0000_000c, 0xffff_fffe]);
    assert_eq!([size(0x20), size(0x24)], [0xffff_f000, 0]);
    space.write(0x10, 0xfeb1_2345, 0b1111);
    space.write(0x14, 0x1, 0b1111);
    let bar = Bar::memory64(64 << 10);
    assert_eq!(bar.window(&space, BarIndex::ZERO), Window { base: 0x1_feb1_0000, last: 0x1_feb1_ffff });
}

#[test]
fn status_is_cleared_by_ones_and_only_in_the_bytes_that_are_enabled() {
    let mut space = endpoint();
    space.set(header::RECEIVED_MASTER_ABORT, 1);
    space.set(header::DETECTED_PARITY_ERROR, 1);
    space.write(0x04, u32::MAX, 0b0011);
    assert!(space.is_set(header::RECEIVED_MASTER_ABORT) && space.is_set(header::MEMORY_SPACE));
    space.write(0x04, 1 << 29, 0b1100);
    assert!(!space.is_set(header::RECEIVED_MASTER_ABORT));
    assert!(space.is_set(header::DETECTED_PARITY_ERROR) && space.is_set(header::MEMORY_SPACE));
}

#[test]
fn a_function_level_reset_keeps_link_registers_and_a_hot_reset_sticky_ones() {
    let at = |field: Field| field.at(offset::EXPRESS);
    let mut space = endpoint();
    space.write(0x10, 0xfeb0_0000, 0b1111);
    space.write(0x78, 0x5000 | 5 << 5, 0b0011);
    space.set(Field::bit(0x104, 20), 1);
    let configured = space.clone();
    space.reset(Reset::FunctionLevel);
    assert_eq!((space.payload_size(), space.read_request_size()), (4096, 512));
    assert_eq!(space.read(0x10), 4);
    assert!(space.is_set(Field::bit(0x104, 20)));
    space = configured;
    space.reset(Reset::Hot);
    assert_eq!((space.payload_size(), space.get(at(express::PAYLOAD_SIZE))), (128, 0));
    assert!(space.is_set(Field::bit(0x104, 20)));
}

#[test]
fn unsupported_power_states_are_ignored() {
    let mut space = endpoint();
    space.write(0x44, 3, 0b0001);
    assert!(!space.in_d0() && !space.memory_enabled());
    space.write(0x44, 2, 0b0001);
    assert_eq!(space.get(power::STATE.at(offset::POWER)), power::D3_HOT);
    space.write(0x44, 0, 0b0001);
    assert!(space.in_d0());
}

#[test]
fn errors_are_logged_and_reported_as_the_enable_bits_say() {
    let blamed = Packet::memory_read(Bdf::new(1, 2, 3), Tag::new(4), 0x1000, 4);
    let log = Some(&blamed.header);
    let error = FunctionError::UnsupportedRequest;
    let mut space = endpoint();
    assert_eq!(report_error(&mut space, error, true, log), None);
    assert!(space.is_set(express::CORRECTABLE_DETECTED.at(offset::EXPRESS)));
    assert!(space.is_set(express::UNSUPPORTED_DETECTED.at(offset::EXPRESS)));
    assert_eq!(space.read(0x104), 0, "an advisory error is masked after reset");
    assert_eq!(report_error(&mut space, error, false, log), None);
    assert_eq!(space.read(0x104), 1 << 20);
    assert_eq!(
        [space.get(aer::FIRST_ERROR.at(0x100)), space.read(0x11c), space.read(0x124)],
        [20, 1, 0x1000]
    );
    space.write(0x78, 0b1111, 0b0001);
    assert_eq!(report_error(&mut space, error, false, None), Some(ErrorMessage::NonFatal));
    assert_eq!(space.read(0x11c), 1, "the first error's header stays");
    space.write(0x10c, u32::MAX, 0b1111);
    assert_eq!(report_error(&mut space, error, true, None), Some(ErrorMessage::Fatal));
    space.write(0x108, u32::MAX, 0b1111);
    assert_eq!(report_error(&mut space, error, false, None), None);
    space.write(0x114, 0, 0b1111);
    space.write(0x10c, 0, 0b1111);
    assert_eq!(report_error(&mut space, error, true, None), Some(ErrorMessage::Correctable));
}

proptest! {
    #[test]
    fn random_writes_never_change_read_only_bits(
        bridge: bool,
        writes in prop::collection::vec((0_u16..1024, any::<u32>(), 0_u8..16), 1..200),
    ) {
        let fresh = if bridge { downstream_port() } else { endpoint() };
        let mut space = fresh.clone();
        for (dword, value, enables) in writes {
            let offset = dword % 96 * 4;
            let before = space.read(offset);
            space.write(offset, value, enables);
            let changed = space.read(offset) ^ before;
            for bit in 0..32 {
                let field = Field::bit(offset, bit);
                prop_assert!(!field.is_set(changed) || fresh.is_writable(field), "{offset:#x} bit {bit}");
            }
        }
        // The read-only registers that identify the function, according to the specification.
        for read_only in [0x00, 0x08, 0x34, 0x74, 0x7c, 0x94, 0x100] {
            prop_assert_eq!(space.read(read_only), fresh.read(read_only));
        }
        space.reset(Reset::Hot);
        prop_assert!(space.in_d0() && !space.memory_enabled());
    }
}
