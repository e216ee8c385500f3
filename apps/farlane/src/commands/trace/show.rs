//! `farlane observe trace show`: a capture line by line.

use std::io::{self, BufWriter, Write};

use captures::{Ordered, each_packet, name};
use engine::{Instant, Nanos};
use pcie::wire::{Header, Kind};
use serde::Serialize;
use trace::{Command, Direction, Seen, Transactions};

use crate::args::{Level, ShowArgs};
use crate::error::Error;

/// A line for machines.
#[derive(Serialize)]
struct Line<T> {
    number: u64,
    /// The time since the first packet.
    at_ns: u64,
    #[serde(flatten)]
    value: T,
}

/// A command in a line.
#[derive(Serialize)]
struct CommandLine<'a> {
    command: &'a str,
    queue: Option<u16>,
    id: Option<u16>,
    nsid: Option<u32>,
    lba: Option<u64>,
    blocks: Option<u32>,
    bytes: u64,
    status: Option<u16>,
    latency_ns: u64,
}

/// A packet in a line.
#[derive(Serialize)]
struct PacketLine {
    direction: &'static str,
    tlp: String,
    requester: String,
    tag: u16,
    address: Option<u64>,
    bytes: usize,
}

/// A request with its completions in a line.
#[derive(Serialize)]
struct TransactionLine {
    direction: &'static str,
    tlp: String,
    requester: String,
    /// The address, of a request of memory.
    address: Option<u64>,
    bytes: u32,
    status: String,
    completions: u32,
    latency_ns: u64,
}

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
    fn line<T: Serialize>(&mut self, at: Instant, value: impl FnOnce() -> T, text: impl FnOnce() -> String) {
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
                let line = Line { number: self.number, at_ns: since.get(), value: value() };
                let written = serde_json::to_writer(&mut self.out, &line).map_err(io::Error::from);
                written.and_then(|()| writeln!(self.out))
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
        || CommandLine {
            command: &kind,
            queue: command.queue,
            id: command.id,
            nsid: command.namespace,
            lba: command.lba,
            blocks: command.blocks,
            bytes: command.bytes,
            status: command.status,
            latency_ns: length.get(),
        },
        || {
            let lba = command.lba.map(|lba| format!(" LBA {lba}")).unwrap_or_default();
            let queue = command.queue.map(|queue| format!(" q{queue}")).unwrap_or_default();
            format!("{kind:20}{queue}{lba} {} B in {length}", command.bytes)
        },
    );
}

/// A direction for machines.
const fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::Down => "down",
        Direction::Up => "up",
    }
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
    let value = || PacketLine {
        direction: word(seen.direction),
        tlp: shown(seen.header),
        requester: seen.header.requester().to_string(),
        tag: seen.header.tag().get(),
        address: seen.header.first_byte_address(),
        bytes: seen.header.payload_len(),
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
                TransactionLine {
                    direction: word(one.direction),
                    tlp: shown(&one.request),
                    requester: one.requester.to_string(),
                    address: is_memory.then_some(one.address),
                    bytes: one.bytes,
                    status: one.status.to_string(),
                    completions: one.completions,
                    latency_ns: length.get(),
                }
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
