//! A store in an etcd of three members.

use std::time::Duration;

use fleet::store::Answer;
use fleetd::store::etcd::open;
use tokio::time::Instant;

use crate::support::controller::Controller;
use crate::support::{Etcd, port, settings};

/// Three members that have elected their leader.
fn three() -> Option<Vec<Etcd>> {
    let ports: Vec<_> = (0..3).map(|_| (port(), port())).collect();
    let ring: Vec<_> =
        ports.iter().enumerate().map(|(one, (_, peer))| format!("m{one}=http://127.0.0.1:{peer}")).collect();
    let ring = ring.join(",");
    let begin = |(one, (port, peer)): (usize, &(u16, u16))| {
        let folder = tempfile::tempdir().unwrap();
        Etcd::begin(folder, "http", &format!("m{one}"), *port, *peer, &ring, Vec::new())
    };
    let members: Option<Vec<_>> = ports.iter().enumerate().map(begin).collect();
    let members = members?;
    members.iter().for_each(Etcd::wait);
    Some(members)
}

async fn controller(members: &[Etcd]) -> Controller {
    Controller::new(open(settings(members.iter().map(Etcd::endpoint).collect())).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_member_may_die_and_come_back() {
    let Some(mut members) = three() else { return };
    let mut controller = controller(&members).await;
    let mut term = controller.elected().await;
    controller.list().await;
    let mut revision = controller.set(&[("a", 0)], &[("a", Some(100))]).await;
    for (one, member) in (0..).zip(&mut members) {
        member.kill();
        let begun = Instant::now();
        // A controller that gets no answer resigns, and looks what has happened.
        loop {
            let answer = controller.transact(&[("a", revision)], &[("a", Some(one))]).await;
            if let Answer::Done(at) = answer {
                revision = at;
                break;
            }
            controller.request(fleetd::store::Request::Resign);
            term = controller.elected().await.max(term);
            revision = controller.list().await.1[0].1;
            assert!(begun.elapsed() < Duration::from_secs(40));
        }
        println!("the first transaction after the kill of a member: {:.1} s", begun.elapsed().as_secs_f32());
        member.again();
    }
    assert_eq!(controller.list().await.1, [("a".to_owned(), revision, 2)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_without_the_others_confirms_nothing() {
    let Some(members) = three() else { return };
    let mut controller = controller(&members[..1]).await;
    controller.elected().await;
    let revision = controller.set(&[], &[("a", Some(1))]).await;
    members[1].signal("-STOP");
    members[2].signal("-STOP");
    // What the member knows may be old by now: it must not say that all is still so.
    let answer = controller.transact(&[("a", revision)], &[]).await;
    assert!(!matches!(answer, Answer::Done(_)), "{answer:?}");
    controller.deposed().await;
    members[1].signal("-CONT");
    members[2].signal("-CONT");
    controller.elected().await;
    while !matches!(controller.transact(&[("a", revision)], &[]).await, Answer::Done(_)) {
        controller.elected().await;
    }
}
