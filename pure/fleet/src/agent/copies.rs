//! Snapshots, and volumes that begin with the data of others: made once, and deleted when nothing
//! is still to be made from them.
//!
//! Where files share blocks, a copy is of one moment, whatever hosts write. Elsewhere it takes its
//! time: it begins when no host is in, and no host is let in until it has ended.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Agent, Observation, Output, Refusal, SavedCopy, State};
use crate::object::Data;
use crate::slice::{CopyReport, OwnedCopy, PoolReport};
use crate::{Epoch, Name};

/// Data to make from other data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToCopy {
    /// What to make.
    pub data: Data,
    /// What to make it from. It is there.
    pub of: Data,
    /// The pool that holds both.
    pub pool: Name,
    /// The size in bytes of what to make.
    pub bytes: u64,
    /// What distinguishes it from others that had its name.
    pub epoch: Epoch,
    /// Whether both are to share blocks. Otherwise no host writes to the source.
    pub shares: bool,
}

/// What a machine has made from other data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// The number of the latest [`Output::Copy`] that was taken before anything here was observed.
    pub number: u64,
    /// The durable copies, and when each was made, in seconds since 1970.
    pub present: Vec<(Data, Epoch, u64)>,
    /// The copies under way. They may become present yet.
    pub making: Vec<Data>,
    /// Why something is not made, in sentences.
    pub problems: Vec<(Data, String)>,
    /// The pools, and whether the files of each can share blocks.
    pub pools: Vec<(Name, bool)>,
}

impl Copies {
    fn made_at(&self, data: &Data, epoch: Epoch) -> Option<u64> {
        let mut present = self.present.iter();
        present.find(|(one, of, _)| one == data && *of == epoch).map(|(.., at)| *at)
    }

    /// Whether something is being made under a name.
    pub(super) fn is_making(&self, data: &Data) -> bool {
        self.making.contains(data)
    }
}

impl Agent {
    /// Makes durable what was made. A loss of the data is noticed from then on.
    pub(super) fn note_made(&mut self, observed: &Observation) {
        let mut copies = self.saved.copies.values();
        if self.saving.is_some() || copies.all(|copy| copy.made.is_some()) {
            return; // The end of saving looks again.
        }
        let mut state = self.saved.clone();
        for (data, copy) in state.copies.iter_mut().filter(|(_, copy)| copy.made.is_none()) {
            copy.made = observed.copies.made_at(data, copy.epoch);
        }
        if state != self.saved {
            self.save(state);
        }
    }

    /// Has data made from other data, and snapshots deleted.
    pub(super) fn copy(&mut self, observed: &Observation) {
        if observed.copies.number != self.copy_number {
            return;
        }
        let wanted = self.to_copy(observed);
        if wanted != self.copying {
            self.copy_number += 1;
            self.outputs.push_back(Output::Copy { number: self.copy_number, copies: wanted.clone() });
            self.copying = wanted;
            return;
        }
        for (data, copy) in &self.saved.copies {
            let Data::Snapshot(snapshot) = data else { continue };
            let is_there = observed.copies.made_at(data, copy.epoch).is_some();
            if copy.delete && is_there && !self.is_needed(data) {
                let (snapshot, pool, epoch) = (snapshot.clone(), copy.pool.clone(), copy.epoch);
                self.outputs.push_back(Output::DeleteSnapshot { snapshot, pool, epoch });
            }
        }
    }

    /// The copies to make now.
    fn to_copy(&self, observed: &Observation) -> Vec<ToCopy> {
        let unmade = self.saved.copies.iter().filter(|(data, copy)| {
            let is_there = observed.copies.made_at(data, copy.epoch).is_some();
            copy.made.is_none() && !copy.delete && !is_there
        });
        let ready = unmade.filter(|(data, copy)| self.why_not(observed, data, copy).is_none());
        ready
            .map(|(data, copy)| ToCopy {
                data: data.clone(),
                of: copy.of.clone(),
                pool: copy.pool.clone(),
                bytes: copy.bytes,
                epoch: copy.epoch,
                shares: shares(observed, &copy.pool),
            })
            .collect()
    }

    /// Why data cannot be made yet.
    fn why_not(&self, observed: &Observation, data: &Data, copy: &SavedCopy) -> Option<String> {
        let SavedCopy { of, pool, .. } = copy;
        if !self.is_there(observed, of) {
            return Some(format!("{of} is not there yet: its own status says why"));
        }
        let Data::Volume(volume) = of else { return None };
        let has_begun = self.copying.iter().any(|one| one.data == *data);
        if shares(observed, pool) || has_begun || self.has_no_host(observed, volume) {
            return None;
        }
        Some(format!(
            "files of the pool {pool} share no blocks, so that the copy takes its time: detach {volume} until \
             it is made, or have the pool on XFS or Btrfs"
        ))
    }

    /// Whether data is there to make other data from it.
    fn is_there(&self, observed: &Observation, data: &Data) -> bool {
        match data {
            Data::Volume(name) => {
                self.saved.volumes.contains_key(name)
                    && !self.is_unmade(data)
                    && observed.present.contains(name)
            }
            Data::Snapshot(_) => self.saved.copies.get(data).is_some_and(|copy| {
                copy.made.is_some() && observed.copies.made_at(data, copy.epoch).is_some()
            }),
        }
    }

