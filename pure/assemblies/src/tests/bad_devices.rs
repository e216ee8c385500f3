//! A host with a device on its own link. The device reaches outside of host memory, or no longer
//! answers.

use alloc::vec::Vec;

use engine::{Buffer, Engine, Instant, Nanos};
use nvme::media::ram::RamDisk;
use nvme::wire::{IoOpcode, NamespaceId};
use nvme_pcie::function::{self, Function};
use nvme_pcie::host::{Completed, Data, QueueId, Submission};
use pcie::requester::CompletionTimeout;
use pcie::wire::{Bdf, CompletionStatus, Kind, Packet, Tag};

use super::{DISK_BYTES, function_config};
use crate::near::{self, ControllerIndex, Event, Near};

const CONTROLLER: ControllerIndex = ControllerIndex(0);
const TIMEOUT: Nanos = Nanos::from_millis(1);

/// Which parts of the device work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Well,
    /// The device's medium never answers.
    Stuck,
    /// The device ignores all requests.
    Dead,
}

struct Direct {
    near: Near,
    function: Function,
    disk: RamDisk,
    health: Health,
    now: Instant,
    events: Vec<Event>,
    /// The host's answers to requests that the controller did not make.
    answers: Vec<Packet>,
}

/// The requester of requests that the controller did not make.
const STRAY: Bdf = Bdf::new(1, 0, 7);

impl Direct {
    fn new() -> Self {
        let now = Instant::from_nanos(1_000);
        let mut config = near::Config::default();
        config.driver.command_timeout = TIMEOUT;
        config.driver.register_timeout = TIMEOUT;
        config.driver.retry_delay = TIMEOUT;
        config.root.timeout = CompletionTimeout::A1;
        let mut direct = Self {
            near: Near::direct(config, now),
            function: Function::new(now, function_config()),
            disk: RamDisk::new(DISK_BYTES),
            health: Health::Well,
            now,
            events: Vec::new(),
            answers: Vec::new(),
        };
        direct.run(super::ready);
        direct
    }

    /// Runs host and device in steps of a microsecond until `until` is true of the events.
    fn run(&mut self, mut until: impl FnMut(&[Event]) -> bool) {
        for _ in 0..200_000 {
            self.now = self.now + Nanos::from_micros(1);
            self.step();
            if until(&self.events) {
                return;
            }
        }
        panic!("nothing came of it: {:?}", self.events);
    }

    fn step(&mut self) {
        let now = self.now;
        if self.near.poll_timeout().is_some_and(|at| at <= now) {
            self.near.handle_timeout(now);
        }
        while let Some(output) = self.near.poll_output() {
            match output {
                near::Output::Packet(packet) if is_stray(&packet) => self.answers.push(packet),
                near::Output::Packet(_) if self.health == Health::Dead => {}
                near::Output::Packet(packet) => {
                    self.function.handle_input(now, function::Input::Packet(packet));
                }
                near::Output::Event(event) => self.events.push(event),
                other => panic!("there is no tunnel for {other:?}"),
            }
        }
        if self.function.poll_timeout().is_some_and(|at| at <= now) {
            self.function.handle_timeout(now);
        }
        let mut done = Vec::new();
        loop {
            for completion in done.drain(..) {
                self.function.handle_input(now, function::Input::Media(completion));
            }
            match self.function.poll_output() {
                Some(function::Output::Packet(packet)) => {
                    self.near.handle_input(now, near::Input::Packet(packet))
                }
                Some(function::Output::Media(_)) if self.health == Health::Stuck => {}
                Some(function::Output::Media(request)) => {
                    self.disk.submit(request, &mut |completion| done.push(completion));
                }
                Some(function::Output::Notify(_)) => {}
                Some(function::Output::ToLane(..)) => unreachable!("no lane is attached"),
                None if done.is_empty() => return,
                None => {}
            }
        }
    }

    fn data(&self) -> Data {
        let base = self.near.driver(CONTROLLER).unwrap().data_region().base;
        Data { address: base, length: 4096 }
    }

    fn submit(&mut self, submission: Submission) {
        self.near.submit(self.now, CONTROLLER, submission).unwrap();
    }

