//! Commands as events of Google's Trace Event Format, which Perfetto and Chrome show.

use std::io::{self, Write};

use captures::name;
use engine::Instant;
use serde_json::{Value, json};
use trace::Command;

use super::Writer;

/// A day in nanoseconds.
const DAY: u64 = 86_400_000_000_000;

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
    fn event(&mut self, out: &mut dyn Write, mut event: Value, at: Instant) -> io::Result<()> {
        let day = Instant::from_nanos(at.as_nanos() / DAY * DAY);
        let since = at - *self.start.get_or_insert(day);
        event["ts"] = json!(since.get() as f64 / 1e3);
        event["cat"] = json!("nvme");
        let comma = if std::mem::replace(&mut self.has_any, true) { ",\n" } else { "\n" };
        write!(out, "{comma}{event}")
    }
}

impl Writer for Events {
    fn begin(&mut self, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")
    }

    fn command(&mut self, out: &mut dyn Write, number: u64, command: &Command) -> io::Result<()> {
        let Some(begun) = command.begun() else { return Ok(()) };
        let track = command.queue.map_or(0, u64::from);
        let event = |phase: &str, name: &str| json!({ "ph": phase, "name": name, "id": number, "pid": 1, "tid": track });
        let mut first = event("b", &name(command.kind));
        first["args"] = json!({ "number": number, "id": command.id, "nsid": command.namespace,
            "lba": command.lba, "blocks": command.blocks, "bytes": command.bytes, "status": command.status });
        self.event(out, first, begun)?;
        let mut at = begun;
        for (step, length) in command.chain() {
            self.event(out, event("b", step.name()), at)?;
            at = at + length;
            self.event(out, event("e", step.name()), at)?;
        }
        self.event(out, event("e", &name(command.kind)), at)
    }

    fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "\n]}}")
    }
}
