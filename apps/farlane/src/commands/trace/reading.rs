//! Understanding a capture frame by frame.

use std::path::Path;

use engine::Instant;
use trace::fabric::{Counts, Fabric};
use trace::{Analyser, Command, Seen, Statistics};

use crate::args::Source;
use crate::capture::{Columns, Frame, Held, Item, Reader, Row, TableError, each_row, held, told_by};
use crate::error::{CaptureError, Error};

/// What is wrong with frames of a capture.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flaws {
    /// Frames of other protocols.
    pub(crate) foreign: u64,
    /// Frames whose packet is malformed.
    pub(crate) malformed: u64,
    /// Packets with an earlier time than the one before. Spans that would be negative count as 0.
    pub(crate) backwards: u64,
    /// Packets that passed and are not in the capture, as it says itself.
    pub(crate) lost: u64,
}

/// What a whole capture has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Analysis {
    pub(crate) statistics: Statistics,
    pub(crate) fabric: Counts,
    /// Of the words of tracers: completions without their command, commands without their
    /// completion, and commands that had no room.
    pub(crate) words: (u64, u64, u64),
    pub(crate) flaws: Flaws,
}

/// Understands the frames that it is shown.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    analyser: Analyser,
    fabric: Fabric,
    flaws: Flaws,
    /// The time of the last packet.
    before: Instant,
}

impl Reading {
    /// A reading whose commands remember the numbers of their frames.
    pub(crate) fn remembering() -> Self {
        Self { analyser: Analyser::remembering(), fabric: Fabric::remembering(), ..Self::default() }
    }

    /// Shows the next frame, and what it holds. Returns whether it is a PCIe packet or a segment
    /// of NVMe/TCP.
    pub(crate) fn see(&mut self, frame: &Frame<'_>, held: &Held<'_>) -> bool {
        let is_ours = match held {
            Held::Packet(packet) => {
                self.analyser.see(&packet.seen(frame));
                true
            }
            Held::Segment(segment) => self.fabric.see(segment),
            Held::Datagram(datagram) => self.fabric.see_datagram(datagram),
            Held::Malformed | Held::Foreign => false,
        };
        self.flaws.note(frame.at, held, is_ours, &mut self.before);
        is_ours
    }

    /// Takes what a capture says beside its frames, if it is a note about a controller.
    pub(crate) fn learn(&mut self, note: &str) {
        if let Some(told) = told_by(note) {
            self.analyser.learn(&told);
        }
    }

    /// Shows a packet of a table.
    fn see_packet(&mut self, seen: &Seen<'_>) {
        self.analyser.see(seen);
        self.flaws.in_order(seen.at, &mut self.before);
    }

    /// The next command that has ended.
    pub(crate) fn poll_command(&mut self) -> Option<Command> {
        self.analyser.poll_command().or_else(|| self.fabric.poll_command())
    }

    /// Ends the capture.
    pub(crate) fn finish(&mut self) {
        self.analyser.finish();
        self.fabric.finish();
    }

    /// What the capture has had so far.
    pub(crate) fn analysis(&self) -> Analysis {
        let (statistics, fabric) = (self.analyser.statistics(), self.fabric.counts());
        Analysis { statistics, fabric, words: (0, 0, 0), flaws: self.flaws }
    }
}

impl Flaws {
    /// Notes whether a packet is earlier than the one `before`.
    fn in_order(&mut self, at: Instant, before: &mut Instant) {
        self.backwards += u64::from(at < *before);
        *before = at;
    }

    /// Notes what is wrong with a frame, and whether it is earlier than the one `before`.
    fn note(&mut self, at: Instant, held: &Held<'_>, is_ours: bool, before: &mut Instant) {
        if is_ours {
            self.in_order(at, before);
        } else {
            match held {
                Held::Malformed => self.malformed += 1,
                _ => self.foreign += 1,
            }
        }
    }
}

/// Shows each PCIe packet of a capture.
pub(super) fn each_packet(from: Source<'_>, mut show: impl FnMut(&Seen<'_>)) -> Result<(), Error> {
    if let Some(columns) = from.columns {
        return each_of_table(from.file, columns, |row| {
            if let Row::Packet(seen) = row {
                show(&seen);
            }
        });
    }
    Reader::open(from.file)?.each(|frame| {
        if let Held::Packet(packet) = held(&frame) {
            show(&packet.seen(&frame));
        }
    })
}

/// Shows each command of a capture, and returns the analysis of the whole.
pub(super) fn each_captured(from: Source<'_>, mut show: impl FnMut(Command)) -> Result<Analysis, Error> {
    let mut reading = Reading::default();
    if let Some(columns) = from.columns {
        each_of_table(from.file, columns, |row| {
            match row {
                Row::Packet(seen) => reading.see_packet(&seen),
                Row::Foreign => reading.flaws.foreign += 1,
                Row::Malformed => reading.flaws.malformed += 1,
            }
            std::iter::from_fn(|| reading.poll_command()).for_each(&mut show);
        })?;
    } else {
        Reader::open(from.file)?.each_item(|item| {
            match item {
                Item::Frame(frame) => {
                    reading.see(&frame, &held(&frame));
                }
                Item::Note(note) => reading.learn(note),
                Item::Tally(tally) => reading.flaws.lost = reading.flaws.lost.saturating_add(tally.lost),
                Item::Waits => {}
            }
            std::iter::from_fn(|| reading.poll_command()).for_each(&mut show);
            true
        })?;
    }
    reading.finish();
    std::iter::from_fn(|| reading.poll_command()).for_each(&mut show);
    Ok(reading.analysis())
}

/// Shows each row of a hardware analyser's table.
fn each_of_table(path: &Path, columns: &Columns, show: impl FnMut(Row<'_>)) -> Result<(), Error> {
    each_row(path, columns, show).map_err(|error| {
        let path = path.to_owned();
        match error {
            TableError::Io(error) => Error::File { path, error },
            TableError::NoColumn(name, there) => CaptureError::NoColumn { path, name, there }.into(),
        }
    })
}
