//! SigMF: samples in one file, and their description in another. The samples of a stream of packets
//! are their payloads.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;
use sha2::{Digest as _, Sha512};

use super::{Chunk, Exported, Summary, Writer, create};
use crate::args::{ConvertArgs, Datatype};
use crate::commands::record::hex;
use crate::lasting::Lasting;

/// The version of SigMF.
const VERSION: &str = "1.2.0";

/// The two files of a SigMF recording.
pub(super) struct Sigmf {
    data: BufWriter<Lasting>,
    paths: [PathBuf; 2],
    datatype: Datatype,
    sample_rate: Option<f64>,
    digest: Sha512,
    /// The first bytes of a sample whose rest is in the next chunk.
    begun: Vec<u8>,
    bytes: u64,
    captures: Vec<Capture>,
    annotations: Vec<Annotation>,
}

/// The description of a recording: SigMF's names begin with `core:`.
#[derive(Serialize)]
struct Description<'a> {
    global: Global<'a>,
    captures: Vec<Capture>,
    annotations: Vec<Annotation>,
}

/// The properties of all samples.
#[derive(Serialize)]
struct Global<'a> {
    #[serde(rename = "core:datatype")]
    datatype: &'a str,
    #[serde(rename = "core:version")]
    version: &'static str,
    #[serde(rename = "core:recorder")]
    recorder: &'static str,
    #[serde(rename = "core:sha512")]
    sha512: String,
    #[serde(rename = "core:num_channels")]
    num_channels: u32,
    #[serde(rename = "core:description", skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(rename = "core:sample_rate", skip_serializing_if = "Option::is_none")]
    sample_rate: Option<f64>,
}

/// Samples that follow each other.
#[derive(Serialize)]
struct Capture {
    #[serde(rename = "core:sample_start")]
    sample_start: u64,
    #[serde(rename = "core:datetime")]
    datetime: String,
}

/// A gap.
#[derive(Serialize)]
struct Annotation {
    #[serde(rename = "core:sample_start")]
    sample_start: u64,
    #[serde(rename = "core:label")]
    label: &'static str,
    #[serde(rename = "core:comment")]
    comment: String,
}

/// The paths of the data and of the description, from either of them or from their common name.
pub(super) fn paths(path: &Path) -> [PathBuf; 2] {
    let is_ours =
        |ending: &std::ffi::OsStr| ending == "sigmf-data" || ending == "sigmf-meta" || ending == "sigmf";
    let base = if path.extension().is_some_and(is_ours) { path.with_extension("") } else { path.to_owned() };
    let with = |ending: &str| {
        let mut name = base.clone().into_os_string();
        name.push(ending);
        PathBuf::from(name)
    };
    [with(".sigmf-data"), with(".sigmf-meta")]
}

impl Sigmf {
    pub(super) fn create(path: &Path, args: &ConvertArgs) -> io::Result<Self> {
        let paths = paths(path);
        let datatype = args.datatype.clone().unwrap_or(Datatype { name: "ru8".to_owned(), bytes: 1 });
        Ok(Self {
            data: create(&paths[0])?,
            paths,
            datatype,
            sample_rate: args.sample_rate,
            digest: Sha512::new(),
            begun: Vec::new(),
            bytes: 0,
            captures: Vec::new(),
            annotations: Vec::new(),
        })
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.digest.update(bytes);
        self.bytes += bytes.len() as u64;
        self.data.write_all(bytes)
    }

    fn samples(&self) -> u64 {
        self.bytes / self.datatype.bytes
    }

    /// Writes the samples of `bytes`, which go on from the bytes before unless a sample's beginning
    /// is missing. Samples begin at multiples of their length in the stream.
    fn put_samples(&mut self, place: u64, mut bytes: &[u8]) -> io::Result<()> {
        let size = self.datatype.bytes;
        if self.begun.is_empty() {
            // The rest of a sample whose beginning is missing may be longer than a chunk.
            let skipped = usize::try_from((size - place % size) % size).unwrap_or(usize::MAX);
            bytes = bytes.get(skipped..).unwrap_or_default();
        }
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        if !self.begun.is_empty() {
            let (rest, behind) = bytes.split_at((size - self.begun.len()).min(bytes.len()));
            self.begun.extend(rest);
            bytes = behind;
            if self.begun.len() == size {
                let sample = std::mem::take(&mut self.begun);
                self.put(&sample)?;
            }
        }
        let (whole, rest) = bytes.split_at(bytes.len() / size * size);
        self.begun.extend(rest);
        self.put(whole)
    }
}

impl Writer for Sigmf {
    fn chunk(&mut self, _: usize, stream: &Exported, chunk: &Chunk, missing: u64) -> io::Result<()> {
        if self.captures.is_empty() || missing > 0 {
            // The rest of an incomplete sample is no sample.
            self.begun.clear();
            let sample = self.samples();
            if missing > 0 {
                let comment = format!("{missing} bytes of the stream were lost before this sample");
                self.annotations.push(Annotation { sample_start: sample, label: "gap", comment });
            }
            let first = chunk.packets(&stream.part).next().filter(|_| stream.part.is_packets());
            let nanos = first.map_or(chunk.entry.time, |packet| packet.time.nanos);
            let time = UNIX_EPOCH + Duration::from_nanos(nanos);
            let datetime = humantime::format_rfc3339_nanos(time).to_string();
            self.captures.push(Capture { sample_start: sample, datetime });
        }
        if stream.part.is_packets() {
            // Behind a gap, samples begin with a packet.
            return chunk.packets(&stream.part).try_for_each(|packet| self.put_samples(0, packet.bytes));
        }
        self.put_samples(chunk.place(&stream.part), chunk.bytes(&stream.part))
    }

    fn finish(mut self: Box<Self>, streams: &[Exported]) -> io::Result<Summary> {
        self.data.flush()?;
        let global = Global {
            datatype: &self.datatype.name,
            version: VERSION,
            recorder: concat!("farlane ", env!("CARGO_PKG_VERSION")),
            sha512: hex(&std::mem::take(&mut self.digest).finalize()),
            num_channels: 1,
            description: streams.first().map(|stream| stream.name.as_str()),
            sample_rate: self.sample_rate,
        };
        let described = Description { global, captures: self.captures, annotations: self.annotations };
        let mut file = create(&self.paths[1])?;
        serde_json::to_writer_pretty(&mut file, &described)?;
        file.flush()?;
        Ok(Summary { bytes: self.bytes, messages: 0, files: self.paths.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_chunks_behind_a_gap_shift_no_sample() {
        let directory = tempfile::tempdir().unwrap();
        let paths = paths(&directory.path().join("samples"));
        let mut sigmf = Sigmf {
            data: create(&paths[0]).unwrap(),
            paths,
            datatype: Datatype { name: "cf64_le".to_owned(), bytes: 16 },
            sample_rate: None,
            digest: Sha512::new(),
            begun: Vec::new(),
            bytes: 0,
            captures: Vec::new(),
            annotations: Vec::new(),
        };
        let stream: Vec<u8> = (0..64).collect();
        // The bytes before 3 are lost. The chunk behind them ends within the sample that is cut.
        for (from, end) in [(3_usize, 8), (8, 20), (20, 22), (22, 48), (48, 64)] {
            sigmf.put_samples(from as u64, &stream[from..end]).unwrap();
        }
        sigmf.data.flush().unwrap();
        assert_eq!(std::fs::read(&sigmf.paths[0]).unwrap(), stream[16..]);
    }
}
