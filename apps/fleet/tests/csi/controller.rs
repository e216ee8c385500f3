//! Calls of the Identity and Controller services.

use std::collections::HashMap;

use fleetd::csi::proto::volume_capability::access_mode::Mode;
use fleetd::csi::proto::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerGetVolumeHealthRequest,
    ControllerGetVolumeRequest, ControllerListVolumeHealthRequest, ControllerModifyVolumeRequest,
    ControllerUnpublishVolumeRequest, DeleteVolumeRequest, GetCapacityRequest, GetPluginInfoRequest,
    ListVolumesRequest, ProbeRequest, Topology, TopologyRequirement, ValidateVolumeCapabilitiesRequest,
};
use tonic::Code;

use crate::machine::Fake;
use crate::memory::Memory;
use crate::stage::{POOL, Stage, attachment, block, mount, volume};

fn segments(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn delete(id: &str) -> DeleteVolumeRequest {
    DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() }
}

fn detach(id: &str, node: &str) -> ControllerUnpublishVolumeRequest {
    ControllerUnpublishVolumeRequest {
        volume_id: id.to_owned(),
        node_id: node.to_owned(),
        ..Default::default()
    }
}

fn expand(id: &str, required_bytes: i64) -> ControllerExpandVolumeRequest {
    let capacity_range = Some(CapacityRange { required_bytes, limit_bytes: 0 });
    ControllerExpandVolumeRequest { volume_id: id.to_owned(), capacity_range, ..Default::default() }
}

