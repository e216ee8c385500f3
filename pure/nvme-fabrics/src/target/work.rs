//! The exponentiations of authentications (Diffie-Hellman), if the world does them: their order,
//! and the time that they may take.
//!
//! An exponentiation takes up to tens of milliseconds, and an attacker that knows a host's name can
//! request one. So they run beside the commands of hosts, one at a time, and those for unproven
//! hosts get a small share of a processor. Hosts at addresses from which hosts were admitted before
//! come first. Otherwise addresses take turns.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;

use engine::{Entropy, Instant, Nanos};

use super::{AssociationKey, Claim, Origin};
use crate::authentication::{Group, KeyPair, Product, Work};

/// How long a pair of keys of the controller is used. All groups are of safe primes and every
/// public value of a host is checked, so that a host learns no more than one bit of the private key
/// by its choice of values. Each challenge is new. An attacker that reads the target's memory in
/// this time can compute the shared keys of its transactions.
const KEYS_LAST: Nanos = Nanos::from_secs(60);
/// Maximum number of pieces of work that wait for hosts at addresses that are not known.
const STRANGERS_MAX: usize = 64;
/// How many of them may be for one address.
const STRANGERS_PER_ORIGIN_MAX: usize = 16;
/// Maximum number of pieces of work that wait for hosts at known addresses.
const KNOWN_MAX: usize = 1024;
/// The share of a processor for hosts at known addresses, in thousandths.
const KNOWN_SHARE: u32 = 500;
/// The most time that a share accumulates while there is no work.
const SAVED_MAX: Nanos = Nanos::from_millis(500);

/// Names a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkId(u64);

/// How much work waits, and how much was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkStatus {
    /// Pieces of work that wait or are in progress.
    pub waiting: usize,
    /// Pieces of work that were done.
    pub done: u64,
    /// Pieces of work that were refused because too many waited.
    pub refused: u64,
    /// Processor time that was spent.
    pub spent: Nanos,
}

/// A claim that needs work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Applicant {
    pub(super) key: AssociationKey,
    pub(super) claim: Claim,
    pub(super) origin: Origin,
    /// Whether hosts were admitted from there before.
    pub(super) is_known: bool,
}

impl Applicant {
    fn is(&self, key: AssociationKey, claim: Claim) -> bool {
        (self.key, self.claim) == (key, claim)
    }
}

/// A claim's use of a piece of work.
#[derive(Debug)]
pub(super) enum Part {
    /// The controller's keys.
    Keys(Rc<KeyPair>),
    /// The key that both ends share.
    Shared(Product),
}

/// A share of a processor's time, and the unused part of it.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// Thousandths of a processor.
    thousandths: u32,
    /// The spent time, less the time that has accrued since.
    debt: Nanos,
    /// When that was so.
    charged: Instant,
}

impl Share {
    const fn new(thousandths: u32) -> Self {
        Self { thousandths, debt: Nanos::ZERO, charged: Instant::ZERO }
    }

    /// When the next piece of work may begin.
    fn opens(self) -> Instant {
        let over = self.debt.get().saturating_sub(SAVED_MAX.get());
        self.charged + Nanos::new(over.saturating_mul(1000) / u64::from(self.thousandths.max(1)))
    }

    fn charge(&mut self, now: Instant, spent: Nanos) {
        let given = (now - self.charged).get() / 1000 * u64::from(self.thousandths);
        let left = self.debt.get().saturating_sub(given);
        (self.debt, self.charged) = (Nanos::new(left + spent.get()), now);
    }
}

/// A piece of work in progress.
#[derive(Debug)]
struct Running {
    id: WorkId,
    task: Task,
}

#[derive(Debug)]
enum Task {
    /// A pair of keys is generated, which is in the work.
    Generate(Group, Work),
    /// Derives the shared key of a claim. `None` if the claim was dropped.
    Derive(Option<Applicant>, bool),
}

