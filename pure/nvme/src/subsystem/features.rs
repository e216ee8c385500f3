//! Features: their values, and the commands Get Features and Set Features.

use alloc::vec::Vec;

use engine::{Instant, Nanos};

use super::Subsystem;
use super::config::Config;
use super::controller::{ControllerConfig, ControllerKey, KEEP_ALIVE_MAX_MILLISECONDS, Transport};
use super::errors::{Failure, Location};
use super::events::AsynchronousEvent;
use super::flow::{Handled, Step};
use super::record::{FeatureKey, SavedFeature};
use super::slots::HostDataFor;
use super::types::{CommandToken, Notification};
use crate::wire::feature::{FeatureId, capability};
use crate::wire::log::critical_warning;
use crate::wire::{NamespaceId, StatusCode, SubmissionQueueEntry, feature, low_u8, low_u16};

/// A feature value of one double word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) key: FeatureKey,
    default: u32,
    pub(super) current: u32,
    saved: Option<u32>,
}

/// Index of the over temperature threshold.
const OVER: u16 = 0;
/// Index of the under temperature threshold.
const UNDER: u16 = 1;
/// Threshold Temperature Select: all sensors.
const EVERY_SENSOR: u32 = 0xf;
/// Events that the Asynchronous Event Configuration can enable here.
const EVENTS_SUPPORTED: u32 = feature::EVENT_CRITICAL_WARNINGS.put(0x1f)
    | feature::EVENT_NAMESPACE_ATTRIBUTE.put(1)
    | feature::EVENT_TELEMETRY.put(1)
    | feature::EVENT_ASYMMETRIC_ACCESS.put(1);
/// The unit of the Aggregation Time.
const AGGREGATION_UNIT: Nanos = Nanos::from_micros(100);
/// Length in bytes of the Timestamp data structure.
const TIMESTAMP_BYTES: u32 = 8;
/// Timestamp Origin "set by Set Features", in the byte after the 48 bits of milliseconds.
const TIMESTAMP_SET_BY_HOST: u8 = 0b001 << 1;

#[derive(Debug)]
pub(super) struct Features {
    pub(super) settings: Vec<Setting>,
    queues: u32,
    queues_max: u32,
    /// The time that was set (in milliseconds of the Unix epoch), when, and whether by a host.
    timestamp: (u64, Instant, bool),
}

impl Features {
    pub(super) fn new(
        now: Instant,
        config: &Config,
        controller: &ControllerConfig,
        saved: &[SavedFeature],
    ) -> Self {
        let mut settings: Vec<_> = defaults(config, controller).collect();
        if matches!(controller.transport, Transport::Pcie { .. }) {
            restore(&mut settings, saved);
        }
        let queues = u32::from(controller.io_queues_max) - 1;
        let queues = feature::SUBMISSION_QUEUES.put(queues) | feature::COMPLETION_QUEUES.put(queues);
        let mut features = Self { settings, queues, queues_max: queues, timestamp: (0, now, false) };
        features.reset(now);
        features
    }

    /// Resets every value to its saved value, or to its default if none was saved.
    pub(super) fn reset(&mut self, now: Instant) {
        for setting in &mut self.settings {
            setting.current = setting.saved.unwrap_or(setting.default);
        }
        self.queues = self.queues_max;
        self.timestamp = (0, now, false);
    }

    /// Whether the Volatile Write Cache feature is currently enabled.
    pub(super) fn write_cache_is_enabled(&self) -> bool {
        feature::WRITE_CACHE_ENABLE.is_set(self.value(FeatureId::VolatileWriteCache, 0))
    }

    /// The current value of a feature of the controller; 0 if the controller does not have it.
    pub(super) fn value(&self, feature: FeatureId, index: u16) -> u32 {
        let key = FeatureKey { feature, namespace: NamespaceId::NONE, index };
        self.settings.iter().find(|setting| setting.key == key).map_or(0, |setting| setting.current)
    }

    /// The over and the under threshold of the composite temperature, in kelvin.
    pub(super) fn temperature_thresholds(&self) -> (u32, u32) {
        let threshold = |index| feature::TEMPERATURE.of(self.value(FeatureId::TemperatureThreshold, index));
        (threshold(OVER), threshold(UNDER))
    }

