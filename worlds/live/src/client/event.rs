//! Events of a controller for its user.

use std::fmt;

use engine::{Buffer, Instant};
use nvme::wire::Status;
use nvme_fabrics::host as fabrics;
use nvme_fabrics::host::multipath::PathIndex;
use nvme_pcie::host::ResetReason;
use tunnel::Event as Link;

use super::error::{AttachError, Failure};

/// An event of a controller.
#[derive(Debug)]
pub enum Event {
    /// A command has ended.
    Completed(Completed),
    /// The round trip that [`super::Controller::probe`] began has ended: the double word that was
    /// read, or why it could not be read.
    Probed(Result<u32, AttachError>),
    /// The register read that [`super::Controller::read_register`] began has ended: the value;
    /// `None` if the register could not be read.
    Register(Option<u64>),
    /// The controller can be reached, for the first time or again.
    Here(Option<News>),
    /// The controller can't be reached. Commands wait for it.
    Away(News),
    /// News for the owner.
    News(News),
    /// This handle has ended: the controller needs another one.
    Failed(Failure),
}

/// The result of a command.
#[derive(Clone, Debug)]
pub struct Completed {
    /// The caller's name for the command.
    pub cookie: u64,
    /// The status with which the command ended.
    pub status: Status,
    /// Command-specific result, Dword 0 (DW0).
    pub dw0: u32,
    /// Command-specific result, Dword 1 (DW1): of a fabric's Property Get. On PCI Express, 0.
    pub dw1: u32,
    /// The data that the command has read, unless they have a place in the controller's memory.
    pub data: Buffer,
    /// Whether the controller did not answer: this host has ended the command.
    pub is_unheard: bool,
    /// When the command was submitted.
    pub submitted: Instant,
}

/// News for the owner of a controller. `Display` words them for users.
#[derive(Clone, Debug)]
pub enum News {
    /// Something happened to the link of a tunnel.
    Link(Link),
    /// The controller is being reset.
    Resetting(ResetReason),
    /// A path to a subsystem is lost, and is tried again.
    PathLost(PathIndex, fabrics::Loss),
    /// A path to a subsystem that was lost is back.
    PathBack(PathIndex),
    /// A path to a subsystem is given up.
    PathGivenUp(PathIndex, fabrics::Failure),
    /// One end of a connection has broken the protocol.
    ProtocolError(String),
    /// The controller has not enabled these digests on a path, although they were asked for.
    NoDigests(PathIndex, &'static str),
}

impl News {
    /// The news in a few words, for a sentence about the device as a whole.
    pub(crate) fn brief(&self) -> String {
        match self {
            Self::Link(event) => event.to_string(),
            Self::Resetting(reason) => format!("the device is reset: {reason}"),
            Self::PathLost(_, why) => why.to_string(),
            Self::NoDigests(_, what) => {
                format!("has no {what}: a bit that flips in transit may go unnoticed")
            }
            news => news.to_string(),
        }
    }
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |path: &PathIndex| path.0 + 1;
        match self {
            Self::Link(event) => event.fmt(f),
            Self::Resetting(reason) => write!(f, "the controller is being reset: {reason}"),
            Self::PathLost(path, why) => write!(f, "path {} is lost: {why}", number(path)),
            Self::PathBack(path) => write!(f, "path {} is up again", number(path)),
            Self::PathGivenUp(path, failure) => write!(f, "path {} is given up: {failure}", number(path)),
            Self::ProtocolError(why) => f.write_str(why),
            Self::NoDigests(path, what) => write!(
                f,
                "path {}: the controller enables no {what}: a bit that flips in transit may go unnoticed; \
                 'hdgst=off' and 'ddgst=off' in the URL ask for none",
                number(path)
            ),
        }
    }
}
