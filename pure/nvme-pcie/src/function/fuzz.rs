//! Entry point for fuzzing a function whose host sends TLPs made from fuzz input.

use alloc::collections::VecDeque;

use engine::{Buffer, Engine, Instant, Nanos};
use nvme::media::MediumId;
use nvme::media::ram::RamDisk;
use pcie::completer::{self, Completer};
use pcie::config::{express, header, offset as capability};
use pcie::wire::{Bdf, ConfigType, Header, Kind, Packet, Tag, Tlp};

use super::{Config, Function, Input, Output};
use crate::controller;
use crate::registers::{DOORBELL_BYTES, offset};

/// The address of BAR0.
const BAR: u64 = 1 << 32;
/// The most reads of host memory that are kept for an answer. Older ones are never answered.
const READS_MAX: usize = 64;
/// Maximum number of bytes of an answer that come from the input. The others are zero.
const ANSWER_BYTES_MAX: usize = 64;
/// Length of the disk in bytes.
const DISK_BYTES: u64 = 64 << 10;
const HOST: Bdf = Bdf::new(0, 0, 0);
const DEVICE: Bdf = Bdf::new(1, 0, 0);

/// Runs a function with an enabled controller as `bytes` determine. The first byte of a step
/// chooses between the answer to a read of host memory, a doorbell, time, a hot reset and any TLP.
///
/// # Panics
/// When the function panics.
pub fn packets(mut bytes: &[u8]) {
    let mut world = World::new();
    while let [step, rest @ ..] = bytes {
        bytes = rest;
        match *step {
            0..=119 => bytes = world.answer(usize::from(*step), bytes),
            120..=199 => bytes = world.ring(bytes),
            200..=219 => world.pass(Nanos::from_millis(u64::from(*step - 200) * 10)),
            220 => world.enable_again(),
            _ => {
                if let Ok((tlp, rest)) = Tlp::parse_first(bytes) {
                    world.hear(tlp.to_packet());
                    bytes = rest;
                }
            }
        }
    }
}

struct World {
    function: Function,
    disk: RamDisk,
    reads: VecDeque<Header>,
    completer: Completer,
    now: Instant,
}

impl World {
    fn new() -> Self {
        let core = nvme::subsystem::Config::new("FUZZ").with_namespace(MediumId(0), DISK_BYTES);
        let controller = controller::Config {
            doorbell_buffers: true,
            memory_buffer_bytes: 4096,
            ..controller::Config::new(core)
        };
        let settings = completer::Settings { id: HOST, boundary: 64, payload_size: 4096 };
        let mut world = Self {
            function: Function::new(Instant::ZERO, Config::new(controller)),
            disk: RamDisk::new(DISK_BYTES),
            reads: VecDeque::new(),
            completer: Completer::new(settings),
            now: Instant::ZERO,
        };
        world.enable();
        world
    }

    /// Makes the first writes of enumeration and of a driver.
    fn enable(&mut self) {
        let control = express::PAYLOAD_SIZE.at(capability::EXPRESS);
        let sizes = [(control, 5), (express::READ_REQUEST_SIZE.at(capability::EXPRESS), 5)];
        let commands = [(header::MEMORY_SPACE, 1), (header::BUS_MASTER, 1)];
        let set = |fields: [(pcie::config::Field, u32); 2]| {
            fields.into_iter().fold(0, |dword, (field, value)| field.with(dword, value))
        };
        self.configure(header::BAR0 + 4, 1);
        self.configure(control.offset(), set(sizes));
        self.configure(header::MEMORY_SPACE.offset(), set(commands));
        self.write(offset::ADMIN_QUEUE_ATTRIBUTES, 0x001f_001f);
        self.write(offset::CONFIGURATION, 0x0046_0001);
    }

    fn enable_again(&mut self) {
        self.function.handle_input(self.now, Input::HotReset);
        self.settle();
        self.enable();
    }

    fn configure(&mut self, offset: u16, value: u32) {
        let data = Buffer::copy_from_slice(&value.to_le_bytes());
        let packet = Packet::config_write(HOST, Tag::new(0), DEVICE, offset, data);
        self.hear(packet.with_config_type(ConfigType::Type0));
    }

    fn write(&mut self, offset: u32, value: u32) {
        let data = Buffer::copy_from_slice(&value.to_le_bytes());
        self.hear(Packet::memory_write(HOST, BAR + u64::from(offset), data));
    }

    fn ring<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let [number, value, rest @ ..] = bytes else { return &[] };
        self.write(offset::DOORBELLS + u32::from(number % 8) * DOORBELL_BYTES, u32::from(*value));
        rest
    }

    /// Answers a read of host memory with the next bytes.
    fn answer<'a>(&mut self, which: usize, bytes: &'a [u8]) -> &'a [u8] {
        let Some(request) = self.reads.remove(which % self.reads.len().max(1)) else { return bytes };
        let mut data = alloc::vec![0; usize::from(request.length) * 4];
        let (ours, rest) = bytes.split_at(bytes.len().min(data.len()).min(ANSWER_BYTES_MAX));
        data[..ours.len()].copy_from_slice(ours);
        let mut packets = VecDeque::new();
        self.completer.data(&request, &Buffer::from(data), |packet| packets.push_back(packet));
        packets.into_iter().for_each(|packet| self.hear(packet));
        rest
    }

    fn pass(&mut self, length: Nanos) {
        self.now = self.now + length;
        if self.function.poll_timeout().is_some_and(|at| at <= self.now) {
            self.function.handle_timeout(self.now);
        }
        self.settle();
    }

    fn hear(&mut self, packet: Packet) {
        self.function.handle_input(self.now, Input::Packet(packet));
        self.settle();
    }

    fn settle(&mut self) {
        while let Some(output) = self.function.poll_output() {
            match output {
                Output::Packet(packet) => {
                    let is_read =
                        matches!(packet.header.kind, Kind::Memory(_)) && packet.header.is_non_posted();
                    if is_read {
                        self.reads.push_back(packet.header);
                    }
                    if self.reads.len() > READS_MAX {
                        self.reads.pop_front();
                    }
                }
                Output::Media(request) => {
                    let mut completions = VecDeque::new();
                    self.disk.submit(request, &mut |completion| completions.push_back(completion));
                    for completion in completions {
                        self.function.handle_input(self.now, Input::Media(completion));
                    }
                }
                Output::Notify(_) => {}
                Output::ToLane(..) => unreachable!("no lane is attached"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_command_is_fetched_and_answered() {
        let mut world = World::new();
        world.ring(&[0, 1]);
        assert_eq!(world.reads.len(), 1);
        // An invalid admin command also completes.
        world.answer(0, &[0xff]);
        assert_eq!(world.function.controller().statistics().completions, 1);
    }

    proptest! {
        #[test]
        fn no_host_makes_a_function_panic(
            steps in prop::collection::vec((any::<u8>(), any::<[u8; 16]>()), 0..80)
        ) {
            packets(&steps.into_iter().flat_map(|(step, rest)| [&[step][..], &rest].concat()).collect::<Vec<_>>());
        }
    }
}
