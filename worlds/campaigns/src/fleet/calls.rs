//! What users ask of the fleet.

use std::collections::BTreeMap;

use engine::{Nanos, Rng};
use fleet::controller::{ApiError, Call, CallId, Expect, Input, Reply, Wait};
use fleet::object::{Attachment, Data, Key, Kind, Mode, Object, Snapshot, Transport, Volume};
use fleet::{Epoch, Name};

use super::{Event, World, name_of};

/// Users, who do one thing at a time with each volume.
#[derive(Debug)]
pub(super) struct User {
    rng: Rng,
    /// The calls that wait for replies: each with the volume that it concerns.
    pending: BTreeMap<u64, (Call, Name)>,
    next: u64,
    names: u64,
    healing: bool,
}

impl User {
    pub(super) const fn new(rng: Rng) -> Self {
        Self { rng, pending: BTreeMap::new(), next: 0, names: 0, healing: false }
    }

    /// The calls that wait for their replies.
    pub(super) fn pending_calls(&self) -> impl Iterator<Item = &Call> {
        self.pending.values().map(|(call, _)| call)
    }

    /// The number of calls so far, those that were made again included.
    pub(super) const fn calls(&self) -> u64 {
        self.next
    }

    /// Does nothing new from now on.
    pub(super) const fn heal(&mut self) {
        self.healing = true;
    }

    fn is_busy(&self, volume: &Name) -> bool {
        self.pending.values().any(|(_, of)| of == volume)
    }

    fn name(&mut self, prefix: &str) -> Name {
        self.names += 1;
        Name::new(&format!("{prefix}{}", self.names)).expect("a name")
    }
}

fn key(kind: Kind, name: &Name) -> Key {
    Key { kind, name: name.clone() }
}

fn put(key: Key, object: Object) -> Call {
    Call::Put { key, object, expect: Expect::Any, wait: None }
}

impl World {
    /// A user does something.
    pub(super) fn act(&mut self) {
        if self.user.healing {
            return;
        }
        if self.shape.volumes > 0 {
            return self.populate_more();
        }
        let volumes: Vec<_> = self.rules.wishes.volumes.keys().cloned().collect();
        let free: Vec<_> = volumes.into_iter().filter(|volume| !self.user.is_busy(volume)).collect();
        let kind = self.user.rng.below(13);
        if free.is_empty() || kind == 0 {
            self.create();
        } else {
            let volume = free[self.below(free.len())].clone();
            match kind {
                1 => self.delete(&volume),
                2 => self.grow(&volume),
                3..7 => self.attach(&volume),
                10 => self.snapshot(&volume),
                11 => self.delete_snapshot(),
                12 => self.clone_something(&volume),
                _ => self.detach(&volume),
            }
        }
        let pause = Nanos::from_millis(100 + self.user.rng.below(1_500));
        self.after(pause, Event::Act);
    }

    /// Creates another volume with a host, until there are enough.
    fn populate_more(&mut self) {
        self.create();
        let volumes: Vec<_> = self.rules.wishes.volumes.keys().cloned().collect();
        let index = self.below(volumes.len());
        let is_attached = self.rules.wishes.attachments.values().any(|(of, ..)| *of == volumes[index]);
        if !is_attached && !self.user.is_busy(&volumes[index]) {
            self.attach(&volumes[index]);
        }
        let pause = Nanos::from_millis(20 + self.user.rng.below(20));
        self.after(pause, Event::Act);
    }

    fn volume(bytes: u64) -> Object {
        Object::Volume(Volume {
            bytes,
            class: None,
            near: None,
            pool: None,
            delete: false,
            epoch: Epoch::default(),
            admitted: Vec::new(),
            source: None,
            copied: false,
        })
    }

    fn create(&mut self) {
        if self.rules.wishes.volumes.len() > 8.max(self.shape.volumes) {
            return;
        }
        let name = self.user.name("v");
        let bytes = 1 + self.user.rng.below(20);
        self.rules.wishes.volumes.insert(name.clone(), bytes);
        self.call(put(key(Kind::Volume, &name), Self::volume(bytes)), name);
    }

