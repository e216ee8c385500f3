//! `farlane record`, `verify`, `recover`, `info` and `replay`.

mod control;
mod ctl;
pub(crate) mod export;
mod metrics;
mod part;
pub(crate) mod replay;
mod ring;
mod sources;
mod view;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use engine::Nanos;
use live::carrier::identity::Identity;
use live::drivers::record::{
    Far, Handle, Limits, Part, Place, ReadError, Recorded, Recording, Refused, Signer, Source, Target,
    record, stop_on_signals,
};
use live::sys::clock::Clock;
use record::format::Gap;
use record::registers::Direction;
use record::{BUFFER_MAX, BUFFER_MIN, Config, Digests};
use serde_json::{Value, json};

use super::preflight::{self, answer::time_of};
use super::served::{FAR_PATIENCE, open_far};
use super::{print, print_json};
use crate::args::{DigestArg, FarSpec, RecordAction, RecordArgs, RecordingArgs, VerifyArgs};
use crate::error::Error;
use view::View;

/// The most gaps and bad slots that text shows one by one.
const SHOWN_MAX: usize = 20;

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether both paths lead to one file or device.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

/// Refuses to write over the recording that is read.
fn check_output(recording: &[PathBuf], to: &Path) -> Result<(), Error> {
    match recording.iter().any(|part| is_same_file(part, to)) {
        true => Err(Error::OverItself { path: to.to_owned() }),
        false => Ok(()),
    }
}

pub(super) fn unreadable(path: &Path, error: ReadError) -> Error {
    match error {
        ReadError::Io(error) => Error::File { path: path.to_owned(), error },
        ReadError::NoRecording | ReadError::InUse | ReadError::Members(_) => {
            Error::Recording { path: path.to_owned(), why: error.to_string() }
        }
    }
}

fn gap_json(gap: &Gap) -> Value {
    json!({ "stream": gap.stream, "from": gap.from, "bytes": gap.bytes, "when": gap.when,
        "packets": gap.packets, "where": gap.place.word(), "why": gap.cause.word() })
}

fn gaps_json(gaps: &[Gap]) -> Vec<Value> {
    gaps.iter().map(gap_json).collect()
}

fn gaps_text(gaps: &[Gap]) -> String {
    let mut text = String::new();
    for gap in gaps.iter().take(SHOWN_MAX) {
        let (place, cause) = (gap.place.word(), gap.cause.word());
        let lost = match (gap.bytes, gap.packets) {
            (0, 0) => "an unknown number of packets".to_owned(),
            (bytes, 0) => format!("{bytes} B"),
            (0, packets) => format!("{packets} packets"),
            (bytes, packets) => format!("{bytes} B, {packets} packets,"),
        };
        text += &format!("  gap: stream {}, {lost} from {}: {place}, {cause}\n", gap.stream, gap.from);
    }
    if gaps.len() > SHOWN_MAX {
        text += &format!("  and {} more gaps\n", gaps.len() - SHOWN_MAX);
    }
    text
}

/// The device that `path` names by its URL; none for a file or block device.
pub(super) fn far(path: &Path) -> Result<Option<Box<Far>>, Error> {
    let text = path.to_string_lossy();
    if !text.contains("://") && !text.starts_with("vfio-user:") {
        return Ok(None);
    }
    let wrong = |why| Error::Recording { path: path.to_owned(), why };
    let (spec, clock) = (FarSpec::of_any(&text).map_err(wrong)?, Clock::start());
    Ok(Some(Box::new(Far::new(clock, open_far(clock, &spec, FAR_PATIENCE)?))))
}

/// The same for where a recording is to go.
fn far_target(to: &Path) -> Result<Option<Box<Far>>, Error> {
    far(to).map_err(|error| match error {
        Error::Recording { path, why } => Error::RecordUrl { path, why },
        other => other,
    })
}

/// The media of a recording, wherever they are. If `change`, it can be mended.
fn parts(paths: &[PathBuf], change: bool) -> Result<Vec<Part>, Error> {
    let open = |path: &PathBuf| {
        let part = match far(path)? {
            Some(far) => Part::far(far),
            None => Part::open(path, change),
        };
        part.map_err(|error| unreadable(path, error))
    };
    paths.iter().map(open).collect()
}

