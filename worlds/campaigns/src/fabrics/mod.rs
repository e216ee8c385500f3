//! NVMe over Fabrics on a bad day: hosts, a subsystem, perhaps a proxy, one or two paths between
//! each pair of nodes, and everything that goes wrong there.

mod air;
mod behind;
mod host;
mod reactors;
mod settings;
mod target;
mod wires;

use assemblies::fabric::Fabric;
use engine::{Instant, Nanos, Rng};
use nvme::media::MediumId;
use nvme::subsystem::BlockSize;
use nvme_fabrics::host::Authentication;
use sim::faults::{Fault, Plan};
use sim::media::MediaProfile;
use sim::stream::{Lane, LinkProfile};
use sim::{Context, Event, Node, NodeId, World};

use crate::campaign::{Limits, Outcome, Subject, trial};
use crate::chaos::{self, ChaosConfig};
use crate::digest::crc32c;
use crate::workload::{Phase, Workload, WorkloadConfig};
use air::Air;
use behind::Behind;
use host::HostNode;
use target::{Ports, TargetNode};
use wires::Wires;

/// The length by which faults are measured: some are shorter than the host's time-outs,
/// some longer.
const HOLD: Nanos = Nanos::from_millis(400);
/// Number of blocks of the namespace that are used.
const BLOCKS: u64 = 24;
/// The largest number of outstanding operations.
const DEPTH: usize = 16;
/// The largest number of blocks of an operation.
const BLOCKS_MAX: u64 = 8;

/// A node of the scenario.
#[derive(Debug)]
enum Member {
    Host(Box<HostNode>),
    Target(Box<TargetNode>),
}

impl Node for Member {
    type Packet = air::Parcel;

    fn handle(&mut self, context: &mut Context<'_, air::Parcel>, event: Event<air::Parcel>) {
        let now = context.now();
        match (self, event) {
            (Self::Host(host), Event::Stream { connection, event }) => host.handle(now, connection, event),
            (Self::Target(target), Event::Stream { connection, event }) => {
                target.handle(now, connection, event);
            }
            (Self::Host(host), Event::Packet { packet, .. }) => {
                host.wires_mut().handle_parcel(now, &packet);
            }
            (Self::Target(target), Event::Packet { packet, .. }) => target.handle_parcel(now, &packet),
            (Self::Target(target), Event::Media(completion)) => target.media(now, completion),
            (member, event) => unreachable!("{member:?} has no use for {event:?}"),
        }
    }

    fn settle(&mut self, context: &mut Context<'_, air::Parcel>) -> Option<Instant> {
        match self {
            Self::Host(host) => host.settle(context),
            Self::Target(target) => target.settle(context),
        }
    }

    fn restart(&mut self, now: Instant, rng: Rng) {
        match self {
            Self::Host(host) => host.restart(),
            Self::Target(target) => target.restart(now, rng),
        }
    }

    fn fingerprint(parcel: &air::Parcel) -> u64 {
        u64::from(crc32c(0, parcel.bytes()))
    }
}

impl Subject for Member {
    fn enter(&mut self, _now: Instant, phase: Phase) {
        if phase != Phase::Chaos {
            self.airs_mut().for_each(Air::clear_up);
        }
        if let Self::Host(host) = self {
            host.enter(phase);
        }
    }

    fn is_busy(&self, phase: Phase) -> bool {
        match self {
            Self::Host(host) => host.is_busy(phase),
            Self::Target(target) => phase == Phase::Drain && !target.is_whole(),
        }
    }

    fn report(&mut self, outcome: &mut Outcome) {
        if let Self::Host(host) = self {
            host.report(outcome);
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Host(host) => host.describe(),
            Self::Target(target) => target.describe(),
        }
    }
}

impl Member {
    /// The devices of RoCE of this node.
    fn airs_mut(&mut self) -> Box<dyn Iterator<Item = &mut Air> + '_> {
        match self {
            Self::Host(host) => Box::new(host.wires_mut().air_mut().into_iter()),
            Self::Target(target) => Box::new(target.airs_mut()),
        }
    }
}

/// The nodes of the scenario besides the subsystem's.
#[derive(Clone, Copy, Debug)]
struct Cast {
    hosts: u8,
    /// Whether hosts reach the namespace through a proxy.
    proxy: bool,
    /// Number of paths between a host and its target.
    paths: u8,
    /// The carrier of the connections.
    fabric: Fabric,
    /// Number of reactors of each target.
    reactors: usize,
}