    pub(super) fn event_is_enabled(&self, event: AsynchronousEvent) -> bool {
        let enabled = self.value(FeatureId::AsynchronousEventConfiguration, 0);
        let warning = match event {
            AsynchronousEvent::SpareBelowThreshold => critical_warning::SPARE,
            AsynchronousEvent::TemperatureThreshold => critical_warning::TEMPERATURE,
            AsynchronousEvent::ReliabilityDegraded => critical_warning::RELIABILITY,
            AsynchronousEvent::NamespaceAttributeChanged => {
                return feature::EVENT_NAMESPACE_ATTRIBUTE.is_set(enabled);
            }
            AsynchronousEvent::AsymmetricAccessChanged => {
                return feature::EVENT_ASYMMETRIC_ACCESS.is_set(enabled);
            }
            AsynchronousEvent::TelemetryLogChanged => return feature::EVENT_TELEMETRY.is_set(enabled),
            // The configuration cannot mask errors and sanitize operations.
            _ => return true,
        };
        feature::EVENT_CRITICAL_WARNINGS.of(enabled) & u32::from(warning) != 0
    }

    /// The Timestamp data structure at `now`: milliseconds and attributes.
    pub(super) fn timestamp(&self, now: Instant) -> [u8; 8] {
        let (said, since, by_host) = self.timestamp;
        let [a, b, c, d, e, f, ..] = (said + (now - since).get() / 1_000_000).to_le_bytes();
        [a, b, c, d, e, f, if by_host { TIMESTAMP_SET_BY_HOST } else { 0 }, 0]
    }
}

/// Every feature value of one double word of the controller, with its default.
fn defaults(config: &Config, controller: &ControllerConfig) -> impl Iterator<Item = Setting> {
    let setting = |feature, namespace, index, default| Setting {
        key: FeatureKey { feature, namespace, index },
        default,
        current: default,
        saved: None,
    };
    let of_controller = move |feature, index, default| setting(feature, NamespaceId::NONE, index, default);
    let burst = feature::ARBITRATION_BURST.put(feature::ARBITRATION_UNLIMITED);
    let cache = config.volatile_write_cache;
    let fabrics = matches!(controller.transport, Transport::Fabrics(_));
    [
        of_controller(FeatureId::Arbitration, 0, burst),
        of_controller(FeatureId::PowerManagement, 0, 0),
        of_controller(FeatureId::TemperatureThreshold, OVER, config.temperature_warning.into()),
        of_controller(FeatureId::TemperatureThreshold, UNDER, 0),
        of_controller(FeatureId::InterruptCoalescing, 0, 0),
        of_controller(FeatureId::WriteAtomicity, 0, 0),
        of_controller(FeatureId::AsynchronousEventConfiguration, 0, 0),
    ]
    .into_iter()
    .chain(fabrics.then(|| of_controller(FeatureId::KeepAliveTimer, 0, controller.keep_alive_default())))
    .chain(cache.then(|| of_controller(FeatureId::VolatileWriteCache, 0, feature::WRITE_CACHE_ENABLE.put(1))))
    .chain(
        (0..controller.interrupt_vectors()).map(move |vector| {
            of_controller(FeatureId::InterruptVectorConfiguration, vector, u32::from(vector))
        }),
    )
}

/// Gives settings their saved values.
fn restore(settings: &mut [Setting], saved: &[SavedFeature]) {
    for saved in saved {
        if let Some(setting) = settings.iter_mut().find(|setting| setting.key == saved.key) {
            setting.saved = Some(saved.value);
        }
    }
}

/// Feature values of namespaces, which all controllers share.
#[derive(Debug)]
pub(super) struct SharedFeatures(Vec<Setting>);

impl SharedFeatures {
    pub(super) fn new(config: &Config) -> Self {
        let mut shared = Self(Vec::new());
        config.namespaces.iter().for_each(|namespace| shared.add_namespace(namespace.id));
        restore(&mut shared.0, &config.saved_features);
        shared.reset();
        shared
    }

    /// Resets every value to its saved value, or to its default if none was saved.
    pub(super) fn reset(&mut self) {
        for setting in &mut self.0 {
            setting.current = setting.saved.unwrap_or(setting.default);
        }
    }

    /// Adds default values for a new namespace.
    pub(super) fn add_namespace(&mut self, namespace: NamespaceId) {
        let key = FeatureKey { feature: FeatureId::ErrorRecovery, namespace, index: 0 };
        self.0.push(Setting { key, default: 0, current: 0, saved: None });
    }

