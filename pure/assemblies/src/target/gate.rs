//! The gate: connections whose hosts have not proved who they are, or need not, and what they may
//! take together.
//!
//! Such a connection is a stranger's until a Connect has succeeded that demands nothing more, or
//! until its host has authenticated. Strangers have places of their own. One address has at most
//! half of them, and each stranger has a time in which to prove who it is. There is always room for
//! the next one: the address with the most places loses one, and of its connections the one that
//! has said least. Addresses from which hosts were admitted by a key lose none to others. A host
//! that asks the discovery service without a key stays a stranger, so these have a share of the
//! places.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use engine::{Instant, Nanos, Origin};
use nvme_fabrics::target::WorkStatus;

use super::ConnectionId;

/// How many places strangers have together, if the world does not set fewer.
pub const STRANGERS_MAX: usize = 1024;
/// How long a host may take from its connection to the proof of who it is.
pub const PROOF_MAX: Nanos = Nanos::from_secs(5);
/// Number of addresses that are known because hosts were admitted from them.
const KNOWN_MAX: usize = 4096;
/// After so long without a stranger that was turned away, the next one is reported again.
const QUIET: Nanos = Nanos::from_secs(60);
/// The fewest places of one address.
const PER_ORIGIN_MIN: usize = 4;

/// How far a stranger is. Who has said least goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// The connection is over and waits for its end.
    Over,
    /// The host has said nothing.
    Silent,
    /// The host has said something.
    Speaking,
    /// The host uses the discovery service without a key.
    Discovery,
    /// The host has named a queue that it may have once it has authenticated.
    Claiming,
}

#[derive(Debug)]
struct Stranger {
    origin: Origin,
    stage: Stage,
    /// When the connection came, or the discovery service was last asked.
    heard: Instant,
    /// When the host must have proved who it is.
    deadline: Option<Instant>,
    /// What was left of its time when the target began to work for it.
    left: Nanos,
}

/// What strangers have, and what became of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StrangersStatus {
    /// Number of connections whose hosts have not proved who they are.
    pub count: usize,
    /// How many there may be.
    pub most: usize,
    /// How many of them use the discovery service.
    pub discovery: usize,
    /// How many of them may.
    pub discovery_most: usize,
    /// Number of hosts that were refused, by a word for the reason.
    pub refused: Vec<(&'static str, u64)>,
    /// Number of strangers that were dropped, by a word for the reason.
    pub dropped: Vec<(&'static str, u64)>,
    /// The exponentiations of authentications.
    pub work: WorkStatus,
}

/// What becomes of a stranger that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// There is room.
    Room,
    /// There is room once this connection is gone.
    InsteadOf(ConnectionId),
    /// There is no room.
    Full,
}

/// All strangers.
#[derive(Debug)]
pub(super) struct Gate {
    places: usize,
    proof_max: Nanos,
    strangers: BTreeMap<ConnectionId, Stranger>,
    deadlines: BTreeSet<(Instant, ConnectionId)>,
    /// How many strangers each address has.
    counts: BTreeMap<Origin, usize>,
    /// Addresses from which hosts were admitted by a key, and when last.
    known: BTreeMap<Origin, Instant>,
    refused: BTreeMap<&'static str, u64>,
    dropped: BTreeMap<&'static str, u64>,
    /// When a stranger was last turned away for another.
    crowded: Option<Instant>,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            places: STRANGERS_MAX,
            proof_max: PROOF_MAX,
            strangers: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            counts: BTreeMap::new(),
            known: BTreeMap::new(),
            refused: BTreeMap::new(),
            dropped: BTreeMap::new(),
            crowded: None,
        }
    }
}

impl Gate {
    pub(super) const fn set_places(&mut self, places: usize) {
        self.places = if places < PER_ORIGIN_MIN { PER_ORIGIN_MIN } else { places };
    }

    pub(super) const fn set_proof_max(&mut self, time: Nanos) {
        self.proof_max = time;
    }

    /// The most places of one address.
    fn per_origin(&self) -> usize {
        (self.places / 2).max(PER_ORIGIN_MIN)
    }

    /// The most strangers that use the discovery service, and how many of one address.
    const fn discovery_max(&self) -> (usize, usize) {
        let all = self.places / 2;
        (if all < 2 { 2 } else { all }, if all / 4 < 2 { 2 } else { all / 4 })
    }

