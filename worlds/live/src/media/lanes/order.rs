//! The order between overlapping requests of different controllers, whose requests reach a medium
//! from several threads.
//!
//! The rule is that of `nvme::media::Ranges`: a request waits until every earlier one has ended
//! that touches the same bytes, if one of both changes them and they come from different
//! controllers. Here the bytes are divided into zones of 1 MiB, and zones share shards. A request
//! enters all its shards at once, so that two requests have the same order in every shard that both
//! touch. It begins when no shard makes it wait. A read of shards in which nothing changes or waits
//! takes no lock, and writes nothing that threads share.

use super::sync::{Arc, AtomicUsize, Mutex, Ordering, Plant, PoisonError, SHARDS, planted};

/// Length of a zone in bytes. No command's data touch more than two zones.
const ZONE: u64 = 1 << 20;

/// A request among those of all threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// The request's name. No other request ever has it.
    pub(super) key: u64,
    pub(super) medium: u32,
    /// The bytes that the request touches.
    pub(super) start: u64,
    pub(super) end: u64,
    /// Whether the request changes the bytes.
    pub(super) changes: bool,
}

/// Where a thread learns that a request of its own may begin.
pub(super) trait Mailbox {
    /// The request of this name may begin.
    fn put(&self, key: u64);
}

/// Whether a request may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// The request begins, and no other one waits for it.
    Free,
    /// The request begins. [`Order::end`] is to be called when it has ended.
    Begun,
    /// The request waits. Its mailbox gets its name when it may begin.
    Waiting,
}

/// The changes in progress, and the requests that wait, of several threads.
#[derive(Debug)]
pub(super) struct Order<O, M> {
    shards: Vec<Shard<O, M>>,
}

#[derive(Debug)]
#[repr(align(128))]
struct Shard<O, M> {
    /// How many requests are in the list, for reads.
    busy: AtomicUsize,
    /// Changes and waiting requests, in the order in which they entered.
    entered: Mutex<Vec<Entered<O, M>>>,
}

/// A request in a shard.
#[derive(Debug)]
struct Entered<O, M> {
    claim: Claim,
    /// The controller that sent the request; `None` after the request was disowned.
    owner: Option<O>,
    /// Whether this shard makes the request wait.
    is_blocked: bool,
    waiter: Option<Arc<Waiter<M>>>,
}

#[derive(Debug)]
struct Waiter<M> {
    /// How many shards make the request wait.
    shards: AtomicUsize,
    mailbox: Arc<M>,
}

impl Claim {
    /// A bit for each shard that the request touches.
    fn shards(&self) -> u64 {
        let (first, last) = (self.start / ZONE, self.end.saturating_sub(1).max(self.start) / ZONE);
        if last - first >= SHARDS - 1 {
            return u64::MAX;
        }
        let shift = u64::from(self.medium) * 7;
        (first..=last).fold(0, |shards, zone| shards | 1 << ((zone + shift) % SHARDS))
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.medium == other.medium && self.start < other.end && other.start < self.end
    }
}

impl<O: Copy + PartialEq, M> Entered<O, M> {
    /// Whether a later request waits for this one. A read that is in a list waits itself.
    fn precedes(&self, later: &Claim, owner: Option<O>) -> bool {
        let is_same = self.owner.is_some() && self.owner == owner;
        (self.claim.changes || later.changes) && !is_same && self.claim.overlaps(later)
    }
}

impl<O: Copy + PartialEq, M: Mailbox> Order<O, M> {
    pub(super) fn new() -> Self {
        let shard = |_| Shard { busy: AtomicUsize::new(0), entered: Mutex::new(Vec::new()) };
        Self { shards: (0..SHARDS).map(shard).collect() }
    }

    /// The shards of a claim, in the order in which all threads lock them.
    fn shards(&self, claim: &Claim) -> impl Iterator<Item = &Shard<O, M>> {
        let shards = claim.shards();
        self.shards.iter().enumerate().filter(move |(index, _)| shards >> index & 1 == 1).map(|(_, one)| one)
    }

    /// Enters a request of the controller `owner`. If it waits, `mailbox` gets its name later.
    pub(super) fn enter(&self, claim: Claim, owner: O, mailbox: &Arc<M>) -> Entry {
        let is_idle = |shard: &Shard<O, M>| shard.busy.load(Ordering::Acquire) == 0;
        if !claim.changes && self.shards(&claim).all(is_idle) {
            return Entry::Free;
        }
        // Several shards are the exception: a list of their locks costs memory then.
        let mut lists: Vec<_> = self
            .shards(&claim)
            .map(|shard| (shard, shard.entered.lock().unwrap_or_else(PoisonError::into_inner)))
            .collect();
        let waits = |list: &[Entered<O, M>]| list.iter().any(|earlier| earlier.precedes(&claim, Some(owner)));
        let blocking = lists.iter().filter(|(_, list)| waits(list)).count();
        if blocking == 0 && !claim.changes {
            return Entry::Free;
        }
        let blocking = if planted(Plant::Early) { blocking.min(1) } else { blocking };
        let waiter = || Waiter { shards: AtomicUsize::new(blocking), mailbox: Arc::clone(mailbox) };
        let waiter = (blocking > 0).then(|| Arc::new(waiter()));
        for (shard, list) in &mut lists {
            let is_blocked = waits(list);
            list.push(Entered { claim, owner: Some(owner), is_blocked, waiter: waiter.clone() });
            shard.busy.store(list.len(), Ordering::Release);
        }
        if blocking == 0 { Entry::Begun } else { Entry::Waiting }
    }

    /// Notes that a request has ended, or that a waiting one begins and is a read, or is given up.
    pub(super) fn end(&self, claim: &Claim) {
        for (index, shard) in self.shards(claim).enumerate() {
            if planted(Plant::Left) && index > 0 {
                continue;
            }
            let mut list = shard.entered.lock().unwrap_or_else(PoisonError::into_inner);
            list.retain(|one| one.claim.key != claim.key);
            shard.busy.store(list.len(), Ordering::Release);
            for index in 0..list.len() {
                let (earlier, rest) = list.split_at_mut(index);
                let Some(one) = rest.first_mut().filter(|one| one.is_blocked) else { continue };
                one.is_blocked = earlier.iter().any(|earlier| earlier.precedes(&one.claim, one.owner));
                let Some(waiter) = one.waiter.as_ref().filter(|_| !one.is_blocked) else { continue };
                if waiter.shards.fetch_sub(1, Ordering::AcqRel) == 1 {
                    waiter.mailbox.put(one.claim.key);
                }
            }
        }
    }

    /// Takes the owner from a request in progress whose command has ended without a completion:
    /// even its controller waits for it from now on.
    pub(super) fn disown(&self, claim: &Claim) {
        for shard in self.shards(claim) {
            let mut list = shard.entered.lock().unwrap_or_else(PoisonError::into_inner);
            let found = list.iter_mut().find(|one| one.claim.key == claim.key);
            found.into_iter().for_each(|one| one.owner = None);
        }
    }
}
