//! One far SSD and several hosts on a bad day: each host has a tunnel and a controller of its own,
//! they share a namespace, and each has another one that no other host may see.

mod device;
mod host;
mod rules;

use std::cell::RefCell;
use std::rc::Rc;

use assemblies::far::Admitted;
use assemblies::near;
use engine::{Instant, Nanos, Rng};
use nvme::media::MediumId;
use nvme::subsystem::Permit;
use nvme::wire::NamespaceId;
use nvme_pcie::{controller, function};
use pcie::requester::CompletionTimeout;
use sim::faults::Plan;
use sim::media::MediaProfile;
use sim::stream::LinkProfile;
use sim::{Context, Event, Node, NodeId, World};
use tunnel::Fingerprint;
use tunnel::session::Config as SessionConfig;

use crate::campaign::{Limits, Outcome, Subject, trial};
use crate::chaos::{self, ChaosConfig};
use crate::session::{impatient, instance};
use crate::succession::Succession;
use crate::workload::{Phase, Workload, WorkloadConfig};
use device::{DeviceNode, Settings};
use host::{HostNode, Parts};
use rules::{HostNumber, Rules};

/// How long sessions are held.
const HOLD: Nanos = Nanos::from_millis(200);
/// Completion timeout of root complexes and devices: 900 ms.
const TIMEOUT: CompletionTimeout = CompletionTimeout::C1;
/// The namespace that all hosts share.
const SHARED: NamespaceId = NamespaceId(1);
/// Number of blocks of each namespace.
const BLOCKS: u64 = 16;
/// Length of a block in bytes.
const BLOCK: u64 = 512;
/// The largest number of blocks of an operation.
const BLOCKS_MAX: u64 = 8;
/// The largest number of outstanding operations on a namespace.
const DEPTH: usize = 4;
/// The most hosts.
const HOSTS_MAX: u64 = 8;

/// A fault of the far end, for tests of the campaign itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// Two hosts are taken for one, so that the reservations of one are those of the other.
    SharedKey,
    /// Reads of a host's own namespace get the data of another host.
    CrossedMedia,
}

impl Plant {
    /// All faults.
    pub const ALL: [Self; 2] = [Self::SharedKey, Self::CrossedMedia];
}

/// A node of the scenario.
#[derive(Debug)]
enum Member {
    Host(Box<HostNode>),
    Device(Box<DeviceNode>),
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
            (member, event) => unreachable!("{member:?} has no use for {event:?}"),
        }
    }

    fn settle(&mut self, context: &mut Context<'_, ()>) -> Option<Instant> {
        match self {
            Self::Host(host) => host.settle(context),
            Self::Device(device) => device.settle(context),
        }
    }

    fn restart(&mut self, now: Instant, rng: Rng) {
        match self {
            Self::Host(host) => host.restart(&rng),
            Self::Device(device) => device.restart(now, &rng),
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
        if let Self::Host(host) = self {
            host.report(outcome);
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Host(host) => host.describe(),
            Self::Device(device) => device.describe(),
        }
    }
}

/// A world under construction, and the decisions of its seed.
struct Scene {
    world: World<Member>,
    rng: Rng,
    link: LinkProfile,
    media: MediaProfile,
    hosts: usize,
    lookahead: bool,
    strands: u8,
    plant: Option<Plant>,
    /// Whether successors take over from the far end, if the run is compared with another one.
    upgrades: Option<bool>,
}

impl Scene {
    fn new(seed: u64, plant: Option<Plant>) -> Self {
        let world = World::new(seed);
        let mut rng = world.rng("scene");
        let link = LinkProfile {
            latency: Nanos::from_micros(5 + rng.below(200)),
            jitter: Nanos::from_micros(rng.below(50)),
            ..LinkProfile::default()
        };
        let hosts = usize::try_from(2 + rng.below(HOSTS_MAX - 1)).expect("few hosts");
        let media = MediaProfile { atomic_unit: 512, ..MediaProfile::default() };
        let lookahead = rng.one_in(3);
        let strands = if lookahead && rng.one_in(2) { 2 } else { 1 };
        Self { world, rng, link, media, hosts, lookahead, strands, plant, upgrades: None }
    }

    fn session(&mut self, name: &str) -> SessionConfig {
        let instance = instance(&mut self.world.rng(&format!("instance of {name}")));
        SessionConfig {
            stamps: self.rng.one_in(2),
            lookahead: self.lookahead,
            config_cache: self.lookahead,
            strands: self.strands,
            digests: self.rng.one_in(2),
            ..impatient(name, instance, HOLD)
        }
    }

    fn key_of(&self, host: usize) -> Fingerprint {
        let number = if self.plant == Some(Plant::SharedKey) && host == 1 { 0 } else { host };
        Fingerprint([u8::try_from(number + 1).expect("few hosts"); 32])
    }

