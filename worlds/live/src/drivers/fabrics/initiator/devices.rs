//! The devices by which an initiator reaches its paths. Of RoCE there is one for each address of
//! this machine that a path is reached from, for all queue pairs there. All devices of libibverbs
//! share one [`Verbs`].

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use assemblies::fabric::Pair;
use assemblies::initiator::ConnectionId;
use engine::Instant;
use nvme_tcp::SharedPool;
use rdma::ProtectionDomain;

use crate::drivers::roce::{Config, Roce, RoceEndpoint, Route};
use crate::drivers::verbs::Verbs;
use crate::reactor::Sources;
use crate::sys::address::{Host, zone_of};
use crate::sys::entropy::system;
use crate::sys::precedence::Precedence;

/// How many addresses of loopback are tried until one is free.
const LOOPBACK_TRIES: u32 = 64;

/// The carrier of an initiator's queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// RoCE, over sockets.
    Roce,
    /// Devices of this machine.
    Verbs,
}

/// How an initiator reaches its paths by queue pairs.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// Their carrier.
    pub carrier: Carrier,
    /// The address of this machine to use, instead of that which leads to the peer.
    pub local: Option<Host>,
    /// Requests that a queue pair takes in either direction.
    pub depth: u16,
    /// How much sooner than others datagrams are carried.
    pub precedence: Precedence,
}

/// A device, and the address that the system would have used to reach its peers.
#[derive(Debug)]
struct Device {
    roce: Roce,
    usual: SocketAddr,
}

/// The devices of an initiator.
#[derive(Debug)]
pub(super) struct Devices {
    reach: Reach,
    pool: SharedPool,
    devices: Vec<Device>,
    /// The devices of libibverbs, once a path needed them.
    verbs: Option<Verbs>,
    pairs: Vec<ConnectionId>,
}

impl Devices {
    pub(super) const fn new(reach: Reach, pool: SharedPool) -> Self {
        Self { reach, pool, devices: Vec::new(), verbs: None, pairs: Vec::new() }
    }

    /// Asks `peer` for a queue pair, for the connection `id`.
    ///
    /// # Errors
    /// When there is no way to the peer; by RoCE, when another program has it at the address that
    /// leads there, or while the device's socket does not work; by verbs, when the machine lacks
    /// the libraries.
    pub(super) fn reach(
        &mut self,
        id: ConnectionId,
        peer: SocketAddr,
        private_data: &[u8],
    ) -> io::Result<Box<dyn Pair>> {
        let pair: Box<dyn Pair> = match self.reach.carrier {
            Carrier::Roce => Box::new(self.reach_by_roce(peer, private_data)?),
            Carrier::Verbs => {
                let verbs = match &mut self.verbs {
                    Some(verbs) => verbs,
                    none => none.insert(Verbs::open(self.reach.depth, Rc::clone(&self.pool))?),
                };
                Box::new(verbs.connect(peer, self.reach.local, private_data)?)
            }
        };
        self.pairs.push(id);
        Ok(pair)
    }

    fn reach_by_roce(&mut self, peer: SocketAddr, private_data: &[u8]) -> io::Result<RoceEndpoint> {
        let route = Route::to(peer, self.reach.local)?;
        let index =
            match self.devices.iter().position(|one| {
                (one.usual.ip(), zone_of(one.usual)) == (route.local.ip(), zone_of(route.local))
            }) {
                Some(index) => index,
                None => {
                    let roce = self.open(route)?;
                    self.devices.push(Device { roce, usual: route.local });
                    self.devices.len() - 1
                }
            };
        let roce = &self.devices[index].roce;
        if let Some(why) = roce.failure() {
            let why = format!("the socket of RoCE at {} has failed: {why}", roce.address());
            return Err(io::Error::new(io::ErrorKind::NotConnected, why));
        }
        let pair = RoceEndpoint::connect(roce.device(), peer.ip(), peer.port(), private_data);
        pair.map_err(io::Error::other)
    }

    /// Opens a device. All of 127.0.0.0/8 is this machine: programs there that meet each other take
    /// different addresses.
    fn open(&self, route: Route) -> io::Result<Roce> {
        let mut opened = self.open_at(route.local.ip(), route);
        let is_free = self.reach.local.is_none();
        if let IpAddr::V4(address) = route.local.ip()
            && address.is_loopback()
            && is_free
        {
            let mut next = u32::from(Ipv4Addr::new(127, 47, 91, 0)) + (std::process::id() & 0xFFFF);
            for _ in 0..LOOPBACK_TRIES {
                let is_taken = opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse);
                if !is_taken {
                    break;
                }
                next += 1;
                opened = self.open_at(Ipv4Addr::from(next).into(), route);
            }
        }
        opened
    }

    fn open_at(&self, address: IpAddr, route: Route) -> io::Result<Roce> {
        let domain = ProtectionDomain::new(ProtectionDomain::REGIONS_MAX, Rc::clone(&self.pool), system());
        let config = Config {
            mtu: route.mtu,
            send_depth: self.reach.depth,
            receive_depth: self.reach.depth,
            ..Config::new(address)
        };
        Roce::open(
            config,
            zone_of(route.local),
            self.reach.precedence,
            Rc::new(RefCell::new(domain)),
            Rc::clone(&self.pool),
        )
    }

    /// The connections that devices carry.
    pub(super) fn pairs(&self) -> Vec<ConnectionId> {
        self.pairs.clone()
    }

    /// Forgets a connection.
    pub(super) fn forget(&mut self, id: ConnectionId) {
        self.pairs.retain(|one| *one != id);
    }

    /// Takes received messages; the kernel has `news`, or not. Returns whether there may be news of
    /// any connection.
    ///
    /// # Errors
    /// When a socket cannot be waited for.
    pub(super) fn receive(&mut self, now: Instant, sources: &Sources, news: bool) -> io::Result<bool> {
        let mut has_news = false;
        if let Some(verbs) = &mut self.verbs {
            verbs.register(sources)?;
            verbs.receive(now, news);
            has_news |= verbs.take_news();
        }
        for device in &mut self.devices {
            device.roce.register(sources)?;
            device.roce.receive(now);
            has_news |= device.roce.take_news();
        }
        Ok(has_news)
    }

    /// Fires due deadlines, and sends. Returns whether there was anything to do.
    pub(super) fn flush(&mut self, now: Instant) -> bool {
        let mut busy = self.verbs.as_mut().is_some_and(|verbs| verbs.flush(now));
        for device in &mut self.devices {
            busy |= device.roce.flush(now);
        }
        busy
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        use crate::reactor::Driver;
        let verbs = self.verbs.as_ref().and_then(Verbs::poll_timeout);
        self.devices.iter().filter_map(|device| device.roce.poll_timeout()).chain(verbs).min()
    }
}
