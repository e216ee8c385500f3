//! The user of a function whose server, controller and writes to memory follow the input.

use alloc::rc::Rc;
use alloc::vec::Vec;

use engine::fuzz::Source;
use engine::{Buffer, Engine, Instant, Nanos};
use nvme::media::{MediumId, ram::RamDisk};
use nvme::wire::{IoOpcode, NamespaceId};
use nvme_pcie::controller::{self, Controller};
use nvme_pcie::host::{Data, QueueId, Submission};
use pcie::device::{Dma, DmaResult};
use pcie::memory::{Memory, Ram};
use vfio_user::RegionIndex;

use super::server::{self, Server};
use super::{Descriptor, Patience, STEPS_MAX, check_deadline, length_of};
use crate::vfio_user_client::{Config, Input, Output, User};

/// Bytes of the driver's memory, which begins at address 0.
const ARENA: usize = 0x2_0000;
const DISK_BYTES: u64 = 64 << 10;
/// Maximum number of answers in a step that gives all of them.
const ROUNDS_MAX: usize = 128;
/// How long a step that gives all answers waits for the next message.
const MOMENT: Nanos = Nanos::from_millis(20);

/// A user whose server does what `bytes` say: first come the facts of the device, then steps.
/// Behind the server is a real controller, so that the user gets far. The steps change the
/// controller's answers and its writes.
///
/// # Panics
/// When the user panics, spins, or loses a descriptor.
pub fn user(bytes: &[u8]) {
    let open = Descriptor::default();
    let mut source = Source::new(bytes);
    let mut world = World::new(&mut source, &open);
    world.user.handle_input(world.now, Input::Connected);
    for _ in 0..STEPS_MAX {
        if source.is_empty() || !world.connected {
            break;
        }
        world.step(&mut source);
        world.settle();
    }
    world.user.handle_input(world.now, Input::Disconnected);
    world.settle();
    assert!(
        world.user.poll_timeout().is_none() && world.user.driver().is_none(),
        "a user outlived its server"
    );
    drop(world);
    assert_eq!(Rc::strong_count(&open), 1, "a descriptor leaked");
}

struct World {
    user: User<Descriptor, Ram>,
    server: Server,
    controller: Controller,
    disk: RamDisk,
    connected: bool,
    /// Whether doorbells can be mapped.
    maps: bool,
    /// Offset of the doorbells' mapping in BAR0.
    doorbells: u64,
    submitted: u64,
    now: Instant,
}

impl World {
    fn new(source: &mut Source<'_>, open: &Descriptor) -> Self {
        let how = source.byte();
        let server = Server::new(source, open);
        let driver =
            nvme_pcie::host::Config { queue_entries: 8, ..nvme_pcie::host::Config::new(0, ARENA as u64) };
        let config = Config { client: vfio_user::client::Config::default(), driver };
        let core = nvme::subsystem::Config::new("FUZZ").with_namespace(MediumId(0), DISK_BYTES);
        Self {
            user: User::new(config, Ram::new(0, ARENA), Rc::clone(open)),
            server,
            controller: Controller::new(Instant::ZERO, controller::Config::new(core)),
            disk: RamDisk::new(DISK_BYTES),
            connected: true,
            maps: how & 1 == 0,
            doorbells: 0,
            submitted: 0,
            now: Instant::ZERO,
        }
    }

    fn step(&mut self, source: &mut Source<'_>) {
        match source.byte() {
            step @ 0..=63 => self.answer(usize::from(step % 4)),
            64..=87 => {
                if let Some(said) = self.server.answer_badly(source) {
                    self.say(said.0, said.1);
                }
            }
            88..=103 => self.say(server::dma(source), Vec::new()),
            step @ 104..=111 => {
                let descriptors = self.server.descriptors(usize::from(step % 4));
                self.say(server::any_message(source), descriptors);
            }
            step @ 112..=115 => {
                let bytes = source.bytes(usize::from(step % 4) * 5 + 1).to_vec();
                self.say(bytes, Vec::new());
            }
            116..=147 => nvme_pcie::fuzz::scribble(self.user.memory_mut(), source),
            148..=155 => {
                let (at, value) = (u64::from(source.word()) % ARENA as u64, source.byte());
                // The last addresses have no room behind them, so nothing is written there.
                let _ = self.user.memory_mut().write(at, &[value; 4]);
            }
            156..=203 => self.submit(source),
            204..=211 => self.user.poll_completions(self.now),
            212..=219 => self.now = self.now + length_of(source.byte()),
            220..=223 => {
                let count = usize::try_from(self.user.vectors()).expect("a few").min(64);
                let descriptors = self.server.descriptors(count);
                self.user.listen(self.now, descriptors);
            }
            224..=227 => self.user.listen(self.now, Vec::new()),
            228..=231 => self.user.nudge(self.now),
            232..=235 => self.user.config_read(self.now, u16::from(source.byte()) * 4),
            236 => self.user.close(self.now),
            237..=255 => self.go_on(),
        }
    }

