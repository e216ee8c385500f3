//! The bytes of PCI Express: transaction-layer packets.
//!
//! [`Tlp::parse`] checks a packet once and borrows its payload; [`Packet::parse`] shares the block
//! that the packet was received in. [`Packet`] has constructors for all TLPs that engines send.
//! [`Header`] has methods for values derived from its fields: byte lengths, addresses and counts.

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
