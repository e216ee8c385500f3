//! The calls of users.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use super::snapshots::depends_on;
use super::volumes::volume_key;
use super::{CallId, Controller, InFlight, Output};
use crate::Name;
use crate::object::{Attachment, Data, Fleet, Key, Kind, Mode, Node, Object, Snapshot, Transport, Volume};
use crate::placement::Prediction;
use crate::slice::VolumeReport;
use crate::store::{Revision, Transaction};

/// The name of the only object of its kind.
const FLEET: &str = "fleet";

/// What a user asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Create an object, or change what users may change of it. A second call with the same object
    /// has the same result.
    Put {
        /// The object's key.
        key: Key,
        /// The object. What the leader writes of it is ignored.
        object: Object,
        /// What must be there already.
        expect: Expect,
        /// What to wait for before the reply.
        wait: Option<Wait>,
    },
    /// Mark an object as not wanted any longer, or delete it if nothing uses it. An object that is
    /// not there is deleted already.
    Delete {
        /// The object's key.
        key: Key,
        /// What to wait for before the reply.
        wait: Option<Wait>,
    },
    /// Get an object.
    Get(Key),
    /// Get all objects of a kind.
    List(Kind),
    /// Take what agents have made durable for the truth, after the store was restored.
    Recover,
}

/// What must be there for an object to be put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expect {
    /// Anything: the call creates or changes.
    #[default]
    Any,
    /// The object: the call only changes.
    Present,
    /// The object with this revision; 0 for no object.
    Revision(Revision),
}

/// What a call waits for before its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The owner lets the host of an attachment in.
    Attached,
    /// The attachment, the volume or the snapshot is gone.
    Gone,
    /// The owner has the volume, in its wanted size, or the snapshot.
    Ready,
}

/// The reply to a call that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The objects, each with its revision.
    Objects(Vec<(Key, Revision, Object)>),
    /// The object is gone, or was never there.
    Gone,
    /// The fleet has this incarnation now.
    Incarnation(u64),
}

/// Why a call failed. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiError {
    /// Another controller leads, or none does: ask again.
    NotLeader,
    /// The object has another revision.
    Revision {
        /// The present revision.
        present: Revision,
    },
    /// There is no such object.
    NotFound(Key),
    /// The object cannot be so.
    Invalid(String),
    /// Something else must be changed first.
    InUse(String),
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLeader => {
                f.write_str("this controller does not lead the fleet: ask again, or ask another")
            }
            Self::Revision { present } => {
                write!(f, "the object has revision {present}: read it again, then change it")
            }
            Self::NotFound(key) => write!(f, "there is no {} called {}", key.kind.word(), key.name),
            Self::Invalid(reason) | Self::InUse(reason) => f.write_str(reason),
        }
    }
}

impl core::error::Error for ApiError {}

impl Kind {
    /// The English word for an object of this kind.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Fleet => "fleet",
            Self::Node => "node",
            Self::Pool => "pool",
            Self::Volume => "volume",
            Self::Class => "class",
            Self::Link => "link",
            Self::Attachment => "attachment",
            Self::Token => "token",
            Self::Snapshot => "snapshot",
        }
    }
}

/// What a call leads to.
enum Verdict {
    /// A transaction, whose answer ends the call.
    Do(Transaction),
    /// The wanted state is there already.
    IsSo,
    Reply(Reply),
    /// Another transaction writes the object: decide when that has ended.
    Later,
}

impl Controller {
    /// Handles a call.
    pub(super) fn on_call(&mut self, id: CallId, call: Call) {
        if self.term.is_none() {
            return self.outputs.push_back(Output::Reply(id, Err(ApiError::NotLeader)));
        }
        if self.listing {
            return self.again.push((id, call));
        }
        match self.judge(&call) {
            Ok(Verdict::Do(transaction)) => self.transact(transaction, Some((id, call))),
            Ok(Verdict::Later) => self.again.push((id, call)),
            Ok(Verdict::IsSo) => self.confirm(id, call, None),
            Ok(Verdict::Reply(reply)) => self.confirm(id, call, Some(Ok(reply))),
            Err(error) => self.confirm(id, call, Some(Err(error))),
        }
    }