/// Reads a whole recording. If `change`, it can be mended.
fn read_recording(paths: &[PathBuf], change: bool) -> Result<Recording, Error> {
    Recording::read_parts(parts(paths, change)?).map_err(|error| unreadable(first(paths), error))
}

/// Opens a recording without reading its payloads.
fn open_recording(paths: &[PathBuf]) -> Result<Recording, Error> {
    Recording::open_parts(parts(paths, false)?).map_err(|error| unreadable(first(paths), error))
}

/// The path that stands for a recording in what is said of it: the first of its media.
fn first(paths: &[PathBuf]) -> &Path {
    paths.first().map_or(Path::new(""), PathBuf::as_path)
}

/// The number of chunks in the buffer.
fn chunks(args: &RecordArgs) -> usize {
    let needed = args.rate.zip(args.pause).map(|(rate, pause)| {
        u64::try_from(u128::from(rate) * pause.as_nanos() / 1_000_000_000).unwrap_or(u64::MAX)
    });
    let Some(bytes) = args.buffer.or(needed) else { return 256 };
    let chunks = usize::try_from(bytes.div_ceil(u64::from(args.chunk))).unwrap_or(usize::MAX);
    chunks.clamp(BUFFER_MIN, BUFFER_MAX)
}

/// Checks the size that somebody asked for.
fn check_buffer(args: &RecordArgs) -> Result<(), Error> {
    let chunk = u64::from(args.chunk);
    let sizes = BUFFER_MIN as u64 * chunk..=BUFFER_MAX as u64 * chunk;
    match args.buffer.filter(|bytes| !sizes.contains(bytes)) {
        Some(value) => {
            let expected = format!(
                "{} to {} bytes, {BUFFER_MIN} to {BUFFER_MAX} chunks of {chunk}",
                sizes.start(),
                sizes.end()
            );
            Err(Error::Range { what: "--buffer", value, expected })
        }
        None => Ok(()),
    }
}

pub(crate) fn command(args: &RecordArgs) -> Result<(), Error> {
    match (&args.action, args.to.as_slice()) {
        (Some(RecordAction::Ctl(args)), _) => ctl::run(args),
        (None, to) => run(args, to),
    }
}

fn run(args: &RecordArgs, to: &[PathBuf]) -> Result<(), Error> {
    if args.from.len() > record::format::STREAMS_MAX {
        let expected = format!("1 to {}", record::format::STREAMS_MAX);
        return Err(Error::Range { what: "the number of --from", value: args.from.len() as u64, expected });
    }
    let handle = Handle::new(Direction::Write, stop_on_signals().map_err(Error::Output)?);
    check_buffer(args)?;
    sources::check(args, to)?;
    if let Some(address) = args.watch.metrics {
        let bound = metrics::serve(address, handle.clone());
        let bound = bound.map_err(|error| Error::Metrics { address, error })?;
        note!("farlane: figures at http://{bound}/metrics");
    }
    control::serve(&args.control, &handle, args.output.json, || session(args, to, &handle))
}

fn session(args: &RecordArgs, to: &[PathBuf], handle: &Handle) -> Result<(), Error> {
    let open = |url| sources::open(url, args);
    let sources = args.from.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let mut id = [0; 16];
    live::sys::entropy::system().fill(&mut id);
    let config = Config::new(id, args.from.iter().map(sources::name).collect());
    let contents = sources.iter().map(Source::content).collect();
    let digests = if args.proof.digest == DigestArg::None { Digests::None } else { Digests::World };
    let config = Config { contents, chunk: args.chunk, buffer: chunks(args), digests, ..config };
    let config = ring::configure(args, config)?;
    let buffer = config.buffer as u64 * u64::from(args.chunk);
    warn(args, to, buffer);
    let limits = Limits { time: args.time, bytes: args.size };
    let signing = args.proof.sign.as_deref().map(Identity::read).transpose()?;
    let recorded = recorded(args, to, config, sources, limits, handle)?;
    if let Some(identity) = signing.filter(|_| recorded.is_certified) {
        let signed = Recording::sign(parts(to, true)?, &identity);
        signed.map_err(|error| unreadable(first(to), error))?;
    }
    finish(args, first(to), &recorded)
}

