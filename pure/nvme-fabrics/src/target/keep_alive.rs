//! Associations that end because time has passed.

use alloc::vec::Vec;

use engine::{Instant, Nanos};

use super::{Association, AssociationKey, DISABLED_MAX, DISCOVERY_IDLE_MAX, Served, Target};

/// The granularity of the Keep Alive Timer, which Keep Alive Support (KAS) reports: 100 ms.
const GRANULARITY_MILLISECONDS: u64 = 100;

/// A Keep Alive Timeout, rounded up to the timer's granularity; `None` for 0.
pub(super) fn timeout(milliseconds: u32) -> Option<Nanos> {
    let units = u64::from(milliseconds).div_ceil(GRANULARITY_MILLISECONDS);
    (units > 0).then(|| Nanos::from_millis(units * GRANULARITY_MILLISECONDS))
}

impl Association {
    /// When the association ends without further commands.
    fn deadline(&self) -> Option<Instant> {
        let alive = self.keep_alive.map(|timeout| self.heard + timeout);
        let disabled = self.disabled.map(|since| since + DISABLED_MAX);
        let idle = match (&self.served, self.keep_alive) {
            (Served::Discovery(_), None) => Some(self.heard + DISCOVERY_IDLE_MAX),
            _ => None,
        };
        let authentication = self.authentication_deadline();
        [alive, disabled, idle, authentication].into_iter().flatten().min()
    }

    /// When the association or one of its queues may be due.
    fn check(&self) -> Option<Instant> {
        let queues = self.claimants.iter().filter_map(|one| one.authentication.as_ref()?.poll_timeout());
        self.deadline().into_iter().chain(queues).min()
    }

    /// Whether the Keep Alive Timer has expired, as opposed to another limit.
    pub fn keep_alive_has_expired(&self, now: Instant) -> bool {
        self.keep_alive.is_some_and(|timeout| self.heard + timeout <= now)
    }
}

impl Target {
    /// When to call [`Target::expired`], if ever.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.associations.next_check()
    }

    /// The deadline of an association may be earlier than before.
    pub(super) fn look_again(&mut self, key: AssociationKey) {
        let at = self.association(key).and_then(Association::check);
        self.associations.check_by(key, at);
    }

    /// The associations that have ended, for the owner to close: the Keep Alive Timer has expired,
    /// the host has not enabled the controller, or the discovery controller got no command.
    /// Commands only ever postpone deadlines, so an association is examined only when its earliest
    /// known deadline is due.
    pub fn expired(&mut self, now: Instant) -> Vec<AssociationKey> {
        let mut expired = Vec::new();
        for key in self.associations.take_due(now) {
            let Some(association) = self.associations.get_mut(key) else { continue };
            match association.deadline() {
                Some(at) if at <= now => {
                    association.properties.set_fatal();
                    expired.push(key);
                }
                _ => self.look_again(key),
            }
        }
        expired
    }
}
