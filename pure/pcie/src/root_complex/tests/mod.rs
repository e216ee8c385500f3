mod fake;
mod hierarchy;
mod retry;

use std::vec;
use std::vec::Vec;

use super::*;
use crate::config::{ClassCode, bridge, express, header};
use crate::requester::RequestError;
use crate::wire::Kind;
use crate::wire::Tag;
use fake::{EXPRESS, World, ssd, switch};

const DEVICE: Bdf = Bdf::new(1, 0, 0);
const NOW: Instant = Instant::ZERO;

fn outputs(root: &mut RootComplex) -> Vec<Output> {
    core::iter::from_fn(|| root.poll_output()).collect()
}

fn input(root: &mut RootComplex, packet: Packet) -> Vec<Output> {
    root.handle_input(NOW, Input::Packet(packet));
    outputs(root)
}

#[test]
fn a_lone_device_gets_addresses_sizes_and_tags() {
    let mut world = World::new(Some(ssd(4096)));
    let topology = world.enumerate();
    assert_eq!(topology.faults, []);
    assert_eq!(topology.payload_size(), 4096);
    let device = topology.find(DEVICE).unwrap();
    assert_eq!((device.vendor, device.device, device.class), (0x1b36, 0x0010, ClassCode::NVME));
    let bars: Vec<_> = device.bars.iter().map(|bar| (bar.index, bar.size, bar.address)).collect();
    let expected =
        [(0, 0x4000, Some(0xc000_0000)), (2, 1 << 30, Some(0x40_0000_0000)), (4, 0x100, Some(0xc000_4000))];
    assert_eq!(bars, expected);
    assert_eq!(device.serial_number, Some(0x0011_2233_4455_6677));
    let msix = device.msix.unwrap();
    assert_eq!(
        (msix.vectors, msix.table_bar, msix.table_offset, msix.pending_offset),
        (33, 0, 0x2000, 0x3000)
    );
    let space = &world.below.unwrap().space;
    assert_eq!((space.payload_size(), space.read_request_size()), (4096, 4096));
    assert!(space.memory_enabled() && space.bus_master());
    assert!(space.is_set(express::TEN_BIT_ENABLE.at(EXPRESS)));
    let timeout = space.get(express::TIMEOUT_VALUE.at(EXPRESS));
    assert_eq!(timeout, u32::from(CompletionTimeout::C2.code()));
    assert_eq!(space.read(header::BAR0), 0xc000_0004);
}

#[test]
fn a_switch_gets_buses_and_windows_for_everything_below() {
    let mut world = World::new(Some(switch(vec![vec![ssd(4096)], vec![], vec![ssd(256)]])));
    let topology = world.enumerate();
    assert_eq!(topology.faults, []);
    let places: Vec<_> = topology.functions().map(|function| function.bdf).collect();
    let expected = [(0, 0), (1, 0), (2, 0), (3, 0), (2, 1), (2, 2), (11, 0)];
    assert_eq!(places, expected.map(|(bus, device)| Bdf::new(bus, device, 0)));
    let up = topology.find(Bdf::new(1, 0, 0)).unwrap().bridge.unwrap();
    assert_eq!((up.primary, up.secondary, up.subordinate), (1, 2, 14));
    for function in topology.functions() {
        let Some(bridge) = function.bridge else { continue };
        let memory = bridge.memory.unwrap();
        assert!(memory.first.is_multiple_of(1 << 20) && memory.size().is_multiple_of(1 << 20));
        for child in &function.children {
            let windows = [bridge.memory.unwrap(), bridge.prefetchable.unwrap()];
            let inside = |first: u64, last: u64| windows.iter().any(|w| w.first <= first && last <= w.last);
            for bar in &child.bars {
                let first = bar.address.unwrap();
                assert!(inside(first, first + bar.size - 1) && first.is_multiple_of(bar.size));
            }
            for window in child.bridge.iter().flat_map(|b| [b.memory, b.prefetchable]).flatten() {
                assert!(inside(window.first, window.last));
            }
        }
    }
    let below = world.below.unwrap();
    let written = &below.children[0].space;
    let port = topology.find(Bdf::new(2, 0, 0)).unwrap().bridge.unwrap();
    let memory = port.memory.unwrap();
    assert_eq!(u64::from(written.get(bridge::MEMORY_BASE)) << 20, memory.first);
    assert_eq!((u64::from(written.get(bridge::MEMORY_LIMIT)) << 20) | 0xf_ffff, memory.last);
    assert_eq!(written.get(bridge::PREFETCHABLE_BASE_UPPER), 0x40);
    // The device that accepts payloads of 256 B requests no more, so that no completion is larger.
    let [large, small] = [&below.children[0].children[0].space, &below.children[2].children[0].space];
    assert_eq!((large.payload_size(), large.read_request_size()), (4096, 4096));
    assert_eq!((small.payload_size(), small.read_request_size()), (256, 256));
    assert_eq!(topology.payload_size(), 256);
}

