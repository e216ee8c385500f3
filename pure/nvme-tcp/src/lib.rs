//! NVMe/TCP (NVM Express TCP Transport Specification 1.0).

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;
