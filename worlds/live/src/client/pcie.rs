//! A controller on PCI Express: at the far end of a tunnel, or in this process.

use assemblies::near::{ControllerIndex, Event as NearEvent, Near};
use engine::{Instant, Nanos};
use nvme::host::Command;
use nvme_pcie::function;
use nvme_pcie::host::{Data as Place, DataRegion, Host, Submission, SubmitError as Refused};
use pcie::memory::Memory;
use pcie::wire::Bdf;
use tunnel::Event as Link;

use super::error::{AttachError, Failure, SubmitError};
use super::event::{Event, News};
use super::hierarchy::Hierarchy;
use super::options::Options;
use super::slots::Slots;
use super::transport::{Identity, Transport};
use crate::carrier::route::Route;
use crate::drivers::near::NearDriver;
use crate::media::Media;
use crate::reactor::blocking::Blocking;

/// The first controller of a host's hierarchy.
#[derive(Debug)]
pub(super) struct Pcie {
    hierarchy: Hierarchy,
    controller: ControllerIndex,
    slots: Slots,
}

impl Pcie {
    /// Begins to dial the far end called `name`.
    pub(super) fn over_tunnel(name: &str, options: &Options) -> Result<Self, AttachError> {
        Ok(Self::of(Hierarchy::over_tunnels(&[name.to_owned()], options)?, options))
    }

    /// Begins to dial the far end to which `route` leads.
    pub(super) fn over_route(route: &Route, options: &Options) -> Result<Self, AttachError> {
        Ok(Self::of(Hierarchy::over_routes(vec![route.clone()], options)?, options))
    }

    /// Makes a function in this process, on the root port.
    pub(super) fn direct(
        config: function::Config,
        media: Media,
        options: &Options,
    ) -> Result<Self, AttachError> {
        Ok(Self::of(Hierarchy::direct(config, media, options)?, options))
    }

    fn of(hierarchy: Hierarchy, options: &Options) -> Self {
        Self { hierarchy, controller: ControllerIndex(0), slots: Slots::new(options.slots) }
    }

    pub(super) const fn near(&self) -> &Near {
        self.hierarchy.near()
    }

    pub(super) const fn near_mut(&mut self) -> &mut Near {
        self.hierarchy.near_mut()
    }

    fn host(&self) -> Option<&Host> {
        self.near().driver(self.controller)
    }

    /// The controller's place in the hierarchy.
    fn bdf(&self) -> Bdf {
        let mut controllers = self.near().controllers();
        controllers.find(|(index, _)| *index == self.controller).map(|(_, bdf)| bdf).unwrap_or_default()
    }
}

impl Transport for Pcie {
    type Driver = NearDriver;

    fn blocking(&self) -> &Hierarchy {
        &self.hierarchy
    }
    fn blocking_mut(&mut self) -> &mut Hierarchy {
        &mut self.hierarchy
    }
    fn into_blocking(self) -> Blocking<NearDriver> {
        self.hierarchy
    }

    fn name(&self) -> String {
        self.bdf().to_string()
    }
    fn identity(&self) -> Option<Identity<'_>> {
        self.host()?.identity().map(Identity::from)
    }
    fn wait_ready(&mut self, timeout: Nanos) -> Result<(), AttachError> {
        self.controller = self.hierarchy.wait_ready(timeout)?;
        Ok(())
    }

    fn data_region(&self) -> DataRegion {
        self.host().map_or(DataRegion { base: 0, length: 0 }, |host| self.slots.rest(host.data_region()))
    }
    fn bytes(&mut self, place: Place) -> &[u8] {
        let bytes = self.near().memory().slice(place.address, length(place));
        bytes.expect("data lies in the region that the driver gave")
    }
    fn put<T>(&mut self, place: Place, fill: impl FnOnce(&mut [u8]) -> T) -> T {
        let bytes = self.near_mut().memory_mut().slice_mut(place.address, length(place));
        fill(bytes.expect("data lies in the region that the driver gave"))
    }

    #[inline]
    fn submit(&mut self, now: Instant, submission: Submission) -> Result<(), SubmitError> {
        let submitted = self.hierarchy.near_mut().submit(now, self.controller, submission);
        submitted.map(|_| ()).map_err(SubmitError::Pcie)
    }
    fn submit_buffers(
        &mut self,
        now: Instant,
        queue: Option<u16>,
        command: Command,
    ) -> Result<(), SubmitError> {
        let Self { hierarchy, controller, slots } = self;
        let near = hierarchy.near_mut();
        let host = near.driver(*controller).ok_or(SubmitError::Pcie(Refused::NotReady))?;
        let (target, memory) = (Slots::target(host, queue), near.memory_mut());
        let submission = slots.issue(target, &command, |at, bytes| memory.write(at, bytes))?;
        near.submit(now, *controller, submission).map(|_| ()).map_err(|error| {
            slots.retire(submission.cookie);
            SubmitError::Pcie(error)
        })
    }
    /// Reads the first double word of the configuration space.
    fn probe(&mut self, now: Instant) -> Result<(), SubmitError> {
        let target = self.bdf();
        let asked = self.near_mut().config_read(now, target, 0, 0);
        asked.map_err(|_| SubmitError::Pcie(Refused::Busy))
    }
    fn read_register(&mut self, now: Instant, offset: u32, length: u32) -> Result<(), SubmitError> {
        let controller = self.controller;
        let asked = self.near_mut().register_read(now, controller, (offset, length), 0);
        asked.map_err(|_| SubmitError::Pcie(Refused::Busy))
    }
    fn write_register(&mut self, now: Instant, offset: u32, value: u32) {
        let controller = self.controller;
        self.near_mut().register_write(now, controller, offset, value);
    }

    #[inline]
    fn on_event(&mut self, event: NearEvent) -> Option<Event> {
        Some(match event {
            NearEvent::Completed { completed, .. } => {
                let memory = self.hierarchy.near().memory();
                Event::Completed(self.slots.complete(&completed, |at, bytes| memory.read(at, bytes)))
            }
            NearEvent::ConfigRead { result, .. } => Event::Probed(result.map_err(AttachError::ConfigRead)),
            NearEvent::RegisterRead { value, .. } => Event::Register(value),
            NearEvent::Ready { controller } => {
                self.controller = controller;
                Event::Here(None)
            }
            NearEvent::Resetting { reason, .. } => Event::Away(News::Resetting(reason)),
            NearEvent::Link { event: event @ (Link::LinkDown { .. } | Link::Interrupted { .. }), .. } => {
                Event::Away(News::Link(event))
            }
            NearEvent::Link { event: event @ Link::Resumed, .. } => Event::Here(Some(News::Link(event))),
            NearEvent::Link { event: event @ (Link::PathAway(_) | Link::PathBack(_)), .. } => {
                Event::News(News::Link(event))
            }
            NearEvent::Failed(failure) => Event::Failed(Failure::Pcie(failure)),
            _ => return None,
        })
    }
}

/// The length of `place`, for memory.
pub(super) fn length(place: Place) -> usize {
    usize::try_from(place.length).expect("32 bits fit")
}
