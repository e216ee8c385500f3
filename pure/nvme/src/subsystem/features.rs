//! Features: their values, and the range of each value.

use alloc::vec::Vec;

use engine::{Instant, Nanos};
use serde::{Deserialize, Serialize};

use super::config::Config;
use super::controller::{ControllerConfig, ControllerKey, KEEP_ALIVE_MAX_MILLISECONDS, Transport};
use super::errors::{Failure, Location};
use super::events::AsynchronousEvent;
use super::flow::Flow;
use super::namespaces::Namespaces;
use super::record::{FeatureKey, SavedFeature};
use super::types::Notification;
use crate::wire::feature::{FeatureId, capability};
use crate::wire::log::critical_warning;
use crate::wire::{NamespaceId, StatusCode, SubmissionQueueEntry, feature, low_u16};

/// A feature value of one double word.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Setting {
    pub(super) key: FeatureKey,
    pub(super) default: u32,
    pub(super) current: u32,
    pub(super) saved: Option<u32>,
}

impl Setting {
    /// The value that Select chooses: the current, the default or the saved one.
    pub(super) fn selected(&self, select: u32) -> u32 {
        match select {
            0 => self.current,
            1 => self.default,
            _ => self.saved.unwrap_or(self.default),
        }
    }
}

/// Index of the over temperature threshold.
const OVER: u16 = 0;
/// Index of the under temperature threshold.
const UNDER: u16 = 1;
/// Events that the Asynchronous Event Configuration can enable here.
const EVENTS_SUPPORTED: u32 = feature::EVENT_CRITICAL_WARNINGS.put(0x1f)
    | feature::EVENT_NAMESPACE_ATTRIBUTE.put(1)
    | feature::EVENT_TELEMETRY.put(1)
    | feature::EVENT_ASYMMETRIC_ACCESS.put(1);
/// The unit of the Aggregation Time.
const AGGREGATION_UNIT: Nanos = Nanos::from_micros(100);
/// Timestamp Origin "set by Set Features", in the byte after the 48 bits of milliseconds.
const TIMESTAMP_SET_BY_HOST: u8 = 0b001 << 1;
/// Length in bytes of the Host Behavior Support data structure.
pub(super) const HOST_BEHAVIOR_BYTES: usize = 512;
/// Its fields, of a byte each: Advanced Command Retry Enable (ACRE), Extended Telemetry Data Area 4
/// Supported (ETDAS) and LBA Format Extension Enable (LBAFEE).
const HOST_BEHAVIOR_FIELDS: usize = 3;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Features {
    pub(super) settings: Vec<Setting>,
    queues: u32,
    queues_max: u32,
    /// The time that was set (in milliseconds of the Unix epoch), when, and whether by a host.
    timestamp: (u64, Instant, bool),
    /// The fields of Host Behavior Support: the optional behaviour that the host supports.
    host_behavior: [u8; HOST_BEHAVIOR_FIELDS],
}

impl Features {
    pub(super) fn new(
        now: Instant,
        config: &Config,
        controller: &ControllerConfig,
        saved: &[SavedFeature],
    ) -> Self {
        let mut settings: Vec<_> = defaults(config, controller).collect();
        if !controller.has_others() {
            restore(&mut settings, saved);
        }
        let queues = u32::from(controller.io_queues_max) - 1;
        let queues = feature::SUBMISSION_QUEUES.put(queues) | feature::COMPLETION_QUEUES.put(queues);
        let mut features = Self {
            settings,
            queues,
            queues_max: queues,
            timestamp: (0, now, false),
            host_behavior: [0; HOST_BEHAVIOR_FIELDS],
        };
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
        self.host_behavior = [0; HOST_BEHAVIOR_FIELDS];
    }

    /// The Host Behavior Support data structure.
    pub(super) fn host_behavior(&self) -> [u8; HOST_BEHAVIOR_BYTES] {
        let mut data = [0; HOST_BEHAVIOR_BYTES];
        data[..HOST_BEHAVIOR_FIELDS].copy_from_slice(&self.host_behavior);
        data
    }

    /// Sets Host Behavior Support. Fails if a field has an undefined value.
    pub(super) fn set_host_behavior(&mut self, data: &[u8]) -> Result<(), Failure> {
        let fields = data.first_chunk().ok_or(invalid(Location::CDW10))?;
        if fields.iter().any(|field| *field > 1) {
            return Err(invalid(Location::CDW10));
        }
        self.host_behavior = *fields;
        Ok(())
    }

