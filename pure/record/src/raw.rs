//! Raw recordings: the bytes of one stream alone, from an address of the medium on.
//!
//! A byte's address is the first address and the byte's place in its stream. Lost bytes take their
//! place, too: bytes after a gap are where they would be without the gap. The place of lost bytes
//! is zero where a chunk has other bytes, and is not written otherwise. Nothing on the medium marks
//! it; the [`Certificate`] is a report.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use engine::{Buffer, Engine, Instant, Nanos, Pool};

use crate::digest::{Algorithm, Hasher};
use crate::format::{ALIGNMENT, Cause, Certificate, Gap, Place, Reason, StreamTotals, is_chunk_length};
use crate::recorder::{ATTEMPTS_MAX, GAPS_REPORTED_MAX, LOST_IN_A_ROW_MAX};
use crate::{BUFFER_MAX, BUFFER_MIN, FLUSH_DEFAULT, Fault, Input, Missed, Output, Progress};

/// The longest gap on the wire, in bytes, that takes its place on the medium. The numbers of two
/// datagrams, which any host may send, can claim gigabytes.
const WIRE_GAP_MAX: u64 = 16 << 20;

/// How to record without a container.
#[derive(Clone, Debug)]
pub struct RawConfig {
    /// The length of a chunk in bytes, as that of a recording with a container.
    pub chunk: u32,
    /// The number of chunks in the buffer: [`BUFFER_MIN`] to [`BUFFER_MAX`].
    pub buffer: usize,
    /// The address of the first byte, a multiple of [`ALIGNMENT`].
    pub start: u64,
    /// The address behind the last byte that may be used, a multiple of [`ALIGNMENT`] behind
    /// `start`; `None` where the medium ends.
    pub end: Option<u64>,
    /// The most chunks, if there is a limit.
    pub chunks: Option<u64>,
    /// How often written bytes are made durable.
    pub flush: Nanos,
    /// Which digest of the stored bytes is computed.
    pub algorithm: Algorithm,
}

impl RawConfig {
    /// The usual configuration, from this address on.
    pub const fn new(chunk: u32, start: u64) -> Self {
        let buffer = crate::BUFFER_DEFAULT;
        Self {
            chunk,
            buffer,
            start,
            end: None,
            chunks: None,
            flush: FLUSH_DEFAULT,
            algorithm: Algorithm::Sha256,
        }
    }

    /// The most bytes of the stream.
    fn most(&self) -> u64 {
        let chunks = self.chunks.map(|chunks| chunks.saturating_mul(u64::from(self.chunk)));
        let room = self.end.unwrap_or(u64::MAX).saturating_sub(self.start);
        room.min(chunks.unwrap_or(u64::MAX)).min(1 << 62)
    }
}

/// Bytes that are to be one write.
#[derive(Debug)]
struct Chunk {
    buffer: Buffer,
    /// The place of the buffer's first byte in the stream.
    offset: u64,
    /// How much of the buffer is filled, with bytes or with zeroes for lost ones.
    length: usize,
    /// The lost bytes within, in order.
    lost: Vec<Range<usize>>,
}

impl Chunk {
    fn bytes(&self) -> u64 {
        let lost: usize = self.lost.iter().map(Range::len).sum();
        (self.length - lost) as u64
    }

    /// Takes in lost bytes up to the place `end` within.
    fn skip(&mut self, end: usize) {
        if let Some(bytes) = self.buffer.try_mut() {
            bytes[self.length..end].fill(0);
        }
        self.lost.push(self.length..end);
        self.length = end;
    }

    /// The ranges that are not lost.
    fn pieces(&self) -> Vec<Range<usize>> {
        let starts = core::iter::once(0).chain(self.lost.iter().map(|lost| lost.end));
        let ends = self.lost.iter().map(|lost| lost.start).chain([self.length]);
        starts.zip(ends).map(|(start, end)| start..end).filter(|piece| !piece.is_empty()).collect()
    }
}

#[derive(Debug)]
struct Flight {
    chunk: Chunk,
    failures: u32,
    /// Whether it is on the medium, once that is known.
    end: Option<bool>,
}

