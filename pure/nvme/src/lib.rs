//! NVM Express Base Specification 2.0 and NVM Command Set Specification 1.0, as pure engines.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod media;
