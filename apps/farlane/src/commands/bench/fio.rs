//! The report of a load with fio's names, for programs that read `fio --output-format=json`.
//!
//! The names and their meanings are those of fio 3.39. Figures that a host outside the kernel does
//! not have (context switches, page faults, disk utilization) are left out.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distribution::Distribution;
use engine::Nanos;
use serde::Serialize;

use super::Planned;
use crate::args::{BenchArgs, Percentiles};
use crate::workload::{Kinds, Sums, rate};

/// The percentiles that fio reports by default.
const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// The state of a job at some time.
pub(super) struct Known<'a> {
    pub(super) planned: &'a Planned,
    /// When it began, since the epoch.
    pub(super) began: Duration,
    pub(super) elapsed: Nanos,
    pub(super) kinds: Kinds,
    pub(super) errors: u64,
    /// Whether the job became steady; none unless that was asked for.
    pub(super) is_steady: Option<bool>,
}

/// The whole report.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    #[serde(rename = "fio version")]
    version: String,
    timestamp: u64,
    timestamp_ms: u64,
    jobs: Vec<Job<'a>>,
}

/// The report of one job.
#[derive(Serialize)]
struct Job<'a> {
    jobname: &'a str,
    groupid: usize,
    job_start: u64,
    error: u32,
    eta: u64,
    elapsed: u64,
    #[serde(rename = "job options")]
    options: BTreeMap<&'static str, String>,
    read: Direction,
    write: Direction,
    trim: Direction,
    sync: Flushes,
    job_runtime: u64,
    latency_depth: u32,
    latency_target: u64,
    latency_percentile: f64,
    latency_window: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    steadystate: Option<SteadyState>,
}

/// The reads, writes or trims of a job.
#[derive(Serialize)]
struct Direction {
    io_bytes: u64,
    io_kbytes: u64,
    bw_bytes: u64,
    bw: u64,
    iops: f64,
    runtime: u64,
    total_ios: u64,
    short_ios: u64,
    drop_ios: u64,
    slat_ns: Times,
    clat_ns: Times,
    lat_ns: Times,
}

/// The Flushes of a job.
#[derive(Serialize)]
struct Flushes {
    total_ios: u64,
    lat_ns: Times,
}

/// A distribution of times.
#[derive(Serialize)]
struct Times {
    min: u64,
    max: u64,
    mean: f64,
    stddev: f64,
    #[serde(rename = "N")]
    count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    percentile: Option<BTreeMap<String, u64>>,
}

/// Whether a job became steady.
#[derive(Serialize)]
struct SteadyState {
    #[serde(rename = "ss")]
    criterion: String,
    duration: u64,
    attained: u32,
}

impl<'a> Report<'a> {
    pub(super) fn of(jobs: &'a [Known<'_>]) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            version: format!("farlane-{}", env!("CARGO_PKG_VERSION")),
            timestamp: now.as_secs(),
            timestamp_ms: millis(now),
            jobs: jobs.iter().map(Job::of).collect(),
        }
    }
}

impl<'a> Job<'a> {
    fn of(known: &'a Known<'_>) -> Self {
        let args = &known.planned.args;
        let [reads, writes, trims, flushes] = &known.kinds;
        let length = known.elapsed;
        let steady = known.is_steady.zip(args.load.steadystate);
        Self {
            jobname: known.planned.name(),
            groupid: known.planned.group,
            job_start: millis(known.began),
            error: if known.errors > 0 { EIO } else { 0 },
            eta: 0,
            elapsed: length.get().div_ceil(1_000_000_000),
            options: options(args),
            read: direction(args, reads, length),
            write: direction(args, writes, length),
            trim: direction(args, trims, length),
            sync: Flushes { total_ios: flushes.operations, lat_ns: times(&flushes.latency) },
            job_runtime: (length.get() / 1_000_000) * u64::from(args.numjobs),
            latency_depth: args.iodepth,
            latency_target: 0,
            latency_percentile: 100.0,
            latency_window: 0,
            steadystate: steady.map(|(is_steady, criterion)| SteadyState {
                criterion: criterion.to_string(),
                duration: args.load.steadystate_duration.as_secs(),
                attained: u32::from(is_steady),
            }),
        }
    }
}

/// The error number of a command that the device has failed.
const EIO: u32 = 5;

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The requested job, in fio's words.
fn options(args: &BenchArgs) -> BTreeMap<&'static str, String> {
    let mut options = BTreeMap::from([("rw", args.rw.workload.name())]);
    match (&args.bssplit, &args.bsrange) {
        (Some(sizes), _) => options.insert("bssplit", sizes.to_string()),
        (None, Some(sizes)) => options.insert("bsrange", sizes.to_string()),
        (None, None) => options.insert("bs", args.bs.to_string()),
    };
    options.insert("iodepth", args.iodepth.to_string());
    options.insert("numjobs", args.numjobs.to_string());
    options.insert("rwmixread", args.rwmixread.to_string());
    options.insert("runtime", args.runtime.as_secs_f64().to_string());
    options.insert("randseed", args.seed.to_string());
    if let Some(rate) = args.load.rate {
        options.insert("rate", rate.to_string());
    }
    if let Some(rate) = args.load.rate_iops {
        options.insert("rate_iops", rate.to_string());
    }
    options
}

/// The reads, or writes, of a job in `length`.
fn direction(args: &BenchArgs, sums: &Sums, length: Nanos) -> Direction {
    let Sums { latency, operations, bytes } = sums;
    let is_idle = *operations == 0;
    let bytes_a_second = if is_idle { 0.0 } else { rate(*bytes, length) };
    let list = args.percentile_list.as_ref();
    Direction {
        io_bytes: *bytes,
        io_kbytes: bytes >> 10,
        bw_bytes: whole(bytes_a_second),
        bw: whole(bytes_a_second / 1024.0),
        iops: if is_idle { 0.0 } else { rate(*operations, length) },
        runtime: if is_idle { 0 } else { length.get() / 1_000_000 },
        total_ios: *operations,
        short_ios: 0,
        drop_ios: 0,
        // A command is given to the device at once.
        slat_ns: times(&Distribution::new()),
        clat_ns: Times { percentile: (!is_idle).then(|| percentiles(latency, list)), ..times(latency) },
        lat_ns: times(latency),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is positive and less than 2^53"
)]
fn whole(rate: f64) -> u64 {
    rate as u64
}

fn times(latency: &Distribution) -> Times {
    Times {
        min: if latency.count() == 0 { 0 } else { latency.min().get() },
        max: if latency.count() == 0 { 0 } else { latency.quantile(1.0).get() },
        mean: latency.mean(),
        stddev: latency.deviation(),
        count: latency.count(),
        percentile: None,
    }
}

/// The percentiles of `list`, or fio's usual ones, each under its number with six decimals.
pub(super) fn percentiles(latency: &Distribution, list: Option<&Percentiles>) -> BTreeMap<String, u64> {
    let one = |percent: &f64| (format!("{percent:.6}"), latency.quantile(percent / 100.0).get());
    list.map_or(&PERCENTILES[..], |list| &list.0).iter().map(one).collect()
}
