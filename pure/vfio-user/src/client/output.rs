//! The output of a client.

use alloc::vec::Vec;

use engine::Buffer;

use super::CloseReason;
use crate::connection::Transmit;
use crate::errno::Errno;
use crate::pending::Token;
use crate::version::Negotiated;
use crate::wire::{DeviceInfo, InterruptInfo, RegionInfo};

/// Names a request of the client until the request is answered. A client never uses a name again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// An output of a client.
#[derive(Debug, PartialEq, Eq)]
pub enum Output<D> {
    /// Append this message to the stream. Each output is one message, whose descriptors go with its
    /// first byte and are closed afterwards.
    Transmit {
        /// Bytes of the message.
        bytes: Buffer,
        /// Descriptors to send with the message.
        descriptors: Vec<D>,
    },
    /// The server has sent its version, so requests may be made.
    Negotiated(Negotiated),
    /// A request was answered, or has failed: `ETIMEDOUT` if there was no answer, `ENOTCONN` if
    /// there is no server (any more), `EBUSY` if too many requests are open, `E2BIG` if the
    /// server's limit for one message is exceeded.
    Answered {
        /// The request that was answered.
        request: RequestId,
        /// The server's answer, or the error.
        result: Result<Answer<D>, Errno>,
    },
    /// The server reads our memory. Answer with [`super::Client::dma_read_done`].
    DmaRead {
        /// Names the request when it is answered.
        token: Token,
        /// Address of the first byte, as the device sees it. The world must check that it is our
        /// memory.
        address: u64,
        /// How many bytes to read, more than 0 and at most [`crate::DATA_MAX`].
        length: u32,
    },
    /// The server writes our memory. Answer with [`super::Client::dma_write_done`].
    DmaWrite {
        /// Names the request. `None` if no answer is expected.
        token: Option<Token>,
        /// Address of the first byte, as the device sees it. The world must check that it is our
        /// memory.
        address: u64,
        /// The bytes to write, at least one.
        data: Buffer,
    },
    /// Close the connection once all transmitted bytes are on their way. The client has forgotten
    /// the connection.
    Close {
        /// Why the client ends the connection.
        reason: CloseReason,
    },
}

impl<D> Transmit for Output<D> {
    fn transmit(bytes: Buffer) -> Self {
        Self::Transmit { bytes, descriptors: Vec::new() }
    }
}

/// A server's answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer<D> {
    /// The request has been executed.
    Done,
    /// Information about the device.
    Device(DeviceInfo),
    /// Information about a region.
    Region {
        /// The information itself, areas included.
        info: RegionInfo,
        /// Descriptors of the file behind the mappable areas. Some servers send one for each area.
        descriptors: Vec<D>,
    },
    /// Information about a kind of interrupts.
    Interrupt(InterruptInfo),
    /// The bytes read, fewer than requested if there were no more.
    Data(Buffer),
}
