use alloc::string::ToString;
use alloc::vec::Vec;

use engine::{Engine, Instant, drain};

use super::*;
use crate::Epoch;
use crate::object::{Attachment, Mode, Node, Pool, Volume};

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
        };
        bench.input(Input::Elected(1));
        bench
    }

    fn input(&mut self, input: Input) {
        self.controller.handle_input(Instant::ZERO, input);
        let mut outputs = Vec::new();
        drain(&mut self.controller, |output| outputs.push(output));
        for output in outputs {
            match output {
                Output::Transact(number, transaction) => {
                    let answer = self.answers.pop_front().unwrap_or_else(|| self.apply(&transaction));
                    self.input(Input::Answered(number, answer));
                }
                Output::List(number) => {
                    let objects = self.objects.iter();
                    let objects = objects.map(|(key, (at, object))| (key.clone(), *at, object.clone()));
                    let (revision, objects) = (self.revision, objects.collect());
                    self.input(Input::Store(Event::Listed { number, revision, objects }));
                }
                Output::Reply(id, reply) => self.replies.push((id, reply)),
                Output::Resign => self.has_resigned = true,
                Output::Slice(..) | Output::Ask(..) => (),
            }
        }
    }

    fn apply(&mut self, transaction: &Transaction) -> Answer {
        self.revision += 1;
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

    /// A fleet with a machine, its pool and a volume there.
    fn with_volume() -> Self {
        let mut bench = Self::new();
        bench.put(Kind::Node, "m", Object::Node(Node { identity: [1; 32], ..Node::default() })).unwrap();
        bench.put(Kind::Pool, "p", pool("m")).unwrap();
        bench.put(Kind::Volume, "v", volume(10)).unwrap();
        bench
    }
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
    })
}

fn attachment(node: &str) -> Object {
    Object::Attachment(Attachment {
        volume: name("v"),
        node: name(node),
        mode: Mode::Exclusive,
        owner: "a user".to_string(),
        detach: false,
    })
}

#[test]
fn the_same_call_has_the_same_result() {
    let mut bench = Bench::with_volume();
    let first = bench.put(Kind::Volume, "v", volume(10)).unwrap();
    let revision = bench.revision;
    assert_eq!(bench.put(Kind::Volume, "v", volume(10)).unwrap(), first);
    let Reply::Objects(objects) = first else { panic!("{first:?}") };
    assert!(objects[0].1 < revision, "nothing was written again");
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
