//! `farlane record ctl`: a running recorder or replayer is asked, and told what to do.

use std::path::Path;

use engine::Nanos;
use live::drivers::beside::Beside;
use live::drivers::record::{Handle, Status, answer_at};
use live::sys::unix::BindError;
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
enum Request {
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
    },
}

impl Request {
    fn pin(args: &PinArgs) -> Self {
        let last_ns = args.last.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        Self::Pin { last_ns, stream: args.stream, from: args.from_offset, bytes: args.bytes }
    }

    /// What is to be pinned; nothing if everything may be overwritten again.
    fn range(&self) -> Option<PinRange> {
        match *self {
            Self::Pin { last_ns: Some(last), .. } => Some(PinRange::Last(Nanos::new(last))),
            Self::Pin { stream, from: Some(from), bytes: Some(bytes), .. } => {
                Some(PinRange::Bytes { stream, from, bytes })
            }
            _ => None,
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

/// Answers at the socket `path`, for the recording or replay of `handle`. Whether it `waits` for
/// a start.
pub(super) fn start(path: &Path, handle: &Handle, waits: bool) -> Result<Beside, BindError> {
    let handle = handle.clone();
    answer_at(path, move |line| answer(line, &handle, waits))
}

/// The answer to `line`, for the recording of `handle`.
fn answer(line: &str, handle: &Handle, waits: bool) -> String {
    let asked = serde_json::from_str(line).map_err(|error| format!("that is no request: {error}"));
    control::answer(asked.and_then(|request: Request| match request {
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
            let pinned = handle.pin(request.range()).map_err(ring::refusal)?;
            Ok(json!({ "pinned": ring::pins_json(&pinned) }))
        }
    }))
}

/// Why somebody can't trigger, and what to do.
fn not_armed(status: &Status) -> String {
    let state = status.state.word();
    match status.pre_trigger {
        Some(_) => format!("it is {state} and waits for no trigger: expected it to be armed"),
        None => format!("it is {state} and waits for no trigger: start it with --pre-trigger TIME"),
    }
}

fn status(status: &Status) -> Value {
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
