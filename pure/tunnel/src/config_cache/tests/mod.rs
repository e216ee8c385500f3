mod patience;

use std::vec::Vec;

use engine::{Buffer, Nanos};
use pcie::wire::{Bdf, CompletionStatus, ConfigRequest, ConfigType, Header, Tag};
use proptest::prelude::{any, prop, proptest};

use super::steady::Steady;
use super::*;
use crate::frame::{Register, RegisterSpace, Role};
use crate::test_bench::{Pair, config};

const HOST: Bdf = Bdf::new(0, 0, 0);
const DEVICE: Bdf = Bdf::new(5, 0, 0);

fn constant(value: u32) -> Register {
    Register { value, writable: 0 }
}

/// The configuration space of an endpoint with these double words. Other double words of the header
/// are zero.
fn space(dwords: &[(u16, u32)]) -> Vec<Register> {
    let end = dwords.iter().map(|(offset, _)| usize::from(offset / 4) + 1).max().unwrap_or(0).max(16);
    let mut space = std::vec![constant(0); end];
    for (offset, value) in dwords {
        space[usize::from(offset / 4)].value = *value;
    }
    space
}

fn steady(dwords: &[(u16, u32)]) -> Steady {
    Steady::of(&space(dwords).into_iter().map(Some).collect::<Vec<_>>())
}

fn shown(registers: Vec<Register>) -> Registers {
    Registers { function: 0, space: RegisterSpace::Configuration, offset: 0, registers }
}

fn request(tag: u16, offset: u16, write: Option<u32>) -> Packet {
    let (requester, tag, routing) = (HOST, Tag::new(tag), ConfigType::Type0);
    let request = ConfigRequest {
        write: write.is_some(),
        routing,
        requester,
        tag,
        enables: 0xf,
        target: DEVICE,
        offset,
    };
    let payload = write.map_or(Buffer::EMPTY, |value| Buffer::copy_from_slice(&value.to_le_bytes()));
    Packet::new(Header::new(Kind::Config(request), 1), payload)
}

fn read(cache: &mut ConfigCache, offset: u16) -> Option<u32> {
    let answer = cache.answer(0, &request(1, offset, None), || true)?;
    Some(u32::from_le_bytes(*answer.payload.first_chunk().unwrap()))
}

#[test]
fn what_the_device_changes_by_itself_is_its_own() {
    let list = [(0x04, 1 << 20), (0x34, 0x40), (0x40, 0x0000_5001), (0x50, 0x0002_7010), (0x70, 0x0003)];
    let found = steady(&[&list[..], &[(0x74, 0), (0x8c, 0), (0x100, 0x1401_0001), (0x148, 0)]].concat());
    let at = |offset: u16| found.bytes[usize::from(offset / 4)];
    assert_eq!([0x00, 0x04, 0x08, 0x0c, 0x10, 0x30, 0x3c].map(at), [15, 3, 15, 15, 15, 15, 15]);
    // Power management: capabilities, and the state. PCI Express: Device, Link, and registers for
    // slots.
    assert_eq!([0x40, 0x44].map(at), [15, 0]);
    assert_eq!([0x50, 0x54, 0x58, 0x5c, 0x60, 0x64, 0x68].map(at), [15, 15, 3, 15, 3, 0, 0]);
    // Vital product data: its list is fixed, its other registers are not.
    assert_eq!([0x70, 0x74].map(at), [3, 15], "the express capability of version 2 is where it is");
    // AER: header, status, mask, severity, log.
    assert_eq!(
        [0x100, 0x104, 0x108, 0x10c, 0x110, 0x114, 0x118, 0x11c].map(at),
        [15, 0, 15, 15, 0, 15, 0, 0]
    );
    assert_eq!((found.express, found.power), (Some(0x50), Some(0x40)));
}

#[test]
fn a_self_test_and_other_kinds_of_functions_are_left_alone() {
    assert_eq!(steady(&[(0x0c, 1 << 31)]).bytes[3], 0b0111);
    assert!(steady(&[(0x0c, 1 << 16)]).bytes.iter().all(|bytes| *bytes == 0));
}

#[test]
fn both_layouts_of_msi_leave_the_pending_bits_to_the_device() {
    for (control, pending) in [(0, 0x0c), (1 << 23, 0x10), (1 << 24, 0x10), (0b11 << 23, 0x14)] {
        let found = steady(&[(0x34, 0x40), (0x40, 0x05 | control), (0x7c, 0)]);
        let at = |offset: u16| found.bytes[usize::from(offset / 4)];
        assert_eq!([0x40, 0x40 + pending - 4, 0x40 + pending].map(at), [15, 15, 0], "{control:#x}");
    }
}

