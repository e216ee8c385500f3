//! A recording under way: one loop for all that write to a medium what comes.

use std::io;

use engine::{Engine, Instant, Nanos, settle};
use record::format::{Certificate, Gap, Pin, Reason, Time, Trigger};
use record::packing::{Lane, Taker};
use record::sequence::SequenceRule;
use record::{Input, Kept, Output, PinRange, PinRefusal, Progress, RawRecorder, Recorder};

use super::Limits;
use super::digesting::Digester;
use super::handle::{Handle, State, Status, Triggered};
use super::pulse::Pulse;
use super::sink::Stripes;
use super::source::{Heard, Source};
use crate::reactor::{Attention, Context, Driver, Reactor, Sources, Turn};

/// How often the handle of a recording that always has something to do learns how far it is.
const UPDATED_EVERY: Nanos = Nanos::from_millis(1);
/// How often a recording reports its progress.
const REPORTED_EVERY: Nanos = Nanos::from_millis(250);

/// The engine of a session: bytes go in, and requests to write them come out.
pub(super) trait Task: Taker + for<'a> Engine<Input<'a> = Input, Output = Output> {
    /// Whether it has ended, and the medium has all that the account says.
    fn is_complete(&self) -> bool;

    /// Whether it keeps bytes until it is triggered.
    fn is_armed(&self) -> bool {
        false
    }

    /// It is triggered, at `time`. Returns how, if it waited for that.
    fn trigger(&mut self, _now: Instant, _time: Time) -> Option<Trigger> {
        None
    }

    /// The bytes that it keeps until it is triggered.
    fn kept(&self, _now: Instant) -> Option<Kept> {
        None
    }

    /// Keeps bytes from being overwritten; of `None`, lets everything be overwritten again.
    ///
    /// # Errors
    /// When it overwrites nothing, or refuses the range.
    fn pin(&mut self, _now: Instant, _range: Option<PinRange>) -> Result<Vec<Pin>, PinRefusal> {
        Err(PinRefusal::NoRing)
    }
}

impl Task for Recorder {
    fn is_complete(&self) -> bool {
        self.is_certified()
    }

    fn is_armed(&self) -> bool {
        self.is_armed()
    }

    fn trigger(&mut self, now: Instant, time: Time) -> Option<Trigger> {
        self.trigger(now, time);
        self.triggered()
    }

    fn kept(&self, now: Instant) -> Option<Kept> {
        self.kept(now)
    }

    fn pin(&mut self, now: Instant, range: Option<PinRange>) -> Result<Vec<Pin>, PinRefusal> {
        match range {
            Some(range) => self.pin(now, range),
            None => self.unpin(now).map(|()| Vec::new()),
        }
    }
}

impl Task for RawRecorder {
    fn is_complete(&self) -> bool {
        self.is_durable()
    }
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

/// Where a recording ends by itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ends {
    pub(super) time: Option<Instant>,
    /// After this many bytes.
    pub(super) bytes: Option<u64>,
    /// How many had been lost on the wire when bytes began to count.
    pub(super) never_came: u64,
}

impl Ends {
    /// How many bytes may still come, if there is a limit. A sender may claim that any number was
    /// lost on the wire, so these are not counted.
    pub(super) fn left(&self, progress: &Progress) -> Option<u64> {
        let claimed = progress.never_came.saturating_sub(self.never_came);
        let most = self.bytes?.saturating_add(claimed);
        Some(most.saturating_sub(progress.bytes_in))
    }
}

/// A task, its sources and its medium, as a driver of a loop.
pub(super) struct Session<'a, T> {
    pub(super) task: T,
    sink: Stripes,
    sources: Vec<Source>,
    pub(super) digester: Option<Digester>,
    handle: &'a Handle,
    /// Is called with the progress a few times a second.
    report: &'a mut dyn FnMut(&Status),
    pub(super) limits: Limits,
    ends: Ends,
    pulse: Pulse,
    triggered: Option<Triggered>,
    ended: Option<Certificate>,
    /// The loop was asked to stop.
    is_asked: bool,
    /// Whether the loop waits for the sources.
    is_registered: bool,
    /// Whether anything has happened since the handle was updated.
    has_changed: bool,
    updated: Instant,
    reported: Instant,
    /// When a turn is due, as the last idle turn found.
    wake: Option<Instant>,
    /// Memory for bytes that are lost.
    spare: Vec<u8>,
}

