//! Lives of controllers, and Cross-Controller Reset, with which a host ends the life of one
//! controller through another.
//!
//! A host that has lost a path does not know whether the controller there still executes the
//! commands it received. Before the host sends these commands on another path, it asks a controller
//! that it still reaches to end that life of the lost controller (NVM Express Base Specification
//! 2.3, Communication Loss Handling). A reset is immediate here: commands that no medium has begun
//! are dropped, and a request that a medium has begun ends before another request reads or changes
//! the same blocks (`overlap`).

use super::Subsystem;
use super::controller::{ControllerKey, Instance};
use super::errors::{Failure, Location};
use super::flow::{Handled, Step};
use super::types::{CommandToken, Notification};
use crate::wire::{Bits, StatusCode, SubmissionQueueEntry, join_u64, low_u8, low_u16};

/// Impacted Controller ID (ICID), in CDW10.
const IMPACTED_CONTROLLER: Bits = Bits::new(15, 0);
/// Controller Instance Uniquifier (CIU) of the impacted controller, in CDW10.
const UNIQUIFIER: Bits = Bits::new(23, 16);
/// DW0 of the completion: Immediate Reset Successful (IRS).
const IMMEDIATE: u32 = 1;
/// Cross-Controller Reset Limit (CCRL). The limit is never exceeded, because each reset ends at
/// once.
pub(super) const RESETS_MAX: u8 = 4;
/// Command Quiesce Time (CQT) in milliseconds: the minimum, because remaining work of a lost
/// controller does not affect later commands.
pub(super) const QUIESCE_MILLISECONDS: u16 = 1;

impl Subsystem {
    /// Begins a life of a controller, which the host may end through another controller. The core
    /// reports such an end to the transport with [`Notification::CrossControllerReset`].
    pub fn set_instance(&mut self, controller: ControllerKey, instance: Instance) {
        self.controllers.of_mut(controller).instance = Some(instance);
    }

    pub(super) fn on_cross_controller_reset(
        &mut self,
        token: CommandToken,
        entry: &SubmissionQueueEntry,
    ) -> Handled {
        let own = self.flow.slots.of(token).controller;
        let invalid = |code| Failure::field(code, Location::CDW10);
        let config = &self.controllers.of(own).config;
        let Some(fabrics) = config.of_fabrics() else {
            return Err(invalid(StatusCode::InvalidCommandOpcode));
        };
        let id = low_u16(IMPACTED_CONTROLLER.of(entry.cdw10));
        let instance = Instance {
            uniquifier: low_u8(UNIQUIFIER.of(entry.cdw10)),
            random: join_u64(entry.cdw12, entry.cdw13),
        };
        // Another life of the identifier was over before this controller got it: a target that
        // was started again gives the host the identifier that the host had before.
        let is_own_life = self.controllers.of(own).instance == Some(instance);
        if id == config.controller_id && is_own_life {
            return Err(invalid(StatusCode::InvalidField));
        }
        if !fabrics.controller_ids.contains(&id) {
            return Err(invalid(StatusCode::InvalidControllerIdentifier));
        }
        // A host may not end the controller of another host. For the controller's own host, a life
        // that is already over counts as ended.
        let is_it = |key: &ControllerKey| {
            let found = self.controllers.of(*key);
            let host = found.config.of_fabrics().map(|found| &found.host);
            found.instance == Some(instance) && host == Some(&fabrics.host)
        };
        if let Some(controller) = self.controllers.called(id).filter(is_it) {
            self.flow.notify(Notification::CrossControllerReset { controller });
        }
        Ok(Step::Done(IMMEDIATE))
    }
}
