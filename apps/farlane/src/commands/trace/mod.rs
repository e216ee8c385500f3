//! `farlane trace`: what a capture of PCIe packets means.

mod chain;
mod dissector;
mod show;
mod stats;

use std::path::Path;

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
        TraceAction::Dissector(args) => dissector::run(args),
    }
}

/// Frames of a capture that hold no packet that can be read.
#[derive(Clone, Copy, Debug, Default)]
struct Skipped {
    /// Frames of other protocols.
    foreign: u64,
    /// Frames whose packet is malformed.
    malformed: u64,
}

/// Shows each PCIe packet of the capture at `path`.
fn each_packet(path: &Path, mut show: impl FnMut(&Seen<'_>)) -> Result<Skipped, Error> {
    let mut skipped = Skipped::default();
    Reader::open(path)?.each(|frame| {
        let Some(Framed { direction, tlp }) = packet_of(frame.link, frame.bytes) else {
            skipped.foreign += 1;
            return;
        };
        let Ok(head) = Head::parse(tlp) else {
            skipped.malformed += 1;
            return;
        };
        let direction = direction.unwrap_or_else(|| Direction::guess(&head.header));
        let payload = tlp.get(head.encoded_len()..).unwrap_or_default();
        let payload = &payload[..payload.len().min(head.header.payload_len())];
        show(&Seen { at: frame.at, direction, header: &head.header, payload });
    })?;
    Ok(skipped)
}

/// Shows each command of the capture at `path`, and returns the analysis of the whole.
fn each_command(path: &Path, mut show: impl FnMut(Command)) -> Result<(Analyser, Skipped), Error> {
    let mut analyser = Analyser::new();
    let skipped = each_packet(path, |seen| {
        analyser.see(seen);
        while let Some(command) = analyser.poll_command() {
            show(command);
        }
    })?;
    analyser.finish();
    while let Some(command) = analyser.poll_command() {
        show(command);
    }
    Ok((analyser, skipped))
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
