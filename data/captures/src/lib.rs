//! Captures as files: reads untrusted ones, decodes their content, and writes Farlane's own.
//!
//! [`Commands`] returns the NVMe commands of a file one after the other, [`Packets`] its PCIe
//! packets: a file may be larger than memory. [`Reader`] returns frames with any content. The crate
//! `trace` turns them into commands. This crate reads files for it, and makes tables of the
//! results.
//!
//! | file | content |
//! |---|---|
//! | pcap, pcapng | frames of Farlane, of NetTLP, and of networks with NVMe over fabrics |
//! | CSV | tables of hardware analysers, whose columns are named ([`Columns`]) |
//! | text | Linux's trace events of nvme and block, and blkparse |
//!
//! # Trust
//! A file is untrusted input. If it is not a capture, or is malformed, the result is an [`Error`]
//! with the position of the byte; the part before it was read. A block has at most 1 MiB, a line is
//! read up to 64 KiB, and each table of the analysis has a limit of its own.
//!
//! ```
//! use captures::{Commands, Error, Source};
//!
//! let source = Source { file: "nowhere.pcapng".as_ref(), columns: None };
//! assert!(matches!(Commands::open(source), Err(Error::File { .. })));
//! ```

#![forbid(unsafe_code)]

mod blocks;
mod commands;
mod error;
mod framing;
pub mod fuzz;
mod lines;
mod links;
mod names;
mod notes;
pub mod ordered;
mod population;
mod reader;
mod reading;
mod rows;
mod simulated;
mod sink;
pub mod statistics;
pub mod table;
mod units;

pub use blocks::{Blocks, Detail, Order, Records};
pub use commands::{Commands, Packets, Source, each_command, each_packet, refuse_empty};
pub use error::Error;
pub use framing::{Held, Packet, header, held};
pub use links::{ETHERNET, LINK};
pub use names::{KINDS_MAX, OTHERS, name, of_kind};
pub use notes::{knowledge_of, note_of};
pub use ordered::Ordered;
pub use population::{Population, Times, populations};
pub use reader::{Frame, Item, Place, Reader, Tally};
pub use reading::{Analysis, Flaws, Reading, UnknownLinks};
pub use rows::Columns;
pub use simulated::Simulated;
pub use sink::Sink;
pub use statistics::{Group, Groups};
