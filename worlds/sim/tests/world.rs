//! The world with nodes that are so simple that the results are known in advance.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may fail by panicking")]
#![allow(missing_docs, reason = "a test is its own documentation")]

use engine::{Buffer, Instant, Nanos, Rng};
use nvme::media::{Completion, IoId, MediumId, Operation, Request};
use proptest::prelude::*;
use sim::direct::PortId;
use sim::faults::{Fault, Plan};
use sim::media::MediaProfile;
use sim::stream::{Closed, ConnectionId, LinkProfile, StreamEvent};
use sim::{Context, Event, Node, NodeId, World};

/// Sends one endless sequence of bytes over every connection that it can get.
#[derive(Debug, Default)]
struct Source {
    peer: Option<NodeId>,
    connection: Option<ConnectionId>,
    sent: usize,
    left: usize,
    opened: u32,
    refused: u32,
    redial_at: Option<Instant>,
}

/// Checks that the bytes that arrive are a prefix of the source's sequence.
#[derive(Debug, Default)]
struct Sink {
    /// For each connection: the number of received bytes, and how the connection ended.
    streams: Vec<(ConnectionId, usize, Option<Closed>)>,
    restarts: u32,
}

/// Writes a number into each block of its medium, then reads all blocks.
#[derive(Debug, Default)]
struct Disk {
    next: u32,
    done: Vec<u32>,
    data: Vec<(u32, Buffer)>,
    read: bool,
}

/// Sends packets back.
#[derive(Debug, Default)]
struct Echo {
    seen: Vec<(Instant, u64)>,
    serve: Option<u64>,
}

#[derive(Debug)]
enum Toy {
    Source(Source),
    Sink(Sink),
    Disk(Disk),
    Echo(Echo),
}

fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

impl Source {
    fn pump(&mut self, context: &mut Context<'_, u64>) {
        let Some(connection) = self.connection else { return };
        while self.left > 0 {
            let chunk: Vec<u8> = (self.sent..self.sent + self.left.min(1000)).map(byte).collect();
            let taken = context.send(connection, &chunk);
            self.sent += taken;
            self.left -= taken;
            if taken < chunk.len() {
                assert_eq!(context.room(connection), 0);
                break;
            }
        }
    }
}

impl Node for Toy {
    type Packet = u64;

    fn handle(&mut self, context: &mut Context<'_, u64>, event: Event<u64>) {
        match (self, event) {
            (Self::Source(source), Event::Stream { connection, event }) => match event {
                StreamEvent::Opened => {
                    (source.connection, source.sent) = (Some(connection), 0);
                    source.opened += 1;
                    source.pump(context);
                }
                StreamEvent::Writable => source.pump(context),
                StreamEvent::Closed(why) => {
                    source.refused += u32::from(why == Closed::Refused);
                    source.connection = None;
                    source.redial_at = Some(context.now() + Nanos::from_micros(100));
                }
                other => panic!("a source saw {other:?}"),
            },
            (Self::Sink(sink), Event::Stream { connection, event }) => match event {
                StreamEvent::Accepted { .. } => sink.streams.push((connection, 0, None)),
                event => {
                    let stream = sink.streams.iter_mut().find(|(id, ..)| *id == connection).unwrap();
                    assert_eq!(stream.2, None, "{event:?} after the end");
                    match event {
                        StreamEvent::Data(bytes) => {
                            for &found in bytes.iter() {
                                assert_eq!(found, byte(stream.1));
                                stream.1 += 1;
                            }
                        }
                        StreamEvent::Closed(why) => stream.2 = Some(why),
                        other => panic!("a sink saw {other:?}"),
                    }
                }
            },
            (Self::Disk(disk), Event::Media(completion)) => match completion {
                Completion::Data { id, data, .. } => disk.data.push((id.0, data)),
                Completion::Done { id, result } => {
                    result.unwrap();
                    disk.done.push(id.0);
                }
            },
            (Self::Echo(echo), Event::Packet { port, packet }) => {
                echo.seen.push((context.now(), packet));
                if packet > 0 {
                    context.send_packet(port, packet - 1);
                }
            }
            (node, event) => panic!("{node:?} saw {event:?}"),
        }
    }