    /// Whether hosts were admitted from there by a key.
    pub(super) fn knows(&self, origin: Origin) -> bool {
        self.known.contains_key(&origin)
    }

    /// Takes in a connection. A connection that must leave for it has left here.
    pub(super) fn accept(&mut self, now: Instant, id: ConnectionId, origin: Origin) -> Verdict {
        let victim = match self.victim_for(origin) {
            Ok(victim) => victim,
            Err(()) => {
                self.count_dropped("crowded");
                return Verdict::Full;
            }
        };
        if let Some(victim) = victim {
            self.remove(victim);
            self.count_dropped("crowded");
        }
        let deadline = now + self.proof_max;
        self.deadlines.insert((deadline, id));
        *self.counts.entry(origin).or_default() += 1;
        let (stage, deadline) = (Stage::Silent, Some(deadline));
        self.strangers.insert(id, Stranger { origin, stage, heard: now, deadline, left: Nanos::ZERO });
        victim.map_or(Verdict::Room, Verdict::InsteadOf)
    }

    /// The connection that must leave for a stranger of this address, if one must.
    ///
    /// # Errors
    /// When none may leave and there is no room.
    fn victim_for(&self, origin: Origin) -> Result<Option<ConnectionId>, ()> {
        let own = self.counts.get(&origin).copied().unwrap_or_default();
        if own >= self.per_origin() {
            return self.least_of(origin, |_| true).map(Some).ok_or(());
        }
        if self.strangers.len() < self.places {
            return Ok(None);
        }
        let may_leave = |other: &Origin| !self.knows(*other) || self.knows(origin);
        let greediest = self.counts.iter().filter(|(other, _)| may_leave(other));
        let greediest = greediest.max_by_key(|(other, count)| (!self.knows(**other), **count));
        let victim = greediest.and_then(|(other, _)| self.least_of(*other, |_| true));
        victim.map(Some).ok_or(())
    }

    /// The stranger of an address that has said least, and of those the one that came or spoke
    /// first.
    fn least_of(&self, origin: Origin, is_meant: impl Fn(Stage) -> bool) -> Option<ConnectionId> {
        let of_origin = self.strangers.iter().filter(|(_, one)| one.origin == origin && is_meant(one.stage));
        of_origin.min_by_key(|(_, one)| (one.stage, one.heard)).map(|(id, _)| *id)
    }

    /// A stranger has said something.
    pub(super) fn on_heard(&mut self, id: ConnectionId) {
        if let Some(one) = self.strangers.get_mut(&id).filter(|one| one.stage == Stage::Silent) {
            one.stage = Stage::Speaking;
        }
    }

    /// A stranger has claimed a queue.
    pub(super) fn on_claim(&mut self, id: ConnectionId) {
        if let Some(one) = self.strangers.get_mut(&id) {
            one.stage = Stage::Claiming;
        }
    }

    /// A stranger asks the discovery service something. Returns who must leave it for that.
    pub(super) fn on_discovery(&mut self, now: Instant, id: ConnectionId) -> Option<ConnectionId> {
        let one = self.strangers.get_mut(&id)?;
        one.heard = now;
        if one.stage == Stage::Discovery {
            return None;
        }
        one.stage = Stage::Discovery;
        let (origin, deadline) = (one.origin, one.deadline.take());
        if let Some(at) = deadline {
            self.deadlines.remove(&(at, id));
        }
        let mut counts = BTreeMap::<Origin, usize>::new();
        for other in self.strangers.values().filter(|other| other.stage == Stage::Discovery) {
            *counts.entry(other.origin).or_default() += 1;
        }
        let (most, most_of_one) = self.discovery_max();
        let own = counts.get(&origin).copied().unwrap_or_default();
        let from = if own > most_of_one {
            origin
        } else if counts.values().sum::<usize>() > most {
            let rank = |other: &Origin, count: &usize| (!self.knows(*other), *count);
            *counts.iter().max_by_key(|(other, count)| rank(other, count))?.0
        } else {
            return None;
        };
        let victim = self.least_of(from, |stage| stage == Stage::Discovery)?;
        self.remove(victim);
        self.count_dropped("discovery");
        Some(victim)
    }

