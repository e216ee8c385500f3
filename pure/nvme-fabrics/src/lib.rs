//! NVMe over Fabrics (NVM Express Base Specification 2.0): what is the same on every fabric.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[doc(hidden)]
pub mod fuzz;
pub mod host;
pub mod wire;
