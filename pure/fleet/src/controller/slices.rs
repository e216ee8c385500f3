//! The slices of the store that machines get.

use alloc::vec::Vec;

use super::Controller;
use super::volumes::is_acknowledged;
use crate::Name;
use crate::object::{Admission, Data, Mode, Transport, Volume};
use crate::slice::{AttachmentReport, HostAttachment, OwnedVolume, Seen, Slice, Wish};

impl Controller {
    /// Sends their slices to the machines whose slices have changed.
    pub(super) fn send_slices(&mut self) {
        for node in core::mem::take(&mut self.stale) {
            if !self.reports.contains_key(&node) {
                continue;
            }
            let Some(slice) = self.slice_of(&node) else { continue };
            let is_news = self.sent.get(&node).is_none_or(|sent| {
                let is_of_now = sent.seen.incarnation == slice.seen.incarnation;
                let Slice { volumes, attachments, copies, .. } = &slice;
                !is_of_now
                    || (&sent.volumes, &sent.attachments, &sent.copies) != (volumes, attachments, copies)
            });
            if is_news {
                self.sent.insert(node.clone(), slice.clone());
                self.outputs.push_back(super::Output::Slice(node, slice));
            }
        }
    }

    /// All that concerns one machine.
    fn slice_of(&self, node: &Name) -> Option<Slice> {
        let is_owner = |volume: &Volume| {
            let pool = volume.pool.as_ref().and_then(|pool| self.cache.pool(pool));
            pool.is_some_and(|pool| pool.node == *node)
        };
        let owned = self.cache.volumes().filter(|(_, _, volume)| is_owner(volume));
        let volumes = owned.filter_map(|(name, _, volume)| self.owned(name, volume)).collect();
        let mut attachments: Vec<_> = self.to_connect(node).collect();
        attachments.extend(self.to_disconnect(node));
        Some(Slice { seen: self.now_seen()?, volumes, attachments, copies: self.copies_of(node) })
    }

    /// The age of what the controller knows.
    pub(super) fn now_seen(&self) -> Option<Seen> {
        let (incarnation, revision) = (self.cache.fleet().incarnation, self.cache.revision());
        Some(Seen { incarnation, term: self.term?, revision })
    }

    /// A volume, for its owner. One that is to be made from other data first is among the copies.
    fn owned(&self, name: &Name, volume: &Volume) -> Option<OwnedVolume> {
        let Volume { bytes, pool, delete, epoch, admitted, .. } = volume;
        let is_attached = self.cache.attachments_of(name).next().is_some();
        let is_source = || self.is_awaited(&Data::Volume(name.clone()));
        let delete = *delete && admitted.is_empty() && !is_attached && !is_source();
        if volume.is_to_copy() && !delete {
            return None;
        }
        Some(OwnedVolume {
            name: name.clone(),
            pool: pool.clone()?,
            bytes: *bytes,
            epoch: *epoch,
            admitted: admitted.clone(),
            delete,
        })
    }

    /// The attachments of a host that owners let in.
    fn to_connect(&self, node: &Name) -> impl Iterator<Item = HostAttachment> {
        let volumes = self.cache.volumes();
        volumes.flat_map(move |(name, _, volume)| {
            let mine = volume.admitted.iter().filter(move |one| one.node == *node);
            mine.filter(move |one| self.is_let_in(name, volume, one)).map(move |one| HostAttachment {
                name: one.attachment.clone(),
                volume: name.clone(),
                epoch: one.epoch,
                mode: one.mode,
                transport: one.transport,
                owner: self.owner_of(volume).cloned().unwrap_or_else(|| node.clone()),
                addresses: self.addresses_of(volume),
                wish: Wish::Connect,
            })
        })
    }

    /// Whether the owner lets a host in, by its own report.
    pub(super) fn is_let_in(&self, name: &Name, volume: &Volume, one: &Admission) -> bool {
        let report = self.report_of(name, volume);
        report.is_some_and(|report| is_acknowledged(volume, report) && report.admitted.contains(one))
    }

    /// The machine that owns a volume.
    pub(super) fn owner_of(&self, volume: &Volume) -> Option<&Name> {
        Some(&self.cache.pool(volume.pool.as_ref()?)?.node)
    }

    fn addresses_of(&self, volume: &Volume) -> Vec<alloc::string::String> {
        let owner = self.owner_of(volume).and_then(|owner| self.cache.node(owner));
        owner.map(|owner| owner.addresses.clone()).unwrap_or_default()
    }

    /// The attachments that a host has, and that owners let in no longer. A device of a volume that
    /// the store does not know stays: see [`Orphan`](super::Orphan).
    fn to_disconnect(&self, node: &Name) -> impl Iterator<Item = HostAttachment> {
        let report = self.reports.get(node).and_then(Option::as_ref);
        let attachments = report.into_iter().flat_map(|report| &report.attachments);
        attachments.filter(|one| self.has_ended(one)).map(|one| HostAttachment {
            name: one.name.clone(),
            volume: one.volume.clone(),
            epoch: one.epoch,
            mode: Mode::default(),
            transport: Transport::default(),
            owner: one.owner.clone(),
            addresses: Vec::new(),
            wish: Wish::Disconnect,
        })
    }

    /// Whether the owner of a device's volume does not let in the host of the device, or says that
    /// the volume is no more.
    fn has_ended(&self, one: &AttachmentReport) -> bool {
        let owner = self.reports.get(&one.owner).and_then(Option::as_ref);
        let found = owner.and_then(|owner| owner.volumes.iter().find(|volume| volume.name == one.volume));
        // A store that was restored knows less than the hosts: it may have another volume of the
        // name.
        let stored =
            self.cache.volume(&one.volume).filter(|volume| self.owner_of(volume) == Some(&one.owner));
        let Some(volume) = stored else {
            let is_current = owner.is_some_and(|owner| self.now_seen() >= Some(owner.seen));
            return is_current && found.is_none_or(|found| found.deleted);
        };
        if self.is_behind(&one.volume, volume) {
            return false;
        }
        let is_admitted =
            volume.admitted.iter().any(|found| found.attachment == one.name && found.epoch == one.epoch);
        let is_gone = volume.delete && found.is_some_and(|found| found.deleted);
        // A volume that was deleted and restored under its name starts with lower epochs.
        let is_current = found.is_some_and(|found| is_acknowledged(volume, found));
        is_gone || !is_admitted && (is_current || one.epoch <= volume.epoch)
    }
}
