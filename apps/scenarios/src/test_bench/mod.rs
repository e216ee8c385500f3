//! A host and an SSD on modelled PCIe links. The links are joined directly, or by the distributed
//! switch over a network.
//!
//! The machines are the real engines: root complex and driver, switch and tunnel sessions, NVMe
//! function. The paths between the machines, and the times of their parts, are models
//! ([`sim::models`], `network_models`).

mod chain;
mod faults;
mod host;
mod interrupts;
mod jobs;
mod journal;
mod port;
mod ssd;
mod switch;
mod task;

use assemblies::{near, watch};
use engine::{Instant, Nanos, Rng, Watch};
use network_models::network::Network;
use network_models::streams::Order;
use nvme::media::MediumId;
use nvme_pcie::{controller, function};
use pcie::config::Link as LinkRegisters;
use pcie::requester::CompletionTimeout;
use pcie::wire::{Kind as TlpKind, Packet};
use sim::models::{host as host_model, pcie as link_model, ssd as ssd_model};
use sim::stream::Lane;
use sim::{Context, Event, Node, NodeId, World};
use tunnel::session::Config as SessionConfig;

pub use chain::{Chain, Place, Segment};
use faults::Faults;
pub use faults::{Trouble, When};
use host::HostNode;
pub use jobs::{Job, Mixed, Operation, Source, data_bytes};
use journal::{Cause, Journal};
use port::Port;
use ssd::SsdNode;
use switch::{DownstreamNode, UpstreamNode};
pub use task::{Kind, Outcome, Seen, Task, What};

/// How long a boot may take in virtual time.
const BOOT_MAX: Nanos = Nanos::from_secs(600);

impl Setup {
    /// Default size of a namespace in bytes: enough for tasks to spread over. No figure depends
    /// on it.
    pub const NAMESPACE_BYTES: u64 = 1 << 30;
    /// Default size in bytes of the data of outstanding commands: 64 commands of 128 KiB.
    pub const DATA_BYTES: u64 = 8 << 20;

    /// The machines of the published set-ups, with a switch whose pipeline takes no time.
    pub const fn published(seed: u64) -> Self {
        Self {
            seed,
            host: host_model::Parameters::RYZEN_3200G,
            // Published time lines have one write each, without a spread.
            ssd: ssd_model::Parameters {
                accept_spread: Nanos::ZERO,
                ..ssd_model::Parameters::SAMSUNG_970_PRO
            },
            link: link_model::Link::GEN2_X4,
            payload_size: 256,
            read_request_size: 256,
            queue_entries: 4,
            rings_for_each: true,
            timeout: CompletionTimeout::C2,
            data_bytes: Self::DATA_BYTES,
            namespace_bytes: Self::NAMESPACE_BYTES,
            pipeline: Nanos::ZERO,
            lookahead: false,
            aged: None,
        }
    }
}

impl Setup {
    /// The SSD, new or used.
    pub(crate) fn ssd(&self, rng: Rng) -> ssd_model::Ssd {
        let ssd = ssd_model::Ssd::new(self.ssd, rng);
        match self.aged {
            None => ssd,
            Some(is_scattered) => ssd.aged(is_scattered),
        }
    }
}

/// The machines and links of a bench, and their parameters.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The seed of every random choice.
    pub seed: u64,
    /// The model of the host.
    pub host: host_model::Parameters,
    /// The model of the SSD.
    pub ssd: ssd_model::Parameters,
    /// The model of both PCIe links.
    pub link: link_model::Link,
    /// Max_Payload_Size of the hierarchy in bytes.
    pub payload_size: u32,
    /// Max_Read_Request_Size in bytes.
    pub read_request_size: u32,
    /// Number of entries of the driver's I/O queue.
    pub queue_entries: u32,
    /// Whether the driver rings the completion doorbell for each completion. Linux does, and tasks
    /// at a depth of 1 are measured by these doorbells; otherwise the driver saves most of them.
    pub rings_for_each: bool,
    /// How long the host and the device wait for completions.
    pub timeout: CompletionTimeout,
    /// Size in bytes of the host's memory for the data of outstanding commands.
    pub data_bytes: u64,
    /// Size of the SSD's namespace in bytes.
    pub namespace_bytes: u64,
    /// The time that a packet takes in either end of the distributed switch, between the PCIe port
    /// and the network stack.
    pub pipeline: Nanos,
    /// Whether the switch sends ahead the data that the device is about to read from the host.
    pub lookahead: bool,
    /// Whether the SSD was full before, and then whether it was overwritten at random.
    pub aged: Option<bool>,
}

