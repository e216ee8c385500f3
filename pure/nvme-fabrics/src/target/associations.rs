//! All associations of a target: by key, by controller, and by the earliest time at which each may
//! be due.
//!
//! A target may have thousands of hosts. With their number, every operation here grows only like a
//! search in a tree, apart from walks over all of them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use engine::Instant;

use super::association::{Association, AssociationKey};
use super::{ASSOCIATIONS_MAX, SubsystemKey, UNPROVEN_ASSOCIATIONS_MAX};
use crate::wire::ControllerId;

/// An association, and the earliest time at which it may be due.
#[derive(Debug)]
struct Place {
    association: Association,
    check: Option<Instant>,
}

/// All associations of a target.
#[derive(Debug, Default)]
pub(super) struct Associations {
    /// Indexed by key.
    places: Vec<Option<Place>>,
    /// Keys that are free again.
    free: Vec<AssociationKey>,
    /// The controllers that belong to proven hosts; those of the discovery service belong to no
    /// subsystem.
    controllers: BTreeMap<(Option<SubsystemKey>, u16), AssociationKey>,
    /// How many associations have each controller or were promised it.
    promised: BTreeMap<(Option<SubsystemKey>, u16), u32>,
    /// Number of associations whose hosts have not proved their identity.
    unproven: usize,
    /// The earliest times at which associations may be due.
    checks: BTreeSet<(Instant, AssociationKey)>,
}

