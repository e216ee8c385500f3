//! The output of a server.

use engine::Buffer;

use super::CloseReason;
use crate::connection::Transmit;
use crate::errno::Errno;
use crate::index::{InterruptIndex, RegionIndex};
use crate::interrupt::{InterruptAction, InterruptData};
use crate::pending::Token;
use crate::version::Negotiated;
use crate::wire::DmaMap;

/// Names an access to the client's memory by message. The caller chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cookie(pub u64);

/// An output of a server. The order matters: a write precedes a later read.
#[derive(Debug, PartialEq, Eq)]
pub enum Output<D> {
    /// Append this message to the stream. Each output is one message, whose descriptor goes with
    /// its first byte.
    Transmit {
        /// Bytes of the message.
        bytes: Buffer,
        /// The region whose descriptor the world attaches, if any: that of the file behind the
        /// region's mappable areas.
        shared: Option<RegionIndex>,
    },
    /// The client has sent its version and was answered.
    Negotiated(Negotiated),
    /// The client's memory may be used from now on. Answer with [`super::Server::map_done`].
    Map {
        /// Names the request when it is answered.
        token: Token,
        /// The memory: its address for the device, its length, which is more than 0, the accesses
        /// allowed to the device, and its offset in the descriptor's file (0 without a descriptor).
        /// Address and length together are at most 2^64.
        map: DmaMap,
        /// Descriptor of the memory's file. Without one, the memory is only accessible by message
        /// ([`super::Server::dma_read`]).
        descriptor: Option<D>,
    },
    /// The client's memory at `address`, which one [`Output::Map`] shared, must not be used any
    /// more. Answer with [`super::Server::unmap_done`] when nothing refers to the memory.
    Unmap {
        /// Names the request. `None` if the client has disconnected and no answer is expected.
        /// Several outputs may carry the same token, and each must be answered.
        token: Option<Token>,
        /// Address of the memory as the device saw it.
        address: u64,
        /// Length of the memory in bytes.
        length: u64,
    },
    /// The client reads within a region. Answer with [`super::Server::read_done`].
    RegionRead {
        /// Names the request when it is answered.
        token: Token,
        /// The region to read.
        region: RegionIndex,
        /// Offset of the first byte in the region.
        offset: u64,
        /// How many bytes to read, more than 0 and at most [`crate::DATA_MAX`].
        length: u32,
    },
    /// The client writes within a region. Answer with [`super::Server::write_done`].
    RegionWrite {
        /// Names the request. `None` if the write is posted and no answer is expected.
        token: Option<Token>,
        /// The region to write.
        region: RegionIndex,
        /// Offset of the first byte in the region.
        offset: u64,
        /// The bytes to write, at least one.
        data: Buffer,
    },
    /// Set up, tear down, mask, unmask or trigger interrupts. No answer is expected. When the
    /// client disconnects, each kind that was set up is torn down by such an output.
    SetInterrupts {
        /// The kind of interrupts.
        index: InterruptIndex,
        /// The action on the interrupts.
        action: InterruptAction,
        /// Number of the first vector.
        start: u32,
        /// Number of vectors. 0 (with [`InterruptData::None`] and [`InterruptAction::Trigger`])
        /// tears down all interrupts of the kind.
        count: u32,
        /// Data of the operation.
        data: InterruptData<D>,
    },
    /// Reset the function. Answer with [`super::Server::reset_done`].
    Reset {
        /// Names the request when it is answered.
        token: Token,
    },
    /// Part of the data that [`super::Server::dma_read`] requested. Parts may be in any order.
    DmaData {
        /// The cookie given to [`super::Server::dma_read`].
        cookie: Cookie,
        /// Offset of this part in the requested data, in bytes.
        offset: usize,
        /// Bytes of this part.
        data: Buffer,
        /// Whether all parts have now arrived.
        last: bool,
    },
    /// A [`super::Server::dma_write`] has been completed.
    DmaWritten {
        /// The cookie given to [`super::Server::dma_write`].
        cookie: Cookie,
    },
    /// A [`super::Server::dma_read`] or [`super::Server::dma_write`] has failed. There is no
    /// further output for it.
    DmaFailed {
        /// The cookie given to the failed access.
        cookie: Cookie,
        /// Error of the access.
        error: Errno,
    },
    /// Close the connection once all transmitted bytes are on their way. The server has forgotten
    /// the connection. An [`Input::Disconnected`](crate::Input::Disconnected) is not needed but
    /// harmless.
    Close {
        /// Why the server ends the connection.
        reason: CloseReason,
    },
}

impl<D> Transmit for Output<D> {
    fn transmit(bytes: Buffer) -> Self {
        Self::Transmit { bytes, shared: None }
    }
}
