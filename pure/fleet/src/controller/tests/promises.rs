//! What users of other systems suffer from, and the right behaviour.

use alloc::vec;

use super::*;
use crate::object::Cordon;
use crate::placement::Unfit;

#[test]
fn detach_returns_only_when_the_owner_has_let_the_host_out() {
    let mut bench = Bench::with_hosts();
    bench.put(Kind::Attachment, "a", attachment("h1")).unwrap();
    bench.acknowledge("m");
    let delete = Call::Delete { key: key(Kind::Attachment, "a"), wait: Some(Wait::Gone) };
    bench.input(Input::Call(CallId(99), delete));
    assert!(bench.admitted().is_empty() && bench.replies.is_empty());
    // The list is durable, but requests of the host are still in progress.
    let slice = bench.slices[&name("m")].volumes[0].clone();
    bench.report("m", vec![VolumeReport { enforced: false, ..acknowledged(&slice) }], vec![]);
    assert!(bench.replies.is_empty() && bench.has(Kind::Attachment, "a"));
    bench.acknowledge("m");
    assert_eq!(bench.replies, [(CallId(99), Ok(Reply::Gone))]);
}

#[test]
fn the_grant_waits_for_the_acknowledgement_of_the_fence() {
    let mut bench = Bench::with_hosts();
    bench.put(Kind::Attachment, "a", attachment("h1")).unwrap();
    bench.acknowledge("m");
    bench.put(Kind::Attachment, "b", attachment("h2")).unwrap();
    assert_eq!(bench.admitted(), [name("a")]);
    bench.call(Call::Delete { key: key(Kind::Attachment, "a"), wait: None }).unwrap();
    let fence = bench.stored("v").epoch;
    assert!(bench.admitted().is_empty(), "the fence");
    let slice = bench.slices[&name("m")].volumes[0].clone();
    bench.report("m", vec![VolumeReport { enforced: false, ..acknowledged(&slice) }], vec![]);
    assert_eq!(bench.stored("v").epoch, fence, "no grant before the acknowledgement");
    bench.acknowledge("m");
    assert_eq!(bench.admitted(), [name("b")], "the grant");
    assert!(bench.stored("v").epoch > fence);
}

#[test]
fn an_acknowledgement_of_an_earlier_term_counts_no_longer() {
    let mut bench = Bench::with_hosts();
    bench.put(Kind::Attachment, "a", attachment("h1")).unwrap();
    let report = acknowledged(&bench.slices[&name("m")].volumes[0]);
    bench.elect();
    let seen = Seen { incarnation: 0, term: 1, revision: bench.revision };
    let old = Report { term: 1, seen, volumes: vec![report], ..Report::default() };
    bench.input(Input::Report(name("m"), old));
    assert_eq!(bench.controller.phase(&name("a")), Some(Phase::WaitsForOwner(name("m"))));
    bench.acknowledge("m");
    assert!(matches!(bench.controller.phase(&name("a")), Some(Phase::Attached(_))));
}

#[test]
fn every_write_compares_the_revisions_of_what_it_changes_and_has_the_term() {
    let mut bench = Bench::with_hosts();
    bench.put(Kind::Attachment, "a", attachment("h1")).unwrap();
    bench.acknowledge("m");
    bench.call(Call::Delete { key: key(Kind::Attachment, "a"), wait: None }).unwrap();
    bench.acknowledge("m");
    bench.call(Call::Delete { key: key(Kind::Volume, "v"), wait: None }).unwrap();
    bench.acknowledge("m");
    assert!(!bench.has(Kind::Volume, "v") && bench.transactions.len() > 8);
    for transaction in &bench.transactions {
        assert_eq!(transaction.term, 1);
        for (key, _) in &transaction.writes {
            assert!(transaction.compares.iter().any(|(compared, _)| compared == key), "{transaction:?}");
        }
    }
}

#[test]
fn a_deposed_controller_answers_from_no_old_copy() {
    let mut bench = Bench::with_hosts();
    bench.answers.push_back(Answer::Unknown);
    assert_eq!(bench.call(Call::Get(key(Kind::Volume, "v"))), Err(ApiError::NotLeader));
    assert!(bench.has_resigned);
}

#[test]
fn a_dead_host_is_detached_by_the_owner_alone() {
    let mut bench = Bench::with_hosts();
    // The agent of h1 never connects.
    bench.put(Kind::Attachment, "a", attachment("h1")).unwrap();
    bench.acknowledge("m");
    bench.call(Call::Delete { key: key(Kind::Attachment, "a"), wait: None }).unwrap();
    bench.acknowledge("m");
    assert!(!bench.has(Kind::Attachment, "a"));
    bench.put(Kind::Attachment, "b", attachment("h2")).unwrap();
    bench.acknowledge("m");
    assert!(matches!(bench.controller.phase(&name("b")), Some(Phase::Attached(_))));
}