/// Tells what is to be expected of the medium, if the rate is known and something is.
fn warn(args: &RecordArgs, to: &[PathBuf], buffer: u64) {
    let Some(rate) = args.rate else { return };
    let by_size = args.size.map(|bytes| time_of(bytes, rate));
    let time = args.time.map(Nanos::from).into_iter().chain(by_size).min();
    let share = |whole: u64| whole.div_ceil(to.len() as u64);
    for path in to {
        if let Some(warning) = preflight::warning(path, share(rate), time, args.chunk, share(buffer)) {
            note!("farlane: {warning}");
        }
    }
}

fn recorded(
    args: &RecordArgs,
    to: &[PathBuf],
    config: Config,
    sources: Vec<Source>,
    limits: Limits,
    handle: &Handle,
) -> Result<Recorded, Error> {
    let mut view = View::new(args.output.json);
    let target = |path| Ok(far_target(path)?.map_or(Target::Path(path), Target::Far));
    let targets = to.iter().map(|path| target(path)).collect::<Result<_, Error>>()?;
    let place = Place { targets, overwrite: args.force };
    let recorded = record(place, config, sources, limits, handle, |status| view.tell(status));
    view.end();
    recorded.map_err(|Refused { member, error }| {
        let path = to.get(member).cloned().unwrap_or_default();
        match error.kind() {
            std::io::ErrorKind::AlreadyExists => Error::Occupied { path },
            std::io::ErrorKind::InvalidInput => Error::Ring { path, why: error.to_string() },
            std::io::ErrorKind::WouldBlock => Error::Recorded { path },
            _ => Error::File { path, error },
        }
    })
}

fn finish(args: &RecordArgs, to: &Path, recorded: &Recorded) -> Result<(), Error> {
    let certificate = &recorded.certificate;
    let (came, stored, lost) = (certificate.bytes_in(), certificate.bytes_stored(), certificate.bytes_lost());
    let digest = |sha256| certificate.has_digests.then(|| hex(sha256));
    let sha256 = digest(&certificate.sha256);
    let overwritten = certificate.bytes_overwritten();
    live::sys::telling::flush();
    if args.output.json {
        let streams: Vec<_> = certificate
            .streams
            .iter()
            .zip(&recorded.heard)
            .map(|(stream, heard)| {
                let mut account = json!({ "bytes_in": stream.bytes_in, "bytes_stored": stream.stored,
                    "bytes_lost": stream.lost, "bytes_overwritten": stream.overwritten,
                    "sha256": digest(&stream.sha256) });
                sources::add_heard(&mut account, heard.as_ref());
                account
            })
            .collect();
        print_json(&json!({ "event": "end", "reason": certificate.reason.words(), "bytes_in": came,
            "bytes_stored": stored, "bytes_lost": lost, "bytes_overwritten": overwritten, "gaps": gaps_json(&recorded.gaps),
            "high_water_bytes": certificate.high_water, "sha256": sha256, "streams": streams,
            "certified": recorded.is_certified }))?;
    } else {
        let reason = certificate.reason.words();
        let more = if overwritten > 0 { format!(" + {overwritten} B overwritten") } else { String::new() };
        let mut text =
            format!("{came} B in = {stored} B stored + {lost} B in declared gaps{more} ({reason})\n");
        text += &gaps_text(&recorded.gaps);
        text += &sources::heard_text(&recorded.heard);
        let sha256 = sha256.unwrap_or_else(|| "not computed (--digest none)".to_owned());
        text += &format!("  high water {} B, SHA-256 {sha256}\n", certificate.high_water);
        print(&text)?;
    }
    match recorded.is_certified {
        true => Ok(()),
        false => Err(Error::NotProved { path: to.to_owned() }),
    }
}

fn read(args: &RecordingArgs, change: bool) -> Result<Recording, Error> {
    read_recording(&args.paths, change)
}

fn bad_json(recording: &Recording) -> Vec<Value> {
    let bad = recording.survey.bad.iter();
    bad.map(|bad| json!({ "slot": bad.slot, "why": bad.why.to_string() })).collect()
}

fn account(recording: &Recording) -> String {
    let survey = &recording.survey;
    let mut text = ring::held_text(survey) + &gaps_text(&survey.gaps);
    for hole in survey.holes.iter().take(SHOWN_MAX) {
        text += &format!("  missing: stream {}, {} B from {}\n", hole.stream, hole.bytes, hole.from);
    }
    for bad in survey.bad.iter().take(SHOWN_MAX) {
        text += &format!("  bad: slot {}: {}\n", bad.slot, bad.why);
    }
    text + &format!("  SHA-256 {}\n", hex(&recording.sha256()))
}

