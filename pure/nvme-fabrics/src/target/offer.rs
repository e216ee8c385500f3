//! The offer of a target with the place of each subsystem in it: with thousands of subsystems, one
//! is found, changed, added or removed without a walk over all.

use alloc::collections::BTreeMap;
use core::ops::Deref;

use super::{Directory, Subsystem, SubsystemKey};
use crate::wire::{Nqn, PortId};

/// A directory, and the place of each of its subsystems.
#[derive(Debug, Default)]
pub(super) struct Offer {
    directory: Directory,
    names: BTreeMap<Nqn, usize>,
    keys: BTreeMap<SubsystemKey, usize>,
}

impl Offer {
    pub(super) fn new(directory: Directory) -> Self {
        let mut offer = Self { directory, ..Self::default() };
        for (place, one) in offer.directory.subsystems.iter().enumerate() {
            // Of several with one name or key, the first counts.
            offer.names.entry(one.name.clone()).or_insert(place);
            offer.keys.entry(one.key).or_insert(place);
        }
        offer
    }

    pub(super) const fn directory(&self) -> &Directory {
        &self.directory
    }

    pub(super) const fn set_partial(&mut self, is_partial: bool) {
        self.directory.is_partial = is_partial;
    }

    /// The subsystem called `name`, if a host can reach it through `port`.
    pub(super) fn find(&self, name: &Nqn, port: PortId) -> Option<&Subsystem> {
        self.subsystems.get(*self.names.get(name)?).filter(|one| one.ports.contains(&port))
    }

    /// The subsystem with that key.
    pub(super) fn by_key(&self, key: SubsystemKey) -> Option<&Subsystem> {
        self.subsystems.get(*self.keys.get(&key)?)
    }

    /// Offers a subsystem, in the place of the one with its key if there is one. Returns whether
    /// hosts get another discovery log.
    pub(super) fn put(&mut self, subsystem: Subsystem) -> bool {
        let (name, key) = (subsystem.name.clone(), subsystem.key);
        let place = self.keys.get(&key).copied();
        let before = place.and_then(|place| self.directory.subsystems.get_mut(place));
        let (place, has_changed) = match (place, before) {
            (Some(place), Some(before)) => {
                let has_changed = !subsystem.looks_like(before);
                self.names.remove(&before.name);
                *before = subsystem;
                (place, has_changed)
            }
            _ => {
                self.directory.subsystems.push(subsystem);
                (self.directory.subsystems.len() - 1, true)
            }
        };
        self.names.insert(name, place);
        self.keys.insert(key, place);
        self.note_change(has_changed)
    }

    /// Offers a subsystem no longer. Returns the subsystem if it was offered.
    pub(super) fn remove(&mut self, key: SubsystemKey) -> Option<Subsystem> {
        let place = self.keys.remove(&key)?;
        let gone = self.directory.subsystems.swap_remove(place);
        self.names.remove(&gone.name);
        if let Some(moved) = self.directory.subsystems.get(place) {
            self.names.insert(moved.name.clone(), place);
            self.keys.insert(moved.key, place);
        }
        self.note_change(true);
        Some(gone)
    }

    const fn note_change(&mut self, has_changed: bool) -> bool {
        self.directory.generation = self.directory.generation.wrapping_add(has_changed as u64);
        has_changed
    }
}

impl Deref for Offer {
    type Target = Directory;

    fn deref(&self) -> &Directory {
        &self.directory
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::vec::Vec;

    use engine::Rng;

    use super::*;
    use crate::target::{ControllerModel, Hosts};

    fn subsystem(key: u32, port: u16) -> Subsystem {
        Subsystem {
            key: SubsystemKey(key),
            name: format!("nqn.2026-01.io.farlane:{}", key % 40).parse().unwrap(),
            hosts: Hosts::Any,
            terms: Vec::new(),
            model: ControllerModel::default(),
            ports: Vec::from([PortId(port)]),
            is_here: true,
        }
    }

    #[test]
    fn every_subsystem_has_its_place_after_any_changes() {
        let mut rng = Rng::from_seed(4711);
        let (mut offer, mut model) = (Offer::default(), Vec::<Subsystem>::new());
        for _ in 0..2000 {
            let key = u32::try_from(rng.below(40)).unwrap();
            let generation = offer.generation;
            if rng.below(3) == 0 {
                let known = model.iter().position(|one| one.key.0 == key);
                let gone = known.map(|place| model.swap_remove(place));
                assert_eq!(offer.remove(SubsystemKey(key)), gone);
                assert_eq!(offer.generation - generation, u64::from(gone.is_some()));
            } else {
                let new = subsystem(key, u16::try_from(rng.below(2)).unwrap());
                let has_changed = match model.iter_mut().find(|one| one.key == new.key) {
                    Some(known) => core::mem::replace(known, new.clone()) != new,
                    None => {
                        model.push(new.clone());
                        true
                    }
                };
                assert_eq!(offer.put(new), has_changed);
                assert_eq!(offer.generation - generation, u64::from(has_changed));
            }
            assert_eq!(offer.subsystems, model);
            for key in 0..40 {
                let known = model.iter().find(|one| one.key.0 == key);
                assert_eq!(offer.by_key(SubsystemKey(key)), known);
                let name = subsystem(key, 0).name;
                assert_eq!(offer.find(&name, PortId(1)), known.filter(|one| one.ports == [PortId(1)]));
            }
        }
        let rebuilt = Offer::new(offer.directory().clone());
        assert_eq!((rebuilt.names, rebuilt.keys), (offer.names, offer.keys));
    }
}
