//! `farlane record`: a recorder, from its options to its certificate.

use std::path::{Path, PathBuf};
use std::thread;

use daemon::Settings;
use engine::Nanos;
use live::carrier::identity::Identity;
use live::drivers::record::{
    Far, Handle, Limits, Place, Recorded, Recording, Source, Status, Target, heed_file_limit, record,
};
use live::sys::sandbox::Needs;
use record::format::{MEMBERS_MAX, STREAMS_MAX};
use record::registers::Direction;
use record::{BUFFER_DEFAULT, BUFFER_MIN, Config, Digests};

use super::account::End;
use super::gaps::gaps_text;
use super::rules::rule_text;
use super::sessions::Sessions;
use super::view::View;
use super::{
    ctl, digest_text, each, far, first, need_medium, not_certified, parts, print, print_json, raw, ring,
    sessions, sources, trigger, unreadable,
};
use crate::args::{RecordAction, RecordArgs, SourceUrl};
use crate::commands::medium::{buffer_chunks, refused};
use crate::commands::preflight::{self, answer::time_of};
use crate::commands::{OPENED_BY_LISTENER, OPENED_BY_NAMESPACE};
use crate::error::Error;

pub(crate) fn command(args: &RecordArgs) -> Result<(), Error> {
    match (&args.action, args.to.as_slice()) {
        (Some(RecordAction::Ctl(args)), _) => ctl::run(args),
        (None, to) => run(args, to),
    }
}

/// The device that `to` names by its URL, where a recording is to go; none for a file or
/// block device.
fn far_target(to: &Path) -> Result<Option<Box<Far>>, Error> {
    far(to).map_err(|error| match error {
        Error::Recording { path, why } => Error::RecordUrl { path, why },
        other => other,
    })
}

/// The number of chunks in the buffer.
pub(super) fn chunks(args: &RecordArgs) -> Result<usize, Error> {
    let chunk = u64::from(args.chunk);
    let paused = args.rate.zip(args.pause).map(|(rate, pause)| {
        u64::try_from(u128::from(rate) * pause.as_nanos() / 1_000_000_000).unwrap_or(u64::MAX)
    });
    let kept = args.rate.and(args.pre_trigger).map(|_| trigger::chunks(args).saturating_mul(chunk));
    let what = match kept {
        Some(_) => "the buffer that --rate, --pause and --pre-trigger need",
        None => "the buffer that --rate and --pause need",
    };
    let needed = paused.into_iter().chain(kept).reduce(u64::saturating_add);
    match (args.buffer, needed) {
        (Some(bytes), _) => buffer_chunks("--buffer", bytes, args.chunk),
        (None, Some(bytes)) => buffer_chunks(what, bytes.max(BUFFER_MIN as u64 * chunk), args.chunk),
        (None, None) => Ok(BUFFER_DEFAULT),
    }
}

fn run(args: &RecordArgs, to: &[PathBuf]) -> Result<(), Error> {
    if args.from.len() > STREAMS_MAX {
        let expected = format!("1 to {STREAMS_MAX}");
        return Err(Error::Range { what: "the number of --from", value: args.from.len() as u64, expected });
    }
    if to.len() > MEMBERS_MAX as usize {
        let expected = format!("1 to {MEMBERS_MAX}");
        return Err(Error::Range { what: "the number of --to", value: to.len() as u64, expected });
    }
    if args.each && args.from.len() != to.len() {
        return Err(Error::Each { from: args.from.len(), to: to.len() });
    }
    heed_file_limit().map_err(Error::System)?;
    let (handle, end) = sessions::handle(Direction::Write)?;
    // The reader of the log may leave. The recording matters more than its messages.
    live::sys::logging::outlive_reader();
    if args.pre_trigger.is_some() {
        handle.trigger_on_signal().map_err(Error::Output)?;
        handle.update(|status| status.pre_trigger = trigger::keep(args));
    }
    if args.raw.raw {
        raw::check(args, &handle)?;
    }
    let buffer = chunks(args)?;
    trigger::warn(args, buffer);
    live::sys::huge_pages::prepare(buffer, args.chunk as usize);
    sources::check(args, to)?;
    let own = handle.clone();
    let session = move || match (args.each, args.raw.raw) {
        (true, _) => each::session(args, &own),
        (false, true) => raw::session(args, &own),
        (false, false) => session(args, to, &own),
    };
    thread::scope(|scope| {
        daemon::run(Sessions::<_, false> {
            settings: settings(args, to),
            needs: needs(args, to),
            control: &args.control,
            json: args.output.json,
            handle,
            end,
            session: Some(session),
            scope,
            registers: None,
        })
    })
}

/// The options that every daemon has.
fn settings(args: &RecordArgs, to: &[PathBuf]) -> Settings {
    let loops = if args.each { to.len() } else { 1 };
    Settings {
        cpu: None,
        spin: Nanos::ZERO,
        descriptors: (args.from.len() + OPENED_BY_NAMESPACE * to.len() + OPENED_BY_LISTENER * loops) as u64,
        confinement: args.sandbox.confinement(),
        control: args.control.control.clone(),
        metrics: args.watch.metrics,
    }
}

