//! A pre-trigger: bytes wait in the buffer until the trigger, and the oldest are dropped.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Instant, Nanos};

use super::flight::{Flight, State};
use super::interface::FLUSH_DEFAULT;
use super::{Cause, Filling, Kind, Reason, Recorder, Taken};
use crate::format::{Gap, Header, Time, Trigger, capacity};

/// A pre-trigger keeps at most this part of the buffer, in quarters. Bytes that come while it is
/// written need the rest.
const KEPT_QUARTERS: usize = 3;
/// The most gaps that wait with the chunks. If there are more, the oldest chunks are let go.
const GAPS_MAX: usize = 65_536;
/// While this many chunks are on their way, no further one of those that waited is begun. A chunk
/// is digested when it is begun, and sources do not wait for that.
const BEGUN_MAX: usize = 64;
/// Streams that fill no chunks begin them so seldom that they take a quarter of the buffer.
const SLOW_PART: u64 = 4;
/// How much more than the rate may come within the time, in parts of it.
const BURSTS_PART: u128 = 64;

/// The most chunks of a buffer of `buffer` chunks that a pre-trigger keeps. The others are for
/// bytes that come while those are written.
pub const fn pre_trigger_chunks(buffer: usize) -> usize {
    buffer * KEPT_QUARTERS / 4
}

/// How many chunks of `chunk` bytes a buffer needs, so that a pre-trigger keeps all that
/// `streams` streams bring within `keep`, `rate` bytes a second together.
pub fn pre_trigger_buffer(rate: u64, keep: Nanos, chunk: u32, streams: usize) -> u64 {
    let bytes = u128::from(rate) * u128::from(keep.get()) / 1_000_000_000;
    // Bytes come in bursts.
    let full = (bytes + bytes / BURSTS_PART).div_ceil(capacity(chunk) as u128);
    // Each stream has a chunk that was not full, whenever they are closed, and one that began
    // before.
    let early = u128::from(keep.get() / FLUSH_DEFAULT.get() + 2) * streams as u128;
    let (all, part) = (SLOW_PART as u128, KEPT_QUARTERS as u128);
    // Early ones take no more than their part.
    let least = ((full + early) * 4).div_ceil(part).min((full * 4 * all).div_ceil(part * all - 4));
    u64::try_from(least).unwrap_or(u64::MAX)
}

/// The bytes that a recorder keeps while it waits for a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Bytes of the streams, lost ones included.
    pub bytes: u64,
    /// How long ago the first of them came.
    pub time: Nanos,
    /// Whether the buffer has become full: younger bytes were let go than was asked for.
    pub is_short: bool,
}

#[derive(Debug)]
enum Item {
    Chunk(usize, Filling),
    Gap(Gap),
}

/// Chunks and gaps that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// For how long bytes are kept; `None` if the recorder no longer waits for a trigger.
    keep: Option<Nanos>,
    /// By the time at which they ended.
    items: VecDeque<Item>,
    chunks: usize,
    /// Gaps without bytes that lie in a chunk which is not full yet.
    inside: Vec<Gap>,
    is_short: bool,
    trigger: Option<Trigger>,
}

impl Waiting {
    pub(super) fn new(keep: Option<Nanos>) -> Self {
        Self { keep, ..Self::default() }
    }

    pub(super) fn is_over(&self) -> bool {
        self.items.is_empty()
    }

    fn pop(&mut self) -> Option<Item> {
        let item = self.items.pop_front()?;
        self.chunks -= usize::from(matches!(item, Item::Chunk(..)));
        Some(item)
    }
}

impl Recorder {
    /// Whether bytes are kept until [`Recorder::trigger`] is called.
    pub const fn is_armed(&self) -> bool {
        self.waiting.keep.is_some()
    }

    /// When it was triggered, if it was.
    pub const fn triggered(&self) -> Option<Trigger> {
        self.waiting.trigger
    }

    /// How many bytes of a stream, lost ones included, came before the first one that is recorded,
    /// once it waits for no trigger any more.
    ///
    /// # Panics
    /// When there is no such stream.
    pub fn passed(&self, stream: usize) -> u64 {
        self.streams[stream].passed
    }

    /// The kept bytes, while the recorder waits for a trigger.
    pub fn kept(&self, now: Instant) -> Option<Kept> {
        self.waiting.keep?;
        let waiting = self.waiting.items.iter().find_map(|item| match item {
            Item::Chunk(_, filling) => Some(filling.began),
            Item::Gap(_) => None,
        });
        let filling = self.streams.iter().filter_map(|stream| stream.filling.as_ref());
        let filling = filling.filter(|filling| filling.length > 0).map(|filling| filling.began);
        let time = waiting.into_iter().chain(filling).min().map_or(Nanos::ZERO, |began| now - began);
        Some(Kept { bytes: self.progress.bytes_in, time, is_short: self.waiting.is_short })
    }

