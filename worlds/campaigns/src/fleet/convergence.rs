//! Whether store, machines and wishes agree.

use std::collections::BTreeSet;

use fleet::controller::{self, Orphan, Phase, SnapshotPhase, VolumePhase};
use fleet::object::{Data, Key, Kind, Object};
use fleet::{Controller, Name};

use super::World;

impl World {
    /// The leader, if it knows the store.
    fn leader(&self) -> Option<&Controller> {
        let stations = self.stations.iter().filter(|one| one.term == Some(self.store.term()));
        stations.filter_map(|one| one.engine.as_ref()).find(|engine| engine.is_ready())
    }

    /// Whether the store has to learn from the owners of volumes.
    pub(super) fn needs_recovery(&self) -> bool {
        let Some(leader) = self.leader() else { return false };
        let (volumes, _) = self.stored();
        let snapshots = self.stored_of(Kind::Snapshot);
        let is_lost = |one: &Orphan| match one {
            Orphan::Volume { volume, .. } => !volumes.contains(volume),
            Orphan::Snapshot { snapshot, .. } => !snapshots.contains(snapshot),
            Orphan::Device { .. } => false,
        };
        let lost = leader.orphans().iter().any(is_lost);
        lost || leader.is_behind_any()
    }

    /// The first thing that is not as users want it.
    pub(super) fn what_is_missing(&self) -> Option<String> {
        let Some(leader) = self.leader() else { return Some("no controller leads".to_owned()) };
        if let Some(call) = self.user.pending_calls().find(|call| !self.waits_for_a_copy(call)) {
            let phase = match call {
                controller::Call::Put { key, .. } | controller::Call::Delete { key, .. } => {
                    leader.phase(&key.name)
                }
                _ => None,
            };
            return Some(format!("{call:?} waits for its reply: {phase:?}"));
        }
        if leader.is_behind_any() {
            return Some("the store knows less than the owners of volumes".to_owned());
        }
        let (volumes, attachments) = self.stored();
        let snapshots = self.stored_of(Kind::Snapshot);
        // After a restoration, two machines may have a volume of one name: users choose.
        let is_double = |orphan: &&Orphan| match orphan {
            Orphan::Volume { volume, .. } | Orphan::Device { volume, .. } => volumes.contains(volume),
            Orphan::Snapshot { snapshot, .. } => snapshots.contains(snapshot),
        };
        let orphans = leader.orphans();
        if let Some(orphan) = orphans.iter().find(|one| !(self.restored && is_double(one))) {
            return Some(format!("{orphan:?} belongs to nothing"));
        }
        if orphans.iter().any(|one| is_double(&one)) {
            return None;
        }
        if !self.restored {
            let wishes = &self.rules.wishes;
            let wanted = wishes.volumes.keys().chain(wishes.attachments.keys());
            let wanted: BTreeSet<_> = wanted.chain(wishes.snapshots.keys()).collect();
            let stored = volumes.iter().chain(&attachments).chain(&snapshots);
            let stored: BTreeSet<_> = stored.filter(|name| !self.is_kept_as_source(name)).collect();
            if wanted != stored {
                return Some(format!("the store has {stored:?}, but users want {wanted:?}"));
            }
        }
        let waiting = attachments.iter().find_map(|name| match leader.phase(name) {
            Some(Phase::Attached(_) | Phase::WaitsForHost { .. }) => None,
            Some(Phase::WaitsForVolume) if self.is_unplaced(name) || self.is_of_unmade(leader, name) => None,
            phase => Some(format!("the attachment {name} is {phase:?}")),
        });
        let waiting = waiting.or_else(|| self.what_is_not_made(leader, &volumes, &snapshots));
        waiting.or_else(|| self.what_differs(leader, &volumes, &attachments))
    }

    /// The first thing that a machine has, and should not have, or the other way round.
    fn what_differs(&self, leader: &Controller, volumes: &[Name], attachments: &[Name]) -> Option<String> {
        let is_attached = |name: &&Name| matches!(leader.phase(name), Some(Phase::Attached(_)));
        let attached: BTreeSet<_> = attachments.iter().filter(is_attached).collect();
        let devices = self.machines.iter().flat_map(|one| &one.devices);
        let connected: BTreeSet<_> = devices.map(|(name, _)| name).collect();
        if attached != connected {
            return Some(format!("{attached:?} are attached, but machines have {connected:?}"));
        }
        let data: BTreeSet<_> = self.machines.iter().flat_map(|one| one.data.keys()).collect();
        let is_there = |name: &&Name| !self.has_no_pool(name) && !is_unmade(leader, name);
        let placed: BTreeSet<_> = volumes.iter().filter(is_there).collect();
        let one = data.symmetric_difference(&placed).next()?;
        let stored = self.store.content.objects.get(&Key { kind: Kind::Volume, name: (*one).clone() });
        let known = self.machines.iter().enumerate().filter_map(|(index, machine)| {
            Some((index, machine.data.contains_key(*one), machine.agent.as_ref()?.saved().volumes.get(*one)?))
        });
        let known: Vec<_> = known.collect();
        Some(format!("{one} is {stored:?}, but machines have {known:?}"))
    }

