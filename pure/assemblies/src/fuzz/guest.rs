//! A guest's slot between a client and a function that follow the input.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;

use engine::fuzz::Source;
use engine::{Buffer, Engine, Instant, Nanos};
use nvme::media::{MediumId, ram::RamDisk};
use nvme_pcie::function::{self, Function};
use pcie::memory::{Memory, Ram};
use pcie::wire::{Bdf, Kind, Packet, Tlp};
use vfio_user::client::{self, Client};
use vfio_user::wire::{DmaMap, DmaUnmap, SingleWrite};
use vfio_user::{Errno, InterruptAction, InterruptData, InterruptIndex, RegionIndex};

use super::server;
use super::{Descriptor, Patience, STEPS_MAX, check_deadline, length_of};
use crate::guest::{Config, Guest, Input, Output};

const DISK_BYTES: u64 = 64 << 10;
/// Where the guest has memory.
const BASE: u64 = 0x1_0000;
const MEMORY: usize = 0x1_0000;
const DEVICE: Bdf = Bdf::new(1, 0, 0);
/// Maximum number of configuration registers with a wrong value.
const PATCHES_MAX: u8 = 16;

/// A slot whose client and whose function do what `bytes` say: first come the function's
/// configuration registers that are nonsense, then steps.
///
/// # Panics
/// When the slot panics, spins, or loses a descriptor.
pub fn guest(bytes: &[u8]) {
    let open = Descriptor::default();
    let mut source = Source::new(bytes);
    let mut world = World::new(&mut source, &open);
    world.settle();
    for _ in 0..STEPS_MAX {
        if source.is_empty() {
            break;
        }
        world.step(&mut source);
        world.settle();
    }
    world.leave();
    world.settle();
    assert!(world.vectors.is_empty() && world.maps.is_empty(), "something of a client stayed");
    drop(world);
    assert_eq!(Rc::strong_count(&open), 1, "a descriptor leaked");
}

struct World {
    guest: Guest<Descriptor>,
    client: Client<Descriptor>,
    function: Function,
    disk: RamDisk,
    /// Configuration registers that read as another value, by offset.
    patches: BTreeMap<u16, u32>,
    /// While set, the function's packets are lost.
    silent: bool,
    memory: Ram,
    maps: BTreeMap<u64, (u64, Descriptor)>,
    vectors: BTreeMap<usize, Descriptor>,
    /// A client is connected.
    connected: bool,
    /// Whether memory cannot be mapped.
    full: bool,
    open: Descriptor,
    now: Instant,
}

impl World {
    fn new(source: &mut Source<'_>, open: &Descriptor) -> Self {
        let mut patches = BTreeMap::new();
        for _ in 0..source.byte() % PATCHES_MAX {
            patches.insert(source.half() & 0xffc, source.word());
        }
        let core = nvme::subsystem::Config::new("FUZZ").with_namespace(MediumId(0), DISK_BYTES);
        let config = function::Config::new(nvme_pcie::controller::Config::new(core));
        let now = Instant::from_nanos(1_000);
        let slot = Config { doorbells: true, function: Some(0), ..Config::default() };
        Self {
            guest: Guest::direct(slot, now),
            client: Client::new(client::Config::default()),
            function: Function::new(now, config),
            disk: RamDisk::new(DISK_BYTES),
            patches,
            silent: false,
            memory: Ram::new(BASE, MEMORY),
            maps: BTreeMap::new(),
            vectors: BTreeMap::new(),
            connected: false,
            full: false,
            open: Rc::clone(open),
            now,
        }
    }

