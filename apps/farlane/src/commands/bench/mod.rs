//! `farlane bench`: runs a load and reports its rate and its latency.

mod fio;
mod job_file;

use std::time::Duration;

use distribution::Distribution;
use engine::Nanos;
use indicatif::{ProgressBar, ProgressStyle};
use live::sys::telling;
use serde::Serialize;

use crate::args::{
    Ahead, BenchArgs, Carried, ConfigCacheCounters, FarReads, Percentiles, ReportNames, Workload,
};
use crate::commands::{print, print_json, report_json};
use crate::error::Error;
use crate::protected::Protected;
use crate::session::{Needs, Session};
use crate::workload::{self, Job, Report, Sizes, Sums, rate};

/// The most operations under way at once, over all jobs.
const UNDER_WAY_MAX: u32 = 1024;
/// The most bytes of their data.
const DATA_BYTES_MAX: u64 = 1 << 30;
/// A length that every controller of ours moves with one command.
const COMMAND_BYTES: u32 = 128 << 10;

#[derive(Serialize)]
struct Json<'a> {
    rw: String,
    /// The length of an operation, or the longest one.
    bs: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    bssplit: Option<String>,
    iodepth: u32,
    numjobs: u32,
    /// Commands to begin per second; none if commands began whenever there was room.
    rate: Option<u32>,
    runtime_s: f64,
    iops: f64,
    mib_s: f64,
    latency_ns: &'a Distribution,
    /// The percentiles that were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    percentiles_ns: Option<serde_json::Value>,
    commands: u64,
    bytes: u64,
    errors: u64,
    first_error: Option<&'a str>,
    /// Whether the user ended the load early.
    interrupted: bool,
    /// Commands that were due and had not begun for lack of room when the load ended.
    late: u64,
    /// Whether all data that was compared was as written; none without --verify.
    verified: Option<bool>,
    /// Who made and checked protection information: host or controller; none without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    protected_by: Option<&'static str>,
    compared: u64,
    /// How many bytes were compared with what had been written, those of a chunk each time.
    compared_bytes: u64,
    /// What the tunnel has sent ahead; none without lookahead.
    lookahead: Option<Ahead>,
    shadow: Option<ConfigCacheCounters>,
    /// What has become of the far device's reads of memory during the run; none without a tunnel.
    far_reads: Option<FarReads>,
    /// Counted round trips over the tunnel per command. Commands that are under way at once may
    /// share a round trip.
    round_trips: Option<f64>,
    /// What each connection has carried, where the tunnel has several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    connections: Vec<Carried>,
}

pub(crate) fn run(args: &BenchArgs) -> Result<(), Error> {
    match &args.job {
        Some(path) => job_file::run(path, load),
        None => load(args),
    }
}

/// The lengths of operations.
fn sizes(args: &BenchArgs) -> Result<Sizes, Error> {
    let bytes = u32::try_from(args.bs).map_err(|_| Error::Range {
        what: "--bs",
        value: args.bs,
        expected: "less than 4 GiB".to_owned(),
    })?;
    Ok(args.bssplit.unwrap_or(Sizes::one(bytes)))
}

/// What a load with operations of up to `longest` bytes needs of its host.
fn needs(args: &BenchArgs, longest: u32) -> Result<Needs, Error> {
    let under_way = args.iodepth * args.numjobs;
    if under_way > UNDER_WAY_MAX {
        let expected = format!("at most {UNDER_WAY_MAX}");
        return Err(Error::Range { what: "--iodepth times --numjobs", value: under_way.into(), expected });
    }
    // A verified load has protection information beside its data, where there is any.
    let each = u64::from(longest).next_multiple_of(4096) + u64::from(longest / 32);
    let data_bytes = u64::from(under_way) * each;
    if data_bytes > DATA_BYTES_MAX {
        let expected = format!("at most {DATA_BYTES_MAX} B");
        return Err(Error::Range {
            what: "--bs times --iodepth times --numjobs",
            value: data_bytes,
            expected,
        });
    }
    let commands = under_way.saturating_mul(longest.div_ceil(COMMAND_BYTES)).clamp(1, UNDER_WAY_MAX);
    Ok(Needs { data_bytes, depth: commands, ..Needs::default() })
}

