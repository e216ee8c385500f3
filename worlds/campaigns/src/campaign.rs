//! Campaigns of many seeds. Each seed gives a world, a plan of faults, and conditions that must
//! hold during and after the faults.

use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use engine::{Instant, Nanos};
use sim::faults::Plan;
use sim::{Node, NodeId, World};

use crate::chaos::Trouble;
use crate::workload::{Counts, Phase};

/// A node that a campaign can drive through the phases of a trial.
pub trait Subject: Node {
    /// Enters another phase.
    fn enter(&mut self, now: Instant, phase: Phase);
    /// Whether the node still has work in `phase`.
    fn is_busy(&self, phase: Phase) -> bool;
    /// Adds the node's counts, and the errors that it has found, to `outcome`.
    fn report(&mut self, outcome: &mut Outcome);
    /// A description of the node's state, for the report of a world that never settles.
    fn describe(&self) -> String;
}

/// How long the phases of a trial may take, in virtual time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long faults happen.
    pub chaos: Nanos,
    /// How long outstanding operations may take to end once the world is healed.
    pub drain: Nanos,
    /// How long the verification may take.
    pub verify: Nanos,
}

/// The result of running one seed.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The name of the scenario.
    pub scenario: &'static str,
    /// The seed that was run.
    pub seed: u64,
    /// A fingerprint of the whole run.
    pub digest: u64,
    /// A fingerprint of all data that hosts have read and of the disks' final contents, where both
    /// are a function of the seed alone.
    pub contents: u64,
    /// Number of events in the run.
    pub events: u64,
    /// Virtual time of the run.
    pub elapsed: Nanos,
    /// The kinds of faults that were injected.
    pub troubles: Vec<Trouble>,
    /// Counts of the hosts.
    pub counts: Counts,
    /// Number of pieces of memory that were sent ahead of the devices' requests, and number of
    /// reads that were answered from such pieces.
    pub ahead: (u64, u64),
    /// Number of accesses that the model of a reservation has judged.
    pub judged: u64,
    /// Descriptions of forbidden events; empty when all is well.
    pub failures: Vec<String>,
}

impl Outcome {
    /// The command line that runs this seed again.
    pub fn replay(&self) -> String {
        let Self { scenario, seed, .. } = self;
        format!(
            "cargo run --release -p farlane-campaigns --bin campaign -- --scenario {scenario} --seed {seed}"
        )
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { done, failed, abandoned } = self.counts;
        writeln!(
            f,
            "{} seed {}: {} events in {} of virtual time, digest {:016x}; {done} operations done, \
             {failed} failed, {abandoned} abandoned; troubles: {:?}",
            self.scenario, self.seed, self.events, self.elapsed, self.digest, self.troubles
        )?;
        for failure in &self.failures {
            writeln!(f, "  FAILED: {failure}")?;
        }
        if !self.failures.is_empty() {
            writeln!(f, "  replay: {}", self.replay())?;
        }
        Ok(())
    }
}

/// Runs a world through its plan of faults, heals it, and verifies it.
///
/// Safety: no read contradicts the model, and no operation ends twice. Liveness: once the world is
/// healed, every outstanding operation ends, and a verification of the whole disk finds no error.
pub fn trial<N: Subject>(world: &mut World<N>, plan: &Plan, limits: Limits) -> Outcome {
    let nodes: Vec<NodeId> = world.ids().collect();
    let mut failures = Vec::new();
    world.run_with(plan, Instant::ZERO + limits.chaos);
    world.heal();
    for phase in [Phase::Drain, Phase::Verify] {
        let now = world.now();
        nodes.iter().for_each(|&node| world.node_mut(node).enter(now, phase));
        let (limit, what) = match phase {
            Phase::Verify => (limits.verify, "the verification has not ended"),
            _ => (limits.drain, "operations under way have not ended"),
        };
        let until = now + limit;
        let busy = |world: &World<N>| nodes.iter().any(|&node| world.node(node).is_busy(phase));
        if !world.run_while(until, busy) {
            failures.push(format!("{what} {limit} after the world was healed"));
            let describe = |node: &NodeId| format!("{node:?}: {}", world.node(*node).describe());
            failures.extend(nodes.iter().map(describe));
            break;
        }
    }
    let mut outcome = Outcome {
        digest: world.digest(),
        events: world.events(),
        elapsed: world.now() - Instant::ZERO,
        failures,
        ..Outcome::default()
    };
    nodes.into_iter().for_each(|node| world.node_mut(node).report(&mut outcome));
    outcome
}

/// Combines two named runs of a seed into one outcome. Runs that give different bytes are a
/// failure.
pub fn compare((name, one): (&str, Outcome), (other_name, mut other): (&str, Outcome)) -> Outcome {
    let said = |name: &str, failures: Vec<String>| {
        failures.into_iter().map(move |failure| format!("{name}: {failure}")).collect::<Vec<_>>()
    };
    let mut failures = said(name, one.failures);
    failures.extend(said(other_name, std::mem::take(&mut other.failures)));
    if one.contents != other.contents {
        let (one, other) = (one.contents, other.contents);
        failures.push(format!("{name} gives bytes with digest {one:016x}, {other_name} {other:016x}"));
    }
    let mut digest = sim::Digest::default();
    digest.word(one.digest);
    digest.word(other.digest);
    Outcome {
        digest: digest.value(),
        events: one.events + other.events,
        elapsed: one.elapsed.max(other.elapsed),
        counts: Counts {
            done: one.counts.done + other.counts.done,
            failed: one.counts.failed + other.counts.failed,
            abandoned: one.counts.abandoned + other.counts.abandoned,
        },
        failures,
        ..other
    }
}

/// Runs `run`, the scenario called `scenario`, for every seed on `jobs` threads. Hands each outcome
/// to `report` as it comes; a panic is an outcome, too. Ends early when `report` returns false.
pub fn run_seeds(
    scenario: &'static str,
    seeds: Range<u64>,
    jobs: usize,
    run: impl Fn(u64) -> Outcome + Sync,
    mut report: impl FnMut(Outcome) -> bool,
) {
    let next = AtomicU64::new(seeds.start);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            let (sender, next, seeds, run) = (sender.clone(), &next, &seeds, &run);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !seeds.contains(&seed)
                        || sender.send(Outcome { scenario, ..guarded(seed, run) }).is_err()
                    {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for outcome in &receiver {
            if !report(outcome) {
                next.store(u64::MAX / 2, Ordering::Relaxed);
                break;
            }
        }
        // Senders stop when the receiver is gone.
        drop(receiver);
    });
}

fn guarded(seed: u64, run: &impl Fn(u64) -> Outcome) -> Outcome {
    let outcome = catch_unwind(AssertUnwindSafe(|| run(seed)));
    let mut outcome = outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("of an unknown kind");
        Outcome { failures: vec![format!("a panic: {text}")], ..Outcome::default() }
    });
    outcome.seed = seed;
    outcome
}
