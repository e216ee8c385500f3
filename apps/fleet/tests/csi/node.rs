//! Calls of the Node service.

use std::collections::HashMap;
use std::path::Path;

use fleetd::csi::proto::volume_capability::access_mode::Mode;
use fleetd::csi::proto::volume_capability::{AccessType, MountVolume};
use fleetd::csi::proto::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerUnpublishVolumeRequest, NodeExpandVolumeRequest,
    NodeGetInfoRequest, NodeGetStorageHealthRequest, NodeGetVolumeHealthRequest, NodeGetVolumeStatsRequest,
    NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest,
    VolumeCapability,
};
use tonic::{Code, Status};

use crate::stage::{Stage, attachment, block, mount};

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

impl Stage {
    async fn staged(&mut self, id: &str, nqn: &str, one: &VolumeCapability) -> Result<(), Status> {
        let wanted = NodeStageVolumeRequest {
            volume_id: id.to_owned(),
            publish_context: HashMap::from([("csi.farlane.io/nqn".to_owned(), nqn.to_owned())]),
            staging_target_path: text(&self.path(&format!("staging-{id}"))),
            volume_capability: Some(one.clone()),
            ..Default::default()
        };
        self.node.node_stage_volume(wanted).await.map(drop)
    }

    async fn published(
        &mut self,
        id: &str,
        nqn: &str,
        one: &VolumeCapability,
        target: &str,
        readonly: bool,
    ) -> Result<(), Status> {
        let wanted = NodePublishVolumeRequest {
            volume_id: id.to_owned(),
            publish_context: HashMap::from([("csi.farlane.io/nqn".to_owned(), nqn.to_owned())]),
            staging_target_path: text(&self.path(&format!("staging-{id}"))),
            target_path: text(&self.path(target)),
            volume_capability: Some(one.clone()),
            readonly,
            ..Default::default()
        };
        self.node.node_publish_volume(wanted).await.map(drop)
    }

    async fn unpublished(&mut self, id: &str, target: &str) -> Result<(), Status> {
        let target_path = text(&self.path(target));
        let wanted = NodeUnpublishVolumeRequest { volume_id: id.to_owned(), target_path };
        self.node.node_unpublish_volume(wanted).await.map(drop)
    }

    async fn unstaged(&mut self, id: &str) -> Result<(), Status> {
        let staging_target_path = text(&self.path(&format!("staging-{id}")));
        let wanted = NodeUnstageVolumeRequest { volume_id: id.to_owned(), staging_target_path };
        self.node.node_unstage_volume(wanted).await.map(drop)
    }
}

fn code(done: Result<(), Status>) -> Code {
    done.map_or_else(|error| error.code(), |()| Code::Ok)
}

#[tokio::test]
async fn a_file_system_from_stage_to_unstage_each_step_twice() {
    let mut stage = Stage::set().await;
    let one = mount(Mode::SingleNodeWriter);
    let nqn = stage.attached("v", &one).await;
    for _ in 0..2 {
        stage.staged("v", &nqn, &one).await.unwrap();
    }
    assert_eq!(stage.machine.made(), 1);
    for _ in 0..2 {
        stage.published("v", &nqn, &one, "target", false).await.unwrap();
    }
    stage.published("v", &nqn, &one, "other", true).await.unwrap();
    assert_eq!(stage.machine.at(&stage.path("target")).len(), 1);
    assert!(stage.machine.at(&stage.path("other"))[0].read_only);
    // A pod has it still.
    assert_eq!(code(stage.unstaged("v").await), Code::FailedPrecondition);
    for target in ["target", "target", "other"] {
        stage.unpublished("v", target).await.unwrap();
        assert!(!stage.path(target).exists());
    }
    for _ in 0..2 {
        stage.unstaged("v").await.unwrap();
    }
    assert_eq!(stage.machine.at(&stage.path("staging-v")), []);
    // The data stays.
    stage.staged("v", &nqn, &one).await.unwrap();
    assert_eq!(stage.machine.made(), 1);
}