/// All work for the world.
#[derive(Debug)]
pub(super) struct Works {
    is_outside: bool,
    /// The controller's keys, and when they were generated.
    keys: Vec<(Rc<KeyPair>, Group, Instant)>,
    /// The groups in which keys are to be generated, with the private key, and the claims that wait
    /// for them.
    wanted: Vec<(Group, Work, Vec<Applicant>)>,
    waiting: Vec<(Applicant, Work)>,
    running: Option<Running>,
    known: Share,
    strangers: Share,
    /// When addresses last had their turn, as the number of the piece of work.
    turns: BTreeMap<Origin, u64>,
    next: u64,
    status: WorkStatus,
}

impl Works {
    pub(super) const fn new() -> Self {
        Self {
            is_outside: false,
            keys: Vec::new(),
            wanted: Vec::new(),
            waiting: Vec::new(),
            running: None,
            known: Share::new(KNOWN_SHARE),
            strangers: Share::new(1000),
            turns: BTreeMap::new(),
            next: 0,
            status: WorkStatus { waiting: 0, done: 0, refused: 0, spent: Nanos::ZERO },
        }
    }

    pub(super) const fn go_outside(&mut self, share: u32) {
        self.is_outside = true;
        self.strangers = Share::new(share);
    }

    pub(super) const fn is_outside(&self) -> bool {
        self.is_outside
    }

    /// Keys of a group that may still be used.
    pub(super) fn keys(&mut self, now: Instant, group: Group) -> Option<Rc<KeyPair>> {
        self.keys.retain(|(_, _, made)| now < *made + KEYS_LAST);
        self.keys.iter().find(|(_, of, _)| *of == group).map(|(keys, ..)| Rc::clone(keys))
    }

    /// Queues the generation of keys of a group for `applicant`, and for all later applicants until
    /// it is done.
    pub(super) fn generate(&mut self, group: Group, applicant: Applicant, entropy: &mut Entropy) {
        if let Some((_, _, waiting)) = self.wanted.iter_mut().find(|(of, ..)| *of == group) {
            waiting.push(applicant);
        } else if let Some(work) = KeyPair::work(group, entropy) {
            self.wanted.push((group, work, Vec::from([applicant])));
        }
    }

    /// Has the key derived that `applicant` shares with its host. Returns false if too many wait.
    pub(super) fn derive(&mut self, applicant: Applicant, work: Work) -> bool {
        let count = |of: &dyn Fn(&Applicant) -> bool| self.waiting.iter().filter(|(one, _)| of(one)).count();
        let has_room = match applicant.is_known {
            true => count(&|one| one.is_known) < KNOWN_MAX,
            false => {
                count(&|one| !one.is_known) < STRANGERS_MAX
                    && count(&|one| !one.is_known && one.origin == applicant.origin)
                        < STRANGERS_PER_ORIGIN_MAX
            }
        };
        match has_room {
            true => self.waiting.push((applicant, work)),
            false => self.status.refused += 1,
        }
        has_room
    }

    /// Forgets a claim.
    pub(super) fn forget(&mut self, key: AssociationKey, claim: Claim) {
        self.retain(|one| !one.is(key, claim));
    }

    /// Forgets an association.
    pub(super) fn forget_all(&mut self, key: AssociationKey) {
        self.retain(|one| one.key != key);
    }

    fn retain(&mut self, stays: impl Fn(&Applicant) -> bool) {
        self.waiting.retain(|(one, _)| stays(one));
        for (_, _, waiting) in &mut self.wanted {
            waiting.retain(|one| stays(one));
        }
        if let Some(Running { task: Task::Derive(applicant, _), .. }) = &mut self.running {
            applicant.take_if(|one| !stays(one));
        }
    }