    /// Answers all requests, and lets a moment pass where that brings something up.
    fn go_on(&mut self) {
        for _ in 0..ROUNDS_MAX {
            if !self.connected {
                return;
            }
            if self.server.owes() {
                self.answer(0);
            } else {
                let wake = self.user.poll_timeout().filter(|at| *at <= self.now + MOMENT);
                self.now = self.now.max(wake.unwrap_or(self.now));
            }
            self.settle();
            self.user.poll_completions(self.now);
            self.settle();
        }
    }

    fn say(&mut self, bytes: Vec<u8>, descriptors: Vec<Descriptor>) {
        if self.connected {
            self.user.handle_input(self.now, Input::Received { bytes: &bytes, descriptors });
        }
    }

    fn answer(&mut self, which: usize) {
        let controller = &mut self.controller;
        let registers = |offset, bytes: &mut [u8]| {
            if let Ok(offset) = u32::try_from(offset) {
                controller.read_register(offset, bytes);
            }
        };
        if let Some((bytes, descriptors)) = self.server.answer(which, registers) {
            self.say(bytes, descriptors);
        }
    }

    fn submit(&mut self, source: &mut Source<'_>) {
        let how = source.byte();
        let Some(host) = self.user.driver() else { return };
        let data = Data { address: host.data_region().base, length: 4096 };
        let queue = QueueId(u16::from(how & 1));
        self.submitted += 1;
        let block = u64::from(how >> 2);
        let submission = match how & 2 {
            0 => Submission::on_blocks(IoOpcode::Read, queue, NamespaceId(1), block, 8, data, self.submitted),
            _ => {
                Submission::on_blocks(IoOpcode::Write, queue, NamespaceId(1), block, 8, data, self.submitted)
            }
        };
        // A refusal is a valid result, too.
        let _ = self.user.submit(self.now, submission);
    }

    fn settle(&mut self) {
        let mut patience = Patience::new();
        loop {
            if self.user.poll_timeout().is_some_and(|at| at <= self.now) {
                self.user.handle_timeout(self.now);
            }
            if self.controller.poll_timeout().is_some_and(|at| at <= self.now) {
                self.controller.handle_timeout(self.now);
            }
            let mut quiet = true;
            while let Some(output) = self.user.poll_output() {
                quiet = false;
                patience.spend();
                self.hear(output);
            }
            while let Some(output) = self.controller.poll_output() {
                quiet = false;
                patience.spend();
                self.work(output);
            }
            if quiet {
                return check_deadline(self.now, self.user.poll_timeout());
            }
        }
    }

    fn hear(&mut self, output: Output<Descriptor>) {
        match output {
            Output::Transmit { bytes, .. } => {
                if let Some((access, data)) = self.server.hear(&bytes)
                    && access.region == RegionIndex::BAR0.0
                {
                    self.write(access.offset, &data);
                }
            }
            Output::Close => self.connected = false,
            Output::MapDoorbells { offset, .. } => {
                self.doorbells = offset;
                self.user.doorbells_mapped(self.maps);
            }
            Output::Doorbell { offset, value } => {
                assert!(offset.is_multiple_of(4), "a doorbell at {offset:#x}");
                self.write(self.doorbells + offset, &value.to_le_bytes());
            }
            Output::Event(_) => {}
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        if let Ok(offset) = u32::try_from(offset) {
            self.controller.handle_input(self.now, controller::Input::RegisterWrite { offset, bytes });
        }
    }

    /// Serves the controller's requests.
    fn work(&mut self, output: controller::Output) {
        use controller::{Input as To, Output as From};
        match output {
            From::Dma(Dma::Read { id, address, length }) => {
                let mut bytes = alloc::vec![0; length as usize];
                let result = match self.user.memory().read(address, &mut bytes) {
                    Ok(()) => DmaResult::Data { id, offset: 0, data: Buffer::from(bytes), last: true },
                    Err(_) => DmaResult::Failed { id },
                };
                self.controller.handle_input(self.now, To::Dma(result));
            }
            From::Dma(Dma::Write { address, data }) => {
                // A lost write is not reported.
                let _ = self.user.memory_mut().write(address, &data);
            }
            From::Media(request) => {
                let mut done = Vec::new();
                self.disk.submit(request, &mut |completion| done.push(completion));
                for completion in done {
                    self.controller.handle_input(self.now, To::Media(completion));
                }
            }
            From::Dma(Dma::Interrupt { .. }) | From::Notify(_) => {}
            From::ToLane(..) | From::ToHome(_) => unreachable!("no lane is attached"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_gets_as_far_as_commands() {
        let open = Descriptor::default();
        let mut world = World::new(&mut Source::new(&[]), &open);
        world.user.handle_input(world.now, Input::Connected);
        world.settle();
        world.step(&mut Source::new(&[255]));
        assert!(world.user.driver().is_some_and(nvme_pcie::host::Host::is_ready));
        world.step(&mut Source::new(&[156, 1]));
        world.settle();
        let before = world.controller.statistics().completions;
        world.step(&mut Source::new(&[204]));
        assert!(before > 3, "{before} commands have ended");
    }
}
