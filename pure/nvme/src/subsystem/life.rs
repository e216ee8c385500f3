//! Adding, removing and resetting controllers, and the end of their commands.

use alloc::vec::Vec;

use engine::Instant;

use super::Subsystem;
use super::controller::{CONTROLLERS_MAX, ControllerConfig, ControllerKey, HostIdentity, Transport};
use super::controllers::Controller;
use super::errors::ErrorLog;
use super::flow::Gone;
use super::lanes::Ending;
use super::namespace::Busy;
use super::reservation::Notices;
use super::slots::{Erasure, MediaFor, Slot, State};
use super::tally::HostTally;
use super::types::{CommandToken, Notification};
use crate::wire::feature::FeatureId;
use crate::wire::{NamespaceId, QueueId};

impl Subsystem {
    /// Adds a controller in its state after a reset. The controller's key is free again once the
    /// controller is removed.
    ///
    /// # Panics
    /// When `config` exceeds a limit that its fields name, when another controller has the same
    /// identifier, or when there are already [`CONTROLLERS_MAX`] controllers.
    pub fn add_controller(&mut self, now: Instant, config: ControllerConfig) -> ControllerKey {
        self.flow.now = now;
        config.check();
        let id = config.controller_id;
        assert!(self.controllers.called(id).is_none(), "there is a controller {id}");
        if config.has_others() {
            self.flow.overlaps.watch();
        }
        let without_metadata = config.of_fabrics().is_some();
        let host = config.host_identifier();
        let controller = Controller::new(now, &self.config, config, &self.saved_features);
        let key = self.controllers.insert(controller);
        let key = key.unwrap_or_else(|| panic!("a subsystem has {CONTROLLERS_MAX} controllers at most"));
        if without_metadata {
            self.flow.without_metadata.insert(key);
        } else {
            self.flow.without_metadata.remove(&key);
        }
        self.namespaces.add_controller(key, host);
        if let Some(lanes) = &mut self.lanes {
            lanes.added.insert(key, self.namespaces.views().version());
        }
        if !core::mem::replace(&mut self.power_on_recorded, true) {
            self.record_reset(key, false);
            self.record_health(key);
        }
        self.remember_write_cache();
        self.controllers.of(key).features.announce_saved(&mut self.flow, key);
        key
    }

    /// Removes a controller. Its commands in flight end without completions, as after a reset.
    pub fn remove_controller(&mut self, now: Instant, controller: ControllerKey) {
        self.flow.now = now;
        self.end_commands_of(controller);
        self.self_test.reset(&mut self.flow, &self.smart, controller);
        self.remember_departure(controller);
        self.controllers.remove(controller);
        self.namespaces.remove_controller(controller);
        self.remember_write_cache();
        self.flow.unsaved = false;
        self.check_quiet();
    }

    /// Remembers the requests that a controller leaves with media, for as long as media have them.
    fn remember_departure(&mut self, controller: ControllerKey) {
        let lanes = self.lanes.as_ref().filter(|lanes| lanes.ending(controller) > 0);
        let version = lanes.and_then(|lanes| lanes.ended_at.get(&controller).copied());
        // Another controller may soon get the same key.
        let mut requests = Vec::new();
        self.flow.orphans.retain(|(request, of)| {
            if *of == controller {
                requests.push(*request);
            }
            *of != controller
        });
        if let Some(fabrics) = self.controllers.of(controller).config.of_fabrics() {
            self.flow.departed.add(&fabrics.host.name, requests, version);
        }
    }

    /// The hosts whose controllers are gone while media have requests of theirs, each with the
    /// number of these requests. A lane that may have any counts as one request. A host that is not
    /// among them and has no controller changes nothing any more.
    pub fn draining(&self) -> impl Iterator<Item = (&str, usize)> {
        let unquiet = |version| self.lanes.as_ref().map_or(0, |lanes| lanes.unquiet_since(version));
        let departed = self.flow.departed.iter();
        let count =
            move |(host, own, version): (_, usize, Option<u64>)| (host, own + version.map_or(0, unquiet));
        departed.map(count).filter(|(_, count)| *count > 0)
    }

