//! Namespace Management and Namespace Attachment commands.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use super::Subsystem;
use super::config::{NamespaceConfig, NamespaceIdentity, PAGE_BYTES};
use super::controller::ControllerKey;
use super::errors::{Failure, Location};
use super::event_log::NamespaceChange;
use super::flow::{Handled, Step};
use super::namespace::{Busy, Namespace};
use super::self_test::Outcome;
use super::slots::{Alone, Erasure, HostDataFor, MediaFor};
use super::types::{CommandToken, Notification};
use super::view::Touch;
use crate::media::{MediaError, Operation};
use crate::wire::identify::{CONTROLLER_LIST_LENGTH, IDENTIFY_LENGTH, IdentifyNamespace, controller_list};
use crate::wire::{AdminOpcode, AnaState, Bits, NamespaceId, StatusCode, SubmissionQueueEntry};

/// Select (SEL), in CDW10 of both commands.
const SELECT: Bits = Bits::new(3, 0);
const CREATE: u32 = 0;
const DELETE: u32 = 1;
const ATTACH: u32 = 0;
const DETACH: u32 = 1;
/// Command Set Identifier (CSI), in CDW11 of Namespace Management.
const COMMAND_SET: Bits = Bits::new(31, 24);
/// Formatted LBA Size (FLBAS): the index of the format, and whether metadata is part of the data.
const FORMAT_LOW: Bits = Bits::new(3, 0);
const EXTENDED_DATA: Bits = Bits::bit(4);
const FORMAT_HIGH: Bits = Bits::new(6, 5);

impl Subsystem {
    pub(super) fn on_namespace_management(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
    ) -> Handled {
        match SELECT.of(entry.cdw10) {
            CREATE if COMMAND_SET.is_set(entry.cdw11) => {
                Err(Failure::field(StatusCode::IoCommandSetNotSupported, Location::at(47, 0)))
            }
            CREATE => {
                let length = u32::try_from(IDENTIFY_LENGTH).unwrap_or(u32::MAX);
                Ok(self.flow.pull(token, length, HostDataFor::CreateNamespace))
            }
            DELETE => self.on_delete_namespaces(token, entry),
            _ => Err(Failure::field(StatusCode::InvalidField, Location::CDW10)),
        }
    }

    /// Continues a command whose description of a new namespace has arrived. The extent is erased
    /// to zeros before the namespace exists.
    pub(super) fn on_create_namespace(&mut self, token: CommandToken, data: &[u8]) -> Handled {
        let invalid = Failure::field(StatusCode::InvalidField, Location::DATA_POINTER);
        let wanted = IdentifyNamespace::parse(data.first_chunk().ok_or(invalid)?);
        let flbas = u32::from(wanted.formatted_lba_size);
        let controller = self.flow.slots.of(token).controller;
        let settings = wanted.protection_settings.into();
        let block = self.format_for(controller, FORMAT_HIGH.of(flbas) << 4 | FORMAT_LOW.of(flbas), settings);
        let block = block.filter(|_| !EXTENDED_DATA.is_set(flbas));
        let block = block.ok_or(Failure::field(StatusCode::InvalidFormat, Location::DATA_POINTER))?;
        // Where there are several controllers, every namespace may be shared. There is only one NVM
        // Set and no ANA group to choose.
        let may_be_shared = self.controllers.of(controller).config.has_others();
        if wanted.sharing > u8::from(may_be_shared) || wanted.size == 0 {
            return Err(invalid);
        }
        if wanted.capacity != wanted.size {
            let code = StatusCode::ThinProvisioningNotSupported;
            return Err(Failure::field(code, Location::DATA_POINTER));
        }
        let full = Failure::new(StatusCode::NamespaceInsufficientCapacity);
        let bytes = wanted.size.checked_mul(block.stored().into()).ok_or(full)?;
        let pages = bytes.checked_next_multiple_of(PAGE_BYTES.into()).ok_or(full)?;
        let pool = *self.namespaces.pool().ok_or(full)?;
        let offset = self.namespaces.first_fit(&pool, pages).ok_or(full)?;
        let id = self.namespaces.vacant();
        let id = id.ok_or(Failure::new(StatusCode::NamespaceIdentifierUnavailable))?;
        let name = format!("{}/{id}#{}", self.config.serial_number, pool.created + 1);
        let identity = NamespaceIdentity::derived(&name);
        let new = NamespaceConfig::new(id, pool.medium, bytes, block, identity);
        let config = NamespaceConfig { offset, attached: false, ..new };
        self.namespaces.insert(Namespace::new(&config, Some(Busy::Creating)));
        let operation = Operation::Deallocate { offset, length: pages };
        let purpose = MediaFor::Erase(Erasure::Creation(id));
        Ok(self.flow.ask_medium(token, purpose, pool.medium, 0, operation))
    }

