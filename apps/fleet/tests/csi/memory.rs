//! A fleet in memory: the real controller, a store that answers each transaction at once, and
//! agents that do as slices say.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use engine::{Engine as _, Instant, drain};
use fleet::controller::{
    ApiError, Call, CallId, Controller, Expect, Input, Output, Phase, Reply, VolumePhase, Wait,
};
use fleet::object::{Class, Key, Kind, Node, Object, Pool, Volume};
use fleet::slice::{
    AttachmentReport, CopyReport, HostAttachment, OwnedCopy, Report, Slice, VolumeReport, Wish,
};
use fleet::store::{Answer, Event, Revision, Transaction};
use fleet::{Epoch, Name};
use fleetd::csi::{Fleet, FleetError, Item, Progress, Space};
use fleetd::wire::{self, Wire as _};
use tokio::sync::{mpsc, oneshot};

/// What agents do at their machines.
pub(crate) trait Hands: Send + Sync + 'static {
    /// Serves a volume of this size at a subsystem, read-only or not, and connects a host to it.
    fn connect(&self, nqn: &str, volume: &str, bytes: u64, read_only: bool);
    /// Ends what [`Self::connect`] began.
    fn disconnect(&self, nqn: &str, volume: &str);
    /// Extends a volume, whose subsystem stays connected if it has one.
    fn resize(&self, nqn: Option<&str>, volume: &str, bytes: u64);
    /// Deletes a volume's data.
    fn delete(&self, volume: &str);
}

struct Core {
    controller: Controller,
    objects: BTreeMap<Key, (Revision, Object)>,
    revision: Revision,
    now: Instant,
    calls: u64,
    replies: BTreeMap<CallId, oneshot::Sender<Result<Reply, ApiError>>>,
    slices: mpsc::UnboundedSender<Work>,
    /// The number of transactions.
    writes: usize,
}

enum Work {
    Ask(Name, u64),
    Slice(Name, Slice),
}

/// A fleet in memory.
#[derive(Clone)]
pub(crate) struct Memory {
    core: Arc<Mutex<Core>>,
}

impl Memory {
    /// A fleet with machines `a`, `b` and `c`, of which `a` has the pool `pool` of so many bytes,
    /// and with the class `any`.
    pub(crate) fn new(bytes: u64, hands: impl Hands) -> Self {
        let (slices, mut work) = mpsc::unbounded_channel();
        let core = Core {
            controller: Controller::new(),
            objects: BTreeMap::new(),
            revision: 0,
            now: Instant::ZERO,
            calls: 0,
            replies: BTreeMap::new(),
            slices,
            writes: 0,
        };
        let memory = Self { core: Arc::new(Mutex::new(core)) };
        for (at, one) in ["a", "b", "c"].into_iter().enumerate() {
            let identity = [u8::try_from(at).unwrap(); 32];
            let labels = BTreeMap::from([("rack".to_owned(), one.to_owned())]);
            let node = Node {
                identity,
                host_nqn: format!("nqn.2014-08.org.example:{one}"),
                labels,
                ..Node::default()
            };
            memory.lock().insert(one, Object::Node(node));
        }
        let pool = Pool { node: name("a"), path: "/pool".to_owned(), bytes, clones: false };
        memory.lock().insert("pool", Object::Pool(pool));
        memory.lock().insert("any", Object::Class(Class::default()));
        memory.lock().input(Input::Elected(1));
        for one in ["a", "b", "c"] {
            memory.lock().input(Input::Hello(name(one)));
        }
        let agents = memory.clone();
        std::thread::spawn(move || {
            let mut reports: BTreeMap<Name, Report> = BTreeMap::new();
            // The slice of a host has no sizes.
            let mut sizes = BTreeMap::new();
            while let Some(one) = work.blocking_recv() {
                let (node, report) = match one {
                    Work::Ask(node, term) => {
                        let report = reports.entry(node.clone()).or_default();
                        report.term = term;
                        (node, report.clone())
                    }
                    Work::Slice(node, slice) => {
                        let report = reports.entry(node.clone()).or_default();
                        obey(report, &slice, &mut sizes, &hands);
                        (node, report.clone())
                    }
                };
                agents.lock().input(Input::Report(node, report));
            }
        });
        memory
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap()
    }

    /// The agent of a machine goes.
    pub(crate) fn part(&self, node: &str) {
        self.lock().input(Input::Gone(name(node)));
    }

    /// The agent of a machine comes back.
    pub(crate) fn join(&self, node: &str) {
        self.lock().input(Input::Hello(name(node)));
    }

    /// How many transactions the store has seen.
    pub(crate) fn writes(&self) -> usize {
        self.lock().writes
    }

