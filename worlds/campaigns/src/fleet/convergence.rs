//! Whether store, machines and wishes agree.

use std::collections::BTreeSet;

use fleet::controller::{self, Orphan, Phase};
use fleet::object::{Key, Kind, Object};
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
        let is_lost =
            |one: &Orphan| matches!(one, Orphan::Volume { volume, .. } if !volumes.contains(volume));
        let lost = leader.orphans().iter().any(is_lost);
        lost || leader.is_behind_any()
    }

    /// The first thing that is not as users want it.
    pub(super) fn what_is_missing(&self) -> Option<String> {
        let Some(leader) = self.leader() else { return Some("no controller leads".to_owned()) };
        if let Some(call) = self.user.pending() {
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
        // After a restoration, two machines may have a volume of one name: users choose.
        let is_double = |orphan: &&Orphan| match orphan {
            Orphan::Volume { volume, .. } | Orphan::Device { volume, .. } => volumes.contains(volume),
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
            let wanted: BTreeSet<_> = wishes.volumes.keys().chain(wishes.attachments.keys()).collect();
            let stored: BTreeSet<_> = volumes.iter().chain(&attachments).collect();
            if wanted != stored {
                return Some(format!("the store has {stored:?}, but users want {wanted:?}"));
            }
        }
        let waiting = attachments.iter().find_map(|name| match leader.phase(name) {
            Some(Phase::Attached(_) | Phase::WaitsForHost { .. }) => None,
            Some(Phase::WaitsForVolume) if self.is_unplaced(name) => None,
            phase => Some(format!("the attachment {name} is {phase:?}")),
        });
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
        let data: BTreeSet<_> = self.machines.iter().flat_map(|one| &one.data).collect();
        let placed: BTreeSet<_> = volumes.iter().filter(|name| !self.has_no_pool(name)).collect();
        let one = data.symmetric_difference(&placed).next()?;
        let stored = self.store.content.objects.get(&Key { kind: Kind::Volume, name: (*one).clone() });
        let known = self.machines.iter().enumerate().filter_map(|(index, machine)| {
            Some((index, machine.data.contains(*one), machine.agent.as_ref()?.saved().volumes.get(*one)?))
        });
        let known: Vec<_> = known.collect();
        Some(format!("{one} is {stored:?}, but machines have {known:?}"))
    }

    fn stored(&self) -> (Vec<Name>, Vec<Name>) {
        let of = |kind: Kind| {
            let keys = self.store.content.objects.keys().filter(|key| key.kind == kind);
            keys.map(|key| key.name.clone()).collect()
        };
        (of(Kind::Volume), of(Kind::Attachment))
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
