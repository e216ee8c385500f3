//! The options of `farlane model sim`, `sweep` and `published`.

use std::path::PathBuf;

use clap::Args;
use scenarios::file::sweep::Axis;

use super::Output;

pub(super) const EXAMPLES: &str = "Examples:
  farlane model sim scenarios/tcp-1g.toml
  farlane model sim scenarios/ssd-full.toml --timeline full.csv --timeline full.svg";

pub(super) const SWEEP_EXAMPLES: &str = "Example:
  farlane model sweep scenarios/tcp-1g.toml --set link.latency=1us,1ms,10ms \\
    --set task.0.depth=1,8,32 --set pcie.read_request=256,512 \\
    --parquet sweep.parquet --plot sweep.svg --plot sweep.png";

pub(super) const PUBLISHED_EXAMPLES: &str = "Examples:
  farlane model published nvme-5g --json
  farlane model published --score

A row is an echo if it shows one constant again that was taken from it, fitted if constants were
chosen so that it comes out, and predicted if none was.";

#[derive(Debug, Args)]
pub(crate) struct PlayArgs {
    /// The scenario, a TOML file, or - for standard input; see docs/scenarios.md
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenario: PathBuf,
    /// Derive all random choices from this seed [default: that of the file, or 1]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Write the packets that pass the root port's link to this file.
    ///
    /// FILE.pcapng is a capture from power-up on, for farlane observe trace and Wireshark. Any
    /// other file is a table (CSV) of the tasks' packets
    #[arg(long, value_name = "FILE")]
    pub(crate) capture: Option<PathBuf>,

    /// Write throughput and latency of reads and writes over time to this file; may be given again.
    ///
    /// The time counts from the beginning of the first task, workload or load
    #[arg(long, value_name = "FILE.csv|.parquet|.svg|.png", conflicts_with = "capture")]
    pub(crate) timeline: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    /// The scenario, a TOML file
    #[arg(value_name = "SCENARIO")]
    pub(crate) scenario: PathBuf,
    /// Set this key to each of these values; may be given again.
    ///
    /// PATH joins keys by dots. A number selects a place in a list, as in link.hop.0.rate
    #[arg(long, value_name = "PATH=V1,V2,...", required = true)]
    pub(crate) set: Vec<Axis>,
    /// Use this many threads [default: one for each processor]
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<usize>,
    /// Derive all random choices from this seed [default: that of the file, or 1]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Write the table to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Write the table to this file as Parquet
    #[arg(long, value_name = "FILE")]
    pub(crate) parquet: Option<PathBuf>,

    /// Draw the median and the 99th percentile to this file; may be given again, for both formats.
    ///
    /// The x axis is the first --set. Each value of the second --set has a colour. Each combination
    /// of the other --set options has a panel
    #[arg(long, value_name = "FILE.svg|FILE.png")]
    pub(crate) plot: Vec<PathBuf>,
    /// Draw the task with this name [default: the first]
    #[arg(long, value_name = "NAME", requires = "plot")]
    pub(crate) task: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PublishedArgs {
    /// The experiment: nvme-tsn, nvme-5g, nvmf, niq or streamer [default: all]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Derive all random choices from this seed; the same seed gives the same figures
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Show where the parameters behind each row come from
    #[arg(long)]
    pub(crate) sources: bool,
    /// Show how well the models predict: classes, errors, cross-validation, sensitivity.
    ///
    /// The experiments are repeated with each constant changed by 10 %, which takes minutes for all
    #[arg(long, conflicts_with = "sources")]
    pub(crate) score: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}
