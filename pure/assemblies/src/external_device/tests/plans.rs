//! Plans made of servers' answers.

use std::string::ToString;
use std::vec;

use engine::Rng;
use pcie::endpoint::Endpoint;
use vfio_user::Errno;

use super::super::plan::{Facts, Missing, Plan, Unusable, VECTORS_MAX};

/// A function with one BAR of 4 KiB.
fn facts() -> Facts {
    let mut config = vec![0; 256];
    config[..4].copy_from_slice(&[0x86, 0x80, 0x01, 0x00]);
    Facts { config, regions: [4096, 0, 0, 0, 0, 0], vectors: 0, resettable: true }
}

#[test]
fn what_is_no_endpoint_is_not_offered() {
    let mut bridge = facts();
    bridge.config[0x0e] = 1;
    let mut absent = facts();
    absent.config[..2].fill(0xff);
    let mut short = facts();
    short.config.truncate(0x3f);
    let cases =
        [(bridge, Unusable::Bridge), (absent, Unusable::NoVendor), (short, Unusable::NoConfiguration)];
    for (facts, why) in cases {
        assert_eq!(Plan::new(&facts).unwrap_err(), why);
    }
    let text = Unusable::Refused("DMA_MAP", Errno::ENOSPC).to_string();
    assert_eq!(text, "DMA_MAP was answered with ENOSPC");
}

#[test]
fn bars_are_as_large_as_powers_of_two_and_of_memory() {
    let mut facts = facts();
    facts.regions = [5000, 100, 1 << 33, 0, 1 << 33, 8];
    facts.config[0x10] = 0b1000;
    facts.config[0x14] = 1;
    facts.config[0x18] = 0b0100;
    let plan = Plan::new(&facts).unwrap();
    let sizes = plan.endpoint.bars.map(|bar| bar.map(|bar| bar.size));
    assert_eq!(sizes, [Some(8192), None, Some(1 << 33), None, None, Some(16)]);
    assert_eq!(plan.missing, [Missing::Bar(1), Missing::Bar(4)]);
    assert!(plan.endpoint.bars[0].unwrap().prefetchable);
}

#[test]
fn vectors_are_as_many_as_both_ends_have() {
    let mut facts = facts();
    facts.config[0x06] = 0x10;
    facts.config[0x34] = 0x80;
    facts.config[0x80..0x8c].copy_from_slice(&[0x11, 0, 0xff, 0x07, 0, 0, 0, 0, 0, 8, 0, 0]);
    facts.regions[0] = 0x1_0000;
    facts.vectors = 2048;
    let plan = Plan::new(&facts).unwrap();
    assert_eq!(plan.vectors(), VECTORS_MAX);
    // The pending bits are within the longer table, but behind this shorter one.
    assert_eq!(plan.endpoint.msix.unwrap().pending_offset, 0x1_0000);
    facts.vectors = 3;
    assert_eq!(Plan::new(&facts).unwrap().endpoint.msix.unwrap().pending_offset, 0x800);
    facts.vectors = 0;
    assert_eq!(Plan::new(&facts).unwrap().vectors(), 0);
    // A table outside of its BAR.
    facts.vectors = 3;
    facts.config[0x86] = 1;
    assert_eq!(Plan::new(&facts).unwrap().endpoint.msix, None);
}

#[test]
fn lists_of_capabilities_end() {
    let mut facts = facts();
    facts.config[0x06] = 0x10;
    facts.config[0x34] = 0x50;
    facts.config[0x50..0x54].copy_from_slice(&[0x09, 0x50, 16, 0]);
    let plan = Plan::new(&facts).unwrap();
    assert_eq!(plan.shown.len(), 1);
    let shown = plan.shown[0];
    assert_eq!((shown.here, shown.there, shown.length), (0x50, 0x50, 16));
    assert_eq!(
        (plan.place(0x50), plan.place(0x5c), plan.place(0x60)),
        (Some((0x50, true)), Some((0x5c, false)), None)
    );
    // A capability that has no room, because it claims the greatest possible length.
    facts.config[0x50..0x54].copy_from_slice(&[0x09, 0, 0xff, 0]);
    let plan = Plan::new(&facts).unwrap();
    assert_eq!((plan.shown.len(), &plan.missing[..]), (0, &[Missing::Capability(0x09)][..]));
}

#[test]
fn whatever_a_server_says_is_something_that_can_be_built() {
    let mut rng = Rng::from_seed(11);
    let mut built = 0;
    for _ in 0..20_000 {
        let mut facts = facts();
        facts.config.resize(usize::try_from(rng.below(4097)).unwrap().max(0x40), 0);
        facts.config[0x06] = 0x10;
        facts.config[0x34] = 0x40;
        // Enough bytes are noise for lists, BARs and tables of all kinds.
        for _ in 0..rng.below(200) {
            let end = facts.config.len().min(0x120) as u64;
            let at = usize::try_from(rng.below(end)).unwrap();
            let byte = [0x09, 0x11, 0x05, 0x10, 0x40, 0x50, rng.next_u64().to_le_bytes()[0]];
            facts.config[at] = byte[usize::try_from(rng.below(7)).unwrap()];
        }
        facts.regions = core::array::from_fn(|_| rng.next_u64() >> rng.below(64));
        facts.vectors = u32::try_from(rng.next_u64() >> 32).unwrap() >> rng.below(32);
        let Ok(plan) = Plan::new(&facts) else { continue };
        let mut endpoint = Endpoint::new(&plan.endpoint);
        for shown in &plan.shown {
            endpoint.add_capability(shown.here, shown.id);
            assert_eq!(plan.place(shown.here), Some((shown.there, true)));
        }
        built += 1;
    }
    assert!(built > 1000, "{built}");
}
