//! All associations of a target: by key, by controller, and by when each may be due.
//!
//! A target may have thousands of hosts. Nothing here takes longer with their number than a search
//! in a tree does, but walks over all of them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use engine::Instant;

use super::association::{Association, AssociationKey};
use super::{ASSOCIATIONS_MAX, SubsystemKey};
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
    /// The controllers that are in use; those of the discovery service belong to no subsystem.
    controllers: BTreeMap<(Option<SubsystemKey>, u16), AssociationKey>,
    /// The earliest times at which associations may be due.
    checks: BTreeSet<(Instant, AssociationKey)>,
}

impl Associations {
    pub(super) const fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new(), controllers: BTreeMap::new(), checks: BTreeSet::new() }
    }

    /// Adds an association; `None` when there are [`ASSOCIATIONS_MAX`] already.
    pub(super) fn insert(&mut self, association: Association) -> Option<AssociationKey> {
        let key = self.free.pop().or_else(|| {
            let key = u32::try_from(self.places.len()).ok().map(AssociationKey);
            key.filter(|key| key.index() < ASSOCIATIONS_MAX).inspect(|_| self.places.push(None))
        })?;
        self.controllers.insert((association.subsystem(), association.controller.0), key);
        self.places[key.index()] = Some(Place { association, check: None });
        Some(key)
    }

    pub(super) fn remove(&mut self, key: AssociationKey) -> Option<Association> {
        let Place { association, check } = self.places.get_mut(key.index())?.take()?;
        self.free.push(key);
        self.controllers.remove(&(association.subsystem(), association.controller.0));
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

    /// The association that has a controller.
    pub(super) fn of_controller(
        &self,
        subsystem: Option<SubsystemKey>,
        id: ControllerId,
    ) -> Option<AssociationKey> {
        self.controllers.get(&(subsystem, id.0)).copied()
    }

    /// The first controller identifier from `from` on that no association has, wrapping around.
    /// Starting at `from` keeps a recently used identifier from being reused soon.
    pub(super) fn free_controller(
        &self,
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
            for ((_, taken), _) in self.controllers.range((subsystem, first)..=(subsystem, last)) {
                if *taken != free {
                    break;
                }
                free = free.checked_add(1)?;
            }
            (free <= last).then_some(ControllerId(free))
        };
        gap(from, last).or_else(|| (from > first).then(|| gap(first, from - 1)).flatten())
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

    /// The same, whose times are forgotten.
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
            authentications: Vec::new(),
            admitted: Queues::default(),
            heard: Instant::ZERO,
            disabled: None,
        }
    }

    /// What a walk over all associations would find.
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
