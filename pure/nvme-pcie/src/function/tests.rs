//! Tests of the driver against the function, through a root complex and TLPs.

use std::vec::Vec;

use engine::{Buffer, Engine, Instant, Nanos};
use nvme::media::MediumId;
use nvme::media::ram::RamDisk;
use nvme::wire::{IoOpcode, NamespaceId};
use pcie::config::ClassCode;
use pcie::memory::{Memory, Ram};
use pcie::requester::Answer;
use pcie::root_complex::{self, INTERRUPT_WINDOW, Plan, RootComplex};
use pcie::wire::Bdf;

use super::{Config, Function, Input, MSIX_TABLE, Output};
use crate::controller::{self, QueueLane};
use crate::host::{self, Completed, Data, Host, QueueId, Submission};
use crate::test_bench::controller_config;

const BASE: u64 = 0x1_0000_0000;
const DISK: u64 = 4 << 20;

struct Machine {
    host: Host,
    memory: Ram,
    root: RootComplex,
    function: Function,
    disk: RamDisk,
    now: Instant,
    bar: u64,
    /// Address of the controller memory buffer, if there is one.
    buffer: Option<u64>,
    bdf: Bdf,
    msix: u16,
    express: u16,
    completed: Vec<Completed>,
    interrupts: Vec<u32>,
    /// Whether everything that the function sends is lost.
    cut: bool,
}

impl Machine {
    fn new(config: Config) -> Self {
        let host = host::Config { interrupts: true, ..host::Config::new(BASE, 4 << 20) };
        let mut machine = Self {
            host: Host::new(host).unwrap(),
            memory: Ram::new(BASE, 4 << 20),
            root: RootComplex::new(root_complex::Config::default()),
            function: Function::new(Instant::ZERO, config),
            disk: RamDisk::new(DISK),
            now: Instant::ZERO,
            bar: 0,
            buffer: None,
            bdf: Bdf::default(),
            msix: 0,
            express: 0,
            completed: Vec::new(),
            interrupts: Vec::new(),
            cut: false,
        };
        machine.enumerate();
        machine.host.start(machine.now);
        machine.settle();
        assert!(machine.host.is_ready());
        machine
    }

    fn enumerate(&mut self) {
        self.root.enumerate(self.now, Plan::default());
        self.settle();
        assert_ne!(self.bar, 0);
        for vector in 0..2_u64 {
            let entry = self.bar + u64::from(MSIX_TABLE) + vector * 16;
            let mut message = [0; 16];
            message[..8].copy_from_slice(&INTERRUPT_WINDOW.start.to_le_bytes());
            message[8..12].copy_from_slice(&u32::try_from(0x40 + vector).unwrap().to_le_bytes());
            self.root.write(entry, &Buffer::copy_from_slice(&message));
        }
        // MSI-X Enable is bit 15 of Message Control, the upper half of the capability's first
        // double word.
        self.root.config_write(self.now, 1, self.bdf, self.msix, 0xf, 0x8000_0000).unwrap();
        self.settle();
    }

    fn settle(&mut self) {
        loop {
            let mut moved = false;
            self.host.poll_completions(self.now, &mut self.memory);
            while let Some(output) = self.host.poll_output() {
                moved = true;
                self.on_host(output);
            }
            while let Some(output) = self.root.poll_output() {
                moved = true;
                self.on_root(output);
            }
            while let Some(output) = self.function.poll_output() {
                moved = true;
                self.on_function(output);
            }
            if !moved {
                return;
            }
        }
    }

    fn pass(&mut self, length: Nanos) {
        let end = self.now + length;
        self.settle();
        loop {
            let wakes = [self.host.poll_timeout(), self.root.poll_timeout(), self.function.poll_timeout()];
            let Some(wake) = wakes.into_iter().flatten().min().filter(|at| *at <= end) else { break };
            self.now = wake;
            self.host.handle_timeout(wake);
            self.root.handle_timeout(wake);
            self.function.handle_timeout(wake);
            self.settle();
        }
        self.now = end;
    }

    fn on_host(&mut self, output: host::Output) {
        match output {
            host::Output::RegisterRead { cookie, offset, length } => {
                self.root.read(self.now, cookie, self.bar + u64::from(offset), length).unwrap();
            }
            host::Output::RegisterWrite { offset, bytes } => {
                self.root.write(self.bar + u64::from(offset), &Buffer::copy_from_slice(&bytes));
            }
            host::Output::Completed(completed) => self.completed.push(completed),
            _ => {}
        }
    }