    fn stored(&self) -> (Vec<Name>, Vec<Name>) {
        (self.stored_of(Kind::Volume), self.stored_of(Kind::Attachment))
    }

    /// Whether users want an object to go, from whose data something is still to be made.
    fn is_kept_as_source(&self, name: &Name) -> bool {
        let of_name = |data: Data| {
            let object = self.store.content.objects.get(&data.key()).map(|(_, object)| object);
            let is_marked = match object {
                Some(Object::Snapshot(one)) => one.delete,
                Some(Object::Volume(one)) => one.delete,
                _ => false,
            };
            is_marked && self.waits_for(&data).is_some()
        };
        of_name(Data::Snapshot(name.clone())) || of_name(Data::Volume(name.clone()))
    }

    /// Whether a user waits for the deletion of data from which something is still to be made.
    fn waits_for_a_copy(&self, call: &controller::Call) -> bool {
        matches!(call, controller::Call::Delete { key, .. } if self.is_kept_as_source(&key.name))
    }

    fn stored_of(&self, kind: Kind) -> Vec<Name> {
        let keys = self.store.content.objects.keys().filter(|key| key.kind == kind);
        keys.map(|key| key.name.clone()).collect()
    }

    /// The first snapshot or clone that is not made, although nothing is in its way, or that a
    /// machine has and the store has not.
    fn what_is_not_made(&self, leader: &Controller, volumes: &[Name], snapshots: &[Name]) -> Option<String> {
        let waits =
            |problem: &str| problem.contains("share no blocks") || problem.contains("is not there yet");
        let unmade = volumes.iter().find_map(|name| match leader.volume_phase(name)? {
            VolumePhase::WaitsForCopy(problem) if !waits(&problem) && !self.restored => {
                Some(format!("the volume {name} is not made from its source: {problem}"))
            }
            _ => None,
        });
        let untaken = snapshots.iter().find_map(|name| match leader.snapshot_phase(name)? {
            SnapshotPhase::Ready => None,
            SnapshotPhase::Deleting if self.is_kept_as_source(name) => None,
            SnapshotPhase::WaitsForCopy(problem) if waits(&problem) => None,
            // A store that was restored may want data that is long gone.
            SnapshotPhase::Lost(_) | SnapshotPhase::WaitsForCopy(_) if self.restored => None,
            phase => Some(format!("the snapshot {name} is {phase:?}")),
        });
        let mut here = self.machines.iter().flat_map(|one| one.snapshots.keys());
        let left = here.find(|name| !snapshots.contains(name)).filter(|_| !self.restored);
        let left = left.map(|name| format!("a machine has the snapshot {name} still"));
        unmade.or(untaken).or(left)
    }

    /// Whether an attachment's volume waits for its own data.
    fn is_of_unmade(&self, leader: &Controller, attachment: &Name) -> bool {
        let found = self.store.content.objects.get(&Key { kind: Kind::Attachment, name: attachment.clone() });
        matches!(found, Some((_, Object::Attachment(one))) if is_unmade(leader, &one.volume))
    }

    /// Whether a volume has no pool, because no pool has space for it.
    fn has_no_pool(&self, volume: &Name) -> bool {
        let found = self.store.content.objects.get(&Key { kind: Kind::Volume, name: volume.clone() });
        let Some((_, Object::Volume(found))) = found else { return false };
        found.pool.is_none() && self.leader().is_some_and(|leader| leader.rank(found).fit.is_empty())
    }

    fn is_unplaced(&self, attachment: &Name) -> bool {
        let found = self.store.content.objects.get(&Key { kind: Kind::Attachment, name: attachment.clone() });
        matches!(found, Some((_, Object::Attachment(one))) if self.has_no_pool(&one.volume))
    }
}

/// Whether a volume is yet to be made from its source.
fn is_unmade(leader: &Controller, volume: &Name) -> bool {
    leader.volume(volume).is_some_and(fleet::object::Volume::is_to_copy)
}
