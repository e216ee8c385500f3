//! A connected queue pair over any wire protocol.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use engine::Buffer;

use crate::{Exposure, Key, PostError, ReceiveRequest, RegisterError, Remote, SendRequest, WorkCompletion};

/// Bytes of private data that every wire protocol can carry in a connection request: those that an
/// InfiniBand REQ leaves to its user. iWARP carries 512.
pub const PRIVATE_DATA_MAX: usize = 56;

/// A queue pair with its connection. Wire protocols and cards implement it; NVMe over RDMA uses it.
///
/// The connecting side passes its private data to the constructor. [`Event`]s then report the
/// progress of the connection. The user may post send requests from [`Event::Established`] on, and
/// receive requests at any time.
pub trait Endpoint {
    /// The capabilities of the endpoint.
    fn limits(&self) -> Limits;

    /// The next event of the connection.
    fn poll_event(&mut self) -> Option<Event>;

    /// Accepts the connection of [`Event::Requested`].
    fn accept(&mut self, private_data: &[u8]);

    /// Refuses the connection of [`Event::Requested`].
    fn reject(&mut self, private_data: &[u8]);

    /// Ends the connection in order. Unfinished requests are flushed.
    fn disconnect(&mut self);

    /// Posts a request to the send queue.
    ///
    /// # Errors
    /// When the endpoint rejects the request, which then has no effect.
    fn post_send(&mut self, request: SendRequest) -> Result<(), PostError>;

    /// Posts a request to the receive queue.
    ///
    /// # Errors
    /// When the endpoint rejects the request, which then has no effect.
    fn post_receive(&mut self, request: ReceiveRequest) -> Result<(), PostError>;

    /// The next completion, of either queue.
    fn poll_completion(&mut self) -> Option<WorkCompletion>;

    /// Lends memory to the peer.
    ///
    /// # Errors
    /// When there are too many regions.
    fn register(&mut self, exposure: Exposure) -> Result<Remote, RegisterError>;

    /// Copies the bytes at `offset` of memory that is lent to the peer for writing, while the loan
    /// goes on. Bytes that the peer has not written are zeros. Returns false if `key` names no such
    /// memory, the range does not lie within it, or a write to it is in progress.
    ///
    /// This is the only way to notice a peer that writes and sends no message, as perftest does.
    fn peek(&mut self, key: Key, offset: u32, into: &mut [u8]) -> bool;

    /// Ends a loan and returns the memory. For a region to write, these are the bytes from its
    /// beginning up to the last one written. `None` if the key is unknown.
    fn deregister(&mut self, key: Key) -> Option<Buffer>;
}

/// An endpoint of any kind, for users that handle several kinds.
impl<E: Endpoint + ?Sized> Endpoint for Box<E> {
    fn limits(&self) -> Limits {
        (**self).limits()
    }

    fn poll_event(&mut self) -> Option<Event> {
        (**self).poll_event()
    }

    fn accept(&mut self, private_data: &[u8]) {
        (**self).accept(private_data);
    }

    fn reject(&mut self, private_data: &[u8]) {
        (**self).reject(private_data);
    }

    fn disconnect(&mut self) {
        (**self).disconnect();
    }

    fn post_send(&mut self, request: SendRequest) -> Result<(), PostError> {
        (**self).post_send(request)
    }

    fn post_receive(&mut self, request: ReceiveRequest) -> Result<(), PostError> {
        (**self).post_receive(request)
    }

    fn poll_completion(&mut self) -> Option<WorkCompletion> {
        (**self).poll_completion()
    }

    fn register(&mut self, exposure: Exposure) -> Result<Remote, RegisterError> {
        (**self).register(exposure)
    }

    fn peek(&mut self, key: Key, offset: u32, into: &mut [u8]) -> bool {
        (**self).peek(key, offset, into)
    }

    fn deregister(&mut self, key: Key) -> Option<Buffer> {
        (**self).deregister(key)
    }
}

/// The capabilities of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of outstanding send requests.
    pub send_requests: u16,
    /// Maximum number of posted receive requests.
    pub receive_requests: u16,
    /// Length of the longest message, read or write, in bytes.
    pub message_bytes: u32,
    /// Whether [`Operation::Send`](crate::Operation::Send) can invalidate a key.
    pub invalidate: bool,
    /// Whether [`Operation::Send`](crate::Operation::Send) can carry immediate data.
    pub immediate: bool,
}

/// An event of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer requests the connection: accept or reject it.
    Requested {
        /// The private data of the peer's user.
        private_data: Vec<u8>,
    },
    /// The connection is established. Send requests may be posted.
    Established {
        /// The private data of the peer's user; empty on the side that has accepted.
        private_data: Vec<u8>,
    },
    /// The peer's user refuses the connection. This is the last event.
    Rejected {
        /// The private data of the peer's user.
        private_data: Vec<u8>,
    },
    /// The connection is over. Only flushed completions follow.
    Disconnected(Disconnected),
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disconnected {
    /// One of the two ends has closed it in order.
    InOrder,
    /// The peer violated the wire protocol; the text says how.
    PeerFault(&'static str),
    /// The peer accessed memory without permission.
    Access(crate::AccessError),
    /// The peer reports a fault of this end; the text names it.
    Reported(&'static str),
    /// The peer does not answer.
    TimedOut,
    /// This end has lost its network.
    NetworkFailed,
}

impl fmt::Display for Disconnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InOrder => f.write_str("the connection was ended in order"),
            Self::PeerFault(what) => write!(f, "the peer broke the protocol: {what}"),
            Self::Access(error) => write!(f, "the peer accessed memory without permission: {error}"),
            Self::Reported(what) => write!(f, "the peer reports a fault: {what}"),
            Self::TimedOut => f.write_str("the peer does not answer"),
            Self::NetworkFailed => f.write_str("the network of this end has failed"),
        }
    }
}

impl core::error::Error for Disconnected {}
