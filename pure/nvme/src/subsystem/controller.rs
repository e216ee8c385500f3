//! A controller of the subsystem, which one host uses through one transport.

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::wire::AdminOpcode;

/// The most controllers that a subsystem may have at once.
pub const CONTROLLERS_MAX: u16 = 16_384;

/// The unit of Keep Alive Support (KAS).
const KEEP_ALIVE_UNIT_MILLISECONDS: u32 = 100;
/// The greatest Keep Alive Timeout, in milliseconds: an hour. A host that is silent for longer is
/// considered gone.
pub const KEEP_ALIVE_MAX_MILLISECONDS: u32 = 3_600_000;
/// SGL Support (SGLS) over fabrics: SGLs without alignment rules, offsets into the capsule,
/// transport data blocks.
const SGL_SUPPORT_FABRICS: u32 = 1 | 1 << 20 | 1 << 21;

/// The subsystem's name for a controller while the controller exists: a small index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ControllerKey(pub u16);

/// The host of a controller: over fabrics as its Connect command named it, on PCIe as the function
/// knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostIdentity {
    /// Host NQN (HOSTNQN).
    pub name: String,
    /// Host Identifier (HOSTID).
    pub identifier: [u8; 16],
}

/// One life of a controller, which begins when CSTS.RDY becomes 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Instance {
    /// Controller Instance Uniquifier (CIU): not 0, and different in each life.
    pub uniquifier: u8,
    /// Controller Instance Random Number (CIRN).
    pub random: u64,
}

/// The configuration of one controller, apart from the settings that all controllers of the
/// subsystem share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControllerConfig {
    /// Controller ID (CNTLID). No other controller of the subsystem may have the same ID at the
    /// same time.
    pub controller_id: u16,
    /// The most I/O queues of each kind that a host may create, at least 1.
    pub io_queues_max: u16,
    /// The most Asynchronous Event Requests that may be outstanding, 1..=16.
    pub event_requests_max: u8,
    /// SGL Support (SGLS) as Identify reports it: the SGL features that the transport implements.
    pub sgl_support: u32,
    /// The transport through which the host reaches the controller.
    pub transport: Transport,
}

/// The transport of a controller, with the properties that depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    /// PCIe, a memory-based transport.
    Pcie {
        /// Number of interrupt vectors.
        interrupt_vectors: u16,
        /// Admin commands that the transport executes itself. The Commands Supported and Effects
        /// log lists them.
        commands: Vec<AdminOpcode>,

        /// The host that the controller serves, if the subsystem has controllers for other hosts.
        /// `None` for the only controller of a subsystem. [`Subsystem::set_host`] changes it.
        ///
        /// [`Subsystem::set_host`]: super::Subsystem::set_host
        host: Option<HostIdentity>,
    },
    /// A fabric, which is a message-based transport.
    Fabrics(FabricsConfig),
}

/// The fabrics properties of a controller that Identify reports, and the controller's host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FabricsConfig {
    /// The host that the controller serves.
    pub host: HostIdentity,
    /// Maximum size of an I/O command capsule in bytes (IOCCSZ): 64 plus in-capsule data. A
    /// multiple of 16.
    pub command_capsule_bytes: u32,
    /// Maximum size of an I/O response capsule in bytes (IORCSZ): a multiple of 16.
    pub response_capsule_bytes: u32,
    /// In Capsule Data Offset (ICDOFF): the distance of in-capsule data from the end of the entry,
    /// in units of 16 bytes.
    pub capsule_data_offset: u16,
    /// Fabrics Controller Attributes (FCATT): whether the Connect command created the controller
    /// (dynamic controller model).
    pub dynamic: bool,
    /// Maximum SGL Data Block Descriptors (MSDBD); 0 for no limit.
    pub data_descriptors_max: u8,
    /// Maximum Outstanding Commands (MAXCMD) of an I/O queue, at most the size of the queue.
    pub commands_max: u16,
    /// Keep Alive Support (KAS): the granularity of the Keep Alive Timer in units of 100 ms; 0
    /// where the timer is absent.
    pub keep_alive_granularity: u16,
    /// Traffic Based Keep Alive Support (TBKAS): whether every command counts as a Keep Alive.
    pub traffic_keep_alive: bool,
    /// Keep Alive Timeout (KATO) in milliseconds, as the Connect command set it; 0 for no timeout.
    pub keep_alive_milliseconds: u32,
    /// Optional Fabric Commands Support (OFCS): whether Disconnect is supported.
    pub disconnect: bool,
    /// Controller IDs that this part of the subsystem may give to its controllers. Other parts may
    /// use other IDs, which commands here may not name.
    pub controller_ids: RangeInclusive<u16>,
}

