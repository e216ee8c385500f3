//! The recorder: streams of bytes become chunks, and chunks become writes.

mod declaring;
mod digesting;
mod ending;
mod filling_up;
mod flight;
mod interface;
mod losing;
mod ring;
mod waiting;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::digest::Algorithm;
use crate::format::{
    CERTIFICATE_SLOT, Cause, Certificate, Entry, FIRST_SLOT, GAP_SLOT, Gap, HEADER_LENGTH, HOLDING_SLOTS,
    Header, Index, Kind, Place, Reason, STREAMS_MAX, SUPERBLOCK_SLOT, Superblock, Time, capacity,
    is_chunk_length,
};
use digesting::{Digesting, StreamDigest};
use ending::Phase;
use engine::{Buffer, Engine, Instant, Pool};
pub use interface::{Config, Digests, FLUSH_DEFAULT, Fault, Input, Output, Progress};
pub use losing::Missed;
pub use ring::{Keep, PinRange, PinRefusal, RingConfig};
pub use waiting::{Kept, pre_trigger_buffer, pre_trigger_chunks};

use flight::{Flight, Search, State};
use losing::Cuts;
use ring::{Ring, Taken};
use waiting::Waiting;

/// The fewest chunks of a recorder's buffer.
pub const BUFFER_MIN: usize = 32;
/// The most chunks of a recorder's buffer.
pub const BUFFER_MAX: usize = 16_384;
/// The default number of chunks in a buffer.
pub const BUFFER_DEFAULT: usize = 256;
/// How often a chunk is tried, each time in a new slot, until its bytes are declared lost.
pub(crate) const ATTEMPTS_MAX: u32 = 3;
/// After this many lost chunks in a row, the medium counts as failed and the recording ends.
pub(crate) const LOST_IN_A_ROW_MAX: u32 = 16;
/// The most gaps that are kept for a report; the medium has all of them.
pub(crate) const GAPS_REPORTED_MAX: usize = 65_536;

/// Bytes of a stream that are not a whole chunk yet.
#[derive(Debug)]
struct Filling {
    buffer: Buffer,
    length: usize,
    offset: u64,
    time: Time,
    /// When the first of them came, and the last.
    began: Instant,
    ended: Instant,
}

/// A stream's account.
#[derive(Debug)]
struct Stream {
    filling: Option<Filling>,
    /// Bytes that came, lost ones included: the place of the next byte.
    bytes_in: u64,
    /// Bytes that came before the first one that is recorded, and were let go.
    passed: u64,
    stored: u64,
    lost: u64,
    /// How many more gaps may end a chunk before it is full.
    cuts: Cuts,
    digest: StreamDigest,
}

impl Stream {
    fn new(algorithm: Algorithm) -> Self {
        Self {
            filling: None,
            bytes_in: 0,
            passed: 0,
            stored: 0,
            lost: 0,
            cuts: Cuts::default(),
            digest: StreamDigest::new(algorithm),
        }
    }
}

/// Records streams of bytes. See the crate's page for a run loop.
#[derive(Debug)]
pub struct Recorder {
    config: Config,
    streams: Vec<Stream>,
    /// Chunks on their way, in the order of their sequence numbers.
    flights: VecDeque<Flight>,
    /// The sequence number of the first of them.
    first: u64,
    /// Chunks that the world is to be asked to write.
    to_write: VecDeque<u64>,
    /// Blocks for chunks, ready for reuse.
    free: Vec<Buffer>,
    digesting: Digesting,
    /// Blocks with bytes of streams in them.
    in_use: usize,
    waiting: Waiting,
    next_slot: u64,
    ring: Option<Ring>,
    search: Option<Search>,
    lost_in_a_row: u32,
    /// Bad slots that this recorder knows it may have left.
    bad: u64,
    /// Gaps that no chunk declares yet.
    undeclared: Vec<Gap>,
    gaps: Vec<Gap>,
    gap_count: u64,
    /// Stored chunks that no index names yet.
    unindexed: Vec<Entry>,
    last_index: u64,
    progress: Progress,
    /// The latest time that the world gave, for gaps that are found later.
    clock: u64,
    tick: Option<Instant>,
    wants_sync: bool,
    /// Stored bytes that the sync under way makes durable.
    syncing: Option<u64>,
    phase: Phase,
    reason: Reason,
    is_certified: bool,
    /// Whether the slot of the last gap records has some.
    is_gap_slot_used: bool,
    /// Whether the medium did not take a chunk of the recording's accounts.
    is_damaged: bool,
    /// Whether the medium failed to make durable the bytes that it had taken.
    is_forgetful: bool,
    ended: Option<Certificate>,
}

