//! The next step of a volume: placed, fenced, granted to hosts, deleted.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::Controller;
use crate::object::{Admission, Attachment, Data, Key, Kind, Object, Snapshot, Volume};
use crate::placement::{self, Candidate, Ranking};
use crate::slice::VolumeReport;
use crate::store::{Revision, Transaction};
use crate::{Epoch, Name};

impl Controller {
    /// The transaction that brings a volume nearer to what users want; `None` if there is nothing
    /// to do, or if something else must happen first.
    pub(super) fn next_step(&self, name: &Name) -> Option<Transaction> {
        let key = volume_key(name);
        if self.is_busy(&key) {
            return None; // The end of that transaction looks at the volume again.
        }
        let Some(volume) = self.cache.volume(name) else {
            let lost = self.recover_lost(name);
            let lost = lost.or_else(|| self.recover_lost_copy(&Data::Volume(name.clone())));
            return lost.or_else(|| self.ended_attachment(name, &[]));
        };
        if volume.pool.is_none() {
            if let Some((_, report)) = self.lost(name) {
                // It was placed before the store forgot.
                return self.recover_older(name, volume, report);
            }
            if self.hold(name, volume).is_some() {
                return None;
            }
            return self.ended_attachment(name, &[]).or_else(|| self.place(name, volume));
        }
        // Nothing is decided without the owner, who may know more than the store.
        let report = match self.report_of(name, volume) {
            Some(_) if self.is_unmade_at_owner(name, volume) => return self.next_copy_step(name, volume),
            None if volume.is_to_copy() => return self.next_copy_step(name, volume),
            report => report?,
        };
        if self.is_behind(name, volume) {
            return self.recover_older(name, volume, report);
        }
        if volume.is_to_copy() && !volume.delete {
            // The owner has made it.
            return self.change(name, Some(Volume { copied: true, ..volume.clone() }));
        }
        if volume.delete && report.deleted {
            return self.ended_attachment(name, &[]).or_else(|| self.delete(name, report));
        }
        // First of all, owners let in no host longer than wanted.
        let kept: Vec<_> = volume.admitted.iter().filter(|one| self.is_wanted(name, one)).cloned().collect();
        if kept.len() < volume.admitted.len() {
            return self.admit(name, volume, kept);
        }
        // Everything else waits until the owner has made that so, durably.
        let report = Some(report).filter(|report| is_acknowledged(volume, report))?;
        if let Some(ended) = self.ended_attachment(name, &volume.admitted) {
            return Some(ended);
        }
        if volume.delete {
            return self.delete(name, report);
        }
        self.grant(name, volume)
    }

    /// Places a volume that has no pool yet.
    fn place(&self, name: &Name, volume: &Volume) -> Option<Transaction> {
        if volume.delete {
            let is_attached = self.cache.attachments_of(name).next().is_some();
            return if is_attached { None } else { self.change(name, None) };
        }
        let pool = self.rank(volume).fit.into_iter().next()?.pool;
        self.change(name, Some(Volume { pool: Some(pool), ..volume.clone() }))
    }

    /// All pools, as far as they are fit for a volume.
    pub fn rank(&self, volume: &Volume) -> Ranking {
        let class = match &volume.class {
            Some(class) => self.cache.class(class).cloned().unwrap_or_default(),
            None => crate::object::Class::default(),
        };
        let used = self.used();
        let candidates = self.cache.pools().map(|(name, pool)| {
            let prediction = self.predictions.iter().find(|one| {
                one.pool == *name && one.near == volume.near && Some(&one.class) == volume.class.as_ref()
            });
            Candidate {
                pool: name.clone(),
                free: pool.bytes.saturating_sub(used.get(name).copied().unwrap_or(0)),
                cordoned: self.cache.node(&pool.node).is_none_or(|node| node.cordon.is_some()),
                connected: self.reports.contains_key(&pool.node),
                prediction: prediction.cloned(),
            }
        });
        placement::rank(volume.bytes, &class, candidates)
    }

    /// The bytes of each pool that volumes and snapshots take, with those that transactions in
    /// flight give them.
    fn used(&self) -> BTreeMap<&Name, u64> {
        let writes = self.in_flight.values().flat_map(|one| &one.transaction.writes);
        let volumes = writes.filter(|(key, _)| key.kind == Kind::Volume);
        let mut written: BTreeMap<&Name, Option<&Volume>> = volumes
            .map(|(key, object)| match object {
                Some(Object::Volume(volume)) => (&key.name, Some(volume)),
                _ => (&key.name, None),
            })
            .collect();
        let stored = self.cache.volumes().map(|(name, _, stored)| {
            // Whether the transaction is applied is not known: the larger of both counts.
            let new = written.remove(name).flatten().filter(|new| new.bytes >= stored.bytes);
            new.unwrap_or(stored)
        });
        let mut volumes: Vec<&Volume> = stored.collect();
        volumes.extend(written.into_values().flatten());
        let mut used: BTreeMap<&Name, u64> = BTreeMap::new();
        for Volume { pool, bytes, .. } in volumes {
            if let Some(pool) = pool {
                let sum = used.entry(pool).or_default();
                *sum = sum.saturating_add(*bytes);
            }
        }
        let writes = self.in_flight.values().flat_map(|one| &one.transaction.writes);
        let new = writes.filter_map(|(key, object)| match object {
            Some(Object::Snapshot(new)) if self.cache.snapshot(&key.name).is_none() => Some(new),
            _ => None,
        });
        // Blocks that a snapshot shares now are its own once the volume is written.
        for Snapshot { pool, bytes, .. } in self.cache.snapshots().map(|(_, one)| one).chain(new) {
            let sum = used.entry(pool).or_default();
            *sum = sum.saturating_add(*bytes);
        }
        used
    }

