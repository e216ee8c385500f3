//! What a controller says of objects beside what the store holds.

use alloc::string::String;
use alloc::vec::Vec;

use super::Controller;
use super::volumes::is_acknowledged;
use crate::object::{Attachment, Data, Key, Node, Object, Volume};
use crate::placement::Unfit;
use crate::slice::{CopyReport, VolumeReport};
use crate::{Epoch, Name};

/// How far an attachment is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The volume is not there, or nothing has placed it yet.
    WaitsForVolume,
    /// The machine that owns the volume is away: nothing becomes safe without it.
    WaitsForOwner(Name),
    /// Another host has the volume.
    WaitsForHost {
        /// The other attachment.
        attachment: Name,
        /// Its user.
        owner: String,
    },
    /// The store knows less than the volume's owner: an operator decides.
    WaitsForRecovery,
    /// The owner is to let the host in, or to let it in no longer.
    WaitsForAcknowledgement(Epoch),
    /// The owner lets the host in.
    Attached(Epoch),
    /// The owner lets the host in no longer, and the attachment is about to go.
    Ended,
}

/// How far a volume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumePhase {
    /// No pool is fit for it: why, for each pool.
    Unplaced(Vec<(Name, Unfit)>),
    /// The machine that owns the volume is away.
    WaitsForOwner(Name),
    /// The store knows less than the volume's owner: an operator decides.
    WaitsForRecovery,
    /// The owner is to do something: make the volume, extend it, change the list of hosts.
    WaitsForAcknowledgement(Epoch),
    /// The owner has the volume, as the store has it.
    Ready,
    /// The volume is to be deleted.
    Deleting,
    /// The owner is to make the volume from its source. For what it waits, if for anything.
    WaitsForCopy(String),
}

/// How far a snapshot is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotPhase {
    /// The machine that owns the pool is away.
    WaitsForOwner(Name),
    /// The store knows less than the pool's owner: an operator decides.
    WaitsForRecovery,
    /// The owner is to take the snapshot. For what it waits, if for anything.
    WaitsForCopy(String),
    /// The owner has the snapshot.
    Ready,
    /// The snapshot was taken, and its data is not there: why.
    Lost(String),
    /// The snapshot is to be deleted.
    Deleting,
}

/// A device or a volume that a machine has, and that the store does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Orphan {
    /// A volume.
    Volume {
        /// The machine that has it.
        node: Name,
        /// The volume.
        volume: Name,
    },
    /// A snapshot.
    Snapshot {
        /// The machine that has it.
        node: Name,
        /// The snapshot.
        snapshot: Name,
        /// The volume of which it was taken.
        volume: Name,
    },
    /// A device.
    Device {
        /// The machine that has it.
        node: Name,
        /// The attachment that it was made for.
        attachment: Name,
        /// Its volume.
        volume: Name,
    },
}

impl Controller {
    /// How far an attachment is; `None` if there is no such attachment.
    pub fn phase(&self, name: &Name) -> Option<Phase> {
        self.cache.attachment(name).map(|found| self.phase_of(name, found))
    }

    fn phase_of(&self, name: &Name, attachment: &Attachment) -> Phase {
        let Some(volume) = self.cache.volume(&attachment.volume) else { return Phase::WaitsForVolume };
        let Some(pool) = volume.pool.as_ref().and_then(|pool| self.cache.pool(pool)) else {
            return match self.hold(&attachment.volume, volume) {
                Some(VolumePhase::WaitsForOwner(node)) => Phase::WaitsForOwner(node),
                Some(_) => Phase::WaitsForRecovery,
                None => Phase::WaitsForVolume,
            };
        };
        let Some(report) = self.report_of(&attachment.volume, volume) else {
            let is_here = self.reporting_owner(volume.pool.as_ref().unwrap_or(&pool.node)).is_some();
            if volume.is_to_copy() && is_here {
                return Phase::WaitsForVolume;
            }
            return Phase::WaitsForOwner(pool.node.clone());
        };
        if self.is_behind(&attachment.volume, volume) {
            return Phase::WaitsForRecovery;
        }
        let admission = volume.admitted.iter().find(|one| one.attachment == *name);
        match admission {
            Some(one) if is_acknowledged(volume, report) && !attachment.detach => Phase::Attached(one.epoch),
            None if attachment.detach && is_acknowledged(volume, report) => Phase::Ended,
            None if !attachment.detach && is_acknowledged(volume, report) => {
                let other = volume.admitted.first().map(|one| &one.attachment);
                match other.and_then(|one| Some((one, self.cache.attachment(one)?))) {
                    Some((other, found)) => {
                        Phase::WaitsForHost { attachment: other.clone(), owner: found.owner.clone() }
                    }
                    None => Phase::WaitsForAcknowledgement(volume.epoch),
                }
            }
            _ => Phase::WaitsForAcknowledgement(volume.epoch),
        }
    }