    async fn call(&self, call: Call) -> Result<Reply, FleetError> {
        let (sender, reply) = oneshot::channel();
        {
            let mut core = self.lock();
            core.calls += 1;
            let id = CallId(core.calls);
            core.replies.insert(id, sender);
            core.input(Input::Call(id, call));
        }
        let reply = reply.await.map_err(|_| FleetError::Unavailable("the fleet has ended".to_owned()))?;
        reply.map_err(|error| {
            let reason = error.to_string();
            match error {
                ApiError::NotLeader => FleetError::Unavailable(reason),
                ApiError::Revision { .. } => FleetError::Changed(reason),
                ApiError::NotFound(_) => FleetError::NotFound(reason),
                ApiError::Invalid(_) => FleetError::Invalid(reason),
                ApiError::InUse(_) => FleetError::InUse(reason),
            }
        })
    }

    fn items(&self, reply: Reply) -> Vec<Item> {
        let Reply::Objects(objects) = reply else { return Vec::new() };
        let core = self.lock();
        objects.into_iter().map(|(key, revision, object)| core.item(&key, revision, &object)).collect()
    }
}

/// An agent does as a slice says, and reports that.
fn obey(report: &mut Report, slice: &Slice, sizes: &mut BTreeMap<Name, u64>, hands: &impl Hands) {
    report.seen = slice.seen;
    sizes.extend(slice.volumes.iter().map(|one| (one.name.clone(), one.bytes)));
    report.copies = slice.copies.iter().map(copied).collect();
    let before: BTreeMap<_, _> = report.attachments.drain(..).map(|one| (one.name.clone(), one)).collect();
    let known: BTreeMap<_, _> = report.volumes.drain(..).map(|one| (one.name.clone(), one)).collect();
    for volume in &slice.volumes {
        if known.get(&volume.name).is_some_and(|known| known.bytes < volume.bytes) {
            let nqn = volume.admitted.first().map(|one| nqn(&volume.name, one.epoch));
            hands.resize(nqn.as_deref(), volume.name.as_str(), volume.bytes);
        }
        if volume.delete {
            hands.delete(volume.name.as_str());
        }
        report.volumes.push(VolumeReport {
            name: volume.name.clone(),
            pool: volume.pool.clone(),
            bytes: volume.bytes,
            epoch: volume.epoch,
            admitted: volume.admitted.clone(),
            enforced: true,
            deleted: volume.delete,
        });
    }
    for one in &slice.attachments {
        let HostAttachment { name, volume, epoch, mode, owner, wish, .. } = one;
        match wish {
            Wish::Connect => {
                if !before.contains_key(name) {
                    let read_only = *mode == fleet::object::Mode::Read;
                    hands.connect(&nqn(volume, *epoch), volume.as_str(), sizes[volume], read_only);
                }
                report.attachments.push(AttachmentReport {
                    name: name.clone(),
                    volume: volume.clone(),
                    owner: owner.clone(),
                    epoch: *epoch,
                    connected: true,
                });
            }
            Wish::Disconnect => hands.disconnect(&nqn(volume, *epoch), volume.as_str()),
        }
    }
}

/// A machine makes a copy at once.
fn copied(one: &OwnedCopy) -> CopyReport {
    CopyReport {
        data: one.data.clone(),
        of: one.of.clone(),
        pool: one.pool.clone(),
        bytes: one.bytes,
        epoch: one.epoch,
        made: Some(one.made.unwrap_or(1_700_000_000)),
        delete: one.delete,
        deleted: one.delete,
        problem: String::new(),
    }
}

