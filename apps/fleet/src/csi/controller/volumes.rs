//! Volumes: created, deleted, expanded, given another class.

use std::time::Instant;

use fleet::controller::{Expect, Wait};
use fleet::object::Kind;
use tonic::Status;

use super::attachments::LOOK;
use super::snapshots::content_source;
use super::{Controller, missing_volume};
use crate::csi::capability;
use crate::csi::fleet::{Fleet, FleetError, Item};
use crate::csi::parameters::Parameters;
use crate::csi::proto::{
    self, CapacityRange, ControllerExpandVolumeRequest, ControllerExpandVolumeResponse,
    ControllerModifyVolumeRequest, CreateVolumeRequest, CreateVolumeResponse, VolumeContentSource,
};
use crate::csi::{check, name};
use crate::wire::{Data, Epoch, Name, Object, Volume};

/// The size of a volume whose user names none.
const BYTES_DEFAULT: u64 = 1 << 30;
/// Sizes are multiples of this.
const BYTES_STEP: u64 = 4096;

impl<F: Fleet> Controller<F> {
    pub(super) async fn create(&self, request: &CreateVolumeRequest) -> Result<CreateVolumeResponse, Status> {
        let id = name::of_volume(check::text("name", &request.name)?);
        capability::parse_all(&request.volume_capabilities)?;
        let parameters = Parameters::parse(&request.parameters, &request.mutable_parameters)?;
        let range = Range::parse(request.capacity_range.as_ref())?;
        let known = match self.volume(&id).await? {
            Some((_, volume)) => {
                let wanted = request.volume_content_source.as_ref();
                has_source(&id, &volume, wanted)?;
                volume
            }
            None => {
                let source = self.source(request.volume_content_source.as_ref()).await?;
                if let Some(source) = source {
                    match self.create_from(&id, &parameters, source, &range).await? {
                        Some(volume) => return Ok(response(&id, &volume)),
                        None => {
                            return Err(Status::aborted(format!("the volume {id} was just made: ask again")));
                        }
                    }
                }
                let topology = request.accessibility_requirements.as_ref();
                let near = self.near(topology).await?;
                match self.create_new(&id, &parameters, near, range.wanted()?).await? {
                    Some(volume) => return Ok(response(&id, &volume)),
                    // Another call has created it meanwhile.
                    None => self.present(&id).await?.1,
                }
            }
        };
        is_compatible(&id, &known, &parameters, &range)?;
        // The call is a repetition: it only waits.
        let revision = None;
        let volume = self.put_volume(&id, known, revision).await?;
        Ok(response(&id, &volume))
    }

    /// Creates a volume that begins with the data of its source, in the pool of that; `None` if
    /// there is one of that name.
    async fn create_from(
        &self,
        id: &str,
        parameters: &Parameters,
        (source, pool, bytes): (Data, Name, u64),
        range: &Range,
    ) -> Result<Option<Volume>, Status> {
        if parameters.pool.as_ref().is_some_and(|wanted| *wanted != pool.0) {
            return Err(Status::invalid_argument(format!(
                "{source} is in the pool {}, and so is what is made from it: choose a StorageClass with that \
                 pool, or without one",
                pool.0
            )));
        }
        let least = Range { required: range.required.max(bytes), limit: range.limit };
        let new = Volume {
            bytes: least.wanted()?,
            class: parameters.class.clone().map(Name),
            near: None,
            pool: Some(pool),
            delete: false,
            epoch: Epoch(fleet::Epoch::default()),
            admitted: Vec::new(),
            source: Some(source.clone()),
            copied: false,
        };
        let made = self.put_new(id, new).await?;
        if made.as_ref().is_some_and(|made| made.source.as_ref() != Some(&source)) {
            return Err(Status::internal(format!(
                "the volume {id} is empty instead of {source}: update all controllers of the fleet, then delete \
                 it"
            )));
        }
        Ok(made)
    }