    /// Replies once the store has confirmed that the controller leads still. A controller that was
    /// deposed, and does not know it yet, would reply from an old copy.
    fn confirm(&mut self, id: CallId, call: Call, reply: Option<Result<Reply, ApiError>>) {
        let Some(term) = self.term else { return };
        let transaction = Transaction { term, compares: Vec::new(), writes: Vec::new() };
        self.number += 1;
        self.outputs.push_back(Output::Transact(self.number, transaction.clone()));
        self.in_flight.insert(self.number, InFlight { transaction, call: Some((id, call)), reply });
    }

    /// Takes a prediction, which replaces an earlier one.
    pub(super) fn on_prediction(&mut self, prediction: Prediction) {
        self.predictions.retain(|one| {
            (&one.class, &one.pool, &one.near) != (&prediction.class, &prediction.pool, &prediction.near)
        });
        self.predictions.push(prediction);
        self.look_at_unplaced();
    }

    fn judge(&self, call: &Call) -> Result<Verdict, ApiError> {
        match call {
            Call::Put { key, object, expect, .. } => self.put(key, object, *expect),
            Call::Delete { key, .. } => self.unwant(key),
            Call::Get(key) => match self.cache.get(key) {
                Some((revision, object)) => {
                    Ok(Verdict::Reply(Reply::Objects(vec![(key.clone(), *revision, object.clone())])))
                }
                None => Err(ApiError::NotFound(key.clone())),
            },
            Call::List(kind) => {
                let all = self.cache.all().filter(|(key, ..)| key.kind == *kind);
                let all = all.map(|(key, revision, object)| (key.clone(), revision, object.clone()));
                Ok(Verdict::Reply(Reply::Objects(all.collect())))
            }
            Call::Recover => {
                let key = fleet_key();
                let fleet = Fleet { incarnation: self.incarnation_above_all() };
                if self.is_busy(&key) {
                    return Ok(Verdict::Later);
                }
                self.write(&key, Some(Object::Fleet(fleet)), Vec::new())
            }
        }
    }

    fn put(&self, key: &Key, object: &Object, expect: Expect) -> Result<Verdict, ApiError> {
        if object.kind() != key.kind || key.kind == Kind::Fleet {
            return Err(ApiError::Invalid(alloc::format!(
                "the object called {} is a {}, but the call is about a {}",
                key.name,
                object.kind().word(),
                key.kind.word()
            )));
        }
        let present = self.cache.revision_of(key);
        match expect {
            Expect::Revision(wanted) if wanted != present => return Err(ApiError::Revision { present }),
            Expect::Present if present == 0 => return Err(ApiError::NotFound(key.clone())),
            _ => (),
        }
        if self.is_busy(key) {
            return Ok(Verdict::Later);
        }
        let known = self.cache.get(key).map(|(_, object)| object);
        let mut further: Vec<_> = match known {
            None => depends_on(object).map(|key| self.compare(key)).into_iter().collect(),
            Some(_) => Vec::new(),
        };
        let new = match (object, known) {
            (Object::Volume(new), known) => Object::Volume(self.put_volume(key, new, known)?),
            (Object::Attachment(new), known) => {
                if known.is_none() {
                    // A volume that is marked for deletion meanwhile must not be attached.
                    further.push(self.compare(volume_key(&new.volume)));
                }
                Object::Attachment(self.put_attachment(key, new, known)?)
            }
            (Object::Snapshot(new), known) => Object::Snapshot(self.put_snapshot(&key.name, new, known)?),
            (Object::Node(node), known) => {
                self.check_node(key, node, known)?;
                object.clone()
            }
            (Object::Pool(pool), known) => {
                if self.cache.node(&pool.node).is_none() {
                    return Err(ApiError::NotFound(Key { kind: Kind::Node, name: pool.node.clone() }));
                }
                if let Some(Object::Pool(known)) = known
                    && known.node != pool.node
                {
                    let reason = "a pool stays on its node: make another pool, and move the volumes";
                    return Err(ApiError::Invalid(reason.to_string()));
                }
                object.clone()
            }
            (object, _) => object.clone(),
        };
        if known == Some(&new) {
            return Ok(Verdict::IsSo);
        }
        self.write(key, Some(new), further)
    }