    pub(super) fn on_namespace_created(
        &mut self,
        token: CommandToken,
        id: NamespaceId,
        result: Result<(), MediaError>,
    ) -> Handled {
        if let Err(error) = result {
            self.namespaces.remove(id);
            let entry = self.flow.slots.of(token).entry;
            return Err(self.media_failure(&entry, MediaFor::Erase(Erasure::Creation(id)), error));
        }
        let created = self.namespaces.count_created();
        // The namespace does not exist until its creation is durable.
        let busy = self.config.state.map(|_| Busy::Creating);
        self.namespaces.change(id, |one| one.busy = busy);
        if let Some(namespace) = self.namespaces.find(id) {
            let config = namespace.config();
            self.shared_features.add_namespace(id);
            let change = NamespaceChange::of(CREATE, namespace);
            self.flow.notify(Notification::NamespaceCreated { namespace: Box::new(config), created });
            self.event_log.record_namespace(&mut self.flow, &self.controllers, token, &change);
        }
        Ok(Step::Done(id.0))
    }

    /// Completes the creation of a namespace once it is durable, or withdraws the namespace if that
    /// failed.
    pub(super) fn on_namespace_saved(&mut self, id: NamespaceId, result: Result<(), MediaError>) {
        if result.is_err() || self.namespaces.change(id, |one| one.busy = None).is_none() {
            self.revoke_namespace(id);
        }
    }

    /// Withdraws a namespace that is being created.
    pub(super) fn revoke_namespace(&mut self, id: NamespaceId) {
        self.namespaces.remove(id);
        self.shared_features.remove_namespace(id);
        self.flow.notify(Notification::NamespaceDeleted(id));
    }

    /// Whether the command creates a namespace.
    pub(super) fn creates_namespace(&self, entry: &SubmissionQueueEntry) -> bool {
        AdminOpcode::from(entry.opcode) == AdminOpcode::NamespaceManagement
            && SELECT.of(entry.cdw10) == CREATE
    }

    fn on_delete_namespaces(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        if self.restrictions.is_owned() {
            return self.defer(token);
        }
        let all = entry.namespace == NamespaceId::ALL;
        if !all {
            self.allocated_namespace(entry)?;
        }
        let chosen = || self.namespaces.iter().filter(|one| all || one.id == entry.namespace);
        // A namespace outside the pool exists by configuration, so hosts may not delete it.
        if chosen().any(|namespace| !self.namespaces.is_in_pool(namespace.medium)) {
            return Err(Failure::field(StatusCode::OperationDenied, Location::NAMESPACE));
        }
        let controller = self.flow.slots.of(token).controller;
        for namespace in chosen() {
            self.namespaces.check_reservation(controller, namespace, Touch::Writes)?;
        }
        if chosen().any(|namespace| namespace.is_write_protected()) {
            return Err(Failure::new(StatusCode::NamespaceWriteProtected));
        }
        let idle = |one: &Namespace| (all || one.id == entry.namespace) && one.busy.is_none();
        self.namespaces.change_each(idle, |one| one.busy = Some(Busy::Deleting));
        self.alone(token, Alone::DeleteNamespaces)
    }

    /// Erases the next namespace to delete before removing it, so that no other namespace shows its
    /// old contents.
    pub(super) fn delete_alone(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let all = entry.namespace == NamespaceId::ALL;
        let next = self
            .namespaces
            .iter()
            .find(|one| (all || one.id == entry.namespace) && one.busy == Some(Busy::Deleting));
        let Some((id, medium, offset, length)) =
            next.map(|next| (next.id, next.medium, next.offset, next.bytes))
        else {
            return Ok(Step::Done(0));
        };
        let operation = Operation::Deallocate { offset, length };
        let purpose = MediaFor::Erase(Erasure::Deletion(id));
        Ok(self.flow.ask_medium(token, purpose, medium, 0, operation))
    }

