//! The input of either end.

use alloc::vec::Vec;

/// What the world tells a server or a client.
#[derive(Debug)]
pub enum Input<'a, D> {
    /// The other end is connected. Only one connection exists at a time: any earlier one is gone.
    Connected,

    /// A piece of the other end's byte stream, cut anywhere, and the descriptors that came with it.
    ///
    /// The descriptors belong to the last message that begins in the piece. If no message begins in
    /// it, they belong to the message that continues in it: a stream socket of Linux ends a read at
    /// the end of what was sent together with descriptors.
    Received {
        /// Bytes of the piece.
        bytes: &'a [u8],
        /// Descriptors that came with the piece.
        descriptors: Vec<D>,
    },
    /// The connection to the other end is gone.
    Disconnected,
}