    fn device(&mut self, rules: &Rc<RefCell<Rules>>) -> NodeId {
        let bytes = BLOCKS * BLOCK;
        let media = 0..=u32::try_from(self.hosts).expect("few hosts");
        let mut core = nvme::subsystem::Config::new("FAR");
        for medium in media.clone() {
            core = core.with_namespace(MediumId(medium), bytes);
        }
        let own = |host| NamespaceId(2 + u32::try_from(host).expect("few hosts"));
        let is_shared = self.plant == Some(Plant::SharedKey);
        let admitted = (0..self.hosts).map(|host| {
            let mut namespaces = vec![SHARED, own(host)];
            namespaces.extend((is_shared && host == 0).then(|| own(1)));
            let permit = Permit { namespaces: Some(namespaces), ..Permit::default() };
            Admitted { key: self.key_of(host), permit }
        });
        let admitted: Vec<_> = admitted.collect();
        let function = function::Config::new(controller::Config::new(core));
        // Now and then there is room for more hosts than there are.
        let seats = u16::try_from(self.hosts).expect("few hosts") + u16::from(self.rng.one_in(3));
        let session = self.session("far");
        let rng = self.world.rng("far");
        let settings = Settings { session, function, seats, admitted };
        let mut node = DeviceNode::new(settings, Rc::clone(rules), &rng, self.plant);
        if let Some(succeed) = self.upgrades {
            node.succeed(Succession::compared(self.world.rng("successors"), succeed));
        }
        let node = self.world.add(Member::Device(Box::new(node)));
        for _ in media {
            self.world.medium(node, bytes, self.media);
        }
        node
    }

    fn host(
        &mut self,
        number: usize,
        far: NodeId,
        works: Vec<(NamespaceId, Workload)>,
        rules: &Rc<RefCell<Rules>>,
        rivals: usize,
    ) -> NodeId {
        let mut settings = near::Config::default();
        settings.root.timeout = TIMEOUT;
        settings.plan.timeout = TIMEOUT;
        settings.arena_bytes = 1 << 20;
        settings.driver.register_timeout = TIMEOUT.longest();
        settings.driver.command_timeout = Nanos::from_millis(500 + self.rng.below(3_000));
        settings.driver.interrupts = self.rng.one_in(2);
        settings.driver.queue_pairs = u16::from(self.strands - 1).max(1);
        settings.driver.resets_max = u32::MAX;
        // Hosts that wait for their device, that wait for a while, and that fail commands at once.
        settings.driver.hold = [Nanos::from_secs(30), HOLD * 2, Nanos::ZERO]
            [usize::try_from(self.rng.below(3)).expect("one of three")];
        settings.gather = HOLD;
        let name = format!("host {number}");
        let session = self.session(&name);
        let rng = self.world.rng(&name);
        let parts = Parts {
            number: HostNumber(number),
            settings,
            session,
            peer: far,
            works,
            rules: Rc::clone(rules),
            rivals,
            slots: 2 * DEPTH as u64 + 1,
            slot_bytes: BLOCKS_MAX * BLOCK,
        };
        let node = self.world.add(Member::Host(Box::new(HostNode::new(parts, &rng))));
        self.world.link(node, far, self.link);
        let key = self.key_of(number);
        if let Member::Device(device) = self.world.node_mut(far) {
            device.know(node, key);
        }
        node
    }
}

/// Runs the scenario for `seed`.
pub fn run(seed: u64) -> Outcome {
    run_planted(seed, None)
}

/// Runs the scenario for `seed` with a fault that the campaign must find.
pub fn run_planted(seed: u64, plant: Option<Plant>) -> Outcome {
    play(Scene::new(seed, plant), seed)
}

/// Runs the scenario for `seed`, in which successors take over from the far end if there are
/// `upgrades`.
pub(crate) fn run_succeeded(seed: u64, upgrades: bool) -> Outcome {
    play(Scene { upgrades: Some(upgrades), ..Scene::new(seed, None) }, seed)
}

fn play(mut scene: Scene, seed: u64) -> Outcome {
    let rules = Rc::new(RefCell::new(Rules::new()));
    let far = scene.device(&rules);
    let work = WorkloadConfig {
        blocks: BLOCKS,
        block_size: usize::try_from(BLOCK).expect("a block's bytes"),
        depth: DEPTH,
        blocks_max: BLOCKS_MAX,
        pause_max: Nanos::from_millis(20),
        media_lie: false,
    };
    let shared = Workload::new(work, scene.world.rng("shared"));
    // In every other run, hosts reserve the shared namespace.
    let rivals = if scene.rng.one_in(2) { scene.hosts } else { 0 };
    let mut hosts = Vec::new();
    for (number, own) in (0..scene.hosts).zip(2..) {
        let [one, other] = ["shared", "own"].map(|kind| scene.world.rng(&format!("{kind} {number}")));
        let works = vec![(SHARED, shared.sharing(one)), (NamespaceId(own), Workload::new(work, other))];
        hosts.push(scene.host(number, far, works, &rules, rivals));
    }
    let Scene { mut world, mut rng, link, media, .. } = scene;
    let duration = HOLD * 10;
    let (mut plan, mut troubles) = (Plan::new(), Vec::new());
    for near in hosts {
        let chaos = ChaosConfig {
            near,
            far: vec![far],
            lanes: 1,
            duration,
            faults_max: 3,
            hold_time: HOLD,
            link,
            media,
        };
        let (more, kinds) = chaos::plan(&chaos, &mut rng);
        more.iter().for_each(|(at, fault)| plan.at(at, fault));
        troubles.extend(kinds);
    }
    troubles.sort();
    troubles.dedup();
    let settle = Nanos::from_secs(120);
    let limits = Limits { chaos: duration + HOLD * 3, drain: settle, verify: settle };
    Outcome { seed, troubles, ..trial(&mut world, &plan, limits) }
}
