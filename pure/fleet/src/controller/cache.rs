//! The controller's copy of the store.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::Name;
use crate::object::{Attachment, Class, Fleet, Key, Kind, Node, Object, Pool, Snapshot, Volume};
use crate::store::Revision;

/// All objects, each with the revision of its last change.
#[derive(Debug)]
pub(super) struct Cache {
    revision: Revision,
    objects: BTreeMap<Key, (Revision, Object)>,
    /// The keys that were deleted since the latest list: a late event must not bring them back.
    deleted: BTreeMap<Key, Revision>,
    /// The names of attachments by volume.
    by_volume: BTreeMap<Name, BTreeSet<Name>>,
    /// The volumes that have no pool.
    unplaced: BTreeSet<Name>,
}

/// Defines a function that finds the object of one kind and name.
macro_rules! finds {
    ($name:ident, $kind:ident) => {
        pub(super) fn $name(&self, name: &Name) -> Option<&$kind> {
            match self.get(&Key { kind: Kind::$kind, name: name.clone() })? {
                (_, Object::$kind(found)) => Some(found),
                _ => None,
            }
        }
    };
}

impl Cache {
    finds!(node, Node);
    finds!(pool, Pool);
    finds!(volume, Volume);
    finds!(class, Class);
    finds!(attachment, Attachment);
    finds!(snapshot, Snapshot);

    pub(super) const fn new() -> Self {
        Self {
            revision: 0,
            objects: BTreeMap::new(),
            deleted: BTreeMap::new(),
            by_volume: BTreeMap::new(),
            unplaced: BTreeSet::new(),
        }
    }

    /// The latest revision that is known.
    pub(super) const fn revision(&self) -> Revision {
        self.revision
    }

    /// Takes a change. Returns what was there before, if the change is news.
    pub(super) fn apply(
        &mut self,
        revision: Revision,
        key: Key,
        object: Option<Object>,
    ) -> Option<Option<Object>> {
        self.revision = self.revision.max(revision);
        let known = self.objects.get(&key).map(|(known, _)| *known).or(self.deleted.get(&key).copied());
        if known.is_some_and(|known| known >= revision) {
            return None;
        }
        let before = self.objects.remove(&key).map(|(_, object)| object);
        match &before {
            Some(Object::Attachment(before)) => {
                self.by_volume.entry(before.volume.clone()).or_default().remove(&key.name);
            }
            Some(Object::Volume(_)) => {
                self.unplaced.remove(&key.name);
            }
            _ => (),
        }
        match object {
            Some(object) => {
                self.deleted.remove(&key);
                self.index(&key, &object);
                self.objects.insert(key, (revision, object));
            }
            None => {
                self.deleted.insert(key, revision);
            }
        }
        Some(before)
    }

    fn index(&mut self, key: &Key, object: &Object) {
        match object {
            Object::Attachment(one) => {
                self.by_volume.entry(one.volume.clone()).or_default().insert(key.name.clone());
            }
            Object::Volume(volume) if volume.pool.is_none() => {
                self.unplaced.insert(key.name.clone());
            }
            _ => (),
        }
    }

    /// Takes a list of all objects, unless something later is known. A store that was restored has
    /// revisions that are lower: its controllers start anew.
    pub(super) fn replace(&mut self, revision: Revision, objects: Vec<(Key, Revision, Object)>) -> bool {
        if revision < self.revision {
            return false;
        }
        self.revision = revision;
        self.objects = objects.into_iter().map(|(key, at, object)| (key, (at, object))).collect();
        self.deleted.clear();
        (self.by_volume, self.unplaced) = (BTreeMap::new(), BTreeSet::new());
        let objects = core::mem::take(&mut self.objects);
        for (key, (_, object)) in &objects {
            self.index(key, object);
        }
        self.objects = objects;
        true
    }

    pub(super) fn get(&self, key: &Key) -> Option<&(Revision, Object)> {
        self.objects.get(key)
    }

    /// The revision of an object; 0 if there is none.
    pub(super) fn revision_of(&self, key: &Key) -> Revision {
        self.get(key).map_or(0, |(revision, _)| *revision)
    }

    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = (&Name, &(Revision, Object))> {
        self.objects.iter().filter(move |(key, _)| key.kind == kind).map(|(key, one)| (&key.name, one))
    }

    /// The fleet itself.
    pub(super) fn fleet(&self) -> Fleet {
        // The kind comes before all others.
        match self.objects.first_key_value() {
            Some((_, (_, Object::Fleet(fleet)))) => *fleet,
            _ => Fleet::default(),
        }
    }

    /// All volumes.
    pub(super) fn volumes(&self) -> impl Iterator<Item = (&Name, Revision, &Volume)> {
        self.of_kind(Kind::Volume).filter_map(|(name, (revision, object))| match object {
            Object::Volume(volume) => Some((name, *revision, volume)),
            _ => None,
        })
    }

    /// The volumes that have no pool.
    pub(super) fn unplaced(&self) -> impl Iterator<Item = &Name> {
        self.unplaced.iter()
    }

    /// All pools.
    pub(super) fn pools(&self) -> impl Iterator<Item = (&Name, &Pool)> {
        self.of_kind(Kind::Pool).filter_map(|(name, (_, object))| match object {
            Object::Pool(pool) => Some((name, pool)),
            _ => None,
        })
    }

    /// All snapshots.
    pub(super) fn snapshots(&self) -> impl Iterator<Item = (&Name, &Snapshot)> {
        // The kind comes after all others.
        let later = self.objects.iter().rev().take_while(|(key, _)| key.kind == Kind::Snapshot);
        later.filter_map(|(key, (_, object))| match object {
            Object::Snapshot(snapshot) => Some((&key.name, snapshot)),
            _ => None,
        })
    }

    /// All machines.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&Name, &Node)> {
        self.of_kind(Kind::Node).filter_map(|(name, (_, object))| match object {
            Object::Node(node) => Some((name, node)),
            _ => None,
        })
    }

    /// All attachments of a volume.
    pub(super) fn attachments_of(
        &self,
        volume: &Name,
    ) -> impl Iterator<Item = (&Name, Revision, &Attachment)> {
        let names = self.by_volume.get(volume).into_iter().flatten();
        names.filter_map(|name| {
            let key = Key { kind: Kind::Attachment, name: name.clone() };
            match self.get(&key)? {
                (revision, Object::Attachment(one)) => Some((name, *revision, one)),
                _ => None,
            }
        })
    }

    /// All objects.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Key, Revision, &Object)> {
        self.objects.iter().map(|(key, (revision, object))| (key, *revision, object))
    }
}
