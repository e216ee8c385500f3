//! Captures of PCIe packets as files: reading those of anybody, writing our own.

mod framing;
mod notes;
mod queue;
mod reader;
mod rows;
mod segments;
mod simulated;
mod sink;
mod tap;
mod words;
mod writer;

pub(crate) use framing::{ETHERNET, Held, LINK, Packet, held};
pub(crate) use notes::{note_of, told_by};
pub(crate) use queue::Tally;
pub(crate) use reader::{Frame, Item, Place, Reader};
pub(crate) use rows::{Columns, Row, TableError, each_row};
pub(crate) use simulated::Simulated;
pub(crate) use sink::Sink;
pub(crate) use tap::{Taps, What};
pub(crate) use words::each_line;
pub(crate) use writer::{Captured, Times, Wanted, capture, to_file};
