//! `farlane record ctl`: a running recorder or replayer is asked, and told what to do.

use daemon::Common;
use engine::Nanos;
use live::drivers::record::{Handle, Status};
use record::PinRange;
use record::registers::Direction;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::ring;
use super::trigger::trigger_json;
use crate::args::{PinArgs, RecordControlArgs, RecordRequest};
use crate::commands::{control, print, print_json};
use crate::error::Error;

/// What a recorder may be asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Request {
    /// Reports how far it is.
    Status,
    /// Begins a recording or replay.
    Start,
    /// Has it write what it keeps.
    Trigger,
    /// Ends it.
    Stop,
    /// Keeps bytes of a ring from being overwritten, or lets go of all.
    Pin {
        /// What came within this time, in nanoseconds.
        last_ns: Option<u64>,
        /// The number of the stream.
        stream: u32,
        /// The first byte.
        from: Option<u64>,
        /// How many bytes.
        bytes: Option<u64>,
        /// Lets go of everything that is pinned; nothing else is asked for then.
        #[serde(default)]
        nothing: bool,
    },
}

impl Request {
    fn pin(args: &PinArgs) -> Self {
        let last_ns = args.last.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let (stream, from, bytes) = (args.stream, args.from_offset, args.bytes);
        Self::Pin { last_ns, stream, from, bytes, nothing: args.nothing }
    }

    /// What is to be pinned; nothing if everything may be overwritten again.
    ///
    /// # Errors
    /// When it says neither. Letting go of everything is never meant by accident.
    fn range(&self) -> Result<Option<PinRange>, String> {
        match *self {
            Self::Pin { last_ns: None, stream: 0, from: None, bytes: None, nothing: true } => Ok(None),
            Self::Pin { nothing: true, .. } => {
                Err("pin --nothing lets go of all streams, and goes with nothing else".to_owned())
            }
            Self::Pin { last_ns: Some(last), from: None, bytes: None, .. } => {
                Ok(Some(PinRange::Last(Nanos::new(last))))
            }
            Self::Pin { last_ns: None, stream, from: Some(from), bytes: Some(bytes), .. } => {
                Ok(Some(PinRange::Bytes { stream, from, bytes }))
            }
            _ => Err("it does not name a range: expected last_ns, from and bytes, or nothing".to_owned()),
        }
    }
}

fn pins_text(pinned: &Value) -> String {
    let pins = pinned.as_array().map(Vec::as_slice).unwrap_or_default();
    let one =
        |pin: &Value| format!("pinned: stream {}, {} B from {}\n", pin["stream"], pin["bytes"], pin["from"]);
    match pins {
        [] => "nothing is pinned any more\n".to_owned(),
        pins => pins.iter().map(one).collect(),
    }
}

pub(super) fn run(args: &RecordControlArgs) -> Result<(), Error> {
    let (request, output) = match &args.request {
        RecordRequest::Status(output) => (Request::Status, output),
        RecordRequest::Start(output) => (Request::Start, output),
        RecordRequest::Trigger(output) => (Request::Trigger, output),
        RecordRequest::Stop(output) => (Request::Stop, output),
        RecordRequest::Pin(args) => (Request::pin(args), &args.output),
    };
    let answer = control::ask(&args.path, &request)?;
    if output.json {
        return print_json(&answer);
    }
    match request {
        Request::Status => print(&text(&answer)),
        Request::Start => print("it begins\n"),
        Request::Trigger => print("it is triggered\n"),
        Request::Stop => print("it ends\n"),
        Request::Pin { .. } => print(&pins_text(&answer["pinned"])),
    }
}

impl daemon::Request for Request {
    fn common(&self) -> Option<Common> {
        matches!(self, Self::Status).then_some(Common::Status)
    }
}

