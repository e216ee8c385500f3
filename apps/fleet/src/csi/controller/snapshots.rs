//! Snapshots: taken, listed, deleted; and the sources of volumes.

use fleet::controller::{Expect, Wait};
use fleet::object::Kind;
use tonic::Status;

use super::volumes::signed;
use super::{Controller, list};
use crate::csi::fleet::{Fleet, FleetError, Item};
use crate::csi::proto::volume_content_source::{SnapshotSource, Type, VolumeSource};
use crate::csi::proto::{
    self, CreateSnapshotRequest, ListSnapshotsRequest, ListSnapshotsResponse, VolumeContentSource,
    list_snapshots_response,
};
use crate::csi::{check, name};
use crate::wire::{Data, Epoch, Name, Object, Snapshot};

/// Keys of parameters that Kubernetes adds, and that are not for the driver.
const FOREIGN: &str = "csi.storage.k8s.io/";

impl<F: Fleet> Controller<F> {
    pub(super) async fn create_snapshot_of(
        &self,
        request: &CreateSnapshotRequest,
    ) -> Result<proto::Snapshot, Status> {
        let id = name::of_volume(check::text("name", &request.name)?);
        let volume = check::text("source_volume_id", &request.source_volume_id)?;
        check::map("parameters", &request.parameters)?;
        if let Some(key) = request.parameters.keys().find(|key| !key.starts_with(FOREIGN)) {
            let shown: String = key.chars().take(128).collect();
            let shown = shown.escape_debug();
            return Err(Status::invalid_argument(format!(
                "the parameter \"{shown}\" is not known here: expected none"
            )));
        }
        if let Some((_, known)) = self.snapshot(&id).await? {
            if known.volume.0 != volume {
                return Err(Status::already_exists(format!(
                    "the snapshot {id} exists, but its volume is {}",
                    known.volume.0
                )));
            }
            if known.delete {
                return Err(Status::aborted(format!(
                    "the snapshot {id} is being deleted: ask again when it is gone"
                )));
            }
        } else {
            self.present(volume).await?;
        }
        let new = Object::Snapshot(Snapshot {
            volume: Name(volume.to_owned()),
            pool: Name(volume.to_owned()),
            bytes: 0,
            taken: None,
            delete: false,
            epoch: Epoch(fleet::Epoch::default()),
        });
        match self.wait(self.fleet.put(&id, new, Expect::Any, Some(Wait::Ready))).await {
            Ok(Some(item)) => cut(&item).ok_or_else(|| missing_snapshot(&id)),
            Ok(None) => Err(self.late(Kind::Snapshot, &id).await),
            Err(FleetError::InUse(reason)) if reason.contains("bytes free") => {
                Err(Status::resource_exhausted(reason))
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn delete_snapshot_with(&self, id: &str) -> Result<(), Status> {
        check::text("snapshot_id", id)?;
        if fleet::Name::new(id).is_err() {
            return Ok(()); // There is no such snapshot.
        }
        match self.wait(self.fleet.delete(Kind::Snapshot, id, Some(Wait::Gone))).await {
            Ok(Some(())) | Err(FleetError::NotFound(_)) => Ok(()),
            Ok(None) => Err(self.late(Kind::Snapshot, id).await),
            Err(error) => Err(error.into()),
        }
    }

    /// One snapshot that was taken.
    pub(super) async fn one_snapshot(&self, id: &str) -> Result<proto::Snapshot, Status> {
        let found = self.snapshot(check::text("snapshot_id", id)?).await?;
        let (item, _) = found.ok_or_else(|| missing_snapshot(id))?;
        match cut(&item) {
            Some(snapshot) => Ok(snapshot),
            None => Err(self.late(Kind::Snapshot, id).await),
        }
    }

    /// One page of the snapshots that were taken.
    pub(super) async fn snapshots(
        &self,
        request: &ListSnapshotsRequest,
    ) -> Result<ListSnapshotsResponse, Status> {
        let ListSnapshotsRequest { max_entries, starting_token, source_volume_id, snapshot_id, .. } = request;
        let all = self.ask(self.fleet.list(Kind::Snapshot)).await?;
        let is_wanted = |item: &Item| {
            let of = cut(item).map(|one| one.source_volume_id);
            of.is_some_and(|of| source_volume_id.is_empty() || of == *source_volume_id)
                && (snapshot_id.is_empty() || item.name == *snapshot_id)
        };
        let wanted = all.into_iter().filter(is_wanted).collect();
        let (page, next_token) = list::page_of(wanted, *max_entries, starting_token)?;
        let entries = page.iter().map(|item| list_snapshots_response::Entry { snapshot: cut(item) });
        Ok(ListSnapshotsResponse { entries: entries.collect(), next_token })
    }

    async fn snapshot(&self, id: &str) -> Result<Option<(Item, Snapshot)>, Status> {
        if fleet::Name::new(id).is_err() {
            return Ok(None);
        }
        match self.ask(self.fleet.get(Kind::Snapshot, id)).await {
            Ok(item) => match item.object.clone() {
                Object::Snapshot(snapshot) => Ok(Some((item, snapshot))),
                other => Err(super::unexpected(id, &other)),
            },
            Err(FleetError::NotFound(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The source of a volume, its pool and its size.
    pub(super) async fn source(
        &self,
        wanted: Option<&VolumeContentSource>,
    ) -> Result<Option<(Data, Name, u64)>, Status> {
        let Some(VolumeContentSource { r#type }) = wanted else { return Ok(None) };
        let (data, pool, bytes) = match r#type {
            None => return Err(Status::invalid_argument("volume_content_source has no type")),
            Some(Type::Snapshot(SnapshotSource { snapshot_id })) => {
                let id = check::text("snapshot_id", snapshot_id)?;
                let found = self.snapshot(id).await?.filter(|(_, one)| !one.delete);
                let (_, one) = found.ok_or_else(|| missing_snapshot(id))?;
                (format!("snapshot/{id}"), Some(one.pool), one.bytes)
            }
            Some(Type::Volume(VolumeSource { volume_id })) => {
                let (_, one) = self.present(volume_id).await?;
                (format!("volume/{volume_id}"), one.pool, one.bytes)
            }
        };
        let pool = pool.ok_or_else(|| Status::aborted(format!("{data} has no pool yet: ask again")))?;
        let data = data.parse().map_err(|error| Status::invalid_argument(format!("{error}")))?;
        Ok(Some((data, pool, bytes)))
    }
}

/// The source of a volume, as CSI has it.
pub(super) fn content_source(source: Option<&Data>) -> Option<VolumeContentSource> {
    let r#type = Some(match &source?.0 {
        fleet::object::Data::Snapshot(name) => {
            Type::Snapshot(SnapshotSource { snapshot_id: name.to_string() })
        }
        fleet::object::Data::Volume(name) => Type::Volume(VolumeSource { volume_id: name.to_string() }),
    });
    Some(VolumeContentSource { r#type })
}

/// A snapshot, as CSI has it; `None` if it is not taken yet.
fn cut(item: &Item) -> Option<proto::Snapshot> {
    let Object::Snapshot(one) = &item.object else { return None };
    let seconds = i64::try_from(one.taken?).unwrap_or(i64::MAX);
    Some(proto::Snapshot {
        size_bytes: signed(one.bytes),
        snapshot_id: item.name.clone(),
        source_volume_id: one.volume.0.clone(),
        creation_time: Some(prost_types::Timestamp { seconds, nanos: 0 }),
        ready_to_use: true,
        ..Default::default()
    })
}

/// The error for a snapshot that is not there.
fn missing_snapshot(id: &str) -> Status {
    let shown: String = id.chars().take(128).collect();
    Status::not_found(format!("there is no snapshot \"{}\"", shown.escape_debug()))
}
