//! A namespace as the subsystem keeps it.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use core::fmt;

use serde::{Deserialize, Serialize};

use super::config::{BlockSize, NamespaceConfig, NamespaceIdentity};
use super::controller::ControllerKey;
use super::record::{ReservationRecord, WriteProtection};
use super::view::Touch;
use crate::media::MediumId;
use crate::wire::NamespaceId;

/// The ANA group of a namespace until the namespace is moved to another group.
const FIRST_GROUP: u32 = 1;

/// An operation on a namespace that excludes all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Busy {
    Formatting,
    /// The namespace does not exist yet.
    Creating,
    /// The namespace will be gone unless the deletion fails.
    Deleting,
}

/// A namespace that is allocated or being created.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Namespace {
    pub(super) id: NamespaceId,
    pub(super) medium: MediumId,
    /// Byte offset of the namespace in its medium.
    pub(super) offset: u64,
    /// Length in bytes of the namespace's part of its medium.
    pub(super) bytes: u64,
    pub(super) block: BlockSize,
    /// Namespace Size (NSZE).
    pub(super) blocks: u64,
    /// Whether the configuration forbids writes.
    pub(super) read_only: bool,
    /// The write protection that hosts have set.
    pub(super) protection: WriteProtection,
    pub(super) identity: NamespaceIdentity,
    /// ANA Group Identifier (ANAGRPID).
    pub(super) ana_group: u32,
    /// The registrants and the reservation; `None` if there never were any.
    pub(super) reservations: Option<Box<ReservationRecord>>,
    /// Whether the namespace is attached to controllers that `except` does not name.
    attached: bool,
    /// Controllers for which the opposite of `attached` holds.
    except: BTreeSet<ControllerKey>,
    pub(super) busy: Option<Busy>,
    /// Whether Write Uncorrectable made blocks unreadable.
    pub(super) marked: bool,
}

impl Namespace {
    pub(super) fn new(config: &NamespaceConfig, busy: Option<Busy>) -> Self {
        Self {
            id: config.id,
            medium: config.medium,
            offset: config.offset,
            bytes: config.bytes,
            block: config.block,
            blocks: config.bytes / config.block.stored() as u64,
            read_only: config.read_only,
            protection: config.write_protection,
            identity: config.identity,
            ana_group: FIRST_GROUP,
            reservations: None,
            attached: config.attached,
            except: BTreeSet::new(),
            busy,
            marked: false,
        }
    }

    /// The namespace's configuration at present.
    pub(super) const fn config(&self) -> NamespaceConfig {
        NamespaceConfig {
            id: self.id,
            medium: self.medium,
            offset: self.offset,
            bytes: self.bytes,
            block: self.block,
            read_only: self.read_only,
            write_protection: self.protection,
            attached: self.attached,
            identity: self.identity,
        }
    }

    /// Whether writes are refused.
    #[inline]
    pub(super) const fn is_write_protected(&self) -> bool {
        self.read_only || !matches!(self.protection, WriteProtection::None)
    }

    /// Whether the namespace is active for the controller.
    pub(super) fn is_attached_to(&self, controller: ControllerKey) -> bool {
        self.attached != self.except.contains(&controller)
    }

    /// Whether the namespace is attached to every controller, and will be to a new one.
    pub(super) fn is_attached_to_all(&self) -> bool {
        self.attached && self.except.is_empty()
    }

    /// Whether the reservation lets a host access the namespace in this way.
    pub(super) fn allows(&self, host: [u8; 16], touch: Touch) -> bool {
        self.reservations.as_ref().is_none_or(|record| record.allows(host, touch))
    }

    /// Whether the namespace is attached to some controller, or will be to a new one.
    pub(super) fn is_attached(&self) -> bool {
        self.attached || !self.except.is_empty()
    }

    /// Attaches the namespace to one of `controllers` controllers, or detaches it. Returns true if
    /// the new state then holds for all of them, and hence for new controllers.
    pub(super) fn set_attached(
        &mut self,
        controller: ControllerKey,
        attached: bool,
        controllers: usize,
    ) -> bool {
        if attached == self.attached {
            self.except.remove(&controller);
        } else {
            self.except.insert(controller);
        }
        let for_all = self.except.len() >= controllers;
        if for_all {
            self.attached = attached;
            self.except.clear();
        }
        for_all
    }

    /// Forgets a controller that was removed.
    pub(super) fn forget_controller(&mut self, controller: ControllerKey) {
        self.except.remove(&controller);
    }

    /// Sets the block size and the resulting number of blocks.
    pub(super) const fn format(&mut self, block: BlockSize) {
        self.block = block;
        self.blocks = self.bytes / block.stored() as u64;
    }

    /// Sets the length in bytes and the resulting number of blocks.
    pub(super) const fn resize(&mut self, bytes: u64) {
        self.bytes = bytes;
        self.blocks = bytes / self.block.stored() as u64;
    }
}

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
