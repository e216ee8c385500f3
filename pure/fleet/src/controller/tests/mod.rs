mod promises;
mod recovery;
mod snapshots;

use alloc::string::ToString;
use alloc::vec::Vec;

use engine::{Engine, Instant, drain};

use super::*;
use crate::Epoch;
use crate::object::{Attachment, Mode, Node, Pool, Transport, Volume};
use crate::slice::{AttachmentReport, CopyReport, OwnedCopy, OwnedVolume, Seen, Wish};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn key(kind: Kind, text: &str) -> Key {
    Key { kind, name: name(text) }
}

/// A leader with a store that applies each transaction at once.
struct Bench {
    controller: Controller,
    objects: BTreeMap<Key, (Revision, Object)>,
    revision: Revision,
    replies: Vec<(CallId, Result<Reply, ApiError>)>,
    /// Answers to give instead of the right ones.
    answers: VecDeque<Answer>,
    has_resigned: bool,
    calls: u64,
    term: u64,
    /// All transactions that had writes.
    transactions: Vec<Transaction>,
    /// The latest slice of each machine.
    slices: BTreeMap<Name, Slice>,
    /// The copies that each machine reports.
    copies: BTreeMap<Name, Vec<CopyReport>>,
}

impl Bench {
    fn new() -> Self {
        let mut bench = Self {
            controller: Controller::new(),
            objects: BTreeMap::new(),
            revision: 0,
            replies: Vec::new(),
            answers: VecDeque::new(),
            has_resigned: false,
            calls: 0,
            term: 1,
            transactions: Vec::new(),
            slices: BTreeMap::new(),
            copies: BTreeMap::new(),
        };
        bench.input(Input::Elected(1));
        bench
    }

    fn input(&mut self, input: Input) {
        let mut next = Some(input);
        let mut outputs = VecDeque::new();
        loop {
            if let Some(input) = next.take() {
                self.controller.handle_input(Instant::ZERO, input);
                drain(&mut self.controller, |output| outputs.push_back(output));
            }
            match outputs.pop_front() {
                None => return,
                Some(Output::Transact(number, transaction)) => {
                    if !transaction.writes.is_empty() {
                        self.transactions.push(transaction.clone());
                    }
                    let answer = self.answers.pop_front().unwrap_or_else(|| self.apply(&transaction));
                    next = Some(Input::Answered(number, answer));
                }
                Some(Output::List(number)) => {
                    let objects = self.objects.iter();
                    let objects = objects.map(|(key, (at, object))| (key.clone(), *at, object.clone()));
                    let (revision, objects) = (self.revision, objects.collect());
                    next = Some(Input::Store(Event::Listed { number, revision, objects }));
                }
                Some(Output::Reply(id, reply)) => self.replies.push((id, reply)),
                Some(Output::Resign) => self.has_resigned = true,
                Some(Output::Slice(node, slice)) => {
                    self.slices.insert(node, slice);
                }
                Some(Output::Ask(..)) => (),
            }
        }
    }

    fn apply(&mut self, transaction: &Transaction) -> Answer {
        let revision_of = |key| self.objects.get(key).map_or(0, |(revision, _)| *revision);
        if transaction.compares.iter().any(|(key, revision)| revision_of(key) != *revision) {
            return Answer::Conflict;
        }
        self.revision += u64::from(!transaction.writes.is_empty());
        for (key, object) in &transaction.writes {
            match object {
                Some(object) => self.objects.insert(key.clone(), (self.revision, object.clone())),
                None => self.objects.remove(key),
            };
        }
        Answer::Done(self.revision)
    }

    fn call(&mut self, call: Call) -> Result<Reply, ApiError> {
        self.calls += 1;
        let id = CallId(self.calls);
        self.input(Input::Call(id, call));
        let index = self.replies.iter().position(|(one, _)| *one == id).expect("a reply");
        self.replies.remove(index).1
    }

    fn put(&mut self, kind: Kind, text: &str, object: Object) -> Result<Reply, ApiError> {
        self.call(Call::Put { key: key(kind, text), object, expect: Expect::Any, wait: None })
    }

    fn refusal(&mut self, kind: Kind, text: &str, object: Object) -> alloc::string::String {
        self.put(kind, text, object).unwrap_err().to_string()
    }

    /// Stands for another term.
    fn elect(&mut self) {
        self.term += 1;
        self.input(Input::Elected(self.term));
    }

    /// Goes back to an earlier content of the store, which has forgotten later terms, too.
    fn restore(&mut self, (objects, revision, term): Backup) {
        self.input(Input::Deposed);
        (self.objects, self.revision, self.term) = (objects, revision, term);
        self.elect();
    }

    fn backup(&self) -> Backup {
        (self.objects.clone(), self.revision, self.term)
    }

    /// A report of a machine that has seen a slice of the present term.
    fn report(&mut self, node: &str, volumes: Vec<VolumeReport>, attachments: Vec<AttachmentReport>) {
        let incarnation = self.controller.cache.fleet().incarnation;
        let seen = Seen { incarnation, term: self.term, revision: self.revision };
        self.report_of(node, seen, volumes, attachments);
    }

