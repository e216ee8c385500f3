//! A whole PCIe function with an NVMe controller, which sits at the end of a link.

#[doc(hidden)]
pub mod fuzz;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;

use engine::{Engine, Instant};
use nvme::media;
use nvme::subsystem::{HostIdentity, LaneId, Notification, Permit, Subsystem};
use pcie::config::{Bar, BarIndex, ClassCode, Identity, Link, ids};
use pcie::device::{Dma, DmaResult};
use pcie::endpoint::{self, Endpoint, EndpointConfig, MsixLayout};
use pcie::wire::Packet;
use serde::{Deserialize, Serialize};

use crate::controller::{self, Controller, LaneStart, ToHome, ToLane};

/// Offset of the MSI-X table in BAR0, after the doorbells.
const MSIX_TABLE: u32 = 0x2000;
/// Offset of the MSI-X pending bits in BAR0.
const MSIX_PENDING: u32 = 0x3000;
/// Length of BAR0 in bytes.
const BAR_BYTES: u64 = 0x4000;

const _: () = assert!(
    crate::registers::offset::DOORBELLS
        + 2 * (controller::IO_QUEUES_MAX as u32 + 1) * crate::registers::DOORBELL_BYTES
        <= MSIX_TABLE
);

/// The configuration of a function.
#[derive(Clone, Debug)]
pub struct Config {
    /// The configuration of the controller.
    pub controller: controller::Config,
    /// PCI identity. The class code is always [`ClassCode::NVME`], regardless of this identity.
    pub identity: Identity,
    /// The link that the function reports.
    pub link: Link,
    /// Device Serial Number, for the extended capability.
    pub serial_number: u64,
    /// Whether the 64-bit BAR0 is prefetchable, so that it may be placed above 4 GiB behind a
    /// bridge. The BAR of a common SSD is not prefetchable.
    pub prefetchable: bool,
}

impl Config {
    /// A function around `controller`, with the vendor identifiers that its Identify Controller
    /// reports, or Farlane's if it reports none.
    pub const fn new(mut controller: controller::Config) -> Self {
        let core = &mut controller.core;
        if core.vendor == 0 {
            (core.vendor, core.subsystem_vendor) = (ids::VENDOR, ids::VENDOR);
        }
        let identity = Identity {
            vendor: core.vendor,
            device: ids::NVME_CONTROLLER,
            revision: 1,
            class: ClassCode::NVME,
            subsystem_vendor: core.subsystem_vendor,
            subsystem: ids::NVME_CONTROLLER,
        };
        let link = Link { speed: 4, width: 4, port: 0, payload_max: 4096 };
        Self { controller, identity, link, serial_number: 0, prefetchable: false }
    }
}

/// An input of the function.
#[derive(Debug)]
pub enum Input {
    /// A packet arrived from the link.
    Packet(Packet),
    /// A medium answered.
    Media(media::Completion),
    /// The link went down or was reset.
    HotReset,
    /// A message of a lane.
    FromLane(LaneId, Box<ToHome>),
    /// A lane raises an interrupt. A world that knows where the host wants interrupts may deliver
    /// those of lanes without the function.
    Interrupt(u16),
}

/// An output of the function.
#[derive(Debug)]
pub enum Output {
    /// A packet to send on the link.
    Packet(Packet),
    /// A request to a medium.
    Media(media::Request),
    /// A change that the next start may need.
    Notify(Notification),
    /// A message to a lane. There is none while no lane is attached.
    ToLane(LaneId, Box<ToLane>),
}

/// The outcome of a host memory access that the world may be able to make itself.
#[derive(Debug)]
pub enum Reach {
    /// The access is done. For a read, the result is included.
    Done(Option<DmaResult>),
    /// The access must go over the link.
    Beyond(Dma),
}

/// An NVMe function: a PCIe endpoint with a controller behind it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Function {
    endpoint: Endpoint,
    controller: Controller,
    /// Whether the function was reset since [`Function::take_reset`] was last called.
    was_reset: bool,
    /// Bus Master Enable as lanes know it, once there are any.
    known_bus_master: Option<bool>,
    now: Instant,
}

impl Function {
    /// A function in its state after power-up at `now`.
    ///
    /// # Panics
    /// When `config` exceeds a limit that its fields name.
    pub fn new(now: Instant, config: Config) -> Self {
        let (endpoint, controller) = Self::parts(now, config);
        Self { endpoint, controller, was_reset: false, known_bus_master: None, now }
    }

    /// `count` functions of one NVM subsystem, one for each of several hosts. The first one has
    /// what they share; see [`Controller::several`].
    ///
    /// # Panics
    /// When `config` exceeds a limit that its fields name, or `count` is not in
    /// 1..=[`controller::SEATS_MAX`].
    pub fn several(now: Instant, config: &Config, count: u16) -> Vec<Self> {
        let controllers = Controller::several(now, config.controller.clone(), count);
        let function = |controller| {
            let endpoint = Self::endpoint_of(config);
            Self { endpoint, controller, was_reset: false, known_bus_master: None, now }
        };
        controllers.into_iter().map(function).collect()
    }

