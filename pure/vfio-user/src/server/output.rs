//! What goes into a server and what comes out of it.

use engine::Buffer;

use super::CloseReason;
use crate::errno::Errno;
use crate::index::{InterruptIndex, RegionIndex};
use crate::interrupt::{InterruptAction, InterruptData};
use crate::pending::Token;
use crate::version::Negotiated;

/// Names an access to the client's memory by message; chosen by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cookie(pub u64);

/// What a server asks of the world, or tells it. The order matters: a write precedes the read that followed it.
#[derive(Debug, PartialEq, Eq)]
pub enum Output<D> {
    /// Append this message to the stream. One output is one message: its descriptor goes with its first byte.
    Transmit {
        /// The message.
        bytes: Buffer,
        /// The region whose descriptor the world attaches, if any: the file behind the region's mappable areas.
        shared: Option<RegionIndex>,
    },
    /// The client has said its version and has been answered.
    Negotiated(Negotiated),
    /// The client's memory at `address..address + length` may be used from now on. Answer with
    /// [`super::Server::map_done`].
    Map {
        /// Names the request.
        token: Token,
        /// Where the device sees it.
        address: u64,
        /// Bytes, more than 0; `address + length` fits in 64 bits, or is 2^64.
        length: u64,
        /// Where it begins in the descriptor's file; 0 without one.
        offset: u64,
        /// Whether the device may read it.
        readable: bool,
        /// Whether the device may write it.
        writable: bool,
        /// The file. Without one the memory can only be had by message ([`super::Server::dma_read`]).
        descriptor: Option<D>,
    },
    /// The client's memory at `address` must not be used any more: it was one [`Output::Map`]. Answer with
    /// [`super::Server::unmap_done`] when nothing refers to it.
    Unmap {
        /// Names the request; none where the client has gone, and no answer is wanted. Several may carry the same,
        /// each to be answered.
        token: Option<Token>,
        /// Where the device saw it.
        address: u64,
        /// Bytes.
        length: u64,
    },
    /// A read of a region, within it. Answer with [`super::Server::read_done`].
    RegionRead {
        /// Names the request.
        token: Token,
        /// The region.
        region: RegionIndex,
        /// Bytes from its start.
        offset: u64,
        /// Bytes, more than 0 and at most [`crate::DATA_MAX`].
        length: u32,
    },
    /// A write to a region, within it. Answer with [`super::Server::write_done`].
    RegionWrite {
        /// Names the request; none if it is posted, and no answer is wanted.
        token: Option<Token>,
        /// The region.
        region: RegionIndex,
        /// Bytes from its start.
        offset: u64,
        /// The bytes, more than 0.
        data: Buffer,
    },
    /// Set up, tear down, mask, unmask or trigger interrupts; no answer is wanted. Comes also for each kind that was set
    /// up, as a teardown, when the client goes.
    SetInterrupts {
        /// The kind.
        index: InterruptIndex,
        /// What to do.
        action: InterruptAction,
        /// The first vector.
        start: u32,
        /// How many; 0 (with [`InterruptData::None`] and [`InterruptAction::Trigger`]) tears all of the kind down.
        count: u32,
        /// With what.
        data: InterruptData<D>,
    },
    /// Reset the function. Answer with [`super::Server::reset_done`].
    Reset {
        /// Names the request.
        token: Token,
    },
    /// Part of what [`super::Server::dma_read`] asked for. Parts may come in any order.
    DmaData {
        /// As given.
        cookie: Cookie,
        /// Where in what was asked for this part begins.
        offset: usize,
        /// The bytes.
        data: Buffer,
        /// Whether all parts have come now.
        last: bool,
    },
    /// All of a [`super::Server::dma_write`] has been written.
    DmaWritten {
        /// As given.
        cookie: Cookie,
    },
    /// A [`super::Server::dma_read`] or [`super::Server::dma_write`] has failed; nothing more comes of it.
    DmaFailed {
        /// As given.
        cookie: Cookie,
        /// Why.
        error: Errno,
    },
    /// Close the connection once what was transmitted is on its way. The server has forgotten it: no
    /// [`Input::Disconnected`] is needed, and one does no harm.
    Close {
        /// Why.
        reason: CloseReason,
    },
}