#[test]
fn nothing_becomes_safe_by_waiting_for_an_owner_that_is_away() {
    let mut bench = Bench::with_hosts();
    bench.put(Kind::Attachment, "a", attachment("h1")).unwrap();
    bench.acknowledge("m");
    bench.input(Input::Gone(name("m")));
    bench.call(Call::Delete { key: key(Kind::Attachment, "a"), wait: None }).unwrap();
    let a_year = Instant::ZERO + Nanos::from_secs(365 * 86_400);
    bench.controller.handle_timeout(a_year);
    bench.input(Input::Hello(name("h2")));
    assert_eq!(bench.admitted(), [name("a")]);
    assert_eq!(bench.controller.phase(&name("a")), Some(Phase::WaitsForOwner(name("m"))));
}

#[test]
fn an_orphan_is_listed_and_never_expires() {
    let mut bench = Bench::with_hosts();
    bench.hello("h1");
    let mut orphan = device("x", "elsewhere", Epoch { incarnation: 0, number: 1 });
    orphan.volume = name("unknown");
    bench.report("h1", vec![], vec![orphan]);
    let (attachment, volume) = (name("x"), name("unknown"));
    let listed = [Orphan::Device { node: name("h1"), attachment, volume }];
    assert_eq!(bench.controller.orphans(), listed);
    bench.controller.handle_timeout(Instant::ZERO + Nanos::from_secs(365 * 86_400));
    drain(&mut bench.controller, |output| assert!(!matches!(output, Output::Slice(..)), "{output:?}"));
    assert_eq!(bench.slices[&name("h1")].attachments, [], "no mark, no disconnection");
    assert_eq!(bench.controller.orphans(), listed);
}

#[test]
fn an_attachment_has_its_owner_and_stays_until_it_is_detached() {
    let mut bench = Bench::with_hosts();
    bench.put(Kind::Attachment, "a", attachment("h1")).unwrap();
    bench.acknowledge("m");
    bench.put(Kind::Attachment, "b", attachment("h2")).unwrap();
    let waits = Phase::WaitsForHost { attachment: name("a"), owner: "a user".to_string() };
    assert_eq!(bench.controller.phase(&name("b")), Some(waits));
    // The host goes, and stays away.
    bench.hello("h1");
    bench.input(Input::Gone(name("h1")));
    bench.controller.handle_timeout(Instant::ZERO + Nanos::from_secs(365 * 86_400));
    assert_eq!(bench.admitted(), [name("a")]);
}

#[test]
fn a_second_machine_with_the_identity_or_the_nqn_of_another_is_refused() {
    let mut bench = Bench::with_hosts();
    let nqn = "nqn.2014-08.org.nvmexpress:uuid:1";
    let node = |number, nqn: &str| {
        Object::Node(Node { identity: [number; 32], host_nqn: nqn.to_string(), ..Node::default() })
    };
    bench.put(Kind::Node, "m", node(1, nqn)).unwrap();
    let same_key = bench.refusal(Kind::Node, "n", node(1, "nqn.2014-08.org.nvmexpress:uuid:2"));
    assert!(same_key.contains("the identity or the host NQN of m"), "{same_key}");
    let same_nqn = bench.refusal(Kind::Node, "n", node(9, nqn));
    assert!(same_nqn.contains("the identity or the host NQN of m"), "{same_nqn}");
    // Machines without a host NQN are no duplicates.
    bench.put(Kind::Node, "n", node(9, "")).unwrap();
}

#[test]
fn a_cordon_has_an_owner_and_moves_nothing_that_is_there() {
    let mut bench = Bench::with_hosts();
    bench.put(Kind::Attachment, "a", attachment("h1")).unwrap();
    bench.acknowledge("m");
    let cordoned = |owner: &str| {
        let cordon = Cordon { owner: owner.to_string(), reason: "an upgrade".to_string() };
        Object::Node(Node { identity: [1; 32], cordon: Some(cordon), ..Node::default() })
    };
    bench.put(Kind::Node, "m", cordoned("upgrade")).unwrap();
    bench.acknowledge("m");
    assert_eq!(bench.admitted(), [name("a")], "volumes in use stay");
    let other = bench.refusal(Kind::Node, "m", cordoned("admin"));
    assert!(other.contains("the node m is cordoned by upgrade"), "{other}");
    let Object::Volume(one) = volume(1) else { unreachable!() };
    let ranking = bench.controller.rank(&Volume { pool: None, ..one });
    assert_eq!(ranking.unfit, [(name("p"), Unfit::Cordoned)]);
}

#[test]
fn detaching_from_one_volume_leaves_the_neighbour_alone() {
    let mut bench = Bench::with_hosts();
    bench.put(Kind::Volume, "w", volume(10)).unwrap();
    bench.acknowledge("m");
    bench.put(Kind::Attachment, "a", attachment("h1")).unwrap();
    let Object::Attachment(one) = attachment("h1") else { unreachable!() };
    let neighbour = Attachment { volume: name("w"), ..one };
    bench.put(Kind::Attachment, "b", Object::Attachment(neighbour)).unwrap();
    bench.acknowledge("m");
    let before = bench.stored("w");
    bench.call(Call::Delete { key: key(Kind::Attachment, "a"), wait: None }).unwrap();
    bench.acknowledge("m");
    assert!(!bench.has(Kind::Attachment, "a"));
    assert_eq!(bench.stored("w"), before);
    assert!(matches!(bench.controller.phase(&name("b")), Some(Phase::Attached(_))));
}
