//! The namespaces of the subsystem, their state for each controller, and the views derived from
//! both.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::ana::Access;
use super::config::{Config, PAGE_BYTES, PoolConfig};
use super::controller::ControllerKey;
use super::errors::Failure;
use super::namespace::{Busy, Namespace};
use super::permit::Permit;
use super::record::ReservationRecord;
use super::reservation::REGISTRANTS_MAX;
use super::view::{NamespaceView, Refusal, Touch, Verdict, Views};
use crate::media::MediumId;
use crate::wire::{AnaState, NamespaceId, StatusCode};

/// The state that decides on a controller's commands to namespaces, apart from attachment.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Standing {
    /// Host Identifier (HOSTID) of the controller's host.
    host: [u8; 16],
    access: Access,
    permit: Permit,
}

/// The namespaces and the pool. Every change to a namespace is published at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Namespaces {
    /// The namespaces by identifier: index n holds namespace n + 1. There is an entry for each
    /// valid identifier.
    places: Vec<Option<Namespace>>,
    /// The pool in its present state.
    pool: Option<PoolConfig>,
    /// The controllers by key.
    standings: Vec<Option<Standing>>,
    /// The ANA groups that some controller does not reach.
    unreached: BTreeSet<u32>,
    views: Views,
}

/// The parts of media are counted in multiples of this many bytes: the smallest logical block.
const GRAIN: u64 = 512;
const NOT_ADDED: &str = "the controller was added and not removed";

impl Namespaces {
    pub(super) fn new(config: &Config) -> Self {
        let find = |id: u32| config.namespaces.iter().find(|one| one.id.0 == id);
        let places: Vec<_> =
            (1..=config.namespace_id_max()).map(|id| find(id).map(|one| Namespace::new(one, None))).collect();
        let views = Views::new(config, places.len());
        let (standings, unreached) = (Vec::new(), BTreeSet::new());
        let mut namespaces = Self { places, pool: config.pool, standings, unreached, views };
        (0..namespaces.places.len()).for_each(|index| namespaces.publish(index));
        namespaces
    }

    /// The state that I/O commands need.
    #[inline]
    pub(super) const fn views(&self) -> &Views {
        &self.views
    }

    /// The highest valid namespace identifier (NN).
    pub(super) fn highest(&self) -> u32 {
        u32::try_from(self.places.len()).expect("identifiers are checked against NAMESPACE_ID_MAX")
    }

    pub(super) fn is_valid(&self, id: NamespaceId) -> bool {
        (1..=self.highest()).contains(&id.0)
    }

    /// The namespace called `id`, whether allocated, being created, attached or not.
    pub(super) fn find(&self, id: NamespaceId) -> Option<&Namespace> {
        self.places.get(index_of(id)?)?.as_ref()
    }

    /// The namespace called `id`, if it is allocated.
    pub(super) fn allocated(&self, id: NamespaceId) -> Option<&Namespace> {
        self.find(id).filter(|namespace| namespace.busy != Some(Busy::Creating))
    }

    /// The namespace called `id`, if it is active for the controller.
    pub(super) fn active(&self, controller: ControllerKey, id: NamespaceId) -> Option<&Namespace> {
        self.allocated(id).filter(|namespace| self.is_active(controller, namespace))
    }

    /// The namespace of a command, which must be active for the controller.
    pub(super) fn active_for(
        &self,
        controller: ControllerKey,
        id: NamespaceId,
    ) -> Result<&Namespace, Failure> {
        self.active(controller, id).ok_or_else(|| self.missing(id))
    }

    /// The failure for a namespace that does not exist.
    pub(super) fn missing(&self, id: NamespaceId) -> Failure {
        self.views.missing(id)
    }

