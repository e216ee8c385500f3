//! `farlane recording convert`: a recording for programs that know other formats.

mod mcap;
mod pcap;
mod raw;
mod sigmf;

use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use live::sys::files::{self, Kind};
use record::Survey;
use record::format::{Entry, Gap};
use schemars::JsonSchema;
use serde::Serialize;

use super::part::{Chunk, Opened, Part};
use super::{first, print, print_json};
use crate::args::{ConvertArgs, Format};
use crate::error::Error;
use crate::lasting::Lasting;

/// A stream that is exported.
struct Exported {
    number: u32,
    name: String,
    part: Part,
    /// Gaps of the stream within the part.
    gaps: Vec<Gap>,
    /// The place behind the last chunk that was exported.
    behind: Option<u64>,
}

impl Exported {
    fn of(survey: &Survey, number: u32, args: &ConvertArgs) -> Result<Self, Error> {
        let part = Part::of(survey, number, &args.range)?;
        let names = survey.superblock.as_ref();
        let name = names.and_then(|names| names.streams.get(number as usize)).cloned();
        let is_within = |gap: &&Gap| {
            let is_behind = gap.end() > part.places.start || gap.from == part.places.start;
            gap.stream == number && is_behind && gap.from < part.places.end
        };
        let gaps = survey.gaps.iter().filter(is_within).copied().collect();
        let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| format!("stream {number}"));
        Ok(Self { number, name, part, gaps, behind: None })
    }

    /// Takes note of a chunk. Returns how many bytes are missing before it.
    fn on_chunk(&mut self, chunk: &Chunk) -> u64 {
        let behind = self.behind.replace(chunk.entry.end());
        behind.map_or(0, |behind| chunk.place(&self.part).saturating_sub(behind))
    }
}

/// The result of an export.
#[derive(Debug, Default)]
struct Summary {
    bytes: u64,
    /// Packets or messages, where the format has such.
    messages: u64,
    files: Vec<PathBuf>,
}

/// The result of a conversion to another format.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Converted<'a> {
    format: &'static str,
    bytes: u64,
    /// Packets or messages, where the format has such.
    messages: u64,
    /// Bytes that were lost, or are in chunks that can't be used.
    bytes_lost: u64,
    /// Chunks that can't be used.
    bad_chunks: u64,
    files: &'a [String],
}

/// Writes a format.
trait Writer {
    /// Writes a chunk of a stream. `missing` bytes of the stream before it are not there.
    fn chunk(&mut self, index: usize, stream: &Exported, chunk: &Chunk, missing: u64) -> io::Result<()>;
    /// Writes the end of the file.
    fn finish(self: Box<Self>, streams: &[Exported]) -> io::Result<Summary>;
}

/// The exported file is durable once the writer is flushed.
fn create(path: &Path) -> io::Result<BufWriter<Lasting>> {
    Ok(BufWriter::with_capacity(1 << 20, Lasting(files::write(path, Kind::Private)?)))
}