    /// Drops the values of a namespace that is gone.
    pub(super) fn remove_namespace(&mut self, namespace: NamespaceId) {
        self.0.retain(|setting| setting.key.namespace != namespace);
    }
}

/// The answer to Select = supported capabilities; 0 for a feature that the controller does not
/// have.
pub(super) fn capabilities(config: &Config, controller: &ControllerConfig, id: FeatureId) -> u32 {
    let supported = capabilities_anywhere(config, id);
    match (&controller.transport, id) {
        (Transport::Pcie { .. }, FeatureId::KeepAliveTimer) => 0,
        (Transport::Pcie { .. }, FeatureId::ReservationMask | FeatureId::ReservationPersistence) => 0,
        (Transport::Fabrics(fabrics), FeatureId::KeepAliveTimer) if fabrics.keep_alive_granularity == 0 => 0,
        (Transport::Fabrics(_), FeatureId::InterruptCoalescing | FeatureId::InterruptVectorConfiguration) => {
            0
        }
        // A controller that exists only as long as its association has nothing to save.
        (Transport::Fabrics(_), _) if supported & capability::NAMESPACE_SPECIFIC == 0 => {
            supported & !capability::SAVEABLE
        }
        _ => supported,
    }
}

fn capabilities_anywhere(config: &Config, id: FeatureId) -> u32 {
    match id {
        FeatureId::Arbitration
        | FeatureId::TemperatureThreshold
        | FeatureId::InterruptCoalescing
        | FeatureId::WriteAtomicity
        | FeatureId::AsynchronousEventConfiguration => capability::SAVEABLE | capability::CHANGEABLE,
        FeatureId::ErrorRecovery => {
            capability::SAVEABLE | capability::NAMESPACE_SPECIFIC | capability::CHANGEABLE
        }
        FeatureId::ReservationMask | FeatureId::ReservationPersistence | FeatureId::WriteProtection => {
            capability::NAMESPACE_SPECIFIC | capability::CHANGEABLE
        }
        FeatureId::VolatileWriteCache if config.volatile_write_cache => {
            capability::SAVEABLE | capability::CHANGEABLE
        }
        FeatureId::PowerManagement
        | FeatureId::NumberOfQueues
        | FeatureId::InterruptVectorConfiguration
        | FeatureId::Timestamp
        | FeatureId::KeepAliveTimer
        | FeatureId::HostIdentifier => capability::CHANGEABLE,
        FeatureId::VolatileWriteCache | FeatureId::Other(_) => 0,
    }
}

const fn invalid(location: Location) -> Failure {
    Failure::field(StatusCode::InvalidField, location)
}

impl Subsystem {
    pub(super) fn on_get_features(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let controller = self.flow.slots.of(token).controller;
        let id = self.feature_of(controller, entry)?;
        let select = feature::SELECT.of(entry.cdw10);
        match select {
            0..=2 => (),
            3 => return Ok(Step::Done(self.capabilities(controller, id))),
            _ => return Err(invalid(Location::at(41, 0))),
        }
        match id {
            FeatureId::NumberOfQueues => {
                let features = &self.controllers.of(controller).features;
                Ok(Step::Done(if select == 0 { features.queues } else { features.queues_max }))
            }
            FeatureId::ReservationMask | FeatureId::ReservationPersistence => {
                self.reservation_feature(controller, id, entry, select)
            }
            FeatureId::WriteProtection => self.protection_feature(controller, entry, select),
            FeatureId::Timestamp => {
                let features = &self.controllers.of(controller).features;
                let timestamp = if select == 0 { features.timestamp(self.flow.now) } else { [0; 8] };
                let data = self.flow.pool.copy(&timestamp);
                self.flow.push_all(token, data);
                Ok(Step::Done(0))
            }
            FeatureId::HostIdentifier => {
                let host = self.namespaces.host(controller);
                let identifier = if select == 0 { host } else { [0; 16] };
                let length = host_identifier_length(entry);
                let data = self.flow.pool.copy(&identifier[..length]);
                self.flow.push_all(token, data);
                Ok(Step::Done(0))
            }
            _ => {
                let key = self.key_of(controller, id, entry)?;
                let found = self.settings(controller, id).iter().find(|setting| setting.key == key);
                let setting = found.ok_or(invalid(Location::CDW11))?;
                Ok(Step::Done(match select {
                    0 => setting.current,
                    1 => setting.default,
                    _ => setting.saved.unwrap_or(setting.default),
                }))
            }
        }
    }