    /// The allocated namespaces, in the order of identifiers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Namespace> {
        self.places.iter().flatten().filter(|namespace| namespace.busy != Some(Busy::Creating))
    }

    /// The namespaces that are active for some controller, in the order of identifiers.
    pub(super) fn iter_attached(&self) -> impl Iterator<Item = &Namespace> {
        self.iter().filter(|namespace| namespace.is_attached())
    }

    /// Changes the namespace called `id`, in any state. `None` if there is none.
    pub(super) fn change<T>(
        &mut self,
        id: NamespaceId,
        change: impl FnOnce(&mut Namespace) -> T,
    ) -> Option<T> {
        let index = index_of(id)?;
        let changed = change(self.places.get_mut(index)?.as_mut()?);
        self.publish(index);
        Some(changed)
    }

    /// Changes every namespace that `chosen` accepts, in any state.
    pub(super) fn change_each(
        &mut self,
        chosen: impl Fn(&Namespace) -> bool,
        change: impl Fn(&mut Namespace),
    ) {
        for index in 0..self.places.len() {
            if let Some(namespace) = self.places[index].as_mut().filter(|one| chosen(one)) {
                change(namespace);
                self.publish(index);
            }
        }
    }

    /// Inserts a namespace at its place.
    pub(super) fn insert(&mut self, namespace: Namespace) {
        let index = index_of(namespace.id).expect("identifiers are small");
        let place = self.places.get_mut(index).expect("the identifier is valid");
        assert!(place.is_none(), "namespace {} exists", namespace.id);
        *place = Some(namespace);
        self.publish(index);
    }

    pub(super) fn remove(&mut self, id: NamespaceId) -> Option<Namespace> {
        let index = index_of(id)?;
        let removed = self.places.get_mut(index)?.take();
        self.publish(index);
        removed
    }

    /// Ends every format and deletion, after the command with exclusive access has ended.
    pub(super) fn set_at_rest(&mut self) {
        self.change_each(|one| one.busy != Some(Busy::Creating), |one| one.busy = None);
    }

    /// Attaches a namespace to a controller, or detaches it. Returns true if the new state then
    /// holds for all controllers, and hence for new ones.
    pub(super) fn attach(&mut self, id: NamespaceId, controller: ControllerKey, attached: bool) -> bool {
        let controllers = self.standings.iter().flatten().count();
        self.change(id, |one| one.set_attached(controller, attached, controllers)).unwrap_or_default()
    }

    /// The registrants and the reservation of a namespace; `None` if there never were any.
    pub(super) fn reservations(&self, id: NamespaceId) -> Option<&ReservationRecord> {
        self.find(id)?.reservations.as_deref()
    }

    /// Restores the reservations that persisted through a power loss.
    pub(super) fn restore_reservations(&mut self, records: &[ReservationRecord]) {
        for record in records {
            if record.persistent && record.registrants.len() <= REGISTRANTS_MAX {
                self.set_reservations(record.clone());
            }
        }
    }

    /// Sets the registrants and the reservation of the record's namespace.
    pub(super) fn set_reservations(&mut self, record: ReservationRecord) {
        self.change(record.namespace, |one| one.reservations = Some(Box::new(record)));
    }

    /// Notes whether a namespace has unreadable blocks.
    pub(super) fn set_marked(&mut self, id: NamespaceId, marked: bool) {
        if self.find(id).is_some_and(|one| one.marked != marked) {
            self.change(id, |one| one.marked = marked);
        }
    }

    /// Switches the volatile write cache on or off.
    pub(super) const fn set_write_through(&mut self, write_through: bool) {
        self.views.publish_write_through(write_through);
    }

    /// The state that I/O commands need, to publish what concerns all namespaces.
    pub(super) const fn views_mut(&mut self) -> &mut Views {
        &mut self.views
    }

    /// Sets the status with which I/O commands fail because of a sanitize operation, and whether
    /// there was no write since the last one.
    pub(super) fn set_sanitize(&mut self, refusal: Option<StatusCode>, erased: bool) {
        self.views.publish_sanitize(refusal, erased);
    }
}

/// The parts of the state that belong to controllers.
impl Namespaces {
    /// Begins to judge the commands of a new controller.
    pub(super) fn add_controller(&mut self, key: ControllerKey, host: [u8; 16]) {
        let index = usize::from(key.0);
        if self.standings.len() <= index {
            self.standings.resize(index + 1, None);
        }
        self.standings[index] = Some(Standing { host, access: Access::default(), permit: Permit::default() });
        self.publish_for(key, |_| true);
    }

    /// Forgets a controller that was removed.
    pub(super) fn remove_controller(&mut self, key: ControllerKey) {
        self.standings[usize::from(key.0)] = None;
        for namespace in self.places.iter_mut().flatten() {
            namespace.forget_controller(key);
        }
        self.remember_unreached();
        self.publish_for(key, |_| true);
    }

    #[track_caller]
    fn standing(&self, key: ControllerKey) -> &Standing {
        self.standings.get(usize::from(key.0)).and_then(Option::as_ref).expect(NOT_ADDED)
    }

    #[track_caller]
    fn standing_mut(&mut self, key: ControllerKey) -> &mut Standing {
        self.standings.get_mut(usize::from(key.0)).and_then(Option::as_mut).expect(NOT_ADDED)
    }

