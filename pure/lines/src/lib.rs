//! A byte stream each way between two ends that share memory, through rings of cache lines.
//!
//! An [`End`] sends by storing one 64-byte line: up to 60 bytes, followed by a mark that they are
//! there. The other end polls that line. Longer pieces are copied into a data area, and a line
//! refers to them. Each end reports in a line of its own how much it has taken, and whether it
//! sleeps and must be woken. The README has the layout.
//!
//! ```
//! use farlane_lines::{End, MEMORY_BYTES, Side};
//! use pcie::memory::Ram;
//!
//! let mut memory = Ram::new(0, MEMORY_BYTES);
//! let (mut near, mut far) = (End::new(Side::Dialler), End::new(Side::Listener));
//! assert_eq!(near.send(&mut memory, b"hello"), Ok(5));
//! let mut bytes = [0; 64];
//! assert_eq!(far.receive(&mut memory, &mut bytes), Ok(5));
//! assert_eq!(&bytes[..5], b"hello");
//! ```
//!
//! # Requirements on the shared memory
//! Where the two ends run at the same time, their [`pcie::memory::Memory`] writes the words of a
//! line from first to last, and reads them from last to first. A line whose last word is valid is
//! then complete.
//!
//! # Trust
//! A peer can write any bytes anywhere in the memory at any time. An end copies the bytes before it
//! checks them. A violation is a [`Fault`], after which the connection must be given up.
#![cfg_attr(doc, doc = include_str!("../README.md"))]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod end;
pub mod fuzz;
mod layout;
#[cfg(test)]
mod tests;

pub use end::{End, Fault};
pub use layout::{INLINE_MAX, MEMORY_BYTES, Side};
