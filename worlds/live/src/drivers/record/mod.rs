//! Recording streams to a file or a namespace, and reading recordings.

mod datagrams;
mod digesting;
mod extents;
mod failing;
mod far;
mod flood;
mod handle;
mod incoming;
mod measure;
mod opening;
mod packets;
mod pulse;
mod raw;
mod reading;
mod reads;
mod registers;
mod signing;
mod sink;
mod source;
mod storage;
mod striped;
#[cfg(test)]
mod tests;
mod time;
mod udp;

pub use datagrams::Heard;
pub use far::Far;
pub use flood::{Flood, Sent};
pub use handle::{Handle, Medium, State, Status, Triggered};
pub use measure::{Ended, Extent, MEASURED_DEPTH, MEASURED_MAX, Measured, Measurement};
pub use pulse::{PAUSE_MIN, Writes};
pub use raw::{RawMedium, record_raw};
pub use reading::{ReadError, Recording};
pub use reads::Block;
pub use registers::offer_registers;
pub use signing::Signer;
pub use sink::{Refused, Target};
pub use source::{OnFull, Source};
pub use storage::Storage;
pub use striped::Part;
pub use time::real_time;
pub use udp::{Bound, Interface, Udp};

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use engine::{Engine, Instant, Nanos, settle};
use record::format::{Cause, Certificate, Gap, Reason, Time};
use record::packing::Lane;
use record::sequence::SequenceRule;
use record::{Algorithm, Config, Digests, Input, Output, Progress, Recorder, RingConfig};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

pub use crate::reactor::SecondSignal;
use crate::reactor::is_ignored;
use crate::sys::clock::Clock;
use digesting::Digester;
use pulse::Pulse;
use sink::Stripes;
use source::Took;

/// The longest sleep while sources are silent.
const SLEEP_MAX: Duration = Duration::from_millis(20);
/// The most bytes of a source that are dropped at once.
const DROPPED_AT_ONCE: usize = 65_536;
/// How often the handle of a recording learns how far it is.
const UPDATED_EVERY: Nanos = Nanos::from_millis(1);
/// How often a recording reports its progress.
const TOLD_EVERY: Nanos = Nanos::from_millis(250);

/// Lets SIGINT and SIGTERM set the flag that is returned. So does SIGHUP (the terminal is gone)
/// where a second signal does nothing, unless this process was started with SIGHUP ignored (nohup).
/// A file that would become too large is an error of its write from now on, not the end of the
/// process with all that it holds.
///
/// # Errors
/// When the system refuses the handlers.
pub fn stop_on_signals(second: SecondSignal) -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        if second == SecondSignal::Exit {
            // It looks at the flag before the next handler sets it.
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))?;
        }
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    // A program that ignores further signals must not keep a process whose terminal is gone.
    if second == SecondSignal::Nothing && !is_ignored(SIGHUP)? {
        signal_hook::flag::register(SIGHUP, Arc::clone(&stop))?;
    }
    heed_file_limit()?;
    Ok(stop)
}

/// Makes a file that would become too large an error of its write from now on, not the end of the
/// process with all that it holds.
///
/// # Errors
/// When the system refuses the handler.
pub fn heed_file_limit() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// When a recording ends by itself. One that waits for a trigger counts from the trigger on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// After this time.
    pub time: Option<Duration>,
    /// After this many bytes of all streams. Those that were lost on the wire are not counted.
    pub bytes: Option<u64>,
}

/// Where a recording goes.
#[derive(Debug)]
pub struct Place<'a> {
    /// The medium, or several over which the recording is striped: at
    /// most [`MEMBERS_MAX`](record::format::MEMBERS_MAX).
    pub targets: Vec<Target<'a>>,
    /// Whether the former content may be lost.
    pub overwrite: bool,
}

/// How a recording ended.
#[derive(Debug)]
pub struct Recorded {
    /// The account of the whole.
    pub certificate: Certificate,
    /// Gaps, the first 65,536 of them.
    pub gaps: Vec<Gap>,
    /// The rule by which the losses of each stream were found.
    pub rules: Vec<SequenceRule>,
    /// Whether the certificate and every gap record are on the medium.
    pub is_certified: bool,
    /// The counts of each source, if it is one of packets.
    pub heard: Vec<Option<Heard>>,
    /// How it was triggered, if it waited for that.
    pub triggered: Option<Triggered>,
    /// Why each source ended before its end, if it did: the bytes up to then are recorded.
    pub broken: Vec<Option<String>>,
}

