//! The part of a stream that a person asked for, read ahead of its use.

use std::io;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::Nanos;
use live::drivers::record::{Block, Recording};
use record::format::{Content, Entry, HEADER_LENGTH, PACKET_HEAD, Packet, Packets};
use record::{BUFFER_DEFAULT, BUFFER_MAX, BUFFER_MIN, FLUSH_DEFAULT, Survey};

use super::trigger::date;
use super::{first, open_recording, unreadable};
use crate::args::{Moment, RangeArgs};
use crate::error::Error;

/// The last chunk of a stream has no later bytes: a recorder ends a chunk that is not full earlier.
const LAST_CHUNK: Nanos = Nanos::new(2 * FLUSH_DEFAULT.get());

/// Part of a stream.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// The type of the stream's bytes.
    pub(super) content: Content,
    /// The chunks that have some of the part, by place in the stream.
    pub(super) entries: Vec<Entry>,
    /// The places in the stream.
    pub(super) places: Range<u64>,
    /// The times in nanoseconds since 1970.
    times: Range<u64>,
}

impl Part {
    /// The part of stream number `stream` that `range` asks for.
    ///
    /// # Errors
    /// When the recording has no such stream, or the part lies behind its end.
    pub(super) fn of(survey: &Survey, stream: u32, range: &RangeArgs) -> Result<Self, Error> {
        let streams = survey.streams() as u64;
        if u64::from(stream) >= streams {
            let (value, expected) = (u64::from(stream), format!("less than {streams}"));
            return Err(Error::Range { what: "--stream", value, expected });
        }
        let content = survey.superblock.as_ref().map(|known| known.content(stream as usize));
        let entries = survey.entries.iter().filter(|entry| entry.stream == stream);
        let mut entries: Vec<_> = entries.copied().collect();
        let first = entries.iter().map(|entry| entry.time).min().unwrap_or(0);
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let from = match range.from_time {
            None => 0,
            Some(Moment::After(time)) => first.saturating_add(nanos(time)),
            Some(Moment::At(time)) => time,
        };
        let until = range.time.map_or(u64::MAX, |time| from.max(first).saturating_add(nanos(time)));
        let start = range.from_offset.unwrap_or(0);
        let behind = entries.last().map_or(0, Entry::end);
        if start >= behind && behind > 0 {
            let expected = format!("less than {behind}, where the stream ends");
            return Err(Error::Range { what: "--from-offset", value: start, expected });
        }
        let last = last_time(survey, &entries);
        if from > last {
            return Err(Error::BehindEnd { asked: date(from), end: date(last) });
        }
        let from_time = |place: u64| range.bytes.map_or(u64::MAX, |bytes| place.saturating_add(bytes));
        // A chunk has the bytes that came until the next one began.
        let ends: Vec<_> = entries.iter().skip(1).map(|entry| entry.time).chain([u64::MAX]).collect();
        let mut ends = ends.into_iter();
        entries.retain(|entry| {
            let end = ends.next().unwrap_or(u64::MAX);
            entry.end() > start && entry.time < until && (end > from || entry.time >= from)
        });
        let start = entries.first().map_or(start, |entry| entry.offset.max(start));
        let places = start..from_time(range.from_offset.unwrap_or(start));
        entries.retain(|entry| entry.offset < places.end);
        Ok(Self { content: content.unwrap_or_default(), entries, places, times: from..until })
    }

    /// The bytes that the part has.
    pub(super) fn bytes(&self) -> u64 {
        let within = |entry: &Entry| entry.end().min(self.places.end) - entry.offset.max(self.places.start);
        self.entries.iter().map(within).sum()
    }

    /// The bytes between the part's chunks, which the recording has not.
    pub(super) fn lost(&self) -> u64 {
        let pairs = self.entries.windows(2);
        pairs.map(|pair| pair[1].offset.saturating_sub(pair[0].end())).sum()
    }

    /// The time at which the part begins, in nanoseconds since 1970; 0 where a place was asked for.
    pub(super) const fn time(&self) -> u64 {
        self.times.start
    }

    /// Whether the stream consists of packets.
    pub(super) const fn is_packets(&self) -> bool {
        matches!(self.content, Content::Packets(_))
    }
}

/// The latest time at which something of the last of `entries` may have come.
fn last_time(survey: &Survey, entries: &[Entry]) -> u64 {
    let Some(last) = entries.last() else { return u64::MAX };
    match survey.trigger.is_some_and(|trigger| last.time < trigger.time) {
        // A chunk that waited for a trigger may have taken long.
        true => u64::MAX,
        false => last.time.saturating_add(LAST_CHUNK.get()),
    }
}

/// A chunk that was read.
pub(super) struct Chunk {
    pub(super) entry: Entry,
    block: Block,
}

impl Chunk {
    fn payload(&self) -> &[u8] {
        &self.block[HEADER_LENGTH..][..self.entry.length as usize]
    }

    /// The place of the first of [`Chunk::bytes`] in its stream.
    pub(super) fn place(&self, part: &Part) -> u64 {
        self.entry.offset.max(part.places.start)
    }

    /// The chunk's bytes within the part.
    pub(super) fn bytes(&self, part: &Part) -> &[u8] {
        let cut = |place: u64| usize::try_from(place - self.entry.offset).unwrap_or(usize::MAX);
        &self.payload()[cut(self.place(part))..cut(self.entry.end().min(part.places.end))]
    }