/// Two nodes with links between them: the near one and the far one.
type Pair = (NodeId, NodeId);

/// The stations of a network of RoCE. Hosts have the numbers from [`HOSTS`] on.
const FAR: u8 = 1;
const PROXY: u8 = 2;
const BEHIND_PROXY: u8 = 3;
const HOSTS: u8 = 10;

/// Builds a subsystem with its node, and the hosts that use its namespace.
fn build(world: &mut World<Member>, cast: Cast, link: LinkProfile, media: MediaProfile) -> Vec<Pair> {
    let mut rng = world.rng("settings");
    let block = if rng.one_in(2) { BlockSize::Bytes512 } else { BlockSize::Bytes4096 };
    let bytes = BLOCKS * u64::from(block.bytes());
    let mut core = nvme::subsystem::Config::new("FABRICS").with_namespace(MediumId(0), bytes);
    core.subsystem_name = settings::subsystem_name().as_str().into();
    core.namespaces[0].block = block;
    let settings = settings::of_target(&mut rng, cast.fabric);
    let ports = ports(world, cast);
    let air = |world: &World<Member>, station: u8| {
        let is_wanted = cast.fabric == Fabric::Roce;
        is_wanted.then(|| {
            Air::new(station, cast.paths, world.rng("network"), world.rng(&format!("air of {station}")))
        })
    };
    let (lands, own) = (rng.one_in(2), air(world, FAR));
    let node = TargetNode::new(ports.clone(), settings, core.clone(), lands, world.rng("target"), None, own);
    let far = (world.add(Member::Target(Box::new(node))), FAR);
    world.medium(far.0, bytes, MediaProfile { atomic_unit: block.bytes(), ..media });
    let mut pairs = Vec::new();
    let mut join = |world: &mut World<Member>, near: (NodeId, u8), far: (NodeId, u8)| {
        for lane in 0..cast.paths {
            match cast.fabric {
                Fabric::Roce => join_by_air(world, near, far, lane, link.latency),
                _ => world.link_lane(near.0, far.0, Lane(lane), link),
            }
        }
        pairs.push((near.0, far.0));
    };
    let wires = |world: &World<Member>, rng: &mut Rng, [number, own]: [u8; 2], target: (NodeId, u8)| {
        let (config, mut association) = settings::of_host(rng, number, cast.fabric);
        association.authentication = proof(world, number, &ports);
        let associations = vec![association; usize::from(cast.paths)];
        let air = air(world, own).map(|air| (air, target.1));
        Wires::new(target.0, config, associations, rng.one_in(2), air)
    };
    let target = if cast.proxy {
        let behind = Behind::new(
            wires(world, &mut rng, [settings::PROXY_NUMBER, BEHIND_PROXY], far),
            block.bytes().into(),
        );
        let settings = settings::of_target(&mut rng, cast.fabric);
        let (lands, own) = (rng.one_in(2), air(world, PROXY));
        let node =
            TargetNode::new(ports.clone(), settings, core, lands, world.rng("proxy"), Some(behind), own);
        let proxy = world.add(Member::Target(Box::new(node)));
        join(world, (proxy, BEHIND_PROXY), far);
        (proxy, PROXY)
    } else {
        far
    };
    let workload = WorkloadConfig {
        blocks: BLOCKS,
        block_size: usize::try_from(block.bytes()).expect("a block's bytes"),
        depth: DEPTH,
        blocks_max: BLOCKS_MAX,
        pause_max: Nanos::from_millis(40),
        media_lie: false,
    };
    let first = Workload::new(workload, world.rng("workload"));
    let others: Vec<_> =
        (1..cast.hosts).map(|host| first.sharing(world.rng(&format!("workload {host}")))).collect();
    for (number, workload) in (1..).zip([first].into_iter().chain(others)) {
        let station = HOSTS + number;
        let host = HostNode::new(wires(world, &mut rng, [number, station], target), workload);
        let host = world.add(Member::Host(Box::new(host)));
        join(world, (host, station), target);
    }
    pairs
}

/// The ports of a target. In most runs hosts need no secrets.
fn ports(world: &World<Member>, cast: Cast) -> Ports {
    let mut chances = world.rng("keys");
    let keys = (cast.reactors > 1 && chances.one_in(3)).then(|| settings::credentials(&mut chances));
    Ports { count: cast.paths, fabric: cast.fabric, reactors: cast.reactors, keys }
}

