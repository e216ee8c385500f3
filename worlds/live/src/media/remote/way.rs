//! The two ways to another device, alike.

use std::io;
use std::os::fd::RawFd;

use engine::{Buffer, Nanos};
use nvme::host::Data;
use nvme::host::Namespace;
use nvme::wire::{Status, SubmissionQueueEntry};

use super::fabrics::Fabrics;
use super::pcie::Pcie;
use crate::media::commands::{Abilities, Refused};

/// What a device says of itself.
#[derive(Clone, Debug)]
pub(super) struct Device {
    pub(super) serial: String,
    pub(super) namespaces: Vec<Namespace>,
    pub(super) abilities: Abilities,
}

/// A command that has ended.
pub(super) struct Ended {
    /// The name that it was given.
    pub(super) piece: u32,
    pub(super) result: Result<Buffer, Status>,
    /// The device was not heard: it is away.
    pub(super) is_unheard: bool,
}

/// What happens to a device.
pub(super) enum Happened {
    Ended(Ended),
    /// It can't be reached; commands wait.
    Away(String),
    /// It can be reached, for the first time or again.
    Here,
    /// Something that its owner may want to know.
    Note(String),
    /// This way ends here: another one must be made.
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
    /// Becomes readable when there is something to do.
    pub(super) fn poll_fd(&self) -> RawFd {
        match self {
            Self::Pcie(way) => way.poll_fd(),
            Self::Fabrics(way) => way.poll_fd(),
        }
    }

    /// After how long there is something to do in any case.
    pub(super) fn wake_in(&self) -> Option<Nanos> {
        match self {
            Self::Pcie(way) => way.wake_in(),
            Self::Fabrics(way) => way.wake_in(),
        }
    }

    /// Does what there is to do, without waiting; whether there was anything.
    pub(super) fn step(&mut self) -> io::Result<bool> {
        match self {
            Self::Pcie(way) => way.step(),
            Self::Fabrics(way) => way.step(),
        }
    }

    /// What has happened next.
    pub(super) fn next(&mut self) -> Option<Happened> {
        match self {
            Self::Pcie(way) => way.next(),
            Self::Fabrics(way) => way.next(),
        }
    }

    /// Submits a command under a name that no other has that is under way.
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

    /// What the device says of itself, once it was there.
    pub(super) fn device(&self) -> Option<Device> {
        match self {
            Self::Pcie(way) => way.device(),
            Self::Fabrics(way) => way.device(),
        }
    }
}
