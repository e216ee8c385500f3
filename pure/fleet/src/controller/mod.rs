//! The controller of a fleet: decides, by transactions of the store, which volumes are where and
//! which hosts their owners let in.

mod api;
mod cache;
mod recover;
mod slices;
mod snapshots;
mod status;
mod volumes;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use engine::{Engine, Instant, Nanos};

use crate::Name;
use crate::object::{Key, Kind, Object};
use crate::placement::Prediction;
use crate::slice::{Report, Slice, VolumeReport};
use crate::store::{Answer, Event, Revision, Transaction};
pub use api::{ApiError, Call, Expect, Reply, Wait};
use cache::Cache;
use snapshots::snapshot_key;
pub use status::{Orphan, Phase, SnapshotPhase, VolumePhase};
use volumes::volume_key;

/// The most transactions that a controller begins in a burst, beside those of users.
pub const BURST: u32 = 64;
/// How often another transaction is allowed after a burst.
const REFILL: Nanos = Nanos::from_millis(5);

/// A user's name for a call that waits for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// The inputs of a controller.
#[derive(Clone, Debug)]
pub enum Input {
    /// The controller is the leader in this term.
    Elected(u64),
    /// The controller is the leader no longer.
    Deposed,
    /// The store reports this.
    Store(Event),
    /// The store answers the transaction with this number.
    Answered(u64, Answer),
    /// The agent of a machine has connected.
    Hello(Name),
    /// The agent of a machine is connected no longer.
    Gone(Name),
    /// The agent of a machine reports this.
    Report(Name, Report),
    /// A user calls.
    Call(CallId, Call),
    /// The user of a call waits no longer. What the call has begun goes on.
    Left(CallId),
    /// A simulation predicts how a volume of a class in a pool serves a host.
    Predicted(Prediction),
}

/// The outputs of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Apply a transaction, then answer with [`Input::Answered`].
    Transact(u64, Transaction),
    /// Resign, and stand for another term. The store must refuse what was sent in this one.
    Resign,
    /// List the store, then go on to watch it from the list's revision. The list has this number.
    List(u64),
    /// Ask the agent of a machine to report to this term from now on.
    Ask(Name, u64),
    /// Send a slice to the agent of a machine.
    Slice(Name, Slice),
    /// Answer a call.
    Reply(CallId, Result<Reply, ApiError>),
}

/// A transaction whose answer has not come.
#[derive(Debug)]
struct InFlight {
    transaction: Transaction,
    /// The call that it is for.
    call: Option<(CallId, Call)>,
    /// The reply to that call, if the answer only has to confirm it.
    reply: Option<Result<Reply, ApiError>>,
}

/// The controller of a fleet.
#[derive(Debug)]
pub struct Controller {
    /// The term, while the controller leads.
    term: Option<u64>,
    cache: Cache,
    /// Whether the cache is to be listed anew before the controller decides anything.
    listing: bool,
    lists: u64,
    /// The revision of the first list of this term.
    first_list: Option<Revision>,
    in_flight: BTreeMap<u64, InFlight>,
    number: u64,
    /// The connected agents, and what they reported last.
    reports: BTreeMap<Name, Option<Report>>,
    predictions: Vec<Prediction>,
    /// Volumes, snapshots and pools to be looked at.
    dirty: BTreeSet<Key>,
    /// Machines whose slices may have changed, and the slices that they were sent last.
    stale: BTreeSet<Name>,
    sent: BTreeMap<Name, Slice>,
    /// Calls that wait for something to be so.
    waiting: Vec<(CallId, Wait, Key)>,
    /// Calls to try again once the store was listed.
    again: Vec<(CallId, Call)>,
    tokens: u32,
    refill_at: Option<Instant>,
    outputs: VecDeque<Output>,
}

impl Default for Controller {
    fn default() -> Self {
        Self::new()
    }
}

impl Engine for Controller {
    type Input<'a> = Input;
    type Output = Output;

