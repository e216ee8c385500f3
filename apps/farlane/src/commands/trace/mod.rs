//! `farlane trace`: what a capture of PCIe packets means.

mod advice;
mod chain;
mod compare;
mod dissector;
mod export;
mod population;
mod show;
mod stats;

use std::cell::RefCell;
use std::path::Path;

use engine::Instant;
use nvme::wire::{AdminOpcode, IoOpcode};
use pcie::wire::Head;
use trace::events::Events;
use trace::fabric::{Counts, Fabric, Segment};
use trace::{Analyser, Command, Direction, Kind, Seen, Statistics};

use crate::args::TraceAction;
use crate::capture::{Framed, Reader, each_line, packet_of, segment_of};
use crate::error::Error;

pub(crate) fn run(action: &TraceAction) -> Result<(), Error> {
    match action {
        TraceAction::Stats(args) => stats::run(args),
        TraceAction::Chain(args) => chain::run(args),
        TraceAction::Show(args) => show::run(args),
        TraceAction::Compare(args) => compare::run(args),
        TraceAction::Export(args) => export::run(args),
        TraceAction::Dissector(args) => dissector::run(args),
    }
}

/// What is wrong with frames of a capture.
#[derive(Clone, Copy, Debug, Default)]
struct Flaws {
    /// Frames of other protocols.
    foreign: u64,
    /// Frames whose packet is malformed.
    malformed: u64,
    /// Packets with an earlier time than the one before. Spans that would be negative count as 0.
    backwards: u64,
}

/// Shows each PCIe packet of the capture at `path`.
fn each_packet(path: &Path, show: impl FnMut(&Seen<'_>)) -> Result<Flaws, Error> {
    each(path, show, |_| false)
}

/// Shows each PCIe packet and each TCP segment of the capture at `path`. Who is shown a segment
/// says whether it is of NVMe/TCP.
fn each(
    path: &Path,
    mut show: impl FnMut(&Seen<'_>),
    mut segment: impl FnMut(&Segment<'_>) -> bool,
) -> Result<Flaws, Error> {
    let mut flaws = Flaws::default();
    let mut before = Instant::ZERO;
    Reader::open(path)?.each(|frame| {
        let Some(Framed { direction, tlp }) = packet_of(frame.link, frame.bytes) else {
            let found = segment_of(frame.link, frame.bytes, frame.at);
            match found.is_some_and(|found| segment(&found)) {
                true => flaws.note(&mut before, frame.at),
                false => flaws.foreign += 1,
            }
            return;
        };
        let Ok(head) = Head::parse(tlp) else {
            flaws.malformed += 1;
            return;
        };
        flaws.note(&mut before, frame.at);
        let direction = direction.unwrap_or_else(|| Direction::guess(&head.header));
        let payload = tlp.get(head.encoded_len()..).unwrap_or_default();
        let payload = &payload[..payload.len().min(head.header.payload_len())];
        show(&Seen { at: frame.at, direction, header: &head.header, payload });
    })?;
    Ok(flaws)
}

impl Flaws {
    /// Notes the time of a packet, and whether it is earlier than the one before.
    fn note(&mut self, before: &mut Instant, at: Instant) {
        self.backwards += u64::from(at < *before);
        *before = at;
    }
}

/// What a whole capture has.
struct Analysis {
    statistics: Statistics,
    fabric: Counts,
    /// Of the words of tracers: completions without their command, commands without their
    /// completion, and commands that had no room.
    words: (u64, u64, u64),
    flaws: Flaws,
}

/// Shows each command of the capture at `path`, and returns the analysis of the whole.
fn each_command(path: &Path, mut show: impl FnMut(Command)) -> Result<Analysis, Error> {
    match each_captured(path, &mut show) {
        // What begins as no capture may be words.
        Err(Error::BrokenCapture { offset: 0, what, .. }) => {
            let analysis = each_told(path, show)?;
            analysis.ok_or_else(|| Error::BrokenCapture { path: path.to_owned(), offset: 0, what })
        }
        result => result,
    }
}

/// Shows each command of the lines of the file at `path`, as tracers of Linux write them. None if
/// no line is one of theirs.
fn each_told(path: &Path, mut show: impl FnMut(Command)) -> Result<Option<Analysis>, Error> {
    let (mut events, mut flaws, mut known) = (Events::default(), Flaws::default(), 0_u64);
    each_line(path, |line| {
        match events.see(line) {
            true => known += 1,
            false => flaws.foreign += 1,
        }
        std::iter::from_fn(|| events.poll_command()).for_each(&mut show);
    })
    .map_err(|error| Error::File { path: path.to_owned(), error })?;
    events.finish();
    let (statistics, fabric) = (Statistics::default(), Counts::default());
    Ok((known > 0).then(|| Analysis { statistics, fabric, words: events.counts(), flaws }))
}

fn each_captured(path: &Path, show: impl FnMut(Command)) -> Result<Analysis, Error> {
    let (mut analyser, mut fabric) = (Analyser::new(), Fabric::default());
    let show = RefCell::new(show);
    let flaws = each(
        path,
        |seen| {
            analyser.see(seen);
            std::iter::from_fn(|| analyser.poll_command()).for_each(&mut *show.borrow_mut());
        },
        |segment| {
            let is_known = fabric.see(segment);
            std::iter::from_fn(|| fabric.poll_command()).for_each(&mut *show.borrow_mut());
            is_known
        },
    )?;
    analyser.finish();
    fabric.finish();
    std::iter::from_fn(|| analyser.poll_command()).for_each(&mut *show.borrow_mut());
    let (statistics, fabric) = (analyser.statistics(), fabric.counts());
    Ok(Analysis { statistics, fabric, words: (0, 0, 0), flaws })
}

/// The name of a kind of command, as people and machines read it.
fn name(kind: Kind) -> String {
    match kind {
        Kind::Admin(opcode) => format!("admin: {}", AdminOpcode::from(opcode)),
        Kind::Io(opcode) => IoOpcode::from(opcode).to_string(),
        Kind::Fabrics(kind) => format!("fabrics: {}", fabrics_name(kind)),
        Kind::InferredRead => "Read".to_owned(),
        Kind::InferredWrite => "Write".to_owned(),
    }
}

/// The name of a Fabrics Command Type (FCTYPE).
fn fabrics_name(kind: u8) -> String {
    match kind {
        0x00 => "Property Set".to_owned(),
        0x01 => "Connect".to_owned(),
        0x04 => "Property Get".to_owned(),
        0x05 => "Authentication Send".to_owned(),
        0x06 => "Authentication Receive".to_owned(),
        0x08 => "Disconnect".to_owned(),
        other => format!("type {other:#04x}"),
    }
}
