//! Reports of loads, as text and as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use distribution::Distribution;
use live::sys::logging;
use schemars::JsonSchema;
use serde::Serialize;
use status::{ConfigCache, Connection, FarReads, Lookahead};

use super::{Done, Planned, SessionFigures, fio};
use crate::args::{BenchArgs, Percentiles, ReportNames};
use crate::commands::{print, print_json, report_json};
use crate::error::Error;
use crate::workload::{Job, Kind, Progress, Report, ThreadFigures, rate, total};

/// Rate and latency of a load, in fio's terms.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Json<'a> {
    #[serde(flatten)]
    job: JobReport<'a>,
    #[serde(flatten)]
    figures: Figures,
}

/// Rate and latency of a job.
#[derive(Serialize, JsonSchema)]
struct JobReport<'a> {
    /// The job's name; none unless there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// The load, by fio's name of it.
    rw: String,
    /// The length of an operation, or the longest one.
    bs: u32,
    /// Lengths of operations in bytes with their shares.
    #[serde(skip_serializing_if = "Option::is_none")]
    bssplit: Option<String>,
    /// Commands under way at once, of each job.
    iodepth: u32,
    numjobs: u32,
    /// Commands of each job to begin per second; none if commands began whenever there was room.
    rate: Option<u64>,
    runtime_s: f64,
    iops: f64,
    mib_s: f64,
    latency_ns: &'a Distribution,
    /// The percentiles that were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    percentiles_ns: Option<BTreeMap<String, u64>>,
    commands: u64,
    bytes: u64,
    /// How many commands failed.
    errors: u64,
    first_error: Option<&'a str>,
    /// Whether the user ended the load early.
    interrupted: bool,
    /// Commands that were due and had not begun for lack of room when the load ended.
    late: u64,
    /// Whether all data that was compared was as written; none without --verify.
    verified: Option<bool>,
    /// The side that made and checked protection information: host or controller; none without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    protected_by: Option<&'static str>,
    /// Whether the job's figures became steady; none unless that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    steady: Option<bool>,
    /// The number of chunks that were compared with earlier writes.
    compared: u64,
    /// The number of bytes that were compared with earlier writes, those of a chunk each time.
    compared_bytes: u64,
}

/// The session's figures.
#[derive(Serialize, JsonSchema)]
struct Figures {
    /// The tunnel's account of data sent ahead; none without lookahead.
    lookahead: Option<Lookahead>,
    /// The tunnel's answers from near; none without a tunnel.
    shadow: Option<ConfigCache>,
    /// The outcome of the far device's reads of memory during the run; none without a tunnel.
    far_reads: Option<FarReads>,
    /// Counted round trips over the tunnel per command. Commands that are under way at once may
    /// share a round trip.
    round_trips: Option<f64>,
    /// The load of each connection, where the tunnel has several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    connections: Vec<Connection>,
    /// The figures of each thread, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    threads: Vec<ThreadReport>,
}

/// The figures of a thread: its part of all jobs.
#[derive(Serialize, JsonSchema)]
struct ThreadReport {
    commands: u64,
    bytes: u64,
    iops: f64,
    mib_s: f64,
}

/// Rate and latency of each job of a job file with several, and the tunnel's report about all
/// together.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Several<'a> {
    jobs: Vec<JobReport<'a>>,
    #[serde(flatten)]
    figures: Figures,
}

/// The figures of a job while it runs.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SoFar<'a> {
    /// `progress`.
    event: &'static str,
    /// The job's name; none unless there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    elapsed_s: f64,
    iops: f64,
    mib_s: f64,
    latency_ns: &'a Distribution,
}

/// Words of the command line that change nothing.
pub(super) fn without_effect(args: &BenchArgs) -> Vec<String> {
    let load = &args.load;
    let words = [
        ("--ioengine", load.ioengine.is_some()),
        ("--direct", load.direct.is_some()),
        ("--group_reporting", load.group_reporting.is_some()),
    ];
    words.iter().filter(|(_, is_given)| *is_given).map(|(word, _)| (*word).to_owned()).collect()
}

