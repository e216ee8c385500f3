//! The controllers of the subsystem and their state.

use alloc::boxed::Box;
use alloc::vec::Vec;

use engine::Instant;
use serde::{Deserialize, Serialize};

use super::config::Config;
use super::controller::{CONTROLLERS_MAX, ControllerConfig, ControllerKey, Instance};
use super::errors::ErrorLog;
use super::events::{AsynchronousEvent, Events};
use super::features::Features;
use super::flow::{Flow, Handled, Step};
use super::namespace::Namespace;
use super::namespaces::Namespaces;
use super::record::SavedFeature;
use super::reservation::Notices;
use super::slots::State;
use super::tally::HostTally;
use super::types::{CommandToken, CompletionResult, Output};
use crate::wire::log::critical_warning;
use crate::wire::{NamespaceId, Status};

/// The state of a controller.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Controller {
    pub(super) config: ControllerConfig,
    pub(super) features: Features,
    pub(super) events: Events,
    pub(super) errors: ErrorLog,
    pub(super) notices: Notices,
    /// The Persistent Event log as it was when its reporting context was established.
    pub(super) event_context: Option<Vec<u8>>,
    /// The time of the latest controller level reset, or of the controller's addition before the
    /// first one.
    pub(super) last_reset: Instant,
    /// Whether the transport has I/O queues, which makes Number of Queues immutable.
    pub(super) io_queues_exist: bool,
    /// The controller's present life, for the case that a request to another controller ends it.
    pub(super) instance: Option<Instance>,
    /// Counts of the controller's I/O commands.
    pub(super) tally: HostTally,
}

impl Controller {
    pub(super) fn new(
        now: Instant,
        subsystem: &Config,
        config: ControllerConfig,
        saved: &[SavedFeature],
    ) -> Self {
        Self {
            features: Features::new(now, subsystem, &config, saved),
            events: Events::new(config.event_requests_max),
            errors: ErrorLog::default(),
            notices: Notices::default(),
            event_context: None,
            last_reset: now,
            io_queues_exist: false,
            instance: None,
            tally: HostTally::default(),
            config,
        }
    }
}

/// All controllers of the subsystem, by key.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Controllers(Vec<Option<Box<Controller>>>);

impl Controllers {
    /// Adds a controller under the lowest free key; `None` when there are already
    /// [`CONTROLLERS_MAX`].
    pub(super) fn insert(&mut self, controller: Controller) -> Option<ControllerKey> {
        let index = self.0.iter().position(Option::is_none).unwrap_or(self.0.len());
        let key = u16::try_from(index).ok().filter(|key| *key < CONTROLLERS_MAX)?;
        if index == self.0.len() {
            self.0.push(None);
        }
        self.0[index] = Some(Box::new(controller));
        Some(ControllerKey(key))
    }

    pub(super) fn remove(&mut self, key: ControllerKey) {
        if let Some(place) = self.0.get_mut(usize::from(key.0)) {
            *place = None;
        }
    }

    pub(super) fn find(&self, key: ControllerKey) -> Option<&Controller> {
        self.0.get(usize::from(key.0))?.as_deref()
    }

    /// The controller of a command, or the one that the transport names.
    #[track_caller]
    pub(super) fn of(&self, key: ControllerKey) -> &Controller {
        self.find(key).expect("the controller was added and not removed")
    }

    #[track_caller]
    pub(super) fn of_mut(&mut self, key: ControllerKey) -> &mut Controller {
        let found = self.0.get_mut(usize::from(key.0)).and_then(Option::as_deref_mut);
        found.expect("the controller was added and not removed")
    }

