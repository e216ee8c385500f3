//! The Controller service: volumes and their attachments, as calls of a fleet.

mod attachments;
mod capacity;
mod list;
mod snapshots;
mod volumes;

use std::future::Future;
use std::time::Duration;

use fleet::object::Kind;
use tokio::time::timeout;
use tonic::{Request, Response, Status};

use super::capability;
use super::fleet::{Fleet, FleetError, Item, Progress};
use super::parameters::Parameters;
use super::proto::controller_server;
use super::proto::controller_service_capability::rpc::Type as RpcType;
use super::proto::controller_service_capability::{Rpc, Type};
use super::proto::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerGetCapabilitiesRequest,
    ControllerGetCapabilitiesResponse, ControllerGetVolumeHealthRequest, ControllerGetVolumeHealthResponse,
    ControllerGetVolumeRequest, ControllerGetVolumeResponse, ControllerListVolumeHealthRequest,
    ControllerListVolumeHealthResponse, ControllerModifyVolumeRequest, ControllerModifyVolumeResponse,
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, ControllerServiceCapability,
    ControllerUnpublishVolumeRequest, ControllerUnpublishVolumeResponse, CreateSnapshotRequest,
    CreateSnapshotResponse, CreateVolumeRequest, CreateVolumeResponse, DeleteSnapshotRequest,
    DeleteSnapshotResponse, DeleteVolumeRequest, DeleteVolumeResponse, GetCapacityRequest,
    GetCapacityResponse, GetSnapshotRequest, GetSnapshotResponse, ListSnapshotsRequest,
    ListSnapshotsResponse, ListVolumesRequest, ListVolumesResponse, ValidateVolumeCapabilitiesRequest,
    ValidateVolumeCapabilitiesResponse, validate_volume_capabilities_response,
};
use super::{check, logged};
use crate::wire::{Object, Volume};

/// What the service can do.
const CAPABILITIES: [RpcType; 16] = [
    RpcType::CreateDeleteVolume,
    RpcType::PublishUnpublishVolume,
    RpcType::ListVolumes,
    RpcType::GetCapacity,
    RpcType::PublishReadonly,
    RpcType::ExpandVolume,
    RpcType::ListVolumesPublishedNodes,
    RpcType::GetVolume,
    RpcType::SingleNodeMultiWriter,
    RpcType::ModifyVolume,
    RpcType::GetVolumeHealth,
    RpcType::ListVolumeHealth,
    RpcType::CreateDeleteSnapshot,
    RpcType::ListSnapshots,
    RpcType::GetSnapshot,
    RpcType::CloneVolume,
];

/// The Controller service.
#[derive(Debug)]
pub struct Controller<F> {
    fleet: F,
    /// How long a call waits for the fleet. Its caller comes again.
    patience: Duration,
    /// The most volumes that are attached to one node; 0 for no limit.
    volumes_max: u64,
}

impl<F: Fleet> Controller<F> {
    /// A service that asks this fleet, waits so long for it, and attaches at most so many volumes
    /// to a node (0 for no limit).
    pub const fn new(fleet: F, patience: Duration, volumes_max: u64) -> Self {
        Self { fleet, patience, volumes_max }
    }

    /// Waits for an answer of the fleet; `None` when that takes too long.
    async fn wait<T>(
        &self,
        answer: impl Future<Output = Result<T, FleetError>> + Send,
    ) -> Result<Option<T>, FleetError> {
        timeout(self.patience, answer).await.ok().transpose()
    }

    /// Waits for an answer of the fleet that takes no work of machines.
    async fn ask<T>(
        &self,
        answer: impl Future<Output = Result<T, FleetError>> + Send,
    ) -> Result<T, FleetError> {
        let late =
            || FleetError::Unavailable(format!("the fleet has not answered within {:?}", self.patience));
        self.wait(answer).await?.ok_or_else(late)
    }

