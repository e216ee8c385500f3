//! The functions of every transport to a controller.

use engine::Instant;
use nvme::host::{Command, Namespace};
use nvme::wire::identify::IdentifyController;
use nvme_pcie::host::{self, Data as Place, DataRegion, Submission};

use super::error::{AttachError, SubmitError};
use super::event::Event;
use crate::reactor::blocking::{Application, Blocking, WaitError};

/// A controller's report about itself.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// The Identify Controller data structure.
    pub controller: &'a IdentifyController,
    /// The active namespaces, at most [`nvme::host::NAMESPACES_MAX`].
    pub namespaces: &'a [Namespace],
    /// The number of I/O queues that this host has.
    pub queues: u16,
    /// The most bytes that one command moves.
    pub transfer_bytes_max: u32,
}

impl<'a> From<&'a host::Identity> for Identity<'a> {
    fn from(identity: &'a host::Identity) -> Self {
        Self {
            controller: &identity.controller,
            namespaces: &identity.namespaces,
            queues: identity.io_queues,
            transfer_bytes_max: identity.transfer_bytes_max,
        }
    }
}

/// A transport to a controller: a driver in its loop, and a host's view of it.
pub(super) trait Transport {
    /// The driver in the loop.
    type Driver: Application;

    fn blocking(&self) -> &Blocking<Self::Driver>;
    fn blocking_mut(&mut self) -> &mut Blocking<Self::Driver>;
    fn into_blocking(self) -> Blocking<Self::Driver>;

    /// Whether the transport is a fabric.
    fn is_fabric(&self) -> bool {
        false
    }
    /// The controller's name for users.
    fn name(&self) -> String;
    fn identity(&self) -> Option<Identity<'_>>;
    fn wait_ready(&mut self, timeout: engine::Nanos) -> Result<(), AttachError>;
    /// Why the controller refuses this host for good, if it does at present.
    fn refusal(&self) -> Option<&str> {
        None
    }

    /// Memory for data that have a place.
    fn data_region(&self) -> DataRegion;
    fn bytes(&mut self, place: Place) -> &[u8];
    fn put<T>(&mut self, place: Place, fill: impl FnOnce(&mut [u8]) -> T) -> T;

    /// Takes a command whose data have a place.
    fn submit(&mut self, now: Instant, submission: Submission) -> Result<(), SubmitError>;
    /// Takes a command whose data are in buffers. An I/O command has the number that chooses its
    /// queue, an admin command has none.
    fn submit_buffers(
        &mut self,
        now: Instant,
        queue: Option<u16>,
        command: Command,
    ) -> Result<(), SubmitError>;
    /// Begins a round trip to the controller that involves no medium.
    fn probe(&mut self, now: Instant) -> Result<(), SubmitError>;

    /// Begins to read a register of 4 or 8 bytes. On fabrics, commands read properties.
    fn read_register(&mut self, _: Instant, offset: u32, _: u32) -> Result<(), SubmitError> {
        panic!("a register at {offset:#x} of a fabric")
    }
    /// Writes a register of 4 bytes. On fabrics, commands write properties.
    fn write_register(&mut self, _: Instant, offset: u32, _: u32) {
        panic!("a register at {offset:#x} of a fabric")
    }

    /// The next event that does not come from the driver.
    fn poll_own(&mut self) -> Option<Event> {
        None
    }
    /// The event for the controller's user that an event of the driver means, if any.
    fn on_event(&mut self, event: <Self::Driver as Application>::Event) -> Option<Event>;

    fn next_event(&mut self, deadline: Option<Instant>) -> Result<Option<Event>, WaitError> {
        loop {
            if let Some(event) = self.poll_own() {
                return Ok(Some(event));
            }
            let Some(event) = self.blocking_mut().next_event(deadline)? else { return Ok(None) };
            if let Some(event) = self.on_event(event) {
                return Ok(Some(event));
            }
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.poll_own() {
                return Some(event);
            }
            let event = self.blocking_mut().poll_event()?;
            if let Some(event) = self.on_event(event) {
                return Some(event);
            }
        }
    }
}
