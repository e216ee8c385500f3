//! What the home thread of a guest's function and the threads of its lanes send each other.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nvme_pcie::controller::{Statistics, ToHome, ToLane};

use crate::drivers::guest::doorbells::ForLanes;
use crate::drivers::guest::signal::Signaller;
use crate::sys::shared::SharedRegion;

/// A letter of the home thread to a lane. Letters arrive in their order.
pub(super) enum Letter {
    /// A message of the controller.
    Engine(Box<ToLane>),
    /// Memory of the guest may be used.
    Map(SharedRegion),
    /// Memory of the guest must not be used any more.
    Unmap(u64, u64),
    /// From now on this descriptor signals the vector.
    Vector(usize, Option<Arc<Signaller>>),
    /// Doorbells that the client may ring by stores, or none.
    Doorbells(Option<ForLanes>),
    /// The client is gone, with its memory and its vectors.
    ClientGone,
    /// Report that all letters until this one were heeded.
    Fence(u64),
    /// End once media have answered.
    End,
    /// Panic, for tests.
    #[cfg(test)]
    Panic,
}

/// A letter of a lane to the home thread. Those of one lane arrive in their order.
pub(super) enum News {
    /// A message for the controller.
    Engine(Box<ToHome>),
    /// The lane raises an interrupt for which it has no descriptor.
    Interrupt(u16),
    /// All letters until this fence were heeded.
    Fenced(u64),
    /// A descriptor of an interrupt can't be signalled.
    SignalFailed(usize, std::io::Error),
    /// The lane's thread has failed. Everything that it had was dropped.
    Failed,
}

/// What a lane has done so far. The lane alone writes it, when it has something to add.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Counts {
    commands: AtomicU64,
    fetches: AtomicU64,
    interrupts: AtomicU64,
    processor: AtomicU64,
}

impl Counts {
    /// Notes the lane's statistics, and the processor time of its thread.
    pub(super) fn set(&self, statistics: Statistics, processor: u64) {
        let Statistics { commands, fetches, interrupts, .. } = statistics;
        let pairs = [
            (&self.commands, commands),
            (&self.fetches, fetches),
            (&self.interrupts, interrupts),
            (&self.processor, processor),
        ];
        for (place, value) in pairs {
            place.store(value, Ordering::Relaxed);
        }
    }

    pub(super) fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }

    pub(super) fn fetches(&self) -> u64 {
        self.fetches.load(Ordering::Relaxed)
    }

    pub(super) fn interrupts(&self) -> u64 {
        self.interrupts.load(Ordering::Relaxed)
    }

    pub(super) fn processor(&self) -> u64 {
        self.processor.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counts").field("commands", &self.commands()).finish_non_exhaustive()
    }
}
