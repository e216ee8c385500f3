//! Long-range PCIe: transaction-layer packets over a reliable byte stream, with credits and replay.
//!
//! A distributed switch has two halves: [`Upstream`] near the host and [`Downstream`] at the
//! device. A [`session::Session`] in each half keeps the link between them. Module [`frame`]
//! encodes the bytes, and `docs/tunnel-protocol.md` specifies them.

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
