//! A far SSD on a bad day: hosts, tunnels, NVMe functions and media, and everything that goes wrong
//! between them.

mod crowd;
mod device;
mod host;
mod stranger;

use assemblies::near;
use engine::{Instant, Nanos, Rng};
use nvme::host::Protection;
use nvme::media::MediumId;
use nvme::subsystem::BlockSize;
use nvme_pcie::{controller, function};
use pcie::requester::CompletionTimeout;
use sim::faults::{Fault, Plan};
use sim::media::MediaProfile;
use sim::stream::LinkProfile;
use sim::{Context, Event, Node, NodeId, World};
use tunnel::session::Config as SessionConfig;

use crate::campaign::{Limits, Outcome, Subject, compare, trial};
use crate::chaos::{self, ChaosConfig, Trouble};
use crate::script::Script;
use crate::session::{impatient, instance};
use crate::succession::Succession;
use crate::workload::{Phase, Work, Workload, WorkloadConfig};
use crowd::CrowdNode;
use device::DeviceNode;
use host::{Disk, HostNode};
use stranger::StrangerNode;

/// How long sessions are held. Shorter than the completion timeout, so that a peer that comes back
/// in time loses nothing.
const HOLD: Nanos = Nanos::from_millis(200);
/// Completion timeout of root complex and devices: 900 ms.
const TIMEOUT: CompletionTimeout = CompletionTimeout::C1;
/// Number of blocks of each disk.
const BLOCKS: u64 = 24;
/// The largest number of outstanding operations.
const DEPTH: usize = 16;
/// The largest number of blocks of an operation.
const BLOCKS_MAX: u64 = 8;

/// Number of operations of a script.
const SCRIPT: usize = 400;
/// How many bytes of memory sent ahead a device's end keeps: everything, half of it, or next
/// to nothing.
const AHEAD: [u32; 3] = [4 << 20, 32 << 10, 512];

/// A node of the scenario.
#[derive(Debug)]
enum Member {
    Host(Box<HostNode>),
    Device(Box<DeviceNode>),
    Stranger(StrangerNode),
    Crowd(CrowdNode),
}

impl Node for Member {
    type Packet = ();

    fn handle(&mut self, context: &mut Context<'_, ()>, event: Event<()>) {
        let now = context.now();
        match (self, event) {
            (Self::Host(host), Event::Stream { connection, event }) => host.handle(now, connection, event),
            (Self::Device(device), Event::Stream { connection, event }) => {
                device.handle(now, connection, event);
            }
            (Self::Device(device), Event::Media(completion)) => device.media(now, completion),
            (Self::Stranger(stranger), Event::Stream { connection, event }) => {
                stranger.handle(context, connection, &event);
            }
            (Self::Crowd(crowd), Event::Stream { connection, event }) => {
                crowd.handle(context, connection, &event);
            }
            (member, event) => unreachable!("{member:?} has no use for {event:?}"),
        }
    }

    fn settle(&mut self, context: &mut Context<'_, ()>) -> Option<Instant> {
        match self {
            Self::Host(host) => host.settle(context),
            Self::Device(device) => device.settle(context),
            Self::Stranger(stranger) => stranger.settle(context),
            Self::Crowd(crowd) => crowd.settle(context),
        }
    }

    fn restart(&mut self, now: Instant, rng: Rng) {
        match self {
            Self::Host(host) => host.restart(&rng),
            Self::Device(device) => device.restart(now, &rng),
            Self::Stranger(_) | Self::Crowd(_) => {}
        }
    }

    fn fingerprint((): &()) -> u64 {
        0
    }
}

impl Subject for Member {
    fn enter(&mut self, now: Instant, phase: Phase) {
        match self {
            Self::Host(host) => host.enter(now, phase),
            Self::Device(_) | Self::Crowd(_) => {}
            Self::Stranger(stranger) => stranger.gone = true,
        }
    }

    fn is_busy(&self, phase: Phase) -> bool {
        matches!(self, Self::Host(host) if host.is_busy(phase))
    }