/// A message over a PCIe link.
#[derive(Clone, Debug)]
enum Cargo {
    /// A packet, with the journal's mark of its arrival.
    Tlp(Packet, Cause),
    /// A hot reset of the device.
    Reset,
}

/// A node of the bench.
#[derive(Debug)]
enum Member {
    Host(Box<HostNode>),
    Upstream(Box<UpstreamNode>),
    Downstream(Box<DownstreamNode>),
    Ssd(Box<SsdNode>),
}

impl Node for Member {
    type Packet = Cargo;

    fn handle(&mut self, context: &mut Context<'_, Cargo>, event: Event<Cargo>) {
        let now = context.now();
        match (self, event) {
            (member, Event::Packet { packet: Cargo::Tlp(packet, cause), .. }) => match member {
                Self::Host(host) => host.receive(now, packet, cause),
                Self::Ssd(ssd) => ssd.receive(context, packet, cause),
                Self::Upstream(end) => end.receive(now, packet, cause),
                Self::Downstream(end) => end.receive(now, packet, cause),
            },
            (Self::Ssd(ssd), Event::Packet { packet: Cargo::Reset, .. }) => ssd.reset(),
            (Self::Upstream(end), Event::Stream { connection, event }) => {
                end.network(context, connection, event);
            }
            (Self::Downstream(end), Event::Stream { connection, event }) => {
                end.network(context, connection, event);
            }
            (member, event) => unreachable!("{member:?} has no use for {event:?}"),
        }
    }

    fn settle(&mut self, context: &mut Context<'_, Cargo>) -> Option<Instant> {
        match self {
            Self::Host(host) => host.settle(context),
            Self::Upstream(end) => end.settle(context),
            Self::Downstream(end) => end.settle(context),
            Self::Ssd(ssd) => ssd.settle(context),
        }
    }

    fn restart(&mut self, _: Instant, _: Rng) {
        unreachable!("no node of this bench is killed");
    }

    fn fingerprint(packet: &Cargo) -> u64 {
        let Cargo::Tlp(packet, _) = packet else { return 0 };
        let kind = match packet.header.kind {
            TlpKind::Memory(request) => request.address,
            TlpKind::Config(request) => u64::from(request.target.bits()),
            _ => 0,
        };
        kind ^ packet.payload.len() as u64 ^ u64::from(packet.header.length) << 48
    }
}

/// A host and an SSD, running in a world of their own.
#[derive(Debug)]
pub struct TestBench {
    world: World<Member>,
    host: NodeId,
    /// The upstream and the downstream end of the switch, if there is one.
    ends: Option<[NodeId; 2]>,
    faults: Faults,
    journal: Journal,
}

