//! `farlane bench`: a load.

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
    /// Half reads, half writes, in order.
    Rw,
    /// Half reads, half writes, anywhere.
    RandRw,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to do. Writing overwrites the namespace
    #[arg(long, value_enum, default_value_t = Workload::RandRead)]
    pub(crate) rw: Workload,
    /// Bytes a command
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = parse_size)]
    pub(crate) bs: u64,
    /// Commands under way at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) iodepth: u32,
    /// Commands to begin a second, evenly, whether or not those before have ended; what one takes
    /// is counted from when it was to begin [default: as many as are answered]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) rate: Option<u32>,
    /// How long to run
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_runtime)]
    pub(crate) runtime: Duration,
    /// Namespace identifier
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) namespace: u32,
    /// Bytes of the namespace to use [default: all]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) size: Option<u64>,
    /// Mark every block that is written, and check the marks when it is read
    #[arg(long)]
    pub(crate) verify: bool,
    /// Seed of the offsets
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) output: Output,
    // Last: its options have a heading of their own, which would be that of all behind them.
    #[command(flatten)]
    pub(crate) target: Target,
}