    fn step(&mut self, source: &mut Source<'_>) {
        self.now = self.now + Nanos::from_micros(1);
        self.join();
        let now = self.now;
        match source.byte() {
            0..=63 => self.access(source),
            64..=79 => self.share(source),
            80..=95 => self.interrupts(source),
            96..=99 => _ = self.client.reset(now),
            step @ 100..=111 => {
                let message = server::any_message(source);
                self.say(message, usize::from(step % 4));
            }
            step @ 112..=115 => {
                let bytes = source.bytes(usize::from(step % 4) * 5 + 1).to_vec();
                self.say(bytes, 0);
            }
            116..=147 => self.volunteer(source),
            148..=163 => self.now = now + length_of(source.byte()),
            164..=179 => {
                if self.guest.takes_rings() {
                    let offset = 0x1000 + u64::from(source.byte() % 8) * 4;
                    self.guest.ring(now, offset, source.byte().into());
                }
            }
            180..=195 => {
                let (at, value) = (BASE + u64::from(source.half()), source.word());
                // The last addresses have no room behind them.
                let _ = self.memory.write(at, &value.to_le_bytes());
            }
            196..=199 => self.leave(),
            step @ 200..=203 => self.silent = step % 2 == 0,
            step @ 204..=207 => self.full = step % 2 == 0,
            208..=211 => self.function.handle_input(now, function::Input::HotReset),
            212..=219 => self.guest.interrupt(source.byte().into()),
            220..=235 => self.enable(),
            236..=255 => {
                let offset = source.half() & 0xffc;
                self.patches.insert(offset, source.word());
            }
        }
    }

    /// A client connects, if one may.
    fn join(&mut self) {
        if !self.connected && self.guest.takes_client() {
            self.connected = true;
            self.guest.handle_input(self.now, Input::ClientConnected);
            self.client.handle_input(self.now, client::Input::Connected);
            self.settle();
        }
    }
    fn leave(&mut self) {
        if core::mem::take(&mut self.connected) {
            self.guest.handle_input(self.now, Input::ClientDisconnected);
            self.client.handle_input(self.now, client::Input::Disconnected);
        }
    }
    fn say(&mut self, bytes: Vec<u8>, descriptors: usize) {
        if self.connected && self.guest.takes_bytes() {
            let descriptors = vec![Rc::clone(&self.open); descriptors];
            self.guest.handle_input(self.now, Input::ClientReceived { bytes: &bytes, descriptors });
        }
    }

    /// Sends a read or a write of a region.
    fn access(&mut self, source: &mut Source<'_>) {
        let how = source.byte();
        let region = match how & 7 {
            0..=3 => RegionIndex::CONFIG,
            4 | 5 => RegionIndex::BAR0,
            _ => RegionIndex(u32::from(source.byte() % 10)),
        };
        let offset = if how & 8 == 0 { u64::from(source.byte()) } else { u64::from(source.half() % 0x4800) };
        let length = if how & 16 == 0 { 1 << (how >> 5 & 3) } else { usize::from(source.half() % 5000) };
        match how >> 5 {
            0..=3 => {
                let count = u32::try_from(length).expect("a few");
                self.client.read(self.now, region, offset, count);
            }
            4 | 5 => {
                let mut data = vec![0; length];
                source.fill(&mut data);
                self.client.write(self.now, region, offset, &data);
            }
            6 => self.client.post(region, offset, &source.word().to_le_bytes()),
            _ => {
                let count = usize::from(source.byte() % 5);
                let access = vfio_user::wire::RegionAccess { offset, region: region.0, count: 4 };
                let writes = vec![SingleWrite { access, data: [source.byte(); 8] }; count];
                self.client.write_multiple(self.now, &writes);
            }
        }
    }

    fn share(&mut self, source: &mut Source<'_>) {
        let how = source.byte();
        let (address, length) = match how & 3 {
            0 => (BASE, MEMORY as u64),
            1 => (u64::from(source.half()) << 12, u64::from(source.half()) << 12),
            2 => (!0xfff - (u64::from(source.byte()) << 12), u64::from(source.byte()) << 12),
            _ => (source.long(), source.long()),
        };
        if how & 12 == 12 {
            let unmap = if how & 16 == 0 { DmaUnmap::all() } else { DmaUnmap::one(address, length) };
            self.client.unmap(self.now, unmap);
        } else {
            let (readable, writable) = (how & 32 == 0, how & 64 == 0);
            let map = DmaMap { readable, writable, offset: 0, address, length };
            let file = (how & 4 == 0).then(|| Rc::clone(&self.open));
            self.client.map(self.now, map, file);
        }
    }

