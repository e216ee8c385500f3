//! Commands as events of Google's Trace Event Format, which Perfetto and Chrome show.

use std::io::{self, Write};

use captures::name;
use engine::Instant;
use serde::Serialize;
use trace::Command;

use super::Writer;

/// A day in nanoseconds.
const DAY: u64 = 86_400_000_000_000;

/// An event, in the words of the format.
#[derive(Serialize)]
struct Event<'a> {
    ph: &'static str,
    name: &'a str,
    id: u64,
    pid: u64,
    tid: u64,
    ts: f64,
    cat: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Arguments>,
}

/// The fields of a command.
#[derive(Serialize)]
struct Arguments {
    number: u64,
    id: Option<u16>,
    nsid: Option<u32>,
    lba: Option<u64>,
    blocks: Option<u32>,
    bytes: u64,
    status: Option<u16>,
}

/// Asynchronous events: commands overlap, and each has its steps within.
#[derive(Default)]
pub(super) struct Events {
    /// The start of the first event's day. Times since then keep their nanoseconds in the
    /// floating-point numbers of readers.
    start: Option<Instant>,
    has_any: bool,
}

impl Events {
    /// Writes an event at `at`; Trace Event Format counts microseconds.
    fn event(&mut self, out: &mut dyn Write, event: Event<'_>, at: Instant) -> io::Result<()> {
        let day = Instant::from_nanos(at.as_nanos() / DAY * DAY);
        let since = at - *self.start.get_or_insert(day);
        let event = Event { ts: since.get() as f64 / 1e3, ..event };
        let comma = if std::mem::replace(&mut self.has_any, true) { ",\n" } else { "\n" };
        out.write_all(comma.as_bytes())?;
        Ok(serde_json::to_writer(out, &event)?)
    }
}

impl Writer for Events {
    fn begin(&mut self, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")
    }

    fn command(&mut self, out: &mut dyn Write, number: u64, command: &Command) -> io::Result<()> {
        let Some(begun) = command.begun() else { return Ok(()) };
        let track = command.queue.map_or(0, u64::from);
        let kind = name(command.kind);
        let event =
            |ph, name| Event { ph, name, id: number, pid: 1, tid: track, ts: 0.0, cat: "nvme", args: None };
        let args = Arguments {
            number,
            id: command.id,
            nsid: command.namespace,
            lba: command.lba,
            blocks: command.blocks,
            bytes: command.bytes,
            status: command.status,
        };
        self.event(out, Event { args: Some(args), ..event("b", &kind) }, begun)?;
        let mut at = begun;
        for (step, length) in command.chain() {
            self.event(out, event("b", step.name()), at)?;
            at = at + length;
            self.event(out, event("e", step.name()), at)?;
        }
        self.event(out, event("e", &kind), at)
    }

    fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "\n]}}")
    }
}
