//! RDMA by devices of this machine, such as cards, `rdma_rxe` and `siw` ([`crate::sys::verbs`]).
//!
//! [`Verbs`] has the listener and the connections of one thread. A [`VerbsEndpoint`] is one
//! connection, and looks to its user as one of iWARP or RoCE does.

mod ended;
mod endpoint;
mod in_order;
mod link;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::rc::{Rc, Weak};

use engine::{Instant, Nanos};
use rdma::SharedPool;
use tracing::warn;

use crate::reactor::{Attention, Sources};
use crate::sys::address::Host;
use crate::sys::verbs::{Channel, CmId, Depths, Happened, Happening};

pub use endpoint::VerbsEndpoint;
use link::Link;

/// How long to wait before a listener whose device has gone listens again.
const LISTEN_AGAIN: Nanos = Nanos::from_secs(1);
/// Connections that peers have asked for and that are not taken yet. More are refused.
const REQUESTED_MAX: usize = 128;

/// A change of a listener.
#[derive(Debug)]
pub enum Change {
    /// Its device has gone, or the system reports no more events: the connections of it are over.
    Failed(io::Error),
    /// It works again.
    Restored,
}

/// A listener.
#[derive(Debug)]
struct Listener {
    address: SocketAddr,
    /// The listener of the system; none while there is no device.
    id: Option<CmId>,
    /// When to try again.
    again: Instant,
}

/// A listener and connections on the RDMA devices of this machine. Users of its connections work
/// between two turns.
#[derive(Debug)]
pub struct Verbs {
    depths: Depths,
    pool: SharedPool,
    listener: Option<Listener>,
    links: Vec<Weak<RefCell<Link>>>,
    /// Connections that peers have asked for, and where they are.
    requested: VecDeque<(VerbsEndpoint, SocketAddr)>,
    has_news: bool,
    change: Option<Change>,
    is_registered: bool,
    /// Dropped after all objects whose events it reports.
    channel: Channel,
}

impl Verbs {
    /// No connections yet. Queue pairs take `depth` requests in either direction, and messages that
    /// have come are copied into blocks of `pool`.
    ///
    /// # Errors
    /// When the machine lacks libibverbs, librdmacm, or the kernel's part of them. The text has the
    /// remedy.
    pub fn open(depth: u16, pool: SharedPool) -> io::Result<Self> {
        Ok(Self {
            depths: Depths { send: depth, receive: depth },
            pool,
            listener: None,
            links: Vec::new(),
            requested: VecDeque::new(),
            has_news: false,
            change: None,
            is_registered: false,
            channel: Channel::open()?,
        })
    }

    /// Listens at `address`, which may be unspecified: then at every device. Returns the address
    /// with its port.
    ///
    /// # Errors
    /// When the address is taken, or belongs to no RDMA device.
    pub fn listen(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        let id = self.channel.create()?;
        let address = id.listen(address)?;
        self.listener = Some(Listener { address, id: Some(id), again: Instant::ZERO });
        Ok(address)
    }

    /// Asks `peer` for a connection, from the address `local` of this machine if that is given.
    ///
    /// # Errors
    /// When no device leads there.
    pub fn connect(
        &mut self,
        peer: SocketAddr,
        local: Option<Host>,
        private_data: &[u8],
    ) -> io::Result<VerbsEndpoint> {
        let id = self.channel.create()?;
        id.resolve_address(local, peer)?;
        let link = Link::connecting(id, self.depths, Rc::clone(&self.pool), private_data);
        Ok(self.adopt(link))
    }

    fn adopt(&mut self, link: Link) -> VerbsEndpoint {
        let link = Rc::new(RefCell::new(link));
        self.links.push(Rc::downgrade(&link));
        VerbsEndpoint::new(link)
    }

    /// The next connection that a peer has asked for, and the peer's address. Its first event
    /// is [`rdma::Event::Requested`].
    pub fn next_requested(&mut self) -> Option<(VerbsEndpoint, SocketAddr)> {
        self.requested.pop_front()
    }