/// Records one stream of bytes without a container.
#[derive(Debug)]
pub struct RawRecorder {
    config: RawConfig,
    filling: Option<Chunk>,
    flights: VecDeque<Flight>,
    /// The name of the first of them.
    first: u64,
    to_write: VecDeque<u64>,
    free: Vec<Buffer>,
    in_use: usize,
    progress: Progress,
    gaps: Vec<Gap>,
    gap_count: u64,
    digest: Hasher,
    lost_in_a_row: u32,
    tick: Option<Instant>,
    wants_sync: bool,
    syncing: Option<u64>,
    reason: Option<Reason>,
    is_forgetful: bool,
    is_over: bool,
    ended: Option<Certificate>,
}

impl RawRecorder {
    /// Begins a recording.
    ///
    /// # Panics
    /// When the configuration is outside its limits.
    pub fn new(config: RawConfig) -> Self {
        assert!(is_chunk_length(config.chunk), "a chunk of {} bytes", config.chunk);
        assert!((BUFFER_MIN..=BUFFER_MAX).contains(&config.buffer), "{} chunks", config.buffer);
        let is_aligned = |address: u64| address.is_multiple_of(u64::from(ALIGNMENT));
        assert!(is_aligned(config.start) && config.end.is_none_or(is_aligned), "addresses of whole pages");
        assert!(config.most() > 0, "room for bytes");
        let digest = Hasher::new(config.algorithm);
        Self {
            config,
            filling: None,
            flights: VecDeque::new(),
            first: 0,
            to_write: VecDeque::new(),
            free: Vec::new(),
            in_use: 0,
            progress: Progress::default(),
            gaps: Vec::new(),
            gap_count: 0,
            digest,
            lost_in_a_row: 0,
            tick: None,
            wants_sync: false,
            syncing: None,
            reason: None,
            is_forgetful: false,
            is_over: false,
            ended: None,
        }
    }

    /// Whether bytes are still taken.
    pub const fn is_recording(&self) -> bool {
        self.reason.is_none()
    }

    /// Whether it has ended, and everything that counts as stored is durable.
    pub const fn is_durable(&self) -> bool {
        self.is_over && !self.is_forgetful
    }

    /// How far the recording is.
    pub const fn progress(&self) -> Progress {
        self.progress
    }

    /// The gaps so far; the first 65,536 of them.
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    fn left(&self) -> u64 {
        self.config.most() - self.progress.bytes_in
    }

    /// Where the next bytes go; `None` when the buffer is full or the recording ends.
    pub fn room(&mut self, now: Instant) -> Option<&mut [u8]> {
        if !self.is_recording() {
            return None;
        }
        let (chunk, left) = (u64::from(self.config.chunk), self.left());
        if self.filling.is_none() {
            if self.in_use == self.config.buffer {
                return None;
            }
            let buffer =
                self.free.pop().unwrap_or_else(|| Pool::new(0).take(self.config.chunk as usize).freeze());
            self.in_use += 1;
            let place = self.progress.bytes_in;
            let mut filling = Chunk { buffer, offset: place / chunk * chunk, length: 0, lost: Vec::new() };
            if let Ok(lost @ 1..) = usize::try_from(place % chunk) {
                filling.skip(lost);
            }
            self.filling = Some(filling);
        }
        self.tick.get_or_insert(now + self.config.flush);
        let Chunk { buffer, length, .. } = self.filling.as_mut()?;
        let room = &mut buffer.try_mut()?[*length..];
        let most = room.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        Some(&mut room[..most])
    }

    /// The first `bytes` of what [`RawRecorder::room`] returned last are filled.
    ///
    /// # Panics
    /// When there was no such room.
    pub fn filled(&mut self, bytes: usize) {
        let filling = self.filling.as_mut().expect("room was taken");
        filling.length += bytes;
        assert!(filling.length <= self.config.chunk as usize, "more bytes than there was room for");
        let is_full = filling.length == self.config.chunk as usize;
        self.progress.bytes_in += bytes as u64;
        self.progress.fill += bytes as u64;
        self.progress.high_water = self.progress.high_water.max(self.progress.fill);
        if is_full {
            self.close();
        }
        self.end_at_limit();
    }

