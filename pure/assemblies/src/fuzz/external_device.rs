//! A device of another process, between a server and a host that follow the input.

use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;

use engine::fuzz::Source;
use engine::{Buffer, Instant};
use pcie::completer::{self, Completer};
use pcie::config::{header, msix, offset};
use pcie::wire::{Bdf, CompletionStatus, ConfigType, Header, Kind, MemoryOperation, Packet, Tag, Tlp};

use super::server::{self, Server};
use super::{Descriptor, Patience, STEPS_MAX, check_deadline, length_of};
use crate::external_device::{Config, ExternalDevice, Input, Output};
use crate::far::{Device, Said};

const HOST: Bdf = Bdf::new(0, 0, 0);
const DEVICE: Bdf = Bdf::new(1, 0, 0);
/// Maximum number of reads of host memory kept for an answer; older ones are never answered.
const READS_MAX: usize = 256;
/// Distance of the BARs' addresses, and the first address, as a power of two.
const BAR_SHIFT: u32 = 36;

/// A device whose server and whose host do what `bytes` say: first come the facts of the device,
/// then steps.
///
/// # Panics
/// When the device panics, spins, or loses a descriptor.
pub fn external_device(bytes: &[u8]) {
    let open = Descriptor::default();
    let mut source = Source::new(bytes);
    let mut world = World::new(&mut source, &open);
    world.connect();
    for _ in 0..STEPS_MAX {
        if source.is_empty() {
            break;
        }
        world.step(&mut source);
        world.settle();
    }
    world.disconnect();
    world.settle();
    assert!(!world.external.is_present(), "a device outlived its server");
    drop(world);
    assert_eq!(Rc::strong_count(&open), 1, "a descriptor leaked");
}

struct World {
    external: ExternalDevice<Descriptor>,
    server: Server,
    connected: bool,
    /// Number of descriptors that were asked for.
    wanted: Option<u16>,
    reads: VecDeque<Header>,
    completer: Completer,
    now: Instant,
}

impl World {
    fn new(source: &mut Source<'_>, open: &Descriptor) -> Self {
        let settings = completer::Settings { id: HOST, boundary: 64, payload_size: 128 };
        Self {
            external: ExternalDevice::new(Config::default()),
            server: Server::new(source, open),
            connected: false,
            wanted: None,
            reads: VecDeque::new(),
            completer: Completer::new(settings),
            now: Instant::ZERO,
        }
    }

    fn step(&mut self, source: &mut Source<'_>) {
        match source.byte() {
            step @ 0..=63 => self.answer(usize::from(step % 4), source),
            64..=87 => {
                if let Some(said) = self.server.answer_badly(source) {
                    self.say(said.0, said.1);
                }
            }
            88..=111 => self.say(server::dma(source), Vec::new()),
            step @ 112..=119 => {
                let descriptors = self.server.descriptors(usize::from(step % 4));
                self.say(server::any_message(source), descriptors);
            }
            step @ 120..=123 => {
                let bytes = source.bytes(usize::from(step % 4) * 5 + 1).to_vec();
                self.say(bytes, Vec::new());
            }
            124..=147 => self.configure(source),
            148..=171 => self.access(source),
            172..=203 => self.complete(source),
            204..=211 => {
                let length = usize::from(source.byte());
                if let Ok((tlp, _)) = Tlp::parse_first(source.bytes(length)) {
                    self.external.on_packet(self.now, &tlp.to_packet());
                }
            }
            212..=219 => self.external.on_input(self.now, Input::Signalled(source.byte().into())),
            220..=227 => self.give_descriptors(),
            228..=235 => self.now = self.now + length_of(source.byte()),
            236..=238 => self.disconnect(),
            239..=243 => self.connect(),
            244..=246 => self.external.on_hot_reset(self.now),
            step @ 247..=248 => self.external.set_throttled(step % 2 == 0),
            249..=254 => self.bring_up(),
            255 => {
                while self.server.owes() && self.connected {
                    self.answer(0, source);
                    self.settle();
                }
                self.give_descriptors();
            }
        }
    }

    fn connect(&mut self) {
        if !self.connected {
            self.connected = true;
            self.server.forget();
            self.external.on_input(self.now, Input::Connected);
        }
    }
    fn disconnect(&mut self) {
        if core::mem::take(&mut self.connected) {
            self.external.on_input(self.now, Input::Disconnected);
        }
    }
    fn say(&mut self, bytes: Vec<u8>, descriptors: Vec<Descriptor>) {
        if self.connected {
            self.external.on_input(self.now, Input::Received(bytes.into(), descriptors));
        }
    }
    fn answer(&mut self, which: usize, source: &mut Source<'_>) {
        if let Some((bytes, descriptors)) = self.server.answer(which, |_, bytes| source.fill(bytes)) {
            self.say(bytes, descriptors);
        }
    }
    fn give_descriptors(&mut self) {
        if let Some(count) = self.wanted.take().filter(|_| self.connected) {
            let descriptors = self.server.descriptors(count.into());
            self.external.on_input(self.now, Input::Descriptors(descriptors));
        }
    }

