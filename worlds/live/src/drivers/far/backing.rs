//! The backing of a far end: media, or the process that has a device.

use std::collections::VecDeque;
use std::fmt;
use std::io;

use assemblies::far::Device;
use engine::Instant;

use super::Event;
use crate::reactor::Sources;

/// The world's part of a far end's device: media, or another process.
pub trait Backing {
    /// The engine's part of the device.
    type Device: Device;

    /// Registers the descriptors whose news end a sleep, before the first turn.
    ///
    /// # Errors
    /// When the kernel can't report news of a descriptor.
    fn start(&mut self, sources: &Sources) -> io::Result<()>;

    /// Registers descriptors that are new since the last call, at the beginning of each turn.
    ///
    /// # Errors
    /// When the kernel can't report news of a descriptor.
    fn register_new(&mut self, _sources: &Sources) -> io::Result<()> {
        Ok(())
    }

    /// Carries out a request of the device. Answers that are there at once are added to `inputs`.
    fn on_output(
        &mut self,
        output: <Self::Device as Device>::Output,
        inputs: &mut VecDeque<<Self::Device as Device>::Input>,
        report: &mut impl FnMut(Event),
    );

    /// Takes completions and arrivals, and gives the system its next work. Returns whether there
    /// were any.
    ///
    /// # Errors
    /// When the world fails in a way that ends the driver.
    fn reap<F: FnMut(Event)>(
        &mut self,
        device: &Self::Device,
        world: &mut Reaping<'_, Self::Device, F>,
    ) -> io::Result<bool>;

    /// Sends waiting bytes; returns whether the system took any.
    fn flush(&mut self) -> bool {
        false
    }

    /// Whether more of the hosts' input can be passed on to the device.
    fn has_room(&self) -> bool {
        true
    }

    /// Whether work is in flight that an orderly end waits for.
    fn is_busy(&self) -> bool;

    /// Notifies the backing that the driver is ending in an orderly way.
    fn on_stop(&mut self, _: &Self::Device) {}

    /// When [`Backing::reap`] must be called even if nothing has happened.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// The context of [`Backing::reap`] in a turn.
pub struct Reaping<'a, D: Device, F> {
    /// The time of the turn.
    pub now: Instant,
    /// The descriptors whose news end a sleep.
    pub sources: &'a Sources,
    /// Inputs for the device, in order.
    pub inputs: &'a mut VecDeque<D::Input>,
    /// Reports events to the application.
    pub report: &'a mut F,
}

impl<D: Device, F> fmt::Debug for Reaping<'_, D, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reaping").field("now", &self.now).finish_non_exhaustive()
    }
}