impl TestBench {
    /// Builds a bench with the SSD on the host's own link, or with a `network`, behind a
    /// distributed switch whose ends the network joins. Everything is switched off.
    pub fn new(setup: &Setup, network: Option<Network>) -> Self {
        let mut world = World::new(setup.seed);
        let journal = Journal::default();
        let port = |place| {
            let link = link_model::Link { payload_size: setup.payload_size, ..setup.link };
            Port::new(link_model::Transmitter::new(link), place, journal.clone())
        };
        let below = if network.is_some() { Place::DeviceLink } else { Place::HostLink };
        let (rng, near) = (world.rng("host"), near_config(setup));
        let host_port = port(Place::HostLink).with_origin(true);
        let bytes = setup.namespace_bytes;
        let host = HostNode::new(near, setup.host, host_port, bytes, rng, journal.clone());
        let host = world.add(Member::Host(Box::new(host)));
        let model = setup.ssd(world.rng("ssd"));
        let ssd_port = port(below).with_origin(false);
        let ssd = SsdNode::new(function_config(bytes), bytes, model, ssd_port, journal.clone());
        let ssd = world.add(Member::Ssd(Box::new(ssd)));
        let Some(network) = network else {
            world.join(host, ssd, Nanos::ZERO);
            return Self { world, host, ends: None, faults: Faults::default(), journal };
        };
        let session = || SessionConfig {
            hold: Nanos::from_secs(60),
            silence: Nanos::from_secs(30),
            lookahead: setup.lookahead,
            ..SessionConfig::default()
        };
        let (below, rng) = (port(below), world.rng("downstream"));
        let end = DownstreamNode::new(session(), setup.pipeline, below, rng, journal.clone());
        let downstream = world.add(Member::Downstream(Box::new(end)));
        let (payload, rng) = (setup.payload_size, world.rng("upstream"));
        let above = port(Place::HostLink);
        let end = UpstreamNode::new(session(), payload, setup.pipeline, above, downstream, &rng);
        let end = end.with_journal(journal.clone());
        let upstream = world.add(Member::Upstream(Box::new(end)));
        world.join(host, upstream, Nanos::ZERO);
        world.join(downstream, ssd, Nanos::ZERO);
        world.model(upstream, downstream, network);
        Self { world, host, ends: Some([upstream, downstream]), faults: Faults::default(), journal }
    }

    fn host_mut(&mut self) -> &mut HostNode {
        match self.world.node_mut(self.host) {
            Member::Host(host) => host,
            other => unreachable!("{other:?} is no host"),
        }
    }

    fn host(&self) -> &HostNode {
        host_of(&self.world, self.host)
    }

    /// Brings up the tunnel, switches the host on and waits until the host drives the controller.
    /// Returns how long the host took.
    ///
    /// # Errors
    /// The part that did not come up, or the host's first failure.
    pub fn boot(&mut self) -> Result<Nanos, String> {
        if let Some([upstream, _]) = self.ends {
            let limit = self.world.now() + BOOT_MAX;
            let down =
                |world: &World<Member>| !matches!(world.node(upstream), Member::Upstream(end) if end.is_up());
            if !self.world.run_while(limit, down) {
                return Err("the tunnel does not come up".into());
            }
        }
        let begin = self.world.now();
        self.host_mut().power_on(begin);
        let host = self.host;
        let limit = begin + BOOT_MAX;
        self.world.run_while(limit, |world| {
            let host = host_of(world, host);
            !host.ready && host.failures.is_empty() && !gave_up(host)
        });
        let host = self.host();
        if host.ready {
            // Everything that follows the bring-up, such as requests for events, is over within
            // a second.
            let ready = self.world.now();
            self.world.run(ready + Nanos::from_secs(1));
            self.faults.start(self.world.now());
            return Ok(ready - begin);
        }
        let found = if host.enumerated { "no controller was found" } else { "enumeration did not end" };
        Err(host.failures.first().cloned().unwrap_or_else(|| found.into()))
    }

    /// Runs a task to its end; `None` if it does not end within `limit`.
    pub fn run(&mut self, task: Task, limit: Nanos) -> Option<Outcome> {
        let now = self.world.now();
        self.host_mut().start(now, task);
        let host = self.host;
        let done = self.run_while(now + limit, |world| host_of(world, host).is_busy());
        done.then(|| std::mem::take(&mut self.host_mut().outcome))
    }

    /// Follows operation `number` of the next task. Following changes nothing that happens.
    pub fn follow(&mut self, number: u64) {
        self.journal.want(number);
    }

    /// Takes the critical path of the operation that was followed, once it has ended.
    pub fn chain(&mut self) -> Option<Chain> {
        self.journal.take()
    }

    /// Runs jobs side by side to their ends; `None` if they do not end within `limit`. The results
    /// are those of each job, in the order of [`Kind::ALL`].
    ///
    /// # Panics
    /// When the sum of the depths reaches the size of the driver's queue, or the data exceed the
    /// setup's room.
    pub fn run_jobs(&mut self, jobs: Vec<Job>, limit: Nanos) -> Option<Vec<[Outcome; Kind::ALL.len()]>> {
        let now = self.world.now();
        self.host_mut().start_jobs(now, jobs);
        let host = self.host;
        let done = self.run_while(now + limit, |world| host_of(world, host).has_jobs(world.now()));
        let jobs = self.host_mut().end_jobs();
        done.then(|| jobs.outcomes())
    }

