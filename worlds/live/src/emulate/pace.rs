//! How an emulator keeps time: when it wakes, what keeps its way warm, and when it tells how it is.

use std::io;

use engine::{Instant, Nanos, Pool};

use super::alarm::Alarm;
use super::rehearsal::Rehearsal;
use crate::reactor::{Context, Sources};

/// A sleep ends so long before something is due, and the rest is spun: waking takes up to some 140 us.
const AWAKE_BEFORE: Nanos = Nanos::from_micros(500);
/// While something is waited for, the way is rehearsed so often unless it is gone anyway, and not so shortly before it is due.
const REHEARSE_EVERY: Nanos = Nanos::from_micros(200);
const REHEARSE_BEFORE: Nanos = Nanos::from_micros(150);

/// The time so long before `at`.
pub(super) fn before(at: Instant, time: Nanos) -> Instant {
    Instant::from_nanos(at.as_nanos().saturating_sub(time.get()))
}

/// See the module.
#[derive(Debug)]
pub(super) struct Pace {
    rehearsal: Option<Rehearsal>,
    /// There from the first turn on.
    alarm: Option<Alarm>,
    /// What is due so soon that it is waited for awake.
    soon: Option<Instant>,
    /// When the way was last gone.
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

    /// Begins to wake whoever sleeps on these sources.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub(super) fn begin(&mut self, sources: &Sources) -> io::Result<()> {
        self.alarm = Some(Alarm::new(sources)?);
        Ok(())
    }

    /// Ticks so often, from `now` on.
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

    /// Something has gone the way that rehearsals keep warm.
    pub(super) const fn was_gone(&mut self, now: Instant) {
        self.warm_at = now;
    }

    /// Keeps the way warm while this thread only waits for what is `due` soon.
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

    /// Sees to it that what is `due` next finds this thread awake.
    ///
    /// # Errors
    /// When the system does not take the time.
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

    /// When to be awake besides, for what is due so soon that a sleep is not worth it, and for ticks.
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