    fn delete(&mut self, volume: &Name) {
        if self.rules.wishes.attachments.values().any(|(of, ..)| of == volume) {
            return;
        }
        self.rules.wishes.volumes.remove(volume);
        self.rules.unwanted.insert(volume.clone());
        let wait = self.user.rng.one_in(2).then_some(Wait::Gone);
        self.call(Call::Delete { key: key(Kind::Volume, volume), wait }, volume.clone());
    }

    fn snapshot(&mut self, volume: &Name) {
        if self.rules.wishes.snapshots.len() > 6 {
            return self.delete_snapshot();
        }
        let name = self.user.name("s");
        self.rules.wishes.snapshots.insert(name.clone(), volume.clone());
        self.on_asked(Data::Snapshot(name.clone()), &Data::Volume(volume.clone()));
        let snapshot = Snapshot {
            volume: volume.clone(),
            pool: volume.clone(),
            bytes: 0,
            taken: None,
            delete: false,
            epoch: Epoch::default(),
        };
        self.call(put(key(Kind::Snapshot, &name), Object::Snapshot(snapshot)), name);
    }

    fn delete_snapshot(&mut self) {
        let names: Vec<_> = self.rules.wishes.snapshots.keys().cloned().collect();
        let free: Vec<_> = names.into_iter().filter(|name| !self.user.is_busy(name)).collect();
        if free.is_empty() {
            return;
        }
        let name = free[self.below(free.len())].clone();
        self.rules.wishes.snapshots.remove(&name);
        self.rules.unwanted.insert(name.clone());
        let wait = self.user.rng.one_in(2).then_some(Wait::Gone);
        self.call(Call::Delete { key: key(Kind::Snapshot, &name), wait }, name);
    }

    /// Makes a volume that begins with the data of a snapshot, or of a volume.
    fn clone_something(&mut self, volume: &Name) {
        if self.rules.wishes.volumes.len() > 8 {
            return;
        }
        let snapshots: Vec<_> = self.rules.wishes.snapshots.keys().cloned().collect();
        let of = if snapshots.is_empty() || self.user.rng.one_in(3) {
            Data::Volume(volume.clone())
        } else {
            Data::Snapshot(snapshots[self.below(snapshots.len())].clone())
        };
        let bytes = match self.store.content.objects.get(&of.key()) {
            Some((_, Object::Volume(one))) => one.bytes,
            Some((_, Object::Snapshot(one))) => one.bytes,
            _ => return,
        };
        let (name, bytes) = (self.user.name("v"), bytes + self.user.rng.below(3));
        self.rules.wishes.volumes.insert(name.clone(), bytes);
        self.on_asked(Data::Volume(name.clone()), &of);
        let Object::Volume(new) = Self::volume(bytes) else { return };
        let object = Object::Volume(Volume { source: Some(of), ..new });
        self.call(put(key(Kind::Volume, &name), object), name);
    }

    fn grow(&mut self, volume: &Name) {
        let Some(bytes) = self.rules.wishes.volumes.get_mut(volume) else { return };
        *bytes += 1;
        let object = Self::volume(*bytes);
        let (key, expect) = (key(Kind::Volume, volume), Expect::Present);
        self.call(Call::Put { key, object, expect, wait: None }, volume.clone());
    }

    fn attach(&mut self, volume: &Name) {
        let node = name_of(self.below(self.machines.len()));
        // A machine attaches a volume once.
        if self.rules.wishes.attachments.values().any(|(of, at, _)| of == volume && *at == node) {
            return;
        }
        let mode = [Mode::Exclusive, Mode::Exclusive, Mode::Shared, Mode::Read][self.below(4)];
        let name = self.user.name("a");
        self.rules.wishes.attachments.insert(name.clone(), (volume.clone(), node.clone(), mode));
        // Not by chance: the seeds of earlier faults keep their runs.
        let is_even = self.rules.wishes.attachments.len().is_multiple_of(2);
        let by_tunnel = is_even && mode == Mode::Exclusive;
        let transport = if by_tunnel { Transport::Tunnel } else { Transport::NvmeTcp };
        let owner = "user".to_owned();
        let object = Attachment { volume: volume.clone(), node, mode, transport, owner, detach: false };
        self.call(put(key(Kind::Attachment, &name), Object::Attachment(object)), volume.clone());
    }

