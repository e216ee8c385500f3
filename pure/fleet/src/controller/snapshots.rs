//! Snapshots, and volumes that begin with the data of others: asked for, made by the owner,
//! recovered after a restoration, deleted.
//!
//! Owners make them, in the pool of their source. A source stays until nothing is still to be made
//! from it. The epoch of a snapshot is that of its creation: it distinguishes those of one name.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use super::volumes::volume_key;
use super::{ApiError, Controller, SnapshotPhase};
use crate::object::{Data, Key, Kind, Object, Pool, Snapshot, Volume};
use crate::slice::{CopyReport, OwnedCopy, Report};
use crate::store::Transaction;
use crate::{Epoch, Name};

/// What a controller says of an owner that does not speak of a copy.
const SILENT: &str = "the owner has not begun; an agent of an earlier version makes no copies: update it";

impl Controller {
    /// The transaction that brings a snapshot nearer to what users want.
    pub(super) fn next_snapshot_step(&self, name: &Name) -> Option<Transaction> {
        let key = snapshot_key(name);
        if self.is_busy(&key) {
            return None;
        }
        let data = Data::Snapshot(name.clone());
        let Some(snapshot) = self.cache.snapshot(name) else {
            return self.recover_lost_copy(&data);
        };
        let owner = self.reporting_owner(&snapshot.pool)?;
        let report = owner.copies.iter().find(|one| one.data == data)?;
        if report.epoch != snapshot.epoch || report.delete && !snapshot.delete {
            return self.recover_copy(owner, report);
        }
        if snapshot.delete {
            return if report.deleted { self.change_snapshot(name, None) } else { None };
        }
        if self.is_ahead(owner) || snapshot.taken.is_some() || report.made.is_none() {
            return None;
        }
        self.change_snapshot(name, Some(Snapshot { taken: report.made, ..snapshot.clone() }))
    }

    /// The next step of a volume that the owner has yet to make from other data. No host has ever
    /// been let in.
    pub(super) fn next_copy_step(&self, name: &Name, volume: &Volume) -> Option<Transaction> {
        let owner = self.reporting_owner(volume.pool.as_ref()?)?;
        if self.is_ahead(owner) {
            return None;
        }
        let data = Data::Volume(name.clone());
        match owner.copies.iter().find(|one| one.data == data) {
            Some(copy) if copy.epoch != volume.epoch && !copy.delete => self.recover_copy(owner, copy),
            Some(copy) if copy.made.is_some() => {
                self.change(name, Some(Volume { copied: true, ..volume.clone() }))
            }
            _ => self.ended_attachment(name, &[]),
        }
    }

    /// Whether the owner knows of a volume, and has yet to make it from its source: a controller of
    /// an earlier version may have taken it for an ordinary one.
    pub(super) fn is_unmade_at_owner(&self, name: &Name, volume: &Volume) -> bool {
        let owner = volume.pool.as_ref().and_then(|pool| self.reporting_owner(pool));
        let mut copies = owner.into_iter().flat_map(|owner| &owner.copies);
        let is_it = |one: &CopyReport| matches!(&one.data, Data::Volume(of) if of == name);
        volume.is_to_copy() && !volume.delete && copies.any(|one| is_it(one) && one.made.is_none())
    }

    /// Writes whether the files of a pool share blocks, as its machine has found out.
    pub(super) fn next_pool_step(&self, name: &Name) -> Option<Transaction> {
        let key = Key { kind: Kind::Pool, name: name.clone() };
        let pool = self.cache.pool(name).filter(|_| !self.is_busy(&key))?;
        let report = self.reporting_owner(name)?;
        let clones = report.pools.iter().find(|one| one.name == *name)?.clones;
        if clones == pool.clones {
            return None;
        }
        let new = Object::Pool(Pool { clones, ..pool.clone() });
        Some(Transaction {
            term: self.term?,
            compares: vec![self.compare(key.clone())],
            writes: vec![(key, Some(new))],
        })
    }