impl<'a, T: Task> Session<'a, T> {
    pub(super) fn new(
        task: T,
        sink: Stripes,
        sources: Vec<Source>,
        handle: &'a Handle,
        report: &'a mut dyn FnMut(&Status),
    ) -> Self {
        Self {
            task,
            sink,
            sources,
            digester: None,
            handle,
            report,
            limits: Limits::default(),
            ends: Ends::default(),
            pulse: Pulse::default(),
            triggered: None,
            ended: None,
            is_asked: false,
            is_registered: false,
            has_changed: true,
            updated: Instant::ZERO,
            reported: Instant::ZERO,
            wake: None,
            spare: Vec::new(),
        }
    }

    /// Runs to the end, on a loop that has nothing else to do.
    ///
    /// # Errors
    /// When the kernel fails.
    pub(super) fn run(&mut self, reactor: &mut Reactor) -> io::Result<()> {
        // The bytes taken so far are written, however long that takes.
        reactor.wait_for_close();
        let now = reactor.clock().now();
        (self.updated, self.reported) = (now, now);
        if !self.task.is_armed() {
            self.count(now);
        }
        self.publish(now);
        reactor.run(self).map(drop)
    }

    /// How it ended.
    ///
    /// # Errors
    /// When it has not ended.
    pub(super) fn recorded(mut self) -> io::Result<Recorded> {
        let certificate = self.ended.take().ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(Recorded {
            certificate,
            gaps: self.task.gaps().to_vec(),
            rules: self.sources.iter().map(Source::rule).collect(),
            is_certified: self.task.is_complete(),
            heard: self.sources.iter().map(Source::heard).collect(),
            triggered: self.triggered,
            broken: self.sources.iter().map(|source| source.broken().map(str::to_owned)).collect(),
        })
    }

    /// Limits count from now on.
    fn count(&mut self, now: Instant) {
        let Progress { bytes_in: came, never_came, .. } = self.task.progress();
        let time = self.limits.time.map(|time| now + Nanos::from(time));
        let bytes = self.limits.bytes.map(|most| came.saturating_add(most));
        self.ends = Ends { time, bytes, never_came };
    }

    /// Does what was asked for, and ends at a limit. Returns how many bytes may still come.
    fn heed(&mut self, now: Instant) -> Option<u64> {
        if self.is_asked || self.handle.is_stopped() {
            self.end(now, Reason::Asked);
        }
        if self.task.is_armed()
            && let Some(time) = self.handle.take_trigger()
        {
            let trigger = self.task.trigger(now, time);
            let bytes = self.task.progress().bytes_in;
            self.triggered = trigger.map(|trigger| Triggered { trigger, bytes });
            self.has_changed = true;
            self.count(now);
        }
        let left = self.ends.left(&self.task.progress());
        if left == Some(0) || self.ends.time.is_some_and(|end| now >= end) {
            self.end(now, Reason::Limit);
        }
        left
    }

    /// Ends the recording. The bytes that sockets have are recorded first, unless a limit is
    /// reached.
    fn end(&mut self, now: Instant, reason: Reason) {
        if !self.task.is_recording() {
            return;
        }
        for (stream, source) in self.sources.iter_mut().enumerate() {
            source.finish(&mut Lane { taker: &mut self.task, stream, now }, reason == Reason::Asked);
        }
        self.task.finish(reason);
        self.has_changed = true;
    }

    /// Takes the bytes that the sources have, at most `left` of each. Returns whether there were
    /// any.
    fn take(&mut self, now: Instant, left: Option<u64>, sources: &Sources) -> io::Result<bool> {
        if !self.task.is_recording() {
            // Nothing is taken any more. A sender that goes on must not keep the loop busy.
            if std::mem::take(&mut self.is_registered) {
                self.sources.iter_mut().for_each(|source| source.leave(sources));
            }
            return Ok(false);
        }
        self.is_registered = true;
        let (mut has_moved, mut are_over) = (false, !self.sources.is_empty());
        for (stream, source) in self.sources.iter_mut().enumerate() {
            if !source.is_over() {
                let lane = &mut Lane { taker: &mut self.task, stream, now };
                has_moved |= source.take(lane, left, &mut self.spare);
                source.register(sources, u32::try_from(stream).unwrap_or(u32::MAX))?;
            }
            are_over &= source.is_over();
        }
        // A trigger may still want the bytes of the sources.
        let may_be_wanted = self.task.is_armed() && self.task.progress().bytes_in > 0;
        if are_over && !may_be_wanted {
            self.task.finish(Reason::SourceEnded);
        }
        Ok(has_moved)
    }

