//! The requests of a function to its link, for any kind of link.
//!
//! The same device logic works behind a TLP link (an endpoint turns its requests into packets), in
//! a local virtual machine (guest memory answers at once) and in virtual time.

use engine::Buffer;
use serde::{Deserialize, Serialize};

/// Names a read of host memory from its request to its data. The device chooses the name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DmaId(pub u32);

/// A request of a device to the host's side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dma {
    /// Reads `length` bytes of host memory. [`DmaResult`]s answer it.
    Read {
        /// Names the read in its answers.
        id: DmaId,
        /// Host address of the first byte.
        address: u64,
        /// Length of the read in bytes, at least 1.
        length: u32,
    },
    /// Writes to host memory; posted.
    Write {
        /// Host address of the first byte.
        address: u64,
        /// The bytes to write.
        data: Buffer,
    },
    /// Raises an interrupt, ordered behind all earlier writes.
    Interrupt {
        /// The MSI-X vector to raise.
        vector: u16,
    },
}

/// The answer to a [`Dma::Read`], in one piece or several, in any order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DmaResult {
    /// Some of the bytes of the read.
    Data {
        /// The name that the device gave the read.
        id: DmaId,
        /// Position of these bytes in the read, in bytes from its start.
        offset: u32,
        /// The bytes that arrived.
        data: Buffer,
        /// Whether every byte of the read has now arrived; the name is then free again.
        last: bool,
    },
    /// The read failed: Unsupported Request, Completer Abort, completion timeout or poisoned data.
    /// No more data of the read will arrive, and its name is free again.
    Failed {
        /// The name that the device gave the read.
        id: DmaId,
    },
}
