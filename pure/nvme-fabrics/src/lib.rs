//! NVMe over Fabrics (NVM Express Base Specification 2.0): what is the same on every fabric.
//!
//! The bytes are in [`wire`]; the controller's side, up to the command core, is [`target`], and the host's is [`host`].

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[doc(hidden)]
pub mod fuzz;
pub mod host;
pub mod target;
pub mod wire;
