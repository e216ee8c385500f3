//! Changes to namespaces that come from outside while hosts use them.

use core::fmt;

use engine::Instant;

use super::Subsystem;
use super::config::NamespaceConfig;
use super::namespace::{Busy, Namespace};
use super::self_test::Outcome;
use crate::wire::NamespaceId;

/// The reason why a namespace can't be added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceError {
    /// The identifier is not in 1..=NN. The value is the highest valid identifier, the Number of
    /// Namespaces (NN).
    Identifier(u32),
    /// A namespace with this identifier exists, or is being created or deleted.
    Exists,
    /// No namespace with this identifier exists.
    Missing,
    /// The namespace's medium is the pool, in which only hosts create and delete namespaces.
    Pool,
}

impl fmt::Display for NamespaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identifier(most) => write!(f, "a namespace identifier is 1..={most} here"),
            Self::Exists => f.write_str("there is a namespace with this identifier"),
            Self::Missing => f.write_str("there is no namespace with this identifier"),
            Self::Pool => f.write_str("hosts alone create and delete namespaces of the pool"),
        }
    }
}

impl core::error::Error for NamespaceError {}

impl Subsystem {
    /// Adds a namespace with its own medium. If its configuration says so, the namespace is
    /// attached to every controller, and their hosts are told.
    ///
    /// # Errors
    /// When the identifier is taken, when the identifier exceeds both
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
        self.tell_of_change(config.id);
        Ok(())
    }

    /// Removes a namespace with its own medium. Commands that the medium works for end when it
    /// answers: the medium must answer them all, if only with a failure.
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

    /// Tells the core that the part of the medium for `namespace` is now `bytes` long, and tells
    /// hosts of the change.
    pub fn resize_namespace(&mut self, now: Instant, namespace: NamespaceId, bytes: u64) {
        self.flow.now = now;
        if self.namespaces.change(namespace, |one| one.resize(bytes)).is_some() {
            self.tell_of_change(namespace);
        }
    }

    /// Makes `namespace` read-only or writable, independently of the write protection that hosts
    /// set, and tells hosts of the change.
    pub fn set_read_only(&mut self, now: Instant, namespace: NamespaceId, read_only: bool) {
        self.flow.now = now;
        if self.namespaces.change(namespace, |one| one.read_only = read_only).is_some() {
            self.tell_of_change(namespace);
        }
    }

    /// Reports a changed namespace to the hosts that use it.
    pub(super) fn tell_of_change(&mut self, id: NamespaceId) {
        if let Some(namespace) = self.namespaces.find(id) {
            self.controllers.on_namespace_changed(&mut self.flow, namespace);
        }
    }

    /// The present configuration of every namespace, in the order of identifiers.
    pub fn namespaces(&self) -> impl Iterator<Item = NamespaceConfig> {
        let settled = self.namespaces.iter().filter(|one| one.busy != Some(Busy::Deleting));
        settled.map(Namespace::config)
    }
}