    /// Waits for the end of the command called `cookie`.
    fn end_of(&mut self, cookie: u64) -> Completed {
        self.run(|events| ends(events, cookie).next().is_some());
        *ends(&self.events, cookie).next().unwrap()
    }

    /// Asserts that the device carries out a read.
    fn assert_well(&mut self, cookie: u64) {
        self.submit(Submission::on_blocks(
            IoOpcode::Read,
            QueueId(1),
            NamespaceId(1),
            0,
            8,
            self.data(),
            cookie,
        ));
        let end = self.end_of(cookie);
        assert!(end.status.is_success(), "{end:?}");
    }
}

fn ends(events: &[Event], cookie: u64) -> impl Iterator<Item = &Completed> {
    events.iter().filter_map(move |event| match event {
        Event::Completed { completed, .. } if completed.cookie == cookie => Some(completed),
        _ => None,
    })
}

fn is_stray(packet: &Packet) -> bool {
    matches!(&packet.header.kind, Kind::Completion(completion) if completion.requester == STRAY)
}

#[test]
fn a_device_that_reaches_outside_host_memory_is_refused_and_harms_nothing() {
    let mut direct = Direct::new();
    let length = usize::try_from(near::Config::default().arena_bytes).unwrap();
    let before = direct.near.memory().slice(near::MEMORY_BASE, length).unwrap().to_vec();
    let refused = direct.near.root().statistics().refused;
    let end = near::MEMORY_BASE + length as u64;
    let outside = [0, near::MEMORY_BASE - 64, end, 1 << 40, u64::MAX - 63];
    for address in outside {
        let write = Packet::memory_write(STRAY, address, Buffer::copy_from_slice(&[0xa5; 64]));
        direct.near.handle_input(direct.now, near::Input::Packet(write));
        let read = Packet::memory_read(STRAY, Tag::default(), address, 64);
        direct.near.handle_input(direct.now, near::Input::Packet(read));
        direct.step();
        let answer = direct.answers.pop().expect("a read is answered");
        let Kind::Completion(completion) = &answer.header.kind else { panic!("{answer:?}") };
        assert_eq!(completion.status, CompletionStatus::UnsupportedRequest, "{address:#x}");
    }
    assert_eq!(direct.near.root().statistics().refused - refused, outside.len() as u64);
    assert_eq!(direct.near.writes_dropped(), outside.len() as u64);
    let after = direct.near.memory().slice(near::MEMORY_BASE, length).unwrap();
    assert!(after == before, "a write outside has changed the inside");
    direct.assert_well(1);
}

#[test]
fn a_command_that_never_ends_is_aborted_and_fails_with_a_status() {
    let mut direct = Direct::new();
    direct.health = Health::Stuck;
    direct.submit(Submission::on_blocks(IoOpcode::Read, QueueId(1), NamespaceId(1), 0, 8, direct.data(), 1));
    let end = direct.end_of(1);
    assert!(!end.status.is_success());
    assert!(direct.near.driver(CONTROLLER).unwrap().statistics().aborts > 0);
    direct.health = Health::Well;
    direct.assert_well(2);
    assert_eq!(ends(&direct.events, 1).count(), 1);
}

#[test]
fn a_device_that_never_answers_is_reset_and_its_commands_fail_with_a_status() {
    let mut direct = Direct::new();
    direct.health = Health::Dead;
    for cookie in 0..3 {
        direct.submit(Submission::on_blocks(
            IoOpcode::Read,
            QueueId(1),
            NamespaceId(1),
            cookie,
            8,
            direct.data(),
            cookie,
        ));
    }
    for cookie in 0..3 {
        assert!(!direct.end_of(cookie).status.is_success());
    }
    let statistics = direct.near.driver(CONTROLLER).unwrap().statistics();
    assert!(statistics.aborts > 0 && statistics.resets > 0, "{statistics:?}");
    assert!(direct.events.iter().any(|event| matches!(event, Event::Failed(_))));
    let late = Submission::on_blocks(IoOpcode::Read, QueueId(1), NamespaceId(1), 0, 8, direct.data(), 9);
    assert!(direct.near.submit(direct.now, CONTROLLER, late).is_err(), "the submission is refused at once");
}
