//! MCAP: each stream is a channel.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use mcap::records::{MessageHeader, Metadata};
use mcap::{McapError, WriteOptions};
use record::Survey;
use record::format::Content;

use super::{Chunk, Exported, Summary, Writer, create};
use crate::commands::record::hex;
use crate::lasting::Lasting;

/// How messages are encoded: only the user knows.
const ENCODING: &str = "application/octet-stream";

fn failed(error: McapError) -> io::Error {
    match error {
        McapError::Io(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

/// An MCAP file, without compression.
pub(super) struct Mcap {
    writer: mcap::Writer<BufWriter<Lasting>>,
    /// The channel of each stream, and the number of its next message.
    channels: Vec<(u16, u32)>,
    summary: Summary,
}

fn texts<const N: usize>(pairs: [(&str, String); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

impl Mcap {
    pub(super) fn create(path: &Path, streams: &[Exported], survey: &Survey) -> io::Result<Self> {
        let library = concat!("farlane ", env!("CARGO_PKG_VERSION"));
        let options = WriteOptions::new().library(library).compression(None);
        let mut writer = options.create(create(path)?).map_err(failed)?;
        let mut channels = Vec::new();
        for stream in streams {
            let (content, link) = match stream.part.content {
                Content::Packets(link) => ("packets", link.0.to_string()),
                Content::Bytes | Content::Other(_) => ("bytes", String::new()),
            };
            let metadata = texts([
                ("stream", stream.number.to_string()),
                ("content", content.into()),
                ("link_type", link),
            ]);
            let channel = writer.add_channel(0, &stream.name, ENCODING, &metadata).map_err(failed)?;
            channels.push((channel, 0));
        }
        let id = hex(&survey.recording.unwrap_or_default());
        let metadata = Metadata { name: "farlane".to_owned(), metadata: texts([("recording", id)]) };
        writer.write_metadata(&metadata).map_err(failed)?;
        let summary = Summary { files: vec![path.to_owned()], ..Summary::default() };
        Ok(Self { writer, channels, summary })
    }

    fn write(&mut self, index: usize, time: u64, bytes: &[u8]) -> io::Result<()> {
        let (channel_id, next) = &mut self.channels[index];
        let (channel_id, sequence) = (*channel_id, *next);
        *next = next.wrapping_add(1);
        let header = MessageHeader { channel_id, sequence, log_time: time, publish_time: time };
        self.summary.messages += 1;
        self.summary.bytes += bytes.len() as u64;
        self.writer.write_to_known_channel(&header, bytes).map_err(failed)
    }
}

impl Writer for Mcap {
    fn chunk(&mut self, index: usize, stream: &Exported, chunk: &Chunk, _: u64) -> io::Result<()> {
        if !stream.part.is_packets() {
            return self.write(index, chunk.entry.time, chunk.bytes(&stream.part));
        }
        let mut packets = chunk.packets(&stream.part);
        packets.try_for_each(|packet| self.write(index, packet.time.nanos, packet.bytes))
    }

    fn finish(mut self: Box<Self>, streams: &[Exported]) -> io::Result<Summary> {
        for gap in streams.iter().flat_map(|stream| &stream.gaps) {
            let mut metadata = texts([
                ("stream", gap.stream.to_string()),
                ("from", gap.from.to_string()),
                ("when", gap.when.to_string()),
            ]);
            let name = if gap.is_restart() { "farlane.restart" } else { "farlane.gap" };
            if !gap.is_restart() {
                metadata.extend(texts([
                    ("bytes", gap.bytes.to_string()),
                    ("packets", gap.packets.to_string()),
                    ("where", gap.place.word().into()),
                    ("why", gap.cause.word().into()),
                ]));
            }
            let metadata = Metadata { name: name.to_owned(), metadata };
            self.writer.write_metadata(&metadata).map_err(failed)?;
        }
        self.writer.finish().map_err(failed)?;
        self.writer.into_inner().flush()?;
        Ok(self.summary)
    }
}
