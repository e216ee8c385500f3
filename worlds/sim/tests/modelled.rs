//! Connections over a modelled network, with the dials, sends and closes of plain ones.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may fail by panicking")]
#![allow(missing_docs, reason = "a test is its own documentation")]

use engine::{Instant, Nanos, Rng};
use network_models::faults::{Behaviour, Faults};
use network_models::network::{Config, Network};
use network_models::{AnyHop, Chance, Path, Rate, Wire};
use sim::faults::Fault;
use sim::stream::{Closed, ConnectionId, Lane, LinkProfile, StreamEvent};
use sim::{Context, Event, Node, NodeId, World};

/// Sends a number of bytes and closes, or echoes received bytes.
#[derive(Debug, Default)]
struct Peer {
    dials: Option<NodeId>,
    connection: Option<ConnectionId>,
    left: usize,
    sent: usize,
    closes: bool,
    opened: Option<Instant>,
    accepted: Option<Instant>,
    received: usize,
    last: Option<Instant>,
    closed: Option<(Instant, Closed)>,
}

fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

impl Peer {
    fn pump(&mut self, context: &mut Context<'_, ()>) {
        let Some(connection) = self.connection else { return };
        while self.left > 0 {
            let piece: Vec<u8> = (self.sent..self.sent + self.left.min(3_000)).map(byte).collect();
            let taken = context.send(connection, &piece);
            self.sent += taken;
            self.left -= taken;
            if taken < piece.len() {
                assert_eq!(context.room(connection), 0);
                return;
            }
        }
        if self.closes {
            context.close(connection);
            self.connection = None;
        }
    }
}

impl Node for Peer {
    type Packet = ();

    fn handle(&mut self, context: &mut Context<'_, ()>, event: Event<()>) {
        let Event::Stream { connection, event } = event else { panic!("{event:?}") };
        match event {
            StreamEvent::Accepted { .. } => {
                (self.connection, self.accepted) = (Some(connection), Some(context.now()));
            }
            StreamEvent::Opened => {
                (self.connection, self.opened) = (Some(connection), Some(context.now()));
                self.pump(context);
            }
            StreamEvent::Data(data) => {
                for &found in &*data {
                    assert_eq!(found, byte(self.received));
                    self.received += 1;
                }
                self.last = Some(context.now());
            }
            StreamEvent::Writable => self.pump(context),
            StreamEvent::Closed(why) => {
                assert_eq!(self.closed, None, "closed twice");
                (self.connection, self.closed) = (None, Some((context.now(), why)));
            }
        }
    }

    fn settle(&mut self, context: &mut Context<'_, ()>) -> Option<Instant> {
        if let Some(peer) = self.dials.take() {
            context.dial(peer);
        }
        None
    }

    fn restart(&mut self, _: Instant, _: Rng) {
        *self = Self::default();
    }

    fn fingerprint((): &()) -> u64 {
        0
    }
}

fn at(milliseconds: u64) -> Instant {
    Instant::ZERO + Nanos::from_millis(milliseconds)
}

/// A source of `bytes` and a sink, 10 ms apart, with losses.
fn world(seed: u64, bytes: usize, loss: Chance) -> (World<Peer>, NodeId, NodeId) {
    let mut world = World::new(seed);
    let sink = world.add(Peer::default());
    let source = world.add(Peer { dials: Some(sink), left: bytes, closes: true, ..Peer::default() });
    let rng = world.rng("network");
    let behaviour = Behaviour { loss, ..Behaviour::default() };
    let paths = ["there", "back"].map(|name| {
        let wire = Wire::new(Nanos::from_millis(10), Some(Rate::from_megabits(100)));
        Path::new([AnyHop::from(wire), AnyHop::from(Faults::new(behaviour, rng.fork(name)))])
    });
    world.model(source, sink, Network::new(Config::default(), paths));
    (world, source, sink)
}

