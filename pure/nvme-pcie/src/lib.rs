//! NVM Express over PCIe (NVM Express NVMe over PCIe Transport Specification 1.0).
//!
//! Start at [`controller::Controller`] for the device's side, [`function::Function`] for a whole
//! PCIe function with a controller, and [`host::Host`] for the driver's side.
#![cfg_attr(doc, doc = include_str!("../README.md"))]
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod controller;
pub mod function;
#[doc(hidden)]
pub mod fuzz;
pub mod host;
pub mod registers;
#[cfg(test)]
mod test_bench;