    fn handle_input(&mut self, now: Instant, input: Input) {
        match input {
            Input::Elected(term) => self.lead(term),
            Input::Deposed => self.follow(),
            Input::Store(event) => self.on_event(event),
            Input::Answered(number, answer) => self.on_answer(number, answer),
            Input::Hello(node) => {
                self.forget_report(&node);
                self.ask(node);
                self.look_at_unplaced();
            }
            Input::Gone(node) => {
                self.reports.remove(&node);
                self.sent.remove(&node);
                self.look_at_all();
            }
            Input::Report(node, report) => self.on_report(node, report),
            Input::Call(id, call) => self.on_call(id, call),
            Input::Left(id) => {
                self.waiting.retain(|(waiting, ..)| *waiting != id);
                self.again.retain(|(waiting, _)| *waiting != id);
            }
            Input::Predicted(prediction) => self.on_prediction(prediction),
        }
        self.work(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.refill_at.is_some_and(|at| at <= now) {
            self.tokens += 1;
            self.refill_at = (self.tokens < BURST).then(|| now + REFILL);
            self.work(now);
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.refill_at
    }
}

impl Controller {
    /// A controller that follows until it is elected.
    pub const fn new() -> Self {
        Self {
            term: None,
            cache: Cache::new(),
            listing: false,
            lists: 0,
            first_list: None,
            in_flight: BTreeMap::new(),
            number: 0,
            reports: BTreeMap::new(),
            predictions: Vec::new(),
            dirty: BTreeSet::new(),
            stale: BTreeSet::new(),
            sent: BTreeMap::new(),
            waiting: Vec::new(),
            again: Vec::new(),
            tokens: BURST,
            refill_at: None,
            outputs: VecDeque::new(),
        }
    }

    /// Whether the controller leads and knows the store.
    pub const fn is_ready(&self) -> bool {
        self.term.is_some() && !self.listing
    }

    fn lead(&mut self, term: u64) {
        self.follow();
        self.term = Some(term);
        let nodes: Vec<_> = self.reports.keys().cloned().collect();
        nodes.into_iter().for_each(|node| self.ask(node));
        // The store may have been restored: nothing of before is assumed.
        (self.cache, self.listing, self.first_list) = (Cache::new(), false, None);
        self.list();
    }

    /// Stops to decide. The answers to what was sent do not matter any longer.
    fn follow(&mut self) {
        self.term = None;
        let in_flight = core::mem::take(&mut self.in_flight).into_values();
        let calls = in_flight.filter_map(|one| one.call.map(|(id, _)| id));
        let waiting = core::mem::take(&mut self.waiting).into_iter().map(|(id, ..)| id);
        let again = core::mem::take(&mut self.again).into_iter().map(|(id, _)| id);
        let ended = calls.chain(waiting).chain(again);
        self.outputs.extend(ended.map(|id| Output::Reply(id, Err(ApiError::NotLeader))));
        self.sent.clear();
    }

    /// Asks a machine for reports. Earlier ones count no longer.
    fn ask(&mut self, node: Name) {
        let Some(term) = self.term else { return };
        self.sent.remove(&node);
        self.forget_report(&node);
        self.outputs.push_back(Output::Ask(node.clone(), term));
        self.stale.insert(node);
    }

    /// Notes that nothing is known of a machine that is connected. What waited for a device there
    /// to go waits no longer, for instance.
    fn forget_report(&mut self, node: &Name) {
        let Some(Some(before)) = self.reports.insert(node.clone(), None) else { return };
        self.dirty.extend(before.copies.iter().map(|one| one.data.key()));
        let devices = before.attachments.into_iter().map(|one| one.volume);
        let concerned = before.volumes.into_iter().map(|one| one.name).chain(devices);
        concerned.for_each(|name| self.touch(&name));
    }

    fn list(&mut self) {
        if !core::mem::replace(&mut self.listing, true) {
            self.ask_for_list();
        }
    }

    fn ask_for_list(&mut self) {
        self.lists += 1;
        self.outputs.push_back(Output::List(self.lists));
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Changed { revision, key, object } => {
                self.apply(revision, &key, object);
            }
            Event::Listed { number, .. } if number != self.lists => (),
            Event::Listed { revision, objects, .. } => {
                if !self.cache.replace(revision, objects) {
                    // The list is older than the answer to a transaction.
                    return self.ask_for_list();
                }
                self.listing = false;
                self.first_list.get_or_insert(revision);
                self.look_at_all();
                for (id, call) in core::mem::take(&mut self.again) {
                    self.on_call(id, call);
                }
            }
            Event::Compacted => self.list(),
        }
    }

    fn on_answer(&mut self, number: u64, answer: Answer) {
        let Some(InFlight { transaction, call, reply }) = self.in_flight.remove(&number) else { return };
        match answer {
            Answer::Done(revision) => {
                for (key, object) in &transaction.writes {
                    self.apply(revision, key, object.clone());
                    self.look_at(key, None);
                }
                match (call, reply) {
                    (Some((id, _)), Some(reply)) => self.outputs.push_back(Output::Reply(id, reply)),
                    (Some((id, call)), None) => self.reply_done(id, &call),
                    (None, _) => (),
                }
            }
            // The cache is behind the store.
            Answer::Conflict => {
                self.again.extend(call);
                self.list();
            }
            // The writes may be applied later, when something else was decided. No longer, once the
            // term has ended.
            Answer::Unknown => {
                if let Some((id, _)) = call {
                    self.outputs.push_back(Output::Reply(id, Err(ApiError::NotLeader)));
                }
                self.follow();
                return self.outputs.push_back(Output::Resign);
            }
        }
        for (id, call) in core::mem::take(&mut self.again) {
            self.on_call(id, call);
        }
    }

    fn on_report(&mut self, node: Name, report: Report) {
        if Some(report.term) != self.term {
            // Another controller has asked since, which may not know that it leads no longer.
            let is_known = self.reports.contains_key(&node);
            return if is_known {
                self.ask(node)
            };
        }
        let Some(known) = self.reports.get_mut(&node) else { return };
        let known = known.replace(report.clone());
        if known.as_ref().is_none_or(|known| known.attachments != report.attachments) {
            self.look_at_unplaced();
        }
        if known.is_none() {
            // Those that the owner does not know wait for its word, too.
            let uncopied = self.cache.volumes().filter(|(_, _, volume)| volume.is_to_copy());
            self.dirty.extend(uncopied.map(|(name, ..)| volume_key(name)));
        }
        let before = known.unwrap_or_default();
        let is_known = |volume: &&VolumeReport| !before.volumes.contains(volume);
        let volumes = report.volumes.iter().filter(is_known).map(|volume| &volume.name);
        let gone = before.volumes.iter().map(|volume| &volume.name);
        let gone = gone.filter(|name| report.volumes.iter().all(|volume| volume.name != **name));
        let devices = before.attachments.iter().chain(&report.attachments).map(|one| &one.volume);
        let touched: BTreeSet<_> = volumes.chain(gone).chain(devices).cloned().collect();
        for name in touched {
            self.touch(&name);
        }
        let (old, new) = (&before.copies, &report.copies);
        let changed = new
            .iter()
            .filter(|one| !old.contains(one))
            .chain(old.iter().filter(|one| new.iter().all(|two| two.data != one.data)));
        self.dirty.extend(changed.map(|one| one.data.key()));
        let pools = report.pools.iter().filter(|one| !before.pools.contains(one));
        self.dirty.extend(pools.map(|one| Key { kind: Kind::Pool, name: one.name.clone() }));
        self.stale.insert(node);
    }

    /// Begins a transaction.
    fn transact(&mut self, transaction: Transaction, call: Option<(CallId, Call)>) {
        self.number += 1;
        self.outputs.push_back(Output::Transact(self.number, transaction.clone()));
        self.in_flight.insert(self.number, InFlight { transaction, call, reply: None });
    }

    /// Whether a transaction in flight writes the object.
    fn is_busy(&self, key: &Key) -> bool {
        let mut writes = self.in_flight.values().flat_map(|one| &one.transaction.writes);
        writes.any(|(written, _)| written == key)
    }

    /// Takes a change into the cache.
    fn apply(&mut self, revision: Revision, key: &Key, object: Option<Object>) {
        if let Some(before) = self.cache.apply(revision, key.clone(), object) {
            self.look_at(key, before.as_ref());
        }
    }

    /// Notes that decisions may depend on an object that has changed.
    fn look_at(&mut self, key: &Key, before: Option<&Object>) {
        match (key.kind, before) {
            (Kind::Volume, before) => {
                self.look_at_unplaced();
                if let Some(Object::Volume(before)) = before {
                    self.stale.extend(before.admitted.iter().map(|one| one.node.clone()));
                    let pool = before.pool.as_ref().and_then(|pool| self.cache.pool(pool));
                    self.stale.extend(pool.map(|pool| pool.node.clone()));
                }
                self.touch(&key.name);
            }
            (Kind::Attachment, before) => {
                if let Some(Object::Attachment(before)) = before {
                    self.touch(&before.volume.clone());
                }
                if let Some(volume) = self.cache.attachment(&key.name).map(|one| one.volume.clone()) {
                    self.touch(&volume);
                }
            }
            (Kind::Snapshot, before) => {
                self.look_at_unplaced();
                self.dirty.insert(key.clone());
                let before = match before {
                    Some(Object::Snapshot(before)) => Some(before),
                    _ => None,
                };
                let pools = before.into_iter().chain(self.cache.snapshot(&key.name)).map(|one| &one.pool);
                let nodes = pools.filter_map(|pool| Some(self.cache.pool(pool)?.node.clone()));
                self.stale.extend(nodes);
            }
            _ => self.look_at_all(),
        }
    }

    /// Notes that the next step of a volume, and the slices of its machines, may be others.
    fn touch(&mut self, name: &Name) {
        self.dirty.insert(volume_key(name));
        if let Some(volume) = self.cache.volume(name) {
            let pool = volume.pool.as_ref().and_then(|pool| self.cache.pool(pool));
            let hosts = volume.admitted.iter().map(|one| &one.node);
            self.stale.extend(hosts.chain(pool.map(|pool| &pool.node)).cloned());
        }
    }

    /// Notes that there may be space for volumes that have no pool.
    fn look_at_unplaced(&mut self) {
        self.dirty.extend(self.cache.unplaced().map(volume_key));
    }

    fn look_at_all(&mut self) {
        self.dirty.extend(self.cache.volumes().map(|(name, ..)| volume_key(name)));
        self.dirty.extend(self.cache.snapshots().map(|(name, _)| snapshot_key(name)));
        let pools = self.cache.pools();
        self.dirty.extend(pools.map(|(name, _)| Key { kind: Kind::Pool, name: name.clone() }));
        for report in self.reports.values().flatten() {
            self.dirty.extend(report.volumes.iter().map(|volume| volume_key(&volume.name)));
            self.dirty.extend(report.copies.iter().map(|copy| copy.data.key()));
        }
        self.stale.extend(self.reports.keys().cloned());
    }

    /// The transaction that brings an object nearer to what users want.
    fn next_step_of(&self, key: &Key) -> Option<Transaction> {
        match key.kind {
            Kind::Volume => self.next_step(&key.name),
            Kind::Snapshot => self.next_snapshot_step(&key.name),
            Kind::Pool => self.next_pool_step(&key.name),
            _ => None,
        }
    }

    /// Takes the next steps of all objects that may be ready for one, as far as tokens allow.
    fn work(&mut self, now: Instant) {
        if !self.is_ready() {
            return;
        }
        let dirty = core::mem::take(&mut self.dirty);
        for key in dirty {
            if self.tokens == 0 {
                self.dirty.insert(key);
                continue;
            }
            let Some(transaction) = self.next_step_of(&key) else { continue };
            self.tokens -= 1;
            self.refill_at.get_or_insert(now + REFILL);
            self.transact(transaction, None);
        }
        self.reply_waiting();
        self.send_slices();
    }
}

#[cfg(test)]
mod tests;
