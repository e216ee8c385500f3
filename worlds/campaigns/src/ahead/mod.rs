//! Lookahead between a host that reuses memory as soon as it may, and a device that reads memory as
//! it likes.
//!
//! Three comparisons judge a run: the device's reads with the recorded contents of the host's
//! memory (`memory`), the memory sent ahead with the data that the device could have read (`tap`),
//! and the host's reads with the model of its disk.

mod buffers;
mod commands;
mod device;
mod far;
mod host;
mod memory;
mod queue;
mod reap;
mod set_up;
mod station;
mod tap;
mod wild;

use assemblies::near;
use engine::{Instant, Nanos, Rng};
use nvme::media::MediumId;
use nvme::subsystem::BlockSize;
use nvme_pcie::{controller, function};
use pcie::requester::CompletionTimeout;
use pcie::root_complex::{self, Plan};
use sim::media::MediaProfile;
use sim::stream::LinkProfile;
use sim::{Context, Event, Node, NodeId, World};
use tunnel::session::{Config as SessionConfig, Dma};

use crate::campaign::{Limits, Outcome, Subject, trial};
use crate::chaos::{self, ChaosConfig};
use crate::session::{impatient, instance};
use crate::workload::{Phase, Workload, WorkloadConfig};
use far::FarNode;
use host::HostNode;
use memory::{BASE, HostMemory, Shared};
use station::{DATA_PAGES, PAGES, QUEUE_PAGES, Station};
use tap::Tap;

const HOLD: Nanos = Nanos::from_millis(200);
const TIMEOUT: CompletionTimeout = CompletionTimeout::C1;
const BLOCKS: u64 = 48;
const PAGE: u64 = 4096;
/// Size in bytes of a controller's memory buffer, if there is one.
const MEMORY_BUFFER: u32 = 64 << 10;
/// How many bytes of memory sent ahead a device's end keeps.
const WINDOWS: [u32; 4] = [4 << 20, 128 << 10, 32 << 10, 512];

/// A node of the scenario.
#[derive(Debug)]
enum Member {
    Host(Box<HostNode>),
    Far(Box<FarNode>),
}

impl Node for Member {
    type Packet = ();

    fn handle(&mut self, context: &mut Context<'_, ()>, event: Event<()>) {
        let now = context.now();
        match (self, event) {
            (Self::Host(host), Event::Stream { connection, event }) => host.handle(now, connection, event),
            (Self::Far(far), Event::Stream { connection, event }) => far.handle(now, connection, event),
            (Self::Far(far), Event::Media(completion)) => far.media(now, completion),
            (member, event) => unreachable!("{member:?} has no use for {event:?}"),
        }
    }

    fn settle(&mut self, context: &mut Context<'_, ()>) -> Option<Instant> {
        match self {
            Self::Host(host) => host.settle(context),
            Self::Far(far) => far.settle(context),
        }
    }

    fn restart(&mut self, now: Instant, rng: Rng) {
        match self {
            Self::Host(host) => host.restart(rng),
            Self::Far(far) => far.restart(now, &rng),
        }
    }

    fn fingerprint((): &()) -> u64 {
        0
    }
}

impl Subject for Member {
    fn enter(&mut self, _: Instant, phase: Phase) {
        if let Self::Host(host) = self {
            host.enter(phase);
        }
    }

    fn is_busy(&self, phase: Phase) -> bool {
        matches!(self, Self::Host(host) if host.is_busy(phase))
    }

    fn report(&mut self, outcome: &mut Outcome) {
        match self {
            Self::Host(host) => host.report(outcome),
            Self::Far(far) => far.report(outcome),
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Host(host) => host.describe(),
            Self::Far(far) => far.describe(),
        }
    }
}

fn pick<T: Copy, const N: usize>(rng: &mut Rng, of: [T; N]) -> T {
    of[usize::try_from(rng.below(N as u64)).expect("an index")]
}

/// A world under construction, and the decisions of its seed.
struct Scene {
    world: World<Member>,
    rng: Rng,
    memory: Shared,
    media: MediaProfile,
    block: BlockSize,
    far: Vec<NodeId>,
    stations: Vec<Station>,
    taps: Vec<Tap>,
}

impl Scene {
    fn session(&mut self, name: &str, window: u32) -> SessionConfig {
        let instance = instance(&mut self.world.rng(&format!("instance of {name}")));
        // Half of the devices reach only memory that the host has named to them.
        let strict = self.world.rng(&format!("rule of {name}")).one_in(2);
        let dma = if strict { Dma::Strict } else { Dma::Mapped };
        SessionConfig {
            stamps: self.rng.one_in(2),
            lookahead: true,
            dma,
            ahead: window,
            ..impatient(name, instance, HOLD)
        }
    }

