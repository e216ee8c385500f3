//! A client, a slot and a function joined in memory, without a world.

mod far_end;
mod hostile;
mod hot_plug;
mod registers;
mod segments;
mod spread;
mod timeouts;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use engine::{Buffer, Engine, Instant, Nanos};
use nvme::media::{self, MediumId, ram::RamDisk};
use nvme::wire::{AdminOpcode, CommandId, CompletionQueueEntry, SubmissionQueueEntry};
use nvme_pcie::function::{self, Function};
use nvme_pcie::{controller, registers::offset};
use pcie::memory::{Memory, Ram};
use pcie::requester::CompletionTimeout;
use pcie::wire::Packet;
use vfio_user::client::{self, Answer, Client, RequestId};
use vfio_user::server::{InterruptAction, InterruptData};
use vfio_user::wire::DmaMap;
use vfio_user::{InterruptIndex, RegionIndex};

use super::{Config, Errno, Event, Guest, Input, Output};

/// Where the guest's memory begins.
const BASE: u64 = 0x1_0000;
const BYTES: u64 = 0x4_0000;
const DISK_BYTES: u64 = 1 << 20;
/// Offsets of the guest's queues and data in its memory.
const SUBMISSIONS: u64 = 0;
const COMPLETIONS: u64 = 0x1000;
const DATA: u64 = 0x2000;
const ENTRIES: u16 = 16;
/// The descriptor of the guest's memory, and the first of those of the vectors.
const MEMORY_FILE: u32 = 7;
const EVENTS: u32 = 100;

/// A slot with its client, its function and its world.
struct TestBench {
    guest: Guest<u32>,
    client: Client<u32>,
    function: Option<Function>,
    disk: RamDisk,
    memory: Ram,
    base: u64,
    /// Whether the world has the memory mapped.
    mapped: bool,
    descriptors: BTreeMap<usize, u32>,
    signals: Vec<u32>,
    /// Addresses and data of interrupts by message.
    messages: Vec<(u64, u32)>,
    /// By vector: where its completion queue is, and how many completions the queue had when the
    /// vector was last signalled.
    queues: BTreeMap<u32, (u64, usize)>,
    answers: BTreeMap<RequestId, Result<Answer<u32>, Errno>>,
    events: Vec<Event>,
    closed: u32,
    /// Packets for a function that does not exist.
    packets: Vec<Packet>,
    /// The slot's outputs to a far end, for the far end's own tests.
    to_far: Vec<Output<u32>>,
    now: Instant,
}

fn function_config() -> function::Config {
    let core = nvme::subsystem::Config::new("TEST").with_namespace(MediumId(0), DISK_BYTES);
    function::Config::new(controller::Config::new(core))
}

fn config() -> Config {
    let mut config = Config { patience: Nanos::from_millis(500), ..Config::default() };
    config.root.timeout = CompletionTimeout::D2;
    config
}

impl TestBench {
    /// A function on the slot's own link, and a client that has sent its version.
    fn direct() -> Self {
        let now = Instant::from_nanos(1_000);
        let function = Function::new(now, function_config());
        let mut bench = Self::around(Guest::direct(config(), now), Some(function), now);
        bench.until(|bench| bench.guest.takes_client());
        bench.connect();
        bench
    }

    fn around(guest: Guest<u32>, function: Option<Function>, now: Instant) -> Self {
        Self {
            guest,
            client: Client::new(client::Config::default()),
            function,
            disk: RamDisk::new(DISK_BYTES),
            memory: Ram::new(BASE, usize::try_from(BYTES).unwrap()),
            base: BASE,
            mapped: false,
            descriptors: BTreeMap::new(),
            signals: Vec::new(),
            messages: Vec::new(),
            queues: BTreeMap::new(),
            answers: BTreeMap::new(),
            events: Vec::new(),
            closed: 0,
            packets: Vec::new(),
            to_far: Vec::new(),
            now,
        }
    }

    fn connect(&mut self) {
        assert!(self.guest.takes_client());
        self.guest.handle_input(self.now, Input::ClientConnected);
        self.client.handle_input(self.now, client::Input::Connected);
        self.until(|bench| bench.client.negotiated().is_some());
    }