#[tokio::test]
async fn the_driver_has_a_name() {
    let mut stage = Stage::set().await;
    let info = stage.identity.get_plugin_info(GetPluginInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(info.name, "csi.farlane.io");
    assert_eq!(stage.identity.probe(ProbeRequest {}).await.unwrap().into_inner().ready, Some(true));
}

#[tokio::test]
async fn volumes_are_created_once() {
    let mut stage = Stage::set().await;
    let created = stage.controller.create_volume(volume("pvc-1", 5000)).await.unwrap().into_inner();
    let created = created.volume.unwrap();
    assert_eq!((created.volume_id.as_str(), created.capacity_bytes), ("pvc-1", 8192));
    let again = stage.controller.create_volume(volume("pvc-1", 5000)).await.unwrap().into_inner();
    assert_eq!(again.volume.unwrap(), created);
    // Of any other form.
    let other = stage.controller.create_volume(volume("Größe 1/2", 1)).await.unwrap().into_inner();
    assert!(other.volume.unwrap().volume_id.starts_with("csi-"));

    let class = |class: &str| {
        let parameters = segments(&[("class", class)]);
        stage_request(parameters)
    };
    for (wanted, code) in [
        (volume("pvc-1", 8193), Code::AlreadyExists),
        (class("any"), Code::AlreadyExists),
        (stage_request(segments(&[("pool", "pool")])), Code::Ok),
        (class("nothing"), Code::AlreadyExists),
        (stage_request(segments(&[("klass", "any")])), Code::InvalidArgument),
    ] {
        let answer = stage.controller.create_volume(wanted.clone()).await;
        assert_eq!(answer.map_or_else(|error| error.code(), |_| Code::Ok), code, "{wanted:?}");
    }
    let mut limited = volume("pvc-1", 0);
    limited.capacity_range = Some(CapacityRange { required_bytes: 0, limit_bytes: 4096 });
    let error = stage.controller.create_volume(limited).await.unwrap_err();
    assert_eq!(error.code(), Code::AlreadyExists);
}

/// A wish for the volume `pvc-1`, with parameters.
fn stage_request(parameters: HashMap<String, String>) -> fleetd::csi::proto::CreateVolumeRequest {
    fleetd::csi::proto::CreateVolumeRequest { parameters, ..volume("pvc-1", 5000) }
}

#[tokio::test]
async fn what_no_volume_can_be_is_refused() {
    let mut stage = Stage::set().await;
    let with = |change: fn(&mut fleetd::csi::proto::CreateVolumeRequest)| {
        let mut wanted = volume("pvc-2", 1 << 20);
        change(&mut wanted);
        wanted
    };
    for (wanted, code) in [
        (volume("", 1), Code::InvalidArgument),
        (volume(&"x".repeat(129), 1), Code::InvalidArgument),
        (volume("pvc-2", -1), Code::OutOfRange),
        (volume("pvc-2", i64::MAX), Code::OutOfRange),
        (volume("pvc-2", 200 << 30), Code::ResourceExhausted),
        (with(|one| one.volume_capabilities.clear()), Code::InvalidArgument),
        (
            with(|one| one.volume_capabilities = vec![mount(Mode::MultiNodeMultiWriter)]),
            Code::InvalidArgument,
        ),
        (with(|one| drop(one.parameters.insert("class".into(), "nothing".into()))), Code::InvalidArgument),
        (with(|one| drop(one.parameters.insert("pool".into(), "nothing".into()))), Code::ResourceExhausted),
        (with(|one| one.volume_content_source = Some(Default::default())), Code::InvalidArgument),
        (
            with(|one| {
                let elsewhere = Topology { segments: segments(&[("csi.farlane.io/node", "z")]) };
                let requisite = vec![elsewhere];
                one.accessibility_requirements =
                    Some(TopologyRequirement { requisite, preferred: Vec::new() });
            }),
            Code::ResourceExhausted,
        ),
    ] {
        let error = stage.controller.create_volume(wanted.clone()).await.unwrap_err();
        assert_eq!(error.code(), code, "{error} {wanted:?}");
    }
    let all = stage.controller.list_volumes(ListVolumesRequest::default()).await.unwrap().into_inner();
    assert_eq!(all.entries, []);
}

#[tokio::test]
async fn the_scheduler_chooses_the_node_that_a_volume_is_near() {
    let mut stage = Stage::set().await;
    let mut wanted = volume("pvc-3", 1 << 20);
    let topology = |pairs| Topology { segments: segments(pairs) };
    wanted.accessibility_requirements = Some(TopologyRequirement {
        requisite: vec![topology(&[("csi.farlane.io/node", "a")])],
        preferred: vec![topology(&[("csi.farlane.io/rack", "c")]), topology(&[("csi.farlane.io/node", "a")])],
    });
    stage.controller.create_volume(wanted).await.unwrap();
    use fleetd::csi::Fleet as _;
    let item = stage.fleet.get(fleet::object::Kind::Volume, "pvc-3").await.unwrap();
    let fleetd::wire::Object::Volume(found) = item.object else { panic!("{item:?}") };
    assert_eq!(found.near.unwrap().0, "c");
}

#[tokio::test]
async fn volumes_are_deleted_once_nothing_is_attached() {
    let mut stage = Stage::set().await;
    stage.attached("pvc-4", &mount(Mode::SingleNodeWriter)).await;
    let error = stage.controller.delete_volume(delete("pvc-4")).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    stage.controller.controller_unpublish_volume(detach("pvc-4", "b")).await.unwrap();
    for id in ["pvc-4", "pvc-4", "unknown", "No name/at all"] {
        stage.controller.delete_volume(delete(id)).await.unwrap();
    }
    for id in ["", &"x".repeat(129)] {
        let error = stage.controller.delete_volume(delete(id)).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
    }
    let ask = ControllerGetVolumeRequest { volume_id: "pvc-4".to_owned() };
    assert_eq!(stage.controller.controller_get_volume(ask).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn volumes_are_attached_to_one_node_or_to_several() {
    let mut stage = Stage::set().await;
    let one = mount(Mode::SingleNodeWriter);
    let nqn = stage.attached("pvc-5", &one).await;
    assert!(nqn.starts_with("nqn."), "{nqn}");
    // A repetition answers the same; anything else on the way is refused.
    let again = stage.controller.controller_publish_volume(attachment("pvc-5", "b", &one)).await.unwrap();
    assert_eq!(again.into_inner().publish_context["csi.farlane.io/nqn"], nqn);
    let mut read_only = attachment("pvc-5", "b", &one);
    read_only.readonly = true;
    for (wanted, code) in [
        (read_only, Code::AlreadyExists),
        (attachment("pvc-5", "b", &block(Mode::MultiNodeMultiWriter)), Code::AlreadyExists),
        (attachment("pvc-5", "a", &one), Code::FailedPrecondition),
        (attachment("pvc-5", "z", &one), Code::NotFound),
        (attachment("pvc-5", "No Node", &one), Code::NotFound),
        (attachment("pvc-9", "b", &one), Code::NotFound),
        (attachment("No Volume", "b", &one), Code::NotFound),
        (attachment("", "b", &one), Code::InvalidArgument),
        (attachment("pvc-5", "", &one), Code::InvalidArgument),
        (attachment("pvc-5", "b", &mount(Mode::Unknown)), Code::InvalidArgument),
    ] {
        let error = stage.controller.controller_publish_volume(wanted.clone()).await.unwrap_err();
        assert_eq!(error.code(), code, "{error} {wanted:?}");
    }
    // Several nodes.
    let shared = block(Mode::MultiNodeMultiWriter);
    stage.attached("pvc-6", &shared).await;
    stage.controller.controller_publish_volume(attachment("pvc-6", "c", &shared)).await.unwrap();
    let all = stage.controller.list_volumes(ListVolumesRequest::default()).await.unwrap().into_inner();
    let nodes: Vec<_> = all.entries.into_iter().map(|one| one.status.unwrap().published_node_ids).collect();
    assert_eq!(nodes, [vec!["b"], vec!["b", "c"]]);
    // All of them end.
    stage.controller.controller_unpublish_volume(detach("pvc-6", "")).await.unwrap();
    let ask = ControllerGetVolumeRequest { volume_id: "pvc-6".to_owned() };
    let found = stage.controller.controller_get_volume(ask).await.unwrap().into_inner();
    assert_eq!(found.status.unwrap().published_node_ids, Vec::<String>::new());
    stage.controller.controller_publish_volume(attachment("pvc-6", "a", &one)).await.unwrap();
}

#[tokio::test]
async fn detach_asks_neither_node_nor_what_is_unknown() {
    let mut stage = Stage::set().await;
    stage.attached("pvc-7", &mount(Mode::SingleNodeWriter)).await;
    stage.fleet.part("b"); // The machine is dead.
    stage.controller.controller_unpublish_volume(detach("pvc-7", "b")).await.unwrap();
    for (id, node) in [("pvc-7", "b"), ("pvc-7", "z"), ("unknown", "b"), ("No Volume", "No Node")] {
        stage.controller.controller_unpublish_volume(detach(id, node)).await.unwrap();
    }
    let error = stage.controller.controller_unpublish_volume(detach("", "b")).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    // Another machine has the volume at once.
    let wanted = attachment("pvc-7", "c", &mount(Mode::SingleNodeWriter));
    stage.controller.controller_publish_volume(wanted).await.unwrap();
}

#[tokio::test]
async fn while_the_owner_is_away_nothing_is_granted_and_its_name_is_said() {
    let mut stage = Stage::set().await;
    stage.attached("pvc-8", &mount(Mode::SingleNodeWriter)).await;
    stage.fleet.part("a");
    let ask = || ControllerGetVolumeHealthRequest { volume_id: "pvc-8".to_owned(), ..Default::default() };
    let health = stage.controller.controller_get_volume_health(ask()).await.unwrap().into_inner();
    assert_eq!(health.volume_health.unwrap().health_statuses[0].reason, "OwnerAway");
    let all = ControllerListVolumeHealthRequest::default();
    let ailing = stage.controller.controller_list_volume_health(all.clone()).await.unwrap().into_inner();
    assert_eq!(ailing.entries[0].volume_id, "pvc-8");
    let error = stage.controller.controller_unpublish_volume(detach("pvc-8", "b")).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains("WaitsForOwner(a)"), "{error}");
    stage.fleet.join("a");
    stage.controller.controller_unpublish_volume(detach("pvc-8", "b")).await.unwrap();
    let health = stage.controller.controller_get_volume_health(ask()).await.unwrap().into_inner();
    assert_eq!(health.volume_health.unwrap().health_statuses, []);
    let ailing = stage.controller.controller_list_volume_health(all).await.unwrap().into_inner();
    assert_eq!(ailing.entries, []);
}

#[tokio::test]
async fn a_node_has_as_many_volumes_as_it_may() {
    let machine = Fake::default();
    let mut stage = Stage::with(Memory::new(POOL, machine.clone()), machine, 1).await;
    let one = mount(Mode::SingleNodeWriter);
    stage.attached("pvc-1", &one).await;
    stage.controller.create_volume(volume("pvc-2", 1)).await.unwrap();
    let error = stage.controller.controller_publish_volume(attachment("pvc-2", "b", &one)).await.unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted);
    stage.controller.controller_publish_volume(attachment("pvc-1", "b", &one)).await.unwrap();
    stage.controller.controller_publish_volume(attachment("pvc-2", "c", &one)).await.unwrap();
}

#[tokio::test]
async fn lists_have_pages() {
    let mut stage = Stage::set().await;
    for at in 0..5 {
        stage.controller.create_volume(volume(&format!("pvc-{at}"), 1)).await.unwrap();
    }
    let (mut token, mut found) = (String::new(), Vec::new());
    loop {
        let ask = ListVolumesRequest { max_entries: 2, starting_token: token };
        let page = stage.controller.list_volumes(ask).await.unwrap().into_inner();
        assert!(page.entries.len() <= 2);
        found.extend(page.entries.into_iter().map(|one| one.volume.unwrap().volume_id));
        token = page.next_token;
        if token.is_empty() {
            break;
        }
        // The last of a page goes: the next page follows all the same.
        stage.controller.delete_volume(delete(found.last().unwrap())).await.unwrap();
    }
    assert_eq!(found, ["pvc-0", "pvc-1", "pvc-2", "pvc-3", "pvc-4"]);
    for (max_entries, token, code) in
        [(-1, "", Code::InvalidArgument), (1, "pvc-1", Code::Aborted), (1, "after:../x", Code::Aborted)]
    {
        let ask = ListVolumesRequest { max_entries, starting_token: token.to_owned() };
        assert_eq!(stage.controller.list_volumes(ask).await.unwrap_err().code(), code);
    }
}

#[tokio::test]
async fn capacity_is_that_of_the_pools_that_are_fit() {
    let mut stage = Stage::set().await;
    let ask = |class: Option<&str>, topology: Option<&[(&str, &str)]>| GetCapacityRequest {
        parameters: class.map(|class| segments(&[("class", class)])).unwrap_or_default(),
        accessible_topology: topology.map(|pairs| Topology { segments: segments(pairs) }),
        ..Default::default()
    };
    let pool = i64::try_from(POOL).unwrap();
    let found = stage.controller.get_capacity(ask(None, None)).await.unwrap().into_inner();
    assert_eq!((found.available_capacity, found.maximum_volume_size), (pool, Some(pool)));
    stage.controller.create_volume(volume("pvc-1", 1 << 30)).await.unwrap();
    let near = [("csi.farlane.io/node", "c")];
    let found = stage.controller.get_capacity(ask(Some("any"), Some(&near))).await.unwrap().into_inner();
    assert_eq!(found.available_capacity, pool - (1 << 30));
    // Where no machine is, there is nothing.
    for elsewhere in [[("csi.farlane.io/node", "z")], [("csi.farlane.io/rack", "z")], [("other", "a")]] {
        let found = stage.controller.get_capacity(ask(None, Some(&elsewhere))).await.unwrap().into_inner();
        assert_eq!(found.available_capacity, 0, "{elsewhere:?}");
    }
    let error = stage.controller.get_capacity(ask(Some("nothing"), None)).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn volumes_grow_within_their_pool() {
    let mut stage = Stage::set().await;
    stage.controller.create_volume(volume("pvc-1", 1 << 30)).await.unwrap();
    let grown =
        stage.controller.controller_expand_volume(expand("pvc-1", 2 << 30)).await.unwrap().into_inner();
    assert_eq!((grown.capacity_bytes, grown.node_expansion_required), (2 << 30, true));
    // A repetition, and less than there is.
    for bytes in [2 << 30, 1 << 30] {
        let same =
            stage.controller.controller_expand_volume(expand("pvc-1", bytes)).await.unwrap().into_inner();
        assert_eq!(same.capacity_bytes, 2 << 30);
    }
    let mut shrunk = expand("pvc-1", 1 << 20);
    shrunk.capacity_range = Some(CapacityRange { required_bytes: 1 << 20, limit_bytes: 1 << 30 });
    let mut nothing = expand("pvc-1", 1);
    nothing.capacity_range = None;
    for (wanted, code) in [
        (expand("pvc-1", 200 << 30), Code::OutOfRange),
        (shrunk, Code::OutOfRange),
        (nothing, Code::InvalidArgument),
        (expand("", 1), Code::InvalidArgument),
        (expand("pvc-2", 1), Code::NotFound),
    ] {
        let error = stage.controller.controller_expand_volume(wanted.clone()).await.unwrap_err();
        assert_eq!(error.code(), code, "{error} {wanted:?}");
    }
}

#[tokio::test]
async fn volumes_get_another_class() {
    let mut stage = Stage::set().await;
    stage.controller.create_volume(volume("pvc-1", 1)).await.unwrap();
    let modify = |id: &str, pairs: &[(&str, &str)]| ControllerModifyVolumeRequest {
        volume_id: id.to_owned(),
        mutable_parameters: segments(pairs),
        ..Default::default()
    };
    for _ in 0..2 {
        stage.controller.controller_modify_volume(modify("pvc-1", &[("class", "any")])).await.unwrap();
    }
    let wanted = stage_request(segments(&[("class", "any")]));
    let wanted = fleetd::csi::proto::CreateVolumeRequest { capacity_range: None, ..wanted };
    stage.controller.create_volume(wanted).await.unwrap();
    for (wanted, code) in [
        (modify("pvc-1", &[("pool", "pool")]), Code::InvalidArgument),
        (modify("pvc-1", &[("class", "nothing")]), Code::InvalidArgument),
        (modify("pvc-2", &[]), Code::NotFound),
        (modify("", &[]), Code::InvalidArgument),
    ] {
        let error = stage.controller.controller_modify_volume(wanted.clone()).await.unwrap_err();
        assert_eq!(error.code(), code, "{error} {wanted:?}");
    }
}

#[tokio::test]
async fn capabilities_are_confirmed_or_not() {
    let mut stage = Stage::set().await;
    stage.controller.create_volume(volume("pvc-1", 1)).await.unwrap();
    let ask = |capability| ValidateVolumeCapabilitiesRequest {
        volume_id: "pvc-1".to_owned(),
        volume_capabilities: vec![capability],
        ..Default::default()
    };
    let good = ask(block(Mode::MultiNodeMultiWriter));
    let answer = stage.controller.validate_volume_capabilities(good).await.unwrap().into_inner();
    assert!(answer.confirmed.is_some(), "{answer:?}");
    let bad = ask(mount(Mode::MultiNodeMultiWriter));
    let answer = stage.controller.validate_volume_capabilities(bad).await.unwrap().into_inner();
    assert!(answer.confirmed.is_none() && answer.message.contains("Block"), "{answer:?}");
}

#[tokio::test]
async fn a_hundred_attachments_at_once_take_few_writes() {
    let mut stage = Stage::set().await;
    for at in 0..100 {
        stage.controller.create_volume(volume(&format!("pvc-{at}"), 1)).await.unwrap();
    }
    let before = stage.fleet.writes();
    let mut calls = tokio::task::JoinSet::new();
    for at in 0..100 {
        let mut controller = stage.controller.clone();
        calls.spawn(async move {
            let wanted = attachment(&format!("pvc-{at}"), "b", &mount(Mode::SingleNodeWriter));
            controller.controller_publish_volume(wanted).await.map(drop)
        });
    }
    // The driver's patience is short: who was late comes again, as Kubernetes does.
    let mut late = 0;
    while let Some(done) = calls.join_next().await {
        late += usize::from(done.unwrap().is_err());
    }
    for at in 0..if late > 0 { 100 } else { 0 } {
        let wanted = attachment(&format!("pvc-{at}"), "b", &mount(Mode::SingleNodeWriter));
        stage.controller.controller_publish_volume(wanted).await.unwrap();
    }
    let ask = ListVolumesRequest::default();
    let all = stage.controller.list_volumes(ask).await.unwrap().into_inner();
    assert!(all.entries.iter().all(|one| one.status.as_ref().unwrap().published_node_ids == ["b"]));
    // Each call reads three objects and puts one; the fleet grants.
    let writes = stage.fleet.writes() - before;
    assert!(writes <= 100 * (5 + 5 * usize::from(late > 0)) + 1, "{writes} transactions, {late} late");
}