    /// The first writes of enumeration and of a driver.
    fn bring_up(&mut self) {
        for bar in 0..6_u16 {
            let address = u64::from(bar + 1) << BAR_SHIFT;
            let high = u32::try_from(address >> 32).expect("the upper half");
            self.write_config(header::BAR0 + 4 * bar, if bar % 2 == 1 { high / 2 } else { 0 });
        }
        let command = header::BUS_MASTER.with(header::MEMORY_SPACE.with(0, 1), 1);
        self.write_config(header::BUS_MASTER.offset(), command);
        let enable = msix::ENABLE.at(offset::MSIX);
        self.write_config(enable.offset(), enable.with(0, 1));
    }

    fn write_config(&mut self, offset: u16, value: u32) {
        let data = Buffer::copy_from_slice(&value.to_le_bytes());
        let packet = Packet::config_write(HOST, Tag::new(0), DEVICE, offset, data);
        self.external.on_packet(self.now, &packet.with_config_type(ConfigType::Type0));
        self.settle();
    }

    fn configure(&mut self, source: &mut Source<'_>) {
        let how = source.byte();
        let offset = if how & 2 == 0 { u16::from(source.byte()) } else { source.half() % 4096 };
        if how & 1 == 0 {
            let packet = Packet::config_read(HOST, Tag::new(how.into()), DEVICE, offset & !3, 4);
            return self.external.on_packet(self.now, &packet.with_config_type(ConfigType::Type0));
        }
        let length = (how >> 2 & 3) + 1;
        let room = 4 - usize::from(offset % 4);
        let data = source.word().to_le_bytes();
        let data = Buffer::copy_from_slice(&data[..usize::from(length).min(room)]);
        let packet = Packet::config_write(HOST, Tag::new(how.into()), DEVICE, offset, data);
        self.external.on_packet(self.now, &packet.with_config_type(ConfigType::Type0));
    }

    /// Sends a read or a write of a BAR.
    fn access(&mut self, source: &mut Source<'_>) {
        let how = source.byte();
        let page = u64::from(source.half()) << 12;
        let within = u64::from(source.half()) % 4096;
        let base = u64::from(how >> 4 & 3) << BAR_SHIFT >> (how >> 6);
        let address = base + page + within;
        let length = (u64::from(source.byte()) << (how >> 1 & 3)).clamp(1, 4096 - within);
        let length = u32::try_from(length).expect("at most a page");
        let packet = if how & 1 == 0 {
            Packet::memory_read(HOST, Tag::new(how.into()), address, length)
        } else {
            let mut data = alloc::vec![0; length as usize];
            source.fill(&mut data);
            Packet::memory_write(HOST, address, data.into())
        };
        self.external.on_packet(self.now, &packet);
    }

    /// Answers a read of host memory: whole, in part, or not at all.
    fn complete(&mut self, source: &mut Source<'_>) {
        let how = source.byte();
        let Some(request) = self.reads.remove(usize::from(how) % self.reads.len().max(1)) else { return };
        let mut packets = Vec::new();
        match source.byte() {
            0..=15 => packets.push(self.completer.status(&request, CompletionStatus::UnsupportedRequest)),
            parts => {
                let length = usize::from(request.length) * 4;
                let data = Buffer::zeroed(length);
                self.completer.data(&request, &data, |packet| packets.push(packet));
                if parts > 200 {
                    packets.truncate(usize::from(parts - 200));
                    packets.reverse();
                }
            }
        }
        for packet in packets {
            self.external.on_packet(self.now, &packet);
        }
    }

    fn settle(&mut self) {
        let mut patience = Patience::new();
        loop {
            if self.external.deadline().is_some_and(|at| at <= self.now) {
                self.external.on_timeout(self.now);
            }
            let mut quiet = true;
            while let Some(said) = self.external.poll() {
                quiet = false;
                patience.spend();
                self.hear(said);
            }
            if quiet {
                return check_deadline(self.now, self.external.deadline());
            }
        }
    }

    fn hear(&mut self, said: Said<Output<Descriptor>>) {
        match said {
            Said::Packet(packet) => {
                let is_read = matches!(&packet.header.kind,
                    Kind::Memory(request) if request.operation == MemoryOperation::Read);
                if is_read {
                    self.reads.push_back(packet.header);
                }
                if self.reads.len() > READS_MAX {
                    self.reads.pop_front();
                }
            }
            Said::World(Output::Transmit(bytes, _)) => drop(self.server.hear(&bytes)),
            Said::World(Output::Close) => self.connected = false,
            Said::World(Output::Descriptors(count)) => self.wanted = Some(count),
            Said::World(Output::Event(_)) | Said::Present | Said::Absent(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_set_up_brought_up_and_reads_memory() {
        let open = Descriptor::default();
        let mut source = Source::new(&[]);
        let mut world = World::new(&mut source, &open);
        world.connect();
        world.settle();
        world.step(&mut Source::new(&[255]));
        assert!(world.external.is_present());
        world.step(&mut Source::new(&[254]));
        // 256 bytes at address 16.
        world.step(&mut Source::new(&[88, 4, 1, 0, 0, 0, 0, 1]));
        world.settle();
        assert_eq!(world.reads.len(), 1);
        world.step(&mut Source::new(&[172, 0, 16]));
        world.settle();
        assert!(world.reads.is_empty());
    }
}