    fn report(&mut self, outcome: &mut Outcome) {
        if let Self::Host(host) = self {
            host.report(outcome);
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Host(host) => host.describe(),
            Self::Device(device) => device.describe(),
            Self::Stranger(stranger) => format!("{stranger:?}"),
            Self::Crowd(crowd) => format!("{crowd:?}"),
        }
    }
}

/// The work of the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Random operations, which may fail.
    Random,
    /// A list of operations that is carried out to its end.
    Script,
    /// Random operations on disks with protection information, whose media lie.
    Protected,
}

/// A world under construction, and the decisions of its seed.
struct Scene {
    world: World<Member>,
    rng: Rng,
    link: LinkProfile,
    media: MediaProfile,
    block: BlockSize,
    lookahead: bool,
    /// Number of connections of a link.
    strands: u8,
    /// Whether successors take over from the far ends, if the run is compared with another one.
    upgrades: Option<bool>,
}

impl Scene {
    fn new(seed: u64, lookahead: bool, kind: Kind) -> Self {
        let world = World::new(seed);
        let mut rng = world.rng("scene");
        let link = LinkProfile {
            latency: Nanos::from_micros(5 + rng.below(200)),
            jitter: Nanos::from_micros(rng.below(50)),
            ..LinkProfile::default()
        };
        let block = if rng.one_in(2) { BlockSize::Bytes512 } else { BlockSize::Bytes4096 };
        let block = match kind {
            Kind::Protected if rng.one_in(2) => BlockSize::Guarded16,
            Kind::Protected => BlockSize::Guarded64,
            Kind::Random | Kind::Script => block,
        };
        // A guard of 16 bits finds a torn block only with some probability, so that its media write
        // whole blocks, wherever they do.
        let atomic_unit = if block == BlockSize::Guarded16 { block.stored() } else { block.alignment() };
        let media = MediaProfile { atomic_unit, ..MediaProfile::default() };
        let mut strands = world.rng("strands");
        let strands = if lookahead && strands.one_in(2) { 2 + strands.below(3).to_le_bytes()[0] } else { 1 };
        Self { world, rng, link, media, block, lookahead, strands, upgrades: None }
    }

    fn session(&mut self, name: &str) -> SessionConfig {
        let instance = instance(&mut self.world.rng(&format!("instance of {name}")));
        SessionConfig {
            stamps: self.rng.one_in(2),
            lookahead: self.lookahead,
            config_cache: self.lookahead,
            strands: self.strands,
            digests: self.world.rng("digests").one_in(2),
            ahead: AHEAD[usize::try_from(self.world.rng(name).below(3)).expect("one of three")],
            ..impatient(name, instance, HOLD)
        }
    }

    fn device(&mut self, number: usize) -> NodeId {
        let bytes = BLOCKS * u64::from(self.block.stored());
        let mut core = nvme::subsystem::Config::new(&serial(number)).with_namespace(MediumId(0), bytes);
        core.namespaces[0].block = self.block;
        let function = function::Config::new(controller::Config::new(core));
        let session = self.session(&serial(number));
        let rng = self.world.rng(&serial(number));
        let mut node = DeviceNode::new(session, function, &rng);
        if let Some(succeed) = self.upgrades {
            let rng = self.world.rng(&format!("successors of {}", serial(number)));
            node.succeed(Succession::compared(rng, succeed));
        }
        let node = self.world.add(Member::Device(Box::new(node)));
        self.world.medium(node, bytes, self.media);
        node
    }

