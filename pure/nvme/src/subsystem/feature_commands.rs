//! The commands Get Features and Set Features.

use super::Subsystem;
use super::controller::ControllerKey;
use super::errors::{Failure, Location};
use super::features::{
    HOST_BEHAVIOR_BYTES, Setting, announcement, capabilities, invalid, is_known, is_of_all_namespaces,
    key_of, valid_value,
};
use super::flow::{Handled, Step};
use super::record::{FeatureKey, SavedFeature};
use super::slots::HostDataFor;
use super::types::{CommandToken, Notification};
use crate::wire::feature::{FeatureId, capability};
use crate::wire::{NamespaceId, StatusCode, SubmissionQueueEntry, feature, low_u8, low_u16};

/// Length in bytes of the Timestamp data structure.
const TIMESTAMP_BYTES: u32 = 8;
/// Threshold Temperature Select: all sensors.
const EVERY_SENSOR: u32 = 0xf;

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
                Ok(Step::Done(self.controllers.of(controller).features.queues(select == 0)))
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
            FeatureId::HostBehavior => {
                let features = &self.controllers.of(controller).features;
                let behavior = if select == 0 { features.host_behavior() } else { [0; HOST_BEHAVIOR_BYTES] };
                let data = self.flow.pool.copy(&behavior);
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
            _ if is_of_all_namespaces(id, entry) => self.common_value(controller, id, select),
            _ => {
                let key = key_of(&self.namespaces, controller, id, entry)?;
                let found = self.settings(controller, id).iter().find(|setting| setting.key == key);
                let setting = found.ok_or(invalid(Location::CDW11))?;
                Ok(Step::Done(setting.selected(select)))
            }
        }
    }

    /// The value that a feature has for every active namespace, or 0 without any. A host that
    /// selects them all would take one of several values for that of each.
    fn common_value(&self, controller: ControllerKey, id: FeatureId, select: u32) -> Handled {
        let of_host = |setting: &&Setting| {
            setting.key.feature == id && self.namespaces.active_for(controller, setting.key.namespace).is_ok()
        };
        let mut values = self.settings(controller, id).iter().filter(of_host).map(|it| it.selected(select));
        let first = values.next().unwrap_or(0);
        if values.all(|value| value == first) {
            Ok(Step::Done(first))
        } else {
            Err(Failure::field(StatusCode::InvalidNamespaceOrFormat, Location::NAMESPACE))
        }
    }

    pub(super) fn on_set_features(&mut self, token: CommandToken, entry: &SubmissionQueueEntry) -> Handled {
        let controller = self.flow.slots.of(token).controller;
        let id = self.feature_of(controller, entry)?;
        let save = feature::SAVE.is_set(entry.cdw10);
        let supported = self.capabilities(controller, id);
        if supported & capability::CHANGEABLE == 0 {
            return Err(Failure::field(StatusCode::FeatureNotChangeable, Location::CDW10));
        }
        if save && supported & capability::SAVEABLE == 0 {
            return Err(Failure::field(StatusCode::FeatureNotSaveable, Location::at(43, 7)));
        }
        let one_namespace = entry.namespace != NamespaceId::NONE && entry.namespace != NamespaceId::ALL;
        if one_namespace && supported & capability::NAMESPACE_SPECIFIC == 0 {
            return Err(Failure::field(StatusCode::FeatureNotNamespaceSpecific, Location::NAMESPACE));
        }
        let shared = match id {
            FeatureId::WriteProtection | FeatureId::ReservationPersistence => true,
            // Every host's writes are durable while one has the write cache off.
            FeatureId::VolatileWriteCache => true,
            _ => save,
        };
        if shared && !self.namespaces.permit(controller).is_whole() {
            return Err(Failure::field(StatusCode::OperationDenied, Location::CDW10));
        }
        match id {
            FeatureId::ReservationMask | FeatureId::ReservationPersistence => {
                self.set_reservation_feature(controller, id, entry)
            }
            FeatureId::WriteProtection => self.set_protection(token, entry),
            FeatureId::Timestamp => Ok(self.flow.pull(token, TIMESTAMP_BYTES, HostDataFor::SetFeatures)),
            FeatureId::HostBehavior => {
                let length = u32::try_from(HOST_BEHAVIOR_BYTES).expect("it is 512 bytes");
                Ok(self.flow.pull(token, length, HostDataFor::SetFeatures))
            }
            FeatureId::HostIdentifier => {
                let length = if host_identifier_length(entry) == 16 { 16 } else { 8 };
                Ok(self.flow.pull(token, length, HostDataFor::SetFeatures))
            }
            FeatureId::NumberOfQueues => self.set_number_of_queues(controller, entry.cdw11),
            _ => {
                let value =
                    valid_value(&self.config, &self.controllers.of(controller).config, id, entry.cdw11)?;
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
        match self.feature_of(controller, entry)? {
            FeatureId::Timestamp => self.set_timestamp(controller, data),
            FeatureId::HostBehavior => {
                self.controllers.of_mut(controller).features.set_host_behavior(data)?;
            }
            _ => self.set_host_identifier(controller, data)?,
        }
        Ok(Step::Done(0))
    }

    fn set_timestamp(&mut self, controller: ControllerKey, data: &[u8]) {
        let mut raw = [0; 8];
        raw[..6].copy_from_slice(&data[..6]);
        let previous = self.controllers.timestamp(self.flow.now, controller);
        let features = &mut self.controllers.of_mut(controller).features;
        features.set_timestamp(self.flow.now, u64::from_le_bytes(raw));
        self.event_log.record_timestamp(&mut self.flow, &self.controllers, controller, previous);
    }

    fn set_host_identifier(&mut self, controller: ControllerKey, data: &[u8]) -> Result<(), Failure> {
        let mut identifier = [0; 16];
        identifier[..data.len()].copy_from_slice(data);
        let present = self.namespaces.host(controller);
        if present != [0; 16] && present != identifier {
            // The identifier of a host that is known can't change without a reset.
            return Err(Failure::new(StatusCode::CommandSequenceError));
        }
        self.namespaces.set_host(controller, identifier);
        Ok(())
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
        if is_known(&self.config, &self.controllers.of(controller).config, id) {
            Ok(id)
        } else {
            Err(invalid(Location::CDW10))
        }
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
        let all_namespaces = is_of_all_namespaces(id, entry);
        let key = if all_namespaces {
            None
        } else if all_sensors {
            // The composite temperature is the only sensor.
            let cdw11 = feature::TEMPERATURE_SELECT.replace(entry.cdw11, 0);
            Some(key_of(&self.namespaces, controller, id, &SubmissionQueueEntry { cdw11, ..*entry })?)
        } else {
            Some(key_of(&self.namespaces, controller, id, entry)?)
        };
        let namespaces = &self.namespaces;
        let is_meant = |found: &FeatureKey| match key {
            Some(key) => *found == key,
            None => found.feature == id && namespaces.active_for(controller, found.namespace).is_ok(),
        };
        let mut set = 0_usize;
        let settings = if id.is_namespace_specific() {
            &mut self.shared_features.0
        } else {
            &mut self.controllers.of_mut(controller).features.settings
        };
        for setting in settings {
            if is_meant(&setting.key) {
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
        if let Some(notification) = announcement(controller, id, value) {
            self.flow.notify(notification);
        }
        match id {
            FeatureId::VolatileWriteCache => self.remember_write_cache(),
            FeatureId::TemperatureThreshold => {
                self.controllers.check_temperature(&mut self.flow, controller, self.smart.temperature())
            }
            FeatureId::AsynchronousEventConfiguration => {
                self.controllers.recheck_conditions(&mut self.flow, controller, self.smart.temperature())
            }
            _ => (),
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
        let value = found.features.set_queues(cdw11);
        self.flow.notify(Notification::NumberOfQueues {
            controller,
            submission: low_u16(feature::SUBMISSION_QUEUES.of(value)) + 1,
            completion: low_u16(feature::COMPLETION_QUEUES.of(value)) + 1,
        });
        Ok(Step::Done(value))
    }
}

/// Length in bytes of the Host Identifier that the command gets or sets.
const fn host_identifier_length(entry: &SubmissionQueueEntry) -> usize {
    if feature::EXTENDED_HOST_IDENTIFIER.is_set(entry.cdw11) { 16 } else { 8 }
}
