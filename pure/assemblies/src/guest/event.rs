//! Events of a guest's slot, for the application.

use core::fmt;

use engine::Nanos;
use pcie::config::ClassCode;
use pcie::requester::{RequestError, TimedOut};
use pcie::root_complex::EnumerationError;
use pcie::wire::Bdf;
use vfio_user::server::{CloseReason, Negotiated};

/// The function that a guest's slot offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Where the function is below the slot's root complex.
    pub bdf: Bdf,
    /// Vendor ID of the function.
    pub vendor: u16,
    /// Device ID of the function.
    pub device: u16,
    /// Class Code of the function, 24 bits.
    pub class: ClassCode,
    /// Number of MSI-X vectors.
    pub vectors: u16,
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bdf, vendor, device, class, vectors } = self;
        write!(f, "{bdf} [{vendor:04x}:{device:04x}], class {class}, {vectors} vectors")
    }
}

/// An event of a guest's slot.
#[derive(Clone, Debug)]
pub enum Event {
    /// Something happened to the link of the tunnel.
    Link(tunnel::Event),
    /// A function was found and can be used.
    Offered(Offer),
    /// The function that had gone is back. It has been reset, so the guest's driver has to begin
    /// anew.
    Back(Offer),
    /// The guest's function has gone: the guest's reads are answered with all ones.
    Gone,
    /// There is no function to offer.
    NoFunction {
        /// Number of endpoints that were found.
        endpoints: usize,
        /// Index of the endpoint that the configuration asked for. `None`: it asked for an NVMe
        /// controller.
        wanted: Option<usize>,
    },
    /// Another function than before is present. The connected client cannot be notified, and is no
    /// longer served. The next client is served the new function.
    Changed(Offer),
    /// Enumeration failed.
    Enumeration(EnumerationError),
    /// The function did not answer while it was set up; the slot tries again.
    Unready(RequestError),
    /// A client has connected and is served.
    Client(Negotiated),
    /// The client has disconnected, or was closed for this reason.
    ClientGone(Option<CloseReason>),
    /// The guest resets the function.
    Reset,
    /// Requests of the slot's root complex were not answered in time.
    CompletionTimeout {
        /// The latest request without an answer.
        request: TimedOut,
        /// How long the root complex waits for an answer at most.
        within: Nanos,
        /// Number of such requests since the last report.
        times: u64,
    },
    /// No function has answered in time: the slot is empty for guests.
    Empty,
    /// The function reached outside of the guest's memory.
    OutsideMemory {
        /// First address of the latest access.
        address: u64,
        /// Length of the latest access in bytes.
        length: usize,
        /// Whether the latest access was a write. A write is dropped; a read is answered with
        /// Unsupported Request.
        write: bool,
        /// Number of such accesses since the last report.
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