    /// The client's process is killed.
    fn disconnect(&mut self) {
        self.guest.handle_input(self.now, Input::ClientDisconnected);
        self.client.handle_input(self.now, client::Input::Disconnected);
        self.settle();
    }

    /// Lets every part act in steps of a microsecond, until `until` is true.
    fn until(&mut self, mut until: impl FnMut(&Self) -> bool) {
        for _ in 0..1_000_000 {
            if until(self) {
                return;
            }
            self.now = self.now + Nanos::from_micros(1);
            self.settle();
        }
        panic!("nothing came of it: {:?}", self.events);
    }

    fn pass(&mut self, length: Nanos) {
        let end = self.now + length;
        let step = Nanos::new(length.get() / 100);
        while self.now < end {
            self.now = self.now + step;
            self.settle();
        }
    }

    fn settle(&mut self) {
        while self.step() {}
    }

    fn step(&mut self) -> bool {
        let now = self.now;
        let mut busy = false;
        if self.guest.poll_timeout().is_some_and(|at| at <= now) {
            self.guest.handle_timeout(now);
        }
        while let Some(output) = self.guest.poll_output() {
            busy = true;
            self.on_guest(output);
        }
        if self.client.poll_timeout().is_some_and(|at| at <= now) {
            self.client.handle_timeout(now);
        }
        while let Some(output) = self.client.poll_output() {
            busy = true;
            self.on_client(output);
        }
        if let Some(mut function) = self.function.take() {
            if function.poll_timeout().is_some_and(|at| at <= now) {
                function.handle_timeout(now);
            }
            let mut done: Vec<media::Completion> = Vec::new();
            loop {
                for completion in done.drain(..) {
                    function.handle_input(now, function::Input::Media(completion));
                }
                let Some(output) = function.poll_output() else { break };
                busy = true;
                match output {
                    function::Output::Packet(packet) => {
                        self.guest.handle_input(now, Input::Packet(packet));
                    }
                    function::Output::Media(request) => {
                        self.disk.submit(request, &mut |completion| done.push(completion));
                    }
                    function::Output::Notify(_) => {}
                    function::Output::ToLane(..) => unreachable!("no lane is attached"),
                }
            }
            self.function = Some(function);
        }
        busy
    }

    fn on_guest(&mut self, output: Output<u32>) {
        let now = self.now;
        match output {
            Output::Reply { bytes, .. } => {
                let input = client::Input::Received { bytes: &bytes, descriptors: Vec::new() };
                self.client.handle_input(now, input);
            }
            Output::CloseClient => self.closed += 1,
            Output::Map { token, map, descriptor } => {
                assert_eq!((map.address, map.length, descriptor), (self.base, BYTES, MEMORY_FILE));
                self.mapped = true;
                self.guest.map_done(token, Ok(()));
            }
            Output::Unmap { address, length } => {
                assert_eq!((address, length), (self.base, BYTES));
                self.mapped = false;
            }
            Output::ReadMemory { token, address, length } => {
                let length = usize::try_from(length).unwrap();
                let bytes = self.memory.slice(address, length).ok().filter(|_| self.mapped);
                let bytes = bytes.map(Buffer::copy_from_slice);
                self.guest.memory_read_done(token, address, length, bytes);
            }
            Output::WriteMemory { address, data } => {
                if !self.mapped || self.memory.write(address, &data).is_err() {
                    self.guest.memory_write_failed(address, data.len());
                }
            }
            Output::Vector { vector, descriptor: Some(descriptor) } => {
                self.descriptors.insert(vector, descriptor);
            }
            Output::Vector { vector, descriptor: None } => {
                self.descriptors.remove(&vector);
            }
            Output::Signal { vector } => {
                let descriptor = self.descriptors[&vector];
                self.signals.push(descriptor);
                if let Some((queue, before)) = self.queues.get(&descriptor).copied() {
                    let completions = self.completions(queue).count();
                    assert!(completions > before, "vector {vector}: nothing new after {before}");
                    self.queues.insert(descriptor, (queue, completions));
                }
            }
            Output::Packet(packet) => match &mut self.function {
                Some(function) => function.handle_input(now, function::Input::Packet(packet)),
                None => self.packets.push(packet),
            },
            Output::Event(event) => self.events.push(event),
            Output::ClearDoorbells => {}
            output => self.to_far.push(output),
        }
    }

