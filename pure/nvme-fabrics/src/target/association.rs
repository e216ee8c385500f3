//! An association: a host, a controller, and the queues between them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use engine::{Instant, Nanos};

use super::discovery::Discovery;
use super::properties::Properties;
use super::{Arrival, HostTerms, Origin, SubsystemKey};
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

/// A connection's claim to a queue of an association. Several connections may claim the same queue;
/// the queue belongs to the one whose host was the last to prove its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The queue.
    pub queue: QueueId,
    /// Distinguishes the claims to the same queue.
    pub(super) number: u32,
}

/// A claim, and how far its proof is.
#[derive(Debug)]
pub(super) struct Claimant {
    pub(super) claim: Claim,
    /// The origin of the connection.
    pub(super) origin: Origin,
    /// Whether hosts were admitted from there before.
    pub(super) is_known: bool,
    /// The authentication that the host must complete; `None` if it need not.
    pub(super) authentication: Option<Box<Controller>>,
    /// Whether the queue is this claim's and may be used.
    pub(super) is_admitted: bool,
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
}

/// An association of a host with a controller, and the state of the controller over fabrics.
#[derive(Debug)]
pub struct Association {
    pub(super) served: Served,
    pub(super) controller: ControllerId,
    pub(super) host: Nqn,
    pub(super) host_id: HostId,
    pub(super) port: PortId,
    /// The queues that a claim was admitted to.
    pub(super) queues: Queues,
    /// I/O queues that may be connected.
    pub(super) io_queues: u16,
    pub(super) properties: Properties,
    /// The subsystem's terms for the host when it connected.
    pub(super) terms: HostTerms,
    /// The claims to the queues, one for each connection.
    pub(super) claimants: Vec<Claimant>,
    /// The number of the next claim.
    pub(super) next_claim: u32,
    /// Whether the host has proved its identity, or need not. Only then does it own the controller.
    pub(super) is_proven: bool,
    /// Keep Alive Timeout, if there is one.
    pub(super) keep_alive: Option<Nanos>,
    /// Time of the host's latest command.
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
    /// Whether the host has proved its identity, or need not. Until then the association has no
    /// controller: its identifier is only reserved.
    pub const fn is_proven(&self) -> bool {
        self.is_proven
    }
    /// Whether the queue is this claim's and may be used: its host has authenticated, or need not.
    pub fn admits(&self, claim: Claim) -> bool {
        self.claimants.iter().any(|one| one.claim == claim && one.is_admitted)
    }
    /// Adds a claim to a queue.
    pub(super) fn claim(&mut self, queue: QueueId, arrival: Arrival<'_>) -> Claim {
        let claim = Claim { queue, number: self.next_claim };
        self.next_claim = self.next_claim.wrapping_add(1);
        let Arrival { origin, is_known, .. } = arrival;
        self.claimants.push(Claimant { claim, origin, is_known, authentication: None, is_admitted: false });
        claim
    }
    pub(super) fn claimant(&mut self, claim: Claim) -> Option<&mut Claimant> {
        self.claimants.iter_mut().find(|one| one.claim == claim)
    }
    /// Gives a queue to a claim. The previous claim loses it.
    pub(super) fn admit(&mut self, claim: Claim) {
        self.queues.insert(claim.queue);
        for one in self.claimants.iter_mut().filter(|one| one.claim.queue == claim.queue) {
            one.is_admitted = one.claim == claim;
        }
    }
    /// Takes a queue away from a claim, if the claim has it.
    pub(super) fn dismiss(&mut self, claim: Claim) {
        if let Some(one) = self.claimant(claim).filter(|one| one.is_admitted) {
            one.is_admitted = false;
            self.queues.remove(claim.queue);
        }
    }
    /// The source of the host's secret, if the host must authenticate.
    pub fn secret_origin(&self) -> Option<&str> {
        self.terms.credentials.as_ref().map(|credentials| credentials.origin.as_str())
    }
    /// Whether commands other than fabrics commands may be executed: CSTS.RDY without CSTS.CFS.
    #[inline]
    pub const fn is_ready(&self) -> bool {
        self.properties.is_ready()
    }
}
