//! A device of another process, its server and a root complex, in memory.

mod copy_engine;
mod plans;

use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

use engine::{Buffer, Engine, Instant, Nanos};
use pcie::config::{ClassCode, express, header, msix};
use pcie::requester::{Answer, RequestError};
use pcie::root_complex::{self, CapabilityId, INTERRUPT_WINDOW, Plan, RootComplex, Topology};
use pcie::wire::Bdf;
use vfio_user::server;

use super::{Config, Event, ExternalDevice, Input, Output};
use crate::far::{Device, Said};
use copy_engine::{CopyEngine, Wish};

const DEVICE: Bdf = Bdf::new(1, 0, 0);
const MEMORY: usize = 4 << 20;

/// A root complex, the device under test, its server, and host memory.
struct TestBench {
    root: RootComplex,
    external: ExternalDevice<u32>,
    server: CopyEngine<u32>,
    connected: bool,
    present: bool,
    memory: Vec<u8>,
    interrupts: Vec<u32>,
    registers: BTreeMap<u64, Result<u32, RequestError>>,
    reads: BTreeMap<u64, Result<Vec<u8>, RequestError>>,
    topology: Option<Topology>,
    events: Vec<Event>,
    cookie: u64,
    now: Instant,
}

impl TestBench {
    fn new() -> Self {
        let mut bench = Self::unconnected();
        bench.connect();
        bench
    }

    fn unconnected() -> Self {
        let timeout = pcie::requester::CompletionTimeout::D2;
        let config = root_complex::Config { timeout, ..root_complex::Config::default() };
        Self {
            root: RootComplex::new(config),
            external: ExternalDevice::new(Config::default()),
            server: CopyEngine::new(),
            connected: false,
            present: false,
            memory: vec![0; MEMORY],
            interrupts: Vec::new(),
            registers: BTreeMap::new(),
            reads: BTreeMap::new(),
            topology: None,
            events: Vec::new(),
            cookie: 0,
            now: Instant::from_nanos(1_000),
        }
    }

    fn connect(&mut self) {
        self.connected = true;
        self.server.handle_input(self.now, server::Input::Connected);
        self.external.on_input(self.now, Input::Connected);
        self.until(|bench| bench.present);
    }

    fn enumerate(&mut self) -> root_complex::Function {
        self.root.enumerate(self.now, Plan::default());
        self.until(|bench| bench.topology.is_some());
        let topology = self.topology.take().unwrap();
        assert_eq!(topology.faults, []);
        topology.find(DEVICE).unwrap().clone()
    }

    fn step(&mut self) -> bool {
        let mut busy = false;
        while let Some(output) = self.root.poll_output() {
            busy = true;
            self.on_root(output);
        }
        while let Some(said) = self.external.poll() {
            busy = true;
            self.on_said(said);
        }
        while let Some(wish) = self.server.poll(self.now) {
            busy = true;
            match wish {
                Wish::Transmit(bytes) if self.connected => {
                    self.external.on_input(self.now, Input::Received(bytes, Vec::new()));
                }
                Wish::Signal(vector) => {
                    if let Some(Some(descriptor)) = self.server.vectors.get(vector) {
                        let vector = u16::try_from(*descriptor % 1000).unwrap();
                        self.external.on_input(self.now, Input::Signalled(vector));
                    }
                }
                Wish::Transmit(_) | Wish::Close => {}
            }
        }
        busy
    }

    fn on_root(&mut self, output: root_complex::Output) {
        use root_complex::Output as From;
        match output {
            From::Packet(packet) => self.external.on_packet(self.now, &packet),
            From::Answer(Answer::ReadData { cookie, offset, data, .. }) => {
                let read = self.reads.entry(cookie).or_insert_with(|| Ok(Vec::new()));
                let bytes = read.as_mut().unwrap();
                bytes.resize(bytes.len().max(offset as usize + data.len()), 0);
                bytes[offset as usize..][..data.len()].copy_from_slice(&data);
            }
            From::Answer(Answer::ReadFailed { cookie, error }) => drop(self.reads.insert(cookie, Err(error))),
            From::Answer(Answer::Register { cookie, result }) => drop(self.registers.insert(cookie, result)),
            From::MemoryRead { token, address, length } => {
                let start = usize::try_from(address).unwrap();
                let bytes = self.memory.get(start..start + length as usize).map(Buffer::copy_from_slice);
                self.root.memory_read_done(token, bytes);
            }
            From::MemoryWrite { address, data } => {
                let start = usize::try_from(address).unwrap();
                self.memory[start..start + data.len()].copy_from_slice(&data);
            }
            From::Interrupt { data, .. } => self.interrupts.push(data),
            From::Enumerated(result) => self.topology = Some(result.unwrap()),
            From::Message(_) => {}
            From::Unexpected(header) => panic!("{header:?}"),
        }
    }

