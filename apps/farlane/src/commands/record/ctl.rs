//! `farlane record ctl`: a running recorder is asked, and told what to do.

use std::path::Path;

use live::drivers::beside::Beside;
use live::drivers::record::{Handle, Status, answer_at};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::args::{RecordControlArgs, RecordRequest};
use crate::commands::{control, print, print_json};
use crate::error::Error;

/// What a recorder may be asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
enum Request {
    /// Reports how far the recording is.
    Status,
    /// Begins a recording.
    Start,
    /// Ends the recording.
    Stop,
}

pub(super) fn run(args: &RecordControlArgs) -> Result<(), Error> {
    let (request, output) = match &args.request {
        RecordRequest::Status(output) => (Request::Status, output),
        RecordRequest::Start(output) => (Request::Start, output),
        RecordRequest::Stop(output) => (Request::Stop, output),
    };
    let answer = control::ask(&args.path, &request)?;
    if output.json {
        return print_json(&answer);
    }
    match request {
        Request::Status => print(&text(&answer)),
        Request::Start => print("a recording begins\n"),
        Request::Stop => print("the recording ends\n"),
    }
}

/// Answers at the socket `path`, if there is to be one, for the recording of `handle`.
pub(super) fn start(path: Option<&Path>, handle: &Handle, waits: bool) -> Result<Option<Beside>, Error> {
    let Some(path) = path else { return Ok(None) };
    let handle = handle.clone();
    let asked = answer_at(path, move |line| answer(line, &handle, waits));
    asked.map(Some).map_err(|error| Error::Bind { path: path.to_owned(), error })
}

/// The answer to `line`, for the recording of `handle`.
fn answer(line: &str, handle: &Handle, waits: bool) -> String {
    let asked = serde_json::from_str(line).map_err(|error| format!("that is no request: {error}"));
    control::answer(asked.and_then(|request| match request {
        Request::Status => Ok(status(&handle.status())),
        Request::Start if !waits => {
            Err("this recorder has begun by itself; farlane record --on-demand waits for start".to_owned())
        }
        Request::Start if handle.status().state.is_under_way() => {
            Err("a recording is under way; stop it first".to_owned())
        }
        Request::Start => {
            handle.start();
            Ok(json!({ "starting": true }))
        }
        Request::Stop => {
            handle.stop();
            Ok(json!({ "stopping": true }))
        }
    }))
}

fn status(status: &Status) -> Value {
    let progress = &status.progress;
    json!({ "kind": "record", "state": status.state.word(),
        "medium": { "bytes": status.medium.bytes, "model": status.medium.model },
        "start_address": status.start_address, "maximum_address": status.maximum_address,
        "last_address": status.last_address, "chunk_bytes": status.chunk,
        "bytes_in": progress.bytes_in, "bytes_stored": progress.stored,
        "bytes_acknowledged": progress.acknowledged, "bytes_lost": progress.lost,
        "fill_bytes": progress.fill, "high_water_bytes": progress.high_water,
        "buffer_bytes": status.buffer })
}

fn text(status: &Value) -> String {
    let medium = &status["medium"];
    let model = medium["model"].as_str().filter(|model| !model.is_empty()).unwrap_or("of an unknown model");
    format!(
        "{}: {} B in, {} B stored, {} B of them durable, {} B lost\n  \
         medium: {} B, {model}; writes from {} up to {}, the last one ended at {}\n  \
         buffer: {} B of {} B, {} B at most\n",
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
