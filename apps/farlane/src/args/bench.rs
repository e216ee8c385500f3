//! The options of `farlane bench`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{Output, Target, parse_positive_size, parse_positive_time, parse_runtime, parse_size};
use crate::workload::Sizes;

/// The names of a report's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportNames {
    /// Text for people
    Normal,
    /// JSON with fio's names
    Json,
}

/// Percentiles, each above 0 and at most 100.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Percentiles(pub(crate) Vec<f64>);

/// fio's `percentile_list`: `50:99:99.9`.
impl FromStr for Percentiles {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one = |part: &str| {
            let percent = part.trim().parse().ok().filter(|percent| *percent > 0.0 && *percent <= 100.0);
            percent.ok_or_else(|| format!("'{part}' is no percentile; expected such as 50:99:99.9"))
        };
        text.split(':').map(one).collect::<Result<_, _>>().map(Self)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub(crate) enum Workload {
    Read,
    Write,
    RandRead,
    RandWrite,
    /// Reads and writes, in order
    Rw,
    /// Reads and writes, at random offsets
    RandRw,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Run this kind of load.
    ///
    /// A load that writes overwrites the namespace
    #[arg(long, value_enum, default_value_t = Workload::RandRead)]
    pub(crate) rw: Workload,
    /// Read with this many of a hundred commands, if the load reads and writes
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) rwmixread: u8,
    /// Transfer this many bytes with each operation.
    ///
    /// What is longer than the controller's largest transfer is carried out by several commands
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = parse_size)]
    pub(crate) bs: u64,
    /// Transfer as many bytes as one of these, each with its share of a hundred
    #[arg(long, value_name = "SIZE/PERCENT[:SIZE/PERCENT]...", conflicts_with_all = ["bs", "verify"])]
    pub(crate) bssplit: Option<Sizes>,
    /// Let this many jobs do the same at the same time, each with offsets and --iodepth of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) numjobs: u32,
    /// Keep this many operations in progress at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) iodepth: u32,

    /// Begin this many commands a second, evenly [default: as many as are answered]
    ///
    /// A command begins whether or not earlier commands have ended. Its latency counts from the
    /// time at which the command was due
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) rate: Option<u32>,
    /// Run for this long
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_runtime)]
    pub(crate) runtime: Duration,

    /// End each job once it has transferred this many bytes [default: when --runtime is over]
    ///
    /// Random offsets then cover the part of the namespace that the load uses, each once, before
    /// any comes again
    #[arg(long = "io_size", visible_alias = "io-size", value_name = "SIZE", value_parser = parse_positive_size)]
    pub(crate) io_size: Option<u64>,
    /// Each job ends once it has transferred as many bytes as it uses of the namespace.
    #[arg(skip)]
    pub(crate) ends_with_size: bool,
    /// Use the namespace with this identifier
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) namespace: u32,
    /// Use this many bytes of the namespace [default: all]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) size: Option<u64>,
    /// Mark every block that the run writes, and check the marks when the run reads the block
    #[arg(long)]
    pub(crate) verify: bool,
    /// Derive the offsets from this seed
    #[arg(long, visible_alias = "randseed", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Tell these percentiles of the latency
    #[arg(long = "percentile_list", visible_alias = "percentile-list", value_name = "PERCENT[:PERCENT]...")]
    pub(crate) percentile_list: Option<Percentiles>,
    /// Tell what was measured until then each time that this time has passed
    #[arg(long, value_name = "TIME", value_parser = parse_positive_time)]
    pub(crate) status_interval: Option<Duration>,
    /// Report in fio's JSON, or as text
    #[arg(long, value_name = "FORMAT", conflicts_with = "json")]
    pub(crate) output_format: Option<ReportNames>,

    /// Run the jobs of this job file of fio, one after the other.
    ///
    /// Options of the command line come before those of the file. docs/bench.md lists what is
    /// understood; anything else is refused
    #[arg(long, value_name = "FILE")]
    pub(crate) job: Option<PathBuf>,

    /// Call the job so in fio's JSON
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
    // The last field: these options have a help heading, which all later options would get.
    #[command(flatten)]
    pub(crate) target: Target,
}
