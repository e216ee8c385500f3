//! The bytes of PCI Express.

mod header;
mod id;

pub use header::{
    AddressType, Attributes, Completion, CompletionStatus, ConfigRequest, ConfigType, Header, IoRequest,
    Kind, MemoryOperation, MemoryRequest, Message, MessageRouting, Width,
};
pub use id::{Bdf, Tag};

use engine::Buffer;

/// A transaction-layer packet (TLP): prefixes, header, payload, digest.
///
/// Parsing borrows the payload (`Tlp<&[u8]>`); what travels between engines owns a reference-counted
/// piece of it ([`Packet`]). Neither copies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tlp<P> {
    /// Local prefixes first, then end-to-end prefixes, as on the wire; almost always none.
    pub prefixes: Prefixes,
    /// The header, decoded.
    pub header: Header,
    /// The payload: whole double words, empty unless [`Header::has_payload`].
    pub payload: P,
    /// The end-to-end CRC (ECRC) that follows the payload where the header's TD bit is set.
    pub digest: Option<u32>,
}

/// A TLP that owns its payload: what engines pass to each other.
pub type Packet = Tlp<Buffer>;

/// TLP prefixes, one double word each: at most [`Prefixes::MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefixes {
    words: [u32; Self::MAX],
    count: u8,
}

impl Prefixes {
    /// One local and four end-to-end prefixes (Max End-End TLP Prefixes is at most 4).
    pub const MAX: usize = 5;
    /// No prefix.
    pub const NONE: Self = Self { words: [0; Self::MAX], count: 0 };

    /// The prefixes, each as the big-endian double word on the wire.
    pub fn words(&self) -> &[u32] {
        &self.words[..usize::from(self.count)]
    }
}