    fn detach(&mut self, volume: &Name) {
        let of_volume = self.rules.wishes.attachments.iter().filter(|(_, (of, ..))| of == volume);
        let names: Vec<_> = of_volume.map(|(name, _)| name.clone()).collect();
        if names.is_empty() {
            return self.attach(volume);
        }
        let name = names[self.below(names.len())].clone();
        self.rules.wishes.attachments.remove(&name);
        self.rules.unwanted.insert(name.clone());
        let wait = (!self.user.rng.one_in(3)).then_some(Wait::Gone);
        self.call(Call::Delete { key: key(Kind::Attachment, &name), wait }, volume.clone());
    }

    /// Takes what the owners of volumes have for the truth.
    pub(super) fn ask_for_recovery(&mut self) {
        let nothing = Name::new("fleet").expect("a name");
        if !self.user.is_busy(&nothing) {
            self.call(Call::Recover, nothing);
        }
    }

    fn call(&mut self, call: Call, volume: Name) {
        self.user.next += 1;
        let id = self.user.next;
        self.user.pending.insert(id, (call, volume));
        self.try_call(id);
    }

    /// Sends a call to some controller, and again if no reply comes.
    fn try_call(&mut self, id: u64) {
        let Some((call, _)) = self.user.pending.get(&id).cloned() else { return };
        let controller = self.below(self.stations.len());
        let life = self.stations[controller].life;
        let input = Box::new(Input::Call(CallId(id), call));
        let delay = self.some_time();
        self.after(delay, Event::ToController { controller, life, input });
        self.after(Nanos::from_secs(4), Event::Reply(CallId(id), None));
    }

    pub(super) fn on_reply(&mut self, id: CallId, reply: Option<Result<Reply, ApiError>>) {
        let CallId(id) = id;
        let Some((call, _)) = self.user.pending.get(&id) else { return };
        match reply {
            // Nothing is known: the same call has the same result.
            None | Some(Err(ApiError::NotLeader)) => {
                let (call, of) = self.user.pending.remove(&id).expect("found above");
                self.call(call, of);
            }
            Some(Ok(reply)) => {
                if let (Call::Delete { key, .. }, Reply::Gone) = (call, reply)
                    && key.kind == Kind::Attachment
                {
                    let name = key.name.clone();
                    if !self.restored {
                        self.rules.on_detached(&name);
                    }
                }
                self.user.pending.remove(&id);
            }
            Some(Err(error)) => {
                let call = call.clone();
                self.user.pending.remove(&id);
                self.on_refusal(&call, &error);
            }
        }
    }

    /// A call was refused: users know why.
    fn on_refusal(&mut self, call: &Call, error: &ApiError) {
        let is_space = matches!(error, ApiError::InUse(reason) if reason.contains("bytes free"));
        match call {
            // The source may be on its way out, or have no pool yet.
            Call::Put { key, object: Object::Snapshot(_), .. } => {
                self.rules.wishes.snapshots.remove(&key.name);
            }
            Call::Put { key, object: Object::Volume(Volume { source: Some(_), .. }), .. } => {
                self.rules.wishes.volumes.remove(&key.name);
            }
            Call::Put { key, object: Object::Volume(volume), .. } if is_space => {
                if let Some(bytes) = self.rules.wishes.volumes.get_mut(&key.name) {
                    *bytes = volume.bytes - 1;
                }
            }
            // Users learn that what they knew is no longer so.
            Call::Put { key, object: Object::Attachment(_), .. } if self.restored => {
                self.rules.wishes.attachments.remove(&key.name);
            }
            _ if self.restored => {}
            _ => self.check(Err(format!("{call:?} was refused: {error}"))),
        }
    }
}
