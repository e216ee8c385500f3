//! The options of `farlane bench` for the operations of a load, in fio's words.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::fio::{Amount, Each, parse_micros, parse_pattern, parse_percents, parse_rates, parse_switch};
use super::{
    Criterion, RandomDistribution, parse_positive_size, parse_positive_time, parse_size, parse_time,
};

/// How operations follow a random offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sequencer {
    /// One after the other
    Sequential,
    /// At the same offset
    Identical,
}

/// How the times between operations are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RateProcess {
    /// All are the same
    Linear,
    /// As in a Poisson process
    Poisson,
}

/// Whether a load stays in a part of its range for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ZoneMode {
    None,
    /// In a zone until --zonesize bytes are transferred
    Strided,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct LoadArgs {
    /// Begin at this offset of the namespace: bytes or a percentage
    #[arg(long, value_name = "SIZE", default_value = "0", hide_default_value = true)]
    pub(crate) offset: Amount,
    /// Shift the beginning by this much in each further job of --numjobs
    #[arg(long = "offset_increment", value_name = "SIZE", default_value = "0", hide_default_value = true)]
    pub(crate) offset_increment: Amount,
    /// Choose random offsets that are multiples of this [default: the shortest length]
    #[arg(long, visible_alias = "ba", value_name = "SIZE", value_parser = parse_positive_size)]
    pub(crate) blockalign: Option<u64>,
    /// Draw random offsets independently, instead of each one once before any repeats
    #[arg(long, value_name = "0|1", num_args = 0..=1, require_equals = true, default_missing_value = "1",
        default_value = "0", hide_default_value = true, value_parser = parse_switch, action = clap::ArgAction::Set)]
    pub(crate) norandommap: bool,
    /// Choose this percentage of offsets of a random load at random, and the others in order
    #[arg(long = "percentage_random", value_name = "PERCENT[,PERCENT][,PERCENT]", value_parser = parse_percents)]
    pub(crate) percentage_random: Option<Each<u8>>,
    /// Distribute random offsets: random, zipf:THETA, pareto:H, normal:PERCENT, zoned:ACCESS/SPAN,
    /// sequence:BLOCK,...
    #[arg(
        long = "random_distribution",
        value_name = "NAME[:NUMBER]",
        default_value = "random",
        hide_default_value = true
    )]
    pub(crate) random_distribution: RandomDistribution,
    /// Advance by the length of the sequence of --random_distribution each time
    #[arg(long = "random_sequence_stride", value_name = "0|1", num_args = 0..=1, require_equals = true,
        default_missing_value = "1", default_value = "0", hide_default_value = true, value_parser = parse_switch,
        action = clap::ArgAction::Set)]
    pub(crate) random_sequence_stride: bool,
    /// Continue in this way after a random offset, where --rw has a number
    #[arg(long = "rw_sequencer", value_enum, default_value_t = Sequencer::Sequential, hide_default_value = true)]
    pub(crate) rw_sequencer: Sequencer,
    /// Stay in a part of the range for some time
    #[arg(long, value_enum, default_value_t = ZoneMode::None, hide_default_value = true)]
    pub(crate) zonemode: ZoneMode,
    /// Transfer this many bytes in a zone
    #[arg(long, value_name = "SIZE", value_parser = parse_positive_size)]
    pub(crate) zonesize: Option<u64>,
    /// Cover this many bytes of a zone [default: --zonesize]
    #[arg(long, value_name = "SIZE", value_parser = parse_positive_size)]
    pub(crate) zonerange: Option<u64>,
    /// Skip this many bytes between zones
    #[arg(long, value_name = "SIZE", default_value = "0", hide_default_value = true, value_parser = parse_size)]
    pub(crate) zoneskip: u64,

    /// Begin more operations only when no more than this many are in progress
    #[arg(long = "iodepth_low", value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) iodepth_low: u32,
    /// Wait for this many operations to end before more begin
    #[arg(
        long = "iodepth_batch_complete_min",
        value_name = "N",
        default_value_t = 1,
        hide_default_value = true
    )]
    pub(crate) iodepth_batch_complete_min: u32,

    /// Transfer this many bytes a second: reads, writes, trims of each job [default: as many as are
    /// answered]
    #[arg(long, value_name = "SIZE[,SIZE][,SIZE]", value_parser = parse_rates)]
    pub(crate) rate: Option<Each<u64>>,

    /// Begin this many commands a second: reads, writes, trims of each job.
    ///
    /// A command begins whether or not earlier commands have ended. Its latency counts from the
    /// time at which the command was due
    #[arg(long = "rate_iops", visible_alias = "rate-iops", value_name = "N[,N][,N]", value_parser = parse_rates)]
    pub(crate) rate_iops: Option<Each<u64>>,
    /// Choose the times between commands of a rate in this way
    #[arg(long = "rate_process", value_enum, default_value_t = RateProcess::Linear, hide_default_value = true)]
    pub(crate) rate_process: RateProcess,
    /// Pause for this long after --thinktime_blocks operations; a number alone is microseconds
    #[arg(long, value_name = "TIME", default_value = "0", hide_default_value = true, value_parser = parse_micros)]
    pub(crate) thinktime: Duration,
    /// Pause after this many operations
    #[arg(long = "thinktime_blocks", value_name = "N", default_value_t = 1, hide_default_value = true,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) thinktime_blocks: u32,
    /// Give this job's operations this weight among the jobs of --flow_id
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) flow: Option<u32>,
    /// The group of jobs whose weights are compared
    #[arg(long = "flow_id", value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) flow_id: u32,
    /// Begin this long after the start
    #[arg(long, value_name = "TIME", default_value = "0", hide_default_value = true, value_parser = parse_time)]
    pub(crate) startdelay: Duration,
    /// Run for this long before measuring
    #[arg(long = "ramp_time", value_name = "TIME", default_value = "0", hide_default_value = true,
        value_parser = parse_time)]
    pub(crate) ramp_time: Duration,
    /// Run each job this many times
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) loops: u32,
    /// End each job after this many operations
    #[arg(long = "number_ios", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) number_ios: Option<u64>,

    /// End each job when its figures are steady: iops, bw, lat, or their slope (iops_slope).
    ///
    /// Figures are steady when none is further from their mean than the limit, or when their slope
    /// is less
    #[arg(long, visible_alias = "ss", value_name = "FIGURE:LIMIT[%]")]
    pub(crate) steadystate: Option<Criterion>,
    /// Check the figures of this period; 0 ends no job
    #[arg(long = "steadystate_duration", visible_alias = "ss_dur", value_name = "TIME", default_value = "0",
        hide_default_value = true, value_parser = parse_time)]
    pub(crate) steadystate_duration: Duration,
    /// Wait this long before taking figures
    #[arg(long = "steadystate_ramp_time", visible_alias = "ss_ramp", value_name = "TIME", default_value = "0",
        hide_default_value = true, value_parser = parse_time)]
    pub(crate) steadystate_ramp_time: Duration,
    /// Take a figure at this interval
    #[arg(long = "steadystate_check_interval", visible_alias = "ss_interval", value_name = "TIME", default_value = "1s",
        hide_default_value = true, value_parser = parse_positive_time)]
    pub(crate) steadystate_check_interval: Duration,
    /// Run for the whole --runtime, regardless of the bytes transferred
    #[arg(long = "time_based", value_name = "0|1", num_args = 0..=1, require_equals = true,
        default_missing_value = "1", default_value = "0", hide_default_value = true, value_parser = parse_switch,
        action = clap::ArgAction::Set)]
    pub(crate) time_based: bool,

    /// Send a Flush after this many writes
    #[arg(
        long,
        visible_alias = "fdatasync",
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true
    )]
    pub(crate) fsync: u32,
    /// Send a Flush after the last write
    #[arg(long = "end_fsync", visible_alias = "fsync_on_close", value_name = "0|1", num_args = 0..=1,
        require_equals = true, default_missing_value = "1", default_value = "0", hide_default_value = true,
        value_parser = parse_switch, action = clap::ArgAction::Set)]
    pub(crate) end_fsync: bool,
    /// Send writes that reach the medium before they end (FUA)
    #[arg(long, visible_alias = "sync", value_name = "0|1", num_args = 0..=1, require_equals = true,
        default_missing_value = "1", default_value = "0", hide_default_value = true, value_parser = parse_switch,
        action = clap::ArgAction::Set)]
    pub(crate) writefua: bool,
    /// Send reads that return data from the medium (FUA)
    #[arg(long, value_name = "0|1", num_args = 0..=1, require_equals = true, default_missing_value = "1",
        default_value = "0", hide_default_value = true, value_parser = parse_switch, action = clap::ArgAction::Set)]
    pub(crate) readfua: bool,
    /// Deallocate this many ranges with each trim
    #[arg(long = "num_range", value_name = "N", default_value_t = 1, hide_default_value = true,
        value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) num_range: u32,
    #[command(flatten)]
    pub(crate) contents: ContentArgs,

    /// Accept fio's I/O engines, which have no effect here
    #[arg(long, value_name = "NAME")]
    pub(crate) ioengine: Option<String>,
    /// Accept fio's parameter for access without a cache; farlane never uses one
    #[arg(long, value_name = "0|1", num_args = 0..=1, require_equals = true, default_missing_value = "1",
        value_parser = parse_switch)]
    pub(crate) direct: Option<bool>,
    /// Accept fio's parameter for one report of --numjobs; farlane always prints one
    #[arg(long = "group_reporting", value_name = "0|1", num_args = 0..=1, require_equals = true,
        default_missing_value = "1", value_parser = parse_switch)]
    pub(crate) group_reporting: Option<bool>,
}