    /// Sends the transport the values that differ from its own defaults.
    pub(super) fn announce_saved(&self, flow: &mut Flow, controller: ControllerKey) {
        let value = self.value(FeatureId::Arbitration, 0);
        if value != feature::ARBITRATION_BURST.put(feature::ARBITRATION_UNLIMITED) {
            flow.notify(arbitration(controller, value));
        }
        let value = self.value(FeatureId::InterruptCoalescing, 0);
        if value != 0 {
            flow.notify(coalescing(controller, value));
        }
    }

    /// Number of Queues: the value, or the default, as Select demands.
    pub(super) const fn queues(&self, current: bool) -> u32 {
        if current { self.queues } else { self.queues_max }
    }

    /// Sets Number of Queues, limited to the queues of the controller, and returns the value.
    pub(super) fn set_queues(&mut self, cdw11: u32) -> u32 {
        let submission = feature::SUBMISSION_QUEUES.of(cdw11);
        let completion = feature::COMPLETION_QUEUES.of(cdw11);
        let most = feature::SUBMISSION_QUEUES.of(self.queues_max);
        let (submission, completion) = (submission.min(most), completion.min(most));
        self.queues = feature::SUBMISSION_QUEUES.put(submission) | feature::COMPLETION_QUEUES.put(completion);
        self.queues
    }