    fn settle(&mut self, context: &mut Context<'_, u64>) -> Option<Instant> {
        match self {
            Self::Source(source) => {
                if source.redial_at.is_some_and(|at| at <= context.now()) {
                    source.redial_at = None;
                    context.dial(source.peer.unwrap());
                }
                source.redial_at
            }
            Self::Disk(disk) => {
                while disk.next < 16 {
                    let offset = u64::from(disk.next) * 4096;
                    let operation = if disk.read {
                        Operation::Read { offset, length: 4096 }
                    } else {
                        let data = Buffer::from(vec![u8::try_from(disk.next).unwrap() + 1; 4096]);
                        Operation::Write { offset, data, durable: true }
                    };
                    context.media(Request { id: IoId(disk.next), medium: MediumId(0), operation });
                    disk.next += 1;
                }
                None
            }
            Self::Echo(echo) => {
                if let Some(packet) = echo.serve.take() {
                    context.send_packet(PortId(0), packet);
                }
                None
            }
            Self::Sink(_) => None,
        }
    }

    fn restart(&mut self, now: Instant, _: Rng) {
        match self {
            Self::Source(source) => *source = self::source(source.peer.unwrap(), source.left, now),
            Self::Sink(sink) => {
                sink.restarts += 1;
                sink.streams.retain(|(.., closed)| closed.is_some());
            }
            Self::Disk(disk) => *disk = Disk { read: true, ..Disk::default() },
            Self::Echo(echo) => *echo = Echo::default(),
        }
    }

    fn fingerprint(packet: &u64) -> u64 {
        *packet
    }
}

fn source(peer: NodeId, left: usize, now: Instant) -> Source {
    Source { peer: Some(peer), left, redial_at: Some(now + Nanos::new(1)), ..Source::default() }
}

const fn at_micros(micros: u64) -> Instant {
    Instant::from_nanos(micros * 1_000)
}

/// A source and a sink with a link between them.
fn streams(seed: u64, bytes: usize, profile: LinkProfile) -> (World<Toy>, NodeId, NodeId) {
    let mut world = World::new(seed);
    let sink = world.add(Toy::Sink(Sink::default()));
    let source = world.add(Toy::Source(source(sink, bytes, Instant::ZERO)));
    world.link(source, sink, profile);
    (world, source, sink)
}

fn sink_of(world: &World<Toy>, id: NodeId) -> &Sink {
    match world.node(id) {
        Toy::Sink(sink) => sink,
        other => panic!("{other:?} is no sink"),
    }
}

fn source_of(world: &World<Toy>, id: NodeId) -> &Source {
    match world.node(id) {
        Toy::Source(source) => source,
        other => panic!("{other:?} is no source"),
    }
}

#[test]
fn a_stream_takes_its_latency_and_its_rate() {
    let profile = LinkProfile {
        latency: Nanos::from_micros(50),
        rate: 1_000_000_000,
        in_flight_max: 1 << 20,
        ..LinkProfile::default()
    };
    let (mut world, _, sink) = streams(1, 100_000, profile);
    // A nanosecond until the dial, a round trip until the connection is open, 100 µs of bytes, and
    // the one-way latency.
    world.run(Instant::from_nanos(249_999));
    assert!(sink_of(&world, sink).streams[0].1 < 100_000);
    world.run(Instant::from_nanos(250_001));
    assert_eq!(sink_of(&world, sink).streams[0].1, 100_000);
}