/// Carries out `request` for the recording or replay of `handle`. Whether it `waits` for a start.
pub(super) fn answer(request: Request, handle: &Handle, waits: bool) -> Result<Value, String> {
    match request {
        Request::Status => Ok(status(&handle.status())),
        Request::Start if !waits => Err("it has begun by itself; --on-demand waits for start".to_owned()),
        Request::Start if handle.start() => Ok(json!({ "starting": true })),
        Request::Start => Err("one is under way; stop it first".to_owned()),
        Request::Trigger if handle.trigger() => Ok(json!({ "triggered": true })),
        Request::Trigger => Err(not_armed(&handle.status())),
        Request::Stop => {
            handle.stop();
            Ok(json!({ "stopping": true }))
        }
        Request::Pin { .. } => {
            let pinned = handle.pin(request.range()?).map_err(ring::refusal)?;
            Ok(json!({ "pinned": ring::pins_json(&pinned) }))
        }
    }
}

/// Why somebody can't trigger, and what to do.
fn not_armed(status: &Status) -> String {
    let state = status.state.word();
    match status.pre_trigger {
        Some(_) => format!("it is {state} and waits for no trigger: expected it to be armed"),
        None => format!("it is {state} and waits for no trigger: start it with --pre-trigger TIME"),
    }
}

pub(super) fn status(status: &Status) -> Value {
    let progress = &status.progress;
    let kind = match status.direction {
        Direction::Write => "record",
        Direction::Read => "replay",
    };
    json!({ "kind": kind, "state": status.state.word(),
        "medium": { "bytes": status.medium.bytes, "model": status.medium.model },
        "start_address": status.start_address, "maximum_address": status.maximum_address,
        "chunks_max": status.chunks_max, "last_address": status.last_address, "chunk_bytes": status.chunk,
        "bytes_in": progress.bytes_in, "bytes_stored": progress.stored,
        "bytes_acknowledged": progress.acknowledged, "bytes_lost": progress.lost,
        "bytes_overwritten": progress.overwritten, "ring": status.is_ring,
        "pre_trigger_ns": status.pre_trigger.map(Nanos::get),
        "kept_bytes": status.kept.map(|kept| kept.bytes), "kept_ns": status.kept.map(|kept| kept.time.get()),
        "triggered": status.triggered.map(trigger_json),
        "fill_bytes": progress.fill, "high_water_bytes": progress.high_water,
        "buffer_bytes": status.buffer })
}

pub(crate) fn text(status: &Value) -> String {
    let medium = &status["medium"];
    let kept = match status["kept_ns"].as_u64() {
        Some(time) => format!(
            "  keeps the last {}, {} B, until it is triggered\n",
            Nanos::new(time),
            status["kept_bytes"]
        ),
        None => String::new(),
    };
    let model = medium["model"].as_str().filter(|model| !model.is_empty()).unwrap_or("of an unknown model");
    format!(
        "{}: {} B in, {} B stored, {} B of them durable, {} B lost\n  \
         medium: {} B, {model}; writes from {} up to {}, the last one ended at {}\n  \
         buffer: {} B of {} B, {} B at most\n{kept}",
        status["state"].as_str().unwrap_or_default(),
        status["bytes_in"],
        status["bytes_stored"],
        status["bytes_acknowledged"],
        status["bytes_lost"],
        medium["bytes"],
        status["start_address"],
        status["maximum_address"],
        status["last_address"],
        status["fill_bytes"],
        status["buffer_bytes"],
        status["high_water_bytes"],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_that_says_half_of_what_it_wants_lets_go_of_nothing() {
        let range = |text: &str| serde_json::from_str::<Request>(text).unwrap().range();
        let pin = |rest: &str| range(&format!(r#"{{"command":"pin",{rest}}}"#));
        assert_eq!(pin(r#""stream":0,"nothing":true"#), Ok(None));
        assert_eq!(pin(r#""stream":3,"last_ns":5"#), Ok(Some(PinRange::Last(Nanos::new(5)))));
        let bytes = PinRange::Bytes { stream: 3, from: 1, bytes: 2 };
        assert_eq!(pin(r#""stream":3,"from":1,"bytes":2"#), Ok(Some(bytes)));
        for partial in [
            r#""stream":0"#,
            r#""stream":3,"from":1"#,
            r#""stream":3,"bytes":2"#,
            r#""stream":3,"nothing":true"#,
            r#""stream":0,"last_ns":5,"nothing":true"#,
            r#""stream":0,"last_ns":5,"from":1,"bytes":2"#,
        ] {
            assert!(pin(partial).is_err(), "{partial}");
        }
    }
}
