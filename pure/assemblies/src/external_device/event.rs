//! Events of a device of another process.

use core::fmt;
use pcie::config::ClassCode;

use super::plan::{Missing, Unusable};
use vfio_user::client::CloseReason;

/// An event of a device of another process, for the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The device is present: hosts may have it from now on.
    Ready(Summary),
    /// A host does not get this part of the device.
    Without(Missing),
    /// The device cannot be offered.
    Unusable(Unusable),
    /// The server breaks the protocol, or does not answer.
    Left(CloseReason),
    /// The server ended the connection before the device was known. Reported once, until a device
    /// is ready again.
    TurnedAway,
    /// The server has gone, and the device with it.
    Gone,
    /// The device could not be reset; holds the error that the server answered.
    ResetFailed(vfio_user::Errno),
    /// The device's interrupts could not be set up; holds the error that the server answered.
    InterruptsFailed(vfio_user::Errno),
}

/// The identity of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Class Code, 24 bits.
    pub class: ClassCode,
    /// Number of MSI-X vectors that a host gets.
    pub vectors: u16,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = pcie::lspci::class_name(self.class).unwrap_or("PCI function");
        write!(f, "{class} [{:04x}:{:04x}]", self.vendor, self.device)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(summary) => write!(f, "the device is there: {summary}"),
            Self::Without(missing) => write!(f, "hosts don't get {missing}"),
            Self::Unusable(why) => write!(f, "the device can't be offered: {why}"),
            Self::Left(why) => write!(f, "the device's server was left: {why}"),
            Self::TurnedAway => {
                f.write_str("the device's server ends the connection at once: it may have another client")
            }
            Self::Gone => f.write_str("the device's server has gone: the link is down until it is back"),
            Self::ResetFailed(error) => write!(f, "the device could not be reset: {error}"),
            Self::InterruptsFailed(error) => write!(f, "its interrupts could not be set up: {error}"),
        }
    }
}
