//! `farlane record ctl`: sends requests to a running recorder or replayer.

use ::status::{Medium, Recorder, RecorderState, Report, Writes};
use daemon::Common;
use engine::Nanos;
use live::drivers::record::{Handle, State, Status};
use record::PinRange;
use record::registers::Direction;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ring::{self, Range};
use super::trigger;
use crate::args::{PinArgs, RecordControlArgs, RecordRequest};
use crate::commands::{control, print, print_json, status};
use crate::error::Error;

/// The requests that a recorder answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Request {
    /// Reports how far it is.
    Status,
    /// Begins a recording or replay.
    Start,
    /// Has it write the kept bytes.
    Trigger,
    /// Ends it.
    Stop,
    /// Keeps bytes of a ring from being overwritten, or lets go of all.
    Pin {
        /// The bytes that came within this time, in nanoseconds.
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

/// The present state of a recorder or replayer.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Answer {
    /// It begins.
    Starting { starting: bool },
    /// It writes the kept bytes.
    Triggered { triggered: bool },
    /// It ends.
    Stopping { stopping: bool },
    /// It keeps bytes of a ring from being overwritten.
    Pinned {
        /// Everything that is pinned.
        pinned: Vec<Range>,
    },
}

impl Request {
    fn pin(args: &PinArgs) -> Self {
        let last_ns = args.last.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let (stream, from, bytes) = (args.stream, args.from_offset, args.bytes);
        Self::Pin { last_ns, stream, from, bytes, nothing: args.nothing }
    }

    /// The part to pin; nothing if everything may be overwritten again.
    ///
    /// # Errors
    /// When it says neither. Letting go of everything is never meant by accident.
    fn range(&self) -> Result<Option<PinRange>, String> {
        match *self {
            Self::Pin { last_ns: None, stream: 0, from: None, bytes: None, nothing: true } => Ok(None),
            Self::Pin { nothing: true, .. } => {
                Err("pin --nothing unpins all streams, and takes no other option".to_owned())
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

fn pins_text(pins: &[Range]) -> String {
    let one = |pin: &Range| format!("pinned: stream {}, {} B from {}\n", pin.stream, pin.bytes, pin.from);
    match pins {
        [] => "no part is pinned any more\n".to_owned(),
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
    if matches!(request, Request::Status) {
        return status::show(&control::report(&args.path)?, output.json);
    }
    let answer: Answer = control::ask_for(&args.path, &request)?;
    if output.json {
        return print_json(&answer);
    }
    match answer {
        Answer::Starting { .. } => print("it begins\n"),
        Answer::Triggered { .. } => print("it is triggered\n"),
        Answer::Stopping { .. } => print("it ends\n"),
        Answer::Pinned { pinned } => print(&pins_text(&pinned)),
    }
}

impl daemon::Request for Request {
    fn common(&self) -> Option<Common> {
        matches!(self, Self::Status).then_some(Common::Status)
    }
}

/// Carries out `request` for the recording or replay of `handle`. Whether it `waits` for a start.
pub(super) fn answer(request: Request, handle: &Handle, waits: bool) -> Result<Value, String> {
    let answer = match request {
        Request::Status => return Err("every daemon answers it by itself".to_owned()),
        Request::Start if !waits => {
            return Err("it has begun by itself; --on-demand waits for start".to_owned());
        }
        Request::Start if handle.start() => Answer::Starting { starting: true },
        Request::Start => return Err("one is under way; stop it first".to_owned()),
        Request::Trigger if handle.trigger() => Answer::Triggered { triggered: true },
        Request::Trigger => return Err(not_armed(&handle.status())),
        Request::Stop => {
            handle.stop();
            Answer::Stopping { stopping: true }
        }
        Request::Pin { .. } => {
            let pinned = handle.pin(request.range()?).map_err(ring::refusal)?;
            Answer::Pinned { pinned: pinned.iter().map(Range::from).collect() }
        }
    };
    control::reply(&answer)
}

/// Why a trigger is refused, with the remedy.
fn not_armed(status: &Status) -> String {
    let state = status.state.word();
    match status.pre_trigger {
        Some(_) => format!("it is {state} and waits for no trigger: expected it to be armed"),
        None => format!("it is {state} and waits for no trigger: start it with --pre-trigger TIME"),
    }
}

/// A recorder's or a replayer's report about itself.
pub(super) fn report(of: &Status) -> Report {
    let progress = &of.progress;
    let recorder = Recorder {
        state: match of.state {
            State::Idle => RecorderState::Idle,
            State::Armed => RecorderState::Armed,
            State::Running => RecorderState::Running,
            State::Ending => RecorderState::Ending,
            State::Ended => RecorderState::Ended,
            State::Failed => RecorderState::Failed,
        },
        medium: Medium { bytes: of.medium.bytes, model: of.medium.model.clone() },
        start_address: of.start_address,
        maximum_address: of.maximum_address,
        chunks_max: of.chunks_max,
        last_address: of.last_address,
        chunk_bytes: of.chunk,
        bytes_in: progress.bytes_in,
        bytes_passed: progress.passed,
        bytes_stored: progress.stored,
        bytes_acknowledged: progress.acknowledged,
        bytes_lost: progress.lost,
        bytes_overwritten: progress.overwritten,
        gaps: of.gaps,
        restarts: progress.restarts,
        ring: of.is_ring,
        pre_trigger_ns: of.pre_trigger.map(Nanos::get),
        kept_bytes: of.kept.map(|kept| kept.bytes),
        kept_ns: of.kept.map(|kept| kept.time.get()),
        triggered: of.triggered.map(trigger::of),
        fill_bytes: progress.fill,
        high_water_bytes: progress.high_water,
        buffer_bytes: of.buffer,
        writes: Writes {
            ended: of.writes.ended,
            time_ns: of.writes.time.get(),
            slowest_ns: of.writes.slowest.get(),
            pauses: of.writes.pauses,
            paused_ns: of.writes.paused.get(),
            longest_pause_ns: of.writes.longest_pause.get(),
        },
    };
    Report::of(match of.direction {
        Direction::Write => ::status::Status::Record(recorder),
        Direction::Read => ::status::Status::Replay(recorder),
    })
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