    pub(super) fn on_set_features(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let controller = self.flow.slots.of(token).controller;
        let id = self.feature_of(controller, entry)?;
        let save = feature::SAVE.is_set(entry.cdw10);
        let supported = self.capabilities(controller, id);
        if save && supported & capability::SAVEABLE == 0 {
            return Err(Failure::field(StatusCode::FeatureNotSaveable, Location::at(43, 7)));
        }
        let one_namespace = entry.namespace != NamespaceId::NONE && entry.namespace != NamespaceId::ALL;
        if one_namespace && supported & capability::NAMESPACE_SPECIFIC == 0 {
            return Err(Failure::field(StatusCode::FeatureNotNamespaceSpecific, Location::NAMESPACE));
        }
        match id {
            FeatureId::ReservationMask | FeatureId::ReservationPersistence => {
                self.set_reservation_feature(controller, id, entry)
            }
            FeatureId::WriteProtection => self.set_protection(token, entry),
            FeatureId::Timestamp => Ok(self.flow.pull(token, TIMESTAMP_BYTES, HostDataFor::SetFeatures)),
            FeatureId::HostIdentifier => {
                let length = if host_identifier_length(entry) == 16 { 16 } else { 8 };
                Ok(self.flow.pull(token, length, HostDataFor::SetFeatures))
            }
            FeatureId::NumberOfQueues => self.set_number_of_queues(controller, entry.cdw11),
            _ => {
                let value = self.valid_value(controller, id, entry.cdw11)?;
                self.set_values(controller, id, entry, value, save)?;
                self.on_value_set(controller, id, value);
                Ok(Step::Done(0))
            }
        }
    }

    /// Continues a Set Features command whose value is more than a double word and has arrived.
    pub(super) fn on_feature_data(
        &mut self,
        controller: ControllerKey,
        entry: &SubmissionQueueEntry,
        data: &[u8],
    ) -> Handled {
        if self.feature_of(controller, entry)? == FeatureId::Timestamp {
            let mut raw = [0; 8];
            raw[..6].copy_from_slice(&data[..6]);
            let previous = self.controllers.timestamp(self.flow.now, controller);
            self.controllers.of_mut(controller).features.timestamp =
                (u64::from_le_bytes(raw), self.flow.now, true);
            self.event_log.record_timestamp(&mut self.flow, &self.controllers, controller, previous);
            return Ok(Step::Done(0));
        }
        let mut identifier = [0; 16];
        identifier[..data.len()].copy_from_slice(data);
        let present = self.namespaces.host(controller);
        if present != [0; 16] && present != identifier {
            // The identifier of a host that is known can't change without a reset.
            return Err(Failure::new(StatusCode::CommandSequenceError));
        }
        self.namespaces.set_host(controller, identifier);
        Ok(Step::Done(0))
    }

    fn capabilities(&self, controller: ControllerKey, id: FeatureId) -> u32 {
        capabilities(&self.config, &self.controllers.of(controller).config, id)
    }

    /// The values of the feature that the controller's host sees.
    fn settings(&self, controller: ControllerKey, id: FeatureId) -> &[Setting] {
        if id.is_namespace_specific() {
            &self.shared_features.0
        } else {
            &self.controllers.of(controller).features.settings
        }
    }

    fn feature_of(
        &self,
        controller: ControllerKey,
        entry: &SubmissionQueueEntry,
    ) -> Result<FeatureId, Failure> {
        let id = FeatureId::from(low_u8(feature::FID.of(entry.cdw10)));
        if self.capabilities(controller, id) == 0 { Err(invalid(Location::CDW10)) } else { Ok(id) }
    }

    /// The key of the value that CDW11 and NSID select.
    fn key_of(
        &self,
        controller: ControllerKey,
        id: FeatureId,
        entry: &SubmissionQueueEntry,
    ) -> Result<FeatureKey, Failure> {
        let mut key = FeatureKey { feature: id, namespace: NamespaceId::NONE, index: 0 };
        match id {
            FeatureId::InterruptVectorConfiguration => {
                key.index = low_u16(feature::INTERRUPT_VECTOR.of(entry.cdw11));
            }
            FeatureId::TemperatureThreshold => {
                let kind = feature::THRESHOLD_TYPE.of(entry.cdw11);
                if feature::TEMPERATURE_SELECT.of(entry.cdw11) != 0 || kind > u32::from(UNDER) {
                    return Err(invalid(Location::CDW11));
                }
                key.index = low_u16(kind);
            }
            FeatureId::ErrorRecovery => {
                key.namespace = self.namespaces.active_for(controller, entry.namespace)?.id;
            }
            _ => (),
        }
        Ok(key)
    }