    /// Checks that a machine is no other's twin, and that its cordon is its owner's.
    fn check_node(&self, key: &Key, node: &Node, known: Option<&Object>) -> Result<(), ApiError> {
        let mut others = self.cache.nodes().filter(|(name, _)| **name != key.name);
        if let Some((other, _)) = others.find(|(_, other)| {
            other.identity == node.identity || other.host_nqn == node.host_nqn && !node.host_nqn.is_empty()
        }) {
            return Err(ApiError::Invalid(alloc::format!(
                "the node {} has the identity or the host NQN of {other}: give each machine its own \
                 (`nvme gen-hostnqn`)",
                key.name
            )));
        }
        if let Some(Object::Node(Node { cordon: Some(known), .. })) = known
            && node.cordon.as_ref().is_some_and(|cordon| cordon.owner != known.owner)
        {
            return Err(ApiError::InUse(alloc::format!(
                "the node {} is cordoned by {}: that cordon ends first",
                key.name,
                known.owner
            )));
        }
        Ok(())
    }

    fn put_volume(&self, key: &Key, new: &Volume, known: Option<&Object>) -> Result<Volume, ApiError> {
        let is_missing = |pool: &Name| self.cache.pool(pool).is_none();
        if let Some(pool) = new.pool.clone().filter(is_missing) {
            return Err(ApiError::NotFound(Key { kind: Kind::Pool, name: pool }));
        }
        let is_unknown = |class: &Name| self.cache.class(class).is_none();
        if let Some(class) = new.class.clone().filter(is_unknown) {
            return Err(ApiError::NotFound(Key { kind: Kind::Class, name: class }));
        }
        if new.bytes == 0 {
            return Err(ApiError::Invalid(alloc::format!("the volume {} has 0 bytes", key.name)));
        }
        let Some(Object::Volume(known)) = known else {
            if let Some((node, _)) = self.lost(&key.name) {
                return Err(ApiError::InUse(alloc::format!(
                    "{node} has a volume {} of which the store knows nothing: it was restored from an old \
                     backup (`farlane fleet recover`)",
                    key.name
                )));
            }
            self.check_not_lost(&Data::Volume(key.name.clone()))?;
            let pool = self.pool_by_source(&key.name, new)?;
            self.check_space(pool.as_ref(), new.bytes)?;
            let (epoch, admitted) = (self.first_epoch(), Vec::new());
            return Ok(Volume { epoch, admitted, delete: false, copied: false, pool, ..new.clone() });
        };
        if known.delete {
            return Err(ApiError::InUse(alloc::format!(
                "the volume {} is being deleted: wait until it is gone",
                key.name
            )));
        }
        if new.bytes < known.bytes {
            return Err(ApiError::Invalid(alloc::format!(
                "the volume {} has {} bytes and cannot shrink to {}",
                key.name,
                known.bytes,
                new.bytes
            )));
        }
        if new.source.is_some() && new.source != known.source {
            return Err(ApiError::Invalid(alloc::format!(
                "the volume {} exists, and was not made from {}: choose another name",
                key.name,
                new.source.as_ref().map(ToString::to_string).unwrap_or_default()
            )));
        }
        if new.pool.is_some() && known.pool.is_some() && new.pool != known.pool {
            let reason = "a volume stays in its pool: make another volume, and copy the data";
            return Err(ApiError::Invalid(reason.to_string()));
        }
        self.check_space(known.pool.as_ref(), new.bytes - known.bytes)?;
        let pool = known.pool.clone().or_else(|| new.pool.clone());
        Ok(Volume {
            bytes: new.bytes,
            class: new.class.clone(),
            near: new.near.clone(),
            pool,
            ..known.clone()
        })
    }

    /// Checks that a pool has so many more bytes.
    pub(super) fn check_space(&self, pool: Option<&Name>, more: u64) -> Result<(), ApiError> {
        let Some(name) = pool else { return Ok(()) };
        let free = self.free(name);
        if more > free {
            return Err(ApiError::InUse(alloc::format!(
                "the pool {name} has {free} bytes free, and {more} are wanted: choose another pool, or grow it"
            )));
        }
        Ok(())
    }

