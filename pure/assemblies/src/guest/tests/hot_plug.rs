//! A client that is not to know of MSI-X, as a QEMU that unplugs the function.

use alloc::vec::Vec;
use core::ops::Range;

use engine::{Instant, Nanos};
use nvme_pcie::function::Function;
use vfio_user::RegionIndex;

use super::{Config, Guest, MEMORY_FILE, TestBench, config, function_config};

/// Where the interrupts of an x86 machine arrive. No memory is there.
pub(super) const MESSAGES: Range<u64> = 0xfee0_0000..0xfef0_0000;
/// The MSI-X table of the function, and its capability.
const TABLE: u64 = 0x2000;
const CAPABILITY: u64 = 0xb0;

fn bench() -> TestBench {
    let now = Instant::from_nanos(1_000);
    let guest = Guest::direct(Config { hot_plug: true, ..config() }, now);
    let mut bench = TestBench::around(guest, Some(Function::new(now, function_config())), now);
    bench.until(|bench| bench.guest.takes_client());
    bench.connect();
    bench
}

impl TestBench {
    /// Writes address, data and Vector Control of a vector.
    fn set_entry(&mut self, vector: u64, masked: bool) {
        let address = (MESSAGES.start + 0x1000).to_le_bytes();
        let data = u32::try_from(0x4000 + vector).unwrap().to_le_bytes();
        let at = TABLE + 16 * vector;
        self.write(RegionIndex::BAR0, at, &address);
        self.write(RegionIndex::BAR0, at + 8, &data);
        self.write(RegionIndex::BAR0, at + 12, &u32::from(masked).to_le_bytes());
    }

    /// The data of the interrupts that arrived since the last call.
    fn interrupts(&mut self) -> Vec<u32> {
        self.settle();
        let messages = core::mem::take(&mut self.messages);
        assert!(messages.iter().all(|(address, _)| *address == MESSAGES.start + 0x1000));
        messages.into_iter().map(|(_, data)| data).collect()
    }
}

#[test]
fn the_monitor_finds_no_capabilities_and_the_guest_finds_them_all() {
    let mut bench = bench();
    let all = bench.read(RegionIndex::CONFIG, 0, 4096);
    assert_eq!((all[6] & 0x10, all[0x34]), (0, 0));
    let (status, pointer) = (bench.config(0x04), bench.config(0x34));
    assert_ne!((status >> 16 & 0x10, pointer & 0xff), (0, 0));
    // All else is the same.
    for at in (0..256).step_by(4).filter(|at| ![0x04, 0x34].contains(at)) {
        let word = u32::from_le_bytes(all[at..at + 4].try_into().unwrap());
        assert_eq!(word, bench.config(at as u64), "at {at:#x}");
    }
    assert_eq!(bench.config(CAPABILITY) & 0xff, 0x11);
}

#[test]
fn an_interrupt_is_a_write_to_the_guests_address_behind_its_data() {
    for descriptor in [Some(MEMORY_FILE), None] {
        let mut bench = bench();
        bench.map(descriptor);
        bench.set_entry(0, false);
        bench.bring_up();
        bench.send_identify(0);
        while bench.messages.is_empty() {
            bench.now = bench.now + Nanos::from_micros(1);
            bench.step();
        }
        assert!(bench.completion(0).is_some(), "the completion comes first");
        assert_eq!(bench.interrupts(), [0x4000]);
        assert!(bench.signals.is_empty());
    }
}

#[test]
fn a_masked_interrupt_is_kept_and_sent_once() {
    let mut bench = bench();
    bench.map(Some(MEMORY_FILE));
    bench.set_entry(0, true);
    bench.bring_up();
    bench.identify(0);
    assert_eq!(bench.interrupts(), []);
    bench.set_entry(0, false);
    assert_eq!(bench.interrupts(), [0x4000]);
    // Function Mask.
    let control = bench.config(CAPABILITY);
    bench.write_config(CAPABILITY, control | 1 << 30);
    bench.identify(1);
    assert_eq!(bench.interrupts(), []);
    bench.write_config(CAPABILITY, control);
    assert_eq!(bench.interrupts(), [0x4000]);
    // What was pending when MSI-X is disabled means nothing later.
    bench.write_config(CAPABILITY, control | 1 << 30);
    bench.identify(2);
    bench.write_config(CAPABILITY, control & !(1 << 31));
    bench.write_config(CAPABILITY, control);
    assert_eq!(bench.interrupts(), []);
}

#[test]
fn a_reset_masks_every_vector() {
    let mut bench = bench();
    bench.map(Some(MEMORY_FILE));
    bench.set_entry(0, false);
    bench.bring_up();
    bench.identify(0);
    assert_eq!(bench.interrupts(), [0x4000]);
    bench.disconnect();
    bench.until(|bench| bench.guest.takes_client());
    assert_eq!(bench.guest.is_usable(), Some(true));
    bench.connect();
    assert_eq!(bench.read(RegionIndex::BAR0, TABLE + 12, 4)[..], [1, 0, 0, 0]);
    bench.map(Some(MEMORY_FILE));
    bench.bring_up();
    bench.identify(0);
    assert_eq!(bench.interrupts(), []);
    bench.set_entry(0, false);
    assert_eq!(bench.interrupts(), [0x4000]);
}
