//! Understanding a capture frame by frame, row by row or line by line.

use std::path::Path;

use engine::Instant;
use trace::events::Events;
use trace::fabric::{Counts, Fabric};
use trace::{Analyser, Command, Seen, Statistics};

use crate::Error;
use crate::framing::{Held, held};
use crate::notes::knowledge_of;
use crate::reader::{Frame, Item};
use crate::rows::Row;

/// Faults of a capture's frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flaws {
    /// Frames of other protocols, packets that are no frames, and lines that are no event.
    pub foreign: u64,
    /// Frames with a malformed packet.
    pub malformed: u64,
    /// Packets with an earlier time than the one before. Spans that would be negative count as 0.
    pub backwards: u64,
    /// Packets that are not in the capture, by its own count.
    pub lost: u64,
    /// Frames of link types that are not known.
    pub unknown: UnknownLinks,
}

/// Frames of unknown link types, which were not decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnknownLinks {
    /// The first few link types that occurred, and how many frames each had.
    kinds: [(u32, u64); UNKNOWN_KINDS],
    /// Frames of further link types.
    others: u64,
}

/// How many link types that are not known have a count of their own.
const UNKNOWN_KINDS: usize = 4;

impl UnknownLinks {
    fn add(&mut self, link: u32) {
        let place = self.kinds.iter_mut().find(|(kind, count)| *count == 0 || *kind == link);
        match place {
            Some((kind, count)) => (*kind, *count) = (link, *count + 1),
            None => self.others += 1,
        }
    }

    /// A line about each link type.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.each().map(|(link, frames)| match link {
            Some(link) => format!("frames of link type {link}, which is not known: {frames}"),
            None => format!("frames of further link types, which are not known: {frames}"),
        })
    }

    /// Each link type with the number of its frames; without a link type, those of all others.
    pub fn each(&self) -> impl Iterator<Item = (Option<u32>, u64)> {
        let kinds = self.kinds.iter().map(|(kind, count)| (Some(*kind), *count));
        kinds.chain([(None, self.others)]).filter(|(_, count)| *count > 0)
    }
}

/// The analysis of a whole capture.
#[derive(Clone, Copy, Debug, Default)]
pub struct Analysis {
    /// The statistics of PCIe packets.
    pub statistics: Statistics,
    /// The counts of PDUs and messages of NVMe over fabrics.
    pub fabric: Counts,
    /// Of the words of tracers: completions without their command, commands without their
    /// completion, and commands that had no room.
    pub words: (u64, u64, u64),
    /// The faults of the capture.
    pub flaws: Flaws,
}

impl Analysis {
    /// Whether no packet, PDU or message was decoded. Tracers' words show in their commands alone.
    pub const fn is_empty(&self) -> bool {
        self.statistics.packets == 0 && self.fabric.pdus == 0
    }

    /// Checks that some frame of the file at `path` was decoded. `has_commands` says whether a
    /// command was found.
    ///
    /// # Errors
    /// [`Error::Nothing`], with the unknown link types.
    pub fn check(&self, path: &Path, has_commands: bool) -> Result<(), Error> {
        if has_commands || !self.is_empty() {
            return Ok(());
        }
        let unknown = self.flaws.unknown.lines().map(|line| format!("; {line}")).collect();
        Err(Error::Nothing { path: path.to_owned(), unknown })
    }
}

/// Analyses the items of a capture.
#[derive(Debug, Default)]
pub struct Reading {
    analyser: Analyser,
    fabric: Fabric,
    events: Events,
    flaws: Flaws,
    /// The time of the first packet, and of the last.
    began: Option<Instant>,
    before: Instant,
}

impl Reading {
    /// A reading whose commands remember the numbers of their frames.
    pub fn remembering() -> Self {
        Self { analyser: Analyser::remembering(), fabric: Fabric::remembering(), ..Self::default() }
    }

    /// Adds the next frame and its content. Returns whether it is a PCIe packet or a segment of
    /// NVMe/TCP.
    pub fn see(&mut self, frame: &Frame<'_>, held: &Held<'_>) -> bool {
        let is_ours = match held {
            Held::Packet(packet) => {
                self.analyser.see(&packet.seen(frame));
                true
            }
            Held::Segment(segment) => self.fabric.see(segment),
            Held::Datagram(datagram) => self.fabric.see_datagram(datagram),
            Held::Malformed | Held::Foreign => false,
            Held::Unknown => {
                self.flaws.unknown.add(frame.link);
                return false;
            }
        };
        if is_ours {
            self.began.get_or_insert(frame.at);
        }
        self.flaws.note(frame.at, held, is_ours, &mut self.before);
        is_ours
    }

    /// Adds the next item of a file.
    pub fn see_item(&mut self, item: &Item<'_>) {
        match item {
            Item::Frame(frame) => {
                self.see(frame, &held(frame));
            }
            Item::Foreign => self.flaws.foreign += 1,
            Item::Note(note) => self.learn(note),
            Item::Tally(tally) => self.flaws.lost = self.flaws.lost.saturating_add(tally.lost),
            Item::Waits => {}
        }
    }

    /// Adopts a note of the capture, if it is about a controller.
    fn learn(&mut self, note: &str) {
        if let Some(controller) = knowledge_of(note) {
            self.analyser.learn(&controller);
        }
    }

    /// Shows a row of a table.
    pub(crate) fn see_row(&mut self, row: &Row<'_>) {
        match row {
            Row::Packet(seen) => self.see_packet(seen),
            Row::Foreign => self.flaws.foreign += 1,
            Row::Malformed => self.flaws.malformed += 1,
        }
    }

    fn see_packet(&mut self, seen: &Seen<'_>) {
        self.analyser.see(seen);
        self.began.get_or_insert(seen.at);
        self.flaws.in_order(seen.at, &mut self.before);
    }

    /// Shows a line of a tracer. Returns whether it is one of those that are understood.
    pub(crate) fn see_line(&mut self, line: &str) -> bool {
        let is_event = self.events.see(line);
        self.flaws.foreign += u64::from(!is_event);
        is_event
    }

    /// The time of the first packet; none for trace output.
    pub const fn began(&self) -> Option<Instant> {
        self.began
    }

    /// The next command that has ended.
    pub fn poll_command(&mut self) -> Option<Command> {
        let packets = self.analyser.poll_command().or_else(|| self.fabric.poll_command());
        packets.or_else(|| self.events.poll_command())
    }

    /// Ends the capture.
    pub fn finish(&mut self) {
        self.analyser.finish();
        self.fabric.finish();
        self.events.finish();
    }

    /// The analysis of the capture so far.
    pub fn analysis(&self) -> Analysis {
        let (statistics, fabric) = (self.analyser.statistics(), self.fabric.counts());
        let backwards = self.flaws.backwards + self.events.backwards();
        let flaws = Flaws { backwards, ..self.flaws };
        Analysis { statistics, fabric, words: self.events.counts(), flaws }
    }
}

impl Flaws {
    /// Notes whether a packet is earlier than the one `before`.
    fn in_order(&mut self, at: Instant, before: &mut Instant) {
        self.backwards += u64::from(at < *before);
        *before = at;
    }

    /// Notes the faults of a frame, and whether it is earlier than the one `before`.
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