    fn on_client(&mut self, output: client::Output<u32>) {
        match output {
            client::Output::Transmit { bytes, descriptors } => {
                let input = Input::ClientReceived { bytes: &bytes, descriptors };
                self.guest.handle_input(self.now, input);
            }
            client::Output::Answered { request, result } => {
                self.answers.insert(request, result);
            }
            client::Output::DmaRead { token, address, length } => {
                let bytes = self.memory.slice(address, usize::try_from(length).unwrap());
                self.client.dma_read_done(token, bytes.map_err(|_| Errno::EFAULT));
            }
            client::Output::DmaWrite { token, address, data } => {
                let result = match self.memory.write(address, &data) {
                    Err(_) if hot_plug::MESSAGES.contains(&address) => {
                        self.messages.push((address, u32::from_le_bytes(data[..].try_into().unwrap())));
                        Ok(())
                    }
                    result => result.map_err(|_| Errno::EFAULT),
                };
                if let Some(token) = token {
                    self.client.dma_write_done(token, result);
                }
            }
            client::Output::Negotiated(_) | client::Output::Close { .. } => {}
        }
    }

    fn answer(&mut self, request: RequestId) -> Answer<u32> {
        self.until(|bench| bench.answers.contains_key(&request));
        self.answers.remove(&request).unwrap().unwrap()
    }

    fn map(&mut self, descriptor: Option<u32>) {
        let map = DmaMap { readable: true, writable: true, offset: 0, address: self.base, length: BYTES };
        let request = self.client.map(self.now, map, descriptor);
        assert_eq!(self.answer(request), Answer::Done);
    }

    fn read(&mut self, region: RegionIndex, at: u64, count: u32) -> Buffer {
        let request = self.client.read(self.now, region, at, count);
        match self.answer(request) {
            Answer::Data(data) => data,
            answer => panic!("{answer:?}"),
        }
    }
    fn write(&mut self, region: RegionIndex, at: u64, bytes: &[u8]) {
        let request = self.client.write(self.now, region, at, bytes);
        assert_eq!(self.answer(request), Answer::Done);
    }
    fn config(&mut self, at: u64) -> u32 {
        u32::from_le_bytes(self.read(RegionIndex::CONFIG, at, 4)[..].try_into().unwrap())
    }
    fn write_config(&mut self, at: u64, value: u32) {
        self.write(RegionIndex::CONFIG, at, &value.to_le_bytes());
    }
    fn register(&mut self, at: u32) -> u32 {
        u32::from_le_bytes(self.read(RegionIndex::BAR0, at.into(), 4)[..].try_into().unwrap())
    }
    /// Writes a register without waiting for an answer, as QEMU does.
    fn post_register(&mut self, at: u32, value: u32) {
        self.client.post(RegionIndex::BAR0, at.into(), &value.to_le_bytes());
        self.settle();
    }

    fn set_vectors(&mut self, start: u32, count: u32) {
        let descriptors = (start..start + count).map(|vector| EVENTS + vector).collect();
        self.set(InterruptAction::Trigger, (start, count), InterruptData::Descriptors(descriptors));
    }
    fn tear_down_vectors(&mut self) {
        self.set(InterruptAction::Trigger, (0, 0), InterruptData::None);
    }
    fn set(&mut self, action: InterruptAction, range: (u32, u32), data: InterruptData<u32>) {
        let request = self.client.set_interrupts(self.now, InterruptIndex::Msix, action, range, data);
        assert_eq!(self.answer(request), Answer::Done);
    }

