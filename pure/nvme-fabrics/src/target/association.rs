//! An association: a host, a controller, and the queues between them.

use alloc::vec::Vec;

use engine::{Instant, Nanos};

use super::discovery::Discovery;
use super::properties::Properties;
use super::{HostTerms, SubsystemKey};
use crate::authentication::Controller;
use crate::wire::{ControllerId, HostId, Nqn, PortId, QueueId};

/// Names an association while it exists: a small index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AssociationKey(pub u32);

impl AssociationKey {
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The kind of controller that an association has.
#[derive(Debug)]
pub enum Served {
    /// A controller of an NVM subsystem.
    Nvm(SubsystemKey),
    /// A discovery controller.
    Discovery(Discovery),
}

/// The queues of an association, one bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Queues(u128);

impl Queues {
    const fn bit(queue: QueueId) -> u128 {
        if queue.0 < 128 { 1 << queue.0 } else { 0 }
    }
    pub(super) const fn has(self, queue: QueueId) -> bool {
        self.0 & Self::bit(queue) != 0
    }
    pub(super) fn insert(&mut self, queue: QueueId) {
        self.0 |= Self::bit(queue);
    }
    pub(super) fn remove(&mut self, queue: QueueId) {
        self.0 &= !Self::bit(queue);
    }
    /// The queues that are in both.
    pub(super) const fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// An association of a host with a controller, and the state of the controller over fabrics.
#[derive(Debug)]
pub struct Association {
    pub(super) served: Served,
    pub(super) controller: ControllerId,
    pub(super) host: Nqn,
    pub(super) host_id: HostId,
    pub(super) port: PortId,
    pub(super) queues: Queues,
    /// I/O queues that may be connected.
    pub(super) io_queues: u16,
    pub(super) properties: Properties,
    /// What the subsystem demanded of the host when it connected.
    pub(super) terms: HostTerms,
    /// The authentications of the connected queues.
    pub(super) authentications: Vec<(QueueId, Controller)>,
    /// The queues that may be used: those that are authenticated, or need not be.
    pub(super) admitted: Queues,
    /// Keep Alive Timeout, if there is one.
    pub(super) keep_alive: Option<Nanos>,
    /// When the host was last heard.
    pub(super) heard: Instant,
    /// Since when the controller has been not enabled or shut down.
    pub(super) disabled: Option<Instant>,
}

impl Association {
    /// The kind of controller that the association has.
    pub const fn served(&self) -> &Served {
        &self.served
    }
    /// The subsystem, if it is an NVM subsystem.
    pub const fn subsystem(&self) -> Option<SubsystemKey> {
        match self.served {
            Served::Nvm(subsystem) => Some(subsystem),
            Served::Discovery(_) => None,
        }
    }
    /// Controller ID (CNTLID).
    pub const fn controller(&self) -> ControllerId {
        self.controller
    }
    /// Host NQN.
    pub const fn host(&self) -> &Nqn {
        &self.host
    }
    /// Host Identifier.
    pub const fn host_id(&self) -> HostId {
        self.host_id
    }
    /// The port through which the Admin Queue was connected.
    pub const fn port(&self) -> PortId {
        self.port
    }
    /// Whether a queue is connected.
    pub const fn has_queue(&self, queue: QueueId) -> bool {
        self.queues.has(queue)
    }
    /// Number of connected queues, including the Admin Queue.
    pub const fn queue_count(&self) -> u32 {
        self.queues.0.count_ones()
    }
    /// Keep Alive Timeout (KATO), if the timer is on.
    pub const fn keep_alive(&self) -> Option<Nanos> {
        self.keep_alive
    }
    /// Whether the queue may be used: its host has authenticated, or need not.
    #[inline]
    pub const fn admits(&self, queue: QueueId) -> bool {
        self.admitted.has(queue)
    }
    /// Where the host's secret comes from, if the host must authenticate.
    pub fn secret_origin(&self) -> Option<&str> {
        self.terms.credentials.as_ref().map(|credentials| credentials.origin.as_str())
    }
    /// Whether commands other than fabrics commands may be carried out: CSTS.RDY without CSTS.CFS.
    #[inline]
    pub const fn is_ready(&self) -> bool {
        self.properties.is_ready()
    }
}