    /// Writes the kept bytes, and all that come from now on. The recording begins with the first
    /// byte that is kept. Returns false if it does not wait for a trigger.
    pub fn trigger(&mut self, now: Instant, time: Time) -> bool {
        self.let_go(now);
        if self.waiting.keep.take().is_none() {
            return false;
        }
        self.clock = self.clock.max(time.nanos);
        let first = self.rebase();
        let before = first.map_or(0, |first| time.nanos.saturating_sub(first));
        let trigger = Trigger { time: time.nanos, before };
        self.waiting.trigger = Some(trigger);
        // A medium that has no room for this has none for a chunk, which ends the recording.
        if let Some(taken) = self.take_slot() {
            self.control(Kind::Trigger, taken, time, |payload| trigger.emit(payload));
        }
        self.arm(now);
        self.go_on();
        true
    }

    /// Counts places from the first bytes that are kept, and declares the gaps behind them. Returns
    /// the earliest time of a chunk.
    fn rebase(&mut self) -> Option<u64> {
        let mut bases = alloc::vec![None; self.streams.len()];
        let (mut gaps, mut first) = (Vec::new(), None);
        let mut earliest =
            |time: Time| first = Some(first.map_or(time.nanos, |now: u64| now.min(time.nanos)));
        let items = core::mem::take(&mut self.waiting.items);
        for item in items {
            match item {
                Item::Chunk(stream, mut filling) => {
                    let base = *bases[stream].get_or_insert(filling.offset);
                    filling.offset -= base;
                    earliest(filling.time);
                    self.waiting.items.push_back(Item::Chunk(stream, filling));
                }
                Item::Gap(gap) => match bases[gap.stream as usize] {
                    Some(base) => gaps.push(Gap { from: gap.from - base, ..gap }),
                    // It lies before everything that is kept of its stream.
                    None => self.forget_gap(&gap),
                },
            }
        }
        for (number, (stream, base)) in (0..).zip(self.streams.iter_mut().zip(bases)) {
            let filling = stream.filling.as_mut().filter(|filling| filling.length > 0);
            let base = base.or(filling.as_ref().map(|filling| filling.offset)).unwrap_or(stream.bytes_in);
            let inside = self.waiting.inside.iter().filter(|gap| gap.stream == number);
            gaps.extend(inside.map(|gap| Gap { from: gap.from - base, ..*gap }));
            if let Some(filling) = filling {
                filling.offset -= base;
                earliest(filling.time);
            }
            stream.bytes_in -= base;
            stream.passed = base;
        }
        self.waiting.inside.clear();
        for gap in gaps {
            self.progress.lost -= gap.bytes;
            self.declare(gap);
        }
        first
    }

    fn forget_gap(&mut self, gap: &Gap) {
        self.progress.lost -= gap.bytes;
        self.pass(gap.bytes);
    }

    const fn pass(&mut self, bytes: u64) {
        self.progress.bytes_in -= bytes;
        self.progress.passed += bytes;
    }

    fn let_go_filling(&mut self, filling: Filling) {
        self.progress.fill -= filling.length as u64;
        self.pass(filling.length as u64);
        self.release(filling.buffer);
    }

    /// Lets go of the oldest chunk, and of the gaps behind it: they lie before everything that is
    /// kept. Returns whether there was one.
    pub(super) fn let_go_first(&mut self) -> bool {
        let item = self.waiting.pop();
        let was_there = item.is_some();
        match item {
            Some(Item::Chunk(_, filling)) => self.let_go_filling(filling),
            Some(Item::Gap(gap)) => self.forget_gap(&gap),
            None => {}
        }
        while let Some(Item::Gap(gap)) = self.waiting.items.front() {
            let gap = *gap;
            self.waiting.pop();
            self.forget_gap(&gap);
        }
        was_there
    }

    /// Lets go of chunks whose last byte is too old.
    pub(super) fn let_go(&mut self, now: Instant) {
        let Some(keep) = self.waiting.keep else { return };
        loop {
            match self.waiting.items.front() {
                Some(Item::Chunk(_, filling)) if now - filling.ended <= keep => return,
                None => return,
                Some(_) => self.let_go_first(),
            };
        }
    }