fn load(args: &BenchArgs) -> Result<(), Error> {
    let sizes = sizes(args)?;
    let needs = needs(args, sizes.longest())?;
    if args.verify && matches!(args.rw, Workload::Read | Workload::RandRead) {
        return Err(Error::NothingToVerify { workload: name_of(args.rw) });
    }
    let mut session = Session::attach(&args.target, needs)?;
    let namespace = session.namespace(args.namespace)?;
    let range = args.size.unwrap_or(namespace.blocks * u64::from(namespace.block_bytes));
    let bytes = args.io_size.or(args.ends_with_size.then_some(range));
    let job = Job {
        namespace,
        protected: Protected::of(&mut session, &namespace, args.verify)?,
        workload: args.rw,
        reads: args.rwmixread,
        sizes,
        depth: args.iodepth,
        jobs: args.numjobs,
        commands: needs.depth,
        rate: args.rate,
        runtime: args.runtime.into(),
        bytes,
        range,
        verify: args.verify,
        seed: args.seed,
    };
    let before = session.far_reads()?;
    let wanted = bytes.map(|bytes| bytes.saturating_mul(args.numjobs.into()));
    let length = match wanted {
        Some(bytes) => format!("{bytes} B"),
        None => humantime::format_duration(args.runtime).to_string(),
    };
    let bar = progress_bar(wanted.unwrap_or(Nanos::from(args.runtime).get() / 1_000_000), &length);
    let mut next = args.status_interval.map(Nanos::from);
    let report = workload::run(&mut session, job, |elapsed, kinds| {
        let moved = kinds.iter().map(|kind| kind.bytes).sum();
        bar.set_position(if wanted.is_some() { moved } else { elapsed.get() / 1_000_000 });
        let operations = kinds.iter().map(|kind| kind.operations).sum();
        bar.set_message(format!("{length}, {:.0} commands a second", rate(operations, elapsed)));
        if let (Some(at), Some(every)) = (&mut next, args.status_interval)
            && elapsed >= *at
        {
            *at += Nanos::from(every);
            tell_so_far(args, elapsed, kinds);
        }
    })?;
    bar.finish_and_clear();
    // A session that was interrupted can't ask any more.
    let after = match session.far_reads() {
        Err(Error::Interrupted) => None,
        after => after?,
    };
    let far_reads = before.zip(after).map(|(before, after)| FarReads::from(&after.since(&before)));
    let (lookahead, shadow) = (session.lookahead(), session.config_cache());
    let connections = session.connections();
    session.close()?;
    tell(args, &job, &report, (lookahead, far_reads, shadow), connections)?;
    judge(args, report)
}

/// Whether the load did what was asked for.
fn judge(args: &BenchArgs, report: Report) -> Result<(), Error> {
    if let Some(first) = report.corrupt.first() {
        return Err(Error::Corrupt(format!("{} chunks, the first at {first}", report.corrupt.len())));
    }
    if let Some(error) = report.unverified {
        return Err(error);
    }
    if report.interrupted {
        return Err(Error::Interrupted);
    }
    match report.first_error {
        None if args.verify && report.compared == 0 => Err(Error::NothingVerified),
        None => Ok(()),
        Some(first) => Err(Error::Failures { count: report.errors, first }),
    }
}

/// A bar for so many bytes or milliseconds; `whole` says it in words.
fn progress_bar(length: u64, whole: &str) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{bar:40} {elapsed} of {msg}").unwrap_or(ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style).with_message(whole.to_owned())
}

fn tell(
    args: &BenchArgs,
    job: &Job,
    report: &Report,
    (lookahead, far_reads, shadow): (Option<Ahead>, Option<FarReads>, Option<ConfigCacheCounters>),
    connections: Vec<Carried>,
) -> Result<(), Error> {
    let round_trips = far_reads.and_then(|reads| reads.round_trips(report.commands));
    let is_whole = report.unverified.is_none() && !report.interrupted;
    let is_verified = report.compared > 0 && report.corrupt.is_empty() && is_whole;
    let verified = job.verify.then_some(is_verified);
    let name = name_of(job.workload);
    if args.output_format == Some(ReportNames::Json) {
        let known = fio::Known { elapsed: report.elapsed, kinds: &report.kinds, errors: report.errors };
        return print(&fio_text(args, &known));
    }
    let list = args.percentile_list.as_ref();
    let percentiles = list.map(|list| fio::percentiles(&report.latency, Some(list)));
    if args.output.json {
        return print_json(&Json {
            rw: name,
            bs: job.sizes.longest(),
            bssplit: args.bssplit.map(|sizes| sizes.to_string()),
            iodepth: job.depth,
            numjobs: job.jobs,
            rate: job.rate,
            runtime_s: Duration::from(report.elapsed).as_secs_f64(),
            iops: report.iops(),
            mib_s: report.mib_s(),
            latency_ns: &report.latency,
            percentiles_ns: percentiles,
            commands: report.commands,
            bytes: report.bytes,
            errors: report.errors,
            first_error: report.first_error.as_deref(),
            interrupted: report.interrupted,
            late: report.late,
            verified,
            protected_by: job.protected.word(),
            compared: report.compared,
            compared_bytes: compared_bytes(job, report),
            lookahead,
            shadow,
            far_reads,
            round_trips,
            connections,
        });
    }
    let mut text = head(&name, job, report);
    if let Some(list) = list {
        text.push_str(&percentile_line(list, report));
    }
    if let Some(lookahead) = lookahead {
        text.push_str(&format!("  lookahead: {lookahead}\n"));
    }
    if let Some(shadow) = shadow {
        text.push_str(&format!("  {shadow}\n"));
    }
    if let Some((reads, round_trips)) = far_reads.zip(round_trips) {
        text.push_str(&format!("  far end: {reads}; {round_trips:.2} round trips a command\n"));
    }
    for (number, carried) in connections.iter().enumerate() {
        text.push_str(&format!("  connection {number}: {carried}\n"));
    }
    text.push_str(&ending(verified, job, report));
    print(&text)
}