pub(crate) fn run(args: &ConvertArgs) -> Result<(), Error> {
    let to = &args.to;
    let named = args.format.or_else(|| Format::of_ending(to));
    let format = named.ok_or_else(|| Error::NoFormat { path: to.clone() })?;
    if args.heads && format != Format::Raw {
        let why = format!("--heads is for --format raw: {} has a form of its own", format.word());
        return Err(Error::Export { why });
    }
    let given = [("--sample-rate", args.sample_rate.is_some()), ("--datatype", args.datatype.is_some())];
    if let Some((option, _)) = given.into_iter().find(|(_, is_given)| *is_given && format != Format::Sigmf) {
        let why = format!("{option} is for --format sigmf: {} does not describe samples", format.word());
        return Err(Error::Export { why });
    }
    let outputs = match format {
        Format::Sigmf => sigmf::paths(to).to_vec(),
        _ => vec![to.clone()],
    };
    outputs.iter().try_for_each(|output| super::check_output(&args.recording, output))?;
    let opened = Opened::open(&args.recording)?;
    let survey = &opened.survey;
    let mut streams = choose(survey, format, args)?;
    let file_error = |error| Error::File { path: to.clone(), error };
    let mut writer: Box<dyn Writer> = match format {
        Format::Raw => Box::new(raw::Raw::create(to, args.heads).map_err(file_error)?),
        Format::Pcap => Box::new(pcap::Pcap::create(to, &streams[0], survey).map_err(file_error)?),
        Format::Pcapng => Box::new(pcap::Pcapng::create(to, &streams).map_err(file_error)?),
        Format::Mcap => Box::new(mcap::Mcap::create(to, &streams, survey).map_err(file_error)?),
        Format::Sigmf => Box::new(sigmf::Sigmf::create(to, args).map_err(file_error)?),
    };
    let ahead = opened.read(in_order(&streams), 1, None);
    while let Some(chunk) = ahead.next(first(&args.recording))? {
        let index = streams.iter().position(|stream| stream.number == chunk.entry.stream);
        let Some(index) = index else { continue };
        let missing = streams[index].on_chunk(&chunk);
        writer.chunk(index, &streams[index], &chunk, missing).map_err(file_error)?;
        ahead.give_back(chunk);
    }
    let bad = ahead.finish();
    let lost: u64 = streams.iter().map(|stream| stream.part.lost()).sum();
    let summary = writer.finish(&streams).map_err(file_error)?;
    report(&summary, format, lost + bad.bytes, bad.chunks, args.output.json)
}

/// The chunks of all streams. The earliest chunk stands first. Each stream keeps its own order,
/// also where a clock was set back.
fn in_order(streams: &[Exported]) -> Vec<Entry> {
    let of_stream = |stream: &Exported| {
        let mut latest = 0;
        let timed = |entry: &Entry| {
            latest = entry.time.max(latest);
            (latest, *entry)
        };
        stream.part.entries.iter().map(timed).collect::<Vec<_>>()
    };
    let mut entries: Vec<_> = streams.iter().flat_map(of_stream).collect();
    entries.sort_by_key(|(time, _)| *time);
    entries.into_iter().map(|(_, entry)| entry).collect()
}

/// The streams that a person asked for and that the format can have.
fn choose(survey: &Survey, format: Format, args: &ConvertArgs) -> Result<Vec<Exported>, Error> {
    let all = u32::try_from(survey.streams()).unwrap_or(0);
    let is_packets = matches!(format, Format::Pcap | Format::Pcapng);
    let takes_several = matches!(format, Format::Pcapng | Format::Mcap);
    let numbers = match args.stream {
        Some(number) => number..number.saturating_add(1),
        None if takes_several || all == 1 => 0..all,
        None => {
            let why = format!("--format {} has one stream, of {all} here: give --stream", format.word());
            return Err(Error::Export { why });
        }
    };
    let streams = numbers.map(|number| Exported::of(survey, number, args));
    let mut streams = streams.collect::<Result<Vec<_>, _>>()?;
    if is_packets {
        streams.retain(|stream| stream.part.is_packets());
    }
    if args.heads && streams.iter().any(|stream| !stream.part.is_packets()) {
        let why = "--heads is for streams of packets, and this one consists of bytes: leave --heads out";
        return Err(Error::Export { why: why.to_owned() });
    }
    if streams.is_empty() {
        let why = format!(
            "--format {} requires a stream of packets, and none was recorded: raw, mcap and sigmf take bytes",
            format.word()
        );
        return Err(Error::Export { why });
    }
    Ok(streams)
}

fn report(summary: &Summary, format: Format, lost: u64, bad: u64, is_json: bool) -> Result<(), Error> {
    let files: Vec<_> = summary.files.iter().map(|file| file.display().to_string()).collect();
    if is_json {
        return print_json(&Converted {
            format: format.word(),
            bytes: summary.bytes,
            messages: summary.messages,
            bytes_lost: lost,
            bad_chunks: bad,
            files: &files,
        });
    }
    let mut text = format!("{} B exported to {}", summary.bytes, files.join(" and "));
    if summary.messages > 0 {
        text += &format!(", {} packets or messages", summary.messages);
    }
    if lost > 0 || bad > 0 {
        text += &format!("\n  left out: {lost} B that were lost, {bad} bad chunks");
    }
    print(&(text + "\n"))
}
