//! Completion timeouts of the slot's root complex, and the empty slot that is left where a function
//! never answered in time.

use engine::Nanos;
use pcie::config::CONFIG_SPACE_SIZE;
use pcie::requester::RequestError;
use pcie::root_complex::{Fault, Topology};
use vfio_user::server::{self, InterruptConfig, RegionConfig, Server};
use vfio_user::{InterruptIndex, RegionIndex};

use super::{Event, Guest, Phase};

/// Least time between two reports of completion timeouts.
const TELL_EVERY: Nanos = Nanos::from_secs(1);
/// Length in bytes of Vendor ID and Device ID. All ones there means that no function is present.
const IDENTITY: u64 = 4;

/// Whether enumeration passed over a function because it did not answer in time.
pub(super) fn was_late(topology: &Topology) -> bool {
    let late = |fault: &Fault| matches!(fault, Fault::Register { error: RequestError::Timeout, .. });
    topology.faults.iter().any(|(_, fault)| late(fault))
}

/// Fills `bytes` with the contents of an empty slot's configuration space at `offset`: all ones as
/// identity, then zeros. All ones everywhere would be a capability list without end, in which
/// monitors loop for ever.
pub(super) fn nothing(offset: u64, bytes: &mut [u8]) {
    for (at, byte) in (offset..).zip(bytes) {
        *byte = if at < IDENTITY { u8::MAX } else { 0 };
    }
}

impl<D: 'static> Guest<D> {
    /// Reports the requests that timed out since the last report.
    pub(super) fn report_timeouts(&mut self) {
        let times = self.port.root().requester_statistics().timeouts - self.timeouts_reported;
        let Some(request) = self.port.root().timed_out().filter(|_| times > 0) else { return };
        if self.now < self.timeouts_quiet_until {
            return;
        }
        self.timeouts_reported += times;
        self.timeouts_quiet_until = self.now + TELL_EVERY;
        let within = self.port.root().config().timeout.longest();
        self.event(Event::CompletionTimeout { request, within, times });
    }

    /// Handles that nothing has answered in time. A host that starts now finds an empty slot.
    /// Returns whether the slot is empty now; a slot that has had a function is not.
    pub(super) fn is_empty_from_now_on(&mut self) -> bool {
        if self.slot.is_some() {
            return false;
        }
        if !self.client {
            let mut config = server::Config::default();
            let index = usize::try_from(RegionIndex::CONFIG.0).unwrap_or(0);
            config.regions[index] = RegionConfig::new(u64::from(CONFIG_SPACE_SIZE));
            config.interrupts[InterruptIndex::Error.slot()] =
                InterruptConfig { count: 1, all_at_once: false };
            self.server = Some(Server::new(config));
        }
        self.phase = Phase::Empty;
        self.event(Event::Empty);
        true
    }

    /// The client of an empty slot has disconnected: enumerates again for the next client.
    pub(super) fn look_again(&mut self) {
        if self.link_up && matches!(self.phase, Phase::Empty) {
            self.enumerate();
        }
    }
}