/// The name of a volume's subsystem.
fn nqn(volume: &Name, epoch: Epoch) -> String {
    format!("nqn.2026-01.io.farlane:{volume}:{epoch}")
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

impl Core {
    fn insert(&mut self, text: &str, object: Object) {
        self.revision += 1;
        let key = Key { kind: object.kind(), name: name(text) };
        self.objects.insert(key, (self.revision, object));
    }

    fn input(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        loop {
            match (inputs.pop_front(), self.controller.poll_timeout()) {
                (Some(input), _) => self.controller.handle_input(self.now, input),
                // Time passes until each burst is over.
                (None, Some(at)) => {
                    self.now = at;
                    self.controller.handle_timeout(at);
                }
                (None, None) => return,
            }
            let mut outputs = Vec::new();
            drain(&mut self.controller, |output| outputs.push(output));
            inputs.extend(outputs.into_iter().filter_map(|output| self.perform(output)));
        }
    }

    /// Does what the controller wants. Returns the answer, if there is one.
    fn perform(&mut self, output: Output) -> Option<Input> {
        match output {
            Output::Transact(number, transaction) => {
                return Some(Input::Answered(number, self.apply(&transaction)));
            }
            Output::List(number) => {
                let objects = self.objects.iter();
                let objects = objects.map(|(key, (at, object))| (key.clone(), *at, object.clone()));
                let (revision, objects) = (self.revision, objects.collect());
                return Some(Input::Store(Event::Listed { number, revision, objects }));
            }
            Output::Reply(id, reply) => {
                if let Some(sender) = self.replies.remove(&id) {
                    let _ = sender.send(reply);
                }
            }
            Output::Ask(node, term) => drop(self.slices.send(Work::Ask(node, term))),
            Output::Slice(node, slice) => drop(self.slices.send(Work::Slice(node, slice))),
            Output::Resign => panic!("every answer of this store is known"),
        }
        None
    }

    fn apply(&mut self, transaction: &Transaction) -> Answer {
        self.writes += 1;
        let is_present = |(key, revision): &(Key, Revision)| {
            self.objects.get(key).map_or(0, |(revision, _)| *revision) == *revision
        };
        if !transaction.compares.iter().all(is_present) {
            return Answer::Conflict;
        }
        self.revision += 1;
        for (key, object) in &transaction.writes {
            match object {
                Some(object) => self.objects.insert(key.clone(), (self.revision, object.clone())),
                None => self.objects.remove(key),
            };
        }
        Answer::Done(self.revision)
    }

    fn item(&self, key: &Key, revision: Revision, object: &Object) -> Item {
        let (mut progress, mut subsystem) = (Progress::Ready, None);
        match object {
            Object::Volume(_) => match self.controller.volume_phase(&key.name) {
                Some(VolumePhase::Ready) | None => (),
                Some(phase @ VolumePhase::WaitsForOwner(_)) => {
                    progress = Progress::Stuck(format!("{phase:?}"))
                }
                Some(phase) => progress = Progress::Pending(format!("{phase:?}")),
            },
            Object::Attachment(one) => match self.controller.phase(&key.name) {
                Some(Phase::Attached(_)) => {
                    let volume = self.controller.volume(&one.volume).unwrap();
                    let mine = volume.admitted.iter().find(|one| one.attachment == key.name).unwrap();
                    subsystem = Some(nqn(&one.volume, mine.epoch));
                }
                Some(phase @ Phase::WaitsForOwner(_)) => progress = Progress::Stuck(format!("{phase:?}")),
                phase => progress = Progress::Pending(format!("{phase:?}")),
            },
            _ => (),
        }
        let object = wire::Object::wire(object);
        let connected = subsystem.is_some();
        Item { name: key.name.to_string(), revision, object, progress, nqn: subsystem, connected }
    }
}

fn key(kind: Kind, text: &str) -> Result<Key, FleetError> {
    let name = Name::new(text).map_err(|error| FleetError::Invalid(error.to_string()))?;
    Ok(Key { kind, name })
}

impl Fleet for Memory {
    async fn get(&self, kind: Kind, name: &str) -> Result<Item, FleetError> {
        let reply = self.call(Call::Get(key(kind, name)?)).await?;
        Ok(self.items(reply).pop().unwrap())
    }

    async fn list(&self, kind: Kind) -> Result<Vec<Item>, FleetError> {
        let reply = self.call(Call::List(kind)).await?;
        Ok(self.items(reply))
    }

    async fn put(
        &self,
        name: &str,
        object: wire::Object,
        expect: Expect,
        wait: Option<Wait>,
    ) -> Result<Item, FleetError> {
        let object = object.pure().map_err(|error| FleetError::Invalid(error.to_string()))?;
        let key = key(object.kind(), name)?;
        let reply = self.call(Call::Put { key, object, expect, wait }).await?;
        Ok(self.items(reply).pop().unwrap())
    }

    async fn delete(&self, kind: Kind, name: &str, wait: Option<Wait>) -> Result<(), FleetError> {
        self.call(Call::Delete { key: key(kind, name)?, wait }).await.map(drop)
    }

    async fn space(&self, class: Option<&str>, near: Option<&str>) -> Result<Vec<Space>, FleetError> {
        if let Some(class) = class {
            self.get(Kind::Class, class).await?;
        }
        let name = |text: Option<&str>| text.map(|text| Name::new(text).unwrap());
        let volume = Volume {
            bytes: 1,
            class: name(class),
            near: name(near),
            pool: None,
            delete: false,
            epoch: Epoch::default(),
            admitted: Vec::new(),
            source: None,
            copied: false,
        };
        let core = self.lock();
        let fit = core.controller.rank(&volume).fit.into_iter().map(|one| one.pool);
        Ok(fit
            .map(|pool| Space { free: core.controller.free_bytes(&pool).unwrap(), pool: pool.to_string() })
            .collect())
    }
}
