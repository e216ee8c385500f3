//! Snapshots and clones: how machines make them, and what must be in them.

use std::collections::BTreeMap;

use engine::Nanos;
use fleet::agent::ToCopy;
use fleet::object::{Data, Object};
use fleet::{Epoch, Name};

use super::machine::Machine;
use super::{Event, Plant, World};

/// The writes that data has, in the order in which they were executed.
pub(super) type Content = Vec<u64>;

/// A copy that a machine makes.
#[derive(Debug)]
pub(super) struct Making {
    copy: ToCopy,
    /// What the copy has so far: all of its source at one moment, or the part that was read first.
    content: Content,
    /// The number of this attempt, by which the end of another one is known.
    attempt: u64,
}

/// What users may rely on of snapshots and clones.
#[derive(Debug, Default)]
pub(super) struct Promises {
    /// The number of writes that the source had executed when a user asked for a copy. What users
    /// ask for again stays asked for.
    asked: BTreeMap<Data, usize>,
    /// The content of each copy that a user knows to be ready.
    ready: BTreeMap<Data, Content>,
}

impl Machine {
    /// The content of data that is there.
    pub(super) fn content(&self, data: &Data) -> Option<&Content> {
        match data {
            Data::Volume(name) => self.data.get(name),
            Data::Snapshot(name) => self.snapshots.get(name).map(|(_, content)| content),
        }
    }

    /// The copies that are durable, as an agent sees them.
    pub(super) fn copies(&self, plant: Option<Plant>) -> fleet::agent::Copies {
        let mut present: Vec<_> = self.made.iter().map(|(data, epoch)| (data.clone(), *epoch, 1)).collect();
        let mut making: Vec<_> = self.making.keys().cloned().collect();
        if plant == Some(Plant::ReadyBeforeDurable) {
            let begun = self.making.values();
            present.extend(begun.map(|one| (one.copy.data.clone(), one.copy.epoch, 1)));
            making.clear();
        }
        fleet::agent::Copies {
            number: self.copies_number,
            present,
            making,
            problems: Vec::new(),
            pools: vec![(self.name.clone(), self.shares || plant == Some(Plant::CopiedUnderWrites))],
        }
    }
}

impl World {
    /// An agent wants these copies to be made, and no others.
    pub(super) fn on_copies(&mut self, machine: usize, life: u64, number: u64, copies: &[ToCopy]) {
        let one = &mut self.machines[machine];
        if one.life != life || one.is_down {
            return;
        }
        one.copies_number = number;
        one.making.retain(|_, making| copies.contains(&making.copy));
        for copy in copies {
            let one = &self.machines[machine];
            if one.making.contains_key(&copy.data) || one.made.contains(&(copy.data.clone(), copy.epoch)) {
                continue;
            }
            let Some(content) = one.content(&copy.of).cloned() else {
                let failure = format!("{} is to be made from {}, which is not there", copy.data, copy.of);
                self.check(Err(failure));
                continue;
            };
            self.next_id += 1;
            let attempt = self.next_id;
            let slow = if copy.shares { 100 } else { 3_000 };
            let delay = Nanos::from_millis(1 + self.rng.below(slow));
            let making = Making { copy: copy.clone(), content, attempt };
            self.machines[machine].making.insert(copy.data.clone(), making);
            let data = copy.data.clone();
            self.after(delay, Event::Copied { machine, life, data, attempt });
        }
        self.observe(machine);
    }

    /// A copy is durable.
    pub(super) fn on_copied(&mut self, machine: usize, life: u64, data: &Data, attempt: u64) {
        let one = &mut self.machines[machine];
        if one.life != life || one.making.get(data).is_none_or(|making| making.attempt != attempt) {
            return;
        }
        let Making { copy, mut content, .. } = one.making.remove(data).expect("found above");
        if !one.shares {
            // Half of what was written meanwhile is in it.
            let later = one.content(&copy.of).and_then(|now| now.get(content.len()..));
            content.extend(later.into_iter().flatten().filter(|id| *id % 2 == 0));
        }
        one.made.insert((data.clone(), copy.epoch));
        match data {
            Data::Volume(name) => {
                one.data.insert(name.clone(), content.clone());
            }
            Data::Snapshot(name) => {
                one.snapshots.insert(name.clone(), (copy.epoch, content.clone()));
            }
        }
        let allowed = self.is_of_one_moment(machine, &copy, &content);
        self.check(allowed);
        self.observe(machine);
    }