    /// Enables the controller with its admin queue, as a driver does.
    fn bring_up(&mut self) {
        // Memory Space Enable and Bus Master Enable; MSI-X Enable.
        self.write_config(0x04, 0b110);
        let control = self.config(0xb0);
        self.write_config(0xb0, control | 1 << 31);
        self.memory.write(self.base + COMPLETIONS, &[0; 16 * ENTRIES as usize]).unwrap();
        for (register, value) in self.queue_registers() {
            self.post_register(register, value);
        }
        for _ in 0..1000 {
            if self.register(offset::STATUS) & 1 == 1 {
                return;
            }
        }
        panic!("the controller is not ready");
    }

    /// The register writes that enable the controller with its admin queue.
    fn queue_registers(&self) -> [(u32, u32); 6] {
        let entries = u32::from(ENTRIES) - 1;
        [
            (offset::ADMIN_QUEUE_ATTRIBUTES, entries << 16 | entries),
            (offset::ADMIN_SUBMISSION_QUEUE, u32::try_from(self.base + SUBMISSIONS).unwrap()),
            (offset::ADMIN_SUBMISSION_QUEUE + 4, 0),
            (offset::ADMIN_COMPLETION_QUEUE, u32::try_from(self.base + COMPLETIONS).unwrap()),
            (offset::ADMIN_COMPLETION_QUEUE + 4, 0),
            (offset::CONFIGURATION, 0x0046_0001),
        ]
    }

    /// Sends an Identify Controller in slot `index` of a fresh admin queue.
    fn send_identify(&mut self, index: u16) {
        self.put_identify(index);
        self.post_register(offset::DOORBELLS, u32::from(index) + 1);
    }

    fn put_identify(&mut self, index: u16) {
        let entry = SubmissionQueueEntry {
            opcode: AdminOpcode::Identify.into(),
            command_id: CommandId(index),
            data_pointer: [self.base + DATA, 0],
            cdw10: 1,
            ..SubmissionQueueEntry::default()
        };
        self.memory.write(self.base + SUBMISSIONS + u64::from(index) * 64, &entry.emit()).unwrap();
    }

    /// The completions in a queue at `address` that has not wrapped yet.
    fn completions(&self, address: u64) -> impl Iterator<Item = CompletionQueueEntry> {
        let bytes = self.memory.slice(address, usize::from(ENTRIES) * 16).unwrap();
        bytes.as_chunks().0.iter().map(CompletionQueueEntry::parse).take_while(CompletionQueueEntry::phase)
    }

    fn completion(&self, index: u16) -> Option<CompletionQueueEntry> {
        let bytes = self.memory.slice(self.base + COMPLETIONS + u64::from(index) * 16, 16).unwrap();
        let entry = CompletionQueueEntry::parse(bytes.try_into().unwrap());
        entry.phase().then_some(entry)
    }

    fn identify(&mut self, index: u16) {
        self.memory.write(self.base + DATA, &[0; 4096]).unwrap();
        self.send_identify(index);
        self.until(|bench| bench.completion(index).is_some());
        let entry = self.completion(index).unwrap();
        assert!(entry.status().is_success(), "{entry:?}");
        assert_eq!(self.memory.slice(self.base + DATA + 4, 4).unwrap(), b"TEST");
    }
}

#[test]
fn a_driver_brings_the_controller_up_in_mapped_memory() {
    let mut bench = TestBench::direct();
    bench.map(Some(MEMORY_FILE));
    bench.set_vectors(0, 1);
    bench.bring_up();
    bench.identify(0);
    bench.until(|bench| bench.signals == [EVENTS]);
    assert_eq!(bench.guest.statistics().reads_refused, 0);
    assert!(!bench.guest.has_memory_by_message());
}

#[test]
fn a_driver_brings_the_controller_up_in_memory_that_only_messages_reach() {
    let mut bench = TestBench::direct();
    bench.map(None);
    assert!(bench.guest.has_memory_by_message());
    bench.set_vectors(0, 1);
    bench.bring_up();
    for index in 0..4 {
        bench.identify(index);
    }
    bench.until(|bench| !bench.signals.is_empty());
    assert!(!bench.mapped);
}