/// The percentiles that were asked for, in words.
fn percentile_line(list: &Percentiles, report: &Report) -> String {
    let one = |percent: &f64| format!("{percent} % {}", report.latency.quantile(percent / 100.0));
    format!("  {}\n", list.0.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// What went wrong and what was checked, in words.
fn ending(verified: Option<bool>, job: &Job, report: &Report) -> String {
    let mut text = String::new();
    if report.late > 0 {
        text.push_str(&format!("  {} commands were skipped: the queue was full\n", report.late));
    }
    match &report.first_error {
        None => text.push_str("  no errors\n"),
        Some(first) => text.push_str(&format!("  {} errors, the first: {first}\n", report.errors)),
    }
    text.push_str(&verification(verified, job, report));
    if let Some(who) = job.protected.word() {
        text.push_str(&format!("  protection information is made and checked by the {who}\n"));
    }
    text
}

/// Tells what was measured until now, without waiting for the reader.
fn tell_so_far(args: &BenchArgs, elapsed: Nanos, kinds: &[Sums; 2]) {
    let [reads, writes] = kinds;
    if args.output_format == Some(ReportNames::Json) {
        let known = fio::Known { elapsed, kinds, errors: 0 };
        return telling::report(fio_text(args, &known).trim_end().to_owned());
    }
    let (operations, bytes) = (reads.operations + writes.operations, reads.bytes + writes.bytes);
    let mut latency = reads.latency.clone();
    latency.merge(&writes.latency);
    let (a_second, mib_s) = (rate(operations, elapsed), rate(bytes, elapsed) / f64::from(1 << 20));
    if args.output.json {
        let so_far = serde_json::json!({
            "event": "progress",
            "elapsed_s": Duration::from(elapsed).as_secs_f64(),
            "iops": a_second,
            "mib_s": mib_s,
            "latency_ns": &latency,
        });
        // What can't be told now is told at the end.
        return drop(report_json(&so_far));
    }
    telling::report(format!(
        "after {elapsed}: {a_second:.0} commands a second, {mib_s:.1} MiB/s, latency {latency}"
    ));
}

/// The report with fio's names.
fn fio_text(args: &BenchArgs, known: &fio::Known<'_>) -> String {
    format!("{:#}\n", fio::report(args, known))
}

/// The load, its rate and its latency, in words.
fn head(name: &str, job: &Job, report: &Report) -> String {
    let length = match job.sizes.is_one() {
        true => job.sizes.longest().to_string(),
        false => job.sizes.to_string(),
    };
    let jobs = if job.jobs == 1 { String::new() } else { format!(" in each of {} jobs", job.jobs) };
    format!(
        "{name}, {length} B a command, {} under way{jobs}, {}\n  {:.0} commands a second, {:.1} MiB/s\n  latency  {}\n",
        job.depth,
        report.elapsed,
        report.iops(),
        report.mib_s(),
        report.latency,
    )
}

/// The bytes that were compared: operations of a verified load have one length.
fn compared_bytes(job: &Job, report: &Report) -> u64 {
    report.compared * u64::from(job.sizes.longest())
}

/// The result of --verify, in words.
fn verification(verified: Option<bool>, job: &Job, report: &Report) -> String {
    match verified {
        None => String::new(),
        Some(true) => {
            let (chunks, bytes) = (report.compared, compared_bytes(job, report));
            format!("  verified: {chunks} chunks are as written, {bytes} B\n")
        }
        Some(false) if !report.corrupt.is_empty() => format!("  CORRUPT: {} chunks\n", report.corrupt.len()),
        Some(false) if report.compared == 0 && !report.interrupted => "  NOTHING VERIFIED\n".to_owned(),
        Some(false) => "  not verified to the end\n".to_owned(),
    }
}

fn name_of(workload: Workload) -> String {
    use clap::ValueEnum;
    workload.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
