//! Both ends of a connection against each other, over a wire that cuts the stream anywhere.

mod flips;

use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use engine::{Buffer, Engine, Instant, Pool, Rng};
use nvme::wire::{CommandId, CompletionQueueEntry, StatusCode, SubmissionQueueEntry};
use proptest::prelude::*;

use crate::controller::{self, Queue, Slot};
use crate::host::{self, DigestUse};
use crate::{QUEUE_SIZE_MAX, SharedPool};
use nvme::host::Data;
use nvme_fabrics::transport::{ControllerEnd, HostEnd};

const NOW: Instant = Instant::ZERO;
/// Opcodes with the two lowest bits of a write and of a read.
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;

fn pool() -> SharedPool {
    Rc::new(RefCell::new(Pool::default()))
}

/// A pattern that distinguishes each byte of a command from others.
fn pattern(seed: u32, length: u32) -> Vec<u8> {
    (0..length).map(|at| (seed.wrapping_mul(31).wrapping_add(at * 7 + at / 256)).to_le_bytes()[0]).collect()
}

struct Pair {
    controller: controller::Connection,
    host: host::Connection,
    rng: Rng,
    pool: Pool,
    /// Commands that the controller has not finished.
    work: VecDeque<(Slot, SubmissionQueueEntry, Option<Buffer>)>,
    done: Vec<host::Completed>,
    landings: bool,
}

impl Pair {
    fn new(seed: u64, controller: controller::Config, host: host::Config, success_flag: bool) -> Self {
        let size = host.queue_size;
        let capsule_data_max = host.capsule_data_max;
        let mut pair = Self {
            controller: controller::Connection::new(NOW, controller),
            host: host::Connection::new(NOW, host),
            rng: Rng::from_seed(seed),
            pool: Pool::default(),
            work: VecDeque::new(),
            done: Vec::new(),
            landings: seed.is_multiple_of(2),
        };
        pair.controller.set_queue(Queue { size, capsule_data_max, success_flag });
        while !pair.host.is_ready() {
            pair.step();
        }
        pair
    }

    fn cut(&mut self, length: usize) -> usize {
        let most = if self.rng.one_in(3) { 7 } else { length as u64 };
        usize::try_from(1 + self.rng.below(most.min(length as u64))).unwrap()
    }

    /// Moves a piece of each stream, and does a piece of work.
    fn step(&mut self) {
        let bytes: Vec<u8> = self.host.outbox().slices().flatten().copied().collect();
        if !bytes.is_empty() && self.controller.wants_input() {
            let count = self.cut(bytes.len());
            self.host.sent(count);
            let mut rest = &bytes[..count];
            if self.landings
                && let Some(place) = self.controller.landing()
            {
                let count = place.len().min(rest.len());
                place[..count].copy_from_slice(&rest[..count]);
                rest = &rest[count..];
                self.controller.landed(count);
            }
            self.controller.handle_input(NOW, controller::Input::Received(Buffer::copy_from_slice(rest)));
        }
        while let Some(output) = self.controller.poll_output() {
            self.on_controller(output);
        }
        self.work();
        let bytes: Vec<u8> = self.controller.outbox().slices().flatten().copied().collect();
        if !bytes.is_empty() {
            let count = self.cut(bytes.len());
            self.controller.sent(count);
            let mut rest = &bytes[..count];
            if self.landings
                && let Some(place) = self.host.landing()
            {
                let count = place.len().min(rest.len());
                place[..count].copy_from_slice(&rest[..count]);
                rest = &rest[count..];
                self.host.landed(count);
            }
            self.host.handle_input(NOW, host::Input::Received(Buffer::copy_from_slice(rest)));
        }
        while let Some(output) = self.host.poll_output() {
            match output {
                host::Output::Initialized(_) => {}
                host::Output::Completed(completed) => self.done.push(completed),
                host::Output::Closed(why) => panic!("{why}"),
            }
        }
    }

    fn on_controller(&mut self, output: controller::Output) {
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
            controller::Output::HostDataFailed { slot, status } => panic!("{slot:?}: {status}"),
            controller::Output::Closed(why) => panic!("{why}"),
        }
    }

    fn complete(&mut self, slot: Slot, code: StatusCode) {
        self.controller.complete(slot, CompletionQueueEntry::default().with_status(code.into(), false));
    }

    fn work(&mut self) {
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
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    seed: u64,
    digests: (bool, bool),
    host_dwords: u8,
    controller_dwords: u8,
    r2ts: u8,
    r2t_bytes: u32,
    host_data_max: u32,
    capsule_data_max: u32,
    success_flag: bool,
    queue_size: u16,
}

