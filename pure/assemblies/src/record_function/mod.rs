//! The PCIe function by which a driver controls a recorder: [`record::registers`] in BAR0, and an
//! interrupt when a recording begins, ends or fails.

#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;

use engine::{Engine, Instant};
use pcie::config::{Bar, BarIndex, ClassCode, Identity, Link, ids};
use pcie::device::Dma;
use pcie::endpoint::{self, Endpoint, EndpointConfig, MsixLayout};
use pcie::wire::Packet;
use record::registers::{Command, Registers, Values};

/// Offset of the MSI-X table in BAR0.
const MSIX_TABLE: u32 = 0x1000;
/// Offset of the MSI-X pending bits in BAR0.
const MSIX_PENDING: u32 = 0x2000;
/// Length of BAR0 in bytes.
const BAR_BYTES: u64 = 0x4000;
/// Commands that wait for the world; a driver's further ones are dropped.
const COMMANDS_MAX: usize = 64;

const _: () = assert!(record::registers::layout::LENGTH <= MSIX_TABLE);

/// Inputs of the function.
#[derive(Debug)]
pub enum Input {
    /// A packet arrived from the link.
    Packet(Packet),
    /// The registers show these values from now on.
    Show(Values),
}

/// Outputs of the function: requests to the world.
#[derive(Debug)]
pub enum Output {
    /// A packet to send on the link.
    Packet(Packet),
    /// A driver asks for this.
    Command(Command),
}

/// A PCIe endpoint with a recorder's registers.
#[derive(Debug)]
pub struct RecordFunction {
    endpoint: Endpoint,
    registers: Registers,
    commands: VecDeque<Command>,
}

impl RecordFunction {
    /// A function after power-up that shows `values`, with a Device Serial Number.
    pub fn new(values: Values, serial_number: u64) -> Self {
        let endpoint = Endpoint::new(&EndpointConfig {
            identity: Identity {
                vendor: ids::VENDOR,
                device: ids::RECORDER,
                revision: 1,
                class: ClassCode::DATA_ACQUISITION,
                subsystem_vendor: ids::VENDOR,
                subsystem: ids::RECORDER,
            },
            link: Link { speed: 4, width: 4, port: 0, payload_max: 256 },
            serial_number,
            bars: [Some(Bar::memory64(BAR_BYTES)), None, None, None, None, None],
            msix: Some(MsixLayout {
                bar: BarIndex::ZERO,
                vectors: 1,
                table_offset: MSIX_TABLE,
                pending_offset: MSIX_PENDING,
            }),
        });
        Self { endpoint, registers: Registers::new(values), commands: VecDeque::new() }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let command = u32::try_from(offset).ok().and_then(|offset| self.registers.write(offset, data));
        if self.commands.len() < COMMANDS_MAX {
            self.commands.extend(command);
        }
    }
}

impl Engine for RecordFunction {
    type Input<'a> = Input;
    type Output = Output;

    fn handle_input(&mut self, now: Instant, input: Input) {
        match input {
            Input::Packet(packet) => {
                if let Some((_, offset)) = self.endpoint.receive(now, &packet) {
                    self.write(offset, &packet.payload);
                }
            }
            Input::Show(values) => {
                if self.registers.show(values) {
                    self.endpoint.dma(now, Dma::Interrupt { vector: 0 });
                }
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.endpoint.handle_timeout(now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        while let Some(output) = self.endpoint.poll_output() {
            match output {
                endpoint::Output::Packet(packet) => return Some(Output::Packet(packet)),
                endpoint::Output::BarRead { token, offset, length, .. } => {
                    let mut bytes = [0; 4096];
                    match (u32::try_from(offset), bytes.get_mut(..length as usize)) {
                        (Ok(offset), Some(bytes)) => {
                            self.registers.read(offset, bytes);
                            self.endpoint.bar_read_done_bytes(token, bytes);
                        }
                        _ => self.endpoint.bar_read_done(token, None),
                    }
                }
                endpoint::Output::BarWrite { offset, data, .. } => self.write(offset, &data),
                endpoint::Output::Reset(_) => self.registers.reset(),
                // The function reads no memory.
                endpoint::Output::Dma(_) => {}
            }
        }
        self.commands.pop_front().map(Output::Command)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.endpoint.poll_timeout()
    }
}
