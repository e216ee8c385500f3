//! The reservation commands and features, and their consequences.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::controller::ControllerKey;
use super::errors::{Failure, Location};
use super::events::AsynchronousEvent;
use super::flow::{Handled, Step};
use super::lanes::Ending;
use super::namespace::Namespace;
use super::reservation::News;
use super::slots::HostDataFor;
use super::types::{CommandToken, Notification};
use super::{Subsystem, reservation};
use crate::wire::feature::FeatureId;
use crate::wire::{IoOpcode, NamespaceId, StatusCode, SubmissionQueueEntry, feature};

impl Subsystem {
    pub(super) fn on_reservation(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let controller = self.flow.slots.of(token).controller;
        if !self.controllers.has_reservations(controller) {
            return Err(Failure::field(StatusCode::InvalidCommandOpcode, Location::OPCODE));
        }
        self.executor().ready(token, entry)?;
        if IoOpcode::from(entry.opcode) != IoOpcode::ReservationReport {
            self.namespaces.check_writable(controller, entry.namespace)?;
        }
        match IoOpcode::from(entry.opcode) {
            IoOpcode::ReservationReport => {
                let record = self.namespaces.reservations(entry.namespace);
                let (report, length) = reservation::on_report(record, entry, self.config.transfer_bytes_max)?;
                self.flow.push_padded(token, &report, length);
                Ok(Step::Done(0))
            }
            IoOpcode::ReservationRelease => Ok(self.flow.pull(token, 8, HostDataFor::Reservation)),
            _ => Ok(self.flow.pull(token, 16, HostDataFor::Reservation)),
        }
    }

    /// Continues a reservation command whose keys have arrived.
    pub(super) fn on_reservation_keys(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
        data: &[u8],
    ) -> Handled {
        self.executor().ready(token, entry)?;
        let controller = self.flow.slots.of(token).controller;
        let (id, host) = (entry.namespace, self.namespaces.host(controller));
        let outcome = reservation::execute(self.namespaces.reservations(id), host, entry, data)?;
        if !outcome.preempted.is_empty() {
            self.abort_preempted(token, id, &outcome.preempted);
        }
        if let Some(record) = outcome.changed {
            self.namespaces.set_reservations(record.clone());
            if outcome.lasting {
                self.flow.notify(Notification::ReservationsChanged(Box::new(record)));
            }
        }
        for (host, news) in outcome.host_news {
            self.notify(host, news, id);
        }
        Ok(Step::Done(0))
    }

    /// Aborts the hosts' commands for the namespace that can be aborted. The others run on.
    fn abort_preempted(&mut self, by: CommandToken, namespace: NamespaceId, hosts: &BTreeSet<[u8; 16]>) {
        if let Some(lanes) = &mut self.lanes {
            let keys = self.controllers.iter().map(|(key, _)| key);
            let controllers = keys.filter(|key| hosts.contains(&self.namespaces.host(*key))).collect();
            lanes.end(Ending::Preempted { namespace, controllers });
        }
        let is_meant = |token: &CommandToken| {
            self.flow.slots.peek(*token).is_some_and(|slot| {
                let host = self.namespaces.host(slot.controller);
                let of_namespace = !slot.queue.is_admin() && slot.entry.namespace == namespace;
                of_namespace && slot.state.can_abort() && hosts.contains(&host)
            })
        };
        let tokens: Vec<_> = self.flow.slots.tokens().filter(|token| *token != by).filter(is_meant).collect();
        for token in tokens {
            if self.flow.slots.of(token).state.can_abort() {
                self.fail(token, Failure::new(StatusCode::AbortedPreempt));
            }
        }
    }

    /// Notifies the host through each of its controllers that has the namespace attached.
    fn notify(&mut self, host: [u8; 16], news: News, namespace: NamespaceId) {
        let mut next = self.controllers.from(0);
        while let Some(key) = next {
            let attached = self.namespaces.find(namespace).is_some_and(|one| one.is_attached_to(key));
            let is_its = attached && self.namespaces.host(key) == host;
            if is_its && self.controllers.of_mut(key).notices.add(news, namespace) {
                self.controllers.raise_to(&mut self.flow, key, AsynchronousEvent::ReservationNotice);
            }
            next = self.controllers.from(key.0 + 1);
        }
    }

    /// Get Features for Reservation Notification Mask or Reservation Persistence.
    pub(super) fn reservation_feature(
        &self,
        controller: ControllerKey,
        id: FeatureId,
        entry: &SubmissionQueueEntry,
        select: u32,
    ) -> Handled {
        let namespace = self.namespaces.active_for(controller, entry.namespace)?;
        let value = match id {
            FeatureId::ReservationMask => self.controllers.of(controller).notices.mask(entry.namespace),
            _ => namespace.reservations.as_ref().map_or(0, |record| u32::from(record.persistent)),
        };
        Ok(Step::Done(if select == 0 { value } else { 0 }))
    }

    /// Set Features for Reservation Notification Mask or Reservation Persistence, for one namespace
    /// or all.
    pub(super) fn set_reservation_feature(
        &mut self,
        controller: ControllerKey,
        id: FeatureId,
        entry: &SubmissionQueueEntry,
    ) -> Handled {
        let all = entry.namespace == NamespaceId::ALL;
        if !all {
            self.namespaces.active_for(controller, entry.namespace)?;
        }
        let chosen = |one: &&Namespace| one.is_attached_to(controller) && (all || one.id == entry.namespace);
        let chosen: Vec<_> = self.namespaces.iter().filter(chosen).map(|one| one.id).collect();
        for namespace in chosen {
            if id == FeatureId::ReservationMask {
                let value = feature::RESERVATION_NOTIFICATIONS.put(u32::MAX) & entry.cdw11;
                self.controllers.of_mut(controller).notices.set_mask(namespace, value);
                continue;
            }
            let persistent = feature::PERSIST_THROUGH_POWER_LOSS.is_set(entry.cdw11);
            let record = self.namespaces.reservations(namespace);
            if let Some(record) = reservation::set_persistence(record, namespace, persistent) {
                self.namespaces.set_reservations(record.clone());
                self.flow.notify(Notification::ReservationsChanged(Box::new(record)));
            }
        }
        Ok(Step::Done(0))
    }
}
