//! The config cache against the device itself: both give the same answers to any accesses.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Buffer, Engine, Instant, Nanos, Rng};
use pcie::config::{express, header, msix, offset, power};
use pcie::wire::{Bdf, CompletionStatus, ConfigRequest, ConfigType, Header, Kind, Packet, Tag};
use tunnel::downstream::{self, ConnectionId};
use tunnel::session::{Config, Session};
use tunnel::upstream::{self, ConnectionIndex, PortIndex};

use super::function_config;
use crate::Upstream;
use crate::far::{self, Far};
use crate::near;

const ROOT: Bdf = Bdf::new(0, 0, 0);
const SWITCH: Bdf = Bdf::new(1, 0, 0);
const PORT: Bdf = Bdf::new(2, 0, 0);
const DEVICE: Bdf = Bdf::new(3, 0, 0);
const BAR: u32 = 0xc000_0000;
/// Tag of a read whose answer is ignored.
const OF_NONE: Tag = Tag::new(1000);
/// Delay in one direction.
const DELAY: Nanos = Nanos::from_millis(5);
const BRIDGE_CONTROL: u16 = 0x3c;
const SECONDARY_BUS_RESET: u32 = 1 << 22;

/// A switch with a device at a distance.
struct World {
    now: Instant,
    upstream: Upstream,
    far: Far,
    connection: Option<u32>,
    count: u32,
    down: VecDeque<(Instant, u32, Buffer)>,
    up: VecDeque<(Instant, u32, Buffer)>,
    answers: Vec<Packet>,
    /// The function may have been reset, and has not answered since.
    fresh: bool,
}

/// An access by software.
#[derive(Clone, Debug)]
enum Step {
    Read {
        offset: u16,
        enables: u8,
    },
    Write {
        target: Bdf,
        offset: u16,
        enables: u8,
        value: u32,
    },
    MemoryRead {
        address: u64,
        length: u32,
    },
    MemoryWrite {
        address: u64,
        value: u32,
    },
    /// Wait for all answers, and at least this many milliseconds.
    Wait(u64),
    /// The connection is lost and made again.
    Cut,
}

impl World {
    fn new(config_cache: bool, lookahead: bool) -> Self {
        let rng = Rng::from_seed(7);
        let session = Config { config_cache, lookahead, ..Config::default() };
        let now = Instant::from_nanos(1_000);
        let mut world = Self {
            now,
            upstream: crate::upstream(&near::switch(1), [session.clone()].into(), &rng),
            far: Far::new(now, session, function_config(), rng.fork("far")),
            connection: None,
            count: 0,
            down: VecDeque::new(),
            up: VecDeque::new(),
            answers: Vec::new(),
            fresh: true,
        };
        world.run_for(Nanos::from_millis(100));
        world.set_up_ports();
        world
    }

    /// Bus 2 is inside the switch, bus 3 below its port. All memory from `BAR` on goes there.
    fn set_up_ports(&mut self) {
        for (target, buses) in [(SWITCH, 0x0003_0201), (PORT, 0x0003_0302)] {
            for (at, value) in [(0x18, buses), (0x20, 0xcff0_c000), (0x04, 0x0006)] {
                self.write(Tag::new(0), target, at, 0b1111, value);
            }
        }
        self.run_for(Nanos::from_millis(1));
        self.answers.clear();
    }

    fn run_for(&mut self, length: Nanos) {
        let end = self.now + length;
        loop {
            self.exchange();
            let pipes = [self.down.front(), self.up.front()].into_iter().flatten().map(|(at, ..)| *at);
            let wakes = [self.upstream.poll_timeout(), self.far.poll_timeout()].into_iter().flatten();
            let Some(at) = pipes.chain(wakes).min().filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            if self.upstream.poll_timeout().is_some_and(|at| at <= self.now) {
                self.upstream.handle_timeout(self.now);
            }
            if self.far.poll_timeout().is_some_and(|at| at <= self.now) {
                self.far.handle_timeout(self.now);
            }
            while let Some((_, connection, bytes)) = self.down.pop_front_if(|(at, ..)| *at <= self.now) {
                let input = downstream::Input::Received(ConnectionId(connection), bytes);
                self.far.handle_input(self.now, far::Input::Network(input));
            }
            while let Some((_, connection, bytes)) = self.up.pop_front_if(|(at, ..)| *at <= self.now) {
                if self.connection == Some(connection) {
                    let input = upstream::Input::Received(ConnectionIndex(0), bytes);
                    self.upstream.handle_input(self.now, input);
                }
            }
        }
        self.now = end;
    }