#[tokio::test]
async fn a_block_device_is_its_own_file() {
    let mut stage = Stage::set().await;
    let one = block(Mode::SingleNodeWriter);
    let nqn = stage.attached("v", &one).await;
    stage.staged("v", &nqn, &one).await.unwrap();
    for _ in 0..2 {
        stage.published("v", &nqn, &one, "target", false).await.unwrap();
    }
    assert_eq!(stage.machine.made(), 0);
    assert!(stage.path("target").is_file());
    // A second mount of the device's file would refuse nothing.
    assert_eq!(code(stage.published("v", &nqn, &one, "other", true).await), Code::FailedPrecondition);
    stage.unpublished("v", "target").await.unwrap();
    assert!(!stage.path("target").exists());
    stage.unstaged("v").await.unwrap();
}

#[tokio::test]
async fn nothing_is_formatted_that_has_data() {
    let mut stage = Stage::set().await;
    let one = mount(Mode::SingleNodeWriter);
    let nqn = stage.attached("v", &one).await;
    for signature in ["xfs", "LVM2_member", "dos", "something unknown"] {
        stage.machine.sign("v", signature);
        let error = stage.staged("v", &nqn, &one).await.unwrap_err();
        assert_eq!(error.code(), Code::FailedPrecondition);
        assert!(
            error.message().contains(signature) && error.message().contains("nothing was changed"),
            "{error}"
        );
    }
    // A device that cannot be read is not empty.
    stage.machine.fail(Some("signature"));
    assert_eq!(code(stage.staged("v", &nqn, &one).await), Code::Internal);
    stage.machine.fail(None);
    assert_eq!(stage.machine.made(), 0);
    // What was wanted is there.
    stage.machine.sign("v", "ext4");
    stage.staged("v", &nqn, &one).await.unwrap();
    assert_eq!(stage.machine.made(), 0);
}

#[tokio::test]
async fn what_is_read_only_is_not_written_to() {
    let mut stage = Stage::set().await;
    let one = mount(Mode::MultiNodeReaderOnly);
    let nqn = stage.attached("v", &one).await;
    assert_eq!(code(stage.staged("v", &nqn, &one).await), Code::FailedPrecondition);
    stage.machine.sign("v", "ext4");
    stage.staged("v", &nqn, &one).await.unwrap();
    stage.published("v", &nqn, &one, "target", false).await.unwrap();
    assert!(stage.machine.at(&stage.path("target"))[0].read_only);
    // The device is read-only, so that the same is staged again.
    assert_eq!(code(stage.staged("v", &nqn, &mount(Mode::SingleNodeWriter)).await), Code::Ok);
    let mut xfs = mount(Mode::MultiNodeReaderOnly);
    xfs.access_type =
        Some(AccessType::Mount(MountVolume { fs_type: "xfs".to_owned(), ..Default::default() }));
    assert_eq!(code(stage.staged("v", &nqn, &xfs).await), Code::AlreadyExists);
}

#[tokio::test]
async fn a_device_is_waited_for_but_not_for_ever() {
    let mut stage = Stage::set().await;
    let one = mount(Mode::SingleNodeWriter);
    let nqn = "nqn.2026-01.io.farlane:nothing";
    let error = stage.staged("v", nqn, &one).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains(nqn) && error.message().contains("agent"), "{error}");
    // One without a path is no device to mount.
    let nqn = stage.attached("v", &one).await;
    stage.machine.reach(false);
    let error = stage.staged("v", &nqn, &one).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains("no path"), "{error}");
    stage.machine.reach(true);
    stage.staged("v", &nqn, &one).await.unwrap();
}

#[tokio::test]
async fn one_pod_at_most_has_what_is_for_one_pod() {
    let mut stage = Stage::set().await;
    for (id, one) in [("v", mount(Mode::SingleNodeSingleWriter)), ("w", block(Mode::SingleNodeSingleWriter))]
    {
        let nqn = stage.attached(id, &one).await;
        stage.staged(id, &nqn, &one).await.unwrap();
        stage.published(id, &nqn, &one, "target", false).await.unwrap();
        stage.published(id, &nqn, &one, "target", false).await.unwrap();
        let second = stage.published(id, &nqn, &one, "other", false).await;
        assert_eq!(code(second), Code::FailedPrecondition, "{id}");
        stage.unpublished(id, "target").await.unwrap();
        stage.published(id, &nqn, &one, "other", false).await.unwrap();
        stage.unpublished(id, "other").await.unwrap();
    }
}

