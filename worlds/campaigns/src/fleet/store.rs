//! A linearizable store, with what stores do on bad days.

use std::collections::BTreeMap;

use engine::{Instant, Nanos};
use fleet::object::{Key, Object};
use fleet::store::{Answer, Event, Revision, Transaction};

/// How long a leader stays the leader without renewing.
const LEASE: Nanos = Nanos::from_secs(3);

/// The content of the store, which a backup has.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pub(super) objects: BTreeMap<Key, (Revision, Object)>,
    revision: Revision,
    term: u64,
}

/// The leader, and until when.
#[derive(Clone, Copy, Debug)]
struct Lease {
    holder: usize,
    until: Instant,
}

/// The store.
#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) content: Content,
    /// The changes that watchers may still want.
    history: Vec<(Revision, Key, Option<Object>)>,
    /// The revision up to which changes were forgotten.
    compacted: Revision,
    lease: Option<Lease>,
    /// Number of transactions that were applied.
    pub(super) writes: u64,
    /// Whether terms are not compared, as a planted fault.
    pub(super) ignores_terms: bool,
}

impl Store {
    /// The present term.
    pub(super) const fn term(&self) -> u64 {
        self.content.term
    }

    /// The number of the latest change.
    pub(super) const fn revision(&self) -> Revision {
        self.content.revision
    }

    /// Applies a transaction or not.
    pub(super) fn transact(&mut self, transaction: &Transaction) -> Answer {
        let is_of_leader = self.ignores_terms || transaction.term == self.content.term;
        let revision_of = |key| self.content.objects.get(key).map_or(0, |(revision, _)| *revision);
        let is_so = transaction.compares.iter().all(|(key, revision)| revision_of(key) == *revision);
        if !is_of_leader || !is_so {
            return Answer::Conflict;
        }
        if transaction.writes.is_empty() {
            return Answer::Done(self.content.revision);
        }
        self.content.revision += 1;
        self.writes += 1;
        let revision = self.content.revision;
        for (key, object) in &transaction.writes {
            match object {
                Some(object) => {
                    self.content.objects.insert(key.clone(), (revision, object.clone()));
                }
                None => {
                    self.content.objects.remove(key);
                }
            }
            self.history.push((revision, key.clone(), object.clone()));
        }
        Answer::Done(revision)
    }

    /// All objects.
    pub(super) fn list(&self, number: u64) -> (Revision, Event) {
        let objects = self.content.objects.iter();
        let objects = objects.map(|(key, (revision, object))| (key.clone(), *revision, object.clone()));
        let revision = self.content.revision;
        (revision, Event::Listed { number, revision, objects: objects.collect() })
    }

    /// The changes after a revision, and the revision of the last one.
    pub(super) fn since(&self, revision: Revision) -> (Revision, Vec<Event>) {
        if revision < self.compacted {
            return (self.content.revision, vec![Event::Compacted]);
        }
        let later = self.history.iter().filter(|(at, ..)| *at > revision);
        let events = later.map(|(revision, key, object)| {
            let (key, object) = (key.clone(), object.clone());
            Event::Changed { revision: *revision, key, object }
        });
        (self.content.revision, events.collect())
    }

    /// Forgets all changes so far.
    pub(super) fn compact(&mut self) {
        self.history.clear();
        self.compacted = self.content.revision;
    }

    /// Goes back to a backup.
    pub(super) fn restore(&mut self, content: Content) {
        self.content = content;
        self.history.clear();
        (self.compacted, self.lease) = (self.content.revision, None);
    }

    /// The clock by which leases end jumps: a lease ends at once, or lasts longer than its holder
    /// believes.
    pub(super) fn jump(&mut self, distance: Nanos) {
        if self.lease.take_if(|_| distance < LEASE).is_none()
            && let Some(lease) = &mut self.lease
        {
            lease.until = lease.until + distance;
        }
    }

    /// Renews the lease of a controller that leads in `term`, or gives it another. Returns the term
    /// if the controller leads.
    pub(super) fn campaign(&mut self, now: Instant, controller: usize, term: Option<u64>) -> Option<u64> {
        let lease = self.lease.filter(|lease| lease.until > now);
        if lease.is_some_and(|lease| lease.holder != controller) {
            return None;
        }
        if lease.is_none() || term != Some(self.content.term) {
            self.content.term += 1;
        }
        self.lease = Some(Lease { holder: controller, until: now + LEASE });
        Some(self.content.term)
    }
}
