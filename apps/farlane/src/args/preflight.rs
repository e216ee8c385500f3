//! The options of `farlane preflight`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::record::{parse_chunk, parse_rate};
use super::{Output, parse_positive_size, parse_runtime};

pub(super) const EXAMPLES: &str = "Examples:
  farlane preflight --rate 1.2GB/s --for 2h flight.rec
  farlane preflight --rate 100MB/s --for 8h /mnt/ssd --measure 2m --json
  farlane preflight --rate 400MB/s --for 10m --overwrite /dev/nvme1n1
  farlane preflight --rate 80MB/s --for 1h --overwrite tcp://far.example:4430

Exit status is 0 if the recording fits, also if it needs a larger buffer, and 1 if it does not.";

/// Measure whether a medium keeps up with a recording.
#[derive(Debug, Args)]
pub(crate) struct PreflightArgs {
    /// Where the recording is to go, as with farlane record --to.
    ///
    /// A file or directory is measured by a file without a name beside it, which is gone afterwards
    #[arg(value_name = "PATH|URL")]
    pub(crate) device: PathBuf,
    /// The rate of the sources together in bytes a second, such as 100MB/s
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub(crate) rate: u64,
    /// How long the recording is to be
    #[arg(long = "for", value_name = "TIME", value_parser = parse_runtime)]
    pub(crate) time: Duration,
    /// Overwrite what the block device or the namespace holds: all of it may be lost
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Measure for so long, unless --measure-size ends it before
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_runtime)]
    pub(crate) measure: Duration,

    /// Measure with at most so many bytes [default: nine tenths of what is free].
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
    /// Beyond what is measured, expect what this model of an SSD does, such as 970-evo.
    ///
    /// docs/scenarios.md lists the models
    #[arg(long, value_name = "NAME", value_parser = parse_model)]
    pub(crate) model: Option<sim::models::ssd::Parameters>,
    #[command(flatten)]
    pub(crate) output: Output,
}

fn parse_model(name: &str) -> Result<sim::models::ssd::Parameters, String> {
    sim::models::ssd::Parameters::named(name).ok_or_else(|| {
        let known: Vec<_> = sim::models::ssd::Parameters::names().collect();
        format!("expected one of {}", known.join(", "))
    })
}
