//! Long-range PCIe: transaction-layer packets over a reliable byte stream, with credits and replay.
//!
//! The two halves of a distributed switch are [`Upstream`], near the host, and [`Downstream`], at the device;
//! between them is a [`session::Session`] each. The bytes are in [`frame`], and `docs/tunnel-protocol.md` is their
//! specification.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod credits;
#[cfg(test)]
mod document;
pub mod downstream;
mod event;
pub mod frame;
#[doc(hidden)]
pub mod fuzz;
pub mod lookahead;
#[cfg(test)]
mod pair;
pub mod paths;
pub mod session;
pub mod shadow;
mod strands;
mod stream;
pub mod upstream;

pub use downstream::Downstream;
pub use event::Event;
pub use session::Session;
pub use strands::STRANDS_MAX;
pub use upstream::Upstream;
