//! The options of `farlane recording preflight`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, value_parser};
use record::format::STREAMS_MAX;

use super::record::{parse_chunk, parse_rate};
use super::{DigestArg, Output, parse_positive_size, parse_runtime};

pub(super) const EXAMPLES: &str = "Examples:
  farlane recording preflight --rate 1.2GB/s --for 2h flight.rec
  farlane recording preflight --rate 100MB/s --for 8h /mnt/ssd --measure 2m --json
  farlane recording preflight --rate 400MB/s --for 10m --overwrite /dev/nvme1n1
  farlane recording preflight --rate 80MB/s --for 1h --overwrite tcp://far.example:4430
  farlane recording preflight --udp 8 flight.rec

Exit status is 0 if the recording fits, also if it needs a larger buffer, and 1 if it does not. With --udp,
it is 1 if every rate loses datagrams.";

/// The longest datagram of IPv4, in bytes.
const DATAGRAM_MAX: i64 = 65_507;

/// Measure whether a medium keeps up with a recording.
#[derive(Debug, Args)]
pub(crate) struct PreflightArgs {
    /// Where the recording is to go, as with farlane record --to.
    ///
    /// A file or directory is measured by a file without a name beside it, which is gone afterwards
    #[arg(value_name = "PATH|URL")]
    pub(crate) device: PathBuf,
    /// The rate of the sources together in bytes a second, such as 100MB/s
    #[arg(long, value_name = "RATE", value_parser = parse_rate, required_unless_present = "udp")]
    pub(crate) rate: Option<u64>,
    /// How long the recording is to be
    #[arg(long = "for", value_name = "TIME", value_parser = parse_runtime, required_unless_present = "udp")]
    pub(crate) time: Option<Duration>,
    #[command(flatten)]
    pub(crate) datagrams: UdpPreflightArgs,
    /// Overwrite the block device or the namespace: all of its data may be lost
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Measure for so long, unless --measure-size ends it before
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_runtime)]
    pub(crate) measure: Duration,

    /// Measure with at most so many bytes [default: nine tenths of the free space].
    ///
    /// A file takes no more than that. A block device or namespace is written again from its start
    /// once it has ended
    #[arg(long, value_name = "SIZE", value_parser = parse_positive_size)]
    pub(crate) measure_size: Option<u64>,
    /// The length of a chunk, between 16 KiB and 1 MiB
    #[arg(long, value_name = "SIZE", default_value = "128k", value_parser = parse_chunk)]
    pub(crate) chunk: u32,
    /// The size of the recorder's buffer [default: 256 chunks]
    #[arg(long, value_name = "SIZE", value_parser = parse_positive_size)]
    pub(crate) buffer: Option<u64>,
    /// Predict the rate beyond the measurement by this model of an SSD, such as 970-evo.
    ///
    /// docs/scenarios.md lists the models
    #[arg(long, value_name = "NAME", value_parser = parse_model)]
    pub(crate) model: Option<sim::models::ssd::Parameters>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// How the highest rate of datagrams is found.
#[derive(Clone, Debug, Args)]
pub(crate) struct UdpPreflightArgs {
    /// Find the highest rate at which so many UDP streams together are recorded without loss, and
    /// name the part that limits it.
    ///
    /// Datagrams are sent over loopback and recorded as farlane record does it, at one rate after
    /// the other. This host sends them, too: where that is the limit, the report says so
    #[arg(long, value_name = "STREAMS", value_parser = value_parser!(u32).range(1..=STREAMS_MAX as i64),
        conflicts_with_all = ["rate", "time", "measure", "measure_size", "model"])]
    pub(crate) udp: Option<u32>,
    /// The length of a datagram's data in bytes
    #[arg(long, value_name = "BYTES", default_value = "8192", requires = "udp", conflicts_with_all = ["rate", "time"],
        value_parser = value_parser!(u32).range(1..=DATAGRAM_MAX))]
    pub(crate) datagram: u32,
    /// Send at each rate for this long; at the reported rate, three times as long
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_runtime, requires = "udp",
        conflicts_with_all = ["rate", "time"])]
    pub(crate) trial: Duration,
    /// Record the datagrams with this digest, as farlane record does, e.g. --digest none
    #[arg(long, value_name = "DIGEST", default_value = "sha256", requires = "udp",
        conflicts_with_all = ["rate", "time"])]
    pub(crate) digest: DigestArg,
}

fn parse_model(name: &str) -> Result<sim::models::ssd::Parameters, String> {
    sim::models::ssd::Parameters::named(name).ok_or_else(|| {
        let known: Vec<_> = sim::models::ssd::Parameters::names().collect();
        format!("expected one of {}", known.join(", "))
    })
}