#[test]
fn an_interrupt_is_sent_only_when_its_data_are_there() {
    let mut bench = TestBench::direct();
    bench.map(None);
    bench.set_vectors(0, 1);
    bench.bring_up();
    bench.memory.write(BASE + DATA, &[0; 4096]).unwrap();
    bench.send_identify(0);
    while bench.signals.is_empty() {
        bench.now = bench.now + Nanos::from_micros(1);
        assert!(bench.step() || !bench.signals.is_empty(), "all is quiet");
        if bench.signals.is_empty() {
            continue;
        }
        assert!(bench.completion(0).is_some());
        assert_eq!(bench.memory.slice(BASE + DATA + 4, 4).unwrap(), b"TEST");
    }
}

#[test]
fn no_interrupt_is_lost_while_a_monitor_sets_its_vectors_up_anew() {
    let mut bench = TestBench::direct();
    bench.map(Some(MEMORY_FILE));
    bench.set_vectors(0, 1);
    bench.bring_up();
    bench.tear_down_vectors();
    bench.identify(0);
    assert!(bench.signals.is_empty() && bench.descriptors.is_empty());
    bench.set_vectors(0, 3);
    bench.until(|bench| bench.signals == [EVENTS]);
    bench.identify(1);
    bench.until(|bench| bench.signals.len() == 2);
    // Clients may try vectors out.
    bench.set(InterruptAction::Trigger, (1, 2), InterruptData::Bools([false, true].into()));
    bench.until(|bench| bench.signals.last() == Some(&(EVENTS + 2)));
}

#[test]
fn a_function_that_reaches_outside_of_the_guests_memory_harms_nothing() {
    let mut bench = TestBench::direct();
    bench.bring_up_without_memory();
    bench.until(|bench| bench.guest.statistics().reads_refused > 0);
    let reported =
        bench.events.iter().any(|event| matches!(event, Event::OutsideMemory { write: false, .. }));
    assert!(reported, "{:?}", bench.events);
    // The guest maps its memory and begins anew.
    bench.map(Some(MEMORY_FILE));
    bench.post_register(offset::CONFIGURATION, 0);
    bench.until(|bench| bench.guest.has_client());
    bench.bring_up();
    bench.identify(0);
}

impl TestBench {
    fn bring_up_without_memory(&mut self) {
        self.bring_up();
        self.post_register(offset::DOORBELLS, 1);
    }
}

#[test]
fn nothing_of_a_client_that_is_killed_stays_behind() {
    let mut bench = TestBench::direct();
    for round in 0..3 {
        bench.map(Some(MEMORY_FILE));
        bench.set_vectors(0, 2);
        bench.write_config(0x10, 0xfebf_0000);
        bench.bring_up();
        bench.identify(0);
        bench.send_identify(1);
        bench.disconnect();
        assert!(!bench.guest.takes_client(), "the function is being reset");
        assert!(bench.descriptors.is_empty() && !bench.mapped, "round {round}");
        bench.until(|bench| bench.guest.takes_client());
        bench.connect();
        assert_eq!(bench.register(offset::CONFIGURATION), 0);
        assert_eq!(bench.config(0x10), 0b100, "the former guest's address");
        assert_eq!(bench.config(0x04) & 0x7, 0);
    }
}

#[test]
fn a_client_that_breaks_the_protocol_is_closed_and_another_may_come() {
    let mut bench = TestBench::direct();
    bench.map(Some(MEMORY_FILE));
    let nonsense = [0xff; 64];
    let input = Input::ClientReceived { bytes: &nonsense, descriptors: [1, 2].into() };
    bench.guest.handle_input(bench.now, input);
    bench.settle();
    assert_eq!((bench.closed, bench.mapped), (1, false));
    assert!(bench.events.iter().any(|event| matches!(event, Event::ClientGone(Some(_)))));
    bench.until(|bench| bench.guest.takes_client());
    bench.client.handle_input(bench.now, client::Input::Disconnected);
    bench.settle();
    bench.connect();
    bench.map(Some(MEMORY_FILE));
    bench.bring_up();
    bench.identify(0);
}