    fn exchange(&mut self) {
        let at = self.now + DELAY;
        loop {
            if let Some(output) = self.upstream.poll_output() {
                match output {
                    upstream::Output::Tlp { packet, .. } if packet.is_completion() => {
                        self.answers.push(packet);
                    }
                    upstream::Output::Transmit { bytes, .. } => {
                        self.down.extend(self.connection.map(|connection| (at, connection, bytes)));
                    }
                    upstream::Output::Connect { connection } => {
                        self.count += 1;
                        self.connection = Some(self.count);
                        let input = downstream::Input::Accepted(
                            ConnectionId(self.count),
                            core::net::Ipv4Addr::LOCALHOST.into(),
                        );
                        self.far.handle_input(self.now, far::Input::Network(input));
                        self.upstream.handle_input(self.now, upstream::Input::Connected(connection));
                    }
                    _ => {}
                }
                continue;
            }
            match self.far.poll_output() {
                Some(far::Output::Transmit(connection, bytes)) => {
                    self.up.push_back((at, connection.0, bytes));
                }
                Some(_) => {}
                None => return,
            }
        }
    }

    fn cut(&mut self) {
        if let Some(connection) = self.connection.take() {
            let input = downstream::Input::Disconnected(ConnectionId(connection));
            self.far.handle_input(self.now, far::Input::Network(input));
            self.upstream.handle_input(self.now, upstream::Input::Disconnected(ConnectionIndex(0)));
        }
    }

    fn send(&mut self, packet: Packet) {
        self.upstream.handle_input(self.now, upstream::Input::Tlp(packet));
        self.exchange();
    }

    fn config(&mut self, tag: Tag, target: Bdf, offset: u16, enables: u8, value: Option<u32>) {
        let routing = if target.bus() == 1 { ConfigType::Type0 } else { ConfigType::Type1 };
        let write = value.is_some();
        let kind = ConfigRequest { write, routing, requester: ROOT, tag, enables, target, offset };
        let payload = value.map_or(Buffer::EMPTY, |value| Buffer::copy_from_slice(&value.to_le_bytes()));
        self.send(Packet::new(Header::new(Kind::Config(kind), 1), payload));
    }
    fn write(&mut self, tag: Tag, target: Bdf, offset: u16, enables: u8, value: u32) {
        self.config(tag, target, offset, enables, Some(value));
    }

    /// Waits so that no reset is sent while the connection is lost, and so that the connection is
    /// not lost before the function has answered after a reset: otherwise this function would be
    /// asked for patience.
    fn wait_for_the_function(&mut self, step: &Step) {
        let resets = match *step {
            Step::Write { target: PORT, .. } => true,
            Step::Write { offset, value, .. } => {
                let resets = express::INITIATE_RESET.at(offset::EXPRESS);
                offset == resets.offset() && resets.is_set(value)
            }
            _ => false,
        };
        while resets && !self.upstream.session(PortIndex(0)).is_some_and(Session::is_open) {
            self.run_for(Nanos::from_millis(1));
        }
        self.fresh |= resets;
        if matches!(step, Step::Cut) && core::mem::take(&mut self.fresh) {
            self.config(OF_NONE, DEVICE, 0, 0b1111, None);
            self.run_for(DELAY * 3);
        }
    }

    fn step(&mut self, tag: Tag, step: &Step) {
        self.wait_for_the_function(step);
        match *step {
            Step::Read { offset, enables } => self.config(tag, DEVICE, offset, enables, None),
            Step::Write { target, offset, enables, value } => {
                self.write(tag, target, offset, enables, value);
            }
            Step::MemoryRead { address, length } => {
                self.send(Packet::memory_read(ROOT, tag, address, length));
            }
            Step::MemoryWrite { address, value } => {
                let data = Buffer::copy_from_slice(&value.to_le_bytes());
                self.send(Packet::memory_write(ROOT, address, data));
            }
            Step::Wait(length) => self.run_for(Nanos::from_millis(length)),
            Step::Cut => self.cut(),
        }
    }

    fn read(&mut self, offset: u16) -> u32 {
        self.answers.clear();
        self.config(Tag::new(9), DEVICE, offset, 0b1111, None);
        self.run_for(DELAY * 3);
        let answer = self.answers.iter().find(|answer| answer.tag() == Tag::new(9)).unwrap();
        u32::from_le_bytes(*answer.payload.first_chunk().unwrap())
    }
    /// Writes, and waits until the write has ended.
    fn write_and_wait(&mut self, offset: u16, enables: u8, value: u32) {
        self.write(Tag::new(9), DEVICE, offset, enables, value);
        self.run_for(DELAY * 3);
    }
    fn near(&self) -> u64 {
        self.upstream.config_cache().unwrap().reads_near
    }
}

