//! Two tunnel sessions with a bad network between them. Every packet of a link arrives once and in
//! order, or the link goes down.

use engine::{Buffer, Engine, Instant, Nanos, Rng};
use pcie::wire::{Bdf, Packet};
use sim::faults::{Fault, Plan};
use sim::media::MediaProfile;
use sim::stream::{ConnectionId, Lane, LinkProfile, StreamEvent};
use sim::{Context, Event, Node, NodeId, World};
use tunnel::Session;
use tunnel::frame::Role;
use tunnel::session::{Config, Input, Output, SEGMENT_LIMIT};

use crate::campaign::{Limits, Outcome, Subject, trial};
use crate::chaos::{self, ChaosConfig, Trouble};
use crate::digest::crc32c;
use crate::joined_paths::{JoinedPaths, LANES};
use crate::lossy::Lossy;
use crate::session::{impatient, instance};
use crate::workload::Phase;
use sim::stream::Outbox;

/// How long a session is held without a connection.
const HOLD: Nanos = Nanos::from_millis(400);
/// How long faults happen: eight hold times. After that, four more pass before the ends must agree.
const DURATION: Nanos = Nanos::from_millis(3200);
/// How long a datagram takes.
const LATENCY: Nanos = Nanos::from_micros(50);
/// Number of packets that each end sends during verification.
const VERIFY_PACKETS: u64 = 200;
/// The longest pause between two packets while faults happen.
const PAUSE_MAX: Nanos = Nanos::from_millis(2);

/// A label in the payload of each packet, by which the receiver recognises the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Label {
    /// The sender's run in the upper 32 bits, and the number of its link in the lower ones.
    epoch: u64,
    /// Number of the packet on its link, from 0.
    number: u64,
    /// Whether this is the last packet of a verification.
    last: bool,
}

impl Label {
    /// Length of a label in bytes.
    const LENGTH: usize = 24;

    fn packet(self, length: usize) -> Packet {
        let mut bytes = vec![self.number.to_le_bytes()[0]; length];
        for (place, word) in [self.epoch, self.number, u64::from(self.last)].into_iter().enumerate() {
            bytes[8 * place..][..8].copy_from_slice(&word.to_le_bytes());
        }
        Packet::memory_write(Bdf::new(1, 0, 0), self.number << 12, Buffer::from(bytes))
    }