#[test]
fn hot_plug_enumerates_one_port_and_leaves_the_rest() {
    let mut world = World::new(Some(switch(vec![vec![ssd(4096)], vec![]])));
    let before = world.enumerate();
    let port = Bdf::new(2, 1, 0);
    world.below.as_mut().unwrap().children[1].children.push(ssd(512));
    world.root.enumerate_below(world.now, before.clone(), port, Plan::default());
    let after = world.run().unwrap();
    assert_eq!(after.find(Bdf::new(2, 0, 0)), before.find(Bdf::new(2, 0, 0)));
    let new = &after.find(port).unwrap().children[0];
    let window = after.find(port).unwrap().bridge.unwrap().memory.unwrap();
    let first = new.bar(0).unwrap().address.unwrap();
    assert!(window.first <= first && first + 0x3fff <= window.last);
    // A gigabyte does not fit into the window reserved for hot-plug.
    assert_eq!(after.faults, [(new.bdf, Fault::NoSpace { index: Some(2), size: 1 << 30 })]);
    world.below.as_mut().unwrap().children[1].children.clear();
    world.root.enumerate_below(world.now, after, port, Plan::default());
    assert_eq!(world.run().unwrap(), before);
    world.root.enumerate_below(world.now, before, Bdf::new(9, 0, 0), Plan::default());
    assert_eq!(world.run(), Err(EnumerationError::NoSuchPort(Bdf::new(9, 0, 0))));
}

#[test]
fn patience_has_a_deadline() {
    let mut slow = ssd(4096);
    slow.retries = 5;
    let mut world = World::new(Some(slow));
    assert!(world.enumerate().find(DEVICE).is_some());
    assert!(world.now > NOW);
    let mut never = ssd(4096);
    never.retries = u32::MAX;
    let mut world = World::new(Some(never));
    let topology = world.enumerate();
    assert_eq!(topology.faults, [(DEVICE, Fault::NotReady)]);
    assert!(world.now - NOW < RETRY_DEADLINE + Nanos::from_secs(1));
}

#[test]
fn absent_and_silent_devices_leave_an_empty_tree() {
    assert_eq!(World::new(None).enumerate().functions().count(), 1);
    let mut silent = ssd(4096);
    silent.silent = true;
    let topology = World::new(Some(silent)).enumerate();
    let fault = Fault::Register { offset: 0, error: RequestError::Timeout };
    assert_eq!(topology.faults, [(DEVICE, fault)]);
}

#[test]
fn broken_devices_neither_hang_nor_hide_the_others() {
    let cases: [(&[(u16, u32)], usize); 8] = [
        // BARs with invalid sizes, and a 64-bit BAR without an upper half.
        (&[(0x10, 0x1234_5670)], 1),
        (&[(0x20, 0xffff_0000), (0x24, 0xffff_0004)], 1),
        (&[(0x18, 0x0000_000c), (0x1c, 0x8000_0000)], 1),
        // Capability lists that loop, leave their space, or point into the header.
        (&[(0x40, 0x0000_4001)], 1),
        (&[(0x34, 0x20)], 1),
        (&[(0x100, 0x1001_0001)], 1),
        (&[(0x100, 0x0041_0001)], 1),
        (&[(0x34, 0xfc), (0xfc, 0x0000_0010)], 1),
    ];
    for (stuck, faults) in cases {
        let mut broken = ssd(4096);
        broken.stuck = stuck.to_vec();
        let mut world = World::new(Some(switch(vec![vec![broken], vec![ssd(4096)]])));
        let topology = world.enumerate();
        assert_eq!(topology.faults.len(), faults, "{stuck:x?}: {:x?}", topology.faults);
        assert!(topology.faults.iter().all(|(bdf, _)| *bdf == Bdf::new(3, 0, 0)), "{stuck:x?}");
        let other = topology.find(Bdf::new(7, 0, 0)).unwrap();
        assert!(other.bars.iter().all(|bar| bar.address.is_some()));
    }
}

