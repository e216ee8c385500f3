//! The guest's accesses: configuration space, registers, resets.

use pcie::requester::RequestError;
use pcie::wire::{Bdf, CompletionStatus};

use super::super::Statistics;
use super::*;

/// Length of a read of the whole configuration space, which QEMU begins with.
const ALL: u32 = 4096;

#[test]
fn the_configuration_space_is_the_functions_own_but_for_what_is_kept_here() {
    let mut bench = TestBench::direct();
    let space = bench.read(RegionIndex::CONFIG, 0, ALL);
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
        assert_eq!(bench.read(RegionIndex::CONFIG, at, count)[..], space[start..end], "{at:#x}");
    }
}

#[test]
fn a_guest_sizes_and_places_the_base_address_registers() {
    let mut bench = TestBench::direct();
    bench.write_config(0x10, u32::MAX);
    bench.write_config(0x14, u32::MAX);
    assert_eq!((bench.config(0x10), bench.config(0x14)), (0xffff_c004, u32::MAX));
    bench.write_config(0x10, 0xfebf_8000);
    bench.write_config(0x14, 0x12);
    assert_eq!((bench.config(0x10), bench.config(0x14)), (0xfebf_8004, 0x12));
    for absent in [0x18, 0x1c, 0x20, 0x24, 0x30] {
        bench.write_config(absent, u32::MAX);
        assert_eq!(bench.config(absent), 0, "{absent:#x}");
    }
    // The address does not matter, because the region is the function's.
    assert_eq!(bench.register(offset::VERSION), 0x0002_0000);
}

#[test]
fn bytes_and_halves_of_registers_are_written_alone() {
    let mut bench = TestBench::direct();
    bench.write(RegionIndex::CONFIG, 0x3c, &[0x0b]);
    bench.write(RegionIndex::CONFIG, 0x05, &[0x04]);
    bench.write(RegionIndex::CONFIG, 0x04, &[0x06]);
    assert_eq!((bench.config(0x3c), bench.config(0x04) & 0xffff), (0x0b, 0x0406));
    // A write across several registers, and a write that changes nothing.
    bench.write(RegionIndex::CONFIG, 0x0c, &[0x10, 0, 0, 0, 0, 0, 0xbf, 0xfe]);
    assert_eq!((bench.config(0x0c), bench.config(0x10)), (0x10, 0xfebf_0004));
    bench.write(RegionIndex::CONFIG, 0x00, &[0; 4]);
    assert_eq!(bench.config(0x00), 0x0010_fa1a);
}

#[test]
fn sizes_that_the_guest_chooses_do_not_reach_the_function() {
    let mut bench = TestBench::direct();
    let far = |bench: &TestBench| bench.function.as_ref().unwrap().endpoint().config().payload_size();
    assert_eq!(far(&bench), 4096);
    bench.write(RegionIndex::CONFIG, 0x78, &0x5950_u16.to_le_bytes());
    assert_eq!(bench.config(0x78) & 0xffff, 0x5950);
    assert_eq!(far(&bench), 4096);
}

#[test]
fn the_function_masters_the_bus_only_while_the_guest_lets_it() {
    let mut bench = TestBench::direct();
    let far = |bench: &TestBench| bench.function.as_ref().unwrap().endpoint().config().bus_master();
    assert!(!far(&bench));
    bench.write_config(0x04, 0b110);
    assert!(far(&bench));
    bench.write_config(0x44, 0b11);
    assert!(!far(&bench), "D3hot");
    assert_eq!(bench.config(0x44) & 0b11, 0b11);
    assert_eq!(bench.register(offset::VERSION), u32::MAX);
    // The way back to D0 resets a function without No_Soft_Reset.
    bench.write_config(0x44, 0);
    bench.until(|bench| {
        bench.guest.takes_bytes() && matches!(bench.guest.phase, super::super::Phase::Present)
    });
    assert_eq!((bench.config(0x44) & 0b11, bench.config(0x04) & 0b110), (0, 0));
    assert_eq!(bench.register(offset::VERSION), 0x0002_0000);
}

#[test]
fn registers_are_read_in_every_width() {
    let mut bench = TestBench::direct();
    let all = bench.read(RegionIndex::BAR0, 0, 64);
    for (at, count) in [(0, 1), (1, 2), (3, 3), (0, 8), (4, 4), (8, 16), (5, 27)] {
        let start = usize::try_from(at).unwrap();
        let end = start + usize::try_from(count).unwrap();
        assert_eq!(bench.read(RegionIndex::BAR0, at, count)[..], all[start..end], "{at:#x}..+{count}");
    }
    assert_eq!(bench.read(RegionIndex::BAR0, 0, 0x4000).len(), 0x4000);
}

