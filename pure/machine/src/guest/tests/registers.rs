//! The guest's accesses: configuration space, registers, resets.

use super::super::Statistics;
use super::*;

/// Length of a read of the whole configuration space, which QEMU begins with.
const ALL: u32 = 4096;

#[test]
fn the_configuration_space_is_the_functions_own_but_for_what_is_kept_here() {
    let mut rig = Rig::direct();
    let space = rig.read(RegionIndex::CONFIG, 0, ALL);
    let dword = |at: usize| u32::from_le_bytes(space[at..at + 4].try_into().unwrap());
    assert_eq!((dword(0x00), dword(0x08) >> 8), (0x0010_fa1a, 0x01_0802));
    assert_eq!((dword(0x04) & 0xffff, dword(0x10), dword(0x14)), (0, 0b100, 0), "nothing of ours shows");
    assert_eq!((dword(0x34), dword(0x3c)), (0x40, 0));
    assert_eq!(dword(0xb0), 0x0040_0011, "65 vectors, disabled");
    assert_eq!(dword(0x78) & 0xffff, 0x2910, "payloads of 128 B, reads of 512 B");
    assert_eq!(dword(0x100) & 0xffff, 0x0001);
    // The same bytes, in pieces of every width.
    for (at, count) in [(0x00, 1), (0x03, 2), (0x2c, 4), (0x0e, 1), (0x40, 8), (0x77, 10), (0xffc, 4)] {
        let start = usize::try_from(at).unwrap();
        let end = start + usize::try_from(count).unwrap();
        assert_eq!(rig.read(RegionIndex::CONFIG, at, count)[..], space[start..end], "{at:#x}");
    }
}

#[test]
fn a_guest_sizes_and_places_the_base_address_registers() {
    let mut rig = Rig::direct();
    rig.write_config(0x10, u32::MAX);
    rig.write_config(0x14, u32::MAX);
    assert_eq!((rig.config(0x10), rig.config(0x14)), (0xffff_c004, u32::MAX));
    rig.write_config(0x10, 0xfebf_8000);
    rig.write_config(0x14, 0x12);
    assert_eq!((rig.config(0x10), rig.config(0x14)), (0xfebf_8004, 0x12));
    for absent in [0x18, 0x1c, 0x20, 0x24, 0x30] {
        rig.write_config(absent, u32::MAX);
        assert_eq!(rig.config(absent), 0, "{absent:#x}");
    }
    // The address does not matter, because the region is the function's.
    assert_eq!(rig.register(offset::VERSION), 0x0002_0000);
}

#[test]
fn bytes_and_halves_of_registers_are_written_alone() {
    let mut rig = Rig::direct();
    rig.write(RegionIndex::CONFIG, 0x3c, &[0x0b]);
    rig.write(RegionIndex::CONFIG, 0x05, &[0x04]);
    rig.write(RegionIndex::CONFIG, 0x04, &[0x06]);
    assert_eq!((rig.config(0x3c), rig.config(0x04) & 0xffff), (0x0b, 0x0406));
    // A write across several registers, and a write that changes nothing.
    rig.write(RegionIndex::CONFIG, 0x0c, &[0x10, 0, 0, 0, 0, 0, 0xbf, 0xfe]);
    assert_eq!((rig.config(0x0c), rig.config(0x10)), (0x10, 0xfebf_0004));
    rig.write(RegionIndex::CONFIG, 0x00, &[0; 4]);
    assert_eq!(rig.config(0x00), 0x0010_fa1a);
}

#[test]
fn sizes_that_the_guest_chooses_do_not_reach_the_function() {
    let mut rig = Rig::direct();
    let far = |rig: &Rig| rig.function.as_ref().unwrap().endpoint().config().payload_size();
    assert_eq!(far(&rig), 4096);
    rig.write(RegionIndex::CONFIG, 0x78, &0x5950_u16.to_le_bytes());
    assert_eq!(rig.config(0x78) & 0xffff, 0x5950);
    assert_eq!(far(&rig), 4096);
}

