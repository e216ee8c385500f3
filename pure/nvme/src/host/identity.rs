//! The controller's description of itself that a host reads when it brings the controller up.

use alloc::boxed::Box;
use alloc::vec::Vec;

use engine::Nanos;

use super::Namespace;
use crate::subsystem::Instance;
use crate::wire::Bits;
use crate::wire::bits::{high_u32, low_u16, low_u32};
use crate::wire::identify::IdentifyController;

/// CAP, low half: Maximum Queue Entries Supported (MQES), 0's based.
const QUEUE_ENTRIES_MAX: Bits = Bits::new(15, 0);
/// CAP, low half: Timeout (TO), in units of 500 ms.
const TIMEOUT: Bits = Bits::new(31, 24);
/// The unit of CAP.TO.
const TIMEOUT_UNIT: Nanos = Nanos::from_millis(500);
/// CAP, high half: Memory Page Size Minimum (MPSMIN), as a power of two of 4 KiB.
const PAGE_SIZE_MIN: Bits = Bits::new(19, 16);

/// CMIC: Asymmetric Namespace Access reporting.
const ANA: Bits = Bits::bit(3);
/// CTRATT: Traffic Based Keep Alive Support (TBKAS).
const TRAFFIC_BASED_KEEP_ALIVE: Bits = Bits::bit(6);
/// Maximum number of bytes of an ANA log that are read.
const ANA_LOG_MAX: u32 = 64 << 10;

/// Number of entries that each queue of a controller with these capabilities (CAP) may have: CAP
/// has it 0's based (MQES).
pub fn queue_entries_max(capabilities: u64) -> u32 {
    u32::from(low_u16(QUEUE_ENTRIES_MAX.of(low_u32(capabilities)))) + 1
}

/// How long a controller with these capabilities (CAP) may take until CSTS.RDY follows CC.EN (TO).
pub fn ready_timeout(capabilities: u64) -> Nanos {
    TIMEOUT_UNIT * u64::from(TIMEOUT.of(low_u32(capabilities)).max(1))
}

/// The most bytes that one command of a host may move: the smaller of the host's own limit and the
/// controller's (MDTS, in the unit that CAP gives).
pub fn transfer_limit(controller: &IdentifyController, capabilities: u64, own: u32) -> u32 {
    let page_power = 12 + PAGE_SIZE_MIN.of(high_u32(capabilities));
    match u32::from(controller.maximum_data_transfer_size) {
        0 => own,
        power => 1_u32.checked_shl(power + page_power).map_or(own, |limit| limit.min(own)),
    }
}

/// The controller's description of itself, as read by its host at bring-up.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Version (VS) of the specification that the controller implements.
    pub version: u32,
    /// Controller Capabilities (CAP).
    pub capabilities: u64,
    /// The Identify Controller data structure.
    pub controller: Box<IdentifyController>,
    /// The active namespaces, at most [`NAMESPACES_MAX`](super::NAMESPACES_MAX).
    pub namespaces: Vec<Namespace>,
    /// Number of I/O queues that the host uses; over PCI Express, of pairs.
    pub io_queues: u16,
    /// The most bytes that one command may move, within the host's own limit and the controller's
    /// (MDTS).
    pub transfer_bytes_max: u32,
}

impl Identity {
    /// Maximum number of outstanding commands on an I/O queue (MAXCMD); `None` if the controller
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

    /// The present life of the controller, if another controller of the subsystem can end it.
    pub fn instance(&self) -> Option<Instance> {
        let page = &self.controller;
        let instance = Instance { uniquifier: page.instance_uniquifier, random: page.instance_random };
        (page.cross_controller_resets_max > 0 && instance.uniquifier > 0).then_some(instance)
    }

    /// How long a lost controller may continue with commands after its Keep Alive Timer has expired
    /// (CQT); `None` if the controller does not report it.
    pub fn quiesce_time(&self) -> Option<Nanos> {
        let milliseconds = self.controller.command_quiesce_time;
        (milliseconds > 0).then_some(Nanos::from_millis(milliseconds.into()))
    }

    /// Whether the controller reports ANA states.
    pub fn has_ana(&self) -> bool {
        ANA.is_set(self.controller.multi_path.into())
    }

    /// Bytes to read of the controller's ANA log.
    pub fn ana_log_bytes(&self) -> u32 {
        let groups = self.controller.ana_groups.saturating_mul(32);
        let namespaces = self.controller.maximum_namespaces.saturating_mul(4);
        let bytes = groups.saturating_add(namespaces).saturating_add(16);
        bytes.clamp(4096, ANA_LOG_MAX).next_multiple_of(4)
    }
}