/// Records `sources`, each as a stream, to a new recording at `place`. Calls `tell` with its
/// progress a few times a second. Ends when every source has ended, at a limit, when `handle` is
/// asked to stop, or with the medium.
///
/// # Errors
/// When the file can't be opened or is in use, when it holds something that may not be lost
/// (`AlreadyExists`), or when the kernel fails.
pub fn record(
    place: Place<'_>,
    config: Config,
    sources: Vec<Source>,
    limits: Limits,
    handle: &Handle,
    tell: impl FnMut(&Status),
) -> Result<Recorded, Refused> {
    let mut sink = Stripes::create(place.targets, place.overwrite, (config.recording, config.chunk))?;
    let fixed = sink.slots();
    let slots = fixed.into_iter().chain(config.slots).min();
    check_ring(&config, slots)?;
    let room = slots.map_or(u64::MAX, |slots| slots * u64::from(config.chunk));
    sink.expect(limits.bytes.unwrap_or(0).min(room));
    let config = Config { crc32c: crate::sys::digest::crc32c, slots, ..config };
    handle.update(|status| {
        status.medium = sink.medium().clone();
        status.maximum_address = slots.map_or(status.medium.bytes, |slots| slots * u64::from(config.chunk));
        status.is_ring = config.ring.is_some();
        status.pre_trigger = config.pre_trigger;
        (status.chunk, status.buffer) = (config.chunk, config.buffer as u64 * u64::from(config.chunk));
    });
    let streams = config.streams.len();
    let by_threads = config.digests == Digests::World && config.algorithm != Algorithm::None;
    let digester = by_threads.then(|| Digester::start(config.algorithm, streams)).transpose()?;
    let recorder = Recorder::new(config, real_time());
    let clock = Clock::start();
    let (pulse, ends) = (Pulse::default(), Ends::default());
    Session { clock, recorder, sink, sources, digester, pulse, ends, triggered: None, ended: None }
        .run(limits, handle, tell)
        .map_err(Refused::from)
}

/// A ring needs a medium of a certain length.
fn check_ring(config: &Config, slots: Option<u64>) -> Result<(), Refused> {
    let needed = RingConfig::slots_min(config.buffer);
    if config.ring.is_none() || slots.is_some_and(|slots| slots >= needed) {
        return Ok(());
    }
    let (chunk, expected) = (u64::from(config.chunk), needed * u64::from(config.chunk));
    let why = match slots {
        Some(slots) => format!("a ring of {} B is too short: expected {expected} B or more", slots * chunk),
        None => "the size of a ring in a file is not known: give --ring SIZE".to_owned(),
    };
    Err(Refused::Unfit(why))
}

/// Where a recording ends by itself.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    time: Option<Instant>,
    /// After this many bytes.
    bytes: Option<u64>,
    /// How many had been lost on the wire when bytes began to count.
    never_came: u64,
}

impl Ends {
    /// How many bytes may still come, if there is a limit. A sender may claim that any number was
    /// lost on the wire, so these are not counted.
    fn left(&self, progress: &Progress) -> Option<u64> {
        let claimed = progress.never_came.saturating_sub(self.never_came);
        let most = self.bytes?.saturating_add(claimed);
        Some(most.saturating_sub(progress.bytes_in))
    }
}

struct Session {
    clock: Clock,
    recorder: Recorder,
    sink: Stripes,
    sources: Vec<Source>,
    digester: Option<Digester>,
    pulse: Pulse,
    ends: Ends,
    triggered: Option<Triggered>,
    ended: Option<Certificate>,
}

impl Session {
    fn run(mut self, limits: Limits, handle: &Handle, mut tell: impl FnMut(&Status)) -> io::Result<Recorded> {
        let start = self.clock.now();
        if !self.recorder.is_armed() {
            self.count(start, limits);
        }
        let (mut told, mut updated) = (start, start);
        self.update(handle);
        while self.ended.is_none() {
            let now = self.clock.now();
            if handle.is_stopped() {
                self.end(now, Reason::Asked);
            }
            if self.recorder.is_armed()
                && let Some(time) = handle.take_trigger()
            {
                self.trigger(now, time, limits);
            }
            let left = self.ends.left(&self.recorder.progress());
            if left == Some(0) || self.ends.time.is_some_and(|end| now >= end) {
                self.end(now, Reason::Limit);
            }
            let has_moved = self.take(now, left);
            let has_ended = self.serve(now, has_moved)?;
            if now >= updated + UPDATED_EVERY {
                updated = now;
                handle.serve(now, &mut self.recorder);
                self.update(handle);
            }
            if now >= told + TOLD_EVERY {
                told = now;
                self.update(handle);
                tell(&handle.status());
            }
            if !has_moved && !has_ended && self.ended.is_none() {
                // While few buffers are held, their return is no reason to wake up.
                let is_recording = self.recorder.is_recording();
                let digests = self.digester.as_ref().filter(|held| !is_recording || held.has_many());
                if !digests.is_some_and(Digester::hush) {
                    let digests = digests.map(Digester::poll_fd);
                    let others: Vec<_> = self.sink.poll_fds().chain([digests]).collect();
                    source::sleep(&mut self.sources, &others, SLEEP_MAX)?;
                }
            }
        }
        self.update(handle);
        handle.serve(self.clock.now(), &mut self.recorder);
        tell(&handle.status());
        let certificate = self.ended.take().ok_or(io::ErrorKind::UnexpectedEof)?;
        let (gaps, is_certified) = (self.recorder.gaps().to_vec(), self.recorder.is_certified());
        let heard = self.sources.iter().map(Source::heard).collect();
        let broken = self.sources.iter().map(|source| source.broken().map(str::to_owned)).collect();
        let rules = self.sources.iter().map(Source::rule).collect();
        Ok(Recorded { certificate, gaps, rules, is_certified, heard, triggered: self.triggered, broken })
    }

