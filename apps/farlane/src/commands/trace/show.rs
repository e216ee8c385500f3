//! `farlane observe trace show`: a capture line by line.

use std::io::{self, BufWriter, Write};

use captures::{Ordered, each_packet, name};
use engine::{Instant, Nanos};
use pcie::wire::{Header, Kind};
use serde_json::json;
use trace::{Command, Direction, Seen, Transactions};

use crate::args::{Level, ShowArgs};
use crate::error::Error;

/// Lines of a capture, with times that count from its first packet.
struct Lines {
    out: BufWriter<io::Stdout>,
    is_json: bool,
    number: u64,
    start: Option<Instant>,
    result: io::Result<()>,
}

impl Lines {
    fn since_start(&mut self, at: Instant) -> Nanos {
        at - *self.start.get_or_insert(at)
    }

    /// Writes a line, for machines or for people.
    fn line(
        &mut self,
        at: Instant,
        value: impl FnOnce() -> serde_json::Value,
        text: impl FnOnce() -> String,
    ) {
        if self.number == 0 && !self.is_json {
            self.result = writeln!(self.out, "number  microseconds");
        }
        self.number += 1;
        let since = self.since_start(at);
        if self.result.is_err() {
            return;
        }
        self.result = match self.is_json {
            true => {
                let mut value = value();
                value["number"] = json!(self.number);
                value["at_ns"] = json!(since.get());
                writeln!(self.out, "{value}")
            }
            false => writeln!(self.out, "{:6} {:>13.3} {}", self.number, since.get() as f64 / 1e3, text()),
        };
    }
}

pub(super) fn run(args: &ShowArgs) -> Result<(), Error> {
    let out = BufWriter::new(io::stdout());
    let is_json = args.capture.output.json;
    let mut lines = Lines { out, is_json, number: 0, start: None, result: Ok(()) };
    let file = args.capture.source();
    match args.level {
        Level::Tlp => each_packet(file, |seen| packet(&mut lines, seen))?,
        Level::Transaction => {
            let mut transactions = Transactions::default();
            each_packet(file, |seen| transaction(&mut lines, &mut transactions, seen))?;
        }
        Level::Command => {
            let mut commands = Ordered::open(file)?;
            while let Some(command) = commands.next() {
                lines.start = lines.start.or(commands.began());
                command_line(&mut lines, &command?);
            }
        }
    }
    if lines.number == 0 {
        captures::refuse_empty(args.capture.source())?;
    }
    let flushed = lines.out.flush();
    lines.result.and(flushed).or_else(|error| match error.kind() {
        // The reader has closed the output.
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(Error::Output(error)),
    })
}

fn command_line(lines: &mut Lines, command: &Command) {
    let begun = command.begun().unwrap_or(Instant::ZERO);
    let (kind, length) = (name(command.kind), command.latency());
    lines.line(
        begun,
        || {
            json!({ "command": kind, "queue": command.queue, "id": command.id, "nsid": command.namespace,
                "lba": command.lba, "blocks": command.blocks, "bytes": command.bytes,
                "status": command.status, "latency_ns": length.get() })
        },
        || {
            let lba = command.lba.map(|lba| format!(" LBA {lba}")).unwrap_or_default();
            let queue = command.queue.map(|queue| format!(" q{queue}")).unwrap_or_default();
            format!("{kind:20}{queue}{lba} {} B in {length}", command.bytes)
        },
    );
}

const fn arrow(direction: Direction) -> &'static str {
    match direction {
        Direction::Down => "->",
        Direction::Up => "<-",
    }
}

/// A header as people write it.
fn shown(header: &Header) -> String {
    pcie::wire::Tlp::<&[u8]>::new(*header, &[]).to_string()
}

fn packet(lines: &mut Lines, seen: &Seen<'_>) {
    let text = || format!("{} {}", arrow(seen.direction), shown(seen.header));
    let value = || {
        json!({ "direction": if seen.direction == Direction::Down { "down" } else { "up" },
            "tlp": shown(seen.header),
            "requester": seen.header.requester().to_string(), "tag": seen.header.tag().get(),
            "address": seen.header.first_byte_address(), "bytes": seen.header.payload_len() })
    };
    lines.line(seen.at, value, text);
}

fn transaction(lines: &mut Lines, transactions: &mut Transactions, seen: &Seen<'_>) {
    let answered = transactions.see(seen);
    if let Some((one, true)) = answered {
        let length = one.length();
        lines.line(
            one.begun,
            || {
                let is_memory = matches!(one.request.kind, Kind::Memory(_));
                json!({ "direction": if one.direction == Direction::Down { "down" } else { "up" },
                    "tlp": shown(&one.request), "requester": one.requester.to_string(),
                    "address": is_memory.then_some(one.address), "bytes": one.bytes,
                    "status": one.status.to_string(), "completions": one.completions,
                    "latency_ns": length.get() })
            },
            || {
                let (completions, status) = (one.completions, one.status);
                let request = shown(&one.request);
                format!(
                    "{} {request}: {completions} completions, {status}, in {length}",
                    arrow(one.direction)
                )
            },
        );
    } else if seen.header.is_posted() {
        packet(lines, seen);
    }
}
