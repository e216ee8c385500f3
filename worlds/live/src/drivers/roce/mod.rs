//! RDMA over UDP datagrams (RoCEv2): a device and its socket.
//!
//! The socket takes no right. Its datagrams have the identification 0 in their IPv4 headers, which
//! the CRC of RoCEv2 covers: so Linux does when a socket is not connected and never fragments. What
//! peers have there, the socket does not tell; the device then checks half of the CRC's strength
//! (`docs/roce.md`).

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;

use engine::{BufferMut, Engine, Instant, fire, next_wake};
use rdma::{SharedDomain, SharedPool};
use rustix::net::sockopt;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::reactor::{Attention, Context, Driver, Sources, Turn};
use crate::sys::digest::crc32_register;
use crate::sys::entropy::system;
use crate::sys::option::set_option;

pub(crate) use route::Route;

pub use roce::{Config, Counters, Device, PORT, PathMtu, RoceEndpoint, SharedDevice};

/// How many bytes of datagrams may wait in the kernel. The system limits this
/// (`net.core.rmem_max`).
const KERNEL_BYTES: usize = 8 << 20;
/// Datagrams that are received before the answers to them are sent.
const RECEIVE_MAX: usize = 64;
/// Bytes of a packet beside its payload, at most.
const OVERHEAD: usize = 64;
/// `setsockopt` of UDP: take datagrams over IPv6 that have no checksum, as `rdma_rxe` sends them.
const UDP_NO_CHECK6_RX: libc::c_int = 102;
/// What the kernel says when a datagram did not leave: then it is lost, as any may be.
const LOST: [i32; 8] = [
    libc::ECONNREFUSED,
    libc::EHOSTUNREACH,
    libc::EHOSTDOWN,
    libc::ENETUNREACH,
    libc::ENETDOWN,
    libc::EMSGSIZE,
    libc::ENOBUFS,
    libc::EPERM,
];

/// A device with its socket. Users of its connections work between two turns.
#[derive(Debug)]
pub struct Roce {
    device: SharedDevice,
    socket: Socket,
    address: SocketAddr,
    pool: SharedPool,
    /// The longest datagram that is taken.
    length_max: usize,
    /// Room for the next datagram.
    place: Option<BufferMut>,
    /// A datagram that the kernel has not taken yet.
    waiting: Option<roce::Datagram>,
    wake: Option<Instant>,
    /// Something has come, or was due, since somebody asked.
    has_news: bool,
    is_over: bool,
}

impl Roce {
    /// A device at `config.address`, which is an address of this machine. Port, identification and
    /// CRC function of the settings are the socket's.
    ///
    /// # Errors
    /// When the address is unspecified: the CRC covers it, so a device has one. When the system
    /// refuses the address or the port: nobody else may have UDP port [`PORT`] there, `rdma_rxe`
    /// included.
    pub fn open(config: Config, domain: SharedDomain, pool: SharedPool) -> io::Result<Self> {
        let config = Config { port: PORT, identification: 0, crc32: crc32_register, ..config };
        let address = SocketAddr::new(config.address, PORT);
        if config.address.is_unspecified() {
            let why = format!("RoCE is at one address of this machine: name it instead of {}", address.ip());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        match config.address {
            IpAddr::V4(_) => {
                set_option(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
            }
            IpAddr::V6(_) => {
                set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)?;
                set_option(&socket, libc::IPPROTO_UDP, UDP_NO_CHECK6_RX, 1)?;
            }
        }
        socket.bind(&address.into()).map_err(|error| taken(error, address))?;
        socket.set_nonblocking(true)?;
        // Privileged processes get the full size, others what the system allows.
        if sockopt::set_socket_recv_buffer_size_force(&socket, KERNEL_BYTES).is_err() {
            let _ = socket.set_recv_buffer_size(KERNEL_BYTES);
        }
        let _ = socket.set_send_buffer_size(KERNEL_BYTES);
        let length_max = config.mtu.bytes() + OVERHEAD;
        let device = Rc::new(RefCell::new(Device::new(config, domain, Rc::clone(&pool), system())));
        Ok(Self {
            device,
            socket,
            address,
            pool,
            length_max,
            place: None,
            waiting: None,
            wake: None,
            has_news: false,
            is_over: false,
        })
    }

    /// The device, for whoever makes connections.
    pub const fn device(&self) -> &SharedDevice {
        &self.device
    }

    /// Adds the socket to what ends a loop's sleep.
    ///
    /// # Errors
    /// When it was added before.
    pub fn register(&self, sources: &Sources) -> io::Result<()> {
        sources.add(self.as_raw_fd(), Attention::EachTurn)
    }

    /// The address of the device, with the port of RoCE.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether there may be news of connections since the last call.
    pub const fn take_news(&mut self) -> bool {
        core::mem::replace(&mut self.has_news, false)
    }

    /// Receives, fires what is due, and sends. Returns whether there was anything to do.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn work(&mut self, now: Instant) -> io::Result<bool> {
        let received = self.receive(now)?;
        Ok(self.flush(now)? || received)
    }