    /// Takes what the functions of a subsystem share from `from`, if that has it; see
    /// [`Controller::take_core`].
    pub fn take_core(&mut self, now: Instant, from: &mut Self) {
        self.now = now;
        self.controller.take_core(now, &mut from.controller);
    }

    /// Takes the set of functions that want to take what they share; see
    /// [`Controller::take_called`].
    pub fn take_called(&mut self) -> u64 {
        self.controller.take_called()
    }

    /// Gives the function to `host`; see [`Controller::set_host`].
    pub fn set_host(&mut self, now: Instant, host: HostIdentity) {
        self.controller.set_host(now, host);
    }

    /// The endpoint and the controller of a function, for a world that acts between them, such as a
    /// model of a slow device.
    ///
    /// # Panics
    /// When `config` exceeds a limit that its fields name.
    pub fn parts(now: Instant, config: Config) -> (Endpoint, Controller) {
        (Self::endpoint_of(&config), Controller::new(now, config.controller))
    }

    fn endpoint_of(config: &Config) -> Endpoint {
        let bar = Bar { prefetchable: config.prefetchable, ..Bar::memory64(BAR_BYTES) };
        let buffer = u64::from(config.controller.memory_buffer_bytes);
        let memory_buffer =
            (buffer > 0).then(|| Bar { prefetchable: config.prefetchable, ..Bar::memory64(buffer) });
        Endpoint::new(&EndpointConfig {
            identity: Identity { class: ClassCode::NVME, ..config.identity },
            link: config.link,
            serial_number: config.serial_number,
            bars: [Some(bar), None, memory_buffer, None, None, None],
            msix: Some(MsixLayout {
                bar: BarIndex::ZERO,
                vectors: config.controller.interrupt_vectors,
                table_offset: MSIX_TABLE,
                pending_offset: MSIX_PENDING,
            }),
        })
    }

    /// The controller of the function.
    pub const fn controller(&self) -> &Controller {
        &self.controller
    }

    /// The PCIe endpoint of the function.
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Whether the function was reset since the last call, which leaves its registers in their
    /// reset state.
    pub const fn take_reset(&mut self) -> bool {
        core::mem::replace(&mut self.was_reset, false)
    }

    /// Sets whether the controller stops fetching commands, because the link could not take
    /// their results.
    pub const fn set_throttled(&mut self, throttled: bool) {
        self.controller.set_throttled(throttled);
    }

    /// Sets the permissions of the host from now on; see [`Permit`].
    pub fn set_permit(&mut self, now: Instant, permit: Permit) {
        self.controller.set_permit(now, permit);
    }

    /// Applies `change` to the controller's command core, as [`Controller::with_core`] does.
    pub fn with_core<T>(&mut self, now: Instant, change: impl FnOnce(&mut Subsystem) -> T) -> T {
        self.now = now;
        self.controller.with_core(now, change)
    }

    /// Attaches a lane, as [`Controller::attach_lane`] does. A lane's accesses to host memory do
    /// not pass the function's link: the world carries them out, as those that
    /// [`Function::poll_output_within`] passes to `reach`.
    pub fn attach_lane(&mut self, now: Instant) -> (LaneId, LaneStart) {
        self.now = now;
        let attached = self.controller.attach_lane(now);
        let is_on = self.endpoint.is_bus_master();
        self.known_bus_master = Some(is_on);
        self.controller.set_bus_master(is_on);
        attached
    }

    /// Makes a lane end, as [`Controller::detach_lane`] does.
    pub fn detach_lane(&mut self, now: Instant, lane: LaneId) {
        self.now = now;
        self.controller.detach_lane(now, lane);
    }

    /// Declares a lane ended whose thread is gone, as [`Controller::lane_gone`] does.
    pub fn lane_gone(&mut self, now: Instant, lane: LaneId) {
        self.now = now;
        self.controller.lane_gone(now, lane);
    }

    /// Lets lanes know whether the function may access the host's memory, if that has changed.
    #[cold]
    fn share_bus_master(&mut self) -> Option<controller::Output> {
        let is_on = self.endpoint.is_bus_master();
        if self.known_bus_master.replace(is_on) != Some(is_on) {
            self.controller.set_bus_master(is_on);
        }
        self.controller.poll_output()
    }

    #[inline]
    fn poll_controller(&mut self) -> Option<controller::Output> {
        match self.controller.poll_output() {
            None if self.known_bus_master.is_some() => self.share_bus_master(),
            output => output,
        }
    }

    /// Writes a register on behalf of the host without a packet from the link.
    pub fn write_register(&mut self, now: Instant, offset: u32, bytes: &[u8]) {
        self.now = now;
        self.controller.handle_input(now, controller::Input::RegisterWrite { offset, bytes });
    }

