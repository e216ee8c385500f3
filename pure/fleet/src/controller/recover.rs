//! Volumes of which their owners know more than the store, which was restored from a backup.
//!
//! Nothing is decided for such a volume until an operator has raised the fleet's incarnation above
//! those that agents have made durable. Then the store learns from the owners.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::volumes::{attachment_key, volume_key};
use super::{Controller, VolumePhase};
use crate::object::{Admission, Attachment, Kind, Object, Volume};
use crate::slice::{Report, VolumeReport};
use crate::store::Transaction;
use crate::{Epoch, Name};

/// The owner of attachments that were recovered.
const RECOVERED: &str = "recovered";

impl Controller {
    /// Recovers a volume that its owner has, but not the store.
    pub(super) fn recover_lost(&self, name: &Name) -> Option<Transaction> {
        let (_, report) = self.lost(name)?;
        let volume = Volume {
            bytes: report.bytes,
            class: None,
            near: None,
            pool: Some(report.pool.clone()),
            delete: false,
            epoch: Epoch::default(),
            admitted: Vec::new(),
            source: None,
            copied: false,
        };
        self.recover_older(name, &volume, report)
    }

    /// The owner of a volume that the store does not have, and the report of it.
    pub(super) fn lost(&self, name: &Name) -> Option<(&Name, &VolumeReport)> {
        let reports = self.reports.iter().filter_map(|(node, report)| Some((node, report.as_ref()?)));
        let mut volumes =
            reports.flat_map(|(node, report)| report.volumes.iter().map(move |one| (node, one)));
        // Names first: there are as many volumes as in the whole fleet.
        volumes.find(|(node, one)| {
            one.name == *name
                && !one.deleted
                && one.epoch.number > 0
                && self.cache.pool(&one.pool).is_some_and(|pool| pool.node == **node)
        })
    }

    /// Recovers a volume whose owner has made durable what the store does not know.
    pub(super) fn recover_older(
        &self,
        name: &Name,
        volume: &Volume,
        report: &VolumeReport,
    ) -> Option<Transaction> {
        let incarnation = self.cache.fleet().incarnation;
        let owner = self.cache.pool(&report.pool).and_then(|pool| self.reports.get(&pool.node)?.as_ref());
        if incarnation <= report.epoch.incarnation || owner.is_some_and(|owner| self.is_ahead(owner)) {
            return None; // An operator decides: see `farlane fleet recover`.
        }
        if report.deleted {
            return self.recover_deleted(name, volume);
        }
        let mut compares = vec![self.compare(volume_key(name))];
        let mut writes = Vec::new();
        for one in &report.admitted {
            let key = attachment_key(&one.attachment);
            if self.is_busy(&key) {
                return None;
            }
            match self.cache.attachment(&one.attachment) {
                Some(known) if is_same(known, name, one) => {}
                Some(_) => continue, // Another attachment has the name: this host is fenced.
                None => {
                    let attachment = Attachment {
                        volume: name.clone(),
                        node: one.node.clone(),
                        mode: one.mode,
                        transport: one.transport,
                        owner: RECOVERED.to_string(),
                        detach: false,
                    };
                    writes.push((key.clone(), Some(Object::Attachment(attachment))));
                }
            }
            compares.push(self.compare(key));
        }
        debug_assert!(writes.iter().all(|(key, _)| key.kind == Kind::Attachment));
        let number = report.epoch.number.max(volume.epoch.number);
        let new = Volume {
            bytes: volume.bytes.max(report.bytes),
            pool: Some(report.pool.clone()),
            epoch: Epoch { incarnation, number: number + 1 },
            admitted: report.admitted.clone(),
            delete: volume.delete && report.admitted.is_empty(),
            copied: volume.source.is_some(),
            ..volume.clone()
        };
        writes.push((volume_key(name), Some(Object::Volume(new))));
        Some(Transaction { term: self.term?, compares, writes })
    }