#[tokio::test]
async fn each_step_that_fails_is_repeated_after_a_restart() {
    let mut stage = Stage::set().await;
    let one = mount(Mode::SingleNodeWriter);
    let nqn = stage.attached("v", &one).await;
    for step in ["make", "mount"] {
        stage.machine.fail(Some(step));
        assert_eq!(code(stage.staged("v", &nqn, &one).await), Code::Internal, "{step}");
        stage = stage.restart().await;
    }
    stage.machine.fail(None);
    stage.staged("v", &nqn, &one).await.unwrap();
    assert_eq!(stage.machine.made(), 1);
    for step in ["bind", "make_read_only"] {
        stage.machine.fail(Some(step));
        assert_eq!(code(stage.published("v", &nqn, &one, "target", true).await), Code::Internal, "{step}");
        stage = stage.restart().await;
    }
    // The volume was bound, writable, when the driver was killed.
    stage.machine.fail(None);
    stage.published("v", &nqn, &one, "target", true).await.unwrap();
    let mounts = stage.machine.at(&stage.path("target"));
    assert!(mounts.len() == 1 && mounts[0].read_only, "{mounts:?}");
    stage.machine.fail(Some("unmount"));
    assert_eq!(code(stage.unpublished("v", "target").await), Code::Internal);
    assert!(stage.path("target").exists());
    stage = stage.restart().await;
    stage.machine.fail(None);
    stage.unpublished("v", "target").await.unwrap();
    stage.unstaged("v").await.unwrap();
}

#[tokio::test]
async fn targets_of_others_stay_as_they_are() {
    let mut stage = Stage::set().await;
    let one = mount(Mode::SingleNodeWriter);
    let (v, w) = (stage.attached("v", &one).await, stage.attached("w", &one).await);
    stage.staged("v", &v, &one).await.unwrap();
    stage.staged("w", &w, &one).await.unwrap();
    stage.published("v", &v, &one, "target", false).await.unwrap();
    assert_eq!(code(stage.published("w", &w, &one, "target", false).await), Code::AlreadyExists);
    // The staging path has another volume.
    let mut wrong = NodeStageVolumeRequest {
        volume_id: "w".to_owned(),
        publish_context: HashMap::from([("csi.farlane.io/nqn".to_owned(), w.clone())]),
        staging_target_path: text(&stage.path("staging-v")),
        volume_capability: Some(one.clone()),
        ..Default::default()
    };
    let error = stage.node.node_stage_volume(wrong.clone()).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    // Data at a target stays.
    std::fs::create_dir(stage.path("full")).unwrap();
    std::fs::write(stage.path("full/data"), "data").unwrap();
    assert_eq!(code(stage.unpublished("v", "full").await), Code::Internal);
    assert!(stage.path("full/data").exists());
    // Paths and names of no form.
    for path in ["relative", "/a/../b", "/a\0b"] {
        wrong.staging_target_path = path.to_owned();
        let error = stage.node.node_stage_volume(wrong.clone()).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{path:?}");
    }
    for nqn in ["", "x", "nqn.\n", &format!("nqn.{}", "x".repeat(300))] {
        assert_eq!(code(stage.staged("v", nqn, &one).await), Code::InvalidArgument, "{nqn:?}");
    }
}

