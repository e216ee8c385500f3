//! A store that was restored from a backup knows less than the machines.

use alloc::vec;

use super::*;
use crate::object::Fleet;

/// The volume `w`, which no pool has yet.
fn unplaced(bench: &mut Bench) {
    let Object::Volume(placed) = volume(10) else { unreachable!() };
    bench.put(Kind::Volume, "w", Object::Volume(Volume { pool: None, ..placed })).unwrap();
}

/// A fleet in which `m` and `h1` have pools. Its backup is older than the placement of `w` on `m`,
/// which `m` has acknowledged, and which `a` attaches to `h1`.
fn with_forgotten_pool() -> (Bench, VolumeReport, Backup) {
    let mut bench = Bench::new();
    bench.add_node("m", 1);
    bench.add_node("h1", 2);
    bench.put(Kind::Pool, "p", pool("m")).unwrap();
    unplaced(&mut bench);
    let Object::Attachment(one) = attachment("h1") else { unreachable!() };
    bench.put(Kind::Attachment, "a", Object::Attachment(Attachment { volume: name("w"), ..one })).unwrap();
    bench.put(Kind::Pool, "q", pool("h1")).unwrap();
    let backup = bench.backup();
    bench.hello("m");
    bench.report("m", Vec::new(), Vec::new());
    assert_eq!(bench.stored("w").pool, Some(name("p")), "the agent of h1 is away");
    bench.acknowledge("m");
    bench.acknowledge("m");
    let report = acknowledged(&bench.slices[&name("m")].volumes[0]);
    assert_eq!(report.admitted.len(), 1);
    bench.input(Input::Gone(name("m")));
    (bench, report, backup)
}

#[test]
fn a_volume_whose_pool_was_forgotten_is_not_placed_once_more() {
    let (mut bench, report, backup) = with_forgotten_pool();
    let seen = Seen { incarnation: 0, term: bench.term, revision: bench.revision };
    bench.restore(backup);
    // h1 would do, but it has seen more than the store.
    bench.hello("h1");
    assert_eq!(bench.stored("w").pool, None, "h1 has not reported");
    bench.elect();
    bench.report_of("h1", Seen { term: bench.term, revision: seen.revision + 9, ..seen }, vec![], vec![]);
    assert_eq!(bench.stored("w").pool, None);
    assert_eq!(bench.controller.volume_phase(&name("w")), Some(VolumePhase::WaitsForRecovery));
    assert!(bench.controller.is_behind_any());
    // It has a device of the volume, whose owner is away.
    let mut device = device("a", "m", report.admitted[0].epoch);
    device.volume = name("w");
    bench.report("h1", vec![], vec![device]);
    assert_eq!(bench.stored("w").pool, None);
    assert_eq!(bench.controller.phase(&name("a")), Some(Phase::WaitsForOwner(name("m"))));
    // An operator has recovered what was there: the owner is still away.
    bench.call(Call::Recover).unwrap();
    bench.report("h1", vec![], vec![]);
    assert_eq!(bench.stored("w").pool, None);
    assert_eq!(bench.controller.volume_phase(&name("w")), Some(VolumePhase::WaitsForOwner(name("m"))));
    // The owner has the volume and its host.
    bench.hello("m");
    bench.report_of("m", seen, vec![report.clone()], vec![]);
    let stored = bench.stored("w");
    assert_eq!((stored.pool, stored.admitted), (Some(name("p")), report.admitted));
}

#[test]
fn a_volume_that_was_never_placed_is_placed_once_all_owners_say_so() {
    let (mut bench, _, backup) = with_forgotten_pool();
    bench.restore(backup);
    bench.call(Call::Recover).unwrap();
    bench.hello("h1");
    bench.report("h1", vec![], vec![]);
    assert_eq!(bench.stored("w").pool, None);
    bench.hello("m");
    bench.report("m", vec![], vec![]);
    assert!(bench.stored("w").pool.is_some());
}

#[test]
fn an_operator_learns_of_a_forgotten_pool_although_no_agent_is_ahead() {
    let (mut bench, report, backup) = with_forgotten_pool();
    bench.restore(backup);
    // Later terms have overtaken those that the agents have seen.
    (0..5).for_each(|_| bench.elect());
    bench.hello("m");
    bench.report_of("m", Seen::default(), vec![report], vec![]);
    assert_eq!(bench.stored("w").pool, None);
    assert!(bench.controller.is_behind_any());
    bench.call(Call::Recover).unwrap();
    assert_eq!(bench.stored("w").pool, Some(name("p")));
    assert!(!bench.controller.is_behind_any());
}

#[test]
fn a_host_is_not_said_to_be_detached_while_the_pool_is_forgotten() {
    let (mut bench, report, backup) = with_forgotten_pool();
    let seen = Seen { incarnation: 0, term: bench.term, revision: bench.revision };
    bench.restore(backup);
    bench.call(Call::Recover).unwrap();
    bench.call(Call::Delete { key: key(Kind::Attachment, "a"), wait: None }).unwrap();
    assert!(bench.has(Kind::Attachment, "a"), "the owner, which is away, lets the host in");
    bench.hello("h1");
    bench.report("h1", vec![], vec![]);
    bench.hello("m");
    bench.report_of("m", seen, vec![report], vec![]);
    assert!(bench.stored("w").admitted.is_empty() && bench.has(Kind::Attachment, "a"));
    bench.acknowledge("m");
    assert!(!bench.has(Kind::Attachment, "a"));
}