/// Prints the reports of jobs, as the arguments ask, and whether they are of several.
pub(super) fn print_report(
    (args, are_several): (&BenchArgs, bool),
    done: &[Done<'_>],
    figures: SessionFigures,
) -> Result<(), Error> {
    if args.output_format == Some(ReportNames::Json) {
        return print(&fio_text(&done.iter().map(known).collect::<Vec<_>>()));
    }
    let commands = done.iter().map(|done| done.report.commands).sum();
    let SessionFigures { lookahead, shadow, far_reads, connections, threads } = figures;
    let round_trips = far_reads.and_then(|reads| reads.round_trips(commands));
    let threads = threads.iter().map(thread_report).collect();
    let figures = Figures { lookahead, shadow, far_reads, round_trips, connections, threads };
    if args.output.json {
        return match done {
            [one] if !are_several => print_json(&Json { job: job_report(one, None), figures }),
            several => {
                let jobs = several.iter().map(|one| job_report(one, Some(one.planned.name()))).collect();
                print_json(&Several { jobs, figures })
            }
        };
    }
    let mut text = String::new();
    for one in done {
        let name = (are_several).then(|| one.planned.name());
        text.push_str(&head(name, one));
        if !are_several {
            text.push_str(&lines(&figures));
        }
        text.push_str(&ending(verified(one), &one.job, &one.report));
    }
    if are_several {
        text.push_str(&lines(&figures));
    }
    print(&text)
}

/// Whether a job's data was as written; none for a job without verification.
fn verified(done: &Done<'_>) -> Option<bool> {
    let report = &done.report;
    let is_whole = report.unverified.is_none() && !report.interrupted;
    let check = done.job.check.filter(|check| check.at_end || report.compared > 0)?;
    let is_compared = report.compared > 0 || check.backlog.is_some();
    Some(is_compared && report.corrupt.is_empty() && is_whole)
}

fn job_report<'a>(done: &'a Done<'_>, name: Option<&'a str>) -> JobReport<'a> {
    let (args, job, report) = (&done.planned.args, &done.job, &done.report);
    let list = args.percentile_list.as_ref();
    let has_split = args.bssplit.is_some() || args.bsrange.is_some();
    JobReport {
        name,
        rw: args.rw.workload.name(),
        bs: job.kinds().iter().map(|kind| job.sizes[*kind as usize].longest()).max().unwrap_or_default(),
        bssplit: has_split.then(|| lengths(job)),
        iodepth: job.depth,
        numjobs: job.jobs,
        rate: job.pace.operations.iter().flatten().next().copied(),
        runtime_s: Duration::from(report.elapsed).as_secs_f64(),
        iops: report.iops(),
        mib_s: report.mib_s(),
        latency_ns: &report.latency,
        percentiles_ns: list.map(|list| fio::percentiles(&report.latency, Some(list))),
        commands: report.commands,
        bytes: report.bytes,
        errors: report.errors,
        first_error: report.first_error.as_deref(),
        interrupted: report.interrupted,
        late: report.late,
        verified: verified(done),
        protected_by: job.protected.word(),
        steady: report.is_steady,
        compared: report.compared,
        compared_bytes: compared_bytes(job, report),
    }
}

fn thread_report(figures: &ThreadFigures) -> ThreadReport {
    let ThreadFigures { commands, bytes, elapsed } = *figures;
    let mib_s = rate(bytes, elapsed) / f64::from(1 << 20);
    ThreadReport { commands, bytes, iops: rate(commands, elapsed), mib_s }
}

/// The session's figures, in words.
fn lines(figures: &Figures) -> String {
    let mut text = String::new();
    if let Some(lookahead) = &figures.lookahead {
        text.push_str(&format!("  lookahead: {lookahead}\n"));
    }
    if let Some(shadow) = &figures.shadow {
        text.push_str(&format!("  {shadow}\n"));
    }
    if let Some((reads, round_trips)) = figures.far_reads.as_ref().zip(figures.round_trips) {
        text.push_str(&format!("  far end: {reads}; {round_trips:.2} round trips a command\n"));
    }
    for (number, carried) in figures.connections.iter().enumerate() {
        text.push_str(&format!("  connection {number}: {carried}\n"));
    }
    for (number, ThreadReport { iops, mib_s, .. }) in (1..).zip(&figures.threads) {
        text.push_str(&format!("  thread {number}: {iops:.0} commands a second, {mib_s:.1} MiB/s\n"));
    }
    text
}