    fn change_snapshot(&self, name: &Name, snapshot: Option<Snapshot>) -> Option<Transaction> {
        let key = snapshot_key(name);
        let compares = vec![self.compare(key.clone())];
        let writes = vec![(key, snapshot.map(Object::Snapshot))];
        Some(Transaction { term: self.term?, compares, writes })
    }

    /// What the machine of a pool reports in this term.
    pub(super) fn reporting_owner(&self, pool: &Name) -> Option<&Report> {
        self.reports.get(&self.cache.pool(pool)?.node)?.as_ref()
    }

    /// A copy that its owner has, and of which the store knows nothing.
    pub(super) fn lost_copy(&self, data: &Data) -> Option<(&Name, &Report, &CopyReport)> {
        let reports = self.reports.iter().filter_map(|(node, report)| Some((node, report.as_ref()?)));
        let mut copies =
            reports.flat_map(|(node, report)| report.copies.iter().map(move |one| (node, report, one)));
        copies.find(|(node, _, one)| {
            one.data == *data
                && !one.delete
                && self.cache.pool(&one.pool).is_some_and(|pool| pool.node == **node)
        })
    }

    /// Recovers a copy that its owner has, but not the store.
    pub(super) fn recover_lost_copy(&self, data: &Data) -> Option<Transaction> {
        let (_, owner, report) = self.lost_copy(data)?;
        self.recover_copy(owner, report)
    }

    /// Takes what an owner knows of a copy for the truth, once an operator has decided so.
    fn recover_copy(&self, owner: &Report, report: &CopyReport) -> Option<Transaction> {
        let CopyReport { data, of, pool, bytes, epoch, made, delete, .. } = report;
        let is_decided = self.cache.fleet().incarnation > epoch.incarnation && !self.is_ahead(owner);
        let key = data.key();
        let known = self.cache.get(&key).map(|(_, object)| object);
        let of_another = |known: Epoch| *delete && known != *epoch;
        let object = match (data, known) {
            _ if !is_decided => return None,
            (Data::Snapshot(_), Some(Object::Snapshot(known))) if of_another(known.epoch) => return None,
            (Data::Snapshot(_), Some(Object::Snapshot(known))) if known.epoch == *epoch => {
                Object::Snapshot(Snapshot { delete: known.delete || *delete, ..known.clone() })
            }
            (Data::Snapshot(_), _) => Object::Snapshot(Snapshot {
                volume: of.name().clone(),
                pool: pool.clone(),
                bytes: *bytes,
                taken: *made,
                delete: false,
                epoch: *epoch,
            }),
            (Data::Volume(_), _) => Object::Volume(Volume {
                bytes: *bytes,
                class: None,
                near: None,
                pool: Some(pool.clone()),
                delete: false,
                epoch: *epoch,
                admitted: Vec::new(),
                source: Some(of.clone()),
                copied: made.is_some(),
            }),
        };
        let compares = vec![self.compare(key.clone())];
        Some(Transaction { term: self.term?, compares, writes: vec![(key, Some(object))] })
    }

    /// Whether an owner knows of a copy what the store does not: it was restored.
    pub(super) fn is_copy_behind(&self, data: &Data, pool: &Name, epoch: Epoch, delete: bool) -> bool {
        let Some(owner) = self.reporting_owner(pool) else { return false };
        let report = owner.copies.iter().find(|one| one.data == *data);
        let differs = |report: &CopyReport| {
            if report.epoch == epoch { report.delete && !delete } else { !report.delete }
        };
        self.is_ahead(owner) || report.is_some_and(differs)
    }

    /// Whether some owner knows of a copy what the store does not.
    pub(super) fn is_any_copy_behind(&self) -> bool {
        let mut snapshots = self.cache.snapshots();
        let mut volumes = self.cache.volumes();
        snapshots.any(|(name, one)| {
            self.is_copy_behind(&Data::Snapshot(name.clone()), &one.pool, one.epoch, one.delete)
        }) || volumes.any(|(name, _, one)| {
            let pool = one.pool.as_ref().filter(|_| one.is_to_copy());
            pool.is_some_and(|pool| self.is_copy_behind(&Data::Volume(name.clone()), pool, one.epoch, true))
        })
    }

