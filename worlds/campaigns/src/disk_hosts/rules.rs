//! A model of a namespace's reservation: which host may write, whenever that is certain.

use std::collections::BTreeMap;

use nvme::wire::StatusCode;

/// Names a host by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HostNumber(pub(super) usize);

/// Names a change of the reservation, from its submission to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChangeId(u64);

/// The types of reservations in these runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// Write Exclusive.
    WriteExclusive,
    /// Exclusive Access.
    ExclusiveAccess,
}

/// What a host asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// Reservation Register, whatever the key was before.
    Register,
    /// Reservation Register: the host's registration ends, and with it a reservation that it holds.
    Unregister,
    /// Reservation Acquire.
    Acquire(Type),
    /// Reservation Acquire, preempting this host.
    Preempt(Type, HostNumber),
    /// Reservation Release.
    Release(Type),
    /// Reservation Release: no reservation is left, and no registration.
    Clear,
}

/// The reservation as it certainly is.
type Holder = Option<(HostNumber, Type)>;

#[derive(Debug)]
struct Change {
    host: HostNumber,
    wish: Wish,
    /// The reservation before the change, where it was certain.
    before: Option<Holder>,
    /// Another change was under way at the same time.
    is_mixed: bool,
    /// The host will never know how it ended.
    is_in_doubt: bool,
}

/// What an access began with: the reservation, if it was certain, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    epoch: u64,
    holder: Option<Holder>,
}

/// A model of a namespace's reservation.
///
/// While a change is under way, nothing is certain. The accesses of hosts are judged that begin and
/// end under one certain reservation.
#[derive(Debug, Default)]
pub(super) struct Rules {
    /// The reservation, where it is certain.
    holder: Option<Holder>,
    /// Counts the changes of `holder`.
    epoch: u64,
    changes: BTreeMap<ChangeId, Change>,
    issued: u64,
    /// Accesses that were judged.
    judged: u64,
    violations: Vec<String>,
}

impl Rules {
    /// A namespace without a reservation.
    pub(super) fn new() -> Self {
        Self { holder: Some(None), ..Self::default() }
    }

    fn set(&mut self, holder: Option<Holder>) {
        self.holder = holder;
        self.epoch += 1;
    }

    /// A host submits a change.
    pub(super) fn begin(&mut self, host: HostNumber, wish: Wish) -> ChangeId {
        let is_mixed = !self.changes.is_empty();
        self.changes.values_mut().for_each(|other| other.is_mixed = true);
        let id = ChangeId(self.issued);
        self.issued += 1;
        let change = Change { host, wish, before: self.holder, is_mixed, is_in_doubt: false };
        self.changes.insert(id, change);
        self.set(None);
        id
    }

    /// A change has ended. One that failed may have been carried out before the driver repeated it.
    pub(super) fn end(&mut self, id: ChangeId, success: bool) {
        let Some(Change { host, wish, before, is_mixed, .. }) = self.changes.remove(&id) else { return };
        if is_mixed || !success {
            return;
        }
        self.set(match (wish, before) {
            (Wish::Acquire(kind), _) => Some(Some((host, kind))),
            (Wish::Clear, _) => Some(None),
            (Wish::Register, before) => before,
            (Wish::Unregister | Wish::Release(_), Some(Some((holder, _)))) if holder == host => Some(None),
            (Wish::Unregister | Wish::Release(_), before) => before,
            (Wish::Preempt(kind, other), Some(Some((holder, _)))) if holder == other => {
                Some(Some((host, kind)))
            }
            // A repeated one finds that it holds the reservation already.
            (Wish::Preempt(..), _) => None,
        });
    }

    /// The host will never know how its changes ended: they may still be carried out, until the
    /// SSD answers the host again.
    pub(super) fn doubt(&mut self, id: ChangeId) {
        if let Some(change) = self.changes.get_mut(&id) {
            change.is_in_doubt = true;
        }
    }

    /// The SSD has answered the host.
    pub(super) fn settle(&mut self, host: HostNumber) {
        self.changes.retain(|_, change| change.host != host || !change.is_in_doubt);
    }

