use alloc::vec;
use alloc::vec::Vec;

use engine::{Engine, Instant, drain};

use super::*;
use crate::object::Mode;
use crate::slice::Seen;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn admission(attachment: &str, number: u64) -> Admission {
    let epoch = Epoch { incarnation: 0, number };
    Admission { attachment: name(attachment), node: name("host"), mode: Mode::Exclusive, epoch }
}

/// A slice of the first term with one volume, whose list of hosts has this epoch.
fn slice(revision: u64, number: u64, admitted: &[Admission]) -> Slice {
    let volume = OwnedVolume {
        name: name("v"),
        pool: name("p"),
        bytes: 1,
        epoch: Epoch { incarnation: 0, number },
        admitted: admitted.to_vec(),
        delete: false,
    };
    let seen = Seen { incarnation: 0, term: 1, revision };
    Slice { seen, volumes: vec![volume], attachments: Vec::new() }
}

/// An agent whose machine does at once what the agent asks for.
struct Bench {
    agent: Agent,
    observation: Observation,
    refusals: Vec<Refusal>,
    /// The lists that the target was asked for.
    lists: Vec<Vec<Admission>>,
}

impl Bench {
    fn new() -> Self {
        let agent = Agent::new(Instant::ZERO, State::default());
        let mut bench =
            Self { agent, observation: Observation::default(), refusals: Vec::new(), lists: Vec::new() };
        bench.input(Input::Asked(1));
        bench.observe();
        bench
    }

    fn input(&mut self, input: Input<'_>) {
        self.agent.handle_input(Instant::ZERO, input);
        let mut outputs = Vec::new();
        drain(&mut self.agent, |output| outputs.push(output));
        for output in outputs {
            match output {
                Output::Save { number, .. } => self.input(Input::Saved(number)),
                Output::Serve { number, volumes } => {
                    self.lists.extend(volumes.iter().map(|volume| volume.admitted.clone()));
                    (self.observation.number, self.observation.served) = (number, volumes);
                    self.observe();
                }
                Output::Refused(refusal) => self.refusals.push(refusal),
                _ => (),
            }
        }
    }

    fn observe(&mut self) {
        let observation = self.observation.clone();
        self.input(Input::Observed(&observation));
    }

    fn is_enforced(&self) -> bool {
        self.agent.describe().volumes[0].enforced
    }
}

#[test]
fn an_older_list_is_refused_and_so_is_another_of_the_same_age() {
    let mut bench = Bench::new();
    bench.input(Input::Slice(&slice(1, 5, &[admission("a", 5)])));
    assert!(bench.is_enforced() && bench.refusals.is_empty());
    bench.input(Input::Slice(&slice(2, 4, &[])));
    bench.input(Input::Slice(&slice(3, 5, &[])));
    assert_eq!(bench.refusals.len(), 2);
    assert_eq!(bench.agent.saved().volumes[&name("v")].admitted, [admission("a", 5)]);
}

#[test]
fn a_host_is_let_in_only_when_the_one_before_has_gone() {
    let mut bench = Bench::new();
    bench.input(Input::Slice(&slice(1, 5, &[admission("a", 5)])));
    bench.observation.associations = vec![(name("v"), name("a"))];
    bench.observe();
    bench.input(Input::Slice(&slice(2, 6, &[admission("b", 6)])));
    assert_eq!(bench.lists.last(), Some(&Vec::new()), "nothing but the fence: requests of a are in progress");
    assert!(!bench.is_enforced());
    bench.observation.associations.clear();
    bench.observe();
    assert_eq!(bench.lists.last(), Some(&vec![admission("b", 6)]));
    assert!(bench.is_enforced());
}

#[test]
fn slices_of_a_term_that_has_not_asked_and_overtaken_ones_are_ignored() {
    let mut bench = Bench::new();
    bench.input(Input::Slice(&slice(7, 5, &[])));
    bench.input(Input::Slice(&slice(6, 9, &[admission("a", 9)])));
    let mut other = slice(8, 9, &[admission("a", 9)]);
    other.seen.term = 2;
    bench.input(Input::Slice(&other));
    assert_eq!(bench.agent.saved().volumes[&name("v")].epoch.number, 5);
    assert!(bench.refusals.is_empty());
}

#[test]
fn nothing_goes_because_a_slice_lacks_it() {
    let mut bench = Bench::new();
    bench.input(Input::Slice(&slice(1, 5, &[admission("a", 5)])));
    let seen = Seen { incarnation: 0, term: 1, revision: 9 };
    bench.input(Input::Slice(&Slice { seen, ..Slice::default() }));
    assert_eq!(bench.observation.served[0].admitted, [admission("a", 5)]);
}

#[test]
fn a_store_of_an_earlier_incarnation_is_refused_with_the_remedy() {
    let saved = State { seen: Seen { incarnation: 2, term: 1, revision: 1 }, ..State::default() };
    let mut agent = Agent::new(Instant::ZERO, saved);
    agent.handle_input(Instant::ZERO, Input::Asked(1));
    agent.handle_input(Instant::ZERO, Input::Slice(&slice(5, 5, &[])));
    let mut refusals = Vec::new();
    drain(&mut agent, |output| {
        if let Output::Refused(refusal) = output {
            refusals.push(alloc::string::ToString::to_string(&refusal));
        }
    });
    assert_eq!(refusals.len(), 1);
    assert!(
        refusals[0].contains("has incarnation 0, but 2 is durable here") && refusals[0].contains("recover")
    );
}
