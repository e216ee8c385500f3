//! Rings: how a recorder overwrites the oldest.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use record::format::STREAMS_MAX;

use super::{Output, parse_positive_size, parse_size, parse_time};

/// How long a stream is kept in a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeepSpec {
    /// The number of the stream; all of them if there is none.
    pub(crate) stream: Option<usize>,
    pub(crate) what: KeepFor,
}

/// The amount of data to keep.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeepFor {
    Time(Duration),
    Bytes(u64),
}

impl FromStr for KeepSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected a time or a size such as 10m or 20GiB, or 0=10m for stream 0 alone";
        let (stream, what) = match text.split_once('=') {
            Some((stream, what)) => {
                let stream = stream.parse().ok().filter(|stream| *stream < STREAMS_MAX);
                (Some(stream.ok_or_else(|| expected.to_owned())?), what)
            }
            None => (None, text),
        };
        let time = parse_time(what).map(KeepFor::Time);
        let what = time.or_else(|_| parse_positive_size(what).map(KeepFor::Bytes));
        what.map(|what| Self { stream, what }).map_err(|_| expected.to_owned())
    }
}

/// Whether and how the oldest data are overwritten.
#[derive(Clone, Debug, Args)]
pub(crate) struct RingArgs {
    /// Overwrite the oldest when the medium, or so much of it, is full.
    ///
    /// A file or block device needs a SIZE; a namespace of another device is used whole without
    /// one. farlane record ctl PATH pin protects a part from being overwritten
    #[arg(long, value_name = "SIZE", num_args = 0..=1, value_parser = parse_positive_size)]
    pub(crate) ring: Option<Option<u64>>,

    /// Keep a stream of a ring for this time, or this many bytes of it, if anything else can be
    /// overwritten; may be given again.
    ///
    /// For example, --keep 0=1m --keep 1=24h keeps stream 1 for longer than stream 0
    #[arg(long, value_name = "[STREAM=]TIME|SIZE", requires = "ring")]
    pub(crate) keep: Vec<KeepSpec>,
}

/// The part of a ring to pin.
#[derive(Clone, Debug, Args)]
#[command(group = clap::ArgGroup::new("pinned").args(["last", "from_offset", "nothing"]).required(true))]
pub(crate) struct PinArgs {
    /// Pin the data of all streams within this time
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) last: Option<Duration>,
    /// Pin from this byte of a stream on; lost bytes are counted
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "bytes")]
    pub(crate) from_offset: Option<u64>,
    /// Pin so many bytes
    #[arg(long, value_name = "SIZE", value_parser = parse_positive_size, requires = "from_offset")]
    pub(crate) bytes: Option<u64>,
    /// Pin bytes of the stream with this number; the first is 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) stream: u32,
    /// Let all pinned data be overwritten
    #[arg(long)]
    pub(crate) nothing: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}