    fn on_root(&mut self, output: root_complex::Output) {
        match output {
            root_complex::Output::Packet(packet) if !self.cut => {
                self.function.handle_input(self.now, Input::Packet(packet));
            }
            root_complex::Output::MemoryRead { token, address, length } => {
                let data = self.memory.slice(address, length as usize).ok().map(Buffer::copy_from_slice);
                self.root.memory_read_done(token, data);
            }
            root_complex::Output::MemoryWrite { address, data } => {
                let _ = self.memory.write(address, &data);
            }
            root_complex::Output::Interrupt { data, .. } => self.interrupts.push(data),
            root_complex::Output::Answer(Answer::ReadData { cookie, data, .. }) => {
                self.host.handle_input(self.now, host::Input::RegisterRead { cookie, bytes: Some(&data) });
            }
            root_complex::Output::Answer(Answer::ReadFailed { cookie, .. }) => {
                self.host.handle_input(self.now, host::Input::RegisterRead { cookie, bytes: None });
            }
            root_complex::Output::Enumerated(result) => {
                let topology = result.unwrap();
                let function =
                    topology.functions().find(|function| function.class == ClassCode::NVME).unwrap();
                self.bar = function.bar(0).unwrap().address.unwrap();
                self.buffer = function.bar(2).and_then(|bar| bar.address);
                self.bdf = function.bdf;
                self.msix = function.capabilities.iter().find(|found| found.offset == 0xb0).unwrap().offset;
                self.express = 0x70;
            }
            _ => {}
        }
    }

    fn on_function(&mut self, output: Output) {
        match output {
            Output::Packet(packet) if !self.cut => {
                self.root.handle_input(self.now, root_complex::Input::Packet(packet));
            }
            Output::Media(request) => {
                let mut answers = Vec::new();
                self.disk.submit(request, &mut |completion| answers.push(completion));
                for completion in answers {
                    self.function.handle_input(self.now, Input::Media(completion));
                }
            }
            Output::Packet(_) | Output::Notify(_) => {}
            Output::ToLane(..) => unreachable!("no lane is attached"),
        }
    }

    fn data(&self, offset: u64, length: u32) -> Data {
        Data { address: self.host.data_region().base + offset, length }
    }

    fn submit(&mut self, submission: Submission) {
        self.host.submit(self.now, &mut self.memory, submission).unwrap();
    }
}

fn config() -> Config {
    let core = nvme::subsystem::Config::new("FUNCTION").with_namespace(MediumId(0), DISK);
    Config::new(controller::Config::new(core))
}

