//! Snapshots and volumes that begin with the data of others.

use alloc::vec;

use super::*;
use crate::object::{Data, Snapshot};
use crate::slice::PoolReport;

fn snapshot_of(volume: &str) -> Object {
    Object::Snapshot(Snapshot {
        volume: name(volume),
        pool: name("ignored"),
        bytes: 0,
        taken: Some(1),
        delete: true,
        epoch: Epoch::default(),
    })
}

fn clone_of(source: Data, bytes: u64) -> Object {
    let Object::Volume(volume) = volume(bytes) else { panic!() };
    Object::Volume(Volume { source: Some(source), copied: true, pool: None, ..volume })
}

fn from_snapshot(text: &str) -> Data {
    Data::Snapshot(name(text))
}

fn from_volume(text: &str) -> Data {
    Data::Volume(name(text))
}

impl Bench {
    fn snapshot(&self, text: &str) -> Snapshot {
        match &self.objects[&key(Kind::Snapshot, text)] {
            (_, Object::Snapshot(snapshot)) => snapshot.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// What the latest slice of `m` says of a copy.
    fn copy(&self, data: &Data) -> Option<&OwnedCopy> {
        self.slices[&name("m")].copies.iter().find(|one| one.data == *data)
    }

    /// What the latest slice of `m` says of a volume.
    fn owned(&self, text: &str) -> Option<&OwnedVolume> {
        self.slices[&name("m")].volumes.iter().find(|one| one.name == name(text))
    }

    /// The machine `m` reports these copies, and that all its volumes are as demanded.
    fn report_copies(&mut self, copies: Vec<CopyReport>) {
        self.copies.insert(name("m"), copies);
        let volumes = self.slices[&name("m")].volumes.iter().map(acknowledged).collect();
        self.report("m", volumes, vec![]);
    }

    fn delete(&mut self, kind: Kind, text: &str) {
        self.call(Call::Delete { key: key(kind, text), wait: None }).unwrap();
    }
}

#[test]
fn a_snapshot_is_ready_when_its_owner_says_so_and_not_before() {
    let mut bench = Bench::with_hosts();
    bench.put(Kind::Snapshot, "s", snapshot_of("v")).unwrap();
    let asked = bench.snapshot("s");
    assert_eq!((asked.pool, asked.bytes, asked.taken, asked.delete), (name("p"), 10, None, false));
    assert!(matches!(bench.controller.snapshot_phase(&name("s")), Some(SnapshotPhase::WaitsForCopy(_))));
    let copy = bench.copy(&from_snapshot("s")).unwrap().clone();
    assert_eq!((&copy.of, copy.epoch, copy.made), (&from_volume("v"), asked.epoch, None));
    let waits = CopyReport { made: None, problem: "detach v".to_string(), ..made(&copy) };
    bench.report_copies(vec![waits]);
    let phase = bench.controller.snapshot_phase(&name("s"));
    assert_eq!(phase, Some(SnapshotPhase::WaitsForCopy("detach v".to_string())));
    bench.acknowledge("m");
    assert_eq!(bench.snapshot("s").taken, Some(7));
    assert_eq!(bench.controller.snapshot_phase(&name("s")), Some(SnapshotPhase::Ready));
    // The same call again has the same result; another volume is no snapshot of that name.
    bench.put(Kind::Snapshot, "s", snapshot_of("v")).unwrap();
    assert_eq!(bench.snapshot("s").taken, Some(7));
    bench.put(Kind::Volume, "w", volume(10)).unwrap();
    let refusal = bench.refusal(Kind::Snapshot, "s", snapshot_of("w"));
    assert!(refusal.contains("exists, of the volume v"), "{refusal}");
}

#[test]
fn snapshots_count_with_their_full_size_and_outlive_their_volume() {
    let mut bench = Bench::with_hosts();
    for text in ["s1", "s2"] {
        bench.put(Kind::Snapshot, text, snapshot_of("v")).unwrap();
        bench.acknowledge("m");
    }
    assert_eq!(bench.controller.free_bytes(&name("p")), Some(70));
    bench.put(Kind::Volume, "w", volume(70)).unwrap();
    let refusal = bench.refusal(Kind::Snapshot, "s3", snapshot_of("v"));
    assert!(refusal.contains("has 0 bytes free"), "{refusal}");
    bench.delete(Kind::Volume, "v");
    bench.acknowledge("m");
    assert!(!bench.has(Kind::Volume, "v"));
    let refusal = bench.refusal(Kind::Volume, "c", clone_of(from_snapshot("s1"), 9));
    assert!(refusal.contains("choose at least these"), "{refusal}");
    bench.put(Kind::Volume, "c", clone_of(from_snapshot("s1"), 10)).unwrap();
    bench.acknowledge("m");
    bench.acknowledge("m");
    assert_eq!(bench.controller.volume_phase(&name("c")), Some(VolumePhase::Ready));
    let refusal = bench.call(Call::Delete { key: key(Kind::Pool, "p"), wait: None }).unwrap_err();
    assert!(refusal.to_string().contains("is used by"), "{refusal}");
}

#[test]
fn a_volume_is_among_those_of_its_owner_once_it_is_made_from_its_source() {
    let mut bench = Bench::with_hosts();
    bench.put(Kind::Volume, "c", clone_of(from_volume("v"), 12)).unwrap();
    let stored = bench.stored("c");
    assert_eq!((stored.pool, stored.copied), (Some(name("p")), false));
    // An agent of an earlier version would make an empty volume.
    assert!(bench.owned("c").is_none());
    let copy = bench.copy(&from_volume("c")).unwrap().clone();
    assert_eq!((copy.of.clone(), copy.bytes), (from_volume("v"), 12));
    assert!(matches!(bench.controller.volume_phase(&name("c")), Some(VolumePhase::WaitsForCopy(_))));
    let Object::Attachment(one) = attachment("h1") else { panic!() };
    bench.put(Kind::Attachment, "b", Object::Attachment(Attachment { volume: name("c"), ..one })).unwrap();
    assert_eq!(bench.controller.phase(&name("b")), Some(Phase::WaitsForVolume));
    bench.report_copies(vec![made(&copy)]);
    assert!(bench.stored("c").copied);
    assert!(bench.owned("c").is_some() && bench.copy(&from_volume("c")).is_none());
    bench.acknowledge("m");
    bench.acknowledge("m");
    assert!(matches!(bench.controller.phase(&name("b")), Some(Phase::Attached(_))));
    // It stays what it is, and has no other source.
    bench.put(Kind::Volume, "c", volume(12)).unwrap();
    assert_eq!(bench.stored("c").source, Some(from_volume("v")));
    let refusal = bench.refusal(Kind::Volume, "c", clone_of(from_snapshot("v"), 12));
    assert!(refusal.contains("was not made from snapshot/v"), "{refusal}");
}

#[test]
fn a_source_stays_until_nothing_is_to_be_made_from_it() {
    let mut bench = Bench::with_hosts();
    bench.put(Kind::Snapshot, "s", snapshot_of("v")).unwrap();
    bench.delete(Kind::Volume, "v");
    assert!(!bench.owned("v").unwrap().delete, "the snapshot is not taken");
    let refusal = bench.refusal(Kind::Snapshot, "t", snapshot_of("v"));
    assert!(refusal.contains("is being deleted"), "{refusal}");
    bench.acknowledge("m");
    assert!(bench.owned("v").unwrap().delete);
    bench.put(Kind::Volume, "c", clone_of(from_snapshot("s"), 10)).unwrap();
    bench.delete(Kind::Snapshot, "s");
    assert!(!bench.copy(&from_snapshot("s")).unwrap().delete, "the volume is not made");
    bench.acknowledge("m");
    assert!(bench.copy(&from_snapshot("s")).unwrap().delete);
    bench.acknowledge("m");
    assert!(!bench.has(Kind::Snapshot, "s") && !bench.has(Kind::Volume, "v"));
    assert!(bench.has(Kind::Volume, "c"));
}

#[test]
fn a_volume_that_is_not_made_yet_can_be_deleted() {
    let mut bench = Bench::with_hosts();
    bench.put(Kind::Volume, "c", clone_of(from_volume("v"), 12)).unwrap();
    bench.delete(Kind::Volume, "c");
    assert!(bench.copy(&from_volume("c")).is_none());
    assert!(bench.owned("c").unwrap().delete);
    bench.acknowledge("m");
    assert!(!bench.has(Kind::Volume, "c"));
}

#[test]
fn what_owners_have_and_a_restored_store_lacks_is_adopted_when_an_operator_says_so() {
    let mut bench = Bench::with_hosts();
    let backup = bench.backup();
    bench.put(Kind::Snapshot, "s", snapshot_of("v")).unwrap();
    bench.put(Kind::Volume, "c", clone_of(from_volume("v"), 12)).unwrap();
    let copies: Vec<_> = bench.slices[&name("m")].copies.iter().map(made).collect();
    bench.restore(backup);
    bench.hello("m");
    bench.report_copies(copies.clone());
    assert!(!bench.has(Kind::Snapshot, "s") && !bench.has(Kind::Volume, "c"));
    let orphans = bench.controller.orphans();
    let (node, snapshot, volume) = (name("m"), name("s"), name("v"));
    assert!(orphans.contains(&Orphan::Snapshot { node: node.clone(), snapshot, volume }), "{orphans:?}");
    assert!(orphans.contains(&Orphan::Volume { node, volume: name("c") }), "{orphans:?}");
    let refusal = bench.refusal(Kind::Snapshot, "s", snapshot_of("v"));
    assert!(refusal.contains("fleet recover"), "{refusal}");
    bench.call(Call::Recover).unwrap();
    bench.report_copies(copies);
    assert_eq!((bench.snapshot("s").taken, bench.snapshot("s").volume), (Some(7), name("v")));
    assert_eq!((bench.stored("c").copied, bench.stored("c").source), (true, Some(from_volume("v"))));
    bench.acknowledge("m");
    assert_eq!(bench.controller.orphans(), []);
}

#[test]
fn a_snapshot_that_was_deleted_since_the_backup_is_deleted() {
    let mut bench = Bench::with_hosts();
    bench.put(Kind::Snapshot, "s", snapshot_of("v")).unwrap();
    bench.acknowledge("m");
    let backup = bench.backup();
    bench.delete(Kind::Snapshot, "s");
    let deleted = vec![made(bench.copy(&from_snapshot("s")).unwrap())];
    bench.restore(backup);
    bench.hello("m");
    bench.report_copies(deleted.clone());
    assert_eq!(bench.controller.snapshot_phase(&name("s")), Some(SnapshotPhase::WaitsForRecovery));
    assert!(bench.controller.is_behind_any());
    bench.call(Call::Recover).unwrap();
    bench.report_copies(deleted);
    assert!(!bench.has(Kind::Snapshot, "s"));
}

#[test]
fn a_pool_has_what_its_machine_has_found_out() {
    let mut bench = Bench::with_hosts();
    let seen = Seen { incarnation: 0, term: bench.term, revision: bench.revision };
    let pools = vec![PoolReport { name: name("p"), clones: true }];
    let report = Report { term: bench.term, seen, pools, ..Report::default() };
    bench.input(Input::Report(name("m"), report));
    assert!(matches!(&bench.objects[&key(Kind::Pool, "p")].1, Object::Pool(pool) if pool.clones));
}

#[test]
fn a_source_stays_while_the_store_may_have_a_snapshot_that_the_controller_does_not_know() {
    let mut bench = Bench::with_hosts();
    // The answer to the snapshot's transaction is on its way when the volume is marked.
    let call = Call::Put {
        key: key(Kind::Snapshot, "s"),
        object: snapshot_of("v"),
        expect: Expect::Any,
        wait: None,
    };
    bench.controller.handle_input(Instant::ZERO, Input::Call(CallId(900), call));
    let mut number = 0;
    drain(&mut bench.controller, |output| {
        if let Output::Transact(one, _) = output {
            number = one;
        }
    });
    bench.delete(Kind::Volume, "v");
    assert!(!bench.owned("v").unwrap().delete);
    bench.input(Input::Answered(number, Answer::Conflict));
    assert!(bench.owned("v").unwrap().delete);
}

#[test]
fn an_attachment_of_a_volume_that_its_owner_does_not_know_yet_ends() {
    let mut bench = Bench::with_hosts();
    bench.put(Kind::Volume, "c", clone_of(from_volume("v"), 12)).unwrap();
    let Object::Attachment(one) = attachment("h1") else { panic!() };
    bench.input(Input::Gone(name("m")));
    bench.put(Kind::Attachment, "b", Object::Attachment(Attachment { volume: name("c"), ..one })).unwrap();
    bench.delete(Kind::Attachment, "b");
    bench.delete(Kind::Volume, "c");
    bench.hello("m");
    bench.report_copies(Vec::new());
    assert!(!bench.has(Kind::Attachment, "b"));
    assert!(bench.owned("c").unwrap().delete);
}
