//! What a function asks of the link it sits on, whatever that link is.
//!
//! The same device logic works behind a TLP link (an endpoint turns these into packets), in a local
//! virtual machine (guest memory answers at once) and in virtual time.

use engine::Buffer;

/// Names a read of host memory between its request and its data; chosen by the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DmaId(pub u32);

/// What a device asks of the host's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dma {
    /// Read `length` bytes of host memory; answered by [`DmaResult`]s.
    Read {
        /// Names the read in its answers.
        id: DmaId,
        /// Where the bytes are.
        address: u64,
        /// How many, at least 1.
        length: u32,
    },
    /// Write to host memory; posted.
    Write {
        /// Where the bytes go.
        address: u64,
        /// The bytes.
        data: Buffer,
    },
    /// Raise an interrupt; ordered behind the writes before it.
    Interrupt {
        /// The MSI-X vector.
        vector: u16,
    },
}

/// The answer to a [`Dma::Read`], in one piece or several, in any order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DmaResult {
    /// Some of the bytes.
    Data {
        /// The read's name.
        id: DmaId,
        /// Where in the read these bytes belong.
        offset: u32,
        /// The bytes.
        data: Buffer,
        /// Whether every byte of the read has now arrived; the name is free again.
        last: bool,
    },
    /// The read failed (Unsupported Request, Completer Abort, completion timeout, poisoned data); no more will
    /// come and the name is free again.
    Failed {
        /// The read's name.
        id: DmaId,
    },
}
