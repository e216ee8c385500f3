//! A host and a controller joined directly in memory, for tests. A [`Ram`] serves DMA, and a vector
//! serves media.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use engine::{Buffer, Engine, Instant, Nanos};
use nvme::media::{self, MediumId, Operation};
use nvme::subsystem::LaneId;
use nvme::wire::{IoOpcode, NamespaceId, SubmissionQueueEntry};
use pcie::device::{Dma, DmaResult};
use pcie::memory::{Memory, Ram};

use crate::controller::{self, Controller, Input, QueueLane, ToHome, ToLane};
use crate::host::{self, Completed, Data, Host, InitError, QueueId, Submission};
use crate::registers;

pub(crate) const MEMORY_BASE: u64 = 0x1_0000_0000;
pub(crate) const NAMESPACE: NamespaceId = NamespaceId(1);

/// Faults that hold back or lose outputs of the controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// Whether the controller neither receives nor sends anything.
    pub(crate) dead: bool,
    /// Whether CSTS also shows Controller Fatal Status.
    pub(crate) fatal: bool,
    /// Whether media keep their requests instead of answering.
    pub(crate) media_stuck: bool,
    /// Whether reads of host memory fail.
    pub(crate) dma_fails: bool,
    /// Length in bytes of the pieces of answers to host memory reads, which arrive last piece
    /// first.
    pub(crate) pieces: usize,
    /// Whether lanes do nothing, and get no messages.
    pub(crate) lanes_asleep: bool,
}

/// A message that has not arrived.
pub(crate) enum Letter {
    ToLane(LaneId, Box<ToLane>),
    ToHome(LaneId, Box<ToHome>),
}

/// The engine that has sent a request: a lane, or the controller.
pub(crate) type Sender = Option<LaneId>;

pub(crate) struct TestBench {
    pub(crate) host: Host,
    pub(crate) controller: Controller,
    pub(crate) memory: Ram,
    pub(crate) disk: Vec<u8>,
    pub(crate) now: Instant,
    pub(crate) faults: Faults,
    pub(crate) completed: Vec<Completed>,
    pub(crate) events: Vec<host::AsynchronousEvent>,
    pub(crate) resets: Vec<host::ResetReason>,
    pub(crate) failed: Option<InitError>,
    pub(crate) interrupts: Vec<u16>,
    pub(crate) stuck: VecDeque<(Sender, media::Request)>,
    pub(crate) lanes: Vec<(LaneId, QueueLane)>,
    pub(crate) letters: VecDeque<Letter>,
}

pub(crate) const DISK_BYTES: usize = 8 << 20;

pub(crate) fn host_config() -> host::Config {
    host::Config { queue_entries: 64, ..host::Config::new(MEMORY_BASE, 16 << 20) }
}

pub(crate) fn controller_config() -> controller::Config {
    let core = nvme::subsystem::Config::new("TEST").with_namespace(MediumId(0), DISK_BYTES as u64);
    controller::Config::new(core)
}

impl TestBench {
    pub(crate) fn new(host: host::Config, controller: controller::Config) -> Self {
        let length = usize::try_from(host.arena_length).unwrap();
        Self {
            host: Host::new(host).unwrap(),
            controller: Controller::new(Instant::ZERO, controller),
            memory: Ram::new(host.arena_base, length),
            disk: vec![0; DISK_BYTES],
            now: Instant::ZERO,
            faults: Faults::default(),
            completed: Vec::new(),
            events: Vec::new(),
            resets: Vec::new(),
            failed: None,
            interrupts: Vec::new(),
            stuck: VecDeque::new(),
            lanes: Vec::new(),
            letters: VecDeque::new(),
        }
    }

    /// A bench whose controller is up.
    pub(crate) fn ready() -> Self {
        Self::up(host_config(), controller_config())
    }

    pub(crate) fn up(host: host::Config, controller: controller::Config) -> Self {
        let mut bench = Self::new(host, controller);
        bench.host.start(bench.now);
        bench.settle();
        assert!(bench.host.is_ready(), "{:?}", bench.failed);
        bench
    }

    /// A bench with `lanes` lanes, whose controller is up.
    pub(crate) fn with_lanes(lanes: usize) -> Self {
        let mut bench = Self::new(host_config(), controller_config());
        (0..lanes).for_each(|_| bench.attach());
        bench.host.start(bench.now);
        bench.settle();
        assert!(bench.host.is_ready(), "{:?}", bench.failed);
        bench
    }

    /// Attaches a lane.
    pub(crate) fn attach(&mut self) {
        let (id, start) = self.controller.attach_lane(self.now);
        self.lanes.push((id, QueueLane::new(self.now, start)));
    }