    fn host(&mut self, name: &str, peers: &[NodeId], disks: Vec<Disk>) -> NodeId {
        let mut settings = near::Config::default();
        settings.root.timeout = TIMEOUT;
        settings.plan.timeout = TIMEOUT;
        settings.arena_bytes = 2 << 20;
        settings.driver.register_timeout = TIMEOUT.longest();
        settings.driver.command_timeout = Nanos::from_millis(500 + self.rng.below(3_000));
        settings.driver.interrupts = self.rng.one_in(2);
        settings.driver.queue_pairs = u16::from(self.strands - 1).max(1);
        settings.driver.resets_max = u32::MAX;
        // Hosts that wait for their device, that wait for a while, and that fail commands at once.
        settings.driver.hold = [Nanos::from_secs(30), HOLD * 2, Nanos::ZERO]
            [usize::try_from(self.rng.below(3)).expect("one of three")];
        settings.gather = HOLD;
        let session = self.session(name);
        let rng = self.world.rng(name);
        let host = HostNode::new(settings, session, peers.to_vec(), disks, &rng);
        let node = self.world.add(Member::Host(Box::new(host)));
        peers.iter().for_each(|peer| self.world.link(node, *peer, self.link));
        node
    }

    fn disk(&mut self, number: usize, work: Kind) -> Disk {
        let pause_max = Nanos::from_millis(20);
        let block_size = usize::try_from(self.block.bytes()).expect("a block's bytes");
        let config = WorkloadConfig {
            blocks: BLOCKS,
            block_size,
            depth: DEPTH,
            blocks_max: BLOCKS_MAX,
            pause_max,
            media_lie: work == Kind::Protected,
        };
        let rng = self.world.rng(&format!("workload {number}"));
        let workload: Box<dyn Work> = match work {
            Kind::Random | Kind::Protected => Box::new(Workload::new(config, rng)),
            // The pauses are long enough for the list to last as long as the faults.
            Kind::Script => Box::new(Script::new(
                WorkloadConfig { pause_max: Nanos::from_millis(60), ..config },
                SCRIPT,
                rng,
            )),
        };
        let disk =
            Disk::new(serial(number), workload, DEPTH as u64, BLOCKS_MAX * u64::from(self.block.stored()));
        match self.block.guard() {
            None => disk,
            Some(guard) => {
                let by_host = !self.world.rng("protection").one_in(4);
                disk.protected(Protection { guard, block_bytes: self.block.bytes() }, by_host)
            }
        }
    }
}

fn serial(number: usize) -> String {
    format!("FAR{number}")
}

/// Runs the scenario for `seed`.
pub fn run(seed: u64) -> Outcome {
    play(seed, false, Kind::Random, chaos::plan)
}

/// Runs the scenario for `seed` with memory sent ahead of the device's requests.
pub fn run_ahead(seed: u64) -> Outcome {
    play(seed, true, Kind::Random, chaos::plan)
}

/// Runs the scenario for `seed` with protection information on the disks, whose media tear, lose
/// and misdirect writes and let bits rot. A read may fail, and may give the data of an earlier
/// write. It never gives anything else.
pub fn run_protected(seed: u64) -> Outcome {
    play(seed, seed % 2 == 1, Kind::Protected, |config, rng| {
        let lying = MediaProfile { lies_one_in: 2 + rng.below(30), ..config.media };
        let (mut plan, troubles) = chaos::plan(&ChaosConfig { media: lying, ..config.clone() }, rng);
        config.far.iter().for_each(|far| plan.at(Instant::ZERO, Fault::Media(*far, lying)));
        (plan, troubles)
    })
}

/// Runs one list of operations with lookahead off and on, and with equal faults. The read data and
/// the final contents of the disks must be equal.
pub fn run_both(seed: u64) -> Outcome {
    let [off, on] = [false, true].map(|lookahead| play(seed, lookahead, Kind::Script, chaos::plan));
    compare(("lookahead off", off), ("lookahead on", on))
}

/// Runs the scenario for `seed` with its connections cut `cuts` times and nothing else wrong.
/// Nothing above the tunnel may notice the cuts, so a single failed operation is a failure.
pub fn run_cuts(seed: u64, cuts: u64) -> Outcome {
    let mut outcome = play(seed, seed % 2 == 1, Kind::Random, |config, rng| chaos::cuts(config, cuts, rng));
    if outcome.counts.failed > 0 {
        outcome.failures.push(format!("{} operations failed for {cuts} cuts", outcome.counts.failed));
    }
    outcome
}