/// The significant part of an answer: bytes that were not asked for are ignored.
fn answer(packet: &Packet, steps: &[Step]) -> (u16, CompletionStatus, Bdf, u16, u8, Vec<u8>) {
    let Kind::Completion(completion) = &packet.header.kind else { panic!("{packet:?}") };
    let mut bytes = packet.payload.to_vec();
    if let Step::Read { enables, .. } = steps[usize::from(completion.tag.get())] {
        for (lane, byte) in bytes.iter_mut().enumerate() {
            *byte = if enables >> lane & 1 == 1 { *byte } else { 0 };
        }
    }
    let (tag, status, id) = (completion.tag.get(), completion.status, completion.completer);
    (tag, status, id, completion.byte_count, completion.lower_address, bytes)
}

fn offsets() -> Vec<u16> {
    let mut offsets: Vec<u16> = (0..0x40).step_by(4).collect();
    offsets.extend((offset::POWER..offset::POWER + 8).step_by(4));
    offsets.extend((offset::EXPRESS..offset::EXPRESS + express::SIZE).step_by(4));
    offsets.extend((offset::MSIX..offset::MSIX + msix::SIZE).step_by(4));
    offsets.extend((0x100..0x160).step_by(4));
    offsets.extend([0x48, 0xf8, 0x400, 0xffc]);
    offsets
}

fn random_step(rng: &mut Rng, offsets: &[u16]) -> Step {
    let pick =
        |rng: &mut Rng, values: &[u32]| values[usize::try_from(rng.below(values.len() as u64)).unwrap()];
    let place = offsets[usize::try_from(rng.below(offsets.len() as u64)).unwrap()];
    let enables = if rng.one_in(3) { u8::try_from(rng.below(16)).unwrap() } else { 0b1111 };
    let random = u32::try_from(rng.next_u64() >> 32).unwrap();
    let write = |offset, enables, value| Step::Write { target: DEVICE, offset, enables, value };
    let address = pick(rng, &[BAR, BAR, BAR + 4, BAR + 8, BAR + 0x14, BAR + 0x1c, BAR + 0x4000]);
    match rng.below(40) {
        0..14 => Step::Read { offset: place, enables },
        14..20 => write(place, enables, pick(rng, &[random, 0, u32::MAX, 0x0010_0006])),
        20..23 => write(
            0x10 + 4 * pick(rng, &[0, 1, 2, 5]).to_le_bytes()[0] as u16,
            0b1111,
            pick(rng, &[BAR, u32::MAX, 0]),
        ),
        23 => write(0x10, 0b1111, BAR),
        24 => write(0x14, 0b1111, 0),
        25 => write(header::BUS_MASTER.offset(), 0b0011, pick(rng, &[0, 2, 6, 4])),
        26..30 => Step::MemoryRead { address: address.into(), length: pick(rng, &[4, 8, 12, 2, 16]) },
        30 => Step::MemoryWrite { address: u64::from(BAR) + 0x14, value: pick(rng, &[0, 0x46_0001]) },
        31 => write(express::INITIATE_RESET.at(offset::EXPRESS).offset(), 0b0011, 1 << 15),
        32 => write(power::STATE.at(offset::POWER).offset(), 0b0001, pick(rng, &[0, 3, 1])),
        33 => Step::Write {
            target: PORT,
            offset: BRIDGE_CONTROL,
            enables: 0b1111,
            value: pick(rng, &[SECONDARY_BUS_RESET, 0]),
        },
        34 => Step::Write { target: PORT, offset: BRIDGE_CONTROL, enables: 0b1111, value: 0 },
        35 => Step::Cut,
        _ => Step::Wait(rng.below(25)),
    }
}

fn lockstep(seed: u64, count: usize) -> u64 {
    let mut rng = Rng::from_seed(seed);
    let offsets = offsets();
    let steps: Vec<Step> = (0..count).map(|_| random_step(&mut rng, &offsets)).collect();
    let mut worlds = [World::new(false, true), World::new(true, true), World::new(true, false)];
    let answers = worlds.each_mut().map(|world| {
        for (tag, step) in (0_u16..).zip(&steps) {
            world.step(Tag::new(tag), step);
        }
        world.run_for(Nanos::from_secs(3));
        let answers = world.answers.iter().filter(|packet| packet.tag() != OF_NONE);
        let mut answers: Vec<_> = answers.map(|packet| answer(packet, &steps)).collect();
        answers.sort_by_key(|answer| answer.0);
        answers
    });
    let [plain, cached, alone] = answers;
    for with in [&cached, &alone] {
        for one in &plain {
            let other = with.iter().find(|other| other.0 == one.0);
            assert_eq!(Some(one), other, "seed {seed}: {:?}", steps[usize::from(one.0)]);
        }
        // Answers that a reset or a loss of the link has swallowed on the way were given earlier by
        // the cache.
        let more = with.iter().filter(|other| !plain.iter().any(|one| one.0 == other.0));
        for (tag, ..) in more {
            let step = &steps[usize::from(*tag)];
            assert!(matches!(step, Step::Read { .. } | Step::MemoryRead { .. }), "seed {seed}: {step:?}");
        }
    }
    worlds[1].near()
}

