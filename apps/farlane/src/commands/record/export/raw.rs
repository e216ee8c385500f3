//! The bytes of a stream, one behind the other; of a stream of packets, their payloads.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use record::format::PacketHead;

use super::{Chunk, Exported, Summary, Writer, create};
use crate::lasting::Lasting;

/// A file of bytes.
pub(super) struct Raw {
    file: BufWriter<Lasting>,
    /// The recording's heads stay before the packets.
    keeps_heads: bool,
    summary: Summary,
}

impl Raw {
    pub(super) fn create(path: &Path, keeps_heads: bool) -> io::Result<Self> {
        let summary = Summary { files: vec![path.to_owned()], ..Summary::default() };
        Ok(Self { file: create(path)?, keeps_heads, summary })
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.summary.bytes += bytes.len() as u64;
        self.file.write_all(bytes)
    }
}

impl Writer for Raw {
    fn chunk(&mut self, _: usize, stream: &Exported, chunk: &Chunk, _: u64) -> io::Result<()> {
        if !stream.part.is_packets() {
            return self.put(chunk.bytes(&stream.part));
        }
        chunk.packets(&stream.part).try_for_each(|packet| {
            self.summary.messages += 1;
            if self.keeps_heads {
                let length = u32::try_from(packet.bytes.len()).unwrap_or(u32::MAX);
                let head = PacketHead { flags: packet.flags, ..PacketHead::new(length, packet.time) };
                self.put(&head.emit())?;
            }
            self.put(packet.bytes)
        })
    }

    fn finish(mut self: Box<Self>, _: &[Exported]) -> io::Result<Summary> {
        self.file.flush()?;
        Ok(self.summary)
    }
}