#[test]
fn lists_in_circles_end() {
    let found = steady(&[(0x34, 0x40), (0x40, 0x0000_4009), (0x100, 0x1000_000b)]);
    assert_eq!(found.bytes[0x10], 0b0011);
}

#[test]
fn a_write_that_fails_or_is_never_answered_leaves_its_register_to_the_device() {
    let mut cache = ConfigCache::new(&[true]);
    let mut registers = space(&[]);
    registers[4] = Register { value: 0, writable: !0xfff };
    registers[5] = Register { value: 0, writable: !0xfff };
    cache.on_registers(0, shown(registers));
    assert_eq!((read(&mut cache, 0x10), read(&mut cache, 0x14)), (Some(0), Some(0)));
    let write = request(2, 0x10, Some(0x1234_5678));
    assert!(cache.answer(0, &write, || true).is_none());
    assert_eq!(read(&mut cache, 0x14), None, "from the first write on it answers in this name");
    cache.on_answer(0, &Packet::completion(DEVICE, CompletionStatus::Success, &write.header));
    assert!(cache.answer(0, &write, || true).is_none());
    assert_eq!((read(&mut cache, 0x10), read(&mut cache, 0x14)), (None, Some(0)));
    cache.on_answer(0, &Packet::completion(DEVICE, CompletionStatus::Success, &write.header));
    assert_eq!(read(&mut cache, 0x10), Some(0x1234_5000));
    let _ = cache.answer(0, &write, || true);
    cache.on_answer(0, &Packet::completion(DEVICE, CompletionStatus::ConfigRequestRetry, &write.header));
    assert_eq!(read(&mut cache, 0x10), Some(0x1234_5000));
    let _ = cache.answer(0, &write, || true);
    cache.on_answer(0, &Packet::completion(DEVICE, CompletionStatus::UnsupportedRequest, &write.header));
    assert_eq!((read(&mut cache, 0x10), read(&mut cache, 0x14)), (None, Some(0)));
    // The name of a pending write is used again.
    let _ = cache.answer(0, &request(1, 0x14, Some(0)), || true);
    assert_eq!((read(&mut cache, 0x14), read(&mut cache, 0)), (None, Some(0)));
}

#[test]
fn a_write_to_what_is_not_known_may_change_anything_until_it_is_done() {
    let mut cache = ConfigCache::new(&[true]);
    cache.on_registers(0, shown(space(&[])));
    let write = request(2, 0x48, Some(1));
    let _ = cache.answer(0, &write, || true);
    assert_eq!(read(&mut cache, 0), None);
    cache.on_answer(0, &Packet::completion(DEVICE, CompletionStatus::Success, &write.header));
    assert_eq!(read(&mut cache, 0), Some(0));
    for tag in 2..=66 {
        let _ = cache.answer(0, &request(tag, 0x10, Some(1)), || true);
    }
    assert_eq!(read(&mut cache, 0), None, "too many writes are under way");
}

#[test]
fn what_may_not_have_arrived_is_pushed_by_a_read() {
    let mut cache = ConfigCache::new(&[true]);
    cache.on_registers(0, shown(space(&[])));
    assert!(cache.answer(0, &request(1, 0, None), || false).is_none());
    assert_eq!((cache.statistics().reads_near, cache.statistics().reads_far), (0, 1));
}

#[test]
fn registers_are_shown_to_who_asks_and_survive_a_cut() {
    let host = crate::session::Config { config_cache: true, ..config("host", 1) };
    for (host, expected) in [(host, "up box,registers"), (config("host", 1), "up box")] {
        let mut pair = Pair::new(host, config("box", 2), 3);
        pair.run_for(Nanos::from_millis(100));
        pair.down.session.show(shown(space(&[])));
        // Registers that are lost with the connection are sent again.
        pair.settle(Role::Downstream);
        pair.cut();
        pair.run_for(Nanos::from_secs(1));
        let mut events = pair.up.events.clone();
        events.retain(|event| !matches!(event.as_str(), "interrupted" | "resumed"));
        assert_eq!(events.join(","), expected);
    }
}

proptest! {
    #[test]
    fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        super::fuzz::config_cache(&bytes);
        // A space of random bytes, with every kind of access to it.
        let mut steps = std::vec![0, 0];
        let body: Vec<u8> = [0, 0, 0, 0].into_iter().chain(bytes.iter().copied().take(240)).collect();
        let body = &body[..body.len() - (body.len() - 4) % 8];
        steps[1] = u8::try_from(body.len()).unwrap();
        steps.extend_from_slice(body);
        for offset in (0..=255).step_by(4) {
            steps.extend_from_slice(&[2, 3, 0xf, 0, offset]);
        }
        super::fuzz::config_cache(&steps);
    }
}
