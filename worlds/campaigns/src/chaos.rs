//! Faults of a campaign, drawn from a seed.

use engine::{Instant, Nanos, Rng};
use sim::NodeId;
use sim::faults::{Fault, LaneFault, Plan};
use sim::media::MediaProfile;
use sim::stream::{Lane, LinkProfile};

/// Which nodes faults happen to, and the times that matter to the faults.
#[derive(Clone, Debug)]
pub struct ChaosConfig {
    /// The host's node.
    pub near: NodeId,
    /// The nodes of the devices.
    pub far: Vec<NodeId>,
    /// Number of links between the near node and each far node; each link fault happens to
    /// one link.
    pub lanes: u8,
    /// How long faults may begin to happen.
    pub duration: Nanos,
    /// The largest number of faults.
    pub faults_max: u64,
    /// How long a session survives without its connection: some faults last less long, some longer.
    pub hold_time: Nanos,
    /// The profile of the healthy link between near and far.
    pub link: LinkProfile,
    /// The profile of the healthy media.
    pub media: MediaProfile,
}

/// The kinds of faults that a campaign injects, for its report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// The connection is cut once.
    Cut,
    /// The connection is cut many times in a row.
    CutStorm,
    /// No bytes pass for less than the hold time.
    ShortHold,
    /// No bytes pass for more than the hold time.
    LongHold,
    /// The link is slow and uneven for a while.
    Degraded,
    /// The far end is killed, and is back within the hold time.
    FarKill,
    /// The far end is killed, and is back only after the hold time.
    FarKillLong,
    /// The host is killed and comes back.
    NearKill,
    /// The far end does nothing for a while.
    FarPause,
    /// The host does nothing for a while.
    NearPause,
    /// Media requests fail now and then.
    MediaErrors,
    /// Media are slow, for some requests much slower than for others.
    SlowMedia,
    /// Media stop answering for a while.
    Stall,
    /// Media fail to make written data durable.
    FailedSync,
    /// Writes end well of which only a part is there.
    TornWrites,
    /// Writes end well of which nothing is there.
    LostWrites,
    /// Writes end well that went elsewhere.
    MisdirectedWrites,
    /// Bits on the medium change.
    RottenBits,
    /// The medium has no room for everything.
    FullMedium,
    /// An SSD gets warm and slow.
    Throttling,
    /// An SSD reclaims space beside its writes.
    Reclaiming,
    /// The power fails.
    PowerCut,
    /// The power fails while a recording is being ended.
    LateCut,
    /// A source that does not wait is faster than the medium.
    FastSource,
    /// A source neither waits nor ends.
    EndlessSource,
    /// A source is behind a network that loses packets.
    LossyNetwork,
    /// A socket has no room for datagrams that come.
    FullSocket,
    /// A ring overwrites its oldest.
    Overwritten,
    /// A user pins parts of a ring.
    Pinned,
    /// A user triggers a recording that waits for that.
    Triggered,
    /// The power fails while a recording is made whole.
    CutRecovery,
}

/// The kinds that a plan of faults is drawn from.
const TROUBLES: [Trouble; 13] = [
    Trouble::Cut,
    Trouble::CutStorm,
    Trouble::ShortHold,
    Trouble::LongHold,
    Trouble::Degraded,
    Trouble::FarKill,
    Trouble::FarKillLong,
    Trouble::NearKill,
    Trouble::FarPause,
    Trouble::NearPause,
    Trouble::MediaErrors,
    Trouble::SlowMedia,
    Trouble::Stall,
];

/// The largest number of kinds of trouble in one seed.
const KINDS_MAX: u64 = 4;
/// Number of cuts in a storm.
const STORM: u64 = 20;

/// Draws a plan of faults, and returns the plan with the kinds of trouble in it.
///
/// A seed often has a few kinds of trouble and seldom many, so that each kind also happens alone
/// and in pairs.
pub fn plan(config: &ChaosConfig, rng: &mut Rng) -> (Plan, Vec<Trouble>) {
    let mut plan = Plan::new();
    let mut troubles = Vec::new();
    let kinds: Vec<_> = (0..=rng.below(KINDS_MAX)).map(|_| pick(rng)).collect();
    for _ in 0..rng.below(config.faults_max + 1) {
        let trouble = kinds[usize::try_from(rng.below(kinds.len() as u64)).expect("a few kinds")];
        let at = Instant::ZERO + Nanos::new(rng.below(config.duration.get()));
        let far = config.far[usize::try_from(rng.below(config.far.len() as u64)).expect("few far ends")];
        add(&mut plan, config, trouble, at, far, rng);
        troubles.push(trouble);
    }
    troubles.sort();
    troubles.dedup();
    (plan, troubles)
}

