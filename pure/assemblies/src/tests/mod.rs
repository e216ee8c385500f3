//! A near host and a far box joined in memory, without a world.

mod authentication;
mod away;
mod bad_devices;
mod config_cache;
mod lookahead;
mod seats;
pub(crate) mod segments;
mod strands;
pub(crate) mod watch;

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use engine::{Engine, Instant, Nanos, Rng};
use nvme::media::{self, MediumId, ram::RamDisk};
use nvme::wire::{IoOpcode, NamespaceId};
use nvme_pcie::host::{Data, QueueId, Submission};
use nvme_pcie::{controller, function};
use pcie::memory::Memory;
use tunnel::downstream::{self, ConnectionId};
use tunnel::upstream::{ConnectionIndex, PortIndex};

use crate::far::{self, Far};
use crate::near::{self, ControllerIndex, Event, Near};

const CONNECTION: ConnectionId = ConnectionId(0);
const PORT: PortIndex = PortIndex(0);
const DISK_BYTES: u64 = 1 << 20;

struct Pair {
    near: Near,
    far: Far,
    disk: RamDisk,
    /// Connections whose dialling fails.
    unreachable: Vec<ConnectionIndex>,
    now: Instant,
    events: Vec<Event>,
    /// Pieces that were sent, down and up.
    pieces: [Vec<engine::Buffer>; 2],
}

fn function_config() -> function::Config {
    let core = nvme::subsystem::Config::new("TEST").with_namespace(MediumId(0), DISK_BYTES);
    function::Config::new(controller::Config::new(core))
}

impl Pair {
    fn new() -> Self {
        let session = tunnel::session::Config { stamps: true, ..tunnel::session::Config::default() };
        Self::with(near::Config::default(), &session, 1)
    }

    /// A host with this many ports.
    fn with(config: near::Config, session: &tunnel::session::Config, ports: usize) -> Self {
        let now = Instant::from_nanos(1_000);
        let rng = Rng::from_seed(1);
        Self {
            near: Near::over_tunnels(config, alloc::vec![session.clone(); ports], &rng),
            far: Far::new(now, session.clone(), function_config(), rng.fork("far")),
            disk: RamDisk::new(DISK_BYTES),
            unreachable: Vec::new(),
            now,
            events: Vec::new(),
            pieces: Default::default(),
        }
    }

    /// Runs both ends in steps of a microsecond until `until` is true of the events.
    fn run(&mut self, mut until: impl FnMut(&[Event]) -> bool) {
        for _ in 0..100_000 {
            self.now = self.now + Nanos::from_micros(1);
            self.step();
            if until(&self.events) {
                return;
            }
        }
        panic!("nothing came of it: {:?}", self.events);
    }

    /// Runs both ends for `length`, from one timer to the next.
    fn run_for(&mut self, length: Nanos) {
        let end = self.now + length;
        loop {
            self.step();
            let wakes = [self.near.poll_timeout(), self.far.poll_timeout()];
            match wakes.into_iter().flatten().min().filter(|at| *at <= end) {
                Some(at) => self.now = self.now.max(at),
                None => break,
            }
        }
        self.now = end;
    }

    /// Both ends lose the connection.
    fn cut(&mut self) {
        self.near.handle_input(self.now, near::Input::Disconnected(ConnectionIndex::main_of(PORT)));
        self.far.handle_input(self.now, far::Input::Network(downstream::Input::Disconnected(CONNECTION)));
    }

    fn step(&mut self) {
        let now = self.now;
        if self.near.poll_timeout().is_some_and(|at| at <= now) {
            self.near.handle_timeout(now);
        }
        while let Some(output) = self.near.poll_output() {
            let input = match output {
                near::Output::Connect(connection) if self.unreachable.contains(&connection) => {
                    self.near.handle_input(now, near::Input::Disconnected(connection));
                    continue;
                }
                near::Output::Connect(connection) => {
                    self.near.handle_input(now, near::Input::Connected(connection));
                    downstream::Input::Accepted(at_far_end(connection), core::net::Ipv4Addr::LOCALHOST.into())
                }
                near::Output::Transmit(connection, bytes) => {
                    self.pieces[0].push(bytes.clone());
                    downstream::Input::Received(at_far_end(connection), bytes)
                }
                near::Output::Close(connection) => downstream::Input::Disconnected(at_far_end(connection)),
                near::Output::Packet(packet) => panic!("there is no direct link for {packet:?}"),
                near::Output::Event(event) => {
                    self.events.push(event);
                    continue;
                }
            };
            self.far.handle_input(now, far::Input::Network(input));
        }
        if self.far.poll_timeout().is_some_and(|at| at <= now) {
            self.far.handle_timeout(now);
        }
        let mut done: Vec<media::Completion> = Vec::new();
        loop {
            for completion in done.drain(..) {
                self.far.handle_input(now, far::Input::Device(completion));
            }
            let Some(output) = self.far.poll_output() else { break };
            match output {
                far::Output::Transmit(connection, bytes) => {
                    self.pieces[1].push(bytes.clone());
                    self.near.handle_input(now, near::Input::Received(at_near_end(connection), bytes));
                }
                far::Output::Device(far::Storage::Media(request)) => {
                    self.disk.submit(request, &mut |completion| done.push(completion))
                }
                far::Output::Close(connection) => {
                    self.near.handle_input(now, near::Input::Disconnected(at_near_end(connection)));
                }
                far::Output::Event(..) | far::Output::Device(far::Storage::Notify(_)) => {}
            }
        }
    }
}