    /// The far end was killed, and its reservations with it.
    pub(super) fn on_power_loss(&mut self) {
        self.changes.values_mut().for_each(|change| change.is_mixed = true);
        self.set(None);
    }

    /// An access begins.
    pub(super) const fn ticket(&self) -> Ticket {
        Ticket { epoch: self.epoch, holder: self.holder }
    }

    /// An access of a host has ended with `code`.
    pub(super) fn judge(&mut self, host: HostNumber, is_write: bool, ticket: Ticket, code: StatusCode) {
        let Some(holder) = ticket.holder.filter(|_| ticket.epoch == self.epoch) else { return };
        let may = match holder {
            None => true,
            Some((holder, _)) if holder == host => true,
            Some((_, kind)) => !is_write && kind == Type::WriteExclusive,
        };
        let what = if is_write { "write" } else { "read" };
        self.judged += 1;
        match (may, code) {
            (false, StatusCode::SuccessfulCompletion) => {
                self.violations
                    .push(format!("a {what} of {host:?} was done under the reservation {holder:?}"));
            }
            (true, StatusCode::ReservationConflict) => {
                self.violations
                    .push(format!("a {what} of {host:?} was refused under the reservation {holder:?}"));
            }
            _ => {}
        }
    }

    /// Takes the broken promises, and the number of accesses that were judged.
    pub(super) fn take(&mut self) -> (Vec<String>, u64) {
        (std::mem::take(&mut self.violations), std::mem::take(&mut self.judged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: HostNumber = HostNumber(0);
    const B: HostNumber = HostNumber(1);

    fn held_by_a() -> Rules {
        let mut rules = Rules::new();
        let change = rules.begin(A, Wish::Acquire(Type::WriteExclusive));
        rules.end(change, true);
        rules
    }

    fn violations(rules: &mut Rules, host: HostNumber, is_write: bool, code: StatusCode) -> usize {
        let ticket = rules.ticket();
        rules.judge(host, is_write, ticket, code);
        rules.take().0.len()
    }

    #[test]
    fn accesses_under_a_certain_reservation_are_judged() {
        let mut rules = held_by_a();
        assert_eq!(violations(&mut rules, A, true, StatusCode::SuccessfulCompletion), 0);
        assert_eq!(violations(&mut rules, A, true, StatusCode::ReservationConflict), 1);
        assert_eq!(violations(&mut rules, B, true, StatusCode::SuccessfulCompletion), 1);
        assert_eq!(violations(&mut rules, B, true, StatusCode::ReservationConflict), 0);
        assert_eq!(violations(&mut rules, B, false, StatusCode::SuccessfulCompletion), 0);
        let change = rules.begin(B, Wish::Preempt(Type::ExclusiveAccess, A));
        assert_eq!(violations(&mut rules, B, true, StatusCode::SuccessfulCompletion), 0, "uncertain");
        rules.end(change, true);
        assert_eq!(violations(&mut rules, A, false, StatusCode::SuccessfulCompletion), 1);
    }

    #[test]
    fn nothing_is_certain_after_changes_at_once_or_in_doubt() {
        let mut rules = held_by_a();
        let [one, other] = [A, B].map(|host| rules.begin(host, Wish::Acquire(Type::WriteExclusive)));
        rules.end(one, true);
        rules.doubt(other);
        assert_eq!(violations(&mut rules, B, true, StatusCode::SuccessfulCompletion), 0);
        assert!(!rules.changes.is_empty());
        rules.settle(B);
        assert!(rules.changes.is_empty());
        assert_eq!(violations(&mut rules, B, true, StatusCode::SuccessfulCompletion), 0);
        let before = rules.ticket();
        let change = rules.begin(A, Wish::Acquire(Type::WriteExclusive));
        rules.end(change, true);
        rules.judge(B, true, before, StatusCode::SuccessfulCompletion);
        assert_eq!(rules.take().0.len(), 0, "it began before");
    }
}
