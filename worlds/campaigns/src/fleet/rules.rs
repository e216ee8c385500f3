//! What must hold: who may write, what may be deleted, what users have learned.

use std::collections::{BTreeMap, BTreeSet};

use fleet::object::{Mode, Object, Volume};
use fleet::{Epoch, Name};

use super::copies::Promises;
use super::machine::Write;
use super::store::Content;

/// What users want, as far as they know it.
#[derive(Clone, Debug, Default)]
pub(super) struct Wishes {
    /// The volumes that users have asked for, and their sizes in bytes.
    pub(super) volumes: BTreeMap<Name, u64>,
    /// The attachments that users have asked for: volume, machine and mode.
    pub(super) attachments: BTreeMap<Name, (Name, Name, Mode)>,
    /// The snapshots that users have asked for, and their volumes.
    pub(super) snapshots: BTreeMap<Name, Name>,
}

/// What must hold.
#[derive(Debug, Default)]
pub(super) struct Rules {
    pub(super) wishes: Wishes,
    pub(super) promises: Promises,
    /// Names that users have asked to delete or detach at any time.
    pub(super) unwanted: BTreeSet<Name>,
    /// The newest epoch of a host that has written, by the disk: a machine and a volume.
    writers: BTreeMap<(usize, Name), (Epoch, Mode)>,
    /// The attachments of which users know that they have ended.
    ended: BTreeSet<(Name, Epoch)>,
    /// The epochs in which attachments have written.
    wrote: BTreeMap<Name, BTreeSet<Epoch>>,
}

impl Rules {
    /// A target has let a host in, whose first request has arrived.
    pub(super) fn on_entry(&mut self, machine: usize, write: &Write) {
        let newest = self.writers.entry((machine, write.volume.clone())).or_insert((write.epoch, write.mode));
        if write.epoch > newest.0 {
            *newest = (write.epoch, write.mode);
        }
        self.wrote.entry(write.attachment.clone()).or_default().insert(write.epoch);
    }

    /// A disk executes a write.
    pub(super) fn on_write(&self, machine: usize, write: &Write) -> Result<(), String> {
        let Write { volume, attachment, epoch, mode, .. } = write;
        if let Some((newest, other)) = self.writers.get(&(machine, volume.clone()))
            && epoch < newest
            && !mode.agrees(*other)
        {
            return Err(format!(
                "{attachment} wrote to {volume} in epoch {epoch}, after a host of epoch {newest} was let in"
            ));
        }
        if self.ended.contains(&(attachment.clone(), *epoch)) {
            return Err(format!("{attachment} wrote to {volume} in epoch {epoch}, after it was detached"));
        }
        Ok(())
    }

    /// The store was restored: what users knew is not certain any more.
    pub(super) fn on_restored(&mut self) {
        self.ended.clear();
    }

    /// A user learns that an attachment has ended.
    pub(super) fn on_detached(&mut self, attachment: &Name) {
        for epoch in self.wrote.get(attachment).into_iter().flatten() {
            self.ended.insert((attachment.clone(), *epoch));
        }
    }

    /// A machine deletes a volume's data. What has its name later is another disk.
    pub(super) fn on_delete(&mut self, machine: usize, volume: &Name) {
        self.writers.remove(&(machine, volume.clone()));
    }

    /// A machine disconnects a device.
    pub(super) fn on_disconnect(&self, attachment: &Name) -> Result<(), String> {
        if self.unwanted.contains(attachment) {
            return Ok(());
        }
        Err(format!("{attachment} was disconnected, which no user wanted"))
    }

    /// The store has changed. Once it was restored, pools may turn out to hold more than they have.
    pub(super) fn on_change(content: &Content, restored: bool) -> Result<(), String> {
        let mut used: BTreeMap<&Name, u64> = BTreeMap::new();
        for (_, object) in content.objects.values() {
            if let Object::Volume(Volume { pool: Some(pool), bytes, .. }) = object {
                *used.entry(pool).or_default() += bytes;
            }
            if let Object::Snapshot(snapshot) = object {
                *used.entry(&snapshot.pool).or_default() += snapshot.bytes;
            }
        }
        for (key, (_, object)) in &content.objects {
            if let Object::Pool(pool) = object
                && !restored
                && used.get(&key.name).is_some_and(|used| *used > pool.bytes)
            {
                return Err(format!("the pool {} is oversold", key.name));
            }
            if let Object::Volume(volume) = object {
                let modes = || volume.admitted.iter().map(|one| one.mode);
                let agree = modes()
                    .enumerate()
                    .all(|(index, one)| modes().skip(index + 1).all(|two| one.agrees(two)));
                if !agree {
                    return Err(format!("{} lets in hosts that do not agree", key.name));
                }
            }
        }
        Ok(())
    }
}
