//! Bringing the controller up, and what it turns out to have.

use std::collections::VecDeque;
use std::fmt;
use std::thread;
use std::time::Duration;

use engine::{Nanos, Pool};
use nvme::wire::NamespaceId;
use nvme_pcie::host::{Config, Host, Identity, InitError, Namespace};

use super::{Abilities, JOBS_MAX, Notice, NvmeMedium, Port, VfioPort, length_u64, memory_length};
use crate::clock::Clock;
use crate::vfio::{self, PciAddress};

/// Bytes that the controller reaches: queues, and a slot for each command.
pub(super) const ARENA_LENGTH: u64 = 32 << 20;
/// Entries of the queues.
const QUEUE_ENTRIES: u32 = 256;
/// Bytes of a slot: the most that one command moves.
const SLOT_BYTES: u32 = 128 << 10;
/// Bytes a class that the pool of buffers remembers.
const POOL_RETAIN: usize = 8 << 20;
/// Resets in a row without a command that succeeds, after which the controller is given up.
const RESETS_MAX: u32 = 1;
/// How often a controller that comes up is looked at.
const COMING_UP_POLL: Duration = Duration::from_micros(200);
/// Block sizes that are served.
const BLOCKS: [u32; 2] = [512, 4096];
/// Bytes of a namespace, so that all together have offsets of 64 bits.
const NAMESPACE_BYTES_MAX: u64 = 1 << 54;

/// Dataset Management, and Write Zeroes, in Optional NVM Command Support (ONCS).
const ONCS_DATASET_MANAGEMENT: u16 = 1 << 2;
const ONCS_WRITE_ZEROES: u16 = 1 << 3;
/// What deallocated blocks read as, and its value for zeroes, in Deallocate Logical Block Features (DLFEAT).
const DLFEAT_READS: u8 = 0b111;
const DLFEAT_READS_ZERO: u8 = 0b001;
/// Write Zeroes deallocates if asked to (DLFEAT).
const DLFEAT_WRITE_ZEROES: u8 = 1 << 3;

/// A namespace of the controller, and where in the medium it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The controller's name for it.
    pub id: NamespaceId,
    /// First byte in the medium.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Bytes in a block: 512 or 4096.
    pub block: u32,
    /// Write Zeroes gives the space back if asked to.
    pub(super) zeroes_deallocate: bool,
    /// What was given back reads as zeroes.
    pub(super) deallocated_reads_zero: bool,
}

/// Why a controller can't serve.
#[derive(Debug)]
pub enum OpenError {
    /// It can't be driven from here.
    Vfio(vfio::OpenError),
    /// It can't be brought up.
    Init(InitError),
    /// It has no namespace that can be served.
    NoNamespace {
        /// Why not, of each that it has.
        unfit: Vec<String>,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vfio(error) => error.fmt(f),
            Self::Init(error) => write!(f, "the controller can't be brought up: {error}"),
            Self::NoNamespace { unfit } if unfit.is_empty() => f.write_str("the controller has no namespace"),
            Self::NoNamespace { unfit } => write!(f, "no namespace can be served: {}", unfit.join("; ")),
        }
    }
}

impl std::error::Error for OpenError {}

impl OpenError {
    /// What to do about it.
    pub fn remedy(&self) -> String {
        match self {
            Self::Vfio(error) => error.remedy(),
            Self::Init(_) => "does the kernel's own driver bring it up? (driver_override: nvme)".to_owned(),
            Self::NoNamespace { .. } => {
                "with the kernel's own driver: nvme create-ns, nvme attach-ns, nvme format".to_owned()
            }
        }
    }
}

/// Takes the NVMe controller at `address`, alone, and brings it up. What happens to it later is told to `report`.
///
/// # Errors
/// See [`OpenError`].
pub fn open(clock: Clock, address: PciAddress, report: fn(Notice)) -> Result<NvmeMedium, OpenError> {
    let port = VfioPort::open(address, memory_length(ARENA_LENGTH)).map_err(OpenError::Vfio)?;
    let base = port.memory_base();
    NvmeMedium::new(clock, port, base, report)
}

impl<P: Port> NvmeMedium<P> {
    /// Brings up the controller behind `port`, whose memory begins at `base`.
    pub(super) fn new(clock: Clock, port: P, base: u64, report: fn(Notice)) -> Result<Self, OpenError> {
        let interrupts = port.interrupts().next().is_some();
        let config = Config {
            queue_entries: QUEUE_ENTRIES,
            transfer_bytes_max: SLOT_BYTES,
            interrupts,
            resets_max: RESETS_MAX,
            hold: Nanos::ZERO,
            ..Config::new(base, ARENA_LENGTH)
        };
        Self::with(clock, port, config, report)
    }

