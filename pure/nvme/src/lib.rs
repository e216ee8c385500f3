//! NVM Express Base Specification 2.0 and NVM Command Set Specification 1.0, as pure engines.
//!
//! Start at [`subsystem::Subsystem`], the command core that every transport shares. [`host`] has
//! the parts that hosts of every transport share, [`wire`] the data structures in bytes, and
//! [`media`] the storage behind namespaces.

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
