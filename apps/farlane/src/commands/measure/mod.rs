//! `farlane measure report`: the method of published measurements. Many samples of each of several
//! sizes, idle and under load, of several devices in turn.

mod page;
mod picture;
pub(crate) mod report;
mod table;

use distribution::Distribution;
use engine::Nanos;
use indicatif::ProgressBar;
use live::client::Url;
use nvme::host::Namespace;

use crate::args::{Direction, MeasureArgs, ReportForm, Workload};
use crate::commands::{print, print_json};
use crate::error::{DaemonError, Error};
use crate::hops::{self, Hops};
use crate::session::{Needs, Session};
use crate::whole_file;
use crate::workload::{self, Job};
use report::{Device, Early, Point, Report, Sampled, What};

/// Each device has its turn after this share of a point's time.
const TURNS: u64 = 10;
/// The longest and the shortest turn.
const TURN: (Nanos, Nanos) = (Nanos::from_millis(20), Nanos::from_secs(1));
/// The command leaves a device that does not give the requested samples after this multiple of a
/// point's time.
const PATIENCE: u64 = 20;

/// A measurement that takes longer has a hint at a shorter one.
const LONG: Nanos = Nanos::from_secs(120);

/// The most bytes of data of commands under way at once.
const DATA_BYTES_MAX: u64 = 1 << 30;

/// A device that is measured.
struct Subject {
    url: Url,
    session: Session,
    namespace: Namespace,
}

pub(crate) fn run(args: &MeasureArgs) -> Result<(), Error> {
    let mut subjects = attach(args)?;
    let points = points(args);
    for subject in &subjects {
        check(args, subject)?;
    }
    // A file that can't be written is an error before hours of work, not after.
    for (path, _) in &args.to {
        whole_file::check(path)?;
    }
    let expected = announce(args, points.len(), subjects.len());
    let bar = match args.output.json {
        true => ProgressBar::hidden(),
        false => ProgressBar::new(millis(expected)),
    };
    let mut measured = Vec::new();
    let mut ended = None;
    for what in &points {
        match point(args, *what, &mut subjects, &bar) {
            Ok(samples) => measured.push(Point { what: *what, samples }),
            Err(error) if measured.is_empty() => {
                bar.finish_and_clear();
                warn!("no point was complete: no report is written");
                return Err(error);
            }
            // The points before took hours, perhaps.
            Err(error) => {
                ended = Some(error);
                break;
            }
        }
    }
    bar.finish_and_clear();
    let is_early = ended.is_some();
    let mut missing: Vec<_> = points[measured.len()..].iter().map(What::to_string).collect();
    let devices = devices(args, subjects, &mut ended, &mut missing);
    let early = Early { is_early, missing };
    let report = Report::new(args, expected, devices, measured, early);
    // An error of the output file costs none of the measurements.
    match args.output.json {
        true => print_json(&report.printed())?,
        false => print(&report.text())?,
    }
    for (path, form) in &args.to {
        write(&report, path, *form)?;
    }
    ended.map_or(Ok(()), Err)
}

/// Shows how long the measurement will take at least, and returns that time.
fn announce(args: &MeasureArgs, points: usize, devices: usize) -> Nanos {
    let each = Nanos::from(args.time);
    let expected = Nanos::new(each.get().saturating_mul((points * devices) as u64));
    let devices = if devices == 1 { "1 device".to_owned() } else { format!("{devices} devices") };
    let time =
        humantime::format_duration(std::time::Duration::from_secs(expected.get().div_ceil(1_000_000_000)));
    let mut text = format!("measuring {points} points of {devices} for {each} each takes {time} or longer");
    text += "; Ctrl-C ends it early and keeps the complete points";
    if !args.quick && expected > LONG {
        text += "; --quick takes a minute for each device";
    }
    note!("{text}");
    expected
}

fn attach(args: &MeasureArgs) -> Result<Vec<Subject>, Error> {
    let longest = args.sizes.iter().max().copied().unwrap_or_default();
    // An error before memory is taken for them: the machine may have less.
    let data_bytes = longest.saturating_mul(u64::from(args.load));
    if data_bytes > DATA_BYTES_MAX {
        let expected = format!("at most {DATA_BYTES_MAX} B");
        return Err(Error::Range { what: "--sizes times --load", value: data_bytes, expected });
    }
    let needs = Needs {
        data_bytes: data_bytes.max(1 << 20),
        depth: args.load,
        round_trips: true,
        ..Needs::default()
    };
    let mut subjects = Vec::<Subject>::new();
    for url in std::iter::once(&args.target.url).chain(&args.beside) {
        // The capture has the first device.
        let capture = args.target.capture.as_deref().filter(|_| subjects.is_empty());
        let session = Session::attach_to(url, &args.target, capture, needs)?;
        let namespace = session.namespace(args.namespace)?;
        subjects.push(Subject { url: url.clone(), session, namespace });
        keep_alive(&mut subjects)?;
    }
    Ok(subjects)
}

/// Keeps the connections of waiting devices alive.
fn keep_alive(subjects: &mut [Subject]) -> Result<(), Error> {
    subjects.iter_mut().try_for_each(|subject| subject.session.keep_alive())
}

