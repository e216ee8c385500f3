//! A pcapng file that is being written: its beginning, its frames, and at the end the count of lost
//! packets.

use std::io::{self, BufWriter, Write};
use std::time::Duration;

use crate::blocks::{Blocks, Detail, Order};
use crate::links::ETHERNET;
use crate::reader::Tally;

/// A pcapng file with frames of one interface.
pub struct Sink<W: Write> {
    blocks: Blocks<BufWriter<W>>,
    link: u32,
    /// The time of the latest frame, since 1970.
    latest: Duration,
    bytes: u64,
}

impl<W: Write> Sink<W> {
    /// Begins a file whose frames have the link type `link`. `notes` are information for readers
    /// besides the frames.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn begin(out: W, link: u32, notes: &[String]) -> io::Result<Self> {
        let blocks = Blocks::begin(BufWriter::new(out), Order::Little, &[])?;
        let mut sink = Self { blocks, link, latest: Duration::ZERO, bytes: 0 };
        sink.note(notes)?;
        sink.flush()?;
        Ok(sink)
    }

    /// Adds information for readers of later frames, as the description of an interface. The frames
    /// still belong to the first interface.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn note(&mut self, notes: &[String]) -> io::Result<()> {
        let (name, description) = match self.link {
            ETHERNET => ("fabric", "connections of NVMe over fabrics, with headers made by farlane"),
            _ => ("port", "PCIe packets, docs/trace.md"),
        };
        let mut details = vec![Detail::Name(name), Detail::Description(description), Detail::Nanoseconds];
        details.extend(notes.iter().map(|note| Detail::Comment(note)));
        self.blocks.interface(self.link, &details)
    }

    /// Appends a frame that passed at `at` since 1970 and had `original` bytes.
    ///
    /// # Errors
    /// The system's.
    pub fn put(&mut self, at: Duration, bytes: &[u8], original: usize) -> io::Result<()> {
        self.latest = self.latest.max(at);
        self.bytes += bytes.len() as u64;
        let original = u32::try_from(original).unwrap_or(u32::MAX);
        self.blocks.packet(0, nanos(at), bytes, original, &[])
    }

    /// Bytes of the frames that were put.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Hands on all that was put.
    ///
    /// # Errors
    /// The system's.
    pub fn flush(&mut self) -> io::Result<()> {
        self.blocks.flush()
    }

    /// Ends the file with the counts of captured and lost packets.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn finish(mut self, tally: Tally) -> io::Result<()> {
        let details = [Detail::Received(tally.seen), Detail::Dropped(tally.lost)];
        self.blocks.statistics(0, nanos(self.latest), &details)?;
        self.flush()
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