fn write_and_read_back(machine: &mut Machine) {
    let namespace = NamespaceId(1);
    let bytes: Vec<u8> =
        (0..131_072_u32).map(|index| index.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let source = machine.data(512, 131_072);
    machine.memory.write(source.address, &bytes).unwrap();
    for cookie in 0..8 {
        machine.submit(Submission::on_blocks(
            IoOpcode::Write,
            QueueId(1),
            namespace,
            cookie * 256,
            256,
            source,
            cookie,
        ));
    }
    machine.settle();
    for cookie in 0..8 {
        let place = machine.data(262_144 * (1 + cookie), 131_072);
        machine.submit(Submission::on_blocks(
            IoOpcode::Read,
            QueueId(1),
            namespace,
            cookie * 256,
            256,
            place,
            100 + cookie,
        ));
    }
    machine.settle();
    assert_eq!(machine.completed.len(), 16);
    assert!(
        machine.completed.iter().all(|completed| completed.status.is_success()),
        "{:?}",
        machine.completed
    );
    for cookie in 0..8 {
        let place = machine.data(262_144 * (1 + cookie), 131_072);
        assert_eq!(machine.memory.slice(place.address, 131_072).unwrap(), bytes);
    }
    machine.completed.clear();
}

#[test]
fn bytes_written_through_tlps_are_read_back_and_interrupts_come() {
    let mut machine = Machine::new(config());
    write_and_read_back(&mut machine);
    assert!(machine.interrupts.contains(&0x40) && machine.interrupts.contains(&0x41));
    assert_eq!(machine.function.endpoint().statistics().unsupported_requests, 0);
}

#[test]
fn a_prefetchable_bar_is_placed_above_4_gib() {
    let machine = Machine::new(Config { prefetchable: true, ..config() });
    assert!(machine.bar > u64::from(u32::MAX), "{:#x}", machine.bar);
}

#[test]
fn a_hot_reset_in_the_middle_of_writes_loses_none() {
    let mut machine = Machine::new(config());
    let source = machine.data(0, 8192);
    for cookie in 0..20 {
        machine.submit(Submission::on_blocks(
            IoOpcode::Write,
            QueueId(1),
            NamespaceId(1),
            cookie * 16,
            16,
            source,
            cookie,
        ));
    }
    // Commands reach the function, but its answers are lost.
    machine.cut = true;
    machine.settle();
    machine.root.handle_input(machine.now, root_complex::Input::LinkDown);
    machine.host.handle_input(machine.now, host::Input::DeviceLost);
    machine.function.handle_input(machine.now, Input::HotReset);
    machine.pass(Nanos::from_secs(1));
    assert!(machine.completed.is_empty());
    machine.cut = false;
    machine.enumerate();
    machine.host.handle_input(machine.now, host::Input::DeviceBack);
    machine.pass(Nanos::from_secs(1));
    assert_eq!(machine.completed.len(), 20);
    assert!(machine.completed.iter().all(|completed| completed.status.is_success()));
    machine.completed.clear();
    write_and_read_back(&mut machine);
}

#[test]
fn a_function_level_reset_leaves_a_controller_that_can_be_brought_up() {
    let mut machine = Machine::new(config());
    // Initiate Function Level Reset is bit 15 of Device Control, at 8 in the PCI Express
    // capability.
    machine.root.config_write(machine.now, 2, machine.bdf, machine.express + 8, 0xf, 0x8000).unwrap();
    machine.settle();
    machine.host.handle_input(machine.now, host::Input::DeviceLost);
    machine.enumerate();
    machine.host.handle_input(machine.now, host::Input::DeviceBack);
    machine.pass(Nanos::from_millis(10));
    assert!(machine.host.is_ready());
    write_and_read_back(&mut machine);
}

#[test]
fn a_submission_queue_in_the_controller_memory_buffer_is_not_fetched() {
    let mut config = config();
    config.controller.memory_buffer_bytes = 64 << 10;
    let mut machine = Machine::new(config);
    let buffer = machine.buffer.expect("BAR 2");
    let word = |value: u64| Buffer::copy_from_slice(&value.to_le_bytes());
    machine.root.write(machine.bar + 0x50, &word(buffer | 0b11));
    // A completion queue in host memory, and a submission queue with identifier 9 in the buffer.
    let completions = machine.data(0, 4096).address;
    let admin = |machine: &mut Machine, opcode, cdw10, cdw11, base| {
        let data_pointer = [base, 0];
        let entry =
            nvme::wire::SubmissionQueueEntry { opcode, cdw10, cdw11, data_pointer, ..Default::default() };
        machine.submit(Submission { queue: QueueId::ADMIN, entry, data: None, cookie: 77 });
        machine.settle();
        assert!(machine.completed.pop().unwrap().status.is_success());
    };
    admin(&mut machine, 0x05, 15 << 16 | 9, 1, completions);
    admin(&mut machine, 0x01, 15 << 16 | 9, 9 << 16 | 1, buffer + 0x1000);
    let before = machine.function.controller().statistics();
    let command_id = nvme::wire::CommandId(0x77);
    let namespace = NamespaceId(1);
    let entry = nvme::wire::SubmissionQueueEntry { command_id, namespace, ..Default::default() };
    machine.root.write(buffer + 0x1000, &Buffer::copy_from_slice(&entry.emit()));
    machine.root.write(machine.bar + 0x1000 + 9 * 8, &Buffer::copy_from_slice(&1_u32.to_le_bytes()));
    machine.settle();
    let after = machine.function.controller().statistics();
    assert_eq!((after.commands - before.commands, after.fetches - before.fetches), (1, 0));
    let bytes = machine.memory.slice(completions, 16).unwrap();
    assert_eq!((bytes[8], bytes[12], bytes[14]), (1, 0x77, 1));
    // The buffer can be read like other memory.
    let mut held = [0; 64];
    machine.function.controller().read_memory_buffer(0x1000, &mut held);
    assert_eq!(held, entry.emit());
}

#[test]
fn lanes_know_whether_the_function_may_access_memory_and_of_its_resets() {
    let mut function = Function::new(Instant::ZERO, Config::new(controller_config()));
    let (id, start) = function.attach_lane(Instant::ZERO);
    let mut lane = QueueLane::new(Instant::ZERO, start);
    let mut letters = |function: &mut Function| {
        let mut count = 0;
        while let Some(output) = function.poll_output() {
            let Output::ToLane(to, letter) = output else { continue };
            assert_eq!(to, id);
            lane.handle_input(Instant::ZERO, controller::Input::FromHome(letter));
            count += 1;
        }
        let mut answers = std::vec::Vec::new();
        while let Some(output) = lane.poll_output() {
            let controller::Output::ToHome(letter) = output else { panic!("{output:?}") };
            answers.push(letter);
        }
        (count, answers)
    };
    assert_eq!(letters(&mut function).0, 1, "Bus Master Enable is clear");
    function.handle_input(Instant::ZERO, Input::HotReset);
    let (count, answers) = letters(&mut function);
    assert!(count >= 1 && function.controller().is_resetting());
    for answer in answers {
        function.handle_input(Instant::ZERO, Input::FromLane(id, answer));
    }
    assert!(!function.controller().is_resetting());
}