    /// Drops all kept bytes: there was no trigger, and there will be none.
    pub(super) fn let_go_all(&mut self) {
        if self.waiting.keep.take().is_none() {
            return;
        }
        while self.let_go_first() {}
        // Those have no bytes.
        self.waiting.inside.clear();
        for stream in 0..self.streams.len() {
            if let Some(filling) = self.streams[stream].filling.take() {
                self.let_go_filling(filling);
            }
            let stream = &mut self.streams[stream];
            stream.passed = core::mem::take(&mut stream.bytes_in);
        }
    }

    /// How long a chunk that is not full waits for more bytes.
    pub(super) fn patience(&self) -> Nanos {
        let Some(keep) = self.waiting.keep else { return self.config.flush };
        let spans = (self.config.buffer as u64 / SLOW_PART / self.streams.len() as u64).max(1);
        self.config.flush.max(Nanos::new(keep.get() / spans))
    }

    /// A chunk of a stream begins its way to the medium: at once, unless it or others wait.
    pub(super) fn begin(&mut self, stream: usize, filling: Filling) {
        if !self.is_armed() && self.waiting.is_over() {
            if !self.launch_data(stream, filling) {
                self.finish(Reason::Full);
            }
            return;
        }
        self.waiting.items.push_back(Item::Chunk(stream, filling));
        self.waiting.chunks += 1;
        if !self.waiting.inside.is_empty() {
            let is_inside = |gap: &mut Gap| gap.stream as usize == stream;
            let inside = self.waiting.inside.extract_if(.., is_inside);
            self.waiting.items.extend(inside.map(Item::Gap));
            self.limit_gaps();
        }
        if self.is_armed() && self.waiting.chunks > pre_trigger_chunks(self.config.buffer) {
            self.waiting.is_short = true;
            self.let_go_first();
        }
    }

    /// Keeps a gap with the chunks that wait. Returns false if it is to be declared at once.
    pub(super) fn hold_gap(&mut self, gap: Gap) -> bool {
        if !self.is_armed() {
            return false;
        }
        self.progress.lost += gap.bytes;
        if self.has_bytes(gap.stream as usize) {
            self.hold_inside(gap);
            return true;
        }
        match self.waiting.items.back_mut() {
            // Nothing is kept of which it could be a gap.
            None => self.forget_gap(&gap),
            Some(Item::Gap(last)) if last.goes_on_as(&gap) => last.extend(&gap),
            Some(_) => self.waiting.items.push_back(Item::Gap(gap)),
        }
        self.limit_gaps();
        true
    }

    /// A gap in a chunk that is not full yet: the chunk may be kept or let go.
    fn hold_inside(&mut self, gap: Gap) {
        let is_full = self.waiting.inside.len() >= GAPS_MAX;
        let last = self.waiting.inside.iter_mut().rev().find(|last| last.stream == gap.stream);
        // Of too many, the places of some are given up, and no packet.
        match last.filter(|last| is_full || last.goes_on_as(&gap)) {
            Some(last) => last.extend(&gap),
            None => self.waiting.inside.push(gap),
        }
    }

    fn limit_gaps(&mut self) {
        while self.waiting.items.len() - self.waiting.chunks > GAPS_MAX {
            self.waiting.is_short = true;
            self.let_go_first();
        }
    }

    /// Begins chunks that waited, as long as few are on their way. Returns whether there were any.
    pub(super) fn launch_waiting(&mut self) -> bool {
        let mut has_begun = false;
        while !self.is_armed() && self.flights.len() < BEGUN_MAX {
            let Some(Item::Chunk(stream, filling)) = self.waiting.pop() else { break };
            has_begun = true;
            if !self.launch_data(stream, filling) {
                self.finish(Reason::Full);
            }
        }
        has_begun
    }

    /// Gives a chunk a slot. Without one, its bytes are lost, and the result is false.
    fn launch_data(&mut self, stream: usize, filling: Filling) -> bool {
        let header = Header {
            stream: u32::try_from(stream).unwrap_or(u32::MAX),
            offset: filling.offset,
            length: u32::try_from(filling.length).unwrap_or(u32::MAX),
            ..self.header(Kind::Data, filling.time)
        };
        let taken = self.take_slot();
        let (buffer, state) = (filling.buffer, State::UnderWay);
        let Taken { slot, overwrote } = taken.unwrap_or(Taken { slot: 0, overwrote: None });
        let header = Some(Header { overwrote, ..header });
        self.launch(Flight { header, slot, buffer, state, failures: 0 });
        if taken.is_none() {
            self.to_write.pop_back();
            self.lose_flight(self.first + self.flights.len() as u64 - 1, Cause::Full);
        }
        taken.is_some()
    }
}
