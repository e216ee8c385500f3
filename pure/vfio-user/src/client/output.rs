//! What goes into a client and what comes out of it.

use alloc::vec::Vec;

use engine::Buffer;

use super::CloseReason;
use crate::errno::Errno;
use crate::pending::Token;
use crate::version::Negotiated;
use crate::wire::{DeviceInfo, InterruptInfo, RegionInfo};

/// Names a request of ours until it is answered; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What a client asks of the world, or tells it.
#[derive(Debug, PartialEq, Eq)]
pub enum Output<D> {
    /// Append this message to the stream. One output is one message: its descriptors go with its first byte, and are
    /// closed after that.
    Transmit {
        /// The message.
        bytes: Buffer,
        /// The descriptors.
        descriptors: Vec<D>,
    },
    /// The server has said its version: requests may be made.
    Negotiated(Negotiated),
    /// A request has been answered, or has failed: `ETIMEDOUT` where no answer came, `ENOTCONN` where there is no server
    /// (any more), `EBUSY` where too many requests are open, `E2BIG` where the server takes less in one message.
    Answered {
        /// The request.
        request: RequestId,
        /// What the server says.
        result: Result<Answer<D>, Errno>,
    },
    /// The server reads our memory. Answer with [`super::Client::dma_read_done`].
    DmaRead {
        /// Names the request.
        token: Token,
        /// The first byte's address, as the device sees it. Whether there is memory of ours is for the world to check.
        address: u64,
        /// Bytes, more than 0 and at most [`crate::DATA_MAX`].
        length: u32,
    },
    /// The server writes our memory. Answer with [`super::Client::dma_write_done`].
    DmaWrite {
        /// Names the request; none if no answer is wanted.
        token: Option<Token>,
        /// The first byte's address, as the device sees it.
        address: u64,
        /// The bytes, more than 0.
        data: Buffer,
    },
    /// Close the connection once what was transmitted is on its way. The client has forgotten it.
    Close {
        /// Why.
        reason: CloseReason,
    },
}

/// What a server says.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer<D> {
    /// It is done.
    Done,
    /// What the device is.
    Device(DeviceInfo),
    /// What a region is.
    Region {
        /// All of it.
        info: RegionInfo,
        /// The file behind its mappable areas; some servers send one for each area.
        descriptors: Vec<D>,
    },
    /// What a kind of interrupts is.
    Interrupt(InterruptInfo),
    /// The bytes read, fewer than asked for if there were no more.
    Data(Buffer),
}
