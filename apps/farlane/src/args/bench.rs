//! The options of `farlane bench`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::bench_load::LoadArgs;
use super::fio::{
    Amount, Each, Pattern, PatternParser, parse_lengths, parse_positive_amount, parse_ranges, parse_splits,
    parse_verify,
};
use super::target::parse_cores;
use super::{Output, Sizes, Target, parse_positive_time, parse_runtime};

pub(super) const EXAMPLES: &str = "Examples:\n  \
    farlane bench tcp://127.0.0.1:4430 --rw randwrite --bs 4k --iodepth 32 --runtime 10s --verify\n  \
    farlane bench vfio-user:/run/user/1000/ssd.sock --cpu 1 --spin 10ms\n  \
    farlane bench nvme-tcp://127.0.0.1:4420/NQN --iodepth 128 --rate_iops 100000\n  \
    farlane bench tcp://127.0.0.1:4430 --bssplit 4k/70:64k/30 --percentile_list 50:99:99.99\n  \
    farlane bench tcp://127.0.0.1:4430 --job mixed.fio --output-format json";

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

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Run this kind of load.
    ///
    /// A load that writes overwrites the namespace. A number behind a colon is bytes to pass over
    /// between operations in order (below 0: backwards), or operations for each random offset
    #[arg(long, visible_alias = "readwrite", value_name = "LOAD[:N]", default_value = "randread", value_parser = PatternParser)]
    pub(crate) rw: Pattern,
    /// Make this percentage of the commands reads, if the load reads and writes
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) rwmixread: u8,
    /// Transfer this many bytes with each operation: reads, writes, trims.
    ///
    /// Several commands carry out an operation that exceeds the controller's largest transfer
    #[arg(long, visible_alias = "blocksize", value_name = "SIZE[,SIZE][,SIZE]", default_value = "4k",
        value_parser = parse_lengths)]
    pub(crate) bs: Each<u64>,
    /// Choose the length of each operation from these, each with its percentage
    #[arg(long, value_name = "SIZE/PERCENT[:SIZE/PERCENT]...", conflicts_with_all = ["bs", "verify"],
        value_parser = parse_splits)]
    pub(crate) bssplit: Option<Each<Sizes>>,
    /// Transfer a multiple of the first length, up to the second length
    #[arg(long, value_name = "SIZE-SIZE[,SIZE-SIZE]...", conflicts_with_all = ["bs", "bssplit", "verify"],
        value_parser = parse_ranges)]
    pub(crate) bsrange: Option<Each<Sizes>>,
    /// Run this many copies of each job at once, each with its own offsets and --iodepth
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) numjobs: u32,

    /// Run the jobs on at most this many threads [default: one for each processor; with --cpu, 1].
    ///
    /// Each thread has a controller of its own at the subsystem. A far end and a vfio-user device
    /// have one host at a time, so their jobs have one thread. With --cpu N, the threads run on
    /// processors N, N+1 and so on
    #[arg(long, value_name = "N", value_parser = parse_cores)]
    pub(crate) cores: Option<usize>,
    /// Keep this many operations in progress at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) iodepth: u32,

    /// Run for this long
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_runtime)]
    pub(crate) runtime: Duration,

    /// End each job once it has transferred this many bytes [default: when --runtime is over]
    ///
    /// Random offsets then cover the part of the namespace that the load uses: each offset once,
    /// before any repeats
    #[arg(long = "io_size", visible_alias = "io-size", value_name = "SIZE", value_parser = parse_positive_amount)]
    pub(crate) io_size: Option<Amount>,
    /// Each job ends once it has transferred as many bytes as it uses of the namespace.
    #[arg(skip)]
    pub(crate) ends_with_size: bool,
    /// Use the namespace with this identifier
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) namespace: u32,
    /// Use this many bytes of the namespace, or this percentage of it [default: all]
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<Amount>,
    /// Mark every block that the run writes, and check the marks when the run reads the block.
    ///
    /// fio's methods are accepted. The marks are the same for all of them
    #[arg(long, value_name = "METHOD", num_args = 0..=1, require_equals = true, default_missing_value = "1",
        default_value = "0", hide_default_value = true, value_parser = parse_verify, action = clap::ArgAction::Set)]
    pub(crate) verify: bool,
    /// Derive the offsets from this seed
    #[arg(long, visible_alias = "randseed", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Report these percentiles of the latency
    #[arg(long = "percentile_list", visible_alias = "percentile-list", value_name = "PERCENT[:PERCENT]...")]
    pub(crate) percentile_list: Option<Percentiles>,
    /// Report intermediate results at this interval
    #[arg(long, value_name = "TIME", value_parser = parse_positive_time)]
    pub(crate) status_interval: Option<Duration>,
    /// Report in fio's JSON, or as text
    #[arg(long, value_name = "FORMAT", conflicts_with = "json")]
    pub(crate) output_format: Option<ReportNames>,

    /// Run the jobs of this job file of fio.
    ///
    /// Options of the command line override those of the file. docs/bench.md lists the supported
    /// parameters; farlane bench rejects all others
    #[arg(long, value_name = "FILE")]
    pub(crate) job: Option<PathBuf>,

    /// Give the job this name in fio's JSON
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) output: Output,
    // The last field: these options have a help heading, which all later options would get.
    #[command(flatten)]
    pub(crate) target: Target,
}
