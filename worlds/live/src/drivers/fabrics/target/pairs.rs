//! Ports of RoCE, and the queue pairs that came there. A port is a device: one socket carries all
//! of its queue pairs, so they stay with the reactor that has the socket.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use assemblies::fabric::Fabric;
use assemblies::target::{Accepted, ConnectionId, Input};
use engine::{Engine, Instant};
use nvme_fabrics::wire::PortId;
use nvme_rdma::QUEUE_SIZE_MAX;
use nvme_tcp::SharedPool;
use rdma::ProtectionDomain;
use roce::RoceEndpoint;

use super::link::Link;
use super::{Event, TargetDriver};
use crate::drivers::roce::{Change, Config, PathMtu, Roce};
use crate::reactor::{Driver, Sources};
use crate::sys::entropy::system;
use crate::sys::precedence::Precedence;

/// A port of RoCE.
#[derive(Debug)]
struct Port {
    id: PortId,
    address: SocketAddr,
    roce: Roce,
}

/// The ports of RoCE, and the connections that came there.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    ports: Vec<Port>,
    connections: Vec<ConnectionId>,
}

impl Pairs {
    /// The address of each port.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (Fabric, SocketAddr)> {
        self.ports.iter().map(|port| (Fabric::Roce, port.address))
    }

    pub(super) fn remove_port(&mut self, id: PortId) {
        self.ports.retain(|port| port.id != id);
    }

    /// Lets the sockets end a sleep.
    pub(super) fn register(&mut self, sources: &Sources) -> io::Result<()> {
        self.ports.iter_mut().try_for_each(|port| port.roce.register(sources))
    }

    pub(super) fn is_registered(&self) -> bool {
        self.ports.iter().all(|port| port.roce.is_registered())
    }

    pub(super) fn forget(&mut self, id: ConnectionId) {
        self.connections.retain(|one| *one != id);
    }

    /// Fires what is due, and sends. Returns whether there was anything to do.
    pub(super) fn flush(&mut self, now: Instant) -> bool {
        let mut busy = false;
        for port in &mut self.ports {
            busy |= port.roce.flush(now);
        }
        busy
    }

    /// What has become of the socket of a port, told once.
    fn take_change(&mut self) -> Option<(SocketAddr, Change)> {
        self.ports.iter_mut().find_map(|port| Some((port.address, port.roce.take_change()?)))
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.ports.iter().filter_map(|port| port.roce.poll_timeout()).min()
    }
}

/// A device at the address of a port.
fn open(address: SocketAddr, precedence: Precedence, pool: &SharedPool) -> io::Result<Roce> {
    if address.port() == 0 {
        let why = "RoCE has no free port to choose: name one, such as 4420";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let domain = ProtectionDomain::new(ProtectionDomain::REGIONS_MAX, Rc::clone(pool), system());
    let config = Config {
        // Hosts decide, by their own links.
        mtu: PathMtu::B4096,
        send_depth: 2 * QUEUE_SIZE_MAX,
        receive_depth: 2 * QUEUE_SIZE_MAX,
        ..Config::new(address.ip())
    };
    let roce = Roce::open(config, precedence, Rc::new(RefCell::new(domain)), Rc::clone(pool))?;
    roce.device().borrow_mut().listen(address.port());
    Ok(roce)
}

impl<F: FnMut(Event)> TargetDriver<F> {
    /// Listens at `address` as port `id`, for queue pairs of RoCE, whose datagrams are carried with
    /// `precedence`.
    ///
    /// # Errors
    /// When the system refuses the address, or another program has RoCE there.
    pub fn add_roce_port(
        &mut self,
        id: PortId,
        address: SocketAddr,
        precedence: Precedence,
    ) -> io::Result<()> {
        let roce = open(address, precedence, &self.pool)?;
        self.pairs.ports.push(Port { id, address, roce });
        Ok(())
    }

    /// Takes the datagrams that have come, lets the queue pairs hear of them, and answers. Returns
    /// whether there was anything.
    pub(super) fn receive_pairs(&mut self, now: Instant) -> bool {
        let mut has_news = false;
        for port in &mut self.pairs.ports {
            port.roce.receive(now);
            has_news |= port.roce.take_news();
        }
        while let Some((address, change)) = self.pairs.take_change() {
            (self.world.report)(match change {
                Change::Failed(error) => Event::PortFailed(address, error),
                Change::Restored => Event::PortRestored(address),
            });
        }
        if !has_news {
            return false;
        }
        self.now = now;
        for index in 0..self.pairs.ports.len() {
            let port = &self.pairs.ports[index];
            let (id, local, device) = (port.id, port.address, Rc::clone(port.roce.device()));
            while let Some(pair) = RoceEndpoint::next_requested(&device) {
                self.begin_pair(now, id, local, pair);
            }
        }
        for id in self.pairs.connections.clone() {
            self.target.engine_mut().handle_input(now, Input::Stirred(id));
        }
        self.target.exchange(now, &mut self.world);
        self.pairs.flush(now);
        true
    }

    fn begin_pair(&mut self, now: Instant, port: PortId, local: SocketAddr, pair: RoceEndpoint) {
        let Some(peer) = pair.peer() else { return };
        // A queue pair that is dropped is refused.
        let Some(connection) = self.free_name().filter(|_| !self.stopping) else { return };
        self.world.links[connection.0 as usize] = Some(Link::new(None, port, Fabric::Roce, now));
        self.pairs.connections.push(connection);
        let peer = SocketAddr::new(peer, roce::PORT);
        let (fabric, proved, resume, pair) = (Fabric::Roce, None, None, Some(pair));
        let accepted = Accepted { connection, port, fabric, peer, local, proved, resume, pair };
        self.target.engine_mut().handle_input(now, Input::Accepted(accepted));
        self.target.exchange(now, &mut self.world);
    }
}