/// A block of zeroes for a chunk, aligned as direct I/O wants it.
fn block(chunk: u32) -> Buffer {
    let mut block = Pool::new(0).take(chunk as usize);
    block.fill(0);
    block.freeze()
}

impl Recorder {
    /// Begins a recording at `time`.
    ///
    /// # Panics
    /// When the configuration is outside its limits.
    pub fn new(config: Config, time: Time) -> Self {
        assert!(is_chunk_length(config.chunk), "a chunk of {} bytes", config.chunk);
        assert!((BUFFER_MIN..=BUFFER_MAX).contains(&config.buffer), "{} chunks", config.buffer);
        assert!((1..=STREAMS_MAX).contains(&config.streams.len()), "{} streams", config.streams.len());
        let streams = config.streams.iter().map(|_| Stream::new(config.algorithm)).collect();
        let ring = config.ring.clone().map(|ring| {
            let slots = config.slots.unwrap_or(0);
            assert!(slots >= RingConfig::slots_min(config.buffer), "a ring of {slots} slots");
            Ring::new(ring, slots)
        });
        let is_ring = ring.is_some();
        assert!(!is_ring || config.pre_trigger.is_none(), "a ring waits for no trigger");
        let waiting = Waiting::new(config.pre_trigger);
        let mut recorder = Self {
            config,
            streams,
            flights: VecDeque::new(),
            first: 0,
            to_write: VecDeque::new(),
            free: Vec::new(),
            digesting: Digesting::default(),
            in_use: 0,
            waiting,
            next_slot: FIRST_SLOT,
            ring,
            search: None,
            lost_in_a_row: 0,
            bad: 0,
            undeclared: Vec::new(),
            gaps: Vec::new(),
            gap_count: 0,
            unindexed: Vec::new(),
            last_index: 0,
            progress: Progress::default(),
            clock: time.nanos,
            tick: None,
            wants_sync: false,
            syncing: None,
            phase: Phase::Recording,
            reason: Reason::SourceEnded,
            is_certified: false,
            is_gap_slot_used: false,
            is_damaged: false,
            is_forgetful: false,
            ended: None,
        };
        let Config { streams, contents, rules, .. } = recorder.config.clone();
        let superblock = Superblock { streams, contents, is_ring, rules };
        let start = Taken { slot: SUPERBLOCK_SLOT, overwrote: None };
        recorder.control(Kind::Superblock, start, time, |payload| superblock.emit(payload));
        // Former content of the medium is no account of this recording.
        let blank = [CERTIFICATE_SLOT, GAP_SLOT, HOLDING_SLOTS[1]];
        for slot in blank.into_iter().take(if is_ring { 3 } else { 2 }) {
            let buffer = block(recorder.config.chunk);
            recorder.launch(Flight { header: None, slot, buffer, state: State::UnderWay, failures: 0 });
        }
        recorder.write_holding();
        recorder
    }

    /// Where the next bytes of a stream go; `None` when the buffer is full or the recording ends. A
    /// source that cannot wait declares with [`Recorder::lose`] the bytes that came meanwhile. When
    /// the buffer is full, another stream may lose the room into which it has put nothing.
    ///
    /// # Panics
    /// When there is no such stream.
    pub fn room(&mut self, now: Instant, stream: usize) -> Option<&mut [u8]> {
        if self.phase != Phase::Recording {
            return None;
        }
        self.let_go(now);
        if self.streams[stream].filling.is_none() {
            if self.in_use == self.config.buffer {
                self.take_back();
            }
            if self.in_use == self.config.buffer && self.is_armed() {
                self.let_go_first();
            }
            if self.in_use == self.config.buffer {
                return None;
            }
            let buffer = self.free.pop().unwrap_or_else(|| block(self.config.chunk));
            self.in_use += 1;
            let offset = self.streams[stream].bytes_in;
            self.streams[stream].filling =
                Some(Filling { buffer, length: 0, offset, time: Time::NONE, began: now, ended: now });
        }
        self.arm(now);
        let filling = self.streams[stream].filling.as_mut()?;
        let start = HEADER_LENGTH + filling.length;
        filling.buffer.try_mut().map(|bytes| &mut bytes[start..])
    }

