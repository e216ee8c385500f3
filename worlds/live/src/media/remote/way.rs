//! One interface for the two ways to another device.

use std::io;
use std::os::fd::RawFd;

use engine::{Buffer, Nanos};
use nvme::host::Data;
use nvme::host::Namespace;
use nvme::wire::{Status, SubmissionQueueEntry};

use super::fabrics::Fabrics;
use super::pcie::Pcie;
use crate::media::commands::{Abilities, Refused};

/// What a device reports about itself.
#[derive(Clone, Debug)]
pub(super) struct Device {
    pub(super) serial: String,
    pub(super) namespaces: Vec<Namespace>,
    pub(super) abilities: Abilities,
}

/// A command that has ended.
pub(super) struct Ended {
    /// The name under which the command was submitted.
    pub(super) piece: u32,
    pub(super) result: Result<Buffer, Status>,
    /// The device did not answer, because it is away.
    pub(super) is_unheard: bool,
}

/// An event of a way to a device.
pub(super) enum Happened {
    Ended(Ended),
    /// The device can't be reached; commands wait.
    Away(String),
    /// The device can be reached, for the first time or again.
    Here,
    /// A note that the device's owner may want to know.
    Note(String),
    /// This way has ended: another one must be made.
    Lost(String),
}

/// A way to a device.
pub(super) enum Way {
    /// A far PCIe device.
    Pcie(Box<Pcie>),
    /// A subsystem of NVMe over Fabrics.
    Fabrics(Box<Fabrics>),
}

impl Way {
    /// The descriptor that becomes readable when there is something to do.
    pub(super) fn poll_fd(&self) -> RawFd {
        match self {
            Self::Pcie(way) => way.poll_fd(),
            Self::Fabrics(way) => way.poll_fd(),
        }
    }

    /// How long at most until there is something to do.
    pub(super) fn wake_in(&self) -> Option<Nanos> {
        match self {
            Self::Pcie(way) => way.wake_in(),
            Self::Fabrics(way) => way.wake_in(),
        }
    }

    /// Does what there is to do, without waiting; returns whether there was anything.
    pub(super) fn step(&mut self) -> io::Result<bool> {
        match self {
            Self::Pcie(way) => way.step(),
            Self::Fabrics(way) => way.step(),
        }
    }

    /// The next event, if any.
    pub(super) fn next(&mut self) -> Option<Happened> {
        match self {
            Self::Pcie(way) => way.next(),
            Self::Fabrics(way) => way.next(),
        }
    }

    /// Submits a command under the name `piece`, which no other command under way may have.
    pub(super) fn submit(
        &mut self,
        piece: u32,
        entry: SubmissionQueueEntry,
        data: Data,
    ) -> Result<(), Refused> {
        match self {
            Self::Pcie(way) => way.submit(piece, entry, &data),
            Self::Fabrics(way) => way.submit(piece, entry, data),
        }
    }

    /// What the device reports about itself; `None` before it was first reached.
    pub(super) fn device(&self) -> Option<Device> {
        match self {
            Self::Pcie(way) => way.device(),
            Self::Fabrics(way) => way.device(),
        }
    }
}
