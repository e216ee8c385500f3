//! `farlane recording verify`, `recover` and `info`: the content of a recording.

use engine::Nanos;
use live::drivers::record::{Recording, Signer};
use record::Hole;
use schemars::JsonSchema;
use serde::Serialize;

use super::account::Digest;
use super::gaps::{Gaps, Loss, SHOWN_MAX, gaps_text, losses, restarts};
use super::ring::Range;
use super::rules::{self, Rule, rules_text};
use super::trigger::date;
use super::{digest_text, first, hex, open_recording, print, print_json, read_recording, ring, unreadable};
use crate::args::{RecordingArgs, VerifyArgs};
use crate::error::Error;

fn read(args: &RecordingArgs, change: bool) -> Result<Recording, Error> {
    read_recording(&args.paths, change)
}

/// Whether a recording's certificate is true.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Proof {
    ok: bool,
    bytes: u64,
    #[serde(flatten)]
    gaps: Gaps,
    /// The rule of each stream; none if the recording does not name it.
    sequence_rules: Vec<Option<Rule>>,
    bad_chunks: Vec<BadChunk>,
    /// Bytes that are neither on the medium nor declared as lost.
    missing: Vec<Range>,
    /// The ranges that a ring holds; none if the recording is no ring.
    held: Option<Vec<Range>>,
    /// Bytes that a ring does not hold any more.
    bytes_overwritten: u64,
    /// Whether there is a certificate.
    certificate: bool,
    being_written: bool,
    /// The key that signed the certificate.
    signed_by: Option<String>,
    /// Whether the certificate was changed after it was signed.
    wrong_signature: bool,
    #[serde(flatten)]
    digest: Digest,
}

/// The data found in a damaged recording.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Recovered {
    /// Whether there was anything to do.
    recovered: bool,
    bytes: u64,
    chunks: usize,
    /// The gaps that the recovery declared.
    new_gaps: Vec<Loss>,
    #[serde(flatten)]
    gaps: Gaps,
    /// The rule of each stream; none if the recording does not name it.
    sequence_rules: Vec<Option<Rule>>,
    bad_chunks: Vec<BadChunk>,
    #[serde(flatten)]
    digest: Digest,
}

/// The description of a recording.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Info<'a> {
    /// The recording's identifier.
    recording: String,
    /// The name of each stream.
    streams: &'a [String],
    chunk_bytes: u32,
    chunks: usize,
    bytes: u64,
    gaps: usize,
    restarts: usize,
    /// The rule of each stream; none if the recording does not name it.
    sequence_rules: Vec<Option<Rule>>,
    /// In nanoseconds since 1970.
    first_time: u64,
    /// In nanoseconds since 1970.
    last_time: u64,
    /// Why the recording ended; none if it has not, or was cut off.
    ended: Option<&'static str>,
    triggered: Option<Triggered>,
    being_written: bool,
}

/// The trigger of a recording.
#[derive(Serialize, JsonSchema)]
struct Triggered {
    /// In nanoseconds since 1970.
    when: u64,
    /// The time of the trigger after the first byte.
    before_ns: u64,
}

/// A slot whose chunk can't be used.
#[derive(Serialize, JsonSchema)]
struct BadChunk {
    slot: u64,
    why: String,
}

fn bad_chunks(recording: &Recording) -> Vec<BadChunk> {
    let bad = recording.survey.bad.iter();
    bad.map(|bad| BadChunk { slot: bad.slot, why: bad.why.to_string() }).collect()
}

fn account(recording: &Recording) -> String {
    let survey = &recording.survey;
    let mut text = ring::held_text(survey) + &rules_text(survey) + &gaps_text(&survey.gaps);
    for hole in survey.holes.iter().take(SHOWN_MAX) {
        text += &format!("  missing: stream {}, {} B from {}\n", hole.stream, hole.bytes, hole.from);
    }
    for bad in survey.bad.iter().take(SHOWN_MAX) {
        text += &format!("  bad: slot {}: {}\n", bad.slot, bad.why);
    }
    text + &format!("  {}\n", digest_text(survey.algorithm(), &recording.digest_of_all()))
}

