//! The function behind a root complex, as an operating system finds and uses it.

use std::vec::Vec;

use engine::{Buffer, Engine, Instant};
use pcie::config::ClassCode;
use pcie::requester::Answer;
use pcie::root_complex::{self, INTERRUPT_WINDOW, Plan, RootComplex};
use record::registers::layout as at;
use record::registers::{Account, Command, Direction, State, Values};

use super::{Input, MSIX_TABLE, Output, RecordFunction};

struct Machine {
    root: RootComplex,
    function: RecordFunction,
    bar: u64,
    commands: Vec<Command>,
    interrupts: Vec<u32>,
    read: Vec<u8>,
}

impl Machine {
    fn new(values: Values) -> Self {
        let mut machine = Self {
            root: RootComplex::new(root_complex::Config::default()),
            function: RecordFunction::new(values, 7),
            bar: 0,
            commands: Vec::new(),
            interrupts: Vec::new(),
            read: Vec::new(),
        };
        machine.root.enumerate(Instant::ZERO, Plan::default());
        machine.settle();
        assert_ne!(machine.bar, 0, "an operating system finds the function and gives it addresses");
        let mut message = [0; 16];
        message[..8].copy_from_slice(&INTERRUPT_WINDOW.start.to_le_bytes());
        message[8] = 0x40;
        machine.root.write(machine.bar + u64::from(MSIX_TABLE), &Buffer::copy_from_slice(&message));
        machine.settle();
        machine
    }

    fn settle(&mut self) {
        loop {
            let mut moved = false;
            while let Some(output) = self.root.poll_output() {
                moved = true;
                self.on_root(output);
            }
            while let Some(output) = self.function.poll_output() {
                moved = true;
                match output {
                    Output::Packet(packet) => {
                        self.root.handle_input(Instant::ZERO, root_complex::Input::Packet(packet));
                    }
                    Output::Command(command) => self.commands.push(command),
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn on_root(&mut self, output: root_complex::Output) {
        match output {
            root_complex::Output::Packet(packet) => {
                self.function.handle_input(Instant::ZERO, Input::Packet(packet));
            }
            root_complex::Output::Interrupt { data, .. } => self.interrupts.push(data),
            root_complex::Output::Answer(Answer::ReadData { data, .. }) => self.read.extend_from_slice(&data),
            root_complex::Output::Enumerated(result) => {
                let topology = result.expect("enumeration ends well");
                let mut functions = topology.functions();
                let found = functions.find(|found| found.class == ClassCode::DATA_ACQUISITION).unwrap();
                self.bar = found.bar(0).and_then(|bar| bar.address).expect("BAR0 has an address");
                let msix = found.capabilities.iter().find(|found| found.offset == 0xb0).unwrap().offset;
                // MSI-X Enable is bit 15 of Message Control, in the upper half of this double word.
                self.root.config_write(Instant::ZERO, 1, found.bdf, msix, 0xf, 0x8000_0000).unwrap();
            }
            _ => {}
        }
    }

    fn read(&mut self, offset: u32) -> u64 {
        self.root.read(Instant::ZERO, 9, self.bar + u64::from(offset), 8).unwrap();
        self.settle();
        let bytes = core::mem::take(&mut self.read);
        u64::from_le_bytes(bytes.try_into().expect("8 bytes are answered"))
    }

    fn write(&mut self, offset: u32, value: u32) {
        self.root.write(self.bar + u64::from(offset), &Buffer::copy_from_slice(&value.to_le_bytes()));
        self.settle();
    }
}

fn values(state: State, bytes: u64) -> Values {
    let write = Account { state, bytes, maximum_address: 1 << 40, ..Account::default() };
    Values { media_bytes: 1 << 40, write: Some(write), ..Values::default() }
}

#[test]
fn a_driver_starts_watches_and_stops_a_recording() {
    let mut machine = Machine::new(values(State::Idle, 0));
    assert_eq!(machine.read(at::MEDIA_BYTES), 1 << 40);
    machine.write(at::WRITING + at::CONTROL, at::START);
    let (direction, maximum_address) = (Direction::Write, 1 << 40);
    let start = Command::Start { direction, first_address: 0, maximum_address, chunks_max: 0 };
    assert_eq!(machine.commands, [start]);
    machine.function.handle_input(Instant::ZERO, Input::Show(values(State::Running, 5_000_000_000)));
    machine.settle();
    assert_eq!(machine.interrupts, [0x40], "a change of the state interrupts");
    assert_eq!(machine.read(at::WRITING + at::BYTES), 5_000_000_000);
    machine.function.handle_input(Instant::ZERO, Input::Show(values(State::Running, 6_000_000_000)));
    machine.settle();
    assert_eq!(machine.interrupts.len(), 1, "bytes that move do not");
    machine.write(at::WRITING + at::CONTROL, at::STOP);
    assert_eq!(machine.commands[1..], [Command::Stop(Direction::Write)]);
}

#[test]
fn a_driver_that_asks_without_end_is_not_remembered_without_end() {
    let mut function = Machine::new(values(State::Running, 0)).function;
    for _ in 0..10_000 {
        function.write(u64::from(at::WRITING + at::CONTROL), &at::STOP.to_le_bytes());
    }
    assert!(function.commands.len() <= super::COMMANDS_MAX);
}