    /// The configuration of a controller.
    pub fn controller(&self, controller: ControllerKey) -> &ControllerConfig {
        &self.controllers.of(controller).config
    }

    /// The controller with Controller ID (CNTLID) `id`.
    pub fn controller_called(&self, id: u16) -> Option<ControllerKey> {
        self.controllers.called(id)
    }

    /// The keys of all controllers.
    pub fn controllers(&self) -> impl Iterator<Item = ControllerKey> {
        self.controllers.iter().map(|(key, _)| key)
    }

    /// Performs a controller level reset. The controller's commands in flight end without
    /// completions, Asynchronous Event Requests included; outputs not yet polled are dropped;
    /// features return to their saved or default values. Late answers of media to old requests are
    /// ignored: a transport that must not let old requests overtake the reset waits until
    /// [`Subsystem::media_outstanding`] is 0. Other controllers are not affected.
    pub fn reset(&mut self, now: Instant, controller: ControllerKey) {
        self.flow.now = now;
        self.end_commands_of(controller);
        let activated = self.firmware.reset(controller);
        if let Some(slot) = activated {
            self.flow.notify(Notification::FirmwareActivated { slot });
        }
        // The reset is recorded first, because resetting the features also resets the Timestamp.
        let found = self.controllers.of_mut(controller);
        found.events.reset();
        found.event_context = None;
        found.io_queues_exist = false;
        found.last_reset = now;
        self.record_reset(controller, activated.is_some());
        let found = self.controllers.of_mut(controller);
        found.features.reset(now);
        self.namespaces.set_host(controller, found.config.host_identifier());
        if self.controllers.count() == 1 {
            self.shared_features.reset();
        }
        self.remember_write_cache();
        self.self_test.reset(&mut self.flow, &self.smart, controller);
        // No command waits for notifications that no command caused.
        self.flow.unsaved = false;
        self.check_quiet();
        self.controllers.of(controller).features.announce_saved(&mut self.flow, controller);
    }

    /// Ends the commands of an I/O queue that the transport has lost for good, without completions,
    /// as a reset does. Requests that media have begun continue, and end before another request
    /// reads or changes the same blocks.
    pub fn drop_queue(&mut self, now: Instant, controller: ControllerKey, queue: QueueId) {
        self.flow.now = now;
        self.end_commands(|_, slot| slot.controller == controller && slot.queue == queue);
        self.flow.unsaved = false;
        self.check_quiet();
    }

    /// Gives a controller on PCIe that has others beside it to another host. To be called while the
    /// controller has no command: a transport resets it when its host leaves. The former host keeps
    /// its registrations and reservations; its notifications and errors are not for another.
    ///
    /// # Panics
    /// When the controller was added without a host, or is over fabrics.
    pub fn set_host(&mut self, now: Instant, controller: ControllerKey, host: HostIdentity) {
        self.flow.now = now;
        self.namespaces.set_host(controller, host.identifier);
        let found = self.controllers.of_mut(controller);
        let Transport::Pcie { host: Some(present), .. } = &mut found.config.transport else {
            panic!("the host of controller {} does not change", controller.0);
        };
        if present.identifier != host.identifier {
            found.notices = Notices::default();
            found.errors = ErrorLog::default();
            found.tally = HostTally::default();
        }
        *present = host;
    }

    /// Records a power-on or a controller level reset. `activated` says whether the reset
    /// activated firmware.
    fn record_reset(&mut self, controller: ControllerKey, activated: bool) {
        let counters = self.smart.counters(self.flow.now);
        let (flow, running) = (&mut self.flow, self.firmware.revision());
        self.event_log.record_reset(flow, &self.controllers, controller, running, activated, &counters);
    }

