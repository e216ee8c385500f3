//! Both ends of a connection against each other, over endpoints with random delays, over
//! iWARP and over RoCE.

mod iwarp;
pub(crate) mod late;
mod roce;

use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use engine::{Buffer, Instant, Pool, Rng};
use nvme::host::Data;
use nvme::wire::{CompletionQueueEntry, QueueId, StatusCode, SubmissionQueueEntry};
use nvme_fabrics::transport::{ControllerEnd, HostEnd};
use proptest::prelude::*;
use rdma::{Endpoint, Limits, LocalConfig, LocalEndpoint, SharedPool};

use crate::QUEUE_SIZE_MAX;
use crate::controller::{self, Queue, Slot};
use crate::host;

pub(crate) const NOW: Instant = Instant::ZERO;
/// Opcodes with the two lowest bits of a write and of a read.
pub(crate) const WRITE: u8 = 0x01;
pub(crate) const READ: u8 = 0x02;

pub(crate) fn pool() -> SharedPool {
    Rc::new(RefCell::new(Pool::default()))
}

/// A pattern that distinguishes each byte of a command from others.
fn pattern(seed: u32, length: u32) -> Vec<u8> {
    (0..length).map(|at| (seed.wrapping_mul(31).wrapping_add(at * 7 + at / 256)).to_le_bytes()[0]).collect()
}

/// An endpoint for tests.
pub(crate) trait TestEndpoint: Endpoint {
    /// Moves some of the data in transit from one end to the other.
    fn carry(_from: &mut Self, _to: &mut Self, _rng: &mut Rng) {}
    /// Number of regions that the end lends.
    fn regions(&self) -> usize;
}

impl TestEndpoint for LocalEndpoint {
    fn regions(&self) -> usize {
        Self::regions(self)
    }
}

pub(crate) struct Pair<E> {
    pub(crate) controller: controller::Connection<E>,
    pub(crate) host: host::Connection<E>,
    rng: Rng,
    pool: Pool,
    /// Commands that the controller has not finished.
    pub(crate) work: VecDeque<(Slot, SubmissionQueueEntry, Option<Buffer>)>,
    pub(crate) done: Vec<host::Completed>,
}

impl<E: TestEndpoint> Pair<E> {
    /// The ends of a connection that `near` is asking `far` for.
    pub(crate) fn new(
        seed: u64,
        (controller, far): (controller::Config, E),
        (host, near): (host::Config, E),
    ) -> Self {
        let capsule_data_max = controller.capsule_data_max;
        let mut pair = Self {
            controller: controller::Connection::new(NOW, controller, far),
            host: host::Connection::new(NOW, host, near),
            rng: Rng::from_seed(seed),
            pool: Pool::default(),
            work: VecDeque::new(),
            done: Vec::new(),
        };
        pair.controller.set_queue(Queue { size: host.queue_size, capsule_data_max, success_flag: false });
        while !pair.host.is_ready() {
            pair.step();
        }
        pair
    }

    /// Runs both ends, and performs a piece of work.
    pub(crate) fn step(&mut self) {
        let (near, far) = (self.host.endpoint_mut(), self.controller.endpoint_mut());
        E::carry(near, far, &mut self.rng);
        E::carry(far, near, &mut self.rng);
        while let Some(output) = self.controller.poll() {
            self.on_controller(output);
        }
        self.work();
        while let Some(output) = self.host.poll() {
            match output {
                host::Output::Initialized(_) => {}
                host::Output::Completed(completed) => self.done.push(completed),
                host::Output::Closed(why) => panic!("{why}"),
            }
        }
    }

    pub(crate) fn on_controller(&mut self, output: controller::Output) {
        match output {
            controller::Output::Initialized(_) => {}
            controller::Output::Command { slot, entry } if entry.opcode == WRITE && entry.cdw12 > 0 => {
                if let Some(data) = self.controller.pull(slot, entry.cdw12).unwrap() {
                    self.work.push_back((slot, entry, Some(data)));
                } else if entry.cdw13 == 1 {
                    // A command given up while its data are coming.
                    self.complete(slot, StatusCode::CommandAbortRequested);
                } else {
                    self.work.push_back((slot, entry, None));
                }
            }
            controller::Output::Command { slot, entry } => {
                self.work.push_back((slot, entry, Some(Buffer::EMPTY)));
            }
            controller::Output::HostData { slot, data } => {
                let waiting = self.work.iter_mut().find(|(other, ..)| *other == slot);
                waiting.expect("data of a command in flight").2 = Some(data);
            }
            controller::Output::Closed(why) => panic!("{why}"),
        }
    }

