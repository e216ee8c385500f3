//! The campaign and its checker against a disk server of a few lines. A correct server passes every
//! seed, and each known fault of a server or client is found.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may fail by panicking")]
#![allow(missing_docs, reason = "a test is its own documentation")]

use std::collections::BTreeMap;

use campaigns::campaign::{Limits, Outcome, Subject, run_seeds, trial};
use campaigns::chaos::{ChaosConfig, plan};
use campaigns::checker::{End, Kind, OperationId};
use campaigns::workload::{Operation, Phase, Workload, WorkloadConfig};
use engine::{Buffer, Instant, Nanos, Rng};
use nvme::media::{Completion, IoId, MediumId, Operation as MediaOperation, Request};
use sim::media::MediaProfile;
use sim::stream::{ConnectionId, LinkProfile, StreamEvent};
use sim::{Context, Event, Node, NodeId, World};

const BLOCK: usize = 512;
/// Length of a message's header in bytes: operation, first block, number of blocks. The data of a
/// write follow.
const HEADER: usize = 8 + 1 + 4 + 4;
const TIMEOUT: Nanos = Nanos::from_millis(100);

/// Faults that the toy can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// The server reports a write as done before it is.
    EarlyAnswer,
    /// Requests of an old connection may still be performed after a new one is served.
    NoFence,
    /// The server answers some requests twice.
    TwiceAnswered,
    /// The client forgets its outstanding requests when its connection is lost.
    Forgetful,
    /// The client counts a lost write as done.
    Hopeful,
}

#[derive(Debug)]
struct Client {
    bug: Bug,
    server: NodeId,
    workload: Workload,
    connection: Option<ConnectionId>,
    dialling: bool,
    dial_at: Option<Instant>,
    outbox: Vec<u8>,
    inbox: Vec<u8>,
    outstanding: BTreeMap<u64, (Operation, Instant)>,
}

#[derive(Debug)]
struct Server {
    bug: Bug,
    connection: Option<ConnectionId>,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// By media request: the operation, its connection, and the data read.
    pending: BTreeMap<u32, (u64, ConnectionId, Vec<u8>)>,
    next: u32,
}

#[derive(Debug)]
enum Toy {
    Client(Box<Client>),
    Server(Server),
}

fn flush_outbox(context: &mut Context<'_, ()>, connection: Option<ConnectionId>, outbox: &mut Vec<u8>) {
    match connection {
        Some(connection) => drop(outbox.drain(..context.send(connection, outbox))),
        None => outbox.clear(),
    }
}

