//! Ports of RoCE and of devices of this machine, and the queue pairs that came there. One socket,
//! or one channel of the system, carries all queue pairs of a port, so they stay with the reactor
//! that has it.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use assemblies::fabric::{Fabric, Pair};
use assemblies::target::{Accepted, ConnectionId, Input};
use engine::{Engine, Instant};
use nvme_fabrics::wire::PortId;
use nvme_rdma::QUEUE_SIZE_MAX;
use nvme_tcp::SharedPool;
use rdma::ProtectionDomain;
use roce::RoceEndpoint;

use super::link::Link;
use super::{Event, TargetDriver};
use crate::drivers::roce::{self as by_roce, Config, PathMtu, Roce};
use crate::drivers::verbs::{self as by_verbs, Verbs};
use crate::reactor::{Driver, Sources};
use crate::sys::address::zone_of;
use crate::sys::entropy::system;
use crate::sys::precedence::Precedence;

/// The carrier of the queue pairs of a port.
#[derive(Debug)]
enum Carrier {
    Roce(Box<Roce>),
    Verbs(Box<Verbs>),
}

/// Does the same with each carrier.
macro_rules! each {
    ($carrier:expr, $world:ident => $act:expr) => {
        match $carrier {
            Carrier::Roce($world) => $act,
            Carrier::Verbs($world) => $act,
        }
    };
}

impl Carrier {
    const fn fabric(&self) -> Fabric {
        match self {
            Self::Roce(_) => Fabric::Roce,
            Self::Verbs(_) => Fabric::Verbs,
        }
    }

    /// Takes received messages; the kernel has `news`, or not. Returns whether there may be news of
    /// any queue pair.
    fn receive(&mut self, now: Instant, news: bool) -> bool {
        match self {
            Self::Roce(roce) => {
                roce.receive(now);
                roce.take_news()
            }
            Self::Verbs(verbs) => {
                verbs.receive(now, news);
                verbs.take_news()
            }
        }
    }

    /// The next queue pair that a host has asked for, and where the host is.
    fn next_requested(&mut self) -> Option<(Box<dyn Pair>, SocketAddr)> {
        match self {
            Self::Roce(roce) => {
                let pair = RoceEndpoint::next_requested(roce.device())?;
                let peer = SocketAddr::new(pair.peer()?, roce::PORT);
                Some((Box::new(pair), peer))
            }
            Self::Verbs(verbs) => {
                let (pair, peer) = verbs.next_requested()?;
                Some((Box::new(pair), peer))
            }
        }
    }

    /// Why it has failed, or that it works again; returned once.
    fn take_change(&mut self) -> Option<Result<(), io::Error>> {
        Some(match self {
            Self::Roce(roce) => match roce.take_change()? {
                by_roce::Change::Failed(error) => Err(error),
                by_roce::Change::Restored => Ok(()),
            },
            Self::Verbs(verbs) => match verbs.take_change()? {
                by_verbs::Change::Failed(error) => Err(error),
                by_verbs::Change::Restored => Ok(()),
            },
        })
    }
}

/// A port of queue pairs.
#[derive(Debug)]
struct Port {
    id: PortId,
    address: SocketAddr,
    carrier: Carrier,
}

/// The ports of queue pairs, and the connections that came there.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    ports: Vec<Port>,
    connections: Vec<ConnectionId>,
}

impl Pairs {
    /// The address of each port.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (Fabric, SocketAddr)> {
        self.ports.iter().map(|port| (port.carrier.fabric(), port.address))
    }

    pub(super) fn remove_port(&mut self, id: PortId) {
        self.ports.retain(|port| port.id != id);
    }

    /// Lets received messages end a sleep.
    pub(super) fn register(&mut self, sources: &Sources) -> io::Result<()> {
        self.ports.iter_mut().try_for_each(|port| each!(&mut port.carrier, world => world.register(sources)))
    }

    pub(super) fn is_registered(&self) -> bool {
        self.ports.iter().all(|port| each!(&port.carrier, world => world.is_registered()))
    }

    /// Whether any host has come by a queue pair.
    pub(super) const fn has_any(&self) -> bool {
        !self.connections.is_empty()
    }

    pub(super) fn forget(&mut self, id: ConnectionId) {
        self.connections.retain(|one| *one != id);
    }

    /// Fires due deadlines, and sends. Returns whether there was anything to do.
    pub(super) fn flush(&mut self, now: Instant) -> bool {
        let mut busy = false;
        for port in &mut self.ports {
            busy |= each!(&mut port.carrier, world => world.flush(now));
        }
        busy
    }

    /// The last change of a port, returned once.
    fn take_change(&mut self) -> Option<(SocketAddr, Result<(), io::Error>)> {
        self.ports.iter_mut().find_map(|port| Some((port.address, port.carrier.take_change()?)))
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.ports.iter().filter_map(|port| each!(&port.carrier, world => world.poll_timeout())).min()
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
    let roce =
        Roce::open(config, zone_of(address), precedence, Rc::new(RefCell::new(domain)), Rc::clone(pool))?;
    roce.device().borrow_mut().listen(address.port());
    Ok(roce)
}