    /// The target works for a stranger, whose time stands still meanwhile.
    pub(super) fn pause(&mut self, now: Instant, id: ConnectionId) {
        if let Some(one) = self.strangers.get_mut(&id)
            && let Some(at) = one.deadline.take()
        {
            one.left = at - now;
            self.deadlines.remove(&(at, id));
        }
    }

    /// The target has done its work for a stranger.
    pub(super) fn resume(&mut self, now: Instant, id: ConnectionId) {
        if let Some(one) = self.strangers.get_mut(&id)
            && one.deadline.is_none()
            && one.stage == Stage::Claiming
        {
            let at = now + one.left;
            one.deadline = Some(at);
            self.deadlines.insert((at, id));
        }
    }

    /// A stranger's connection is over, and about to be closed.
    pub(super) fn on_over(&mut self, id: ConnectionId) {
        if let Some(one) = self.strangers.get_mut(&id) {
            one.stage = Stage::Over;
            if let Some(at) = one.deadline.take() {
                self.deadlines.remove(&(at, id));
            }
        }
    }

    /// The host of a connection is admitted, or the connection is gone. Returns whether it was a
    /// stranger's.
    pub(super) fn remove(&mut self, id: ConnectionId) -> bool {
        let Some(one) = self.strangers.remove(&id) else { return false };
        if let Some(at) = one.deadline {
            self.deadlines.remove(&(at, id));
        }
        if let Some(count) = self.counts.get_mut(&one.origin) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&one.origin);
            }
        }
        true
    }

    /// A host was admitted from there by a key.
    pub(super) fn know(&mut self, now: Instant, origin: Origin) {
        if self.known.len() >= KNOWN_MAX
            && !self.known.contains_key(&origin)
            && let Some(oldest) = self.known.iter().min_by_key(|(_, at)| **at).map(|(one, _)| *one)
        {
            self.known.remove(&oldest);
        }
        self.known.insert(origin, now);
    }

    /// Whether `id` is a stranger's connection.
    pub(super) fn has(&self, id: ConnectionId) -> bool {
        self.strangers.contains_key(&id)
    }

    /// A stranger was turned away for another. Returns whether to report that: once until none was
    /// for a while.
    pub(super) fn report_crowded(&mut self, now: Instant) -> bool {
        self.crowded.replace(now).is_none_or(|before| now - before >= QUIET)
    }

    /// The stranger whose time is over, if any.
    pub(super) fn expire(&mut self, now: Instant) -> Option<ConnectionId> {
        let (at, id) = *self.deadlines.first()?;
        (at <= now).then(|| {
            self.on_over(id);
            self.count_dropped("late");
            id
        })
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    pub(super) fn count_refused(&mut self, why: &'static str) {
        *self.refused.entry(why).or_default() += 1;
    }

    pub(super) fn count_dropped(&mut self, why: &'static str) {
        *self.dropped.entry(why).or_default() += 1;
    }

    pub(super) fn status(&self, work: WorkStatus) -> StrangersStatus {
        let discovery = self.strangers.values().filter(|one| one.stage == Stage::Discovery).count();
        StrangersStatus {
            count: self.strangers.len(),
            most: self.places,
            discovery,
            discovery_most: self.discovery_max().0,
            refused: self.refused.iter().map(|(why, count)| (*why, *count)).collect(),
            dropped: self.dropped.iter().map(|(why, count)| (*why, *count)).collect(),
            work,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1 << 40);

    fn origin(address: u8) -> Origin {
        Origin::of([192, 0, 2, address].into())
    }

    fn gate(places: usize) -> Gate {
        let mut gate = Gate::default();
        gate.set_places(places);
        gate
    }

    /// Strangers of an address come; returns who is there of each of the first numbers.
    fn come(gate: &mut Gate, address: u8, ids: core::ops::Range<u32>) -> Vec<Verdict> {
        ids.map(|id| gate.accept(NOW + Nanos::new(id.into()), ConnectionId(id), origin(address))).collect()
    }

    #[test]
    fn there_is_always_room_for_the_next_and_the_greediest_loses_it() {
        let mut gate = gate(16);
        // One address has half of the places; it then loses its own.
        let verdicts = come(&mut gate, 1, 0..9);
        assert!(verdicts[..8].iter().all(|one| *one == Verdict::Room));
        assert_eq!(verdicts[8], Verdict::InsteadOf(ConnectionId(0)));
        come(&mut gate, 2, 100..105);
        assert!(come(&mut gate, 3, 200..203).iter().all(|one| *one == Verdict::Room));
        // All places are taken. Those that have said something stay longest.
        for id in 1..6 {
            gate.on_heard(ConnectionId(id));
        }
        assert_eq!(come(&mut gate, 4, 300..301), [Verdict::InsteadOf(ConnectionId(6))]);
        gate.on_over(ConnectionId(5));
        assert_eq!(come(&mut gate, 5, 400..401), [Verdict::InsteadOf(ConnectionId(5))]);
        assert_eq!(gate.strangers.len(), 16);
        // What is gone leaves nothing behind.
        for id in gate.strangers.keys().copied().collect::<Vec<_>>() {
            assert!(gate.remove(id));
        }
        assert!(gate.counts.is_empty() && gate.deadlines.is_empty() && gate.poll_timeout().is_none());
    }

    #[test]
    fn addresses_that_hosts_were_admitted_from_lose_nothing_to_others() {
        let mut gate = gate(16);
        gate.know(NOW, origin(1));
        gate.know(NOW, origin(2));
        come(&mut gate, 1, 0..8);
        come(&mut gate, 2, 100..108);
        assert_eq!(come(&mut gate, 3, 200..201), [Verdict::Full]);
        gate.remove(ConnectionId(0));
        assert_eq!(come(&mut gate, 3, 200..201), [Verdict::Room]);
        // A known address takes the place of an unknown one first, even if it has more places.
        gate.know(NOW, origin(4));
        assert_eq!(come(&mut gate, 4, 300..301), [Verdict::InsteadOf(ConnectionId(200))]);
        assert_eq!(come(&mut gate, 4, 301..302), [Verdict::InsteadOf(ConnectionId(100))]);
    }

    #[test]
    fn each_stranger_has_its_time_which_stands_still_while_the_target_works() {
        let mut gate = gate(16);
        come(&mut gate, 1, 0..2);
        let [one, other] = [0, 1].map(ConnectionId);
        gate.on_claim(one);
        gate.pause(NOW + Nanos::from_secs(1), one);
        let late = NOW + Nanos::new(1) + PROOF_MAX;
        assert_eq!(gate.poll_timeout(), Some(late));
        assert_eq!(gate.expire(late), Some(other));
        assert_eq!((gate.expire(late), gate.poll_timeout()), (None, None));
        gate.resume(NOW + Nanos::from_secs(60), one);
        assert_eq!(gate.poll_timeout(), Some(NOW + Nanos::from_secs(64)));
        assert_eq!(gate.expire(NOW + Nanos::from_secs(64)), Some(one));
    }

    #[test]
    fn discovery_has_a_share_of_the_places() {
        let mut gate = gate(64);
        assert_eq!(gate.discovery_max(), (32, 8));
        let mut gone = Vec::new();
        for (address, ids) in [(1, 0..20), (2, 100..120), (3, 200..220), (4, 300..308), (5, 400..401)] {
            for id in ids {
                come(&mut gate, address, id..id + 1);
                gone.extend(gate.on_discovery(NOW + Nanos::new(id.into()), ConnectionId(id)));
            }
        }
        let status = gate.status(WorkStatus::default());
        assert_eq!((status.discovery, status.discovery_most), (32, 32));
        assert_eq!(status.dropped, [("discovery", 12 * 3 + 1)]);
        assert!(gone.contains(&ConnectionId(0)) && !gone.contains(&ConnectionId(400)));
        assert!(gate.poll_timeout().is_none(), "their silence is bounded by other means");
        // A connection that asks stays.
        let kept = ConnectionId(212);
        assert_eq!(gate.on_discovery(NOW + Nanos::from_secs(1), kept), None);
        for id in 500..540 {
            come(&mut gate, 3, id..id + 1);
            let gone = gate.on_discovery(NOW + Nanos::new(id.into()), ConnectionId(id));
            assert_ne!(gone, Some(kept));
        }
    }
}