#[test]
fn the_function_masters_the_bus_only_while_the_guest_lets_it() {
    let mut rig = Rig::direct();
    let far = |rig: &Rig| rig.function.as_ref().unwrap().endpoint().config().bus_master();
    assert!(!far(&rig));
    rig.write_config(0x04, 0b110);
    assert!(far(&rig));
    rig.write_config(0x44, 0b11);
    assert!(!far(&rig), "D3hot");
    assert_eq!(rig.config(0x44) & 0b11, 0b11);
    assert_eq!(rig.register(offset::VERSION), u32::MAX);
    // The way back to D0 resets a function without No_Soft_Reset.
    rig.write_config(0x44, 0);
    rig.until(|rig| rig.guest.takes_bytes() && matches!(rig.guest.phase, super::super::Phase::Present));
    assert_eq!((rig.config(0x44) & 0b11, rig.config(0x04) & 0b110), (0, 0));
    assert_eq!(rig.register(offset::VERSION), 0x0002_0000);
}

#[test]
fn registers_are_read_in_every_width() {
    let mut rig = Rig::direct();
    let all = rig.read(RegionIndex::BAR0, 0, 64);
    for (at, count) in [(0, 1), (1, 2), (3, 3), (0, 8), (4, 4), (8, 16), (5, 27)] {
        let start = usize::try_from(at).unwrap();
        let end = start + usize::try_from(count).unwrap();
        assert_eq!(rig.read(RegionIndex::BAR0, at, count)[..], all[start..end], "{at:#x}..+{count}");
    }
    assert_eq!(rig.read(RegionIndex::BAR0, 0, 0x4000).len(), 0x4000);
}

