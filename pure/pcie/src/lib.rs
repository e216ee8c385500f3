//! PCI Express (PCI Express Base Specification 4.0), as pure engines.
//!
//! The bytes are in [`wire`]. A [`requester`] sends requests and waits for their completions; a
//! [`completer`] answers requests. An [`endpoint`] is a function with a configuration space and
//! BARs. A [`switch`] routes packets between ports, and the [`root_complex`] at the top enumerates
//! the hierarchy.

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