    /// Whether no host has a volume, and none is about to.
    fn has_no_host(&self, observed: &Observation, volume: &Name) -> bool {
        let is_empty = |saved: &super::SavedVolume| saved.admitted.is_empty();
        let asked = self.served.iter().flatten();
        let mut served = asked.chain(&observed.served).filter(|one| one.name == *volume);
        observed.number == self.serves
            && self.saved.volumes.get(volume).is_some_and(is_empty)
            && served.all(|one| one.admitted.is_empty())
            && observed.associations.iter().all(|(of, _)| of != volume)
    }

    /// Whether a volume's hosts are to stay out until a copy of it is made.
    pub(super) fn is_held(&self, volume: &Name) -> bool {
        let of_volume = |one: &ToCopy| matches!(&one.of, Data::Volume(of) if of == volume);
        self.copying.iter().any(|one| !one.shares && of_volume(one))
    }

    /// Whether data is yet to be made.
    pub(super) fn is_unmade(&self, data: &Data) -> bool {
        self.saved.copies.get(data).is_some_and(|copy| copy.made.is_none())
    }

    /// Whether a volume is yet to be made from other data.
    pub(super) fn is_unmade_volume(&self, name: &Name) -> bool {
        !self.saved.copies.is_empty() && self.is_unmade(&Data::Volume(name.clone()))
    }

    /// Whether something is still to be made from data.
    pub(super) fn is_needed(&self, data: &Data) -> bool {
        let mut copies = self.saved.copies.values();
        copies.any(|copy| copy.of == *data && copy.made.is_none() && !copy.delete)
    }

    /// Whether a deleted copy is certainly not there, and will not be.
    pub(super) fn is_copy_gone(&self, data: &Data, copy: &SavedCopy) -> bool {
        let is_durable = self.saved.copies.get(data).is_none_or(|saved| saved.delete);
        let is_gone = |observed: &Observation| {
            let copies = &observed.copies;
            copies.number == self.copy_number
                && copies.made_at(data, copy.epoch).is_none()
                && !copies.is_making(data)
                && self.copying.iter().all(|one| one.data != *data)
        };
        is_durable && self.current().is_some_and(is_gone)
    }

    /// What the agent reports of its copies and pools.
    pub(super) fn describe_copies(&self, state: &State) -> (Vec<CopyReport>, Vec<PoolReport>) {
        let copies = state.copies.iter().map(|(data, copy)| CopyReport {
            data: data.clone(),
            of: copy.of.clone(),
            pool: copy.pool.clone(),
            bytes: copy.bytes,
            epoch: copy.epoch,
            made: copy.made,
            delete: copy.delete,
            deleted: copy.delete && self.is_copy_gone(data, copy),
            problem: self.problem_of(data, copy).unwrap_or_default(),
        });
        let pools = self.observed.iter().flat_map(|observed| &observed.copies.pools);
        let pools = pools.map(|(name, clones)| PoolReport { name: name.clone(), clones: *clones });
        (copies.collect(), pools.collect())
    }

    /// What keeps a copy from being made, or from being used.
    fn problem_of(&self, data: &Data, copy: &SavedCopy) -> Option<String> {
        let observed = self.current()?;
        if copy.delete {
            let is_needed = self.is_needed(data);
            return is_needed.then(|| format!("a volume is still being made from {data}"));
        }
        let is_present = observed.copies.made_at(data, copy.epoch).is_some();
        match copy.made {
            Some(_) if is_present || matches!(data, Data::Volume(_)) => None,
            Some(_) => Some(format!(
                "the file of {data} is gone: mount the pool {}, put the file back, or delete it",
                copy.pool
            )),
            None => {
                let mut problems = observed.copies.problems.iter();
                let known = problems.find(|(of, _)| of == data).map(|(_, problem)| problem.clone());
                known.or_else(|| self.why_not(observed, data, copy))
            }
        }
    }
}

/// Whether the files of a pool can share blocks.
fn shares(observed: &Observation, pool: &Name) -> bool {
    observed.copies.pools.iter().any(|(name, clones)| name == pool && *clones)
}

/// Takes what a slice demands of data that is made from other data into the state, or refuses it.
pub(super) fn take_copy(state: &mut State, demanded: &OwnedCopy, is_gone: bool) -> Option<Refusal> {
    let OwnedCopy { data, of, pool, bytes, epoch, made, delete } = demanded;
    if let Data::Volume(name) = data
        && let Some(volume) = state.volumes.get(name)
    {
        if !volume.delete || volume.epoch >= *epoch {
            return None; // It was made, and hosts may have changed it.
        }
        state.volumes.remove(name);
    }
    let new = SavedCopy {
        of: of.clone(),
        pool: pool.clone(),
        bytes: *bytes,
        epoch: *epoch,
        made: *made,
        delete: *delete,
    };
    match state.copies.get_mut(data) {
        None => {
            state.copies.insert(data.clone(), new);
        }
        Some(saved) if saved.epoch == *epoch => {
            saved.made = saved.made.or(*made);
            saved.delete |= *delete;
        }
        // Another snapshot has the name by now.
        Some(saved) if saved.epoch < *epoch && saved.delete && is_gone => *saved = new,
        Some(saved) => {
            return Some(Refusal::Copy { data: data.clone(), offered: *epoch, saved: saved.epoch });
        }
    }
    None
}