#[test]
fn the_interrupt_table_that_a_client_sees_has_no_addresses_of_ours() {
    let mut bench = TestBench::direct();
    let table = bench.read(RegionIndex::BAR0, 0x2000, 32);
    assert_eq!(table[..16], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    bench.write(RegionIndex::BAR0, 0x2010, &[1, 2, 3, 4]);
    assert_eq!(bench.read(RegionIndex::BAR0, 0x2010, 4)[..], [1, 2, 3, 4]);
    bench.map(Some(MEMORY_FILE));
    bench.set_vectors(0, 2);
    bench.bring_up();
    bench.identify(0);
    bench.until(|bench| bench.signals == [EVENTS]);
}

#[test]
fn doorbells_are_offered_to_be_mapped_where_that_is_wanted() {
    let now = Instant::from_nanos(1_000);
    let config = Config { doorbells: true, ..config() };
    let function = Function::new(now, function_config());
    let mut bench = TestBench::around(Guest::direct(config, now), Some(function), now);
    bench.until(|bench| bench.guest.takes_client());
    bench.connect();
    let asked = bench.client.region_info(bench.now, RegionIndex::BAR0);
    let Answer::Region { info, .. } = bench.answer(asked) else { panic!("no region") };
    assert!(std::format!("{info:?}").contains("Area { offset: 4096, length: 4096 }"), "{info:?}");
    let place = bench.guest.doorbells().unwrap();
    assert_eq!((place.offset, place.length, place.region_length), (0x1000, 0x1000, 0x4000));
    // A doorbell rung without a message.
    bench.map(Some(MEMORY_FILE));
    bench.bring_up();
    bench.memory.write(BASE + DATA, &[0; 4096]).unwrap();
    bench.put_identify(0);
    assert!(bench.guest.takes_rings());
    let (now, before) = (bench.now, bench.guest.statistics().bar_accesses);
    bench.guest.ring(now, 0x1000, 1);
    bench.until(|bench| bench.completion(0).is_some());
    assert_eq!((bench.guest.statistics().rings, bench.guest.statistics().bar_accesses), (1, before));
    // Without the setting, no doorbells are offered.
    assert_eq!(TestBench::direct().guest.doorbells(), None);
}

#[test]
fn function_level_reset_leaves_a_function_that_works() {
    let mut bench = TestBench::direct();
    bench.map(Some(MEMORY_FILE));
    bench.set_vectors(0, 1);
    bench.bring_up();
    bench.identify(0);
    bench.signals.clear();
    let begun = bench.now;
    // Initiate Function Level Reset; the guest does not have to wait for its end.
    bench.write(RegionIndex::CONFIG, 0x78, &0xa910_u16.to_le_bytes());
    assert!(bench.now - begun < Nanos::from_millis(1));
    assert_eq!(bench.config(0x04) & 0x7, 0, "answered when the function is back");
    assert!(bench.now - begun >= Nanos::from_millis(100));
    assert_eq!(bench.register(offset::CONFIGURATION), 0);
    let far = bench.function.as_ref().unwrap().endpoint().config().payload_size();
    assert_eq!(far, 4096);
    bench.bring_up();
    bench.identify(0);
    // The monitor's vectors are still set up.
    bench.until(|bench| bench.signals == [EVENTS]);
}

#[test]
fn a_reset_by_message_ends_when_the_function_is_back() {
    let mut bench = TestBench::direct();
    bench.map(Some(MEMORY_FILE));
    for _ in 0..3 {
        bench.bring_up();
        bench.identify(0);
        let request = bench.client.reset(bench.now);
        assert_eq!(bench.answer(request), Answer::Done);
        assert_eq!(bench.register(offset::CONFIGURATION), 0);
        assert_eq!(bench.config(0xb0) >> 31, 0, "MSI-X is disabled");
    }
}

#[test]
fn a_reset_that_is_refused_is_repeated_before_the_next_client() {
    let mut bench = TestBench::direct();
    bench.map(Some(MEMORY_FILE));
    bench.bring_up();
    let function = bench.function.take();
    bench.disconnect();
    // Initiate Function Level Reset.
    let [reset] = &bench.packets[..] else { panic!("{:?}", bench.packets) };
    let status = CompletionStatus::UnsupportedRequest;
    let refusal = Packet::completion(Bdf::new(1, 0, 0), status, &reset.header);
    bench.function = function;
    bench.guest.handle_input(bench.now, Input::Packet(refusal));
    bench.pass(Nanos::from_secs(3));
    let refused = |event: &Event| matches!(event, Event::Unready(RequestError::UnsupportedRequest));
    assert!(bench.events.iter().any(refused), "{:?}", bench.events);
    bench.connect();
    assert_eq!(bench.register(offset::CONFIGURATION), 0);
}

#[test]
fn a_reset_that_a_client_was_refused_is_repeated_before_the_next_client() {
    let mut bench = TestBench::direct();
    bench.map(Some(MEMORY_FILE));
    bench.bring_up();
    let function = bench.function.take();
    bench.packets.clear();
    let request = bench.client.reset(bench.now);
    bench.settle();
    // Initiate Function Level Reset.
    let reset = bench.packets.last().expect("the function is reset");
    let status = CompletionStatus::UnsupportedRequest;
    let refusal = Packet::completion(Bdf::new(1, 0, 0), status, &reset.header);
    bench.function = function;
    bench.guest.handle_input(bench.now, Input::Packet(refusal));
    bench.settle();
    bench.until(|bench| bench.answers.contains_key(&request));
    assert!(bench.answers[&request].is_err());
    // The client leaves before the function is tried again.
    bench.disconnect();
    bench.pass(Nanos::from_secs(3));
    bench.connect();
    assert_eq!(bench.register(offset::CONFIGURATION), 0);
}

#[test]
fn what_a_function_does_not_answer_is_answered_with_all_ones_in_the_end() {
    let mut bench = TestBench::direct();
    let function = bench.function.take();
    let read = bench.client.read(bench.now, RegionIndex::BAR0, 0x1000, 4);
    let write = bench.client.write(bench.now, RegionIndex::CONFIG, 0x104, &[0xff; 4]);
    let behind = bench.client.read(bench.now, RegionIndex::CONFIG, 0x00, 4);
    bench.pass(Nanos::from_millis(400));
    assert!(!bench.answers.contains_key(&read) && !bench.answers.contains_key(&write));
    bench.pass(Nanos::from_millis(200));
    assert_eq!(bench.answer(read), Answer::Data(Buffer::from([0xff; 4].to_vec())));
    assert_eq!(bench.answer(write), Answer::Done);
    assert_eq!(bench.answer(behind), Answer::Data(Buffer::from([0x1a, 0xfa, 0x10, 0].to_vec())));
    assert_eq!(bench.guest.statistics().given_up, 2);
    // A late answer belongs to no access, and the next access is answered as usual.
    bench.function = function;
    assert_eq!(bench.register(offset::VERSION), 0x0002_0000);
}

#[test]
fn a_client_that_asks_for_much_at_once_gets_it_all_in_order() {
    let mut bench = TestBench::direct();
    let spaces: Vec<_> =
        (0..100).map(|_| bench.client.read(bench.now, RegionIndex::CONFIG, 0, ALL)).collect();
    for index in 0..200_u32 {
        bench.client.post(RegionIndex::CONFIG, 0x3c, &index.to_le_bytes()[..1]);
    }
    let last = bench.client.read(bench.now, RegionIndex::CONFIG, 0x3c, 1);
    assert_eq!(bench.answer(last), Answer::Data(Buffer::from([199].to_vec())));
    for request in spaces {
        let Answer::Data(data) = bench.answer(request) else { panic!("no data") };
        assert_eq!(data[..4], [0x1a, 0xfa, 0x10, 0]);
    }
}

#[test]
fn an_awaited_value_differs_from_a_known_one() {
    let mut bench = TestBench::direct();
    bench.map(Some(MEMORY_FILE));
    bench.bring_up();
    let before = *bench.guest.statistics();
    // A base address register is kept here; a posted write waits for nothing.
    bench.config(0x10);
    bench.post_register(offset::STATUS, 0);
    assert_eq!(
        *bench.guest.statistics(),
        Statistics {
            config_accesses: before.config_accesses + 1,
            bar_accesses: before.bar_accesses + 1,
            ..before
        }
    );
    // A read of the whole configuration space is one round trip, a register read another.
    bench.read(RegionIndex::CONFIG, 0, ALL);
    bench.register(offset::STATUS);
    assert_eq!(bench.guest.statistics().waited, before.waited + 2);
    // The function fetches one entry, and reads nothing else.
    bench.identify(0);
    let after = bench.guest.statistics();
    assert_eq!((after.read_trips, after.round_trips()), (before.read_trips + 1, before.round_trips() + 3));
    let reset = bench.client.reset(bench.now);
    assert_eq!(bench.answer(reset), Answer::Done);
    assert!(bench.guest.statistics().reset_trips > before.reset_trips);
}
