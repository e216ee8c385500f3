//! `farlane bench`: runs loads and reports their rate and their latency.

mod fio;
mod job;
mod job_file;
mod layout;
pub(crate) mod report;
mod threads;

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::Nanos;
use indicatif::{ProgressBar, ProgressStyle};
use status::{ConfigCache, Connection, FarReads, Lookahead};

use crate::args::{BenchArgs, Workload};
use crate::counters;
use crate::error::Error;
use crate::workload::{self, Job, Part, Progress, Report, Run, Scope, ThreadFigures, rate};
use threads::Crew;

/// A job that is to run.
struct Planned {
    args: BenchArgs,
    /// Jobs of a phase run at the same time, after those of the phases before.
    phase: usize,
    /// fio's number of a group of jobs.
    group: usize,
    /// The jobs that end before this one begins.
    after: Vec<usize>,
    /// The jobs that end when this one does.
    ends: Option<Scope>,
}

impl Planned {
    /// The job's name in reports.
    fn name(&self) -> &str {
        self.args.name.as_deref().unwrap_or("bench")
    }
}

/// A job that has run.
struct Done<'a> {
    planned: &'a Planned,
    job: Job,
    report: Report,
    /// When it began, since the epoch.
    began: Duration,
}

/// The session's figures about all jobs together.
#[derive(Default)]
struct SessionFigures {
    lookahead: Option<Lookahead>,
    shadow: Option<ConfigCache>,
    far_reads: Option<FarReads>,
    connections: Vec<Connection>,
    /// The figures of each thread; empty where one thread has all jobs.
    threads: Vec<ThreadFigures>,
}

pub(crate) fn run(args: BenchArgs) -> Result<(), Error> {
    let path = args.job.clone();
    let (planned, without) = match &path {
        Some(path) => job_file::plan(path)?,
        None => {
            let without = report::without_effect(&args);
            (vec![Planned { args, phase: 0, group: 0, after: Vec::new(), ends: None }], without)
        }
    };
    if !without.is_empty() {
        let shared = if planned.len() > 1 { ", which all jobs share" } else { "" };
        note!("without effect at a namespace{shared}: {}", without.join(", "));
    }
    load(&planned, path.as_deref())
}

fn load(planned: &[Planned], path: Option<&Path>) -> Result<(), Error> {
    let Some(first) = planned.first().map(|first| &first.args) else { return Ok(()) };
    for (at, one) in planned.iter().enumerate() {
        let is_read = |args: &BenchArgs| matches!(args.rw.workload, Workload::Read | Workload::RandRead);
        let mut before = planned[..at].iter().map(|one| &one.args);
        if one.args.verify && is_read(&one.args) && !before.any(|args| args.verify && !is_read(args)) {
            return Err(Error::NothingToVerify { workload: one.args.rw.workload.name() });
        }
    }
    let needs = job::needs(planned)?;
    let crew = Crew::of(planned, needs)?;
    let mut session = crew.attach_first()?;
    let before = session.far_reads()?;
    let (mut done, mut threads) = (Vec::new(), Vec::new());
    let (genesis, mut books) = (session.now(), Vec::new());
    for phase in planned.chunk_by(|one, other| one.phase == other.phase) {
        let at = planned.partition_point(|one| one.phase < phase[0].phase);
        let jobs = phase.iter().map(|one| job::job(&mut session, one, (&needs, at)));
        let mut jobs = jobs.collect::<Result<Vec<_>, _>>()?;
        let wrong = |why| Error::JobFile { path: path.unwrap_or(Path::new("")).to_owned(), why };
        for part in layout::separate(phase, &mut jobs).map_err(wrong)? {
            note!("{part}, because jobs that verify their writes get parts of their own");
        }
        let mut progress = Shown::new(phase, &jobs);
        let run = Run::new(&session, &jobs, &mut books, genesis)?;
        let show = |now: &Progress<'_>| progress.show(&done, now);
        let ended = match crew.count(&run) {
            None => workload::carry_out(&mut session, &run, Part::WHOLE, show)?,
            Some(count) => crew.carry_out(&mut session, &run, (count, &mut threads), show)?,
        };
        progress.bar.finish_and_clear();
        let (wall, now) = (SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(), session.now());
        let is_over = ended.ends_all || ended.reports.iter().any(|report| report.interrupted);
        for ((planned, job), report) in phase.iter().zip(jobs).zip(ended.reports) {
            let ago = report.began.map_or(report.elapsed, |began| now - began);
            let began = wall.saturating_sub(ago.into());
            done.push(Done { planned, job, report, began });
        }
        if is_over {
            break;
        }
    }
    // A session that was interrupted can't ask any more.
    let after = match session.far_reads() {
        Err(Error::Interrupted) => None,
        after => after?,
    };
    let far_reads = before.zip(after).map(|(before, after)| counters::far_reads(&after.since(&before)));
    let (lookahead, shadow) = (session.lookahead(), session.config_cache());
    let connections = session.connections();
    session.close()?;
    let figures = SessionFigures { lookahead, shadow, far_reads, connections, threads };
    report::print_report((first, planned.len() > 1), &done, figures)?;
    done.into_iter().try_for_each(|done| judge(&done.planned.args, done.report))
}

/// Whether the load ran as requested.
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
        None if args.verify && args.load.contents.do_verify && report.compared == 0 => {
            Err(Error::NothingVerified)
        }
        None => Ok(()),
        Some(first) => Err(Error::Failures { count: report.errors, first }),
    }
}

/// The display while jobs run.
struct Shown<'a> {
    phase: &'a [Planned],
    bar: ProgressBar,
    /// The length of the load in words, and whether it is one of bytes.
    length: String,
    is_bytes: bool,
    next: Option<Nanos>,
}

impl<'a> Shown<'a> {
    fn new(phase: &'a [Planned], jobs: &[Job]) -> Self {
        let bytes = |job: &Job| Some(job.limits.bytes?.saturating_mul(job.jobs.into()));
        let wanted = jobs.iter().map(bytes).try_fold(0_u64, |sum, bytes| Some(sum.saturating_add(bytes?)));
        let time = jobs
            .iter()
            .map(|job| Duration::from(job.limits.delay) + Duration::from(job.limits.runtime))
            .max();
        let time = time.unwrap_or_default();
        let length = match wanted {
            Some(bytes) => format!("{bytes} B"),
            None => humantime::format_duration(time).to_string(),
        };
        let bar = progress_bar(wanted.unwrap_or(Nanos::from(time).get() / 1_000_000), &length);
        let next = phase.first().and_then(|one| one.args.status_interval).map(Nanos::from);
        Self { phase, bar, length, is_bytes: wanted.is_some(), next }
    }

    fn show(&mut self, done: &[Done<'_>], now: &Progress<'_>) {
        let (operations, bytes) = now.moved;
        self.bar.set_position(if self.is_bytes { bytes } else { now.elapsed.get() / 1_000_000 });
        let a_second = rate(operations, now.elapsed);
        self.bar.set_message(format!("{}, {a_second:.0} commands a second", self.length));
        let every = self.phase.first().and_then(|one| one.args.status_interval);
        if let (Some(at), Some(every)) = (&mut self.next, every)
            && now.elapsed >= *at
        {
            *at += Nanos::from(every);
            report::print_so_far(self.phase, done, now);
        }
    }
}

/// A bar for `length` bytes or milliseconds; `whole` says the length in words.
fn progress_bar(length: u64, whole: &str) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{bar:40} {elapsed} of {msg}").unwrap_or(ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style).with_message(whole.to_owned())
}
