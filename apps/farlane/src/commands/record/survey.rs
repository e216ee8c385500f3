//! `farlane recording verify`, `recover` and `info`: the content of a recording.

use engine::Nanos;
use live::drivers::record::{Recording, Signer};
use serde_json::{Value, json};

use super::gaps::{SHOWN_MAX, gaps_json, gaps_text, losses, restarts, restarts_json};
use super::rules::{rules_json, rules_text};
use super::trigger::date;
use super::{
    add_digest, digest_text, first, hex, open_recording, print, print_json, read_recording, ring, unreadable,
};
use crate::args::{RecordingArgs, VerifyArgs};
use crate::error::Error;

fn read(args: &RecordingArgs, change: bool) -> Result<Recording, Error> {
    read_recording(&args.paths, change)
}

fn bad_json(recording: &Recording) -> Vec<Value> {
    let bad = recording.survey.bad.iter();
    bad.map(|bad| json!({ "slot": bad.slot, "why": bad.why.to_string() })).collect()
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

pub(crate) fn verify(args: &VerifyArgs) -> Result<(), Error> {
    let (asked, args) = (args.signed_by, &args.recording);
    // The exit status is the answer, even if the reader of the output leaves.
    live::sys::logging::outlive_reader();
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
        let mut proof = json!({ "ok": is_proved, "bytes": survey.bytes(), "gaps": gaps_json(&survey.gaps),
            "restarts": restarts_json(&survey.gaps), "sequence_rules": rules_json(survey),
            "bad_chunks": bad_json(&recording), "missing": missing,
            "held": ring::held_json(survey), "bytes_overwritten": ring::overwritten(survey),
            "certificate": survey.certificate.is_some(), "being_written": recording.in_use,
            "signed_by": known, "wrong_signature": signer == Signer::Wrong });
        add_digest(&mut proof, survey.algorithm(), &recording.digest_of_all());
        print_json(&proof)?;
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
        let mut found = json!({ "recovered": !was_whole, "bytes": survey.bytes(),
            "chunks": survey.entries.len(), "new_gaps": gaps_json(&new), "gaps": gaps_json(&survey.gaps),
            "restarts": restarts_json(&survey.gaps), "sequence_rules": rules_json(survey),
            "bad_chunks": bad_json(&recording) });
        add_digest(&mut found, survey.algorithm(), &recording.digest_of_all());
        return print_json(&found);
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
        return print_json(&json!({ "recording": id, "streams": names, "chunk_bytes": survey.chunk,
            "chunks": survey.entries.len(), "bytes": survey.bytes(), "gaps": gaps,
            "restarts": restarts, "sequence_rules": rules_json(survey), "first_time": survey.times.0, "last_time": survey.times.1, "ended": ended, "triggered": survey.trigger.map(|trigger| json!({ "when": trigger.time,
                "before_ns": trigger.before })),
            "being_written": recording.in_use }));
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
        text += &format!("  triggered at {when}, {before} after its first byte came\n");
    }
    for (number, name) in names.iter().enumerate() {
        text += &format!("  stream {number}: {name}\n");
    }
    print(&(text + &rules_text(survey)))
}