    fn on_said(&mut self, said: Said<Output<u32>>) {
        match said {
            Said::Packet(packet) => {
                self.root.handle_input(self.now, root_complex::Input::Packet(packet));
            }
            Said::World(Output::Transmit(bytes, descriptors)) => {
                let input = server::Input::Received { bytes: &bytes, descriptors };
                self.server.handle_input(self.now, input);
            }
            Said::World(Output::Close) => self.connected = false,
            Said::World(Output::Descriptors(count)) => {
                let made = (0..u32::from(count)).map(|vector| 1000 + vector).collect();
                self.external.on_input(self.now, Input::Descriptors(made));
            }
            Said::World(Output::Event(event)) => self.events.push(event),
            Said::Present => self.present = true,
            Said::Absent(_) => self.present = false,
        }
    }

    fn quiet(&mut self) {
        while self.step() {}
    }

    fn until(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..10_000 {
            self.quiet();
            if done(self) {
                return;
            }
            let wake = [self.root.poll_timeout(), self.external.deadline()].into_iter().flatten().min();
            self.now = self.now.max(wake.expect("something is awaited"));
            if self.root.poll_timeout().is_some_and(|at| at <= self.now) {
                self.root.handle_timeout(self.now);
            }
            if self.external.deadline().is_some_and(|at| at <= self.now) {
                self.external.on_timeout(self.now);
            }
        }
        panic!("it does not come: {:?}", self.events);
    }

    fn next(&mut self) -> u64 {
        self.cookie += 1;
        self.cookie
    }
    fn config_read(&mut self, offset: u16) -> Result<u32, RequestError> {
        let cookie = self.next();
        self.root.config_read(self.now, cookie, DEVICE, offset).unwrap();
        self.until(|bench| bench.registers.contains_key(&cookie));
        self.registers.remove(&cookie).unwrap()
    }
    fn config_write(&mut self, offset: u16, enables: u8, value: u32) {
        let cookie = self.next();
        self.root.config_write(self.now, cookie, DEVICE, offset, enables, value).unwrap();
        self.until(|bench| bench.registers.contains_key(&cookie));
        assert_eq!(self.registers.remove(&cookie), Some(Ok(0)));
    }
    fn read(&mut self, address: u64, length: u32) -> Result<Vec<u8>, RequestError> {
        let cookie = self.next();
        self.root.read(self.now, cookie, address, length).unwrap();
        self.until(|bench| {
            bench
                .reads
                .get(&cookie)
                .is_some_and(|read| read.as_ref().map_or(true, |bytes| bytes.len() == length as usize))
        });
        self.reads.remove(&cookie).unwrap()
    }
    fn write(&mut self, address: u64, bytes: &[u8]) {
        self.root.write(address, &Buffer::copy_from_slice(bytes));
        self.quiet();
    }
    fn status(&mut self, bar: u64) -> u32 {
        let bytes = self.read(bar + copy_engine::STATUS, 4).unwrap();
        u32::from_le_bytes(bytes.try_into().unwrap())
    }
    fn copy(&mut self, bar: u64, source: u64, destination: u64, length: u32) {
        self.write(bar + copy_engine::SOURCE, &source.to_le_bytes());
        self.write(bar + copy_engine::DESTINATION, &destination.to_le_bytes());
        self.write(bar + copy_engine::LENGTH, &length.to_le_bytes());
        self.write(bar + copy_engine::GO, &1_u32.to_le_bytes());
    }
    /// Gives the copy engine's vector a message, and enables MSI-X.
    fn enable_interrupts(&mut self, function: &root_complex::Function, masked: bool) {
        let found = function.msix.unwrap();
        let table = function.bar(found.table_bar).unwrap().address.unwrap() + u64::from(found.table_offset);
        let entry = table + 16 * copy_engine::VECTOR as u64;
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&INTERRUPT_WINDOW.start.to_le_bytes());
        bytes.extend_from_slice(&0x77_u32.to_le_bytes());
        bytes.extend_from_slice(&u32::from(masked).to_le_bytes());
        self.write(entry, &bytes);
        let control = msix::ENABLE.at(found.offset);
        self.config_write(control.offset(), 0b1100, control.with(0, 1));
    }
}

fn bar(function: &root_complex::Function, index: u8) -> u64 {
    function.bar(index).unwrap().address.unwrap()
}