/// The percentiles that were asked for, in words.
fn percentile_line(list: &Percentiles, report: &Report) -> String {
    let one = |percent: &f64| format!("{percent} % {}", report.latency.quantile(percent / 100.0));
    format!("  {}\n", list.0.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// Errors and checks of a job, in words.
fn ending(verified: Option<bool>, job: &Job, report: &Report) -> String {
    let mut text = String::new();
    match report.is_steady {
        None => {}
        Some(true) => text.push_str("  the figures are steady\n"),
        Some(false) => text.push_str("  NOT STEADY when the job ended\n"),
    }
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

/// The state of a job for a report with fio's names.
fn known<'a>(done: &'a Done<'_>) -> fio::Known<'a> {
    fio::Known {
        planned: done.planned,
        began: done.began,
        elapsed: done.report.elapsed,
        kinds: done.report.kinds.clone(),
        errors: done.report.errors,
        is_steady: done.report.is_steady,
    }
}

/// Prints the figures until `now`, without waiting for the reader. Jobs that are `done` are in
/// a report with fio's names, too.
pub(super) fn print_so_far(phase: &[Planned], done: &[Done<'_>], now: &Progress<'_>) {
    let Some(args) = phase.first().map(|first| &first.args) else { return };
    let current = phase.iter().enumerate().map(|(at, planned)| {
        let (elapsed, kinds) = (now.of)(at);
        (planned, elapsed, kinds)
    });
    if args.output_format == Some(ReportNames::Json) {
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let running = current.map(|(planned, elapsed, kinds)| fio::Known {
            planned,
            began: wall.saturating_sub(elapsed.into()),
            elapsed,
            kinds,
            errors: 0,
            is_steady: None,
        });
        let all: Vec<_> = done.iter().map(known).chain(running).collect();
        return logging::report(fio_text(&all).trim_end().to_owned());
    }
    for (planned, elapsed, kinds) in current {
        let (latency, operations, bytes) = total(&kinds);
        let (a_second, mib_s) = (rate(operations, elapsed), rate(bytes, elapsed) / f64::from(1 << 20));
        let name = (phase.len() > 1).then(|| planned.name());
        if args.output.json {
            let so_far = SoFar {
                event: "progress",
                name,
                elapsed_s: Duration::from(elapsed).as_secs_f64(),
                iops: a_second,
                mib_s,
                latency_ns: &latency,
            };
            // A report that can't be printed now is printed at the end.
            drop(report_json(&so_far));
            continue;
        }
        let name = name.map(|name| format!("{name}: ")).unwrap_or_default();
        logging::report(format!(
            "{name}after {elapsed}: {a_second:.0} commands a second, {mib_s:.1} MiB/s, latency {latency}"
        ));
    }
}

/// The report with fio's names.
fn fio_text(jobs: &[fio::Known<'_>]) -> String {
    let report = fio::Report::of(jobs);
    // Numbers, text and maps with keys of text are always JSON.
    serde_json::to_string_pretty(&report).unwrap_or_default() + "\n"
}

/// The lengths of a job's operations, those of each kind where they differ.
fn lengths(job: &Job) -> String {
    let mut lengths: Vec<_> = job.kinds().iter().map(|kind| job.sizes[*kind as usize].to_string()).collect();
    lengths.dedup();
    lengths.join(",")
}

/// The load, its rate and its latency, in words.
fn head(name: Option<&str>, done: &Done<'_>) -> String {
    let Done { planned, job, report, .. } = done;
    let jobs = if job.jobs == 1 { String::new() } else { format!(" in each of {} jobs", job.jobs) };
    let mut text = format!(
        "{}{}, {} B a command, {} under way{jobs}, {}\n  {:.0} commands a second, {:.1} MiB/s\n  latency  {}\n",
        name.map(|name| format!("{name}: ")).unwrap_or_default(),
        planned.args.rw.workload.name(),
        lengths(job),
        job.depth,
        report.elapsed,
        report.iops(),
        report.mib_s(),
        report.latency,
    );
    let flushes = &report.kinds[Kind::Flush as usize];
    if flushes.operations > 0 {
        text.push_str(&format!("  {} Flushes, latency  {}\n", flushes.operations, flushes.latency));
    }
    if let Some(list) = &planned.args.percentile_list {
        text.push_str(&percentile_line(list, report));
    }
    text
}

/// The bytes that were compared: operations of a verified load have one length.
fn compared_bytes(job: &Job, report: &Report) -> u64 {
    report.compared * u64::from(job.chunk())
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