pub(crate) fn verify(args: &VerifyArgs) -> Result<(), Error> {
    let (asked, args) = (args.signed_by, &args.recording);
    let recording = read(args, false)?;
    let (survey, signer) = (&recording.survey, recording.signer());
    let is_signed = asked.is_none_or(|asked| signer == Signer::Known(asked));
    let is_proved = recording.is_proved() && is_signed;
    let known = match signer {
        Signer::Known(key) => Some(key.to_string()),
        Signer::Nobody | Signer::Wrong => None,
    };
    if args.output.json {
        let missing: Vec<_> = survey
            .holes
            .iter()
            .map(|hole| json!({ "stream": hole.stream, "from": hole.from, "bytes": hole.bytes }))
            .collect();
        print_json(&json!({ "ok": is_proved, "bytes": survey.bytes(), "gaps": gaps_json(&survey.gaps),
            "bad_chunks": bad_json(&recording), "missing": missing, "sha256": hex(&recording.sha256()),
            "held": ring::held_json(survey), "bytes_overwritten": ring::overwritten(survey),
            "certificate": survey.certificate.is_some(), "being_written": recording.in_use,
            "signed_by": known, "wrong_signature": signer == Signer::Wrong }))?;
    } else {
        let word = if is_proved { "proved" } else { "NOT proved" };
        let head = format!("{word}: {} B in {} chunks\n", survey.bytes(), survey.entries.len());
        let signed = match (signer, known) {
            (Signer::Wrong, _) => "  the signature is WRONG: the certificate was changed\n".to_owned(),
            (_, Some(key)) => format!("  signed by {key}\n"),
            _ => String::new(),
        };
        print(&(head + &account(&recording) + &signed))?;
    }
    if let Some(asked) = asked.filter(|_| !is_signed) {
        return Err(Error::NotSigned { path: first(&args.paths).to_owned(), asked });
    }
    if is_proved { Ok(()) } else { Err(Error::NotProved { path: first(&args.paths).to_owned() }) }
}

pub(crate) fn recover(args: &RecordingArgs) -> Result<(), Error> {
    let mut recording = read(args, true)?;
    let was_whole = recording.is_proved();
    let new = match was_whole {
        true => Vec::new(),
        false => recording.mend().map_err(|error| unreadable(first(&args.paths), error))?,
    };
    let survey = &recording.survey;
    if args.output.json {
        return print_json(&json!({ "recovered": !was_whole, "bytes": survey.bytes(),
            "chunks": survey.entries.len(), "new_gaps": gaps_json(&new), "gaps": gaps_json(&survey.gaps),
            "bad_chunks": bad_json(&recording), "sha256": hex(&recording.sha256()) }));
    }
    let word = if was_whole { "nothing to do" } else { "recovered" };
    let head = format!("{word}: {} B in {} chunks\n", survey.bytes(), survey.entries.len());
    print(&(head + &account(&recording)))
}

pub(crate) fn info(args: &RecordingArgs) -> Result<(), Error> {
    let recording = open_recording(&args.paths)?;
    let survey = &recording.survey;
    let names = survey.superblock.as_ref().map(|superblock| superblock.streams.clone()).unwrap_or_default();
    let id = hex(&survey.recording.unwrap_or_default());
    let ended = survey.certificate.as_ref().map(|certificate| certificate.reason.words());
    if args.output.json {
        return print_json(&json!({ "recording": id, "streams": names, "chunk_bytes": survey.chunk,
            "chunks": survey.entries.len(), "bytes": survey.bytes(), "gaps": survey.gaps.len(),
            "first_time": survey.times.0, "last_time": survey.times.1, "ended": ended,
            "being_written": recording.in_use }));
    }
    let state = ended.unwrap_or(if recording.in_use { "being written" } else { "cut off" });
    let time = Nanos::new(survey.times.1.saturating_sub(survey.times.0));
    let mut text = format!("recording {id}: {state}\n");
    text += &format!(
        "  {} B in {} chunks of {} B, over {time}, {} gaps\n",
        survey.bytes(),
        survey.entries.len(),
        survey.chunk,
        survey.gaps.len()
    );
    for (number, name) in names.iter().enumerate() {
        text += &format!("  stream {number}: {name}\n");
    }
    print(&text)
}
