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
    /// Begin so much later in each further job of --numjobs
    #[arg(long = "offset_increment", value_name = "SIZE", default_value = "0", hide_default_value = true)]
    pub(crate) offset_increment: Amount,
    /// Choose random offsets that are multiples of this [default: the shortest length]
    #[arg(long, visible_alias = "ba", value_name = "SIZE", value_parser = parse_positive_size)]
    pub(crate) blockalign: Option<u64>,
    /// Draw random offsets independently of each other, and not each once before any comes again
    #[arg(long, value_name = "0|1", num_args = 0..=1, require_equals = true, default_missing_value = "1",
        default_value = "0", hide_default_value = true, value_parser = parse_switch, action = clap::ArgAction::Set)]
    pub(crate) norandommap: bool,
    /// Choose this percentage of offsets of a random load at random, and the others in order
    #[arg(long = "percentage_random", value_name = "PERCENT[,PERCENT][,PERCENT]", value_parser = parse_percents)]
    pub(crate) percentage_random: Option<Each<u8>>,
    /// Spread random offsets so: random, zipf:THETA, pareto:H, normal:PERCENT, zoned:ACCESS/SPAN,
    /// sequence:BLOCK,...
    #[arg(
        long = "random_distribution",
        value_name = "NAME[:NUMBER]",
        default_value = "random",
        hide_default_value = true
    )]
    pub(crate) random_distribution: RandomDistribution,
    /// Move on by the length of the sequence of --random_distribution each time
    #[arg(long = "random_sequence_stride", value_name = "0|1", num_args = 0..=1, require_equals = true,
        default_missing_value = "1", default_value = "0", hide_default_value = true, value_parser = parse_switch,
        action = clap::ArgAction::Set)]
    pub(crate) random_sequence_stride: bool,
    /// Let operations follow a random offset so, where --rw has a number
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
    /// Pass over this many bytes between zones
    #[arg(long, value_name = "SIZE", default_value = "0", hide_default_value = true, value_parser = parse_size)]
    pub(crate) zoneskip: u64,

    /// Let the operations under way become as few as this before more begin
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
    /// Choose the times between commands of a rate so
    #[arg(long = "rate_process", value_enum, default_value_t = RateProcess::Linear, hide_default_value = true)]
    pub(crate) rate_process: RateProcess,
    /// Pause for this long after --thinktime_blocks operations; a number alone is microseconds
    #[arg(long, value_name = "TIME", default_value = "0", hide_default_value = true, value_parser = parse_micros)]
    pub(crate) thinktime: Duration,
    /// Pause after this many operations
    #[arg(long = "thinktime_blocks", value_name = "N", default_value_t = 1, hide_default_value = true,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) thinktime_blocks: u32,
    /// Begin as many operations as this weight says, compared with other jobs of --flow_id
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) flow: Option<u32>,
    /// The jobs whose weights are compared
    #[arg(long = "flow_id", value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) flow_id: u32,
    /// Begin so long after the start
    #[arg(long, value_name = "TIME", default_value = "0", hide_default_value = true, value_parser = parse_time)]
    pub(crate) startdelay: Duration,
    /// Run for this long before anything counts
    #[arg(long = "ramp_time", value_name = "TIME", default_value = "0", hide_default_value = true,
        value_parser = parse_time)]
    pub(crate) ramp_time: Duration,
    /// Do the same this many times
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
    /// Look at the figures of this time; 0 ends no job
    #[arg(long = "steadystate_duration", visible_alias = "ss_dur", value_name = "TIME", default_value = "0",
        hide_default_value = true, value_parser = parse_time)]
    pub(crate) steadystate_duration: Duration,
    /// Wait for this long before figures are taken
    #[arg(long = "steadystate_ramp_time", visible_alias = "ss_ramp", value_name = "TIME", default_value = "0",
        hide_default_value = true, value_parser = parse_time)]
    pub(crate) steadystate_ramp_time: Duration,
    /// Take a figure each time that this time has passed
    #[arg(long = "steadystate_check_interval", visible_alias = "ss_interval", value_name = "TIME", default_value = "1s",
        hide_default_value = true, value_parser = parse_positive_time)]
    pub(crate) steadystate_check_interval: Duration,
    /// Run for --runtime, however many bytes that takes
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
    /// Send reads of what has reached the medium (FUA)
    #[arg(long, value_name = "0|1", num_args = 0..=1, require_equals = true, default_missing_value = "1",
        default_value = "0", hide_default_value = true, value_parser = parse_switch, action = clap::ArgAction::Set)]
    pub(crate) readfua: bool,
    /// Deallocate this many ranges with each trim
    #[arg(long = "num_range", value_name = "N", default_value_t = 1, hide_default_value = true,
        value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) num_range: u32,
    #[command(flatten)]
    pub(crate) contents: ContentArgs,

    /// Accept fio's I/O engines, which change nothing here
    #[arg(long, value_name = "NAME")]
    pub(crate) ioengine: Option<String>,
    /// Accept fio's word for access without a cache, which is how access is here
    #[arg(long, value_name = "0|1", num_args = 0..=1, require_equals = true, default_missing_value = "1",
        value_parser = parse_switch)]
    pub(crate) direct: Option<bool>,
    /// Accept fio's word for one report of --numjobs, which is how it is here
    #[arg(long = "group_reporting", value_name = "0|1", num_args = 0..=1, require_equals = true,
        default_missing_value = "1", value_parser = parse_switch)]
    pub(crate) group_reporting: Option<bool>,
}

/// What a load writes, and how it is checked.
#[derive(Args, Clone, Debug)]
pub(crate) struct ContentArgs {
    /// Write zeros
    #[arg(long = "zero_buffers", value_name = "0|1", num_args = 0..=1, require_equals = true,
        default_missing_value = "1", default_value = "0", hide_default_value = true, value_parser = parse_switch,
        action = clap::ArgAction::Set)]
    pub(crate) zero_buffers: bool,
    /// Write these bytes again and again: 0x..., a number or "text"
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
    /// Read back what was written when the job has ended
    #[arg(long = "do_verify", value_name = "0|1", num_args = 0..=1, require_equals = true,
        default_missing_value = "1", default_value = "1", hide_default_value = true, value_parser = parse_switch,
        action = clap::ArgAction::Set)]
    pub(crate) do_verify: bool,
    /// Read back what was written after this many writes, while the job runs
    #[arg(long = "verify_backlog", value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) verify_backlog: u32,
    /// Read back this many blocks each time [default: --verify_backlog]
    #[arg(long = "verify_backlog_batch", value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) verify_backlog_batch: u32,
    /// End the job with the first block that is not as written
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