    /// Adds a device, and the host's station for the device.
    fn device(&mut self, index: usize, timeout: Nanos, unruly: bool) {
        let block = u64::from(self.block.bytes());
        let name = format!("AHEAD{index}");
        let mut core = nvme::subsystem::Config::new(&name).with_namespace(MediumId(0), BLOCKS * block);
        core.namespaces[0].block = self.block;
        let mut config = controller::Config::new(core);
        config.queue_entries_max = 256;
        config.doorbell_buffers = unruly;
        config.memory_buffer_bytes = if self.rng.one_in(4) { MEMORY_BUFFER } else { 0 };
        let config = function::Config::new(config);
        let window = pick(&mut self.rng, WINDOWS);
        let session = self.session(&name, window);
        let rng = self.world.rng(&name);
        let far = FarNode::new(session, config, self.memory.clone(), !unruly, window, rng);
        let node = self.world.add(Member::Far(Box::new(far)));
        self.world.medium(node, BLOCKS * block, self.media);
        self.far.push(node);

        let many = self.rng.one_in(4);
        let workload = WorkloadConfig {
            blocks: BLOCKS,
            block_size: usize::try_from(block).expect("a block's bytes"),
            depth: if many { 90 } else { 16 },
            blocks_max: if many { 1 } else { 12 },
            pause_max: Nanos::from_millis(60),
            media_lie: false,
        };
        let base = BASE + index as u64 * PAGES * PAGE;
        if unruly {
            // An unruly host's commands may name any page of its queues and data, so only the
            // memory beyond counts as unused.
            let pages = usize::try_from((QUEUE_PAGES + DATA_PAGES) * PAGE).expect("a few hundred pages");
            self.memory.borrow_mut().write(base, &vec![0; pages]);
        }
        let settings = station::Settings {
            index,
            base,
            block,
            queue_entries: if many { 128 } else { 16 },
            pairs: if many { 6 } else { 2 },
            timeout,
            unruly,
        };
        let workload = Workload::new(workload, self.world.rng(&format!("workload {index}")));
        self.stations.push(Station::new(settings, workload));
        self.taps.push(Tap::new(self.memory.clone(), block, window, unruly));
    }
}

/// Runs the scenario for `seed` with hosts that keep the rules.
pub fn run(seed: u64) -> Outcome {
    play(seed, false)
}

/// Runs the scenario for `seed` with hosts that keep no rules. Only memory that the device could
/// have read may be sent ahead.
pub fn run_unruly(seed: u64) -> Outcome {
    play(seed, true)
}

fn play(seed: u64, unruly: bool) -> Outcome {
    let world = World::new(seed);
    let mut rng = world.rng("scene");
    let link = LinkProfile {
        latency: Nanos::from_micros(5 + rng.below(400)),
        jitter: Nanos::from_micros(rng.below(50)),
        ..LinkProfile::default()
    };
    let block = pick(&mut rng, [BlockSize::Bytes512, BlockSize::Bytes4096]);
    let media = MediaProfile { atomic_unit: block.bytes(), ..MediaProfile::default() };
    let count = if rng.one_in(3) { 2 } else { 1 };
    let memory = HostMemory::new(usize::try_from(PAGES * PAGE * 2).expect("a few MiB"));
    let mut scene =
        Scene { world, rng, memory, media, block, far: Vec::new(), stations: Vec::new(), taps: Vec::new() };
    let timeout = Nanos::from_millis(500 + scene.rng.below(3_000));
    (0..count).for_each(|index| scene.device(index, timeout, unruly));
    let session = scene.session("host", 0);
    let root = root_complex::Config {
        timeout: TIMEOUT,
        completion_size: pick(&mut scene.rng, [64, 128, 256, 4096]),
        ..root_complex::Config::default()
    };
    let settings = host::Settings {
        switch: near::switch(u8::try_from(count).expect("one or two")),
        root,
        plan: Plan { timeout: TIMEOUT, ..Plan::default() },
        session,
        peers: scene.far.clone(),
        memory: scene.memory.clone(),
        slow: Nanos::from_micros(pick(&mut scene.rng, [0, 0, 100, 2_000])),
    };
    let Scene { mut world, stations, taps, far, .. } = scene;
    let host = HostNode::new(settings, stations, taps, world.rng("host"));
    let near = world.add(Member::Host(Box::new(host)));
    far.iter().for_each(|far| world.link(near, *far, link));
    let duration = HOLD * 10;
    let chaos = ChaosConfig { near, far, lanes: 1, duration, faults_max: 5, hold_time: HOLD, link, media };
    let (plan, troubles) = chaos::plan(&chaos, &mut world.rng("chaos"));
    let settle = Nanos::from_secs(120);
    let limits = Limits { chaos: duration + HOLD * 3, drain: settle, verify: settle };
    Outcome { seed, troubles, ..trial(&mut world, &plan, limits) }
}
