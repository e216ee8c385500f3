//! Feature values that a static controller keeps from one host to the next.

use alloc::vec::Vec;

use super::Subsystem;
use super::controller::ControllerKey;
use super::record::FeatureKey;
use crate::wire::feature::FeatureId;

impl Subsystem {
    /// The values of a controller's features, without the Keep Alive Timer, which belongs to an
    /// association.
    pub fn feature_values(&self, controller: ControllerKey) -> Vec<(FeatureKey, u32)> {
        let settings = self.controllers.of(controller).features.settings.iter();
        let lasting = settings.filter(|one| one.key.feature != FeatureId::KeepAliveTimer);
        lasting.map(|one| (one.key, one.current)).collect()
    }

    /// Gives a new controller the [`Subsystem::feature_values`] of the controller that had its
    /// identifier before.
    pub fn restore_feature_values(&mut self, controller: ControllerKey, values: &[(FeatureKey, u32)]) {
        for setting in &mut self.controllers.of_mut(controller).features.settings {
            if let Some((_, value)) = values.iter().find(|(key, _)| *key == setting.key) {
                setting.current = *value;
            }
        }
        self.remember_write_cache();
    }
}
