//! What is behind a far end, in the world.

use std::collections::VecDeque;
use std::fmt;
use std::io;

use engine::Instant;
use machine::far::Device;

use super::Event;
use crate::reactor::Sources;

/// The world's part of a device: media, or another process.
pub trait Backing {
    /// The engine's part.
    type Device: Device;

    /// Adds descriptors that end a sleep, once.
    ///
    /// # Errors
    /// When they can't be waited for.
    fn register(&mut self, sources: &Sources) -> io::Result<()>;

    /// Does what the device asks for; what is answered at once goes to `inputs`.
    fn on_output(
        &mut self,
        output: <Self::Device as Device>::Output,
        inputs: &mut VecDeque<<Self::Device as Device>::Input>,
        report: &mut impl FnMut(Event),
    );

    /// Takes what has come, and gives the system what is to be done. Returns whether there was anything.
    ///
    /// # Errors
    /// When the world fails in a way that ends the driver.
    fn reap<F: FnMut(Event)>(
        &mut self,
        device: &Self::Device,
        world: &mut World<'_, Self::Device, F>,
    ) -> io::Result<bool>;

    /// Sends what waits to be sent; returns whether any of it was taken.
    fn flush(&mut self) -> bool {
        false
    }

    /// Whether more of what hosts send can be passed on.
    fn has_room(&self) -> bool {
        true
    }

    /// Whether something is under way that an orderly end waits for.
    fn is_busy(&self) -> bool;

    /// The driver is to end in an orderly way.
    fn on_stop(&mut self, _: &Self::Device) {}

    /// When [`Backing::reap`] wants to be called even though nothing has happened.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// What a backing has in a turn.
pub struct World<'a, D: Device, F> {
    /// The time.
    pub now: Instant,
    /// The descriptors that end a sleep.
    pub sources: &'a Sources,
    /// For the device.
    pub inputs: &'a mut VecDeque<D::Input>,
    /// For the application.
    pub report: &'a mut F,
}

impl<D: Device, F> fmt::Debug for World<'_, D, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("now", &self.now).finish_non_exhaustive()
    }
}
