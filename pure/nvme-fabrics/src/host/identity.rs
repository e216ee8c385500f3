//! What a controller told about itself.

use alloc::boxed::Box;
use alloc::vec::Vec;

use engine::Nanos;
use nvme::subsystem::Instance;
use nvme::wire::identify::{IDENTIFY_LENGTH, IdentifyController, IdentifyNamespace};
use nvme::wire::{AdminOpcode, Bits, NamespaceId, SubmissionQueueEntry};

use super::{AnaState, TRANSFER_BYTES_MAX};
use crate::wire::ControllerId;

/// Namespaces that are looked at.
pub const NAMESPACES_MAX: usize = 256;

/// A namespace, as Identify describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Its identifier.
    pub id: NamespaceId,
    /// Namespace Size (NSZE) in logical blocks.
    pub blocks: u64,
    /// Bytes of a logical block.
    pub block_bytes: u32,
    /// Bytes of metadata beside each logical block.
    pub metadata_bytes: u16,
    /// Deallocate Logical Block Features (DLFEAT).
    pub deallocate_features: u8,
}

impl Namespace {
    pub(super) fn parse(id: NamespaceId, page: &[u8; IDENTIFY_LENGTH]) -> Option<Self> {
        let namespace = IdentifyNamespace::parse(page);
        Some(Self {
            id,
            blocks: namespace.size,
            block_bytes: namespace.block_bytes()?,
            metadata_bytes: namespace.formatted().metadata_size,
            deallocate_features: namespace.deallocate_features,
        })
    }
}

/// What a controller told about itself when it was brought up.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Which controller it is (CNTLID).
    pub controller_id: ControllerId,
    /// Version (VS).
    pub version: u32,
    /// Controller Capabilities (CAP).
    pub capabilities: u64,
    /// Identify Controller, as it came.
    pub page: Box<[u8; IDENTIFY_LENGTH]>,
    /// The active namespaces, at most [`NAMESPACES_MAX`].
    pub namespaces: Vec<Namespace>,
    /// How good this path to each is; empty where the controller knows no ANA.
    pub ana: Vec<(NamespaceId, AnaState)>,
    /// I/O queues that are connected.
    pub io_queues: u16,
    /// Commands that each of them holds.
    pub queue_size: u16,
}

/// A life of a controller that is to be ended through another controller of its subsystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImpactedController {
    /// The controller (ICID).
    pub controller: ControllerId,
    /// Which of its lives (CIU, CIRN).
    pub instance: Instance,
}

impl ImpactedController {
    /// The Cross-Controller Reset that ends it.
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

/// Where the fields are that only fabrics and multi-path have.
mod at {
    /// CMIC.
    pub(super) const MULTI_PATH: usize = 76;
    /// MDTS.
    pub(super) const TRANSFER_SIZE: usize = 77;
    /// OAES.
    pub(super) const OPTIONAL_EVENTS: usize = 92;
    /// CTRATT.
    pub(super) const ATTRIBUTES: usize = 96;
    /// KAS.
    pub(super) const KEEP_ALIVE: usize = 320;
    /// NANAGRPID.
    pub(super) const ANA_GROUPS: usize = 348;
    /// MAXCMD.
    pub(super) const COMMANDS: usize = 514;
    /// MNAN.
    pub(super) const NAMESPACES: usize = 540;
    /// IOCCSZ.
    pub(super) const CAPSULE: usize = 1792;
    /// ICDOFF.
    pub(super) const CAPSULE_OFFSET: usize = 1800;
}

/// CMIC: Asymmetric Namespace Access reporting.
const ANA: Bits = Bits::bit(3);
/// CTRATT: Traffic Based Keep Alive Support (TBKAS).
const TRAFFIC_BASED_KEEP_ALIVE: Bits = Bits::bit(6);
/// IOCCSZ and IORCSZ are in units of this many bytes.
const CAPSULE_UNIT: u32 = 16;
/// Bytes of a command, in a capsule before its data.
const ENTRY: u32 = 64;
/// The most bytes of an ANA log that are read.
const ANA_LOG_MAX: u32 = 64 << 10;

impl Identity {
    fn word(&self, at: usize) -> u32 {
        self.page.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |raw| u32::from_le_bytes(*raw))
    }

