//! Namespaces as the subsystem keeps them.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::ana::FIRST_GROUP;
use super::config::{BlockSize, NamespaceConfig, NamespaceIdentity, PAGE_BYTES, PoolConfig};
use super::controller::ControllerKey;
use super::record::{ReservationRecord, WriteProtection};
use super::uncorrectable::Marks;
use crate::media::MediumId;
use crate::wire::NamespaceId;

/// An operation on a namespace that excludes all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Busy {
    Formatting,
    /// The namespace does not exist yet.
    Creating,
    /// The namespace will be gone unless the deletion fails.
    Deleting,
}

/// A namespace that is allocated or being created.
#[derive(Clone, Debug)]
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
    /// Whether some controller does not reach the namespace's ANA group.
    unreached: bool,
    /// Whether the namespace is attached to controllers that `except` does not name.
    attached: bool,
    /// Controllers for which the opposite of `attached` holds.
    except: BTreeSet<ControllerKey>,
    busy: Option<Busy>,
    /// Blocks that Write Uncorrectable made unreadable.
    marks: Marks,
    /// Whether the hot path needs no second look: the namespace is active for and reached by every
    /// controller, not reserved, not busy, and without marked blocks.
    plain: bool,
}

impl Namespace {
    pub(super) fn new(config: &NamespaceConfig, busy: Option<Busy>) -> Self {
        let mut namespace = Self {
            id: config.id,
            medium: config.medium,
            offset: config.offset,
            bytes: config.bytes,
            block: config.block,
            blocks: config.bytes >> config.block.shift(),
            read_only: config.read_only,
            protection: config.write_protection,
            identity: config.identity,
            ana_group: FIRST_GROUP,
            reservations: None,
            unreached: false,
            attached: config.attached,
            except: BTreeSet::new(),
            busy,
            marks: Marks::default(),
            plain: false,
        };
        namespace.remember_plain();
        namespace
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

    fn remember_plain(&mut self) {
        self.plain = self.attached
            && self.except.is_empty()
            && !self.unreached
            && self.reservations.as_ref().is_none_or(|record| record.reservation.is_none())
            && self.busy.is_none()
            && self.marks.is_empty();
    }

    /// Whether nothing about the namespace needs a second look.
    #[inline]
    pub(super) const fn is_plain(&self) -> bool {
        self.plain
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
        self.remember_plain();
        for_all
    }

    pub(super) fn set_reservations(&mut self, record: ReservationRecord) {
        self.reservations = Some(Box::new(record));
        self.remember_plain();
    }

    pub(super) fn set_unreached(&mut self, unreached: bool) {
        self.unreached = unreached;
        self.remember_plain();
    }

    /// Forgets a controller that was removed.
    pub(super) fn forget_controller(&mut self, controller: ControllerKey) {
        self.except.remove(&controller);
        self.remember_plain();
    }

    pub(super) const fn busy(&self) -> Option<Busy> {
        self.busy
    }

    pub(super) fn set_busy(&mut self, busy: Option<Busy>) {
        self.busy = busy;
        self.remember_plain();
    }

    pub(super) const fn marks(&self) -> &Marks {
        &self.marks
    }

    /// Applies a change to the marks of unreadable blocks.
    pub(super) fn mark<T>(&mut self, change: impl FnOnce(&mut Marks) -> T) -> T {
        let changed = change(&mut self.marks);
        self.remember_plain();
        changed
    }

    /// Sets the block size and the resulting number of blocks. Contents and marks are gone.
    pub(super) fn format(&mut self, block: BlockSize) {
        self.block = block;
        self.blocks = self.bytes >> block.shift();
        self.mark(Marks::clear);
    }

    /// Sets the length in bytes and the resulting number of blocks.
    pub(super) const fn resize(&mut self, bytes: u64) {
        self.bytes = bytes;
        self.blocks = bytes >> self.block.shift();
    }
}

/// The namespaces by identifier: index n holds namespace n + 1. There is a place for each valid
/// identifier.
#[derive(Clone, Debug)]
pub(super) struct Namespaces(Vec<Option<Namespace>>);

impl Namespaces {
    pub(super) fn new(configs: &[NamespaceConfig], highest: u32) -> Self {
        let find = |id: u32| configs.iter().find(|config| config.id.0 == id);
        Self((1..=highest).map(|id| find(id).map(|config| Namespace::new(config, None))).collect())
    }