/// The resources that a recorder goes on using.
fn needs(args: &RecordArgs, to: &[PathBuf]) -> Needs {
    let mut needs = Needs::default();
    to.iter().for_each(|path| need_medium(&mut needs, path));
    preflight::need(&mut needs);
    args.proof.sign.iter().for_each(|path| needs.read_beside(path));
    for source in &args.from {
        match source {
            SourceUrl::File(path) => needs.files.push(path.clone()),
            SourceUrl::Connect(_) => needs.dials = true,
            SourceUrl::Packets(_) => {
                needs.sends_frames = true;
                needs.administers_network = true;
            }
            // Larger buffers than the system's limit.
            SourceUrl::Udp(_) => needs.administers_network = true,
            SourceUrl::Listen(_) | SourceUrl::StandardInput | SourceUrl::Generate(_) => {}
        }
    }
    needs
}

fn session(args: &RecordArgs, to: &[PathBuf], handle: &Handle) -> Result<(), Error> {
    let mut view = View::new(args.output.json);
    let made = one(args, to, handle, |status| view.show(status));
    view.end();
    let Made { recorded, signed } = made?;
    finish(args, first(to), &recorded)?;
    signed
}

/// A recording that was made.
pub(super) struct Made {
    pub(super) recorded: Recorded,
    /// Whether its certificate has the signature that it was to have.
    pub(super) signed: Result<(), Error>,
}

/// Makes one recording.
pub(super) fn one(
    args: &RecordArgs,
    to: &[PathBuf],
    handle: &Handle,
    report: impl FnMut(&Status),
) -> Result<Made, Error> {
    let open = |url| sources::open(url, args);
    let sources = args.from.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let mut id = [0; 16];
    live::sys::entropy::system().fill(&mut id);
    let config = Config::new(id, args.from.iter().map(sources::name).collect());
    let contents = sources.iter().map(Source::content).collect();
    let rules = sources.iter().map(Source::rule).collect();
    let (algorithm, digests) = (args.proof.digest.into(), Digests::World);
    let pre_trigger = trigger::keep(args);
    let config = Config {
        contents,
        rules,
        pre_trigger,
        chunk: args.chunk,
        buffer: chunks(args)?,
        algorithm,
        digests,
        ..config
    };
    let config = ring::configure(args, config)?;
    let buffer = config.buffer as u64 * u64::from(args.chunk);
    warn(args, to, buffer);
    let limits = Limits { time: args.time, bytes: args.size };
    let signing = args.proof.sign.as_deref().map(Identity::read_to_sign).transpose()?;
    let place = place(args, to)?;
    let recorded = record(place, config, sources, limits, handle, report).map_err(|why| refused(to, why))?;
    let signing = signing.filter(|_| recorded.is_certified);
    let signed = signing.map_or(Ok(()), |identity| sign(to, &identity));
    Ok(Made { recorded, signed })
}

/// Signs the certificate of the recording on these media.
fn sign(to: &[PathBuf], identity: &Identity) -> Result<(), Error> {
    let signed = Recording::sign(parts(to, true)?, identity);
    signed.map_err(|error| unreadable(first(to), error))
}

/// Warns of expected problems of the medium, if the rate is known and there are any.
fn warn(args: &RecordArgs, to: &[PathBuf], buffer: u64) {
    let Some(rate) = args.rate else { return };
    let by_size = args.size.map(|bytes| time_of(bytes, rate));
    let time = args.time.map(Nanos::from).into_iter().chain(by_size).min();
    let share = |whole: u64| whole.div_ceil(to.len() as u64);
    for path in to {
        if let Some(warning) = preflight::warning(path, share(rate), time, args.chunk, share(buffer)) {
            warn!(each = true, "{warning}");
        }
    }
}

/// The medium that `path` names.
pub(super) fn target(path: &Path) -> Result<Target<'_>, Error> {
    Ok(far_target(path)?.map_or(Target::Path(path), Target::Far))
}

fn place<'a>(args: &RecordArgs, to: &'a [PathBuf]) -> Result<Place<'a>, Error> {
    let targets = to.iter().map(|path| target(path)).collect::<Result<_, Error>>()?;
    Ok(Place { targets, overwrite: args.force })
}

fn finish(args: &RecordArgs, to: &Path, recorded: &Recorded) -> Result<(), Error> {
    live::sys::logging::flush();
    match args.output.json {
        true => print_json(&End::of(recorded))?,
        false => print(&text(args, recorded))?,
    }
    match recorded.is_certified {
        true => Ok(()),
        false => Err(not_certified(to)),
    }
}

/// The account of a recording, for a person.
pub(super) fn text(args: &RecordArgs, recorded: &Recorded) -> String {
    let certificate = &recorded.certificate;
    let (came, stored, lost) = (certificate.bytes_in(), certificate.bytes_stored(), certificate.bytes_lost());
    let (reason, overwritten) = (certificate.reason.words(), certificate.bytes_overwritten());
    let more = if overwritten > 0 { format!(" + {overwritten} B overwritten") } else { String::new() };
    let mut text = format!("{came} B in = {stored} B stored + {lost} B in declared gaps{more} ({reason})\n");
    text += &match recorded.triggered {
        Some(triggered) => format!("  {}\n", trigger::text(triggered)),
        None if args.pre_trigger.is_some() => "  never triggered: no data are recorded\n".to_owned(),
        None => String::new(),
    };
    for (stream, rule) in recorded.rules.iter().enumerate() {
        text += &rule_text(stream, Some(*rule));
    }
    text += &gaps_text(&recorded.gaps);
    text += &sources::heard_text(&recorded.heard);
    for (stream, why) in recorded.broken.iter().enumerate() {
        let broken = |why| format!("  stream {stream} broke off: {why}; the earlier data are recorded\n");
        text += &why.as_ref().map(broken).unwrap_or_default();
    }
    let digest = digest_text(certificate.algorithm, &certificate.digest);
    text + &format!("  high water {} B, {digest}\n", certificate.high_water)
}
