//! What a person may want to know of a running target.

use alloc::vec::Vec;
use core::net::SocketAddr;

use engine::Nanos;
use nvme::subsystem::HostTally;
use nvme_fabrics::target::{Association, AssociationKey, SubsystemKey};
use nvme_fabrics::transport::ControllerEnd;
use nvme_fabrics::wire::{ControllerId, HostId, Nqn, QueueId};

use super::{ConnectionId, Target};
use crate::fabric::controller::{Parameters, Statistics};

/// The state of a connection with a queue.
#[derive(Clone, Debug)]
pub struct ConnectionStatus {
    /// The connection.
    pub id: ConnectionId,
    /// Identifier of the queue.
    pub queue: QueueId,
    /// Size of the queue in entries.
    pub entries: u16,
    /// Address of the host.
    pub peer: SocketAddr,
    /// The agreed parameters of the connection, such as digests.
    pub parameters: Option<Parameters>,
    /// Counters of the connection.
    pub statistics: Statistics,
    /// Number of commands under way.
    pub outstanding: u16,
}

/// The state of an association.
#[derive(Clone, Debug)]
pub struct AssociationStatus {
    /// Key of the association.
    pub key: AssociationKey,
    /// Key of the subsystem; `None` for the discovery subsystem.
    pub subsystem: Option<SubsystemKey>,
    /// Host NQN.
    pub host: Nqn,
    /// Host Identifier.
    pub host_id: HostId,
    /// Identifier of the controller.
    pub controller: ControllerId,
    /// Whether the controller is enabled and ready.
    pub is_ready: bool,
    /// Keep Alive Timeout; `None` if there is none.
    pub keep_alive: Option<Nanos>,
    /// Bytes held for the association: data that the host has not read, and data that it was
    /// asked for.
    pub memory: u64,
    /// What the controller's I/O commands have done; `None` for the discovery subsystem.
    pub tally: Option<HostTally>,
    /// Connections of the association, the Admin Queue first.
    pub connections: Vec<ConnectionStatus>,
}

impl Target {
    /// The state of every association.
    pub fn status(&self) -> Vec<AssociationStatus> {
        self.status_from(AssociationKey(0), usize::MAX)
    }

    /// The state of the first `most` associations whose keys are not below `from`.
    pub fn status_from(&self, from: AssociationKey, most: usize) -> Vec<AssociationStatus> {
        let of = |(key, association): (AssociationKey, &Association)| {
            let member = self.members.get(key.0 as usize)?.as_ref()?;
            if association.subsystem().is_some() && !association.is_proven() {
                // The host has yet to prove that it is this host.
                return None;
            }
            let queues = member.queues.iter().map(|(_, connection)| *connection);
            let connections = core::iter::once(member.admin).chain(queues);
            let tally = member.controller.and_then(|(subsystem, controller)| {
                self.subsystem(subsystem)?.host_tally(controller).copied()
            });
            Some(AssociationStatus {
                key,
                subsystem: association.subsystem(),
                host: association.host().clone(),
                host_id: association.host_id(),
                controller: association.controller(),
                is_ready: association.is_ready(),
                keep_alive: association.keep_alive(),
                memory: self.memory_of(key),
                tally,
                connections: connections.filter_map(|id| self.connection_status(id)).collect(),
            })
        };
        self.fabrics.associations_from(from).filter_map(of).take(most).collect()
    }

    /// Number of connections, including those without a queue.
    pub const fn connection_count(&self) -> usize {
        self.connections
    }

    pub(super) fn connection_status(&self, id: ConnectionId) -> Option<ConnectionStatus> {
        let peer = self.peers.get(id.0 as usize)?.as_ref()?;
        let queue = peer.queue()?;
        Some(ConnectionStatus {
            id,
            queue: queue.queue,
            entries: queue.entries,
            peer: peer.address,
            parameters: peer.parameters,
            statistics: peer.connection.statistics(),
            outstanding: peer.connection.outstanding(),
        })
    }
}