    /// Whether a copy is what its source was at one moment, after the user asked for it.
    fn is_of_one_moment(&self, machine: usize, copy: &ToCopy, content: &Content) -> Result<(), String> {
        let ToCopy { data, of, .. } = copy;
        if self.restored {
            return Ok(());
        }
        if let Some(known) = self.rules.promises.ready.get(data) {
            return Err(format!("{data} is made once more: it had {} writes", known.len()));
        }
        let source = self.machines[machine].content(of);
        if source.is_none_or(|source| !source.starts_with(content)) {
            return Err(format!("{data} was not {of} at any moment"));
        }
        let asked = self.rules.promises.asked.get(data).copied().unwrap_or(0);
        if content.len() < asked {
            return Err(format!("{data} has {} writes, but {of} had {asked} before", content.len()));
        }
        if matches!(of, Data::Snapshot(_)) && source != Some(content) {
            return Err(format!("{data} differs from {of}"));
        }
        Ok(())
    }

    /// A user asks for a snapshot or a clone.
    pub(super) fn on_asked(&mut self, data: Data, of: &Data) {
        let writes = self.machines.iter().filter_map(|one| one.content(of)).map(Vec::len).max();
        self.rules.promises.asked.entry(data).or_insert(writes.unwrap_or(0));
    }

    /// A user learns that a snapshot or a clone is ready.
    pub(super) fn on_ready(&mut self, data: &Data) {
        if self.restored || self.rules.promises.ready.contains_key(data) {
            return;
        }
        let found = self.machines.iter().find_map(|one| one.content(data)).cloned();
        match found {
            Some(content) => {
                self.rules.promises.ready.insert(data.clone(), content);
            }
            None if self.rules.unwanted.contains(data.name()) => (),
            None => self.check(Err(format!("{data} is said to be ready, and is not there"))),
        }
    }

    /// Whether snapshots and clones have what they had when users learned of them. Hosts may have
    /// written more to clones.
    pub(super) fn copies_are_as_promised(&self) -> Result<(), String> {
        for (data, promised) in self.rules.promises.ready.iter().filter(|_| !self.restored) {
            if self.rules.unwanted.contains(data.name()) {
                continue;
            }
            let found = self.machines.iter().find_map(|one| one.content(data));
            let is_kept = found.is_some_and(|found| match data {
                Data::Snapshot(_) => found == promised,
                Data::Volume(_) => found.starts_with(promised),
            });
            if !is_kept {
                let found = found.map(Vec::len);
                return Err(format!(
                    "{data} had {} writes when it was ready, and has {found:?}",
                    promised.len()
                ));
            }
        }
        Ok(())
    }

    /// A machine deletes a snapshot.
    pub(super) fn on_snapshot_deleted(&mut self, machine: usize, life: u64, name: &Name, epoch: Epoch) {
        let one = &mut self.machines[machine];
        if one.life != life || one.snapshots.get(name).is_none_or(|(known, _)| *known != epoch) {
            return;
        }
        one.snapshots.remove(name);
        let data = Data::Snapshot(name.clone());
        one.made.remove(&(data.clone(), epoch));
        let allowed = self.may_delete(&data);
        self.check(allowed);
        self.observe(machine);
    }

    /// Whether data may be deleted: a user wanted that, and nothing is still to be made from it.
    pub(super) fn may_delete(&self, data: &Data) -> Result<(), String> {
        if !self.rules.unwanted.contains(data.name()) {
            return Err(format!("{data} was deleted, which no user wanted"));
        }
        match self.waits_for(data).filter(|_| !self.restored) {
            Some(name) => Err(format!("{data} was deleted before {name} was made from it")),
            None => Ok(()),
        }
    }

    /// What the store wants to be made from data, and has not seen yet.
    pub(super) fn waits_for(&self, data: &Data) -> Option<&Name> {
        let is_wanted = |name: &Name, object: &Object| match object {
            Object::Volume(one) if one.is_to_copy() && one.source.as_ref() == Some(data) => {
                !one.delete || self.waits_for(&Data::Volume(name.clone())).is_some()
            }
            Object::Snapshot(one) if one.taken.is_none() && Data::Volume(one.volume.clone()) == *data => {
                !one.delete || self.waits_for(&Data::Snapshot(name.clone())).is_some()
            }
            _ => false,
        };
        let mut objects = self.store.content.objects.iter();
        objects.find(|(key, (_, object))| is_wanted(&key.name, object)).map(|(key, _)| &key.name)
    }

    /// Deletes each snapshot of a machine that is marked, as a planted fault.
    pub(super) fn delete_marked(&mut self, machine: usize) {
        let marked = self.store.content.objects.iter().filter_map(|(key, (_, object))| match object {
            Object::Snapshot(one) if one.delete => Some((key.name.clone(), one.epoch)),
            _ => None,
        });
        let life = self.machines[machine].life;
        for (name, epoch) in marked.collect::<Vec<_>>() {
            self.on_snapshot_deleted(machine, life, &name, epoch);
        }
    }
}