    /// How far a volume is; `None` if there is no such volume.
    pub fn volume_phase(&self, name: &Name) -> Option<VolumePhase> {
        let volume = self.cache.volume(name)?;
        if volume.delete {
            return Some(VolumePhase::Deleting);
        }
        let Some(pool) = volume.pool.as_ref().and_then(|pool| self.cache.pool(pool)) else {
            let unplaced = || VolumePhase::Unplaced(self.rank(volume).unfit);
            return Some(self.hold(name, volume).unwrap_or_else(unplaced));
        };
        if self.is_behind(name, volume) {
            return Some(VolumePhase::WaitsForRecovery);
        }
        let is_ready =
            |report: &VolumeReport| is_acknowledged(volume, report) && report.bytes >= volume.bytes;
        Some(match self.report_of(name, volume) {
            Some(report) if is_ready(report) => VolumePhase::Ready,
            None if volume.is_to_copy() => match self.copy_problem_of(name, volume) {
                Some(problem) => VolumePhase::WaitsForCopy(problem),
                None => VolumePhase::WaitsForOwner(pool.node.clone()),
            },
            Some(_) => VolumePhase::WaitsForAcknowledgement(volume.epoch),
            None if self.reports.contains_key(&pool.node) => {
                VolumePhase::WaitsForAcknowledgement(volume.epoch)
            }
            None => VolumePhase::WaitsForOwner(pool.node.clone()),
        })
    }

    /// Whether the host of an attachment says that it reaches the volume; `None` if the host is
    /// away, or has no device.
    pub fn is_reached(&self, attachment: &Name) -> Option<bool> {
        let node = &self.cache.attachment(attachment)?.node;
        let report = self.reports.get(node)?.as_ref()?;
        report.attachments.iter().find(|one| one.name == *attachment).map(|one| one.connected)
    }

    /// Whether the agent of a machine is connected.
    pub fn is_connected(&self, node: &Name) -> bool {
        self.reports.contains_key(node)
    }

    /// The machine with an identity.
    pub fn node_with(&self, identity: &[u8; 32]) -> Option<&Name> {
        self.cache.nodes().find(|(_, node)| node.identity == *identity).map(|(name, _)| name)
    }

    /// The machine with a name.
    pub fn node(&self, name: &Name) -> Option<&Node> {
        self.cache.node(name)
    }

    /// All objects.
    pub fn objects(&self) -> impl Iterator<Item = (&Key, &Object)> {
        self.cache.all().map(|(key, _, object)| (key, object))
    }

    /// The volume with a name.
    pub fn volume(&self, name: &Name) -> Option<&Volume> {
        self.cache.volume(name)
    }

    /// The bytes of a pool that no volume takes.
    pub fn free_bytes(&self, pool: &Name) -> Option<u64> {
        self.cache.pool(pool).map(|_| self.free(pool))
    }

    /// What machines have and the store does not know.
    pub fn orphans(&self) -> Vec<Orphan> {
        let mut orphans = Vec::new();
        for (node, report) in &self.reports {
            let Some(report) = report else { continue };
            for volume in &report.volumes {
                let stored = self.cache.volume(&volume.name);
                let is_here = stored.is_some_and(|stored| self.owner_of(stored) == Some(node));
                if !is_here && !volume.deleted {
                    orphans.push(Orphan::Volume { node: node.clone(), volume: volume.name.clone() });
                }
            }
            orphans.extend(report.copies.iter().filter_map(|copy| self.orphaned_copy(node, copy)));
            for device in &report.attachments {
                let stored = self.cache.volume(&device.volume);
                if stored.is_none_or(|stored| self.owner_of(stored) != Some(&device.owner)) {
                    let (attachment, volume) = (device.name.clone(), device.volume.clone());
                    orphans.push(Orphan::Device { node: node.clone(), attachment, volume });
                }
            }
        }
        orphans
    }

    /// A snapshot, or a volume that is made from other data, that the store does not know.
    fn orphaned_copy(&self, node: &Name, copy: &CopyReport) -> Option<Orphan> {
        let node = node.clone();
        match &copy.data {
            _ if copy.delete => None,
            Data::Snapshot(snapshot) => {
                let is_known = self.cache.snapshot(snapshot).is_some_and(|one| one.epoch == copy.epoch);
                let (snapshot, volume) = (snapshot.clone(), copy.of.name().clone());
                (!is_known).then_some(Orphan::Snapshot { node, snapshot, volume })
            }
            Data::Volume(volume) => {
                let stored = self.cache.volume(volume);
                let is_here = stored.is_some_and(|stored| self.owner_of(stored) == Some(&node));
                (!is_here).then(|| Orphan::Volume { node, volume: volume.clone() })
            }
        }
    }
}
