//! The controllers of the subsystem and their state.

use alloc::boxed::Box;
use alloc::vec::Vec;

use engine::Instant;

use super::ana::Access;
use super::config::Config;
use super::controller::{CONTROLLERS_MAX, ControllerConfig, ControllerKey};
use super::errors::ErrorLog;
use super::events::Events;
use super::features::Features;
use super::instance::Instance;
use super::record::SavedFeature;
use super::reservation::Notices;

/// The state of a controller.
#[derive(Debug)]
pub(super) struct Controller {
    pub(super) config: ControllerConfig,
    pub(super) features: Features,
    pub(super) events: Events,
    pub(super) errors: ErrorLog,
    pub(super) access: Access,
    pub(super) notices: Notices,
    /// The Persistent Event log as it was when its reporting context was established.
    pub(super) event_context: Option<Vec<u8>>,
    /// The time of the latest controller level reset, or of the controller's addition before the
    /// first one.
    pub(super) last_reset: Instant,
    /// Whether the transport has I/O queues, which makes Number of Queues immutable.
    pub(super) io_queues_exist: bool,
    /// The controller's present life, in case another controller is asked to end it.
    pub(super) instance: Option<Instance>,
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
            access: Access::default(),
            notices: Notices::default(),
            event_context: None,
            last_reset: now,
            io_queues_exist: false,
            instance: None,
            config,
        }
    }
}

/// All controllers of the subsystem, by key.
#[derive(Debug, Default)]
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
}