#[tokio::test]
async fn volumes_grow_while_they_are_used() {
    let mut stage = Stage::set().await;
    let one = mount(Mode::SingleNodeWriter);
    let nqn = stage.attached("v", &one).await;
    stage.staged("v", &nqn, &one).await.unwrap();
    stage.published("v", &nqn, &one, "target", false).await.unwrap();
    let capacity_range = Some(CapacityRange { required_bytes: 2 << 30, limit_bytes: 0 });
    let wanted = NodeExpandVolumeRequest {
        volume_id: "v".to_owned(),
        volume_path: text(&stage.path("target")),
        capacity_range,
        ..Default::default()
    };
    // The fleet first.
    let error = stage.node.node_expand_volume(wanted.clone()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    let expand =
        ControllerExpandVolumeRequest { volume_id: "v".to_owned(), capacity_range, ..Default::default() };
    stage.controller.controller_expand_volume(expand).await.unwrap();
    let grown = stage.node.node_expand_volume(wanted.clone()).await.unwrap().into_inner();
    assert_eq!(grown.capacity_bytes, 2 << 30);
    assert_eq!(stage.machine.filled("v"), 2 << 30);
    let elsewhere = NodeExpandVolumeRequest { volume_path: "some/path".to_owned(), ..wanted.clone() };
    assert_eq!(stage.node.node_expand_volume(elsewhere).await.unwrap_err().code(), Code::NotFound);
    let nowhere = NodeExpandVolumeRequest { volume_path: String::new(), ..wanted };
    assert_eq!(stage.node.node_expand_volume(nowhere).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn what_ails_a_volume_is_said() {
    let mut stage = Stage::set().await;
    let one = mount(Mode::SingleNodeWriter);
    let nqn = stage.attached("v", &one).await;
    stage.staged("v", &nqn, &one).await.unwrap();
    stage.published("v", &nqn, &one, "target", false).await.unwrap();
    let path = text(&stage.path("target"));
    let ask = NodeGetVolumeStatsRequest {
        volume_id: "v".to_owned(),
        volume_path: path.clone(),
        ..Default::default()
    };
    let usage = stage.node.node_get_volume_stats(ask).await.unwrap().into_inner().usage;
    assert_eq!((usage[0].total, usage[0].available, usage[0].used), (100, 60, 30));
    assert_eq!((usage[1].total, usage[1].available, usage[1].used), (10, 8, 2));
    let mut ails = Vec::new();
    for step in 0..4 {
        match step {
            1 => stage.machine.reach(false),
            2 => stage.machine.freeze(),
            // The owner lets the machine in no longer, and its agent has disconnected.
            3 => {
                let wanted =
                    ControllerUnpublishVolumeRequest { volume_id: "v".to_owned(), ..Default::default() };
                stage.controller.controller_unpublish_volume(wanted).await.unwrap();
                while !stage.machine.subsystems().is_empty() {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
            }
            _ => (),
        }
        let ask = NodeGetVolumeHealthRequest {
            volume_id: "v".to_owned(),
            volume_publish_path: path.clone(),
            staging_target_path: text(&stage.path("staging-v")),
        };
        let health =
            stage.node.node_get_volume_health(ask).await.unwrap().into_inner().volume_health.unwrap();
        ails.push(health.health_statuses.into_iter().map(|one| one.reason).collect::<Vec<_>>());
    }
    let expected: [&[&str]; 4] =
        [&[], &["NoPath"], &["NoPath", "ReadOnlyFileSystem"], &["NoDevice", "ReadOnlyFileSystem"]];
    assert_eq!(ails, expected);
    let ask = NodeGetStorageHealthRequest::default();
    assert_eq!(
        stage.node.node_get_storage_health(ask.clone()).await.unwrap().into_inner().backend_health,
        []
    );
    stage.machine.fail(Some("has_initiator"));
    let health = stage.node.node_get_storage_health(ask).await.unwrap().into_inner().backend_health;
    assert_eq!(health[0].reason, "NoInitiator");
    // Without a device, everything can be undone all the same.
    stage.machine.fail(None);
    stage.unpublished("v", "target").await.unwrap();
    stage.unstaged("v").await.unwrap();
}

#[tokio::test]
async fn a_machine_says_who_and_where_it_is() {
    let mut stage = Stage::set().await;
    let info = stage.node.node_get_info(NodeGetInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(info.node_id, "b");
    let segments = info.accessible_topology.unwrap().segments;
    assert_eq!(segments, HashMap::from([("csi.farlane.io/node".to_owned(), "b".to_owned())]));
    // The machine's name is one of the fleet.
    let wanted = attachment("v", &info.node_id, &mount(Mode::SingleNodeWriter));
    stage.attached("v", &mount(Mode::SingleNodeWriter)).await;
    stage.controller.controller_publish_volume(wanted).await.unwrap();
}