    /// The copies that a machine owns, for its slice.
    pub(super) fn copies_of(&self, node: &Name) -> Vec<OwnedCopy> {
        let is_owner = |pool: &Name| self.cache.pool(pool).is_some_and(|pool| pool.node == *node);
        let snapshots = self.cache.snapshots().filter(|(_, one)| is_owner(&one.pool));
        let snapshots = snapshots.map(|(name, one)| {
            let data = Data::Snapshot(name.clone());
            OwnedCopy {
                of: Data::Volume(one.volume.clone()),
                pool: one.pool.clone(),
                bytes: one.bytes,
                epoch: one.epoch,
                made: one.taken,
                delete: one.delete && !self.is_awaited(&data),
                data,
            }
        });
        let is_to_make = |(name, _, one): &(&Name, _, &Volume)| {
            one.is_to_copy() && (!one.delete || self.is_awaited(&Data::Volume((*name).clone())))
        };
        let volumes = self.cache.volumes().filter(is_to_make);
        let volumes = volumes.filter_map(|(name, _, one)| {
            Some(OwnedCopy {
                data: Data::Volume(name.clone()),
                of: one.source.clone()?,
                pool: one.pool.clone().filter(is_owner)?,
                bytes: one.bytes,
                epoch: one.epoch,
                made: None,
                delete: false,
            })
        });
        snapshots.chain(volumes).collect()
    }

    /// Whether something is still to be made from data. A copy to delete counts if something
    /// else is to be made from it. There are no circles, as sources are there first.
    pub(super) fn is_awaited(&self, data: &Data) -> bool {
        let volumes = self.cache.volumes().filter(|(_, _, one)| one.is_to_copy());
        let mut volumes = volumes.filter(|(_, _, one)| one.source.as_ref() == Some(data));
        let is_of = |one: &Snapshot| matches!(data, Data::Volume(volume) if one.volume == *volume);
        let snapshots = self.cache.snapshots().filter(|(_, one)| one.taken.is_none());
        let mut snapshots = snapshots.filter(|(_, one)| is_of(one));
        // A new object may be in the store already, although the answer has not come.
        let mut writes = self.in_flight.values().flat_map(|one| &one.transaction.writes);
        let is_new = |(key, object): &(Key, Option<Object>)| {
            let is_of = object.as_ref().and_then(depends_on) == Some(data.key());
            is_of && self.cache.get(key).is_none()
        };
        volumes.any(|(name, _, one)| !one.delete || self.is_awaited(&Data::Volume(name.clone())))
            || writes.any(is_new)
            || snapshots.any(|(name, one)| !one.delete || self.is_awaited(&Data::Snapshot(name.clone())))
    }

    /// How far a snapshot is; `None` if there is no such snapshot.
    pub fn snapshot_phase(&self, name: &Name) -> Option<SnapshotPhase> {
        let snapshot = self.cache.snapshot(name)?;
        if snapshot.delete {
            return Some(SnapshotPhase::Deleting);
        }
        let data = Data::Snapshot(name.clone());
        let Some(owner) = self.reporting_owner(&snapshot.pool) else {
            let pool = self.cache.pool(&snapshot.pool);
            let node = pool.map_or_else(|| snapshot.pool.clone(), |pool| pool.node.clone());
            return Some(SnapshotPhase::WaitsForOwner(node));
        };
        if self.is_copy_behind(&data, &snapshot.pool, snapshot.epoch, false) {
            return Some(SnapshotPhase::WaitsForRecovery);
        }
        let problem = copy_problem(owner, &data);
        Some(match snapshot.taken {
            Some(_) if problem.is_empty() => SnapshotPhase::Ready,
            Some(_) => SnapshotPhase::Lost(problem),
            None => SnapshotPhase::WaitsForCopy(problem),
        })
    }

    /// For what a volume waits that its owner has yet to make from other data.
    pub(super) fn copy_problem_of(&self, name: &Name, volume: &Volume) -> Option<String> {
        let owner = self.reporting_owner(volume.pool.as_ref()?)?;
        Some(copy_problem(owner, &Data::Volume(name.clone())))
    }

