//! Packets as captures: pcap and pcapng.

use std::io::{self, BufWriter};
use std::path::Path;

use captures::{Blocks, Detail, LINK, Order, Records};
use record::Survey;
use record::format::{Content, Packet};

use super::{Chunk, Exported, Summary, Writer, create};
use crate::lasting::Lasting;

/// The direction of a packet in the flags of pcapng: received, and sent.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

fn link(stream: &Exported) -> u32 {
    match stream.part.content {
        Content::Packets(link) => link.0.into(),
        Content::Bytes | Content::Other(_) => LINK,
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
    records: Records<BufWriter<Lasting>>,
    summary: Summary,
}

impl Pcap {
    pub(super) fn create(path: &Path, stream: &Exported, survey: &Survey) -> io::Result<Self> {
        let records = Records::begin(create(path)?, link(stream), survey.chunk)?;
        Ok(Self { records, summary: summary(path) })
    }
}

impl Writer for Pcap {
    fn chunk(&mut self, _: usize, stream: &Exported, chunk: &Chunk, _: u64) -> io::Result<()> {
        for packet in chunk.packets(&stream.part) {
            self.records.packet(packet.time.nanos, packet.bytes)?;
            self.summary.messages += 1;
            self.summary.bytes += packet.bytes.len() as u64;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, _: &[Exported]) -> io::Result<Summary> {
        self.records.flush()?;
        Ok(self.summary)
    }
}

/// A pcapng file: each stream is an interface. A comment at a packet counts the bytes that were
/// lost before it.
pub(super) struct Pcapng {
    blocks: Blocks<BufWriter<Lasting>>,
    summary: Summary,
}

impl Pcapng {
    pub(super) fn create(path: &Path, streams: &[Exported]) -> io::Result<Self> {
        let program = concat!("farlane ", env!("CARGO_PKG_VERSION"));
        let details = [Detail::Application(program)];
        let mut blocks = Blocks::begin(create(path)?, Order::Big, &details)?;
        for stream in streams {
            blocks.interface(link(stream), &[Detail::Name(&stream.name), Detail::Nanoseconds])?;
        }
        Ok(Self { blocks, summary: summary(path) })
    }
}

impl Writer for Pcapng {
    fn chunk(&mut self, index: usize, stream: &Exported, chunk: &Chunk, missing: u64) -> io::Result<()> {
        let lost = |missing| format!("farlane: {missing} bytes of the stream were lost before this packet");
        let mut lost = (missing > 0).then(|| lost(missing));
        for packet in chunk.packets(&stream.part) {
            let direction = if packet.flags.is_outgoing() { OUTBOUND } else { INBOUND };
            let mut details = vec![Detail::Flags(direction)];
            let lost = lost.take();
            details.extend(lost.as_deref().map(Detail::Comment));
            if packet.flags.is_cut() {
                details.push(Detail::Comment("farlane: the packet was longer than its recorded part"));
            }
            let interface = u32::try_from(index).unwrap_or(u32::MAX);
            self.blocks.packet(interface, packet.time.nanos, packet.bytes, length(&packet), &details)?;
            self.summary.messages += 1;
            self.summary.bytes += packet.bytes.len() as u64;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, _: &[Exported]) -> io::Result<Summary> {
        self.blocks.flush()?;
        Ok(self.summary)
    }
}
