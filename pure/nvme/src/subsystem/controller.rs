//! A controller of the subsystem: what a host sees as one, through one transport.

use alloc::string::String;
use alloc::vec::Vec;

use crate::wire::AdminOpcode;

/// Controllers that a subsystem may have at once.
pub const CONTROLLERS_MAX: u16 = 4096;

/// Names a controller of a subsystem while it exists: a small index, chosen by the subsystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControllerKey(pub u16);

/// The key of the first controller.
pub(super) const FIRST: ControllerKey = ControllerKey(0);

/// The host that a controller over fabrics is for, as its Connect command said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HostIdentity {
    /// Host NQN (HOSTNQN).
    pub name: String,
    /// Host Identifier (HOSTID).
    pub identifier: [u8; 16],
}

/// What a controller is, apart from what it shares with the others of its subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerConfig {
    /// Controller ID (CNTLID), which no other controller of the subsystem may have at the same time.
    pub controller_id: u16,
    /// I/O queues of either kind that may be created.
    pub io_queues_max: u16,
    /// Asynchronous Event Requests that may be outstanding, 1..=16.
    pub event_requests_max: u8,
    /// SGL Support (SGLS), as reported: what of SGLs the transport implements.
    pub sgl_support: u32,
    /// How the host reaches it.
    pub transport: Transport,
}

/// How a host reaches a controller, and what depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// PCIe: a memory-based transport.
    Pcie {
        /// Interrupt vectors.
        interrupt_vectors: u16,
        /// Admin commands that the transport carries out itself: the Commands Supported and Effects log names them.
        commands: Vec<AdminOpcode>,
    },
    /// A message-based transport.
    Fabrics(FabricsConfig),
}

/// What Identify says of a controller over fabrics, and whom it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricsConfig {
    /// The host.
    pub host: HostIdentity,
    /// Bytes of an I/O command capsule at most (IOCCSZ): 64 and what data it may carry. A multiple of 16.
    pub command_capsule_bytes: u32,
    /// Bytes of an I/O response capsule at most (IORCSZ): a multiple of 16.
    pub response_capsule_bytes: u32,
    /// In Capsule Data Offset (ICDOFF): where data starts behind the entry, in 16 bytes.
    pub capsule_data_offset: u16,
    /// Fabrics Controller Attributes (FCATT): whether the controller was made by the connect (dynamic controller model).
    pub dynamic: bool,
    /// Maximum SGL Data Block Descriptors (MSDBD); 0 for no limit.
    pub data_descriptors_max: u8,
    /// Maximum Outstanding Commands (MAXCMD) of an I/O queue; the size of its queue at most.
    pub commands_max: u16,
    /// Keep Alive Support (KAS): granularity of its timer in 100 ms; 0 where it is absent.
    pub keep_alive_granularity: u16,
    /// Traffic Based Keep Alive (TBKAS): commands count as a Keep Alive.
    pub traffic_keep_alive: bool,
    /// Keep Alive Timeout (KATO) in milliseconds, as the Connect command set it; 0 for none.
    pub keep_alive_milliseconds: u32,
    /// Optional Fabric Commands Support (OFCS): Disconnect.
    pub disconnect: bool,
}

impl ControllerConfig {
    /// A controller on PCIe with the usual limits; its transport carries out the commands about queues.
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
            transport: Transport::Pcie { interrupt_vectors: 65, commands },
        }
    }

    /// A dynamic controller over fabrics for `host` with the usual limits: 8 KiB of data in a capsule, keep alive with
    /// a granularity of 100 ms.
    pub const fn fabrics(controller_id: u16, host: HostIdentity) -> Self {
        Self {
            controller_id,
            io_queues_max: 64,
            event_requests_max: 4,
            sgl_support: 0,
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
            }),
        }
    }

    pub(super) const fn interrupt_vectors(&self) -> u16 {
        match self.transport {
            Transport::Pcie { interrupt_vectors, .. } => interrupt_vectors,
            Transport::Fabrics(_) => 0,
        }
    }

    pub(super) fn transport_commands(&self) -> &[AdminOpcode] {
        match &self.transport {
            Transport::Pcie { commands, .. } => commands,
            Transport::Fabrics(_) => &[],
        }
    }

    /// Checks what only the one who configures can get wrong.
    ///
    /// # Panics
    /// When a limit is exceeded.
    pub(super) fn check(&self) {
        assert!((1..=16).contains(&self.event_requests_max), "event_requests_max is 1..=16");
        assert!(self.io_queues_max >= 1, "io_queues_max is at least 1");
    }
}
