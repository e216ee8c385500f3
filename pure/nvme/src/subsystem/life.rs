//! Controllers come and go, are reset and shut down.

use alloc::vec::Vec;

use engine::Instant;

use super::controller::{CONTROLLERS_MAX, Controller, ControllerConfig, ControllerKey};
use super::namespace::Busy;
use super::slots::{MediaFor, Own, Slot, State};
use super::{CommandToken, Notification, Output, Subsystem};
use crate::media::IoId;
use crate::wire::feature::FeatureId;
use crate::wire::{NamespaceId, SubmissionQueueId};

/// Shutdowns: one flush of all media is for every controller that asked before it began.
#[derive(Debug, Default)]
pub(super) struct Shutdowns {
    /// Those that the flush under way is for.
    flushing: Vec<ControllerKey>,
    /// Those that have asked since.
    waiting: Vec<ControllerKey>,
}

impl Subsystem {
    /// Adds a controller, as it is after a reset. Its key is free again once it is removed.
    ///
    /// # Panics
    /// When `config` exceeds a limit that its fields name, another controller has its identifier, or there are
    /// [`CONTROLLERS_MAX`] controllers.
    pub fn add_controller(&mut self, now: Instant, config: ControllerConfig) -> ControllerKey {
        self.now = now;
        config.check();
        let id = config.controller_id;
        assert!(self.controller_called(id).is_none(), "there is a controller {id}");
        if config.of_fabrics().is_some() {
            self.overlaps.watch();
        }
        let controller = Controller::new(now, &self.config, config, &self.saved_features);
        let key = self.controllers.insert(controller);
        let key = key.unwrap_or_else(|| panic!("a subsystem has {CONTROLLERS_MAX} controllers at most"));
        if !core::mem::replace(&mut self.power_on_recorded, true) {
            self.record_reset(key, false);
            self.record_health(key);
        }
        self.remember_write_cache();
        self.announce_saved_features(key);
        key
    }

    /// Removes a controller: its commands in flight are gone without completions, as after a reset.
    pub fn remove_controller(&mut self, now: Instant, controller: ControllerKey) {
        self.now = now;
        self.end_commands_of(controller);
        self.reset_self_test(controller);
        self.controllers.remove(controller);
        // Its key may be another's soon.
        self.orphans.retain(|(_, of)| *of != controller);
        self.namespaces.iter_mut().for_each(|namespace| namespace.forget_controller(controller));
        self.remember_access();
        self.remember_write_cache();
        self.unsaved = false;
        self.check_quiet();
    }

    /// How a controller was configured.
    pub fn controller(&self, controller: ControllerKey) -> &ControllerConfig {
        &self.controllers.of(controller).config
    }

    /// The controller with a Controller ID (CNTLID).
    pub fn controller_called(&self, id: u16) -> Option<ControllerKey> {
        self.controllers.iter().find(|(_, one)| one.config.controller_id == id).map(|(key, _)| key)
    }

    /// The controllers that there are.
    pub fn controllers(&self) -> impl Iterator<Item = ControllerKey> {
        self.controllers.iter().map(|(key, _)| key)
    }

    /// A controller level reset: its commands in flight are gone without completions, Asynchronous Event
    /// Requests too, outputs that were not polled are dropped, features return to their saved or default
    /// values. What media still answer to old requests is ignored; a transport that must not let them
    /// overtake the reset waits until [`Subsystem::media_outstanding`] is 0. Other controllers go on.
    pub fn reset(&mut self, now: Instant, controller: ControllerKey) {
        self.now = now;
        self.end_commands_of(controller);
        let activated = self.firmware.reset(controller);
        if let Some(slot) = activated {
            self.notify(Notification::FirmwareActivated { slot });
        }
        // Before the features, as long as the time is known.
        let found = self.controllers.of_mut(controller);
        found.events.reset();
        found.event_context = None;
        found.io_queues_exist = false;
        found.last_reset = now;
        self.record_reset(controller, activated.is_some());
        self.controllers.of_mut(controller).features.reset(now);
        if self.controllers.count() == 1 {
            self.shared_features.reset();
        }
        self.remember_write_cache();
        self.reset_self_test(controller);
        // Nobody waits for what was said without a command.
        self.unsaved = false;
        self.check_quiet();
        self.announce_saved_features(controller);
    }

    /// The transport has lost an I/O queue for good: its commands in flight are gone without completions, as after a reset.
    /// What media have begun of them goes on, and is ended before anybody reads or changes the same blocks.
    pub fn drop_queue(&mut self, now: Instant, controller: ControllerKey, queue: SubmissionQueueId) {
        self.now = now;
        self.end_commands(|slot| slot.controller == controller && slot.queue == queue);
        self.unsaved = false;
        self.check_quiet();
    }

    fn end_commands_of(&mut self, controller: ControllerKey) {
        self.end_commands(|slot| slot.controller == controller);
        self.forget_shutdown(controller);
    }