/// Takes one message off the front of `inbox`: the header, and as many bytes as `data(header)`
/// returns.
fn take_message(inbox: &mut Vec<u8>, data: impl Fn(&[u8]) -> usize) -> Option<Vec<u8>> {
    let header = inbox.get(..HEADER)?;
    let length = HEADER + data(header);
    (inbox.len() >= length).then(|| inbox.drain(..length).collect())
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn message(id: u64, code: u8, one: u32, other: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = id.to_le_bytes().to_vec();
    bytes.push(code);
    bytes.extend(one.to_le_bytes());
    bytes.extend(other.to_le_bytes());
    bytes.extend(data);
    bytes
}

impl Client {
    fn new(bug: Bug, server: NodeId, workload: Workload, now: Instant) -> Self {
        Self {
            bug,
            server,
            workload,
            connection: None,
            dialling: false,
            dial_at: Some(now + Nanos::new(1)),
            outbox: Vec::new(),
            inbox: Vec::new(),
            outstanding: BTreeMap::new(),
        }
    }

    fn lost(&mut self, now: Instant) {
        (self.connection, self.dialling) = (None, false);
        self.dial_at = Some(now + Nanos::from_millis(1));
        self.inbox.clear();
        self.outbox.clear();
        for (id, (operation, _)) in std::mem::take(&mut self.outstanding) {
            let end = match self.bug {
                Bug::Forgetful => continue,
                Bug::Hopeful if operation.kind != Kind::Read => End::Done(&[]),
                _ => End::Failed,
            };
            self.workload.end(OperationId(id), end);
        }
    }

    fn answers(&mut self) {
        while let Some(answer) = take_message(&mut self.inbox, |header| word32(header, 9) as usize) {
            let id = u64::from_le_bytes(answer[..8].try_into().unwrap());
            let end = if answer[8] == 0 { End::Done(&answer[HEADER..]) } else { End::Failed };
            self.outstanding.remove(&id);
            self.workload.end(OperationId(id), end);
        }
    }

    fn settle(&mut self, context: &mut Context<'_, ()>) -> Option<Instant> {
        let now = context.now();
        if self.dial_at.is_some_and(|at| at <= now) {
            self.dial_at = None;
            self.dialling = true;
            context.dial(self.server);
        }
        if self.outstanding.values().any(|(_, deadline)| *deadline <= now) {
            // The client was reset. The next connection will fence the server's unfinished work.
            context.close(self.connection.unwrap());
            self.lost(now);
        }
        while self.connection.is_some()
            && let Some(operation) = self.workload.poll(now)
        {
            let mut data = match operation.kind {
                Kind::Write => vec![0; self.workload.length(&operation)],
                _ => Vec::new(),
            };
            self.workload.stamp(&operation, &mut data);
            let code = match operation.kind {
                Kind::Read => 0,
                Kind::Write => 1,
                Kind::WriteZeroes => 2,
                Kind::Flush => 3,
            };
            let count = (operation.blocks.end - operation.blocks.start) as u32;
            self.outbox.extend(message(operation.id.0, code, operation.blocks.start as u32, count, &data));
            self.outstanding.insert(operation.id.0, (operation, now + TIMEOUT));
        }
        // The workload changes its phase when it is asked for more.
        if self.connection.is_some() {
            flush_outbox(context, self.connection, &mut self.outbox);
        }
        let pause = self.workload.poll_timeout(now).filter(|_| self.connection.is_some());
        let deadlines = self.outstanding.values().map(|(_, deadline)| *deadline);
        deadlines.chain(self.dial_at).chain(pause).min()
    }
}

impl Server {
    const fn new(bug: Bug) -> Self {
        Self {
            bug,
            connection: None,
            inbox: Vec::new(),
            outbox: Vec::new(),
            pending: BTreeMap::new(),
            next: 0,
        }
    }

    fn requests(&mut self, context: &mut Context<'_, ()>) {
        let Some(connection) = self.connection else { return };
        let fenced = self.pending.values().all(|(_, other, _)| *other == connection);
        if !fenced && self.bug != Bug::NoFence {
            return;
        }
        let data = |header: &[u8]| if header[8] == 1 { word32(header, 13) as usize * BLOCK } else { 0 };
        while let Some(request) = take_message(&mut self.inbox, data) {
            let id = u64::from_le_bytes(request[..8].try_into().unwrap());
            let offset = u64::from(word32(&request, 9)) * BLOCK as u64;
            let length = word32(&request, 13) * BLOCK as u32;
            let operation = match request[8] {
                0 => MediaOperation::Read { offset, length },
                1 => MediaOperation::Write {
                    offset,
                    data: Buffer::copy_from_slice(&request[HEADER..]),
                    durable: true,
                },
                2 => MediaOperation::WriteZeroes {
                    offset,
                    length: length.into(),
                    deallocate: false,
                    durable: true,
                },
                _ => MediaOperation::Flush,
            };
            if self.bug == Bug::EarlyAnswer && matches!(operation, MediaOperation::Write { .. }) {
                self.outbox.extend(message(id, 0, 0, 0, &[]));
            }
            context.media(Request { id: IoId(self.next), medium: MediumId(0), operation });
            self.pending.insert(self.next, (id, connection, vec![request[8]]));
            self.next += 1;
        }
    }

    fn media(&mut self, completion: Completion) {
        match completion {
            Completion::Data { id, offset, data } => {
                let (.., bytes) = self.pending.get_mut(&id.0).unwrap();
                let end = 1 + offset as usize + data.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[1 + offset as usize..end].copy_from_slice(&data);
            }
            Completion::Done { id, result } => {
                let (operation, connection, bytes) = self.pending.remove(&id.0).unwrap();
                let answered = self.bug == Bug::EarlyAnswer && bytes[0] == 1;
                if self.connection != Some(connection) || answered {
                    return;
                }
                let data = if result.is_ok() { &bytes[1..] } else { &[] };
                let answer = message(operation, u8::from(result.is_err()), data.len() as u32, 0, data);
                self.outbox.extend(&answer);
                if self.bug == Bug::TwiceAnswered && id.0 % 64 == 5 {
                    self.outbox.extend(&answer);
                }
            }
        }
    }
}

impl Node for Toy {
    type Packet = ();

    fn handle(&mut self, context: &mut Context<'_, ()>, event: Event<()>) {
        match (self, event) {
            (Self::Client(client), Event::Stream { connection, event }) => match event {
                StreamEvent::Opened => (client.connection, client.dialling) = (Some(connection), false),
                StreamEvent::Data(bytes) if client.connection == Some(connection) => {
                    client.inbox.extend_from_slice(&bytes);
                    client.answers();
                }
                StreamEvent::Closed(_) if client.connection == Some(connection) || client.dialling => {
                    client.lost(context.now());
                }
                _ => {}
            },
            (Self::Server(server), Event::Stream { connection, event }) => match event {
                StreamEvent::Accepted { .. } => {
                    if let Some(old) = server.connection.replace(connection) {
                        context.close(old);
                    }
                    server.inbox.clear();
                    server.outbox.clear();
                }
                StreamEvent::Data(bytes) if server.connection == Some(connection) => {
                    server.inbox.extend_from_slice(&bytes)
                }
                StreamEvent::Closed(_) if server.connection == Some(connection) => server.connection = None,
                _ => {}
            },
            (Self::Server(server), Event::Media(completion)) => server.media(completion),
            (node, event) => panic!("{node:?} saw {event:?}"),
        }
    }

    fn settle(&mut self, context: &mut Context<'_, ()>) -> Option<Instant> {
        match self {
            Self::Client(client) => client.settle(context),
            Self::Server(server) => {
                server.requests(context);
                flush_outbox(context, server.connection, &mut server.outbox);
                None
            }
        }
    }

    fn restart(&mut self, now: Instant, _: Rng) {
        match self {
            Self::Client(client) => {
                client.workload.abandon();
                client.outstanding.clear();
                client.lost(now);
                client.dial_at = Some(now + Nanos::new(1));
            }
            Self::Server(server) => *server = Server::new(server.bug),
        }
    }

    fn fingerprint((): &()) -> u64 {
        0
    }
}

impl Subject for Toy {
    fn enter(&mut self, _: Instant, phase: Phase) {
        if let Self::Client(client) = self {
            client.workload.enter(phase);
        }
    }
    fn is_busy(&self, phase: Phase) -> bool {
        matches!(self, Self::Client(client) if client.workload.is_busy(phase))
    }
    fn report(&mut self, outcome: &mut Outcome) {
        if let Self::Client(client) = self {
            client.workload.report(outcome);
        }
    }
    fn describe(&self) -> String {
        match self {
            Self::Client(client) => format!("{:?}, {:?}", client.connection, client.outstanding.keys()),
            Self::Server(server) => format!("{:?}, {:?}", server.connection, server.pending.keys()),
        }
    }
}

fn run(seed: u64, bug: Bug) -> Outcome {
    let mut world = World::new(seed);
    let far = world.add(Toy::Server(Server::new(bug)));
    let config = WorkloadConfig {
        blocks: 32,
        block_size: BLOCK,
        depth: 8,
        blocks_max: 4,
        pause_max: Nanos::from_millis(1),
        media_lie: false,
    };
    let workload = Workload::new(config, world.rng("workload"));
    let near = world.add(Toy::Client(Box::new(Client::new(bug, far, workload, Instant::ZERO))));
    let (link, media) =
        (LinkProfile::default(), MediaProfile { atomic_unit: 512, ..MediaProfile::default() });
    world.link(near, far, link);
    world.medium(far, 1 << 20, media);
    let duration = Nanos::from_millis(200);
    let hold_time = Nanos::from_millis(40);
    let chaos =
        ChaosConfig { near, far: vec![far], lanes: 1, duration, faults_max: 8, hold_time, link, media };
    let (plan, troubles) = plan(&chaos, &mut world.rng("chaos"));
    let second = Nanos::from_secs(10);
    let outcome = trial(&mut world, &plan, Limits { chaos: duration * 2, drain: second, verify: second });
    Outcome { seed, troubles, ..outcome }
}

fn campaign(bug: Bug, seeds: u64) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    run_seeds(
        "toy",
        0..seeds,
        2,
        |seed| run(seed, bug),
        |outcome| {
            outcomes.push(outcome);
            true
        },
    );
    outcomes.sort_by_key(|outcome| outcome.seed);
    outcomes
}

