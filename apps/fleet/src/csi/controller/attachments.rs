//! Attachments: a volume is published to a node, or no longer.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use fleet::controller::{Expect, Wait};
use fleet::object::Kind;
use tonic::Status;

use super::Controller;
use crate::csi::capability::Usage;
use crate::csi::fleet::{Fleet, FleetError, Item};
use crate::csi::proto::{ControllerPublishVolumeRequest, ControllerPublishVolumeResponse};
use crate::csi::{NQN, check, name};
use crate::wire::{Attachment, Mode, Name, Object, Transport, Volume};

/// The owner of the driver's attachments.
const OWNER: &str = "csi";
/// How often an attachment that ends while it is asked for is made anew within one call.
const ATTEMPTS: usize = 3;
/// How long a host may take to connect before it is believed to be away.
const CONNECTS_WITHIN: Duration = Duration::from_secs(5);
/// The time between two looks at what a call waits for.
pub(super) const LOOK: Duration = Duration::from_millis(50);

impl<F: Fleet> Controller<F> {
    pub(super) async fn publish(
        &self,
        request: &ControllerPublishVolumeRequest,
    ) -> Result<ControllerPublishVolumeResponse, Status> {
        let id = check::text("volume_id", &request.volume_id)?;
        let node = check::text("node_id", &request.node_id)?;
        let usage = Usage::parse(request.volume_capability.as_ref())?;
        check::map("volume_context", &request.volume_context)?;
        let (_, volume) = self.present(id).await?;
        self.node_is_there(node).await?;
        if volume.delete {
            return Err(Status::failed_precondition(format!("the volume {id} is being deleted")));
        }
        let wanted = Attachment {
            volume: Name(id.to_owned()),
            node: Name(node.to_owned()),
            mode: usage.mode(request.readonly),
            transport: Transport::NvmeTcp,
            owner: OWNER.to_owned(),
            detach: false,
        };
        let item = self.attach(&wanted, &volume).await?;
        let Some(nqn) = item.nqn else {
            return Err(Status::unavailable(format!(
                "the fleet names no subsystem for the attachment of {id} to {node} yet: ask again"
            )));
        };
        self.connects(item.connected, &item.name).await;
        Ok(ControllerPublishVolumeResponse { publish_context: HashMap::from([(NQN.to_owned(), nqn)]) })
    }

    /// Waits a while until the host reaches its volume. Linux holds up all connections of a machine
    /// for a minute where a volume goes away while it connects, as it would if it were unpublished
    /// at once. A machine that does not answer gets its device later.
    async fn connects(&self, mut is_connected: bool, attachment: &str) {
        let until = Instant::now() + CONNECTS_WITHIN.min(self.patience);
        while !is_connected && Instant::now() < until {
            tokio::time::sleep(LOOK).await;
            let item = self.ask(self.fleet.get(Kind::Attachment, attachment)).await;
            // One that is gone, or a fleet that does not answer, is another call's to see.
            is_connected = item.map_or(true, |item| item.connected);
        }
    }

    async fn node_is_there(&self, node: &str) -> Result<(), Status> {
        let shown = node.escape_debug();
        let missing =
            Status::not_found(format!("there is no node \"{shown}\": see `farlane fleet node list`"));
        if fleet::Name::new(node).is_err() {
            return Err(missing);
        }
        match self.ask(self.fleet.get(Kind::Node, node)).await {
            Ok(_) => Ok(()),
            Err(FleetError::NotFound(_)) => Err(missing),
            Err(error) => Err(error.into()),
        }
    }

    /// Attaches a volume, and waits until its owner lets the host in.
    async fn attach(&self, wanted: &Attachment, volume: &Volume) -> Result<Item, Status> {
        let name = name::of_attachment(&wanted.volume.0, &wanted.node.0);
        for _ in 0..ATTEMPTS {
            match self.attachment(&name).await? {
                Some(known) if known.detach => {
                    // An earlier attachment of the same pair ends first.
                    self.detach(&name).await?;
                    continue;
                }
                Some(known) => is_compatible(wanted, &known)?,
                None => {
                    self.agrees(wanted, volume).await?;
                    self.has_room(wanted).await?;
                }
            }
            let put = Object::Attachment(wanted.clone());
            let put = self.fleet.put(&name, put, Expect::Any, Some(Wait::Attached));
            match self.wait(put).await {
                Ok(Some(item)) => return Ok(item),
                Ok(None) => return Err(self.late(Kind::Attachment, &name).await),
                // It was detached meanwhile.
                Err(FleetError::NotFound(_)) => (),
                Err(error) => return Err(error.into()),
            }
        }
        Err(Status::aborted(format!("the attachment of {} is detached time and again", wanted.volume.0)))
    }

