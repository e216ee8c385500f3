//! Namespace Write Protection: a host makes a namespace read-only until a host lifts the
//! protection.
//!
//! A controller that supports the states Write Protect Until Power Cycle or Permanent Write Protect
//! must also support the Write Protection Control field in the Device Configuration Block of the
//! Replay Protected Memory Block, with which the owner keeps hosts from choosing these states (NVM
//! Express Base Specification 2.0, Namespace Write Protection). Farlane has no Replay Protected
//! Memory Block, and so supports neither state.

use super::Subsystem;
use super::controller::ControllerKey;
use super::errors::{Failure, Location};
use super::flow::{Handled, Step};
use super::namespace::Namespace;
use super::record::WriteProtection;
use super::slots::{Alone, MediaFor};
use super::types::{CommandToken, Notification};
use crate::media::{MediaError, Operation};
use crate::wire::feature::WRITE_PROTECTION_STATE;
use crate::wire::{NamespaceId, StatusCode, SubmissionQueueEntry};

/// Namespace Write Protection Capabilities (NWPC): No Write Protect and Write Protect.
pub(super) const CAPABILITIES: u8 = 0b001;

impl Subsystem {
    /// Get Features for Namespace Write Protection Config.
    pub(super) fn protection_feature(
        &self,
        controller: ControllerKey,
        entry: &SubmissionQueueEntry,
        select: u32,
    ) -> Handled {
        let namespace = self.namespaces.active_for(controller, entry.namespace)?;
        let current = if select == 0 { namespace.protection } else { WriteProtection::None };
        Ok(Step::Done(current.value().into()))
    }

    /// Set Features for Namespace Write Protection Config, for one namespace or for all namespaces
    /// of the controller.
    pub(super) fn set_protection(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let wanted = wanted_protection(entry)?;
        let controller = self.flow.slots.of(token).controller;
        if entry.namespace != NamespaceId::ALL {
            self.namespaces.active_for(controller, entry.namespace)?;
        }
        if wanted == WriteProtection::None {
            while let Some((id, _)) = self.next_to_protect(controller, entry, wanted) {
                self.protect(id, wanted);
            }
            return Ok(Step::Done(0));
        }
        if self.restrictions.is_owned() {
            return self.defer(token);
        }
        self.alone(token, Alone::Protect)
    }

    /// Protects the namespaces once no other command is in progress, so that no earlier write ends
    /// later. Flushes the medium of the first namespace that is still to be protected, and ends
    /// when none is left.
    pub(super) fn protect_alone(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let wanted = wanted_protection(entry)?;
        let controller = self.flow.slots.of(token).controller;
        match self.next_to_protect(controller, entry, wanted) {
            Some((id, medium)) => {
                Ok(self.flow.ask_medium(token, MediaFor::Protect(id), medium, 0, Operation::Flush))
            }
            None => Ok(Step::Done(0)),
        }
    }

    pub(super) fn on_flushed_to_protect(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        id: NamespaceId,
        result: Result<(), MediaError>,
    ) -> Handled {
        if let Err(error) = result {
            return Err(self.media_failure(entry, MediaFor::Protect(id), error));
        }
        self.protect(id, wanted_protection(entry)?);
        self.protect_alone(token, entry)
    }

    fn next_to_protect(
        &self,
        controller: ControllerKey,
        entry: &SubmissionQueueEntry,
        wanted: WriteProtection,
    ) -> Option<(NamespaceId, crate::media::MediumId)> {
        let next = self.namespaces.iter().find(|one| is_changed(one, controller, entry, wanted));
        next.map(|next| (next.id, next.medium))
    }

    fn protect(&mut self, id: NamespaceId, protection: WriteProtection) {
        if self.namespaces.change(id, |one| one.protection = protection).is_some() {
            self.flow.notify(Notification::NamespaceProtected { namespace: id, protection });
            self.announce_change(id);
        }
    }
}

fn wanted_protection(entry: &SubmissionQueueEntry) -> Result<WriteProtection, Failure> {
    let wanted = WriteProtection::parse(WRITE_PROTECTION_STATE.of(entry.cdw11));
    wanted.ok_or(Failure::field(StatusCode::InvalidField, Location::CDW11))
}

/// Whether the command changes the namespace's write protection state.
fn is_changed(
    namespace: &Namespace,
    controller: ControllerKey,
    entry: &SubmissionQueueEntry,
    wanted: WriteProtection,
) -> bool {
    let chosen = entry.namespace == NamespaceId::ALL || namespace.id == entry.namespace;
    chosen && namespace.is_attached_to(controller) && namespace.protection != wanted
}