    /// The next piece of work, if one may begin now.
    pub(super) fn poll(&mut self, now: Instant) -> Option<(WorkId, Work)> {
        if self.running.is_some() {
            return None;
        }
        let id = WorkId(self.next);
        // Each group has few keys in an hour.
        if let Some((group, work, _)) = self.wanted.first() {
            let (task, work) = (Task::Generate(*group, work.clone()), work.clone());
            self.next += 1;
            self.running = Some(Running { id, task });
            return Some((id, work));
        }
        let is_open = |applicant: &Applicant| self.opens(applicant) <= now;
        let turn = |applicant: &Applicant| self.turns.get(&applicant.origin).copied();
        let candidates = (0..).zip(&self.waiting).filter(|(_, (one, _))| is_open(one));
        let (index, _) = candidates.min_by_key(|(_, (one, _))| (!one.is_known, turn(one)))?;
        let (applicant, work): (Applicant, Work) = self.waiting.remove(index);
        self.next += 1;
        self.turns.insert(applicant.origin, id.0 + 1);
        if self.waiting.is_empty() {
            self.turns.clear();
        }
        self.running = Some(Running { id, task: Task::Derive(Some(applicant), applicant.is_known) });
        Some((id, work))
    }

    fn opens(&self, applicant: &Applicant) -> Instant {
        let strangers = self.strangers.opens();
        if applicant.is_known { self.known.opens().min(strangers) } else { strangers }
    }

    /// When the next piece of work may begin, if one waits and none is in progress.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        if self.running.is_some() {
            return None;
        }
        let wanted = self.wanted.first().map(|_| Instant::ZERO);
        self.waiting.iter().map(|(one, _)| self.opens(one)).chain(wanted).min()
    }

    /// Ends a piece of work. Returns the applicants and their results.
    pub(super) fn on_done(
        &mut self,
        now: Instant,
        id: WorkId,
        product: Product,
        spent: Nanos,
    ) -> Vec<(Applicant, Part)> {
        let Some(running) = self.running.take_if(|running| running.id == id) else { return Vec::new() };
        self.status.done += 1;
        self.status.spent += spent;
        match running.task {
            Task::Generate(group, work) => {
                let Some(index) = self.wanted.iter().position(|(of, ..)| *of == group) else {
                    return Vec::new();
                };
                let (_, _, waiting) = self.wanted.remove(index);
                let Some(keys) = KeyPair::of(work, product) else { return Vec::new() };
                let keys = Rc::new(keys);
                self.keys.push((Rc::clone(&keys), group, now));
                waiting.into_iter().map(|one| (one, Part::Keys(Rc::clone(&keys)))).collect()
            }
            Task::Derive(applicant, is_known) => {
                match is_known && self.known.opens() <= now {
                    true => self.known.charge(now, spent),
                    false => self.strangers.charge(now, spent),
                }
                applicant.map(|one| (one, Part::Shared(product))).into_iter().collect()
            }
        }
    }

    pub(super) fn status(&self) -> WorkStatus {
        let wanted = self.wanted.len();
        let waiting = self.waiting.len() + wanted + usize::from(self.running.is_some());
        WorkStatus { waiting, ..self.status }
    }
}

#[cfg(test)]
mod tests {
    use engine::Rng;

    use super::*;
    use crate::wire::QueueId;

    const START: Instant = Instant::from_nanos(1 << 40);

    fn applicant(number: u32, address: u8, is_known: bool) -> Applicant {
        let origin = Origin::of([192, 0, 2, address].into());
        let claim = Claim { queue: QueueId::ADMIN, number };
        Applicant { key: AssociationKey(number), claim, origin, is_known }
    }

    fn work() -> Work {
        KeyPair::work(Group::Ffdhe2048, &mut Rng::from_seed(1).into()).unwrap()
    }

    fn works(share: u32) -> Works {
        let mut works = Works::new();
        works.go_outside(share);
        works
    }