    /// Limits count from now on.
    fn count(&mut self, now: Instant, limits: Limits) {
        let Progress { bytes_in: came, never_came, .. } = self.recorder.progress();
        let time = limits.time.map(|time| now + Nanos::from(time));
        self.ends = Ends { time, bytes: limits.bytes.map(|most| came.saturating_add(most)), never_came };
    }

    /// The recording is triggered, at `time`.
    fn trigger(&mut self, now: Instant, time: Time, limits: Limits) {
        self.recorder.trigger(now, time);
        let bytes = self.recorder.progress().bytes_in;
        self.triggered = self.recorder.triggered().map(|trigger| Triggered { trigger, bytes });
        self.count(now, limits);
    }

    /// Lets others know how far the recording is.
    fn update(&self, handle: &Handle) {
        let state = match &self.ended {
            Some(_) => State::Ended,
            None if !self.recorder.is_recording() => State::Ending,
            None if self.recorder.is_armed() => State::Armed,
            None => State::Running,
        };
        let writes = self.pulse.writes;
        let progress = self.recorder.progress();
        let gaps = (self.recorder.gaps().len() as u64).saturating_sub(progress.restarts);
        let (kept, triggered) = (self.recorder.kept(self.clock.now()), self.triggered);
        handle.update(|status| {
            (status.kept, status.triggered) = (kept, triggered);
            (status.state, status.progress, status.gaps) = (state, progress, gaps);
            (status.last_address, status.writes) = (progress.last_address, writes);
        });
    }

    /// Takes the bytes that the sources have, at most `left` of each. Returns whether there were
    /// any.
    fn take(&mut self, now: Instant, left: Option<u64>) -> bool {
        let mut has_moved = false;
        let time = real_time();
        for (stream, source) in self.sources.iter_mut().enumerate() {
            if source.is_over() {
                continue;
            }
            if source.has_packets() {
                has_moved |= source.take_packets(&mut Lane { taker: &mut self.recorder, stream, now }, left);
                continue;
            }
            let room = self.recorder.room(now, stream);
            source.hold(room.is_none() && !source.drops());
            let Some(room) = room else {
                if source.drops() {
                    has_moved |= self.recorder.is_recording() && {
                        drop_from(source, now, stream, &mut self.recorder, time.nanos)
                    };
                }
                continue;
            };
            let most =
                left.map_or(room.len(), |left| room.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
            match source.take(now, &mut room[..most]) {
                Took::Bytes(bytes) => {
                    self.recorder.filled(now, stream, bytes, time);
                    has_moved = true;
                }
                Took::Nothing => {}
                Took::End => has_moved = true,
            }
        }
        // A trigger may still want the bytes of the sources.
        let may_be_wanted = self.recorder.is_armed() && self.recorder.progress().bytes_in > 0;
        if self.sources.iter().all(Source::is_over) && !may_be_wanted {
            self.recorder.finish(Reason::SourceEnded);
        }
        has_moved
    }

    /// Ends the recording. The bytes that sockets have are recorded first, unless a limit is
    /// reached.
    fn end(&mut self, now: Instant, reason: Reason) {
        if !self.recorder.is_recording() {
            return;
        }
        for (stream, source) in self.sources.iter_mut().enumerate() {
            let lane = &mut Lane { taker: &mut self.recorder, stream, now };
            source.finish(lane, reason == Reason::Asked);
        }
        self.recorder.finish(reason);
    }

    /// Carries out the recorder's requests, and reports those that have ended. With `more`, sources
    /// have more: writes may wait for others, so that the system is called once for all. Returns
    /// whether anything has ended.
    fn serve(&mut self, now: Instant, more: bool) -> io::Result<bool> {
        let (sink, ended, digester) = (&mut self.sink, &mut self.ended, &mut self.digester);
        let pulse = &mut self.pulse;
        settle(&mut self.recorder, now, |output| match output {
            Output::Write { name, offset, data } => {
                pulse.begin(now, name);
                sink.write(name, offset, data);
            }
            Output::Sync => sink.sync(),
            Output::Digest { stream, data } => {
                digester.as_mut().expect("the configuration asked for it").digest(stream, data);
            }
            Output::Ended(certificate) => *ended = Some(certificate),
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
        if let Some(digester) = &mut self.digester {
            while let Some(input) = digester.next_ended() {
                has_ended = true;
                self.recorder.handle_input(now, input);
            }
        }
        Ok(has_ended)
    }
}

/// Takes the bytes that a source has, and declares them lost. Returns whether there were any.
fn drop_from(source: &mut Source, now: Instant, stream: usize, recorder: &mut Recorder, when: u64) -> bool {
    let mut bytes = [0; DROPPED_AT_ONCE];
    match source.take(now, &mut bytes) {
        Took::Bytes(bytes) => {
            let cause = Cause::Overflow;
            recorder.lose(now, stream, bytes as u64, when, record::format::Place::Ring, cause);
            true
        }
        Took::Nothing => false,
        Took::End => true,
    }
}