    /// Takes back a block into which its stream has put nothing: as many streams may be silent as
    /// the buffer has chunks.
    fn take_back(&mut self) {
        let mut streams = self.streams.iter_mut();
        let unused = streams.find_map(|stream| stream.filling.take_if(|filling| filling.length == 0));
        if let Some(filling) = unused {
            self.release(filling.buffer);
        }
    }

    /// The first `bytes` of what [`Recorder::room`] returned last for this stream are filled,
    /// at `time`.
    ///
    /// # Panics
    /// When there was no such room.
    pub fn filled(&mut self, now: Instant, stream: usize, bytes: usize, time: Time) {
        self.arm(now);
        let capacity = capacity(self.config.chunk);
        let account = &mut self.streams[stream];
        let filling = account.filling.as_mut().expect("room was taken");
        if filling.length == 0 {
            filling.time = time;
            filling.offset = account.bytes_in;
            filling.began = now;
        }
        filling.ended = now;
        filling.length += bytes;
        assert!(filling.length <= capacity, "more bytes than there was room for");
        let is_full = filling.length == capacity;
        account.bytes_in += bytes as u64;
        self.clock = self.clock.max(time.nanos);
        self.progress.bytes_in += bytes as u64;
        self.progress.fill += bytes as u64;
        self.progress.high_water = self.progress.high_water.max(self.progress.fill);
        if is_full {
            account.cuts.on_full_chunk();
            self.close(stream);
        }
    }

    /// Ends the chunk that a stream fills, so that its next bytes begin a chunk: for records that
    /// are too long for the room that is left.
    ///
    /// # Panics
    /// When there is no such stream.
    pub fn end_chunk(&mut self, stream: usize) {
        if self.phase == Phase::Recording {
            self.close(stream);
        }
    }

    /// Declares that the next `bytes` of a stream were lost at `place`, because of `cause`.
    pub fn lose(&mut self, now: Instant, stream: usize, bytes: u64, when: u64, place: Place, cause: Cause) {
        if bytes == 0 || self.phase != Phase::Recording {
            return;
        }
        self.arm(now);
        self.close(stream);
        // The chunk that was closed may have found the medium full.
        if self.phase != Phase::Recording {
            return;
        }
        let from = self.streams[stream].bytes_in;
        self.streams[stream].bytes_in += bytes;
        self.progress.bytes_in += bytes;
        self.clock = self.clock.max(when);
        let number = u32::try_from(stream).unwrap_or(u32::MAX);
        self.declare(Gap { stream: number, from, bytes, packets: 0, when, place, cause });
    }

    /// Ends the recording: everything that came is written, then the certificate. The first
    /// reason counts.
    pub fn finish(&mut self, reason: Reason) {
        if self.phase != Phase::Recording {
            return;
        }
        self.reason = reason;
        self.let_go_all();
        (0..self.streams.len()).for_each(|stream| self.close(stream));
        // A chunk that finds the medium full has ended the recording already.
        if self.phase != Phase::Recording {
            return;
        }
        self.phase = Phase::Draining;
        self.go_on();
    }

    /// How far the recording is.
    pub const fn progress(&self) -> Progress {
        self.progress
    }

    /// The gaps so far; the first 65,536 of them.
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// Whether the medium has a certificate, and every gap record.
    pub fn is_certified(&self) -> bool {
        self.phase == Phase::Ended && self.is_certified && !self.is_damaged && !self.is_forgetful
    }

    fn arm(&mut self, now: Instant) {
        let patience = self.patience();
        self.tick.get_or_insert(now + patience);
    }

    /// Makes a chunk of the bytes that a stream has, if it has any.
    fn close(&mut self, stream: usize) {
        if self.streams[stream].filling.as_ref().is_none_or(|filling| filling.length == 0) {
            return;
        }
        let Some(mut filling) = self.streams[stream].filling.take() else { return };
        let end = HEADER_LENGTH + filling.length;
        if let Some(bytes) = filling.buffer.try_mut() {
            // The former content of the block must not reach the medium.
            bytes[end..].fill(0);
        }
        self.begin(stream, filling);
        self.go_on();
    }