    fn interrupts(&mut self, source: &mut Source<'_>) {
        let how = source.byte();
        let index = InterruptIndex::from_number(u32::from(how % 5)).unwrap_or(InterruptIndex::Msix);
        let index = if how & 64 == 0 { InterruptIndex::Msix } else { index };
        let (start, count) = (u32::from(source.byte()), u32::from(source.byte() % 12));
        let data = match how >> 4 & 3 {
            0 => InterruptData::None,
            1 => InterruptData::Bools(vec![how & 1 == 0; count as usize]),
            _ => InterruptData::Descriptors(vec![Rc::clone(&self.open); count as usize]),
        };
        let action = if how < 240 { InterruptAction::Trigger } else { InterruptAction::Unmask };
        self.client.set_interrupts(self.now, index, action, (start, count), data);
    }

    /// Brings the controller up with its queues in the guest's memory.
    fn enable(&mut self) {
        let map = DmaMap { readable: true, writable: true, offset: 0, address: BASE, length: MEMORY as u64 };
        self.client.map(self.now, map, Some(Rc::clone(&self.open)));
        self.client.write(self.now, RegionIndex::CONFIG, 4, &[6, 0]);
        let base = u32::try_from(BASE).expect("below 4 GiB");
        for (register, value) in
            [(0x24_u64, 0x000f_000f), (0x28, base), (0x30, base + 0x1000), (0x14, 0x46_0001)]
        {
            self.client.post(RegionIndex::BAR0, register, &value.to_le_bytes());
        }
    }

    /// Sends unsolicited packets of the function.
    fn volunteer(&mut self, source: &mut Source<'_>) {
        let how = source.byte();
        let address = match how & 3 {
            0 => BASE + u64::from(source.half() & !3),
            1 => 0xffff_ffff_fee0_0000 + u64::from(source.byte() & 3) * 4,
            2 => source.long() & !3,
            _ => {
                let length = usize::from(source.byte());
                if let Ok((tlp, _)) = Tlp::parse_first(source.bytes(length)) {
                    self.guest.handle_input(self.now, Input::Packet(tlp.to_packet()));
                }
                return;
            }
        };
        let packet = if how & 4 == 0 {
            let room = u32::try_from(4096 - address % 4096).unwrap_or(4);
            let tag = pcie::wire::Tag::new(how.into());
            Packet::memory_read(DEVICE, tag, address, (u32::from(how >> 3) << 4 | 4).min(room))
        } else {
            Packet::memory_write(DEVICE, address, Buffer::copy_from_slice(&source.word().to_le_bytes()))
        };
        self.guest.handle_input(self.now, Input::Packet(packet));
    }

    fn settle(&mut self) {
        let mut patience = Patience::new();
        loop {
            let now = self.now;
            let mut quiet = true;
            if self.guest.poll_timeout().is_some_and(|at| at <= now) {
                self.guest.handle_timeout(now);
            }
            if self.function.poll_timeout().is_some_and(|at| at <= now) {
                self.function.handle_timeout(now);
            }
            if self.client.poll_timeout().is_some_and(|at| at <= now) {
                self.client.handle_timeout(now);
            }
            while let Some(output) = self.guest.poll_output() {
                (quiet, _) = (false, patience.spend());
                self.hear(output);
            }
            while self.guest.takes_bytes()
                && let Some(output) = self.client.poll_output()
            {
                (quiet, _) = (false, patience.spend());
                self.hear_client(output);
            }
            while let Some(output) = self.function.poll_output() {
                (quiet, _) = (false, patience.spend());
                self.work(output);
            }
            if quiet {
                return check_deadline(now, self.guest.poll_timeout());
            }
        }
    }