/// The data that a load writes, and their verification.
#[derive(Args, Clone, Debug)]
pub(crate) struct ContentArgs {
    /// Write zeros
    #[arg(long = "zero_buffers", value_name = "0|1", num_args = 0..=1, require_equals = true,
        default_missing_value = "1", default_value = "0", hide_default_value = true, value_parser = parse_switch,
        action = clap::ArgAction::Set)]
    pub(crate) zero_buffers: bool,
    /// Write these bytes repeatedly: 0x..., a number or "text"
    #[arg(long = "buffer_pattern", value_name = "BYTES", value_parser = pattern)]
    pub(crate) buffer_pattern: Option<Bytes>,
    /// Make new contents for each write
    #[arg(long = "refill_buffers", value_name = "0|1", num_args = 0..=1, require_equals = true,
        default_missing_value = "1", default_value = "0", hide_default_value = true, value_parser = parse_switch,
        action = clap::ArgAction::Set)]
    pub(crate) refill_buffers: bool,
    /// Make this percentage of the contents zeros, and the rest noise
    #[arg(long = "buffer_compress_percentage", value_name = "PERCENT",
        value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) buffer_compress_percentage: Option<u8>,
    /// Read back the written data when the job has ended
    #[arg(long = "do_verify", value_name = "0|1", num_args = 0..=1, require_equals = true,
        default_missing_value = "1", default_value = "1", hide_default_value = true, value_parser = parse_switch,
        action = clap::ArgAction::Set)]
    pub(crate) do_verify: bool,
    /// Read back the written data after this many writes, while the job runs
    #[arg(long = "verify_backlog", value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) verify_backlog: u32,
    /// Read back this many blocks each time [default: --verify_backlog]
    #[arg(long = "verify_backlog_batch", value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) verify_backlog_batch: u32,
    /// End the job at the first block that differs from the written data
    #[arg(long = "verify_fatal", value_name = "0|1", num_args = 0..=1, require_equals = true,
        default_missing_value = "1", default_value = "0", hide_default_value = true, value_parser = parse_switch,
        action = clap::ArgAction::Set)]
    pub(crate) verify_fatal: bool,
}

/// Bytes as one value, which clap would take for a list of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

fn pattern(text: &str) -> Result<Bytes, String> {
    parse_pattern(text).map(Bytes)
}
