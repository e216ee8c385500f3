//! The options of `farlane recording convert`.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{Args, ValueEnum};

use super::{Output, RangeArgs};

pub(super) const EXAMPLES: &str = "Examples:
  farlane recording convert flight.rec --to flight.pcapng
  farlane recording convert flight.rec --to flight --format sigmf --datatype ci16_le --sample-rate 2.4e6";

/// A file format that a recording is converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// The stream's bytes
    Raw,
    /// Packets, as Wireshark writes them
    Pcapng,
    /// Packets of one stream, as tcpdump writes them, with nanoseconds
    Pcap,
    /// Each stream is a channel, each chunk or packet a message
    Mcap,
    /// Samples of a radio, with their metadata
    Sigmf,
}

impl Format {
    /// The word for it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Pcapng => "pcapng",
            Self::Pcap => "pcap",
            Self::Mcap => "mcap",
            Self::Sigmf => "sigmf",
        }
    }

    /// The format that the ending of a file's name stands for.
    pub(crate) fn of_ending(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?;
        if matches!(ending, "sigmf-data" | "sigmf-meta") {
            return Some(Self::Sigmf);
        }
        Self::value_variants().iter().copied().find(|format| format.word().eq_ignore_ascii_case(ending))
    }
}

/// The type of a sample, as SigMF names it.
#[derive(Clone, Debug)]
pub(crate) struct Datatype {
    pub(crate) name: String,
    /// The length of a sample.
    pub(crate) bytes: u64,
}

impl FromStr for Datatype {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = || {
            let (kind, rest) = text.split_at_checked(1)?;
            let count = match kind {
                "r" => 1,
                "c" => 2,
                _ => return None,
            };
            let (number, order) =
                rest.split_once('_').map_or((rest, None), |(number, order)| (number, Some(order)));
            let bytes = match number {
                "f64" => 8,
                "f32" | "i32" | "u32" => 4,
                "i16" | "u16" => 2,
                "i8" | "u8" => 1,
                _ => return None,
            };
            // A number of one byte has no order of bytes, any other number has one.
            let is_right = if bytes == 1 { order.is_none() } else { matches!(order, Some("le" | "be")) };
            is_right.then(|| Self { name: text.to_owned(), bytes: count * bytes })
        };
        parts().ok_or_else(|| {
            "expected c or r, then f64, f32, i32, u32, i16, u16, i8 or u8, then _le or _be, such as ci16_le"
                .to_owned()
        })
    }
}

/// A rate above 0.
fn parse_sample_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "expected samples a second, such as 48000 or 2.4e6".to_owned())
}

/// The part of a recording that is converted, and its destination.
#[derive(Clone, Debug, Args)]
pub(crate) struct ConvertArgs {
    /// The recording; of a striped one, every member
    #[arg(value_name = "RECORDING", required = true)]
    pub(crate) recording: Vec<PathBuf>,
    /// Write to this file, and overwrite its contents; for SigMF, the two files' name without its
    /// ending
    #[arg(long, value_name = "FILE")]
    pub(crate) to: PathBuf,
    /// Write this format [default: that of FILE's ending]
    #[arg(long)]
    pub(crate) format: Option<Format>,
    /// Convert the stream with this number [default: all in pcapng and mcap, else the only one]
    #[arg(long, value_name = "N")]
    pub(crate) stream: Option<u32>,
    #[command(flatten)]
    pub(crate) range: RangeArgs,
    /// State this number of samples a second in SigMF
    #[arg(long, value_name = "HZ", value_parser = parse_sample_rate)]
    pub(crate) sample_rate: Option<f64>,
    /// State this type of a sample in SigMF [default: ru8]
    #[arg(long, value_name = "TYPE")]
    pub(crate) datatype: Option<Datatype>,
    /// Keep the recording's head of 16 bytes before each packet, in raw files of packets
    #[arg(long)]
    pub(crate) heads: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}
