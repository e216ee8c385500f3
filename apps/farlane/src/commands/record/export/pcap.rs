//! Packets as captures: pcap and pcapng.

use std::borrow::Cow;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, PcapError, TsResolution};
use record::Survey;
use record::format::{Content, Packet};

use super::{Chunk, Exported, Summary, Writer, create};
use crate::lasting::Lasting;

/// The direction of a packet in the flags of pcapng: received, and sent.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;
/// Time stamps count in units of 10 to the minus 9 seconds.
const NANOSECONDS: u8 = 9;

fn failed(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

fn link(stream: &Exported) -> DataLink {
    match stream.part.content {
        Content::Packets(link) => u32::from(link.0).into(),
        Content::Bytes | Content::Other(_) => DataLink::USER0,
    }
}

fn length(packet: &Packet<'_>) -> u32 {
    u32::try_from(packet.bytes.len()).unwrap_or(u32::MAX)
}

fn summary(path: &Path) -> Summary {
    Summary { files: vec![path.to_owned()], ..Summary::default() }
}

/// A pcap file, with time stamps in nanoseconds.
pub(super) struct Pcap {
    writer: PcapWriter<BufWriter<Lasting>>,
    summary: Summary,
}

impl Pcap {
    pub(super) fn create(path: &Path, stream: &Exported, survey: &Survey) -> io::Result<Self> {
        let header = PcapHeader {
            snaplen: survey.chunk,
            datalink: link(stream),
            ts_resolution: TsResolution::NanoSecond,
            ..PcapHeader::default()
        };
        let writer = PcapWriter::with_header(create(path)?, header).map_err(failed)?;
        Ok(Self { writer, summary: summary(path) })
    }
}

impl Writer for Pcap {
    fn chunk(&mut self, _: usize, stream: &Exported, chunk: &Chunk, _: u64) -> io::Result<()> {
        for packet in chunk.packets(&stream.part) {
            let time = Duration::from_nanos(packet.time.nanos);
            let record = PcapPacket::new(time, length(&packet), packet.bytes);
            self.writer.write_packet(&record).map_err(failed)?;
            self.summary.messages += 1;
            self.summary.bytes += packet.bytes.len() as u64;
        }
        Ok(())
    }

    fn finish(self: Box<Self>, _: &[Exported]) -> io::Result<Summary> {
        self.writer.into_writer().flush()?;
        Ok(self.summary)
    }
}

/// A pcapng file: each stream is an interface. A comment at a packet says what was lost before it.
pub(super) struct Pcapng {
    writer: PcapNgWriter<BufWriter<Lasting>>,
    summary: Summary,
}

impl Pcapng {
    pub(super) fn create(path: &Path, streams: &[Exported]) -> io::Result<Self> {
        let program = concat!("farlane ", env!("CARGO_PKG_VERSION"));
        let options = vec![SectionHeaderOption::UserApplication(program.into())];
        let section = SectionHeaderBlock { options, ..SectionHeaderBlock::default() };
        let mut writer = PcapNgWriter::with_section_header(create(path)?, section).map_err(failed)?;
        for stream in streams {
            let options = vec![
                InterfaceDescriptionOption::IfName(stream.name.clone().into()),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ];
            let interface = InterfaceDescriptionBlock { linktype: link(stream), snaplen: 0, options };
            writer.write_pcapng_block(interface).map_err(failed)?;
        }
        Ok(Self { writer, summary: summary(path) })
    }
}

impl Writer for Pcapng {
    fn chunk(&mut self, index: usize, stream: &Exported, chunk: &Chunk, missing: u64) -> io::Result<()> {
        let lost = |missing| format!("farlane: {missing} bytes of the stream were lost before this packet");
        let mut lost = (missing > 0).then(|| lost(missing));
        for packet in chunk.packets(&stream.part) {
            let direction = if packet.flags.is_outgoing() { OUTBOUND } else { INBOUND };
            let mut options = vec![EnhancedPacketOption::Flags(direction)];
            options.extend(lost.take().map(|lost| EnhancedPacketOption::Comment(lost.into())));
            if packet.flags.is_cut() {
                let cut = "farlane: the packet was longer than what was recorded";
                options.push(EnhancedPacketOption::Comment(cut.into()));
            }
            let block = EnhancedPacketBlock {
                interface_id: u32::try_from(index).unwrap_or(u32::MAX),
                timestamp: Duration::from_nanos(packet.time.nanos),
                original_len: length(&packet),
                data: Cow::Borrowed(packet.bytes),
                options,
            };
            self.writer.write_pcapng_block(block).map_err(failed)?;
            self.summary.messages += 1;
            self.summary.bytes += packet.bytes.len() as u64;
        }
        Ok(())
    }

    fn finish(self: Box<Self>, _: &[Exported]) -> io::Result<Summary> {
        self.writer.into_inner().flush()?;
        Ok(self.summary)
    }
}
