//! The Identity service: what the driver is, and what it can do.

use tonic::{Request, Response, Status};

use super::proto::identity_server;
use super::proto::plugin_capability::service::Type as ServiceType;
use super::proto::plugin_capability::volume_expansion::Type as ExpansionType;
use super::proto::plugin_capability::{Service, Type, VolumeExpansion};
use super::proto::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    PluginCapability, ProbeRequest, ProbeResponse,
};

/// The driver's name, as StorageClasses have it.
pub const DRIVER: &str = "csi.farlane.io";

/// The Identity service.
#[derive(Clone, Copy, Debug, Default)]
pub struct Identity;

#[tonic::async_trait]
impl identity_server::Identity for Identity {
    async fn get_plugin_info(
        &self,
        _request: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        let vendor_version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Response::new(GetPluginInfoResponse {
            name: DRIVER.to_owned(),
            vendor_version,
            ..Default::default()
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _request: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        // Both halves of a driver name the whole driver's capabilities.
        let service = |one: ServiceType| Type::Service(Service { r#type: one.into() });
        let expansion = |one: ExpansionType| Type::VolumeExpansion(VolumeExpansion { r#type: one.into() });
        let all = [
            service(ServiceType::ControllerService),
            service(ServiceType::VolumeAccessibilityConstraints),
            expansion(ExpansionType::Online),
        ];
        let capabilities = all.map(|one| PluginCapability { r#type: Some(one) }).to_vec();
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities }))
    }

    /// The driver needs nothing that could be missing: a fleet that does not answer is an error of
    /// the call that needs it, and no reason to restart the driver.
    async fn probe(&self, _request: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        Ok(Response::new(ProbeResponse { ready: Some(true) }))
    }
}