#[test]
fn random_registers_never_hang() {
    let mut rng = engine::Rng::from_seed(7);
    for _ in 0..300 {
        let mut broken = switch(vec![vec![ssd(4096)], vec![ssd(128)]]);
        for _ in 0..rng.below(12) {
            let offset = u16::try_from(rng.below(0x60) * 4).unwrap();
            let value = u32::try_from(rng.next_u64() >> 32).unwrap();
            let victim = match rng.below(3) {
                0 => &mut broken,
                1 => &mut broken.children[0],
                _ => &mut broken.children[1].children[0],
            };
            victim.stuck.push((offset, value));
        }
        World::new(Some(broken)).enumerate();
    }
}

#[test]
fn a_link_that_goes_down_ends_enumeration() {
    let mut root = RootComplex::new(Config::default());
    root.enumerate(NOW, Plan::default());
    outputs(&mut root);
    root.handle_input(NOW, Input::LinkDown);
    assert_eq!(outputs(&mut root), [Output::Enumerated(Err(EnumerationError::LinkDown))]);
    assert!(!root.is_enumerating() && root.poll_timeout().is_none());
}

#[test]
fn device_reads_are_answered_from_memory_or_refused() {
    let mut root = RootComplex::new(Config::default());
    let read = |tag, address, length| Packet::memory_read(DEVICE, Tag::new(tag), address, length);
    let found = input(&mut root, read(1, 0x1001, 6));
    let [Output::MemoryRead { token, address: 0x1000, length: 8 }] = found[..] else { panic!("{found:?}") };
    let data = Buffer::zeroed(8);
    root.memory_read_done(token, Some(data.clone()));
    let answers = outputs(&mut root);
    let [Output::Packet(packet)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(packet.payload.as_ptr(), data.as_ptr());
    let Kind::Completion(completion) = packet.header.kind else { panic!() };
    assert_eq!((completion.byte_count, completion.lower_address, completion.tag), (6, 1, Tag::new(1)));

    let found = input(&mut root, read(2, 0x9000, 64));
    let [Output::MemoryRead { token, .. }] = found[..] else { panic!("{found:?}") };
    root.memory_read_done(token, None);
    let status = |outputs: Vec<Output>| match &outputs[..] {
        [Output::Packet(Packet { header: Header { kind: Kind::Completion(completion), .. }, .. })] => {
            completion.status
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(status(outputs(&mut root)), CompletionStatus::UnsupportedRequest);
    for refused in [
        read(3, 0xfee0_0000, 4),
        Packet::config_read(DEVICE, Tag::new(4), Bdf::new(0, 0, 0), 0, 4),
        Packet::io_read(DEVICE, Tag::new(5), 0x3f8, 1),
    ] {
        assert_eq!(status(input(&mut root, refused)), CompletionStatus::UnsupportedRequest);
    }
    assert_eq!(root.statistics().refused, 4);
}

#[test]
fn writes_and_interrupts_keep_their_order() {
    let mut root = RootComplex::new(Config::default());
    let data = Buffer::copy_from_slice(&[1; 64]);
    let interrupt = Buffer::copy_from_slice(&0x4021_u32.to_le_bytes());
    root.handle_input(NOW, Input::Packet(Packet::memory_write(DEVICE, 0x2000, data.clone())));
    root.handle_input(NOW, Input::Packet(Packet::memory_write(DEVICE, 0xfee0_1000, interrupt)));
    root.handle_input(NOW, Input::Packet(Packet::memory_write(DEVICE, 0x3001, data.slice(0..2))));
    let expected = [
        Output::MemoryWrite { address: 0x2000, data: data.clone() },
        Output::Interrupt { address: 0xfee0_1000, data: 0x4021 },
        Output::MemoryWrite { address: 0x3001, data: data.slice(0..2) },
    ];
    assert_eq!(outputs(&mut root), expected);
    let mut sparse = Packet::memory_write(DEVICE, 0x4000, data.slice(0..4));
    let Kind::Memory(request) = &mut sparse.header.kind else { panic!() };
    request.first_enables = 0b1001;
    let one = data.slice(0..1);
    let expected = [
        Output::MemoryWrite { address: 0x4000, data: one.clone() },
        Output::MemoryWrite { address: 0x4003, data: one },
    ];
    assert_eq!(input(&mut root, sparse), expected);
    let mut poisoned = Packet::memory_write(DEVICE, 0x2000, data);
    poisoned.header.traits = poisoned.header.traits.with_poison(true);
    assert_eq!(input(&mut root, poisoned), []);
    assert_eq!(root.statistics().malformed, 1);
}

#[test]
fn answers_to_reads_from_before_a_link_down_are_ignored() {
    let mut root = RootComplex::new(Config::default());
    let read = Packet::memory_read(DEVICE, Tag::new(1), 0x1000, 8);
    let found = input(&mut root, read.clone());
    let [Output::MemoryRead { token: old, .. }] = found[..] else { panic!() };
    root.handle_input(NOW, Input::LinkDown);
    let found = input(&mut root, read);
    let [Output::MemoryRead { token: new, .. }] = found[..] else { panic!() };
    root.memory_read_done(old, Some(Buffer::zeroed(8)));
    assert_eq!(outputs(&mut root), []);
    root.memory_read_done(new, Some(Buffer::zeroed(8)));
    assert_eq!(outputs(&mut root).len(), 1);
}

#[test]
fn messages_are_counted_and_passed_on() {
    use crate::wire::{MessageRouting, message};
    let mut root = RootComplex::new(Config::default());
    for code in [message::ERR_COR, message::ERR_FATAL, message::PM_PME] {
        let packet = Packet::message(DEVICE, MessageRouting::ToRootComplex, code, 0);
        let found = input(&mut root, packet);
        assert!(matches!(found[..], [Output::Message(Message { code: found, .. })] if found == code));
    }
    let statistics = root.statistics();
    assert_eq!(
        (statistics.errors_correctable, statistics.errors_fatal, statistics.power_management),
        (1, 1, 1)
    );
}

#[test]
fn a_hierarchy_without_end_is_left_where_it_stops_being_believable() {
    let mut root = RootComplex::new(Config::default());
    root.enumerate(NOW, Plan::default());
    let mut questions = 0;
    loop {
        let Some(output) = root.poll_output() else { panic!("enumeration waits for nothing") };
        let packet = match output {
            Output::Packet(packet) => packet,
            Output::Enumerated(result) => {
                let topology = result.unwrap();
                assert!(topology.functions().count() <= 513);
                assert!(topology.faults.iter().any(|(_, fault)| *fault == Fault::TooMany));
                break;
            }
            other => panic!("{other:?}"),
        };
        questions += 1;
        assert!(questions < 1_000_000);
        // Every function is a bridge with many functions, and the capability lists do not end.
        let Kind::Config(request) = packet.header.kind else { panic!() };
        let value: u32 = match request.offset {
            0x0c => 0x0081_0000,
            0x04 => 0x0010_0000,
            0x34 => 0x40,
            0x40 => 0x0000_0010,
            offset @ 0x100.. => ((u32::from(offset) + 4) << 20) | 0x1_0002,
            _ => 0x1234_5678,
        };
        let answer = if request.write {
            Packet::completion(request.target, CompletionStatus::Success, &packet.header)
        } else {
            let data = Buffer::copy_from_slice(&value.to_le_bytes());
            Packet::completion_with_data(request.target, &packet.header, 0, data)
        };
        root.handle_input(NOW, Input::Packet(answer));
    }
}

#[test]
fn ten_bit_tags_are_used_only_where_all_understand_them() {
    let mut world = World::new(Some(ssd(4096)));
    assert_eq!(world.root.requester.settings().tags, TagWidth::Bits8);
    world.enumerate();
    assert_eq!(world.root.requester.settings().tags, TagWidth::Bits10);
    let mut old = ssd(4096);
    old.stuck.push((EXPRESS + 0x24, 0));
    let mut world = World::new(Some(switch(vec![vec![ssd(4096)], vec![old]])));
    world.enumerate();
    assert_eq!(world.root.requester.settings().tags, TagWidth::Bits8);
}