    /// The label of `packet`, if the packet is unchanged.
    fn of(packet: &Packet) -> Option<Self> {
        let word = |place: usize| {
            let bytes = packet.payload.get(8 * place..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let label = Self { epoch: word(0)?, number: word(1)?, last: word(2)? == 1 };
        (label.packet(packet.payload.len()) == *packet).then_some(label)
    }
}

/// What an end does with its session, which may be another implementation than [`Session`].
pub trait Member: core::fmt::Debug {
    /// Handles an input; see [`Engine::handle_input`].
    fn handle_input(&mut self, now: Instant, input: Input);
    /// Handles everything that is due; see [`Engine::handle_timeout`].
    fn handle_timeout(&mut self, now: Instant);
    /// The next output; see [`Engine::poll_output`].
    fn poll_output(&mut self) -> Option<Output>;
    /// When something is due; see [`Engine::poll_timeout`].
    fn poll_timeout(&self) -> Option<Instant>;
    /// Sends a packet; see [`Session::send`].
    fn send(&mut self, now: Instant, packet: Packet);
    /// Says how long segments may be; see [`Session::set_segment_max`].
    fn set_segment_max(&mut self, bytes: usize);
}

impl Member for Session {
    fn handle_input(&mut self, now: Instant, input: Input) {
        Engine::handle_input(self, now, input);
    }
    fn handle_timeout(&mut self, now: Instant) {
        Engine::handle_timeout(self, now);
    }
    fn poll_output(&mut self) -> Option<Output> {
        Engine::poll_output(self)
    }
    fn poll_timeout(&self) -> Option<Instant> {
        Engine::poll_timeout(self)
    }
    fn send(&mut self, now: Instant, packet: Packet) {
        Self::send(self, now, packet);
    }
    fn set_segment_max(&mut self, bytes: usize) {
        Self::set_segment_max(self, bytes);
    }
}

/// Makes an end's session: for each run of the end another one.
pub type Maker = fn(Role, &Config, &Rng) -> Box<dyn Member>;

/// Makes the engine's session.
pub fn engine(role: Role, config: &Config, rng: &Rng) -> Box<dyn Member> {
    Box::new(match role {
        Role::Upstream => Session::upstream(config.clone(), rng.fork("session")),
        Role::Downstream => Session::downstream(config.clone(), rng.fork("session")),
    })
}

/// One end: a session, its connection, and the packets that it sends and expects.
#[derive(Debug)]
pub struct End {
    config: Config,
    make: Maker,
    session: Box<dyn Member>,
    /// The node to dial; `None` at the downstream end, which waits.
    peer: Option<NodeId>,
    connection: Option<ConnectionId>,
    dialled: Option<ConnectionId>,
    outbox: Outbox,
    /// Several links at once, which take the place of `connection`, `dialled` and `outbox`.
    joined: Option<JoinedPaths>,
    /// Datagrams, which take their place as well.
    lossy: Option<Lossy>,
    rng: Rng,
    phase: Phase,
    incarnation: u64,
    /// Number of links that came up in this run.
    links: u64,
    link_up: bool,
    /// The number of the next packet to send over the current link.
    next: u64,
    next_at: Instant,
    /// During verification, the number of packets still to be sent over the current link.
    left: u64,
    /// The epoch and the number of the next packet to be received.
    expected: Option<(u64, u64)>,
    /// The highest epoch that was received.
    newest: u64,
    received: u64,
    downs: u64,
    peer_done: bool,
    wrong: Vec<String>,
}

impl End {
    fn new(make: Maker, config: Config, peer: Option<NodeId>, lanes: u8, rng: Rng) -> Self {
        let role = if peer.is_some() { Role::Upstream } else { Role::Downstream };
        Self {
            session: make(role, &config, &rng),
            config,
            make,
            peer,
            connection: None,
            dialled: None,
            outbox: Outbox::default(),
            joined: (lanes > 1).then(|| JoinedPaths::new(peer, rng.fork("ways"))),
            lossy: None,
            rng,
            phase: Phase::Chaos,
            incarnation: 0,
            links: 0,
            link_up: false,
            next: 0,
            next_at: Instant::ZERO,
            left: 0,
            expected: None,
            newest: 0,
            received: 0,
            downs: 0,
            peer_done: false,
            wrong: Vec::new(),
        }
    }

    const fn epoch(&self) -> u64 {
        (self.incarnation << 32) + self.links
    }

    fn on_packet(&mut self, packet: &Packet) {
        let Some(label) = Label::of(packet) else {
            return self.wrong.push(format!("a packet was changed on the way: {packet}"));
        };
        match self.expected {
            Some((epoch, number)) if (epoch, number) == (label.epoch, label.number) => {}
            None if label.number == 0 && label.epoch > self.newest => {}
            expected => {
                let Label { epoch, number, .. } = label;
                self.wrong.push(format!("packet {number} of epoch {epoch} came, expected was {expected:?}"));
            }
        }
        if !self.link_up {
            self.wrong.push(format!("packet {} came while the link was down", label.number));
        }
        self.expected = Some((label.epoch, label.number + 1));
        self.newest = label.epoch;
        self.received += 1;
        self.peer_done |= label.last;
    }

    fn on_link(&mut self, up: bool) {
        self.link_up = up;
        (self.next, self.expected) = (0, None);
        if up {
            self.links += 1;
            self.left = VERIFY_PACKETS;
        } else {
            self.downs += 1;
        }
    }

    fn speak(&mut self, now: Instant) {
        while self.link_up {
            match self.phase {
                Phase::Chaos if self.next_at <= now => {
                    self.next_at = now + Nanos::new(self.rng.below(PAUSE_MAX.get()) + 1);
                }
                Phase::Verify if self.left > 0 => self.left -= 1,
                _ => break,
            }
            let last = self.phase == Phase::Verify && self.left == 0;
            let label = Label { epoch: self.epoch(), number: self.next, last };
            let room = (4096 - Label::LENGTH) / 4;
            let more = if self.rng.one_in(4) { self.rng.below(room as u64 + 1) } else { self.rng.below(16) };
            let length = Label::LENGTH + 4 * usize::try_from(more).expect("less than a page");
            self.session.send(now, label.packet(length));
            self.next += 1;
        }
    }

    fn on_output(&mut self, context: &mut Context<'_, Vec<u8>>, output: Output) {
        if let Some(lossy) = &mut self.lossy {
            match output {
                Output::Transmit(bytes) => return lossy.send(bytes),
                Output::Connect => return lossy.connect(context.now()),
                Output::CloseConnection => return lossy.close(context),
                _ => {}
            }
        }
        match (output, &mut self.joined) {
            (Output::Transmit(bytes), Some(joined)) => joined.send(context.now(), bytes),
            (Output::Connect, Some(joined)) => joined.connect(context),
            (Output::CloseConnection, Some(joined)) => joined.close(context),
            (output, _) => self.on_plain(context, output),
        }
    }

    fn on_plain(&mut self, context: &mut Context<'_, Vec<u8>>, output: Output) {
        match output {
            Output::Transmit(bytes) => self.outbox.push(bytes),
            Output::Tlp { packet, .. } => self.on_packet(&packet),
            Output::Connect => {
                self.drop_connection(context);
                let peer = self.peer.expect("only the upstream end dials");
                self.dialled = Some(context.dial(peer));
            }
            Output::CloseConnection => self.finish_connection(context),
            Output::LinkUp { .. } => self.on_link(true),
            Output::LinkDown { .. } => self.on_link(false),
            Output::Interrupted { .. }
            | Output::Resumed
            | Output::HandshakeFailed(_)
            | Output::Reset
            | Output::Ahead(..)
            | Output::Forget(_)
            | Output::WantsTally
            | Output::Registers(_) => {}
        }
    }

    /// Lets the links and the session exchange their outputs, until both are quiet.
    fn settle_paths(&mut self, context: &mut Context<'_, Vec<u8>>) -> Option<Instant> {
        loop {
            let joined = self.joined.as_mut()?;
            let wake = joined.settle(context);
            let Some(input) = joined.poll_input() else { return wake };
            self.session.handle_input(context.now(), input);
            self.speak(context.now());
            while let Some(output) = self.session.poll_output() {
                self.on_output(context, output);
                self.speak(context.now());
            }
        }
    }

    /// Lets the datagrams and the session exchange their outputs, until both are quiet.
    fn settle_datagrams(&mut self, context: &mut Context<'_, Vec<u8>>) -> Option<Instant> {
        loop {
            let lossy = self.lossy.as_mut()?;
            let wake = lossy.settle(context);
            let Some(input) = lossy.poll_input() else { return wake };
            self.session.handle_input(context.now(), input);
            self.speak(context.now());
            while let Some(output) = self.session.poll_output() {
                self.on_output(context, output);
                self.speak(context.now());
            }
        }
    }

    /// Closes the connection after sending the bytes that it takes at once; the rest is lost.
    fn finish_connection(&mut self, context: &mut Context<'_, Vec<u8>>) {
        self.outbox.close();
        if let Some(connection) = self.connection {
            self.outbox.flush(context, connection);
        }
        self.drop_connection(context);
    }

    fn connected(&mut self, now: Instant) {
        self.session.handle_input(now, Input::Connected);
        // After every other link, connections take long segments.
        if self.links % 2 == 1 {
            self.session.set_segment_max(SEGMENT_LIMIT);
        }
    }

    fn drop_connection(&mut self, context: &mut Context<'_, Vec<u8>>) {
        for connection in self.connection.take().into_iter().chain(self.dialled.take()) {
            context.close(connection);
        }
        self.outbox = Outbox::default();
    }
}

impl Node for End {
    type Packet = Vec<u8>;

    fn handle(&mut self, context: &mut Context<'_, Vec<u8>>, event: Event<Vec<u8>>) {
        let now = context.now();
        if let (Event::Packet { packet, .. }, Some(lossy)) = (&event, &mut self.lossy) {
            lossy.handle(now, packet);
            return;
        }
        let Event::Stream { connection, event } = event else { return };
        if let Some(joined) = &mut self.joined {
            joined.handle(context, connection, event);
            while let Some(input) = joined.poll_input() {
                self.session.handle_input(now, input);
            }
            return;
        }
        match event {
            StreamEvent::Accepted { .. } => {
                if self.connection.is_some() {
                    self.drop_connection(context);
                    self.session.handle_input(now, Input::Disconnected);
                }
                self.connection = Some(connection);
                self.connected(now);
            }
            StreamEvent::Opened if self.dialled == Some(connection) => {
                self.connection = self.dialled.take();
                self.connected(now);
            }
            StreamEvent::Data(bytes) if self.connection == Some(connection) => {
                self.session.handle_input(now, Input::Received(bytes));
            }
            StreamEvent::Closed(_) if [self.connection, self.dialled].contains(&Some(connection)) => {
                self.drop_connection(context);
                self.session.handle_input(now, Input::Disconnected);
            }
            _ => {}
        }
    }

    fn settle(&mut self, context: &mut Context<'_, Vec<u8>>) -> Option<Instant> {
        let now = context.now();
        if self.session.poll_timeout().is_some_and(|at| at <= now) {
            self.session.handle_timeout(now);
        }
        self.speak(now);
        while let Some(output) = self.session.poll_output() {
            self.on_output(context, output);
            self.speak(now);
        }
        if let Some(connection) = self.connection {
            self.outbox.flush(context, connection);
        }
        let paths_at = Instant::earlier(self.settle_paths(context), self.settle_datagrams(context));
        let speak_at = (self.link_up && self.phase == Phase::Chaos).then_some(self.next_at);
        self.session.poll_timeout().into_iter().chain(speak_at).chain(paths_at).min()
    }

    fn restart(&mut self, now: Instant, rng: Rng) {
        let mut config = self.config.clone();
        config.identity.instance = instance(&mut rng.fork("instance"));
        let lanes = if self.joined.is_some() { LANES } else { 1 };
        let lossy = self.lossy.as_ref().map(|lossy| lossy.port());
        let lossy = lossy.map(|port| Lossy::new(port, self.peer.is_some(), rng.fork("datagrams")));
        let old =
            std::mem::replace(self, Self { lossy, ..Self::new(self.make, config, self.peer, lanes, rng) });
        self.phase = old.phase;
        self.incarnation = old.incarnation + 1;
        (self.received, self.downs, self.wrong) = (old.received, old.downs, old.wrong);
        (self.newest, self.next_at) = (old.newest, now);
    }

    fn fingerprint(packet: &Vec<u8>) -> u64 {
        u64::from(crc32c(0, packet))
    }
}

impl Subject for End {
    fn enter(&mut self, _: Instant, phase: Phase) {
        self.phase = phase;
        self.peer_done = false;
        self.left = VERIFY_PACKETS;
        if let (Some(lossy), true) = (&mut self.lossy, phase != Phase::Chaos) {
            lossy.clear_up();
        }
    }

    fn is_busy(&self, phase: Phase) -> bool {
        match phase {
            Phase::Verify => !self.peer_done,
            _ => !self.link_up,
        }
    }

    fn report(&mut self, outcome: &mut Outcome) {
        outcome.counts.done += self.received;
        outcome.counts.failed += self.downs;
        outcome.failures.append(&mut self.wrong);
    }

    fn describe(&self) -> String {
        format!(
            "{:?}, link up: {}, sent {}, expects {:?}",
            self.session, self.link_up, self.next, self.expected
        )
    }
}

/// Runs two sessions over one link, for `seed`.
pub fn run(seed: u64) -> Outcome {
    run_over(seed, [engine; 2], 1)
}

/// Runs two sessions over two links, for `seed`. The first copy of each byte wins, and either link
/// may fail alone.
pub fn run_paths(seed: u64) -> Outcome {
    run_over(seed, [engine; 2], LANES)
}

/// Runs two sessions over datagrams that get lost, doubled, late and cut short, for `seed`. Ends
/// are killed and paused as well.
pub fn run_datagrams(seed: u64) -> Outcome {
    let mut world = World::new(seed);
    let [far, near] = ends(&mut world, [engine; 2], 1);
    let (one, other) = world.join(far, near, LATENCY);
    for (node, port, name) in [(far, one, "far"), (near, other, "near")] {
        let lossy = Lossy::new(port, node == near, world.rng(&format!("datagrams of {name}")));
        world.node_mut(node).lossy = Some(lossy);
    }
    let (plan, troubles) = chaos::plan(&chaos_of(near, far, 1), &mut world.rng("chaos"));
    // The network has its own weather; there are no streams that could be cut.
    let mut of_nodes = Plan::new();
    for (at, fault) in plan.iter() {
        if matches!(fault, Fault::Kill(_) | Fault::Restart(_) | Fault::Pause(..)) {
            of_nodes.at(at, fault);
        }
    }
    let mut outcome = trial(&mut world, &of_nodes, limits());
    (outcome.seed, outcome.troubles) = (seed, troubles);
    outcome
}

/// Two ends, far and near, with these makers of their sessions.
fn ends(world: &mut World<End>, [far, near]: [Maker; 2], lanes: u8) -> [NodeId; 2] {
    let config = |world: &World<End>, name: &str| Config {
        handshake: HOLD / 8,
        redial: (HOLD / 64, HOLD / 8),
        stamps: world.rng("stamps").one_in(2),
        digests: world.rng("digests").one_in(2),
        ..impatient(name, instance(&mut world.rng(&format!("instance of {name}"))), HOLD)
    };
    let far = world.add(End::new(far, config(world, "far"), None, lanes, world.rng("far")));
    let near = world.add(End::new(near, config(world, "near"), Some(far), lanes, world.rng("near")));
    [far, near]
}

fn chaos_of(near: NodeId, far: NodeId, lanes: u8) -> ChaosConfig {
    let (link, media) = (LinkProfile::default(), MediaProfile::default());
    let far = vec![far];
    ChaosConfig { near, far, lanes, duration: DURATION, faults_max: 8, hold_time: HOLD, link, media }
}

const fn limits() -> Limits {
    let settle = Nanos::from_secs(60);
    Limits { chaos: Nanos::from_millis(4800), drain: settle, verify: settle }
}

/// Runs sessions that `makers` make, of the far end and the near end, over one link, for `seed`.
pub fn run_made(seed: u64, makers: [Maker; 2]) -> Outcome {
    run_over(seed, makers, 1)
}

fn run_over(seed: u64, makers: [Maker; 2], lanes: u8) -> Outcome {
    let mut world = World::new(seed);
    let [far, near] = ends(&mut world, makers, lanes);
    for lane in 0..lanes {
        world.link_lane(near, far, Lane(lane), LinkProfile::default());
    }
    let (plan, troubles) = chaos::plan(&chaos_of(near, far, lanes), &mut world.rng("chaos"));
    let mut outcome = judge(&mut world, &plan, limits(), &troubles);
    (outcome.seed, outcome.troubles) = (seed, troubles);
    outcome
}

fn judge(world: &mut World<End>, plan: &Plan, limits: Limits, troubles: &[Trouble]) -> Outcome {
    let mut outcome = trial(world, plan, limits);
    // Cuts alone are repaired within the hold time, so the link must never go down.
    let only_cuts = troubles.iter().all(|trouble| *trouble == Trouble::Cut);
    if only_cuts && outcome.counts.failed > 0 {
        outcome.failures.push("a link went down though connections were only cut".into());
    }
    outcome
}