impl ControllerConfig {
    /// A controller on PCIe with the usual limits, whose transport executes the commands
    /// about queues.
    pub fn pcie(controller_id: u16) -> Self {
        let commands = Vec::from([
            AdminOpcode::DeleteIoSubmissionQueue,
            AdminOpcode::CreateIoSubmissionQueue,
            AdminOpcode::DeleteIoCompletionQueue,
            AdminOpcode::CreateIoCompletionQueue,
        ]);
        Self {
            controller_id,
            io_queues_max: 64,
            event_requests_max: 4,
            sgl_support: 0,
            transport: Transport::Pcie { interrupt_vectors: 65, commands, host: None },
        }
    }

    /// A dynamic controller over fabrics for `host`, with the usual limits: 8 KiB of in-capsule
    /// data, and Keep Alive with a granularity of 100 ms.
    pub const fn fabrics(controller_id: u16, host: HostIdentity) -> Self {
        Self {
            controller_id,
            io_queues_max: 64,
            event_requests_max: 4,
            sgl_support: SGL_SUPPORT_FABRICS,
            transport: Transport::Fabrics(FabricsConfig {
                host,
                command_capsule_bytes: 64 + (8 << 10),
                response_capsule_bytes: 16,
                capsule_data_offset: 0,
                dynamic: true,
                data_descriptors_max: 1,
                commands_max: 1024,
                keep_alive_granularity: 1,
                traffic_keep_alive: true,
                keep_alive_milliseconds: 0,
                disconnect: true,
                controller_ids: 1..=0xffef,
            }),
        }
    }

    pub(super) const fn interrupt_vectors(&self) -> u16 {
        match self.transport {
            Transport::Pcie { interrupt_vectors, .. } => interrupt_vectors,
            Transport::Fabrics(_) => 0,
        }
    }

    /// The fabrics properties; `None` for a controller on PCIe.
    pub(super) const fn of_fabrics(&self) -> Option<&FabricsConfig> {
        match &self.transport {
            Transport::Pcie { .. } => None,
            Transport::Fabrics(fabrics) => Some(fabrics),
        }
    }

    /// The host of the controller; `None` for a controller that its subsystem has no others
    /// beside.
    pub(super) const fn host(&self) -> Option<&HostIdentity> {
        match &self.transport {
            Transport::Pcie { host, .. } => host.as_ref(),
            Transport::Fabrics(fabrics) => Some(&fabrics.host),
        }
    }

    /// Whether the subsystem may have controllers of other hosts, which then share its namespaces.
    pub(super) const fn has_others(&self) -> bool {
        self.host().is_some()
    }

    /// Whether the controller of a subsystem with this many ANA groups reports ANA: it must have
    /// others beside it.
    pub(super) const fn has_ana(&self, groups: u32) -> bool {
        groups > 0 && self.has_others()
    }

    /// The Host Identifier of the controller's host; zeroes without one.
    pub(super) fn host_identifier(&self) -> [u8; 16] {
        self.host().map_or([0; 16], |host| host.identifier)
    }

    /// The Keep Alive Timeout in milliseconds at the controller's start.
    pub(super) fn keep_alive_default(&self) -> u32 {
        self.of_fabrics().map_or(0, |fabrics| self.keep_alive_rounded(fabrics.keep_alive_milliseconds))
    }

    /// The time-out in milliseconds, rounded up to the next multiple of the timer's granularity.
    pub(super) fn keep_alive_rounded(&self, milliseconds: u32) -> u32 {
        let granularity = self.of_fabrics().map_or(0, |fabrics| fabrics.keep_alive_granularity);
        let unit = u32::from(granularity) * KEEP_ALIVE_UNIT_MILLISECONDS;
        milliseconds.checked_next_multiple_of(unit.max(1)).unwrap_or(u32::MAX / unit.max(1) * unit)
    }

    pub(super) fn transport_commands(&self) -> &[AdminOpcode] {
        match &self.transport {
            Transport::Pcie { commands, .. } => commands,
            Transport::Fabrics(_) => &[],
        }
    }

    /// Checks the limits that only the configuration can violate.
    ///
    /// # Panics
    /// When a limit is exceeded.
    pub(super) fn check(&self) {
        assert!((1..=16).contains(&self.event_requests_max), "event_requests_max is 1..=16");
        assert!(self.io_queues_max >= 1, "io_queues_max is at least 1");
    }
}
