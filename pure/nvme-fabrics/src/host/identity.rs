//! What a controller reports about itself.

use alloc::boxed::Box;
use alloc::vec::Vec;

use engine::Nanos;
use nvme::host::{Namespace, transfer_limit};
use nvme::subsystem::Instance;
use nvme::wire::identify::IdentifyController;
use nvme::wire::{AdminOpcode, Bits, NamespaceId, SubmissionQueueEntry};

use super::{AnaState, TRANSFER_BYTES_MAX};
use crate::wire::ControllerId;

/// What a controller reported about itself when it was brought up.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Controller ID (CNTLID).
    pub controller_id: ControllerId,
    /// Version (VS).
    pub version: u32,
    /// Controller Capabilities (CAP).
    pub capabilities: u64,
    /// The Identify Controller data structure.
    pub controller: Box<IdentifyController>,
    /// The active namespaces, at most [`nvme::host::NAMESPACES_MAX`].
    pub namespaces: Vec<Namespace>,
    /// ANA state of each namespace on this path; empty where the controller has no ANA.
    pub ana: Vec<(NamespaceId, AnaState)>,
    /// Number of connected I/O queues.
    pub io_queues: u16,
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
        let [a, b] = self.controller.0.to_le_bytes();
        let [r0, r1, r2, r3, r4, r5, r6, r7] = self.instance.random.to_le_bytes();
        SubmissionQueueEntry {
            opcode: AdminOpcode::CrossControllerReset.into(),
            cdw10: u32::from_le_bytes([a, b, self.instance.uniquifier, 0]),
            cdw12: u32::from_le_bytes([r0, r1, r2, r3]),
            cdw13: u32::from_le_bytes([r4, r5, r6, r7]),
            ..SubmissionQueueEntry::default()
        }
    }
}

/// CMIC: Asymmetric Namespace Access reporting.
const ANA: Bits = Bits::bit(3);
/// CTRATT: Traffic Based Keep Alive Support (TBKAS).
const TRAFFIC_BASED_KEEP_ALIVE: Bits = Bits::bit(6);
/// IOCCSZ and IORCSZ are in units of this many bytes.
const CAPSULE_UNIT: u32 = 16;
/// Bytes of a command, which precede the data in a capsule.
const ENTRY: u32 = 64;
/// Maximum number of bytes of an ANA log that are read.
const ANA_LOG_MAX: u32 = 64 << 10;

impl Identity {
    /// Maximum length of the data in the capsule of an I/O command, in bytes: IOCCSZ less the
    /// command.
    pub fn capsule_data_max(&self) -> u32 {
        if self.controller.capsule_data_offset != 0 {
            // This host does not send data at an offset within the capsule.
            return 0;
        }
        let bytes = self.controller.command_capsule_size.saturating_mul(CAPSULE_UNIT);
        bytes.saturating_sub(ENTRY).min(TRANSFER_BYTES_MAX)
    }

    /// Bytes that one command may move: the smaller limit of this host and the controller (MDTS).
    pub fn transfer_bytes_max(&self) -> u32 {
        let limit = transfer_limit(&self.controller, self.capabilities);
        limit.map_or(TRANSFER_BYTES_MAX, |limit| limit.min(TRANSFER_BYTES_MAX))
    }

    /// Maximum number of commands outstanding on an I/O queue (MAXCMD); `None` where the controller
    /// does not report it.
    pub fn commands_max(&self) -> Option<u16> {
        Some(self.controller.maximum_commands).filter(|commands| *commands > 0)
    }

    /// Whether any command counts as a sign of life (TBKAS).
    pub fn counts_traffic(&self) -> bool {
        TRAFFIC_BASED_KEEP_ALIVE.is_set(self.controller.attributes)
    }

    /// Whether the controller has a Keep Alive Timer (KAS).
    pub fn keeps_alive(&self) -> bool {
        self.controller.keep_alive != 0
    }

    /// Optional Asynchronous Events Supported (OAES).
    pub fn optional_events(&self) -> u32 {
        self.controller.optional_events
    }

    /// The present life of the controller, if another controller of the subsystem can end it.
    pub fn instance(&self) -> Option<ImpactedController> {
        let page = &self.controller;
        let instance = Instance { uniquifier: page.instance_uniquifier, random: page.instance_random };
        let supported = page.cross_controller_resets_max > 0 && instance.uniquifier > 0;
        supported.then_some(ImpactedController { controller: self.controller_id, instance })
    }

    /// How long a lost controller may go on with commands after its Keep Alive Timer has expired
    /// (CQT); `None` where the controller does not report it.
    pub fn quiesce_time(&self) -> Option<Nanos> {
        let milliseconds = self.controller.command_quiesce_time;
        (milliseconds > 0).then_some(Nanos::from_millis(milliseconds.into()))
    }

    /// Whether the controller reports ANA states.
    pub fn has_ana(&self) -> bool {
        ANA.is_set(u32::from(self.controller.multi_path))
    }

    /// Bytes to read of the controller's ANA log.
    pub(super) fn ana_log_bytes(&self) -> u32 {
        let groups = self.controller.ana_groups.saturating_mul(32);
        let namespaces = self.controller.maximum_namespaces.saturating_mul(4);
        let bytes = groups.saturating_add(namespaces).saturating_add(16);
        bytes.clamp(4096, ANA_LOG_MAX).next_multiple_of(4)
    }

    /// ANA state of `namespace` on this path; Optimized where it is unknown.
    pub fn ana_state(&self, namespace: NamespaceId) -> AnaState {
        if !self.has_ana() {
            return AnaState::Optimized;
        }
        let known = self.ana.iter().find(|(id, _)| *id == namespace);
        known.map_or(AnaState::Optimized, |(_, state)| *state)
    }
}