    fn lane(&mut self, id: LaneId) -> Option<&mut QueueLane> {
        self.lanes.iter_mut().find(|(one, _)| *one == id).map(|(_, lane)| lane)
    }

    /// Delivers a message, if there is one.
    pub(crate) fn deliver(&mut self) -> bool {
        let now = self.now;
        match self.letters.pop_front() {
            Some(Letter::ToLane(id, letter)) => {
                if let Some(lane) = self.lane(id) {
                    lane.handle_input(now, Input::FromHome(letter));
                }
            }
            Some(Letter::ToHome(id, letter)) => {
                if letter.is_last() {
                    self.lanes.retain(|(one, _)| *one != id);
                }
                self.controller.handle_input(now, Input::FromLane(id, letter));
            }
            None => return false,
        }
        true
    }

    /// Moves an output of some lane, if there is one.
    fn move_lanes(&mut self) -> bool {
        for index in 0..self.lanes.len() {
            let (id, lane) = &mut self.lanes[index];
            if let Some(output) = lane.poll_output() {
                let id = *id;
                self.on_output(Some(id), output);
                return true;
            }
        }
        false
    }

    pub(crate) fn settle(&mut self) {
        loop {
            let mut moved = false;
            self.host.poll_completions(self.now, &mut self.memory);
            while let Some(output) = self.host.poll_output() {
                moved = true;
                self.on_host(output);
            }
            while !self.faults.dead
                && let Some(output) = self.controller.poll_output()
            {
                moved = true;
                self.on_controller(output);
            }
            while !self.faults.lanes_asleep && (self.deliver() || self.move_lanes()) {
                moved = true;
            }
            if !moved {
                return;
            }
        }
    }

    /// Moves one output of either side, if there is one.
    pub(crate) fn step(&mut self) {
        if let Some(output) = self.host.poll_output() {
            self.on_host(output);
        } else if let Some(output) = self.controller.poll_output() {
            self.on_controller(output);
        } else if !self.faults.lanes_asleep {
            let _ = self.move_lanes() || self.deliver();
        }
    }

