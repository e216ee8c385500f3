//! What both stores promise.

use std::collections::BTreeMap;

use engine::Rng;
use fleet::store::Answer;
use fleetd::store::{Event, Request};

use crate::support::controller::Controller;

pub(crate) async fn a_transaction_compares_and_sets(open: impl AsyncFn() -> Controller) {
    let mut controller = open().await;
    controller.elected().await;
    let first = controller.set(&[("a", 0)], &[("a", Some(1))]).await;
    assert_eq!(controller.transact(&[("a", 0)], &[("a", Some(2))]).await, Answer::Conflict);
    assert_eq!(controller.transact(&[("a", first + 1)], &[("a", Some(2))]).await, Answer::Conflict);
    let second = controller.set(&[("a", first)], &[("a", Some(3))]).await;
    assert!(second > first);
    // One without writes says whether all is still so.
    assert_eq!(controller.transact(&[("a", second)], &[]).await, Answer::Done(second));
    assert_eq!(controller.transact(&[("a", first)], &[]).await, Answer::Conflict);
    let third = controller.set(&[("a", second)], &[("a", None)]).await;
    assert!(third > second);
    assert_eq!(controller.transact(&[("a", second)], &[("a", Some(4))]).await, Answer::Conflict);
    // A key that is gone can be deleted again; that is no change.
    assert_eq!(controller.transact(&[("a", 0)], &[("a", None)]).await, Answer::Done(third));
    let last = controller.set(&[("a", 0)], &[("a", Some(5))]).await;
    assert_eq!(controller.list().await, (last, vec![("a".to_owned(), last, 5)]));
}

pub(crate) async fn one_of_many_wins(open: impl AsyncFn() -> Controller) {
    let mut controller = open().await;
    controller.elected().await;
    let mut revision = 0;
    for round in 0..10 {
        let numbers: Vec<_> = (0..40)
            .map(|one| controller.send(&[("a", revision)], &[("a", Some(round * 40 + one))]))
            .collect();
        let mut won = Vec::new();
        for (number, value) in numbers.into_iter().zip(round * 40..) {
            match controller.answer(number).await {
                Answer::Done(revision) => won.push((revision, value)),
                Answer::Conflict => (),
                Answer::Unknown => panic!("no answer was lost"),
            }
        }
        assert_eq!(won.len(), 1, "{won:?}");
        assert!(won[0].0 > revision);
        revision = won[0].0;
        assert_eq!(controller.list().await.1, [("a".to_owned(), revision, won[0].1)]);
    }
}

pub(crate) async fn a_transaction_is_applied_as_a_whole_or_not_at_all(open: impl AsyncFn() -> Controller) {
    let mut controller = open().await;
    controller.elected().await;
    let names: Vec<_> = (0..50).map(|one| format!("n{one}")).collect();
    let writes: Vec<_> = names.iter().map(|name| (name.as_str(), Some(1))).collect();
    let first = controller.set(&[], &writes).await;
    let (_, listed) = controller.list().await;
    assert_eq!(listed.len(), 50);
    assert!(listed.iter().all(|(_, revision, number)| (*revision, *number) == (first, 1)));
    let second = controller.set(&[("n7", first)], &[("n7", Some(2))]).await;
    let mut compares: Vec<_> = names.iter().map(|name| (name.as_str(), first)).collect();
    let writes: Vec<_> = names.iter().map(|name| (name.as_str(), Some(3))).collect();
    assert_eq!(controller.transact(&compares, &writes).await, Answer::Conflict);
    compares[7].1 = second;
    let third = controller.set(&compares, &writes).await;
    let (_, listed) = controller.list().await;
    assert!(listed.iter().all(|(_, revision, number)| (*revision, *number) == (third, 3)));
}