#[test]
fn a_host_finds_the_device_that_the_server_describes() {
    let mut bench = TestBench::new();
    let function = bench.enumerate();
    assert_eq!((function.vendor, function.device), (copy_engine::VENDOR, copy_engine::DEVICE));
    assert_eq!((function.class, function.revision), (ClassCode(0x08_8000), 7));
    assert_eq!(function.serial_number, Some(copy_engine::SERIAL));
    let bars: Vec<_> = function.bars.iter().map(|bar| (bar.index, bar.size)).collect();
    // The pending bits are in another BAR than the table, so they get a new half of the table's
    // BAR.
    assert_eq!(bars, [(0, 0x100), (2, 0x2000), (4, 0x1000)]);
    let found = function.msix.unwrap();
    assert_eq!((found.vectors, found.table_bar, found.table_offset), (20, 2, 0));
    assert_eq!((found.pending_bar, found.pending_offset), (2, 0x1000));
    assert!(function.express.is_some_and(|express| express.function_level_reset));
    // The device knows the Command register.
    assert_eq!(bench.server.config()[4] & 0b110, 0b110);
}

#[test]
fn capabilities_of_the_device_are_its_own_wherever_they_are_shown() {
    let mut bench = TestBench::new();
    let function = bench.enumerate();
    let at = function.capability(CapabilityId::Standard(0x09)).unwrap();
    assert_ne!(at, 0x40);
    assert_eq!(bench.config_read(at).unwrap() >> 16, 0xaa0c);
    assert_eq!(bench.config_read(at + 4), Ok(0x0403_0201));
    bench.config_write(at + 4, 0b1001, 0xdd00_00ee);
    assert_eq!(bench.server.config()[0x44..0x48], [0xee, 2, 3, 0xdd]);
    // The capability's place in the list is the endpoint's, not the device's.
    bench.config_write(at, 0b1111, 0xbbbb_ffff);
    assert_eq!(bench.server.config()[0x40..0x44], [0x09, 0x50, 0xbb, 0xbb]);
    assert_eq!(bench.config_read(at).unwrap() & 0xff, 0x09);
}