    /// Every controller with its key.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ControllerKey, &Controller)> {
        (0..).map(ControllerKey).zip(&self.0).filter_map(|(key, place)| Some((key, place.as_deref()?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (ControllerKey, &mut Controller)> {
        (0..)
            .map(ControllerKey)
            .zip(&mut self.0)
            .filter_map(|(key, place)| Some((key, place.as_deref_mut()?)))
    }

    /// The lowest key in use, from `key` upwards.
    pub(super) fn from(&self, key: u16) -> Option<ControllerKey> {
        let mut keys = (key..CONTROLLERS_MAX).take_while(|key| usize::from(*key) < self.0.len());
        keys.find(|key| self.find(ControllerKey(*key)).is_some()).map(ControllerKey)
    }

    pub(super) fn count(&self) -> usize {
        self.iter().count()
    }

    /// The controller with Controller ID (CNTLID) `id`.
    pub(super) fn called(&self, id: u16) -> Option<ControllerKey> {
        self.iter().find(|(_, one)| one.config.controller_id == id).map(|(key, _)| key)
    }

    /// The Timestamp data structure of the controller as a number.
    pub(super) fn timestamp(&self, now: Instant, key: ControllerKey) -> u64 {
        u64::from_le_bytes(self.of(key).features.timestamp(now))
    }

    /// Executes an Asynchronous Event Request.
    pub(super) fn on_event_request(&mut self, flow: &mut Flow, token: CommandToken) -> Handled {
        let key = flow.slots.of(token).controller;
        self.of_mut(key).events.ask(token)?;
        flow.slots.of(token).state = State::AwaitingEvent;
        self.report_events(flow, key);
        Ok(Step::Waiting)
    }

    /// Completes requests of one controller with the events that wait for a request.
    pub(super) fn report_events(&mut self, flow: &mut Flow, key: ControllerKey) {
        while let Some((token, event)) = self.of_mut(key).events.report() {
            flow.slots.retire(token);
            let completion =
                CompletionResult { dw0: event.completion_dw0(), dw1: 0, status: Status::SUCCESS };
            flow.outputs.push_back(Output::Complete { token, completion });
        }
    }

    /// Reports an event to one controller if its host enabled the event.
    pub(super) fn raise_to(&mut self, flow: &mut Flow, key: ControllerKey, event: AsynchronousEvent) {
        let found = self.of_mut(key);
        if found.features.event_is_enabled(event) {
            found.events.raise(event);
            self.report_events(flow, key);
        }
    }

    /// Reports an event to every controller whose host enabled the event.
    pub(super) fn raise(&mut self, flow: &mut Flow, event: AsynchronousEvent) {
        let mut next = self.from(0);
        while let Some(key) = next {
            self.raise_to(flow, key, event);
            next = self.from(key.0 + 1);
        }
    }

    /// Reports a changed namespace to the controllers that have it attached.
    pub(super) fn on_namespace_changed(
        &mut self,
        flow: &mut Flow,
        namespaces: &Namespaces,
        namespace: &Namespace,
    ) {
        let mut next = self.from(0);
        while let Some(key) = next {
            if namespaces.is_active(key, namespace) {
                self.on_namespace_changed_for(flow, key, namespace.id);
            }
            next = self.from(key.0 + 1);
        }
    }

    /// Reports a changed namespace to one controller, for instance after an attachment.
    pub(super) fn on_namespace_changed_for(&mut self, flow: &mut Flow, key: ControllerKey, id: NamespaceId) {
        self.of_mut(key).events.add_changed(id);
        self.raise_to(flow, key, AsynchronousEvent::NamespaceAttributeChanged);
    }

    /// The present Critical Warning of the health log for one controller, at a temperature in
    /// kelvin.
    pub(super) fn critical_warning(&self, key: ControllerKey, kelvin: u16) -> u8 {
        let kelvin = u32::from(kelvin);
        let (over, under) = self.of(key).features.temperature_thresholds();
        if kelvin >= over || kelvin <= under { critical_warning::TEMPERATURE } else { 0 }
    }

    /// The critical warnings of all controllers combined.
    pub(super) fn critical_warnings(&self, kelvin: u16) -> u8 {
        self.iter().fold(0, |warnings, (key, _)| warnings | self.critical_warning(key, kelvin))
    }

    /// Raises an event when the temperature has newly gone beyond a threshold of the controller.
    pub(super) fn check_temperature(&mut self, flow: &mut Flow, key: ControllerKey, kelvin: u16) {
        let beyond = self.critical_warning(key, kelvin) & critical_warning::TEMPERATURE != 0;
        if self.of_mut(key).events.set_too_warm_or_cold(beyond) {
            self.raise_to(flow, key, AsynchronousEvent::TemperatureThreshold);
        }
    }

    /// Rechecks conditions whose events the host has just enabled.
    pub(super) fn recheck_conditions(&mut self, flow: &mut Flow, key: ControllerKey, kelvin: u16) {
        self.of_mut(key).events.set_too_warm_or_cold(false);
        self.check_temperature(flow, key, kelvin);
    }

    /// Whether the controller has the reservation commands, which need host identifiers.
    pub(super) fn has_reservations(&self, key: ControllerKey) -> bool {
        self.of(key).config.has_others()
    }

    /// Whether the controller reports ANA.
    pub(super) fn has_ana(&self, key: ControllerKey, subsystem: &Config) -> bool {
        self.of(key).config.has_ana(subsystem.ana_groups)
    }
}

/// Shutdowns in progress. One flush of all media serves every controller that requested a shutdown
/// before the flush began.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Shutdowns {
    /// Controllers that the present flush serves.
    pub(super) flushing: Vec<ControllerKey>,
    /// Controllers that requested a shutdown after the present flush began.
    pub(super) waiting: Vec<ControllerKey>,
}
