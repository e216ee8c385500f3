//! The identity of a controller over fabrics.

use alloc::vec::Vec;

use nvme::host::command::cross_controller_reset;
use nvme::subsystem::Instance;
use nvme::wire::{AnaState, NamespaceId, SubmissionQueueEntry};

use crate::authentication::Authenticated;

use super::TRANSFER_BYTES_MAX;
use crate::wire::ControllerId;

/// The identity of a controller, read when it was brought up.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The part of the identity that is common to all transports.
    pub reported: nvme::host::Identity,
    /// Controller ID (CNTLID).
    pub controller_id: ControllerId,
    /// ANA state of each namespace on this path; empty where the controller has no ANA.
    pub ana: Vec<(NamespaceId, AnaState)>,
    /// The result of the Admin Queue's authentication; `None` if the controller does not require
    /// it.
    pub authenticated: Option<Authenticated>,
    /// Commands that each I/O queue holds.
    pub queue_size: u16,
}

/// A life of a controller that another controller of its subsystem can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImpactedController {
    /// The controller (ICID).
    pub controller: ControllerId,
    /// The life of the controller (CIU, CIRN).
    pub instance: Instance,
}

impl ImpactedController {
    /// The Cross-Controller Reset that ends this life.
    pub(super) fn reset(&self) -> SubmissionQueueEntry {
        cross_controller_reset(self.controller.0, self.instance)
    }
}

/// IOCCSZ and IORCSZ are in units of this many bytes.
const CAPSULE_UNIT: u32 = 16;
/// Bytes of a command, which precede the data in a capsule.
const ENTRY: u32 = 64;

impl Identity {
    /// Maximum length of the data in the capsule of an I/O command, in bytes: IOCCSZ less the
    /// command.
    pub fn capsule_data_max(&self) -> u32 {
        let controller = &self.reported.controller;
        if controller.capsule_data_offset != 0 {
            // This host does not send data at an offset within the capsule.
            return 0;
        }
        let bytes = controller.command_capsule_size.saturating_mul(CAPSULE_UNIT);
        bytes.saturating_sub(ENTRY).min(TRANSFER_BYTES_MAX)
    }

    /// The present life of the controller, if another controller of the subsystem can end it.
    pub fn instance(&self) -> Option<ImpactedController> {
        let controller = self.controller_id;
        self.reported.instance().map(|instance| ImpactedController { controller, instance })
    }
}
