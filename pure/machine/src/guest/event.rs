//! What an application is told by a guest's slot.

use core::fmt;

use engine::Nanos;
use pcie::requester::{RequestError, TimedOut};
use pcie::root_complex::EnumerationError;
use pcie::wire::Bdf;
use vfio_user::server::{CloseReason, Negotiated};

/// The function that is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Where it is below our root complex.
    pub bdf: Bdf,
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Class Code.
    pub class: u32,
    /// MSI-X vectors.
    pub vectors: u16,
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bdf, vendor, device, class, vectors } = self;
        write!(f, "{bdf} [{vendor:04x}:{device:04x}], class {class:06x}, {vectors} vectors")
    }
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// To the link of the tunnel.
    Link(tunnel::Event),
    /// A function was found and can be used.
    Offered(Offer),
    /// The function that had gone is back. It has been reset: the guest's driver has to begin anew.
    Back(Offer),
    /// The guest's function has gone: its reads are answered with all ones.
    Gone,
    /// There is no function to offer.
    NoFunction {
        /// How many endpoints were found.
        endpoints: usize,
        /// The one that was asked for; otherwise an NVMe controller was.
        wanted: Option<usize>,
    },
    /// Another function than before is there. The present client can't be told: it is served nothing any more, and
    /// the next one is served the new function.
    Changed(Offer),
    /// Enumeration failed.
    Enumeration(EnumerationError),
    /// A function did not answer while it was set up; it is tried again.
    Unready(RequestError),
    /// A client has come and is served.
    Client(Negotiated),
    /// The client has gone, or was closed.
    ClientGone(Option<CloseReason>),
    /// The guest resets the function.
    Reset,
    /// Requests of our root complex were not answered in time.
    CompletionTimeout {
        /// The latest.
        request: TimedOut,
        /// How long it was waited for.
        within: Nanos,
        /// How many there were since the last time that this was told.
        times: u64,
    },
    /// No function has answered in time: to guests the slot is an empty one.
    Empty,
    /// The function reached outside of the guest's memory.
    OutsideMemory {
        /// First address of the latest access.
        address: u64,
        /// Its bytes.
        length: usize,
        /// Whether it was a write, which was dropped; a read is answered with Unsupported Request.
        write: bool,
        /// How many such accesses there were since the last time that this was told.
        times: u64,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(event) => event.fmt(f),
            Self::Offered(offer) => write!(f, "offering function {offer}"),
            Self::Back(offer) => write!(f, "the function is back: {offer}"),
            Self::Gone => f.write_str("the function has gone: the guest reads all ones until it is back"),
            Self::NoFunction { endpoints: 0, .. } => f.write_str("there is no function at the far end"),
            Self::NoFunction { endpoints, wanted: Some(wanted) } => {
                write!(
                    f,
                    "there is no function {wanted} at the far end, which has {endpoints}, the first being 0"
                )
            }
            Self::NoFunction { endpoints, wanted: None } => {
                write!(f, "none of the far end's functions ({endpoints}) is an NVMe controller; ")?;
                f.write_str("--function 0 is the first of another kind")
            }
            Self::Changed(offer) => {
                write!(f, "another function is there now, {offer}: the guest must be started again to see it")
            }
            Self::Enumeration(error) => write!(f, "enumeration failed: {error}"),
            Self::Unready(error) => write!(f, "the function can't be set up: {error}; trying again"),
            Self::Client(agreed) => {
                write!(f, "a client has come (vfio-user {}.{})", agreed.major, agreed.minor)
            }
            Self::ClientGone(None) => f.write_str("the client has gone; the function is reset"),
            Self::ClientGone(Some(reason)) => {
                write!(f, "the client was closed: {reason}; the function is reset")
            }
            Self::Reset => f.write_str("the guest resets the function"),
            Self::CompletionTimeout { request, within, times } => {
                write!(f, "completion timeout: {request}: no answer within {within}")?;
                if *times > 1 { write!(f, " ({times} times)") } else { Ok(()) }
            }
            Self::Empty => f.write_str("no function has answered in time: the guest's slot is empty"),
            Self::OutsideMemory { address, length, write, times } => {
                let kind = if *write { "write to" } else { "read of" };
                write!(
                    f,
                    "the function's {kind} {address:#x}..+{length:#x} is outside of the guest's memory"
                )?;
                if *times > 1 { write!(f, " ({times} times)") } else { Ok(()) }
            }
        }
    }
}
