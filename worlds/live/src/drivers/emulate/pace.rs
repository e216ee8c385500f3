//! How an emulator keeps time: when it wakes, how it keeps its code warm, and when it reports
//! counters.

use std::io;

use engine::{Instant, Nanos, Pool};

use super::alarm::Alarm;
use super::rehearsal::Rehearsal;
use crate::reactor::{Context, Sources};

/// How long before a due time a sleep ends. The rest is spun, because waking takes up to some 140
/// µs.
const AWAKE_BEFORE: Nanos = Nanos::from_micros(500);
/// During a wait, how often the path is rehearsed unless it was taken anyway, and the time before
/// the due moment within which it is not rehearsed.
const REHEARSE_EVERY: Nanos = Nanos::from_micros(200);
const REHEARSE_BEFORE: Nanos = Nanos::from_micros(150);

/// The moment `time` before `at`.
pub(super) fn before(at: Instant, time: Nanos) -> Instant {
    Instant::from_nanos(at.as_nanos().saturating_sub(time.get()))
}

/// The timekeeping of an emulator.
#[derive(Debug)]
pub(super) struct Pace {
    rehearsal: Option<Rehearsal>,
    /// The timer, from the first turn on.
    alarm: Option<Alarm>,
    /// The next due time, if it is so soon that the loop waits for it awake.
    soon: Option<Instant>,
    /// When the path was last taken.
    warm_at: Instant,
    every: Option<Nanos>,
    tick: Option<Instant>,
    stopping: bool,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        // Without a rehearsal everything is a little later.
        let rehearsal = Rehearsal::new(now).ok();
        let (alarm, soon, every, tick) = (None, None, None, None);
        Self { rehearsal, alarm, soon, warm_at: now, every, tick, stopping: false }
    }

    /// Begins to wake the thread that sleeps on these sources.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub(super) fn begin(&mut self, sources: &Sources) -> io::Result<()> {
        self.alarm = Some(Alarm::new(sources)?);
        Ok(())
    }

    /// Ticks at this interval, from `now` on.
    pub(super) fn tick_every(&mut self, now: Instant, time: Nanos) {
        self.every = Some(time);
        self.tick = Some(now + time);
    }

    /// Whether it is time for the next tick.
    pub(super) fn ticks(&mut self, now: Instant) -> bool {
        if let (Some(every), Some(at)) = (self.every, self.tick)
            && at <= now
        {
            self.tick = Some(now + every);
            return true;
        }
        false
    }

    /// Notes that the path that rehearsals keep warm was taken.
    pub(super) const fn was_gone(&mut self, now: Instant) {
        self.warm_at = now;
    }

    /// Keeps the path warm while this thread only waits for an event that is `due` soon.
    pub(super) fn rehearse(&mut self, due: Option<Instant>, context: &Context<'_>, pool: &mut Pool) {
        let now = context.clock.now();
        let Some(wait) = due.map(|due| due - now) else { return };
        if wait < REHEARSE_BEFORE || wait > AWAKE_BEFORE || now - self.warm_at < REHEARSE_EVERY {
            return;
        }
        self.warm_at = now;
        if let Some(rehearsal) = &mut self.rehearsal
            && rehearsal.run(context, pool).is_err()
        {
            self.rehearsal = None;
        }
    }

    /// Makes sure that this thread is awake when something is `due` next.
    ///
    /// # Errors
    /// When the system refuses the time.
    pub(super) fn wait(&mut self, due: Option<Instant>, context: &Context<'_>) -> io::Result<()> {
        let now = context.clock.now();
        self.soon = due.filter(|due| *due - now <= AWAKE_BEFORE);
        let at = match self.soon {
            // A timer's interrupt would come just when everything else is to be done.
            Some(_) if context.spins => None,
            Some(soon) => Some(soon),
            None => due.map(|due| before(due, AWAKE_BEFORE)),
        };
        match (&mut self.alarm, at) {
            (Some(alarm), Some(at)) => alarm.set(now, at),
            _ => Ok(()),
        }
    }

    /// The next time to be awake besides: for events that are due too soon to be worth a sleep, and
    /// for ticks.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.soon.into_iter().chain(self.tick).min()
    }

    pub(super) const fn stop(&mut self) {
        self.stopping = true;
    }

    pub(super) const fn is_stopping(&self) -> bool {
        self.stopping
    }
}