#[test]
fn the_device_and_its_config_cache_give_the_same_answers() {
    let near: u64 = (0..200).map(|seed| lockstep(seed, 120)).sum();
    assert!(near > 200, "{near} reads were answered near");
}

#[test]
fn all_that_is_steady_is_answered_at_once() {
    let mut world = World::new(true, false);
    let before = world.now;
    for at in [0, 8, 12, 0x10, 0x14, 0x2c, 0x34] {
        world.answers.clear();
        world.config(Tag::new(1), DEVICE, at, 0b1111, None);
        assert_eq!(world.answers.len(), 1, "{at:#x}");
    }
    assert_eq!(world.now, before);
    // The Status half is the device's, the Command half is not.
    world.answers.clear();
    world.config(Tag::new(1), DEVICE, 4, 0b1111, None);
    assert_eq!(world.answers.len(), 0);
    world.config(Tag::new(2), DEVICE, 4, 0b0011, None);
    assert_eq!(world.answers.len(), 1);
}

#[test]
fn a_bar_is_sized_near_once_the_write_has_been_answered() {
    let mut world = World::new(true, false);
    world.write_and_wait(0x10, 0b1111, u32::MAX);
    let near = world.near();
    assert_eq!(world.read(0x10), 0xffff_c004);
    assert_eq!(world.near(), near + 1);
    world.write(Tag::new(3), DEVICE, 0x10, 0b1111, BAR);
    // The write is under way, so the read follows it.
    assert_eq!(world.read(0x10), BAR | 4);
    assert_eq!(world.near(), near + 1);
    assert_eq!(world.read(0x10), BAR | 4);
    assert_eq!(world.near(), near + 2);
}

#[test]
fn after_a_reset_of_the_function_its_config_cache_is_that_of_a_fresh_one() {
    let mut world = World::new(true, false);
    let control = express::INITIATE_RESET.at(offset::EXPRESS).offset();
    world.write_and_wait(0x10, 0b1111, BAR);
    for _ in 0..2 {
        assert_eq!(world.read(0x10), BAR | 4);
        world.write_and_wait(control, 0b0011, 1 << 15);
        let near = world.near();
        assert_eq!((world.read(0x10), world.near()), (4, near + 1));
        world.write_and_wait(0x10, 0b1111, BAR);
    }
    world.write(Tag::new(1), PORT, BRIDGE_CONTROL, 0b1111, SECONDARY_BUS_RESET);
    world.write(Tag::new(1), PORT, BRIDGE_CONTROL, 0b1111, 0);
    world.run_for(Nanos::from_millis(100));
    let near = world.near();
    assert_eq!((world.read(0x10), world.near()), (4, near + 1));
}

#[test]
fn the_properties_of_a_controller_that_stay_are_answered_near() {
    let mut world = World::new(true, true);
    let read = |world: &mut World, address: u32, length| {
        world.answers.clear();
        world.send(Packet::memory_read(ROOT, Tag::new(1), address.into(), length));
        let near = !world.answers.is_empty();
        world.run_for(DELAY * 3);
        let Kind::Completion(completion) = world.answers[0].header.kind else { panic!() };
        (near, completion.status, world.answers[0].payload.to_vec())
    };
    let (near, status, _) = read(&mut world, BAR, 8);
    assert_eq!((near, status), (false, CompletionStatus::UnsupportedRequest));
    world.write_and_wait(0x10, 0b1111, BAR);
    world.write_and_wait(0x04, 0b0011, 6);
    let (near, status, capabilities) = read(&mut world, BAR, 8);
    assert_eq!((near, status), (true, CompletionStatus::Success));
    let mut expected = [0; 12];
    world.far.function().controller().read_register(0, &mut expected);
    assert_eq!(capabilities, expected[..8]);
    assert_eq!(read(&mut world, BAR + 8, 4), (true, CompletionStatus::Success, expected[8..].to_vec()));
    assert!(!read(&mut world, BAR + 0x1c, 4).0, "the status of the controller is its own");
    // A read behind a write that may not have arrived follows the write.
    world.step(Tag::new(2), &Step::MemoryWrite { address: u64::from(BAR) + 0x14, value: 0 });
    assert!(!read(&mut world, BAR, 8).0);
}