fn settings() -> impl Strategy<Value = Settings> {
    (
        (any::<u64>(), any::<(bool, bool)>(), 1_u8..=32, 1_u8..=32, 1_u8..=4),
        (
            prop::sample::select(&[4096_u32, 8192, 1 << 20][..]),
            prop::sample::select(&[4096_u32, 5000, 1 << 20][..]),
            prop::sample::select(&[0_u32, 512, 8192, 16384][..]),
            any::<bool>(),
            prop::sample::select(&[1_u16, 3, 32][..]),
        ),
    )
        .prop_map(|((seed, digests, host_dwords, controller_dwords, r2ts), rest)| {
            let (r2t_bytes, host_data_max, capsule_data_max, success_flag, queue_size) = rest;
            Settings {
                seed,
                digests,
                host_dwords,
                controller_dwords,
                r2ts,
                r2t_bytes,
                host_data_max,
                capsule_data_max,
                success_flag,
                queue_size,
            }
        })
}

fn connect(settings: Settings) -> Pair {
    let controller = controller::Config {
        alignment: settings.controller_dwords * 4,
        host_data_max: settings.host_data_max,
        ready_to_transfer_bytes_max: settings.r2t_bytes,
        pull_bytes_max: 16384,
        backlog_bytes_max: 20_000,
        ..controller::Config::new(pool())
    };
    let host = host::Config {
        header_digest: DigestUse::preferred_if(settings.digests.0),
        data_digest: DigestUse::preferred_if(settings.digests.1),
        alignment: settings.host_dwords * 4,
        ready_to_transfer_max: settings.r2ts,
        queue_size: settings.queue_size,
        capsule_data_max: settings.capsule_data_max,
        ..host::Config::new(pool())
    };
    Pair::new(settings.seed, controller, host, settings.success_flag)
}