    /// Carries out the task's requests, and passes on those that have ended. With `more`, sources
    /// have more: writes may wait for others, so that the system is called once for all. Returns
    /// whether anything has ended.
    fn serve(&mut self, now: Instant, more: bool) -> io::Result<bool> {
        let (sink, ended, digester) = (&mut self.sink, &mut self.ended, &mut self.digester);
        let pulse = &mut self.pulse;
        settle(&mut self.task, now, |output| match output {
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
        let more = more && self.task.is_recording();
        let mut has_ended = self.sink.submit(more)?;
        while let Some(input) = self.sink.next_ended() {
            has_ended = true;
            if let Input::Written { name, .. } = input {
                self.pulse.end(now, name);
            }
            self.task.handle_input(now, input);
        }
        Ok(self.take_digests(now) | has_ended)
    }

    /// Passes on the digests that are computed. Returns whether there were any.
    fn take_digests(&mut self, now: Instant) -> bool {
        let Some(digester) = &mut self.digester else { return false };
        let mut has_ended = false;
        while let Some(input) = digester.next_ended() {
            has_ended = true;
            self.task.handle_input(now, input);
        }
        has_ended
    }

    /// Whether digests end the loop's sleep. While few buffers are held, and no source waits for
    /// one, their return is no reason to wake up.
    fn wants_digests(&self, digester: &Digester) -> bool {
        !self.task.is_recording() || digester.has_many() || self.sources.iter().any(Source::is_held)
    }

    /// Answers requests, and publishes how far the recording is. Returns whether there were any
    /// requests.
    fn publish(&mut self, now: Instant) -> bool {
        let has_served = self.handle.serve(now, &mut self.task);
        (self.updated, self.has_changed) = (now, false);
        let state = match &self.ended {
            Some(_) => State::Ended,
            None if !self.task.is_recording() => State::Ending,
            None if self.task.is_armed() => State::Armed,
            None => State::Running,
        };
        let writes = self.pulse.writes;
        let progress = self.task.progress();
        let gaps = (self.task.gaps().len() as u64).saturating_sub(progress.restarts);
        let (kept, triggered) = (self.task.kept(now), self.triggered);
        self.handle.update(|status| {
            (status.kept, status.triggered) = (kept, triggered);
            (status.state, status.progress, status.gaps) = (state, progress, gaps);
            (status.last_address, status.writes) = (progress.last_address, writes);
        });
        has_served
    }

    fn report(&mut self, now: Instant) {
        self.reported = now;
        (self.report)(&self.handle.status());
    }

    /// When a turn is due although no descriptor reports anything.
    fn next_wake(&self, now: Instant) -> Option<Instant> {
        let is_recording = self.task.is_recording();
        let sources = self.sources.iter().filter(|_| is_recording).filter_map(|source| source.wake_at(now));
        let end = self.ends.time.filter(|_| is_recording);
        let medium = self.sink.patience().map(|patience| now + patience);
        let own = [self.task.poll_timeout(), end, medium, Some(self.reported + REPORTED_EVERY)];
        own.into_iter().flatten().chain(sources).min()
    }
}

impl<T: Task> Driver for Session<'_, T> {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        self.handle.listen(sources)?;
        if let Some(digester) = &self.digester {
            digester.register(sources)?;
        }
        self.sink.poll_fds().try_for_each(|medium| sources.add_input(medium, Attention::EachTurn))
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let now = context.now;
        for name in context.named {
            self.sources.get_mut(*name as usize).into_iter().for_each(Source::wake);
        }
        let left = self.heed(now);
        let has_moved = self.take(now, left, context.sources())?;
        let mut is_busy = self.serve(now, has_moved)? | has_moved;
        if self.ended.is_some() {
            self.publish(now);
            self.report(now);
            return Ok(Turn::Done);
        }
        self.has_changed |= is_busy;
        let is_due = now >= self.updated + UPDATED_EVERY;
        if is_due || (!is_busy && (self.has_changed || context.news)) {
            is_busy |= self.publish(now);
        }
        if now >= self.reported + REPORTED_EVERY {
            self.report(now);
        }
        if is_busy {
            return Ok(Turn::Busy);
        }
        let wants_digests = self.digester.as_ref().is_some_and(|digester| self.wants_digests(digester));
        let has_begun = self.digester.as_mut().is_some_and(|digester| digester.listen(wants_digests));
        // A digest may have come before the bell was to ring for it.
        if has_begun && self.take_digests(now) {
            self.has_changed = true;
            return Ok(Turn::Busy);
        }
        self.wake = self.next_wake(now);
        Ok(Turn::Idle)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.wake
    }

    fn on_stop(&mut self, _now: Instant) {
        self.is_asked = true;
    }
}