    /// Records a snapshot of the health log.
    pub(super) fn record_health(&mut self, controller: ControllerKey) {
        let health = self.smart_log(Some(controller));
        self.event_log.record_health(&mut self.flow, &self.controllers, controller, &health);
    }

    fn end_commands_of(&mut self, controller: ControllerKey) {
        if let Some(lanes) = &mut self.lanes {
            lanes.end(Ending::Controller(controller));
            let views = self.namespaces.views_mut();
            views.publish_news();
            lanes.ended_at.insert(controller, views.version());
        }
        self.end_commands(|_, slot| slot.controller == controller);
        self.forget_shutdown(controller);
    }

    /// Ends the commands that `is_gone` selects, and drops their outputs that were not polled.
    /// Notifications remain, and background work continues.
    pub(super) fn end_commands(&mut self, is_gone: impl Fn(CommandToken, &Slot) -> bool) {
        if let Some(lanes) = &mut self.lanes {
            let slots = &self.flow.slots;
            let is_its = |token| slots.peek(token).is_some_and(|slot| is_gone(token, slot));
            lanes.drop_commands(is_its);
        }
        for Gone { token, is_admin, state } in self.flow.end_commands(is_gone).0 {
            if !is_admin {
                self.smart.end_io(self.flow.now);
            }
            self.end_command(token, is_admin, state);
        }
    }

    fn end_command(&mut self, token: CommandToken, is_admin: bool, state: State) {
        if self.restrictions.forget(token) {
            self.namespaces.set_at_rest();
        }
        let namespace = match state {
            State::AwaitingMedia(
                MediaFor::Erase(Erasure::Creation(namespace))
                | MediaFor::FlushErased(Erasure::Creation(namespace)),
            ) => namespace,
            State::AwaitingMedia(MediaFor::Save(dw0)) => NamespaceId(dw0),
            _ => return,
        };
        let entry = self.flow.slots.of(token).entry;
        let creating = self.namespaces.find(namespace).is_some_and(|one| one.busy == Some(Busy::Creating));
        if is_admin && self.creates_namespace(&entry) && creating {
            // The namespace's extent is free, but not before the medium has finished with it.
            self.revoke_namespace(namespace);
            self.restrictions.drain();
        }
    }

    /// Number of unanswered media requests for commands of the controller, including commands that
    /// a reset has ended. Background work that continues through resets is not counted, because no
    /// command conflicts with it.
    pub fn media_outstanding(&self, controller: ControllerKey) -> usize {
        let orphans = self.flow.orphans.iter().filter(|(_, of)| *of == controller).count();
        let of_commands = self.flow.slots.of_controller(controller);
        let in_lanes = self.lanes.as_ref().map_or(0, |lanes| lanes.ending(controller));
        in_lanes
            + orphans
            + of_commands.filter(|(_, slot)| matches!(slot.state, State::AwaitingMedia(_))).count()
    }

    /// Number of unanswered media requests of all controllers.
    #[doc(hidden)]
    pub const fn all_media_outstanding(&self) -> usize {
        self.flow.media_outstanding
    }

    /// Recomputes whether the write cache is on. Every write is durable while any host has the
    /// cache off.
    pub(super) fn remember_write_cache(&mut self) {
        let on = self.controllers.iter().all(|(_, one)| one.features.write_cache_is_enabled());
        self.namespaces.set_write_through(!(self.config.volatile_write_cache && on));
    }

    /// Keep Alive Timeout (KATO) of the controller in milliseconds; 0 for none. The transport runs
    /// the timer.
    pub fn keep_alive_milliseconds(&self, controller: ControllerKey) -> u32 {
        self.controllers.of(controller).features.value(FeatureId::KeepAliveTimer, 0)
    }

    /// Informs the core whether the transport has I/O queues. Once it has, hosts cannot set Number
    /// of Queues.
    pub fn set_io_queues_exist(&mut self, controller: ControllerKey, exist: bool) {
        self.controllers.of_mut(controller).io_queues_exist = exist;
    }
}
