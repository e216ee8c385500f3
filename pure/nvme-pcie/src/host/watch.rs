//! Detects a reset of the controller by another party, where no link goes down to show it.

use engine::{Instant, Nanos};

use super::{Awaiting, Host, Output, ResetReason, State, Timer};
use crate::registers::{offset, status};

/// The driver's observation of a controller with outstanding commands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watch {
    /// Number of completions so far.
    pub(super) completions: u64,
    /// Number of completions at the latest look.
    seen: u64,
    /// The cookie of the outstanding CSTS read.
    asked: Option<u64>,
}

impl Watch {
    /// Whether the register read with this cookie is the watch's. If so, the read has its answer.
    pub(super) fn takes(&mut self, cookie: u64) -> bool {
        self.asked.take_if(|asked| *asked == cookie).is_some()
    }
}

impl Host {
    /// Begins to watch when a command is outstanding.
    pub(super) fn begin_watch(&mut self, now: Instant) {
        if self.config.watch > Nanos::ZERO && !self.timers.is_armed(Timer::Watch) {
            self.watch.seen = self.watch.completions;
            self.timers.arm(Timer::Watch, now + self.config.watch);
        }
    }

    /// Stops watching when the commands are off the rings.
    pub(super) fn end_watch(&mut self) {
        self.timers.disarm(Timer::Watch);
        self.watch.asked = None;
    }

    /// Reads CSTS if commands are outstanding and none has completed since the latest look.
    pub(super) fn look(&mut self, now: Instant) {
        let enabled =
            matches!(self.state, State::Ready | State::Initialising { awaiting: Awaiting::Admin { .. }, .. });
        if !enabled || self.queues.iter().all(|queue| queue.deadlines.earliest().is_none()) {
            return;
        }
        if self.watch.seen == self.watch.completions {
            self.next_cookie += 1;
            self.watch.asked = Some(self.next_cookie);
            self.outputs.push_back(Output::RegisterRead {
                cookie: self.next_cookie,
                offset: offset::STATUS,
                length: 4,
            });
        }
        self.begin_watch(now);
    }

    /// Handles the answer to the CSTS read. No answer and all ones mean that the device is lost and
    /// may return.
    pub(super) fn on_status(&mut self, now: Instant, value: Option<u64>) {
        let Some(value) = value.filter(|value| *value != u64::from(u32::MAX)) else { return };
        if status::READY.of(value) == 0 || status::FATAL.of(value) == 1 {
            self.reset(now, ResetReason::Stopped);
        }
    }
}
