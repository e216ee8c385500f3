//! Completion timeouts of our root complex, and the empty slot that is left where a function never answered in time.

use engine::Nanos;
use pcie::config::CONFIG_SPACE_SIZE;
use pcie::requester::RequestError;
use pcie::root_complex::{Fault, Topology};
use vfio_user::server::{self, InterruptConfig, RegionConfig, Server};
use vfio_user::{InterruptIndex, RegionIndex};

use super::{Event, Guest, Phase};

/// Completion timeouts are told of this often at most.
const TELL_EVERY: Nanos = Nanos::from_secs(1);
/// Bytes of Vendor ID and Device ID, whose being all ones says that nothing is there.
const IDENTITY: u64 = 4;

/// Whether a function was passed over because it did not answer in time.
pub(super) fn was_late(topology: &Topology) -> bool {
    let late = |fault: &Fault| matches!(fault, Fault::Register { error: RequestError::Timeout, .. });
    topology.faults.iter().any(|(_, fault)| late(fault))
}

/// What a read at `offset` of an empty slot's configuration space is. All ones in all of it would be a list of
/// capabilities that has no end, in which monitors go round for ever.
pub(super) fn nothing(offset: u64, bytes: &mut [u8]) {
    for (at, byte) in (offset..).zip(bytes) {
        *byte = if at < IDENTITY { u8::MAX } else { 0 };
    }
}

impl<D: 'static> Guest<D> {
    /// Tells of requests that timed out since the last time.
    pub(super) fn tell_timeouts(&mut self) {
        let times = self.root.requester_statistics().timeouts - self.timeouts_told;
        let Some(request) = self.root.timed_out().filter(|_| times > 0) else { return };
        if self.now < self.timeouts_quiet_until {
            return;
        }
        self.timeouts_told += times;
        self.timeouts_quiet_until = self.now + TELL_EVERY;
        let within = self.root.config().timeout.longest();
        self.event(Event::CompletionTimeout { request, within, times });
    }

    /// Nothing has answered in time. A host that starts now finds an empty slot; returns whether that is so: one that
    /// knows a function does not.
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

    /// The client of an empty slot has gone: whoever starts next has it looked at again.
    pub(super) fn look_again(&mut self) {
        if self.link_up && matches!(self.phase, Phase::Empty) {
            self.enumerate();
        }
    }
}