    fn put_attachment(
        &self,
        key: &Key,
        new: &Attachment,
        known: Option<&Object>,
    ) -> Result<Attachment, ApiError> {
        if let Some(Object::Attachment(known)) = known {
            let new = Attachment { detach: known.detach, ..new.clone() };
            if new != *known {
                return Err(ApiError::Invalid(alloc::format!(
                    "the attachment {} exists, for the volume {} at {}: choose another name",
                    key.name,
                    known.volume,
                    known.node
                )));
            }
            return Ok(new);
        }
        let volume =
            self.cache.volume(&new.volume).ok_or_else(|| ApiError::NotFound(volume_key(&new.volume)))?;
        if volume.delete {
            return Err(ApiError::InUse(alloc::format!("the volume {} is being deleted", new.volume)));
        }
        if self.cache.node(&new.node).is_none() {
            return Err(ApiError::NotFound(Key { kind: Kind::Node, name: new.node.clone() }));
        }
        if new.transport == Transport::Tunnel && new.mode != Mode::Exclusive {
            return Err(ApiError::Invalid(alloc::format!(
                "the attachment {} can't be by tunnel: a tunnel has one host; use the mode exclusive, or the \
                 transport nvme-tcp",
                key.name
            )));
        }
        // The owner knows a host by one secret for each volume.
        let mut others = self.cache.attachments_of(&new.volume);
        if let Some((other, ..)) = others.find(|(_, _, other)| other.node == new.node && !other.detach) {
            return Err(ApiError::InUse(alloc::format!(
                "the volume {} is attached at {} already, by {other}: use that attachment, or detach it",
                new.volume,
                new.node
            )));
        }
        Ok(Attachment { detach: false, ..new.clone() })
    }

    /// Marks an object as not wanted, or deletes it if nothing uses it.
    fn unwant(&self, key: &Key) -> Result<Verdict, ApiError> {
        if self.is_busy(key) {
            return Ok(Verdict::Later);
        }
        let Some((_, object)) = self.cache.get(key) else {
            if let Some(volume) = self.volume_that_lets_in(key) {
                return Err(ApiError::InUse(alloc::format!(
                    "the owner of {volume} lets {} in, of which the store knows nothing: it was restored from \
                     an old backup (`farlane fleet recover`)",
                    key.name
                )));
            }
            return Ok(Verdict::IsSo);
        };
        let marked = match object {
            Object::Fleet(_) => return Err(ApiError::Invalid("the fleet itself stays".to_string())),
            Object::Volume(volume) => Some(Object::Volume(Volume { delete: true, ..volume.clone() })),
            Object::Attachment(one) => Some(Object::Attachment(Attachment { detach: true, ..one.clone() })),
            Object::Snapshot(one) => Some(Object::Snapshot(Snapshot { delete: true, ..one.clone() })),
            Object::Node(_) | Object::Pool(_) | Object::Class(_) | Object::Link(_) | Object::Token(_) => {
                if let Some(user) = self.user_of(key) {
                    return Err(ApiError::InUse(alloc::format!(
                        "the {} {} is used by the {} {}: delete that first",
                        key.kind.word(),
                        key.name,
                        user.kind.word(),
                        user.name
                    )));
                }
                None
            }
        };
        if marked.as_ref() == Some(object) {
            return Ok(Verdict::IsSo);
        }
        if let Object::Volume(_) = object
            && let Some((attachment, ..)) =
                self.cache.attachments_of(&key.name).find(|(_, _, one)| !one.detach)
        {
            return Err(ApiError::InUse(alloc::format!(
                "the volume {} is attached by {attachment}: detach it first",
                key.name
            )));
        }
        self.write(key, marked, Vec::new())
    }

    /// The volume whose owner lets in the host of an attachment.
    fn volume_that_lets_in(&self, key: &Key) -> Option<&Name> {
        let reports = self.reports.values().flatten();
        let mut volumes = reports.flat_map(|report| &report.volumes);
        let is_let_in =
            |one: &&VolumeReport| one.admitted.iter().any(|admitted| admitted.attachment == key.name);
        volumes.find(is_let_in).filter(|_| key.kind == Kind::Attachment).map(|one| &one.name)
    }

