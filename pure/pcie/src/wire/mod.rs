//! The bytes of PCI Express: transaction-layer packets.
//!
//! [`Tlp::parse`] checks a packet once and borrows its payload; [`Packet::parse`] shares the block it was
//! received in. Constructors for what engines send are methods of [`Packet`], what a header means beyond
//! its fields (byte lengths, addresses, counts) are methods of [`Header`].

mod build;
mod display;
mod ecrc;
mod enables;
mod error;
mod head;
mod header;
mod id;
mod layout;
pub mod message;
mod prefix;
mod tlp;
mod traits;

#[cfg(test)]
mod tests;

pub use error::{Part, TlpError};
pub use head::Head;
pub use header::{
    AddressType, Attributes, Completion, CompletionStatus, ConfigRequest, ConfigType, Header, IoRequest,
    Kind, MemoryOperation, MemoryRequest, Message, MessageRouting, Width,
};
pub use id::{Bdf, Tag};
pub use prefix::Prefixes;
pub use tlp::{Packet, Tlp};
pub use traits::Traits;
