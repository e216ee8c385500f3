//! The properties of a controller over fabrics.

use engine::Instant;

use super::{Association, QUEUE_ENTRIES_MAX, Served};
use crate::wire::{PropertyGet, PropertySet, PropertySize, QueueId, property};

/// CAP.TO and CRTO.CRWMT, in units of 500 ms: how long a host should wait for CSTS.RDY.
const READY_TIMEOUT: u32 = 30;
/// I/O entries of the NVM command set: 64 and 16 bytes, as powers of two.
const IO_ENTRY_SIZES: (u32, u32) = (6, 4);

/// The action for the owner after a property was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing to do.
    Nothing,
    /// Enable the controller, then call [`super::Target::set_ready`].
    Enable,
    /// Perform a Controller Level Reset: drop the commands in flight and close the I/O queues. The
    /// association stays.
    Reset,
    /// Shut the controller down, then call [`super::Target::set_shut_down`].
    ShutDown,
    /// Perform an NVM Subsystem Reset: reset every controller of the subsystem and close their I/O
    /// queues.
    ResetSubsystem,
}

/// The properties that keep the written value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Properties {
    /// Controller Configuration (CC).
    configuration: u32,
    /// Controller Status (CSTS).
    status: u32,
}

impl Properties {
    pub(super) const fn is_ready(&self) -> bool {
        property::READY.is_set(self.status) && !property::FATAL.is_set(self.status)
    }

    pub(super) fn set_fatal(&mut self) {
        self.status = property::FATAL.replace(self.status, 1);
    }

    const fn is_enabled(&self) -> bool {
        property::ENABLE.is_set(self.configuration)
    }

    /// Whether the controller supports the value of CC. A discovery controller has no I/O queues.
    fn is_sound(&self, has_io: bool) -> bool {
        let configured = |field: nvme::wire::Bits| field.of(self.configuration);
        let sizes =
            (configured(property::SUBMISSION_ENTRY_SIZE), configured(property::COMPLETION_ENTRY_SIZE));
        matches!(configured(property::COMMAND_SET), property::SELECT_NVM | property::SELECT_ALL)
            && configured(property::PAGE_SIZE) == 0
            && configured(property::ARBITRATION) == 0
            && (!has_io || sizes == IO_ENTRY_SIZES)
    }
}

impl Association {
    fn is_nvm(&self) -> bool {
        matches!(self.served, Served::Nvm(_))
    }

    fn capabilities(&self) -> u64 {
        let low = property::QUEUE_ENTRIES_MAX.put(u32::from(QUEUE_ENTRIES_MAX) - 1)
            | property::CONTIGUOUS_QUEUES.put(1)
            | property::TIMEOUT.put(READY_TIMEOUT);
        let high = property::NVM_COMMAND_SET.put(1)
            | property::IO_COMMAND_SETS.put(self.is_nvm().into())
            | property::SUBSYSTEM_RESET_SUPPORTED.put(self.is_nvm().into())
            | property::READY_WITH_MEDIA.put(1);
        u64::from(high) << 32 | u64::from(low)
    }

    /// The value of a property, if there is one of that length at that offset.
    pub(super) fn property(&self, get: PropertyGet) -> Option<u64> {
        let dword = match (get.size, get.offset) {
            (PropertySize::Quad, property::CAPABILITIES) => return Some(self.capabilities()),
            (PropertySize::Dword, property::VERSION) => property::VERSION_2_0,
            (PropertySize::Dword, property::CONFIGURATION) => self.properties.configuration,
            (PropertySize::Dword, property::STATUS) => self.properties.status,
            (PropertySize::Dword, property::SUBSYSTEM_RESET) => 0,
            (PropertySize::Dword, property::READY_TIMEOUTS) => READY_TIMEOUT,
            _ => return None,
        };
        Some(dword.into())
    }

    /// Sets a property; `None` if there is no such writable property.
    pub(super) fn set_property(&mut self, now: Instant, set: PropertySet) -> Option<Change> {
        let [a, b, c, d, ..] = set.value.to_le_bytes();
        let value = u32::from_le_bytes([a, b, c, d]);
        match (set.size, set.offset) {
            (PropertySize::Dword, property::CONFIGURATION) => Some(self.configure(now, value)),
            (PropertySize::Dword, property::SUBSYSTEM_RESET) if self.is_nvm() => {
                let reset = value == property::RESET_SIGNATURE;
                Some(if reset { Change::ResetSubsystem } else { Change::Nothing })
            }
            // Writing a one to NSSRO clears it.
            (PropertySize::Dword, property::STATUS) => {
                let occurred = property::SUBSYSTEM_RESET_OCCURRED;
                if occurred.is_set(value) {
                    self.properties.status = occurred.replace(self.properties.status, 0);
                }
                Some(Change::Nothing)
            }
            _ => None,
        }
    }

    fn configure(&mut self, now: Instant, value: u32) -> Change {
        let has_io = self.is_nvm();
        let before = self.properties;
        self.properties.configuration = value;
        let shutdown = property::SHUTDOWN.of(value);
        match (before.is_enabled(), self.properties.is_enabled()) {
            (false, true) => {
                if !self.properties.is_sound(has_io) {
                    self.properties.set_fatal();
                    return Change::Nothing;
                }
                self.disabled = None;
                self.set_shutdown_status(0);
                Change::Enable
            }
            (true, false) => {
                let occurred = property::SUBSYSTEM_RESET_OCCURRED.of(before.status);
                self.properties.status = property::SUBSYSTEM_RESET_OCCURRED.put(occurred);
                self.disabled = Some(now);
                self.keep_only_admin_queue();
                Change::Reset
            }
            _ if shutdown != 0 && shutdown != property::SHUTDOWN.of(before.configuration) => {
                self.set_shutdown_status(property::SHUTDOWN_OCCURRING);
                Change::ShutDown
            }
            _ => Change::Nothing,
        }
    }

    fn set_shutdown_status(&mut self, value: u32) {
        self.properties.status = property::SHUTDOWN_STATUS.replace(self.properties.status, value);
    }

    pub(super) fn set_ready(&mut self) {
        if self.properties.is_enabled() {
            self.properties.status = property::READY.replace(self.properties.status, 1);
        }
    }

    pub(super) fn set_shut_down(&mut self, now: Instant) {
        self.set_shutdown_status(property::SHUTDOWN_COMPLETE);
        self.disabled = Some(now);
    }

    pub(super) fn on_subsystem_reset(&mut self, now: Instant) {
        let status = property::SUBSYSTEM_RESET_OCCURRED.put(1);
        self.properties = Properties { configuration: 0, status };
        self.disabled = Some(now);
        self.keep_only_admin_queue();
    }

    fn keep_only_admin_queue(&mut self) {
        let mut queues = super::association::Queues::default();
        if self.queues.has(QueueId::ADMIN) {
            queues.insert(QueueId::ADMIN);
        }
        self.queues = queues;
        self.claimants.retain(|one| one.claim.queue.is_admin());
    }
}
