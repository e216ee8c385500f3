//! Farlane's circuits as engines.
//!
//! `gateware/rtl` has the circuits in SystemVerilog. Verilator compiles them, and this crate puts
//! each behind safe Rust, so that tests, the virtual world and the live world drive a circuit as
//! they drive the engine whose protocol it speaks.
//!
//! Without Verilator at build time, this crate is empty.
#![cfg_attr(doc, doc = include_str!("../README.md"))]
#![deny(unsafe_code)]

#[cfg(verilated)]
pub mod campaign;
#[cfg(verilated)]
mod digest;
#[cfg(verilated)]
#[expect(unsafe_code, reason = "the only calls of C++: a model's functions")]
mod ffi;
#[cfg(verilated)]
mod niq;
#[cfg(verilated)]
pub mod port;
#[cfg(verilated)]
mod stream;
#[cfg(verilated)]
pub mod streamer;

#[cfg(verilated)]
pub use digest::DigestCircuit;
#[cfg(verilated)]
pub use niq::{Bars, CardCircuit, Fate, Times, Window};
#[cfg(verilated)]
pub use stream::Stalls;
