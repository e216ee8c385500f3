//! Lists of volumes, with the nodes that have them, and their health.

use std::collections::BTreeSet;

use fleet::object::Kind;
use tonic::Status;

use super::Controller;
use super::volumes::message;
use crate::csi::check;
use crate::csi::fleet::{Fleet, Item, Progress};
use crate::csi::proto::volume_health::VolumeHealthEntry;
use crate::csi::proto::{
    ControllerGetVolumeHealthResponse, ControllerGetVolumeResponse, ControllerListVolumeHealthResponse,
    ListVolumesResponse, VolumeHealth, VolumeHealthErrorType, controller_get_volume_response,
    list_volumes_response,
};
use crate::wire::{Object, Volume};

/// The most volumes of one page.
const PAGE_MAX: usize = 1000;
/// How tokens begin. The name of the page's last volume follows.
const TOKEN: &str = "after:";

impl<F: Fleet> Controller<F> {
    /// One page of all volumes.
    pub(super) async fn page(&self, most: i32, token: &str) -> Result<ListVolumesResponse, Status> {
        let (page, next_token) = self.items(most, token, |_| true).await?;
        let entries = page.iter().filter_map(|item| {
            let Object::Volume(volume) = &item.object else { return None };
            let status = list_volumes_response::VolumeStatus { published_node_ids: nodes_of(volume) };
            let volume = Some(message(&item.name, volume));
            Some(list_volumes_response::Entry { volume, status: Some(status) })
        });
        Ok(ListVolumesResponse { entries: entries.collect(), next_token })
    }

    /// One page of the volumes that cannot be reached.
    pub(super) async fn ailing(
        &self,
        most: i32,
        token: &str,
    ) -> Result<ControllerListVolumeHealthResponse, Status> {
        let is_ill = |item: &Item| matches!(item.progress, Progress::Stuck(_));
        let (page, next_token) = self.items(most, token, is_ill).await?;
        Ok(ControllerListVolumeHealthResponse {
            entries: page.into_iter().map(health_of).collect(),
            next_token,
        })
    }

    /// One page of the volumes that are wanted, and the token of the next.
    async fn items(
        &self,
        most: i32,
        token: &str,
        is_wanted: impl Fn(&Item) -> bool + Send,
    ) -> Result<(Vec<Item>, String), Status> {
        let mut volumes = self.ask(self.fleet.list(Kind::Volume)).await?;
        volumes.retain(is_wanted);
        page_of(volumes, most, token)
    }

    /// One volume.
    pub(super) async fn one(&self, id: &str) -> Result<ControllerGetVolumeResponse, Status> {
        let (_, volume) = self.present(id).await?;
        let status = controller_get_volume_response::VolumeStatus { published_node_ids: nodes_of(&volume) };
        Ok(ControllerGetVolumeResponse { volume: Some(message(id, &volume)), status: Some(status) })
    }

    /// Whether a volume can be reached.
    pub(super) async fn health(&self, id: &str) -> Result<ControllerGetVolumeHealthResponse, Status> {
        check::text("volume_id", id)?;
        let (item, _) = self.present(id).await?;
        Ok(ControllerGetVolumeHealthResponse { volume_health: Some(health_of(item)) })
    }
}

/// One page of objects, and the token of the next.
pub(super) fn page_of(mut items: Vec<Item>, most: i32, token: &str) -> Result<(Vec<Item>, String), Status> {
    let Ok(most) = usize::try_from(most) else {
        return Err(Status::invalid_argument(format!("max_entries is {most}: expected no negative number")));
    };
    let most = if most == 0 { PAGE_MAX } else { most.min(PAGE_MAX) };
    let after = match token.strip_prefix(TOKEN) {
        _ if token.is_empty() => "",
        Some(name) if fleet::Name::new(name).is_ok() => name,
        _ => {
            let shown: String = token.chars().take(128).collect();
            let reason = format!("\"{}\" is no token of this driver: list again", shown.escape_debug());
            return Err(Status::aborted(reason));
        }
    };
    items.retain(|one| one.name.as_str() > after);
    items.sort_by(|a, b| a.name.cmp(&b.name));
    let has_more = items.len() > most;
    items.truncate(most);
    let last = items.last().filter(|_| has_more);
    let next_token = last.map(|last| format!("{TOKEN}{}", last.name)).unwrap_or_default();
    Ok((items, next_token))
}

/// What ails a volume.
fn health_of(item: Item) -> VolumeHealth {
    let health_statuses = match item.progress {
        Progress::Ready | Progress::Pending(_) => Vec::new(),
        Progress::Stuck(message) => vec![VolumeHealthEntry {
            status: VolumeHealthErrorType::Inaccessible.into(),
            reason: "OwnerAway".to_owned(),
            message,
        }],
    };
    VolumeHealth { volume_id: item.name, health_statuses }
}

/// The nodes that a volume's owner lets in.
fn nodes_of(volume: &Volume) -> Vec<String> {
    let nodes: BTreeSet<_> = volume.admitted.iter().map(|one| one.node.0.clone()).collect();
    nodes.into_iter().collect()
}