    /// The packets that begin within the part.
    pub(super) fn packets<'a>(&'a self, part: &'a Part) -> impl Iterator<Item = Packet<'a>> {
        let payload = self.payload();
        let mut packets = Packets::of(payload);
        std::iter::from_fn(move || {
            let packet = packets.next()?;
            let behind = payload.len() - packets.rest().len();
            Some(((behind - PACKET_HEAD - packet.bytes.len()) as u64, packet))
        })
        .filter(|(place, packet)| {
            let is_there = part.places.contains(&(self.entry.offset + place));
            is_there && part.times.contains(&packet.time.nanos)
        })
        .map(|(_, packet)| packet)
    }
}

/// Bad parts that were left out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeftOut {
    pub(super) chunks: u64,
    /// The bytes of their streams.
    pub(super) bytes: u64,
}

/// The part to read, and its destination.
struct Order {
    entries: Vec<Entry>,
    passes: u64,
    sender: SyncSender<io::Result<Chunk>>,
    free: Receiver<Block>,
}

/// A recording that a thread of its own has opened, wherever it is.
pub(super) struct Opened {
    /// The content of the recording.
    pub(super) survey: Survey,
    orders: Sender<Order>,
    thread: JoinHandle<LeftOut>,
}

impl Opened {
    /// Opens a recording.
    pub(super) fn open(paths: &[PathBuf]) -> Result<Self, Error> {
        let failed = |error| Error::File { path: first(paths).to_owned(), error };
        let (surveys, survey) = channel();
        let (orders, order) = channel::<Order>();
        let names = paths.to_owned();
        live::sys::huge_pages::one_heap();
        // The driver of another device stays on the thread that made it.
        let thread = std::thread::Builder::new().name("read-ahead".into()).spawn(move || {
            let mut recording = match open_recording(&names) {
                Ok(recording) => recording,
                Err(error) => {
                    let _ = surveys.send(Err(error));
                    return LeftOut::default();
                }
            };
            // The opener may want no part of it. A long recording has many chunks: they are kept
            // once.
            let entries = std::mem::take(&mut recording.survey.entries);
            let _ = surveys.send(Ok(Survey { entries, ..recording.survey.clone() }));
            order.recv().map(|order| order.run(&recording)).unwrap_or_default()
        });
        let thread = thread.map_err(failed)?;
        let survey = survey.recv().map_err(|_| failed(io::ErrorKind::BrokenPipe.into()))??;
        Ok(Self { survey, orders, thread })
    }

    /// Begins to read `entries`, `passes` times; 0 is without end. The ring has room for `buffer`
    /// bytes, or for as much as a recorder's buffer.
    pub(super) fn read(self, entries: Vec<Entry>, passes: u64, buffer: Option<u64>) -> Ahead {
        let chunk = u64::from(self.survey.chunk);
        let wanted = buffer.map(|bytes| usize::try_from(bytes / chunk).unwrap_or(usize::MAX));
        let room = wanted.map_or(BUFFER_DEFAULT, |chunks| chunks.clamp(BUFFER_MIN, BUFFER_MAX));
        live::sys::huge_pages::prepare(room, self.survey.chunk as usize);
        let (sender, chunks) = sync_channel(room);
        let (used, free) = channel();
        // A thread that is gone sends nothing, and that is noticed at the first chunk.
        let _ = self.orders.send(Order { entries, passes, sender, free });
        Ahead { chunks, used, room, thread: self.thread }
    }
}

/// A part of a recording, read on a thread of its own as far ahead as a ring has room.
pub(super) struct Ahead {
    chunks: Receiver<io::Result<Chunk>>,
    used: Sender<Block>,
    room: usize,
    thread: JoinHandle<LeftOut>,
}

impl Ahead {
    /// The number of chunks that are read ahead at most.
    pub(super) const fn room(&self) -> usize {
        self.room
    }

    /// The next chunk that is whole; `None` behind the last.
    pub(super) fn next(&self, path: &Path) -> Result<Option<Chunk>, Error> {
        let chunk = self.chunks.recv().ok().transpose();
        chunk.map_err(|error| unreadable(path, error.into()))
    }

    /// Gives back a chunk that is not needed any more.
    pub(super) fn give_back(&self, chunk: Chunk) {
        // Once everything is read, the block has no further use.
        let _ = self.used.send(chunk.block);
    }

    /// Ends the reading. Returns the parts that a pass left out.
    pub(super) fn finish(self) -> LeftOut {
        drop(self.chunks);
        self.thread.join().unwrap_or_default()
    }
}

impl Order {
    /// Returns the parts that the last pass left out.
    fn run(self, recording: &Recording) -> LeftOut {
        let mut bad = LeftOut::default();
        let mut pass = 0;
        while (self.passes == 0 || pass < self.passes) && bad.chunks < self.entries.len() as u64 {
            bad = LeftOut::default();
            let length = recording.survey.chunk as usize;
            let mut spare = || self.free.try_recv().unwrap_or_else(|_| Block::of(length));
            let mut is_over = false;
            recording.chunks(&self.entries, &mut spare, &mut |entry, block| {
                let sent = match block {
                    Ok(Ok(block)) => self.sender.send(Ok(Chunk { entry, block })),
                    Ok(Err(_)) => {
                        bad.chunks += 1;
                        bad.bytes += u64::from(entry.length);
                        return ControlFlow::Continue(());
                    }
                    Err(error) => self.sender.send(Err(error)),
                };
                is_over = sent.is_err();
                if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            if is_over {
                return bad;
            }
            pass += 1;
        }
        bad
    }
}