    /// Checks a snapshot that a user wants, and completes it.
    pub(super) fn put_snapshot(
        &self,
        name: &Name,
        new: &Snapshot,
        known: Option<&Object>,
    ) -> Result<Snapshot, ApiError> {
        if let Some(Object::Snapshot(known)) = known {
            if known.delete {
                return Err(ApiError::InUse(format!(
                    "the snapshot {name} is being deleted: wait until it is gone"
                )));
            }
            if known.volume != new.volume {
                return Err(ApiError::Invalid(format!(
                    "the snapshot {name} exists, of the volume {}: choose another name",
                    known.volume
                )));
            }
            return Ok(known.clone());
        }
        self.check_not_lost(&Data::Snapshot(name.clone()))?;
        let (pool, bytes) = self.source_of(&Data::Volume(new.volume.clone()))?;
        self.check_space(Some(&pool), bytes)?;
        let epoch = self.first_epoch();
        Ok(Snapshot { volume: new.volume.clone(), pool, bytes, taken: None, delete: false, epoch })
    }

    /// The epoch of a new object. Those of objects that had its name before are lower.
    pub(super) fn first_epoch(&self) -> Epoch {
        Epoch { incarnation: self.cache.fleet().incarnation, number: self.cache.revision() + 1 }
    }

    /// Checks that no owner has data of a name of which the store knows nothing.
    pub(super) fn check_not_lost(&self, data: &Data) -> Result<(), ApiError> {
        let Some((node, ..)) = self.lost_copy(data) else { return Ok(()) };
        Err(ApiError::InUse(format!(
            "{node} has {data}, of which the store knows nothing: it was restored from an old backup (`farlane \
             fleet recover`)"
        )))
    }

    /// The pool and the size of data from which something is to be made.
    pub(super) fn source_of(&self, data: &Data) -> Result<(Name, u64), ApiError> {
        let (pool, bytes, delete) = match self.cache.get(&data.key()).map(|(_, object)| object) {
            Some(Object::Snapshot(one)) => (Some(&one.pool), one.bytes, one.delete),
            Some(Object::Volume(one)) => (one.pool.as_ref(), one.bytes, one.delete),
            _ => return Err(ApiError::NotFound(data.key())),
        };
        if delete {
            return Err(ApiError::InUse(format!("{data} is being deleted: choose another source")));
        }
        let no_pool = || ApiError::InUse(format!("{data} has no pool yet: wait until it is ready"));
        Ok((pool.ok_or_else(no_pool)?.clone(), bytes))
    }

    /// The pool of a new volume with a source, which is the source's.
    pub(super) fn pool_by_source(&self, name: &Name, new: &Volume) -> Result<Option<Name>, ApiError> {
        let Some(source) = &new.source else { return Ok(new.pool.clone()) };
        let (pool, bytes) = self.source_of(source)?;
        if new.bytes < bytes {
            return Err(ApiError::Invalid(format!(
                "the volume {name} would have {} bytes, but {source} has {bytes}: choose at least these",
                new.bytes
            )));
        }
        if new.pool.as_ref().is_some_and(|wanted| *wanted != pool) {
            return Err(ApiError::Invalid(format!(
                "{source} is in the pool {pool}, and what is made from it is, too: choose no other pool"
            )));
        }
        Ok(Some(pool))
    }
}

/// What keeps a copy from being made, or from being used, as its owner says.
fn copy_problem(owner: &Report, data: &Data) -> String {
    let found = owner.copies.iter().find(|one| one.data == *data);
    found.map_or_else(|| SILENT.to_string(), |one| one.problem.clone())
}

/// The key of a snapshot.
pub(super) fn snapshot_key(name: &Name) -> Key {
    Key { kind: Kind::Snapshot, name: name.clone() }
}

/// The keys whose revisions a new object depends on: data that is marked for deletion meanwhile is
/// no source.
pub(super) fn depends_on(object: &Object) -> Option<Key> {
    match object {
        Object::Volume(new) => new.source.as_ref().map(Data::key),
        Object::Snapshot(new) => Some(volume_key(&new.volume)),
        _ => None,
    }
}
