//! One of several ways to a subsystem.

use alloc::vec::Vec;

use engine::Nanos;
use nvme::wire::{AnaState, NamespaceId};

use crate::host::Association;
use crate::wire::QueueId;

/// A new sample counts as one part in this many of the average latency.
const LATENCY_WEIGHT: u64 = 8;

#[derive(Debug)]
pub(super) struct Path {
    pub(super) association: Association,
    /// Commands on each I/O queue, the first queue first.
    queues: Vec<u16>,
    /// Commands that a queue holds.
    size: u16,
    pub(super) outstanding: u32,
    pub(super) latency: Nanos,
    /// ANA state for each namespace; empty where all are the same.
    ana: Vec<(NamespaceId, AnaState)>,
    /// The path was away for so long that commands no longer wait for it.
    pub(super) failed_fast: bool,
}

impl Path {
    pub(super) fn new(association: Association) -> Self {
        Self {
            association,
            queues: Vec::new(),
            size: 0,
            outstanding: 0,
            latency: Nanos::ZERO,
            ana: Vec::new(),
            failed_fast: false,
        }
    }

    /// The controller is up.
    pub(super) fn on_up(&mut self) {
        self.failed_fast = false;
        self.outstanding = 0;
        self.latency = Nanos::ZERO;
        if let Some(identity) = self.association.identity() {
            self.size = identity.queue_size;
            self.queues.clear();
            self.queues.resize(usize::from(identity.reported.io_queues), 0);
        }
        self.on_identity();
    }

    /// The controller's identity has changed.
    pub(super) fn on_identity(&mut self) {
        self.ana.clear();
        if let Some(identity) = self.association.identity().filter(|identity| identity.reported.has_ana()) {
            self.ana.extend_from_slice(&identity.ana);
        }
    }

    /// Notes from a command's status that the path does not lead to `namespace` at present.
    pub(super) fn on_refused(&mut self, namespace: NamespaceId, state: AnaState) {
        match self.ana.iter_mut().find(|(id, _)| *id == namespace) {
            Some((_, known)) => *known = state,
            None => self.ana.push((namespace, state)),
        }
    }

    pub(super) fn state(&self, namespace: NamespaceId) -> AnaState {
        let known = self.ana.iter().find(|(id, _)| *id == namespace);
        known.map_or(AnaState::Optimized, |(_, state)| *state)
    }

    pub(super) fn is_live(&self) -> bool {
        self.association.is_live()
    }

    /// A queue with room: the one of `hint` if it has room.
    #[inline]
    pub(super) fn queue(&self, hint: u16) -> Option<QueueId> {
        let count = u16::try_from(self.queues.len()).ok().filter(|count| *count > 0)?;
        let first = hint % count;
        (0..count)
            .map(|step| (first + step) % count)
            .find(|index| self.queues[usize::from(*index)] < self.size)
            .map(|index| QueueId(index + 1))
    }

    pub(super) fn on_sent(&mut self, queue: QueueId) {
        self.outstanding += 1;
        if let Some(count) = self.queues.get_mut(usize::from(queue.0).wrapping_sub(1)) {
            *count += 1;
        }
    }

    pub(super) fn on_ended(&mut self, queue: QueueId) {
        self.outstanding = self.outstanding.saturating_sub(1);
        if let Some(count) = self.queues.get_mut(usize::from(queue.0).wrapping_sub(1)) {
            *count = count.saturating_sub(1);
        }
    }

    pub(super) fn on_latency(&mut self, sample: Nanos) {
        self.latency = match self.latency {
            Nanos::ZERO => sample,
            known => (known * (LATENCY_WEIGHT - 1) + sample) / LATENCY_WEIGHT,
        };
    }

    /// The path is lost, and has no command.
    pub(super) fn on_lost(&mut self) {
        self.outstanding = 0;
        self.queues.fill(0);
    }
}
