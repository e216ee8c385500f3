//! The meaning of a capture of PCIe packets: transactions, NVMe commands, and their time by step.
//!
//! [`Analyser::see`] shows an [`Analyser`] each packet, in the order of capture. The analyser
//! returns [`Command`]s as they end. It has no clock and reads no file: the owner of the capture
//! passes it the packets.
//!
//! There are two ways to find commands:
//! - **Known**: the capture has the writes of registers that set up a controller. Then the analyser
//!   knows the queues, reads the entries that the device fetches, and follows doorbells, lists,
//!   data, completions and interrupts ([`known`]).
//! - **Inferred**: the queues are unknown, as in captures of data alone. Then runs of addresses are
//!   considered the data of commands ([`inferred`]), and [`Statistics`] has the matching share of
//!   the capture.
//!
//! Commands of NVMe/TCP come from the segments of a network's capture ([`fabric`]), and others from
//! the output of Linux's tracers ([`events`]).
//!
//! # Trust
//! A capture is untrusted input. Each table has a limit, [`WAITING_MAX`] and others;
//! [`Statistics::dropped`] counts packets that do not fit.
//!
//! ```
//! use engine::Instant;
//! use farlane_trace::{Analyser, Direction, Kind, Seen};
//! use pcie::wire::Head;
//!
//! let mut analyser = Analyser::new();
//! // An SSD at 19:00.0 writes 256 bytes, twice: the data of a read of one block.
//! for (number, at, address) in [(0, 0, 0x00), (1, 700, 0x01)] {
//!     let bytes = [0x40, 0, 0, 0x40, 0x19, 0, 0, 0xff, 0xa0, 0, address, 0];
//!     let head = Head::parse(&bytes).expect("a memory write");
//!     let at = Instant::from_nanos(at);
//!     let direction = Direction::Up;
//!     analyser.see(&Seen { number, at, direction, header: &head.header, payload: &[] });
//! }
//! analyser.finish();
//! let command = analyser.poll_command().expect("one command");
//! assert_eq!((command.kind, command.bytes), (Kind::InferredRead, 512));
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod analyser;
mod command;
pub mod events;
pub mod fabric;
pub mod fields;
pub mod fuzz;
pub mod inferred;
pub mod known;
mod seen;
mod statistics;
mod transaction;

pub use analyser::Analyser;
pub use command::{Command, Hop, Kind, Place, Step};
pub use seen::{Direction, Seen};
pub use statistics::Statistics;
pub use transaction::{Transaction, Transactions, WAITING_MAX};
