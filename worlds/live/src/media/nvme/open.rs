//! Bringing the controller up, and what it turns out to have.

use std::fmt;
use std::thread;
use std::time::Duration;

use engine::{Nanos, Pool};
use nvme_pcie::host::{Config, Host, Identity, InitError};

use super::{Notice, NvmeMedium, Port, VfioPort};
use crate::clock::Clock;
use crate::media::commands::{Abilities, Commands, Extent, PIECE_BYTES, misfit};
use crate::vfio::{self, PciAddress};

/// Bytes that the controller reaches: queues, and a slot for each command.
pub(super) const ARENA_LENGTH: usize = 32 << 20;
/// Entries of the queues.
const QUEUE_ENTRIES: u32 = 256;
/// Bytes a class that the pool of buffers remembers.
const POOL_RETAIN: usize = 8 << 20;
/// Resets in a row without a command that succeeds, after which the controller is given up.
const RESETS_MAX: u32 = 1;
/// How often a controller that comes up is looked at.
const COMING_UP_POLL: Duration = Duration::from_micros(200);

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
    let port = VfioPort::open(address, ARENA_LENGTH).map_err(OpenError::Vfio)?;
    let base = port.memory_base();
    NvmeMedium::new(clock, port, base, report)
}

impl<P: Port> NvmeMedium<P> {
    /// Brings up the controller behind `port`, whose memory begins at `base`.
    pub(super) fn new(clock: Clock, port: P, base: u64, report: fn(Notice)) -> Result<Self, OpenError> {
        let interrupts = port.interrupts().next().is_some();
        let config = Config {
            queue_entries: QUEUE_ENTRIES,
            transfer_bytes_max: PIECE_BYTES,
            interrupts,
            resets_max: RESETS_MAX,
            hold: Nanos::ZERO,
            ..Config::new(base, ARENA_LENGTH as u64)
        };
        Self::with(clock, port, config, report)
    }

    pub(super) fn with(clock: Clock, port: P, config: Config, report: fn(Notice)) -> Result<Self, OpenError> {
        let host = Host::new(config).map_err(|_| OpenError::Init(InitError::Memory))?;
        let region = host.data_region();
        let slots = region.length / u64::from(PIECE_BYTES);
        let slots = u32::try_from(slots).unwrap_or(u32::MAX).min(config.queue_entries - 1);
        let mut medium = Self {
            host,
            port,
            clock,
            report,
            pool: Pool::new(POOL_RETAIN),
            // What it has turns out below.
            commands: Commands::new(Vec::new(), Abilities::NONE, slots),
            slots_base: region.base,
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
        let mut unfit = Vec::new();
        let commands = &mut self.commands;
        commands.abilities = Abilities::new(&identity.controller, identity.transfer_bytes_max);
        for namespace in &identity.namespaces {
            match misfit(namespace) {
                Some(why) => unfit.push(why),
                None => commands.extents.push(Extent::new(namespace, commands.size())),
            }
        }
        if commands.extents.is_empty() { Err(OpenError::NoNamespace { unfit }) } else { Ok(()) }
    }
}
