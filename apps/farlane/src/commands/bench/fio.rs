//! The report of a load with fio's names, for programs that read `fio --output-format=json`.
//!
//! The names and their meanings are those of fio 3.39. Figures that a host outside the kernel does
//! not have (context switches, page faults, disk utilization) are left out.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distribution::Distribution;
use engine::Nanos;
use serde_json::{Map, Value, json};

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
pub(super) fn report(jobs: &[Known<'_>]) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({
        "fio version": format!("farlane-{}", env!("CARGO_PKG_VERSION")),
        "timestamp": now.as_secs(),
        "timestamp_ms": millis(now),
        "jobs": jobs.iter().map(one).collect::<Vec<_>>(),
    })
}

/// The report of one job.
fn one(known: &Known<'_>) -> Value {
    let args = &known.planned.args;
    let [reads, writes, trims, flushes] = &known.kinds;
    let length = known.elapsed;
    let mut report = json!({
        "jobname": known.planned.name(),
        "groupid": known.planned.group,
        "job_start": millis(known.began),
        "error": if known.errors > 0 { EIO } else { 0 },
        "eta": 0,
        "elapsed": length.get().div_ceil(1_000_000_000),
        "job options": options(args),
        "read": direction(args, reads, length),
        "write": direction(args, writes, length),
        "trim": direction(args, trims, length),
        "sync": { "total_ios": flushes.operations, "lat_ns": times(&flushes.latency) },
        "job_runtime": (length.get() / 1_000_000) * u64::from(args.numjobs),
        "latency_depth": args.iodepth,
        "latency_target": 0,
        "latency_percentile": 100.0,
        "latency_window": 0,
    });
    if let (Some(is_steady), Some(criterion)) = (known.is_steady, args.load.steadystate) {
        report["steadystate"] = json!({
            "ss": criterion.to_string(),
            "duration": args.load.steadystate_duration.as_secs(),
            "attained": u32::from(is_steady),
        });
    }
    report
}

/// The error number of a command that the device has failed.
const EIO: u32 = 5;

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The requested job, in fio's words.
fn options(args: &BenchArgs) -> Value {
    let mut options = Map::new();
    let mut put = |name: &str, value: String| options.insert(name.to_owned(), value.into());
    put("rw", args.rw.workload.name());
    match (&args.bssplit, &args.bsrange) {
        (Some(sizes), _) => put("bssplit", sizes.to_string()),
        (None, Some(sizes)) => put("bsrange", sizes.to_string()),
        (None, None) => put("bs", args.bs.to_string()),
    };
    put("iodepth", args.iodepth.to_string());
    put("numjobs", args.numjobs.to_string());
    put("rwmixread", args.rwmixread.to_string());
    put("runtime", args.runtime.as_secs_f64().to_string());
    put("randseed", args.seed.to_string());
    if let Some(rate) = args.load.rate {
        put("rate", rate.to_string());
    }
    if let Some(rate) = args.load.rate_iops {
        put("rate_iops", rate.to_string());
    }
    Value::Object(options)
}

/// The reads, or writes, of a job in `length`.
fn direction(args: &BenchArgs, sums: &Sums, length: Nanos) -> Value {
    let Sums { latency, operations, bytes } = sums;
    let is_idle = *operations == 0;
    let bytes_a_second = if is_idle { 0.0 } else { rate(*bytes, length) };
    let mut completion = times(latency);
    if !is_idle {
        completion["percentile"] = percentiles(latency, args.percentile_list.as_ref());
    }
    json!({
        "io_bytes": bytes,
        "io_kbytes": bytes >> 10,
        "bw_bytes": whole(bytes_a_second),
        "bw": whole(bytes_a_second / 1024.0),
        "iops": if is_idle { 0.0 } else { rate(*operations, length) },
        "runtime": if is_idle { 0 } else { length.get() / 1_000_000 },
        "total_ios": operations,
        "short_ios": 0,
        "drop_ios": 0,
        // A command is given to the device at once.
        "slat_ns": times(&Distribution::new()),
        "clat_ns": completion,
        "lat_ns": times(latency),
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is positive and less than 2^53"
)]
fn whole(rate: f64) -> u64 {
    rate as u64
}

fn times(latency: &Distribution) -> Value {
    json!({
        "min": if latency.count() == 0 { 0 } else { latency.min().get() },
        "max": if latency.count() == 0 { 0 } else { latency.quantile(1.0).get() },
        "mean": latency.mean(),
        "stddev": latency.deviation(),
        "N": latency.count(),
    })
}

/// The percentiles of `list`, or fio's usual ones, each under its number with six decimals.
pub(super) fn percentiles(latency: &Distribution, list: Option<&Percentiles>) -> Value {
    let one = |percent: &f64| (format!("{percent:.6}"), json!(latency.quantile(percent / 100.0).get()));
    Value::Object(list.map_or(&PERCENTILES[..], |list| &list.0).iter().map(one).collect())
}