    fn hear(&mut self, output: Output<Descriptor>) {
        match output {
            Output::Reply { bytes, .. } => {
                let input = client::Input::Received { bytes: &bytes, descriptors: Vec::new() };
                self.client.handle_input(self.now, input);
            }
            Output::CloseClient => {
                self.connected = false;
                self.client.handle_input(self.now, client::Input::Disconnected);
            }
            Output::Map { token, map, descriptor } => {
                let result = if self.full { Err(Errno::ENODEV) } else { Ok(()) };
                if result.is_ok() {
                    self.maps.insert(map.address, (map.length, descriptor));
                }
                self.guest.map_done(token, result);
            }
            Output::Unmap { address, .. } => drop(self.maps.remove(&address)),
            Output::ReadMemory { token, address, length } => {
                let length = usize::try_from(length).expect("at most a page");
                let mut bytes = vec![0; length];
                let read = self.memory.read(address, &mut bytes).ok().filter(|()| !self.maps.is_empty());
                self.guest.memory_read_done(token, address, length, read.map(|()| Buffer::from(bytes)));
            }
            Output::WriteMemory { address, data } => {
                if self.maps.is_empty() || self.memory.write(address, &data).is_err() {
                    self.guest.memory_write_failed(address, data.len());
                }
            }
            Output::Vector { vector, descriptor: Some(descriptor) } => {
                self.vectors.insert(vector, descriptor);
            }
            Output::Vector { vector, descriptor: None } => drop(self.vectors.remove(&vector)),
            Output::Signal { vector } => {
                assert!(self.vectors.contains_key(&vector), "vector {vector} has no listener")
            }
            Output::Packet(packet) => self.on_packet(packet),
            Output::Connect(_) | Output::Transmit(..) | Output::Close(_) => {
                unreachable!("there is no tunnel")
            }
            Output::ClearDoorbells | Output::Event(_) => {}
        }
    }

    fn on_packet(&mut self, packet: Packet) {
        if let Kind::Config(request) = &packet.header.kind
            && !request.write
            && let Some(value) = self.patches.get(&request.offset)
        {
            let data = Buffer::copy_from_slice(&value.to_le_bytes());
            let answer = Packet::completion_with_data(DEVICE, &packet.header, 0, data);
            self.guest.handle_input(self.now, Input::Packet(answer));
        } else {
            self.function.handle_input(self.now, function::Input::Packet(packet));
        }
    }

    fn hear_client(&mut self, output: client::Output<Descriptor>) {
        match output {
            client::Output::Transmit { bytes, descriptors } if self.connected => {
                self.guest.handle_input(self.now, Input::ClientReceived { bytes: &bytes, descriptors });
            }
            client::Output::DmaRead { token, address, length } => {
                let bytes = self.memory.slice(address, length as usize);
                self.client.dma_read_done(token, bytes.map_err(|_| Errno::EFAULT));
            }
            client::Output::DmaWrite { token: Some(token), address, data } => {
                let result = self.memory.write(address, &data).map_err(|_| Errno::EFAULT);
                self.client.dma_write_done(token, result);
            }
            client::Output::Close { .. } => self.leave(),
            _ => {}
        }
    }

    /// Serves the function's requests.
    fn work(&mut self, output: function::Output) {
        match output {
            function::Output::Packet(packet) if !self.silent => {
                self.guest.handle_input(self.now, Input::Packet(packet));
            }
            function::Output::Media(request) => {
                let mut done = Vec::new();
                self.disk.submit(request, &mut |completion| done.push(completion));
                for completion in done {
                    self.function.handle_input(self.now, function::Input::Media(completion));
                }
            }
            function::Output::Packet(_) | function::Output::Notify(_) => {}
            function::Output::ToLane(..) => unreachable!("no lane is attached"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_as_far_as_the_controllers_registers() {
        let open = Descriptor::default();
        let mut world = World::new(&mut Source::new(&[]), &open);
        for _ in 0..1000 {
            world.step(&mut Source::new(&[148, 20]));
            world.settle();
        }
        assert!(world.connected && world.client.negotiated().is_some());
        world.step(&mut Source::new(&[220]));
        world.settle();
        assert!(!world.maps.is_empty());
        // An invalid admin command, and its doorbell.
        world.step(&mut Source::new(&[164, 0, 1]));
        for _ in 0..100 {
            world.step(&mut Source::new(&[148, 17]));
            world.settle();
        }
        assert!(world.function.controller().statistics().completions > 0);
    }
}
