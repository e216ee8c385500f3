//! What a person may want to know of a target that runs.

use alloc::vec::Vec;
use core::net::SocketAddr;

use engine::Nanos;
use nvme_fabrics::target::SubsystemKey;
use nvme_fabrics::wire::{ControllerId, HostId, Nqn, QueueId};
use nvme_tcp::controller::{Parameters, Statistics};

use super::{ConnectionId, Target};

/// A connection.
#[derive(Clone, Debug)]
pub struct ConnectionStatus {
    /// The queue.
    pub queue: QueueId,
    /// Its entries.
    pub entries: u16,
    /// Where the host is.
    pub peer: SocketAddr,
    /// Digests and the like.
    pub parameters: Option<Parameters>,
    /// What was counted.
    pub statistics: Statistics,
    /// Commands under way.
    pub outstanding: u16,
}

/// An association.
#[derive(Clone, Debug)]
pub struct AssociationStatus {
    /// The subsystem; none for the discovery subsystem.
    pub subsystem: Option<SubsystemKey>,
    /// Host NQN.
    pub host: Nqn,
    /// Host Identifier.
    pub host_id: HostId,
    /// The controller.
    pub controller: ControllerId,
    /// Whether it is enabled and ready.
    pub is_ready: bool,
    /// Keep Alive Timeout.
    pub keep_alive: Option<Nanos>,
    /// Bytes that are held for it: what it has not read, and what it was asked for.
    pub memory: u64,
    /// Its queues, the Admin Queue first.
    pub connections: Vec<ConnectionStatus>,
}

impl Target {
    /// Every association.
    pub fn status(&self) -> Vec<AssociationStatus> {
        let of = |(key, association): (_, &nvme_fabrics::target::Association)| {
            let nvme_fabrics::target::AssociationKey(index) = key;
            let member = self.members.get(index as usize)?.as_ref()?;
            let queues = member.queues.iter().map(|(_, connection)| *connection);
            let connections = core::iter::once(member.admin).chain(queues);
            Some(AssociationStatus {
                subsystem: association.subsystem(),
                host: association.host().clone(),
                host_id: association.host_id(),
                controller: association.controller(),
                is_ready: association.is_ready(),
                keep_alive: association.keep_alive(),
                memory: self.memory_of(nvme_fabrics::target::AssociationKey(index)),
                connections: connections.filter_map(|id| self.connection_status(id)).collect(),
            })
        };
        self.fabrics.associations().filter_map(of).collect()
    }

    /// Connections, those without a queue included.
    pub fn connection_count(&self) -> usize {
        self.peers.iter().flatten().count()
    }

    fn connection_status(&self, id: ConnectionId) -> Option<ConnectionStatus> {
        let peer = self.peers.get(id.0 as usize)?.as_ref()?;
        let queue = peer.queue()?;
        Some(ConnectionStatus {
            queue: queue.queue,
            entries: queue.entries,
            peer: peer.address,
            parameters: peer.parameters,
            statistics: peer.connection.statistics(),
            outstanding: peer.connection.outstanding(),
        })
    }
}
