//! Changes to namespaces from outside while hosts use them.

use alloc::vec::Vec;

use engine::Instant;

use super::Subsystem;
use super::config::NamespaceConfig;
use super::controller::ControllerKey;
use super::events::AsynchronousEvent;
use super::namespace::{Busy, Namespace, NamespaceError};
use super::permit::Permit;
use super::self_test::Outcome;
use crate::wire::{AnaState, NamespaceId};

impl Subsystem {
    /// Adds a namespace with its own medium. If its configuration requires it, the namespace is
    /// attached to every controller, and their hosts are notified.
    ///
    /// # Errors
    /// When the identifier is in use, when it exceeds both
    /// [`Config::namespaces_max`](super::Config::namespaces_max) and the highest configured
    /// identifier, or when the medium is the pool.
    pub fn add_namespace(&mut self, now: Instant, config: &NamespaceConfig) -> Result<(), NamespaceError> {
        self.flow.now = now;
        if !self.namespaces.is_valid(config.id) {
            return Err(NamespaceError::Identifier(self.namespaces.highest()));
        }
        if self.namespaces.find(config.id).is_some() {
            return Err(NamespaceError::Exists);
        }
        if self.namespaces.is_in_pool(config.medium) || config.offset != 0 {
            return Err(NamespaceError::Pool);
        }
        self.namespaces.insert(Namespace::new(config, None));
        self.shared_features.add_namespace(config.id);
        self.announce_change(config.id);
        Ok(())
    }

    /// Removes a namespace with its own medium. Commands with outstanding media requests end when
    /// the medium answers: it must answer them all, if only with a failure.
    ///
    /// # Errors
    /// When the namespace does not exist, or when its medium is the pool.
    pub fn remove_namespace(&mut self, now: Instant, id: NamespaceId) -> Result<(), NamespaceError> {
        self.flow.now = now;
        let found = self.namespaces.allocated(id).ok_or(NamespaceError::Missing)?;
        if self.namespaces.is_in_pool(found.medium) {
            return Err(NamespaceError::Pool);
        }
        self.self_test.end_of(&mut self.flow, &self.smart, id, Outcome::NamespaceRemoved);
        self.take_namespace(id);
        self.shared_features.remove_namespace(id);
        Ok(())
    }

    /// Sets the length of the medium's part for `namespace` to `bytes`, and notifies hosts of the
    /// change.
    pub fn resize_namespace(&mut self, now: Instant, namespace: NamespaceId, bytes: u64) {
        self.flow.now = now;
        if self.namespaces.change(namespace, |one| one.resize(bytes)).is_some() {
            self.announce_change(namespace);
        }
    }

    /// Makes `namespace` read-only or writable, independently of the write protection that hosts
    /// set, and notifies hosts of the change.
    pub fn set_read_only(&mut self, now: Instant, namespace: NamespaceId, read_only: bool) {
        self.flow.now = now;
        if self.namespaces.change(namespace, |one| one.read_only = read_only).is_some() {
            self.announce_change(namespace);
        }
    }

    /// Sets the permissions of the host of a controller, and notifies it that its namespaces have
    /// changed.
    pub fn set_permit(&mut self, now: Instant, controller: ControllerKey, permit: Permit) {
        self.flow.now = now;
        if self.namespaces.set_permit(controller, permit) {
            let attached = self.namespaces.iter().filter(|one| one.is_attached_to(controller));
            for id in attached.map(|one| one.id).collect::<Vec<_>>() {
                self.controllers.on_namespace_changed_for(&mut self.flow, controller, id);
            }
        }
    }

    /// Reports a changed namespace to the hosts that use it.
    pub(super) fn announce_change(&mut self, id: NamespaceId) {
        if let Some(namespace) = self.namespaces.find(id) {
            self.controllers.on_namespace_changed(&mut self.flow, &self.namespaces, namespace);
        }
    }

    /// The present configuration of every namespace, in the order of identifiers.
    pub fn namespaces(&self) -> impl Iterator<Item = NamespaceConfig> {
        let settled = self.namespaces.iter().filter(|one| one.busy != Some(Busy::Deleting));
        settled.map(Namespace::config)
    }
}

/// Asymmetric Namespace Access.
impl Subsystem {
    /// How the controller reaches the ANA group with identifier `group` (ANAGRPID).
    pub fn ana_state(&self, controller: ControllerKey, group: u32) -> AnaState {
        self.namespaces.access(controller).state(group)
    }

    /// Sets how the controller reaches a group,
    /// 1..=[`Config::ana_groups`](super::Config::ana_groups), and reports the change to the
    /// controller's host. Commands with outstanding media requests end normally.
    ///
    /// # Panics
    /// When the group does not exist.
    pub fn set_ana_state(&mut self, now: Instant, controller: ControllerKey, group: u32, state: AnaState) {
        self.flow.now = now;
        assert!((1..=self.config.ana_groups).contains(&group), "groups are 1..={}", self.config.ana_groups);
        if self.namespaces.set_access(controller, group, state) {
            self.raise_ana(controller);
        }
    }

    /// Moves a namespace to a group, 1..=[`Config::ana_groups`](super::Config::ana_groups), and
    /// reports the change to the hosts that use the namespace.
    ///
    /// # Errors
    /// When the namespace does not exist.
    ///
    /// # Panics
    /// When the group does not exist.
    pub fn set_ana_group(
        &mut self,
        now: Instant,
        namespace: NamespaceId,
        group: u32,
    ) -> Result<(), NamespaceError> {
        self.flow.now = now;
        assert!((1..=self.config.ana_groups).contains(&group), "groups are 1..={}", self.config.ana_groups);
        let before = self.namespaces.set_group(namespace, group).ok_or(NamespaceError::Missing)?;
        let mut next = self.controllers.from(0).filter(|_| before != group);
        while let Some(key) = next {
            if self.namespaces.find(namespace).is_some_and(|one| one.is_attached_to(key)) {
                self.raise_ana(key);
            }
            next = self.controllers.from(key.0 + 1);
        }
        Ok(())
    }

    fn raise_ana(&mut self, controller: ControllerKey) {
        if self.controllers.has_ana(controller, &self.config) {
            self.controllers.raise_to(&mut self.flow, controller, AsynchronousEvent::AsymmetricAccessChanged);
        }
    }
}