    /// The highest valid namespace identifier (NN).
    pub(super) fn highest(&self) -> u32 {
        u32::try_from(self.0.len()).expect("identifiers are checked against NAMESPACE_ID_MAX")
    }

    pub(super) fn is_valid(&self, id: NamespaceId) -> bool {
        (1..=self.highest()).contains(&id.0)
    }

    /// The namespace called `id`, whether allocated, being created, attached or not.
    #[inline]
    pub(super) fn find(&self, id: NamespaceId) -> Option<&Namespace> {
        self.0.get(usize::try_from(id.0.wrapping_sub(1)).ok()?)?.as_ref()
    }

    /// Mutable access to the namespace called `id`, in any state.
    pub(super) fn find_mut(&mut self, id: NamespaceId) -> Option<&mut Namespace> {
        self.0.get_mut(usize::try_from(id.0.wrapping_sub(1)).ok()?)?.as_mut()
    }

    /// The namespace called `id`, if it is allocated.
    pub(super) fn allocated(&self, id: NamespaceId) -> Option<&Namespace> {
        self.find(id).filter(|namespace| namespace.busy != Some(Busy::Creating))
    }

    /// The namespace called `id`, if it is active for the controller.
    pub(super) fn active(&self, controller: ControllerKey, id: NamespaceId) -> Option<&Namespace> {
        self.allocated(id).filter(|namespace| namespace.is_attached_to(controller))
    }

    /// The allocated namespaces, in the order of identifiers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Namespace> {
        self.0.iter().flatten().filter(|namespace| namespace.busy != Some(Busy::Creating))
    }

    /// The namespaces that are active for some controller, in the order of identifiers.
    pub(super) fn iter_attached(&self) -> impl Iterator<Item = &Namespace> {
        self.iter().filter(|namespace| namespace.is_attached())
    }

    /// The first allocated namespace after `id`.
    pub(super) fn after(&self, id: NamespaceId) -> Option<&Namespace> {
        self.iter().find(|namespace| namespace.id > id)
    }

    /// Mutable access to every namespace.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Namespace> {
        self.0.iter_mut().flatten()
    }

    /// Inserts a namespace at its place.
    pub(super) fn insert(&mut self, namespace: Namespace) {
        let index = usize::try_from(namespace.id.0 - 1).expect("identifiers are small");
        let place = self.0.get_mut(index).expect("the identifier is valid");
        assert!(place.is_none(), "namespace {} exists", namespace.id);
        *place = Some(namespace);
    }

    pub(super) fn remove(&mut self, id: NamespaceId) -> Option<Namespace> {
        self.0.get_mut(usize::try_from(id.0.wrapping_sub(1)).ok()?)?.take()
    }

    /// The lowest valid identifier without a namespace.
    pub(super) fn vacant(&self) -> Option<NamespaceId> {
        let index = self.0.iter().position(Option::is_none)?;
        Some(NamespaceId(u32::try_from(index + 1).expect("identifiers are small")))
    }

    /// Ends every format and deletion, after the command that was alone has gone.
    pub(super) fn set_at_rest(&mut self) {
        for namespace in self.iter_mut().filter(|one| one.busy != Some(Busy::Creating)) {
            namespace.set_busy(None);
        }
    }

    /// The occupied extents of `pool` in order, including those of namespaces being created.
    fn extents(&self, pool: &PoolConfig) -> Vec<(u64, u64)> {
        let inside = self.0.iter().flatten().filter(|namespace| namespace.medium == pool.medium);
        let page = u64::from(PAGE_BYTES);
        let mut extents: Vec<_> = inside
            .map(|namespace| (namespace.offset, namespace.offset + namespace.bytes.next_multiple_of(page)))
            .collect();
        extents.sort_unstable();
        extents
    }

    /// Unallocated NVM Capacity (UNVMCAP): the bytes of `pool` that no namespace occupies.
    pub(super) fn unallocated(&self, pool: &PoolConfig) -> u64 {
        let taken: u64 = self.extents(pool).iter().map(|(start, end)| end - start).sum();
        pool.bytes.saturating_sub(taken)
    }

    /// Byte offset of the first free extent of `bytes` bytes in `pool`.
    pub(super) fn first_fit(&self, pool: &PoolConfig, bytes: u64) -> Option<u64> {
        let mut start = 0_u64;
        for (taken, end) in self.extents(pool) {
            if taken.saturating_sub(start) >= bytes {
                return Some(start);
            }
            start = start.max(end);
        }
        (pool.bytes.saturating_sub(start) >= bytes).then_some(start)
    }
}
