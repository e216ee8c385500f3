//! Calls about snapshots, and volumes that are made from other data.

use fleetd::csi::proto::volume_content_source::{SnapshotSource, Type, VolumeSource};
use fleetd::csi::proto::{
    CreateSnapshotRequest, DeleteSnapshotRequest, DeleteVolumeRequest, GetSnapshotRequest,
    ListSnapshotsRequest, VolumeContentSource,
};
use tonic::Code;

use crate::stage::{Stage, volume};

fn take(name: &str, of: &str) -> CreateSnapshotRequest {
    CreateSnapshotRequest { source_volume_id: of.to_owned(), name: name.to_owned(), ..Default::default() }
}

fn from(source: Type) -> Option<VolumeContentSource> {
    Some(VolumeContentSource { r#type: Some(source) })
}

fn snapshot_of(id: &str) -> Option<VolumeContentSource> {
    from(Type::Snapshot(SnapshotSource { snapshot_id: id.to_owned() }))
}

fn clone_of(id: &str) -> Option<VolumeContentSource> {
    from(Type::Volume(VolumeSource { volume_id: id.to_owned() }))
}

#[tokio::test]
async fn a_snapshot_is_taken_once_and_outlives_its_volume() {
    let mut stage = Stage::set().await;
    stage.controller.create_volume(volume("pvc-1", 1 << 30)).await.unwrap();
    stage.controller.create_volume(volume("pvc-2", 1 << 30)).await.unwrap();
    let taken = stage.controller.create_snapshot(take("Monday 1", "pvc-1")).await.unwrap().into_inner();
    let taken = taken.snapshot.unwrap();
    assert_eq!((taken.source_volume_id.as_str(), taken.size_bytes), ("pvc-1", 1 << 30));
    assert!(taken.ready_to_use && taken.creation_time.unwrap().seconds > 0);
    let again = stage.controller.create_snapshot(take("Monday 1", "pvc-1")).await.unwrap().into_inner();
    assert_eq!(again.snapshot.unwrap(), taken);
    for (wanted, code) in [
        (take("Monday 1", "pvc-2"), Code::AlreadyExists),
        (take("x", "pvc-9"), Code::NotFound),
        (take("", "pvc-1"), Code::InvalidArgument),
        (take("x", ""), Code::InvalidArgument),
    ] {
        let error = stage.controller.create_snapshot(wanted.clone()).await.unwrap_err();
        assert_eq!(error.code(), code, "{error} {wanted:?}");
    }
    let gone = DeleteVolumeRequest { volume_id: "pvc-1".to_owned(), ..Default::default() };
    stage.controller.delete_volume(gone).await.unwrap();
    let id = taken.snapshot_id.clone();
    let get = GetSnapshotRequest { snapshot_id: id.clone(), ..Default::default() };
    let found = stage.controller.get_snapshot(get.clone()).await.unwrap().into_inner();
    assert_eq!(found.snapshot.unwrap(), taken);
    let delete = DeleteSnapshotRequest { snapshot_id: id, ..Default::default() };
    for _ in 0..2 {
        stage.controller.delete_snapshot(delete.clone()).await.unwrap();
    }
    assert_eq!(stage.controller.get_snapshot(get).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn a_volume_is_made_from_a_snapshot_or_a_volume_in_the_same_pool() {
    let mut stage = Stage::set().await;
    stage.controller.create_volume(volume("pvc-1", 1 << 30)).await.unwrap();
    stage.controller.create_snapshot(take("s", "pvc-1")).await.unwrap();
    let wish = |name: &str, bytes: i64, source: Option<VolumeContentSource>| {
        let mut wanted = volume(name, bytes);
        wanted.volume_content_source = source;
        wanted
    };
    for (name, source) in [("c", snapshot_of("s")), ("d", clone_of("pvc-1")), ("e", clone_of("c"))] {
        let made = stage.controller.create_volume(wish(name, 0, source.clone())).await.unwrap().into_inner();
        let made = made.volume.unwrap();
        assert_eq!((made.content_source.as_ref(), made.capacity_bytes), (source.as_ref(), 1 << 30));
        let again = stage.controller.create_volume(wish(name, 0, source)).await.unwrap().into_inner();
        assert_eq!(again.volume.unwrap(), made);
    }
    let mut smaller = wish("f", 0, snapshot_of("s"));
    smaller.capacity_range.as_mut().unwrap().limit_bytes = 1 << 20;
    let mut elsewhere = wish("f", 0, snapshot_of("s"));
    elsewhere.parameters.insert("pool".to_owned(), "other".to_owned());
    for (wanted, code) in [
        (wish("c", 0, clone_of("pvc-1")), Code::AlreadyExists),
        (wish("c", 0, None), Code::AlreadyExists),
        (wish("f", 0, snapshot_of("none")), Code::NotFound),
        (wish("f", 0, clone_of("none")), Code::NotFound),
        (wish("f", 0, snapshot_of("")), Code::InvalidArgument),
        (wish("f", 200 << 30, snapshot_of("s")), Code::ResourceExhausted),
        (smaller, Code::OutOfRange),
        (elsewhere, Code::InvalidArgument),
    ] {
        let error = stage.controller.create_volume(wanted.clone()).await.unwrap_err();
        assert_eq!(error.code(), code, "{error} {wanted:?}");
    }
}

#[tokio::test]
async fn snapshots_are_listed_in_pages_and_by_volume() {
    let mut stage = Stage::set().await;
    for one in ["pvc-1", "pvc-2"] {
        stage.controller.create_volume(volume(one, 1 << 20)).await.unwrap();
        for number in 0..3 {
            stage.controller.create_snapshot(take(&format!("{one}-{number}"), one)).await.unwrap();
        }
    }
    let mut wanted = ListSnapshotsRequest { max_entries: 4, ..Default::default() };
    let mut found = Vec::new();
    loop {
        let page = stage.controller.list_snapshots(wanted.clone()).await.unwrap().into_inner();
        found.extend(page.entries.into_iter().map(|entry| entry.snapshot.unwrap().snapshot_id));
        wanted.starting_token = page.next_token;
        if wanted.starting_token.is_empty() {
            break;
        }
    }
    assert_eq!(found, ["pvc-1-0", "pvc-1-1", "pvc-1-2", "pvc-2-0", "pvc-2-1", "pvc-2-2"]);
    for (volume, snapshot, count) in
        [("pvc-2", "", 3), ("", "pvc-1-1", 1), ("pvc-2", "pvc-1-1", 0), ("", "nothing", 0)]
    {
        let wanted = ListSnapshotsRequest {
            source_volume_id: volume.to_owned(),
            snapshot_id: snapshot.to_owned(),
            ..Default::default()
        };
        let page = stage.controller.list_snapshots(wanted).await.unwrap().into_inner();
        assert_eq!(page.entries.len(), count, "{volume} {snapshot}");
    }
    let wrong = ListSnapshotsRequest { starting_token: "4".to_owned(), ..Default::default() };
    assert_eq!(stage.controller.list_snapshots(wrong).await.unwrap_err().code(), Code::Aborted);
}
