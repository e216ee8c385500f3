//! Shutdowns of controllers, which flush every medium.

use engine::Instant;

use super::Subsystem;
use super::controller::ControllerKey;
use super::slots::Own;
use super::types::Notification;
use crate::wire::NamespaceId;

impl Subsystem {
    /// Begins a shutdown: makes all written data and all lasting state durable, then reports
    /// [`Notification::ShutDown`]. The shutdown does not wait for commands in flight.
    pub fn shut_down(&mut self, now: Instant, controller: ControllerKey) {
        self.flow.now = now;
        self.record_health(controller);
        self.forget_shutdown(controller);
        self.shutdowns.waiting.push(controller);
        if self.shutdowns.flushing.is_empty() {
            self.begin_flush();
        }
    }

    fn begin_flush(&mut self) {
        self.shutdowns.flushing = core::mem::take(&mut self.shutdowns.waiting);
        let own = self.flow.slots.own(Own::Shutdown);
        self.flow.slots.retire(own);
        let slot = self.flow.slots.of(own);
        (slot.failure, slot.unsaved) = (None, self.config.state.is_some());
        let step = self.flush_after(own, NamespaceId::NONE);
        self.finish(own, Ok(step));
    }

    pub(super) fn on_shutdown_flushed(&mut self, flushed: bool) {
        for controller in core::mem::take(&mut self.shutdowns.flushing) {
            self.flow.notify(Notification::ShutDown { controller, flushed });
        }
        if !self.shutdowns.waiting.is_empty() {
            self.begin_flush();
        }
    }

    /// Forgets the controller's shutdown, which no host waits for any longer.
    pub(super) fn forget_shutdown(&mut self, controller: ControllerKey) {
        let was_flushing = !self.shutdowns.flushing.is_empty();
        self.shutdowns.flushing.retain(|key| *key != controller);
        self.shutdowns.waiting.retain(|key| *key != controller);
        if was_flushing && self.shutdowns.flushing.is_empty() {
            self.flow.slots.retire(self.flow.slots.own(Own::Shutdown));
            if !self.shutdowns.waiting.is_empty() {
                self.begin_flush();
            }
        }
    }
}
