//! A controller of the subsystem: what a host sees as one, through one transport.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use engine::Instant;

use super::ana::Access;
use super::config::Config;
use super::errors::ErrorLog;
use super::events::Events;
use super::features::{Features, SavedFeature};
use super::instance::Instance;
use super::reservation::Notices;
use crate::wire::AdminOpcode;

/// Controllers that a subsystem may have at once.
pub const CONTROLLERS_MAX: u16 = 4096;

/// What Keep Alive Support (KAS) counts in.
const KEEP_ALIVE_UNIT_MILLISECONDS: u32 = 100;
/// The greatest Keep Alive Timeout, in milliseconds: an hour. Whoever says nothing for longer has gone.
pub const KEEP_ALIVE_MAX_MILLISECONDS: u32 = 3_600_000;
/// SGL Support (SGLS) over fabrics: SGLs without alignment rules, offsets into the capsule, transport data blocks.
const SGL_SUPPORT_FABRICS: u32 = 1 | 1 << 20 | 1 << 21;

/// Names a controller of a subsystem while it exists: a small index, chosen by the subsystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControllerKey(pub u16);

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
    /// Controller IDs that controllers of this subsystem may have here. Others may be elsewhere, and are not for this
    /// one to speak of.
    pub controller_ids: RangeInclusive<u16>,
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

    /// What the host has said over fabrics when it connected; for PCIe, nothing.
    pub(super) const fn of_fabrics(&self) -> Option<&FabricsConfig> {
        match &self.transport {
            Transport::Pcie { .. } => None,
            Transport::Fabrics(fabrics) => Some(fabrics),
        }
    }

    /// Keep Alive Timeout as the controller starts with it, in milliseconds.
    pub(super) fn keep_alive_default(&self) -> u32 {
        self.of_fabrics().map_or(0, |fabrics| self.keep_alive_rounded(fabrics.keep_alive_milliseconds))
    }

    /// A time-out in milliseconds, up to the next multiple of the timer's granularity.
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

    /// Checks what only the one who configures can get wrong.
    ///
    /// # Panics
    /// When a limit is exceeded.
    pub(super) fn check(&self) {
        assert!((1..=16).contains(&self.event_requests_max), "event_requests_max is 1..=16");
        assert!(self.io_queues_max >= 1, "io_queues_max is at least 1");
    }
}

/// A controller at work.
#[derive(Debug)]
pub(super) struct Controller {
    pub(super) config: ControllerConfig,
    pub(super) features: Features,
    pub(super) events: Events,
    pub(super) errors: ErrorLog,
    pub(super) access: Access,
    pub(super) notices: Notices,
    /// The Persistent Event log as it was when the reporting context was established.
    pub(super) event_context: Option<Vec<u8>>,
    /// The latest controller level reset, or when it was added.
    pub(super) last_reset: Instant,
    /// Whether the transport has I/O queues, after which their number can't be set.
    pub(super) io_queues_exist: bool,
    /// Which life of the controller this is, where another controller may be asked to end it.
    pub(super) instance: Option<Instance>,
}

impl Controller {
    pub(super) fn new(
        now: Instant,
        subsystem: &Config,
        config: ControllerConfig,
        saved: &[SavedFeature],
    ) -> Self {
        Self {
            features: Features::new(now, subsystem, &config, saved),
            events: Events::new(config.event_requests_max),
            errors: ErrorLog::default(),
            access: Access::default(),
            notices: Notices::default(),
            event_context: None,
            last_reset: now,
            io_queues_exist: false,
            instance: None,
            config,
        }
    }
}

/// The controllers by key.
#[derive(Debug, Default)]
pub(super) struct Controllers(Vec<Option<Box<Controller>>>);

impl Controllers {
    /// Gives a controller the lowest key that is free; none when there are [`CONTROLLERS_MAX`].
    pub(super) fn insert(&mut self, controller: Controller) -> Option<ControllerKey> {
        let index = self.0.iter().position(Option::is_none).unwrap_or(self.0.len());
        let key = u16::try_from(index).ok().filter(|key| *key < CONTROLLERS_MAX)?;
        if index == self.0.len() {
            self.0.push(None);
        }
        self.0[index] = Some(Box::new(controller));
        Some(ControllerKey(key))
    }

    pub(super) fn remove(&mut self, key: ControllerKey) {
        if let Some(place) = self.0.get_mut(usize::from(key.0)) {
            *place = None;
        }
    }

    pub(super) fn find(&self, key: ControllerKey) -> Option<&Controller> {
        self.0.get(usize::from(key.0))?.as_deref()
    }

    /// The controller of a command, or one that the transport names.
    #[track_caller]
    pub(super) fn of(&self, key: ControllerKey) -> &Controller {
        self.find(key).expect("the controller was added and not removed")
    }

    #[track_caller]
    pub(super) fn of_mut(&mut self, key: ControllerKey) -> &mut Controller {
        let found = self.0.get_mut(usize::from(key.0)).and_then(Option::as_deref_mut);
        found.expect("the controller was added and not removed")
    }

    /// Every controller with its key.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ControllerKey, &Controller)> {
        (0..).map(ControllerKey).zip(&self.0).filter_map(|(key, place)| Some((key, place.as_deref()?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (ControllerKey, &mut Controller)> {
        (0..)
            .map(ControllerKey)
            .zip(&mut self.0)
            .filter_map(|(key, place)| Some((key, place.as_deref_mut()?)))
    }

    /// The first key from this one on that is of a controller.
    pub(super) fn from(&self, key: u16) -> Option<ControllerKey> {
        let mut keys = (key..CONTROLLERS_MAX).take_while(|key| usize::from(*key) < self.0.len());
        keys.find(|key| self.find(ControllerKey(*key)).is_some()).map(ControllerKey)
    }

    pub(super) fn count(&self) -> usize {
        self.iter().count()
    }
}
