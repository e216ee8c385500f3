//! What goes into either end.

use alloc::vec::Vec;

/// What the world tells a server or a client.
#[derive(Debug)]
pub enum Input<'a, D> {
    /// The other end is connected to. One at a time: the former one, if any, is gone.
    Connected,
    /// A piece of the other end's byte stream, cut anywhere, and the descriptors that came with it.
    ///
    /// They belong to the last message that begins in the piece, or, where none does, to the message that goes on in
    /// it: a stream socket of Linux ends a read at the end of what was sent together with descriptors.
    Received {
        /// The bytes.
        bytes: &'a [u8],
        /// The descriptors.
        descriptors: Vec<D>,
    },
    /// The other end has gone.
    Disconnected,
}
