//! The Node service: devices that the fleet's agent has connected are formatted and mounted.
//!
//! It keeps nothing: each call looks at the kernel. One that was killed in the middle is repeated.

mod kernel;
mod linux;
mod mountinfo;
mod paths;
mod program;
mod publish;
mod stage;
mod state;
mod sysfs;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tonic::{Request, Response, Status};

pub use kernel::{Device, Machine, MachineError, Mount, Number, Used};
pub use linux::Linux;

use super::capability::Usage;
use super::parameters::{NODE, TOPOLOGY};
use super::proto::node_server;
use super::proto::node_service_capability::rpc::Type as RpcType;
use super::proto::node_service_capability::{Rpc, Type};
use super::proto::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest,
    NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse, NodeGetStorageHealthRequest,
    NodeGetStorageHealthResponse, NodeGetVolumeHealthRequest, NodeGetVolumeHealthResponse,
    NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodePublishVolumeRequest,
    NodePublishVolumeResponse, NodeServiceCapability, NodeStageVolumeRequest, NodeStageVolumeResponse,
    NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse, NodeUnstageVolumeRequest,
    NodeUnstageVolumeResponse, Topology,
};
use super::{NQN, check, logged};
use publish::Publication;

/// How long a call takes at most. What it has begun goes on, and its caller comes again.
const CALL: Duration = Duration::from_secs(110);
/// The longest NVMe Qualified Name in bytes (NVM Express Base 2.1, 4.7).
const NQN_BYTES_MAX: usize = 223;
/// What the service can do.
const CAPABILITIES: [RpcType; 6] = [
    RpcType::StageUnstageVolume,
    RpcType::GetVolumeStats,
    RpcType::ExpandVolume,
    RpcType::SingleNodeMultiWriter,
    RpcType::GetVolumeHealth,
    RpcType::GetStorageHealth,
];

/// What a Node service is to know.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// The name of the machine in the fleet.
    pub node: fleet::Name,
    /// Labels of the machine that make up its topology; its own name if there are none.
    pub labels: BTreeMap<String, String>,
    /// The most volumes that the machine is to have; 0 for no limit.
    pub volumes_max: u64,
    /// How long to wait for a device that the fleet's agent is to connect.
    pub patience: Duration,
}

/// The Node service.
#[derive(Debug)]
pub struct Node<M> {
    machine: Arc<M>,
    settings: NodeSettings,
    /// Volumes that calls are at work on.
    busy: Arc<Mutex<BTreeSet<String>>>,
}

/// A volume that one call has to itself.
struct Turn {
    volume: String,
    busy: Arc<Mutex<BTreeSet<String>>>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.volume);
    }
}

impl<M: Machine> Node<M> {
    /// A service for this machine.
    pub fn new(machine: M, settings: NodeSettings) -> Self {
        Self { machine: Arc::new(machine), settings, busy: Arc::default() }
    }

    /// A volume for one call.
    fn turn(&self, volume: &str) -> Result<Turn, Status> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        if busy.insert(volume.to_owned()) {
            return Ok(Turn { volume: volume.to_owned(), busy: Arc::clone(&self.busy) });
        }
        Err(Status::aborted(pending(volume)))
    }

    /// Does what blocks, for one volume at a time.
    async fn work<T: Send + 'static>(
        &self,
        volume: &str,
        work: impl FnOnce(&M, Duration) -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        let turn = self.turn(volume)?;
        let (machine, patience) = (Arc::clone(&self.machine), self.settings.patience);
        let work = spawn_blocking(move || {
            let _turn = turn;
            work(&machine, patience)
        });
        match timeout(CALL, work).await {
            Ok(Ok(done)) => done,
            Ok(Err(error)) => Err(Status::internal(format!("a call has failed: {error}"))),
            Err(_) => Err(Status::deadline_exceeded(pending(volume))),
        }
    }

    async fn stage(&self, request: NodeStageVolumeRequest) -> Result<(), Status> {
        let id = check::text("volume_id", &request.volume_id)?.to_owned();
        let point = check::path("staging_target_path", &request.staging_target_path)?;
        let usage = Usage::parse(request.volume_capability.as_ref())?;
        let nqn = nqn_of(&request.publish_context)?;
        self.work(&id, move |machine, patience| {
            stage::stage(machine, &nqn, &paths::canonical(&point), &usage, patience)
        })
        .await
    }

    async fn publish(&self, request: NodePublishVolumeRequest) -> Result<(), Status> {
        let id = check::text("volume_id", &request.volume_id)?.to_owned();
        let target = check::path("target_path", &request.target_path)?;
        let usage = Usage::parse(request.volume_capability.as_ref())?;
        if request.staging_target_path.is_empty() {
            return Err(Status::failed_precondition(
                "staging_target_path is missing: stage the volume first",
            ));
        }
        let staging = check::path("staging_target_path", &request.staging_target_path)?;
        let nqn = nqn_of(&request.publish_context)?;
        self.work(&id, move |machine, patience| {
            let (staging, target) = (paths::canonical(&staging), paths::canonical(&target));
            let read_only = request.readonly;
            let one = Publication { nqn: &nqn, staging: &staging, target: &target, usage: &usage, read_only };
            publish::publish(machine, &one, patience)
        })
        .await
    }

    /// Does what needs only a path.
    async fn at_path<T: Send + 'static>(
        &self,
        id: &str,
        path: PathBuf,
        work: impl FnOnce(&M, &Path) -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        self.work(id, move |machine, _| work(machine, &paths::canonical(&path))).await
    }

    /// The topology of the machine.
    fn topology(&self) -> Topology {
        let labels = self.settings.labels.iter();
        let mut segments: std::collections::HashMap<_, _> =
            labels.map(|(key, value)| (format!("{TOPOLOGY}{key}"), value.clone())).collect();
        if segments.is_empty() {
            segments.insert(NODE.to_owned(), self.settings.node.to_string());
        }
        Topology { segments }
    }
}