    /// Polls an output like [`Engine::poll_output`], for a world with direct access to the host's
    /// memory. The controller's accesses to host memory are passed to `reach`, and go over the link
    /// only if `reach` returns [`Reach::Beyond`]. While Bus Master Enable is clear, no access is
    /// passed to `reach`.
    pub fn poll_output_within(&mut self, mut reach: impl FnMut(Dma) -> Reach) -> Option<Output> {
        loop {
            if let Some(output) = self.endpoint.poll_output() {
                if let Some(packet) = self.on_endpoint(output) {
                    return Some(Output::Packet(packet));
                }
                continue;
            }
            let dma = match self.poll_controller()? {
                controller::Output::Dma(dma) if self.endpoint.is_bus_master() => reach(dma),
                controller::Output::Dma(dma) => Reach::Beyond(dma),
                controller::Output::Media(request) => return Some(Output::Media(request)),
                controller::Output::Notify(notification) => return Some(Output::Notify(notification)),
                controller::Output::ToLane(lane, message) => return Some(Output::ToLane(lane, message)),
                controller::Output::ToHome(_) => unreachable!("the controller is no lane"),
            };
            match dma {
                Reach::Done(None) => {}
                Reach::Done(Some(result)) => {
                    self.controller.handle_input(self.now, controller::Input::Dma(result));
                }
                Reach::Beyond(dma) => self.endpoint.dma(self.now, dma),
            }
        }
    }

    /// Polls an output like [`Engine::poll_output`], but passes packets to `send` instead of
    /// returning them.
    pub fn poll_output_into(&mut self, send: &mut impl FnMut(Packet)) -> Option<Output> {
        loop {
            if let Some(output) = self.endpoint.poll_output() {
                if let Some(packet) = self.on_endpoint(output) {
                    send(packet);
                }
                continue;
            }
            match self.poll_controller()? {
                controller::Output::Dma(dma) => self.endpoint.dma_into(self.now, dma, send),
                controller::Output::Media(request) => return Some(Output::Media(request)),
                controller::Output::Notify(notification) => return Some(Output::Notify(notification)),
                controller::Output::ToLane(lane, message) => return Some(Output::ToLane(lane, message)),
                controller::Output::ToHome(_) => unreachable!("the controller is no lane"),
            }
        }
    }

    /// Handles a packet from the link, like [`Input::Packet`].
    #[inline]
    pub fn receive(&mut self, now: Instant, packet: &Packet) {
        self.now = now;
        if let Some((bar, offset)) = self.endpoint.receive(now, packet) {
            self.write_bar(bar, offset, &packet.payload);
        }
    }

    /// Handles one output of the endpoint. Returns a packet for the link, if the output is one.
    fn on_endpoint(&mut self, output: endpoint::Output) -> Option<Packet> {
        match output {
            endpoint::Output::Packet(packet) => return Some(packet),
            endpoint::Output::BarRead { token, bar, offset, length } => {
                self.read_bar(token, bar, offset, length);
            }
            endpoint::Output::BarWrite { bar, offset, data } => self.write_bar(bar, offset, &data),
            endpoint::Output::Dma(result) => {
                self.controller.handle_input(self.now, controller::Input::Dma(result));
            }
            endpoint::Output::Reset(_) => {
                self.controller.reset();
                self.was_reset = true;
            }
        }
        None
    }

    #[inline]
    fn write_bar(&mut self, bar: BarIndex, offset: u64, bytes: &[u8]) {
        if bar != BarIndex::ZERO {
            self.controller.handle_input(self.now, controller::Input::MemoryBufferWrite { offset, bytes });
        } else if let Ok(offset) = u32::try_from(offset) {
            self.controller.handle_input(self.now, controller::Input::RegisterWrite { offset, bytes });
        }
    }

    fn read_bar(&mut self, token: endpoint::BarToken, bar: BarIndex, offset: u64, length: u32) {
        let mut bytes = [0; 4096];
        match (u32::try_from(offset), bytes.get_mut(..length as usize)) {
            (_, Some(bytes)) if bar != BarIndex::ZERO => {
                self.controller.read_memory_buffer(offset, bytes);
                self.endpoint.bar_read_done_bytes(token, bytes);
            }
            (Ok(offset), Some(bytes)) => {
                self.controller.read_register(offset, bytes);
                self.endpoint.bar_read_done_bytes(token, bytes);
            }
            _ => self.endpoint.bar_read_done(token, None),
        }
    }
}

impl Engine for Function {
    type Input<'a> = Input;
    type Output = Output;

    fn handle_input(&mut self, now: Instant, input: Input) {
        self.now = now;
        match input {
            Input::Packet(packet) => self.receive(now, &packet),
            Input::Media(completion) => {
                self.controller.handle_input(now, controller::Input::Media(completion))
            }
            Input::HotReset => self.endpoint.hot_reset(),
            Input::FromLane(lane, message) => {
                self.controller.handle_input(now, controller::Input::FromLane(lane, message));
            }
            Input::Interrupt(vector) => self.endpoint.dma(now, Dma::Interrupt { vector }),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
        }
        if self.controller.poll_timeout().is_some_and(|at| at <= now) {
            self.controller.handle_timeout(now);
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.poll_output_within(Reach::Beyond)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Instant::earlier(self.endpoint.poll_timeout(), self.controller.poll_timeout())
    }
}