impl Associations {
    pub(super) const fn new() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
            controllers: BTreeMap::new(),
            promised: BTreeMap::new(),
            unproven: 0,
            checks: BTreeSet::new(),
        }
    }

    /// Adds an association; `None` when there are [`ASSOCIATIONS_MAX`] of proven hosts already, or
    /// [`UNPROVEN_ASSOCIATIONS_MAX`] of others.
    pub(super) fn insert(&mut self, association: Association) -> Option<AssociationKey> {
        let is_proven = association.is_proven;
        if !self.has_room(is_proven) {
            return None;
        }
        let key = self.free.pop().or_else(|| {
            let key = u32::try_from(self.places.len()).ok().map(AssociationKey);
            key.inspect(|_| self.places.push(None))
        })?;
        let controller = (association.subsystem(), association.controller.0);
        *self.promised.entry(controller).or_default() += 1;
        match is_proven {
            true => drop(self.controllers.insert(controller, key)),
            false => self.unproven += 1,
        }
        self.places[key.index()] = Some(Place { association, check: None });
        Some(key)
    }

    fn has_room(&self, is_proven: bool) -> bool {
        let proven = self.places.len() - self.free.len() - self.unproven;
        if is_proven { proven < ASSOCIATIONS_MAX } else { self.unproven < UNPROVEN_ASSOCIATIONS_MAX }
    }

    /// Gives the reserved controller to an association whose host has proved its identity. Returns
    /// false if another host has the controller by now, or there are too many.
    pub(super) fn prove(&mut self, key: AssociationKey) -> bool {
        let has_room = self.has_room(true);
        let Some(place) = self.places.get_mut(key.index()).and_then(Option::as_mut) else { return false };
        let association = &mut place.association;
        if association.is_proven {
            return true;
        }
        let controller = (association.subsystem(), association.controller.0);
        if !has_room || self.controllers.contains_key(&controller) {
            return false;
        }
        association.is_proven = true;
        self.controllers.insert(controller, key);
        self.unproven -= 1;
        true
    }

    /// Number of associations whose hosts have not proved their identity.
    pub(super) const fn unproven(&self) -> usize {
        self.unproven
    }

    pub(super) fn remove(&mut self, key: AssociationKey) -> Option<Association> {
        let Place { association, check } = self.places.get_mut(key.index())?.take()?;
        self.free.push(key);
        let controller = (association.subsystem(), association.controller.0);
        match association.is_proven {
            true => drop(self.controllers.remove(&controller)),
            false => self.unproven -= 1,
        }
        if let Some(count) = self.promised.get_mut(&controller) {
            *count -= 1;
            if *count == 0 {
                self.promised.remove(&controller);
            }
        }
        if let Some(at) = check {
            self.checks.remove(&(at, key));
        }
        Some(association)
    }

    pub(super) fn get(&self, key: AssociationKey) -> Option<&Association> {
        Some(&self.places.get(key.index())?.as_ref()?.association)
    }

    pub(super) fn get_mut(&mut self, key: AssociationKey) -> Option<&mut Association> {
        Some(&mut self.places.get_mut(key.index())?.as_mut()?.association)
    }

    /// Every association whose key is not below `from`, in the order of keys.
    pub(super) fn iter_from(
        &self,
        from: AssociationKey,
    ) -> impl Iterator<Item = (AssociationKey, &Association)> {
        let places = self.places.get(from.index()..).unwrap_or_default();
        (from.0..)
            .zip(places)
            .filter_map(|(key, one)| Some((AssociationKey(key), &one.as_ref()?.association)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (AssociationKey, &mut Association)> {
        let places = (0..).map(AssociationKey).zip(&mut self.places);
        places.filter_map(|(key, one)| Some((key, &mut one.as_mut()?.association)))
    }

    /// The association that has a controller and whose host has proved its identity.
    pub(super) fn of_controller(
        &self,
        subsystem: Option<SubsystemKey>,
        id: ControllerId,
    ) -> Option<AssociationKey> {
        self.controllers.get(&(subsystem, id.0)).copied()
    }

    /// Whether no host has the controller, and it is not reserved for one.
    pub(super) fn is_free(&self, subsystem: SubsystemKey, id: ControllerId) -> bool {
        !self.promised.contains_key(&(Some(subsystem), id.0))
    }

    /// The first controller identifier from `from` on that no proven host has, wrapping around. An
    /// identifier that is reserved for an unproven host comes last: the first host to prove its
    /// identity gets it. Starting at `from` keeps a recently used identifier from being reused
    /// soon.
    pub(super) fn free_controller(
        &self,
        subsystem: Option<SubsystemKey>,
        ids: &RangeInclusive<u16>,
        from: u16,
    ) -> Option<ControllerId> {
        let promised = first_gap(&self.promised, subsystem, ids, from);
        promised.or_else(|| first_gap(&self.controllers, subsystem, ids, from))
    }

    /// The association may be due at `at`, or earlier if that was known already.
    pub(super) fn check_by(&mut self, key: AssociationKey, at: Option<Instant>) {
        let (Some(place), Some(at)) = (self.places.get_mut(key.index()).and_then(Option::as_mut), at) else {
            return;
        };
        match place.check {
            Some(known) if known <= at => return,
            Some(known) => drop(self.checks.remove(&(known, key))),
            None => {}
        }
        place.check = Some(at);
        self.checks.insert((at, key));
    }

    /// The earliest time at which an association may be due.
    pub(super) fn next_check(&self) -> Option<Instant> {
        self.checks.first().map(|(at, _)| *at)
    }

    /// The associations that may be due.
    pub(super) fn due(&self, now: Instant) -> Vec<AssociationKey> {
        self.checks.range(..=(now, AssociationKey(u32::MAX))).map(|(_, key)| *key).collect()
    }

    /// The same, for associations whose times are removed.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<AssociationKey> {
        let due = self.due(now);
        for key in &due {
            if let Some(place) = self.places.get_mut(key.index()).and_then(Option::as_mut)
                && let Some(at) = place.check.take()
            {
                self.checks.remove(&(at, *key));
            }
        }
        due
    }
}

/// The first identifier from `from` on that is not among `taken`, wrapping around.
fn first_gap<T>(
    taken: &BTreeMap<(Option<SubsystemKey>, u16), T>,
    subsystem: Option<SubsystemKey>,
    ids: &RangeInclusive<u16>,
    from: u16,
) -> Option<ControllerId> {
    let (first, last) = (*ids.start(), *ids.end());
    if first > last {
        return None;
    }
    let from = from.clamp(first, last);
    let gap = |first: u16, last: u16| {
        let mut free = first;
        for ((_, taken), _) in taken.range((subsystem, first)..=(subsystem, last)) {
            if *taken != free {
                break;
            }
            free = free.checked_add(1)?;
        }
        (free <= last).then_some(ControllerId(free))
    };
    gap(from, last).or_else(|| (from > first).then(|| gap(first, from - 1)).flatten())
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use engine::{Nanos, Rng};

    use super::*;
    use crate::target::association::Queues;
    use crate::target::properties::Properties;
    use crate::target::{HostTerms, Served};
    use crate::wire::{HostId, Nqn, PortId};

    fn association(subsystem: u32, controller: u16) -> Association {
        Association {
            served: Served::Nvm(SubsystemKey(subsystem)),
            controller: ControllerId(controller),
            host: "nqn.2026-01.io.farlane:host".parse::<Nqn>().unwrap(),
            host_id: HostId([0; 16]),
            port: PortId(1),
            queues: Queues::default(),
            io_queues: 1,
            properties: Properties::default(),
            keep_alive: None,
            terms: HostTerms::default(),
            claimants: Vec::new(),
            next_claim: 0,
            is_proven: true,
            heard: Instant::ZERO,
            disabled: None,
        }
    }

    /// The expected result of a walk over all associations.
    #[derive(Default)]
    struct Model(Vec<(AssociationKey, u32, u16, Option<Instant>)>);

    impl Model {
        fn free_controller(&self, subsystem: u32, ids: &RangeInclusive<u16>, from: u16) -> Option<u16> {
            let (first, last) = (*ids.start(), *ids.end());
            let from = from.clamp(first, last);
            let is_taken = |id: &u16| self.0.iter().any(|(_, of, one, _)| (of, one) == (&subsystem, id));
            (from..=last).chain(first..from).find(|id| !is_taken(id))
        }
    }

    #[test]
    fn associations_are_found_as_by_a_walk_over_all() {
        let mut rng = Rng::from_seed(7);
        let (mut all, mut model, mut now) = (Associations::new(), Model::default(), Instant::ZERO);
        let ranges = [1..=6, 1..=u16::MAX, 0..=0, u16::MAX - 3..=u16::MAX];
        for _ in 0..20_000 {
            let number = u32::try_from(rng.below(4)).unwrap();
            let (ids, from) = (&ranges[number as usize], u16::try_from(rng.below(1 << 16)).unwrap());
            let from = if rng.below(2) == 0 { from } else { from % 8 };
            let found = all.free_controller(Some(SubsystemKey(number)), ids, from);
            assert_eq!(found.map(|id| id.0), model.free_controller(number, ids, from));
            match (rng.below(5), found) {
                (0 | 1, Some(id)) if model.0.len() < 40 => {
                    let key = all.insert(association(number, id.0)).unwrap();
                    assert!(model.0.iter().all(|(other, ..)| *other != key), "{key:?} is in use");
                    model.0.push((key, number, id.0, None));
                }
                (2, _) if !model.0.is_empty() => {
                    let index = usize::try_from(rng.below(model.0.len() as u64)).unwrap();
                    let (key, of, id, _) = model.0.swap_remove(index);
                    let removed = all.remove(key).unwrap();
                    assert_eq!((removed.subsystem(), removed.controller.0), (Some(SubsystemKey(of)), id));
                    assert!(all.remove(key).is_none() && all.get(key).is_none());
                }
                (3, _) if !model.0.is_empty() => {
                    let index = usize::try_from(rng.below(model.0.len() as u64)).unwrap();
                    let (key, .., check) = &mut model.0[index];
                    let at = now + Nanos::new(rng.below(50));
                    all.check_by(*key, Some(at));
                    *check = Some(check.map_or(at, |known| known.min(at)));
                }
                _ => {
                    now = now + Nanos::new(rng.below(10));
                    let mut due = all.due(now);
                    assert_eq!(all.take_due(now), due);
                    due.sort_unstable();
                    let is_due = |check: &Option<Instant>| check.is_some_and(|at| at <= now);
                    let mut expected = vec![];
                    for (key, .., check) in model.0.iter_mut().filter(|(.., check)| is_due(check)) {
                        expected.push(*key);
                        *check = None;
                    }
                    expected.sort_unstable();
                    assert_eq!(due, expected);
                }
            }
            assert_eq!(all.next_check(), model.0.iter().filter_map(|(.., check)| *check).min());
            for (key, of, id, _) in &model.0 {
                assert_eq!(all.of_controller(Some(SubsystemKey(*of)), ControllerId(*id)), Some(*key));
            }
            let keys: Vec<_> = all.iter_from(AssociationKey(3)).map(|(key, _)| key).collect();
            let mut expected: Vec<_> = model.0.iter().map(|(key, ..)| *key).collect();
            expected.retain(|key| key.0 >= 3);
            expected.sort_unstable();
            assert_eq!(keys, expected);
        }
    }

    #[test]
    fn who_proves_first_gets_the_controller_that_several_were_promised() {
        let (mut all, ids) = (Associations::new(), 1..=1);
        let unproven = || Association { is_proven: false, ..association(0, 1) };
        let [one, other] = [0; 2].map(|_| all.insert(unproven()).unwrap());
        assert_eq!(all.of_controller(Some(SubsystemKey(0)), ControllerId(1)), None);
        assert_eq!(all.free_controller(Some(SubsystemKey(0)), &ids, 1), Some(ControllerId(1)));
        assert!(all.prove(other) && !all.prove(one) && all.prove(other));
        assert_eq!(all.of_controller(Some(SubsystemKey(0)), ControllerId(1)), Some(other));
        assert_eq!(all.free_controller(Some(SubsystemKey(0)), &ids, 1), None);
        all.remove(one);
        assert_eq!(all.of_controller(Some(SubsystemKey(0)), ControllerId(1)), Some(other));
        assert_eq!(all.unproven(), 0);
    }

    #[test]
    fn the_unproven_take_no_place_of_a_proven_host() {
        let mut all = Associations::new();
        let unproven = || Association { is_proven: false, ..association(0, 1) };
        while all.insert(unproven()).is_some() {}
        assert_eq!(all.unproven(), UNPROVEN_ASSOCIATIONS_MAX);
        assert_eq!(UNPROVEN_ASSOCIATIONS_MAX, ASSOCIATIONS_MAX / 8);
        for id in 1..=u16::try_from(ASSOCIATIONS_MAX).unwrap() {
            all.insert(association(0, id)).unwrap();
        }
        assert!(all.insert(association(1, 1)).is_none());
        assert!(!all.prove(AssociationKey(0)), "the maximum number of associations exists");
    }

    #[test]
    fn there_are_so_many_associations_and_no_more() {
        let mut all = Associations::new();
        let ids = 1..=u16::MAX;
        for _ in 0..ASSOCIATIONS_MAX {
            let id = all.free_controller(Some(SubsystemKey(0)), &ids, 1).unwrap();
            all.insert(association(0, id.0)).unwrap();
        }
        assert!(all.insert(association(1, 1)).is_none());
        all.remove(AssociationKey(5)).unwrap();
        assert_eq!(all.insert(association(1, 1)), Some(AssociationKey(5)));
    }
}