    /// Host Identifier (HOSTID) of the controller's host.
    pub(super) fn host(&self, key: ControllerKey) -> [u8; 16] {
        self.standing(key).host
    }

    pub(super) fn set_host(&mut self, key: ControllerKey, host: [u8; 16]) {
        self.standing_mut(key).host = host;
        self.publish_for(key, |_| true);
    }

    /// The permit of the controller's host.
    pub(super) fn permit(&self, key: ControllerKey) -> &Permit {
        &self.standing(key).permit
    }

    /// Sets the permit of the controller's host. Returns false if nothing changed.
    pub(super) fn set_permit(&mut self, key: ControllerKey, permit: Permit) -> bool {
        let changed = core::mem::replace(&mut self.standing_mut(key).permit, permit.clone()) != permit;
        if changed {
            // The first controller with a restricted permit makes every namespace non-plain.
            self.publish_for(key, |_| true);
        }
        changed
    }

    /// Whether the namespace is attached to the controller and exists for its host.
    pub(super) fn is_active(&self, key: ControllerKey, namespace: &Namespace) -> bool {
        namespace.is_attached_to(key) && self.permit(key).shows(namespace.id)
    }

    /// How the controller reaches the ANA groups.
    pub(super) fn access(&self, key: ControllerKey) -> &Access {
        &self.standing(key).access
    }

    /// Sets how the controller reaches a group. Returns false if nothing changed.
    pub(super) fn set_access(&mut self, key: ControllerKey, group: u32, state: AnaState) -> bool {
        let changed = self.standing_mut(key).access.set_state(group, state);
        if changed {
            self.remember_unreached();
            // The first controller that loses a group changes the namespace for all controllers.
            self.publish_for(key, |one| one.ana_group == group);
        }
        changed
    }

    /// Moves a namespace to an ANA group, and counts the change for the controllers that have the
    /// namespace attached. Returns the previous group; `None` if there is no such namespace.
    pub(super) fn set_group(&mut self, id: NamespaceId, group: u32) -> Option<u32> {
        let before = self.change(id, |one| core::mem::replace(&mut one.ana_group, group))?;
        let namespace = self.places.get(index_of(id)?)?.as_ref()?;
        if before != group {
            for (key, standing) in (0..).map(ControllerKey).zip(&mut self.standings) {
                if let Some(standing) = standing.as_mut().filter(|_| namespace.is_attached_to(key)) {
                    standing.access.count_change(before);
                    standing.access.count_change(group);
                }
            }
        }
        Some(before)
    }

    /// Fails if the controller does not reach the namespace.
    pub(super) fn check_access(&self, key: ControllerKey, namespace: &Namespace) -> Result<(), Failure> {
        match self.access(key).state(namespace.ana_group).refusal() {
            Some(code) => Err(self.views.failure(namespace.id, Refusal::Unreached(code))),
            None => Ok(()),
        }
    }

    /// Fails if a reservation of another host denies the access.
    pub(super) fn check_reservation(
        &self,
        key: ControllerKey,
        namespace: &Namespace,
        touch: Touch,
    ) -> Result<(), Failure> {
        if namespace.allows(self.host(key), touch) {
            Ok(())
        } else {
            Err(self.views.failure(namespace.id, Refusal::Reserved))
        }
    }

    /// Fails if the controller's host may only read.
    pub(super) fn check_writable(&self, key: ControllerKey, id: NamespaceId) -> Result<(), Failure> {
        if self.permit(key).read_only { Err(self.views.failure(id, Refusal::ReadOnly)) } else { Ok(()) }
    }

    /// The verdict of the namespace on the controller's commands: the first reason for a refusal.
    fn verdict(&self, key: ControllerKey, namespace: &Namespace) -> Verdict {
        let standing = self.standings.get(usize::from(key.0)).and_then(Option::as_ref);
        let active = |standing: &&Standing| {
            namespace.busy != Some(Busy::Creating)
                && namespace.is_attached_to(key)
                && standing.permit.shows(namespace.id)
        };
        let Some(standing) = standing.filter(active) else {
            return Verdict::refuse(Refusal::Missing);
        };
        if let Some(code) = standing.access.state(namespace.ana_group).refusal() {
            return Verdict::refuse(Refusal::Unreached(code));
        }
        let busy = namespace.busy.map(|busy| match busy {
            Busy::Formatting => Refusal::Formatting,
            Busy::Creating | Busy::Deleting => Refusal::Missing,
        });
        Verdict::new(|touch| match touch {
            Touch::Writes if standing.permit.read_only => Some(Refusal::ReadOnly),
            touch if namespace.allows(standing.host, touch) => busy,
            _ => Some(Refusal::Reserved),
        })
    }

