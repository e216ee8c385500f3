//! A pcapng file while it is written: its beginning, its frames, and at the end what was lost.

use std::io::{self, BufWriter, Write};
use std::time::Duration;

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption};
use pcap_file::{DataLink, Endianness, PcapError};

use crate::framing::ETHERNET;
use crate::reader::Tally;

/// Time stamps count in units of 10 to the minus 9 seconds.
const NANOSECONDS: u8 = 9;

/// A pcapng file whose frames are of one interface.
pub struct Sink<W: Write> {
    writer: PcapNgWriter<BufWriter<W>>,
    link: u32,
    /// The time of the latest frame, since 1970.
    latest: Duration,
    bytes: u64,
}

impl<W: Write> Sink<W> {
    /// Begins a file whose frames have the link type `link`. `notes` tell a reader what the frames
    /// do not.
    ///
    /// # Errors
    /// The system's.
    pub fn begin(out: W, link: u32, notes: &[String]) -> io::Result<Self> {
        let out = BufWriter::new(out);
        let writer = PcapNgWriter::with_endianness(out, Endianness::Little).map_err(failed)?;
        let mut sink = Self { writer, link, latest: Duration::ZERO, bytes: 0 };
        sink.note(notes)?;
        sink.flush()?;
        Ok(sink)
    }

    /// Tells a reader what the frames from now on do not, by the description of an interface.
    /// Frames are those of the first one all the same.
    ///
    /// # Errors
    /// The system's.
    pub fn note(&mut self, notes: &[String]) -> io::Result<()> {
        let (name, description) = match self.link {
            ETHERNET => ("fabric", "connections of NVMe over fabrics, with headers made by farlane"),
            _ => ("port", "PCIe packets, docs/trace.md"),
        };
        let mut options = vec![
            InterfaceDescriptionOption::IfName(name.into()),
            InterfaceDescriptionOption::IfDescription(description.into()),
            InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
        ];
        options.extend(notes.iter().map(|note| InterfaceDescriptionOption::Comment(note.into())));
        let interface =
            InterfaceDescriptionBlock { linktype: DataLink::from(self.link), snaplen: 0, options };
        self.writer.write_pcapng_block(interface).map(drop).map_err(failed)
    }

    /// Appends a frame that passed at `at` since 1970 and had `original` bytes.
    ///
    /// # Errors
    /// The system's.
    pub fn put(&mut self, at: Duration, bytes: &[u8], original: usize) -> io::Result<()> {
        self.latest = self.latest.max(at);
        self.bytes += bytes.len() as u64;
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: at,
            original_len: u32::try_from(original).unwrap_or(u32::MAX),
            data: bytes.into(),
            options: Vec::new(),
        };
        self.writer.write_pcapng_block(block).map(drop).map_err(failed)
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
        self.writer.get_mut().flush()
    }

    /// Ends the file with what passed and what was lost of it.
    ///
    /// # Errors
    /// The system's.
    pub fn finish(mut self, tally: Tally) -> io::Result<()> {
        let block = InterfaceStatisticsBlock {
            interface_id: 0,
            // The upper half of a time stamp comes first, which the writer does not know.
            timestamp: u64::try_from(self.latest.as_nanos()).unwrap_or(u64::MAX).rotate_left(32),
            options: vec![
                InterfaceStatisticsOption::IsbIfRecv(tally.seen),
                InterfaceStatisticsOption::IsbIfDrop(tally.lost),
            ],
        };
        self.writer.write_pcapng_block(block).map_err(failed)?;
        self.flush()
    }
}

fn failed(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other.to_string()),
    }
}