    /// Creates a volume; `None` if there is one of that name.
    async fn create_new(
        &self,
        id: &str,
        parameters: &Parameters,
        near: Option<String>,
        bytes: u64,
    ) -> Result<Option<Volume>, Status> {
        let Parameters { class, pool } = parameters;
        let until = Instant::now() + self.patience;
        loop {
            let spaces = self.spaces(class.as_deref(), near.as_deref(), pool.as_deref()).await?;
            let most = spaces.iter().map(|one| one.free).max().unwrap_or(0);
            if most >= bytes && !spaces.is_empty() {
                break;
            }
            // A caller would look for room elsewhere. That of a machine that is away comes back.
            let away = self.pools_away(pool.as_deref()).await?;
            if away.is_empty() {
                return Err(Status::resource_exhausted(format!(
                    "no pool is fit for {bytes} bytes, the most is {most}: see `farlane fleet pool list`, and \
                     the predictions for the class"
                )));
            }
            if Instant::now() >= until {
                return Err(Status::unavailable(format!(
                    "no pool is fit for {bytes} bytes while the agents of these are away: {}; ask again",
                    away.join(", ")
                )));
            }
            tokio::time::sleep(LOOK).await;
        }
        let new = Volume {
            bytes,
            class: class.clone().map(Name),
            near: near.map(Name),
            pool: pool.clone().map(Name),
            delete: false,
            epoch: Epoch(fleet::Epoch::default()),
            admitted: Vec::new(),
            source: None,
            copied: false,
        };
        self.put_new(id, new).await
    }

    /// Puts a volume that is new, and waits until its owner has it; `None` if there is one of that
    /// name.
    async fn put_new(&self, id: &str, new: Volume) -> Result<Option<Volume>, Status> {
        let put = self.fleet.put(id, Object::Volume(new), Expect::Revision(0), Some(Wait::Ready));
        match self.wait(put).await {
            Ok(Some(item)) => Ok(Some(volume_of(item)?)),
            Ok(None) => Err(self.give_up(id).await),
            Err(FleetError::Changed(_)) => Ok(None),
            // The space has gone to another volume meanwhile.
            Err(FleetError::InUse(reason)) => Err(Status::resource_exhausted(reason)),
            Err(error) => Err(error.into()),
        }
    }

    /// The answer for a volume that has not become ready. One without a pool takes no space, and is
    /// deleted, so that Kubernetes may look for another node.
    async fn give_up(&self, id: &str) -> Status {
        let late = self.late(Kind::Volume, id).await;
        match self.volume(id).await {
            Ok(Some((_, volume))) if volume.pool.is_none() => {
                let _ = self.wait(self.fleet.delete(Kind::Volume, id, None)).await;
                Status::resource_exhausted(late.message().to_owned())
            }
            _ => late,
        }
    }

    /// Puts a volume, and waits until its owner has it.
    async fn put_volume(&self, id: &str, volume: Volume, revision: Option<u64>) -> Result<Volume, Status> {
        let expect = revision.map_or(Expect::Present, Expect::Revision);
        let put = self.fleet.put(id, Object::Volume(volume), expect, Some(Wait::Ready));
        match self.wait(put).await? {
            Some(item) => volume_of(item),
            None => Err(self.late(Kind::Volume, id).await),
        }
    }