#[test]
fn data_in_flight_are_bounded() {
    let profile = LinkProfile {
        latency: Nanos::from_millis(1),
        rate: 0,
        in_flight_max: 10_000,
        ..LinkProfile::default()
    };
    let (mut world, _, sink) = streams(1, 50_000, profile);
    // Each round trip of 2 ms carries 10,000 bytes.
    world.run(at_micros(3_500));
    assert_eq!(sink_of(&world, sink).streams[0].1, 10_000);
    world.run(at_micros(9_500));
    assert_eq!(sink_of(&world, sink).streams[0].1, 40_000);
    world.run(at_micros(12_000));
    assert_eq!(sink_of(&world, sink).streams[0].1, 50_000);
}

#[test]
fn a_held_link_loses_nothing() {
    let (mut world, source, sink) = streams(3, 1_000_000, LinkProfile::default());
    world.run(at_micros(100));
    world.apply(Fault::Hold(source, sink, Nanos::from_millis(50)));
    world.run(at_micros(400));
    let before = sink_of(&world, sink).streams[0].1;
    world.run(at_micros(50_000));
    assert_eq!(sink_of(&world, sink).streams[0].1, before);
    world.run(at_micros(60_000));
    assert_eq!(sink_of(&world, sink).streams[0].1, 1_000_000);
}

#[test]
fn a_paused_node_sees_everything_later() {
    let (mut world, _, sink) = streams(3, 1_000_000, LinkProfile::default());
    world.run(at_micros(100));
    let before = sink_of(&world, sink).streams[0].1;
    world.apply(Fault::Pause(sink, Nanos::from_millis(5)));
    world.run(at_micros(5_000));
    assert_eq!(sink_of(&world, sink).streams[0].1, before);
    world.run(at_micros(10_000));
    assert_eq!(sink_of(&world, sink).streams[0].1, 1_000_000);
}

#[test]
fn a_dead_node_refuses_and_comes_back() {
    let (mut world, source, sink) = streams(4, usize::MAX, LinkProfile::default());
    let mut plan = Plan::new();
    plan.at(at_micros(1_000), Fault::Kill(sink));
    plan.at(at_micros(5_000), Fault::Restart(sink));
    world.run_with(&plan, at_micros(10_000));
    assert!(source_of(&world, source).refused > 3);
    assert_eq!(source_of(&world, source).opened, 2);
    let sink = sink_of(&world, sink);
    assert_eq!((sink.restarts, sink.streams.len()), (1, 1));
    assert!(sink.streams[0].1 > 1_000_000);
}

#[test]
fn media_answer_out_of_order_and_survive() {
    let profile = MediaProfile { jitter: Nanos::from_micros(100), ..MediaProfile::default() };
    let mut world = World::new(5);
    let disk = world.add(Toy::Disk(Disk::default()));
    world.medium(disk, 1 << 20, profile);
    world.run(at_micros(120));
    let Toy::Disk(found) = world.node(disk) else { panic!("no disk") };
    assert_eq!(found.done.len(), 16);
    assert!(!found.done.is_sorted(), "no request overtook another: {:?}", found.done);
    world.apply(Fault::Kill(disk));
    world.apply(Fault::Restart(disk));
    world.run(at_micros(300));
    let Toy::Disk(found) = world.node(disk) else { panic!("no disk") };
    assert_eq!(found.data.len(), 16);
    for (block, data) in &found.data {
        assert!(data.iter().all(|byte| u32::from(*byte) == block + 1));
    }
}

#[test]
fn a_write_outstanding_at_a_kill_was_done_or_not_or_in_part() {
    let mut kept = [0; 2];
    for seed in 0..8 {
        let mut world = World::new(seed);
        let disk = world.add(Toy::Disk(Disk::default()));
        world.medium(disk, 1 << 20, MediaProfile::default());
        world.run(at_micros(1));
        world.apply(Fault::Kill(disk));
        world.apply(Fault::Restart(disk));
        world.run(at_micros(300));
        let Toy::Disk(found) = world.node(disk) else { panic!("no disk") };
        for (block, data) in &found.data {
            let value = u32::from(data[0]);
            assert!(value == 0 || value == block + 1);
            kept[usize::from(value != 0)] += 1;
        }
    }
    assert!(kept[0] > 0 && kept[1] > 0, "{kept:?}");
}

