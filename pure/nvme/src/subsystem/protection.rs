//! Namespace Write Protection: hosts make a namespace read-only, for a while or for good.

use super::controller::ControllerKey;
use super::errors::{Failure, Location};
use super::exclusive::Alone;
use super::namespace::Namespace;
use super::slots::MediaFor;
use super::{CommandToken, Handled, Notification, Step, Subsystem};
use crate::media::{MediaError, Operation};
use crate::wire::feature::WRITE_PROTECTION_STATE;
use crate::wire::{NamespaceId, StatusCode, SubmissionQueueEntry};

/// Namespace Write Protection Capabilities (NWPC): every state there is.
pub(super) const CAPABILITIES: u8 = 0b111;

/// What hosts have said of writes to a namespace: its write protection state (WPS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WriteProtection {
    /// No Write Protect.
    #[default]
    None,
    /// Write Protect: until a host lifts it.
    Protected,
    /// Write Protect Until Power Cycle: until the next start, and nothing lifts it before.
    UntilPowerCycle,
    /// Permanent Write Protect: nothing lifts it.
    Permanent,
}

impl WriteProtection {
    const ALL: [Self; 4] = [Self::None, Self::Protected, Self::UntilPowerCycle, Self::Permanent];

    fn parse(value: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|state| u32::from(state.value()) == value)
    }

    /// Write Protection State (WPS).
    pub const fn value(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Protected => 1,
            Self::UntilPowerCycle => 2,
            Self::Permanent => 3,
        }
    }

    /// What of it outlives a power cycle.
    #[must_use]
    pub const fn after_power_cycle(self) -> Self {
        match self {
            Self::UntilPowerCycle => Self::None,
            lasting => lasting,
        }
    }

    /// Whether a host can choose another state.
    const fn is_changeable(self) -> bool {
        matches!(self, Self::None | Self::Protected)
    }
}

impl Subsystem {
    /// Get Features of Namespace Write Protection Config.
    pub(super) fn protection_feature(
        &self,
        controller: ControllerKey,
        entry: &SubmissionQueueEntry,
        select: u32,
    ) -> Handled {
        let namespace = self.namespaces.active(controller, entry.namespace);
        let namespace = namespace.ok_or_else(|| self.missing_namespace(entry))?;
        let current = if select == 0 { namespace.protection } else { WriteProtection::None };
        Ok(Step::Done(current.value().into()))
    }

    /// Set Features of Namespace Write Protection Config, of one namespace or all of the controller's.
    pub(super) fn set_protection(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let wanted = wanted_protection(entry)?;
        let controller = self.slots.of(token).controller;
        if entry.namespace != NamespaceId::ALL
            && self.namespaces.active(controller, entry.namespace).is_none()
        {
            return Err(self.missing_namespace(entry));
        }
        let is_stuck =
            |one: &Namespace| is_changed(one, controller, entry, wanted) && !one.protection.is_changeable();
        if self.namespaces.iter().any(is_stuck) {
            return Err(Failure::new(StatusCode::FeatureNotChangeable));
        }
        if wanted == WriteProtection::None {
            while let Some((id, _)) = self.next_to_protect(controller, entry, wanted) {
                self.protect(id, wanted);
            }
            return Ok(Step::Done(0));
        }
        if self.care.is_owned() {
            return self.defer(token);
        }
        self.alone(token, Alone::Protect)
    }

    /// Nothing else is under way: no write of before comes after. What a cache has of the first namespace that is to be
    /// protected is made durable; when there is none, all are protected.
    pub(super) fn protect_alone(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let wanted = wanted_protection(entry)?;
        let controller = self.slots.of(token).controller;
        match self.next_to_protect(controller, entry, wanted) {
            Some((id, medium)) => {
                Ok(self.ask_medium(token, MediaFor::Protect(id), medium, 0, Operation::Flush))
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
        if let Some(namespace) = self.namespaces.find_mut(id) {
            namespace.protection = protection;
            self.notify(Notification::NamespaceProtected { namespace: id, protection });
            self.on_namespace_changed(id);
        }
    }
}

fn wanted_protection(entry: &SubmissionQueueEntry) -> Result<WriteProtection, Failure> {
    let wanted = WriteProtection::parse(WRITE_PROTECTION_STATE.of(entry.cdw11));
    wanted.ok_or(Failure::field(StatusCode::InvalidField, Location::CDW11))
}

/// Whether the command gives the namespace another state.
fn is_changed(
    namespace: &Namespace,
    controller: ControllerKey,
    entry: &SubmissionQueueEntry,
    wanted: WriteProtection,
) -> bool {
    let chosen = entry.namespace == NamespaceId::ALL || namespace.id == entry.namespace;
    chosen && namespace.is_attached_to(controller) && namespace.protection != wanted
}