    fn report_of(
        &mut self,
        node: &str,
        seen: Seen,
        volumes: Vec<VolumeReport>,
        attachments: Vec<AttachmentReport>,
    ) {
        let copies = self.copies.get(&name(node)).cloned().unwrap_or_default();
        let report = Report { term: self.term, seen, volumes, attachments, copies, pools: Vec::new() };
        self.input(Input::Report(name(node), report));
    }

    /// The machine reports that it has done all that its latest slice demands.
    fn acknowledge(&mut self, node: &str) {
        let slice = self.slices[&name(node)].clone();
        let volumes = slice.volumes.iter().map(acknowledged).collect();
        let connected = slice.attachments.iter().filter(|one| one.wish == Wish::Connect);
        let attachments = connected.map(|one| AttachmentReport {
            name: one.name.clone(),
            volume: one.volume.clone(),
            owner: one.owner.clone(),
            epoch: one.epoch,
            connected: true,
        });
        let attachments = attachments.collect();
        let copies = slice.copies.iter().map(made).collect();
        self.copies.insert(name(node), copies);
        self.report(node, volumes, attachments);
    }

    fn hello(&mut self, node: &str) {
        self.input(Input::Hello(name(node)));
    }

    /// The stored volume with a name.
    fn stored(&self, text: &str) -> Volume {
        match &self.objects[&key(Kind::Volume, text)] {
            (_, Object::Volume(volume)) => volume.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn has(&self, kind: Kind, text: &str) -> bool {
        self.objects.contains_key(&key(kind, text))
    }

    /// The hosts that the stored list of `v` lets in.
    fn admitted(&self) -> Vec<Name> {
        self.stored("v").admitted.into_iter().map(|one| one.attachment).collect()
    }

    fn add_node(&mut self, text: &str, number: u8) {
        let node = Node { identity: [number; 32], ..Node::default() };
        self.put(Kind::Node, text, Object::Node(node)).unwrap();
    }

    /// A fleet whose owner `m` is there, with the volume `v` and the hosts `h1` and `h2`, away.
    fn with_hosts() -> Self {
        let mut bench = Self::with_volume();
        bench.add_node("h1", 2);
        bench.add_node("h2", 3);
        bench.hello("m");
        bench.acknowledge("m");
        bench
    }

    /// A fleet with a machine, its pool and a volume there.
    fn with_volume() -> Self {
        let mut bench = Self::new();
        bench.put(Kind::Node, "m", Object::Node(Node { identity: [1; 32], ..Node::default() })).unwrap();
        bench.put(Kind::Pool, "p", pool("m")).unwrap();
        bench.put(Kind::Volume, "v", volume(10)).unwrap();
        bench
    }
}

/// The content of a store, its revision and its term.
type Backup = (BTreeMap<Key, (Revision, Object)>, Revision, u64);

/// What the owner of a copy reports that has done as a slice demands.
fn made(copy: &OwnedCopy) -> CopyReport {
    CopyReport {
        data: copy.data.clone(),
        of: copy.of.clone(),
        pool: copy.pool.clone(),
        bytes: copy.bytes,
        epoch: copy.epoch,
        made: copy.made.or(Some(7)),
        delete: copy.delete,
        deleted: copy.delete,
        problem: alloc::string::String::new(),
    }
}

/// What the owner of a volume reports that has done as a slice demands.
fn acknowledged(volume: &OwnedVolume) -> VolumeReport {
    VolumeReport {
        name: volume.name.clone(),
        pool: volume.pool.clone(),
        bytes: volume.bytes,
        epoch: volume.epoch,
        admitted: volume.admitted.clone(),
        enforced: true,
        deleted: volume.delete,
    }
}

fn device(attachment: &str, owner: &str, epoch: Epoch) -> AttachmentReport {
    let (name_of, owner) = (name(attachment), name(owner));
    AttachmentReport { name: name_of, volume: name("v"), owner, epoch, connected: true }
}

fn pool(node: &str) -> Object {
    Object::Pool(Pool { node: name(node), path: "/p".to_string(), bytes: 100, clones: false })
}

fn volume(bytes: u64) -> Object {
    Object::Volume(Volume {
        bytes,
        class: None,
        near: None,
        pool: Some(name("p")),
        delete: false,
        epoch: Epoch::default(),
        admitted: Vec::new(),
        source: None,
        copied: false,
    })
}

fn attachment(node: &str) -> Object {
    Object::Attachment(Attachment {
        volume: name("v"),
        node: name(node),
        mode: Mode::Exclusive,
        transport: Transport::default(),
        owner: "a user".to_string(),
        detach: false,
    })
}

#[test]
fn the_same_call_has_the_same_result() {
    let mut bench = Bench::with_volume();
    let first = bench.put(Kind::Volume, "v", volume(10)).unwrap();
    let writes = bench.transactions.len();
    assert_eq!(bench.put(Kind::Volume, "v", volume(10)).unwrap(), first);
    assert_eq!(bench.transactions.len(), writes, "nothing is written again");
}

#[test]
fn an_unknown_outcome_ends_the_term() {
    let mut bench = Bench::with_volume();
    bench.answers.push_back(Answer::Unknown);
    assert_eq!(bench.put(Kind::Attachment, "a", attachment("m")), Err(ApiError::NotLeader));
    assert!(bench.has_resigned && !bench.controller.is_ready());
    bench.input(Input::Elected(2));
    bench.put(Kind::Attachment, "a", attachment("m")).unwrap();
    assert!(bench.objects.contains_key(&key(Kind::Attachment, "a")));
}

#[test]
fn a_watcher_that_has_missed_events_lists_the_store_anew() {
    let mut bench = Bench::with_volume();
    bench.objects.insert(key(Kind::Volume, "w"), (bench.revision + 1, volume(7)));
    bench.revision += 1;
    bench.input(Input::Store(Event::Compacted));
    assert!(bench.controller.volume(&name("w")).is_some());
    // A list that was asked for before the latest one counts no longer.
    let (number, revision) = (bench.controller.lists - 1, bench.revision);
    bench.input(Input::Store(Event::Listed { number, revision, objects: Vec::new() }));
    assert!(bench.controller.volume(&name("w")).is_some());
}

#[test]
fn refusals_name_the_value_and_the_remedy() {
    let mut bench = Bench::with_volume();
    assert!(bench.refusal(Kind::Volume, "v", volume(5)).contains("has 10 bytes and cannot shrink to 5"));
    assert!(bench.refusal(Kind::Volume, "w", volume(91)).contains("has 90 bytes free, and 91 are wanted"));
    assert!(bench.refusal(Kind::Volume, "w", volume(0)).contains("has 0 bytes"));
    assert!(bench.refusal(Kind::Pool, "q", pool("other")).contains("no node called other"));
    let twin = Object::Node(Node { identity: [1; 32], ..Node::default() });
    assert!(bench.refusal(Kind::Node, "n", twin).contains("the identity or the host NQN of m"));
    assert!(bench.refusal(Kind::Attachment, "a", attachment("n")).contains("no node called n"));
    assert!(bench.refusal(Kind::Volume, "v", attachment("m")).contains("the call is about a volume"));
    bench.put(Kind::Attachment, "a", attachment("m")).unwrap();
    let used = bench.call(Call::Delete { key: key(Kind::Volume, "v"), wait: None }).unwrap_err();
    assert!(used.to_string().contains("is attached by a: detach it first"), "{used}");
    let used = bench.call(Call::Delete { key: key(Kind::Node, "m"), wait: None }).unwrap_err();
    assert!(used.to_string().contains("delete that first"), "{used}");
}

#[test]
fn what_is_not_there_is_deleted_already() {
    let mut bench = Bench::new();
    let gone = bench.call(Call::Delete { key: key(Kind::Attachment, "a"), wait: Some(Wait::Gone) });
    assert_eq!(gone, Ok(Reply::Gone));
}

#[test]
fn a_follower_refuses_calls() {
    let mut bench = Bench::with_volume();
    bench.input(Input::Deposed);
    assert_eq!(bench.call(Call::List(Kind::Volume)), Err(ApiError::NotLeader));
}

#[test]
fn an_attachment_says_for_whom_it_waits() {
    let mut bench = Bench::with_volume();
    bench.put(Kind::Attachment, "a", attachment("m")).unwrap();
    assert_eq!(bench.controller.phase(&name("a")), Some(Phase::WaitsForOwner(name("m"))));
    assert_eq!(bench.controller.phase(&name("b")), None);
}

#[test]
fn a_call_waits_for_its_own_object_and_for_no_other_of_the_name() {
    let mut bench = Bench::with_volume();
    bench.put(Kind::Attachment, "v", attachment("m")).unwrap();
    let delete = |kind| Call::Delete { key: key(kind, "v"), wait: Some(Wait::Gone) };
    // The volume is in use, and no report of an owner ends the attachment.
    bench.controller.handle_input(Instant::ZERO, Input::Call(CallId(99), delete(Kind::Attachment)));
    drain(&mut bench.controller, drop);
    bench.objects.remove(&key(Kind::Attachment, "v"));
    let changed = Event::Changed { revision: 100, key: key(Kind::Attachment, "v"), object: None };
    bench.input(Input::Answered(bench.controller.number, Answer::Done(99)));
    bench.input(Input::Store(changed));
    assert_eq!(bench.replies, [(CallId(99), Ok(Reply::Gone))]);
}

#[test]
fn a_wait_that_makes_no_sense_is_refused() {
    let mut bench = Bench::with_volume();
    let call = Call::Put {
        key: key(Kind::Volume, "v"),
        object: volume(10),
        expect: Expect::Any,
        wait: Some(Wait::Attached),
    };
    assert!(bench.call(call).unwrap_err().to_string().contains("a volume is never Attached"));
}