    /// The bytes of a pool that nothing takes.
    pub(super) fn free(&self, pool: &Name) -> u64 {
        let bytes = self.cache.pool(pool).map_or(0, |pool| pool.bytes);
        bytes.saturating_sub(self.used().get(pool).copied().unwrap_or(0))
    }

    /// What the owner of a volume reports of it.
    pub(super) fn report_of(&self, name: &Name, volume: &Volume) -> Option<&VolumeReport> {
        let pool = self.cache.pool(volume.pool.as_ref()?)?;
        let report = self.reports.get(&pool.node)?.as_ref()?;
        report.volumes.iter().find(|one| one.name == *name)
    }

    /// Whether users still want what a host was let in for.
    fn is_wanted(&self, volume: &Name, one: &Admission) -> bool {
        let found = self.cache.attachment(&one.attachment);
        found.is_some_and(|found| {
            !found.detach && found.volume == *volume && found.node == one.node && found.mode == one.mode
        })
    }

    /// Changes the list of hosts that the owner lets in.
    fn admit(&self, name: &Name, volume: &Volume, admitted: Vec<Admission>) -> Option<Transaction> {
        let epoch = self.next_epoch(volume);
        self.change(name, Some(Volume { epoch, admitted, ..volume.clone() }))
    }

    fn next_epoch(&self, volume: &Volume) -> Epoch {
        volume.epoch.next(self.cache.fleet().incarnation.max(volume.epoch.incarnation))
    }

    /// Deletes an attachment that has ended.
    pub(super) fn ended_attachment(&self, name: &Name, admitted: &[Admission]) -> Option<Transaction> {
        let is_admitted = |one: &Name| admitted.iter().any(|admitted| admitted.attachment == *one);
        let mut ended = self.cache.attachments_of(name).filter(|(_, _, one)| one.detach);
        let (attachment, revision, _) =
            ended.find(|(one, ..)| !is_admitted(one) && !self.is_busy(&attachment_key(one)))?;
        let key = attachment_key(attachment);
        let compares = vec![(key.clone(), revision), self.compare(volume_key(name))];
        Some(Transaction { term: self.term?, compares, writes: vec![(key, None)] })
    }

    /// Deletes a volume whose data is gone. A machine that is there disconnects first, so that no
    /// device without a volume is left.
    fn delete(&self, name: &Name, report: &VolumeReport) -> Option<Transaction> {
        let is_attached = self.cache.attachments_of(name).next().is_some();
        let reports = self.reports.values().flatten();
        let mut attachments = reports.flat_map(|report| &report.attachments);
        let has_device = attachments.any(|attachment| attachment.volume == *name);
        if is_attached || has_device || !report.deleted {
            return None;
        }
        self.change(name, None)
    }

    /// Lets hosts in that wait, oldest attachment first, as far as they agree with those that are.
    fn grant(&self, name: &Name, volume: &Volume) -> Option<Transaction> {
        let is_admitted = |one: &Name| volume.admitted.iter().any(|admitted| admitted.attachment == *one);
        let mut waiting: Vec<(Revision, &Name, &Attachment)> = self
            .cache
            .attachments_of(name)
            .filter(|(one, _, attachment)| !attachment.detach && !is_admitted(one))
            .map(|(one, revision, attachment)| (revision, one, attachment))
            .collect();
        waiting.sort_unstable_by_key(|(revision, name, _)| (*revision, *name));
        let (epoch, mut admitted) = (self.next_epoch(volume), volume.admitted.clone());
        let mut compares = vec![self.compare(volume_key(name))];
        for (revision, attachment, Attachment { node, mode, transport, .. }) in waiting {
            let is_alone = admitted.is_empty();
            if !is_alone && !admitted.iter().all(|one| one.mode.agrees(*mode)) {
                continue;
            }
            if self.cache.node(node).is_none() {
                continue;
            }
            admitted.push(Admission {
                attachment: attachment.clone(),
                node: node.clone(),
                mode: *mode,
                epoch,
                transport: *transport,
            });
            compares.push((attachment_key(attachment), revision));
        }
        if admitted.len() == volume.admitted.len() {
            return None;
        }
        let new = Volume { epoch, admitted, ..volume.clone() };
        let writes = vec![(volume_key(name), Some(Object::Volume(new)))];
        Some(Transaction { term: self.term?, compares, writes })
    }

    /// A transaction that changes a volume only.
    pub(super) fn change(&self, name: &Name, volume: Option<Volume>) -> Option<Transaction> {
        let key = volume_key(name);
        let compares = vec![self.compare(key.clone())];
        Some(Transaction { term: self.term?, compares, writes: vec![(key, volume.map(Object::Volume))] })
    }

    /// The comparison that an object has not changed.
    pub(super) fn compare(&self, key: Key) -> (Key, Revision) {
        let revision = self.cache.revision_of(&key);
        (key, revision)
    }
}

/// Whether the owner has made a volume's list of hosts durable, and enforces it.
pub(super) fn is_acknowledged(volume: &Volume, report: &VolumeReport) -> bool {
    report.epoch == volume.epoch && report.admitted == volume.admitted && report.enforced
}

/// The key of a volume.
pub(super) fn volume_key(name: &Name) -> Key {
    Key { kind: Kind::Volume, name: name.clone() }
}

/// The key of an attachment.
pub(super) fn attachment_key(name: &Name) -> Key {
    Key { kind: Kind::Attachment, name: name.clone() }
}