    pub(super) fn with(clock: Clock, port: P, config: Config, report: fn(Notice)) -> Result<Self, OpenError> {
        let host = Host::new(config).map_err(|_| OpenError::Init(InitError::Memory))?;
        let region = host.data_region();
        let slots = region.length / u64::from(SLOT_BYTES);
        let slots = u32::try_from(slots).unwrap_or(u32::MAX).min(config.queue_entries - 1);
        let mut medium = Self {
            host,
            port,
            clock,
            report,
            pool: Pool::new(POOL_RETAIN),
            extents: Vec::new(),
            abilities: Abilities {
                write_zeroes: false,
                dataset_management: false,
                transfer_max: 0,
                zeroes_max: 0,
            },
            jobs: (0..JOBS_MAX).map(|_| None).collect(),
            free_jobs: (0..JOBS_MAX).rev().collect(),
            active: VecDeque::new(),
            pieces: vec![None; slots as usize],
            free_slots: (0..slots).rev().collect(),
            slots_base: region.base,
            zeroes: vec![0; SLOT_BYTES as usize],
            waiting: VecDeque::new(),
            ended: VecDeque::new(),
            reaped: clock.now(),
            resetting: false,
            failed: None,
        };
        let identity = medium.come_up()?;
        medium.learn(&identity)?;
        Ok(medium)
    }

    /// Waits until the controller is up: its driver sees to it that this ends.
    fn come_up(&mut self) -> Result<Identity, OpenError> {
        // The first time, whoever has asked is told by the result.
        let report = std::mem::replace(&mut self.report, |_| {});
        self.host.start(self.clock.now());
        loop {
            let moved = self.reap(&mut |_| {});
            if self.host.is_ready() && moved == 0 {
                self.report = report;
                return self.host.identity().cloned().ok_or(OpenError::Init(InitError::Lost));
            }
            if let Some(error) = self.failed {
                return Err(OpenError::Init(error));
            }
            if moved == 0 {
                thread::sleep(COMING_UP_POLL);
            }
        }
    }

    fn learn(&mut self, identity: &Identity) -> Result<(), OpenError> {
        let commands = identity.controller.optional_nvm_commands;
        let largest = BLOCKS[1];
        let transfer_max = u64::from(identity.transfer_bytes_max / largest * largest);
        // Write Zeroes moves no data, but controllers before 2.0 are known to apply the limit of those that do.
        let zeroes_max = match identity.controller.maximum_data_transfer_size {
            0 => u64::MAX,
            power => {
                4096_u64.checked_shl(u32::from(power)).filter(|limit| *limit >= 4096).unwrap_or(u64::MAX)
            }
        };
        self.abilities = Abilities {
            write_zeroes: commands & ONCS_WRITE_ZEROES != 0,
            dataset_management: commands & ONCS_DATASET_MANAGEMENT != 0,
            transfer_max,
            zeroes_max,
        };
        let mut unfit = Vec::new();
        for namespace in &identity.namespaces {
            match misfit(namespace) {
                Some(reason) => unfit.push(format!("namespace {} {reason}", namespace.id.0)),
                None => self.extents.push(Extent {
                    id: namespace.id,
                    offset: self.size(),
                    bytes: namespace.blocks * u64::from(namespace.block_bytes),
                    block: namespace.block_bytes,
                    zeroes_deallocate: namespace.deallocate_features & DLFEAT_WRITE_ZEROES != 0,
                    deallocated_reads_zero: namespace.deallocate_features & DLFEAT_READS == DLFEAT_READS_ZERO,
                }),
            }
        }
        debug_assert!(length_u64(self.zeroes.len()) >= transfer_max);
        if self.extents.is_empty() { Err(OpenError::NoNamespace { unfit }) } else { Ok(()) }
    }
}

/// Why a namespace can't be served.
fn misfit(namespace: &Namespace) -> Option<String> {
    let Namespace { blocks, block_bytes, metadata_bytes, .. } = *namespace;
    if !BLOCKS.contains(&block_bytes) {
        Some(format!("has blocks of {block_bytes} bytes, where 512 and 4096 are served"))
    } else if metadata_bytes > 0 {
        Some(format!("has {metadata_bytes} bytes of metadata beside each block"))
    } else if blocks == 0 || blocks > NAMESPACE_BYTES_MAX / u64::from(block_bytes) {
        Some(format!("has {blocks} blocks"))
    } else {
        None
    }
}