    pub(super) async fn delete(&self, id: &str) -> Result<(), Status> {
        check::text("volume_id", id)?;
        if fleet::Name::new(id).is_err() {
            return Ok(()); // There is no such volume.
        }
        match self.wait(self.fleet.delete(Kind::Volume, id, Some(Wait::Gone))).await {
            Ok(Some(())) | Err(FleetError::NotFound(_)) => Ok(()),
            Ok(None) => Err(self.late(Kind::Volume, id).await),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn expand(
        &self,
        request: &ControllerExpandVolumeRequest,
    ) -> Result<ControllerExpandVolumeResponse, Status> {
        let id = check::text("volume_id", &request.volume_id)?;
        let Some(range) = &request.capacity_range else {
            return Err(Status::invalid_argument("capacity_range is missing"));
        };
        let range = Range::parse(Some(range))?;
        if let Some(capability) = &request.volume_capability {
            capability::Usage::parse(Some(capability))?;
        }
        let (item, known) = self.present(id).await?;
        let bytes = if known.bytes >= range.required { known.bytes } else { range.wanted()? };
        if range.limit.is_some_and(|limit| bytes > limit) {
            return Err(Status::out_of_range(format!(
                "the volume {id} has {bytes} bytes, more than the limit, and cannot shrink"
            )));
        }
        self.has_space_for(&known, bytes).await?;
        let new = Volume { bytes, ..known };
        let volume = self.put_volume(id, new, Some(item.revision)).await?;
        // The node waits until its kernel has the new size, for block devices, too.
        Ok(ControllerExpandVolumeResponse {
            capacity_bytes: signed(volume.bytes),
            node_expansion_required: true,
        })
    }

    /// Checks that a volume's pool has space for so many bytes of it.
    async fn has_space_for(&self, volume: &Volume, bytes: u64) -> Result<(), Status> {
        let (more, Some(pool)) = (bytes - volume.bytes, &volume.pool) else { return Ok(()) };
        if more == 0 {
            return Ok(());
        }
        let spaces = self.spaces(None, None, Some(&pool.0)).await?;
        let free = spaces.first().map(|one| one.free);
        if let Some(free) = free.filter(|free| *free < more) {
            return Err(Status::out_of_range(format!(
                "the pool {} has {free} bytes free, and {more} are wanted: grow it, or ask for less",
                pool.0
            )));
        }
        Ok(())
    }

    /// Gives a volume another class, if its pool is predicted to hold that.
    pub(super) async fn modify(&self, request: &ControllerModifyVolumeRequest) -> Result<(), Status> {
        let id = check::text("volume_id", &request.volume_id)?;
        let (item, known) = self.present(id).await?;
        let parameters = Parameters::parse(&std::collections::HashMap::new(), &request.mutable_parameters)?;
        let class = parameters.class.map(Name);
        if class.is_none() || class == known.class {
            return Ok(());
        }
        let (near, pool) = (known.near.as_ref(), known.pool.as_ref());
        let word = |name: Option<&Name>| name.map(|name| name.0.clone());
        let spaces = self.spaces(word(class.as_ref()).as_deref(), word(near).as_deref(), None).await?;
        if let (Some(pool), Some(class)) = (pool, &class)
            && spaces.iter().all(|one| one.pool != pool.0)
        {
            return Err(Status::invalid_argument(format!(
                "the pool {} of the volume {id} is not predicted to hold the class {}: copy the data to another \
                 volume",
                pool.0, class.0
            )));
        }
        let new = Object::Volume(Volume { class, ..known });
        self.ask(self.fleet.put(id, new, Expect::Revision(item.revision), None)).await?;
        Ok(())
    }
}

/// Checks that a volume of the wanted name is as wanted.
fn is_compatible(id: &str, known: &Volume, wanted: &Parameters, range: &Range) -> Result<(), Status> {
    let differs = |what: &str, found: &str| {
        Err(Status::already_exists(format!("the volume {id} exists, but its {what} is {found}")))
    };
    if known.delete {
        return Err(Status::aborted(format!("the volume {id} is being deleted: ask again when it is gone")));
    }
    if known.bytes < range.required || range.limit.is_some_and(|limit| known.bytes > limit) {
        return differs("size in bytes", &known.bytes.to_string());
    }
    let word = |name: &Option<Name>| name.as_ref().map_or("none", |name| name.0.as_str()).to_owned();
    if known.class.as_ref().map(|one| &one.0) != wanted.class.as_ref() {
        return differs("class", &word(&known.class));
    }
    if wanted.pool.is_some() && known.pool.as_ref().map(|one| &one.0) != wanted.pool.as_ref() {
        return differs("pool", &word(&known.pool));
    }
    Ok(())
}

/// Checks that a volume of the wanted name was made from the wanted source.
fn has_source(id: &str, known: &Volume, wanted: Option<&VolumeContentSource>) -> Result<(), Status> {
    if content_source(known.source.as_ref()).as_ref() == wanted {
        return Ok(());
    }
    let found = known.source.as_ref().map_or("nothing".to_owned(), ToString::to_string);
    Err(Status::already_exists(format!("the volume {id} exists, but it was made from {found}")))
}

fn volume_of(item: Item) -> Result<Volume, Status> {
    match item.object {
        Object::Volume(volume) => Ok(volume),
        _ => Err(missing_volume(&item.name)),
    }
}

fn response(id: &str, volume: &Volume) -> CreateVolumeResponse {
    CreateVolumeResponse { volume: Some(message(id, volume)) }
}

/// A volume, as CSI has it. Hosts reach it from everywhere: it names no topology.
pub(super) fn message(id: &str, volume: &Volume) -> proto::Volume {
    proto::Volume {
        capacity_bytes: signed(volume.bytes),
        volume_id: id.to_owned(),
        content_source: content_source(volume.source.as_ref()),
        ..Default::default()
    }
}

/// A number of bytes, as CSI has it.
pub(super) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// A wanted size.
struct Range {
    /// At least this; 0 if the user names none.
    required: u64,
    /// At most this.
    limit: Option<u64>,
}

impl Range {
    fn parse(range: Option<&CapacityRange>) -> Result<Self, Status> {
        let CapacityRange { required_bytes, limit_bytes } = range.copied().unwrap_or_default();
        let (Ok(required), Ok(limit)) = (u64::try_from(required_bytes), u64::try_from(limit_bytes)) else {
            return Err(Status::out_of_range(format!(
                "a size of {required_bytes} to {limit_bytes} bytes: expected no negative number"
            )));
        };
        let limit = (limit > 0).then_some(limit);
        if limit.is_some_and(|limit| limit < required) {
            return Err(Status::out_of_range(format!(
                "a size of {required} to {limit_bytes} bytes: there is none"
            )));
        }
        Ok(Self { required, limit })
    }

    /// The size of a new volume.
    fn wanted(&self) -> Result<u64, Status> {
        let most = self.limit.unwrap_or(u64::MAX) / BYTES_STEP * BYTES_STEP;
        let wanted = if self.required == 0 { BYTES_DEFAULT.min(most) } else { self.required };
        let bytes = wanted.checked_next_multiple_of(BYTES_STEP).filter(|bytes| i64::try_from(*bytes).is_ok());
        match bytes {
            Some(bytes) if bytes > 0 && bytes <= most => Ok(bytes),
            _ => Err(Status::out_of_range(format!(
                "a size of {} to {} bytes: expected a range with a multiple of {BYTES_STEP}",
                self.required,
                self.limit.unwrap_or(u64::MAX)
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_multiples_within_the_range() {
        let wanted = |required_bytes, limit_bytes| {
            Range::parse(Some(&CapacityRange { required_bytes, limit_bytes }))?.wanted()
        };
        assert_eq!(wanted(0, 0).unwrap(), BYTES_DEFAULT);
        assert_eq!(wanted(0, 10_000).unwrap(), 8192);
        assert_eq!(wanted(1, 0).unwrap(), 4096);
        assert_eq!(wanted(4097, 8192).unwrap(), 8192);
        for (required, limit) in [(-1, 0), (0, -1), (2, 1), (4097, 8191), (0, 100), (i64::MAX, 0)] {
            assert_eq!(
                wanted(required, limit).unwrap_err().code(),
                tonic::Code::OutOfRange,
                "{required} {limit}"
            );
        }
        assert_eq!(Range::parse(None).unwrap().wanted().unwrap(), BYTES_DEFAULT);
    }
}