    fn complete(&mut self, slot: Slot, code: StatusCode) {
        self.controller.complete(slot, CompletionQueueEntry::default().with_status(code.into(), false));
    }

    pub(crate) fn work(&mut self) {
        let ready = self.work.iter().position(|(_, _, data)| data.is_some());
        if self.rng.one_in(2) {
            return;
        }
        let Some((slot, entry, data)) = ready.and_then(|index| self.work.remove(index)) else { return };
        match entry.opcode {
            WRITE if entry.cdw12 > 0 => {
                assert!(data.as_deref() == Some(&pattern(entry.cdw10, entry.cdw12)[..]), "the written data");
            }
            READ => self.answer_read(slot, &entry),
            _ => {}
        }
        let result = if entry.opcode == READ { 0 } else { entry.cdw10 };
        let completion = CompletionQueueEntry { dw0: result, ..CompletionQueueEntry::default() };
        self.controller.complete(slot, completion);
    }

    /// Answers a read in up to three pieces, in any order.
    fn answer_read(&mut self, slot: Slot, entry: &SubmissionQueueEntry) {
        let bytes = pattern(entry.cdw10, entry.cdw12);
        let piece = (bytes.len() / 3 + 1).next_multiple_of(4);
        let mut pieces: Vec<(usize, &[u8])> = bytes.chunks(piece).enumerate().collect();
        if self.rng.one_in(2) {
            pieces.reverse();
        }
        for (index, bytes) in pieces {
            let offset = u32::try_from(index * piece).unwrap();
            let data = self.pool.copy(bytes);
            self.controller.push(slot, offset, entry.cdw12, data).unwrap();
        }
    }

    /// Asserts that no memory is lent and no byte counted any more.
    pub(crate) fn check_idle(&self) {
        assert_eq!((self.host.outstanding(), self.controller.outstanding()), (0, 0));
        assert_eq!(self.host.endpoint().regions(), 0, "every loan has ended");
        assert_eq!(self.controller.held(), controller::Held::default());
        assert!(!self.controller.is_owed_data());
    }
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    seed: u64,
    invalidate: (bool, bool, bool),
    queue_size: u16,
    capsule_data_max: u32,
    message_bytes: u32,
    reads_max: u16,
    /// Places in the send queues beyond those that the queue needs.
    spare: u16,
}

fn settings() -> impl Strategy<Value = Settings> {
    (
        (any::<u64>(), any::<(bool, bool, bool)>(), prop::sample::select(&[1_u16, 3, 32][..])),
        (
            prop::sample::select(&[0_u32, 512, 8192, 16384][..]),
            prop::sample::select(&[9000_u32, 20_000, 1 << 30][..]),
            prop::sample::select(&[1_u16, 3, 16][..]),
            prop::sample::select(&[0_u16, 3, 100][..]),
        ),
    )
        .prop_map(|((seed, invalidate, queue_size), rest)| {
            let (capsule_data_max, message_bytes, reads_max, spare) = rest;
            Settings { seed, invalidate, queue_size, capsule_data_max, message_bytes, reads_max, spare }
        })
}

impl Settings {
    fn controller(&self) -> controller::Config {
        controller::Config {
            capsule_data_max: self.capsule_data_max,
            reads_max: self.reads_max,
            pull_bytes_max: 16384,
            backlog_bytes_max: 20_000,
            remote_invalidate: self.invalidate.0,
            ..controller::Config::new(pool())
        }
    }

    fn host(&self) -> host::Config {
        host::Config {
            queue: QueueId(1),
            queue_size: self.queue_size,
            capsule_data_max: self.capsule_data_max,
            remote_invalidate: self.invalidate.1,
            ..host::Config::new()
        }
    }
}

fn local(settings: &Settings) -> Pair<LocalEndpoint> {
    let limits = Limits {
        send_requests: settings.queue_size + settings.spare,
        receive_requests: settings.queue_size,
        message_bytes: settings.message_bytes,
        invalidate: settings.invalidate.2,
        immediate: false,
    };
    let config = LocalConfig { limits, seed: settings.seed, delays: true, ..LocalConfig::default() };
    let host = settings.host();
    let [near, far] = LocalEndpoint::pair(&config, &pool(), &host.private_data());
    Pair::new(settings.seed, (settings.controller(), far), (host, near))
}