#[test]
fn a_stalled_medium_answers_when_it_resumes() {
    let mut world = World::new(5);
    let disk = world.add(Toy::Disk(Disk::default()));
    world.medium(disk, 1 << 20, MediaProfile::default());
    world.apply(Fault::Stall(disk));
    world.run(at_micros(1_000_000));
    let Toy::Disk(found) = world.node(disk) else { panic!("no disk") };
    assert!(found.done.is_empty());
    world.heal();
    world.run(at_micros(1_000_010));
    let Toy::Disk(found) = world.node(disk) else { panic!("no disk") };
    assert_eq!(found.done.len(), 16);
}

#[test]
fn packets_hop_in_order_with_latency() {
    let mut world = World::new(1);
    let one = world.add(Toy::Echo(Echo { serve: Some(5), ..Echo::default() }));
    let other = world.add(Toy::Echo(Echo::default()));
    assert_eq!(world.join(one, other, Nanos::from_micros(1)), (PortId(0), PortId(0)));
    world.run(at_micros(100));
    let Toy::Echo(echo) = world.node(other) else { panic!("no echo") };
    assert_eq!(echo.seen, [(at_micros(1), 5), (at_micros(3), 3), (at_micros(5), 1)]);
}

/// A run with all effects of the seed: its digest, and the result of each connection.
fn rough_run(seed: u64) -> (u64, Vec<(usize, Option<Closed>)>) {
    let profile = LinkProfile { jitter: Nanos::from_micros(30), rate: 0, ..LinkProfile::default() };
    let (mut world, source, sink) = streams(seed, 20_000_000, profile);
    let mut rng = world.rng("plan");
    let mut plan = Plan::new();
    for _ in 0..20 {
        let at = at_micros(rng.below(8_000));
        let fault = match rng.below(4) {
            0 => Fault::Kill(sink),
            1 => Fault::Restart(sink),
            2 => Fault::Hold(source, sink, Nanos::from_micros(rng.below(500))),
            _ => Fault::Cut(source, sink),
        };
        plan.at(at, fault);
    }
    world.run_with(&plan, at_micros(8_000));
    world.heal();
    assert!(world.run_while(at_micros(5_000_000), |world| {
        let source = source_of(world, source);
        source.left > 0 || source.connection.is_none()
    }));
    world.run(world.now() + Nanos::from_secs(1));
    let streams = sink_of(&world, sink).streams.iter().map(|(_, bytes, why)| (*bytes, *why)).collect();
    (world.digest(), streams)
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let runs: Vec<_> = (0..20).map(rough_run).collect();
    let again: Vec<_> = (0..20).map(rough_run).collect();
    assert_eq!(runs, again);
    assert!(runs.windows(2).all(|pair| pair[0].0 != pair[1].0));
    let ends: Vec<_> = runs.iter().flat_map(|(_, streams)| streams).collect();
    assert!(ends.iter().any(|(bytes, why)| *why == Some(Closed::Lost) && bytes % 1000 != 0), "{ends:?}");
    assert!(ends.iter().any(|(_, why)| why.is_none()), "nothing survived");
}

proptest! {
    /// All bytes arrive in order, over any link.
    #[test]
    fn every_byte_arrives_once(
        seed: u64,
        bytes in 1_usize..60_000,
        in_flight_max in 1_usize..5_000,
        segment_max in 1_usize..3_000,
        jitter in 0_u64..100_000,
    ) {
        let jitter = Nanos::new(jitter);
        let profile = LinkProfile { in_flight_max, segment_max, jitter, ..LinkProfile::default() };
        let (mut world, _, sink) = streams(seed, bytes, profile);
        world.run(Instant::from_nanos(100_000_000_000));
        prop_assert_eq!(sink_of(&world, sink).streams[0].1, bytes);
    }
}