    /// Declares that the next `bytes` were lost at `when`, in nanoseconds since 1970, because the
    /// buffer was full.
    pub fn lose(&mut self, bytes: u64, when: u64) {
        if bytes > 0 {
            self.miss(Missed { packets: 0, bytes, when, place: Place::Ring });
        }
    }

    /// Declares that packets are lost before the byte that comes next. If their bytes are known,
    /// they take their place; otherwise the next byte lies right behind the previous one. The same
    /// holds if more than 16 MiB are lost on the wire at once: a sender may claim any number.
    pub fn miss(&mut self, missed: Missed) {
        if !self.is_recording() {
            return;
        }
        let Missed { packets, when, place, .. } = missed;
        let is_far = place == Place::Wire && missed.bytes > WIRE_GAP_MAX;
        let from = self.progress.bytes_in;
        let bytes = if is_far { 0 } else { missed.bytes.min(self.left()) };
        self.progress.bytes_in += bytes;
        self.progress.never_came += if place == Place::Wire { bytes } else { 0 };
        let cause = missed.cause();
        self.declare(Gap { stream: 0, from, bytes, packets, when, place, cause });
        let chunk = u64::from(self.config.chunk);
        if let Some(filling) = self.filling.as_mut().filter(|_| bytes > 0) {
            match usize::try_from(from + bytes - filling.offset) {
                Ok(end) if (end as u64) < chunk => filling.skip(end),
                _ => self.close(),
            }
        }
        self.end_at_limit();
    }

    /// Ends the recording: everything that came is written. The first reason counts.
    pub fn finish(&mut self, reason: Reason) {
        if self.is_recording() {
            self.reason = Some(reason);
            self.close();
            self.go_on();
        }
    }

    fn end_at_limit(&mut self) {
        if self.left() == 0 {
            self.finish(Reason::Limit);
        }
    }

    fn declare(&mut self, gap: Gap) {
        self.progress.lost += gap.bytes;
        match self.gaps.last_mut().filter(|last| last.goes_on_as(&gap)) {
            Some(last) => last.extend(&gap),
            None => {
                self.gap_count += 1;
                if self.gaps.len() < GAPS_REPORTED_MAX {
                    self.progress.restarts += u64::from(gap.is_restart());
                    self.gaps.push(gap);
                }
            }
        }
    }

    /// Has the filled part written, if it has any bytes.
    fn close(&mut self) {
        let Some(mut chunk) = self.filling.take() else { return };
        if chunk.bytes() == 0 {
            return self.release(chunk.buffer);
        }
        if let Some(bytes) = chunk.buffer.try_mut() {
            // The former content of the block must not reach the medium.
            bytes[chunk.length..].fill(0);
        }
        self.to_write.push_back(self.first + self.flights.len() as u64);
        self.flights.push_back(Flight { chunk, failures: 0, end: None });
    }

    fn release(&mut self, mut block: Buffer) {
        self.in_use -= 1;
        if block.try_mut().is_some() {
            self.free.push(block);
        }
    }

    fn flight(&mut self, name: u64) -> Option<&mut Flight> {
        self.flights.get_mut(usize::try_from(name.checked_sub(self.first)?).ok()?)
    }

    fn on_written(&mut self, name: u64, result: Result<(), Fault>) {
        let Some(flight) = self.flight(name) else { return };
        let fault = match result {
            Ok(()) => {
                flight.end = Some(true);
                self.lost_in_a_row = 0;
                return;
            }
            Err(fault) => fault,
        };
        flight.failures += 1;
        if fault == Fault::Failed && flight.failures < ATTEMPTS_MAX {
            return self.to_write.push_back(name);
        }
        flight.end = Some(false);
        let (offset, bytes, pieces) = (flight.chunk.offset, flight.chunk.bytes(), flight.chunk.pieces());
        self.progress.fill -= bytes;
        let (cause, reason) = match fault {
            Fault::Full => (Cause::Full, Reason::Full),
            Fault::Failed => (Cause::Failed, Reason::Failed),
        };
        for piece in pieces {
            let when = self.gaps.last().map_or(0, |last| last.when);
            let (from, bytes) = (offset + piece.start as u64, piece.len() as u64);
            self.declare(Gap { stream: 0, from, bytes, packets: 0, when, place: Place::Disk, cause });
        }
        self.lost_in_a_row += 1;
        if fault == Fault::Full || self.lost_in_a_row >= LOST_IN_A_ROW_MAX {
            self.finish(reason);
        }
    }

