//! Where there is space for volumes of a class, for a host.

use std::collections::HashMap;

use fleet::object::Kind;
use tonic::Status;

use super::Controller;
use super::volumes::signed;
use crate::csi::fleet::{Fleet, FleetError, Progress, Space};
use crate::csi::parameters::{NODE, Parameters, TOPOLOGY};
use crate::csi::proto::{GetCapacityRequest, GetCapacityResponse, Topology, TopologyRequirement};
use crate::csi::{capability, check};
use crate::wire::Object;

/// The most topologies of a request.
const TOPOLOGIES_MAX: usize = 4096;

impl<F: Fleet> Controller<F> {
    pub(super) async fn capacity(&self, request: &GetCapacityRequest) -> Result<GetCapacityResponse, Status> {
        if !request.volume_capabilities.is_empty() {
            capability::parse_all(&request.volume_capabilities)?;
        }
        let Parameters { class, pool } = Parameters::parse(&request.parameters, &HashMap::new())?;
        let near = match &request.accessible_topology {
            Some(topology) => match self.node_of(topology).await? {
                Some(near) => Some(near),
                // No machine is there: no volume is reached from there.
                None if !topology.segments.is_empty() => return Ok(GetCapacityResponse::default()),
                None => None,
            },
            None => None,
        };
        let spaces = self.spaces(class.as_deref(), near.as_deref(), pool.as_deref()).await?;
        let available = spaces.iter().fold(0, |sum: u64, one| sum.saturating_add(one.free));
        let most = spaces.iter().map(|one| one.free).max().unwrap_or(0);
        Ok(GetCapacityResponse {
            available_capacity: signed(available),
            maximum_volume_size: Some(signed(most)),
            minimum_volume_size: None,
        })
    }

    /// The pools whose machines are away, of all or of the one that is named.
    pub(super) async fn pools_away(&self, pool: Option<&str>) -> Result<Vec<String>, Status> {
        let nodes = self.ask(self.fleet.list(Kind::Node)).await?;
        let is_away =
            |node: &str| nodes.iter().any(|one| one.name == node && one.progress != Progress::Ready);
        let pools = self.ask(self.fleet.list(Kind::Pool)).await?;
        let away = pools.into_iter().filter(|one| {
            let is_meant = pool.is_none_or(|pool| pool == one.name);
            is_meant && matches!(&one.object, Object::Pool(pool) if is_away(&pool.node.0))
        });
        Ok(away.map(|one| one.name).collect())
    }

    /// The free space of the pools that are fit for a volume.
    pub(super) async fn spaces(
        &self,
        class: Option<&str>,
        near: Option<&str>,
        pool: Option<&str>,
    ) -> Result<Vec<Space>, Status> {
        let mut spaces = match self.ask(self.fleet.space(class, near)).await {
            Ok(spaces) => spaces,
            Err(FleetError::NotFound(reason)) => return Err(Status::invalid_argument(reason)),
            Err(error) => return Err(error.into()),
        };
        if let Some(pool) = pool {
            spaces.retain(|one| one.pool == pool);
        }
        Ok(spaces)
    }

    /// The machine near which a volume is to be: of the preferred topologies the first that has
    /// one, else of the required ones.
    pub(super) async fn near(&self, wanted: Option<&TopologyRequirement>) -> Result<Option<String>, Status> {
        let Some(TopologyRequirement { requisite, preferred }) = wanted else { return Ok(None) };
        check::count("preferred topologies", preferred, TOPOLOGIES_MAX)?;
        check::count("requisite topologies", requisite, TOPOLOGIES_MAX)?;
        let mut is_any = preferred.is_empty() && requisite.is_empty();
        for topology in preferred.iter().chain(requisite) {
            is_any |= topology.segments.is_empty();
            if let Some(node) = self.node_of(topology).await? {
                return Ok(Some(node));
            }
        }
        if is_any {
            return Ok(None);
        }
        Err(Status::resource_exhausted("none of the wanted topologies has a machine of the fleet"))
    }

    /// The first machine of a topology; `None` if there is none.
    async fn node_of(&self, topology: &Topology) -> Result<Option<String>, Status> {
        check::map("a topology", &topology.segments)?;
        let segments = &topology.segments;
        if segments.is_empty() {
            return Ok(None);
        }
        if let (Some(node), 1) = (segments.get(NODE), segments.len()) {
            if fleet::Name::new(node).is_err() {
                return Ok(None);
            }
            return match self.ask(self.fleet.get(Kind::Node, node)).await {
                Ok(_) => Ok(Some(node.clone())),
                Err(FleetError::NotFound(_)) => Ok(None),
                Err(error) => Err(error.into()),
            };
        }
        for item in self.ask(self.fleet.list(Kind::Node)).await? {
            let Object::Node(node) = &item.object else { continue };
            let has = |(key, value): (&String, &String)| match key.strip_prefix(TOPOLOGY) {
                Some("node") => *value == item.name,
                Some(label) => node.labels.get(label) == Some(value),
                None => false,
            };
            if segments.iter().all(has) {
                return Ok(Some(item.name));
            }
        }
        Ok(None)
    }
}
