//! A low-latency network card and the host that drives it: packets of up to 60 bytes in one line.
//!
//! A [`Card`] has registers, and a window of lines that the host maps. The [`Host`] sends a small
//! packet by storing one line of 64 bytes into the window. It receives by polling the line in which
//! the next packet will be. Longer packets are in host memory; a line then refers to them.
//! The README has the registers and the layout, complete enough for a card in hardware.
//!
//! ```
//! use farlane_niq::{Card, Host, HOST_MEMORY_BYTES, HostConfig, PACKET_MAX, WINDOW_BYTES};
//! use pcie::memory::Ram;
//!
//! let (address, everyone) = ([2, 0, 0, 0, 0, 1], [0xff; 6]);
//! let (mut window, mut memory) = (Ram::new(0, WINDOW_BYTES), Ram::new(0, HOST_MEMORY_BYTES));
//! let (mut card, mut host) = (Card::new(address), Host::new(HostConfig::default()));
//! card.set_link(true);
//! for (register, value) in host.start(&mut memory).unwrap() {
//!     card.register_write(&mut window, register.into(), &value.to_le_bytes());
//! }
//! let packet = [&everyone[..], &address[..], &[0x88, 0xb5], b"hello"].concat();
//! host.send(&mut window, &mut memory, &packet, false).unwrap();
//!
//! // The wire returns the card's packets.
//! let mut bytes = [0; PACKET_MAX];
//! let length = card.poll_transmit(&mut window, &mut memory, &mut bytes).unwrap();
//! card.receive(&mut window, &mut memory, &bytes[..length]);
//! let received = host.receive(&mut window, &mut memory, &mut bytes).unwrap().unwrap();
//! assert_eq!(bytes[..received.length], packet);
//! ```
//!
//! # Requirements on the shared memory
//! Where the two sides run at the same time, the window's [`pcie::memory::Memory`] writes the words
//! of a line from first to last, and reads them from last to first. A line whose last word is valid
//! is then complete, and of two counts in a line the first is never behind the second.
//!
//! # Trust
//! A host may write anything to any register and any line, and name any memory. The card answers an
//! invalid line by stopping that queue with a [`Fault`], which a register shows until the host
//! starts the queue anew. A card may write anything into its window: [`Host::receive`] then returns
//! a [`HostFault`].
#![cfg_attr(doc, doc = include_str!("../README.md"))]
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate alloc;

mod card;
mod counts;
mod filter;
pub mod fuzz;
mod host;
mod layout;
mod line;
pub mod registers;
#[cfg(test)]
mod tests;

pub use card::{Arrival, Card, Fault};
pub use counts::Counts;
pub use host::{Credits, HOST_MEMORY_BYTES, Host, HostConfig, HostFault, Path, Received, SendError};
pub use layout::{QUEUES, SLOTS, WINDOW_BYTES};
pub use line::{INLINE_MAX, PACKET_MAX, PACKET_MIN};