    /// Plans faults for the time after the host's boot; everything random in the faults
    /// follows from `rng`. To be called before [`TestBench::boot`]. A bench without a network
    /// has no faults.
    pub fn disturb(&mut self, faults: &[(When, Trouble)], rng: &Rng) {
        self.faults = Faults::new(faults, rng);
    }

    /// Runs until `busy` returns false, or until the time `until`. Returns whether `busy` did.
    fn run_while(&mut self, until: Instant, busy: impl Fn(&World<Member>) -> bool) -> bool {
        loop {
            let fault = self.ends.zip(self.faults.next().filter(|at| *at <= until));
            let pause = fault.map_or(until, |(_, at)| at);
            if self.world.run_while(pause, &busy) {
                return true;
            }
            let Some((ends, _)) = fault else { return false };
            self.faults.apply(&mut self.world, ends);
        }
    }

    /// Gives the streams that cross the network an order.
    pub fn order_streams(&mut self, order: Order) {
        if let Some([upstream, downstream]) = self.ends {
            self.world.order_streams(upstream, downstream, Lane::default(), order);
        }
    }

    /// Lets this time pass.
    pub fn pass(&mut self, time: Nanos) {
        self.run_while(self.world.now() + time, |_| true);
    }

    /// Switches the analyser on the root port's link on or off, and returns the packets that it
    /// has seen.
    pub fn analyse(&mut self, on: bool) -> Vec<Seen> {
        self.host_mut().analyse(on)
    }

    /// An added watcher sees the packets on the root port's link, each at the time of its first
    /// symbol there. Those of the two directions may be shown in another order than their times'.
    pub fn watch(&mut self) -> &mut Watch<watch::Port> {
        self.host_mut().watch()
    }

    /// The network between the two ends of the switch, if there is one.
    pub fn network(&self) -> Option<&Network> {
        let [upstream, downstream] = self.ends?;
        self.world.network(upstream, downstream, Lane::default())
    }

    /// Statistics of the switch's lookahead, if it is on.
    pub fn lookahead(&self) -> Option<nvme_lookahead::Statistics> {
        match self.world.node(self.ends?[0]) {
            Member::Upstream(end) => end.lookahead(),
            other => unreachable!("{other:?} is no end of a switch"),
        }
    }

    /// Number of events so far.
    pub const fn events(&self) -> u64 {
        self.world.events()
    }

    /// A fingerprint of all that has happened.
    pub const fn digest(&self) -> u64 {
        self.world.digest()
    }

    /// The current virtual time.
    pub const fn now(&self) -> Instant {
        self.world.now()
    }
}

fn host_of(world: &World<Member>, id: NodeId) -> &HostNode {
    match world.node(id) {
        Member::Host(host) => host,
        other => unreachable!("{other:?} is no host"),
    }
}

/// Whether the host has enumerated the hierarchy and found no controller.
fn gave_up(host: &HostNode) -> bool {
    host.enumerated && host.near().is_none_or(|near| near.controllers().next().is_none())
}

fn near_config(setup: &Setup) -> near::Config {
    // The rest of the arena is for queues and lists.
    let arena_bytes = setup.data_bytes + (8 << 20);
    let mut config = near::Config { arena_bytes, ..near::Config::default() };
    config.root.payload_size = setup.payload_size;
    config.root.completion_size = setup.host.completion_size;
    config.root.timeout = setup.timeout;
    config.plan.read_request_size = setup.read_request_size;
    config.plan.timeout = setup.timeout;
    config.driver.interrupts = true;
    config.driver.queue_entries = setup.queue_entries;
    config.driver.rings_for_each = setup.rings_for_each;
    config.driver.register_timeout = setup.timeout.longest() * 2;
    config
}

fn function_config(bytes: u64) -> function::Config {
    let core = nvme::subsystem::Config::new("FAR").with_namespace(MediumId(0), bytes);
    let mut config = function::Config::new(controller::Config::new(core));
    config.link = LinkRegisters { speed: 2, width: 4, port: 0, payload_max: 256 };
    config
}
