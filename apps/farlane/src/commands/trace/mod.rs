//! `farlane trace`: what a capture of PCIe packets means.

mod advice;
mod chain;
mod compare;
mod dissector;
mod export;
mod population;
mod reading;
mod show;
mod stats;

use std::path::Path;

use nvme::wire::{AdminOpcode, IoOpcode};
use trace::events::Events;
use trace::{Command, Kind};

use crate::args::{Source, TraceAction};
use crate::capture::each_line;
use crate::error::Error;
use reading::{Flaws, each_captured, each_packet};

pub(in crate::commands) use advice::of as advice;
pub(in crate::commands) use compare::compared;
pub(in crate::commands) use population::{Population, Times};
pub(in crate::commands) use reading::{Analysis, Reading};
pub(in crate::commands) use stats::{Groups, as_json as stats_json};

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

/// Shows each command of a capture, and returns the analysis of the whole.
fn each_command(from: Source<'_>, mut show: impl FnMut(Command)) -> Result<Analysis, Error> {
    match each_captured(from, &mut show) {
        // What begins as no capture may be words.
        Err(Error::BrokenCapture { offset: 0, what, .. }) => {
            let path = from.file;
            let analysis = each_told(path, show)?;
            analysis.ok_or_else(|| Error::BrokenCapture { path: path.to_owned(), offset: 0, what })
        }
        result => result,
    }
}

/// Shows each command of the lines of the file at `path`, as tracers of Linux write them. None if
/// no line is one of theirs.
pub(in crate::commands) fn each_told(
    path: &Path,
    mut show: impl FnMut(Command),
) -> Result<Option<Analysis>, Error> {
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
    flaws.backwards = events.backwards();
    Ok((known > 0).then(|| Analysis { words: events.counts(), flaws, ..Analysis::default() }))
}

/// The name of a kind of command, as people and machines read it.
pub(in crate::commands) fn name(kind: Kind) -> String {
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