    /// Recovers a volume whose data was deleted since the backup. Users had detached it before.
    fn recover_deleted(&self, name: &Name, volume: &Volume) -> Option<Transaction> {
        let mut compares = vec![self.compare(volume_key(name))];
        let deleted = Object::Volume(Volume { delete: true, ..volume.clone() });
        let mut writes = vec![(volume_key(name), Some(deleted))];
        for (attachment, revision, one) in self.cache.attachments_of(name).filter(|(.., one)| !one.detach) {
            let key = attachment_key(attachment);
            if self.is_busy(&key) {
                return None;
            }
            compares.push((key.clone(), revision));
            writes.push((key, Some(Object::Attachment(Attachment { detach: true, ..one.clone() }))));
        }
        Some(Transaction { term: self.term?, compares, writes })
    }

    /// Whether the owner of a volume has made durable what the store does not know: the store was
    /// restored from an old backup.
    pub(super) fn is_behind(&self, name: &Name, volume: &Volume) -> bool {
        let pool = volume.pool.as_ref().and_then(|pool| self.cache.pool(pool));
        let report = pool.and_then(|pool| self.reports.get(&pool.node)?.as_ref());
        // Once both know that the data is gone, the epochs of its lists do not matter.
        let knows_more = |report: &VolumeReport| {
            if report.deleted { !volume.delete } else { report.epoch > volume.epoch }
        };
        report.is_some_and(|report| self.is_ahead(report))
            || self.report_of(name, volume).is_some_and(knows_more)
    }

    /// Whether an agent has had a slice that is later than all that the store knows.
    pub(super) fn is_ahead(&self, report: &Report) -> bool {
        let now = self.now_seen().unwrap_or_default();
        report.seen.incarnation >= now.incarnation && report.seen > now
    }

    fn is_any_ahead(&self) -> bool {
        self.reports.values().flatten().any(|report| self.is_ahead(report))
    }

    /// Whether the store knows less than some agent, so that an operator has to decide.
    pub fn is_behind_any(&self) -> bool {
        let is_placed = |name: &Name| self.lost(name).is_some();
        let mut volumes = self.cache.volumes();
        self.is_any_ahead()
            || self.is_any_copy_behind()
            || volumes.any(|(name, _, volume)| {
                self.is_behind(name, volume) || volume.pool.is_none() && is_placed(name)
            })
    }

    /// Why nothing is decided yet about a volume that has no pool, if so. A store that was restored
    /// has forgotten the pools of volumes that were placed since the backup: they must not be
    /// placed once more, and their hosts are not out.
    pub(super) fn hold(&self, name: &Name, volume: &Volume) -> Option<VolumePhase> {
        let incarnation = self.cache.fleet().incarnation;
        let is_of_this_term = self.first_list.is_some_and(|first| volume.epoch.number > first);
        if is_of_this_term && volume.epoch.incarnation == incarnation {
            return None;
        }
        if self.is_any_ahead() || self.lost(name).is_some() {
            return Some(VolumePhase::WaitsForRecovery);
        }
        if let Some((node, _)) = self.reports.iter().find(|(_, report)| report.is_none()) {
            return Some(VolumePhase::WaitsForOwner(node.clone()));
        }
        let mut devices = self.reports.values().flatten().flat_map(|report| &report.attachments);
        if let Some(device) = devices.find(|one| one.volume == *name) {
            return Some(VolumePhase::WaitsForOwner(device.owner.clone()));
        }
        // After a recovery, all owners have to say that they do not have the volume.
        let mut nodes = self.cache.pools().map(|(_, pool)| &pool.node);
        let is_away = |node: &&Name| !self.reports.contains_key(*node);
        let away = nodes.find(is_away).filter(|_| volume.epoch.incarnation < incarnation)?;
        Some(VolumePhase::WaitsForOwner(away.clone()))
    }

    /// The incarnation that is above all that agents report, for a store that was restored.
    pub(super) fn incarnation_above_all(&self) -> u64 {
        let reported = self.reports.values().flatten().map(|report| report.seen.incarnation);
        let reported = reported.max().unwrap_or(0);
        reported.max(self.cache.fleet().incarnation) + 1
    }
}

/// Whether an attachment is the one for which the owner of a volume lets a host in.
fn is_same(known: &Attachment, volume: &Name, one: &Admission) -> bool {
    let Attachment { node, mode, transport, .. } = known;
    known.volume == *volume && (node, mode, transport) == (&one.node, &one.mode, &one.transport)
}
