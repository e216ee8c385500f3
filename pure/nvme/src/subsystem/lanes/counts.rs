//! What a lane counts, until it reports to the subsystem.

use alloc::vec::Vec;
use core::mem;

use engine::Instant;
use serde::{Deserialize, Serialize};

use super::super::controller::ControllerKey;
use super::super::errors::{ERROR_LOG_ENTRIES, Failure};
use super::super::record::Counters;
use super::super::slots::Slot;
use super::super::smart::Smart;
use super::super::tally::{HostTally, Tallies};
use crate::wire::{QueueId, Status, SubmissionQueueEntry};

/// A failure for the Error Information log.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Logged {
    pub(super) controller: ControllerKey,
    pub(super) queue: QueueId,
    pub(super) entry: SubmissionQueueEntry,
    pub(super) failure: Failure,
}

/// Counts of a lane's commands since its last report.
#[derive(Debug, Serialize, Deserialize)]
pub(in super::super) struct Counts {
    /// The version that the lane had seen, which distinguishes the lives of a key.
    pub(super) version: u64,
    pub(super) counters: Counters,
    /// By the keys of controllers.
    pub(super) hosts: Vec<HostTally>,
    pub(super) namespaces: Tallies,
    pub(super) failures: Vec<Logged>,
    pub(super) medium_has_failed: bool,
}

/// The counts that a lane collects.
#[derive(Debug)]
pub(super) struct Counting {
    pub(super) smart: Smart,
    hosts: Vec<HostTally>,
    namespaces: Tallies,
    failures: Vec<Logged>,
    medium_has_failed: bool,
}

impl Counting {
    pub(super) fn new(now: Instant) -> Self {
        let mut smart = Smart::new(now, 0, Counters::default());
        smart.take(now);
        Self {
            smart,
            hosts: Vec::new(),
            namespaces: Tallies::default(),
            failures: Vec::new(),
            medium_has_failed: false,
        }
    }

    /// Counts a command that ends with `status`.
    #[inline]
    pub(super) fn count(&mut self, now: Instant, slot: &Slot, status: Status, is_valid: bool) {
        self.smart.end_io(now);
        match self.hosts.get_mut(usize::from(slot.controller.0)) {
            Some(tally) => tally.count(slot, status),
            None => self.host(slot.controller).count(slot, status),
        }
        self.namespaces.count(now, slot, status, is_valid);
    }

    #[cold]
    fn host(&mut self, controller: ControllerKey) -> &mut HostTally {
        let index = usize::from(controller.0);
        self.hosts.resize(self.hosts.len().max(index + 1), HostTally::default());
        &mut self.hosts[index]
    }

    /// Keeps a failure for the log.
    pub(super) fn log(&mut self, failure: Logged) {
        self.failures.push(failure);
    }

    pub(super) const fn note_failed_medium(&mut self) {
        self.medium_has_failed = true;
    }

    /// Whether the subsystem has to know at once: it acts upon a failed medium, and the log holds
    /// no more failures than these.
    pub(super) fn is_urgent(&self) -> bool {
        self.medium_has_failed || self.failures.len() >= ERROR_LOG_ENTRIES
    }

    /// Takes the counts, of a lane that has seen `version`.
    pub(super) fn take(&mut self, now: Instant, version: u64) -> Counts {
        Counts {
            version,
            counters: self.smart.take(now),
            hosts: mem::take(&mut self.hosts),
            namespaces: mem::take(&mut self.namespaces),
            failures: mem::take(&mut self.failures),
            medium_has_failed: mem::take(&mut self.medium_has_failed),
        }
    }
}