/// How a host authenticates, if it must.
fn proof(world: &World<Member>, number: u8, ports: &Ports) -> Option<Authentication> {
    let entropy = world.rng(&format!("proof of {number}")).into();
    Some(Authentication { credentials: ports.keys.clone()?, entropy })
}

/// Joins two stations by a network of datagrams.
fn join_by_air(world: &mut World<Member>, near: (NodeId, u8), far: (NodeId, u8), lane: u8, latency: Nanos) {
    let (one, other) = world.join(near.0, far.0, latency);
    for ((node, station), port, (_, peer)) in [(near, one, far), (far, other, near)] {
        let rng = world.rng(&format!("weather from {station} to {peer} at {lane}"));
        let mut airs = world.node_mut(node).airs_mut();
        let air = airs.find(|air| air.station() == station).expect("the station has devices");
        air.lead(air::address(peer, lane), port, rng);
    }
}

/// Runs the scenario for `seed` with one host.
pub fn run(seed: u64) -> Outcome {
    play(seed, 1, false, Fabric::Tcp, 1)
}

/// Runs the scenario for `seed` with one host or more, whose target has up to four reactors with
/// lanes.
pub fn run_cores(seed: u64) -> Outcome {
    let mut rng = Rng::from_seed(seed).fork("cast");
    let hosts = 1 + u8::try_from(rng.below(3)).expect("a few");
    let fabric = if rng.one_in(4) { Fabric::Iwarp } else { Fabric::Tcp };
    let reactors = 2 + usize::try_from(rng.below(3)).expect("a few");
    play(seed, hosts, rng.one_in(8), fabric, reactors)
}

/// Runs the scenario for `seed` with two hosts that use the same blocks of one namespace.
pub fn run_shared(seed: u64) -> Outcome {
    play(seed, 2, false, Fabric::Tcp, 1)
}

/// Runs the scenario for `seed` with a host whose target is a proxy of another target.
pub fn run_proxy(seed: u64) -> Outcome {
    play(seed, 1, true, Fabric::Tcp, 1)
}

/// Runs the scenario for `seed` over NVMe/RDMA by iWARP: with one host or two, perhaps by way of
/// a proxy.
pub fn run_rdma(seed: u64) -> Outcome {
    let mut rng = Rng::from_seed(seed).fork("cast");
    let hosts = if rng.one_in(3) { 2 } else { 1 };
    play(seed, hosts, rng.one_in(4), Fabric::Iwarp, 1)
}

/// Runs the scenario for `seed` over NVMe/RDMA by RoCE, whose datagrams get lost, doubled, late,
/// cut short and changed: with one host or two, perhaps by way of a proxy.
pub fn run_roce(seed: u64) -> Outcome {
    let mut rng = Rng::from_seed(seed).fork("cast");
    let hosts = if rng.one_in(3) { 2 } else { 1 };
    play(seed, hosts, rng.one_in(4), Fabric::Roce, 1)
}

fn play(seed: u64, hosts: u8, proxy: bool, fabric: Fabric, reactors: usize) -> Outcome {
    let mut world = World::new(seed);
    let mut rng = world.rng("scene");
    let link = LinkProfile {
        latency: Nanos::from_micros(5 + rng.below(200)),
        jitter: Nanos::from_micros(rng.below(50)),
        ..LinkProfile::default()
    };
    let lanes = if rng.one_in(2) { 2 } else { 1 };
    let media = MediaProfile::default();
    let pairs = build(&mut world, Cast { hosts, proxy, paths: lanes, fabric, reactors }, link, media);
    let duration = HOLD * 5;
    let mut chances = world.rng("chaos");
    let (mut plan, mut troubles) = (Plan::new(), Vec::new());
    for (near, far) in pairs {
        let far = vec![far];
        let chaos = ChaosConfig { near, far, lanes, duration, faults_max: 8, hold_time: HOLD, link, media };
        let (its, of_it) = chaos::plan(&chaos, &mut chances);
        for (at, fault) in its.iter() {
            // A network of datagrams has weather of its own, and no streams that could be cut.
            let is_of_streams =
                matches!(fault, Fault::Cut(..) | Fault::Hold(..) | Fault::Link(..) | Fault::Lane(..));
            if fabric != Fabric::Roce || !is_of_streams {
                plan.at(at, fault);
            }
        }
        troubles.extend(of_it);
    }
    troubles.sort();
    troubles.dedup();
    let settle = Nanos::from_secs(120);
    let limits = Limits { chaos: duration + HOLD * 3, drain: settle, verify: settle };
    Outcome { seed, troubles, ..trial(&mut world, &plan, limits) }
}
