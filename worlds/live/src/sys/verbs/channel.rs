//! Connections and listeners (librdmacm), and their events.

use std::ffi::{c_int, c_void};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::rc::Rc;

use socket2::SockAddr;

use super::super::address::Host;
use super::library::{Library, library};
use super::{abi, checked};

/// How long an address or a route may take to be found, in milliseconds.
const RESOLVE_MS: c_int = 2000;
/// How many connections may wait to be accepted.
const BACKLOG: c_int = 128;
/// How often a device repeats an unacknowledged message: seven times, the maximum.
const RETRIES: u8 = 7;
/// How often a device repeats a message for which the peer had no receive request: without end.
const RETRIES_NOT_READY: u8 = 7;

/// The status of a rejection by the peer's user over InfiniBand and RoCE (reason 28).
const REJECTED_BY_USER: c_int = 28;

/// An event of a listener or a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    /// The way to the peer's address is known, and so is the device.
    AddressResolved,
    /// The route to the peer is known.
    RouteResolved,
    /// A peer asks a listener for a connection.
    Requested,
    /// The connection is made.
    Established,
    /// The peer's user, or its system, refuses the connection.
    Rejected {
        /// The peer's user does.
        by_user: bool,
    },
    /// The peer can't be reached, or does not answer.
    Unreachable,
    /// The connection is over.
    Disconnected,
    /// The device is going away.
    DeviceRemoved,
    /// Something that needs no answer.
    Other,
}

impl Happened {
    const fn of(event: c_int, status: c_int) -> Self {
        match event {
            abi::EVENT_ADDRESS_RESOLVED => Self::AddressResolved,
            abi::EVENT_ROUTE_RESOLVED => Self::RouteResolved,
            abi::EVENT_ADDRESS_ERROR
            | abi::EVENT_ROUTE_ERROR
            | abi::EVENT_CONNECT_ERROR
            | abi::EVENT_UNREACHABLE => Self::Unreachable,
            abi::EVENT_REQUEST => Self::Requested,
            abi::EVENT_REJECTED => {
                Self::Rejected { by_user: status == REJECTED_BY_USER || status == -libc::ECONNREFUSED }
            }
            abi::EVENT_ESTABLISHED => Self::Established,
            abi::EVENT_DISCONNECTED => Self::Disconnected,
            abi::EVENT_DEVICE_REMOVAL => Self::DeviceRemoved,
            _ => Self::Other,
        }
    }
}

/// How many RDMA Reads a connection has under way, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reads {
    /// Reads of the peer.
    pub(crate) served: u8,
    /// Reads of this end.
    pub(crate) asked: u8,
}

/// News of a listener or a connection.
#[derive(Debug)]
pub(crate) struct Happening {
    /// Whose, as [`CmId::name`] has it; of a request, the listener's.
    pub(crate) name: usize,
    pub(crate) happened: Happened,
    /// The private data of the peer's user.
    pub(crate) private_data: Vec<u8>,
    /// The reads that a peer requests with a connection.
    pub(crate) reads: Reads,
    /// The connection that a peer asks for.
    pub(crate) requested: Option<CmId>,
}

/// Listeners and connections of one thread.
#[derive(Debug)]
pub(crate) struct Channel(Rc<Raw>);

#[derive(Debug)]
struct Raw {
    library: &'static Library,
    channel: NonNull<abi::EventChannel>,
}

impl Channel {
    /// A channel without connections.
    ///
    /// # Errors
    /// When the machine lacks the libraries or the kernel's part. The text has the remedy.
    pub(crate) fn open() -> io::Result<Self> {
        let library = library()?;
        // SAFETY: the call has no precondition.
        let channel = unsafe { (library.cm.rdma_create_event_channel)() };
        let channel = NonNull::new(channel).ok_or_else(no_kernel_part)?;
        let channel = Self(Rc::new(Raw { library, channel }));
        // SAFETY: the channel has the descriptor, and exists until the end of this function.
        let descriptor = unsafe { BorrowedFd::borrow_raw(channel.as_raw_fd()) };
        set_nonblocking(descriptor)?;
        Ok(channel)
    }

    /// A new listener or connection.
    ///
    /// # Errors
    /// When the system has no more.
    pub(crate) fn create(&self) -> io::Result<CmId> {
        let mut id = std::ptr::null_mut();
        // SAFETY: the channel exists; the library fills `id` in.
        checked(unsafe {
            (self.0.library.cm.rdma_create_id)(
                self.0.channel.as_ptr(),
                &raw mut id,
                std::ptr::null_mut(),
                abi::PORT_SPACE_TCP,
            )
        })?;
        let id = NonNull::new(id).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(CmId { channel: Rc::clone(&self.0), id })
    }

