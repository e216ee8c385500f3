//! Why a port in QEMU can't be used, with the remedy.

use std::fmt;

use super::qmp::Garbage;

/// Why a port can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// No process answers at the socket: the system's error.
    Unreachable(String),
    /// The process at the socket sends no greeting.
    Silent,
    /// QEMU has not answered a command.
    Stalled,
    /// The connection has ended.
    Ended,
    /// The process at the socket does not speak QMP.
    Garbage(Garbage),
    /// QEMU has no port with this id.
    NoPort(String),
    /// The port with this id takes no device while the guest runs.
    NotHotPluggable(String),
    /// The port has a device that is not Farlane's.
    Occupied {
        /// The id of the port.
        port: String,
        /// The device's type, in QEMU's words.
        device: String,
    },
    /// QEMU has refused a command, with these words.
    Refused(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(error) => write!(f, "no QEMU answers: {error}"),
            Self::Silent => f.write_str("a process listens, and sends no greeting of QMP within 5 s"),
            Self::Stalled => f.write_str("QEMU has not answered a command within 30 s"),
            Self::Ended => f.write_str("QEMU's monitor has closed the connection"),
            Self::Garbage(found) => write!(f, "the process there does not speak QMP: it sent {found}"),
            Self::NoPort(port) => write!(f, "QEMU has no port {port:?}"),
            Self::NotHotPluggable(port) => {
                write!(f, "port {port:?} takes no device while the guest runs")
            }
            Self::Occupied { port, device } => {
                write!(f, "port {port:?} has another device already: {device}")
            }
            Self::Refused(words) => write!(f, "QEMU refuses: {words:?}"),
        }
    }
}

impl Problem {
    /// What to do about the problem.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self {
            Self::Unreachable(_) => "start QEMU first, with -qmp unix:SOCKET,server=on,wait=off",
            Self::Silent => {
                "if another client uses this socket, give QEMU a further -qmp socket: one for each farlane attach"
            }
            Self::Stalled => "look whether QEMU's process is stopped or hangs",
            Self::Ended => "start QEMU again if it has quit",
            Self::Garbage(_) => {
                "expected the socket of QEMU's -qmp unix:SOCKET,server=on,wait=off, not its human monitor"
            }
            Self::NoPort(port) => {
                return format!(
                    "expected the id of a root port or downstream port: -device pcie-root-port,id={port},chassis=1"
                );
            }
            Self::NotHotPluggable(_) => {
                "expected a pcie-root-port or xio3130-downstream without hotplug=off"
            }
            Self::Occupied { .. } => "remove that device from QEMU's command line, or choose an empty port",
            Self::Refused(_) => "QEMU 10.1 or newer has vfio-user-pci; QEMU's words say what else is wrong",
        }
        .to_owned()
    }
}

impl std::error::Error for Problem {}
