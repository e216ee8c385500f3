//! The options of `farlane bench`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{Output, Target, parse_runtime, parse_size};

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
    /// Transfer this many bytes with each command
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = parse_size)]
    pub(crate) bs: u64,
    /// Keep this many commands in progress at once
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
    #[command(flatten)]
    pub(crate) output: Output,
    // The last field: these options have a help heading, which all later options would get.
    #[command(flatten)]
    pub(crate) target: Target,
}
