//! Recording the bytes of one source alone, without a container, and reading a medium so.

use std::io;
use std::path::Path;

use engine::{Engine, Instant, Nanos, settle};
use record::format::{ALIGNMENT, Certificate, Reason};
use record::packing::Lane;
use record::{Input, Output, RawConfig, RawRecorder};

use super::far::Far;
use super::handle::{Handle, State, Status};
use super::pulse::Pulse;
use super::reading::{ReadError, Store};
use super::sink::{Refused, Sink, Target};
use super::source::{self, Source, Took};
use super::{DROPPED_AT_ONCE, Ends, Limits, Recorded, SLEEP_MAX, TOLD_EVERY, UPDATED_EVERY, real_time};
use crate::sys::clock::Clock;

/// Records the bytes of `source`, those of its datagrams one behind the other, to `target`, from
/// the first address of `config` on. Bytes outside of the addresses stay as they are. Otherwise as
/// [`record`](super::record()); in the result, `is_certified` says whether everything that counts
/// as stored is durable.
///
/// # Errors
/// When the medium can't be opened, is in use or too small, when it holds something at the first
/// address that may not be lost (`AlreadyExists`), or when the kernel fails.
pub fn record_raw(
    (target, overwrite): (Target<'_>, bool),
    config: RawConfig,
    source: Source,
    limits: Limits,
    handle: &Handle,
    tell: impl FnMut(&Status),
) -> Result<Recorded, Refused> {
    let mut sink = Sink::create(target, overwrite, config.start)?;
    sink.keep()?;
    let there = sink.bytes().map(|bytes| bytes / u64::from(ALIGNMENT) * u64::from(ALIGNMENT));
    let end = config.end.into_iter().chain(there).min();
    if let Some(end) = end.filter(|end| *end <= config.start) {
        let why = format!("the start address {} is not below {end}, where it ends", config.start);
        return Err(Refused::Unfit(why));
    }
    let config = RawConfig { end, ..config };
    handle.update(|status| {
        status.medium = sink.medium().clone();
        status.start_address = config.start;
        let page = u64::from(ALIGNMENT);
        status.maximum_address = end.unwrap_or(status.medium.bytes / page * page);
        (status.chunk, status.buffer) = (config.chunk, config.buffer as u64 * u64::from(config.chunk));
    });
    let (clock, recorder, pulse) = (Clock::start(), RawRecorder::new(config), Pulse::default());
    let (ends, ended) = (Ends::default(), None);
    let session = Session { clock, recorder, sink, source, pulse, ends, ended };
    session.run(limits, handle, tell).map_err(Refused::from)
}

struct Session {
    clock: Clock,
    recorder: RawRecorder,
    sink: Sink,
    source: Source,
    pulse: Pulse,
    ends: Ends,
    ended: Option<Certificate>,
}

impl Session {
    fn run(mut self, limits: Limits, handle: &Handle, mut tell: impl FnMut(&Status)) -> io::Result<Recorded> {
        let start = self.clock.now();
        let time = limits.time.map(|time| start + Nanos::from(time));
        self.ends = Ends { time, bytes: limits.bytes, never_came: 0 };
        let (mut told, mut updated) = (start, start);
        self.update(handle);
        while self.ended.is_none() {
            let now = self.clock.now();
            let left = self.ends.left(&self.recorder.progress());
            if handle.is_stopped() {
                self.end(now, Reason::Asked);
            } else if left == Some(0) || self.ends.time.is_some_and(|end| now >= end) {
                self.end(now, Reason::Limit);
            }
            let has_moved = self.take(now, left);
            let has_ended = self.serve(now, has_moved)?;
            if now >= updated + UPDATED_EVERY {
                updated = now;
                self.update(handle);
            }
            if now >= told + TOLD_EVERY {
                told = now;
                tell(&handle.status());
            }
            if !has_moved && !has_ended && self.ended.is_none() {
                source::sleep(std::slice::from_mut(&mut self.source), &[self.sink.poll_fd()], SLEEP_MAX)?;
            }
        }
        self.update(handle);
        tell(&handle.status());
        let certificate = self.ended.take().ok_or(io::ErrorKind::UnexpectedEof)?;
        let (gaps, is_certified) = (self.recorder.gaps().to_vec(), self.recorder.is_durable());
        let broken = vec![self.source.broken().map(str::to_owned)];
        let (heard, triggered, rules) = (vec![self.source.heard()], None, vec![self.source.rule()]);
        Ok(Recorded { certificate, gaps, rules, is_certified, heard, triggered, broken })
    }

    /// Ends the recording. The datagrams that a socket has are recorded first, unless a limit is
    /// reached.
    fn end(&mut self, now: Instant, reason: Reason) {
        if self.recorder.is_recording() {
            let lane = &mut Lane { taker: &mut self.recorder, stream: 0, now };
            self.source.finish(lane, reason == Reason::Asked);
            self.recorder.finish(reason);
        }
    }

    fn update(&self, handle: &Handle) {
        let state = match &self.ended {
            Some(_) => State::Ended,
            None if self.recorder.is_recording() => State::Running,
            None => State::Ending,
        };
        let progress = self.recorder.progress();
        let gaps = (self.recorder.gaps().len() as u64).saturating_sub(progress.restarts);
        handle.update(|status| {
            (status.state, status.progress, status.gaps) = (state, progress, gaps);
            (status.last_address, status.writes) = (progress.last_address, self.pulse.writes);
        });
    }

    /// Takes the bytes that the source has, at most `left`. Returns whether there were any.
    fn take(&mut self, now: Instant, left: Option<u64>) -> bool {
        if self.source.is_over() {
            self.recorder.finish(Reason::SourceEnded);
            return false;
        }
        if self.source.has_packets() {
            return self.source.take_packets(&mut Lane { taker: &mut self.recorder, stream: 0, now }, left);
        }
        let most = usize::try_from(left.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let drops = self.source.drops() && self.recorder.is_recording();
        let room = self.recorder.room(now);
        self.source.hold(room.is_none() && !self.source.drops());
        let took = match room {
            Some(room) => {
                let most = most.min(room.len());
                let took = self.source.take(now, &mut room[..most]);
                if let Took::Bytes(bytes) = took {
                    self.recorder.filled(bytes);
                }
                took
            }
            None if drops => {
                let took = self.source.take(now, &mut [0; DROPPED_AT_ONCE][..most.min(DROPPED_AT_ONCE)]);
                if let Took::Bytes(bytes) = took {
                    self.recorder.lose(bytes as u64, real_time().nanos);
                }
                took
            }
            None => Took::Nothing,
        };
        !matches!(took, Took::Nothing)
    }

    /// Carries out the recorder's requests, and reports those that have ended. Returns whether any
    /// has.
    fn serve(&mut self, now: Instant, more: bool) -> io::Result<bool> {
        let (sink, ended, pulse) = (&mut self.sink, &mut self.ended, &mut self.pulse);
        settle(&mut self.recorder, now, |output| match output {
            Output::Write { name, offset, data } => {
                pulse.begin(now, name);
                sink.write(name, offset, data);
            }
            Output::Sync => sink.sync(),
            Output::Ended(account) => *ended = Some(account),
            // It digests itself.
            Output::Digest { .. } => {}
        });
        self.sink.submit(more)?;
        let mut has_ended = false;
        while let Some(input) = self.sink.next_ended() {
            has_ended = true;
            if let Input::Written { name, .. } = input {
                self.pulse.end(now, name);
            }
            self.recorder.handle_input(now, input);
        }
        Ok(has_ended)
    }
}

/// A medium that is read by addresses, regardless of its content.
#[derive(Debug)]
pub struct RawMedium(Store);

impl RawMedium {
    /// A file or block device.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        Store::open(path, false).map(|(store, _)| Self(store))
    }

    /// A namespace of another device.
    pub const fn far(far: Box<Far>) -> Self {
        Self(Store::far(far))
    }

    /// Its length in bytes.
    ///
    /// # Errors
    /// The system's.
    pub fn bytes(&self) -> io::Result<u64> {
        self.0.bytes()
    }

    /// Reads as much from `address` on as there is and `bytes` has room for. Returns the number
    /// of bytes.
    ///
    /// # Errors
    /// The system's, or the device's.
    pub fn read_at(&self, bytes: &mut [u8], address: u64) -> io::Result<usize> {
        self.0.read_at(bytes, address)
    }
}