#[test]
fn a_right_server_passes_every_seed_twice_the_same_way() {
    let (first, again) = (campaign(Bug::None, 40), campaign(Bug::None, 40));
    for (one, other) in first.iter().zip(&again) {
        assert!(one.failures.is_empty(), "{one}");
        assert_eq!(one.digest, other.digest, "seed {}", one.seed);
        assert!(one.counts.done > 50, "{one}");
    }
    assert!(first.iter().map(|outcome| outcome.counts.failed).sum::<u64>() > 100);
    assert!(first.iter().any(|outcome| outcome.counts.abandoned > 0));
}

#[track_caller]
fn finds(bug: Bug, words: &str) {
    let outcomes = campaign(bug, 40);
    let found = outcomes.iter().flat_map(|outcome| &outcome.failures).any(|failure| failure.contains(words));
    assert!(
        found,
        "{bug:?} was not found: {:?}",
        outcomes.iter().map(|one| &one.failures).collect::<Vec<_>>()
    );
}

#[test]
fn an_answer_before_the_write_is_done_is_found() {
    finds(Bug::EarlyAnswer, "it may hold");
}

#[test]
fn a_write_that_comes_to_pass_after_its_failure_is_found() {
    finds(Bug::NoFence, "it may hold");
}

#[test]
fn a_second_answer_is_found() {
    finds(Bug::TwiceAnswered, "ended without being outstanding");
}

#[test]
fn a_lost_operation_is_found() {
    finds(Bug::Forgetful, "never ended");
}

#[test]
fn a_write_that_was_lost_but_reported_done_is_found() {
    finds(Bug::Hopeful, "it may hold");
}
