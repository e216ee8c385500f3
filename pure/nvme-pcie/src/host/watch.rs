//! Finding out that the controller was reset by somebody else, where no link goes down that would say so.

use engine::{Instant, Nanos};

use super::{Awaiting, Host, Output, ResetReason, State, Timer};
use crate::registers::{offset, status};

/// What the driver knows of a controller whose commands are under way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watch {
    /// Completions that have come.
    pub(super) completions: u64,
    /// As many had when the driver last looked.
    seen: u64,
    /// The read of CSTS that is under way.
    asked: Option<u64>,
}

impl Watch {
    /// Whether the read with this cookie is the watch's; it then has its answer.
    pub(super) fn takes(&mut self, cookie: u64) -> bool {
        self.asked.take_if(|asked| *asked == cookie).is_some()
    }
}

impl Host {
    /// A command is under way.
    pub(super) fn begin_watch(&mut self, now: Instant) {
        if self.config.watch > Nanos::ZERO && !self.timers.is_armed(Timer::Watch) {
            self.watch.seen = self.watch.completions;
            self.timers.arm(Timer::Watch, now + self.config.watch);
        }
    }

    /// The commands are off the rings.
    pub(super) fn end_watch(&mut self) {
        self.timers.disarm(Timer::Watch);
        self.watch.asked = None;
    }

    /// Reads CSTS where commands must complete and none has since the driver last looked.
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

    /// CSTS was read, or could not be. All ones are no answer: the device is away, and may come back.
    pub(super) fn on_status(&mut self, now: Instant, value: Option<u64>) {
        let Some(value) = value.filter(|value| *value != u64::from(u32::MAX)) else { return };
        if status::READY.of(value) == 0 || status::FATAL.of(value) == 1 {
            self.reset(now, ResetReason::Stopped);
        }
    }
}
