//! A capture as pages ask for it: read once, kept small, and read again where bytes are wanted.

mod blocks;
mod pack;
mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use captures::ordered::Queue;
use captures::statistics::Report;
use captures::{
    Analysis, Groups, Item, KINDS_MAX, OTHERS, Population, Reader, Reading, Source, each_command, held, name,
    of_kind,
};
use engine::Instant;
use schemars::JsonSchema;
use serde::Serialize;
use trace::Command;

use crate::error::Error;

pub(crate) use blocks::{Blocks, Class, Counts};
pub(crate) use table::{Key, Row, Table};

/// The commands of a kind.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) name: String,
    pub(crate) population: Population,
}

/// The index of a capture.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) path: PathBuf,
    /// The statistics that `trace stats --json` prints of it.
    pub(crate) statistics: Report,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) commands: Table,
    pub(crate) blocks: Blocks,
    /// The times of the first and the last packet.
    pub(crate) first: Instant,
    pub(crate) last: Instant,
    /// Why the file was not read to its end.
    pub(crate) broken: Option<String>,
}

/// The contents of a capture.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Summary<'a> {
    frames: u64,
    commands: usize,
    /// The time of the first packet since 1970, which is more than every reader's numbers hold.
    begins_ns: String,
    span_ns: u64,
    /// The output of `trace stats --json`.
    statistics: &'a Report,
    /// Commands for which there was no room.
    unlisted: u64,
    /// Commands whose packets had no room.
    without_packets: u64,
    /// Why the file was not read to its end; none if it was.
    broken: Option<&'a str>,
}

/// An index that is being made.
#[derive(Default)]
struct Making {
    kinds: Vec<Kind>,
    groups: Groups,
    commands: Table,
    blocks: Blocks,
    span: Option<(Instant, Instant)>,
}

impl Index {
    /// Reads the capture at `path`. Meanwhile `read` has the number of bytes that were read.
    ///
    /// # Errors
    /// When there is no capture. A cut or malformed capture is known up to there.
    pub(crate) fn make(path: &Path, read: &AtomicU64) -> Result<Self, Error> {
        let (mut making, mut reading) = (Making::default(), Reading::remembering());
        let mut reader = match Reader::open(path) {
            Ok(reader) => reader,
            Err(captures::Error::Broken { .. }) => {
                // A file that does not begin as a capture may be words.
                let words = Source { file: path, columns: None };
                let mut queue = Queue::default();
                let analysis = each_command(words, |command| making.add_oldest(queue.add(command)))?;
                queue.for_each(|command| making.add(&command));
                return Ok(making.finish(path, &analysis, None));
            }
            Err(error) => return Err(error.into()),
        };
        let mut queue = Queue::default();
        let whole = reader.each_item(|item| {
            let Item::Frame(frame) = item else {
                reading.see_item(&item);
                return true;
            };
            let held = held(&frame);
            let is_ours = reading.see(&frame, &held);
            making.blocks.add(&frame, &held, Class::of(&held, is_ours));
            making.reach(frame.at);
            while let Some(command) = reading.poll_command() {
                making.add_oldest(queue.add(command));
            }
            if frame.number.is_multiple_of(1 << 12) {
                read.store(frame.place.offset, Ordering::Relaxed);
            }
            true
        });
        reading.finish();
        while let Some(command) = reading.poll_command() {
            making.add_oldest(queue.add(command));
        }
        queue.for_each(|command| making.add(&command));
        making.blocks.keep(reader.into_preambles());
        if making.blocks.frames() == 0 {
            whole?;
            return Ok(making.finish(path, &reading.analysis(), None));
        }
        Ok(making.finish(path, &reading.analysis(), whole.err().map(|error| error.to_string())))
    }

    /// The populations of all kinds, by name.
    pub(crate) fn populations(&self, three_sigma: bool) -> BTreeMap<String, Population> {
        let one = |kind: &Kind| {
            let mut population = kind.population.clone();
            if three_sigma {
                population.filter();
            }
            (kind.name.clone(), population)
        };
        self.kinds.iter().map(one).collect()
    }

    /// The entry in lists of captures.
    pub(crate) fn summary(&self) -> Summary<'_> {
        let (unlisted, without_packets) = self.commands.left_out();
        Summary {
            frames: self.blocks.frames(),
            commands: self.commands.rows().len(),
            begins_ns: self.first.as_nanos().to_string(),
            span_ns: (self.last - self.first).get(),
            statistics: &self.statistics,
            unlisted,
            without_packets,
            broken: self.broken.as_deref(),
        }
    }
}

impl Making {
    fn reach(&mut self, at: Instant) {
        let (first, last) = self.span.unwrap_or((at, at));
        self.span = Some((first.min(at), last.max(at)));
    }

    fn add_oldest(&mut self, command: Option<Command>) {
        if let Some(command) = command {
            self.add(&command);
        }
    }

    fn add(&mut self, command: &Command) {
        of_kind(&mut self.groups, command.kind).add(command);
        let kind = self.kind_of(name(command.kind));
        self.kinds[kind].population.add(command);
        self.commands.add(u16::try_from(kind).unwrap_or(u16::MAX), command);
        if self.blocks.frames() == 0 {
            // Words of tracers have no frames.
            command.hops.iter().for_each(|hop| {
                self.reach(hop.first);
                self.reach(hop.last);
            });
        }
    }

    /// The place of the kind with this name.
    fn kind_of(&mut self, name: String) -> usize {
        if let Some(known) = self.kinds.iter().position(|kind| kind.name == name) {
            return known;
        }
        if self.kinds.len() < KINDS_MAX {
            let name = if self.kinds.len() + 1 < KINDS_MAX { name } else { OTHERS.to_owned() };
            self.kinds.push(Kind { name, population: Population::default() });
        }
        self.kinds.len() - 1
    }

    fn finish(self, path: &Path, analysis: &Analysis, broken: Option<String>) -> Index {
        let (first, last) = self.span.unwrap_or((Instant::ZERO, Instant::ZERO));
        Index {
            path: path.to_owned(),
            statistics: Report::of(analysis, &self.groups),
            kinds: self.kinds,
            commands: self.commands,
            blocks: self.blocks,
            first,
            last,
            broken,
        }
    }
}

#[cfg(test)]
mod tests {
    use captures::{LINK, Sink, Tally};

    use super::*;

    #[test]
    fn what_a_capture_says_beside_its_frames_is_known() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let sink = Sink::begin(file.reopen().unwrap(), LINK, &[]).unwrap();
        sink.finish(Tally { seen: 5, lost: 3 }).unwrap();
        let index = Index::make(file.path(), &AtomicU64::new(0)).unwrap();
        assert_eq!(index.statistics.lost, 3);
    }
}