pub(crate) async fn a_watch_follows_a_list_in_the_order_of_revisions(open: impl AsyncFn() -> Controller) {
    let mut controller = open().await;
    controller.elected().await;
    controller.set(&[], &[("a", Some(1)), ("b", Some(1))]).await;
    let (listed, _) = controller.list().await;
    let mut expected = Vec::new();
    for number in 2..40 {
        let name = if number % 3 == 0 { "a" } else { "b" };
        let value = (number % 5 != 0).then_some(number);
        let revision = controller.set(&[], &[(name, value), ("c", Some(number))]).await;
        expected.push((revision, name.to_owned(), value));
        expected.push((revision, "c".to_owned(), Some(number)));
    }
    let mut present = BTreeMap::from([("a".to_owned(), true), ("b".to_owned(), true)]);
    // The deletion of a key that is gone is no change.
    expected.retain(|(_, name, value)| {
        let was = present.insert(name.clone(), value.is_some()).unwrap_or(false);
        was || value.is_some()
    });
    let mut latest = listed;
    for expected in expected.chunk_by(|a, b| a.0 == b.0) {
        let mut seen = Vec::new();
        for _ in expected {
            seen.push(controller.change().await);
        }
        seen.sort();
        let mut expected = expected.to_vec();
        expected.sort();
        assert_eq!(seen, expected);
        assert!(seen[0].0 > latest, "{seen:?} after {latest}");
        latest = seen[0].0;
    }
}

pub(crate) async fn a_list_has_what_a_model_has(open: impl AsyncFn() -> Controller) {
    let mut controller = open().await;
    controller.elected().await;
    let mut rng = Rng::from_seed(4711);
    let mut model: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for step in 0..400 {
        let name = format!("n{}", rng.below(600));
        let known = model.get(&name).map_or(0, |(revision, _)| *revision);
        // One in five compares a revision that is not so.
        let is_right = rng.below(5) > 0;
        let compare = if is_right { known } else { known + 1 };
        let value = (rng.below(4) > 0).then_some(step);
        let answer = controller.transact(&[(&name, compare)], &[(&name, value)]).await;
        match answer {
            Answer::Done(revision) if is_right => match value {
                Some(value) => _ = model.insert(name, (revision, value)),
                None => _ = model.remove(&name),
            },
            Answer::Conflict if !is_right => (),
            other => panic!("{other:?} at step {step}"),
        }
    }
    let expected: Vec<_> =
        model.iter().map(|(name, (revision, value))| (name.clone(), *revision, *value)).collect();
    assert_eq!(controller.list().await.1, expected);
    controller.end().await;
    let mut controller = open().await;
    controller.elected().await;
    assert_eq!(controller.list().await.1, expected);
}

pub(crate) async fn terms_grow_and_earlier_ones_are_refused(open: impl AsyncFn() -> Controller) {
    let mut controller = open().await;
    let mut before = controller.elected().await;
    for round in 0..3 {
        let revision = controller.set(&[], &[("a", Some(round))]).await;
        controller.request(Request::Resign);
        controller.deposed().await;
        // The controller sends what it has decided in the old term.
        let late = controller.send(&[("a", revision)], &[("a", Some(100))]);
        let term = controller.elected().await;
        assert!(term > before, "{term} after {before}");
        assert_eq!(controller.answer(late).await, Answer::Conflict);
        for other in [before, term + 1, 0, u64::MAX] {
            controller.term = other;
            let answer = controller.transact(&[("a", revision)], &[("a", Some(100))]).await;
            assert_ne!(answer, Answer::Done(revision + 1), "term {other} in term {term}");
        }
        controller.term = term;
        assert_eq!(controller.list().await.1, [("a".to_owned(), revision, round)]);
        before = term;
    }
}

pub(crate) async fn a_store_that_is_opened_again_has_all_that_was_acknowledged(
    open: impl AsyncFn() -> Controller,
) {
    let (mut before, mut revision) = (0, 0);
    for round in 0..4 {
        let mut controller = open().await;
        let term = controller.elected().await;
        assert!(term > before, "{term} after {before}");
        before = term;
        let listed = controller.list().await.1;
        assert_eq!(listed.len(), usize::from(round > 0));
        assert!(listed.iter().all(|one| *one == ("a".to_owned(), revision, round - 1)), "{listed:?}");
        revision = controller.set(&[("a", revision)], &[("a", Some(round))]).await;
        controller.end().await;
    }
}

pub(crate) async fn requests_before_an_election_change_nothing(open: impl AsyncFn() -> Controller) {
    let mut controller = open().await;
    controller.request(Request::Resign);
    let answer = controller.transact(&[], &[("a", Some(1))]).await;
    assert_eq!(answer, Answer::Conflict);
    // A resignation may have come after the first election.
    controller.elected().await;
    while let Some(term) = controller
        .wait_for(std::time::Duration::from_secs(2), |event| match event {
            Event::Elected(term) => Some(*term),
            _ => None,
        })
        .await
    {
        controller.term = term;
    }
    assert_eq!(controller.list().await.1, []);
}
