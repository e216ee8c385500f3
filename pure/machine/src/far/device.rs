//! What can be behind the far end's link.

use engine::{Engine, Instant};
use nvme::media;
use nvme::subsystem::Notification;
use nvme_pcie::function::{self, Function};
use pcie::wire::Packet;

/// A PCIe function behind the tunnel, together with what it wants of the world.
pub trait Device {
    /// What the world tells it.
    type Input;
    /// What it asks of the world.
    type Output;

    /// A packet has come over the link.
    fn on_packet(&mut self, now: Instant, packet: &Packet);
    /// The link went down, or was reset.
    fn on_hot_reset(&mut self, now: Instant);
    /// The world tells it something.
    fn on_input(&mut self, now: Instant, input: Self::Input);
    /// The next of what it says, until there is nothing.
    fn poll(&mut self) -> Option<Said<Self::Output>>;
    /// As [`Device::poll`]; packets are given to `send` and not said.
    #[inline]
    fn poll_into(&mut self, send: &mut impl FnMut(Packet)) -> Option<Said<Self::Output>> {
        loop {
            match self.poll()? {
                Said::Packet(packet) => send(packet),
                said => return Some(said),
            }
        }
    }
    /// While `throttled`, the link does not take what comes of new work.
    fn set_throttled(&mut self, throttled: bool);
    /// Whether there is a device. One that comes and goes says so with [`Said::Present`].
    fn is_present(&self) -> bool {
        true
    }
    /// Does what has become due.
    fn on_timeout(&mut self, now: Instant);
    /// When [`Device::on_timeout`] wants to be called, if ever.
    fn deadline(&self) -> Option<Instant>;
}

/// What a device says.
#[derive(Debug)]
pub enum Said<O> {
    /// To be sent over the link.
    Packet(Packet),
    /// For the world.
    World(O),
    /// It is there from now on.
    Present,
    /// It has gone; this is what hosts are told.
    Absent(&'static str),
}

/// What an SSD asks of the world.
#[derive(Debug)]
pub enum Storage {
    /// Of a medium.
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
    fn set_throttled(&mut self, throttled: bool) {
        Self::set_throttled(self, throttled);
    }
    fn on_timeout(&mut self, now: Instant) {
        self.handle_timeout(now);
    }
    fn deadline(&self) -> Option<Instant> {
        self.poll_timeout()
    }
}
