//! Faults between the ends of the switch, at fixed times or at random.

use engine::{Instant, Nanos, Rng};
use network_models::faults::Behaviour;
use network_models::sample;
use sim::NodeId;
use sim::World;
use sim::faults::Fault;
use sim::stream::Lane;

use super::Member;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The connection is cut, and everything in flight is lost.
    Cut,
    /// Nothing arrives for this time; then everything does.
    Hold(Nanos),
    /// The end at the device stands still for this time.
    Pause(Nanos),
    /// The network behaves like this for this time, in addition to its own models.
    Behave(Behaviour, Nanos),
}

/// When a fault happens, counted from the beginning of the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Once, after this time.
    At(Nanos),
    /// Repeatedly; the times from the end of one fault to the next one are exponentially
    /// distributed with this mean.
    Every(Nanos),
}

/// A fault that is planned or under way.
#[derive(Clone, Debug)]
struct Planned {
    when: When,
    trouble: Trouble,
    rng: Rng,
    begins: Option<Instant>,
    /// When the fault that is under way ends.
    ends: Option<Instant>,
}

/// The faults of a bench.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Planned>);

impl Faults {
    /// Faults whose times count from [`Faults::start`].
    pub(super) fn new(faults: &[(When, Trouble)], rng: &Rng) -> Self {
        let planned = faults.iter().enumerate().map(|(number, (when, trouble))| {
            let mut rng = rng.fork(&format!("fault {number}"));
            let after = match *when {
                When::At(at) => at,
                When::Every(mean) => sample::exponential(&mut rng, mean),
            };
            Planned { when: *when, trouble: *trouble, rng, begins: Some(Instant::ZERO + after), ends: None }
        });
        Self(planned.collect())
    }

    /// Starts to count the faults' times, when the tasks begin.
    pub(super) fn start(&mut self, now: Instant) {
        for begins in self.0.iter_mut().filter_map(|planned| planned.begins.as_mut()) {
            *begins = now + (*begins - Instant::ZERO);
        }
    }

    /// When a fault begins or ends next.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.iter().flat_map(|planned| [planned.begins, planned.ends]).flatten().min()
    }

    /// Begins and ends the faults that are due.
    pub(super) fn apply(&mut self, world: &mut World<Member>, [near, far]: [NodeId; 2]) {
        let now = world.now();
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let mut changed = false;
        for planned in &mut self.0 {
            if due(planned.ends) {
                planned.ends = None;
                changed = true;
            }
            if !due(planned.begins) {
                continue;
            }
            let lasts = match planned.trouble {
                Trouble::Cut => {
                    world.apply(Fault::Cut(near, far));
                    Nanos::ZERO
                }
                Trouble::Hold(time) => {
                    world.apply(Fault::Hold(near, far, time));
                    time
                }
                Trouble::Pause(time) => {
                    world.apply(Fault::Pause(far, time));
                    time
                }
                Trouble::Behave(_, time) => {
                    planned.ends = Some(now + time);
                    changed = true;
                    time
                }
            };
            planned.begins = match planned.when {
                When::At(_) => None,
                // The added nanosecond keeps the loop finite.
                When::Every(mean) => {
                    Some(now + lasts + sample::exponential(&mut planned.rng, mean) + Nanos::new(1))
                }
            };
        }
        if changed {
            // When several faults overlap, the last one in the file counts.
            let active = self.0.iter().rev().find_map(|planned| match planned.trouble {
                Trouble::Behave(behaviour, _) if planned.ends.is_some() => Some(behaviour),
                _ => None,
            });
            world.impair(near, far, Lane::default(), active.unwrap_or_default());
        }
    }
}