    /// Sets the time to the host's value, in milliseconds of the Unix epoch.
    pub(super) const fn set_timestamp(&mut self, now: Instant, milliseconds: u64) {
        self.timestamp = (milliseconds, now, true);
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
    [
        of_controller(FeatureId::Arbitration, 0, burst),
        of_controller(FeatureId::PowerManagement, 0, 0),
        of_controller(FeatureId::TemperatureThreshold, OVER, config.temperature_warning.into()),
        of_controller(FeatureId::TemperatureThreshold, UNDER, 0),
        of_controller(FeatureId::InterruptCoalescing, 0, 0),
        of_controller(FeatureId::WriteAtomicity, 0, 0),
        of_controller(FeatureId::AsynchronousEventConfiguration, 0, 0),
        of_controller(FeatureId::KeepAliveTimer, 0, controller.keep_alive_default()),
    ]
    .into_iter()
    .chain(cache.then(|| of_controller(FeatureId::VolatileWriteCache, 0, feature::WRITE_CACHE_ENABLE.put(1))))
    .chain(
        (0..controller.interrupt_vectors().max(1)).map(move |vector| {
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
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SharedFeatures(pub(super) Vec<Setting>);

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

    /// Drops the values of a removed namespace.
    pub(super) fn remove_namespace(&mut self, namespace: NamespaceId) {
        self.0.retain(|setting| setting.key.namespace != namespace);
    }
}

/// Whether the controller has the feature, if only with a value that never changes: a Keep Alive
/// Timer that never runs on PCIe, and over fabrics interrupts that are never held back. Hosts may
/// read these everywhere, as SPDK's target has them.
pub(super) fn is_known(config: &Config, controller: &ControllerConfig, id: FeatureId) -> bool {
    let is_fixed = matches!(
        id,
        FeatureId::KeepAliveTimer | FeatureId::InterruptCoalescing | FeatureId::InterruptVectorConfiguration
    );
    is_fixed || capabilities(config, controller, id) != 0
}

/// The answer to Select = supported capabilities; 0 for a feature that the controller does not
/// have, or that never changes.
pub(super) fn capabilities(config: &Config, controller: &ControllerConfig, id: FeatureId) -> u32 {
    let supported = capabilities_anywhere(config, id);
    match (&controller.transport, id) {
        (Transport::Pcie { .. }, FeatureId::KeepAliveTimer) => 0,
        (
            Transport::Pcie { host: None, .. },
            FeatureId::ReservationMask | FeatureId::ReservationPersistence,
        ) => 0,
        (Transport::Fabrics(fabrics), FeatureId::KeepAliveTimer) if fabrics.keep_alive_granularity == 0 => 0,
        (Transport::Fabrics(_), FeatureId::InterruptCoalescing | FeatureId::InterruptVectorConfiguration) => {
            0
        }
        // A controller that serves one host after the other has no feature to save.
        _ if controller.has_others() && supported & capability::NAMESPACE_SPECIFIC == 0 => {
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
        | FeatureId::HostBehavior
        | FeatureId::HostIdentifier => capability::CHANGEABLE,
        FeatureId::VolatileWriteCache | FeatureId::Other(_) => 0,
    }
}

/// Whether the command means the Error Recovery of every namespace: by FFFFFFFFh, or by 0 as hosts
/// of NVM Express 1.1 and older mean it, for which the feature was the controller's.
pub(super) fn is_of_all_namespaces(id: FeatureId, entry: &SubmissionQueueEntry) -> bool {
    id == FeatureId::ErrorRecovery && matches!(entry.namespace, NamespaceId::ALL | NamespaceId::NONE)
}

pub(super) const fn invalid(location: Location) -> Failure {
    Failure::field(StatusCode::InvalidField, location)
}

/// The key of the value that CDW11 and NSID select.
pub(super) fn key_of(
    namespaces: &Namespaces,
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
            key.namespace = namespaces.active_for(controller, entry.namespace)?.id;
        }
        _ => (),
    }
    Ok(key)
}

/// The supported fields of the value in CDW11. Fails if the feature can't have that value.
pub(super) fn valid_value(
    config: &Config,
    controller: &ControllerConfig,
    id: FeatureId,
    cdw11: u32,
) -> Result<u32, Failure> {
    let refused = match id {
        FeatureId::PowerManagement => feature::POWER_STATE.is_set(cdw11),
        FeatureId::ErrorRecovery => feature::DEALLOCATED_ERROR_ENABLE.is_set(cdw11),
        FeatureId::InterruptVectorConfiguration => {
            feature::INTERRUPT_VECTOR.of(cdw11) >= u32::from(controller.interrupt_vectors())
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
            cdw11 & (feature::AGGREGATION_THRESHOLD.put(u32::MAX) | feature::AGGREGATION_TIME.put(u32::MAX))
        }
        FeatureId::InterruptVectorConfiguration => {
            cdw11 & (feature::INTERRUPT_VECTOR.put(u32::MAX) | feature::COALESCING_DISABLE.put(u32::MAX))
        }
        FeatureId::AsynchronousEventConfiguration if controller.has_ana(config.ana_groups) => {
            cdw11 & EVENTS_SUPPORTED
        }
        FeatureId::AsynchronousEventConfiguration => {
            feature::EVENT_ASYMMETRIC_ACCESS.replace(cdw11 & EVENTS_SUPPORTED, 0)
        }
        FeatureId::KeepAliveTimer => controller.keep_alive_rounded(cdw11),
        _ => cdw11,
    })
}

/// The notification of the transport about a new value of a feature.
pub(super) fn announcement(controller: ControllerKey, id: FeatureId, value: u32) -> Option<Notification> {
    match id {
        FeatureId::Arbitration => Some(arbitration(controller, value)),
        FeatureId::InterruptCoalescing => Some(coalescing(controller, value)),
        FeatureId::InterruptVectorConfiguration => Some(interrupt_vector(controller, value)),
        FeatureId::KeepAliveTimer => Some(Notification::KeepAliveTimeout { controller, milliseconds: value }),
        _ => None,
    }
}

fn arbitration(controller: ControllerKey, value: u32) -> Notification {
    let burst = feature::ARBITRATION_BURST.of(value);
    let burst = (burst != feature::ARBITRATION_UNLIMITED).then(|| 1 << burst);
    let weights = [feature::HIGH_WEIGHT, feature::MEDIUM_WEIGHT, feature::LOW_WEIGHT];
    let weights = weights.map(|weight| low_u16(weight.of(value)) + 1);
    Notification::Arbitration { controller, burst, weights }
}

fn coalescing(controller: ControllerKey, value: u32) -> Notification {
    let time = AGGREGATION_UNIT * u64::from(feature::AGGREGATION_TIME.of(value));
    let threshold = if value == 0 { 0 } else { low_u16(feature::AGGREGATION_THRESHOLD.of(value)) + 1 };
    Notification::InterruptCoalescing { controller, threshold, time }
}

fn interrupt_vector(controller: ControllerKey, value: u32) -> Notification {
    let vector = low_u16(feature::INTERRUPT_VECTOR.of(value));
    let coalescing_disabled = feature::COALESCING_DISABLE.is_set(value);
    Notification::InterruptVector { controller, vector, coalescing_disabled }
}
