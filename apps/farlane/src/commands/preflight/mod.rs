//! `farlane recording preflight`: whether a medium keeps up with a recording.

pub(crate) mod answer;
pub(crate) mod kept;
pub(crate) mod report;
pub(crate) mod udp;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use engine::Nanos;
use indicatif::{ProgressBar, ProgressStyle};
use live::drivers::record::{
    End, Extent, Far, Measured, Measurement, SecondSignal, Storage, Target, stop_on_signals,
};
use live::sys::sandbox::Needs;
use record::{BUFFER_DEFAULT, Config};
use sim::models::ssd::fit::{self, Fit, Written};

use super::medium::{buffer_chunks, far};
use crate::args::{FarSpec, PreflightArgs};
use crate::error::Error;
use answer::{Behaviour, Forecast, Wish};
use kept::Kept;

/// The measurement and its conclusions.
struct Preflight {
    /// The identity that distinguishes the medium from others.
    medium: String,
    is_direct: bool,
    measured: Measured,
    fit: Fit,
    behaviour: Behaviour,
    wish: Wish,
    forecast: Forecast,
}

/// Adds the folder of earlier measurements to the needs of a confined process.
pub(crate) fn need(needs: &mut Needs) {
    needs.read.push(kept::directory());
}

pub(crate) fn run(args: &PreflightArgs) -> Result<(), Error> {
    let end = stop_on_signals(SecondSignal::Nothing).map_err(Error::System)?;
    let (rate, time) = match (args.datagrams.udp, args.rate, args.time) {
        (Some(streams), ..) => return udp::run(args, streams, &end),
        // Without --udp, the options need both.
        (None, rate, time) => (rate.unwrap_or_default(), time.unwrap_or_default()),
    };
    let preflight = preflight(args, (rate, time.into()), &end)?;
    let kept = Kept {
        medium: preflight.medium.clone(),
        when: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        bytes: preflight.fit.bytes,
        behaviour: preflight.behaviour.clone(),
    };
    if let Err(error) = kept.save() {
        warn!(each = true, "the measurement is not kept for farlane record: {error}");
    }
    report::print_answer(args, &preflight)
}

fn preflight(args: &PreflightArgs, (rate, time): (u64, Nanos), end: &End) -> Result<Preflight, Error> {
    let buffer = args.buffer.unwrap_or(BUFFER_DEFAULT as u64 * u64::from(args.chunk));
    buffer_chunks("--buffer", buffer, args.chunk)?;
    let failed = |error: io::Error| failed(args, error);
    let (kind, medium) = find(args)?;
    // A file can grow.
    let length = match &kind {
        Medium::NewFile(_) => None,
        Medium::Far(_) | Medium::Device => Some(medium.room),
    };
    let measurement = open(args, kind).map_err(failed)?;
    // A file system that is full harms others.
    let free = medium.room / 10 * 9;
    let most = if length.is_some() { u64::MAX } else { free };
    let bytes = args.measure_size.unwrap_or(most).min(most);
    let least = u64::from(args.chunk) * 2;
    if bytes < least || medium.room < least {
        let expected = format!("at least {least} B, two chunks");
        let what = if medium.room < least { "the room of the medium" } else { "--measure-size" };
        return Err(Error::Range { what, value: bytes.min(medium.room), expected });
    }
    let is_direct = measurement.is_direct();
    let flush = Config::new([0; 16], Vec::new()).flush;
    let extent = Extent { chunk: args.chunk, time: args.measure, bytes, flush };
    let measured = measure(measurement, extent, length, end).map_err(failed)?;
    if end.is_asked_for() {
        return Err(Error::Interrupted);
    }
    let chunk = u64::from(args.chunk);
    let writes: Vec<_> = measured.chunks.iter().map(|done| Written { at: done.at, bytes: chunk }).collect();
    let fit = fit::fit(&writes).ok_or_else(|| Error::TooLittleMeasured {
        path: args.device.clone(),
        chunks: writes.len(),
        time: args.measure.into(),
    })?;
    let steps = match &args.model {
        None => fit.steps.clone(),
        Some(model) => fit::continued(&fit, &model.steps()),
    };
    let behaviour = Behaviour {
        steps: steps.iter().map(|step| (step.after, step.rate)).collect(),
        pause_every: fit.pause_every,
        pause_ns: fit.pause.get(),
    };
    let room = medium.room;
    let wish = Wish { rate, time, chunk: args.chunk, buffer, room };
    let forecast = behaviour.forecast(&wish);
    Ok(Preflight { medium: medium.id, is_direct, measured, fit, behaviour, wish, forecast })
}