fn entry(opcode: u8, seed: u32, length: u32, give_up: bool) -> SubmissionQueueEntry {
    SubmissionQueueEntry {
        opcode,
        cdw10: seed,
        cdw12: length,
        cdw13: u32::from(give_up),
        ..SubmissionQueueEntry::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    /// For any negotiated settings and any division of the stream, every command ends once, with
    /// its data.
    #[test]
    fn every_command_ends_once_with_its_data(
        settings in settings(),
        commands in prop::collection::vec((0_u8..3, 0_u32..40_000, any::<bool>()), 1..40),
    ) {
        let mut pair = connect(settings);
        let mut given_up = Vec::new();
        for (seed, (what, length, give_up)) in (0_u32..).zip(commands.iter().copied()) {
            let length = length.next_multiple_of(4);
            let (opcode, data) = match what {
                0 => (WRITE, Data::Write(Buffer::from(pattern(seed, length)))),
                1 => (READ, Data::Read(length)),
                _ => (0, Data::None),
            };
            let outside = what == 0 && length > settings.capsule_data_max;
            given_up.push(give_up && outside);
            while !pair.host.has_room() {
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
        prop_assert_eq!(pair.done.len(), commands.len());
        prop_assert_eq!((pair.host.outstanding(), pair.controller.outstanding()), (0, 0));
        pair.done.sort_by_key(|completed| completed.cookie);
        for (index, completed) in pair.done.iter().enumerate() {
            let seed = u32::try_from(index).unwrap();
            prop_assert_eq!(completed.cookie, index as u64);
            let (what, length, _) = commands[index];
            prop_assert_eq!(completed.entry.status().is_success(), !given_up[index]);
            if what == 1 {
                prop_assert!(*completed.data == *pattern(seed, length.next_multiple_of(4)));
            }
        }
    }
}

#[test]
fn a_queue_is_as_deep_as_agreed() {
    let host = host::Config { queue_size: QUEUE_SIZE_MAX, ..host::Config::new(pool()) };
    let mut pair = Pair::new(1, controller::Config::new(pool()), host, true);
    for cookie in 0..u64::from(QUEUE_SIZE_MAX) {
        pair.host.submit(cookie, entry(READ, 1, 512, false), Data::Read(512)).unwrap();
    }
    let full = pair.host.submit(0, entry(READ, 1, 512, false), Data::Read(512));
    assert_eq!(full, Err(host::SubmitError::Busy));
    while pair.done.len() < usize::from(QUEUE_SIZE_MAX) {
        pair.step();
    }
    // The SUCCESS flag replaced every response capsule.
    assert!(pair.done.iter().all(|completed| completed.data.len() == 512));
}

#[test]
fn a_host_that_does_not_read_gets_no_more_to_do() {
    let controller = controller::Config { backlog_bytes_max: 100_000, ..controller::Config::new(pool()) };
    let host = host::Config { queue_size: 1000, ..host::Config::new(pool()) };
    let mut pair = Pair::new(2, controller, host, true);
    for cookie in 0..1000 {
        pair.host.submit(cookie, entry(READ, 1, 4096, false), Data::Read(4096)).unwrap();
    }
    let mut refused = 0;
    for _ in 0..10_000 {
        let bytes: Vec<u8> = pair.host.outbox().slices().flatten().copied().take(1000).collect();
        if pair.controller.wants_input() && !bytes.is_empty() {
            pair.host.sent(bytes.len());
            pair.controller.handle_input(NOW, controller::Input::Received(Buffer::from(bytes)));
        } else {
            refused += 1;
        }
        while let Some(output) = pair.controller.poll_output() {
            pair.on_controller(output);
        }
        pair.work();
        assert!(pair.controller.outbox().len() < 110_000, "{} B", pair.controller.outbox().len());
    }
    assert!(refused > 1000 && pair.host.outstanding() == 1000);
    // The host reads after all.
    while pair.done.len() < 1000 {
        pair.step();
    }
}

#[test]
fn a_broken_data_digest_fails_its_command_only() {
    let host = host::Config { data_digest: DigestUse::Required, ..host::Config::new(pool()) };
    let mut pair = Pair::new(4, controller::Config::new(pool()), host, true);
    // Towards the host: one bit of the data.
    pair.host.submit(1, entry(READ, 9, 1024, false), Data::Read(1024)).unwrap();
    let flip = |pair: &mut Pair, to_host: bool| {
        for _ in 0..200 {
            pair.work();
            let outbox = if to_host { pair.controller.outbox() } else { pair.host.outbox() };
            let mut bytes: Vec<u8> = outbox.slices().flatten().copied().collect();
            if bytes.is_empty() {
                pair.step();
                continue;
            }
            let place = bytes.len() - 12;
            if to_host && bytes.len() > 1000 {
                bytes[place] ^= 1;
                pair.controller.sent(bytes.len());
                pair.host.handle_input(NOW, host::Input::Received(Buffer::from(bytes)));
                return;
            } else if !to_host {
                bytes[place] ^= 1;
                pair.host.sent(bytes.len());
                pair.controller.handle_input(NOW, controller::Input::Received(Buffer::from(bytes)));
                return;
            }
            pair.step();
        }
        panic!("nothing arrived");
    };
    // First let the whole command across.
    while !pair.host.outbox().is_empty() {
        let bytes: Vec<u8> = pair.host.outbox().slices().flatten().copied().collect();
        pair.host.sent(bytes.len());
        pair.controller.handle_input(NOW, controller::Input::Received(Buffer::from(bytes)));
    }
    while let Some(output) = pair.controller.poll_output() {
        pair.on_controller(output);
    }
    flip(&mut pair, true);
    pair.step();
    let transient = StatusCode::TransientTransportError;
    assert_eq!(pair.done.pop().unwrap().entry.status().code(), transient);
    assert_eq!(pair.host.statistics().data_digest_errors, 1);
    // Towards the controller: data in a capsule.
    pair.host.submit(2, entry(WRITE, 9, 512, false), Data::Write(Buffer::zeroed(512))).unwrap();
    flip(&mut pair, false);
    while pair.done.is_empty() {
        pair.step();
    }
    assert_eq!(pair.done.pop().unwrap().entry.status().code(), transient);
    assert_eq!(pair.controller.statistics().data_digest_errors, 1);
    // The connection continues.
    pair.host.submit(3, entry(READ, 9, 1024, false), Data::Read(1024)).unwrap();
    while pair.done.is_empty() {
        pair.step();
    }
    assert!(*pair.done[0].data == *pattern(9, 1024) && pair.done[0].entry.command_id != CommandId(0));
}