    fn header(&self, kind: Kind, time: Time) -> Header {
        let sequence = self.first + self.flights.len() as u64;
        let (recording, chunk) = (self.config.recording, self.config.chunk);
        let (stream, slot, offset, length, overwrote) = (0, 0, 0, 0, None);
        Header { kind, recording, slot, sequence, chunk, stream, offset, length, time, overwrote }
    }

    /// Writes a chunk that is no stream's.
    fn control(&mut self, kind: Kind, taken: Taken, time: Time, emit: impl FnOnce(&mut [u8]) -> usize) {
        let mut buffer = block(self.config.chunk);
        let bytes = buffer.try_mut().expect("a new block has no other holder");
        let length = u32::try_from(emit(&mut bytes[HEADER_LENGTH..])).unwrap_or(u32::MAX);
        let Taken { slot, overwrote } = taken;
        let header = Some(Header { length, overwrote, ..self.header(kind, time) });
        self.launch(Flight { header, slot, buffer, state: State::UnderWay, failures: 0 });
    }

    fn launch(&mut self, mut flight: Flight) {
        flight.seal(self.config.crc32c);
        self.to_write.push_back(self.first + self.flights.len() as u64);
        self.flights.push_back(flight);
    }

    /// The flight of that name, if it is there.
    fn flight(&mut self, name: u64) -> Option<&mut Flight> {
        let at = usize::try_from(name.checked_sub(self.first)?).ok()?;
        self.flights.get_mut(at)
    }

    fn on_written(&mut self, name: u64, result: Result<(), Fault>) {
        if self.search.is_some_and(|search| search.name == name) {
            return self.on_tried(name, result);
        }
        let chunk = u64::from(self.config.chunk);
        let Some(flight) = self.flight(name).filter(|flight| flight.state == State::UnderWay) else { return };
        match result {
            Ok(()) => {
                flight.state = State::Stored;
                let behind = flight.data().map(|_| flight.slot * chunk + flight.length() as u64);
                self.progress.last_address = behind.unwrap_or(self.progress.last_address);
                self.lost_in_a_row = 0;
            }
            Err(Fault::Full) if flight.data().is_some() => {
                flight.state = State::Parked;
                self.finish(Reason::Full);
            }
            Err(fault) => self.try_again(name, fault),
        }
    }

    /// Tries a chunk in another slot, unless it was tried often enough.
    fn try_again(&mut self, name: u64, fault: Fault) {
        let crc = self.config.crc32c;
        let Some(flight) = self.flight(name) else { return };
        flight.failures += 1;
        let is_holding = flight.header.is_some_and(|header| header.kind == Kind::Holding);
        let is_reserved = flight.slot < FIRST_SLOT || flight.header.is_none() || is_holding;
        let (before, again) = (flight.slot, Taken { slot: flight.slot, overwrote: None });
        if fault == Fault::Failed && flight.failures < ATTEMPTS_MAX {
            let taken = if is_reserved { Some(again) } else { self.take_slot() };
            if let (Some(Taken { slot, overwrote }), Some(flight)) = (taken, self.flight(name)) {
                flight.slot = slot;
                if let Some(header) = &mut flight.header {
                    header.overwrote = overwrote;
                }
                flight.seal(crc);
                self.bad += u64::from(!is_reserved);
                self.to_write.push_back(name);
                if let Some(ring) = self.ring.as_mut().filter(|_| slot != before) {
                    ring.free(before);
                }
                return;
            }
        }
        self.lost_in_a_row += 1;
        let (cause, reason) = match fault {
            Fault::Full => (Cause::Full, Reason::Full),
            Fault::Failed => (Cause::Failed, Reason::Failed),
        };
        self.lose_flight(name, cause);
        // Without the start of the medium there is no recording.
        if (is_reserved && !is_holding) || fault == Fault::Full || self.lost_in_a_row >= LOST_IN_A_ROW_MAX {
            self.finish(reason);
        }
    }

