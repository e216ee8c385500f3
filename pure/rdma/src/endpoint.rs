//! A connected queue pair, whatever carries it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use engine::Buffer;

use crate::{Exposure, Key, PostError, ReceiveRequest, RegisterError, Remote, SendRequest, WorkCompletion};

/// Private data in bytes that every wire protocol carries in a request for a connection: what an
/// InfiniBand REQ leaves to its user. iWARP takes 512.
pub const PRIVATE_DATA_MAX: usize = 56;

/// A queue pair with its connection. Wire protocols and cards implement it; NVMe over RDMA uses it.
///
/// The side that connects gives its private data to the constructor. Then [`Event`]s tell how the
/// connection goes. Work requests may be posted from [`Event::Established`] on, receive requests at
/// any time before.
pub trait Endpoint {
    /// What the endpoint can do.
    fn limits(&self) -> Limits;

    /// The next event of the connection.
    fn poll_event(&mut self) -> Option<Event>;

    /// Accepts the connection that [`Event::Requested`] has told of.
    fn accept(&mut self, private_data: &[u8]);

    /// Refuses the connection that [`Event::Requested`] has told of.
    fn reject(&mut self, private_data: &[u8]);

    /// Ends the connection in order. Requests that were not done are flushed.
    fn disconnect(&mut self);

    /// Posts a request to the send queue.
    ///
    /// # Errors
    /// When the request is not taken; nothing has happened then.
    fn post_send(&mut self, request: SendRequest) -> Result<(), PostError>;

    /// Posts a request to the receive queue.
    ///
    /// # Errors
    /// When the request is not taken; nothing has happened then.
    fn post_receive(&mut self, request: ReceiveRequest) -> Result<(), PostError>;

    /// The next completion, of either queue.
    fn poll_completion(&mut self) -> Option<WorkCompletion>;

    /// Lends memory to the peer.
    ///
    /// # Errors
    /// When there are too many regions.
    fn register(&mut self, exposure: Exposure) -> Result<Remote, RegisterError>;

    /// Copies what the peer has written at `offset` of memory that is lent to it for writing, while
    /// the loan goes on. What it has not written is zeros. Returns false if `key` names no such
    /// memory, the bytes do not lie within it, or more is just coming to it.
    ///
    /// A peer that writes and says nothing, as perftest's does, shows itself in this way only.
    fn peek(&mut self, key: Key, offset: u32, into: &mut [u8]) -> bool;

    /// Ends a loan, and returns the memory: of a region to write, the bytes from its beginning up
    /// to the last that was written. `None` if the key names nothing.
    fn deregister(&mut self, key: Key) -> Option<Buffer>;
}

/// An endpoint of whatever kind, as its user has it where several kinds meet.
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

/// What an endpoint can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Send requests outstanding at a time.
    pub send_requests: u16,
    /// Receive requests posted at a time.
    pub receive_requests: u16,
    /// Length of the longest message, read or write, in bytes.
    pub message_bytes: u32,
    /// Whether [`Operation::Send`](crate::Operation::Send) can invalidate a key.
    pub invalidate: bool,
    /// Whether [`Operation::Send`](crate::Operation::Send) can bring immediate data.
    pub immediate: bool,
}

/// What happens to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer asks for the connection: accept or reject it.
    Requested {
        /// What the peer's user has said with it.
        private_data: Vec<u8>,
    },
    /// The connection is made. Send requests may be posted.
    Established {
        /// What the peer's user has said with it; empty on the side that has accepted.
        private_data: Vec<u8>,
    },
    /// The peer's user refuses the connection. Nothing follows.
    Rejected {
        /// What the peer's user has said with it.
        private_data: Vec<u8>,
    },
    /// The connection is over. Nothing follows but flushed completions.
    Disconnected(Disconnected),
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disconnected {
    /// One of both ends has ended it in order.
    InOrder,
    /// The peer broke the wire protocol. The text says how.
    PeerFault(&'static str),
    /// The peer has accessed memory that it may not.
    Access(crate::AccessError),
    /// The peer reports a fault of this end. The text says which.
    Reported(&'static str),
    /// The peer does not answer.
    TimedOut,
    /// This end cannot use its network any more.
    NetworkFailed,
}

impl fmt::Display for Disconnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InOrder => f.write_str("the connection was ended in order"),
            Self::PeerFault(what) => write!(f, "the peer broke the protocol: {what}"),
            Self::Access(error) => write!(f, "the peer accessed memory that it may not: {error}"),
            Self::Reported(what) => write!(f, "the peer reports a fault: {what}"),
            Self::TimedOut => f.write_str("the peer does not answer"),
            Self::NetworkFailed => f.write_str("the network of this end has failed"),
        }
    }
}

impl core::error::Error for Disconnected {}
