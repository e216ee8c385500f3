//! Errors in making or removing a block device of this machine.

use std::io;

use live::drivers::ublk::FindError;
use live::sys::ublk;
use miette::Diagnostic;
use thiserror::Error as ThisError;

use crate::exit::Exit;

/// A block device can't be made, or not be removed.
#[derive(Debug, ThisError, Diagnostic)]
pub(crate) enum BlockError {
    #[error("{0}")]
    #[diagnostic(help("{}", .0.remedy()))]
    Ublk(#[from] ublk::Error),

    #[error("{0}")]
    #[diagnostic(help("farlane use disconnect removes a block device; farlane connect --list shows all"))]
    Find(FindError),

    #[error(
        "this kernel can't make block devices for other processes: {0}, and there is no /dev/nvme-fabrics"
    )]
    #[diagnostic(help(
        "modprobe ublk_drv, or modprobe nvme-tcp, loads the missing module; distributions have them in a package of further kernel modules"
    ))]
    NoWay(ublk::Error),

    #[error("the kernel's NVMe/TCP initiator can't be used: {0}")]
    #[diagnostic(help("modprobe nvme-tcp loads it; only root may use it"))]
    NoInitiator(io::Error),

    #[error("the kernel's NVMe/TCP initiator does not connect to this process: {0}")]
    #[diagnostic(help("dmesg says why; farlane connect --over ublk needs no initiator"))]
    Initiator(io::Error),

    #[error(
        "this kernel's NVMe/TCP initiator can't authenticate, and every user of this machine could reach the far SSD"
    )]
    #[diagnostic(help("--insecure continues without authentication; --over ublk needs none"))]
    NoAuthentication,

    #[error("{device} is in use: {}", users.join(", "))]
    #[diagnostic(help("unmount it first; --force removes it nevertheless, and its users see errors"))]
    InUse { device: String, users: Vec<String> },

    #[error("no block device is connected{}", what.as_ref().map(|what| format!(" as {what}")).unwrap_or_default())]
    #[diagnostic(help("farlane connect --list shows the connected block devices"))]
    NotConnected { what: Option<String> },

    #[error("several block devices are connected: {}", devices.join(", "))]
    #[diagnostic(help("name one of them"))]
    Which { devices: Vec<String> },

    #[error("{device} is still there after {seconds} s")]
    #[diagnostic(help("dmesg says why; --force ends requests that wait for a far end"))]
    Stays { device: String, seconds: u64 },
}

impl BlockError {
    /// How the process ends with this error.
    pub(crate) const fn exit(&self) -> Exit {
        match self {
            Self::NoAuthentication | Self::NotConnected { .. } | Self::Which { .. } => Exit::Wrong,
            _ => Exit::Failed,
        }
    }
}