    /// Forgets the commands that `is_gone` names, and what of their outputs was not polled. What is said to the world
    /// stays said, and background work goes on.
    fn end_commands(&mut self, is_gone: impl Fn(&Slot) -> bool) {
        let slots = &self.slots;
        let is_its = |token: CommandToken| slots.is_command(token) && slots.peek(token).is_some_and(&is_gone);
        // Requests that no medium has seen will never be answered.
        let dropped = |output: &Output| match output {
            Output::Media(request) => is_its(request.id.token()),
            Output::PullHostData { token, .. }
            | Output::PushHostData { token, .. }
            | Output::Complete { token, .. } => is_its(*token),
            Output::Notify(_) => false,
        };
        let mut unseen = Vec::new();
        self.outputs.retain(|output| {
            let dropped = dropped(output);
            if let (true, Output::Media(request)) = (dropped, output) {
                unseen.push(request.id);
            }
            !dropped
        });
        let commands: Vec<_> = self
            .slots
            .in_flight()
            .filter(|(_, slot)| is_gone(slot))
            .map(|(token, slot)| {
                (token, slot.queue.is_admin(), slot.state, slot.request(token), slot.controller)
            })
            .collect();
        let requests: Vec<_> = commands.iter().filter_map(|(.., request, _)| *request).collect();
        self.overlaps.disown(&requests, &mut unseen);
        self.ask_those_behind();
        self.media_outstanding -= unseen.len();
        for (token, is_admin, state, request, controller) in commands {
            if !is_admin {
                self.smart.end_io(self.now);
            }
            let request = request.filter(|request| !unseen.contains(request));
            self.orphans.extend(request.map(|request| (request, controller)));
            self.end_command(token, is_admin, state);
        }
    }

    fn end_command(&mut self, token: CommandToken, is_admin: bool, state: State) {
        self.slots.retire(token);
        if self.care.forget(token) {
            self.namespaces.set_at_rest();
        }
        let namespace = match state {
            State::AwaitingMedia(MediaFor::CreateNamespace(namespace)) => namespace,
            State::AwaitingMedia(MediaFor::Save(dw0)) => NamespaceId(dw0),
            _ => return,
        };
        let entry = self.slots.of(token).entry;
        let creating = self.namespaces.find(namespace).is_some_and(|one| one.busy() == Some(Busy::Creating));
        if is_admin && self.creates_namespace(&entry) && creating {
            // Its extent is free, but not before the medium has done with it.
            self.revoke_namespace(namespace);
            self.care.drain();
        }
    }

    /// A medium has ended what nobody waits for.
    #[cold]
    pub(super) fn forget_orphan(&mut self, id: IoId) {
        self.orphans.retain(|(orphan, _)| *orphan != id);
    }

    /// Requests to media for commands of the controller that have not ended, those of commands that a reset has ended
    /// included; but not those of what goes on through resets, which no command comes into conflict with.
    pub fn media_outstanding(&self, controller: ControllerKey) -> usize {
        let orphans = self.orphans.iter().filter(|(_, of)| *of == controller).count();
        let of_commands = self.slots.of_controller(controller);
        orphans + of_commands.filter(|(_, slot)| matches!(slot.state, State::AwaitingMedia(_))).count()
    }

    /// Requests to media that have not ended, whoever they were for.
    #[doc(hidden)]
    pub const fn all_media_outstanding(&self) -> usize {
        self.media_outstanding
    }

    /// Begins a shutdown: makes everything durable that was written, and what was said to be worth remembering, then says
    /// [`Notification::ShutDown`]. Commands in flight are not waited for.
    pub fn shut_down(&mut self, now: Instant, controller: ControllerKey) {
        self.now = now;
        self.record_health(controller);
        self.forget_shutdown(controller);
        self.shutdowns.waiting.push(controller);
        if self.shutdowns.flushing.is_empty() {
            self.begin_flush();
        }
    }

    fn begin_flush(&mut self) {
        self.shutdowns.flushing = core::mem::take(&mut self.shutdowns.waiting);
        let own = self.slots.own(Own::Shutdown);
        self.slots.retire(own);
        let slot = self.slots.of(own);
        (slot.failure, slot.unsaved) = (None, self.config.state.is_some());
        let step = self.flush_after(own, NamespaceId::NONE);
        self.finish(own, Ok(step));
    }

    pub(super) fn on_shutdown_flushed(&mut self, flushed: bool) {
        for controller in core::mem::take(&mut self.shutdowns.flushing) {
            self.notify(Notification::ShutDown { controller, flushed });
        }
        if !self.shutdowns.waiting.is_empty() {
            self.begin_flush();
        }
    }

    /// Nobody waits for the controller's shutdown any longer.
    fn forget_shutdown(&mut self, controller: ControllerKey) {
        let was_flushing = !self.shutdowns.flushing.is_empty();
        self.shutdowns.flushing.retain(|key| *key != controller);
        self.shutdowns.waiting.retain(|key| *key != controller);
        if was_flushing && self.shutdowns.flushing.is_empty() {
            self.slots.retire(self.slots.own(Own::Shutdown));
            if !self.shutdowns.waiting.is_empty() {
                self.begin_flush();
            }
        }
    }

    /// Writes are durable while any host wants no write cache.
    pub(super) fn remember_write_cache(&mut self) {
        self.write_cache = self.controllers.iter().all(|(_, one)| one.features.write_cache_is_enabled());
    }

    /// Keep Alive Timeout (KATO) of the controller, in milliseconds; 0 for none. The transport runs the timer.
    pub fn keep_alive_milliseconds(&self, controller: ControllerKey) -> u32 {
        self.controllers.of(controller).features.value(FeatureId::KeepAliveTimer, 0)
    }

    /// Tells whether the transport has I/O queues: once it has, Number of Queues can't be set.
    pub fn set_io_queues_exist(&mut self, controller: ControllerKey, exist: bool) {
        self.controllers.of_mut(controller).io_queues_exist = exist;
    }
}