    /// Takes leave of chunks whose end is known, in order.
    fn retire(&mut self) {
        while let Some(is_stored) = self.flights.front().and_then(|flight| flight.end) {
            let Some(Flight { chunk, .. }) = self.flights.pop_front() else { return };
            self.first += 1;
            if is_stored {
                self.progress.fill -= chunk.bytes();
                self.progress.stored += chunk.bytes();
                self.progress.last_address = self.config.start + chunk.offset + chunk.length as u64;
                chunk.pieces().into_iter().for_each(|piece| self.digest.update(&chunk.buffer[piece]));
            }
            self.release(chunk.buffer);
        }
    }

    fn go_on(&mut self) {
        self.retire();
        let is_busy = !self.flights.is_empty() || self.wants_sync || self.syncing.is_some();
        if self.reason.is_some() && !is_busy && !self.is_over {
            self.wants_sync = true;
        }
    }

    fn on_synced(&mut self, result: Result<(), Fault>) {
        let Some(stored) = self.syncing.take() else { return };
        match result {
            Ok(()) if self.is_forgetful => {}
            Ok(()) => self.progress.acknowledged = stored,
            Err(_) => {
                self.is_forgetful = true;
                self.finish(Reason::Failed);
            }
        }
        let is_all = stored == self.progress.stored && self.flights.is_empty();
        if let (Some(reason), true, false) = (self.reason, is_all, self.is_over) {
            self.is_over = true;
            self.ended = Some(self.account(reason));
        }
    }

    fn account(&self, reason: Reason) -> Certificate {
        let (algorithm, digest) = (self.config.algorithm, self.digest.finalize());
        let Progress { bytes_in, stored, lost, high_water, .. } = self.progress;
        let streams = [StreamTotals { bytes_in, stored, lost, overwritten: 0, digest }].into();
        Certificate {
            reason,
            algorithm,
            slots: 0,
            gaps: self.gap_count,
            bad: 0,
            high_water,
            index: 0,
            digest,
            streams,
            rules: Vec::new(),
            signature: None,
        }
    }
}

impl Engine for RawRecorder {
    type Input<'a> = Input;
    type Output = Output;

    fn handle_input(&mut self, now: Instant, input: Input) {
        match input {
            Input::Written { name, result } => self.on_written(name, result),
            Input::Synced(result) => self.on_synced(result),
            Input::Digested { .. } => {}
        }
        if self.is_recording() {
            self.tick.get_or_insert(now + self.config.flush);
        }
        self.go_on();
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.tick.is_none_or(|tick| tick > now) {
            return;
        }
        self.tick = None;
        let is_behind = self.progress.acknowledged < self.progress.stored;
        if self.is_recording() && is_behind {
            self.wants_sync |= self.syncing.is_none();
            self.tick = Some(now + self.config.flush);
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        while let Some(name) = self.to_write.pop_front() {
            let start = self.config.start;
            if let Some(Flight { chunk, .. }) = self.flight(name) {
                let length = chunk.length.next_multiple_of(ALIGNMENT as usize);
                let (offset, data) = (start + chunk.offset, chunk.buffer.slice(0..length));
                return Some(Output::Write { name, offset, data });
            }
        }
        if core::mem::take(&mut self.wants_sync) {
            self.syncing = Some(self.progress.stored);
            return Some(Output::Sync);
        }
        self.ended.take().map(Output::Ended)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.tick
    }
}