impl Proof {
    fn of(recording: &Recording, is_proved: bool) -> Self {
        let (survey, signer) = (&recording.survey, recording.signer());
        let range = |hole: &Hole| Range { stream: hole.stream, from: hole.from, bytes: hole.bytes };
        Self {
            ok: is_proved,
            bytes: survey.bytes(),
            gaps: Gaps::of(&survey.gaps, None),
            sequence_rules: rules::all(survey),
            bad_chunks: bad_chunks(recording),
            missing: survey.holes.iter().map(range).collect(),
            held: ring::ranges(survey),
            bytes_overwritten: ring::overwritten(survey),
            certificate: survey.certificate.is_some(),
            being_written: recording.in_use,
            signed_by: match signer {
                Signer::Known(key) => Some(key.to_string()),
                Signer::Nobody | Signer::Wrong => None,
            },
            wrong_signature: signer == Signer::Wrong,
            digest: Digest::of(survey.algorithm(), &recording.digest_of_all()),
        }
    }
}

pub(crate) fn verify(args: &VerifyArgs) -> Result<(), Error> {
    let (asked, args) = (args.signed_by, &args.recording);
    // The exit status is the answer, even if the reader of the output leaves.
    live::sys::logging::outlive_reader();
    let recording = read(args, false)?;
    let (survey, signer) = (&recording.survey, recording.signer());
    let is_signed = asked.is_none_or(|asked| signer == Signer::Known(asked));
    let is_proved = recording.is_proved() && is_signed;
    if args.output.json {
        print_json(&Proof::of(&recording, is_proved))?;
    } else {
        let word = if is_proved { "proved" } else { "NOT proved" };
        let head = format!("{word}: {} B in {} chunks\n", survey.bytes(), survey.entries.len());
        let signed = match signer {
            Signer::Wrong => "  the signature is WRONG: the certificate was changed\n".to_owned(),
            Signer::Known(key) => format!("  signed by {key}\n"),
            Signer::Nobody => String::new(),
        };
        print(&(head + &account(&recording) + &signed))?;
    }
    if let Some(asked) = asked.filter(|_| !is_signed) {
        return Err(Error::NotSigned { path: first(&args.paths).to_owned(), asked });
    }
    if is_proved {
        return Ok(());
    }
    let doubt = recording.doubt().map(|doubt| doubt.to_string());
    let why = doubt.unwrap_or_else(|| "its certificate was changed after it was signed".to_owned());
    Err(Error::NotProved { path: first(&args.paths).to_owned(), why })
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
        return print_json(&Recovered {
            recovered: !was_whole,
            bytes: survey.bytes(),
            chunks: survey.entries.len(),
            new_gaps: Loss::all(&new),
            gaps: Gaps::of(&survey.gaps, None),
            sequence_rules: rules::all(survey),
            bad_chunks: bad_chunks(&recording),
            digest: Digest::of(survey.algorithm(), &recording.digest_of_all()),
        });
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
    let (gaps, restarts) = (losses(&survey.gaps).count(), restarts(&survey.gaps).count());
    if args.output.json {
        return print_json(&Info {
            recording: id,
            streams: &names,
            chunk_bytes: survey.chunk,
            chunks: survey.entries.len(),
            bytes: survey.bytes(),
            gaps,
            restarts,
            sequence_rules: rules::all(survey),
            first_time: survey.times.0,
            last_time: survey.times.1,
            ended,
            triggered: survey
                .trigger
                .map(|trigger| Triggered { when: trigger.time, before_ns: trigger.before }),
            being_written: recording.in_use,
        });
    }
    let state = ended.unwrap_or(if recording.in_use { "being written" } else { "cut off" });
    let time = Nanos::new(survey.times.1.saturating_sub(survey.times.0));
    let mut text = format!("recording {id}: {state}\n");
    text += &format!(
        "  {} B in {} chunks of {} B, over {time}, {gaps} gaps, {restarts} restarts\n",
        survey.bytes(),
        survey.entries.len(),
        survey.chunk
    );
    if let Some(trigger) = survey.trigger {
        let (when, before) = (date(trigger.time), Nanos::new(trigger.before));
        text += &format!("  triggered at {when}, {before} after its first byte\n");
    }
    for (number, name) in names.iter().enumerate() {
        text += &format!("  stream {number}: {name}\n");
    }
    print(&(text + &rules_text(survey)))
}