    /// Lets time pass, from deadline to deadline.
    pub(crate) fn pass(&mut self, length: Nanos) {
        let end = self.now + length;
        self.settle();
        for _ in 0..100_000 {
            let lanes = self.lanes.iter().filter_map(|(_, lane)| lane.poll_timeout());
            let wakes = [self.host.poll_timeout(), self.controller.poll_timeout()];
            let Some(wake) = wakes.into_iter().flatten().chain(lanes).min().filter(|at| *at <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(wake);
            self.host.handle_timeout(self.now);
            self.controller.handle_timeout(self.now);
            self.lanes.iter_mut().for_each(|(_, lane)| lane.handle_timeout(self.now));
            assert!(
                self.host.poll_timeout().is_none_or(|at| at > self.now),
                "a deadline outlived its timeout"
            );
            self.settle();
        }
        panic!("time does not pass");
    }

    fn on_host(&mut self, output: host::Output) {
        match output {
            host::Output::RegisterRead { cookie, offset, length } => {
                if self.faults.dead {
                    return;
                }
                let mut bytes = [0; 8];
                let bytes = &mut bytes[..length as usize];
                self.controller.read_register(offset, bytes);
                if self.faults.fatal && offset == registers::offset::STATUS {
                    let shown = u64::from(bytes[0]) | registers::status::FATAL.put(1);
                    bytes[0] = shown.to_le_bytes()[0];
                }
                self.host.handle_input(self.now, host::Input::RegisterRead { cookie, bytes: Some(bytes) });
            }
            host::Output::RegisterWrite { offset, bytes } => self.write(offset, &bytes),
            host::Output::Ready(_) => {}
            host::Output::Failed(error) => self.failed = Some(error),
            host::Output::Completed(completed) => self.completed.push(completed),
            host::Output::Event(event) => self.events.push(event),
            host::Output::Resetting(reason) => self.resets.push(reason),
        }
    }

    pub(crate) fn write(&mut self, offset: u32, bytes: &[u8]) {
        if !self.faults.dead {
            self.controller.handle_input(self.now, controller::Input::RegisterWrite { offset, bytes });
        }
    }

    pub(crate) fn register(&self, offset: u32) -> u32 {
        let mut bytes = [0; 4];
        self.controller.read_register(offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    pub(crate) fn on_controller(&mut self, output: controller::Output) {
        self.on_output(None, output);
    }

    fn on_output(&mut self, from: Sender, output: controller::Output) {
        match output {
            controller::Output::Dma(Dma::Read { id, address, length }) => {
                let length = length as usize;
                let found = self.memory.slice(address, length).map(Buffer::copy_from_slice);
                let data = match found {
                    Ok(data) if !self.faults.dma_fails => data,
                    _ => return self.dma(from, DmaResult::Failed { id }),
                };
                if self.faults.pieces == 0 {
                    return self.dma(from, DmaResult::Data { id, offset: 0, data, last: true });
                }
                let starts: Vec<usize> = (0..length).step_by(self.faults.pieces).rev().collect();
                for start in starts {
                    let piece = data.slice(start..length.min(start + self.faults.pieces));
                    let offset = u32::try_from(start).unwrap();
                    self.dma(from, DmaResult::Data { id, offset, data: piece, last: start == 0 });
                }
            }
            controller::Output::Dma(Dma::Write { address, data }) => {
                // A write to unmapped memory is lost, as behind a root complex.
                let _ = self.memory.write(address, &data);
            }
            controller::Output::Dma(Dma::Interrupt { vector }) => {
                self.interrupts.push(vector);
                self.host.handle_input(self.now, host::Input::Interrupt { vector });
            }
            controller::Output::Media(request) if self.faults.media_stuck => {
                self.stuck.push_back((from, request));
            }
            controller::Output::Media(request) => self.serve(from, request),
            controller::Output::Notify(_) => {}
            controller::Output::ToLane(lane, letter) => self.letters.push_back(Letter::ToLane(lane, letter)),
            controller::Output::ToHome(letter) => {
                self.letters.push_back(Letter::ToHome(from.expect("only lanes write home"), letter));
            }
        }
    }

    fn hand(&mut self, to: Sender, input: Input<'_>) {
        let now = self.now;
        match to {
            None => self.controller.handle_input(now, input),
            Some(id) => {
                if let Some(lane) = self.lane(id) {
                    lane.handle_input(now, input);
                }
            }
        }
    }

    fn dma(&mut self, to: Sender, result: DmaResult) {
        self.hand(to, Input::Dma(result));
    }

    /// Answers the requests that media kept.
    pub(crate) fn unstick(&mut self) {
        self.faults.media_stuck = false;
        while let Some((from, request)) = self.stuck.pop_front() {
            self.serve(from, request);
        }
        self.settle();
    }

    fn serve(&mut self, from: Sender, request: media::Request) {
        let media::Request { id, operation, .. } = request;
        let range = |offset: u64, length: u64| {
            usize::try_from(offset).unwrap()..usize::try_from(offset + length).unwrap()
        };
        match operation {
            Operation::Read { offset, length } => {
                let data = Buffer::copy_from_slice(&self.disk[range(offset, u64::from(length))]);
                self.hand(from, Input::Media(media::Completion::Data { id, offset: 0, data }));
            }
            Operation::Write { offset, data, .. } => {
                self.disk[range(offset, data.len() as u64)].copy_from_slice(&data);
            }
            Operation::Flush => {}
            Operation::WriteZeroes { offset, length, .. } | Operation::Deallocate { offset, length } => {
                self.disk[range(offset, length)].fill(0);
            }
        }
        self.hand(from, Input::Media(media::Completion::Done { id, result: Ok(()) }));
    }

    pub(crate) fn data(&self, offset: u64, length: u32) -> Data {
        Data { address: self.host.data_region().base + offset, length }
    }

    pub(crate) fn submit(&mut self, submission: Submission) {
        self.host.submit(self.now, &mut self.memory, submission).unwrap();
    }

    /// Submits a command, settles, and returns the command's result.
    pub(crate) fn run(&mut self, submission: Submission) -> Completed {
        self.submit(submission);
        self.settle();
        let index = self.completed.iter().position(|completed| completed.cookie == submission.cookie);
        self.completed.remove(index.expect("the command completes"))
    }

    /// A write of `data.length` bytes at byte `at` of the namespace, which has 512 B blocks.
    pub(crate) fn write_of(&self, queue: u16, at: u64, data: Data, cookie: u64) -> Submission {
        let (queue, lba, blocks) = (QueueId(queue), at / 512, data.length / 512);
        Submission::on_blocks(IoOpcode::Write, queue, NAMESPACE, lba, blocks, data, cookie)
    }

    /// As [`TestBench::write_of`], but a read.
    pub(crate) fn read_of(&self, queue: u16, at: u64, data: Data, cookie: u64) -> Submission {
        let write = self.write_of(queue, at, data, cookie);
        let entry = SubmissionQueueEntry { opcode: IoOpcode::Read.into(), ..write.entry };
        Submission { entry, ..write }
    }
}