/// The points of a measurement: round trips first, then each direction and size, idle and under
/// load.
fn points(args: &MeasureArgs) -> Vec<What> {
    let mut points = vec![What::RoundTrip];
    for direction in &args.rw {
        for bytes in &args.sizes {
            // No size is above the longest transfer, which has 32 bits.
            let bytes = u32::try_from(*bytes).unwrap_or(u32::MAX);
            let depths = [1, args.load];
            let depths = if args.load == 1 { &depths[..1] } else { &depths[..] };
            points.extend(depths.iter().map(|depth| What::Command {
                is_write: *direction == Direction::Write,
                bytes,
                depth: *depth,
            }));
        }
    }
    points
}

/// Checks that a device takes commands of all sizes.
fn check(args: &MeasureArgs, subject: &Subject) -> Result<(), Error> {
    let limit = subject.session.identity()?.transfer_bytes_max;
    let block = subject.namespace.block_bytes;
    for bytes in &args.sizes {
        if *bytes == 0 || !bytes.is_multiple_of(block.into()) || *bytes > limit.into() {
            let expected = format!("multiples of the block size {block} of {}, {limit} at most", subject.url);
            return Err(Error::Range { what: "--sizes", value: *bytes, expected });
        }
    }
    Ok(())
}

/// Measures a point of all devices, in turn.
fn point(
    args: &MeasureArgs,
    what: What,
    subjects: &mut [Subject],
    bar: &ProgressBar,
) -> Result<Vec<Sampled>, Error> {
    let time = Nanos::from(args.time);
    let turn = Nanos::new((time.get() / TURNS).clamp(TURN.0.get(), TURN.1.get()));
    let patience = Nanos::new(time.get().saturating_mul(PATIENCE));
    let mut sampled = vec![Sampled::default(); subjects.len()];
    let is_done = |one: &Sampled| {
        one.elapsed >= patience || (one.elapsed >= time && one.latency.count() >= args.samples)
    };
    while !sampled.iter().all(is_done) {
        for at in 0..subjects.len() {
            if !is_done(&sampled[at]) {
                take(what, &mut subjects[at], turn, &mut sampled[at])?;
                if sampled[at].elapsed <= time {
                    bar.inc(millis(turn));
                }
                keep_alive(subjects)?;
            }
        }
    }
    Ok(sampled)
}

/// Takes samples of a device for the time of a turn.
fn take(what: What, subject: &mut Subject, turn: Nanos, sampled: &mut Sampled) -> Result<(), Error> {
    match what {
        What::RoundTrip => {
            let start = subject.session.now();
            while subject.session.now() < start + turn {
                sampled.latency.record(subject.session.probe()?.1);
            }
            sampled.elapsed += subject.session.now() - start;
        }
        What::Command { is_write, bytes, depth } => {
            let workload = if is_write { Workload::RandWrite } else { Workload::RandRead };
            let job = Job::plain(subject.namespace, workload, bytes, depth, turn);
            let report = workload::run(&mut subject.session, job)?;
            if report.interrupted {
                return Err(Error::Interrupted);
            }
            if let Some(first) = report.first_error {
                let why = format!("{}: a command failed: {first}", subject.url);
                return Err(DaemonError::Asked { why }.into());
            }
            sampled.latency.merge(&report.latency);
            sampled.elapsed += report.elapsed;
            sampled.bytes += report.bytes;
        }
    }
    Ok(())
}

/// Ends the sessions, and follows hop by hop the reads of sessions that went through a tunnel,
/// until something has `ended` the measurement. Its figures are reported all the same. Hops that
/// could not be followed are `missing`.
fn devices(
    args: &MeasureArgs,
    subjects: Vec<Subject>,
    ended: &mut Option<Error>,
    missing: &mut Vec<String>,
) -> Vec<Device> {
    let mut devices = Vec::new();
    for Subject { url, session, .. } in subjects {
        let name = session.name();
        let has_tunnel = hops::clock(&session).is_some();
        // A capture is whole when its session is closed.
        let hops = session.close().and_then(|()| match has_tunnel && ended.is_none() {
            true => follow(args, &url).map(Some),
            false => Ok(None),
        });
        let hops = hops.unwrap_or_else(|error| {
            ended.get_or_insert(error);
            None
        });
        if has_tunnel && hops.is_none() {
            missing.push(format!("hops of {url}"));
        }
        devices.push(Device { url, name, hops });
    }
    devices
}

/// Attaches once more, with time stamps on every frame. The capture has the session before.
fn follow(args: &MeasureArgs, url: &Url) -> Result<Hops, Error> {
    let needs = Needs { stamps: true, ..Needs::default() };
    let mut session = Session::attach_to(url, &args.target, None, needs)?;
    let namespace = session.namespace(args.namespace)?;
    let hops = hops::follow(&mut session, namespace)?;
    session.close()?;
    Ok(hops)
}

fn write(report: &Report, path: &std::path::Path, form: ReportForm) -> Result<(), Error> {
    let fail = |error| Error::File { path: path.to_owned(), error };
    let bytes = match form {
        ReportForm::Page => page::html(report).into_bytes(),
        ReportForm::Csv => table::csv(report).into_bytes(),
        ReportForm::Parquet => table::parquet(report).map_err(|why| fail(std::io::Error::other(why)))?,
        ReportForm::Picture => return picture::draw(report).write(path),
    };
    whole_file::replace(path, &bytes)
}

/// A time in milliseconds, in which progress is counted.
const fn millis(time: Nanos) -> u64 {
    time.get() / 1_000_000
}

/// The samples of a device without those beyond three standard deviations.
fn filtered(samples: &Distribution) -> Distribution {
    samples.within_deviations(3.0)
}