    /// The next event; `None` if there is none.
    ///
    /// # Errors
    /// When the channel does not work any more.
    pub(crate) fn next(&self) -> io::Result<Option<Happening>> {
        let mut event = std::ptr::null_mut();
        // SAFETY: the channel exists; the library fills `event` in.
        let result =
            unsafe { (self.0.library.cm.rdma_get_cm_event)(self.0.channel.as_ptr(), &raw mut event) };
        match checked(result) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        let event = NonNull::new(event).ok_or(io::ErrorKind::InvalidData)?;
        // SAFETY: the library has just made the event, and frees it when it is acknowledged below.
        let happening = unsafe { self.happening_of(event.as_ref()) };
        // SAFETY: the event is acknowledged once, and its contents were copied.
        checked(unsafe { (self.0.library.cm.rdma_ack_cm_event)(event.as_ptr()) })?;
        Ok(Some(happening))
    }

    /// Copies an event.
    ///
    /// # Safety
    /// The private data that the event names must be there.
    unsafe fn happening_of(&self, event: &abi::CmEvent) -> Happening {
        let happened = Happened::of(event.event, event.status);
        let parameters = &event.parameters;
        let length = usize::from(parameters.private_data_length);
        let has_data =
            matches!(happened, Happened::Requested | Happened::Established | Happened::Rejected { .. })
                && !parameters.private_data.is_null();
        let private_data = match has_data {
            // SAFETY: the library has as many bytes there until the event is acknowledged.
            true => unsafe { std::slice::from_raw_parts(parameters.private_data.cast(), length) }.to_vec(),
            false => Vec::new(),
        };
        let is_request = happened == Happened::Requested;
        // The identifier of a request is a new one, which is this end's from now on.
        let requested = NonNull::new(event.id).filter(|_| is_request);
        let requested = requested.map(|id| CmId { channel: Rc::clone(&self.0), id });
        let name = if is_request { event.listen_id } else { event.id };
        let reads = Reads { served: parameters.responder_resources, asked: parameters.initiator_depth };
        Happening { name: name.addr(), happened, private_data, reads, requested }
    }
}

impl AsRawFd for Channel {
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: the channel exists, and its descriptor does not change.
        unsafe { self.0.channel.as_ref().fd }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: every identifier holds the channel, so none is left.
        unsafe { (self.library.cm.rdma_destroy_event_channel)(self.channel.as_ptr()) };
    }
}

/// Makes reads of a descriptor return at once.
pub(super) fn set_nonblocking(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(descriptor)?;
    Ok(rustix::fs::fcntl_setfl(descriptor, flags | rustix::fs::OFlags::NONBLOCK)?)
}

/// Why there is no channel.
fn no_kernel_part() -> io::Error {
    let error = io::Error::last_os_error();
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => "this user may not use /dev/infiniband/rdma_cm",
        _ => {
            "is there an RDMA device (rdma link), and the kernel's modules rdma_ucm and ib_uverbs? \
             provider=roce and provider=iwarp need neither"
        }
    };
    io::Error::new(error.kind(), format!("the kernel's RDMA connection manager: {error}; {remedy}"))
}

/// A listener, or an end of a connection.
#[derive(Debug)]
pub(crate) struct CmId {
    channel: Rc<Raw>,
    id: NonNull<abi::CmId>,
}