    /// The association whose work is next.
    fn next(works: &mut Works, now: Instant, spent: Nanos) -> Option<u32> {
        let (id, _) = works.poll(now)?;
        assert!(works.poll(now).is_none(), "one at a time");
        let done = works.on_done(now, id, Product::none(), spent);
        Some(done.first().expect("a job waits for it").0.key.0)
    }

    #[test]
    fn known_addresses_come_first_and_the_others_take_turns() {
        let mut works = works(1000);
        for (number, address, is_known) in
            [(1, 1, false), (2, 1, false), (3, 1, false), (4, 2, false), (5, 3, true), (6, 2, false)]
        {
            assert!(works.derive(applicant(number, address, is_known), work()));
        }
        let order: Vec<_> = (0..6).filter_map(|_| next(&mut works, START, Nanos::ZERO)).collect();
        assert_eq!(order, [5, 1, 4, 2, 6, 3]);
        assert_eq!(next(&mut works, START, Nanos::ZERO), None);
    }

    #[test]
    fn strangers_get_their_share_of_a_processor_and_no_more() {
        let mut works = works(50);
        let (mut now, spent, mut count) = (START, Nanos::from_millis(30), 0);
        let end = START + Nanos::from_secs(100);
        let mut number = 0;
        while now < end {
            number += 1;
            assert!(works.derive(applicant(number, 1, false), work()));
            match next(&mut works, now, spent) {
                Some(_) => count += 1,
                None => {
                    works.forget_all(AssociationKey(number));
                    assert!(works.derive(applicant(number, 1, false), work()));
                    now = works.poll_timeout().unwrap();
                    assert_eq!(next(&mut works, now, spent), Some(number));
                    count += 1;
                }
            }
        }
        // 5 s of 100 s, and the time accumulated before.
        let used = Nanos::new(spent.get() * count);
        assert!(used <= Nanos::from_millis(5000 + 500 + 60), "{used}");
        assert!(used >= Nanos::from_millis(5000), "{used}");
        // A known host does not wait for strangers' debts.
        works.derive(applicant(1, 1, false), work());
        works.derive(applicant(2, 9, true), work());
        assert_eq!(next(&mut works, now, spent), Some(2));
        assert_eq!(next(&mut works, now, spent), None);
    }

    #[test]
    fn one_address_takes_no_more_than_its_places() {
        let mut works = works(50);
        let room = |works: &mut Works, address| {
            (0..100).filter(|number| works.derive(applicant(*number, address, false), work())).count()
        };
        assert_eq!(room(&mut works, 1), STRANGERS_PER_ORIGIN_MAX);
        assert_eq!(room(&mut works, 2), STRANGERS_PER_ORIGIN_MAX);
        let others: usize = (3..20).map(|address| room(&mut works, address)).sum();
        assert_eq!(others, STRANGERS_MAX - 2 * STRANGERS_PER_ORIGIN_MAX);
        assert!(works.derive(applicant(1000, 1, true), work()), "known hosts have places of their own");
        assert!(works.status().refused > 0);
        // Forgotten work frees its place.
        works.forget_all(AssociationKey(0));
        assert!(works.derive(applicant(2000, 7, false), work()));
    }

    #[test]
    fn keys_are_generated_once_for_all_and_for_a_short_time() {
        let (mut works, mut entropy) = (works(50), Entropy::from(Rng::from_seed(1)));
        let group = Group::Ffdhe2048;
        works.generate(group, applicant(1, 1, false), &mut entropy);
        works.generate(group, applicant(2, 2, false), &mut entropy);
        let (id, work) = works.poll(START).unwrap();
        let done = works.on_done(START, id, work.compute(), Nanos::ZERO);
        assert_eq!(done.len(), 2);
        assert!(works.poll(START).is_none());
        assert!(works.keys(START, group).is_some());
        assert!(works.keys(START, Group::Ffdhe8192).is_none());
        assert!(works.keys(START + KEYS_LAST, group).is_none());
    }
}