    pub(super) fn on_namespace_deleted(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        id: NamespaceId,
        result: Result<(), MediaError>,
    ) -> Handled {
        if let Err(error) = result {
            self.spare_namespaces();
            return Err(self.media_failure(entry, MediaFor::Erase(Erasure::Deletion(id)), error));
        }
        self.self_test.end_of(&mut self.flow, &self.smart, id, Outcome::NamespaceRemoved);
        if let Some(namespace) = self.take_namespace(id) {
            self.shared_features.remove_namespace(id);
            self.flow.notify(Notification::NamespaceDeleted(id));
            let change = NamespaceChange::of(DELETE, &namespace);
            self.event_log.record_namespace(&mut self.flow, &self.controllers, token, &change);
        }
        self.delete_alone(token, entry)
    }

    /// Reverts a deletion that failed or was aborted.
    pub(super) fn spare_namespaces(&mut self) {
        self.namespaces.change_each(|one| one.busy == Some(Busy::Deleting), |one| one.busy = None);
    }

    pub(super) fn on_namespace_attachment(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
    ) -> Handled {
        if SELECT.of(entry.cdw10) > DETACH {
            return Err(Failure::field(StatusCode::InvalidField, Location::CDW10));
        }
        self.allocated_namespace(entry)?;
        let length = u32::try_from(CONTROLLER_LIST_LENGTH).unwrap_or(u32::MAX);
        Ok(self.flow.pull(token, length, HostDataFor::NamespaceAttachment))
    }

    /// Removes a namespace, and informs the controllers that had it attached.
    pub(super) fn take_namespace(&mut self, id: NamespaceId) -> Option<Namespace> {
        let namespace = self.namespaces.remove(id)?;
        self.unreadable.forget(id);
        self.controllers.on_namespace_changed(&mut self.flow, &self.namespaces, &namespace);
        Some(namespace)
    }

    /// Continues a Namespace Attachment command whose list of controllers has arrived.
    pub(super) fn on_controller_list(
        &mut self,
        controller: ControllerKey,
        entry: &SubmissionQueueEntry,
        data: &[u8],
    ) -> Handled {
        let keys = self.listed_controllers(data)?;
        let attach = SELECT.of(entry.cdw10) == ATTACH;
        let namespace = self.allocated_namespace(entry)?;
        self.namespaces.check_reservation(controller, namespace, Touch::Writes)?;
        if namespace.busy.is_some() {
            return Err(Failure::new(StatusCode::FormatInProgress));
        }
        if keys.iter().any(|key| namespace.is_attached_to(*key) == attach) {
            let code =
                if attach { StatusCode::NamespaceAlreadyAttached } else { StatusCode::NamespaceNotAttached };
            return Err(Failure::new(code));
        }
        let lost = |key: &ControllerKey| {
            self.namespaces.access(*key).state(namespace.ana_group) == AnaState::PersistentLoss
        };
        if attach && keys.iter().any(lost) {
            return Err(Failure::new(StatusCode::AnaAttachFailed));
        }
        let id = entry.namespace;
        if !attach {
            self.self_test.end_of(&mut self.flow, &self.smart, id, Outcome::NamespaceRemoved);
        }
        for key in keys {
            if self.namespaces.attach(id, key, attach) {
                self.flow.notify(Notification::NamespaceAttached { namespace: id, attached: attach });
            }
            self.controllers.on_namespace_changed_for(&mut self.flow, key, id);
        }
        Ok(Step::Done(0))
    }

    /// The controllers of a list, which must name at least one and be ascending identifiers of
    /// existing controllers.
    fn listed_controllers(&self, data: &[u8]) -> Result<Vec<ControllerKey>, Failure> {
        let invalid = Failure::field(StatusCode::ControllerListInvalid, Location::DATA_POINTER);
        let mut keys = Vec::new();
        let mut last = None;
        for id in controller_list(data).ok_or(invalid)? {
            if last.replace(id).is_some_and(|last| last >= id) {
                return Err(invalid);
            }
            keys.push(self.controllers.called(id).ok_or(invalid)?);
        }
        if keys.is_empty() { Err(invalid) } else { Ok(keys) }
    }

    /// The namespace of a command that accepts any allocated namespace, attached or not.
    fn allocated_namespace(&self, entry: &SubmissionQueueEntry) -> Result<&Namespace, Failure> {
        let missing = self.namespaces.missing(entry.namespace);
        self.namespaces
            .allocated(entry.namespace)
            .filter(|one| one.busy != Some(Busy::Deleting))
            .ok_or(missing)
    }
}