/// A plan of `cuts` cuts of each far node's link, spread over the whole time, and nothing else.
pub fn cuts(config: &ChaosConfig, cuts: u64, rng: &mut Rng) -> (Plan, Vec<Trouble>) {
    let mut plan = Plan::new();
    for _ in 0..cuts {
        let at = Instant::ZERO + Nanos::new(rng.below(config.duration.get()));
        config.far.iter().for_each(|far| plan.at(at, Fault::Cut(config.near, *far)));
    }
    (plan, vec![Trouble::Cut])
}

fn pick(rng: &mut Rng) -> Trouble {
    TROUBLES[usize::try_from(rng.below(TROUBLES.len() as u64)).expect("a few")]
}

fn add(plan: &mut Plan, config: &ChaosConfig, trouble: Trouble, at: Instant, far: NodeId, rng: &mut Rng) {
    let (near, hold) = (config.near, config.hold_time);
    let short = Nanos::new(rng.below(hold.get() * 3 / 4));
    let long = hold + hold / 8 + Nanos::new(rng.below(hold.get()));
    let any = Nanos::new(rng.below(hold.get() * 2));
    // With a single link there is no choice, and nothing is drawn.
    let lane = if config.lanes > 1 { rng.below(u64::from(config.lanes)) } else { 0 };
    let lane = Lane(u8::try_from(lane).expect("few lanes"));
    let link = |fault| Fault::Lane(near, far, lane, fault);
    let kill = |plan: &mut Plan, node, down| {
        plan.at(at, Fault::Kill(node));
        plan.at(at + down, Fault::Restart(node));
    };
    match trouble {
        Trouble::Cut => plan.at(at, link(LaneFault::Cut)),
        Trouble::CutStorm => {
            let mut at = at;
            for _ in 0..STORM {
                plan.at(at, link(LaneFault::Cut));
                at = at + Nanos::new(rng.below(hold.get() / 16));
            }
        }
        Trouble::ShortHold => plan.at(at, link(LaneFault::Hold(short))),
        Trouble::LongHold => {
            plan.at(at, link(LaneFault::Hold(long)));
            plan.at(at, link(LaneFault::Cut));
        }
        Trouble::Degraded => {
            let worse = LinkProfile {
                latency: config.link.latency * (1 + rng.below(50)),
                jitter: Nanos::new(rng.below(hold.get() / 100)),
                rate: 1_000_000 + rng.below(100_000_000),
                in_flight_max: 1 + usize::try_from(rng.below(32 << 10)).expect("32 KiB"),
                segment_max: 1 + usize::try_from(rng.below(1 << 10)).expect("1 KiB"),
                ..config.link
            };
            plan.at(at, link(LaneFault::Link(worse)));
            plan.at(at + any, link(LaneFault::Link(config.link)));
        }
        Trouble::FarKill => kill(plan, far, short),
        Trouble::FarKillLong => kill(plan, far, long),
        Trouble::NearKill => kill(plan, near, any),
        Trouble::FarPause => plan.at(at, Fault::Pause(far, any)),
        Trouble::NearPause => plan.at(at, Fault::Pause(near, any)),
        Trouble::MediaErrors => {
            let failing = MediaProfile { error_one_in: 1 + rng.below(50), ..config.media };
            plan.at(at, Fault::Media(far, failing));
            plan.at(at + any, Fault::Media(far, config.media));
        }
        Trouble::SlowMedia => {
            // The slowest request is from a little slower than usual to slower than any time-out.
            let most = hold.get() << rng.below(6) >> 2;
            let slow = MediaProfile { jitter: Nanos::new(rng.below(most)), ..config.media };
            plan.at(at, Fault::Media(far, slow));
            plan.at(at + any, Fault::Media(far, config.media));
        }
        Trouble::Stall => {
            plan.at(at, Fault::Stall(far));
            plan.at(at + any, Fault::Resume(far));
        }
        other => unreachable!("{other:?} is none of those that happen to networks and their nodes"),
    }
}