impl CmId {
    pub(super) fn library(&self) -> &'static Library {
        self.channel.library
    }

    pub(super) const fn as_ptr(&self) -> *mut abi::CmId {
        self.id.as_ptr()
    }

    /// Distinguishes it from all others that exist.
    pub(crate) fn name(&self) -> usize {
        self.id.addr().get()
    }

    /// Listens at `address`. Returns the address with the port, if the system was to choose it.
    ///
    /// # Errors
    /// When the address is taken, or is of no RDMA device.
    pub(crate) fn listen(&self, address: SocketAddr) -> io::Result<SocketAddr> {
        let cm = &self.library().cm;
        let place = SockAddr::from(address);
        // SAFETY: the identifier exists, and the address outlives the call, which only reads it.
        checked(unsafe { (cm.rdma_bind_addr)(self.as_ptr(), place.as_ptr().cast_mut().cast()) }).map_err(
            |error| match error.raw_os_error() {
                Some(libc::ENODEV | libc::EADDRNOTAVAIL) => {
                    let why = format!("no RDMA device is at {} (rdma link): {error}", address.ip());
                    io::Error::new(error.kind(), why)
                }
                _ => error,
            },
        )?;
        // SAFETY: as above.
        checked(unsafe { (cm.rdma_listen)(self.as_ptr(), BACKLOG) })?;
        // SAFETY: as above.
        let port = u16::from_be(unsafe { (cm.rdma_get_src_port)(self.as_ptr()) });
        Ok(SocketAddr::new(address.ip(), port))
    }

    /// Looks for the way to `peer`, from `local` if that is given.
    /// [`Happened::AddressResolved`] follows.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn resolve_address(&self, local: Option<Host>, peer: SocketAddr) -> io::Result<()> {
        let local = local.map(|local| SockAddr::from(local.0));
        let source = local.as_ref().map_or(std::ptr::null_mut(), |local| local.as_ptr().cast_mut());
        let place = SockAddr::from(peer);
        let resolve = self.library().cm.rdma_resolve_addr;
        // SAFETY: the identifier exists, and the addresses outlive the call, which only reads them.
        checked(unsafe {
            resolve(self.as_ptr(), source.cast(), place.as_ptr().cast_mut().cast(), RESOLVE_MS)
        })
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ENODEV) => {
                let why = format!("no RDMA device leads to {} (rdma link): {error}", peer.ip());
                io::Error::new(error.kind(), why)
            }
            _ => error,
        })
    }

    /// Looks for the route to the peer. [`Happened::RouteResolved`] follows.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn resolve_route(&self) -> io::Result<()> {
        // SAFETY: the identifier exists.
        checked(unsafe { (self.library().cm.rdma_resolve_route)(self.as_ptr(), RESOLVE_MS) })
    }

    /// Asks the peer for the connection. [`Happened::Established`] or
    /// [`Happened::Rejected`] follows.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn connect(&self, private_data: &[u8], reads: Reads) -> io::Result<()> {
        let mut parameters = parameters(private_data, reads)?;
        // SAFETY: the identifier exists and has a queue pair; the library copies the parameters.
        checked(unsafe { (self.library().cm.rdma_connect)(self.as_ptr(), &raw mut parameters) })
    }

    /// Accepts the connection that the peer has asked for. [`Happened::Established`] follows.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn accept(&self, private_data: &[u8], reads: Reads) -> io::Result<()> {
        let mut parameters = parameters(private_data, reads)?;
        // SAFETY: as above.
        checked(unsafe { (self.library().cm.rdma_accept)(self.as_ptr(), &raw mut parameters) })
    }

    /// Refuses the connection that the peer has asked for.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        let length = u8::try_from(private_data.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let reject = self.library().cm.rdma_reject;
        // SAFETY: the identifier exists; the library copies the bytes.
        checked(unsafe { reject(self.as_ptr(), private_data.as_ptr().cast(), length) })
    }

    /// Ends the connection, or answers that the peer has ended it.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn disconnect(&self) -> io::Result<()> {
        // SAFETY: the identifier exists.
        checked(unsafe { (self.library().cm.rdma_disconnect)(self.as_ptr()) })
    }

    /// The address of the peer, of a connection.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier exists. An address of IPv4 or IPv6 fits into the storage, of the
        // kind that the family names.
        unsafe {
            let storage = (&raw const (*self.as_ptr()).destination).read();
            let length = size_of::<libc::sockaddr_storage>();
            let mut address = socket2::SockAddrStorage::zeroed();
            std::ptr::copy_nonoverlapping(
                (&raw const storage).cast::<u8>(),
                (&raw mut address).cast::<u8>(),
                length,
            );
            let length = libc::socklen_t::try_from(length).ok()?;
            SockAddr::new(address, length).as_socket()
        }
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // SAFETY: the identifier exists, its queue pair is gone, and its events are acknowledged as
        // soon as they are taken.
        unsafe { (self.library().cm.rdma_destroy_id)(self.as_ptr()) };
    }
}

fn parameters(private_data: &[u8], reads: Reads) -> io::Result<abi::ConnectionParameters> {
    let length = u8::try_from(private_data.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(abi::ConnectionParameters {
        private_data: private_data.as_ptr().cast::<c_void>(),
        private_data_length: length,
        responder_resources: reads.served,
        initiator_depth: reads.asked,
        flow_control: 1,
        retry_count: RETRIES,
        rnr_retry_count: RETRIES_NOT_READY,
        srq: 0,
        qp_num: 0,
    })
}