    /// Fires what is due, and sends. Returns whether there was anything to do. Whoever has let
    /// users of connections work calls this after them.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn flush(&mut self, now: Instant) -> io::Result<bool> {
        let mut device = self.device.borrow_mut();
        let fired = fire(&mut *device, now);
        drop(device);
        self.has_news |= fired;
        let (sent, is_blocked) = self.send()?;
        // While the kernel takes nothing, deadlines wait with what is to be sent.
        self.wake = if is_blocked { None } else { next_wake(&*self.device.borrow(), now) };
        Ok(fired || sent)
    }

    /// Takes the datagrams that have come. Returns whether there were any.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn receive(&mut self, now: Instant) -> io::Result<bool> {
        let mut busy = false;
        for _ in 0..RECEIVE_MAX {
            let place = self.place.take();
            let mut place = place.unwrap_or_else(|| self.pool.borrow_mut().take(self.length_max));
            let (length, from) = match receive_from(&self.socket, &mut place) {
                Ok(received) => received,
                Err(error) => {
                    self.place = Some(place);
                    match error.kind() {
                        io::ErrorKind::WouldBlock => break,
                        _ if is_loss(&error) => continue,
                        _ => return Err(error),
                    }
                }
            };
            busy = true;
            place.truncate(length);
            let bytes = self.pool.borrow_mut().seal(place);
            let received =
                roce::Received { from, to: self.address, identification: None, is_marked: false, bytes };
            self.device.borrow_mut().handle_input(now, roce::Input::Datagram(received));
        }
        self.has_news |= busy;
        Ok(busy)
    }

    /// Sends what there is to be sent. Returns whether there was anything, and whether some is
    /// left.
    fn send(&mut self) -> io::Result<(bool, bool)> {
        let mut busy = false;
        loop {
            let next = self.waiting.take().or_else(|| {
                let roce::Output::Datagram(datagram) = self.device.borrow_mut().poll_output()?;
                Some(datagram)
            });
            let Some(datagram) = next else { return Ok((busy, false)) };
            let slices = datagram.slices().map(IoSlice::new);
            match self.socket.send_to_vectored(&slices, &SockAddr::from(datagram.to)) {
                Ok(_) => busy = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.waiting = Some(datagram);
                    return Ok((busy, true));
                }
                Err(error) if is_loss(&error) => busy = true,
                Err(error) => return Err(error),
            }
        }
    }
}

/// Receives a datagram. A longer one is cut, and its CRC is wrong then.
fn receive_from(socket: &Socket, place: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    let (length, from) = rustix::net::recvfrom(socket, place, rustix::net::RecvFlags::DONTWAIT)
        .map(|(length, _, from)| (length, from))?;
    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
    Ok((length, from.ok_or_else(|| io::Error::other("a datagram came without its sender"))?))
}

/// Says who may have the port, if somebody has it.
fn taken(error: io::Error, address: SocketAddr) -> io::Error {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let why = format!(
                "UDP port {PORT} of {} is taken: one program at a time has RoCE there, the kernel's rdma_rxe \
                 included; use another address",
                address.ip()
            );
            io::Error::new(io::ErrorKind::AddrInUse, why)
        }
        _ => error,
    }
}

fn is_loss(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| LOST.contains(&code))
}

impl AsRawFd for Roce {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Driver for Roce {
    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let busy = self.work(context.now)?;
        Ok(match (self.is_over, busy) {
            (_, true) => Turn::Busy,
            (true, false) => Turn::Done,
            (false, false) => Turn::Idle,
        })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.wake
    }

    fn on_stop(&mut self, _now: Instant) {
        self.is_over = true;
    }
}

mod route;
#[cfg(test)]
mod tests;