pub(crate) fn entry(opcode: u8, seed: u32, length: u32, give_up: bool) -> SubmissionQueueEntry {
    SubmissionQueueEntry {
        opcode,
        cdw10: seed,
        cdw12: length,
        cdw13: u32::from(give_up),
        ..SubmissionQueueEntry::default()
    }
}

/// The action of a command (0 writes, 1 reads, 2 neither), its length, and whether it is given up.
type Step = (u8, u32, bool);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0_u8..3, 0_u32..40_000, any::<bool>()), 1..40)
}

/// Submits commands and checks how they end.
fn run<E: TestEndpoint>(pair: &mut Pair<E>, capsule_data_max: u32, commands: &[Step]) {
    let mut given_up = Vec::new();
    for (seed, (what, length, give_up)) in (0_u32..).zip(commands.iter().copied()) {
        let (opcode, data) = match what {
            0 => (WRITE, Data::Write(Buffer::from(pattern(seed, length)))),
            1 => (READ, Data::Read(length)),
            _ => (0, Data::None),
        };
        let outside = what == 0 && length > capsule_data_max;
        given_up.push(give_up && outside);
        for _ in 0..1_000_000 {
            if pair.host.has_room() {
                break;
            }
            pair.step();
        }
        let length = if what == 2 { 0 } else { length };
        pair.host.submit(u64::from(seed), entry(opcode, seed, length, give_up), data).unwrap();
    }
    for _ in 0..1_000_000 {
        if pair.done.len() == commands.len() {
            break;
        }
        pair.step();
    }
    assert_eq!(pair.done.len(), commands.len());
    // The controller learns that its messages were sent.
    for _ in 0..1_000_000 {
        if pair.controller.held() == controller::Held::default() {
            break;
        }
        pair.step();
    }
    pair.check_idle();
    pair.done.sort_by_key(|completed| completed.cookie);
    for (index, completed) in pair.done.iter().enumerate() {
        let seed = u32::try_from(index).unwrap();
        assert_eq!(completed.cookie, index as u64);
        let (what, length, _) = commands[index];
        assert_eq!(completed.entry.status().is_success(), !given_up[index]);
        if what == 1 {
            assert!(*completed.data == *pattern(seed, length));
        }
    }
}

/// Keys that are invalidated if both ends can do it.
fn keys(capsule_data_max: u32, commands: &[Step]) -> u64 {
    let lent = commands.iter().filter(|(what, length, _)| match what {
        0 => *length > capsule_data_max,
        1 => *length > 0,
        _ => false,
    });
    lent.count() as u64
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    /// For any negotiated settings and any delays, every command ends once, with its data, and no
    /// memory stays lent.
    #[test]
    fn every_command_ends_once_with_its_data(settings in settings(), commands in steps()) {
        let mut pair = local(&settings);
        let capsule_data_max = settings.capsule_data_max.min(settings.message_bytes - 64);
        run(&mut pair, capsule_data_max, &commands);
        let invalidated = pair.host.statistics().invalidated;
        prop_assert_eq!(invalidated, pair.controller.statistics().invalidated);
        let all = settings.invalidate == (true, true, true);
        prop_assert_eq!(invalidated, if all { keys(capsule_data_max, &commands) } else { 0 });
    }
}

#[test]
fn a_queue_is_as_deep_as_agreed() {
    let config = host::Config { queue_size: QUEUE_SIZE_MAX, ..host::Config::new() };
    for spare in [0, 1, 1000] {
        let limits = Limits { send_requests: QUEUE_SIZE_MAX + spare, ..LocalConfig::default().limits };
        let local = LocalConfig { limits, ..LocalConfig::default() };
        let [near, far] = LocalEndpoint::pair(&local, &pool(), &config.private_data());
        let mut pair = Pair::new(0, (controller::Config::new(pool()), far), (config, near));
        // Twice, because requests that are done take places until it is known.
        for _ in 0..2 {
            for cookie in 0..u64::from(QUEUE_SIZE_MAX) {
                pair.host.submit(cookie, entry(READ, 1, 512, false), Data::Read(512)).unwrap();
            }
            let full = pair.host.submit(0, entry(READ, 1, 512, false), Data::Read(512));
            assert_eq!(full, Err(host::SubmitError::Busy));
            while pair.done.len() < usize::from(QUEUE_SIZE_MAX) {
                pair.step();
            }
            // The controller learns that its last response was sent.
            pair.step();
            pair.check_idle();
            assert!(pair.done.drain(..).all(|completed| completed.data.len() == 512));
        }
    }
}