/// A connection has the same number at both ends.
fn at_far_end(connection: ConnectionIndex) -> ConnectionId {
    ConnectionId(connection.0.into())
}
fn at_near_end(connection: ConnectionId) -> ConnectionIndex {
    ConnectionIndex(u8::try_from(connection.0).unwrap())
}

fn ready(events: &[Event]) -> bool {
    events.iter().any(|event| matches!(event, Event::Ready { .. }))
}

#[test]
fn a_far_ssd_is_enumerated_written_and_read_back() {
    let mut pair = Pair::new();
    pair.run(ready);
    let (controller, _) = pair.near.controllers().next().unwrap();
    let region = pair.near.driver(controller).unwrap().data_region();
    let pattern: Vec<u8> = (0..=255).cycle().take(128 << 10).collect();
    pair.near.memory_mut().write(region.base, &pattern).unwrap();

    let queue = QueueId(1);
    let data = Data { address: region.base, length: 128 << 10 };
    let back = Data { address: region.base + (128 << 10), ..data };
    let write = Submission::on_blocks(IoOpcode::Write, queue, NamespaceId(1), 8, 256, data, 7);
    pair.near.submit(pair.now, controller, write).unwrap();
    pair.run(|events| completed(events, 7));
    let trace = Rc::new(RefCell::new(near::Trace::default()));
    pair.near.watch().add(trace.clone());
    pair.near
        .submit(
            pair.now,
            controller,
            Submission::on_blocks(IoOpcode::Read, queue, NamespaceId(1), 8, 256, back, 8),
        )
        .unwrap();
    pair.run(|events| completed(events, 8));
    assert_eq!(pair.near.memory().slice(back.address, 128 << 10).unwrap(), pattern);
    let points: Vec<_> = trace.borrow_mut().take().iter().map(|seen| seen.point).collect();
    assert_eq!(points.first(), Some(&near::Point::Submitted));
    assert!(points.contains(&near::Point::DoorbellSent) && points.contains(&near::Point::CompletionSent));
}

fn completed(events: &[Event], wanted: u64) -> bool {
    events.iter().any(|event| match event {
        Event::Completed { completed, .. } if completed.cookie == wanted => {
            assert!(completed.status.is_success(), "{completed:?}");
            true
        }
        _ => false,
    })
}

#[test]
fn the_far_function_answers_configuration_reads() {
    let mut pair = Pair::new();
    pair.run(ready);
    let (_, bdf) = pair.near.controllers().next().unwrap();
    pair.near.config_read(pair.now, bdf, 0, 5).unwrap();
    pair.run(|events| {
        events.iter().any(|event| matches!(event, Event::ConfigRead { cookie: 5, result: Ok(0x0010_fa1a) }))
    });
}

#[test]
fn the_application_reads_and_writes_registers_of_the_far_function() {
    use nvme_pcie::registers::offset;
    let mut pair = Pair::new();
    pair.run(ready);
    let controller = ControllerIndex(0);
    let read = |pair: &mut Pair, register, wanted: u32| {
        pair.near.register_read(pair.now, controller, register, wanted).unwrap();
        let mut found = None;
        pair.run(|events| {
            found = events.iter().find_map(|event| match event {
                Event::RegisterRead { cookie, value } if *cookie == wanted => Some(*value),
                _ => None,
            });
            found.is_some()
        });
        found.unwrap()
    };
    assert!(read(&mut pair, (offset::CAPABILITIES, 8), 1).unwrap() > u64::from(u32::MAX));
    assert_eq!(read(&mut pair, (offset::VERSION, 4), 2), Some(0x2_0000));
    assert_eq!(read(&mut pair, (offset::STATUS, 4), 3), Some(1));
    // The controller is disabled, and says so.
    pair.near.register_write(pair.now, controller, offset::CONFIGURATION, 0);
    assert_eq!(read(&mut pair, (offset::STATUS, 4), 4).map(|status| status & 1), Some(0));
}

#[test]
fn a_connection_cut_in_the_middle_of_commands_goes_unnoticed() {
    let mut pair = Pair::new();
    pair.run(ready);
    let controller = ControllerIndex(0);
    let region = pair.near.driver(controller).unwrap().data_region();
    for round in 0..20 {
        let data = Data { address: region.base, length: 4096 };
        let read = Submission::on_blocks(IoOpcode::Read, QueueId(1), NamespaceId(1), round, 8, data, round);
        pair.near.submit(pair.now, controller, read).unwrap();
        for _ in 0..round {
            pair.now = pair.now + Nanos::from_micros(1);
            pair.step();
        }
        pair.cut();
        pair.run(|events| completed(events, round));
    }
    assert!(!pair.events.iter().any(|event| {
        matches!(event, Event::Resetting { .. } | Event::Link { event: tunnel::Event::LinkDown { .. }, .. })
    }));
}