    /// An object that refers to another.
    fn user_of(&self, key: &Key) -> Option<Key> {
        let uses = |object: &Object| match (key.kind, object) {
            (Kind::Node, Object::Pool(pool)) => pool.node == key.name,
            (Kind::Node, Object::Attachment(one)) => one.node == key.name,
            (Kind::Pool, Object::Volume(volume)) => volume.pool.as_ref() == Some(&key.name),
            (Kind::Pool, Object::Snapshot(one)) => one.pool == key.name,
            (Kind::Class, Object::Volume(volume)) => volume.class.as_ref() == Some(&key.name),
            _ => false,
        };
        self.cache.all().find(|(_, _, object)| uses(object)).map(|(user, ..)| user.clone())
    }

    fn write(
        &self,
        key: &Key,
        object: Option<Object>,
        further: Vec<(Key, Revision)>,
    ) -> Result<Verdict, ApiError> {
        let mut compares = vec![self.compare(key.clone())];
        compares.extend(further);
        let term = self.term.ok_or(ApiError::NotLeader)?;
        Ok(Verdict::Do(Transaction { term, compares, writes: vec![(key.clone(), object)] }))
    }

    /// A call's change is in the store: replies, or waits for more.
    pub(super) fn reply_done(&mut self, id: CallId, call: &Call) {
        let (key, wait) = match call {
            Call::Put { key, wait, .. } | Call::Delete { key, wait } => (key, wait),
            _ => {
                let incarnation = self.cache.fleet().incarnation;
                return self.outputs.push_back(Output::Reply(id, Ok(Reply::Incarnation(incarnation))));
            }
        };
        if let Some(wait) = wait {
            return self.waiting.push((id, *wait, key.clone()));
        }
        let reply = match self.cache.get(key) {
            Some((revision, object)) => Reply::Objects(vec![(key.clone(), *revision, object.clone())]),
            None => Reply::Gone,
        };
        self.outputs.push_back(Output::Reply(id, Ok(reply)));
    }

    /// Replies to calls whose wishes have come true.
    pub(super) fn reply_waiting(&mut self) {
        let waiting = core::mem::take(&mut self.waiting);
        for (id, wait, key) in waiting {
            match self.reply_to(wait, &key) {
                Some(reply) => self.outputs.push_back(Output::Reply(id, reply)),
                None => self.waiting.push((id, wait, key)),
            }
        }
    }

    /// The reply to a call that waits, once it has one.
    fn reply_to(&self, wait: Wait, key: &Key) -> Option<Result<Reply, ApiError>> {
        let Some((revision, object)) = self.cache.get(key) else {
            let is_gone = wait == Wait::Gone;
            return Some(if is_gone { Ok(Reply::Gone) } else { Err(ApiError::NotFound(key.clone())) });
        };
        let is_so = match (wait, object) {
            (Wait::Attached, Object::Attachment(_)) => {
                matches!(self.phase(&key.name), Some(super::Phase::Attached(_)))
            }
            (Wait::Ready, Object::Volume(volume)) => {
                let report = self.report_of(&key.name, volume)?;
                super::volumes::is_acknowledged(volume, report) && report.bytes >= volume.bytes
            }
            (Wait::Ready, Object::Snapshot(snapshot)) => snapshot.taken.is_some(),
            (Wait::Gone, Object::Volume(Volume { delete: true, .. }))
            | (Wait::Gone, Object::Snapshot(Snapshot { delete: true, .. }))
            | (Wait::Gone, Object::Attachment(Attachment { detach: true, .. })) => false,
            (Wait::Gone, _) => {
                let reason = "the object was recovered since, and is in use";
                return Some(Err(ApiError::InUse(reason.to_string())));
            }
            (Wait::Attached | Wait::Ready, _) => {
                let reason = alloc::format!("a {} is never {wait:?}: wait for nothing", key.kind.word());
                return Some(Err(ApiError::Invalid(reason)));
            }
        };
        is_so.then(|| Ok(Reply::Objects(vec![(key.clone(), *revision, object.clone())])))
    }
}

/// The key of the fleet itself.
fn fleet_key() -> Key {
    Key { kind: Kind::Fleet, name: Name::new(FLEET).expect("a name") }
}
