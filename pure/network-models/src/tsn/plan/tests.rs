//! Plans compared with runs of the models.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::Rate;
use crate::ethernet::medium::{Cable, Medium};

fn request(megabits: u64, hops: usize, frames: Vec<u32>) -> Request {
    let port = PortSettings {
        cable: Cable::metres(Medium::TwoThirds, 10),
        ..PortSettings::new(Rate::from_megabits(megabits))
    };
    Request {
        class: Class::HIGHEST,
        frames,
        period: Nanos::from_millis(1),
        cycle: Nanos::from_millis(1),
        ports: vec![port; hops],
        others_mtu: 1500,
        preemption: false,
        clock_error: Nanos::ZERO,
    }
}

/// The plan for INET's `timeawareshaper`, whose schedule was made by hand: 11.62 µs over two links.
#[test]
fn a_frame_of_a_planned_flow_waits_nowhere() {
    let plan = Plan::new(request(100, 2, vec![64])).unwrap();
    let delays = plan.simulate(200, true, 1);
    assert!(delays.iter().all(|delay| *delay == Nanos::new(11_620)), "{delays:?}");
    // The bound exceeds the delay by the gap and the rounding.
    assert!(plan.synchronised.get() - 11_620 <= 2 * 960 + 8, "{plan:?}");
    assert_eq!(plan.hops[1].offset, 5_810);
    assert_eq!(plan.hops[0].guard, Nanos::new((1522 + 20) * 80));
}

#[test]
fn preemption_shortens_the_guard_band() {
    let plan = Plan::new(Request { preemption: true, ..request(1_000, 3, vec![64]) }).unwrap();
    assert_eq!(plan.hops[0].guard, Nanos::new(1_144));
}

#[test]
fn what_does_not_fit_says_why() {
    let error = |request| Plan::new(request).unwrap_err();
    assert_eq!(error(request(100, 0, vec![64])), PlanError::Hops(0));
    assert_eq!(error(request(100, 1, vec![])), PlanError::Frames(0));
    assert_eq!(error(request(100, 2, vec![1523])), PlanError::TooLong(0, 1523));
    assert!(matches!(error(request(100, 2, vec![1518; 8])), PlanError::Cycle { hop: 0, .. }));
    let bad_clock = Request { clock_error: Nanos::from_millis(1), ..request(100, 1, vec![64]) };
    assert!(matches!(error(bad_clock), PlanError::Cycle { .. }));
}

proptest! {
    // A run at 10 Gbit/s has a million frames of other traffic.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_message_takes_longer_than_planned(
        megabits in prop_oneof![Just(100_u64), Just(1_000), Just(10_000)],
        slower in any::<bool>(),
        hops in 1_usize..4,
        frames in proptest::collection::vec(64_u32..1519, 1..4),
        period in 300_u64..3_000,
        cycle in 500_u64..1_500,
        error in 0_u64..2_000,
        preemption: bool,
        synchronised: bool,
        seed: u64,
    ) {
        let mut request = request(megabits, hops, frames);
        request.period = Nanos::from_micros(period);
        request.cycle = Nanos::from_micros(cycle);
        request.clock_error = Nanos::new(error);
        request.preemption = preemption;
        if slower && hops > 1 {
            request.ports[1].rate = Rate::from_megabits(megabits / 2);
        }
        let Ok(plan) = Plan::new(request) else { return Ok(()) };
        let delays = plan.simulate(100, synchronised, seed);
        prop_assert_eq!(delays.len(), 100);
        let bound = if synchronised { plan.synchronised } else { plan.unsynchronised };
        let longest = delays.iter().max().unwrap();
        prop_assert!(*longest <= bound, "{longest} {bound} {plan:?}");
    }
}