    /// The supported fields of the value in CDW11. Fails if the feature can't have that value.
    fn valid_value(&self, controller: ControllerKey, id: FeatureId, cdw11: u32) -> Result<u32, Failure> {
        let refused = match id {
            FeatureId::PowerManagement => feature::POWER_STATE.is_set(cdw11),
            FeatureId::ErrorRecovery => feature::DEALLOCATED_ERROR_ENABLE.is_set(cdw11),
            FeatureId::InterruptVectorConfiguration => {
                feature::INTERRUPT_VECTOR.of(cdw11)
                    >= u32::from(self.controllers.of(controller).config.interrupt_vectors())
            }
            _ => false,
        };
        if refused {
            return Err(invalid(Location::CDW11));
        }
        if id == FeatureId::KeepAliveTimer && cdw11 > KEEP_ALIVE_MAX_MILLISECONDS {
            return Err(Failure::field(StatusCode::KeepAliveTimeoutInvalid, Location::CDW11));
        }
        Ok(match id {
            FeatureId::PowerManagement => 0,
            FeatureId::TemperatureThreshold => {
                cdw11 & (feature::TEMPERATURE.put(u32::MAX) | feature::THRESHOLD_TYPE.put(u32::MAX))
            }
            FeatureId::ErrorRecovery => feature::TIME_LIMITED_RECOVERY.of(cdw11),
            FeatureId::VolatileWriteCache => feature::WRITE_CACHE_ENABLE.of(cdw11),
            FeatureId::WriteAtomicity => feature::DISABLE_NORMAL.of(cdw11),
            FeatureId::InterruptCoalescing => {
                cdw11
                    & (feature::AGGREGATION_THRESHOLD.put(u32::MAX) | feature::AGGREGATION_TIME.put(u32::MAX))
            }
            FeatureId::InterruptVectorConfiguration => {
                cdw11 & (feature::INTERRUPT_VECTOR.put(u32::MAX) | feature::COALESCING_DISABLE.put(u32::MAX))
            }
            FeatureId::AsynchronousEventConfiguration
                if self.controllers.has_ana(controller, &self.config) =>
            {
                cdw11 & EVENTS_SUPPORTED
            }
            FeatureId::AsynchronousEventConfiguration => {
                feature::EVENT_ASYMMETRIC_ACCESS.replace(cdw11 & EVENTS_SUPPORTED, 0)
            }
            FeatureId::KeepAliveTimer => self.controllers.of(controller).config.keep_alive_rounded(cdw11),
            _ => cdw11,
        })
    }

    /// Sets the value that the command selects, or the values of all namespaces or sensors.
    fn set_values(
        &mut self,
        controller: ControllerKey,
        id: FeatureId,
        entry: &SubmissionQueueEntry,
        value: u32,
        save: bool,
    ) -> Result<(), Failure> {
        let all_sensors = id == FeatureId::TemperatureThreshold
            && feature::TEMPERATURE_SELECT.of(entry.cdw11) == EVERY_SENSOR;
        let all_namespaces = id == FeatureId::ErrorRecovery && entry.namespace == NamespaceId::ALL;
        let key = if all_namespaces {
            None
        } else if all_sensors {
            // The composite temperature is the only sensor.
            let cdw11 = feature::TEMPERATURE_SELECT.replace(entry.cdw11, 0);
            Some(self.key_of(controller, id, &SubmissionQueueEntry { cdw11, ..*entry })?)
        } else {
            Some(self.key_of(controller, id, entry)?)
        };
        let mut set = 0_usize;
        let settings = if id.is_namespace_specific() {
            &mut self.shared_features.0
        } else {
            &mut self.controllers.of_mut(controller).features.settings
        };
        for setting in settings {
            if setting.key.feature == id && key.is_none_or(|key| setting.key == key) {
                setting.current = value;
                set += 1;
                if save {
                    setting.saved = Some(value);
                    let saved = SavedFeature { key: setting.key, value };
                    self.saved_features.retain(|other| other.key != saved.key);
                    self.saved_features.push(saved);
                    self.flow.notify(Notification::FeatureSaved(saved));
                }
            }
        }
        if set == 0 && !all_namespaces { Err(invalid(Location::CDW11)) } else { Ok(()) }
    }