    fn half(&self, at: usize) -> u16 {
        self.page.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |raw| u16::from_le_bytes(*raw))
    }

    /// Identify Controller.
    pub fn controller(&self) -> IdentifyController {
        IdentifyController::parse(&self.page)
    }

    /// The most data in the capsule of an I/O command, bytes: what IOCCSZ leaves beside the command.
    pub fn capsule_data_max(&self) -> u32 {
        if self.half(at::CAPSULE_OFFSET) != 0 {
            // An offset within the capsule is nothing that this host sends.
            return 0;
        }
        let bytes = self.word(at::CAPSULE).saturating_mul(CAPSULE_UNIT);
        bytes.saturating_sub(ENTRY).min(TRANSFER_BYTES_MAX)
    }

    /// Bytes that one command may move: what this host can and the controller allows (MDTS).
    pub fn transfer_bytes_max(&self) -> u32 {
        // In minimum memory pages (CAP.MPSMIN), as a power of two; 0 for no limit.
        let page_power = 12 + u32::try_from(self.capabilities >> 48 & 0xf).unwrap_or(0);
        match u32::from(self.page[at::TRANSFER_SIZE]) {
            0 => TRANSFER_BYTES_MAX,
            power => {
                let limit = 1_u32.checked_shl(power + page_power);
                limit.map_or(TRANSFER_BYTES_MAX, |limit| limit.min(TRANSFER_BYTES_MAX))
            }
        }
    }

    /// The most commands outstanding on an I/O queue (MAXCMD); none where it does not say.
    pub fn commands_max(&self) -> Option<u16> {
        Some(self.half(at::COMMANDS)).filter(|commands| *commands > 0)
    }

    /// Whether any command counts as a sign of life (TBKAS).
    pub fn counts_traffic(&self) -> bool {
        TRAFFIC_BASED_KEEP_ALIVE.is_set(self.word(at::ATTRIBUTES))
    }

    /// Whether the controller has a Keep Alive Timer (KAS).
    pub fn keeps_alive(&self) -> bool {
        self.half(at::KEEP_ALIVE) != 0
    }

    /// Optional Asynchronous Events Supported (OAES).
    pub fn optional_events(&self) -> u32 {
        self.word(at::OPTIONAL_EVENTS)
    }

    /// Which life of the controller this is, where another controller of the subsystem can end it.
    pub fn instance(&self) -> Option<ImpactedController> {
        let page = self.controller();
        let instance = Instance { uniquifier: page.instance_uniquifier, random: page.instance_random };
        let supported = page.cross_controller_resets_max > 0 && instance.uniquifier > 0;
        supported.then_some(ImpactedController { controller: self.controller_id, instance })
    }

    /// How long a controller that was lost may go on with commands, counted from when its Keep Alive Timer expires (CQT);
    /// none where it does not say.
    pub fn quiesce_time(&self) -> Option<Nanos> {
        let milliseconds = self.controller().command_quiesce_time;
        (milliseconds > 0).then_some(Nanos::from_millis(milliseconds.into()))
    }

    /// Whether the controller tells how good its paths are.
    pub fn has_ana(&self) -> bool {
        ANA.is_set(u32::from(self.page[at::MULTI_PATH]))
    }

    /// Bytes of its ANA log, as many as are read of it.
    pub(super) fn ana_log_bytes(&self) -> u32 {
        let groups = self.word(at::ANA_GROUPS).saturating_mul(32);
        let namespaces = self.word(at::NAMESPACES).saturating_mul(4);
        let bytes = groups.saturating_add(namespaces).saturating_add(16);
        bytes.clamp(4096, ANA_LOG_MAX).next_multiple_of(4)
    }

    /// How good this path to `namespace` is.
    pub fn ana_state(&self, namespace: NamespaceId) -> AnaState {
        if !self.has_ana() {
            return AnaState::Optimized;
        }
        let known = self.ana.iter().find(|(id, _)| *id == namespace);
        known.map_or(AnaState::Optimized, |(_, state)| *state)
    }
}