#[test]
fn registers_are_read_and_written_and_nothing_beyond_them() {
    let mut bench = TestBench::new();
    let function = bench.enumerate();
    let bar = bar(&function, 0);
    bench.write(bar + 0x20, &[1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(bench.read(bar + 0x22, 3), Ok(vec![3, 4, 5]));
    let whole = bench.read(bar, 0x100).unwrap();
    assert_eq!(whole[0x20..0x28], [1, 2, 3, 4, 5, 6, 7, 8]);
    // A region that the server has but does not answer for.
    let table = function.bar(2).unwrap().address.unwrap();
    assert_eq!(bench.read(table + 0x800, 4), Err(RequestError::CompleterAbort));
    assert_eq!(bench.read(table + 0x1800, 4), Ok(vec![0xff; 4]));
}

#[test]
fn a_copy_reaches_memory_before_its_interrupt() {
    let mut bench = TestBench::new();
    let function = bench.enumerate();
    bench.enable_interrupts(&function, false);
    assert_eq!(bench.server.vectors.iter().flatten().count(), copy_engine::VECTORS as usize);
    let length = 1_500_003;
    for (index, byte) in bench.memory[0x1001..0x1001 + length].iter_mut().enumerate() {
        *byte = u8::try_from(index % 251).unwrap();
    }
    let bar = bar(&function, 0);
    bench.copy(bar, 0x1001, 0x20_0002, u32::try_from(length).unwrap());
    bench.until(|bench| !bench.interrupts.is_empty());
    assert_eq!(bench.interrupts, [0x77]);
    assert_eq!(bench.status(bar), copy_engine::DONE);
    assert!(bench.memory[0x1001..0x1001 + length] == bench.memory[0x20_0002..0x20_0002 + length]);
}

#[test]
fn a_masked_interrupt_waits() {
    let mut bench = TestBench::new();
    let function = bench.enumerate();
    bench.enable_interrupts(&function, true);
    let registers = bar(&function, 0);
    bench.copy(registers, 0, 0x1000, 64);
    assert_eq!(bench.status(registers), copy_engine::DONE);
    assert_eq!(bench.interrupts, []);
    let found = function.msix.unwrap();
    let pending = bar(&function, 2) + u64::from(found.pending_offset);
    assert_eq!(bench.read(pending, 4), Ok(vec![1 << copy_engine::VECTOR, 0, 0, 0]));
    bench.write(bar(&function, 2) + 16 * copy_engine::VECTOR as u64 + 12, &[0; 4]);
    assert_eq!(bench.interrupts, [0x77]);
    // After being disabled and enabled again, MSI-X works as before.
    let control = msix::ENABLE.at(found.offset);
    bench.config_write(control.offset(), 0b1100, 0);
    assert!(bench.server.vectors.is_empty());
    bench.config_write(control.offset(), 0b1100, control.with(0, 1));
    bench.copy(registers, 0, 0x1000, 64);
    bench.quiet();
    assert_eq!(bench.interrupts, [0x77, 0x77]);
}

#[test]
fn memory_that_is_not_there_is_an_error_of_the_device() {
    let mut bench = TestBench::new();
    let function = bench.enumerate();
    let bar = bar(&function, 0);
    bench.copy(bar, MEMORY as u64, 0, 64);
    assert_eq!(bench.status(bar), copy_engine::FAILED);
    // Without bus mastering, every access to memory is refused, too.
    bench.config_write(header::BUS_MASTER.offset(), 0b0001, header::MEMORY_SPACE.with(0, 1));
    assert_eq!(bench.server.config()[4] & 0b110, 0b010);
    bench.copy(bar, 0, 0x1000, 64);
    assert_eq!(bench.status(bar), copy_engine::FAILED);
}

#[test]
fn a_reset_reaches_the_device() {
    let mut bench = TestBench::new();
    let function = bench.enumerate();
    bench.enable_interrupts(&function, false);
    let bar = bar(&function, 0);
    bench.write(bar + 0x20, &[9; 4]);
    let control = express::INITIATE_RESET.at(function.express.unwrap().offset);
    bench.config_write(control.offset(), 0b0011, control.with(0, 1));
    bench.quiet();
    assert_eq!((bench.server.resets, bench.server.vectors.len()), (1, 0));
    let function = bench.enumerate();
    assert_eq!(bench.read(bar + 0x20, 4), Ok(vec![0; 4]));
    bench.enable_interrupts(&function, false);
    bench.copy(bar, 0, 0x1000, 64);
    bench.until(|bench| !bench.interrupts.is_empty());
    bench.external.on_hot_reset(bench.now);
    bench.quiet();
    assert_eq!(bench.server.resets, 2);
}

#[test]
fn a_server_that_goes_takes_the_device_with_it_and_brings_it_back() {
    let mut bench = TestBench::new();
    bench.enumerate();
    bench.server.handle_input(bench.now, server::Input::Disconnected);
    bench.external.on_input(bench.now, Input::Disconnected);
    bench.quiet();
    assert!(!bench.present && bench.events.contains(&Event::Gone));
    // Packets that the link still brings find no device.
    bench.root.config_read(bench.now, 1, DEVICE, 0).unwrap();
    bench.quiet();
    bench.root.handle_input(bench.now, root_complex::Input::LinkDown);
    bench.server = CopyEngine::new();
    bench.connect();
    let function = bench.enumerate();
    assert_eq!(bench.status(bar(&function, 0)), 0);
}

#[test]
fn a_server_that_answers_nothing_holds_up_no_other_work() {
    let mut bench = TestBench::new();
    let function = bench.enumerate();
    bench.server.stuck = true;
    let before = bench.now;
    assert_eq!(bench.read(bar(&function, 0), 4), Err(RequestError::CompleterAbort));
    assert!(bench.now - before <= Nanos::from_secs(6));
    // A server that says nothing from the start is left, too.
    let mut external: ExternalDevice<u32> = ExternalDevice::new(Config::default());
    external.on_input(bench.now, Input::Connected);
    while external.poll().is_some() {}
    let late = external.deadline().unwrap();
    external.on_timeout(late);
    let said: Vec<_> = core::iter::from_fn(|| external.poll()).collect();
    assert!(said.iter().any(|said| matches!(said, Said::World(Output::Event(Event::Left(_))))));
    assert!(said.iter().any(|said| matches!(said, Said::World(Output::Close))));
}

#[test]
fn memory_is_shared_in_pieces_with_a_server_that_takes_no_more_at_once() {
    let mut bench = TestBench::unconnected();
    // The longest piece that libvfio-user takes.
    bench.server.piece_max = 8 << 40;
    bench.connect();
    assert_eq!(bench.server.pieces, 16);
    let function = bench.enumerate();
    let bar = bar(&function, 0);
    bench.memory[..4].copy_from_slice(&[1, 2, 3, 4]);
    bench.copy(bar, 0, 0x1000, 4);
    assert_eq!(bench.status(bar), copy_engine::DONE);
    assert_eq!(bench.memory[0x1000..0x1004], [1, 2, 3, 4]);
    // A server that takes no memory is of no use.
    let mut bench = TestBench::unconnected();
    bench.server.piece_max = 0;
    bench.connected = true;
    bench.server.handle_input(bench.now, server::Input::Connected);
    bench.external.on_input(bench.now, Input::Connected);
    bench.quiet();
    let why = super::Unusable::Refused("DMA_MAP", vfio_user::Errno::ENOSPC);
    assert_eq!(bench.events, [Event::Unusable(why)]);
    assert!(!bench.connected && !bench.present);
}
