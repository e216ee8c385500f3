//! Devices behind the far end's link.

use alloc::vec::Vec;

use engine::{Engine, Instant};
use nvme::media;
use nvme::subsystem::{HostIdentity, Notification, Permit};
use nvme_pcie::function::{self, Function};
use pcie::config::ConfigSpace;
use pcie::wire::Packet;
use serde::{Deserialize, Serialize};
use tunnel::frame::{REGISTERS_MAX, Register, RegisterSpace, Registers};

/// Length in bytes of Capabilities (CAP) and Version (VS) of an NVMe controller.
const PROPERTIES_BYTES: usize = 12;

/// A PCIe function behind the tunnel, with its requests to the world.
pub trait Device {
    /// Inputs of the device.
    type Input;
    /// The device's requests to the world.
    type Output;

    /// A packet has come over the link.
    fn on_packet(&mut self, now: Instant, packet: &Packet);
    /// The link went down, or was reset.
    fn on_hot_reset(&mut self, now: Instant);
    /// Handles an input of the world.
    fn on_input(&mut self, now: Instant, input: Self::Input);
    /// The next thing that the device says; `None` when it has nothing to say.
    fn poll(&mut self) -> Option<Said<Self::Output>>;
    /// As [`Device::poll`], but packets are given to `send` instead of being returned.
    #[inline]
    fn poll_into(&mut self, send: &mut impl FnMut(Packet)) -> Option<Said<Self::Output>> {
        loop {
            match self.poll()? {
                Said::Packet(packet) => send(packet),
                said => return Some(said),
            }
        }
    }
    /// Gives `show` the registers that the host's end may answer for the function, configuration
    /// space first. Does nothing unless the function was reset since the last call.
    #[inline]
    fn show(&mut self, _show: &mut impl FnMut(Registers)) {}
    /// While `throttled`, the link does not take the results of new work.
    fn set_throttled(&mut self, throttled: bool);
    /// Gives the device to `host` from now on. A device that serves one host ignores it.
    fn set_host(&mut self, _now: Instant, _host: HostIdentity) {}
    /// Takes what the devices of several hosts share, if `from` has it. Only the device that has it
    /// may be called.
    fn take_shared(&mut self, _now: Instant, _from: &mut Self) {}
    /// Takes the set of devices, one bit each, that are to take what they share.
    fn take_called(&mut self) -> u64 {
        0
    }
    /// The device among several that an input of the world is for; `None` if any may have it.
    fn recipient(&self, _input: &Self::Input) -> Option<usize> {
        None
    }
    /// Sets the host's permit from now on. A device that can't distinguish hosts ignores it.
    fn set_permit(&mut self, _now: Instant, _permit: &Permit) {}
    /// Whether there is a device. A device that comes and goes reports that with [`Said::Present`]
    /// and [`Said::Absent`].
    fn is_present(&self) -> bool {
        true
    }
    /// Handles the deadlines that are due at `now`.
    fn on_timeout(&mut self, now: Instant);
    /// When [`Device::on_timeout`] wants to be called, if ever.
    fn deadline(&self) -> Option<Instant>;
}

/// Shows all of function 0's configuration space.
pub(crate) fn show_configuration(space: &ConfigSpace, show: &mut impl FnMut(Registers)) {
    let register = |(value, writable)| Register { value, writable };
    let all: Vec<Register> = space.registers().map(register).collect();
    for (offset, registers) in (0..).step_by(REGISTERS_MAX * 4).zip(all.chunks(REGISTERS_MAX)) {
        let (space, registers) = (RegisterSpace::Configuration, registers.into());
        show(Registers { function: 0, space, offset, registers });
    }
}

/// Outputs of a [`Device`].
#[derive(Debug)]
pub enum Said<O> {
    /// A packet to send over the link.
    Packet(Packet),
    /// A request to the world.
    World(O),
    /// The device is present from now on.
    Present,
    /// The device has gone. Hosts receive this reason.
    Absent(&'static str),
}

/// An SSD's requests to the world.
#[derive(Debug, Serialize, Deserialize)]
pub enum Storage {
    /// A request to a medium.
    Media(media::Request),
    /// A change that may be worth remembering for the next start.
    Notify(Notification),
}

impl From<function::Output> for Said<Storage> {
    #[inline]
    fn from(output: function::Output) -> Self {
        match output {
            function::Output::Packet(packet) => Self::Packet(packet),
            function::Output::Media(request) => Self::World(Storage::Media(request)),
            function::Output::Notify(notification) => Self::World(Storage::Notify(notification)),
            function::Output::ToLane(..) => unreachable!("no lane is attached"),
        }
    }
}

impl Device for Function {
    type Input = media::Completion;
    type Output = Storage;

    fn on_packet(&mut self, now: Instant, packet: &Packet) {
        self.receive(now, packet);
    }
    fn on_hot_reset(&mut self, now: Instant) {
        self.handle_input(now, function::Input::HotReset);
    }
    fn on_input(&mut self, now: Instant, input: media::Completion) {
        self.handle_input(now, function::Input::Media(input));
    }
    #[inline]
    fn poll(&mut self) -> Option<Said<Storage>> {
        self.poll_output().map(Said::from)
    }
    #[inline]
    fn poll_into(&mut self, send: &mut impl FnMut(Packet)) -> Option<Said<Storage>> {
        self.poll_output_into(send).map(Said::from)
    }
    #[inline]
    fn show(&mut self, show: &mut impl FnMut(Registers)) {
        if self.take_reset() {
            show_configuration(self.endpoint().config(), show);
            let mut properties = [0; PROPERTIES_BYTES];
            self.controller().read_register(0, &mut properties);
            let constant = |bytes: &[u8; 4]| Register { value: u32::from_le_bytes(*bytes), writable: 0 };
            let registers = properties.as_chunks().0.iter().map(constant).collect();
            show(Registers { function: 0, space: RegisterSpace::Bar(0), offset: 0, registers });
        }
    }
    fn set_throttled(&mut self, throttled: bool) {
        Self::set_throttled(self, throttled);
    }
    fn set_host(&mut self, now: Instant, host: HostIdentity) {
        Self::set_host(self, now, host);
    }
    fn take_shared(&mut self, now: Instant, from: &mut Self) {
        self.take_core(now, from);
    }
    fn take_called(&mut self) -> u64 {
        Self::take_called(self)
    }
    fn recipient(&self, input: &media::Completion) -> Option<usize> {
        let (media::Completion::Data { id, .. } | media::Completion::Done { id, .. }) = input;
        self.controller().requester(*id).map(usize::from)
    }
    fn set_permit(&mut self, now: Instant, permit: &Permit) {
        Self::set_permit(self, now, permit.clone());
    }
    fn on_timeout(&mut self, now: Instant) {
        self.handle_timeout(now);
    }
    fn deadline(&self) -> Option<Instant> {
        self.poll_timeout()
    }
}