    /// Makes a new value take effect.
    fn on_value_set(&mut self, controller: ControllerKey, id: FeatureId, value: u32) {
        match id {
            FeatureId::Arbitration => self.announce_arbitration(controller, value),
            FeatureId::InterruptCoalescing => self.announce_coalescing(controller, value),
            FeatureId::InterruptVectorConfiguration => self.announce_vector(controller, value),
            FeatureId::VolatileWriteCache => self.remember_write_cache(),
            FeatureId::TemperatureThreshold => {
                self.controllers.check_temperature(&mut self.flow, controller, self.smart.temperature())
            }
            FeatureId::AsynchronousEventConfiguration => {
                self.controllers.recheck_conditions(&mut self.flow, controller, self.smart.temperature())
            }
            FeatureId::KeepAliveTimer => {
                self.flow.notify(Notification::KeepAliveTimeout { controller, milliseconds: value });
            }
            _ => (),
        }
    }

    fn announce_arbitration(&mut self, controller: ControllerKey, value: u32) {
        let burst = feature::ARBITRATION_BURST.of(value);
        let burst = (burst != feature::ARBITRATION_UNLIMITED).then(|| 1 << burst);
        let weights = [feature::HIGH_WEIGHT, feature::MEDIUM_WEIGHT, feature::LOW_WEIGHT];
        let weights = weights.map(|weight| low_u16(weight.of(value)) + 1);
        self.flow.notify(Notification::Arbitration { controller, burst, weights });
    }

    fn announce_coalescing(&mut self, controller: ControllerKey, value: u32) {
        let time = AGGREGATION_UNIT * u64::from(feature::AGGREGATION_TIME.of(value));
        let threshold = if value == 0 { 0 } else { low_u16(feature::AGGREGATION_THRESHOLD.of(value)) + 1 };
        self.flow.notify(Notification::InterruptCoalescing { controller, threshold, time });
    }

    fn announce_vector(&mut self, controller: ControllerKey, value: u32) {
        let vector = low_u16(feature::INTERRUPT_VECTOR.of(value));
        let coalescing_disabled = feature::COALESCING_DISABLE.is_set(value);
        self.flow.notify(Notification::InterruptVector { controller, vector, coalescing_disabled });
    }

    /// Tells the transport the values that differ from its own defaults.
    pub(super) fn announce_saved_features(&mut self, controller: ControllerKey) {
        let features = &self.controllers.of(controller).features;
        let arbitration = features.value(FeatureId::Arbitration, 0);
        let coalescing = features.value(FeatureId::InterruptCoalescing, 0);
        if arbitration != feature::ARBITRATION_BURST.put(feature::ARBITRATION_UNLIMITED) {
            self.announce_arbitration(controller, arbitration);
        }
        if coalescing != 0 {
            self.announce_coalescing(controller, coalescing);
        }
    }

    fn set_number_of_queues(&mut self, controller: ControllerKey, cdw11: u32) -> Handled {
        let submission = feature::SUBMISSION_QUEUES.of(cdw11);
        let completion = feature::COMPLETION_QUEUES.of(cdw11);
        // The field can't ask for 65,536 queues, because queue 0 is the admin queue.
        if submission == 0xffff || completion == 0xffff {
            return Err(invalid(Location::CDW11));
        }
        let found = self.controllers.of_mut(controller);
        if found.io_queues_exist {
            return Err(Failure::new(StatusCode::CommandSequenceError));
        }
        let most = u32::from(found.config.io_queues_max) - 1;
        let (submission, completion) = (submission.min(most), completion.min(most));
        let value = feature::SUBMISSION_QUEUES.put(submission) | feature::COMPLETION_QUEUES.put(completion);
        found.features.queues = value;
        self.flow.notify(Notification::NumberOfQueues {
            controller,
            submission: low_u16(submission) + 1,
            completion: low_u16(completion) + 1,
        });
        Ok(Step::Done(value))
    }
}

/// Length in bytes of the Host Identifier that the command gets or sets.
const fn host_identifier_length(entry: &SubmissionQueueEntry) -> usize {
    if feature::EXTENDED_HOST_IDENTIFIER.is_set(entry.cdw11) { 16 } else { 8 }
}