/// What the caller of a second call at a time learns.
fn pending(volume: &str) -> String {
    format!("another call is at work on the volume {}: ask again", volume.escape_debug())
}

/// The name of the subsystem, from what ControllerPublishVolume has answered.
fn nqn_of(context: &std::collections::HashMap<String, String>) -> Result<String, Status> {
    check::map("publish_context", context)?;
    let Some(nqn) = context.get(NQN) else {
        return Err(Status::invalid_argument(format!(
            "publish_context has no {NQN}: the driver's CSIDriver object must say attachRequired: true"
        )));
    };
    let is_name = nqn.starts_with("nqn.") && nqn.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_name || nqn.len() > NQN_BYTES_MAX {
        return Err(Status::invalid_argument(format!(
            "publish_context has {NQN} = \"{}\": expected an NVMe Qualified Name",
            nqn.escape_debug()
        )));
    }
    Ok(nqn.clone())
}

/// A path where a volume must be. One that is none has no volume.
fn known_path(field: &str, value: &str) -> Result<PathBuf, Status> {
    if value.is_empty() {
        return Err(Status::invalid_argument(format!("{field} is missing")));
    }
    check::path(field, value).map_err(|error| Status::not_found(error.message().to_owned()))
}

#[tonic::async_trait]
impl<M: Machine> node_server::Node for Node<M> {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        let request = request.into_inner();
        let (id, point) = (request.volume_id.clone(), request.staging_target_path.clone());
        let done = self.stage(request).await.map(|()| NodeStageVolumeResponse {});
        logged("NodeStageVolume", &id, &point, done)
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        let NodeUnstageVolumeRequest { volume_id, staging_target_path } = request.into_inner();
        check::text("volume_id", &volume_id)?;
        let path = check::path("staging_target_path", &staging_target_path)?;
        let done = self.at_path(&volume_id, path, |machine, path| stage::unstage(machine, path)).await;
        let done = done.map(|()| NodeUnstageVolumeResponse {});
        logged("NodeUnstageVolume", &volume_id, &staging_target_path, done)
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let (id, target) = (request.volume_id.clone(), request.target_path.clone());
        let done = self.publish(request).await.map(|()| NodePublishVolumeResponse {});
        logged("NodePublishVolume", &id, &target, done)
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let NodeUnpublishVolumeRequest { volume_id, target_path } = request.into_inner();
        check::text("volume_id", &volume_id)?;
        let path = check::path("target_path", &target_path)?;
        let done = self.at_path(&volume_id, path, |machine, path| publish::unpublish(machine, path)).await;
        let done = done.map(|()| NodeUnpublishVolumeResponse {});
        logged("NodeUnpublishVolume", &volume_id, &target_path, done)
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        let request = request.into_inner();
        let id = check::text("volume_id", &request.volume_id)?;
        let path = known_path("volume_path", &request.volume_path)?;
        let usage = self.at_path(id, path, |machine, path| state::usage(machine, path)).await?;
        Ok(Response::new(NodeGetVolumeStatsResponse { usage }))
    }

    async fn node_get_volume_health(
        &self,
        request: Request<NodeGetVolumeHealthRequest>,
    ) -> Result<Response<NodeGetVolumeHealthResponse>, Status> {
        let request = request.into_inner();
        let id = check::text("volume_id", &request.volume_id)?.to_owned();
        let mut paths = Vec::new();
        for path in [&request.staging_target_path, &request.volume_publish_path] {
            if !path.is_empty() {
                paths.push(known_path("a path", path)?);
            }
        }
        let entries = self
            .work(&id, move |machine, _| {
                let paths = paths.iter().map(|path| paths::canonical(path)).collect::<Vec<_>>();
                state::health(machine, &paths)
            })
            .await?;
        Ok(Response::new(state::health_of(id, entries)))
    }

    async fn node_get_storage_health(
        &self,
        _request: Request<NodeGetStorageHealthRequest>,
    ) -> Result<Response<NodeGetStorageHealthResponse>, Status> {
        let backend_health = state::storage_health(&*self.machine);
        Ok(Response::new(NodeGetStorageHealthResponse { backend_health }))
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Result<Response<NodeExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        let id = check::text("volume_id", &request.volume_id)?.to_owned();
        let path = known_path("volume_path", &request.volume_path)?;
        let required = request.capacity_range.map_or(0, |range| range.required_bytes);
        let Ok(required) = u64::try_from(required) else {
            return Err(Status::out_of_range(format!(
                "a size of {required} bytes: expected no negative number"
            )));
        };
        let done = self
            .work(&id, move |machine, patience| {
                state::grow(machine, &paths::canonical(&path), required, patience)
            })
            .await;
        let done = done.map(|capacity_bytes| NodeExpandVolumeResponse { capacity_bytes });
        logged("NodeExpandVolume", &id, &request.volume_path, done)
    }

    async fn node_get_capabilities(
        &self,
        _request: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        let all = CAPABILITIES.map(|one| {
            let rpc = Type::Rpc(Rpc { r#type: one.into() });
            NodeServiceCapability { r#type: Some(rpc) }
        });
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities: all.to_vec() }))
    }

    async fn node_get_info(
        &self,
        _request: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        Ok(Response::new(NodeGetInfoResponse {
            node_id: self.settings.node.to_string(),
            max_volumes_per_node: i64::try_from(self.settings.volumes_max).unwrap_or(i64::MAX),
            accessible_topology: Some(self.topology()),
        }))
    }
}