impl<F: FnMut(Event)> TargetDriver<F> {
    /// Listens at `address` as port `id`, for queue pairs of RoCE, whose datagrams are carried
    /// with `precedence`.
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
        self.pairs.ports.push(Port { id, address, carrier: Carrier::Roce(Box::new(roce)) });
        Ok(())
    }

    /// Listens at `address` as port `id`, for queue pairs of devices of this machine. Returns the
    /// address with its port.
    ///
    /// # Errors
    /// When the machine lacks libibverbs or librdmacm, or no device is at the address.
    pub fn add_verbs_port(&mut self, id: PortId, address: SocketAddr) -> io::Result<SocketAddr> {
        let mut verbs = Verbs::open(2 * QUEUE_SIZE_MAX, Rc::clone(&self.pool))?;
        let address = verbs.listen(address)?;
        self.pairs.ports.push(Port { id, address, carrier: Carrier::Verbs(Box::new(verbs)) });
        Ok(address)
    }

    /// Takes received messages for queue pairs, passes them on, and answers; the kernel has `news`,
    /// or not. Returns whether there were any.
    pub(super) fn receive_pairs(&mut self, now: Instant, news: bool) -> bool {
        let mut has_news = false;
        for port in &mut self.pairs.ports {
            has_news |= port.carrier.receive(now, news);
        }
        while let Some((address, change)) = self.pairs.take_change() {
            (self.shell.report)(match change {
                Err(error) => Event::PortFailed(address, error),
                Ok(()) => Event::PortRestored(address),
            });
        }
        if !has_news {
            return false;
        }
        self.now = now;
        for index in 0..self.pairs.ports.len() {
            while let Some((pair, peer)) = self.pairs.ports[index].carrier.next_requested() {
                self.begin_pair(now, index, pair, peer);
            }
        }
        for id in self.pairs.connections.clone() {
            self.target.engine_mut().handle_input(now, Input::Stirred(id));
        }
        self.target.exchange(now, &mut self.shell);
        self.pairs.flush(now);
        true
    }

    fn begin_pair(&mut self, now: Instant, index: usize, pair: Box<dyn Pair>, peer: SocketAddr) {
        let port = &self.pairs.ports[index];
        let (port, local, fabric) = (port.id, port.address, port.carrier.fabric());
        // A queue pair that is dropped is refused.
        let Some(connection) = self.free_name().filter(|_| !self.stopping) else { return };
        self.shell.links[connection.0 as usize] = Some(Link::new(None, port, fabric, now));
        self.pairs.connections.push(connection);
        let (proved, resume, pair) = (None, None, Some(pair));
        let accepted = Accepted { connection, port, fabric, peer, local, proved, resume, pair };
        self.target.engine_mut().handle_input(now, Input::Accepted(accepted));
        self.target.exchange(now, &mut self.shell);
    }
}

#[cfg(test)]
mod tests {
    use nvme_fabrics::target::Directory;

    use super::*;
    use crate::drivers::roce::Device;

    #[test]
    fn queue_pairs_end_with_their_port() {
        let now = Instant::ZERO;
        let mut driver = TargetDriver::new(now, Directory::default(), |_| {});
        let address = SocketAddr::from(([127, 0, 0, 1], roce::PORT));
        let domain = ProtectionDomain::new(16, Rc::clone(&driver.pool), system());
        let domain = Rc::new(RefCell::new(domain));
        let device = Device::new(Config::new(address.ip()), domain, Rc::clone(&driver.pool), system());
        let device = Rc::new(RefCell::new(device));
        let pair = RoceEndpoint::connect(&device, address.ip(), 4420, &[]).unwrap();
        let (connection, port, fabric) = (ConnectionId(0), PortId(1), Fabric::Roce);
        driver.shell.links.push(Some(Link::new(None, port, fabric, now)));
        driver.pairs.connections.push(connection);
        let (proved, resume, pair) = (None, None, Some(Box::new(pair) as Box<dyn Pair>));
        let (peer, local) = (address, address);
        let accepted = Accepted { connection, port, fabric, peer, local, proved, resume, pair };
        driver.target.engine_mut().handle_input(now, Input::Accepted(accepted));
        // Another port.
        driver.remove_port(PortId(2));
        assert_eq!(driver.target().connection_count(), 1);
        driver.remove_port(port);
        assert!(driver.shell.links[0].is_none() && driver.pairs.connections.is_empty());
        assert_eq!((driver.target().connection_count(), device.borrow().connections()), (0, 0));
    }
}