#[test]
fn the_interrupt_table_that_a_client_sees_has_no_addresses_of_ours() {
    let mut rig = Rig::direct();
    let table = rig.read(RegionIndex::BAR0, 0x2000, 32);
    assert_eq!(table[..16], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    rig.write(RegionIndex::BAR0, 0x2010, &[1, 2, 3, 4]);
    assert_eq!(rig.read(RegionIndex::BAR0, 0x2010, 4)[..], [1, 2, 3, 4]);
    rig.map(Some(MEMORY_FILE));
    rig.set_vectors(0, 2);
    rig.bring_up();
    rig.identify(0);
    rig.until(|rig| rig.signals == [EVENTS]);
}

#[test]
fn doorbells_are_offered_to_be_mapped_where_that_is_wanted() {
    let now = Instant::from_nanos(1_000);
    let config = Config { doorbells: true, ..config() };
    let function = Function::new(now, function_config());
    let mut rig = Rig::around(Guest::direct(config, now), Some(function), now);
    rig.until(|rig| rig.guest.takes_client());
    rig.connect();
    let asked = rig.client.region_info(rig.now, RegionIndex::BAR0);
    let Answer::Region { info, .. } = rig.answer(asked) else { panic!("no region") };
    assert!(std::format!("{info:?}").contains("Area { offset: 4096, length: 4096 }"), "{info:?}");
    let place = rig.guest.doorbells().unwrap();
    assert_eq!((place.offset, place.length, place.region_length), (0x1000, 0x1000, 0x4000));
    // A doorbell rung without a message.
    rig.map(Some(MEMORY_FILE));
    rig.bring_up();
    rig.memory.write(BASE + DATA, &[0; 4096]).unwrap();
    rig.put_identify(0);
    assert!(rig.guest.takes_rings());
    let (now, before) = (rig.now, rig.guest.statistics().bar_accesses);
    rig.guest.ring(now, 0x1000, 1);
    rig.until(|rig| rig.completion(0).is_some());
    assert_eq!((rig.guest.statistics().rings, rig.guest.statistics().bar_accesses), (1, before));
    // Without the setting, no doorbells are offered.
    assert_eq!(Rig::direct().guest.doorbells(), None);
}

#[test]
fn function_level_reset_leaves_a_function_that_works() {
    let mut rig = Rig::direct();
    rig.map(Some(MEMORY_FILE));
    rig.set_vectors(0, 1);
    rig.bring_up();
    rig.identify(0);
    rig.signals.clear();
    let begun = rig.now;
    // Initiate Function Level Reset; the guest does not have to wait for its end.
    rig.write(RegionIndex::CONFIG, 0x78, &0xa910_u16.to_le_bytes());
    assert!(rig.now - begun < Nanos::from_millis(1));
    assert_eq!(rig.config(0x04) & 0x7, 0, "answered when the function is back");
    assert!(rig.now - begun >= Nanos::from_millis(100));
    assert_eq!(rig.register(offset::CONFIGURATION), 0);
    let far = rig.function.as_ref().unwrap().endpoint().config().payload_size();
    assert_eq!(far, 4096);
    rig.bring_up();
    rig.identify(0);
    // The monitor's vectors are still set up.
    rig.until(|rig| rig.signals == [EVENTS]);
}

#[test]
fn a_reset_by_message_ends_when_the_function_is_back() {
    let mut rig = Rig::direct();
    rig.map(Some(MEMORY_FILE));
    for _ in 0..3 {
        rig.bring_up();
        rig.identify(0);
        let request = rig.client.reset(rig.now);
        assert_eq!(rig.answer(request), Answer::Done);
        assert_eq!(rig.register(offset::CONFIGURATION), 0);
        assert_eq!(rig.config(0xb0) >> 31, 0, "MSI-X is disabled");
    }
}

#[test]
fn what_a_function_does_not_answer_is_answered_with_all_ones_in_the_end() {
    let mut rig = Rig::direct();
    let function = rig.function.take();
    let read = rig.client.read(rig.now, RegionIndex::BAR0, 0x1000, 4);
    let write = rig.client.write(rig.now, RegionIndex::CONFIG, 0x104, &[0xff; 4]);
    let behind = rig.client.read(rig.now, RegionIndex::CONFIG, 0x00, 4);
    rig.pass(Nanos::from_millis(400));
    assert!(!rig.answers.contains_key(&read) && !rig.answers.contains_key(&write));
    rig.pass(Nanos::from_millis(200));
    assert_eq!(rig.answer(read), Answer::Data(Buffer::from([0xff; 4].to_vec())));
    assert_eq!(rig.answer(write), Answer::Done);
    assert_eq!(rig.answer(behind), Answer::Data(Buffer::from([0x1a, 0xfa, 0x10, 0].to_vec())));
    assert_eq!(rig.guest.statistics().given_up, 2);
    // A late answer belongs to no access, and the next access is answered as usual.
    rig.function = function;
    assert_eq!(rig.register(offset::VERSION), 0x0002_0000);
}

#[test]
fn a_client_that_asks_for_much_at_once_gets_it_all_in_order() {
    let mut rig = Rig::direct();
    let spaces: Vec<_> = (0..100).map(|_| rig.client.read(rig.now, RegionIndex::CONFIG, 0, ALL)).collect();
    for index in 0..200_u32 {
        rig.client.post(RegionIndex::CONFIG, 0x3c, &index.to_le_bytes()[..1]);
    }
    let last = rig.client.read(rig.now, RegionIndex::CONFIG, 0x3c, 1);
    assert_eq!(rig.answer(last), Answer::Data(Buffer::from([199].to_vec())));
    for request in spaces {
        let Answer::Data(data) = rig.answer(request) else { panic!("no data") };
        assert_eq!(data[..4], [0x1a, 0xfa, 0x10, 0]);
    }
}

#[test]
fn what_is_waited_for_is_told_from_what_is_known_here() {
    let mut rig = Rig::direct();
    rig.map(Some(MEMORY_FILE));
    rig.bring_up();
    let before = *rig.guest.statistics();
    // A base address register is kept here; a posted write waits for nothing.
    rig.config(0x10);
    rig.post_register(offset::STATUS, 0);
    assert_eq!(
        *rig.guest.statistics(),
        Statistics {
            config_accesses: before.config_accesses + 1,
            bar_accesses: before.bar_accesses + 1,
            ..before
        }
    );
    // A read of the whole configuration space is one round trip, a register read another.
    rig.read(RegionIndex::CONFIG, 0, ALL);
    rig.register(offset::STATUS);
    assert_eq!(rig.guest.statistics().waited, before.waited + 2);
    // The function fetches one entry, and reads nothing else.
    rig.identify(0);
    let after = rig.guest.statistics();
    assert_eq!((after.read_trips, after.round_trips()), (before.read_trips + 1, before.round_trips() + 3));
    let reset = rig.client.reset(rig.now);
    assert_eq!(rig.answer(reset), Answer::Done);
    assert!(rig.guest.statistics().reset_trips > before.reset_trips);
}