    /// Takes leave of chunks whose end is known, in order.
    fn retire(&mut self) {
        while let Some(flight) = self.flights.front() {
            if !matches!(flight.state, State::Stored | State::Lost) {
                return;
            }
            let Some(flight) = self.flights.pop_front() else { return };
            self.first += 1;
            if let Some(ring) = &mut self.ring {
                ring.retire(&flight, self.config.algorithm);
            }
            let Some(header) = flight.data().copied() else { continue };
            match flight.state {
                State::Stored => self.count_stored(&header, flight.slot, flight.buffer),
                _ => self.release(flight.buffer),
            }
        }
    }

    /// Takes back a block.
    fn release(&mut self, mut block: Buffer) {
        self.in_use -= 1;
        if block.try_mut().is_some() {
            self.free.push(block);
        }
    }

    fn count_stored(&mut self, header: &Header, slot: u64, chunk: Buffer) {
        self.digest(header, chunk);
        let stream = &mut self.streams[header.stream as usize];
        stream.stored += u64::from(header.length);
        self.progress.stored += u64::from(header.length);
        self.progress.fill -= u64::from(header.length);
        if self.ring.is_some() {
            // An index would be overwritten before the chunks that it names.
            return;
        }
        let (stream, offset, length) = (header.stream, header.offset, header.length);
        self.unindexed.push(Entry { slot, stream, offset, length, time: header.time.nanos });
    }

    /// Declares gaps and chunks on the medium, once there are enough of them for a chunk.
    fn write_accounts(&mut self, all_gaps: bool) {
        let capacity = capacity(self.config.chunk);
        let most = Gap::most(capacity);
        while self.undeclared.len() >= most || (all_gaps && !self.undeclared.is_empty()) {
            let Some(taken) = self.take_slot() else { return };
            let gaps: Vec<_> = self.undeclared.drain(..most.min(self.undeclared.len())).collect();
            let time = self.time();
            self.control(Kind::Gaps, taken, time, |payload| Gap::emit(&gaps, payload));
        }
        if self.unindexed.len() >= Index::most(capacity) {
            self.write_index();
        }
    }

    fn write_index(&mut self) {
        let most = Index::most(capacity(self.config.chunk)).min(self.unindexed.len());
        let Some(taken) = self.take_slot() else { return };
        let index = Index { previous: self.last_index, entries: self.unindexed.drain(..most).collect() };
        self.last_index = taken.slot;
        let time = self.time();
        self.control(Kind::Index, taken, time, |payload| index.emit(payload));
    }

    const fn time(&self) -> Time {
        Time { nanos: self.clock, source: crate::format::TimeSource::Host }
    }
}

impl Engine for Recorder {
    type Input<'a> = Input;
    type Output = Output;

    fn handle_input(&mut self, now: Instant, input: Input) {
        match input {
            Input::Written { name, result } => self.on_written(name, result),
            Input::Synced(result) => self.on_synced(result),
            Input::Digested { digest } => self.on_digested(digest),
        }
        if self.phase == Phase::Recording {
            self.arm(now);
        }
        self.go_on();
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.tick.is_none_or(|tick| tick > now) {
            return;
        }
        self.tick = None;
        if self.phase != Phase::Recording {
            return;
        }
        self.let_go(now);
        (0..self.streams.len()).for_each(|stream| self.close(stream));
        self.write_accounts(true);
        // Once the account of the held bytes is written, a sync follows by itself.
        let is_held = !self.write_holding();
        let is_behind = self.progress.acknowledged < self.progress.stored;
        self.wants_sync |= is_behind && is_held && self.syncing.is_none();
        if is_behind || !self.flights.is_empty() || !self.waiting.is_over() {
            self.arm(now);
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        while let Some(name) = self.to_write.pop_front() {
            let chunk = u64::from(self.config.chunk);
            if let Some(flight) = self.flight(name) {
                let data = flight.buffer.slice(0..flight.length());
                return Some(Output::Write { name, offset: flight.slot * chunk, data });
            }
        }
        if let Some(output) = self.digesting.poll() {
            return Some(output);
        }
        if core::mem::take(&mut self.wants_sync) {
            self.syncing = Some(self.progress.stored);
            self.on_sync_begins();
            return Some(Output::Sync);
        }
        self.ended.take().map(Output::Ended)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.tick
    }
}