/// The medium of the measurement.
enum Medium {
    /// A namespace of another device.
    Far(Box<Far>),
    /// A block device.
    Device,
    /// A new file in this directory.
    NewFile(PathBuf),
}

/// An error of the system's, put into words.
fn failed(args: &PreflightArgs, error: io::Error) -> Error {
    let path = args.device.clone();
    match error.kind() {
        io::ErrorKind::WouldBlock => Error::Recording { path, why: "a recorder writes to it".to_owned() },
        _ => Error::File { path, error },
    }
}

/// Finds the medium. Refuses to overwrite data without permission.
fn find(args: &PreflightArgs) -> Result<(Medium, Storage), Error> {
    let refused = || Error::Overwritten { path: args.device.clone() };
    if let Some(far) = far(&args.device)? {
        let (id, room) = (args.device.display().to_string(), far.bytes());
        let storage = Storage { id, directory: None, room };
        return if args.overwrite { Ok((Medium::Far(far), storage)) } else { Err(refused()) };
    }
    let storage = Storage::of(&args.device).map_err(|error| failed(args, error))?;
    match storage.directory.clone() {
        Some(directory) => Ok((Medium::NewFile(directory), storage)),
        None if args.overwrite => Ok((Medium::Device, storage)),
        None => Err(refused()),
    }
}

fn open(args: &PreflightArgs, medium: Medium) -> io::Result<Measurement> {
    match medium {
        Medium::Far(far) => Measurement::open(Target::Far(far)),
        Medium::Device => Measurement::open(Target::Path(&args.device)),
        Medium::NewFile(directory) => {
            let (_file, path) = beside(&directory)?;
            Measurement::open(Target::Path(&path))
        }
    }
}

/// Makes a file without a name in `directory`, which is gone with this process however that ends.
/// Returns it, and a path that leads to it as long as it is open.
fn beside(directory: &Path) -> io::Result<(File, PathBuf)> {
    let file = tempfile::tempfile_in(directory)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
    Ok((file, path))
}

fn measure(measurement: Measurement, extent: Extent, length: Option<u64>, end: &End) -> io::Result<Measured> {
    let bar = ProgressBar::new(u64::try_from(extent.time.as_millis()).unwrap_or(u64::MAX));
    let style = ProgressStyle::with_template("measuring {wide_bar} {msg}");
    bar.set_style(style.expect("the template is valid"));
    let measured = measurement.run(extent, length, end, |bytes, time| {
        let by_bytes = u128::from(bytes) * extent.time.as_millis() / u128::from(extent.bytes.max(1));
        let by_time = u128::from(time.get() / 1_000_000);
        bar.set_position(u64::try_from(by_time.max(by_bytes)).unwrap_or(u64::MAX));
        bar.set_message(format!("{}, {}", report::size(bytes), report::rate(answer_rate(bytes, time))));
    });
    bar.finish_and_clear();
    measured
}

/// Bytes a second.
fn answer_rate(bytes: u64, time: Nanos) -> u64 {
    u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(time.get().max(1))).unwrap_or(u64::MAX)
}

/// Warns of the problems of a recording of `rate` bytes a second to `path`, by the last measurement
/// of its medium or else by the free room; it is silent if all is well, or if neither is known.
/// `time` is how long it may last, if that is known, and `buffer` the bytes that the recorder's
/// buffer holds.
pub(crate) fn warning(
    path: &Path,
    rate: u64,
    time: Option<Nanos>,
    chunk: u32,
    buffer: u64,
) -> Option<String> {
    let url = path.to_string_lossy();
    let medium = match FarSpec::is_url(&url) {
        // How much room a far device has is known when it is reached.
        true => Storage { id: url.into_owned(), directory: None, room: u64::MAX },
        false => Storage::of(path).ok()?,
    };
    let all = answer::time_of(medium.room, rate);
    let wish = Wish { rate, time: time.unwrap_or(all), chunk, buffer, room: medium.room };
    let kept = Kept::load(&medium.id);
    report::warning(path, &wish, time.is_some(), kept.as_ref())
}
