//! The input of either end.

use alloc::vec::Vec;

/// An input of a server or a client.
#[derive(Debug)]
pub enum Input<'a, D> {
    /// The other end is connected. Only one connection exists at a time: any earlier one has ended.
    Connected,

    /// A piece of the other end's byte stream, divided anywhere, and the descriptors received with
    /// it.
    ///
    /// The descriptors belong to the last message that begins in the piece. If no message begins in
    /// it, they belong to the message that continues in it: a stream socket of Linux ends a read at
    /// the end of bytes that were sent together with descriptors.
    Received {
        /// Bytes of the piece.
        bytes: &'a [u8],
        /// Descriptors received with the piece.
        descriptors: Vec<D>,
    },
    /// The connection to the other end is lost.
    Disconnected,
}