    /// Adds the descriptors that end a loop's sleep, unless they are added already.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn register(&mut self, sources: &Sources) -> io::Result<()> {
        if !self.is_registered {
            sources.add(self.channel.as_raw_fd(), Attention::OnNews)?;
            self.is_registered = true;
        }
        for link in self.links.iter().filter_map(Weak::upgrade) {
            let mut link = link.borrow_mut();
            if !link.is_registered
                && let Some(descriptor) = link.pair().map(AsRawFd::as_raw_fd)
            {
                sources.add(descriptor, Attention::EachTurn)?;
                link.is_registered = true;
            }
        }
        Ok(())
    }

    /// Whether there is nothing to register.
    pub(crate) fn is_registered(&self) -> bool {
        let is_missing = |link: Rc<RefCell<Link>>| {
            let link = link.borrow();
            !link.is_registered && link.pair().is_some()
        };
        self.is_registered && !self.links.iter().filter_map(Weak::upgrade).any(is_missing)
    }

    /// Whether there may be news of connections since the last call.
    pub const fn take_news(&mut self) -> bool {
        core::mem::replace(&mut self.has_news, false)
    }

    /// The last change of the listener, returned once.
    pub const fn take_change(&mut self) -> Option<Change> {
        self.change.take()
    }

    /// Takes completions always, and the system's events of connections when there is `news`.
    /// Returns whether there was anything.
    pub fn receive(&mut self, now: Instant, news: bool) -> bool {
        let mut busy = news && self.take_happenings(now);
        self.links.retain(|link| match link.upgrade() {
            Some(link) => {
                busy |= link.borrow_mut().poll(now);
                true
            }
            None => false,
        });
        self.has_news |= busy;
        busy
    }

    /// Has devices report their next completions, and listens again where a device has come back.
    /// Returns whether the next turn is to come at once. A caller that has let users of connections
    /// work calls this after them.
    pub fn flush(&mut self, now: Instant) -> bool {
        self.listen_again(now);
        let mut busy = false;
        for link in self.links.iter().filter_map(Weak::upgrade) {
            let mut link = link.borrow_mut();
            busy |= link.rest(now);
            self.has_news |= link.has_news();
        }
        busy
    }

    /// When [`Verbs::flush`] is due even without news.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let listener = self.listener.as_ref().filter(|listener| listener.id.is_none());
        listener.map(|listener| listener.again)
    }

    /// Takes the system's events. Returns whether there was anything.
    fn take_happenings(&mut self, now: Instant) -> bool {
        let mut busy = false;
        loop {
            match self.channel.next() {
                Ok(Some(happening)) => self.on_happening(now, happening),
                Ok(None) => return busy,
                Err(error) => {
                    self.change = Some(Change::Failed(error));
                    return true;
                }
            }
            busy = true;
        }
    }

    fn on_happening(&mut self, now: Instant, mut happening: Happening) {
        if let Some(id) = happening.requested.take() {
            return self.on_requested(id, happening);
        }
        if let Some(listener) = &mut self.listener
            && listener.id.as_ref().is_some_and(|id| id.name() == happening.name)
        {
            if happening.happened == Happened::DeviceRemoved {
                listener.id = None;
                listener.again = now + LISTEN_AGAIN;
                self.change = Some(Change::Failed(io::Error::other("its RDMA device is going away")));
            }
            return;
        }
        let mut links = self.links.iter().filter_map(Weak::upgrade);
        if let Some(link) = links.find(|link| link.borrow().name() == Some(happening.name)) {
            link.borrow_mut().on_happening(happening);
        }
    }

    fn on_requested(&mut self, id: CmId, happening: Happening) {
        let Some(peer) = id.peer().filter(|_| self.requested.len() < REQUESTED_MAX) else {
            // An identifier that is dropped refuses.
            return;
        };
        let Happening { private_data, reads, .. } = happening;
        match Link::requested(id, self.depths, Rc::clone(&self.pool), private_data, reads) {
            Ok(link) => {
                let endpoint = self.adopt(link);
                self.requested.push_back((endpoint, peer));
            }
            Err(error) => warn!("RDMA by verbs: {peer} was rejected: {error}"),
        }
    }

    fn listen_again(&mut self, now: Instant) {
        let Some(listener) = &mut self.listener else { return };
        if listener.id.is_some() || now < listener.again {
            return;
        }
        match self.channel.create().and_then(|id| id.listen(listener.address).map(|_| id)) {
            Ok(id) => {
                listener.id = Some(id);
                self.change = Some(Change::Restored);
            }
            Err(_) => listener.again = now + LISTEN_AGAIN,
        }
    }
}
