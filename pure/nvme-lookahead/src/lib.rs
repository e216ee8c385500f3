//! Lookahead: host memory that an NVMe controller is about to read travels along with the doorbell
//! that makes the controller read.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod controller;
mod function;
#[doc(hidden)]
pub mod fuzz;
mod gather;
mod lookahead;
mod port;
mod reads;
#[cfg(test)]
mod tests;
mod transfer;
mod walk;

pub use lookahead::{Lookahead, Statistics};
