//! PCI Express (PCI Express Base Specification 4.0), as pure engines.
//!
//! The bytes are in [`wire`]. What sends requests and waits for completions is a requester, what answers
//! them a completer; a function's configuration space and BARs make an endpoint; a switch routes between
//! them, and the root complex at the top enumerates it all.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod completer;
pub mod config;
pub mod device;
pub mod endpoint;
#[doc(hidden)]
pub mod fuzz;
pub mod lspci;
pub mod memory;
pub mod ordering;
pub mod requester;
pub mod root_complex;
pub mod switch;
pub mod wire;
