//! `farlane trace`: what a capture of PCIe packets means.

mod advice;
mod chain;
mod compare;
mod dissector;
mod export;
mod population;
mod show;
mod stats;

use std::path::Path;

use engine::Instant;
use nvme::wire::{AdminOpcode, IoOpcode};
use pcie::wire::Head;
use trace::{Analyser, Command, Direction, Kind, Seen};

use crate::args::TraceAction;
use crate::capture::{Framed, Reader, packet_of};
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
fn each_packet(path: &Path, mut show: impl FnMut(&Seen<'_>)) -> Result<Flaws, Error> {
    let mut flaws = Flaws::default();
    let mut before = Instant::ZERO;
    Reader::open(path)?.each(|frame| {
        let Some(Framed { direction, tlp }) = packet_of(frame.link, frame.bytes) else {
            flaws.foreign += 1;
            return;
        };
        let Ok(head) = Head::parse(tlp) else {
            flaws.malformed += 1;
            return;
        };
        flaws.backwards += u64::from(frame.at < before);
        before = frame.at;
        let direction = direction.unwrap_or_else(|| Direction::guess(&head.header));
        let payload = tlp.get(head.encoded_len()..).unwrap_or_default();
        let payload = &payload[..payload.len().min(head.header.payload_len())];
        show(&Seen { at: frame.at, direction, header: &head.header, payload });
    })?;
    Ok(flaws)
}

/// Shows each command of the capture at `path`, and returns the analysis of the whole.
fn each_command(path: &Path, mut show: impl FnMut(Command)) -> Result<(Analyser, Flaws), Error> {
    let mut analyser = Analyser::new();
    let flaws = each_packet(path, |seen| {
        analyser.see(seen);
        while let Some(command) = analyser.poll_command() {
            show(command);
        }
    })?;
    analyser.finish();
    while let Some(command) = analyser.poll_command() {
        show(command);
    }
    Ok((analyser, flaws))
}

/// The name of a kind of command, as people and machines read it.
fn name(kind: Kind) -> String {
    match kind {
        Kind::Admin(opcode) => format!("admin: {}", AdminOpcode::from(opcode)),
        Kind::Io(opcode) => IoOpcode::from(opcode).to_string(),
        Kind::InferredRead => "Read".to_owned(),
        Kind::InferredWrite => "Write".to_owned(),
    }
}