#[test]
fn a_volume_that_was_deleted_since_the_backup_goes_with_its_attachments() {
    let mut bench = Bench::with_hosts();
    bench.put(Kind::Attachment, "a", attachment("h1")).unwrap();
    bench.acknowledge("m");
    let backup = bench.backup();
    let seen = Seen { incarnation: 0, term: 1, revision: bench.revision + 9 };
    let epoch = bench.stored("v").epoch;
    bench.restore(backup);
    let slice = &bench.slices[&name("m")].volumes[0];
    let later = Epoch { number: epoch.number + 2, ..epoch };
    let report = VolumeReport { epoch: later, admitted: vec![], deleted: true, ..acknowledged(slice) };
    bench.report_of("m", seen, vec![report.clone()], vec![]);
    assert!(!bench.stored("v").delete, "an operator decides");
    bench.call(Call::Recover).unwrap();
    bench.report_of("m", seen, vec![report.clone()], vec![]);
    assert!(!bench.has(Kind::Volume, "v") && !bench.has(Kind::Attachment, "a"));
    assert!(bench.transactions.len() < 20, "recovery ends: {:#?}", bench.transactions);
}

#[test]
fn a_deleted_volume_with_a_later_epoch_goes_and_is_not_recovered_for_ever() {
    let mut bench = Bench::with_hosts();
    bench.call(Call::Delete { key: key(Kind::Volume, "v"), wait: None }).unwrap();
    bench.restore(bench.backup());
    bench.call(Call::Recover).unwrap();
    let slice = &bench.slices[&name("m")].volumes[0];
    let later = Epoch { number: slice.epoch.number + 2, ..slice.epoch };
    let report = VolumeReport { epoch: later, deleted: true, ..acknowledged(slice) };
    bench.report("m", vec![report], vec![]);
    assert!(!bench.has(Kind::Volume, "v") && !bench.controller.is_behind_any());
}

#[test]
fn an_owner_that_is_ahead_is_recovered_by_an_operator_alone() {
    let mut bench = Bench::with_hosts();
    // The store was recovered once, and is restored again, to a backup after that.
    bench.call(Call::Recover).unwrap();
    bench.restore(bench.backup());
    let report = acknowledged(&bench.slices[&name("m")].volumes[0]);
    let ahead = Seen { incarnation: 1, term: bench.term + 9, revision: 1 };
    let writes = bench.transactions.len();
    bench.report_of("m", ahead, vec![report.clone()], vec![]);
    assert_eq!(bench.transactions.len(), writes, "{:#?}", bench.transactions.last());
    assert_eq!(bench.call(Call::Recover), Ok(Reply::Incarnation(2)));
    bench.report_of("m", ahead, vec![report], vec![]);
    assert!(!bench.controller.is_behind_any());
}

#[test]
fn a_device_that_has_gone_unseen_holds_up_no_deletion() {
    let mut bench = Bench::with_hosts();
    bench.hello("h1");
    let epoch = bench.stored("v").epoch;
    bench.report("h1", vec![], vec![device("a", "m", epoch)]);
    bench.call(Call::Delete { key: key(Kind::Volume, "v"), wait: None }).unwrap();
    bench.acknowledge("m");
    assert!(bench.has(Kind::Volume, "v"), "h1 has a device of it");
    // The host has disconnected while its connection to the controller was broken.
    bench.hello("h1");
    bench.report("h1", vec![], vec![]);
    assert!(!bench.has(Kind::Volume, "v"));
}

#[test]
fn a_device_of_a_volume_that_was_deleted_and_restored_has_ended() {
    let mut bench = Bench::with_hosts();
    bench.hello("h1");
    let epoch = bench.stored("v").epoch;
    // The device is of an earlier volume of the name, whose epochs had gone further.
    let later = Epoch { number: epoch.number + 50, ..epoch };
    bench.put(Kind::Attachment, "b", attachment("h2")).unwrap();
    bench.report("h1", vec![], vec![device("a", "m", later)]);
    assert!(bench.slices[&name("h1")].attachments.is_empty(), "the owner has not acknowledged its list");
    bench.acknowledge("m");
    bench.report("h1", vec![], vec![device("a", "m", later)]);
    assert_eq!(bench.slices[&name("h1")].attachments[0].wish, Wish::Disconnect);
}

#[test]
fn the_store_is_rebuilt_from_the_agents() {
    let mut bench = Bench::with_hosts();
    bench.put(Kind::Attachment, "a", attachment("h1")).unwrap();
    bench.acknowledge("m");
    let (list, seen) = (bench.stored("v"), Seen { incarnation: 0, term: 1, revision: bench.revision });
    let report = acknowledged(&bench.slices[&name("m")].volumes[0]);
    // An empty store, in which operators have enrolled the machines and their pools again.
    let enrolled = |key: &Key| matches!(key.kind, Kind::Node | Kind::Pool);
    let objects = bench.objects.clone().into_iter().filter(|(key, _)| enrolled(key)).collect();
    bench.restore((objects, 4, 0));
    bench.report_of("m", seen, vec![report.clone()], vec![]);
    assert!(!bench.has(Kind::Volume, "v"), "an operator decides");
    assert_eq!(bench.call(Call::Recover), Ok(Reply::Incarnation(1)));
    bench.report_of("m", seen, vec![report], vec![]);
    let rebuilt = bench.stored("v");
    assert_eq!((rebuilt.bytes, rebuilt.pool, &rebuilt.admitted), (list.bytes, list.pool, &list.admitted));
    assert_eq!(rebuilt.epoch, Epoch { incarnation: 1, number: list.epoch.number + 1 });
    let (_, Object::Attachment(found)) = &bench.objects[&key(Kind::Attachment, "a")] else { panic!() };
    assert_eq!((found.owner.as_str(), &found.node), ("recovered", &name("h1")));
    assert_eq!(bench.objects[&key(Kind::Fleet, "fleet")].1, Object::Fleet(Fleet { incarnation: 1 }));
}
