//! NVM Express Base Specification 2.0 and NVM Command Set Specification 1.0, as pure engines.
//!
//! Start at [`subsystem::Subsystem`], the command core that every transport shares. [`host`] has what the hosts of every
//! transport share. [`wire`] has the bytes, and [`media`] what a namespace is kept on.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[doc(hidden)]
pub mod fuzz;
pub mod host;
pub mod media;
pub mod subsystem;
pub mod wire;
