//! Captures of PCIe packets as files: reading those of anybody, writing our own.

mod framing;
mod reader;
mod simulated;
mod words;
mod writer;

pub(crate) use framing::{Held, Packet, held};
pub(crate) use reader::{Frame, Place, Reader};
pub(crate) use simulated::Simulated;
pub(crate) use words::each_line;
pub(crate) use writer::{Captured, capture};