    /// A volume, if there is one.
    async fn volume(&self, id: &str) -> Result<Option<(Item, Volume)>, Status> {
        if fleet::Name::new(id).is_err() {
            return Ok(None);
        }
        match self.ask(self.fleet.get(Kind::Volume, id)).await {
            Ok(item) => match item.object.clone() {
                Object::Volume(volume) => Ok(Some((item, volume))),
                other => Err(unexpected(id, &other)),
            },
            Err(FleetError::NotFound(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A volume that must be there.
    async fn present(&self, id: &str) -> Result<(Item, Volume), Status> {
        self.volume(check::text("volume_id", id)?).await?.ok_or_else(|| missing_volume(id))
    }

    /// The answer to a call that has waited long enough: what it waits for. The call goes on in the
    /// fleet, and its caller comes again.
    async fn late(&self, kind: Kind, name: &str) -> Status {
        let waited = format!("the {} {name} is not ready after {:?}", kind.word(), self.patience);
        match self.ask(self.fleet.get(kind, name)).await {
            Ok(Item { progress: Progress::Stuck(reason), .. }) => {
                Status::unavailable(format!("{waited}: {reason}"))
            }
            Ok(Item { progress: Progress::Pending(reason), .. }) => {
                Status::aborted(format!("{waited}: {reason}"))
            }
            Ok(_) | Err(FleetError::NotFound(_)) => Status::aborted(format!("{waited}: ask again")),
            Err(error) => Status::unavailable(format!("{waited}: {error}")),
        }
    }
}

/// The error for a volume that is not there.
fn missing_volume(id: &str) -> Status {
    let shown: String = id.chars().take(128).collect();
    Status::not_found(format!("there is no volume \"{}\"", shown.escape_debug()))
}

/// The error for an answer that is about something else.
fn unexpected(name: &str, object: &Object) -> Status {
    let kind = match object {
        Object::Volume(_) => "volume",
        Object::Attachment(_) => "attachment",
        Object::Snapshot(_) => "snapshot",
        _ => "thing of another kind",
    };
    Status::internal(format!(
        "the fleet's answer about {name} is a {kind}: are driver and fleet of one version?"
    ))
}

#[tonic::async_trait]
impl<F: Fleet> controller_server::Controller for Controller<F> {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        let request = request.into_inner();
        logged("CreateVolume", &request.name, "", self.create(&request).await)
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        let id = request.into_inner().volume_id;
        logged("DeleteVolume", &id, "", self.delete(&id).await.map(|()| DeleteVolumeResponse {}))
    }

    async fn controller_publish_volume(
        &self,
        request: Request<ControllerPublishVolumeRequest>,
    ) -> Result<Response<ControllerPublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let answer = self.publish(&request).await;
        logged("ControllerPublishVolume", &request.volume_id, &request.node_id, answer)
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<ControllerUnpublishVolumeResponse>, Status> {
        let ControllerUnpublishVolumeRequest { volume_id, node_id, .. } = request.into_inner();
        let answer = self.unpublish(&volume_id, &node_id).await;
        let answer = answer.map(|()| ControllerUnpublishVolumeResponse {});
        logged("ControllerUnpublishVolume", &volume_id, &node_id, answer)
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<ValidateVolumeCapabilitiesResponse>, Status> {
        let request = request.into_inner();
        check::text("volume_id", &request.volume_id)?;
        if request.volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("volume_capabilities are missing"));
        }
        self.present(&request.volume_id).await?;
        let usages = capability::parse_all(&request.volume_capabilities);
        let parameters = Parameters::parse(&request.parameters, &request.mutable_parameters);
        let refused = usages.err().or(parameters.err());
        Ok(Response::new(match refused {
            Some(reason) => {
                let message = reason.message().to_owned();
                ValidateVolumeCapabilitiesResponse { confirmed: None, message }
            }
            None => ValidateVolumeCapabilitiesResponse {
                confirmed: Some(validate_volume_capabilities_response::Confirmed {
                    volume_context: request.volume_context,
                    volume_capabilities: request.volume_capabilities,
                    parameters: request.parameters,
                    mutable_parameters: request.mutable_parameters,
                }),
                message: String::new(),
            },
        }))
    }

    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Result<Response<ListVolumesResponse>, Status> {
        let ListVolumesRequest { max_entries, starting_token } = request.into_inner();
        self.page(max_entries, &starting_token).await.map(Response::new)
    }

    async fn controller_list_volume_health(
        &self,
        request: Request<ControllerListVolumeHealthRequest>,
    ) -> Result<Response<ControllerListVolumeHealthResponse>, Status> {
        let request = request.into_inner();
        self.ailing(request.max_entries, &request.starting_token).await.map(Response::new)
    }

    async fn controller_get_volume_health(
        &self,
        request: Request<ControllerGetVolumeHealthRequest>,
    ) -> Result<Response<ControllerGetVolumeHealthResponse>, Status> {
        self.health(&request.into_inner().volume_id).await.map(Response::new)
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        self.capacity(&request.into_inner()).await.map(Response::new)
    }

    async fn controller_get_capabilities(
        &self,
        _request: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        let all = CAPABILITIES.map(|one| {
            let rpc = Type::Rpc(Rpc { r#type: one.into() });
            ControllerServiceCapability { r#type: Some(rpc) }
        });
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities: all.to_vec() }))
    }

    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Result<Response<ControllerExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        logged("ControllerExpandVolume", &request.volume_id, "", self.expand(&request).await)
    }

    async fn controller_get_volume(
        &self,
        request: Request<ControllerGetVolumeRequest>,
    ) -> Result<Response<ControllerGetVolumeResponse>, Status> {
        self.one(&request.into_inner().volume_id).await.map(Response::new)
    }

    async fn controller_modify_volume(
        &self,
        request: Request<ControllerModifyVolumeRequest>,
    ) -> Result<Response<ControllerModifyVolumeResponse>, Status> {
        let request = request.into_inner();
        let answer = self.modify(&request).await.map(|()| ControllerModifyVolumeResponse {});
        logged("ControllerModifyVolume", &request.volume_id, "", answer)
    }

    async fn create_snapshot(
        &self,
        request: Request<CreateSnapshotRequest>,
    ) -> Result<Response<CreateSnapshotResponse>, Status> {
        let request = request.into_inner();
        let answer = self.create_snapshot_of(&request).await;
        let answer = answer.map(|snapshot| CreateSnapshotResponse { snapshot: Some(snapshot) });
        logged("CreateSnapshot", &request.source_volume_id, &request.name, answer)
    }

    async fn delete_snapshot(
        &self,
        request: Request<DeleteSnapshotRequest>,
    ) -> Result<Response<DeleteSnapshotResponse>, Status> {
        let id = request.into_inner().snapshot_id;
        let answer = self.delete_snapshot_with(&id).await;
        logged("DeleteSnapshot", "", &id, answer.map(|()| DeleteSnapshotResponse {}))
    }

    async fn list_snapshots(
        &self,
        request: Request<ListSnapshotsRequest>,
    ) -> Result<Response<ListSnapshotsResponse>, Status> {
        self.snapshots(&request.into_inner()).await.map(Response::new)
    }

    async fn get_snapshot(
        &self,
        request: Request<GetSnapshotRequest>,
    ) -> Result<Response<GetSnapshotResponse>, Status> {
        let snapshot = self.one_snapshot(&request.into_inner().snapshot_id).await?;
        Ok(Response::new(GetSnapshotResponse { snapshot: Some(snapshot) }))
    }
}