/// When a crowd comes to a far end: its host has had a session by then.
const CROWD_COMES: Nanos = Nanos::from_millis(100);
/// The most strangers of a crowd.
const CROWD_MAX: u64 = 12;
/// How often the host's connection is cut while they are there.
const CROWD_CUTS: u64 = 10;

/// Runs the scenario for `seed` at a far end with keys, around which a crowd of strangers gathers
/// and stays, while the host's connection is cut again and again. Nothing above the tunnel may
/// notice the strangers or the cuts, so a single failed operation is a failure.
pub fn run_gate(seed: u64) -> Outcome {
    let mut scene = Scene::new(seed, seed % 2 == 1, Kind::Random);
    let far = scene.device(0);
    let disk = scene.disk(0, Kind::Random);
    let near = scene.host("near", &[far], vec![disk]);
    let places = 4 + usize::try_from(scene.rng.below(60)).expect("a few");
    if let Member::Device(device) = scene.world.node_mut(far) {
        device.guard(near, places);
    }
    for number in 0..=scene.rng.below(CROWD_MAX) {
        let rng = scene.world.rng(&format!("crowd {number}"));
        let crowd = CrowdNode::new(far, Instant::ZERO + CROWD_COMES, rng);
        let crowd = scene.world.add(Member::Crowd(crowd));
        scene.world.link(crowd, far, scene.link);
    }
    let mut outcome =
        endure(seed, scene, (near, vec![far]), |config, rng| chaos::cuts(config, CROWD_CUTS, rng));
    if outcome.counts.failed > 0 {
        outcome.failures.push(format!("{} operations failed beside the crowd", outcome.counts.failed));
    }
    outcome
}

/// Runs the scenario for `seed`, in which successors take over from the far ends if there are
/// `upgrades`.
pub(crate) fn run_succeeded(seed: u64, upgrades: bool) -> Outcome {
    let scene = Scene { upgrades: Some(upgrades), ..Scene::new(seed, seed % 2 == 1, Kind::Random) };
    play_in(scene, seed, Kind::Random, chaos::plan)
}

fn play(
    seed: u64,
    lookahead: bool,
    kind: Kind,
    plan: impl FnOnce(&ChaosConfig, &mut Rng) -> (Plan, Vec<Trouble>),
) -> Outcome {
    play_in(Scene::new(seed, lookahead, kind), seed, kind, plan)
}

fn play_in(
    mut scene: Scene,
    seed: u64,
    kind: Kind,
    plan: impl FnOnce(&ChaosConfig, &mut Rng) -> (Plan, Vec<Trouble>),
) -> Outcome {
    let count = if scene.rng.one_in(4) { 2 } else { 1 };
    let far: Vec<NodeId> = (0..count).map(|number| scene.device(number)).collect();
    let disks = (0..count).map(|number| scene.disk(number, kind)).collect();
    let near = scene.host("near", &far, disks);
    if scene.rng.one_in(4) {
        scene.host("intruder", &far[..1], Vec::new());
    }
    if scene.rng.one_in(4) {
        let rng = scene.world.rng("stranger");
        let stranger = scene.world.add(Member::Stranger(StrangerNode::new(far[0], rng)));
        scene.world.link(stranger, far[0], scene.link);
    }
    endure(seed, scene, (near, far), plan)
}

/// Runs a scene through its plan of faults.
fn endure(
    seed: u64,
    scene: Scene,
    (near, far): (NodeId, Vec<NodeId>),
    plan: impl FnOnce(&ChaosConfig, &mut Rng) -> (Plan, Vec<Trouble>),
) -> Outcome {
    let Scene { mut world, link, media, .. } = scene;
    let duration = HOLD * 10;
    let chaos = ChaosConfig { near, far, lanes: 1, duration, faults_max: 8, hold_time: HOLD, link, media };
    let (plan, troubles) = plan(&chaos, &mut world.rng("chaos"));
    let settle = Nanos::from_secs(120);
    let limits = Limits { chaos: duration + HOLD * 3, drain: settle, verify: settle };
    Outcome { seed, troubles, ..trial(&mut world, &plan, limits) }
}
