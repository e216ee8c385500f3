//! Bringing an NVMe controller up, and reading its namespaces and abilities.

use std::fmt;
use std::thread;
use std::time::Duration;

use engine::{Nanos, Pool};
use nvme_pcie::host::{Config, Host, Identity, InitError};

use super::{Notice, NvmeMedium, Port, VfioPort};
use crate::media::commands::{Abilities, Commands, Extent, PIECE_BYTES, misfit};
use crate::reactor::Pump;
use crate::sys::clock::Clock;
use crate::sys::vfio::{self, PciAddress};

/// Bytes of memory that the controller can reach: its queues, and a slot for the data of each
/// command.
pub(super) const ARENA_LENGTH: usize = 32 << 20;
/// The number of entries of each queue.
const QUEUE_ENTRIES: u32 = 256;
/// The most bytes that the pool of buffers keeps for reuse.
const POOL_RETAIN: usize = 8 << 20;
/// The most resets in a row without a successful command; after these the controller is given up.
const RESETS_MAX: u32 = 1;
/// The interval at which a controller that is coming up is looked at.
const COMING_UP_POLL: Duration = Duration::from_micros(200);

/// Why a controller can't serve as a medium.
#[derive(Debug)]
pub enum OpenError {
    /// The controller can't be driven from this process.
    Vfio(vfio::OpenError),
    /// The controller can't be brought up.
    Init(InitError),
    /// The controller has no namespace that can be served.
    NoNamespace {
        /// For each namespace of the controller, why it can't be served.
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
    /// The remedy.
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

/// Takes the NVMe controller at `address` for this process alone and brings it up. `report` gets
/// all later events of the controller.
///
/// # Errors
/// When the controller can't be driven or brought up, or has no namespace to serve; see
/// [`OpenError`].
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
            host: Pump::new(host),
            port,
            clock,
            report,
            pool: Pool::new(POOL_RETAIN),
            // The namespaces and abilities are learned below.
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

    /// Waits until the controller is up. The driver's own timeouts make sure that this wait ends.
    fn come_up(&mut self) -> Result<Identity, OpenError> {
        // During the first start the caller gets the result, not reports.
        let report = std::mem::replace(&mut self.report, |_| {});
        self.host.engine_mut().start(self.clock.now());
        loop {
            let moved = self.reap(&mut |_| {});
            if self.host.engine().is_ready() && moved == 0 {
                self.report = report;
                return self.host.engine().identity().cloned().ok_or(OpenError::Init(InitError::Lost));
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
