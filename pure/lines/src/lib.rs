//! Two ends that share memory: a stream of bytes each way, through rings of cache lines.
//!
//! An [`End`] sends by storing one 64-byte line: up to 60 bytes, and behind them the mark that
//! they are there. The other end polls that line. Longer pieces are copied into a data area, and a
//! line says where they are. Each end tells in a line of its own how much it has taken, and whether
//! it sleeps and wants to be woken. `docs/lines.md` has the layout.
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
//! # What shared memory must do
//! Where the two ends run at once, their [`pcie::memory::Memory`] writes the words of a line from
//! the first to the last, and reads them from the last to the first. A line whose last word is
//! right is then whole.
//!
//! # What a peer may do
//! Write any bytes anywhere in the memory, at any time. Everything that is read is copied first and
//! checked then. What does not fit is a [`Fault`], after which the connection must be given up.

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