    fn is_plain(&self, namespace: &Namespace) -> bool {
        namespace.is_attached_to_all()
            && !self.unreached.contains(&namespace.ana_group)
            && self.standings.iter().flatten().all(|standing| standing.permit.is_whole())
            && namespace.reservations.as_ref().is_none_or(|record| record.reservation.is_none())
            && namespace.busy.is_none()
            && !namespace.marked
            && !namespace.block.has_metadata()
    }

    /// Publishes the namespace at `index`, or that there is none.
    fn publish(&mut self, index: usize) {
        let view = self.places[index].as_ref().map(|namespace| {
            let plain = self.is_plain(namespace);
            let keys = (0..).map(ControllerKey).take(if plain { 0 } else { self.standings.len() });
            NamespaceView {
                version: 0,
                medium: namespace.medium,
                offset: namespace.offset,
                block: namespace.block,
                blocks: namespace.blocks,
                write_protected: namespace.is_write_protected(),
                busy: namespace.busy.is_some(),
                marked: namespace.marked,
                plain,
                verdicts: keys.map(|key| self.verdict(key, namespace)).collect(),
            }
        });
        self.views.publish(index, view);
    }

    /// Publishes what changed for one controller in the namespaces that `affected` accepts.
    fn publish_for(&mut self, key: ControllerKey, affected: impl Fn(&Namespace) -> bool) {
        for index in 0..self.places.len() {
            let Some(namespace) = self.places[index].as_ref().filter(|one| affected(one)) else { continue };
            let plain = self.is_plain(namespace);
            if self.views.find(namespace.id).is_none_or(|view| view.plain != plain) {
                self.publish(index);
            } else if !plain {
                let verdict = self.verdict(key, namespace);
                self.views.publish_verdict(index, key, verdict);
            }
        }
    }

    fn remember_unreached(&mut self) {
        let standings = self.standings.iter().flatten();
        self.unreached = standings.flat_map(|one| one.access.unreached()).collect();
    }
}

/// The pool.
impl Namespaces {
    pub(super) const fn pool(&self) -> Option<&PoolConfig> {
        self.pool.as_ref()
    }

    /// Counts a namespace that was created in the pool. Returns how many ever were.
    pub(super) fn count_created(&mut self) -> u64 {
        self.pool.as_mut().map_or(0, |pool| {
            pool.created += 1;
            pool.created
        })
    }

    /// Whether `medium` is the pool's.
    pub(super) fn is_in_pool(&self, medium: MediumId) -> bool {
        self.pool.is_some_and(|pool| pool.medium == medium)
    }

    /// The lowest valid identifier without a namespace.
    pub(super) fn vacant(&self) -> Option<NamespaceId> {
        let index = self.places.iter().position(Option::is_none)?;
        Some(NamespaceId(u32::try_from(index + 1).expect("identifiers are small")))
    }

    /// The occupied extents of `pool` in order, including those of namespaces being created.
    fn extents(&self, pool: &PoolConfig) -> Vec<(u64, u64)> {
        let inside = self.places.iter().flatten().filter(|namespace| namespace.medium == pool.medium);
        let page = u64::from(PAGE_BYTES);
        let mut extents: Vec<_> = inside
            .map(|namespace| (namespace.offset, namespace.offset + namespace.bytes.next_multiple_of(page)))
            .collect();
        extents.sort_unstable();
        extents
    }

    /// Unallocated NVM Capacity (UNVMCAP): the bytes of the pool that no namespace occupies.
    pub(super) fn unallocated(&self) -> u64 {
        self.pool.map_or(0, |pool| {
            let taken: u64 = self.extents(&pool).iter().map(|(start, end)| end - start).sum();
            pool.bytes.saturating_sub(taken)
        })
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

    /// Every part of a medium as (medium, start, length) in bytes, with the length cut to whole
    /// blocks of 512 bytes: the pool, and the parts of namespaces outside it.
    pub(super) fn media(&self) -> Vec<(MediumId, u64, u64)> {
        let pool = self.pool.iter().map(|pool| (pool.medium, 0, pool.bytes));
        let own = self.iter().filter(|one| !self.is_in_pool(one.medium));
        pool.chain(own.map(|one| (one.medium, one.offset, one.bytes)))
            .map(|(medium, start, bytes)| (medium, start, bytes / GRAIN * GRAIN))
            .collect()
    }
}

fn index_of(id: NamespaceId) -> Option<usize> {
    usize::try_from(id.0.wrapping_sub(1)).ok()
}
