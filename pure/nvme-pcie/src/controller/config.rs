//! The configuration of a controller, and its limits.

use nvme::subsystem::{ControllerConfig, HostIdentity, Transport};
use nvme::wire::AdminOpcode;
use serde::{Deserialize, Serialize};

use super::memory::{MEMORY_BUFFER_BYTES_MAX, MEMORY_BUFFER_BYTES_MIN};

/// The most I/O queue pairs of a controller.
pub const IO_QUEUES_MAX: u16 = 64;
/// The most entries of a queue (CAP.MQES).
pub const QUEUE_ENTRIES_MAX: u32 = 4096;
/// Controller ID (CNTLID) of the only controller of its subsystem, or of the first one.
const CONTROLLER_ID: u16 = 1;
/// SGL Support (SGLS) in Identify Controller: data blocks without alignment rules, bit buckets, and
/// SGLs longer than the data.
pub const SGL_SUPPORT: u32 = 1 | 1 << 16 | 1 << 18;

/// The configuration of a controller.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    /// The command core's configuration: identity and namespaces. Its limits on commands, queues,
    /// vectors and SGLs are overridden by those of this [`Config`].
    pub core: nvme::subsystem::Config,
    /// Number of I/O queue pairs, 1..=[`IO_QUEUES_MAX`].
    pub io_queues: u16,
    /// The most entries of a queue, 2..=[`QUEUE_ENTRIES_MAX`].
    pub queue_entries_max: u32,
    /// The most commands that are fetched and not yet completed, at least 32.
    pub commands_max: u16,
    /// The limit of bytes in flight, for the data of I/O commands that have not completed. Beyond
    /// the limit the controller fetches no I/O command and pulls no data from the host. Commands
    /// that were fetched before may exceed the limit with data that goes to the host.
    pub bytes_in_flight_max: u64,
    /// Number of interrupt vectors of the function.
    pub interrupt_vectors: u16,
    /// Whether the host may leave doorbells in its memory (Doorbell Buffer Config). This helps only
    /// where register writes are expensive and reads of host memory are cheap, as in a virtual
    /// machine on the same host.
    pub doorbell_buffers: bool,

    /// Length in bytes of the controller memory buffer, in which the host may put submission
    /// queues: a power of two from [`MEMORY_BUFFER_BYTES_MIN`] to [`MEMORY_BUFFER_BYTES_MAX`]; 0
    /// for no buffer. Entries in the buffer need not be fetched, which saves most time on a long
    /// link, if the driver uses the buffer. Linux uses one of 2 MiB or more where it has
    /// peer-to-peer DMA.
    ///
    /// [`MEMORY_BUFFER_BYTES_MIN`]: super::MEMORY_BUFFER_BYTES_MIN
    /// [`MEMORY_BUFFER_BYTES_MAX`]: super::MEMORY_BUFFER_BYTES_MAX
    pub memory_buffer_bytes: u32,
}

impl Config {
    /// The usual limits around `core`.
    pub const fn new(core: nvme::subsystem::Config) -> Self {
        Self {
            core,
            io_queues: IO_QUEUES_MAX,
            queue_entries_max: QUEUE_ENTRIES_MAX,
            commands_max: 512,
            bytes_in_flight_max: 8 << 20,
            interrupt_vectors: IO_QUEUES_MAX + 1,
            doorbell_buffers: false,
            memory_buffer_bytes: 0,
        }
    }

    /// Checks the limits.
    ///
    /// # Panics
    /// When a field exceeds a limit that its documentation names.
    pub(super) fn check(&self) {
        assert!((1..=IO_QUEUES_MAX).contains(&self.io_queues), "1..={IO_QUEUES_MAX} I/O queues");
        assert!((2..=QUEUE_ENTRIES_MAX).contains(&self.queue_entries_max), "2..={QUEUE_ENTRIES_MAX} entries");
        assert!(self.commands_max >= 32, "at least 32 commands in flight");
        assert!(self.interrupt_vectors >= 1, "at least one interrupt vector");
        let buffer = self.memory_buffer_bytes;
        assert!(
            buffer == 0
                || buffer.is_power_of_two()
                    && (MEMORY_BUFFER_BYTES_MIN..=MEMORY_BUFFER_BYTES_MAX).contains(&buffer),
            "a controller memory buffer of {MEMORY_BUFFER_BYTES_MIN}..={MEMORY_BUFFER_BYTES_MAX} bytes, a power of two"
        );
    }

    /// The controller's configuration for the command core; `seat` names a controller among several
    /// of the subsystem.
    pub(super) fn of_controller(&self, seat: Option<u16>) -> ControllerConfig {
        let mut core = ControllerConfig {
            io_queues_max: self.io_queues,
            sgl_support: SGL_SUPPORT,
            ..ControllerConfig::pcie(CONTROLLER_ID + seat.unwrap_or(0))
        };
        if let Transport::Pcie { interrupt_vectors, commands, host } = &mut core.transport {
            *host = seat.map(|_| HostIdentity::default());
            *interrupt_vectors = self.interrupt_vectors;
            commands.extend(self.doorbell_buffers.then_some(AdminOpcode::DoorbellBufferConfig));
        }
        core
    }
}