#[test]
fn a_dial_takes_the_time_of_the_handshake() {
    let (mut world, source, sink) = world(1, 100, Chance::NEVER);
    world.run(at(1_000));
    // Short frames at 100 Mbit/s take some µs each.
    let near = |found: Option<Instant>, wanted| {
        let found = found.unwrap();
        assert!(
            found >= at(wanted) && found - at(wanted) < Nanos::from_micros(100),
            "{found:?}, not {wanted} ms"
        );
    };
    near(world.node(sink).accepted, 10);
    near(world.node(source).opened, 20);
    near(world.node(sink).last, 30);
    assert_eq!(world.node(sink).received, 100);
    assert_eq!(world.node(sink).closed.unwrap().1, Closed::ByPeer);
    assert_eq!(world.network(source, sink, Lane::default()).unwrap().connections(), 0);
}

#[test]
fn the_same_seed_is_the_same_run_and_another_one_is_not() {
    let run = |seed| {
        let (mut world, source, sink) = world(seed, 500_000, Chance::percent(2));
        world.run(at(600_000));
        assert_eq!(world.node(sink).received, 500_000);
        assert_eq!(world.node(sink).closed.unwrap().1, Closed::ByPeer);
        assert!(world.network(source, sink, Lane::default()).unwrap().statistics().retransmitted > 0);
        (world.digest(), world.events())
    };
    assert_eq!(run(4), run(4));
    assert_ne!(run(4), run(5));
}

#[test]
fn a_dead_node_refuses_and_a_cut_is_a_loss() {
    let (mut world, source, sink) = world(1, 100_000_000, Chance::NEVER);
    world.run(at(200));
    assert!(world.node(sink).received > 0);
    world.apply(Fault::Cut(source, sink));
    world.run(at(201));
    for node in [source, sink] {
        assert_eq!(world.node(node).closed.unwrap().1, Closed::Lost);
    }
    world.apply(Fault::Kill(sink));
    world.node_mut(source).closed = None;
    world.node_mut(source).dials = Some(sink);
    world.run(at(400));
    assert_eq!(world.node(source).closed.unwrap().1, Closed::Refused);
}

#[test]
fn a_killed_node_is_lost_to_its_peer() {
    let (mut world, source, sink) = world(1, 100_000_000, Chance::NEVER);
    world.run(at(200));
    world.apply(Fault::Kill(source));
    world.run(at(1_000));
    assert_eq!(world.node(sink).closed.unwrap().1, Closed::Lost);
}

#[test]
fn held_data_wait_and_are_not_lost() {
    let (mut world, source, sink) = world(1, 10_000_000, Chance::NEVER);
    world.run(at(200));
    let before = world.node(sink).received;
    world.apply(Fault::Hold(source, sink, Nanos::from_millis(150)));
    world.run(at(340));
    // Bytes that had reached the node's stack by then are delivered, and no others.
    assert!(world.node(sink).received - before < 20_000);
    world.run(at(60_000));
    assert_eq!(world.node(sink).received, 10_000_000);
    assert_eq!(world.node(sink).closed.unwrap().1, Closed::ByPeer);
}

#[test]
fn a_changed_link_is_slower_until_it_is_healed() {
    let took = |change: &dyn Fn(&mut World<Peer>, NodeId, NodeId)| {
        let (mut world, source, sink) = world(1, 1_000_000, Chance::NEVER);
        change(&mut world, source, sink);
        world.run(at(600_000));
        assert_eq!(world.node(sink).received, 1_000_000);
        world.node(sink).last.unwrap()
    };
    let usual = took(&|_, _, _| {});
    let slow = LinkProfile { latency: Nanos::from_millis(50), rate: 125_000, ..LinkProfile::default() };
    let changed = took(&|world, source, sink| world.apply(Fault::Link(source, sink, slow)));
    // A megabyte at a megabit a second takes 8 s.
    assert!(changed > at(8_000), "{changed:?}");
    let healed = took(&|world, source, sink| {
        world.apply(Fault::Link(source, sink, slow));
        world.heal();
    });
    assert!(healed < usual + Nanos::from_millis(60), "{healed:?}, {usual:?}");
    let lossy = took(&|world, source, sink| {
        let behaviour = Behaviour { loss: Chance::percent(5), ..Behaviour::default() };
        assert!(world.impair(source, sink, Lane::default(), behaviour));
    });
    assert!(lossy > usual, "{lossy:?}");
}