    async fn attachment(&self, name: &str) -> Result<Option<Attachment>, Status> {
        match self.ask(self.fleet.get(Kind::Attachment, name)).await {
            Ok(item) => match item.object {
                Object::Attachment(attachment) => Ok(Some(attachment)),
                other => Err(super::unexpected(name, &other)),
            },
            Err(FleetError::NotFound(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Checks that the hosts that have the volume agree with another one.
    async fn agrees(&self, wanted: &Attachment, volume: &Volume) -> Result<(), Status> {
        let is_alone = |mode: Mode| mode == Mode::Exclusive;
        for one in &volume.admitted {
            if !is_alone(one.mode) && !is_alone(wanted.mode) {
                continue;
            }
            let still = self.attachment(&one.attachment.0).await?;
            if let Some(other) = still.filter(|other| !other.detach) {
                return Err(Status::failed_precondition(format!(
                    "the volume {} is attached to the node {} (owner {}): it must be detached there first",
                    wanted.volume.0,
                    other.node.0,
                    other.owner.escape_debug()
                )));
            }
        }
        Ok(())
    }

    /// Checks that a node has room for one more attachment.
    async fn has_room(&self, wanted: &Attachment) -> Result<(), Status> {
        if self.volumes_max == 0 {
            return Ok(());
        }
        let all = self.ask(self.fleet.list(Kind::Attachment)).await?;
        let is_there =
            |item: &&Item| matches!(&item.object, Object::Attachment(one) if one.node == wanted.node);
        let found = u64::try_from(all.iter().filter(is_there).count()).unwrap_or(u64::MAX);
        if found >= self.volumes_max {
            return Err(Status::resource_exhausted(format!(
                "the node {} has {found} volumes, of {} that are allowed",
                wanted.node.0, self.volumes_max
            )));
        }
        Ok(())
    }

    /// Ends attachments of a volume: to one node, or to all if none is named. No node is asked:
    /// the volume's owner lets it in no longer.
    pub(super) async fn unpublish(&self, id: &str, node: &str) -> Result<(), Status> {
        check::text("volume_id", id)?;
        if !node.is_empty() {
            check::text("node_id", node)?;
        }
        if fleet::Name::new(id).is_err() {
            return Ok(()); // There is no such volume.
        }
        if !node.is_empty() {
            return self.detach(&name::of_attachment(id, node)).await;
        }
        for item in self.ask(self.fleet.list(Kind::Attachment)).await? {
            let Object::Attachment(one) = &item.object else { continue };
            if one.volume.0 == id && one.owner == OWNER {
                self.detach(&item.name).await?;
            }
        }
        Ok(())
    }

    /// Detaches, and waits until the owner of the volume lets the host in no longer.
    async fn detach(&self, name: &str) -> Result<(), Status> {
        match self.wait(self.fleet.delete(Kind::Attachment, name, Some(Wait::Gone))).await {
            Ok(Some(())) | Err(FleetError::NotFound(_)) => Ok(()),
            Ok(None) => Err(self.late(Kind::Attachment, name).await),
            Err(error) => Err(error.into()),
        }
    }
}

/// Checks that an attachment of the wanted name is as wanted.
fn is_compatible(wanted: &Attachment, known: &Attachment) -> Result<(), Status> {
    if wanted == known {
        return Ok(());
    }
    Err(Status::already_exists(format!(
        "the volume {} is attached to {} already, but {:?} (owner {}) and not {:?}: detach it first",
        known.volume.0,
        known.node.0,
        known.mode,
        known.owner.escape_debug(),
        wanted.mode
    )))
}
