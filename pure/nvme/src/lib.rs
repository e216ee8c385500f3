//! NVM Express Base Specification 2.0 and NVM Command Set Specification 1.0, as pure engines.
//!
//! Start at [`subsystem::Subsystem`], the command core that every transport shares; the bytes are in
//! [`wire`], and what a namespace is kept on is in [`media`].

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[doc(hidden)]
pub mod fuzz;
pub mod media;
pub mod subsystem;
pub mod wire;
