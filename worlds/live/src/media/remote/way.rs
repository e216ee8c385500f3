//! The two ways to another device, alike.

use std::io;
use std::os::fd::RawFd;

use engine::{Buffer, Nanos};
use nvme::wire::identify::IdentifyController;
use nvme::wire::{Status, SubmissionQueueEntry};
use nvme_fabrics::host::Data;
use nvme_pcie::host::Namespace;

use super::fabrics::Fabrics;
use super::pcie::Pcie;

/// Dataset Management, and Write Zeroes, in Optional NVM Command Support (ONCS).
const ONCS_DATASET_MANAGEMENT: u16 = 1 << 2;
const ONCS_WRITE_ZEROES: u16 = 1 << 3;
/// Bytes of the unit of the Maximum Data Transfer Size (MDTS), as a power of two.
const PAGE_POWER: u32 = 12;

/// What a device says of itself.
#[derive(Clone, Debug)]
pub(super) struct Device {
    pub(super) serial: String,
    pub(super) namespaces: Vec<Namespace>,
    pub(super) write_zeroes: bool,
    pub(super) dataset_management: bool,
    /// The longest piece of a read or a write, and of a Write Zeroes, in bytes.
    pub(super) transfer_max: u64,
    pub(super) zeroes_max: u64,
}

impl Device {
    pub(super) fn new(
        controller: &IdentifyController,
        namespaces: Vec<Namespace>,
        transfer_bytes_max: u32,
    ) -> Self {
        let commands = controller.optional_nvm_commands;
        let limit = match controller.maximum_data_transfer_size {
            0 => None,
            power => 1_u64.checked_shl(u32::from(power) + PAGE_POWER),
        };
        Self {
            serial: controller.serial_number.to_string(),
            namespaces,
            write_zeroes: commands & ONCS_WRITE_ZEROES != 0,
            dataset_management: commands & ONCS_DATASET_MANAGEMENT != 0,
            transfer_max: u64::from(transfer_bytes_max),
            // Write Zeroes moves no data, but controllers before 2.0 are known to apply the limit of those that do.
            zeroes_max: limit.filter(|limit| *limit > 0).unwrap_or(u64::MAX),
        }
    }
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
    /// This way ends here: another one must be made.
    Lost(String),
}

/// Why a command was not taken.
pub(super) enum Refused {
    /// As many are under way as can be.
    Busy,
    /// The device is not there.
    Lost,
    /// It can't be.
    Impossible,
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
