//! Bad days of a store in etcd that is one server.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fleet::store::Answer;
use fleetd::store::etcd::open;
use fleetd::store::{Event, Request};
use tokio::time::{Instant, sleep};

use crate::support::controller::Controller;
use crate::support::proxy::Proxy;
use crate::support::{Etcd, port, settings};

/// The lease of a leader.
const LEASE: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn of_two_controllers_one_leads() {
    let Some(etcd) = Etcd::start() else { return };
    let (mut first, mut second) = (etcd.controller().await, etcd.controller().await);
    let is_elected = |event: &Event| match event {
        Event::Elected(term) => Some(*term),
        _ => None,
    };
    let soon = Duration::from_secs(3);
    let (a, b) = (first.wait_for(soon, is_elected).await, second.wait_for(soon, is_elected).await);
    assert!(a.is_some() != b.is_some(), "{a:?} {b:?}");
    if b.is_some() {
        std::mem::swap(&mut first, &mut second);
    }
    first.term = a.or(b).unwrap();
    first.set(&[], &[("a", Some(1))]).await;
    // A follower's transactions are refused, even if it knows the term.
    second.term = first.term;
    assert_eq!(second.transact(&[], &[("a", Some(2))]).await, Answer::Conflict);
    // Each takes over from the other.
    for round in 2..5 {
        let before = first.term;
        first.request(Request::Resign);
        first.deposed().await;
        drop(first.store.requests);
        let begun = Instant::now();
        assert!(second.elected().await > before);
        assert!(begun.elapsed() < LEASE / 2, "a resignation waits for no lease: {:?}", begun.elapsed());
        assert_eq!(second.list().await.1.len(), 1);
        second.set(&[], &[("a", Some(round))]).await;
        (first, second) = (second, etcd.controller().await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_killed_is_replaced_once_its_lease_has_ended() {
    let Some(etcd) = Etcd::start() else { return };
    let settings = etcd.settings();
    // A runtime that is dropped ends all tasks where they are, as kill -9 does.
    let (killed, leads) = std::sync::mpsc::channel();
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let controller = runtime.block_on(async {
            let mut controller = Controller::new(open(settings).await.unwrap());
            controller.elected().await;
            controller.set(&[], &[("a", Some(1))]).await;
            controller
        });
        killed.send(controller.term).unwrap();
        wait.recv().unwrap();
        runtime.shutdown_background();
        drop(controller);
    });
    let term = leads.recv().unwrap();
    let mut next = etcd.controller().await;
    let none =
        next.wait_for(Duration::from_secs(3), |event| matches!(event, Event::Elected(_)).then_some(())).await;
    assert_eq!(none, None, "there is a leader");
    done.send(()).unwrap();
    thread.join().unwrap();
    let begun = Instant::now();
    assert!(next.elected().await > term);
    println!("elected {:.1} s after the kill", begun.elapsed().as_secs_f32());
    assert!(begun.elapsed() < LEASE + Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(next.list().await.1.len(), 1);
}

#[tokio::test]
async fn a_leader_that_was_stopped_learns_first_that_it_leads_no_longer() {
    let Some(etcd) = Etcd::start() else { return };
    let mut other = None;
    // All tasks of this runtime stand still while its only thread sleeps.
    let mut leader = etcd.controller().await;
    let term = leader.elected().await;
    let settings = etcd.settings();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut next = Controller::new(open(settings).await.unwrap());
            next.elected().await;
            next.set(&[], &[("a", Some(1))]).await;
            next.term
        })
    });
    leader.list().await;
    other.replace(thread);
    std::thread::sleep(LEASE + Duration::from_secs(4));
    let number = leader.send(&[("a", 0)], &[("a", Some(2))]);
    leader.deposed().await;
    assert_eq!(leader.answer(number).await, Answer::Conflict);
    assert!(other.unwrap().join().unwrap() > term);
    leader.elected().await;
    assert!(leader.list().await.1.iter().all(|(_, _, number)| *number == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_without_an_answer_is_unknown_and_deposes_before_the_lease_ends() {
    let Some(etcd) = Etcd::start() else { return };
    let mut controller = etcd.controller().await;
    let term = controller.elected().await;
    let revision = controller.set(&[], &[("a", Some(1))]).await;
    etcd.signal("-STOP");
    let stopped = Instant::now();
    let number = controller.send(&[("a", revision)], &[("a", Some(2))]);
    assert_eq!(controller.answer(number).await, Answer::Unknown);
    assert!(stopped.elapsed() < Duration::from_secs(7), "{:?}", stopped.elapsed());
    assert!(!controller.away().await.is_empty());
    controller.deposed().await;
    assert!(stopped.elapsed() < LEASE, "{:?}", stopped.elapsed());
    sleep(Duration::from_secs(3)).await;
    etcd.signal("-CONT");
    assert!(controller.elected().await > term);
    // It was applied, or it is not and never will be.
    let (_, listed) = controller.list().await;
    let [(_, at, value)] = &listed[..] else { panic!("{listed:?}") };
    assert!(*value == 2 && *at > revision || *value == 1 && *at == revision, "{listed:?}");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(controller.list().await.1, listed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resignation_makes_an_unknown_transaction_impossible() {
    let Some(etcd) = Etcd::start() else { return };
    let mut controller = etcd.controller().await;
    controller.elected().await;
    for round in 0..5 {
        let numbers: Vec<_> =
            (0..20).map(|one| controller.send(&[], &[("a", Some(round * 20 + one))])).collect();
        controller.request(Request::Resign);
        for number in numbers {
            controller.answer(number).await;
        }
        controller.elected().await;
        let before = controller.list().await;
        sleep(Duration::from_millis(300)).await;
        assert_eq!(controller.list().await.1, before.1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_kill_9_of_etcd() {
    let Some(mut etcd) = Etcd::start() else { return };
    let mut controller = etcd.controller().await;
    controller.elected().await;
    let mut acknowledged = Vec::new();
    for round in 0..4 {
        let names: Vec<_> = (0..30).map(|one| format!("n{round}-{one}")).collect();
        let sent: Vec<_> =
            names.iter().map(|name| (name.clone(), controller.send(&[], &[(name, Some(1))]))).collect();
        for (at, (name, number)) in sent.into_iter().enumerate() {
            if matches!(controller.answer(number).await, Answer::Done(_)) {
                acknowledged.push(name);
            }
            if at == 3 {
                etcd.kill();
            }
        }
        etcd.again();
        // A controller resigns when an answer is unknown.
        controller.request(Request::Resign);
        controller.elected().await;
        while controller.transact(&[], &[]).await != Answer::Done(controller.list().await.0) {
            controller.elected().await;
        }
        let listed = controller.list().await.1;
        for name in &acknowledged {
            assert!(listed.iter().any(|one| one.0 == *name), "{name} was acknowledged; there is {listed:?}");
        }
    }
    assert!(acknowledged.len() >= 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_was_cut_goes_on_without_a_gap() {
    let Some(etcd) = Etcd::start() else { return };
    let proxy = Proxy::before(etcd.port).await;
    let mut controller = Controller::new(open(settings(vec![proxy.endpoint()])).await.unwrap());
    let term = controller.elected().await;
    controller.list().await;
    for round in 0..3 {
        proxy.cut();
        etcd.control(&["put", "/farlane/v1/test/fleet/b", &json(round)]);
        etcd.control(&["put", "/farlane/v1/other/fleet/b", &json(7)]);
        etcd.control(&["del", "/farlane/v1/test/fleet/b"]);
        sleep(Duration::from_millis(500)).await;
        proxy.join();
        assert_eq!(controller.change().await.2, Some(round));
        assert_eq!(controller.change().await.2, None);
    }
    let revision = controller.set(&[], &[("a", Some(1))]).await;
    assert_eq!(controller.change().await, (revision, "a".to_owned(), Some(1)));
    assert_eq!(controller.term, term, "the controller has led all the time");
}

fn json(number: u64) -> String {
    format!("{{\"kind\":\"fleet\",\"incarnation\":{number}}}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_was_overtaken_by_a_compaction_says_so() {
    let Some(etcd) = Etcd::start() else { return };
    let proxy = Proxy::before(etcd.port).await;
    let mut controller = Controller::new(open(settings(vec![proxy.endpoint()])).await.unwrap());
    controller.elected().await;
    controller.list().await;
    proxy.cut();
    for number in 0..5 {
        etcd.control(&["put", "/farlane/v1/test/fleet/b", &json(number)]);
    }
    etcd.control(&["compact", &revision(&etcd).to_string()]);
    proxy.join();
    controller.compacted().await;
    let (_, listed) = controller.list().await;
    assert_eq!(listed.iter().map(|one| one.2).collect::<Vec<_>>(), [4]);
    // The watch that follows the second list works.
    let revision = controller.set(&[], &[("a", Some(1))]).await;
    assert_eq!(controller.change().await, (revision, "a".to_owned(), Some(1)));
}

/// The present revision of etcd.
fn revision(etcd: &Etcd) -> u64 {
    let status = etcd.control(&["get", "/none", "--write-out=json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    status["header"]["revision"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_list_has_pages() {
    let Some(etcd) = Etcd::start() else { return };
    let mut controller = etcd.controller().await;
    controller.elected().await;
    let names: Vec<_> = (0..1300).map(|one| format!("n{one:04}")).collect();
    for names in names.chunks(100) {
        let writes: Vec<_> = names.iter().map(|name| (name.as_str(), Some(1))).collect();
        controller.set(&[], &writes).await;
    }
    let listed: Vec<_> = controller.list().await.1.into_iter().map(|one| one.0).collect();
    assert_eq!(listed, names);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_etcd_is_noticed_and_listed_anew() {
    let Some(mut etcd) = Etcd::start() else { return };
    let mut controller = etcd.controller().await;
    controller.elected().await;
    controller.set(&[], &[("a", Some(1))]).await;
    etcd.control(&["snapshot", "save", "backup"]);
    for number in 2..30 {
        controller.set(&[], &[("a", Some(number)), ("b", Some(number))]).await;
    }
    let (before, _) = controller.list().await;
    etcd.kill();
    etcd.restore("backup");
    etcd.again();
    let wanted = |event: &Event| match event {
        Event::Reachable(Err(reason)) if reason.contains("restored from a backup") => Some(()),
        _ => None,
    };
    controller.wait("the words that etcd was restored", wanted).await;
    controller.deposed().await;
    controller.elected().await;
    let (revision, listed) = controller.list().await;
    assert!(revision < before, "{revision} {before}");
    assert_eq!(listed.iter().map(|one| (one.0.as_str(), one.2)).collect::<Vec<_>>(), [("a", 1)]);
    controller.back().await;
    let revision = controller.set(&[("a", listed[0].1)], &[("a", Some(40))]).await;
    assert_eq!(controller.change().await, (revision, "a".to_owned(), Some(40)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_is_away_is_named_and_not_stormed() {
    let Some(etcd) = Etcd::start() else { return };
    let proxy = Proxy::before(etcd.port).await;
    let away = port();
    proxy.cut();
    let members = vec![proxy.endpoint(), format!("127.0.0.1:{away}")];
    let mut controller = Controller::new(open(settings(members)).await.unwrap());
    let reason = controller.away().await;
    assert!(reason.contains("127.0.0.1"), "{reason}");
    sleep(Duration::from_secs(10)).await;
    let attempts = proxy.count.load(Ordering::Relaxed);
    assert!((2..20).contains(&attempts), "{attempts} connections in 10 s");
    proxy.join();
    let begun = Instant::now();
    controller.elected().await;
    controller.back().await;
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    // One that is cut again, with much in flight, is not stormed either.
    let before = proxy.count.load(Ordering::Relaxed);
    proxy.cut();
    let numbers: Vec<_> = (0..200).map(|one| controller.send(&[], &[("a", Some(one))])).collect();
    for number in numbers {
        controller.answer(number).await;
    }
    let attempts = proxy.count.load(Ordering::Relaxed) - before;
    assert!(attempts < 30, "{attempts} connections for 200 transactions");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_cannot_be_read_is_named_and_nothing_is_decided() {
    let Some(etcd) = Etcd::start() else { return };
    etcd.control(&["put", "/farlane/v1/test/volume/tape", "{\"kind\":\"volume\",\"bytes\":\"many\"}"]);
    // Kinds of other versions are no concern of this one.
    etcd.control(&["put", "/farlane/v1/test/replica/r", "?"]);
    let mut controller = etcd.controller().await;
    controller.elected().await;
    controller.request(Request::List(1));
    let reason = controller.away().await;
    assert!(reason.contains("volume/tape") && reason.contains("can't be read"), "{reason}");
    controller.deposed().await;
    let again = |event: &Event| matches!(event, Event::Elected(_)).then_some(());
    assert_eq!(controller.wait_for(Duration::from_secs(3), again).await, None);
    etcd.control(&["del", "/farlane/v1/test/volume/tape"]);
    controller.elected().await;
    assert_eq!(controller.list().await.1, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_without_space_gives_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let Some(etcd) = Etcd::start_with(folder, "http", &["--quota-backend-bytes=2000000"]) else { return };
    let mut controller = etcd.controller().await;
    controller.elected().await;
    controller.set(&[], &[("a", Some(1))]).await;
    let large = "x".repeat(100_000);
    while etcd.try_control(&["put", "large", &large]).0 {}
    let begun = Instant::now();
    assert_eq!(controller.transact(&[], &[("a", Some(2))]).await, Answer::Unknown);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let reason = controller.away().await;
    assert!(reason.contains("no space") && reason.contains("alarm disarm"), "{reason}");
    let revision = revision(&etcd);
    etcd.control(&["del", "large"]);
    etcd.control(&["compact", &revision.to_string()]);
    etcd.control(&["defrag"]);
    etcd.control(&["alarm", "disarm"]);
    controller.request(Request::Resign);
    controller.elected().await;
    controller.set(&[], &[("a", Some(3))]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_etcd_is_left_to_etcd() {
    let Some(etcd) = Etcd::start() else { return };
    let mut controller = etcd.controller().await;
    controller.elected().await;
    controller.request(Request::Backup(3, "backup".into()));
    let answer = |event: &Event| match event {
        Event::BackedUp(3, result) => Some(result.clone()),
        _ => None,
    };
    let reason = controller.wait("an answer", answer).await.unwrap_err();
    assert!(reason.contains("etcdctl snapshot save"), "{reason}");
}
